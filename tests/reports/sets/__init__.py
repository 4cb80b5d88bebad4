"""Tests of reports/sets."""
