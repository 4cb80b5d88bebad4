"""Optimization on manifolds: four forms of steps on the sphere, and steps on the Stiefel manifold.

In citations, 002 is Stratos (2026), "Adaptive Learning Methods", a set of notes (docs/sources.md).

w is a weight vector of length r, g its gradient, and g_perp the tangential component of g. W is a weight
matrix with orthonormal columns, G its gradient.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from curvebench.benchmarks.claims._matrices import OPS, orthonormal, relative_error
from curvebench.benchmarks.claims._measures import agrees, at_least, at_most, equals, vanishes
from curvebench.benchmarks.claims._moves import path
from curvebench.benchmarks.claims._parts import Random, part
from curvebench.optimizers import matrix_functions, stiefel
from curvebench.property_checks.checks import Measure, PropertyClaim

ROUNDING = 1e-12
# Relative tolerance of paths, and of steps that are reconstructed from the retracted point.
READ = 1e-9
# Relative tolerance of steps whose tangential direction is found by an iteration.
TANGENT = 1e-3
STEPS = 12
# Maximum number of iterations for the tangential direction.
ENOUGH = 1000


# --- random instances, projections and runs -----------------------------------------------------------------


def _pair(random: Random) -> tuple[np.ndarray, np.ndarray]:
    """Draw a weight vector and a gradient, (d,) each, of any scale.

    They are general vectors, have entries that are 0 or equal, or are nearly parallel to each other.
    """
    size, kind = int(random.integers(2, 9)), random.integers(4)
    if kind == 0:
        weight, gradient = (np.asarray(random.integers(-2, 3, size), np.float64) for _ in range(2))
    else:
        weight, gradient = random.standard_normal((2, size))
    if kind == 1:
        weight[random.integers(size)] = 0.0
    elif kind == 2:
        gradient = random.choice([-1.0, 1.0]) * weight + 1e-3 * gradient
    if not weight.any():
        weight[0] = 1.0
    if np.linalg.norm(tangential(gradient, weight)) < 1e-6:
        gradient = random.standard_normal(size)
    return weight * 10.0 ** random.uniform(-2, 2), gradient * 10.0 ** random.uniform(-2, 2)


def tangential(gradient: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Return the tangential gradient (I - w w^T / r^2) g (002 eq. 71)."""
    return gradient - weight * (weight @ gradient / (weight @ weight))


def _path(
    optimizer: str,
    weight: np.ndarray,
    gradients: list[np.ndarray],
    rate: float,
    options: Mapping[str, Any],
    schedules: list[float] | None = None,
) -> list[np.ndarray]:
    """Run a rule, and return the weights before the first step and after each step."""
    return list(path(optimizer, weight, gradients, {"learning_rate": rate}, options, schedules))


# --- steps on the sphere (002 eqs. 70-73) -------------------------------------------------------------------


def _first_order(random: Random) -> Iterator[Measure]:
    weight, gradient = _pair(random)
    radius, size = float(np.linalg.norm(weight)), float(np.linalg.norm(gradient))
    along = tangential(gradient, weight)
    # The error is of second order in the step. Let c be the cosine between the weight w and the gradient g.
    # For `pin_to_sphere`, the error divided by the squared step tends to |(3 c^2 - 1) w / (2 r) - c g / |g||.
    # This limit is at most 1 / sqrt(3).
    # For `riemannian_sgd`, it tends to |g_perp|^2 / (2 |g|^2).
    for optimizer, constant in (("pin_to_sphere", float(1 / np.sqrt(3))), ("riemannian_sgd", 0.5)):
        for share in (1e-2, 1e-3, 1e-4):
            rate = share * radius / size
            after = _path(optimizer, weight, [gradient], rate, {})[1]
            error = float(np.linalg.norm(after - (weight - rate * along))) / radius
            quantity = f"|w' - (w - eta g_perp)| r over (eta |g|)^2, {optimizer}, eta |g| / r = {share:g}"
            yield at_most(quantity, error / share**2, constant, 10 * share)


