"""Tests of harness/engine."""
