"""Tests of reports/figures."""
