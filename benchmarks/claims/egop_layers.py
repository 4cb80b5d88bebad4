"""Changes of basis of a layer in two equivalent forms each: of the data, with auxiliary variables, by filter.

In citations, 000 is the EGOP paper, "Faster Adaptive Optimization via Expected Gradient Outer Product
Reparameterization" (docs/sources.md).

V has the eigenvectors of a layer's expected gradient outer product (EGOP) in columns; V_r has only the r
leading eigenvectors. n_in and n_out are the numbers of inputs and outputs of a layer. Two forms of a method
are equivalent if their trajectories agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from curvebench.benchmarks.claims._matrices import OPS, orthonormal, relative_error
from curvebench.benchmarks.claims._measures import agrees, at_least, at_most, vanishes
from curvebench.benchmarks.claims._moves import path, stepped
from curvebench.benchmarks.claims._parts import Random, part, printed_and_corrected
from curvebench.optimizers.bases import CHANGES
from curvebench.optimizers.bases.estimators import eigenbasis
from curvebench.property_checks.checks import Measure, PropertyClaim

# Relative tolerance of products of a few orthogonal matrices.
EXACT = 1e-12
# Two paths of iterates count as equal if their relative distance is at most this number.
# The tolerance of paths is large because rounding errors change later gradients and grow along a path.
FOLLOWED = 1e-9
# Two paths count as different if their relative distance is at least this number.
# Typical distances of different paths are above 0.1.
APART = 1e-3


# --- rotation of the data instead of the first layer (000 App. D) -------------------------------------------


@dataclass(frozen=True)
class TwoLayers:
    """Squared error of the network tanh(X W_1) W_2.

    Args:
        inputs: X, (N, n_in).
        targets: (N, n_out).
        weights: W_2, (n_hidden, n_out).
    """

    inputs: np.ndarray
    targets: np.ndarray
    weights: np.ndarray

    def outputs(self, first: Any) -> Any:
        """Return the network's outputs (..., N, n_out) for W_1 (..., n_in, n_hidden), as torch tensors."""
        import torch

        inputs, weights = torch.from_numpy(self.inputs), torch.from_numpy(self.weights)
        return torch.tanh(inputs @ first) @ weights

    def predictions(self, first: np.ndarray) -> np.ndarray:
        """Return the network's outputs (..., N, n_out) for W_1 (..., n_in, n_hidden), as NumPy arrays."""
        import torch

        return np.asarray(self.outputs(torch.from_numpy(first)).numpy())

    def gradients(self, first: np.ndarray) -> np.ndarray:
        """Return the gradients of the loss with respect to W_1, (..., n_in, n_hidden)."""
        import torch

        given = torch.from_numpy(first).requires_grad_()
        loss = torch.square(self.outputs(given) - torch.from_numpy(self.targets)).sum() / 2
        return np.asarray(torch.autograd.grad(loss, given)[0].numpy())

    def rotated(self, rotation: np.ndarray) -> TwoLayers:
        """Return the network with rotated data, X Q instead of X."""
        return TwoLayers(self.inputs @ rotation, self.targets, self.weights)


def nearest_rotation(basis: np.ndarray, inputs: int, hidden: int) -> np.ndarray:
    """Return the orthogonal Q (n_in, n_in) for which Q (x) I is nearest to `basis`.

    `basis` is V, a square matrix with n_in n_hidden rows.
    """
    blocks = basis.reshape(inputs, hidden, inputs, hidden)
    left, _, right = np.linalg.svd(np.einsum("iojo->ij", blocks))
    return np.asarray(left @ right)


def _trained(network: TwoLayers, start: np.ndarray, basis: np.ndarray | None) -> np.ndarray:
    """Return W_1 after 10 steps of Adam in a basis of the flattened W_1 (row-major order)."""
    return path("adam", start, [network.gradients] * 10, {"learning_rate": 0.03}, basis=basis)[-1]


