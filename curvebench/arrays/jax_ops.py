"""The array functions on JAX."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from curvebench.arrays.common_names import guarded, like_numpy, named, symmetric_part
from curvebench.arrays.ops import Array, Ops, separate_copies

COLUMNS = 8  # of the right factor, that a CPU's matrix product takes at once
DECOMPOSITIONS = ("eigh", "qr", "svd", "solve", "cholesky", "triangular_inverse")  # by LAPACK on a CPU
FEW = 4  # columns up to which it takes them as they are, in less time than eight


class Bases(NamedTuple):
    """V^T of each seed, and V, as arrays: the compiler would cut and transpose one array at every step.

    Args:
        transposed: V^T of each seed.
        matrices: V of each seed; none where it is tall, and V^T serves both products faster.
    """

    transposed: tuple[jax.Array, ...]
    matrices: tuple[jax.Array, ...]

    @property
    def shape(self) -> tuple[int, int, int]:
        """Seeds, rows and columns of V."""
        columns, rows = self.transposed[0].shape
        return len(self.transposed), rows, columns

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.stack([np.asarray(matrix, dtype).T for matrix in self.transposed])


def _products(matrices: tuple[jax.Array, ...], lanes: jax.Array) -> jax.Array:
    """Each seed's matrix times its lanes, with the lanes as few columns on the right of it.

    On a CPU the product with the matrix on the right packs it anew each time, and takes up to three times as
    long; the barriers keep the compiler from turning one into the other.
    """
    settings = lanes.shape[1]
    missing = -settings % COLUMNS if settings > FEW else 0
    padded = jnp.pad(lanes, ((0, 0), (0, missing), (0, 0)))
    columns = jax.lax.optimization_barrier(jnp.swapaxes(padded, 1, 2))
    products = [matrix @ each for matrix, each in zip(matrices, columns, strict=True)]
    return jnp.swapaxes(jax.lax.optimization_barrier(jnp.stack(products)), 1, 2)[:, :settings]


def _products_of_tall(transposed: tuple[jax.Array, ...], lanes: jax.Array) -> jax.Array:
    """V times each seed's lanes, by a V^T that is wide and goes through memory in order."""
    rows = jax.lax.optimization_barrier(lanes)
    products = [each @ matrix for matrix, each in zip(transposed, rows, strict=True)]
    return jax.lax.optimization_barrier(jnp.stack(products))


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _tap(observe: Callable[[jax.Array], jax.Array], y: jax.Array, slot: jax.Array) -> jax.Array:
    return y


def _tap_forward(observe: Any, y: jax.Array, slot: jax.Array) -> tuple[jax.Array, None]:
    return y, None


def _tap_backward(observe: Any, _: None, gradient: jax.Array) -> tuple[jax.Array, jax.Array]:
    return gradient, observe(gradient)


_tap.defvjp(_tap_forward, _tap_backward)


@dataclass(frozen=True)
class JaxOps(Ops):
    """The table with a CPU's fastest products of bases.

    Args:
        device: for which they are.
    """

    device: str = "cpu"

    def tap(self, observe: Callable[[Array], Array], y: Array, slot: Array) -> Array:
        return _tap(observe, y, slot)

    def bases(self, matrices: Any) -> Any:
        copies = separate_copies(*matrices.shape[1:])
        if self.device != "cpu" or not copies:
            return self.asarray(matrices)
        return Bases(
            tuple(self.asarray(np.ascontiguousarray(matrix.T)) for matrix in matrices),
            tuple(self.asarray(matrix) for matrix in (matrices if copies > 1 else ())),
        )

    def from_basis(self, bases: Any, coordinates: Array) -> Array:
        if isinstance(bases, Bases):
            if not bases.matrices:
                return _products_of_tall(bases.transposed, coordinates)
            return _products(bases.matrices, coordinates)
        return super().from_basis(bases, coordinates)

    def to_basis(self, bases: Any, vectors: Array) -> Array:
        if isinstance(bases, Bases):
            return _products(bases.transposed, vectors)
        return super().to_basis(bases, vectors)


def _conv2d(x: jax.Array, weight: jax.Array, stride: int = 1, padding: int = 0) -> jax.Array:
    return jax.lax.conv_general_dilated(
        x, weight, (stride, stride), ((padding, padding),) * 2, dimension_numbers=("NCHW", "OIHW", "NCHW")
    )


