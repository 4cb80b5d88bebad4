"""Multilayer perceptrons and the maps of their parameters that hidden units permit, many networks at once."""

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
CACHED = 8000  # networks times points that are computed with at once: their activations stay in the cache


@dataclass(frozen=True)
class Tensor:
    """A weight or a bias of a perceptron.

    Args:
        name: W1, b1, W2, ...
        axes: the layers of units that its axes belong to, inputs first: (l - 1, l) of W_l, (l,) of b_l.
    """

    name: str
    axes: tuple[int, ...]


def tensors_of(depth: int, bias: bool) -> tuple[Tensor, ...]:
    """Those of L layers, in the order of 004 eq. 16."""
    found = []
    for layer in range(1, depth + 1):
        found.append(Tensor(f"W{layer}", (layer - 1, layer)))
        if bias:
            found.append(Tensor(f"b{layer}", (layer,)))
    return tuple(found)


def places(widths: Sequence[int], bias: bool) -> dict[str, slice]:
    """Where each tensor's entries are in the vector of all parameters (004 eq. 16), by name."""
    found, start = {}, 0
    for tensor in tensors_of(len(widths) - 1, bias):
        size = int(np.prod([widths[axis] for axis in tensor.axes]))
        found[tensor.name] = slice(start, start + size)
        start += size
    return found


def size_of(widths: Sequence[int], bias: bool) -> int:
    """p, the number of all parameters."""
    return sum(after * (before + bias) for before, after in pairwise(widths))


# --- maps of the parameters -------------------------------------------------------------------------


@dataclass(frozen=True)
class SignedIndices:
    """Maps theta -> G theta that move entries and flip signs: G theta = signs * theta[indices].

    Args:
        indices, signs: of so many maps, (count, p) each.
    """

    indices: np.ndarray
    signs: np.ndarray

    def vectors(self, given: np.ndarray) -> np.ndarray:
        """G theta of vectors (count, p), each by its own map, or of (count, n, p)."""
        indices, signs = self.indices, self.signs
        if given.ndim == 3:
            indices, signs = indices[:, None], signs[:, None]
        return np.asarray(np.take_along_axis(given, indices, -1) * signs)

    def matrices(self, given: np.ndarray) -> np.ndarray:
        """G M G^T of matrices (count, p, p), each by its own map, or of several, (count, p, p, n)."""
        size, rest = given.shape[1], given.shape[3:]
        starts = size * size * np.arange(len(given))[:, None, None]
        flat = starts + self.indices[:, :, None] * size + self.indices[:, None, :]
        moved = given.reshape(-1, *rest).take(flat, axis=0)
        signs = self.signs[:, :, None] * self.signs[:, None, :]
        return np.asarray(moved * signs.reshape(*signs.shape, *[1] * len(rest)))


