"""Foundations of spectral-factorized curvature: linear invariance, its metric, and its constraints.

In citations, 003 is Lin et al. (2025), "Spectral-factorized Positive-definite Curvature Learning for NN
Training" (docs/sources.md).

tau are the parameters of a distribution, F is the Fisher metric with respect to tau, and lambda are other
parameters with tau = U lambda. S = B diag(d) B^T, or alpha S_1 (x) S_2 with factors of determinant 1, is the
learned curvature.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import curvebench
from curvebench.benchmarks.claims._gaussians import (
    LocalCoordinates,
    assembled,
    draw_kronecker,
    draw_spectrum,
    identity,
)
from curvebench.benchmarks.claims._matrices import (
    OPS,
    orthonormal,
    rearrange,
    relative_error,
    with_singular_values,
)
from curvebench.benchmarks.claims._measures import agrees, at_least, equals, vanishes
from curvebench.benchmarks.claims._moves import moves
from curvebench.benchmarks.claims._parts import Random, part, parts_for, printed_and_corrected
from curvebench.benchmarks.claims._spectral_scheme import (
    EXACT_MAPS,
    PLAIN_ROTATION,
    POSITIVE,
    READ,
    RULES,
    axes_curvatures,
    draw_gradients,
    lengths_of,
    preconditioners,
    stepped,
)
from curvebench.optimizers.matrix_functions import (
    CAYLEYS,
    KroneckerSpectrum,
    SpectralMaps,
    Spectrum,
    inverse_root,
    kronecker_spectral_step,
    rank_cutoff,
    spectral_step,
)
from curvebench.property_checks.checks import Measure, PropertyClaim

# --- linear invariance (003 Claim 1, App. F) ----------------------------------------------------------------

# Number of steps of gradient descent.
DESCENT = 20
# Relative tolerance of parameters after DESCENT steps, with metrics of condition numbers up to about 1e4.
FOLLOWED = 1e-8


@dataclass(frozen=True)
class OutcomeLaws:
    """Family of distributions of N outcomes, whose Fisher metric is regular and depends on the parameters.

    Args:
        features: X (N, d); outcome i has the natural parameter (X tau)_i.
        kind: `bernoulli`, or `normal` with mean and log variance both equal to the natural parameter.
    """

    features: np.ndarray
    kind: str

    def metric(self, tau: np.ndarray) -> np.ndarray:
        """Return the Fisher metric F = X^T diag(w) X, (d, d).

        w_i is the Fisher information of outcome i about its natural parameter: the outcome's variance if
        `kind` is `bernoulli`, and 1 / variance + 1 / 2 if it is `normal`.
        """
        natural = self.features @ tau
        if self.kind == "bernoulli":
            weights = np.exp(-np.logaddexp(0, natural) - np.logaddexp(0, -natural))
        else:
            weights = np.exp(-natural) + 0.5
        return self.features.T @ (weights[:, None] * self.features)

    def within(self, coordinates: np.ndarray) -> OutcomeLaws:
        """Return the same distributions as a function of lambda, where tau = `coordinates` lambda."""
        return OutcomeLaws(self.features @ coordinates, self.kind)


@dataclass(frozen=True)
class LogCosh:
    """Smooth loss L = sum log cosh(A tau - b), with gradients A^T tanh(A tau - b)."""

    maps: np.ndarray
    targets: np.ndarray

    def gradient(self, tau: np.ndarray) -> np.ndarray:
        return self.maps.T @ np.tanh(self.maps @ tau - self.targets)

    def within(self, coordinates: np.ndarray) -> LogCosh:
        return LogCosh(self.maps @ coordinates, self.targets)


def moore_penrose(metric: np.ndarray) -> np.ndarray:
    """Return the pseudo-inverse of a metric, computed with the project's own matrix root."""
    # The factor 100 allows for the rounding error of metrics U^T F U.
    cutoff = 100 * rank_cutoff(OPS, len(metric))
    return np.asarray(inverse_root(OPS, metric, 1.0, cutoff=cutoff))


def draw_coordinates(random: Random, size: int, more: int) -> np.ndarray:
    """Draw a map U (d, d + more) of rank d, with singular values that span an order of magnitude."""
    values = 10.0 ** random.uniform(-0.5, 0.5, size)
    return with_singular_values(random, size, size + more, values)


