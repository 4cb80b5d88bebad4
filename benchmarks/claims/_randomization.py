"""Ensembles of equally trained networks, and randomization tests of symmetry under maps of hidden units.

In citations, 004 is Bernacchia (2025), "Global curvature for second-order optimization of neural networks"
(docs/sources.md).

An ensemble is a set of networks (models) with random initial parameters and the same teacher; p is the number
of parameters of a network. A team is a part of the ensemble over which moments are averaged. A map permutes
hidden units (or flips their signs). A mean or matrix that is invariant under all maps has the structure that
`_invariants` describes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from curvebench.benchmarks.claims._invariants import Structure, orthonormal_span
from curvebench.benchmarks.claims._matrices import orthonormal
from curvebench.benchmarks.claims._parts import Random
from curvebench.benchmarks.claims._symmetries import (
    CACHED,
    GROUP_OF,
    Perceptron,
    SymmetryGroup,
    chunks,
    draw_maps,
    places,
    tensors_of,
)

Curvature = Literal["gradients", "hessians"]
# Number of networks times points in one computation of Hessians.
# Each point needs arrays with as many rows and columns as a layer has units.
HESSIANS_CACHED = 2000


@dataclass(frozen=True)
class Lesson:
    """Initialization and training of an ensemble (004 Sec. 4, Figs. 2-4, 7-9).

    Args:
        network: architecture of the students and their teacher.
        spectrum: log10 of the largest and of the smallest eigenvalue of the inputs' covariance.
        weight_power: the standard deviation of initial weights is fan_in^-weight_power.
        bias_scale: standard deviation of initial biases.
        rate: learning rate of gradient descent.
        steps: number of gradient descent steps.
        points: number of inputs.
    """

    network: Perceptron
    spectrum: tuple[float, float]
    weight_power: float
    bias_scale: float
    rate: float
    steps: int
    points: int

    @property
    def group(self) -> SymmetryGroup:
        """Group of the maps that do not change the losses."""
        return GROUP_OF[self.network.activation]

    @property
    def weight_scales(self) -> list[float]:
        """Standard deviation of the initial weights of each layer."""
        return [float(width) ** -self.weight_power for width in self.network.widths[:-1]]

    def initial(self, random: Random, count: int) -> np.ndarray:
        """Draw the initial parameters (count, p) of `count` networks."""
        return self.network.initial(random, count, self.weight_scales, self.bias_scale)

    def data(self, random: Random) -> tuple[np.ndarray, np.ndarray]:
        """Draw normal inputs (P, d_0) and a teacher's targets (P, d_L).

        The covariance of the inputs has random eigenvectors.
        """
        width = self.network.widths[0]
        deviations = 10.0 ** (np.linspace(*self.spectrum, width) / 2)
        normal = random.standard_normal((self.points, width)) * deviations
        inputs = normal @ orthonormal(random, width, width).T
        return inputs, self.network.outputs(self.initial(random, 1), inputs)[0]


@dataclass(frozen=True)
class UnitChange:
    """Change of the first hidden unit at the start, which breaks the symmetry of an ensemble.

    Args:
        scale: factor of the unit's incoming and outgoing weights, and of its bias.
        shift: number of standard deviations that are added to these parameters.
    """

    scale: float = 1.0
    shift: float = 0.0

    def on(self, lesson: Lesson, parameters: np.ndarray) -> np.ndarray:
        """Return the parameters (N, p) after the change of the first hidden unit."""
        network = lesson.network
        deviations = np.empty(network.size)
        for tensor in tensors_of(network.depth, network.bias):
            weight = len(tensor.axes) == 2
            scale = lesson.weight_scales[tensor.axes[0]] if weight else lesson.bias_scale
            deviations[network.places[tensor.name]] = scale
        changed = self.scale * parameters + self.shift * deviations
        return np.where(network.units(1, 0), changed, parameters)


ALIKE = UnitChange()


@dataclass(frozen=True)
class EnsembleMoments:
    """Moments of the gradients or Hessians of teams, before the first and after the last step.

    A team is a part of an ensemble of networks, over which moments are averaged.

    Args:
        first: mean gradients, (2, teams, p).
        second: mean outer products of gradients, or mean Hessians, (2, teams, p, p); empty if only means are
            needed.
    """

    first: np.ndarray
    second: np.ndarray


# The checks of the printed and of the corrected statement use the same ensembles.
@lru_cache(maxsize=8)
def ensemble(
    lesson: Lesson,
    seed: int,
    teams: int,
    models: int,
    curvature: Curvature | None,
    change: UnitChange = ALIKE,
) -> EnsembleMoments:
    """Train `teams` teams of `models` models, all with the same teacher, and return the moments of each team.

    Raises:
        FloatingPointError: if a model diverges.
    """
    random, network = np.random.default_rng(seed), lesson.network
    inputs, targets = lesson.data(random)
    first = np.zeros((2, teams, network.size))
    second = np.zeros((2, teams, network.size, network.size)) if curvature else np.zeros((2, teams, 0, 0))
    for team in range(teams):
        start = change.on(lesson, lesson.initial(random, models))
        for part in chunks(models, CACHED // lesson.points):
            parameters = start[part]
            for time in (0, 1):
                gradients = network.gradients(parameters, inputs, targets)
                first[time, team] += gradients.sum(0) / models
                if curvature == "gradients":
                    second[time, team] += gradients.T @ gradients / models
                elif curvature == "hessians":
                    for few in chunks(len(parameters), HESSIANS_CACHED // lesson.points):
                        second[time, team] += (
                            network.hessians(parameters[few], inputs, targets).sum(0) / models
                        )
                if time == 0:
                    for step in range(lesson.steps):
                        given = network.gradients(parameters, inputs, targets) if step else gradients
                        parameters = parameters - lesson.rate * given
    if not np.isfinite(first).all() or not np.isfinite(second).all():
        raise FloatingPointError("a model diverged; lower the rate")
    return EnsembleMoments(first, second)


def deviations_of_matrices(
    structure: Structure, widths: Sequence[int]
) -> list[tuple[str, slice, slice, np.ndarray]]:
    """Return name, rows, columns and an orthonormal basis of each block that the symmetry restricts.

    The basis (size, forms) spans the invariant matrices of the block, flattened to `size` entries.
    """
    where, found = places(widths, structure.bias), []
    for first, second in structure.pairs:
        forms = structure.forms(first, second, widths)
        rows, columns = where[first.name], where[second.name]
        size = (rows.stop - rows.start) * (columns.stop - columns.start)
        if len(forms) < size:
            basis = orthonormal_span(forms.reshape(len(forms), size).T)
            found.append((f"{first.name} and {second.name}", rows, columns, basis))
    return found


def _rest(blocks: np.ndarray, basis: np.ndarray) -> np.ndarray:
    """Return the squared distances (draws, 2) of blocks (draws, 2, size) from the span of `basis`.

    The axis of length 2 has the times before and after training.
    """
    return np.asarray(((blocks - (blocks @ basis) @ basis.T) ** 2).sum(-1))


def matrix_statistics(
    random: Random, lesson: Lesson, moments: EnsembleMoments, curvature: Curvature, draws: int
) -> dict[str, np.ndarray]:
    """Return for each block the squared distances of a matrix from the invariant matrices, (1 + draws, 2).

    The matrix is the covariance of the gradients or the mean Hessian. The two columns belong to the times
    before and after training. The first row belongs to the ensemble itself. Each further row belongs to a
    mapped copy: a random map is applied to each team of models, the same map before and after training.
    """
    network, teams = lesson.network, moments.first.shape[1]
    means, matrices = [moments.first.mean(1)], [moments.second.mean(1)]
    # The axis of the two times is last, so that the matrices of both times are mapped in one call.
    both = np.ascontiguousarray(np.moveaxis(moments.second, 0, -1))
    for _ in range(draws):
        maps = draw_maps(random, network.widths, network.bias, lesson.group, teams)
        means.append(np.array([maps.vectors(one).mean(0) for one in moments.first]))
        matrices.append(np.moveaxis(maps.matrices(both).mean(0), -1, 0))
    found = np.array(matrices)
    if curvature == "gradients":
        mean = np.array(means)
        found -= mean[..., :, None] * mean[..., None, :]
    structure = Structure(network.depth, network.bias, lesson.group)
    return {
        name: _rest(found[:, :, rows, columns].reshape(len(found), 2, -1), basis)
        for name, rows, columns, basis in deviations_of_matrices(structure, network.widths)
    }


def expected_mean(network: Perceptron, group: SymmetryGroup, means: np.ndarray) -> np.ndarray:
    """Project mean gradients (..., p) on the invariant vectors of 004 eqs. 26-28 or 113-117."""
    found = np.zeros(means.shape)
    for tensor in tensors_of(network.depth, network.bias):
        place = network.places[tensor.name]
        shape = [network.widths[axis] for axis in tensor.axes]
        hidden = tuple(
            number - len(shape) for number, axis in enumerate(tensor.axes) if 0 < axis < network.depth
        )
        if group == "permutations" or not hidden:
            given = means[..., place].reshape(*means.shape[:-1], *shape)
            whole = np.broadcast_to(given.mean(hidden, keepdims=True) if hidden else given, given.shape)
            found[..., place] = whole.reshape(means[..., place].shape)
    return found


def mean_statistics(
    random: Random, lesson: Lesson, moments: EnsembleMoments, draws: int
) -> dict[str, np.ndarray]:
    """Return, by tensor, the squared distances of mean gradients from the invariant vectors.

    As in `matrix_statistics`, the shape is (1 + draws, 2), for the ensemble and its mapped copies.
    """
    network, teams = lesson.network, moments.first.shape[1]
    means = [moments.first.mean(1)]
    for _ in range(draws):
        maps = draw_maps(random, network.widths, network.bias, lesson.group, teams)
        means.append(np.array([maps.vectors(one).mean(0) for one in moments.first]))
    found = np.array(means)
    rest = found - expected_mean(network, lesson.group, found)
    return {
        tensor.name: (rest[..., network.places[tensor.name]] ** 2).sum(-1)
        for tensor in tensors_of(network.depth, network.bias)
        if {*tensor.axes} & {*range(1, network.depth)}
    }


def adjusted(statistics: Sequence[dict[str, np.ndarray]]) -> dict[str, float]:
    """Return the p-value of each block over all problems and times, adjusted for the number of tests.

    This is the single-step maxT procedure of Westfall and Young (1993). The statistics (1 + draws, times) are
    standardized with their mean and standard deviation over the ensemble and all draws. Each statistic of the
    ensemble is then compared with the maximum over blocks of each draw. Under the null hypothesis the
    ensemble is exchangeable with its mapped copies. The probability that any block is rejected is therefore
    at most the level, whatever the law of the gradients.
    """
    columns: list[np.ndarray] = []
    names: list[str] = []
    for problem in statistics:
        for name, values in problem.items():
            columns += list(values.T)
            names += [name] * values.shape[1]
    table = np.array(columns).T
    spread = table.std(0)
    scores = (table - table.mean(0)) / np.where(spread > 0, spread, 1.0)
    largest = scores.max(1)
    found: dict[str, float] = {}
    for name, score in zip(names, scores[0], strict=True):
        share = float((largest >= score).mean())
        found[name] = min(found.get(name, 1.0), share)
    return found


def excluded_p_value(
    lesson: Lesson, moments: EnsembleMoments, curvature: Curvature, printed: Structure
) -> float:
    """Return the p-value of a test that the components excluded by the printed equations are 0.

    The tested components of a block are permitted by the group, but outside of the span of the printed forms.
    There is one test, Hotelling's T^2 over teams, for each block and each of the two times. The smallest
    p-value is multiplied by the number of tests.
    """
    from scipy.stats import f as fisher

    network, teams = lesson.network, moments.first.shape[1]
    whole = Structure(network.depth, network.bias, lesson.group)
    where, found = network.places, list[float]()
    mean = moments.first.mean(1, keepdims=True)
    centred = moments.second
    if curvature == "gradients":
        cross = moments.first[..., :, None] * mean[..., None, :]
        centred = centred - cross - cross.swapaxes(-1, -2) + mean[..., :, None] * mean[..., None, :]
    for first, second in whole.pairs:
        spans = [
            orthonormal_span(forms.reshape(len(forms), -1).T) if len(forms) else np.zeros((0, 0))
            for forms in (one.forms(first, second, network.widths) for one in (whole, printed))
        ]
        if spans[0].shape[1] == spans[1].shape[1]:
            continue
        kept = spans[1] if spans[1].size else np.zeros((len(spans[0]), 0))
        left_out = orthonormal_span(spans[0] - kept @ (kept.T @ spans[0]))
        for time in (0, 1):
            blocks = centred[time][:, where[first.name], where[second.name]].reshape(teams, -1)
            values = blocks @ left_out
            size = values.shape[1]
            covariance = np.atleast_2d(np.cov(values.T))
            square = teams * values.mean(0) @ np.linalg.solve(covariance, values.mean(0))
            ratio = (teams - size) / (size * (teams - 1)) * square
            found.append(float(fisher.sf(ratio, size, teams - size)))
    return min(1.0, len(found) * min(found)) if found else 1.0


def seeds(random: Random, count: int) -> Iterator[int]:
    """Yield `count` random seeds, one for each problem."""
    yield from (int(seed) for seed in random.integers(2**62, size=count))
