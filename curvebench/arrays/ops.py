"""Definition of the array functions by which workloads and update rules are written.

Some functions multiply by bases. A basis is a change of coordinates given by a matrix V of shape (n, r);
there is one V for each of S seeds, and the K settings of a seed share it. The run of one seed and setting is
called a lane. Arrays of all lanes have the leading axes (S, K).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Array = Any

# From this size of V on, a separate array for each seed is faster than one array for all seeds.
# The size is the smaller number of rows and columns; for a tall V, the square root of its entries.
LARGE = 512
# Ratio of rows to columns from which V counts as tall.
MIN_RATIO = 2


def separate_copies(rows: int, columns: int) -> int:
    """Return how many arrays a backend stores for the matrix V of each seed.

    Args:
        rows, columns: shape of V.

    Returns:
        2 to store V^T and V of each seed, 1 to store V^T only, 0 to store one array for all seeds.
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

    Linear algebra works on the last two axes; all leading axes are batch axes. If a matrix has no result,
    because it is not finite, singular or not positive definite, the result is NaN or infinite, and no
    exception is raised: a run that has diverged does not stop the runs that are computed with it. `eigh` and
    `cholesky` use the symmetric part of their argument. The signs of the columns of `eigh`, `qr` and `svd`
    are those of the backend's library, and differ between backends.

    Functions that each backend implements are fields. Methods have one implementation in terms of the fields;
    the subclass of a backend overrides a method if its library has a faster kernel.

    Where functions are not differentiable, derivatives are defined as follows: those of `relu` and `abs` are
    0 at 0. `maximum`, `minimum` and `max` divide the gradient equally between equal values. `max_pool2d`
    passes the gradient to one of several equal values, on PyTorch to the first.
    """

    backend: str
    dtype: str

    # --- arrays ---
    asarray: Callable[[Any], Array]  # converts real numbers to the precision of this object, not integers
    to_numpy: Callable[[Array], Any]
    zeros: Callable[[tuple[int, ...]], Array]
    eye: Callable[[int], Array]
    arange: Callable[[int], Array]  # 0, 1, ..., n - 1 in the precision of this object
    zeros_like: Callable[[Array], Array]
    ones_like: Callable[[Array], Array]
    full_like: Callable[[Array, float], Array]
    astype_float: Callable[[Array], Array]
    cast: Callable[[Array, str], Array]  # converts real numbers to the named precision, but not integers
    cast_like: Callable[[Array, Array], Array]  # converts to the precision of the second argument
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
    sum: Callable[..., Array]  # arguments (x, axis=None, keepdims=False), as for `mean` and `max`
    mean: Callable[..., Array]
    max: Callable[..., Array]
    cumsum: Callable[[Array, int], Array]
    argmax: Callable[[Array, int], Array]
    argsort: Callable[[Array, int], Array]  # indices in ascending order of the values; the sort is stable
    swapaxes: Callable[[Array, int, int], Array]
    flip: Callable[[Array, int], Array]
    permute_dims: Callable[[Array, tuple[int, ...]], Array]
    reshape: Callable[[Array, tuple[int, ...]], Array]
    broadcast_to: Callable[[Array, tuple[int, ...]], Array]
    pad: Callable[[Array, tuple[tuple[int, int], ...]], Array]  # zeros (before, after) to add on each axis
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
    eigh: Callable[[Array], tuple[Array, Array]]  # eigenvalues in ascending order, eigenvectors as columns
    qr: Callable[[Array], tuple[Array, Array]]  # reduced decomposition
    svd: Callable[[Array], tuple[Array, Array, Array]]  # reduced: u, s in descending order, vh
    solve: Callable[[Array, Array], Array]  # arguments (..., n, n) and (..., n, k)
    cholesky: Callable[[Array], Array]  # lower triangular factor
    triangular_inverse: Callable[[Array], Array]  # inverse of a lower triangular matrix

    # --- networks ---
    relu: Callable[[Array], Array]
    gelu: Callable[[Array], Array]  # x times the normal distribution function at x, computed with erf
    silu: Callable[[Array], Array]
    tanh: Callable[[Array], Array]
    sigmoid: Callable[[Array], Array]
    log_sigmoid: Callable[[Array], Array]
    softmax: Callable[[Array, int], Array]
    log_softmax: Callable[[Array, int], Array]
    logsumexp: Callable[[Array, int], Array]
    # Images have the shape (images, channels, height, width).
    # The filters of `conv2d` have the shape (outputs, channels, height, width).
    conv2d: Callable[..., Array]  # arguments (images, filters, stride=1, padding=0)
    max_pool2d: Callable[[Array, int, int], Array]  # arguments (images, window, stride)
    average_pool2d: Callable[[Array, int, int], Array]

    def bases(self, matrices: Any) -> Any:
        """Convert the matrices V of all seeds, (S, n, r), to the argument of `from_basis` and `to_basis`."""
        return self.asarray(matrices)

    def from_basis(self, bases: Any, coordinates: Array) -> Array:
        """Return V c, (S, K, n), for the coordinates c of all lanes, (S, K, r).

        Args:
            bases: the matrices V, as `bases` returns them.
            coordinates: the coordinates c.
        """
        return self.einsum("sij,skj->ski", bases, coordinates)

    def to_basis(self, bases: Any, vectors: Array) -> Array:
        """Return V^T x, (S, K, r), for the vectors x of all lanes, (S, K, n).

        Args:
            bases: the matrices V, as `bases` returns them.
            vectors: the vectors x.
        """
        return self.einsum("sij,ski->skj", bases, vectors)

    def cholesky_inverse(self, lower: Array) -> Array:
        """Return (L L^T)^-1 for the lower triangular matrix L = `lower` (..., n, n)."""
        inverse = self.triangular_inverse(lower)
        return self.matrix_transpose(inverse) @ inverse

    def linear(self, x: Array, weight: Array, bias: Array | None = None) -> Array:
        """Return the outputs x W^T + b of a linear layer, (..., outputs).

        Args:
            x: inputs, (..., inputs).
            weight: the matrix W, (outputs, inputs).
            bias: the vector b, (outputs,); None for 0.
        """
        product = x @ self.swapaxes(weight, 0, 1)
        return product if bias is None else product + bias

    def linear_layers(self, x: Array, weights: Sequence[Array]) -> Array:
        """Return the outputs x W_1^T ... W_L^T of a network of L linear layers, (..., outputs).

        The weights are multiplied with each other first. This takes the fewest multiplications if there are
        more examples than units in a layer.

        Args:
            x: inputs, (..., inputs).
            weights: the matrices W_1, ..., W_L, each (outputs, inputs) of its layer.
        """
        product = weights[0]
        for weight in weights[1:]:
            product = weight @ product
        return self.linear(x, product)

    def tap(self, observe: Callable[[Array], Array], y: Array, slot: Array) -> Array:
        """Return `y`. In differentiation, the loss's gradient with respect to `slot` is observe(g).

        Here g is the loss's gradient with respect to `y`.

        Args:
            observe: function of g, whose result must have the shape of `slot`.
            y: array, such as the output of a layer.
            slot: array with respect to which the loss is differentiated; its values are not used.
        """
        return y

    def attention(self, query: Array, key: Array, value: Array, causal: bool = False) -> Array:
        """Return scaled dot product attention for arrays (..., tokens, dim).

        If `causal`, a token attends only to itself and to earlier tokens, and the numbers of queries and keys
        must be equal.
        """
        scores = query * (1 / math.sqrt(query.shape[-1])) @ self.matrix_transpose(key)
        if causal:
            position = self.arange(query.shape[-2])
            scores = self.where(position[:, None] >= position, scores, -math.inf)
        # Only the products may be in half precision; softmax is computed in the precision of this object.
        return self.cast_like(self.softmax(self.astype_float(scores), -1), value) @ value

    def layer_norm(self, x: Array, scale: Array, shift: Array, epsilon: float) -> Array:
        """Normalize the last axis of `x` to mean 0 and variance 1, then scale and shift it.

        Args:
            x: activations of shape (..., features).
            scale, shift: factor and summand of each feature, (features,).
            epsilon: number that is added to the variance.
        """
        centred = x - self.mean(x, axis=-1, keepdims=True)
        variance = self.mean(self.square(centred), axis=-1, keepdims=True)
        return centred / self.sqrt(variance + epsilon) * scale + shift

    def batch_norm(
        self, x: Array, mean: Array, variance: Array, scale: Array, shift: Array, epsilon: float
    ) -> Array:
        """Normalize the channels of x with given statistics, then scale and shift them.

        Args:
            x: activations of shape (examples, channels, ...).
            mean, variance: statistics of each channel, (channels,).
            scale, shift: factor and summand of each channel, (channels,).
            epsilon: number that is added to the variance.
        """
        shape = (-1,) + (1,) * (x.ndim - 2)
        factor = scale / self.sqrt(variance + epsilon)
        return (x - self.reshape(mean, shape)) * self.reshape(factor, shape) + self.reshape(shift, shape)

    def batch_norm_in_training(
        self, x: Array, scale: Array, shift: Array, epsilon: float
    ) -> tuple[Array, Array, Array]:
        """Apply `batch_norm` with the statistics of the batch.

        Returns:
            The normalized activations, and the mean and the variance of each channel, (channels,). The
            variance is the mean of squared deviations, without the correction by n / (n - 1). The gradient of
            the activations includes the dependence on the statistics; the returned statistics are constants.
        """
        axes = (0, *range(2, x.ndim))
        mean = self.mean(x, axis=axes, keepdims=True)
        variance = self.mean(self.square(x - mean), axis=axes)
        mean = self.reshape(mean, (-1,))
        normalized = self.batch_norm(x, mean, variance, scale, shift, epsilon)
        return normalized, self.stop_gradient(mean), self.stop_gradient(variance)
