"""Softmax regression on classes with a heavy-tailed distribution of frequencies, as words of a language have.

Class k, k >= 1, has a frequency proportional to k^-a (Zipf's law). Most classes are rare, and together they
are a large part of the examples. Plain gradient descent decreases the loss of rare classes slowly; methods
that are invariant to the scale of the gradient do not.

Source: Kunstner, Yadav, Milligan, Schmidt and Bietti 2024, "Heavy-tailed class imbalance and why Adam
outperforms gradient descent on language models" (arXiv 2402.19449), Sec. 2.
"""

from __future__ import annotations

import numpy as np

from curvebench.spec.values import number, whole
from curvebench.workloads.arguments import Array, Arrays, Ops, Random, Settings
from curvebench.workloads.classification import Classifier, log_likelihoods, with_fixed_state
from curvebench.workloads.matrices import xavier_normal
from curvebench.workloads.workload import (
    Metric,
    Problem,
    Role,
    Setting,
    Start,
    Workload,
    batch_size,
    require_batch,
)

SPLITS = ("train", "validation")
GROUPS = ("frequent", "middle", "rare")  # groups of classes, each with about a third of the examples


def frequencies(classes: int, exponent: float) -> np.ndarray:
    """Return the frequency of each class, (classes,), proportional to k^-exponent for k >= 1."""
    weights = np.arange(1, classes + 1) ** -float(exponent)
    return weights / weights.sum()


def groups_of(shares: np.ndarray) -> np.ndarray:
    """Return the index of each class's group, (classes,).

    A class belongs to the third of all examples in which its middle example is, if examples are sorted from
    frequent to rare classes.

    Args:
        shares: frequencies of the classes in descending order, (classes,).
    """
    return np.floor(len(GROUPS) * (np.cumsum(shares) - shares / 2)).astype(np.int64)


def _parameters(settings: Settings, generator: np.random.Generator) -> dict[str, np.ndarray]:
    """Draw a Xavier normal weight (classes, features); the bias is 0."""
    shape = settings["classes"], settings["features"]
    return {"W": xavier_normal(*shape, generator), "b": np.zeros(settings["classes"])}


def _problem(settings: Settings, random: Random) -> Problem:
    """Draw class means s m_k with m_k ~ N(0, I), labels by Zipf's law, and features ~ N(mean of class, I).

    s is the setting `signal`.
    """
    generator = random("data")
    shares = frequencies(settings["classes"], settings["exponent"])
    means = settings["signal"] * generator.normal(size=(settings["classes"], settings["features"]))
    splits = {}
    for split in SPLITS:
        labels = np.asarray(generator.choice(len(shares), settings[f"{split}_examples"], p=shares))
        features = means[labels] + generator.normal(size=(len(labels), settings["features"]))
        splits[split] = {"features": features, "labels": labels, "group": groups_of(shares)[labels]}
    return Problem(_parameters(settings, random("parameters")), splits)


def _logits(ops: Ops, params: Arrays, state: Arrays, split: Arrays) -> Array:
    """Return the outputs (examples, classes)."""
    return ops.linear(split["features"], params["W"], params["b"])


def _evaluate(ops: Ops, params: Arrays, state: Arrays, split: Arrays) -> dict[str, Array]:
    """Return the mean negative log-likelihood of all examples, and of the examples of each group of classes.

    The value of a group without examples is 0.
    """
    log_probabilities = ops.log_softmax(_logits(ops, params, state, split), axis=-1)
    losses = -log_likelihoods(ops, log_probabilities, split["labels"])[:, 0]
    values = {"loss": ops.mean(losses)}
    for index, group in enumerate(GROUPS):
        is_member = ops.astype_float(split["group"] == index)
        values[f"{group}_loss"] = ops.sum(is_member * losses) / ops.maximum(ops.sum(is_member), 1.0)
    return values


HEAVY_TAILED_SOFTMAX = Workload(
    name="heavy_tailed_softmax",
    description="softmax regression on 100 classes with Zipf's frequencies (d = 3300)",
    source="Kunstner et al. 2024, arXiv 2402.19449, Sec. 2",
    metrics={
        f"{split}_{group}loss": Metric(
            f"mean negative log-likelihood of {which} on the {split} split", "minimize", "nats"
        )
        for split in SPLITS
        for group, which in (
            ("", "all examples"),
            *((f"{group}_", f"the third of examples with {group} classes") for group in GROUPS),
        )
    },
    settings={
        "batch_size": batch_size(),
        "classes": Setting(100, "number of classes", whole(2)),
        "features": Setting(32, "numbers of an example", whole()),
        "exponent": Setting(1.0, "a of the frequencies k^-a; 0 gives balanced classes", number(0.0)),
        "signal": Setting(
            1.0, "standard deviation of the entries of class means; that of the noise is 1", number(0.0)
        ),
        "train_examples": Setting(1_000, "examples of the training split", whole()),
        "validation_examples": Setting(1_000, "examples of the validation split", whole()),
    },
    dtype="float64",
    shared_data=False,
    linear_input=("W", "features"),
    roles=lambda settings: {"W": Role("weight"), "b": Role("bias")},
    problem=_problem,
    sample_parameters=_parameters,
    **{**Classifier(with_fixed_state(_logits)).fields, "evaluate": _evaluate},
    start=Start(5.236991691939157, 1.3555575962100264),
    check=lambda settings: require_batch(settings, settings["train_examples"]),
)

WORKLOADS = (HEAVY_TAILED_SOFTMAX,)
