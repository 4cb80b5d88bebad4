"""Tests of curvebench/timing."""