def _first_layer(random: Random, printed: bool) -> Iterator[Measure]:
    inputs, hidden, outputs = (int(size) for size in random.integers(2, 6, 3))
    data = random.standard_normal((20, inputs)) * 10.0 ** random.uniform(-1, 0, inputs)
    data = data @ orthonormal(random, inputs, inputs)
    weights = random.standard_normal((hidden, outputs))
    network = TwoLayers(data, random.standard_normal((20, outputs)), weights)
    samples = network.gradients(random.standard_normal((4 * inputs * hidden, inputs, hidden)))
    if printed:
        basis = eigenbasis(samples.reshape(len(samples), -1))[0]
    else:  # All columns of the gradients share one basis of the inputs.
        basis = np.kron(eigenbasis(samples.swapaxes(1, 2).reshape(-1, inputs))[0], np.eye(hidden))
    rotation = nearest_rotation(basis, inputs, hidden)
    yield agrees("V less the nearest Q (x) I, relative", basis, np.kron(rotation, np.eye(hidden)), EXACT)
    rotated_data, start = network.rotated(rotation), random.standard_normal((inputs, hidden))
    rotated = (basis @ start.ravel()).reshape(inputs, hidden)
    error = relative_error(network.predictions(rotated), rotated_data.predictions(start))
    yield vanishes("outputs with V vec(W_1) less those on X Q, relative", error, EXACT)
    found = network.predictions(_trained(network, rotated, basis))
    expected = rotated_data.predictions(_trained(rotated_data, start, None))
    yield agrees("the same after 10 steps of Adam", found, expected, FOLLOWED)


FIRST_LAYER_DATA = PropertyClaim(
    id="egop.first-layer-data",
    sentence="To reparameterize only the first layer is to transform the data by an orthogonal matrix.",
    source="000 App. D, l. 1205-1209; 001 App. B",
    setting=(
        "Networks tanh(X W_1) W_2 with 2 to 5 inputs, hidden units and outputs, gradients by PyTorch. As "
        "printed: V is the eigenbasis of the EGOP of vec(W_1), and the data are rotated by the Q for which Q "
        "(x) I is nearest to V. As corrected: V = Q (x) I, where Q is the eigenbasis that all columns of the "
        "gradients share; then V vec(W_1) is Q W_1, and X Q W_1 the first layer on rotated data. With one "
        "hidden unit the two are the same, so there are 2 or more. Compared are V and Q (x) I, which give "
        "equal outputs for all W_1 only where they are equal, and outputs before and after 10 steps of Adam "
        "from equal points."
    ),
    checks=(
        *printed_and_corrected(
            "the first layer's basis is a rotation of the data", "000 l. 1205-1206", _first_layer, 20
        ),
    ),
)


# --- auxiliary variables (000 D.1.1, Alg. D.1) --------------------------------------------------------------


@dataclass(frozen=True)
class LinearLayer:
    """Squared error of a linear layer y = x W^T + b.

    Args:
        inputs: x, (N, n_in).
        targets: (N, n_out).
        bias: b, (n_out,).
    """

    inputs: np.ndarray
    targets: np.ndarray
    bias: np.ndarray

    def outputs(self, entries: np.ndarray) -> np.ndarray:
        """Return outputs (..., N, n_out) for W, which is given by its row-major entries (..., d)."""
        weights = entries.reshape(*entries.shape[:-1], len(self.bias), -1)
        return np.asarray(self.inputs @ weights.swapaxes(-1, -2) + self.bias)

    def gradients(self, entries: np.ndarray) -> np.ndarray:
        """Return the gradients of the loss with respect to the entries of W, (..., d)."""
        errors = self.outputs(entries) - self.targets
        return np.asarray((errors.swapaxes(-1, -2) @ self.inputs).reshape(entries.shape))


def in_parameters(change: str, matrix: np.ndarray, coordinates: np.ndarray) -> np.ndarray:
    """Convert coordinates c to parameters J c, (d,).

    Args:
        change: name of the change of coordinates, whose linear map is J.
        matrix: V.
        coordinates: c.
    """
    return np.asarray(CHANGES[change].to_parameters(OPS, matrix[None], coordinates[None, None])[0, 0])


def in_coordinates(change: str, matrix: np.ndarray, parameters: np.ndarray) -> np.ndarray:
    """Convert parameters theta or gradients g to coordinates, J^T theta or J^T g (see `in_parameters`)."""
    return np.asarray(CHANGES[change].to_coordinates(OPS, matrix[None], parameters[None, None])[0, 0])


