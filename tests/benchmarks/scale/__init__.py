"""Tests of benchmarks.scale."""
