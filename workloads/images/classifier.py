"""A network that tells classes of images apart: augmented in training, over several crops in evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from curvebench.workloads.classification import Classifier, log_likelihoods, loss_and_accuracy
from curvebench.workloads.images.augmentation import DEVIATIONS, MEANS, Augmentation, normalized, partners
from curvebench.workloads.workload import Array, Arrays, Ops


@dataclass(frozen=True)
class ImageClassifier(Classifier):
    """What a workload says of a network whose splits are images, of 8 bits with channels last.

    Args:
        network: of normalized images (examples, 3, rows, columns), the field `images` of its split.
        augmentation: in training; the workload's `noise` draws its numbers.
        means, deviations: of the channels, from 0 to 1, by which images are normalized.
    """

    augmentation: Augmentation
    means: Sequence[float] = MEANS
    deviations: Sequence[float] = DEVIATIONS

    def log_likelihoods(self, ops: Ops, log_probabilities: Array, labels: Array, noise: Arrays) -> Array:
        """Return the log-likelihoods, of two labels by their weights where images are mixed."""
        found = log_likelihoods(ops, log_probabilities, labels)
        if self.augmentation.mixes:
            others = log_likelihoods(ops, log_probabilities, partners(ops, labels))
            weight = noise["weight"][:, None]
            found = weight * found + (1 - weight) * others
        return found

    def evaluate(self, ops: Ops, params: Arrays, state: Arrays, split: Arrays) -> dict[str, Array]:
        """The loss and the share classified correctly.

        Of five crops and their mirror images, by the mean of the ten's probabilities.
        """
        images = self._normalized(ops, split["images"])
        crops = 1
        if images.ndim == 5:
            images = ops.concatenate([images, ops.flip(images, -1)], 1)
            crops = images.shape[1]
            images = ops.reshape(images, (-1, *images.shape[2:]))
        logits, _ = self.network(ops, params, state, {"images": images}, False)
        found = ops.log_softmax(logits, axis=-1)
        if crops > 1:
            found = ops.reshape(found, (-1, crops, found.shape[-1]))
            largest = ops.max(found, axis=1, keepdims=True)  # else what is improbable in all of them is 0
            found = largest[:, 0] + ops.log(ops.mean(ops.exp(found - largest), axis=1))
        return loss_and_accuracy(ops, found, split["labels"])

    def _normalized(self, ops: Ops, images: Array) -> Array:
        return normalized(ops, images, self.means, self.deviations)

    def trained(
        self, ops: Ops, params: Arrays, state: Arrays, batch: Arrays, noise: Arrays
    ) -> tuple[Array, Arrays]:
        """Return the logits of the images as they are augmented, and the new state."""
        images = self.augmentation.apply(ops, self._normalized(ops, batch["images"]), noise)
        return self.network(ops, params, state, {"images": images}, True)
