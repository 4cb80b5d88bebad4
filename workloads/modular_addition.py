"""Addition modulo a number p, learned as classification by an embedding and a network with a hidden layer.

The examples are the p^2 pairs (a, b), and the label of a pair is (a + b) mod p. A share of the pairs is the
training split, and all others are the validation split. Networks fit the training split within some tens of
steps, and generalize many steps later, if at all, mostly when weights decay (Power et al. 2022, "Grokking:
generalization beyond overfitting on small algorithmic datasets"). Therefore the steps until a validation
accuracy is reached are compared, and runs that do not reach it are censored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from curvebench.spec.values import choice, number, whole
from curvebench.workloads.arguments import Array, Arrays, Ops, Random, Settings
from curvebench.workloads.classification import (
    Classifier,
    Parameter,
    SizedNetwork,
    classification_metrics,
    constant,
    of_network,
    with_fixed_state,
)
from curvebench.workloads.data import random_parts
from curvebench.workloads.matrices import xavier_normal
from curvebench.workloads.workload import Problem, Role, Setting, Start, Workload, batch_size, require_batch

# For each activation: a function from `ops` to the activation function.
ACTIVATIONS: Mapping[str, Callable[[Ops], Callable[[Array], Array]]] = {
    "square": lambda ops: ops.square,
    "relu": lambda ops: ops.relu,
}


@dataclass(frozen=True)
class ModularNetwork(SizedNetwork):
    """An embedding of the summands, a hidden layer, and an output for each residue class.

    Args:
        modulus: the number p of residue classes.
        width: units of the embedding of a summand; both summands share the embedding.
        hidden: units of the hidden layer.
    """

    modulus: int
    width: int
    hidden: int

    @property
    def parameters(self) -> dict[str, Parameter]:
        """Parameters: standard normal embedding, Xavier normal weights, biases of 0."""
        layers = {
            "W1": ((self.hidden, 2 * self.width), Role("weight", 1)),
            "W2": ((self.modulus, self.hidden), Role("head", 2)),
        }
        size = (self.modulus, self.width)
        table = {
            "embedding": Parameter(size, Role("embedding", 0), lambda generator: generator.normal(size=size))
        }
        for name, (shape, role) in layers.items():
            table[name] = Parameter(shape, role, partial(xavier_normal, *shape))
            table[f"b{role.layer}"] = constant(shape[:1], Role("bias", role.layer), 0.0)
        return table


def _network(settings: Settings) -> ModularNetwork:
    """Return the network that the settings describe."""
    return ModularNetwork(settings["modulus"], settings["width"], settings["hidden"])


def _logits(ops: Ops, params: Arrays, state: Arrays, split: Arrays, activation: str) -> Array:
    """Return W2 f(W1 [e_a, e_b] + b1) + b2, (examples, p), where e_a is row a of the embedding."""
    pairs = ops.take(params["embedding"], split["summands"], 0)
    features = ops.reshape(pairs, (pairs.shape[0], -1))
    hidden = ACTIVATIONS[activation](ops)(ops.linear(features, params["W1"], params["b1"]))
    return ops.linear(hidden, params["W2"], params["b2"])


def _counts(settings: Settings) -> dict[str, int]:
    """Return the number of pairs in each split."""
    pairs = settings["modulus"] ** 2
    train = round(settings["train_share"] * pairs)
    return {"train": train, "validation": pairs - train}


def _problem(settings: Settings, random: Random) -> Problem:
    """Divide all pairs at random into the splits, differently for each seed."""
    summands = np.indices((settings["modulus"],) * 2).reshape(2, -1).T
    labels = summands.sum(axis=1) % settings["modulus"]
    parts = random_parts(_counts(settings), random("split"))
    return Problem(
        parameters=_network(settings).sample(random("parameters")),
        splits={name: {"summands": summands[part], "labels": labels[part]} for name, part in parts.items()},
    )


def _check(settings: Settings) -> None:
    """Check that both splits have examples, and that a minibatch is not larger than the training split."""
    counts = _counts(settings)
    for split, count in counts.items():
        if not count:
            raise ValueError(f"train_share = {settings['train_share']} leaves no pair for the {split} split")
    require_batch(settings, counts["train"])


def _workload(activation: str) -> Workload:
    """Return the workload of networks with an activation function."""
    classifier = Classifier(with_fixed_state(partial(_logits, activation=activation)))
    fields: dict[str, Any] = {**of_network(_network, classifier), "shared_data": False}
    return Workload(
        name="modular_addition",
        description="network with an embedding that learns addition modulo 31 (d = 13311)",
        source="Power et al. 2022; Gromov 2023, arXiv 2301.02679 (square activation)",
        metrics=classification_metrics(("train", "validation")),
        settings={
            "batch_size": batch_size(),
            "modulus": Setting(31, "the number p of residue classes; there are p^2 pairs", whole(2)),
            "train_share": Setting(
                0.6,
                "share of the pairs in the training split; the smaller, the later a network generalizes",
                number(0.0, 1.0),
            ),
            "width": Setting(32, "units of the embedding of a summand", whole()),
            "hidden": Setting(128, "units of the hidden layer", whole()),
            "activation": Setting(
                "square",
                "of the hidden layer: square, whose sums of cosines solve the problem exactly, or relu",
                choice(*ACTIVATIONS),
            ),
        },
        **fields,
        problem=_problem,
        start=Start(4.45418379383824, 1.5617862375344227),
        check=_check,
        bind=lambda settings: BY_ACTIVATION[settings["activation"]],
    )


BY_ACTIVATION = {activation: _workload(activation) for activation in ACTIVATIONS}
WORKLOADS = (BY_ACTIVATION["square"],)