def _draw_layer(random: Random, least: int = 1) -> tuple[LinearLayer, np.ndarray, np.ndarray]:
    """Draw a linear layer with up to 6 inputs and outputs.

    Returns:
        The layer, initial entries theta_0 (d,) of its weight, and its EGOP basis (d, d).
    """
    outputs, inputs = (int(length) for length in random.integers(least, 7, 2))
    count, size = int(random.integers(2, 20)), outputs * inputs
    data, targets = random.standard_normal((count, inputs)), random.standard_normal((count, outputs))
    layer = LinearLayer(data, targets, random.standard_normal(outputs))
    samples = layer.gradients(random.standard_normal((int(random.integers(1, 2 * size + 1)), size)))
    return layer, random.standard_normal(size), eigenbasis(samples)[0]


def _exact_for_every_rank(random: Random) -> Iterator[Measure]:
    layer, start, basis = _draw_layer(random)
    errors, outputs, forward = [], [], []
    for rank in range(1, len(start) + 1):
        leading = basis[:, :rank]
        held = in_coordinates("auxiliary", leading, start)
        found = in_parameters("auxiliary", leading, held)
        errors.append(relative_error(found, start))
        outputs.append(relative_error(layer.outputs(found), layer.outputs(start)))
        # The formula in line 1246 of 000 holds for any parameters.
        held = random.standard_normal(len(held))
        first, rest = held[:rank], held[rank:]
        expected = leading @ first + rest - leading @ (leading.T @ rest)
        forward.append(relative_error(in_parameters("auxiliary", leading, held), expected))
    yield vanishes("theta_0 reconstructed less theta_0, relative, every r", max(errors), EXACT)
    yield vanishes("outputs of the layer, relative, every r", max(outputs), EXACT)
    yield vanishes("theta less V_r theta_r + (I - V_r V_r^T) theta_d, relative, every r", max(forward), EXACT)


def _reduced(random: Random) -> Iterator[Measure]:
    _, start, basis = _draw_layer(random, least=2)

    def error(leading: np.ndarray) -> float:
        held = in_coordinates("reduced", leading, start)
        return relative_error(in_parameters("reduced", leading, held), start)

    yield at_least("V_r V_r^T theta_0 less theta_0, relative, r = d - 1", error(basis[:, :-1]), 1e-8)
    yield vanishes("V_r V_r^T theta_0 less theta_0, relative, r = d", error(basis), EXACT)


def _descends(random: Random) -> Iterator[Measure]:
    """Compare SGD on the auxiliary coordinates theta_r and theta_d with SGD on theta.

    theta = V_r theta_r + (I - V_r V_r^T) theta_d. The gradients of the coordinates are computed by the change
    of coordinates.
    """
    layer, start, basis = _draw_layer(random)
    rank = int(random.integers(1, len(start) + 1))
    leading = basis[:, :rank]
    largest = float(np.linalg.norm(layer.inputs, 2)) ** 2
    hyper = {"learning_rate": float(random.uniform(0.1, 1)) / largest}

    def gradient(held: np.ndarray) -> np.ndarray:
        return in_coordinates(
            "auxiliary", leading, layer.gradients(in_parameters("auxiliary", leading, held))
        )

    held = stepped("sgd", in_coordinates("auxiliary", leading, start), [gradient] * 10, hyper)
    whole = stepped("sgd", start, [layer.gradients] * 10, hyper)
    found = in_parameters("auxiliary", leading, held)
    yield agrees("theta after 10 steps of SGD, relative", found, whole, FOLLOWED)
    leak = float(np.linalg.norm(leading.T @ held[rank:]) / np.linalg.norm(start))
    yield vanishes("theta_d's part in the span of V_r over |theta_0|", leak, FOLLOWED)


AUXILIARY_EXACT = PropertyClaim(
    id="egop.auxiliary-exact",
    sentence=(
        "theta = V_r theta_r + (I - V_r V_r^T) theta_d reconstructs theta_0, and the layer's outputs, for "
        "every r; theta_r alone does not."
    ),
    source="000 App. D.1.1, l. 1246-1256, Alg. D.1",
    setting=(
        "Linear layers with up to 6 inputs and outputs, V_r the leading eigenvectors of an EGOP of up to 2 d "
        "gradients, every r from 1 to d; parts, gradients and theta are changed into each other by "
        "the forms `auxiliary` and `reduced` of the project's bases, and the steps are those of its SGD: 10 "
        "on both parts are those on theta, since J J^T g is g. The reduced form is exact for r = d only; for "
        "r = d - 1 it leaves one of theta_0's coordinates, which must be more than rounding."
    ),
    checks=(
        part("exact for every r", "000 l. 1252-1256, Alg. D.1", _exact_for_every_rank, 20),
        part("the reduced form is not exact", "000 l. 1243-1246", _reduced, 20),
        part("SGD moves as on theta, and theta_d stays in the complement", "000 l. 1247-1248", _descends, 20),
    ),
)


