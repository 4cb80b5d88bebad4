"""The Fisher matrix of small classifiers, and smoothness and majorization under several norms."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from benchmarks.claims._matrices import orthonormal, relative_error, semidefinite
from harness.checks import Check, Measure, PropertyClaim

ROUNDING = 1e-10
BEYOND_ROUNDING = 1e-6  # for what the notes call unequal, without saying by how much
STEPS = 15


# --- notes.fisher -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Derivatives:
    """A softmax classifier on a finite population, with its derivatives in all d weights by autograd.

    Args:
        inputs: probability of each input, (N,).
        labels: the population's probability of each label, (N, K).
        predicted: the model's, (N, K).
        gradients: of the loss at each input and label, (N, K, d).
        jacobian: of the logits, (N, K, d).
        curvature: Hessian of the loss in the logits at each label, (N, K, K, K).
        logit_hessians: (N, K, d, d).
        hessian: of the expected loss, (d, d).
    """

    inputs: np.ndarray
    labels: np.ndarray
    predicted: np.ndarray
    gradients: np.ndarray
    jacobian: np.ndarray
    curvature: np.ndarray
    logit_hessians: np.ndarray
    hessian: np.ndarray

    def gauss_newton(self, label: int) -> np.ndarray:
        """The first term of eq. 113 in expectation over inputs, with the loss's Hessian at one label."""
        return np.einsum(
            "x,xkd,xkl,xle->de", self.inputs, self.jacobian, self.curvature[:, label], self.jacobian
        )

    def second_moment(self, labels: np.ndarray) -> np.ndarray:
        """E[g g^T] with labels (N, K) distributed so: the model's for the Fisher matrix (eqs. 58-59)."""
        return np.einsum("x,xk,xkd,xke->de", self.inputs, labels, self.gradients, self.gradients)

    def mean(self, labels: np.ndarray) -> np.ndarray:
        """E[g], (d,)."""
        return np.einsum("x,xk,xkd->d", self.inputs, labels, self.gradients)


def _classifier(random: np.random.Generator, linear: bool, labels_of_model: bool = False) -> Derivatives:
    """2 or 3 classes and inputs, logits W x or W_2 tanh(W_1 x); some labels are certain."""
    import torch
    from torch.func import hessian, jacrev, vmap

    classes, examples, features, hidden = (int(count) for count in random.integers((2, 2, 1, 1), (4, 4, 4, 4)))
    inputs, labels = random.dirichlet(np.ones(examples)), random.dirichlet(np.ones(classes), examples)
    if random.integers(2):
        labels[0] = np.eye(classes)[random.integers(classes)]
    points = torch.tensor(random.standard_normal((examples, features)))
    size = classes * features if linear else hidden * features + classes * hidden
    weights = torch.tensor(random.standard_normal(size) * 10.0 ** random.uniform(-1, 0.5))

    def logits(weights: torch.Tensor, point: torch.Tensor) -> torch.Tensor:
        if linear:
            return weights.reshape(classes, features) @ point
        first, second = weights.split([hidden * features, classes * hidden])
        return second.reshape(classes, hidden) @ torch.tanh(first.reshape(hidden, features) @ point)

    def losses(values: torch.Tensor) -> torch.Tensor:
        return torch.logsumexp(values, 0) - values

    values = vmap(logits, (None, 0))(weights, points)
    predicted = torch.softmax(values, 1).numpy()
    labels = predicted if labels_of_model else labels

    def expected(weights: torch.Tensor) -> torch.Tensor:
        each = vmap(lambda point: losses(logits(weights, point)))(points)
        return torch.sum(torch.tensor(inputs)[:, None] * torch.tensor(labels) * each)

    def at_points(derivative: Callable[..., torch.Tensor]) -> np.ndarray:
        return vmap(derivative, (None, 0))(weights, points).numpy()

    return Derivatives(
        inputs=inputs,
        labels=labels,
        predicted=predicted,
        gradients=at_points(jacrev(lambda weights, point: losses(logits(weights, point)))),
        jacobian=at_points(jacrev(logits)),
        curvature=vmap(hessian(losses))(values).numpy(),
        logit_hessians=at_points(hessian(logits)),
        hessian=hessian(expected)(weights).numpy(),
    )


