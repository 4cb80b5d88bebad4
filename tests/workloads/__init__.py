"""Tests of the workloads."""