def _updates(random: Random) -> Iterator[Measure]:
    weight, gradient = _pair(random)
    radius = float(np.linalg.norm(weight))
    rate = float(10.0 ** random.uniform(-3, 1)) * radius / float(np.linalg.norm(gradient))
    along = tangential(gradient, weight)
    moved = weight - rate * gradient
    # The gradient step scaled back to the sphere, 002 eq. 70.
    pinned = radius / np.linalg.norm(moved) * moved
    # The Riemannian gradient step, 002 eq. 72.
    classical = radius / np.sqrt(radius**2 + rate**2 * along @ along) * (weight - rate * along)
    for optimizer, expected, equation in (
        ("pin_to_sphere", pinned, 70),
        ("riemannian_sgd", classical, 72),
    ):
        after = _path(optimizer, weight, [gradient], rate, {})[1]
        yield agrees(f"eq. {equation}, relative error", after, expected, READ)
    for optimizer in ("pin_to_sphere", "riemannian_sgd", "trust_region_sphere"):
        path = _path(optimizer, weight, list(random.standard_normal((STEPS, weight.size))), rate, {})
        lengths = [float(np.linalg.norm(point)) / radius for point in path]
        quantity = f"|w| over r, farthest from 1 of {STEPS} steps, {optimizer}"
        yield equals(quantity, max(lengths, key=lambda length: abs(length - 1)), 1.0, ROUNDING)
        still = _path(optimizer, weight, [weight / 2], 1.0, {})[1]
        yield agrees(f"a step along w, relative, {optimizer}", still, weight, ROUNDING)


def least_dual_norm(gradient: np.ndarray, weight: np.ndarray, norm: str) -> float:
    """Return the minimum over lambda of the dual norm of g + lambda w (002 Lemma S.21).

    `norm` is the norm of the step. The dual norm of l-infinity is piecewise linear in lambda, with its
    minimum where an entry of g + lambda w is 0. The dual norm of l1 has its minimum where two entries of g +
    lambda w are equal in size, or where an entry with w_i = 0 is the largest.
    """
    if norm == "l2":
        return float(np.linalg.norm(tangential(gradient, weight)))
    with np.errstate(divide="ignore", invalid="ignore"):
        if norm == "linfinity":
            multipliers = -gradient / weight
        else:
            differences = -np.subtract.outer(gradient, gradient) / np.subtract.outer(weight, weight)
            sums = -np.add.outer(gradient, gradient) / np.add.outer(weight, weight)
            multipliers = np.concatenate([differences.ravel(), sums.ravel()])
    multipliers = multipliers[np.isfinite(multipliers)]
    values = np.abs(gradient + multipliers[:, None] * weight)
    return float((values.sum(1) if norm == "linfinity" else values.max(1)).min())


def _trust_region(random: Random) -> Iterator[Measure]:
    weight, gradient = _pair(random)
    radius = float(np.linalg.norm(weight))
    rate = float(10.0 ** random.uniform(-2, 0)) * radius
    for norm, order in (("l1", 1), ("l2", 2), ("linfinity", np.inf)):
        after = _path("trust_region_sphere", weight, [gradient], rate, {"norm": norm})[1]
        # The tangential step whose retraction to the sphere is the point `after`.
        step = weight - after * (radius**2 / (weight @ after))
        yield at_most(f"|Delta| over eta, {norm}", float(np.linalg.norm(step, order)) / rate, 1.0, READ)
        gain = float(step @ gradient) / (rate * least_dual_norm(gradient, weight, norm))
        yield equals(f"Delta^T g over eta min |g + lambda w|_*, {norm}", gain, 1.0, 1e-7)
    along = tangential(gradient, weight)
    after = _path("trust_region_sphere", weight, [gradient], rate, {"norm": "l2"})[1]
    step = weight - after * (radius**2 / (weight @ after))
    error = relative_error(step, rate * along / np.linalg.norm(along))
    yield vanishes("Delta less eta g_perp / |g_perp|, relative, l2", error, 1e-7)


# --- weight normalization (002 eqs. 74-76) ------------------------------------------------------------------


