"""The array functions on JAX."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from harness.backends.ops import Ops


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
        zeros_like=jnp.zeros_like,
        ones_like=jnp.ones_like,
        full_like=jnp.full_like,
        astype_float=lambda x: x.astype(kind),
        sqrt=jnp.sqrt,
        square=jnp.square,
        abs=jnp.abs,
        sign=jnp.sign,
        exp=jnp.exp,
        log=jnp.log,
        isfinite=jnp.isfinite,
        where=jnp.where,
        maximum=jnp.maximum,
        minimum=jnp.minimum,
        clip=jnp.clip,
        sum=jnp.sum,
        mean=jnp.mean,
        max=jnp.max,
        argmax=lambda x, axis: jnp.argmax(x, axis=axis),
        norm=lambda x: jnp.sqrt(jnp.sum(jnp.square(x))),
        matmul=jnp.matmul,
        einsum=jnp.einsum,
        swapaxes=jnp.swapaxes,
        reshape=jnp.reshape,
        broadcast_to=jnp.broadcast_to,
        concatenate=lambda arrays, axis: jnp.concatenate(arrays, axis=axis),
        stack=lambda arrays, axis: jnp.stack(arrays, axis=axis),
        take_along_axis=lambda x, indices, axis: jnp.take_along_axis(x, indices, axis=axis),
        relu=relu,
        tanh=jnp.tanh,
        sigmoid=jax.nn.sigmoid,
        log_sigmoid=jax.nn.log_sigmoid,
        softmax=lambda x, axis: jax.nn.softmax(x, axis=axis),
        log_softmax=lambda x, axis: jax.nn.log_softmax(x, axis=axis),
        logsumexp=lambda x, axis: jax.nn.logsumexp(x, axis=axis),
    )
