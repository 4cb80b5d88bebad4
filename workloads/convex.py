"""Three convex objectives on random matrices with decaying singular values; full batch, float64.

The matrix A (n, d) has n examples a_i in its rows, and y (n,) has the targets of the examples. theta (d,) is
the parameter, and sigma is the logistic function. EGOP samples are parameters at which gradients are sampled
to estimate a basis.

In citations, 000 is the EGOP paper, "Faster Adaptive Optimization via Expected Gradient Outer Product
Reparameterization" (docs/sources.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from curvebench.spec.values import choice, number, whole
from curvebench.workloads.arguments import Array, Arrays, Ops, Random, Settings
from curvebench.workloads.matrices import power_law_matrix
from curvebench.workloads.workload import Metric, Problem, Role, Setting, Start, Workload, loss_of

EXAMPLES = 100  # default number of examples, the rows of A
LOSS = Metric("value of the objective", "minimize")
GRADIENT_NORM = Metric("Euclidean norm of the full-batch gradient", "minimize")
SUBOPTIMALITY = Metric("objective minus its minimum", "minimize")

Objective = Callable[[Ops, Arrays, Arrays], Array]


def _residuals(ops: Ops, params: Arrays, split: Arrays) -> Array:
    """Return r = A theta - y, (n,)."""
    return ops.matmul(split["features"], params["theta"]) - split["targets"]


def _log_sum_exp(ops: Ops, params: Arrays, split: Arrays) -> Array:
    """Return f = log sum_i exp(r_i^2) with r = A theta - y.

    000 eq. B.1 prints exp(r)^2 instead, which has no minimum for n = d.
    """
    return ops.logsumexp(ops.square(_residuals(ops, params, split)), axis=-1)


def _least_squares(ops: Ops, params: Arrays, split: Arrays) -> Array:
    """Return f = 1/2 ||A theta - y||^2 (000 C.6)."""
    return 0.5 * ops.sum(ops.square(_residuals(ops, params, split)), axis=-1)


def _logistic(ops: Ops, params: Arrays, split: Arrays) -> Array:
    """Return f = -sum_i [y_i log sigma(z_i) + (1 - y_i) log sigma(-z_i)] with z = A theta (000 C.6)."""
    scores, labels = ops.matmul(split["features"], params["theta"]), split["targets"]
    return -ops.sum(labels * ops.log_sigmoid(scores) + (1.0 - labels) * ops.log_sigmoid(-scores), axis=-1)


def _data(settings: Settings, random: Random) -> tuple[np.ndarray, np.ndarray]:
    """Draw the matrix A (n, d) and the true theta* ~ N(0, I), (d,)."""
    generator = random("data")
    matrix = power_law_matrix(settings["n"], settings["d"], settings["alpha"], generator)
    return matrix, generator.normal(size=(settings["d"],))


def _consistent_targets(features: np.ndarray, truth: np.ndarray, random: Random) -> np.ndarray:
    """Return y = A theta*, so that all residuals are 0 at theta*."""
    return features @ truth


def _bernoulli_labels(features: np.ndarray, truth: np.ndarray, random: Random) -> np.ndarray:
    """Draw labels 0 and 1 with P(y_i = 1) = sigma(<a_i, theta*>).

    000 C.6 prints sigma(-<a_i, theta*>), which contradicts the paper's logistic loss. Both formulas give the
    same distribution of problems, because the distribution of theta* is symmetric.
    """
    probabilities = 1.0 / (1.0 + np.exp(-(features @ truth)))
    return (random("labels").uniform(size=len(probabilities)) < probabilities).astype(np.float64)


def _start(settings: Settings, generator: np.random.Generator) -> dict[str, np.ndarray]:
    """Draw theta ~ N(0, c^2 I).

    c is the setting `start_scale`. The paper has c = 1 in C.6, for initial parameters and for EGOP samples,
    and another c in C.4.
    """
    return {"theta": settings["start_scale"] * generator.normal(size=(settings["d"],))}


def _workload(
    name: str,
    description: str,
    source: str,
    objective: Objective,
    targets: Callable[[np.ndarray, np.ndarray, Random], np.ndarray],
    minimum: Callable[[int], float] | None,
    d: int,
    alpha: float,
    start: Start,
) -> Workload:
    """Return the workload of one objective.

    Args:
        name, description, source: fields of the workload.
        objective: the objective f.
        targets: function that returns y from A, theta* and the random generators.
        minimum: function from n to the minimum of f; None if no formula is known.
        d, alpha: default values of the settings `d` and `alpha`.
        start: training loss and gradient norm at the start of the default problem.
    """

    def problem(settings: Settings, random: Random) -> Problem:
        features, truth = _data(settings, random)
        return Problem(
            parameters=_start(settings, random("parameters")),
            splits={"train": {"features": features, "targets": targets(features, truth, random)}},
            facts={} if minimum is None else {"minimum": minimum(settings["n"])},
        )

    def evaluate(ops: Ops, params: Arrays, state: Arrays, split: Arrays) -> dict[str, Array]:
        value = objective(ops, params, split)
        if minimum is None:
            return {"loss": value}
        return {"loss": value, "suboptimality": value - minimum(split["targets"].shape[0])}

    metrics = {"train_loss": LOSS, "gradient_norm": GRADIENT_NORM}
    return Workload(
        name=name,
        description=description,
        source=source,
        metrics=metrics if minimum is None else {**metrics, "train_suboptimality": SUBOPTIMALITY},
        settings={
            "batch_size": Setting(None, "full batch, the only choice (000 C.6)", read=choice(None)),
            "n": Setting(EXAMPLES, "rows of A, the number of examples", whole()),
            "d": Setting(d, "columns of A, the number of parameters", whole()),
            "alpha": Setting(alpha, "decay of A's singular values, sigma_k = k^-alpha", number(0.0)),
            "start_scale": Setting(1.0, "standard deviation of the entries of the start", number(0.0)),
        },
        dtype="float64",
        shared_data=False,
        roles=lambda settings: {"theta": Role("vector")},
        problem=problem,
        sample_parameters=_start,
        loss=loss_of(objective),
        evaluate=evaluate,
        start=start,
    )


LOG_SUM_EXP = _workload(
    name="log_sum_exp",
    description="log-sum-exp of squared residuals",
    source="000 eq. B.1, C.6, Fig. 17a",
    objective=_log_sum_exp,
    targets=_consistent_targets,
    minimum=math.log,
    d=100,
    alpha=1.5,
    start=Start(4.6654076184232345, 0.05293789301143409),
)

LEAST_SQUARES = _workload(
    name="least_squares",
    description="linear least squares",
    source="000 C.6, Fig. 17c",
    objective=_least_squares,
    targets=_consistent_targets,
    minimum=lambda n: 0.0,
    d=100,
    alpha=2.0,
    start=Start(1.60530025673775, 1.7818888720786938),
)

LOGISTIC_REGRESSION = _workload(
    name="logistic_regression",
    description="logistic regression on Bernoulli labels",
    source="000 C.6, Fig. 17b",
    objective=_logistic,
    targets=_bernoulli_labels,
    minimum=None,
    d=3,
    alpha=2.0,
    start=Start(69.2233498801109, 0.08987379045908327),
)

WORKLOADS = (LOG_SUM_EXP, LEAST_SQUARES, LOGISTIC_REGRESSION)
