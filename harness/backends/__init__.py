"""Backends: a table of array functions each, and the executors that run bundles of lanes on them."""

BACKENDS = ("jax", "torch")
