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

# Bases whose matrix V has at least this size are stored as a separate array for each seed.
# Products with V are then faster than with one array for all seeds.
# The size of V is the smaller of its numbers of rows and columns.
# The size of a tall V is the square root of its number of entries.
LARGE = 512
# V counts as tall if its number of rows divided by its number of columns is at least this ratio.
MIN_RATIO = 2


def separate_copies(rows: int, columns: int) -> int:
    """Return how many arrays a backend stores per seed for the matrix V of a basis.

    Args:
        rows, columns: shape of V.

    Returns:
        2 to store both V^T and V for each seed, 1 to store only V^T for each seed, 0 to store V of all seeds
        as one array.
    """
    if min(rows, columns) >= LARGE:
        return 2
    return int(rows >= MIN_RATIO * columns and rows * columns >= LARGE**2)


@dataclass(frozen=True)
class Ops:
    """Array functions for one backend, device and precision.

    A function that the array API standard defines has the same name and meaning here. Functions that create
    arrays use the precision and device of this object, so that no Python scalar or default changes the
    precision.

    Linear algebra works on the last two axes; all leading axes are batch axes. If a matrix has no result,
    because its entries are not finite, or it is singular or not positive definite, the result is NaN or
    infinite. No exception is raised, so that a run that has diverged does not stop the other runs that are
    computed in the same call. `eigh` and `cholesky` use the symmetric part of their argument. The signs of
    the columns of `eigh`, `qr` and `svd` are chosen by the backend's library, and differ between backends.

    The fields are functions that each backend implements. The methods are implemented once, in terms of the
    fields; the subclass of a backend overrides a method if the backend's library has a faster kernel.

    At points where a function is not differentiable, its derivative is defined as follows. The derivatives of
    `relu` and `abs` at 0 are 0. `maximum`, `minimum` and `max` divide the gradient equally between equal
    values. If several values of a window are the largest, `max_pool2d` passes the whole gradient to one of
    these values; on PyTorch, to the first.
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
    sum: Callable[..., Array]  # `sum`, `mean` and `max`: arguments (x, axis=None, keepdims=False)
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
    pad: Callable[[Array, tuple[tuple[int, int], ...]], Array]  # numbers of zeros before and after each axis
    concatenate: Callable[[list[Array], int], Array]
    stack: Callable[[list[Array], int], Array]
    unstack: Callable[[Array, int], Sequence[Array]]  # splits an array into its slices along an axis
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
    svd: Callable[[Array], tuple[Array, Array, Array]]  # the factors (u, s, vh), reduced, s descending
    solve: Callable[[Array, Array], Array]  # arguments (..., n, n) and (..., n, k)
    cholesky: Callable[[Array], Array]  # lower triangular factor
    triangular_inverse: Callable[[Array], Array]  # inverse of a lower triangular matrix

    # --- networks ---
    relu: Callable[[Array], Array]
    gelu: Callable[[Array], Array]  # x times the standard normal distribution function of x
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
        """Return the matrices V of all seeds, (S, n, r), as `from_basis` and `to_basis` expect them."""
        return self.asarray(matrices)

    def from_basis(self, bases: Any, coordinates: Array) -> Array:
        """Multiply the coordinates c of each lane, (S, K, r), by V of the lane's seed; return V c, (S, K, n).

        Args:
            bases: the matrices V, as `bases` returns them.
            coordinates: the coordinates c.
        """
        return self.einsum("sij,skj->ski", bases, coordinates)

    def to_basis(self, bases: Any, vectors: Array) -> Array:
        """Multiply the vector x of each lane, (S, K, n), by V^T of the lane's seed; return V^T x, (S, K, r).

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

        The weights are multiplied with each other first. This order takes the fewest multiplications if there
        are more examples than units in each layer.

        Args:
            x: inputs, (..., inputs).
            weights: the matrices W_1, ..., W_L, each (outputs, inputs) of its layer.
        """
        product = weights[0]
        for weight in weights[1:]:
            product = weight @ product
        return self.linear(x, product)

    def tap(self, observe: Callable[[Array], Array], y: Array, slot: Array) -> Array:
        """Return `y`, and make observe(g) the gradient of the loss with respect to `slot`.

        Here g is the gradient of the loss with respect to `y`. In this way, backpropagation computes a
        function of g.

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
        """Normalize the channels of x with the given mean and variance, then scale and shift the channels.

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
        """Apply `batch_norm` with the mean and the variance of each channel over the batch.

        Returns:
            The normalized activations, and the mean and the variance of each channel, (channels,). The
            variance is the mean of squared deviations, without the correction by n / (n - 1). The gradient of
            the activations includes their dependence on the mean and the variance. The returned mean and
            variance count as constants in differentiation.
        """
        axes = (0, *range(2, x.ndim))
        mean = self.mean(x, axis=axes, keepdims=True)
        variance = self.mean(self.square(x - mean), axis=axes)
        mean = self.reshape(mean, (-1,))
        normalized = self.batch_norm(x, mean, variance, scale, shift, epsilon)
        return normalized, self.stop_gradient(mean), self.stop_gradient(variance)
