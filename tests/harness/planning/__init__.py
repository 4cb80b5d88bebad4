"""Tests of harness/planning."""