def _either(random: np.random.Generator) -> Derivatives:
    return _classifier(random, linear=bool(random.integers(2)))


def _gauss_newton(random: np.random.Generator) -> Iterator[Measure]:
    model = _either(random)
    fisher = model.second_moment(model.predicted)
    for label in range(model.labels.shape[1]):
        error = relative_error(model.gauss_newton(label), fisher)
        yield Measure("Gauss-Newton less Fisher, relative, at each label", error, "<=", 0.0, ROUNDING)
    size = float(np.sqrt(np.trace(fisher)))
    mean = float(np.linalg.norm(model.mean(model.predicted)))
    yield Measure("|E[g]| over sqrt(E[|g|^2]), labels of the model", mean / size, "<=", 0.0, ROUNDING)


def _hessian(random: np.random.Generator) -> Iterator[Measure]:
    model = _classifier(random, linear=True)
    error = relative_error(model.gauss_newton(0), model.hessian)
    yield Measure("Gauss-Newton less Hessian, relative, logits linear in w", error, "<=", 0.0, ROUNDING)
    model = _classifier(random, linear=False)
    slopes = model.predicted - model.labels  # E[p - e_y]
    rest = np.einsum("x,xk,xkde->de", model.inputs, slopes, model.logit_hessians)
    scale = float(np.linalg.norm(model.gauss_newton(0)) + np.linalg.norm(rest))
    error = float(np.linalg.norm(model.gauss_newton(0) + rest - model.hessian)) / scale
    yield Measure("both terms of eq. 113 less Hessian, relative, logits not linear", error, "<=", 0.0, ROUNDING)
    apart = relative_error(model.gauss_newton(0), model.hessian)
    yield Measure("Gauss-Newton less Hessian, relative, logits not linear", apart, ">=", BEYOND_ROUNDING)


def _pairs(model: Derivatives) -> tuple[np.ndarray, np.ndarray]:
    """The probabilities (P,) and gradients (P, d) of the population's pairs (x, y)."""
    shares = (model.inputs[:, None] * model.labels).ravel()
    return shares[shares > 0], model.gradients.reshape(len(shares), -1)[shares > 0]


def _empirical(random: np.random.Generator) -> Iterator[Measure]:
    model = _either(random)
    empirical, mean = model.second_moment(model.labels), model.mean(model.labels)
    shares, gradients = _pairs(model)
    centred = gradients - mean
    covariance = (shares[:, None] * centred).T @ centred
    error = relative_error(covariance + np.outer(mean, mean), empirical)
    yield Measure("eq. 59, relative error", error, "<=", 0.0, ROUNDING)
    batch = int(random.integers(1, 4))
    chosen = np.array(list(itertools.product(range(len(shares)), repeat=batch)))
    likely, batched = shares[chosen].prod(1), gradients[chosen].mean(1)
    measured = (likely[:, None] * batched).T @ batched
    expected = empirical / batch + (1 - 1 / batch) * np.outer(mean, mean)
    yield Measure("E[g_B g_B^T] less footnote 11's, relative", relative_error(measured, expected), "<=", 0.0, ROUNDING)
    own = _classifier(random, linear=bool(random.integers(2)), labels_of_model=True)
    error = relative_error(own.second_moment(own.labels), own.gauss_newton(0))
    yield Measure("I_emp less Fisher, relative, where labels follow the model", error, "<=", 0.0, ROUNDING)


