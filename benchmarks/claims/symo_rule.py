"""SymO as an update rule: its factored and dense updates, and rules that commute with maps of hidden units.

In citations, 004 is Bernacchia (2025), "Global curvature for second-order optimization of neural networks"
(docs/sources.md).

Sigma (p, p) is the second moment of the gradient of all p parameters, averaged over a group of maps of hidden
units. d_l is the number of units of layer l, and W_l and b_l are its weight and bias.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

import curvebench
from curvebench.benchmarks.claims._invariants import Structure
from curvebench.benchmarks.claims._matrices import orthonormal, power, relative_error
from curvebench.benchmarks.claims._measures import agrees, at_least, vanishes
from curvebench.benchmarks.claims._parts import Random, part
from curvebench.benchmarks.claims._symmetries import (
    GROUP_OF,
    Activation,
    Perceptron,
    SymmetryGroup,
    draw_matrix,
    places,
    size_of,
    tensors_of,
)
from curvebench.property_checks.checks import Measure, PropertyClaim

# Relative tolerance of updates that use inverse roots of matrices.
# The largest eigenvalue of a matrix is at most CONDITION times the smallest nonzero eigenvalue.
EXACT = 1e-11
CONDITION = 1e3
# Two runs count as equal if their relative distance is at most this number.
# The tolerance of runs is large because rounding errors change later gradients and grow along a run.
FOLLOWED = 1e-7
# Two runs count as different if their relative distance is at least this number.
APART = 1e-3

Arrays = dict[str, np.ndarray]


def arrays_of(vector: np.ndarray, widths: Sequence[int], bias: bool) -> Arrays:
    """Split a vector (p,) as in 004 eq. 16 into W_l (d_l, d_(l-1)) and b_l (d_l,), by name."""
    found = {}
    for tensor, place in zip(tensors_of(len(widths) - 1, bias), places(widths, bias).values(), strict=True):
        found[tensor.name] = vector[place].reshape([widths[axis] for axis in tensor.axes]).T
    return found


def vector_of(arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return the vector (p,) of all weights and biases, each in column-major order."""
    return np.concatenate([array.T.ravel() for array in arrays.values()])


def online(
    optimizer: str,
    start: np.ndarray,
    network: tuple[Sequence[int], bool],
    group: SymmetryGroup,
    hyper: Mapping[str, float],
) -> curvebench.Online:
    """Return a rule that starts at the parameters `start`, (p,), of a network.

    Args:
        optimizer, hyper: name of the rule, and its hyperparameters.
        start: first parameters.
        network: the widths d_0 ... d_L, and whether the network has biases.
        group: group of maps of the hidden units.
    """
    arrays = arrays_of(start, *network)
    return curvebench.Online(
        optimizer,
        arrays,
        hyper,
        options={"group": group} if optimizer == "symo" else None,
        kinds={name: "weight" if array.ndim == 2 else "bias" for name, array in arrays.items()},
    )


# --- the factored update (004 Secs. 3.4, App. I, J, L) ------------------------------------------------------


def factored(
    gradients: Sequence[np.ndarray], widths: Sequence[int], bias: bool, group: SymmetryGroup, decay: float
) -> np.ndarray:
    """Return SymO's last update (p,) after a sequence of gradients (p,), at learning rate 1."""
    hyper = {"learning_rate": 1.0, "factor_decay": decay}
    start = np.zeros(len(gradients[0]))
    rule = online("symo", start, (widths, bias), group, hyper)
    path = [start, *(vector_of(rule.step(arrays_of(gradient, widths, bias))) for gradient in gradients)]
    return np.asarray(path[-2] - path[-1])


def second_moment(
    gradients: Sequence[np.ndarray], widths: Sequence[int], bias: bool, group: SymmetryGroup, decay: float
) -> np.ndarray:
    """Return the dense second moment Sigma (p, p).

    Sigma is the bias-corrected running mean of g g^T over steps, averaged over the group.
    """
    total = np.zeros((len(gradients[0]),) * 2)
    for gradient in gradients:
        total = decay * total + (1 - decay) * np.outer(gradient, gradient)
    structure = Structure(len(widths) - 1, bias, group)
    return structure.projected(total / (1 - decay ** len(gradients)), widths)


def _draw_network(random: Random, depth: int, bias: bool) -> tuple[int, ...]:
    """Draw numbers of units: 1 to 3 inputs and outputs, and 2 to 5 units in each hidden layer.

    Without biases, a hidden layer has at least 3 units.
    """
    inputs, outputs = random.integers(1, 4, 2)
    hidden = random.integers(2 if bias else 3, 6, depth - 1)
    return (int(inputs), *(int(width) for width in hidden), int(outputs))


def _draw_gradient(random: Random, widths: Sequence[int], bias: bool, group: SymmetryGroup) -> np.ndarray:
    """Draw a normal gradient for which the second moment Sigma has no small eigenvalues other than 0.

    Small eigenvalues would amplify rounding errors in inverse roots.
    """
    while True:
        drawn = random.standard_normal(size_of(widths, bias))
        values = np.linalg.eigvalsh(second_moment([drawn], widths, bias, group, 0.0))
        if values[values > 1e-10 * values[-1]][0] >= values[-1] / CONDITION:
            return drawn


