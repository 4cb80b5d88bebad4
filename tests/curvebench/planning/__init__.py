"""Tests of curvebench/planning."""