def of_units(
    widths: Sequence[int], bias: bool, orders: Mapping[int, np.ndarray], signs: Mapping[int, np.ndarray]
) -> SignedIndices:
    """The maps of all parameters that move hidden units: V_l h = s_l h[pi_l] (004 eqs. 6 and 7).

    Args:
        widths: d_0 ... d_L.
        bias: whether there are biases.
        orders: pi_l, (count, d_l), by hidden layer; a layer that is left out stays.
        signs: s_l, (count, d_l), likewise.
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
    """Uniform elements of the group of permutations of the hidden units, or of signed ones."""
    hidden = {layer: widths[layer] for layer in range(1, len(widths) - 1)}
    orders = {layer: np.argsort(random.random((count, width)), axis=1) for layer, width in hidden.items()}
    signs = {}
    if group == "signed":
        signs = {layer: random.choice([-1.0, 1.0], (count, width)) for layer, width in hidden.items()}
    return of_units(widths, bias, orders, signs)


def generators(widths: Sequence[int], bias: bool, group: SymmetryGroup) -> SignedIndices:
    """Maps that generate the group: of each hidden layer a swap, a cycle and, in the signed one, a flip."""
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
    """G (p, p), a uniform element of a group (004 eq. 17)."""
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
    """A multilayer perceptron (004 eq. 5) under the mean over points of half of the squared error.

    Parameters are vectors (p,) as in 004 eq. 16: W_1, b_1, W_2, ..., each column by column.

    Args:
        widths: d_0 ... d_L.
        activation: of the hidden units.
        bias: whether there are biases.
    """

    widths: tuple[int, ...]
    activation: Activation
    bias: bool

    @property
    def depth(self) -> int:
        """L."""
        return len(self.widths) - 1

    @property
    def size(self) -> int:
        """p."""
        return size_of(self.widths, self.bias)

    @cached_property
    def places(self) -> dict[str, slice]:
        """Where each tensor's entries are."""
        return places(self.widths, self.bias)

    def weights(self, parameters: np.ndarray) -> list[np.ndarray]:
        """W_l (N, d_l, d_(l-1)) of parameters (N, p)."""
        return [
            parameters[:, self.places[f"W{layer}"]]
            .reshape(len(parameters), self.widths[layer - 1], self.widths[layer])
            .swapaxes(1, 2)
            for layer in range(1, self.depth + 1)
        ]

    def initial(
        self, random: Random, count: int, weight_scales: Sequence[float], bias_scale: float
    ) -> np.ndarray:
        """Normal parameters (count, p): standard deviations of each layer's weights, and of all biases."""
        scales = np.full(self.size, bias_scale)
        for layer, scale in enumerate(weight_scales, start=1):
            scales[self.places[f"W{layer}"]] = scale
        return random.standard_normal((count, self.size)) * scales

    def units(self, layer: int, unit: int) -> np.ndarray:
        """Which parameters enter or leave a hidden unit, (p,) of booleans."""
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
        """sigma' from sigma."""
        if self.activation == "tanh":
            return 1.0 - outer * outer
        return (outer > 0).astype(float) if self.activation == "relu" else np.ones_like(outer)

    def _forward(self, parameters: np.ndarray, inputs: np.ndarray) -> list[np.ndarray]:
        """a_0 (d_0, P), a_l (N, d_l, P) of the hidden layers, and the outputs."""
        found = [np.ascontiguousarray(inputs.T)]
        for layer, weight in enumerate(self.weights(parameters), start=1):
            if layer == 1:  # one product for all networks
                flat = np.ascontiguousarray(weight).reshape(-1, self.widths[0]) @ found[0]
                inner = flat.reshape(len(parameters), self.widths[1], -1)
            else:
                inner = weight @ found[-1]
            if self.bias:
                inner = inner + parameters[:, self.places[f"b{layer}"], None]
            found.append(self._act(inner) if layer < self.depth else inner)
        return found

    def outputs(self, parameters: np.ndarray, inputs: np.ndarray) -> np.ndarray:
        """(N, P, d_L) of parameters (N, p) and inputs (P, d_0)."""
        return self._forward(parameters, inputs)[-1].swapaxes(1, 2)

    def losses(self, parameters: np.ndarray, inputs: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """(N,)."""
        errors = self.outputs(parameters, inputs) - targets
        return np.asarray((errors**2).sum(2).mean(1) / 2)

    def gradients(self, parameters: np.ndarray, inputs: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Of the losses, (N, p)."""
        found = np.empty(parameters.shape)
        for part in chunks(len(parameters), CACHED // len(inputs)):
            found[part] = self._gradients(parameters[part], inputs, targets)
        return found

    def _gradients(self, parameters: np.ndarray, inputs: np.ndarray, targets: np.ndarray) -> np.ndarray:
        layers, weights = self._forward(parameters, inputs), self.weights(parameters)
        found = np.empty(parameters.shape)
        backward = (layers[-1] - targets.T) / len(inputs)
        for layer in range(self.depth, 0, -1):
            product = layers[layer - 1] @ backward.swapaxes(1, 2)  # (N, d_(l-1), d_l)
            found[:, self.places[f"W{layer}"]] = product.reshape(len(parameters), -1)
            if self.bias:
                found[:, self.places[f"b{layer}"]] = backward.sum(2)
            if layer > 1:
                backward = (weights[layer - 1].swapaxes(1, 2) @ backward) * self._slopes(layers[layer - 1])
        return found

    def hessians(self, parameters: np.ndarray, inputs: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Of the losses, (N, p, p), for few networks at once; of ReLU almost everywhere.

        With g_l = dloss / dz_l, Q_lk = dg_l / dz_k and R_lk = da_l / dz_k, k < l, the block of W_k, W_l is
        sum over points a_(k-1) x (Q_lk x a_(l-1) + g_l x R_(l-1)k).
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
            to_inner = np.broadcast_to(
                np.eye(self.widths[low])[:, :, None], (count, *(self.widths[low],) * 2, points)
            )  # dz_l / dz_low, (N, d_l, d_low, P)
            for high in range(low, self.depth + 1):
                reach = None
                if high > low:
                    reach = to_inner * slopes[high - 1][:, :, None]  # R_(high-1)low
                    to_inner = _left(weights[high - 1], reach)
                both = _middle(square[high], to_inner)  # Q_(high)low, (N, d_high, d_low, P)
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
        """The blocks of the Hessian of two layers' weights and biases, from their values at all points."""
        count, points = len(found), both.shape[-1]
        before_low, before_high = inputs_of[low], inputs_of[high]
        if self.bias:
            ones = np.ones((count, 1, points))
            before_low = np.concatenate([before_low, ones], 1)
            before_high = np.concatenate([before_high, ones], 1)
        products = before_low[:, :, None] * before_high[:, None]  # (N, j, j', P)
        block = _sum_points(both, products)  # (N, i', i, j, j')
        if reach is not None:
            left = gradient[:, :, None] * before_low[:, None]  # (N, i', j, P)
            more = _sum_points(left, reach)  # (N, i', j, r, i)
            block[..., : more.shape[3]] += more.transpose(0, 1, 4, 2, 3)
        rows, columns = self._layer_places(low), self._layer_places(high)
        flat = block.transpose(0, 3, 2, 4, 1).reshape(count, len(rows), len(columns))
        found[:, rows[:, None], columns[None]] = flat
        found[:, columns[:, None], rows[None]] = flat.swapaxes(1, 2)

    def _layer_places(self, layer: int) -> np.ndarray:
        """Where the entries of (W_l, b_l) are, inputs first, the bias as the last input."""
        place = self.places[f"W{layer}"]
        stop = self.places[f"b{layer}"].stop if self.bias else place.stop
        return np.arange(place.start, stop)


def _left(matrix: np.ndarray, values: np.ndarray) -> np.ndarray:
    """A X for A (N, i, k) and X (N, k, j, P)."""
    count, _, columns, points = values.shape
    flat = matrix @ values.reshape(count, values.shape[1], -1)
    return np.asarray(flat.reshape(count, -1, columns, points))


def _between(left: np.ndarray, values: np.ndarray, right: np.ndarray) -> np.ndarray:
    """A X B at every point, for X (N, k, k', P)."""
    half = _left(left, values).swapaxes(1, 2)
    return np.ascontiguousarray(_left(right.swapaxes(1, 2), half).swapaxes(1, 2))


def _middle(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """X Y at every point, for X (N, i, k, P) and Y (N, k, j, P)."""
    return np.asarray(np.einsum("nikp,nkjp->nijp", first, second))


def _sum_points(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """sum_p X_(ab)p Y_(cd)p, (N, a, b, c, d)."""
    count, points = len(first), first.shape[-1]
    flat = first.reshape(count, -1, points) @ second.reshape(count, -1, points).swapaxes(1, 2)
    return np.asarray(flat.reshape(*first.shape[:3], *second.shape[1:3]))


def chunks(count: int, length: int) -> Iterator[slice]:
    """Slices of so many, and not less than one, that cover all."""
    length = max(length, 1)
    for start in range(0, count, length):
        yield slice(start, min(start + length, count))
