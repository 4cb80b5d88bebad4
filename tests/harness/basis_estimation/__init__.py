"""Tests of harness/basis_estimation."""
