"""Classification: loss and metrics of any network by its logits; fully-connected ReLU networks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

import numpy as np

from curvebench.workloads.workload import (
    MINIBATCH_LOSS,
    Array,
    Arrays,
    Likelihood,
    Metric,
    Ops,
    Role,
    Settings,
)

Draw = Callable[[int, int, np.random.Generator], np.ndarray]  # of (outputs, inputs, generator)


# `network(ops, params, state, split, training) -> (logits (examples, classes), state)`
Network = Callable[[Ops, Arrays, Arrays, Arrays, bool], tuple[Array, Arrays]]


def with_fixed_state(logits: Callable[[Ops, Arrays, Arrays, Arrays], Array]) -> Network:
    """A network by `logits(ops, params, state, split)`, which leaves the state, in training too."""

    def network(
        ops: Ops, params: Arrays, state: Arrays, split: Arrays, training: bool
    ) -> tuple[Array, Arrays]:
        return logits(ops, params, state, split), state

    return network


@dataclass(frozen=True)
class Classifier:
    """What a workload says of a network that tells classes apart.

    Args:
        network: gives logits and the new model state. In training it normalizes by the batch and moves the
            running statistics in the state; else it normalizes by these, and leaves them.
    """

    network: Network

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of a workload that it decides.

        The likelihood is the distribution of labels in training, by which the loss is; of batch norm, given
        the batch.
        """
        likelihood = Likelihood(self._outputs, "categorical")
        return {"loss": self.loss, "evaluate": self.evaluate, "likelihood": likelihood}

    def loss(
        self, ops: Ops, params: Arrays, state: Arrays, batch: Arrays, noise: Arrays
    ) -> tuple[Array, Arrays, Arrays]:
        """The mean negative log-likelihood of `labels` (000 C.2), and the new state; a workload's `loss`."""
        logits, state = self.trained(ops, params, state, batch, noise)
        found = self.log_likelihoods(ops, ops.log_softmax(logits, axis=-1), batch["labels"], noise)
        return -ops.mean(found), state, {}

    def evaluate(self, ops: Ops, params: Arrays, state: Arrays, split: Arrays) -> dict[str, Array]:
        """The loss and the share classified correctly; a workload's `evaluate`."""
        logits, _ = self.network(ops, params, state, split, False)
        return loss_and_accuracy(ops, ops.log_softmax(logits, axis=-1), split["labels"])

    def trained(
        self, ops: Ops, params: Arrays, state: Arrays, batch: Arrays, noise: Arrays
    ) -> tuple[Array, Arrays]:
        """Return the logits of a minibatch in training, and the new state."""
        return self.network(ops, params, state, batch, True)

    def log_likelihoods(self, ops: Ops, log_probabilities: Array, labels: Array, noise: Arrays) -> Array:
        """Return the log-likelihood of each example in training, (examples, 1)."""
        return log_likelihoods(ops, log_probabilities, labels)

    def _outputs(self, ops: Ops, params: Arrays, state: Arrays, batch: Arrays, noise: Arrays) -> Array:
        return self.trained(ops, params, state, batch, noise)[0]


class SizedNetwork(Protocol):
    """A network's sizes, as a study chooses them."""

    @property
    def roles(self) -> dict[str, Role]:
        """What each parameter is."""

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of each parameter."""

    def sample(self, generator: np.random.Generator) -> dict[str, np.ndarray]:
        """Initial parameters."""


def of_network(network: Callable[[Settings], SizedNetwork], classifier: Classifier) -> dict[str, Any]:
    """The fields of a workload in float32 that its network and what tells classes apart by it decide.

    Args:
        network: by completed settings.
        classifier: by which the workload tells classes apart.
    """
    return {
        "dtype": "float32",
        "shared_data": True,
        "roles": lambda settings: network(settings).roles,
        "shapes": lambda settings: network(settings).shapes,
        "sample_parameters": lambda settings, generator: network(settings).sample(generator),
        **classifier.fields,
    }


def log_likelihoods(ops: Ops, log_probabilities: Array, labels: Array) -> Array:
    """log p(label) of each example, (examples, 1)."""
    return ops.take_along_axis(log_probabilities, labels[:, None], axis=-1)


def loss_and_accuracy(ops: Ops, log_probabilities: Array, labels: Array) -> dict[str, Array]:
    """The mean negative log-likelihood, and the share of examples whose label is the most probable class."""
    correct = ops.argmax(log_probabilities, axis=-1) == labels
    return {
        "loss": -ops.mean(log_likelihoods(ops, log_probabilities, labels)),
        "accuracy": ops.mean(ops.astype_float(correct)),
    }


def classification_metrics(splits: Iterable[str]) -> dict[str, Metric]:
    """What a classifier's `evaluate` gives on each split."""
    names = tuple(splits)
    loss = {
        f"{split}_loss": Metric(f"mean negative log-likelihood on the {split} split", "minimize", "nats")
        for split in names
    }
    accuracy = {
        f"{split}_accuracy": Metric(f"share of the {split} split classified correctly", "maximize")
        for split in names
    }
    return loss | accuracy


MINIBATCH_METRICS = {
    MINIBATCH_LOSS: Metric(
        "mean negative log-likelihood of the minibatches since the evaluation before", "minimize", "nats"
    )
}  # what a classifier's steps give, without a pass over data


@dataclass(frozen=True)
class ReluNetwork:
    """A fully-connected ReLU network with parameters W1, b1, W2, b2, ...; the last weight is a head.

    Args:
        widths: units of each layer, input to output.
        weight, bias: draw the weight (outputs, inputs) and the bias (outputs,) of a layer.
    """

    widths: Sequence[int]
    weight: Draw
    bias: Draw

    @property
    def roles(self) -> dict[str, Role]:
        """What each parameter is."""
        roles, last = {}, len(self.widths) - 2
        for layer in range(last + 1):
            roles[f"W{layer + 1}"] = Role("weight" if layer < last else "head", layer)
            roles[f"b{layer + 1}"] = Role("bias", layer)
        return roles

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of each parameter."""
        shapes: dict[str, tuple[int, ...]] = {}
        for layer, (inputs, outputs) in enumerate(pairwise(self.widths), start=1):
            shapes |= {f"W{layer}": (outputs, inputs), f"b{layer}": (outputs,)}
        return shapes

    def sample(self, generator: np.random.Generator) -> dict[str, np.ndarray]:
        """Draw the parameters layer by layer, each weight before its bias."""
        parameters = {}
        for layer, (inputs, outputs) in enumerate(pairwise(self.widths), start=1):
            parameters[f"W{layer}"] = self.weight(outputs, inputs, generator)
            parameters[f"b{layer}"] = self.bias(outputs, inputs, generator)
        return parameters


def _relu_logits(ops: Ops, params: Arrays, state: Arrays, split: Arrays) -> Array:
    """The network's outputs (examples, classes) (000 C.2)."""
    scores = split["features"]
    layers = len(params) // 2
    for layer in range(1, layers + 1):
        scores = ops.linear(scores, params[f"W{layer}"], params[f"b{layer}"])
        if layer < layers:
            scores = ops.relu(scores)
    return scores


RELU_CLASSIFIER = Classifier(with_fixed_state(_relu_logits))
