"""Tests of optimizers."""
