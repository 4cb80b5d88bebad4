"""Logistic regression on features whose covariance has a given condition number.

X (n, d) has the features x_i in its rows, y (n,) the labels 0 and 1, and theta (d,) is the parameter. The
covariance of the features has eigenvalues with equal ratios from 1 to 1 / kappa. Its eigenvectors are the
coordinate axes, so that the features differ in scale, or a random rotation of them: a diagonal preconditioner
corrects only the former.
"""

from __future__ import annotations

import numpy as np

from curvebench.spec.values import choice, flag, number, whole
from curvebench.workloads.arguments import Array, Arrays, Ops, Random, Settings
from curvebench.workloads.matrices import orthonormal
from curvebench.workloads.workload import (
    Metric,
    Problem,
    Role,
    Setting,
    Start,
    Workload,
    batch_size,
    loss_of,
    require_batch,
)

SPLITS = ("train", "validation")
NEWTON_STEPS = 50  # more than the search for the minimum takes; further steps do not change the result


def _sigmoid(scores: np.ndarray) -> np.ndarray:
    """Return 1 / (1 + exp(-s)) for each score s."""
    return np.asarray(0.5 * (1.0 + np.tanh(scores / 2.0)))


def _minimum(features: np.ndarray, labels: np.ndarray) -> float:
    """Return the minimum of the loss, found by Newton's method with damped steps.

    Newton's method does not depend on the condition of the features. A step is halved until the loss does not
    increase. For labels that a hyperplane separates the infimum is 0.
    """

    def loss(theta: np.ndarray) -> float:
        return float(np.mean(np.logaddexp(0.0, features @ theta) - labels * (features @ theta)))

    theta = np.zeros(features.shape[1])
    for _ in range(NEWTON_STEPS):
        chances = _sigmoid(features @ theta)
        hessian = features.T @ (features * (chances * (1.0 - chances))[:, None])
        step = np.linalg.lstsq(hessian, features.T @ (chances - labels), rcond=None)[0]
        for _ in range(NEWTON_STEPS):
            if loss(theta - step) <= loss(theta):
                theta = theta - step
                break
            step = step / 2.0
    return loss(theta)


def _mean_loss(ops: Ops, params: Arrays, split: Arrays) -> Array:
    """Return the mean of -log sigma((2 y_i - 1) <x_i, theta>), where sigma is the logistic function."""
    scores = ops.matmul(split["features"], ops.astype_float(params["theta"]))
    return -ops.mean(ops.log_sigmoid((2.0 * split["labels"] - 1.0) * scores))


def _evaluate(ops: Ops, params: Arrays, state: Arrays, split: Arrays) -> dict[str, Array]:
    """Return the loss, and the loss minus its minimum (training split) or the share of correct labels."""
    loss = _mean_loss(ops, params, split)
    if "minimum" in split:
        return {"loss": loss, "suboptimality": loss - split["minimum"][0]}
    scores = ops.matmul(split["features"], ops.astype_float(params["theta"]))
    return {"loss": loss, "accuracy": ops.mean(ops.astype_float((scores > 0.0) == (split["labels"] > 0.5)))}


def _problem(settings: Settings, random: Random) -> Problem:
    """Draw x_i = Q D z_i with normal z_i, and labels from the scores <z_i, u>, whose deviation is `signal`.

    Every direction has the same share of the scores on average, whatever its variance. The true parameter is
    Q D^-1 u. A label is 1 with probability sigma(score), or, if the data are separable, where the score is
    positive.
    """
    generator, d = random("data"), settings["d"]
    deviations = settings["condition"] ** (-0.5 * np.linspace(0.0, 1.0, d))
    rotation = np.eye(d) if settings["axes"] == "aligned" else orthonormal(d, d, random("axes"))
    direction = generator.normal(size=(d,))
    direction *= settings["signal"] / np.linalg.norm(direction)
    splits: dict[str, dict[str, np.ndarray]] = {}
    for split in SPLITS:
        whitened = generator.normal(size=(settings[f"{split}_examples"], d))
        chances = _sigmoid(whitened @ direction)
        uniform = random(f"{split} labels").uniform(size=chances.shape)
        labels = chances > (0.5 if settings["separable"] else uniform)
        flipped = random(f"{split} noise").uniform(size=len(labels)) < settings["label_noise"]
        splits[split] = {
            "features": whitened * deviations @ rotation.T,
            "labels": (labels ^ flipped).astype(np.float64),
        }
    train = splits["train"]
    minimum = _minimum(train["features"], train["labels"])
    train["minimum"] = np.full(len(train["labels"]), minimum)
    return Problem({"theta": np.zeros(d)}, splits, facts={"minimum": minimum})


CONDITIONED_LOGISTIC_REGRESSION = Workload(
    name="conditioned_logistic_regression",
    description="logistic regression on features with a given condition number (d = 50)",
    source="none",
    metrics={
        "train_loss": Metric("mean negative log-likelihood on the train split", "minimize", "nats"),
        "train_suboptimality": Metric("training loss minus its minimum", "minimize", "nats"),
        "gradient_norm": Metric("Euclidean norm of the full-batch gradient", "minimize"),
        "validation_loss": Metric("mean negative log-likelihood on the validation split", "minimize", "nats"),
        "validation_accuracy": Metric("share of correct labels on the validation split", "maximize"),
    },
    settings={
        "batch_size": batch_size(),
        "d": Setting(50, "number of parameters", whole()),
        "condition": Setting(1e4, "kappa, the condition number of the features' covariance", number(1.0)),
        "axes": Setting(
            "rotated",
            "eigenvectors of the covariance: rotated at random, or the axes (badly scaled features)",
            choice("rotated", "aligned"),
        ),
        "separable": Setting(False, "whether a hyperplane separates the labels without label noise", flag),
        "signal": Setting(3.0, "standard deviation of the true scores", number(0.0)),
        "label_noise": Setting(0.0, "probability that a label is exchanged", number(0.0, 1.0)),
        "train_examples": Setting(1_000, "examples of the training split", whole()),
        "validation_examples": Setting(1_000, "examples of the validation split", whole()),
    },
    dtype="float64",
    shared_data=False,
    roles=lambda settings: {"theta": Role("vector")},
    problem=_problem,
    sample_parameters=lambda settings, generator: {"theta": np.zeros(settings["d"])},
    loss=loss_of(_mean_loss),
    evaluate=_evaluate,
    start=Start(loss=0.6931471805599453, gradient_norm=0.1415728842046204),
    check=lambda settings: require_batch(settings, settings["train_examples"]),
)

WORKLOADS = (CONDITIONED_LOGISTIC_REGRESSION,)
