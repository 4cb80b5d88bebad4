"""Tests of optimizers/bases."""
