"""Backends: a table of array functions each, and the executors that run bundles of lanes on them."""

BACKENDS = ("jax", "torch")


def module_of(backend: str) -> str:
    """The module of a backend's engine."""
    return f"curvebench.backends.{backend}_engine"