def _invariance(random: Random, redundant: bool) -> Iterator[Measure]:
    size = int(random.integers(1, 6))
    law = OutcomeLaws(random.standard_normal((3 * size, size)), str(random.choice(["bernoulli", "normal"])))
    loss = LogCosh(random.standard_normal((4 * size, size)) / 3, random.standard_normal(4 * size))
    start, rate = random.standard_normal(size) / 2, float(random.uniform(0.02, 0.2))
    coordinates = draw_coordinates(random, size, int(random.integers(1, 5)) if redundant else 0)
    point = np.linalg.pinv(coordinates) @ start
    # Here U has a null space, so that several lambda have the same tau = U lambda.
    if redundant:
        free = random.standard_normal(len(point))
        point = point + free - np.linalg.pinv(coordinates) @ (coordinates @ free)
    law_within, loss_within = law.within(coordinates), loss.within(coordinates)
    online = curvebench.Online("newton", {"w": start}, {"learning_rate": rate})
    errors = []
    for _ in range(DESCENT):
        tau = online.params["w"]
        tau = online.step({"w": loss.gradient(tau)}, hessian=law.metric(tau))["w"]
        inverse = moore_penrose(law_within.metric(point))
        point = point - rate * inverse @ loss_within.gradient(point)
        errors.append(relative_error(coordinates @ point, tau))
    yield vanishes(f"tau less U lambda, relative, greatest of {DESCENT} steps", max(errors), FOLLOWED)


def _pseudo_inverse(random: Random, printed: bool) -> Iterator[Measure]:
    size, more = int(random.integers(1, 6)), int(random.integers(0, 4))
    coordinates = draw_coordinates(random, size, more)
    metric = assembled(Spectrum(orthonormal(random, size, size), 10.0 ** random.uniform(-1, 1, size)))
    # U^T F U = C D with the factors D = L^T U and C = D^T, where F = L L^T.
    right = np.linalg.cholesky(metric).T @ coordinates
    left = right.T
    inner = left @ left.T if printed else left.T @ left
    outer = right.T @ np.linalg.inv(right @ right.T)
    # The error is infinite if the shapes of the printed product do not match.
    error = np.inf
    if outer.shape[1] == len(inner):
        found = outer @ np.linalg.pinv(inner) @ left.T
        error = relative_error(found, moore_penrose(coordinates.T @ metric @ coordinates))
    yield vanishes("App. F's inverse of U^T F U, relative error", error, FOLLOWED)


LINEAR_INVARIANCE = PropertyClaim(
    id="spectral.linear-invariance",
    sentence=(
        "Riemannian gradient descent in lambda, where tau = U lambda and lambda has at least as many "
        "entries, is that in tau, step by step; where the metric is singular, with its pseudo-inverse."
    ),
    source="003 Claim 1, App. F",
    setting=(
        "Metrics: Fisher's of 3 d Bernoulli or normal outcomes in 1 to 5 parameters, calculated in lambda "
        "from the laws there. Losses: sums of log cosh, whose gradients are calculated in lambda too. U has "
        "rank d, singular values over one order of magnitude, and 0 or 1 to 4 columns more; of lambda_0 the "
        "part that tau does not see is random. 20 steps, rates of 0.02 to 0.2; tau by the rule newton, which "
        "is given the metric, lambda with the project's pseudo-inverse. Tolerances are for rounding. App. "
        "F's inverse is printed with (C C^T)^-1, whose shape fits only p = d; where it does not, that counts "
        "as a miss. As corrected with (C^T C)^-1."
    ),
    checks=(
        part("tau = U lambda, as many coordinates", "003 Claim 1", _invariance, 10, redundant=False),
        part("tau = U lambda, more coordinates", "003 Claim 1", _invariance, 10, redundant=True),
        *printed_and_corrected("the Moore-Penrose inverse in the proof", "003 App. F", _pseudo_inverse, 20),
    ),
)

# --- the Fisher-Rao metric (003 Claims 4 and 6, App. I, K, L) -----------------------------------------------

