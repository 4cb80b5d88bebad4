"""Tests of curvebench/stages."""