def _draw_path(random: Random) -> tuple[np.ndarray, list[np.ndarray], float]:
    """Draw a weight vector, gradients and a learning rate.

    At this rate, a step is at most about as long as the weight vector.
    """
    size = int(random.integers(2, 9))
    weight = random.standard_normal(size) * 10.0 ** random.uniform(-1, 1)
    gradients = list(random.standard_normal((STEPS, size)))
    return weight, gradients, float(10.0 ** random.uniform(-2, 0) * np.linalg.norm(weight) / np.sqrt(size))


def _squared_lengths(path: list[np.ndarray], gradients: list[np.ndarray], rate: float) -> list[float]:
    """Return the squared length of weight normalization's direction v before each step (002 eq. 74).

    v starts as the weight vector. The gradient with respect to v is s / |v| g_perp, where s is the scale; it
    is orthogonal to v.
    """
    squares = [float(path[0] @ path[0])]
    for weight, gradient in zip(path[:-1], gradients, strict=True):
        along = tangential(gradient, weight)
        squares.append(squares[-1] + rate**2 * float(weight @ weight) * float(along @ along) / squares[-1])
    return squares


def _frozen(random: Random) -> Iterator[Measure]:
    weight, gradients, rate = _draw_path(random)
    path = _path("weight_normalization", weight, gradients, rate, {"scale": "frozen"})
    squares = _squared_lengths(path, gradients, rate)
    # Factors alpha_t / eta_t of the rate of Riemannian SGD, which then has the path of weight normalization.
    schedules = [float(weight @ weight) / square for square in squares[:-1]]
    classical = _path("riemannian_sgd", weight, gradients, rate, {}, schedules)
    error = relative_error(np.array(path), np.array(classical))
    yield vanishes(f"{STEPS} steps less classical ones at alpha_t, relative", error, READ)
    constant = _path("riemannian_sgd", weight, gradients, rate, {})
    distance = relative_error(np.array(path), np.array(constant))
    yield at_least(f"{STEPS} steps less classical ones at a constant rate, relative", distance, READ)


def _reparameterized(random: Random) -> Iterator[Measure]:
    import torch

    weight, gradients, rate = _draw_path(random)
    for scale in ("free", "frozen"):
        path = _path("weight_normalization", weight, gradients, rate, {"scale": scale})
        direction = torch.tensor(weight, requires_grad=True)
        length = torch.tensor(float(np.linalg.norm(weight)), dtype=torch.float64, requires_grad=True)
        for gradient in gradients:
            loss = torch.tensor(gradient) @ (length * direction / torch.linalg.vector_norm(direction))
            by_direction, by_length = torch.autograd.grad(loss, (direction, length))
            with torch.no_grad():
                direction -= rate * by_direction
                if scale == "free":
                    length -= rate * by_length
        found = (length * direction / torch.linalg.vector_norm(direction)).detach().numpy()
        quantity = f"w after {STEPS} steps less gradient descent on v and s by autograd, relative, {scale}"
        yield agrees(quantity, path[-1], found, READ)


def _locally(random: Random) -> Iterator[Measure]:
    weight, gradients, rate = _draw_path(random)
    last = gradients[-1]
    for share in (1e-2, 1e-4):
        schedules = [1.0] * (STEPS - 1) + [share]
        path = _path("weight_normalization", weight, gradients, rate, {}, schedules)
        before, after = path[-2:]
        square = _squared_lengths(path[:-1], gradients[:-1], rate)[-1]
        scale, unit, small = float(np.linalg.norm(before)), before / np.linalg.norm(before), rate * share
        along, outward = tangential(last, before), unit @ last
        # The change of the weights that 002 eq. 75 predicts.
        predicted = -small * (scale**2 / square * along + unit * outward)
        turn, change = small * scale / square * float(np.linalg.norm(along)), abs(small * outward)
        # Eq. 75 neglects two terms. One of them is the second-order term of the direction's turn.
        # The other term neglected by eq. 75 is the product of the turn and the change of scale.
        bound = (scale + change) * (turn**2 + turn**3) / 2 + change * turn
        error = float(np.linalg.norm(after - before - predicted))
        quantity = f"error of eq. 75 over its terms of second order, eta times {share:g}"
        yield at_most(quantity, error / bound, 1.0, 1e-5)


