"""Tests of the simulations that check the statistics."""
