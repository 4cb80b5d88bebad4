"""Tests of harness/stages."""