# Tolerance of second derivatives of cross-entropies, relative to the metric's largest entry.
DIFFERENTIATED = 1e-9
# Relative tolerance of d, B, alpha and mu after steps with the inverse of a metric.
# The entries of the metric span 4 orders of magnitude.
SOLVED = 1e-7
# Largest eigenvalue that counts as 0, relative to the metric's largest entry.
# Two values of d that differ by 5 % cause an eigenvalue of about 1e-5.
TIED = 1e-8


def rotation_entries(values: np.ndarray) -> np.ndarray:
    """Return the diagonal of the metric for rotations: 4 (d_i / d_j + d_j / d_i - 2), i > j (003 eq. 17)."""
    rows, columns = np.tril_indices(len(values), -1)
    ratios = values[rows] / values[columns]
    return np.asarray(4 * (ratios + 1 / ratios - 2))


def off_blocks(matrix: np.ndarray, blocks: Sequence[slice]) -> float:
    """Return the largest entry of a matrix outside of its diagonal blocks, divided by the largest entry."""
    rest = matrix.copy()
    for block in blocks:
        rest[block, block] = 0.0
    return float(np.abs(rest).max(initial=0.0) / np.abs(matrix).max())


def _full_metric(random: Random) -> Iterator[Measure]:
    coordinates = LocalCoordinates(draw_spectrum(random, int(random.integers(2, 6)), tied=True))
    metric, blocks = coordinates.metric(), coordinates.blocks
    singles = [slice(place, place + 1) for place in range(len(metric))]
    yield vanishes("largest entry off the diagonal, relative", off_blocks(metric, singles), DIFFERENTIATED)
    diagonal, size = np.diag(metric), float(np.abs(metric).max())
    for name, expected in (("m1", 0.5), ("delta", 1.0)):
        yield vanishes(
            f"F of {name} less eq. 17's, relative",
            np.abs(diagonal[blocks[name]] - expected).max() / size,
            DIFFERENTIATED,
        )
    rotations = diagonal[blocks["M1"]] - rotation_entries(coordinates.factors[0].values)
    yield vanishes(
        "F of M less eq. 17's, relative", np.abs(rotations).max(initial=0.0) / size, DIFFERENTIATED
    )


def _draw_factors(random: Random, tied: bool = False) -> KroneckerSpectrum:
    return draw_kronecker(random, lengths_of(random, 2, 2, 3), tied)


def _block_diagonal(random: Random) -> Iterator[Measure]:
    coordinates = LocalCoordinates(_draw_factors(random))
    metric, blocks = coordinates.metric(), list(coordinates.blocks.values())
    yield vanishes("largest entry off the blocks, relative", off_blocks(metric, blocks), DIFFERENTIATED)
    inverse = np.linalg.inv(metric)
    yield vanishes("the same of the inverse", off_blocks(inverse, blocks), DIFFERENTIATED)


def stated_block(coordinates: LocalCoordinates, name: str, inverse: bool) -> np.ndarray:
    """Return a block of the metric F or of its pseudo-inverse as 003 App. K states it, printed or corrected.

    For the coordinates m, 003 states only the inverse. The misprinted constants are corrected as follows. For
    alpha, n m / 2 replaces 1 / 2. For M and m, the length of the other factor replaces 1. Off the diagonal of
    the inverse for m, -1 / l replaces 1 / l, where l is the length of the factor.
    """
    printed, lengths = coordinates.printed, coordinates.lengths
    size = int(np.prod(lengths))
    if name == "alpha":
        block = np.full((1, 1), 0.5 if printed else size / 2)
    elif name == "delta":
        block = np.eye(size)
    else:
        own = int(name[1:]) - 1
        others = 1 if printed else size // lengths[own]
        if name.startswith("M"):
            block = np.diag(others * rotation_entries(coordinates.factors[own].values))
        else:
            share, free = (1 if printed else -1) / lengths[own], lengths[own] - 1
            block = share * np.ones((free, free))
            np.fill_diagonal(block, 1 - 1 / lengths[own])
            return block * 2 / others
    return np.linalg.pinv(block, rcond=TIED, hermitian=True) if inverse else block


def _kronecker_block(random: Random, printed: bool, name: str) -> Iterator[Measure]:
    coordinates = LocalCoordinates(_draw_factors(random), printed)
    metric, blocks = coordinates.metric(), coordinates.blocks
    for number in (1, 2) if name in "mM" else ("",):
        block = blocks[f"{name}{number}"]
        found, expected = metric[block, block], stated_block(coordinates, f"{name}{number}", name == "m")
        yield agrees(
            f"{'the inverse of ' * (name == 'm')}F of {name}{number}, relative error",
            np.linalg.inv(found) if name == "m" else found,
            expected,
            DIFFERENTIATED,
        )


