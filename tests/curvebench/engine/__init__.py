"""Tests of curvebench/engine."""
