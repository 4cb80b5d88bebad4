"""Access to the engine of a backend by its name."""

from __future__ import annotations

import importlib

from curvebench.backends import module_of
from curvebench.steps.engine import Engine


def engine(backend: str, precision: str, device: str = "cpu") -> Engine:
    """Return the engine of a backend, which differentiates losses and executes compiled steps.

    Only a call of this function imports the library of the backend.

    Args:
        backend: `jax` or `torch`.
        precision: precision policy: `float64`, `float32`, `tf32`, `mixed` or `bfloat16`
            (docs/reference/precision.md).
        device: `cpu` or `gpu`.

    Raises:
        InputError: when the precision is unknown, or this machine does not have the device.

    Example:
        >>> from curvebench import make_engine
        >>> make_engine("jax", "float64").device
        'cpu'
    """
    return importlib.import_module(module_of(backend)).make(precision, device)