def natural_step(
    coordinates: LocalCoordinates,
    inverse: np.ndarray,
    gradient: np.ndarray,
    curvature: np.ndarray,
    rate: float,
    gamma: float,
) -> tuple[Any, np.ndarray]:
    """Return the factors of S and the change of mu after a step of Riemannian gradient descent.

    See 003 eqs. 10 and 11. The loss is quadratic, so that `curvature`, its Hessian, is exact.
    """
    eta = -rate * inverse @ coordinates.gradient(gradient, curvature, gamma)
    return coordinates.at(eta), coordinates.mean_map @ eta[coordinates.blocks["delta"]]


def _natural_full(random: Random) -> Iterator[Measure]:
    size, gamma = int(random.integers(2, 6)), float(random.integers(2))
    spectrum = draw_spectrum(random, size, tied=True)
    root, drawn = assembled(spectrum, 0.5), random.standard_normal((size, size))
    # The curvature is indefinite, and of the magnitude of S.
    curvature = root @ (drawn + drawn.T) @ root / 2
    rate, gradient = float(random.uniform(0.02, 0.3)), random.standard_normal(size)
    coordinates = LocalCoordinates(spectrum)
    inverse = np.linalg.pinv(coordinates.metric(), rcond=TIED, hermitian=True)
    found, move = natural_step(coordinates, inverse, gradient, curvature, rate, gamma)
    expected = spectral_step(OPS, spectrum, curvature, rate, gamma, EXACT_MAPS)
    yield agrees("d, relative error", found.values, expected.values, SOLVED)
    yield agrees("B, relative error", found.basis, expected.basis, SOLVED)
    yield agrees("mu's step, relative error", move, -rate * assembled(spectrum, -1.0) @ gradient, SOLVED)


def _natural_kronecker(random: Random, printed: bool) -> Iterator[Measure]:
    spectrum, gamma = _draw_factors(random, tied=True), float(random.integers(2))
    shape = tuple(len(factor.values) for factor in spectrum.factors)
    root = assembled(spectrum, 0.5)
    gradient = (root @ random.standard_normal(len(root))).reshape(shape)
    rate = float(random.uniform(0.02, 0.3))
    coordinates = LocalCoordinates(spectrum, printed)
    if printed:
        inverse = np.zeros((coordinates.blocks["delta"].stop,) * 2)
        for name, block in coordinates.blocks.items():
            inverse[block, block] = stated_block(coordinates, name, True)
    else:
        inverse = np.linalg.pinv(coordinates.metric(), rcond=TIED, hermitian=True)
    flat = gradient.ravel()
    found, move = natural_step(coordinates, inverse, flat, np.outer(flat, flat), rate, gamma)
    expected = stepped(spectrum, gradient, rate, gamma)
    yield agrees("alpha, relative error", found.scale, expected.scale, SOLVED)
    for number, (one, other) in enumerate(zip(found.factors, expected.factors, strict=True), start=1):
        yield agrees(f"d of factor {number}, relative error", one.values, other.values, SOLVED)
        yield agrees(f"B of factor {number}, relative error", one.basis, other.basis, SOLVED)
    yield agrees("mu's step, relative error", move, -rate * assembled(spectrum, -1.0) @ flat, SOLVED)


def _rule_steps(random: Random, optimizer: str) -> Iterator[Measure]:
    """Check that a rule's second step agrees with a natural-gradient step from S = I.

    The second step uses the curvature S that the rule has learned in its first step.
    """
    shape = lengths_of(random, 2, 2, 3) if optimizer == "spectral" else lengths_of(random, 1, 2, 4)
    rate, gamma = float(random.uniform(0.02, 0.3)), float(random.integers(2))
    gradients = draw_gradients(random, shape, 2)
    origin = identity(shape)
    for gradient in gradients:
        coordinates, flat = LocalCoordinates(origin), gradient.ravel()
        inverse = np.linalg.pinv(coordinates.metric(), rcond=TIED, hermitian=True)
        origin, move = natural_step(coordinates, inverse, flat, np.outer(flat, flat), rate, gamma)
    options = {**PLAIN_ROTATION, "exponential": "exact", "power": 1.0, "moves_with": "old"}
    options = {**options, "start": "identity", "velocity": False}
    hyper = {"curvature_rate": rate, "gamma": gamma, "damping": 0.0}
    found = moves(optimizer, np.array(gradients), hyper, options)[1].ravel()
    yield agrees("the rule's second step, relative error", rate * found, move, SOLVED)


