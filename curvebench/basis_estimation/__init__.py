"""Bases estimated from gradients: before a run, and anew during it."""