def _adam(random: np.random.Generator) -> Iterator[Measure]:
    from harness import Online

    model, beta2 = _either(random), float(random.uniform(0.7, 0.99))
    shares, gradients = _pairs(model)
    # each gradient as long as makes its share of Adam's running mean its probability
    kept = (1 - beta2) * beta2 ** np.arange(len(shares) - 1, -1, -1.0)
    fed = np.sqrt(shares / (kept / kept.sum()))[:, None] * gradients
    hyper = {"learning_rate": 1.0, "beta1": 0.0, "beta2": beta2, "epsilon": 0.0}
    online = Online("adam", {"w": np.zeros(fed.shape[1])}, hyper)
    before = after = online.params["w"]
    for gradient in fed:
        before, after = after, online.step({"w": gradient})["w"]
    diagonal = np.diag(model.second_moment(model.labels))
    expected = fed[-1] / np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
    error = relative_error(before - after, expected)
    yield Measure("Adam's step less diag(I_emp)^-1/2 g, relative", error, "<=", 0.0, ROUNDING)


FISHER = PropertyClaim(
    id="notes.fisher",
    sentence="For cross-entropy the Gauss-Newton matrix is the Fisher matrix, and the Hessian where logits are "
    "linear in the weights; the empirical Fisher matrix of batched gradients is I_emp / B + (1 - 1 / B) g g^T; "
    "Adam divides by the root of the diagonal of I_emp.",
    source="002 Sec. 6.1, eqs. 58-60, footnote 11, App. H, eqs. 111-114, Lemma H.1",
    setting="Softmax classifiers of 2 or 3 classes on populations of 2 or 3 inputs with 1 to 3 features, logits W x "
    "or W_2 tanh(W_1 x), labels of any distribution, some certain; expectations are exact sums, batches of 1 to 3 "
    "are all enumerated, derivatives are exact by autograd in float64. That I tends to I_emp is taken where the "
    "labels follow the model. Adam without momentum and epsilon is fed the population's gradients, weighted so "
    "that its running mean is the expectation.",
    checks=(
        Check("Gauss-Newton is Fisher", "002 Lemma H.1, eq. 58", _gauss_newton, {"quick": 12, "paper": 120}),
        Check("Gauss-Newton is the Hessian of linear logits", "002 eq. 113", _hessian, {"quick": 8, "paper": 80}),
        Check("the empirical Fisher matrix and its batches", "002 eq. 59, footnote 11", _empirical, {"quick": 8, "paper": 80}),
        Check("Adam's denominators", "002 eq. 60", _adam, {"quick": 8, "paper": 80}),
    ),
)


# --- notes.majorize: descent ------------------------------------------------------------------------------

Function = Callable[[np.ndarray], float]
Gradient = Callable[[np.ndarray], np.ndarray]


def _nuclear(matrix: np.ndarray) -> float:
    return float(np.linalg.svd(matrix, compute_uv=False).sum())


# by the rule's option: the rule, its options, the norm and its dual
DESCENTS: Mapping[str, tuple[str, dict[str, str], Function, Function]] = {
    "frobenius": ("sgd", {}, lambda x: float(np.linalg.norm(x)), lambda x: float(np.linalg.norm(x))),
    "max": (
        "steepest_descent",
        {"norm": "max", "principle": "majorization"},
        lambda x: float(np.abs(x).max()),
        lambda x: float(np.abs(x).sum()),
    ),
    "spectral": (
        "steepest_descent",
        {"norm": "spectral", "principle": "majorization"},
        lambda x: float(np.linalg.norm(x, 2)),
        _nuclear,
    ),
}


@dataclass(frozen=True)
class Smooth:
    """A smooth function of matrices.

    Args:
        value, gradient: of a matrix (m, n).
        constants: L of eq. 132 by norm, or a number above it.
    """

    value: Function
    gradient: Gradient
    constants: Mapping[str, float]


