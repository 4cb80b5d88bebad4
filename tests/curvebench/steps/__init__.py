"""Tests of curvebench/steps."""
