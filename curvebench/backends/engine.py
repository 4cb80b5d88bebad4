"""The engine of a backend by its name."""

from __future__ import annotations

import importlib

from curvebench.backends import module_of
from curvebench.steps.engine import Engine


def engine(backend: str, precision: str, device: str = "cpu") -> Engine:
    """The engine of a backend on `cpu` or `gpu`, imported only now.

    Args:
        backend, device: their names.
        precision: the word of a policy.

    Raises:
        InputError: for an unknown precision, or when there is no such device here.
    """
    return importlib.import_module(module_of(backend)).make(precision, device)