def _ridges(random: np.random.Generator, shape: tuple[int, int]) -> Smooth:
    """A sum of c_k cos(<A_k, W> + b_k), not convex; |h''| <= |c_k|, so that L <= sum |c_k| |A_k|_*^2."""
    matrices = random.standard_normal((int(random.integers(1, 5)), *shape))
    shifts, factors = random.uniform(0, 2 * np.pi, len(matrices)), random.standard_normal(len(matrices))

    def inner(weight: np.ndarray) -> np.ndarray:
        return np.asarray(np.einsum("kmn,mn->k", matrices, weight) + shifts)

    return Smooth(
        value=lambda weight: float(factors @ np.cos(inner(weight))),
        gradient=lambda weight: -np.einsum("k,kmn->mn", factors * np.sin(inner(weight)), matrices),
        constants={
            name: float(sum(abs(c) * dual(matrix) ** 2 for c, matrix in zip(factors, matrices, strict=True)))
            for name, (_, _, _, dual) in DESCENTS.items()
        },
    )


def _signs(size: int) -> np.ndarray:
    """All sign vectors, (2^size, size)."""
    return np.array(list(itertools.product([-1.0, 1.0], repeat=size)))


def _quadratic(random: np.random.Generator, shape: tuple[int, int]) -> Smooth:
    """<W, P W Q> / 2 + <B, W> with positive semi-definite P and Q, whose L are known exactly."""
    p, q = (semidefinite(random, size, int(random.integers(1, size + 1))) for size in shape)
    offset = p @ random.standard_normal(shape) @ q
    signs = _signs(shape[0] * shape[1])
    values = [np.sort(np.linalg.eigvalsh(matrix))[::-1] for matrix in (p, q)]
    count = min(shape)
    return Smooth(
        value=lambda weight: float(np.sum(weight * (p @ weight @ q)) / 2 + np.sum(offset * weight)),
        gradient=lambda weight: p @ weight @ q + offset,
        constants={
            "frobenius": float(values[0][0] * values[1][0]),
            # |H X|_1 over |X|_max <= 1 is greatest at signs; for a semi-definite H as x^T H x
            "max": float(np.einsum("si,ij,sj->s", signs, np.kron(p, q), signs).max()),
            # |P X Q|_nuc over |X|_2 <= 1: von Neumann's trace inequality, met by aligned eigenvectors
            "spectral": float(values[0][:count] @ values[1][:count]),
        },
    )


def _descent(random: np.random.Generator) -> Iterator[Measure]:
    from harness import Online

    shape = (int(random.integers(1, 4)), int(random.integers(1, 4)))
    function = (_quadratic if random.integers(2) else _ridges)(random, shape)
    start = random.standard_normal(shape)
    for name, (optimizer, options, norm, dual) in DESCENTS.items():
        rate = float(random.choice([1.0, random.uniform(0.1, 1)])) / function.constants[name]
        online = Online(optimizer, {"w": start}, {"learning_rate": rate}, options=options)
        values, bounds, slack = [function.value(start)], [], []
        for _ in range(STEPS):
            weight = online.params["w"]
            gradient = function.gradient(weight)
            bounds.append(values[-1] - rate * dual(gradient) ** 2 / 2)  # the surrogate's minimum
            for _ in range(5):
                away = random.standard_normal(shape) * 10.0 ** random.uniform(-1, 1)
                error = function.value(weight + away) - values[-1] - float(np.sum(gradient * away))
                slack.append(error * 2 * rate / norm(away) ** 2)
            values.append(function.value(online.step({"w": gradient})["w"]))
        size = max(1.0, *np.abs(values)) * max(1.0, rate * function.constants[name])
        rise = float(np.diff(values).max()) / size
        yield Measure(f"greatest rise of the loss in {STEPS} steps, relative, {name}", rise, "<=", 0.0, ROUNDING)
        above = max(value - bound for value, bound in zip(values[1:], bounds, strict=True)) / size
        yield Measure(f"loss above the surrogate's minimum, relative, {name}", above, "<=", 0.0, ROUNDING)
        yield Measure(f"linearization error over |x - z|^2 / (2 eta), {name}", max(slack), "<=", 1.0, 1e-8)


