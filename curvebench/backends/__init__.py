"""Backends: the engines of JAX and PyTorch, which differentiate, compile and take the steps of a bundle."""

BACKENDS = ("jax", "torch")


def module_of(backend: str) -> str:
    """The module of a backend's engine."""
    return f"curvebench.backends.{backend}_engine"
