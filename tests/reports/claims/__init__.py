"""Tests of reports/claims."""
