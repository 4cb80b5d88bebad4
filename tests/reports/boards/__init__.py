"""Tests of reports/boards."""