def _over_windows(x: jax.Array, start: float, reduce: Any, window: int, stride: int) -> jax.Array:
    """Windows of images (N, C, H, W), each reduced to a number."""
    return jax.lax.reduce_window(x, start, reduce, (1, 1, window, window), (1, 1, stride, stride), "VALID")


def _one_matrix_at_a_time(decompose: Callable[..., Any]) -> Callable[..., Any]:
    """Decompose matrices in turn on a CPU, since batched LAPACK may wait for ever on several threads.

    A batched routine of jaxlib 0.10.2 hands its matrices to the pool of threads that it runs on, and waits
    for them on one of these threads. Where a program has as many such calls as threads, each may wait for the
    others. A single matrix is handed to nobody. On a GPU the batched routine is called as it is; so it is
    for derivatives, which no rule takes.

    Args:
        decompose: of arrays of matrices (..., m, n), whose leading axes broadcast.
    """

    def alone(*matrices: jax.Array) -> Any:
        return decompose(*matrices)

    def in_turn(*arrays: jax.Array) -> Any:
        axes = jnp.broadcast_shapes(*(one.shape[:-2] for one in arrays))
        mapped = jax.custom_batching.sequential_vmap(alone)
        for _ in axes:
            mapped = jax.vmap(mapped)
        matrices = (jnp.broadcast_to(one, axes + one.shape[-2:]) for one in arrays)
        return jax.lax.platform_dependent(*matrices, cpu=mapped, default=decompose)

    decomposition = jax.custom_jvp(in_turn)
    decomposition.defjvp(lambda arrays, tangents: jax.jvp(decompose, arrays, tangents))
    return decomposition


def jax_ops(dtype: str = "float32", device: str = "cpu") -> Ops:
    """The table for JAX in the given precision; float64 works inside `jax.enable_x64()` only."""
    kind = jnp.dtype(dtype)

    def asarray(x: Any) -> jax.Array:
        array = x if isinstance(x, jax.Array) else np.asarray(x)
        return jnp.asarray(array) if array.dtype.kind in "iub" else jnp.asarray(array, kind)

    table = like_numpy(jnp, kind) | {
        "eigh": guarded(
            lambda x: jnp.linalg.eigh(symmetric_part(x), symmetrize_input=False), jnp.isfinite, jnp.where
        ),
        "solve": jnp.linalg.solve,
        # of the symmetric part by itself
        "cholesky": guarded(jnp.linalg.cholesky, jnp.isfinite, jnp.where),
        "triangular_inverse": lambda x: jax.lax.linalg.triangular_solve(
            x, jnp.broadcast_to(jnp.eye(x.shape[-1], dtype=kind), x.shape), left_side=True, lower=True
        ),
    }
    if os.environ.get("NPROC") != "1":  # as jobs have it: XLA then has one thread
        table |= {name: _one_matrix_at_a_time(table[name]) for name in DECOMPOSITIONS}
    return JaxOps(
        **table,
        device=device,
        backend="jax",
        dtype=dtype,
        asarray=asarray,
        to_numpy=np.asarray,
        astype_float=lambda x: x.astype(kind),
        cast=lambda x, name: x.astype(name) if jnp.issubdtype(x.dtype, jnp.floating) else x,
        cast_like=lambda x, other: x.astype(other.dtype),
        stop_gradient=jax.lax.stop_gradient,
        abs=lambda x: x * jnp.sign(x),  # gradient 0 at 0, as in torch
        relu=lambda x: jnp.where(x > 0, x, jnp.zeros_like(x)),  # gradient 0 at 0, as in torch
        gelu=lambda x: jax.nn.gelu(x, approximate=False),
        **named(jax.nn, ("silu", "sigmoid", "log_sigmoid", "softmax", "log_softmax", "logsumexp")),
        conv2d=_conv2d,
        max_pool2d=lambda x, window, stride: _over_windows(x, -math.inf, jax.lax.max, window, stride),
        average_pool2d=lambda x, window, stride: (
            _over_windows(x, 0.0, jax.lax.add, window, stride) / window**2
        ),
    )