BLOCKS = ("alpha", "m", "M", "delta")

METRIC = PropertyClaim(
    id="spectral.metric",
    sentence=(
        "At the origin of the local coordinates the Fisher-Rao metric is diagonal, with Kronecker factors "
        "block diagonal, with the entries that are stated; a natural-gradient step there is the scheme's."
    ),
    source="003 Claims 4 and 6, eqs. 9-11, 17-20, App. I, K, L",
    setting=(
        "Full: 2 to 5 dimensions; Kronecker: factors of 2 and 3. Random bases, eigenvalues at least 5 % "
        "apart or equal, scales over 4 orders of magnitude. The metric is the Hessian of the cross-entropy "
        "by automatic differentiation through the project's own exponential and Cayley map, which is exact "
        "but for rounding. Natural gradients are of quadratic losses, with the pseudo-inverse of that "
        "metric, where eigenvalues up to 1e-8 of the largest count as 0; gamma is kept where App. L's "
        "eq. 23 loses it. As printed, App. K has 1/2 for alpha, 2 ((l - 1) / l, 1 / l) for the inverse of "
        "m's block, 4 (d_i / d_j + d_j / d_i - 2) for M and I for delta, with mu moving as in eq. 18. As "
        "corrected: nm / 2; 2 / k ((l - 1) / l, -1 / l) and k times the entries of M, k the other factor's "
        "length; and in eq. 18 alpha^(-1/2) besides. As printed the step is that with App. K's inverse, as "
        "corrected with the metric that was found."
    ),
    checks=(
        part("full: diagonal, with the entries of eq. 17", "003 Claim 4, eq. 17", _full_metric, 3),
        part("Kronecker: block diagonal, and the inverse", "003 Claim 6, eq. 20", _block_diagonal, 2),
        *(
            check
            for name in BLOCKS
            for check in printed_and_corrected(
                f"Kronecker: the block of {name}", "003 App. K", _kronecker_block, 2, name=name
            )
        ),
        part("full: a natural-gradient step is the scheme's", "003 App. L", _natural_full, 3),
        *printed_and_corrected(
            "Kronecker: a natural-gradient step is the scheme's", "003 Fig. 1, App. K", _natural_kronecker, 3
        ),
        *parts_for("natural-gradient steps are {}'s", "003 Fig. 1", _rule_steps, 2, optimizer=RULES),
    ),
)

# --- constraints (003 Claims 3, 5 and 9, Sec. 3.3) ----------------------------------------------------------

# Largest entry of B^T B - I, or difference of a determinant from 1, that counts as 0.
# The entry or the difference is measured after 20 steps with rotations by generators of norms up to 100.
KEPT = 1e-11
STEPS = 20
# Relative tolerance of Cayley maps, and of generators that are computed back from them.
# The generators of the rotations have norms up to 100.
INVERTED = 1e-9
# Range of the Frobenius norms of normalized rotations' generators.
ROTATION_RATES = (1e-3, 1.9)


def draw_maps(random: Random) -> tuple[SpectralMaps, float]:
    """Draw the exact maps, with or without normalized rotations, and a rotation rate.

    The rotation rate is the Frobenius norm of a normalized rotation's generator.
    """
    normalized = bool(random.integers(2))
    return SpectralMaps("exact", "exact", normalized), float(random.uniform(*ROTATION_RATES))


def draw_skew(random: Random, size: int) -> np.ndarray:
    """Draw a skew-symmetric matrix (n, n) with a Frobenius norm from 1e-3 to 100; for n = 1 it is 0."""
    drawn = random.standard_normal((size, size))
    skew = drawn - drawn.T
    return np.asarray(skew * 10.0 ** random.uniform(-3, 2) / (np.linalg.norm(skew) or 1.0))


