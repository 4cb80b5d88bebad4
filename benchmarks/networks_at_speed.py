"""Networks that `python -m benchmarks.gpu` times, as workloads and as plain modules of other libraries.

The images and labels are random. In shapes, N is the number of images, C the number of channels, and H and W
are the numbers of rows and columns of pixels.

In citations, 000 is the EGOP paper, "Faster Adaptive Optimization via Expected Gradient Outer Product
Reparameterization" (docs/sources.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from curvebench.engine.bundle import Bundle
from curvebench.optimizers.bases.change import SHARED
from curvebench.optimizers.layers import LAYER_KINDS
from curvebench.optimizers.rule import Rule
from curvebench.seeding import WorkloadRandom
from curvebench.workloads import classification
from curvebench.workloads.arguments import Arrays
from curvebench.workloads.networks.hierarchical_transformer import HieraViT, MaskUnitAttention, hiera_logits
from curvebench.workloads.networks.residual_network import ResidualNetwork, residual_outputs
from curvebench.workloads.networks.transformer import Transformer
from curvebench.workloads.networks.vision_transformer import PlainViT, fixed_positions, patches_of, vit_logits
from curvebench.workloads.workload import Problem, Workload

# Number of batches in the training data, which are on the device from the start.
DATASET_BATCHES = 2


@dataclass(frozen=True)
class TimedNetwork:
    """Network with random images, as a workload of this project and as a plain module of another library.

    Args:
        name: name on the command line and in the table.
        network: parameter shapes and roles, and the number of classes.
        side, channels: rows (and columns) and channels of an image.
        precisions: precisions in which the network is timed.
        classifier: loss and metrics of this project's network.
        state: model state before the first step, such as running means.
        module: function that builds the same network as a plain module, for images of shape (N, C, H, W).
        field: key under which a data split has the input of this project's network.
        examples: function that converts images (N, C, H, W) to the input of this project's network.
    """

    name: str
    network: ResidualNetwork | Transformer
    side: int
    channels: int
    precisions: tuple[str, ...]
    classifier: classification.Classifier
    state: Mapping[str, np.ndarray]
    module: Callable[[], Any]
    field: str = "images"
    examples: Callable[[np.ndarray], np.ndarray] = lambda images: images

    def images(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Return normal pixels in float32, shape (count, C, H, W), and random labels."""
        generator = np.random.default_rng(0)
        pixels = generator.standard_normal((count, self.channels, self.side, self.side), np.float32)
        return pixels, generator.integers(0, self.network.classes, count)

    @cached_property
    def workload(self) -> Workload:
        """Workload with this network and without data; `problem` draws the data."""
        return Workload(
            name=self.name,
            description="a network at speed",
            source="000 C.2, 003 App. D",
            metrics=classification.classification_metrics(("train",)),
            settings={},
            **classification.of_network(lambda settings: self.network, self.classifier),
            problem=lambda settings, random: Problem({}, {}),
            mapped=False,
        )

    def problem(self, batch_size: int) -> Problem:
        """Return initial parameters, and a training split of `DATASET_BATCHES` batches."""
        pixels, labels = self.images(DATASET_BATCHES * batch_size)
        train = {self.field: self.examples(pixels), "labels": labels}
        return Problem(self.network.sample(np.random.default_rng(0)), {"train": train}, dict(self.state))

    def bundle(self, rule: Rule, batch_size: int, steps: int, in_basis: bool = False) -> Bundle:
        """Return a single run of `steps` steps at a small learning rate.

        Args:
            rule: the update rule.
            batch_size: images per step.
            steps: number of steps.
            in_basis: whether the filters of a convolution, or the rows of a weight, share a change of basis,
                as in 000 C.3. The matrices are identities, since the time of a product does not depend on
                their values.
        """
        problem = self.problem(batch_size)
        matrices: dict[tuple[str, ...], np.ndarray] = {}
        if in_basis:
            matrices = {
                (name,): np.eye(math.prod(self.network.shapes[name][1:]), dtype=np.float32)[None]
                for name, role in self.network.roles.items()
                if role.kind in (*LAYER_KINDS, "embedding")
            }
        complete = rule.complete({"learning_rate": 1e-4})
        return Bundle(
            workload=self.workload,
            rule=rule,
            problems=[problem],
            orders=np.random.default_rng(1).integers(0, DATASET_BATCHES * batch_size, (steps, 1, batch_size)),
            hyperparameters={name: np.array([value]) for name, value in complete.items()},
            schedule=np.ones(steps),
            matrices=matrices,
            changes=dict.fromkeys(matrices, SHARED),
            randoms=[WorkloadRandom(self.name, 0)],
        )


