"""Array functions on JAX, with products with bases that are fast on a CPU.

A basis is a change of coordinates given by a matrix V of shape (n, r) for each seed. The lanes of a seed are
its runs with different settings, which are computed together and share V.
"""

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

# A matrix product on the CPU processes the right factor in blocks of this number of columns.
BLOCK_COLUMNS = 8
# Functions that use LAPACK on the CPU.
DECOMPOSITIONS = ("eigh", "qr", "svd", "solve", "cholesky", "triangular_inverse")
# A right factor with at most this number of columns is not padded to BLOCK_COLUMNS columns.
# The product with the padded factor would take longer.
FEW_COLUMNS = 4


class Bases(NamedTuple):
    """The matrix V of a basis for each seed, as separate arrays.

    If the matrices of all seeds were one array, the compiler would slice and transpose this array at every
    step.

    Args:
        transposed: V^T of each seed.
        matrices: V of each seed. Empty if V is tall (has many more rows than columns), because V^T is then
            faster in both products.
    """

    transposed: tuple[jax.Array, ...]
    matrices: tuple[jax.Array, ...]

    @property
    def shape(self) -> tuple[int, int, int]:
        """Shape of the matrices V as one array: number of seeds, rows and columns."""
        columns, rows = self.transposed[0].shape
        return len(self.transposed), rows, columns

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.stack([np.asarray(matrix, dtype).T for matrix in self.transposed])


def _products(matrices: tuple[jax.Array, ...], lanes: jax.Array) -> jax.Array:
    """Multiply each seed's matrix by the vectors of the seed's lanes, as the columns of one right factor.

    If the large matrix were the right factor, a product on the CPU would copy the matrix to another memory
    layout at each call, and take up to three times as long. The optimization barriers prevent the compiler
    from exchanging the factors.

    Args:
        matrices: one matrix (n, r) or (r, n) for each seed.
        lanes: vectors to multiply, (seeds, settings, length).
    """
    settings = lanes.shape[1]
    padding = -settings % BLOCK_COLUMNS if settings > FEW_COLUMNS else 0
    padded = jnp.pad(lanes, ((0, 0), (0, padding), (0, 0)))
    columns = jax.lax.optimization_barrier(jnp.swapaxes(padded, 1, 2))
    products = [matrix @ right for matrix, right in zip(matrices, columns, strict=True)]
    return jnp.swapaxes(jax.lax.optimization_barrier(jnp.stack(products)), 1, 2)[:, :settings]


def _products_of_tall(transposed: tuple[jax.Array, ...], lanes: jax.Array) -> jax.Array:
    """Multiply V of each seed by the vectors c of the seed's lanes, computed as c^T V^T.

    This is faster if V is tall: the rows of V^T are long and contiguous in memory, whereas the rows of V are
    short.
    """
    rows = jax.lax.optimization_barrier(lanes)
    products = [left @ matrix for matrix, left in zip(transposed, rows, strict=True)]
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
    """Array functions on JAX, whose products with bases use faster kernels on the CPU.

    Args:
        device: "cpu" or "gpu".
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
    """Reduce each window of images (images, channels, height, width) to a number, as in pooling."""
    return jax.lax.reduce_window(x, start, reduce, (1, 1, window, window), (1, 1, stride, stride), "VALID")


def _matrix_by_matrix(decompose: Callable[..., Any]) -> Callable[..., Any]:
    """Return a decomposition that, on the CPU, decomposes one matrix after the other.

    A batched decomposition could deadlock the program: a batched LAPACK routine of jaxlib 0.10.2 runs on a
    thread pool, submits its matrices to the same pool, and waits for the results. If the pool runs as many
    such routines as it has threads, all threads may wait. A routine with a single matrix submits nothing to
    the pool. The batched routine is used on a GPU, and for derivatives of the decomposition, which no update
    rule computes.

    Args:
        decompose: decomposition of arrays of matrices (..., m, n), whose leading axes broadcast.
    """

    def unbatched(*matrices: jax.Array) -> Any:
        return decompose(*matrices)

    def sequential(*arrays: jax.Array) -> Any:
        axes = jnp.broadcast_shapes(*(array.shape[:-2] for array in arrays))
        mapped = jax.custom_batching.sequential_vmap(unbatched)
        for _ in axes:
            mapped = jax.vmap(mapped)
        matrices = (jnp.broadcast_to(array, axes + array.shape[-2:]) for array in arrays)
        return jax.lax.platform_dependent(*matrices, cpu=mapped, default=decompose)

    decomposition = jax.custom_jvp(sequential)
    decomposition.defjvp(lambda arrays, tangents: jax.jvp(decompose, arrays, tangents))
    return decomposition


def jax_ops(dtype: str = "float32", device: str = "cpu") -> Ops:
    """Return the array functions on JAX.

    Args:
        dtype: precision of the arrays that the functions create; float64 only works inside
            `jax.enable_x64()`.
        device: "cpu" or "gpu"; on the CPU, products with bases use faster kernels.
    """
    kind = jnp.dtype(dtype)

    def asarray(x: Any) -> jax.Array:
        array = x if isinstance(x, jax.Array) else np.asarray(x)
        return jnp.asarray(array) if array.dtype.kind in "iub" else jnp.asarray(array, kind)

    table = like_numpy(jnp, kind) | {
        "eigh": guarded(
            lambda x: jnp.linalg.eigh(symmetric_part(x), symmetrize_input=False), jnp.isfinite, jnp.where
        ),
        "solve": jnp.linalg.solve,
        # `jnp.linalg.cholesky` uses the symmetric part of its argument by default.
        "cholesky": guarded(jnp.linalg.cholesky, jnp.isfinite, jnp.where),
        "triangular_inverse": lambda x: jax.lax.linalg.triangular_solve(
            x, jnp.broadcast_to(jnp.eye(x.shape[-1], dtype=kind), x.shape), left_side=True, lower=True
        ),
    }
    # If NPROC=1, the thread pool of XLA has one thread, so that batched routines cannot wait for each other.
    if os.environ.get("NPROC") != "1":
        table |= {name: _matrix_by_matrix(table[name]) for name in DECOMPOSITIONS}
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
        # The derivatives of `abs` and `relu` at x = 0 are 0, as in PyTorch.
        abs=lambda x: x * jnp.sign(x),
        relu=lambda x: jnp.where(x > 0, x, jnp.zeros_like(x)),
        gelu=lambda x: jax.nn.gelu(x, approximate=False),
        **named(jax.nn, ("silu", "sigmoid", "log_sigmoid", "softmax", "log_softmax", "logsumexp")),
        conv2d=_conv2d,
        max_pool2d=lambda x, window, stride: _over_windows(x, -math.inf, jax.lax.max, window, stride),
        average_pool2d=lambda x, window, stride: (
            _over_windows(x, 0.0, jax.lax.add, window, stride) / window**2
        ),
    )