# --- one V for all filters (000 D.1.2, Alg. D.2) ------------------------------------------------------------

Params = Mapping[str, np.ndarray]
STANDARD_ERRORS = 6.0


@dataclass(frozen=True)
class Convolutions:
    """Cross-entropy of a network of two convolutions with tanh, a mean over the image, and a linear layer.

    Args:
        images: (N, channels, height, width).
        labels: (N,).
        shapes: shapes of `first` and `second`, (filters, channels, k, k), and `last`, (classes, filters).
    """

    images: np.ndarray
    labels: np.ndarray
    shapes: Mapping[str, tuple[int, ...]]

    def _loss(self) -> Callable[[Mapping[str, Any]], Any]:
        import torch
        from torch.nn import functional

        images, labels = torch.from_numpy(self.images), torch.from_numpy(self.labels)

        def loss(params: Mapping[str, Any]) -> Any:
            hidden = torch.tanh(functional.conv2d(images, params["first"]))
            hidden = torch.tanh(functional.conv2d(hidden, params["second"]))
            return functional.cross_entropy(hidden.mean((2, 3)) @ params["last"].T, labels)

        return loss

    def value(self, params: Params) -> float:
        """Return the mean cross-entropy of the network."""
        import torch

        return float(self._loss()({name: torch.from_numpy(value) for name, value in params.items()}))

    def gradients(self, params: Params) -> dict[str, np.ndarray]:
        """Return gradients by name, for parameters with a leading axis of independent networks."""
        import torch

        given = {name: torch.from_numpy(value) for name, value in params.items()}
        found = torch.func.vmap(torch.func.grad(self._loss()))(given)
        return {name: np.asarray(value.numpy()) for name, value in found.items()}

    def initial(self, random: Random, count: int) -> dict[str, np.ndarray]:
        """Draw `count` initializations of each parameter from N(0, 2 / fan-in), by name of the parameter."""
        return {
            name: random.standard_normal((count, *shape)) * np.sqrt(2 / np.prod(shape[1:]))
            for name, shape in self.shapes.items()
        }


def draw_convolutions(random: Random) -> Convolutions:
    """Draw a network with 3 filters per layer, and images of 2 channels and 5 x 5 pixels.

    The covariance of the pixels is anisotropic.
    """
    images = random.standard_normal((6, 2, 5, 5)) * 10.0 ** random.uniform(-0.5, 0.5, (1, 2, 5, 5))
    shapes = {"first": (3, 2, 2, 2), "second": (3, 3, 2, 2), "last": (3, 3)}
    return Convolutions(images, random.integers(0, 3, 6), shapes)


def shared_basis(gradients: np.ndarray) -> np.ndarray:
    """Return V (n, n), with n = channels k^2, for all filters of a layer (000 Alg. D.2 lines 14-21).

    Args:
        gradients: K gradients of the layer, (K, filters, channels, k, k).
    """
    return eigenbasis(gradients.reshape(-1, int(np.prod(gradients.shape[2:]))))[0]


def whole_basis(bases: list[np.ndarray]) -> np.ndarray:
    """Return the block-diagonal matrix of one V per filter, which is I (x) V if all V are equal."""
    from scipy.linalg import block_diag

    return np.asarray(block_diag(*bases))


LAYERS = ("first", "second")


def _one_for_all(random: Random) -> Iterator[Measure]:
    network = draw_convolutions(random)
    gradients = network.gradients(network.initial(random, 20))
    params = {name: value[0] for name, value in network.initial(random, 1).items()}
    other, whole = dict(params), dict(params)
    for layer in LAYERS:
        basis = shared_basis(gradients[layer])
        filters = params[layer]
        matrix = np.kron(np.eye(len(filters)), basis)
        other[layer] = in_parameters("shared", basis, filters.ravel()).reshape(filters.shape)
        whole[layer] = (matrix @ filters.ravel()).reshape(filters.shape)
        error = relative_error(other[layer], whole[layer])
        yield vanishes(f"V of every filter less I (x) V, relative, {layer} layer", error, EXACT)
        yield agrees(
            f"Adam's steps with V in every filter less those with I (x) V, relative, {layer} layer",
            _by_filter(gradients[layer], basis),
            _at_once(gradients[layer], matrix),
            FOLLOWED,
        )
    error = abs(network.value(other) - network.value(whole)) / abs(network.value(whole))
    yield vanishes("the loss with either, relative", error, EXACT)


