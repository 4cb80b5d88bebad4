"""Tests of workloads/networks."""
