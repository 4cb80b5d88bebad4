"""The array functions on NumPy: the oracle for update rules, without automatic differentiation."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import erf

from harness.backends.decompositions import guarded, symmetric_part
from harness.backends.ops import Ops


def _softmax(x: np.ndarray, axis: int) -> np.ndarray:
    shifted = np.exp(x - np.max(x, axis=axis, keepdims=True))
    return shifted / np.sum(shifted, axis=axis, keepdims=True)


def _logsumexp(x: np.ndarray, axis: int) -> np.ndarray:
    top = np.max(x, axis=axis, keepdims=True)
    return np.squeeze(top, axis) + np.log(np.sum(np.exp(x - top), axis=axis))


def _or_nan(function: Callable[..., np.ndarray], signature: str) -> Callable[..., np.ndarray]:
    """A function of stacked matrices with NaN for those on which NumPy raises."""

    def one(*matrices: np.ndarray) -> np.ndarray:
        try:
            return function(*matrices)
        except np.linalg.LinAlgError:
            return np.full_like(matrices[-1], math.nan)  # of the result's shape in both uses

    def stacked(*matrices: np.ndarray) -> np.ndarray:
        try:
            return function(*matrices)
        except np.linalg.LinAlgError:
            return np.vectorize(one, signature=signature)(*matrices)

    return stacked


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return np.exp(-np.logaddexp(0, -x))


def _windows(x: np.ndarray, shape: tuple[int, ...], stride: int) -> np.ndarray:
    """All windows of images (N, C, H, W) as (N, C, rows, columns, *shape), without a copy."""
    windows = np.lib.stride_tricks.sliding_window_view(x, shape, axis=(2, 3))
    return windows[:, :, ::stride, ::stride]


def _conv2d(x: np.ndarray, weight: np.ndarray, stride: int = 1, padding: int = 0) -> np.ndarray:
    padded = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    windows = _windows(padded, weight.shape[2:], stride)
    return np.einsum("ncijhw,ochw->noij", windows, weight, optimize=True)


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
        arange=lambda n: np.arange(n, dtype=kind),
        zeros_like=np.zeros_like,
        ones_like=np.ones_like,
        full_like=np.full_like,
        astype_float=lambda x: np.asarray(x).astype(kind),
        stop_gradient=lambda x: x,
        sqrt=np.sqrt,
        square=np.square,
        power=np.power,
        abs=np.abs,
        sign=np.sign,
        exp=np.exp,
        log=np.log,
        sin=np.sin,
        cos=np.cos,
        atan2=np.atan2,
        isfinite=np.isfinite,
        where=np.where,
        maximum=np.maximum,
        minimum=np.minimum,
        clip=np.clip,
        sum=np.sum,
        mean=np.mean,
        max=np.max,
        cumsum=lambda x, axis: np.cumsum(x, axis=axis),
        argmax=lambda x, axis: np.argmax(x, axis=axis),
        argsort=lambda x, axis: np.argsort(x, axis=axis, stable=True),
        swapaxes=np.swapaxes,
        reshape=np.reshape,
        broadcast_to=np.broadcast_to,
        pad=np.pad,
        concatenate=lambda arrays, axis: np.concatenate(arrays, axis=axis),
        stack=lambda arrays, axis: np.stack(arrays, axis=axis),
        take=lambda x, indices, axis: np.take(x, indices, axis=axis),
        take_along_axis=lambda x, indices, axis: np.take_along_axis(x, indices, axis=axis),
        norm=lambda x: np.sqrt(np.sum(np.square(x))),
        matmul=np.matmul,
        einsum=np.einsum,
        matrix_transpose=np.matrix_transpose,
        diagonal=np.linalg.diagonal,
        tril=np.tril,
        eigh=guarded(lambda x: np.linalg.eigh(symmetric_part(x)), np.isfinite, np.where),
        qr=np.linalg.qr,
        svd=guarded(lambda x: np.linalg.svd(x, full_matrices=False), np.isfinite, np.where),
        solve=_or_nan(np.linalg.solve, "(n,n),(n,k)->(n,k)"),
        cholesky=_or_nan(lambda x: np.linalg.cholesky(symmetric_part(x)), "(n,n)->(n,n)"),
        relu=lambda x: np.maximum(x, 0),
        gelu=lambda x: x * (1 + erf(x / math.sqrt(2))) / 2,
        silu=lambda x: x * _sigmoid(x),
        tanh=np.tanh,
        sigmoid=_sigmoid,
        log_sigmoid=lambda x: -np.logaddexp(0, -x),
        softmax=_softmax,
        log_softmax=log_softmax,
        logsumexp=_logsumexp,
        conv2d=_conv2d,
        max_pool2d=lambda x, window, stride: _windows(x, (window, window), stride).max(axis=(4, 5)),
        average_pool2d=lambda x, window, stride: _windows(x, (window, window), stride).mean(axis=(4, 5)),
    )
