"""Fisher matrix of small classifiers: its relation to Gauss-Newton, Hessian, minibatches and Adam.

Equations are those of 002, Stratos (2026), "Adaptive Learning Methods", a set of notes (docs/sources.md). N
is the number of inputs, K the number of labels, d the number of weights, and g the gradient at one input and
label.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from curvebench.benchmarks.claims._matrices import relative_error
from curvebench.benchmarks.claims._measures import agrees, at_least, vanishes
from curvebench.benchmarks.claims._moves import moves
from curvebench.benchmarks.claims._parts import Random, part
from curvebench.property_checks.checks import Measure, PropertyClaim

ROUNDING = 1e-10
# Minimum relative difference of two quantities that 002 calls unequal without saying by how much.
BEYOND_ROUNDING = 1e-6


@dataclass(frozen=True)
class PopulationDerivatives:
    """Softmax classifier on a finite population, with its derivatives with respect to all d weights.

    Args:
        inputs: probability of each input, (N,).
        labels: probability of each label in the population, (N, K).
        predicted: probability of each label under the model, (N, K).
        gradients: gradient of the loss at each input and label, (N, K, d).
        jacobian: Jacobian of the logits, (N, K, d).
        curvature: Hessian of the loss with respect to the logits at each label, (N, K, K, K).
        logit_hessians: Hessian of each logit, (N, K, d, d).
        hessian: Hessian of the expected loss, (d, d).
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
        """Return the Gauss-Newton term of eq. 113, averaged over inputs.

        The Hessian of the loss with respect to the logits is taken at the label `label`.
        """
        return np.einsum(
            "x,xkd,xkl,xle->de", self.inputs, self.jacobian, self.curvature[:, label], self.jacobian
        )

    def second_moment(self, labels: np.ndarray) -> np.ndarray:
        """Return E[g g^T] for given probabilities of the labels, (N, K).

        For the probabilities that the model predicts, E[g g^T] is the Fisher matrix (eqs. 58-59).
        """
        return np.einsum("x,xk,xkd,xke->de", self.inputs, labels, self.gradients, self.gradients)

    def mean(self, labels: np.ndarray) -> np.ndarray:
        """Return the mean gradient E[g], (d,), for given probabilities of the labels, (N, K)."""
        return np.einsum("x,xk,xkd->d", self.inputs, labels, self.gradients)


def _classifier(random: Random, linear: bool, labels_of_model: bool = False) -> PopulationDerivatives:
    """Draw a classifier with 2 or 3 classes and inputs; some labels have probability 1.

    Args:
        random: generator of the instance.
        linear: whether the logits are W x; otherwise they are W_2 tanh(W_1 x).
        labels_of_model: whether the labels have the probabilities that the model predicts.
    """
    import torch
    from torch.func import hessian, jacrev, vmap

    classes, examples, features, hidden = (
        int(count) for count in random.integers((2, 2, 1, 1), (4, 4, 4, 4))
    )
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

    return PopulationDerivatives(
        inputs=inputs,
        labels=labels,
        predicted=predicted,
        gradients=at_points(jacrev(lambda weights, point: losses(logits(weights, point)))),
        jacobian=at_points(jacrev(logits)),
        curvature=vmap(hessian(losses))(values).numpy(),
        logit_hessians=at_points(hessian(logits)),
        hessian=hessian(expected)(weights).numpy(),
    )


def _either(random: Random) -> PopulationDerivatives:
    return _classifier(random, linear=bool(random.integers(2)))


def _gauss_newton(random: Random) -> Iterator[Measure]:
    model = _either(random)
    fisher = model.second_moment(model.predicted)
    for label in range(model.labels.shape[1]):
        error = relative_error(model.gauss_newton(label), fisher)
        yield vanishes("Gauss-Newton less Fisher, relative, at each label", error, ROUNDING)
    size = float(np.sqrt(np.trace(fisher)))
    mean = float(np.linalg.norm(model.mean(model.predicted)))
    yield vanishes("|E[g]| over sqrt(E[|g|^2]), labels of the model", mean / size, ROUNDING)