# --- notes.majorize: smoothness ---------------------------------------------------------------------------

ORDERS: Mapping[str, tuple[float, float]] = {"l1": (1, np.inf), "l2": (2, 2), "linfinity": (np.inf, 1)}


def operator_norm(hessian: np.ndarray, norm: str) -> tuple[float, np.ndarray]:
    """sup |H h|_* over |h| = 1 and an h that attains it, at an extreme point of the ball (002 eq. 135)."""
    size = len(hessian)
    if norm == "l2":
        values, vectors = np.linalg.eigh(hessian)
        candidates = vectors[:, [np.argmax(np.abs(values))]].T
    else:
        candidates = np.eye(size) if norm == "l1" else _signs(size)
    lengths = np.linalg.norm(candidates @ hessian, ORDERS[norm][1], axis=1)
    return float(lengths.max()), candidates[np.argmax(lengths)]


def _symmetric(random: np.random.Generator, size: int) -> np.ndarray:
    """Indefinite, of any rank, eigenvalues over 4 orders of magnitude, or two of them opposite."""
    values = random.choice([-1.0, 1.0], size) * 10.0 ** random.uniform(-2, 2, size)
    values[random.random(size) < 0.2] = 0.0
    values[0] = 1.0
    if size > 1 and random.integers(2):
        values[:2] = 200.0, -200.0
    vectors = orthonormal(random, size, size)
    return np.asarray((vectors * values) @ vectors.T)


def _constants(random: np.random.Generator) -> Iterator[Measure]:
    size = int(random.integers(1, 7))
    hessian = _symmetric(random, size)
    for name, (order, dual) in ORDERS.items():
        constant, extreme = operator_norm(hessian, name)
        steps = random.standard_normal((200, size)) * (random.random((200, size)) < 0.7)
        steps = steps[steps.any(1)]
        lengths = np.linalg.norm(steps, order, axis=1)
        slopes = np.linalg.norm(steps @ hessian, dual, axis=1) / lengths
        yield Measure(f"eq. 133's quotient over L of eq. 132, {name}", float(slopes.max()) / constant, "<=", 1.0, ROUNDING)
        attained = float(np.linalg.norm(hessian @ extreme, dual) / np.linalg.norm(extreme, order))
        yield Measure(f"the same where it is greatest, {name}", attained / constant, "==", 1.0, ROUNDING)
        errors = np.abs(np.einsum("si,ij,sj->s", steps, hessian, steps)) / lengths**2
        yield Measure(f"eq. 134's quotient over L of eq. 132, {name}", float(errors.max()) / constant, "<=", 1.0, ROUNDING)
        if name == "l2":
            attained = abs(float(extreme @ hessian @ extreme))
            yield Measure("eq. 134's greatest quotient over L, l2", attained / constant, "==", 1.0, ROUNDING)