def identity_error(matrix: np.ndarray) -> float:
    """Return the largest absolute entry of Q^T Q - I for a matrix Q."""
    return float(np.abs(matrix.T @ matrix - np.eye(len(matrix))).max())


def _full_constraints(random: Random) -> Iterator[Measure]:
    size, gamma = int(random.integers(1, 7)), float(random.integers(2))
    spectrum, (maps, turn) = draw_spectrum(random, size, tied=True), draw_maps(random)
    rate, errors, least = float(random.uniform(0.01, 1)), [], []
    for _ in range(STEPS):
        root, drawn = assembled(spectrum, 0.5), random.standard_normal((size, size))
        # The curvature is indefinite, and of the magnitude of S.
        curvature = root @ (drawn + drawn.T) @ root / np.sqrt(size)
        spectrum = spectral_step(OPS, spectrum, curvature, rate, gamma, maps, 0.0, turn)
        errors.append(identity_error(spectrum.basis))
        least.append(spectrum.values.min())
    yield vanishes("largest entry of B^T B - I", max(errors), KEPT)
    yield at_least("least of d", min(least), POSITIVE)


def _kronecker_constraints(random: Random) -> Iterator[Measure]:
    shape, gamma = lengths_of(random, 2), float(random.integers(2))
    spectrum, (maps, turn) = draw_kronecker(random, shape, tied=True), draw_maps(random)
    rate, errors, determinants, least = float(random.uniform(0.01, 1)), [], [], []
    for _ in range(STEPS):
        root = assembled(spectrum, 0.5)
        gradient = (root @ random.standard_normal(len(root))).reshape(shape)
        inside = axes_curvatures(spectrum, gradient)
        spectrum = kronecker_spectral_step(OPS, spectrum, inside, rate, gamma, maps, 0.0, turn)
        errors += [identity_error(factor.basis) for factor in spectrum.factors]
        determinants += [abs(np.prod(factor.values) - 1) for factor in spectrum.factors]
        least += [spectrum.scale[0], *(factor.values.min() for factor in spectrum.factors)]
    yield vanishes("largest entry of B^T B - I of a factor", max(errors), KEPT)
    yield vanishes("a factor's determinant less 1", max(determinants), KEPT)
    yield at_least("least of alpha and d", min(least), POSITIVE)


def decomposed(matrix: np.ndarray, shape: Sequence[int]) -> tuple[float, np.ndarray, np.ndarray, float]:
    """Decompose a matrix S into the nearest product alpha S_1 (x) S_2 with factors of determinant 1.

    The entries of a Kronecker product can be rearranged to a matrix of rank one, whose singular vectors are
    the factors up to scale.

    Returns:
        alpha, S_1, S_2 and the relative residual of the product.
    """
    first, second = shape
    left, values, right = np.linalg.svd(rearrange(matrix, first, second, first, second))
    factors, scale = [], float(values[0])
    for vector, length in ((left[:, 0], first), (right[0], second)):
        factor = vector.reshape(length, length) * np.sign(np.trace(vector.reshape(length, length)))
        root = float(np.linalg.det(factor)) ** (1 / length)
        factors.append(factor / root)
        scale *= root
    rest = float(np.linalg.norm(values[1:])) / float(values[0])
    return scale, factors[0], factors[1], rest


def _unique(random: Random) -> Iterator[Measure]:
    shape, gamma = lengths_of(random, 2, 1, 4), float(random.integers(2))
    spectrum, rate = draw_kronecker(random, shape, tied=True), float(random.uniform(0.01, 0.3))
    root = assembled(spectrum, 0.5)
    spectrum = stepped(spectrum, (root @ random.standard_normal(len(root))).reshape(shape), rate, gamma)
    scale, first, second, _ = decomposed(assembled(spectrum), shape)
    yield equals("alpha over the scheme's", scale / spectrum.scale[0], 1.0, READ)
    yield agrees("S_1 less the scheme's, relative", first, assembled(spectrum.factors[0]), READ)
    yield agrees("S_2 less the scheme's, relative", second, assembled(spectrum.factors[1]), READ)


