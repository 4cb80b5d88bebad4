"""Estimation of bases from gradients, before and during runs."""
