"""Classification: loss and metrics of a network that computes logits, and fully connected ReLU networks.

The state of a model is the arrays that steps change besides the parameters, such as the running statistics of
batch norm. A split is one of train, validation and test: a mapping of field names to arrays whose first axis
counts examples.

In citations, 000 is the EGOP paper, "Faster Adaptive Optimization via Expected Gradient Outer Product
Reparameterization" (docs/sources.md).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from curvebench.workloads.arguments import Array, Arrays, Ops, Settings
from curvebench.workloads.workload import MINIBATCH_LOSS, Likelihood, Metric, Role

# Function `draw(outputs, inputs, generator)`, which draws the initial weight or bias of a layer.
Draw = Callable[[int, int, np.random.Generator], np.ndarray]


# `network(ops, params, state, split, training) -> (logits (examples, classes), state)`
Network = Callable[[Ops, Arrays, Arrays, Arrays, bool], tuple[Array, Arrays]]


def with_fixed_state(logits: Callable[[Ops, Arrays, Arrays, Arrays], Array]) -> Network:
    """Return a network whose state never changes, from a function `logits(ops, params, state, split)`."""

    def network(
        ops: Ops, params: Arrays, state: Arrays, split: Arrays, training: bool
    ) -> tuple[Array, Arrays]:
        return logits(ops, params, state, split), state

    return network


@dataclass(frozen=True)
class Classifier:
    """Loss, metrics and likelihood of a workload with a network that classifies examples.

    Args:
        network: function that computes logits and the new model state. A network with batch norm normalizes
            with statistics of the batch in training, and updates the running statistics in the state. In
            evaluation, the network normalizes with the running statistics.
    """

    network: Network

    @property
    def fields(self) -> dict[str, Any]:
        """Fields `loss`, `evaluate` and `likelihood` for the constructor of a workload.

        The likelihood is the distribution of labels that the training loss assumes. With batch norm, the
        likelihood is conditional on the batch.
        """
        likelihood = Likelihood(self._outputs, "categorical")
        return {"loss": self.loss, "evaluate": self.evaluate, "likelihood": likelihood}

    def loss(
        self, ops: Ops, params: Arrays, state: Arrays, batch: Arrays, noise: Arrays
    ) -> tuple[Array, Arrays, Arrays]:
        """Return the mean negative log-likelihood of the batch's labels (000 C.2), and the new model
        state.
        """
        logits, state = self.trained(ops, params, state, batch, noise)
        terms = self.log_likelihoods(ops, ops.log_softmax(logits, axis=-1), batch["labels"], noise)
        return -ops.mean(terms), state, {}

    def evaluate(self, ops: Ops, params: Arrays, state: Arrays, split: Arrays) -> dict[str, Array]:
        """Return the loss and the share of correctly classified examples."""
        logits, _ = self.network(ops, params, state, split, False)
        return loss_and_accuracy(ops, ops.log_softmax(logits, axis=-1), split["labels"])

    def trained(
        self, ops: Ops, params: Arrays, state: Arrays, batch: Arrays, noise: Arrays
    ) -> tuple[Array, Arrays]:
        """Return the logits of a minibatch in training, and the new model state."""
        return self.network(ops, params, state, batch, True)

    def log_likelihoods(self, ops: Ops, log_probabilities: Array, labels: Array, noise: Arrays) -> Array:
        """Return the log-likelihood of each example in training, (examples, 1)."""
        return log_likelihoods(ops, log_probabilities, labels)

    def _outputs(self, ops: Ops, params: Arrays, state: Arrays, batch: Arrays, noise: Arrays) -> Array:
        """Return the logits without the state, as the field `outputs` of `Likelihood` requires."""
        return self.trained(ops, params, state, batch, noise)[0]


class Parameter(NamedTuple):
    """A parameter of a network: its shape, its role, and the function that draws its initial value."""

    shape: tuple[int, ...]
    role: Role
    draw: Callable[[np.random.Generator], np.ndarray]


def constant(shape: tuple[int, ...], role: Role, value: float) -> Parameter:
    """Return a parameter whose entries all have the initial value `value`."""
    return Parameter(shape, role, lambda generator: np.full(shape, value))


class SizedNetwork(ABC):
    """A network whose sizes are determined by a study's settings."""

    @property
    @abstractmethod
    def parameters(self) -> dict[str, Parameter]:
        """Parameters by name, in the order of the flat parameter vector and of drawing initial values."""

    @property
    def roles(self) -> dict[str, Role]:
        """Role of each parameter."""
        return {name: parameter.role for name, parameter in self.parameters.items()}

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of each parameter."""
        return {name: parameter.shape for name, parameter in self.parameters.items()}

    def sample(self, generator: np.random.Generator) -> dict[str, np.ndarray]:
        """Draw initial parameters."""
        return {name: parameter.draw(generator) for name, parameter in self.parameters.items()}


def of_network(network: Callable[[Settings], SizedNetwork], classifier: Classifier) -> dict[str, Any]:
    """Return the fields of a float32 workload that follow from its network and its classifier.

    Args:
        network: function from completed settings to the network.
        classifier: loss, metrics and likelihood.
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
    """Return log p(label) of each example, (examples, 1), or of each position, (examples, positions, 1)."""
    return ops.take_along_axis(log_probabilities, labels[..., None], axis=-1)


def loss_and_accuracy(ops: Ops, log_probabilities: Array, labels: Array) -> dict[str, Array]:
    """Return the mean negative log-likelihood, and the share of examples classified correctly."""
    correct = ops.argmax(log_probabilities, axis=-1) == labels
    return {
        "loss": -ops.mean(log_likelihoods(ops, log_probabilities, labels)),
        "accuracy": ops.mean(ops.astype_float(correct)),
    }


def classification_metrics(splits: Iterable[str]) -> dict[str, Metric]:
    """Return the metrics that a classifier's `evaluate` computes on each split."""
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


# Metrics that training steps of a classifier compute themselves, without an additional pass over the data.
MINIBATCH_METRICS = {
    MINIBATCH_LOSS: Metric(
        "mean negative log-likelihood of the minibatches since the evaluation before", "minimize", "nats"
    )
}