def _limits(random: np.random.Generator) -> Iterator[Measure]:
    size, terms = int(random.integers(1, 7)), int(random.integers(1, 5))
    directions, shifts = random.standard_normal((terms, size)), random.uniform(0.3, 1.2, terms)
    factors = random.choice([-1.0, 1.0], terms) * random.uniform(0.5, 2, terms)
    point, small = random.standard_normal(size) * 0.01, 1e-4

    def value(x: np.ndarray) -> float:
        return float(factors @ np.cos(directions @ x + shifts))

    def gradient(x: np.ndarray) -> np.ndarray:
        return -(factors * np.sin(directions @ x + shifts)) @ directions

    hessian = -(directions.T * (factors * np.cos(directions @ point + shifts))) @ directions
    for name, (order, dual) in ORDERS.items():
        bound = float(np.sum(np.abs(factors) * np.linalg.norm(directions, dual, axis=1) ** 2))
        steps = random.standard_normal((50, size)) * 10.0 ** random.uniform(-2, 1, (50, 1))
        lengths = np.linalg.norm(steps, order, axis=1)
        slopes = [np.linalg.norm(gradient(point + step) - gradient(point), dual) for step in steps]
        yield Measure(f"eq. 133 over its bound, {name}, cosines", float(np.max(slopes / lengths)) / bound, "<=", 1.0, ROUNDING)
        errors = [abs(value(point + step) - value(point) - gradient(point) @ step) for step in steps]
        yield Measure(f"eq. 134 over its bound, {name}, cosines", float(np.max(2 * np.array(errors) / lengths**2)) / bound, "<=", 1.0, 1e-8)
        constant, extreme = operator_norm(hessian, name)
        # both sides of the point: the error is of second order in the distance
        change = gradient(point + small * extreme) - gradient(point - small * extreme)
        slope = float(np.linalg.norm(change, dual)) / (2 * small * float(np.linalg.norm(extreme, order)))
        yield Measure(f"slope of the gradient over |Hessian|, {name}, cosines", slope / constant, "==", 1.0, 1e-5)
        if name == "l2":
            error = value(point + small * extreme) + value(point - small * extreme) - 2 * value(point)
            yield Measure("second difference over |Hessian|, l2, cosines", abs(error) / small**2 / constant, "==", 1.0, 1e-5)


def _strict(random: np.random.Generator) -> Iterator[Measure]:
    size = int(random.integers(2, 7))
    i, j = random.choice(size, 2, replace=False)
    scale = float(10.0 ** random.uniform(-2, 2))
    mixed, opposed = np.zeros((2, size, size))
    mixed[i, j] = mixed[j, i] = opposed[i, i] = scale
    opposed[j, j] = -scale
    for name, hessian in (("l1", mixed), ("linfinity", opposed)):
        constant, _ = operator_norm(hessian, name)
        steps = np.concatenate([random.standard_normal((200, size)), np.eye(size), _signs(size)])
        errors = np.abs(np.einsum("si,ij,sj->s", steps, hessian, steps))
        quotients = errors / np.linalg.norm(steps, ORDERS[name][0], axis=1) ** 2
        yield Measure(f"eq. 134's greatest quotient over L of eq. 132, {name}", float(quotients.max()) / constant, "<=", 0.5, ROUNDING)


MAJORIZE = PropertyClaim(
    id="notes.majorize",
    sentence="With eta at most 1 / L in the norm of the step, majorization-minimization never raises the loss; a "
    "bounded Hessian is the same as a Lipschitz gradient and bounds the linearization error, and in the Euclidean "
    "norm all three are the same.",
    source="002 App. O, P, eqs. 132-140, Lemmas S.17 and S.18",
    setting="Descent: quadratics with known L and sums of cosines (not convex, L from |h''| <= 1) of matrices up to "
    "3 x 3, 15 steps under the Frobenius (as gradient descent), max and spectral norms, eta = 1 / L or less. "
    "Smoothness: indefinite Hessians of up to 6 rows, L at the extreme points of the norm's ball, 200 random pairs; "
    "cosines, where differences over a distance of 1e-4 stand for the limit. That eq. 134 can hold with half of "
    "eq. 132's L is shown where the Hessian is one mixed derivative (l1) or two opposed ones (l-infinity).",
    checks=(
        Check("the loss never rises and stays under its surrogate", "002 App. P, eqs. 137-140", _descent, {"quick": 15, "paper": 150}),
        Check("(132) = (133) => (134), quadratics", "002 Lemmas S.17 and S.18", _constants, {"quick": 30, "paper": 300}),
        Check("(132) = (133) => (134), cosines and limits", "002 Lemmas S.17 and S.18", _limits, {"quick": 20, "paper": 200}),
        Check("(134) is weaker outside the Euclidean norm", "002 App. O", _strict, {"quick": 10, "paper": 100}),
    ),
)

CLAIMS = (FISHER, MAJORIZE)