# --- steps on the Stiefel manifold (002 eqs. 77-79) ---------------------------------------------------------


def _nearest(random: Random) -> Iterator[Measure]:
    d = int(random.integers(1, 5))
    rows = int(random.integers(d, 9))
    matrix = random.standard_normal((rows, d)) * 10.0 ** random.uniform(-1, 1)
    nearest = matrix_functions.orthogonal_factor(OPS, matrix)
    yield agrees("|Orth(M)^T Orth(M) - I|_F, relative", nearest.T @ nearest, np.eye(d), ROUNDING)
    distance = np.linalg.norm(nearest - matrix)
    rivals = [orthonormal(random, rows, d) for _ in range(20)]
    rivals += [np.linalg.qr(nearest + 0.01 * rival)[0] for rival in rivals]
    rivals = [rival * np.where(np.sum(rival * nearest, axis=0) < 0, -1.0, 1.0) for rival in rivals]
    best = min(float(np.linalg.norm(rival - matrix)) for rival in rivals)
    yield at_most("|Orth(M) - M|_F over that of the best of 40 rivals", float(distance) / best, 1.0, ROUNDING)


def _orthonormal_steps(random: Random) -> Iterator[Measure]:
    rows, columns = (int(length) for length in random.integers(1, 9, 2))
    start = orthonormal(random, max(rows, columns), min(rows, columns))
    start = start if rows >= columns else start.T
    gradients = list(random.standard_normal((STEPS, rows, columns)) * 10.0 ** random.uniform(-3, 3))
    path = _path("manifold_muon", start, gradients, float(10.0 ** random.uniform(-2, 0)), {})
    tall = [point if rows >= columns else point.T for point in path]
    errors = [float(np.linalg.norm(point.T @ point - np.eye(point.shape[1]))) for point in tall]
    yield vanishes(f"|W^T W - I|_F, greatest of {STEPS} steps", max(errors), ROUNDING)


