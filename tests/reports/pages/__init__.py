"""Tests of reports/pages."""
