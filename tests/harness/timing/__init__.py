"""Tests of harness/timing."""
