"""Array functions on NumPy, the reference with which tests compare.

The functions cannot be differentiated.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from curvebench.arrays.common_names import guarded, like_numpy, symmetric_part
from curvebench.arrays.ops import Ops


def _cast(x: np.ndarray, name: str) -> np.ndarray:
    import ml_dtypes  # a dependency of JAX that provides bfloat16, which NumPy does not have

    if x.dtype.kind in "iub":
        return x
    return x.astype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


def _softmax(x: np.ndarray, axis: int) -> np.ndarray:
    shifted = np.exp(x - np.max(x, axis=axis, keepdims=True))
    return shifted / np.sum(shifted, axis=axis, keepdims=True)


def _logsumexp(x: np.ndarray, axis: int) -> np.ndarray:
    top = np.max(x, axis=axis, keepdims=True)
    return np.squeeze(top, axis) + np.log(np.sum(np.exp(x - top), axis=axis))


def _or_nan(function: Callable[..., np.ndarray], signature: str) -> Callable[..., np.ndarray]:
    """Return a function of stacked matrices that returns NaN for each matrix for which `function` raises."""

    def single(*matrices: np.ndarray) -> np.ndarray:
        try:
            return function(*matrices)
        except np.linalg.LinAlgError:
            return np.full_like(matrices[-1], math.nan)  # the result has the shape of the last argument

    def stacked(*matrices: np.ndarray) -> np.ndarray:
        try:
            return function(*matrices)
        except np.linalg.LinAlgError:
            return np.vectorize(single, signature=signature)(*matrices)

    return stacked


def _triangular_inverse(lower: np.ndarray) -> np.ndarray:
    inverse = np.linalg.solve(np.tril(lower), np.broadcast_to(np.eye(lower.shape[-1]), lower.shape))
    return np.asarray(inverse, lower.dtype)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return np.exp(-np.logaddexp(0, -x))


def _gelu(x: np.ndarray) -> np.ndarray:
    from scipy.special import erf  # imported here, because the import takes half a second

    return np.asarray(x * (1 + erf(x / math.sqrt(2))) / 2)


def _windows(x: np.ndarray, shape: tuple[int, ...], stride: int) -> np.ndarray:
    """Return a view of all windows of images, (images, channels, rows, columns, *shape).

    Args:
        x: images of shape (images, channels, height, width).
        shape: height and width of a window.
        stride: distance between adjacent windows.
    """
    windows = np.lib.stride_tricks.sliding_window_view(x, shape, axis=(2, 3))
    return windows[:, :, ::stride, ::stride]


def _conv2d(x: np.ndarray, weight: np.ndarray, stride: int = 1, padding: int = 0) -> np.ndarray:
    padded = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    windows = _windows(padded, weight.shape[2:], stride)
    return np.einsum("ncijhw,ochw->noij", windows, weight, optimize=True)


def numpy_ops(dtype: str = "float64") -> Ops:
    """Return the array functions on NumPy, the reference for the functions of JAX and PyTorch.

    An update rule or a workload receives array functions (`Ops`) as its first argument, `ops`, and uses no
    others. The array functions on NumPy are for tests and for experiments without a backend.

    Args:
        dtype: precision of the arrays that the functions create, `float64` or `float32`.

    Example:
        >>> from curvebench import numpy_ops
        >>> ops = numpy_ops()
        >>> ops.sum(ops.asarray([[1, 2], [3, 4]]), axis=-1).tolist()
        [3, 7]
    """
    kind = np.dtype(dtype)

    def asarray(x: Any) -> np.ndarray:
        array = np.asarray(x)
        return array if array.dtype.kind in "iub" else array.astype(kind, copy=False)

    return Ops(
        **like_numpy(np, kind),
        backend="numpy",
        dtype=dtype,
        asarray=asarray,
        to_numpy=np.asarray,
        astype_float=lambda x: np.asarray(x).astype(kind),
        cast=_cast,
        cast_like=lambda x, other: x.astype(other.dtype),
        stop_gradient=lambda x: x,
        abs=np.abs,
        eigh=guarded(lambda x: np.linalg.eigh(symmetric_part(x)), np.isfinite, np.where),
        solve=_or_nan(np.linalg.solve, "(n,n),(n,k)->(n,k)"),
        cholesky=guarded(
            _or_nan(lambda x: np.linalg.cholesky(symmetric_part(x)), "(n,n)->(n,n)"), np.isfinite, np.where
        ),
        triangular_inverse=_or_nan(_triangular_inverse, "(n,n)->(n,n)"),
        relu=lambda x: np.maximum(x, 0),
        gelu=_gelu,
        silu=lambda x: x * _sigmoid(x),
        sigmoid=_sigmoid,
        log_sigmoid=lambda x: -np.logaddexp(0, -x),
        softmax=_softmax,
        log_softmax=lambda x, axis: x - np.expand_dims(_logsumexp(x, axis), axis),
        logsumexp=_logsumexp,
        conv2d=_conv2d,
        max_pool2d=lambda x, window, stride: _windows(x, (window, window), stride).max(axis=(4, 5)),
        average_pool2d=lambda x, window, stride: _windows(x, (window, window), stride).mean(axis=(4, 5)),
    )
