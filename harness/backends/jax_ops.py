"""The array functions on JAX."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from harness.backends.decompositions import guarded, symmetric_part
from harness.backends.ops import Ops


def _conv2d(x: jax.Array, weight: jax.Array, stride: int = 1, padding: int = 0) -> jax.Array:
    return jax.lax.conv_general_dilated(
        x, weight, (stride, stride), ((padding, padding),) * 2, dimension_numbers=("NCHW", "OIHW", "NCHW")
    )


def _max_pool2d(x: jax.Array, window: int, stride: int) -> jax.Array:
    return jax.lax.reduce_window(
        x, -math.inf, jax.lax.max, (1, 1, window, window), (1, 1, stride, stride), "VALID"
    )


def _average_pool2d(x: jax.Array, window: int, stride: int) -> jax.Array:
    total = jax.lax.reduce_window(
        x, 0.0, jax.lax.add, (1, 1, window, window), (1, 1, stride, stride), "VALID"
    )
    return total / window**2


def jax_ops(dtype: str = "float32") -> Ops:
    """The table for JAX in the given precision; float64 works inside `jax.enable_x64()` only."""
    kind = jnp.dtype(dtype)

    def asarray(x: Any) -> jax.Array:
        array = x if isinstance(x, jax.Array) else np.asarray(x)
        return jnp.asarray(array) if array.dtype.kind in "iub" else jnp.asarray(array, kind)

    def relu(x: jax.Array) -> jax.Array:
        return jnp.where(x > 0, x, jnp.zeros_like(x))  # gradient 0 at 0, as in torch

    return Ops(
        backend="jax",
        dtype=dtype,
        asarray=asarray,
        to_numpy=np.asarray,
        zeros=lambda shape: jnp.zeros(shape, kind),
        eye=lambda n: jnp.eye(n, dtype=kind),
        arange=lambda n: jnp.arange(n, dtype=kind),
        zeros_like=jnp.zeros_like,
        ones_like=jnp.ones_like,
        full_like=jnp.full_like,
        astype_float=lambda x: x.astype(kind),
        stop_gradient=jax.lax.stop_gradient,
        sqrt=jnp.sqrt,
        square=jnp.square,
        power=jnp.power,
        abs=lambda x: x * jnp.sign(x),  # gradient 0 at 0, as in torch
        sign=jnp.sign,
        exp=jnp.exp,
        log=jnp.log,
        sin=jnp.sin,
        cos=jnp.cos,
        atan2=jnp.atan2,
        isfinite=jnp.isfinite,
        where=jnp.where,
        maximum=jnp.maximum,
        minimum=jnp.minimum,
        clip=jnp.clip,
        sum=jnp.sum,
        mean=jnp.mean,
        max=jnp.max,
        cumsum=lambda x, axis: jnp.cumsum(x, axis=axis),
        argmax=lambda x, axis: jnp.argmax(x, axis=axis),
        argsort=lambda x, axis: jnp.argsort(x, axis=axis, stable=True),
        swapaxes=jnp.swapaxes,
        reshape=jnp.reshape,
        broadcast_to=jnp.broadcast_to,
        pad=jnp.pad,
        concatenate=lambda arrays, axis: jnp.concatenate(arrays, axis=axis),
        stack=lambda arrays, axis: jnp.stack(arrays, axis=axis),
        take=lambda x, indices, axis: jnp.take(x, indices, axis=axis),
        take_along_axis=lambda x, indices, axis: jnp.take_along_axis(x, indices, axis=axis),
        norm=lambda x: jnp.sqrt(jnp.sum(jnp.square(x))),
        matmul=jnp.matmul,
        einsum=jnp.einsum,
        matrix_transpose=jnp.matrix_transpose,
        diagonal=jnp.linalg.diagonal,
        tril=jnp.tril,
        eigh=guarded(
            lambda x: jnp.linalg.eigh(symmetric_part(x), symmetrize_input=False), jnp.isfinite, jnp.where
        ),
        qr=jnp.linalg.qr,
        svd=guarded(lambda x: jnp.linalg.svd(x, full_matrices=False), jnp.isfinite, jnp.where),
        solve=jnp.linalg.solve,
        cholesky=jnp.linalg.cholesky,  # of the symmetric part by itself
        relu=relu,
        gelu=lambda x: jax.nn.gelu(x, approximate=False),
        silu=jax.nn.silu,
        tanh=jnp.tanh,
        sigmoid=jax.nn.sigmoid,
        log_sigmoid=jax.nn.log_sigmoid,
        softmax=lambda x, axis: jax.nn.softmax(x, axis=axis),
        log_softmax=lambda x, axis: jax.nn.log_softmax(x, axis=axis),
        logsumexp=lambda x, axis: jax.nn.logsumexp(x, axis=axis),
        conv2d=_conv2d,
        max_pool2d=_max_pool2d,
        average_pool2d=_average_pool2d,
    )
