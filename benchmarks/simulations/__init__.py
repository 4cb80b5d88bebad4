"""Simulations that check the statistics: coverage of intervals, false positives and power of tests."""
