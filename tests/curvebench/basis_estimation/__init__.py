"""Tests of curvebench/basis_estimation."""
