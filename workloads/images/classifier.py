"""Classification of images, which are augmented in training; evaluation can average over several crops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from curvebench.workloads.arguments import Array, Arrays, Ops
from curvebench.workloads.classification import Classifier, log_likelihoods, loss_and_accuracy
from curvebench.workloads.images.augmentation import DEVIATIONS, MEANS, Augmentation, normalized, partners


@dataclass(frozen=True)
class ImageClassifier(Classifier):
    """A classifier for splits that contain 8-bit images with channels last.

    Args:
        network: network for normalized images (examples, 3, rows, columns) in the field `images` of its
            split.
        augmentation: augmentation in training; the workload's `noise` must draw its random numbers.
        means: means of the channels, from 0 to 1, for the normalization of images.
        deviations: standard deviations of the channels, in the same units.
    """

    augmentation: Augmentation
    means: Sequence[float] = MEANS
    deviations: Sequence[float] = DEVIATIONS

    def log_likelihoods(self, ops: Ops, log_probabilities: Array, labels: Array, noise: Arrays) -> Array:
        """Return the log-likelihood of each example; for mixed images, the weighted mean over both labels."""
        own_terms = log_likelihoods(ops, log_probabilities, labels)
        if self.augmentation.mixes:
            other_terms = log_likelihoods(ops, log_probabilities, partners(ops, labels))
            weight = noise["weight"][:, None]
            own_terms = weight * own_terms + (1 - weight) * other_terms
        return own_terms

    def evaluate(self, ops: Ops, params: Arrays, state: Arrays, split: Arrays) -> dict[str, Array]:
        """Return the loss and the share of correctly classified examples.

        If a split has five crops of each image, the class probabilities are averaged over the crops and their
        mirror images.
        """
        images = self._normalized(ops, split["images"])
        crops = 1
        if images.ndim == 5:
            images = ops.concatenate([images, ops.flip(images, -1)], 1)
            crops = images.shape[1]
            images = ops.reshape(images, (-1, *images.shape[2:]))
        logits, _ = self.network(ops, params, state, {"images": images}, False)
        scores = ops.log_softmax(logits, axis=-1)
        if crops > 1:
            scores = ops.reshape(scores, (-1, crops, scores.shape[-1]))
            # The maximum is subtracted so that probabilities that are small in all crops do not become 0.
            largest = ops.max(scores, axis=1, keepdims=True)
            scores = largest[:, 0] + ops.log(ops.mean(ops.exp(scores - largest), axis=1))
        return loss_and_accuracy(ops, scores, split["labels"])

    def _normalized(self, ops: Ops, images: Array) -> Array:
        """Return normalized images with channels first."""
        return normalized(ops, images, self.means, self.deviations)

    def trained(
        self, ops: Ops, params: Arrays, state: Arrays, batch: Arrays, noise: Arrays
    ) -> tuple[Array, Arrays]:
        """Return the logits of the augmented images, and the new state."""
        images = self.augmentation.apply(ops, self._normalized(ops, batch["images"]), noise)
        return self.network(ops, params, state, {"images": images}, True)
