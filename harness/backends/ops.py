"""The table of array functions that workloads and update rules are written in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Array = Any


@dataclass(frozen=True)
class Ops:
    """Array functions bound once to a backend, a device and a precision.

    Names and meanings follow the array API standard where it has them. Constructors take the table's
    own precision and device, so that no Python scalar or default widens an array.
    """

    backend: str
    dtype: str
    asarray: Callable[[Any], Array]  # real input to the table's precision, integers as they are
    to_numpy: Callable[[Array], Any]
    zeros: Callable[[tuple[int, ...]], Array]
    eye: Callable[[int], Array]
    zeros_like: Callable[[Array], Array]
    ones_like: Callable[[Array], Array]
    full_like: Callable[[Array, float], Array]
    astype_float: Callable[[Array], Array]
    sqrt: Callable[[Array], Array]
    square: Callable[[Array], Array]
    abs: Callable[[Array], Array]
    sign: Callable[[Array], Array]
    exp: Callable[[Array], Array]
    log: Callable[[Array], Array]
    isfinite: Callable[[Array], Array]
    where: Callable[[Array, Any, Any], Array]
    maximum: Callable[[Array, Any], Array]
    minimum: Callable[[Array, Any], Array]
    clip: Callable[[Array, float, float], Array]
    sum: Callable[..., Array]  # (x, axis=None, keepdims=False)
    mean: Callable[..., Array]
    max: Callable[..., Array]
    argmax: Callable[[Array, int], Array]
    norm: Callable[[Array], Array]  # Euclidean norm of all entries
    matmul: Callable[[Array, Array], Array]
    einsum: Callable[..., Array]
    swapaxes: Callable[[Array, int, int], Array]
    reshape: Callable[[Array, tuple[int, ...]], Array]
    broadcast_to: Callable[[Array, tuple[int, ...]], Array]
    concatenate: Callable[[list[Array], int], Array]
    stack: Callable[[list[Array], int], Array]
    take_along_axis: Callable[[Array, Array, int], Array]
    relu: Callable[[Array], Array]
    tanh: Callable[[Array], Array]
    sigmoid: Callable[[Array], Array]
    log_sigmoid: Callable[[Array], Array]
    softmax: Callable[[Array, int], Array]
    log_softmax: Callable[[Array, int], Array]
    logsumexp: Callable[[Array, int], Array]