def _at_once(gradients: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """Return the weights (entries,) that Adam reaches from 0 with gradients (T, filters, ...).

    Adam runs in the basis `matrix` of all entries.
    """
    given = [gradient.ravel() for gradient in gradients]
    return stepped("adam", np.zeros(len(matrix)), given, {"learning_rate": 0.1}, basis=matrix)


def _by_filter(gradients: np.ndarray, basis: np.ndarray) -> np.ndarray:
    """Return the weights that Adam reaches from 0, computed by the change of coordinates `SHARED`.

    `SHARED` uses one V, `basis`, for all filters. The function `_at_once` computes the same weights with a
    basis of all entries.
    """
    given = [in_coordinates("shared", basis, gradient.ravel()) for gradient in gradients]
    moved = stepped("adam", np.zeros(len(given[0])), given, {"learning_rate": 0.1})
    return in_parameters("shared", basis, moved)


def _one_each(random: Random) -> Iterator[Measure]:
    network = draw_convolutions(random)
    gradients = network.gradients(network.initial(random, 60))
    for layer in LAYERS:
        flat = gradients[layer].reshape(*gradients[layer].shape[:2], -1)
        own = [eigenbasis(each)[0] for each in flat.swapaxes(0, 1)]
        shared = whole_basis([shared_basis(gradients[layer])] * len(own))
        error = relative_error(_at_once(flat, whole_basis(own)), _at_once(flat, shared))
        quantity = f"Adam's steps with a V for each filter less those with one, relative, {layer} layer"
        yield at_least(quantity, error, APART)


def _alike(random: Random) -> Iterator[Measure]:
    network = draw_convolutions(random)
    gradients = network.gradients(network.initial(random, 400))
    for layer in LAYERS:
        flat = gradients[layer].reshape(*gradients[layer].shape[:2], -1)
        directions = random.standard_normal((10, flat.shape[-1]))
        squares = np.einsum("kfn,un->kfu", flat, directions) ** 2
        scores = [
            # The difference of exchangeable filters has a symmetric law: P(|score| > 6) <= 3e-8.
            difference.sum(0) / np.sqrt(np.sum(difference**2, axis=0))
            for one in range(flat.shape[1])
            for difference in (squares[:, one] - squares[:, other] for other in range(one))
        ]
        quantity = f"greatest difference of filters' u^T EGOP u, in standard errors, {layer} layer"
        yield at_most(quantity, np.abs(scores).max(), STANDARD_ERRORS)


SHARED_FILTERS = PropertyClaim(
    id="egop.shared-filters",
    sentence=(
        "One V for every filter of a convolutional layer is the basis I (x) V; at initialization the "
        "gradients of the layer's filters have one covariance."
    ),
    source="000 Sec. 5, App. D.1.2, l. 1303-1308, Alg. D.2",
    setting=(
        "Networks of two convolutions (3 filters of 2 x 2 and of 3 channels), tanh, a mean over the image "
        "and a linear layer, weights N(0, 2 / fan-in), gradients by PyTorch. Adam's 20 steps on the "
        "gradients of 20 initializations, in the coordinates of the form `shared` of the project's bases, "
        "are those in its rotation by I (x) V. One V a filter, each from its "
        "own 60 gradients, gives other steps. Covariances are compared by u^T g g^T u for 10 random u, for "
        "each pair of filters over 400 initializations: filters are exchangeable, so that differences over "
        "their root of squares exceed 6 with a probability of at most 3e-8."
    ),
    checks=(
        part("one V for all filters is I (x) V", "000 l. 1303-1308", _one_for_all, 5),
        part("a V for each filter is another basis", "000 Sec. 5, D.1.2", _one_each, 3),
        part("the covariances of filters agree", "000 Sec. 5, l. 1283-1286", _alike, 3),
    ),
)

CLAIMS = (FIRST_LAYER_DATA, AUXILIARY_EXACT, SHARED_FILTERS)
