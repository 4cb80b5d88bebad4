"""Tests of curvebench/spec."""
