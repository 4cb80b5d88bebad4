"""Tests of property claims."""