def _hessian(random: Random) -> Iterator[Measure]:
    model = _classifier(random, linear=True)
    error = relative_error(model.gauss_newton(0), model.hessian)
    yield vanishes("Gauss-Newton less Hessian, relative, logits linear in w", error, ROUNDING)
    model = _classifier(random, linear=False)
    # E[p - e_y], where p are predicted probabilities and e_y is the label's unit vector.
    slopes = model.predicted - model.labels
    rest = np.einsum("x,xk,xkde->de", model.inputs, slopes, model.logit_hessians)
    scale = float(np.linalg.norm(model.gauss_newton(0)) + np.linalg.norm(rest))
    error = float(np.linalg.norm(model.gauss_newton(0) + rest - model.hessian)) / scale
    yield vanishes("both terms of eq. 113 less Hessian, relative, logits not linear", error, ROUNDING)
    distance = relative_error(model.gauss_newton(0), model.hessian)
    yield at_least("Gauss-Newton less Hessian, relative, logits not linear", distance, BEYOND_ROUNDING)


def _pairs(model: PopulationDerivatives) -> tuple[np.ndarray, np.ndarray]:
    """Return the probabilities (pairs,) and gradients (pairs, d) of all pairs of input and label."""
    shares = (model.inputs[:, None] * model.labels).ravel()
    return shares[shares > 0], model.gradients.reshape(len(shares), -1)[shares > 0]


def _empirical(random: Random) -> Iterator[Measure]:
    model = _either(random)
    empirical, mean = model.second_moment(model.labels), model.mean(model.labels)
    shares, gradients = _pairs(model)
    centred = gradients - mean
    covariance = (shares[:, None] * centred).T @ centred
    yield agrees("eq. 59, relative error", covariance + np.outer(mean, mean), empirical, ROUNDING)
    batch = int(random.integers(1, 4))
    chosen = np.array(list(itertools.product(range(len(shares)), repeat=batch)))
    likely, batched = shares[chosen].prod(1), gradients[chosen].mean(1)
    measured = (likely[:, None] * batched).T @ batched
    expected = empirical / batch + (1 - 1 / batch) * np.outer(mean, mean)
    yield agrees("E[g_B g_B^T] less footnote 11's, relative", measured, expected, ROUNDING)
    own = _classifier(random, linear=bool(random.integers(2)), labels_of_model=True)
    error = relative_error(own.second_moment(own.labels), own.gauss_newton(0))
    yield vanishes("I_emp less Fisher, relative, where labels follow the model", error, ROUNDING)


def _adam(random: Random) -> Iterator[Measure]:
    model, beta2 = _either(random), float(random.uniform(0.7, 0.99))
    shares, gradients = _pairs(model)
    # Scale gradients so that Adam's running mean weights their squares by the probability of input and label.
    kept = (1 - beta2) * beta2 ** np.arange(len(shares) - 1, -1, -1.0)
    fed = np.sqrt(shares / (kept / kept.sum()))[:, None] * gradients
    step = -moves("adam", fed, {"beta1": 0.0, "beta2": beta2, "epsilon": 0.0})[-1]
    diagonal = np.diag(model.second_moment(model.labels))
    expected = fed[-1] / np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
    yield agrees("Adam's step less diag(I_emp)^-1/2 g, relative", step, expected, ROUNDING)


FISHER = PropertyClaim(
    id="notes.fisher",
    sentence=(
        "For cross-entropy the Gauss-Newton matrix is the Fisher matrix, and the Hessian where logits are "
        "linear in the weights; the empirical Fisher matrix of batched gradients is I_emp / B + (1 - 1 / B) "
        "g g^T; Adam divides by the root of the diagonal of I_emp."
    ),
    source="002 Sec. 6.1, eqs. 58-60, footnote 11, App. H, eqs. 111-114, Lemma H.1",
    setting=(
        "Softmax classifiers of 2 or 3 classes on populations of 2 or 3 inputs with 1 to 3 features, logits "
        "W x or W_2 tanh(W_1 x), labels of any distribution, some certain; expectations are exact sums, "
        "batches of 1 to 3 are all enumerated, derivatives are exact by autograd in float64. That I tends "
        "to I_emp is taken where the labels follow the model. Adam without momentum and epsilon is fed the "
        "population's gradients, weighted so that its running mean is the expectation."
    ),
    checks=(
        part("Gauss-Newton is Fisher", "002 Lemma H.1, eq. 58", _gauss_newton, 12),
        part("Gauss-Newton is the Hessian of linear logits", "002 eq. 113", _hessian, 8),
        part("the empirical Fisher matrix and its batches", "002 eq. 59, footnote 11", _empirical, 8),
        part("Adam's denominators", "002 eq. 60", _adam, 8),
    ),
)

CLAIMS = (FISHER,)
