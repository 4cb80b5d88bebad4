"""Tests of statistics/."""