def _peers() -> Any:
    """Import `peer_networks`, which takes seconds, only when one of its networks is built."""
    from curvebench.benchmarks import peer_networks

    return peer_networks


def _residual(name: str, network: ResidualNetwork, side: int) -> TimedNetwork:
    return TimedNetwork(
        name=name,
        network=network,
        side=side,
        channels=network.channels,
        precisions=("tf32", "mixed"),
        classifier=classification.Classifier(residual_outputs),
        state=network.state,
        module=lambda: _peers().torchvision_network(network),
    )


def vit(name: str, network: PlainViT, side: int, patch: int, heads: int) -> TimedNetwork:
    """Return a vision transformer with square patches, together with the same transformer of timm.

    Args:
        name: name on the command line and in the table.
        network: width, depth, classes and the length of a patch.
        side: pixels per side of an image.
        patch: pixels per side of a patch.
        heads: attention heads.
    """

    def logits(ops: Any, params: Arrays, state: Arrays, split: Arrays) -> Any:
        return vit_logits(ops, params, state, split["patches"], network.width // heads)

    channels = network.inputs // patch**2
    return TimedNetwork(
        name=name,
        network=network,
        side=side,
        channels=channels,
        precisions=("mixed", "bfloat16"),
        classifier=classification.Classifier(classification.with_fixed_state(logits)),
        field="patches",
        state=fixed_positions((side // patch) ** 2, network.width),
        examples=lambda images: patches_of(images.transpose(0, 2, 3, 1), patch),
        module=lambda: _peers().timm_network(network, side // patch, patch, channels, heads).float(),
    )


def _hiera(name: str, network: HieraViT) -> TimedNetwork:
    def logits(ops: Any, params: Arrays, state: Arrays, split: Arrays) -> Any:
        return hiera_logits(ops, params, split["images"], network.attention)

    return TimedNetwork(
        name=name,
        network=network,
        side=network.side,
        channels=network.channels,
        precisions=("mixed", "bfloat16"),
        classifier=classification.Classifier(classification.with_fixed_state(logits)),
        state={},
        module=lambda: _peers().timm_hiera(network),
    )


LARGE = (
    _residual("resnet34", ResidualNetwork(3, (3, 4, 6, 3), 64, 1000), side=224),
    vit("vit_b16", PlainViT(16 * 16 * 3, 768, 12, classes=10), side=224, patch=16, heads=12),
    _hiera("hiera_b", HieraViT(classes=10)),
)
SMALL_ATTENTION = MaskUnitAttention(head_width=64, mask_unit=4, pooled_stages=2)
SMALL = (
    _residual("small_resnet", ResidualNetwork(3, (1, 1, 1), 16, 10, stem=3), side=32),
    vit("small_vit", PlainViT(4 * 4 * 3, 128, 4, classes=10), side=32, patch=4, heads=2),
    _hiera(
        "small_hiera", HieraViT(side=32, width=64, stages=(1, 1, 1), attention=SMALL_ATTENTION, classes=10)
    ),
)
NETWORKS = {network.name: network for network in (*LARGE, *SMALL)}
