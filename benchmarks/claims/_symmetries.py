"""Multilayer perceptrons, many at once, and the symmetries of their parameters under maps of hidden units.

In citations, 004 is Bernacchia (2025), "Global curvature for second-order optimization of neural networks"
(docs/sources.md).

d_l is the number of units of layer l (d_0 inputs, d_L outputs), p the number of parameters, N the number of
networks that are computed at once, and P the number of data points. Layer l has the weight W_l, the bias b_l,
the pre-activations z_l and the activations a_l.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Literal

import numpy as np

from curvebench.benchmarks.claims._matrices import orthonormal
from curvebench.benchmarks.claims._parts import Random

Activation = Literal["linear", "tanh", "relu"]
SymmetryGroup = Literal["orthogonal", "signed", "permutations"]
GROUPS: tuple[SymmetryGroup, ...] = ("orthogonal", "signed", "permutations")
GROUP_OF: Mapping[Activation, SymmetryGroup] = {
    "linear": "orthogonal",
    "tanh": "signed",
    "relu": "permutations",
}
# Number of networks times points in one computation, so small that its activations fit into the CPU cache.
CACHED = 8000


@dataclass(frozen=True)
class Tensor:
    """Weight or bias of a perceptron.

    Args:
        name: name of the parameter: W1, b1, W2, ...
        axes: for each axis of the parameter, the number of the layer of units to which the axis belongs,
            inputs first: (l - 1, l) for W_l, (l,) for b_l.
    """

    name: str
    axes: tuple[int, ...]


def tensors_of(depth: int, bias: bool) -> tuple[Tensor, ...]:
    """Return the weights and biases of a network of `depth` layers, in the order of 004 eq. 16."""
    found = []
    for layer in range(1, depth + 1):
        found.append(Tensor(f"W{layer}", (layer - 1, layer)))
        if bias:
            found.append(Tensor(f"b{layer}", (layer,)))
    return tuple(found)


def places(widths: Sequence[int], bias: bool) -> dict[str, slice]:
    """Return the slice of each tensor in the vector of all parameters (004 eq. 16), by name."""
    found, start = {}, 0
    for tensor in tensors_of(len(widths) - 1, bias):
        size = int(np.prod([widths[axis] for axis in tensor.axes]))
        found[tensor.name] = slice(start, start + size)
        start += size
    return found


def size_of(widths: Sequence[int], bias: bool) -> int:
    """Return the number of parameters of a network, p."""
    return sum(after * (before + bias) for before, after in pairwise(widths))


# --- maps of the parameters -------------------------------------------------------------------------


@dataclass(frozen=True)
class SignedIndices:
    """Maps theta -> G theta that permute entries and flip signs: G theta = signs * theta[indices].

    Args:
        indices, signs: one row per map, (count, p) each.
    """

    indices: np.ndarray
    signs: np.ndarray

    def vectors(self, given: np.ndarray) -> np.ndarray:
        """Return G theta for vectors theta, (count, p) or (count, n, p).

        Map i is applied to entry i of the first axis.
        """
        indices, signs = self.indices, self.signs
        if given.ndim == 3:
            indices, signs = indices[:, None], signs[:, None]
        return np.asarray(np.take_along_axis(given, indices, -1) * signs)

    def matrices(self, given: np.ndarray) -> np.ndarray:
        """Return G M G^T for matrices M, (count, p, p) or (count, p, p, n).

        Map i is applied to entry i of the first axis.
        """
        size, rest = given.shape[1], given.shape[3:]
        starts = size * size * np.arange(len(given))[:, None, None]
        flat = starts + self.indices[:, :, None] * size + self.indices[:, None, :]
        moved = given.reshape(-1, *rest).take(flat, axis=0)
        signs = self.signs[:, :, None] * self.signs[:, None, :]
        return np.asarray(moved * signs.reshape(*signs.shape, *[1] * len(rest)))


def of_units(
    widths: Sequence[int], bias: bool, orders: Mapping[int, np.ndarray], signs: Mapping[int, np.ndarray]
) -> SignedIndices:
    """Return the maps of the parameters that correspond to maps of the hidden units (004 eqs. 6 and 7).

    The units h of hidden layer l are mapped by V_l h = s_l h[pi_l].

    Args:
        widths: d_0 ... d_L.
        bias: whether there are biases.
        orders: pi_l, (count, d_l), by hidden layer; a missing layer is not permuted.
        signs: s_l, (count, d_l), by hidden layer; a missing layer keeps its signs.
    """
    count = len(next(iter(orders.values())))
    where = {
        layer: orders.get(layer, np.tile(np.arange(width), (count, 1))) for layer, width in enumerate(widths)
    }
    flips = {layer: signs.get(layer, np.ones((count, width))) for layer, width in enumerate(widths)}
    indices, factors, start = [], [], 0
    for tensor in tensors_of(len(widths) - 1, bias):
        last = tensor.axes[-1]
        index, sign = where[last], flips[last]
        if len(tensor.axes) == 2:
            first = tensor.axes[0]
            index = where[first][:, :, None] * widths[last] + index[:, None, :]
            sign = flips[first][:, :, None] * sign[:, None, :]
        indices.append(start + index.reshape(count, -1))
        factors.append(sign.reshape(count, -1))
        start += indices[-1].shape[1]
    return SignedIndices(np.concatenate(indices, 1), np.concatenate(factors, 1))


def draw_maps(
    random: Random, widths: Sequence[int], bias: bool, group: SymmetryGroup, count: int
) -> SignedIndices:
    """Draw `count` uniformly random elements of the group.

    The group consists of the permutations, or of the signed permutations, of the units of each hidden layer.
    """
    hidden = {layer: widths[layer] for layer in range(1, len(widths) - 1)}
    orders = {layer: np.argsort(random.random((count, width)), axis=1) for layer, width in hidden.items()}
    signs = {}
    if group == "signed":
        signs = {layer: random.choice([-1.0, 1.0], (count, width)) for layer, width in hidden.items()}
    return of_units(widths, bias, orders, signs)


def generators(widths: Sequence[int], bias: bool, group: SymmetryGroup) -> SignedIndices:
    """Return maps that generate the group: for each hidden layer a swap, a cycle and, if signed, a flip."""
    orders: dict[int, list[np.ndarray]] = {layer: [] for layer in range(1, len(widths) - 1)}
    signs: dict[int, list[np.ndarray]] = {layer: [] for layer in orders}
    for moved in orders:
        for kind in ("swap", "cycle", "flip"):
            for layer, width in enumerate(widths[1:-1], start=1):
                order, sign = np.arange(width), np.ones(width)
                if layer == moved and kind == "swap":
                    order[:2] = order[:2][::-1]
                elif layer == moved and kind == "cycle":
                    order = np.roll(order, 1)
                elif layer == moved and group == "signed":
                    sign[0] = -1.0
                orders[layer].append(order)
                signs[layer].append(sign)
    return of_units(
        widths,
        bias,
        {layer: np.array(rows) for layer, rows in orders.items()},
        {layer: np.array(rows) for layer, rows in signs.items()},
    )


def draw_matrix(random: Random, widths: Sequence[int], bias: bool, group: SymmetryGroup) -> np.ndarray:
    """Draw the matrix G (p, p) of a uniformly random map of the hidden units (004 eq. 17)."""
    if group != "orthogonal":
        maps = draw_maps(random, widths, bias, group, 1)
        return maps.signs[0][:, None] * np.eye(size_of(widths, bias))[maps.indices[0]]
    turns: list[np.ndarray] = [np.eye(width) for width in widths]
    for layer in range(1, len(widths) - 1):
        drawn = orthonormal(random, widths[layer], widths[layer])
        turns[layer] = drawn * random.choice([-1.0, 1.0], widths[layer])
    found = np.zeros((size_of(widths, bias),) * 2)
    for tensor, place in zip(tensors_of(len(widths) - 1, bias), places(widths, bias).values(), strict=True):
        block: np.ndarray = turns[tensor.axes[-1]]
        if len(tensor.axes) == 2:
            block = np.kron(turns[tensor.axes[0]], block)
        found[place, place] = block
    return found


# --- networks ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Perceptron:
    """Multilayer perceptron (004 eq. 5) whose loss is half of the squared error, averaged over points.

    Parameters are vectors (p,) as in 004 eq. 16: W_1, b_1, W_2, ..., each in column-major order.

    Args:
        widths: d_0 ... d_L, the numbers of units.
        activation: activation of the hidden units.
        bias: whether there are biases.
    """

    widths: tuple[int, ...]
    activation: Activation
    bias: bool

    @property
    def depth(self) -> int:
        """Number of layers, L."""
        return len(self.widths) - 1

    @property
    def size(self) -> int:
        """Number of parameters, p."""
        return size_of(self.widths, self.bias)

    @cached_property
    def places(self) -> dict[str, slice]:
        """Slice of each tensor in the parameter vector, by name."""
        return places(self.widths, self.bias)

    def weights(self, parameters: np.ndarray) -> list[np.ndarray]:
        """Return the weights W_l, (N, d_l, d_(l-1)), of parameters (N, p)."""
        return [
            parameters[:, self.places[f"W{layer}"]]
            .reshape(len(parameters), self.widths[layer - 1], self.widths[layer])
            .swapaxes(1, 2)
            for layer in range(1, self.depth + 1)
        ]

    def initial(
        self, random: Random, count: int, weight_scales: Sequence[float], bias_scale: float
    ) -> np.ndarray:
        """Draw normal parameters (count, p).

        Args:
            random: generator of the instance.
            count: number of networks.
            weight_scales: standard deviation of the weights of each layer.
            bias_scale: standard deviation of all biases.
        """
        scales = np.full(self.size, bias_scale)
        for layer, scale in enumerate(weight_scales, start=1):
            scales[self.places[f"W{layer}"]] = scale
        return random.standard_normal((count, self.size)) * scales

    def units(self, layer: int, unit: int) -> np.ndarray:
        """Return a mask (p,) of the parameters that enter or leave a hidden unit."""
        marked = np.zeros(self.size, dtype=bool)
        for tensor in tensors_of(self.depth, self.bias):
            if layer in tensor.axes:
                grid = np.zeros([self.widths[axis] for axis in tensor.axes], dtype=bool)
                np.moveaxis(grid, tensor.axes.index(layer), 0)[unit] = True
                marked[self.places[tensor.name]] = grid.ravel()
        return marked

    def _act(self, inner: np.ndarray) -> np.ndarray:
        if self.activation == "tanh":
            return np.tanh(inner)
        return np.maximum(inner, 0.0) if self.activation == "relu" else inner

    def _slopes(self, outer: np.ndarray) -> np.ndarray:
        """Return the derivative of the activation function at a unit whose activation is `outer`."""
        if self.activation == "tanh":
            return 1.0 - outer * outer
        return (outer > 0).astype(float) if self.activation == "relu" else np.ones_like(outer)

    def _forward(self, parameters: np.ndarray, inputs: np.ndarray) -> list[np.ndarray]:
        """Return the inputs a_0 (d_0, P), the hidden activations a_l (N, d_l, P), and the outputs."""
        found = [np.ascontiguousarray(inputs.T)]
        for layer, weight in enumerate(self.weights(parameters), start=1):
            if layer == 1:  # All networks have the same inputs, so that one matrix product suffices.
                flat = np.ascontiguousarray(weight).reshape(-1, self.widths[0]) @ found[0]
                inner = flat.reshape(len(parameters), self.widths[1], -1)
            else:
                inner = weight @ found[-1]
            if self.bias:
                inner = inner + parameters[:, self.places[f"b{layer}"], None]
            found.append(self._act(inner) if layer < self.depth else inner)
        return found

    def outputs(self, parameters: np.ndarray, inputs: np.ndarray) -> np.ndarray:
        """Return the outputs (N, P, d_L) for parameters (N, p) and inputs (P, d_0)."""
        return self._forward(parameters, inputs)[-1].swapaxes(1, 2)

    def losses(self, parameters: np.ndarray, inputs: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Return the loss of each network, (N,)."""
        errors = self.outputs(parameters, inputs) - targets
        return np.asarray((errors**2).sum(2).mean(1) / 2)

    def gradients(self, parameters: np.ndarray, inputs: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Return the gradients of the losses, (N, p)."""
        found = np.empty(parameters.shape)
        for part in chunks(len(parameters), CACHED // len(inputs)):
            found[part] = self._gradients(parameters[part], inputs, targets)
        return found

    def _gradients(self, parameters: np.ndarray, inputs: np.ndarray, targets: np.ndarray) -> np.ndarray:
        layers, weights = self._forward(parameters, inputs), self.weights(parameters)
        found = np.empty(parameters.shape)
        backward = (layers[-1] - targets.T) / len(inputs)
        for layer in range(self.depth, 0, -1):
            # `product` is the gradient with respect to W_l, of shape (N, d_(l-1), d_l).
            product = layers[layer - 1] @ backward.swapaxes(1, 2)
            found[:, self.places[f"W{layer}"]] = product.reshape(len(parameters), -1)
            if self.bias:
                found[:, self.places[f"b{layer}"]] = backward.sum(2)
            if layer > 1:
                backward = (weights[layer - 1].swapaxes(1, 2) @ backward) * self._slopes(layers[layer - 1])
        return found

    def hessians(self, parameters: np.ndarray, inputs: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Return the Hessians of the losses, (N, p, p); for ReLU, they exist almost everywhere.

        N should be small, since memory grows as N p^2.

        With g_l = dloss / dz_l, Q_lk = dg_l / dz_k and R_lk = da_l / dz_k, k < l, the block of W_k and W_l is
        the sum over points of a_(k-1) x (Q_lk x a_(l-1) + g_l x R_(l-1)k), where x is the outer product.
        """
        count, points = len(parameters), len(inputs)
        layers, weights = self._forward(parameters, inputs), self.weights(parameters)
        slopes = [np.ones((count, 1, 1)), *(self._slopes(layers[layer]) for layer in range(1, self.depth))]
        gradient = {self.depth: (layers[-1] - targets.T) / points}
        square = {
            self.depth: np.broadcast_to(
                np.eye(self.widths[-1])[:, :, None] / points, (count, *(self.widths[-1],) * 2, points)
            )
        }
        for layer in range(self.depth - 1, 0, -1):
            after = weights[layer]
            inner = after.swapaxes(1, 2) @ gradient[layer + 1]
            gradient[layer] = inner * slopes[layer]
            pulled = _between(after.swapaxes(1, 2), square[layer + 1], after)
            pulled = pulled * slopes[layer][:, :, None] * slopes[layer][:, None]
            if self.activation == "tanh":
                bend = -2.0 * layers[layer] * slopes[layer] * inner
                each = np.arange(self.widths[layer])
                pulled[:, each, each] += bend
            square[layer] = pulled
        found = np.empty((count, self.size, self.size))
        inputs_of = {1: np.broadcast_to(layers[0], (count, *layers[0].shape))}
        inputs_of |= {layer + 1: layers[layer] for layer in range(1, self.depth)}
        for low in range(1, self.depth + 1):
            # `to_inner` is the derivative dz_l / dz_low, of shape (N, d_l, d_low, P).
            to_inner = np.broadcast_to(
                np.eye(self.widths[low])[:, :, None], (count, *(self.widths[low],) * 2, points)
            )
            for high in range(low, self.depth + 1):
                reach = None
                if high > low:
                    # `reach` is the matrix R_lk for l = high - 1 and k = low: the derivatives da_l / dz_k.
                    reach = to_inner * slopes[high - 1][:, :, None]
                    to_inner = _left(weights[high - 1], reach)
                # `both` is the matrix Q_lk for l = high and k = low, of shape (N, d_high, d_low, P).
                both = _middle(square[high], to_inner)
                self._fill(found, low, high, inputs_of, both, gradient[high], reach)
        return found

    def _fill(
        self,
        found: np.ndarray,
        low: int,
        high: int,
        inputs_of: Mapping[int, np.ndarray],
        both: np.ndarray,
        gradient: np.ndarray,
        reach: np.ndarray | None,
    ) -> None:
        """Write the Hessian blocks of the weights and biases of layers `low` and `high` into `found`.

        The blocks are sums over points.
        """
        count, points = len(found), both.shape[-1]
        before_low, before_high = inputs_of[low], inputs_of[high]
        if self.bias:
            ones = np.ones((count, 1, points))
            before_low = np.concatenate([before_low, ones], 1)
            before_high = np.concatenate([before_high, ones], 1)
        # Products of an input j of the lower layer and an input j' of the higher layer, (N, j, j', P).
        products = before_low[:, :, None] * before_high[:, None]
        # Hessian of weights (i, j) of the lower layer and (i', j') of the higher layer, (N, i', i, j, j').
        block = _sum_points(both, products)
        if reach is not None:
            # Products of the gradient of an output i' and an input j, (N, i', j, P).
            left = gradient[:, :, None] * before_low[:, None]
            # Sum over points of the products `left` times the derivatives `reach`, (N, i', j, r, i).
            more = _sum_points(left, reach)
            block[..., : more.shape[3]] += more.transpose(0, 1, 4, 2, 3)
        rows, columns = self._layer_places(low), self._layer_places(high)
        flat = block.transpose(0, 3, 2, 4, 1).reshape(count, len(rows), len(columns))
        found[:, rows[:, None], columns[None]] = flat
        found[:, columns[:, None], rows[None]] = flat.swapaxes(1, 2)

    def _layer_places(self, layer: int) -> np.ndarray:
        """Return the indices of the entries of (W_l, b_l), inputs first, with the bias as the last input."""
        place = self.places[f"W{layer}"]
        stop = self.places[f"b{layer}"].stop if self.bias else place.stop
        return np.arange(place.start, stop)


def _left(matrix: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the matrix products A X for N networks and P points, with A (N, i, k) and X (N, k, j, P)."""
    count, _, columns, points = values.shape
    flat = matrix @ values.reshape(count, values.shape[1], -1)
    return np.asarray(flat.reshape(count, -1, columns, points))


def _between(left: np.ndarray, values: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return the matrix products A X B for N networks and P points, with X (N, k, k', P)."""
    half = _left(left, values).swapaxes(1, 2)
    return np.ascontiguousarray(_left(right.swapaxes(1, 2), half).swapaxes(1, 2))


def _middle(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the matrix products X Y for N networks and P points, with X (N, i, k, P), Y (N, k, j, P)."""
    return np.asarray(np.einsum("nikp,nkjp->nijp", first, second))


def _sum_points(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the sum over points of outer products of X (N, a, b, P) and Y (N, c, d, P), (N, a, b, c, d)."""
    count, points = len(first), first.shape[-1]
    flat = first.reshape(count, -1, points) @ second.reshape(count, -1, points).swapaxes(1, 2)
    return np.asarray(flat.reshape(*first.shape[:3], *second.shape[1:3]))


def chunks(count: int, length: int) -> Iterator[slice]:
    """Yield slices of `length` entries, or of 1 if `length` is 0, that together cover `count` entries."""
    length = max(length, 1)
    for start in range(0, count, length):
        yield slice(start, min(start + length, count))