def least_nuclear_norm(gradient: np.ndarray, weight: np.ndarray) -> float:
    """Return nearly the minimum of |G + W Lambda|_nuc over symmetric Lambda (002 Lemma S.22).

    The result is an upper bound of the minimum. BFGS is applied to smoothed singular values sqrt(s^2 + mu^2),
    with decreasing mu.
    """
    from scipy.optimize import minimize

    d = weight.shape[1]
    upper = np.triu_indices(d)

    def shifted(half: np.ndarray) -> np.ndarray:
        matrix = np.zeros((d, d))
        matrix[upper] = half
        return gradient + weight @ (matrix + matrix.T)

    def smoothed(half: np.ndarray, mu: float) -> tuple[float, np.ndarray]:
        u, values, vh = np.linalg.svd(shifted(half), full_matrices=False)
        smooth = np.hypot(values, mu)
        slope = weight.T @ (u * (values / smooth)) @ vh
        return float(smooth.sum()), (slope + slope.T)[upper]

    half = np.zeros(d * (d + 1) // 2)
    for mu in (0.1, 1e-2, 1e-3, 1e-4):
        half = minimize(smoothed, half, (mu,), jac=True, method="BFGS").x
    return float(np.linalg.svd(shifted(half), compute_uv=False).sum())


def _tangent_steps(random: Random) -> Iterator[Measure]:
    from scipy.linalg import solve_continuous_lyapunov

    d = int(random.integers(1, 4))
    rows = int(random.integers(d, 6))
    if rows == d == 1:
        rows = 2
    weight = orthonormal(random, rows, d)
    rank = int(random.integers(1, d + 1))
    gradient = random.standard_normal((rows, rank)) @ random.standard_normal((rank, d))
    rate = float(10.0 ** random.uniform(-2, -0.5))
    after = _path("manifold_muon", weight, [gradient], rate, {"dual_steps": ENOUGH})[1]
    # If the retraction of the tangential step Delta is W' (`after`), W - Delta = W' P with a symmetric P.
    step = weight - after @ solve_continuous_lyapunov(weight.T @ after, 2 * np.eye(d))
    yield at_most("|Delta|_2 over eta", float(np.linalg.norm(step, 2)) / rate, 1.0, TANGENT)
    best = least_nuclear_norm(gradient, weight)
    gain = float(np.sum(step * gradient)) / rate
    quantity = "<Delta, G> over eta less min |G + W Lambda|_nuc, relative"
    yield equals(quantity, (gain - best) / float(np.linalg.norm(gradient)), 0.0, TANGENT)


def _tangent_directions(random: Random) -> Iterator[Measure]:
    d = int(random.integers(1, 5))
    rows = int(random.integers(d, 9))
    weight, gradient = orthonormal(random, rows, d), random.standard_normal((rows, d))
    ops, shift = OPS, np.full((1, 1), 1e-9)
    direction = stiefel.tangential_direction(
        ops, gradient, weight, shift, ENOUGH, matrix_functions.orthogonal_factor, stiefel.clipped_by_svd
    )
    error = float(np.linalg.norm(direction.T @ weight + weight.T @ direction)) / np.sqrt(d)
    yield vanishes("|Z^T W + W^T Z|_F over sqrt(d)", error, TANGENT)
    yield at_most("|Z|_2", np.linalg.norm(direction, 2), 1.0, ROUNDING)


MANIFOLD = PropertyClaim(
    id="notes.manifold",
    sentence=(
        "Pinning to the sphere and the classical step agree with w - eta g_perp to first order; the "
        "trust-region step is the best tangential one of its length under any norm; weight normalization "
        "with a frozen scale is the classical step at the rate eta r^2 / |v|^2; steps on the Stiefel "
        "manifold stay tangent and orthonormal."
    ),
    source="002 Sec. 8, eqs. 70-79, Lemmas 8.1, S.19, S.21 and S.22, R.2",
    setting=(
        "Vectors of 2 to 8 entries over 4 orders of magnitude, with zeros, ties and gradients nearly along "
        "w. A trust-region step is read from where its retraction brought it, and compared with the dual "
        "optimum, found at all kinks of the dual function. Weight normalization: 12 steps, also against "
        "gradient descent on v and s by autograd; eq. 75's error against its own terms of second order. "
        "Stiefel: up to 8 x 4, to 1e-3; the dual optimum by BFGS on smoothed singular values. Steps stay "
        "orthonormal with any number of iterations for the tangential direction. The notes give no number: "
        "1000 reach a tangent and optimal direction in all draws, fewer do not where G + W Lambda is nearly "
        "singular. Of eq. 78's "
        "|Delta| = eta and eq. 175's |Delta| <= eta the second is taken: it is convex, and a gradient "
        "without a tangential part then moves nothing."
    ),
    checks=(
        part("first-order view", "002 eq. 71, Lemma S.19", _first_order, 20),
        part("updates, lengths and steps along w", "002 eqs. 70 and 72", _updates, 20),
        part("the trust-region step is optimal", "002 eq. 73, Lemma S.21", _trust_region, 30),
        part(
            "weight normalization with a frozen scale is the classical step",
            "002 eq. 76, Lemma 8.1",
            _frozen,
            20,
        ),
        part("weight normalization is gradient descent on v and s", "002 eq. 74", _reparameterized, 10),
        part("weight normalization as a preconditioner", "002 eq. 75", _locally, 20),
        part("Orth is the nearest orthonormal matrix", "002 eq. 77", _nearest, 20),
        part("Stiefel steps stay orthonormal", "002 eq. 77", _orthonormal_steps, 10),
        part("Stiefel directions are tangent", "002 eq. 78", _tangent_directions, 6),
        part("Stiefel steps are optimal", "002 eq. 79, Lemma S.22", _tangent_steps, 6),
    ),
)

CLAIMS = (MANIFOLD,)
