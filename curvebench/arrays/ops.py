"""Definition of the array functions that workloads and update rules are written in."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Array = Any

# Number of rows and columns, or square root of the number of entries, from which a separate array for each
# seed's V is faster than one array for all seeds.
LARGE = 512
# V is tall from this ratio of rows to columns.
MIN_RATIO = 2


def separate_copies(rows: int, columns: int) -> int:
    """Return the number of arrays in which a backend stores each seed's V separately.

    Returns:
        2 for V^T and V, 1 for V^T alone, 0 to use one array for all seeds.
    """
    if min(rows, columns) >= LARGE:
        return 2
    return int(rows >= MIN_RATIO * columns and rows * columns >= LARGE**2)


@dataclass(frozen=True)
class Ops:
    """Array functions for one backend, device and precision.

    Names and meanings follow the array API standard where it has the function. Functions that create
    arrays use the precision and device of this object, so that no Python scalar or default changes the
    precision.

    Linear algebra works on the last two axes; all leading axes are batch axes. For a matrix without a result
    (not finite, singular, not positive definite) the result is NaN or infinite, and nothing is raised: a lane
    that has diverged does not stop the others. `eigh` and `cholesky` use the symmetric part of their
    argument. The signs of the columns of `eigh`, `qr` and `svd` are those of the backend's library, and
    differ between backends.

    Functions that each backend implements are fields. Methods have one implementation in terms of the fields;
    the subclass of a backend overrides those for which the library has a faster kernel.

    Derivatives where functions are not differentiable: the derivatives of `relu` and `abs` are 0 at 0.
    `maximum`, `minimum` and `max` share the gradient equally between equal values. `max_pool2d` gives it to
    one of them, on torch to the first.
    """

    backend: str
    dtype: str

    # --- arrays ---
    asarray: Callable[[Any], Array]  # real numbers get the table's precision; integers keep theirs
    to_numpy: Callable[[Array], Any]
    zeros: Callable[[tuple[int, ...]], Array]
    eye: Callable[[int], Array]
    arange: Callable[[int], Array]  # 0, 1, ..., n - 1 in the table's precision
    zeros_like: Callable[[Array], Array]
    ones_like: Callable[[Array], Array]
    full_like: Callable[[Array, float], Array]
    astype_float: Callable[[Array], Array]
    cast: Callable[[Array, str], Array]  # to a named precision; integers stay integers
    cast_like: Callable[[Array, Array], Array]  # to the precision of the second argument
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
    pad: Callable[[Array, tuple[tuple[int, int], ...]], Array]  # numbers of zeros (before, after)
    concatenate: Callable[[list[Array], int], Array]
    stack: Callable[[list[Array], int], Array]
    unstack: Callable[[Array, int], Sequence[Array]]  # the slices along an axis, without that axis
    take: Callable[[Array, Array, int], Array]  # indices may have any shape, and must not be negative
    take_along_axis: Callable[[Array, Array, int], Array]

    # --- linear algebra ---
    norm: Callable[[Array], Array]  # Euclidean norm of all entries
    matmul: Callable[[Array, Array], Array]
    einsum: Callable[..., Array]
    matrix_transpose: Callable[[Array], Array]
    diagonal: Callable[[Array], Array]
    tril: Callable[[Array], Array]
    eigh: Callable[[Array], tuple[Array, Array]]  # eigenvalues, ascending, and eigenvectors in columns
    qr: Callable[[Array], tuple[Array, Array]]  # reduced
    svd: Callable[[Array], tuple[Array, Array, Array]]  # u, s in descending order, vh; reduced
    solve: Callable[[Array, Array], Array]  # arguments (..., n, n) and (..., n, k)
    cholesky: Callable[[Array], Array]  # lower triangular factor
    triangular_inverse: Callable[[Array], Array]  # inverse of a lower triangular matrix

    # --- networks ---
    relu: Callable[[Array], Array]
    gelu: Callable[[Array], Array]  # x times the normal distribution function, computed with erf
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
        """Return V of each seed, (S, n, r), in the form for `from_basis` and `to_basis`."""
        return self.asarray(matrices)

    def from_basis(self, bases: Any, coordinates: Array) -> Array:
        """Return V c for the lanes of each seed, (S, K, n), from coordinates c (S, K, r)."""
        return self.einsum("sij,skj->ski", bases, coordinates)

    def to_basis(self, bases: Any, vectors: Array) -> Array:
        """Return V^T x for the lanes of each seed, (S, K, r), from vectors x (S, K, n)."""
        return self.einsum("sij,ski->skj", bases, vectors)

    def cholesky_inverse(self, lower: Array) -> Array:
        """Return (L L^T)^-1 for a lower triangular L (..., n, n)."""
        inverse = self.triangular_inverse(lower)
        return self.matrix_transpose(inverse) @ inverse

    def linear(self, x: Array, weight: Array, bias: Array | None = None) -> Array:
        """Return x W^T + b, (..., outputs), for x (..., inputs), W (outputs, inputs) and b (outputs,)."""
        product = x @ self.swapaxes(weight, 0, 1)
        return product if bias is None else product + bias

    def linear_layers(self, x: Array, weights: Sequence[Array]) -> Array:
        """Return x W_1^T ... W_L^T, (..., outputs), for x (..., inputs): a network of linear layers.

        The weights are multiplied with each other first, which needs the fewest multiplications if there are
        more examples than units.
        """
        product = weights[0]
        for weight in weights[1:]:
            product = weight @ product
        return self.linear(x, product)

    def tap(self, observe: Callable[[Array], Array], y: Array, slot: Array) -> Array:
        """Return y, and give `slot` the gradient observe(g), where g is the gradient of y.

        `observe(g)` must have the shape of `slot`. Without differentiation this is the identity.
        """
        return y

    def attention(self, query: Array, key: Array, value: Array, causal: bool = False) -> Array:
        """Return scaled dot product attention for arrays (..., tokens, dim).

        If `causal`, a token attends to itself and to earlier tokens, and there must be as many queries as
        keys.
        """
        scores = query * (1 / math.sqrt(query.shape[-1])) @ self.matrix_transpose(key)
        if causal:
            position = self.arange(query.shape[-2])
            scores = self.where(position[:, None] >= position, scores, -math.inf)
        # Only the products are in half precision; softmax is computed in the precision of this object.
        return self.cast_like(self.softmax(self.astype_float(scores), -1), value) @ value

    def layer_norm(self, x: Array, scale: Array, shift: Array, epsilon: float) -> Array:
        """Normalize axis 1 of x (N, C, ...) with given statistics, then scale and shift it; all (C,)."""
        centred = x - self.mean(x, axis=-1, keepdims=True)
        variance = self.mean(self.square(centred), axis=-1, keepdims=True)
        return centred / self.sqrt(variance + epsilon) * scale + shift

    def batch_norm(
        self, x: Array, mean: Array, variance: Array, scale: Array, shift: Array, epsilon: float
    ) -> Array:
        """Normalize axis 1 of x (N, C, ...) with given statistics, then scale and shift it; all are (C,)."""
        shape = (-1,) + (1,) * (x.ndim - 2)
        factor = scale / self.sqrt(variance + epsilon)
        return (x - self.reshape(mean, shape)) * self.reshape(factor, shape) + self.reshape(shift, shape)

    def batch_norm_in_training(
        self, x: Array, scale: Array, shift: Array, epsilon: float
    ) -> tuple[Array, Array, Array]:
        """Apply `batch_norm` with the statistics of the batch; return the result, mean and variance (C,).

        The variance is the sum of squares over N, not over N - 1. The gradient of the first result includes
        the dependence on the statistics; the returned statistics are constants.
        """
        axes = (0, *range(2, x.ndim))
        mean = self.mean(x, axis=axes, keepdims=True)
        variance = self.mean(self.square(x - mean), axis=axes)
        mean = self.reshape(mean, (-1,))
        normalized = self.batch_norm(x, mean, variance, scale, shift, epsilon)
        return normalized, self.stop_gradient(mean), self.stop_gradient(variance)