def _general(random: Random, depth: int, group: SymmetryGroup) -> Iterator[Measure]:
    for bias in (False, True):
        widths = _draw_network(random, depth, bias)
        single = _draw_gradient(random, widths, bias, group)
        gradients = random.standard_normal((40, size_of(widths, bias)))
        one, many = (
            relative_error(
                factored(given, widths, bias, group, decay),
                power(second_moment(given, widths, bias, group, decay), -0.5) @ given[-1],
            )
            for given, decay in (([single], 0.0), (list(gradients), 0.9))
        )
        yield vanishes("update after one gradient, relative error", one, EXACT)
        yield vanishes("update after 40 gradients, relative error", many, EXACT)


def _polar(random: Random) -> Iterator[Measure]:
    """Check that SymO's first step is sqrt(d_1) times a polar factor, for two layers without biases.

    The group is `signed`. The step is compared with the polar factor of the block matrix [G_1 G_2^T], where
    G_1 and G_2 are the gradients of the two weights.
    """
    widths = _draw_network(random, 2, bias=False)
    gradient = _draw_gradient(random, widths, False, "signed")
    given = arrays_of(gradient, widths, bias=False)
    found = arrays_of(factored([gradient], widths, False, "signed", 0.0), widths, bias=False)
    left, _, right = np.linalg.svd(np.concatenate([given["W1"], given["W2"].T], 1), full_matrices=False)
    stacked = np.concatenate([found["W1"], found["W2"].T], 1)
    yield agrees("first step, relative error", stacked, np.sqrt(widths[1]) * (left @ right), EXACT)


GENERAL = PropertyClaim(
    id="symo.general",
    sentence=(
        "The factored update of SymO is the inverse root of the covariance times the gradient, for any "
        "depth, with biases and for ReLU."
    ),
    source="004 Thm. 3.1, Thm. 3.2, App. I, App. J, App. L",
    setting=(
        "The project's rule `symo` on networks of two to four layers with 1 to 3 inputs and outputs, "
        "without and with biases, against the dense inverse root of Sigma: the running mean of g g^T, its "
        "bias corrected, averaged over the group. That average is the least squares fit of the theorem's "
        "form, with 1 / d_1 in eqs. 132 and 161, 1 / d_(L-1) in eqs. 141 and 173, a full matrix in eq. 128 "
        "and eq. 142 for all hidden layers (symo.width-free and symo.covariance-relu have these as "
        "printed). Normal gradients: one, where Sigma is of low rank and the root is that of its "
        "pseudo-inverse on its range (cut-off 1e-10 of a block's largest eigenvalue in the rule, 1e-13 of "
        "Sigma's in the dense root; no eigenvalue lies between; gradients whose Sigma has one below a "
        "thousandth of the largest besides 0 are drawn again, for rounding), and 40 with beta_h = 0.9."
    ),
    checks=(
        *(
            part(
                f"{number} layers, {name}",
                source,
                _general,
                3,
                depth=depth,
                group=group,
            )
            for name, group, source in (
                ("signed permutations", "signed", "004 Thm. 3.1, App. I, L"),
                ("permutations", "permutations", "004 Thm. 3.2, App. J, L"),
            )
            for number, depth in (("two", 2), ("three", 3), ("four", 4))
        ),
        part("the first step of two layers is a polar factor", "004 eqs. 37-41, 206", _polar, 5),
    ),
)

# --- which optimizers commute with the maps (004 Sec. 2.3, Sec. 2.4, App. F) --------------------------------

STEPS = 30
HYPER: Mapping[str, Mapping[str, float]] = {
    "sgd": {"learning_rate": 0.01},
    "momentum": {"learning_rate": 0.001, "momentum": 0.9},
    "adam": {"learning_rate": 0.02},
    "symo": {"learning_rate": 0.02, "factor_decay": 0.9},
}
FUNCTIONS: Mapping[str, Any] = {
    "inverse root": lambda values: values**-0.5,
    "logarithm": np.log,
    "exponential": np.exp,
}


def of_eigenvalues(function: Any, matrix: np.ndarray) -> np.ndarray:
    """Return `function` of a symmetric matrix, applied to its eigenvalues."""
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray((vectors * function(values)) @ vectors.T)


def _functions(random: Random, group: SymmetryGroup) -> Iterator[Measure]:
    """Check that functions of a covariance commute with the group if the covariance does (004 Lemma 2.4)."""
    depth, bias = int(random.integers(2, 5)), bool(random.integers(2))
    widths = _draw_network(random, depth, bias)
    size = size_of(widths, bias)
    drawn = orthonormal(random, size, size)
    matrix = Structure(depth, bias, group).projected((drawn * random.uniform(0.1, 2, size)) @ drawn.T, widths)
    turn = draw_matrix(random, widths, bias, group)
    for name, function in FUNCTIONS.items():
        value = of_eigenvalues(function, matrix)
        yield agrees(f"G f(Sigma) G^T, relative error, {name}", turn @ value @ turn.T, value, EXACT)


