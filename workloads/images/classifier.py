"""A network that tells classes of images apart: augmented in training, over several crops in evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from curvebench.workloads.classification import Network, log_likelihoods, loss_and_accuracy
from curvebench.workloads.images.augmentation import DEVIATIONS, MEANS, Augmentation, normalized, partners
from curvebench.workloads.workload import Array, Arrays, Likelihood, Ops


@dataclass(frozen=True)
class ImageClassifier:
    """What a workload says of a network whose splits are images, of 8 bits with channels last.

    Args:
        network: of normalized images (examples, 3, rows, columns), the field `images` of its split.
        augmentation: in training; the workload's `noise` draws its numbers.
        means, deviations: of the channels, from 0 to 1, by which images are normalized.
    """

    network: Network
    augmentation: Augmentation
    means: Sequence[float] = MEANS
    deviations: Sequence[float] = DEVIATIONS

    @property
    def likelihood(self) -> Likelihood:
        """The distribution of labels in training, given the images as they are augmented."""
        return Likelihood(self._outputs, "categorical")

    def loss(
        self, ops: Ops, params: Arrays, state: Arrays, batch: Arrays, noise: Arrays
    ) -> tuple[Array, Arrays, Arrays]:
        """The mean negative log-likelihood, of two labels by their weights where images are mixed."""
        logits, state = self._training(ops, params, state, batch, noise)
        found, labels = ops.log_softmax(logits, axis=-1), batch["labels"]
        likelihoods = log_likelihoods(ops, found, labels)
        if self.augmentation.mixes:
            weight, others = noise["weight"][:, None], log_likelihoods(ops, found, partners(ops, labels))
            likelihoods = weight * likelihoods + (1 - weight) * others
        return -ops.mean(likelihoods), state, {}

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

    def _training(
        self, ops: Ops, params: Arrays, state: Arrays, batch: Arrays, noise: Arrays
    ) -> tuple[Array, Arrays]:
        images = self.augmentation.apply(ops, self._normalized(ops, batch["images"]), noise)
        return self.network(ops, params, state, {"images": images}, True)

    def _outputs(self, ops: Ops, params: Arrays, state: Arrays, batch: Arrays, noise: Arrays) -> Array:
        return self._training(ops, params, state, batch, noise)[0]
