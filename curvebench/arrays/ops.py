"""The table of array functions that workloads and update rules are written in."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Array = Any

# rows and columns, or root of the entries, from which a backend may hold an array for each seed's V
LARGE = 512
TALL = 2  # rows to a column from which V^T alone serves where columns are fewer than LARGE


def separate_copies(rows: int, columns: int) -> int:
    """How many arrays of its own a seed's V, of so many rows and columns, may have on a backend.

    2 are V^T and V, 1 is V^T alone, 0 an array of all seeds.
    """
    if min(rows, columns) >= LARGE:
        return 2
    return int(rows >= TALL * columns and rows * columns >= LARGE**2)


@dataclass(frozen=True)
class Ops:
    """Array functions bound once to a backend, a device and a precision.

    Names and meanings follow the array API standard where it has them. Constructors take the table's
    own precision and device, so that no Python scalar or default widens an array.

    Linear algebra works on the last two axes; all leading axes are batch. A matrix without a result
    (not finite, singular, not positive definite) gives NaN or infinity and never raises: a lane that
    diverged does not stop the others. `eigh` and `cholesky` read the symmetric part of their input.
    The signs of the columns of `eigh`, `qr` and `svd` are those of the backend's library.

    Methods are written once in terms of the fields; a backend whose library has a faster kernel overrides
    them in a subclass.

    Gradients at ties: `relu` and `abs` have 0 at 0, `maximum`, `minimum` and `max` share evenly among
    the greatest, and `max_pool2d` gives everything to one of them, the first in torch.
    """

    backend: str
    dtype: str

    # --- arrays ---
    asarray: Callable[[Any], Array]  # real input to the table's precision, integers as they are
    to_numpy: Callable[[Array], Any]
    zeros: Callable[[tuple[int, ...]], Array]
    eye: Callable[[int], Array]
    arange: Callable[[int], Array]  # 0, 1, ... n - 1 in the table's precision
    zeros_like: Callable[[Array], Array]
    ones_like: Callable[[Array], Array]
    full_like: Callable[[Array, float], Array]
    astype_float: Callable[[Array], Array]
    cast: Callable[[Array, str], Array]  # reals to a named precision or bfloat16, others as they are
    cast_like: Callable[[Array, Array], Array]  # reals to the precision of other reals
    stop_gradient: Callable[[Array], Array]
    sqrt: Callable[[Array], Array]
    square: Callable[[Array], Array]
    power: Callable[[Array, Any], Array]
    abs: Callable[[Array], Array]
    sign: Callable[[Array], Array]
    exp: Callable[[Array], Array]
    log: Callable[[Array], Array]
    sin: Callable[[Array], Array]
    cos: Callable[[Array], Array]
    atan2: Callable[[Array, Array], Array]
    isfinite: Callable[[Array], Array]
    where: Callable[[Array, Any, Any], Array]
    maximum: Callable[[Array, Any], Array]
    minimum: Callable[[Array, Any], Array]
    clip: Callable[[Array, float, float], Array]
    sum: Callable[..., Array]  # (x, axis=None, keepdims=False)
    mean: Callable[..., Array]
    max: Callable[..., Array]
    cumsum: Callable[[Array, int], Array]
    argmax: Callable[[Array, int], Array]
    argsort: Callable[[Array, int], Array]  # ascending and stable
    swapaxes: Callable[[Array, int, int], Array]
    flip: Callable[[Array, int], Array]
    permute_dims: Callable[[Array, tuple[int, ...]], Array]
    reshape: Callable[[Array, tuple[int, ...]], Array]
    broadcast_to: Callable[[Array, tuple[int, ...]], Array]
    pad: Callable[[Array, tuple[tuple[int, int], ...]], Array]  # zeros (before, after) each axis
    concatenate: Callable[[list[Array], int], Array]
    stack: Callable[[list[Array], int], Array]
    unstack: Callable[[Array, int], Sequence[Array]]  # along an axis, which is gone
    take: Callable[[Array, Array, int], Array]  # indices of any shape, from 0 to the length less one
    take_along_axis: Callable[[Array, Array, int], Array]

    # --- linear algebra ---
    norm: Callable[[Array], Array]  # Euclidean norm of all entries
    matmul: Callable[[Array, Array], Array]
    einsum: Callable[..., Array]
    matrix_transpose: Callable[[Array], Array]
    diagonal: Callable[[Array], Array]
    tril: Callable[[Array], Array]
    eigh: Callable[[Array], tuple[Array, Array]]  # values ascending, vectors in columns
    qr: Callable[[Array], tuple[Array, Array]]  # reduced
    svd: Callable[[Array], tuple[Array, Array, Array]]  # u, s descending, vh; reduced
    solve: Callable[[Array, Array], Array]  # both (..., n, n) and (..., n, k)
    cholesky: Callable[[Array], Array]  # lower
    triangular_inverse: Callable[[Array], Array]  # of a lower one

    # --- networks ---
    relu: Callable[[Array], Array]
    gelu: Callable[[Array], Array]  # x times the normal distribution function, by erf
    silu: Callable[[Array], Array]
    tanh: Callable[[Array], Array]
    sigmoid: Callable[[Array], Array]
    log_sigmoid: Callable[[Array], Array]
    softmax: Callable[[Array, int], Array]
    log_softmax: Callable[[Array, int], Array]
    logsumexp: Callable[[Array, int], Array]
    conv2d: Callable[..., Array]  # (x (N, C, H, W), weight (O, C, h, w), stride=1, padding=0)
    max_pool2d: Callable[[Array, int, int], Array]  # (x (N, C, H, W), window, stride)
    average_pool2d: Callable[[Array, int, int], Array]

    def bases(self, matrices: Any) -> Any:
        """V of each seed, (S, n, r), as `from_basis` and `to_basis` take them; it has a `shape`."""
        return self.asarray(matrices)

    def from_basis(self, bases: Any, coordinates: Array) -> Array:
        """V c of each seed's lanes, (S, K, n), for c (S, K, r)."""
        return self.einsum("sij,skj->ski", bases, coordinates)

    def to_basis(self, bases: Any, vectors: Array) -> Array:
        """V^T x of each seed's lanes, (S, K, r), for x (S, K, n)."""
        return self.einsum("sij,ski->skj", bases, vectors)

    def cholesky_inverse(self, lower: Array) -> Array:
        """(L L^T)^-1 of lower L (..., n, n)."""
        inverse = self.triangular_inverse(lower)
        return self.matrix_transpose(inverse) @ inverse

    def linear(self, x: Array, weight: Array, bias: Array | None = None) -> Array:
        """x W^T + b, (..., outputs), for x (..., inputs), W (outputs, inputs) and b (outputs,)."""
        product = x @ self.swapaxes(weight, 0, 1)
        return product if bias is None else product + bias

    def linear_layers(self, x: Array, weights: Sequence[Array]) -> Array:
        """x W_1^T ... W_L^T, (..., outputs), for x (..., inputs): layers with nothing between them.

        The weights are multiplied first, which takes the fewest multiplications where examples are many.
        """
        product = weights[0]
        for weight in weights[1:]:
            product = weight @ product
        return self.linear(x, product)

    def tap(self, observe: Callable[[Array], Array], y: Array, slot: Array) -> Array:
        """y; by its gradient g `slot` has the gradient observe(g), of its shape. Without gradients, y."""
        return y

    def attention(self, query: Array, key: Array, value: Array, causal: bool = False) -> Array:
        """Scaled dot product attention on (..., tokens, dim).

        With `causal`, a token sees itself and the tokens before it; queries and keys are then equally many.
        """
        scores = query * (1 / math.sqrt(query.shape[-1])) @ self.matrix_transpose(key)
        if causal:
            place = self.arange(query.shape[-2])
            scores = self.where(place[:, None] >= place, scores, -math.inf)
        # in half precision the products alone
        return self.cast_like(self.softmax(self.astype_float(scores), -1), value) @ value

    def layer_norm(self, x: Array, scale: Array, shift: Array, epsilon: float) -> Array:
        """Mean 0 and variance 1 over the last axis, then scale and shift (..., dim)."""
        centred = x - self.mean(x, axis=-1, keepdims=True)
        variance = self.mean(self.square(centred), axis=-1, keepdims=True)
        return centred / self.sqrt(variance + epsilon) * scale + shift

    def batch_norm(
        self, x: Array, mean: Array, variance: Array, scale: Array, shift: Array, epsilon: float
    ) -> Array:
        """Axis 1 of x (N, C, ...) normalized by given statistics (C,), then scaled and shifted (C,)."""
        shape = (-1,) + (1,) * (x.ndim - 2)
        factor = scale / self.sqrt(variance + epsilon)
        return (x - self.reshape(mean, shape)) * self.reshape(factor, shape) + self.reshape(shift, shape)

    def batch_norm_in_training(
        self, x: Array, scale: Array, shift: Array, epsilon: float
    ) -> tuple[Array, Array, Array]:
        """`batch_norm` by the batch's own mean and variance (over N, not N - 1), and those two (C,).

        The gradient of the first flows through the statistics; the returned two are constants.
        """
        axes = (0, *range(2, x.ndim))
        mean = self.mean(x, axis=axes, keepdims=True)
        variance = self.mean(self.square(x - mean), axis=axes)
        mean = self.reshape(mean, (-1,))
        normalized = self.batch_norm(x, mean, variance, scale, shift, epsilon)
        return normalized, self.stop_gradient(mean), self.stop_gradient(variance)
