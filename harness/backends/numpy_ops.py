"""The array functions on NumPy: the oracle for update rules, without automatic differentiation."""

from __future__ import annotations

from typing import Any

import numpy as np

from harness.backends.ops import Ops


def _softmax(x: np.ndarray, axis: int) -> np.ndarray:
    shifted = np.exp(x - np.max(x, axis=axis, keepdims=True))
    return shifted / np.sum(shifted, axis=axis, keepdims=True)


def _logsumexp(x: np.ndarray, axis: int) -> np.ndarray:
    top = np.max(x, axis=axis, keepdims=True)
    return np.squeeze(top, axis) + np.log(np.sum(np.exp(x - top), axis=axis))


def numpy_ops(dtype: str = "float64") -> Ops:
    """The table for NumPy in the given precision."""
    kind = np.dtype(dtype)

    def asarray(x: Any) -> np.ndarray:
        array = np.asarray(x)
        return array if array.dtype.kind in "iub" else array.astype(kind, copy=False)

    def log_softmax(x: np.ndarray, axis: int) -> np.ndarray:
        return x - np.expand_dims(_logsumexp(x, axis), axis)

    return Ops(
        backend="numpy",
        dtype=dtype,
        asarray=asarray,
        to_numpy=np.asarray,
        zeros=lambda shape: np.zeros(shape, kind),
        eye=lambda n: np.eye(n, dtype=kind),
        zeros_like=np.zeros_like,
        ones_like=np.ones_like,
        full_like=np.full_like,
        astype_float=lambda x: np.asarray(x).astype(kind),
        sqrt=np.sqrt,
        square=np.square,
        abs=np.abs,
        sign=np.sign,
        exp=np.exp,
        log=np.log,
        isfinite=np.isfinite,
        where=np.where,
        maximum=np.maximum,
        minimum=np.minimum,
        clip=np.clip,
        sum=np.sum,
        mean=np.mean,
        max=np.max,
        argmax=lambda x, axis: np.argmax(x, axis=axis),
        norm=lambda x: np.sqrt(np.sum(np.square(x))),
        matmul=np.matmul,
        einsum=np.einsum,
        swapaxes=np.swapaxes,
        reshape=np.reshape,
        broadcast_to=np.broadcast_to,
        concatenate=lambda arrays, axis: np.concatenate(arrays, axis=axis),
        stack=lambda arrays, axis: np.stack(arrays, axis=axis),
        take_along_axis=lambda x, indices, axis: np.take_along_axis(x, indices, axis=axis),
        relu=lambda x: np.maximum(x, 0),
        tanh=np.tanh,
        sigmoid=lambda x: np.exp(-np.logaddexp(0, -x)),
        log_sigmoid=lambda x: -np.logaddexp(0, -x),
        softmax=_softmax,
        log_softmax=log_softmax,
        logsumexp=_logsumexp,
    )