def run(
    optimizer: str, network: Perceptron, start: np.ndarray, data: tuple[np.ndarray, np.ndarray]
) -> np.ndarray:
    """Return the parameters before the first and after each step of a rule, (T + 1, p)."""
    group: SymmetryGroup = "permutations" if network.activation == "relu" else "signed"
    rule = online(optimizer, start, (network.widths, network.bias), group, HYPER[optimizer])
    path = [start]
    for _ in range(STEPS):
        gradient = network.gradients(path[-1][None], *data)[0]
        path.append(vector_of(rule.step(arrays_of(gradient, network.widths, network.bias))))
    return np.array(path)


def _runs(
    random: Random, optimizer: str, activation: Activation, group: SymmetryGroup
) -> tuple[float, float]:
    """Return the distance between the run from G theta and G times the run from theta, for a random map G.

    The distance is measured after the first step and at the end, and divided by the distance that the run
    covers.
    """
    depth, bias = int(random.integers(2, 4)), bool(random.integers(2))
    network = Perceptron(_draw_network(random, depth, bias), activation, bias)
    data = random.standard_normal((30, network.widths[0])), random.standard_normal((30, network.widths[-1]))
    start = random.standard_normal(network.size) / np.sqrt(3)
    turn = draw_matrix(random, network.widths, bias, group)
    plain, turned = (run(optimizer, network, one, data) for one in (start, turn @ start))
    moved = plain @ turn.T
    first, whole = (relative_error(turned[time] - turned[0], moved[time] - moved[0]) for time in (1, STEPS))
    return first, whole


def _commutes(
    random: Random, optimizer: str, activation: Activation, group: SymmetryGroup | None = None
) -> Iterator[Measure]:
    first, whole = _runs(random, optimizer, activation, group or GROUP_OF[activation])
    yield vanishes("first step from G theta less G times that from theta, relative", first, FOLLOWED)
    yield vanishes("30 steps from G theta less G times those from theta, relative", whole, FOLLOWED)


def _broken(random: Random) -> Iterator[Measure]:
    first, whole = _runs(random, "adam", "linear", "orthogonal")
    yield at_least("first step from G theta less G times that from theta, relative", first, APART)
    yield at_least("30 steps from G theta less G times those from theta, relative", whole, APART)


ACTIVATIONS: Mapping[Activation, str] = {
    "linear": "linear, orthogonal maps",
    "tanh": "tanh, signed permutations",
    "relu": "ReLU, permutations",
}
RULES = {"sgd": "gradient descent", "momentum": "momentum", "symo": "SymO"}

INVARIANCE = PropertyClaim(
    id="symo.invariance",
    sentence=(
        "Functions of the covariance are invariant under the symmetries of the hidden units; gradient "
        "descent, momentum and SymO commute with all of them, Adam with signed permutations alone."
    ),
    source="004 Lemma 2.4, Thm. 2.2, Cor. 2.3, App. F",
    setting=(
        "Random covariances that a group leaves alone, and three functions of them. Runs of 30 steps of "
        "the project's rules on networks of two or three layers, 1 to 3 inputs and outputs, with and "
        "without biases, 30 normal points and targets, from theta and from G theta for a random element G "
        "of the group: differences over the distance covered, after the first step and at the end. SymO "
        "has the second moments of its one network with beta_h = 0.9, and the group of the activation "
        "(that of signed permutations for linear networks, too). Adam on linear networks is tried with "
        "rotations, which must change it by more than a thousandth, and with signed permutations. That "
        "laws stay invariant in training is what symo.covariance-tanh and symo.covariance-relu test after "
        "some steps."
    ),
    checks=(
        *(
            part(f"functions of Sigma, {name}", "004 Lemma 2.4, eq. 15", _functions, 3, group=group)
            for name, group in (
                ("signed permutations", "signed"),
                ("orthogonal maps", "orthogonal"),
                ("permutations", "permutations"),
            )
        ),
        *(
            part(
                f"{name} commutes: {label}",
                "004 App. F",
                _commutes,
                2,
                optimizer=optimizer,
                activation=activation,
            )
            for optimizer, name in RULES.items()
            for activation, label in ACTIVATIONS.items()
        ),
        part(
            "Adam commutes: linear, signed permutations",
            "004 App. F, eq. 85",
            _commutes,
            2,
            optimizer="adam",
            activation="linear",
            group="signed",
        ),
        *(
            part(
                f"Adam commutes: {ACTIVATIONS[activation]}",
                "004 App. F",
                _commutes,
                2,
                optimizer="adam",
                activation=activation,
            )
            for activation in ("tanh", "relu")
        ),
        part("Adam does not commute: linear, orthogonal maps", "004 App. F", _broken, 2),
    ),
)

CLAIMS = (GENERAL, INVARIANCE)
