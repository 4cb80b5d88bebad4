"""Classification: loss and metrics of any network by its logits; fully-connected ReLU networks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

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


class Parameter(NamedTuple):
    """A parameter of a network: its shape, what it is, and what draws its start."""

    shape: tuple[int, ...]
    role: Role
    draw: Callable[[np.random.Generator], np.ndarray]


def constant(shape: tuple[int, ...], role: Role, value: float) -> Parameter:
    """Return a parameter whose entries all start at a value."""
    return Parameter(shape, role, lambda generator: np.full(shape, value))


class SizedNetwork(ABC):
    """A network's sizes, as a study chooses them."""

    @property
    @abstractmethod
    def parameters(self) -> dict[str, Parameter]:
        """Each parameter by name, in the order that flattening keeps and that starts are drawn in."""

    @property
    def roles(self) -> dict[str, Role]:
        """What each parameter is."""
        return {name: parameter.role for name, parameter in self.parameters.items()}

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of each parameter."""
        return {name: parameter.shape for name, parameter in self.parameters.items()}

    def sample(self, generator: np.random.Generator) -> dict[str, np.ndarray]:
        """Initial parameters."""
        return {name: parameter.draw(generator) for name, parameter in self.parameters.items()}


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
class ReluNetwork(SizedNetwork):
    """A fully-connected ReLU network with parameters W1, b1, W2, b2, ...; the last weight is a head.

    Args:
        widths: units of each layer, input to output.
        weight, bias: draw the weight (outputs, inputs) and the bias (outputs,) of a layer.
    """

    widths: Sequence[int]
    weight: Draw
    bias: Draw

    @property
    def parameters(self) -> dict[str, Parameter]:
        """Layer by layer, each weight before its bias."""
        found: dict[str, Parameter] = {}
        for layer, (inputs, outputs) in enumerate(pairwise(self.widths)):
            weight = Role("weight" if layer < len(self.widths) - 2 else "head", layer)
            fans = outputs, inputs
            found[f"W{layer + 1}"] = Parameter(fans, weight, partial(self.weight, *fans))
            found[f"b{layer + 1}"] = Parameter((outputs,), Role("bias", layer), partial(self.bias, *fans))
        return found


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