def _rule_constraints(random: Random, optimizer: str) -> Iterator[Measure]:
    """Check that the preconditioner S^-1 of a rule is symmetric and positive definite.

    With Kronecker factors, S must also be the product of alpha, S_1 and S_2 that the scheme computes.
    """
    kronecker = optimizer == "spectral"
    shape = lengths_of(random, 2, 2, 3) if kronecker else lengths_of(random, 1, 2, 5)
    rate, gamma = float(random.uniform(0.02, 0.3)), float(random.integers(2))
    gradients = draw_gradients(random, shape, 3)
    hyper, options = {"curvature_rate": rate, "gamma": gamma}, {**PLAIN_ROTATION, "exponential": "exact"}
    found = preconditioners(optimizer, gradients, hyper, {**options, "power": 1.0})[-1]
    size = float(np.linalg.norm(found, 2))
    yield vanishes("S^-1 less its transpose, relative", np.linalg.norm(found - found.T, 2) / size, READ)
    yield at_least("least eigenvalue of S^-1", np.linalg.eigvalsh((found + found.T) / 2)[0], POSITIVE)
    if not kronecker:
        return
    spectrum = identity(shape)
    for gradient in gradients:
        spectrum = stepped(spectrum, gradient, rate, gamma)
    scale, first, second, rest = decomposed(np.linalg.inv(found), shape)
    yield vanishes("S less the nearest Kronecker product, relative", rest, READ)
    yield equals("alpha over the scheme's", scale / spectrum.scale[0], 1.0, READ)
    yield agrees("S_1 less the scheme's, relative", first, assembled(spectrum.factors[0]), READ)
    yield agrees("S_2 less the scheme's, relative", second, assembled(spectrum.factors[1]), READ)


def _cayley(random: Random) -> Iterator[Measure]:
    size = int(random.integers(1, 8))
    skew, basis = draw_skew(random, size), orthonormal(random, size, size)
    image = CAYLEYS["exact"](OPS, np.eye(size), skew)
    left = np.linalg.solve(np.eye(size) - skew, np.eye(size) + skew)
    yield agrees("Cayley(N) less (I - N)^-1 (I + N), relative (eq. 38)", image, left, INVERTED)
    yield vanishes("largest entry of Q^T Q - I", identity_error(image), KEPT)
    inverse = np.linalg.solve(image + np.eye(size), image - np.eye(size))
    yield agrees("(Q + I)^-1 (Q - I) less N, relative (eq. 32)", inverse, skew, INVERTED)
    turned = CAYLEYS["exact"](OPS, basis, skew)
    yield agrees("what it makes of B less B Cayley(N), relative", turned, basis @ image, INVERTED)


CONSTRAINTS = PropertyClaim(
    id="spectral.constraints",
    sentence=(
        "Steps keep B orthogonal and d positive, and each Kronecker factor's determinant at 1, which makes "
        "the factors unique; the Cayley map is defined and injective on skew-symmetric matrices."
    ),
    source="003 Claims 3, 5 and 9, Sec. 3.3, App. H, J, L",
    setting=(
        "20 steps in float64 with the exact exponential and Cayley map, rates of 0.01 to 1, gamma 0 and 1, "
        "rotations as the curvature gives them or of a Frobenius norm of 0.001 to 1.9; 1 to 6 dimensions, "
        "factors of 1 to 5, equal eigenvalues among them. Curvatures are of the size of S, full ones of any "
        "sign, since a much larger one overflows the exponential. Uniqueness: S is taken apart by the "
        "singular vectors of the rearranged matrix, brought to determinant 1, and compared with the factors "
        "that the scheme keeps. Of the rules S^-1 is read off with unit vectors as gradients. Cayley maps: "
        "norms of 0.001 to 100, whose inverse must give the matrix back. Tolerances are for rounding."
    ),
    checks=(
        part("full: B orthogonal, d positive", "003 Claim 3, App. H", _full_constraints, 10),
        part(
            "Kronecker: B orthogonal, d positive, determinants 1", "003 Sec. 3.3", _kronecker_constraints, 10
        ),
        part("Kronecker: the decomposition is unique", "003 Claim 5, App. J", _unique, 20),
        *parts_for("constraints of {}", "003 Claims 3 and 5", _rule_constraints, 4, optimizer=RULES),
        part("the Cayley map is defined and injective", "003 Claim 9, eqs. 32, 38", _cayley, 40),
    ),
)

CLAIMS = (LINEAR_INVARIANCE, METRIC, CONSTRAINTS)
