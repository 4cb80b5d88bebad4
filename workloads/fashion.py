"""Fashion-MNIST, photographs of clothing: ReLU networks, a vision transformer and a residual network."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from curvebench.spec.values import choice, number, whole
from curvebench.workloads.classification import (
    MINIBATCH_METRICS,
    RELU_CLASSIFIER,
    Classifier,
    ReluNetwork,
    classification_metrics,
    of_network,
    with_fixed_state,
)
from curvebench.workloads.data import random_parts
from curvebench.workloads.idx import FASHION, read_fashion
from curvebench.workloads.initialization import torch_default_bias, torch_default_weight
from curvebench.workloads.networks.hierarchical_transformer import HieraViT, MaskUnitAttention, hiera_logits
from curvebench.workloads.networks.residual_network import ResidualNetwork, read_stages, residual_outputs
from curvebench.workloads.networks.transformer import QKV_MATRICES, Transformer
from curvebench.workloads.networks.vision_transformer import PlainViT, fixed_positions, patches_of, vit_logits
from curvebench.workloads.workload import (
    Array,
    Arrays,
    Ops,
    Problem,
    Random,
    Setting,
    Settings,
    Workload,
    batch_size,
    require_batch,
)

SIDE = 28  # pixels
TRAIN, TEST, CLASSES = 60_000, 10_000, 10  # of the standard parts
HELD_OUT = {"validation": 0.25, "test": 0.75}  # shares of the standard test part that the ReLU networks have
HEAD_WIDTH = 16  # units of an attention head
DATA: dict[str, Any] = {
    "missing": lambda settings: FASHION.missing(),
    "files": lambda settings: FASHION.paths(),
}  # of each workload
WINDOWS = (1, 2, 4, 7, 14)  # the sides of squares that fill an image


@lru_cache(maxsize=4)  # both parts of both networks: the seeds of a job share 0.4 GB, and read it once
def _examples(part: str, classes: int, pooling: int, pixel_scale: float) -> tuple[np.ndarray, np.ndarray]:
    """The pixels (examples, inputs) and labels (examples,) of the first classes in a standard part."""
    images, labels = read_fashion(part)
    chosen = labels < classes
    pixels = max_pool(images[chosen], pooling).reshape(np.count_nonzero(chosen), -1)
    return pixels / pixel_scale, labels[chosen].astype(np.int64)


def max_pool(images: np.ndarray, window: int) -> np.ndarray:
    """The greatest pixel of each square of window x window pixels, which lie side by side.

    It comes before every parameter, so that doing it once equals a first layer of the network (001 D.4).

    Args:
        images: (examples, rows, columns); the window divides both lengths.
        window: the side of a square.
    """
    count, rows, columns = images.shape
    squares = images.reshape(count, rows // window, window, columns // window, window)
    return squares.max(axis=(2, 4))


def _of_classes(classes: int, hidden: int, pooling: int, **own: Any) -> Workload:
    """Return the workload of a ReLU network with one hidden layer.

    Args:
        classes: the first classes of the ten, which are learned.
        hidden: units of the hidden layer.
        pooling: the default of that setting.
        own: the workload's other fields.
    """

    def network(settings: Settings) -> ReluNetwork:
        """Return the network, with PyTorch's default start, for starts and EGOP samples alike (000 C.6)."""
        widths = (SIDE // settings["pooling"]) ** 2, hidden, classes
        return ReluNetwork(widths, torch_default_weight, torch_default_bias)

    def problem(settings: Settings, random: Random) -> Problem:
        """Return the standard training part; the test part in validation and test, alike for all seeds."""
        chosen = classes, settings["pooling"], settings["pixel_scale"]
        features, labels = _examples("train", *chosen)
        splits = {"train": {"features": features, "labels": labels}}
        features, labels = _examples("test", *chosen)
        counts = {name: round(share * len(labels)) for name, share in HELD_OUT.items()}
        for name, part in random_parts(counts, random("split", shared=True)).items():
            splits[name] = {"features": features[part], "labels": labels[part]}
        return Problem(network(settings).sample(random("parameters")), splits)

    return Workload(
        metrics=classification_metrics(("train", *HELD_OUT)),
        settings={
            "batch_size": batch_size(300),
            "pooling": Setting(
                pooling,
                "side of the squares whose greatest pixel is kept; 1 keeps 28 x 28, 2 gives 14 x 14",
                choice(*WINDOWS),
            ),
            "pixel_scale": Setting(
                255.0,
                "divides the pixels, whole numbers from 0 to 255; the paper is silent, 255 gives [0, 1]",
                number(0.0, low_open=True),
            ),
        },
        **of_network(network, RELU_CLASSIFIER),
        linear_input=("W1", "features"),
        problem=problem,
        check=lambda settings: require_batch(settings, TRAIN * classes // CLASSES),
        **DATA,
        **own,
    )


FASHION_SMALL = _of_classes(
    classes=4,
    hidden=20,
    pooling=2,
    name="fashion_small",
    description="ReLU network on 4 classes of Fashion-MNIST, at pooling = 2 with 196-20-4 units (d = 4024)",
    source="001 Fig. 4, Fig. 11, D.1, D.4, D.5",
)
FASHION_LARGE = _of_classes(
    classes=10,
    hidden=100,
    pooling=1,
    name="fashion_large",
    description="ReLU network on Fashion-MNIST, at pooling = 1 with 784-100-10 units (d = 79510)",
    source="000 Fig. 7, Fig. 16, C.1, C.2, C.6",
)


# --- the first images, for larger networks -----------------------------------------------------------


def _images(part: str, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The pixels (examples, rows, columns) in [-1, 1] and labels of a standard part's first images."""
    images, labels = (array[:count] for array in read_fashion(part))
    return images / 127.5 - 1, labels.astype(np.int64)


def _check_examples(settings: Settings) -> None:
    require_batch(settings, settings["train_examples"])
    parts = {
        "train_examples": (TRAIN, "training part"),
        "held_out_examples": (TEST // 2, "test part that are left for each of two splits"),
    }
    for name, (most, part) in parts.items():
        if settings[name] > most:
            raise ValueError(f"{name} = {settings[name]} is larger than the {most} images of the {part}")


_EXAMPLES = {
    "train_examples": Setting(TRAIN, "first images of the standard training part", whole(1)),
    "held_out_examples": Setting(
        TEST // 2,
        "images of validation, and as many of test, of the first of the standard test part",
        whole(1),
    ),
}


def _of_first_images(
    network: Callable[[Settings], Transformer | ResidualNetwork],
    classifier: Classifier,
    read: Callable[[Settings, str, int], tuple[np.ndarray, np.ndarray]],
    settings: dict[str, Setting],
    state: Callable[[Settings], dict[str, np.ndarray]] = lambda settings: {},
    field: str = "images",
    **own: Any,
) -> Workload:
    """Return the workload of a network on the first images of the standard parts.

    Args:
        network: the network by completed settings.
        classifier: its loss and evaluation.
        read: the first images of a part, and their labels, by completed settings, part and count.
        settings: those besides the batch size and the numbers of examples.
        state: the model state at the start.
        field: what a split calls the images.
        own: the workload's other fields.
    """

    def problem(chosen: Settings, random: Random) -> Problem:
        """Return the first images of the training part; of the test part the first, then as many others."""
        held_out = chosen["held_out_examples"]
        train, labels = read(chosen, "train", chosen["train_examples"])
        others, other_labels = read(chosen, "test", 2 * held_out)
        splits = {
            "train": {field: train, "labels": labels},
            "validation": {field: others[:held_out], "labels": other_labels[:held_out]},
            "test": {field: others[held_out:], "labels": other_labels[held_out:]},
        }
        return Problem(network(chosen).sample(random("parameters")), splits, state(chosen))

    return Workload(
        settings={"batch_size": batch_size(128), **settings, **_EXAMPLES},
        **of_network(network, classifier),
        problem=problem,
        evaluation_batch=1_000,
        check=_check_examples,
        **DATA,
        **own,
    )


# --- the vision transformer ----------------------------------------------------------------------


def _vit(settings: Settings) -> PlainViT:
    sizes = settings["patch"] ** 2, settings["width"], settings["depth"]
    return PlainViT(*sizes, classes=CLASSES, qkv_matrices=settings["qkv_matrices"])


@lru_cache(maxsize=2)  # the seeds of a job share both parts
def _patches(part: str, side: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The patches (examples, tokens, side * side) and labels of a standard part's first images."""
    images, labels = _images(part, count)
    return patches_of(images[..., None], side), labels


def _read_width(value: Any) -> Any:
    if type(value) is not int or value < HEAD_WIDTH or value % HEAD_WIDTH:
        raise ValueError(f"is not a multiple of {HEAD_WIDTH}, the units of an attention head")
    return value


def _vit_logits(ops: Ops, params: Arrays, state: Arrays, split: Arrays) -> Array:
    return vit_logits(ops, params, state, split["patches"], HEAD_WIDTH)


FASHION_VIT = _of_first_images(
    _vit,
    Classifier(with_fixed_state(_vit_logits)),
    lambda settings, part, count: _patches(part, settings["patch"], count),
    name="fashion_vit",
    description="vision transformer on Fashion-MNIST, at patch = 7 and width = 64 with 2 blocks (d = 103946)",
    source="003 Sec. 4.4 (PlainViT), with other data and sizes",
    metrics=classification_metrics(("train", "validation", "test")),
    settings={
        "patch": Setting(7, "side of the square patches, in pixels", choice(*WINDOWS)),
        "width": Setting(64, f"of a token; with a head for every {HEAD_WIDTH} units", _read_width),
        "depth": Setting(2, "blocks of attention and MLP", whole(1)),
        "qkv_matrices": QKV_MATRICES,
    },
    state=lambda settings: fixed_positions((SIDE // settings["patch"]) ** 2, settings["width"]),
    field="patches",
)


# --- the residual network, and the hierarchical vision transformer ---------------------------------


@lru_cache(maxsize=2)  # the seeds of a job share both parts
def _channels_first(part: str, count: int, margin: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """The images (examples, 1, rows, columns), with black pixels around, and labels of the first images."""
    images, labels = _images(part, count)
    around = (margin, margin)
    return np.pad(images[:, None], ((0, 0), (0, 0), around, around), constant_values=-1.0), labels


def _resnet(settings: Settings) -> ResidualNetwork:
    return ResidualNetwork(1, tuple(settings["blocks"]), settings["width"], CLASSES, stem=3)


FASHION_RESNET = _of_first_images(
    _resnet,
    Classifier(residual_outputs),
    lambda settings, part, count: _channels_first(part, count),
    name="fashion_resnet",
    description="residual network on Fashion-MNIST, at width = 16 with 3 stages of a block (d = 77754)",
    source="000 Fig. 2, C.2 (ResNet-34), with other data and sizes",
    metrics=classification_metrics(("train", "validation", "test")) | MINIBATCH_METRICS,
    settings={
        "width": Setting(16, "channels of the first stage; each next has twice as many", whole(1)),
        "blocks": Setting([1, 1, 1], "basic blocks of two convolutions in each stage", read_stages),
    },
    state=lambda settings: _resnet(settings).state,
    mapped=False,
)

MARGIN = 2  # black pixels on each side, so that 8 x 8 patches with a stride of 4 can be halved twice
MASK_UNITS = MaskUnitAttention(head_width=HEAD_WIDTH, mask_unit=4, masked_stages=2, pooled_stages=2)


def _hiera(settings: Settings) -> HieraViT:
    return HieraViT(
        side=SIDE + 2 * MARGIN,
        channels=1,
        width=settings["width"],
        stages=tuple(settings["blocks"]),
        attention=MASK_UNITS,
        classes=CLASSES,
        qkv_matrices=settings["qkv_matrices"],
    )


def _read_three_stages(value: Any) -> Any:
    if len(read_stages(value)) != 3:
        raise ValueError("is not a list of 3 whole numbers above 0, one a stage")
    return value


def _hiera_logits(ops: Ops, params: Arrays, state: Arrays, split: Arrays) -> Array:
    return hiera_logits(ops, params, split["images"], MASK_UNITS)


FASHION_HIERA = _of_first_images(
    _hiera,
    Classifier(with_fixed_state(_hiera_logits)),
    lambda settings, part, count: _channels_first(part, count, MARGIN),
    name="fashion_hiera",
    description="hierarchical vision transformer on Fashion-MNIST, at width = 16 with 3 blocks (d = 63450)",
    source="003 Sec. 4.4 (HieraViT), with other data and sizes",
    metrics=classification_metrics(("train", "validation", "test")) | MINIBATCH_METRICS,
    settings={
        "width": Setting(
            16,
            f"of a token in the first stage, doubled in each next; with a head for every {HEAD_WIDTH} units",
            _read_width,
        ),
        "blocks": Setting([1, 1, 1], "blocks of attention and MLP in each stage", _read_three_stages),
        "qkv_matrices": QKV_MATRICES,
    },
    mapped=False,
)

WORKLOADS = (FASHION_SMALL, FASHION_LARGE, FASHION_VIT, FASHION_RESNET, FASHION_HIERA)
