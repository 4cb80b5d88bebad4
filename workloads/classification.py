"""Classification: loss and metrics of any network by its logits; fully-connected ReLU networks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from workloads.workload import Array, Arrays, Likelihood, Metric, Ops, Role

Draw = Callable[[int, int, np.random.Generator], np.ndarray]  # of (outputs, inputs, generator)


@dataclass(frozen=True)
class Classifier:
    """What a workload says of a network that tells classes apart.

    Args:
        logits: `logits(ops, params, state, split, noise) -> (examples, classes)`.
    """

    logits: Callable[[Ops, Arrays, Arrays, Arrays, Arrays], Array]

    @property
    def likelihood(self) -> Likelihood:
        """The distribution of labels."""
        return Likelihood(self.logits, "categorical")

    def loss(
        self, ops: Ops, params: Arrays, state: Arrays, batch: Arrays, noise: Arrays
    ) -> tuple[Array, Arrays, Arrays]:
        """The mean negative log-likelihood of `labels` (000 C.2); a workload's `loss`."""
        found = self._log_probabilities(ops, params, batch)
        return _negative_log_likelihood(ops, found, batch["labels"]), state, {}

    def evaluate(self, ops: Ops, params: Arrays, state: Arrays, split: Arrays) -> dict[str, Array]:
        """The loss and the share classified correctly; a workload's `evaluate`."""
        found = self._log_probabilities(ops, params, split)
        correct = ops.argmax(found, axis=-1) == split["labels"]
        return {
            "loss": _negative_log_likelihood(ops, found, split["labels"]),
            "accuracy": ops.mean(ops.astype_float(correct)),
        }

    def _log_probabilities(self, ops: Ops, params: Arrays, split: Arrays) -> Array:
        return ops.log_softmax(self.logits(ops, params, {}, split, {}), axis=-1)


def _negative_log_likelihood(ops: Ops, log_probabilities: Array, labels: Array) -> Array:
    """The mean over examples of -log p(label)."""
    return -ops.mean(ops.take_along_axis(log_probabilities, labels[:, None], axis=-1))


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


def relu_roles(widths: Sequence[int]) -> dict[str, Role]:
    """W1, b1, W2, b2, ... for the units of each layer, input to output."""
    roles = {}
    for layer in range(1, len(widths)):
        roles[f"W{layer}"] = Role("weight", layer - 1)
        roles[f"b{layer}"] = Role("bias", layer - 1)
    return roles


def sample_relu_parameters(
    widths: Sequence[int], weight: Draw, bias: Draw, generator: np.random.Generator
) -> dict[str, np.ndarray]:
    """Weights (outputs, inputs) and biases (outputs,), each drawn from its distribution, layer by layer."""
    parameters = {}
    for layer, (inputs, outputs) in enumerate(pairwise(widths), start=1):
        parameters[f"W{layer}"] = weight(outputs, inputs, generator)
        parameters[f"b{layer}"] = bias(outputs, inputs, generator)
    return parameters


def _logits(ops: Ops, params: Arrays, state: Arrays, split: Arrays, noise: Arrays) -> Array:
    """The network's outputs (examples, classes) (000 C.2)."""
    scores = split["features"]
    layers = len(params) // 2
    for layer in range(1, layers + 1):
        scores = ops.linear(scores, params[f"W{layer}"], params[f"b{layer}"])
        if layer < layers:
            scores = ops.relu(scores)
    return scores


RELU_CLASSIFIER = Classifier(_logits)
