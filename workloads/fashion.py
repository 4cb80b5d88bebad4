"""Fashion-MNIST, images of clothing: ReLU networks and a vision transformer.

EGOP samples are parameters at which gradients are sampled to estimate a basis.

In citations, 000 is the EGOP paper, "Faster Adaptive Optimization via Expected Gradient Outer Product
Reparameterization", and 001 is an earlier version of the EGOP paper (000) (docs/sources.md).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from curvebench.spec.values import choice, number, whole
from curvebench.workloads.arguments import Array, Arrays, Ops, Random, Settings
from curvebench.workloads.classification import (
    Classifier,
    classification_metrics,
    of_network,
    with_fixed_state,
)
from curvebench.workloads.data import FOLDER_VARIABLE, DataDamaged, DataFiles, random_parts, read_content
from curvebench.workloads.matrices import torch_default_bias, torch_default_weight
from curvebench.workloads.networks.perceptron import RELU_CLASSIFIER, FullyConnected
from curvebench.workloads.networks.transformer import QKV_MATRICES
from curvebench.workloads.networks.vision_transformer import PlainViT, fixed_positions, patches_of, vit_logits
from curvebench.workloads.workload import Problem, Setting, Start, Workload, batch_size, require_batch

# Folder into which the Debian package dataset-fashion-mnist installs the files.
DEBIAN_FOLDER = Path("/usr/share/datasets/fashion-mnist")
SUBFOLDER = "fashion-mnist"
# SHA-256 of the decompressed content of each file.
# The SHA-256 is checked, because the files of MNIST have the same names and shapes.
CONTENTS: Mapping[str, Mapping[str, str]] = {
    "train": {
        "train-images-idx3-ubyte.gz": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        "train-labels-idx1-ubyte.gz": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    },
    "test": {
        "t10k-images-idx3-ubyte.gz": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        "t10k-labels-idx1-ubyte.gz": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    },
}
FASHION = DataFiles(
    "Fashion-MNIST",
    tuple(name for part in CONTENTS.values() for name in part),
    SUBFOLDER,
    "run `apt-get install dataset-fashion-mnist` on Debian or Ubuntu, or download the files from "
    f"https://github.com/zalandoresearch/fashion-mnist, put all four into a folder {SUBFOLDER} and set "
    f"{FOLDER_VARIABLE} to the folder that holds it",
    lambda: (DEBIAN_FOLDER,),
)


def read_fashion(part: str) -> tuple[np.ndarray, np.ndarray]:
    """Read the images and labels of the standard training set, `train`, or of the standard test set, `test`.

    Returns:
        Pixels (examples, 28, 28) from 0 to 255 and labels (examples,) from 0 to 9, both uint8. There are
        60,000 examples in `train` and 10,000 in `test`.

    Raises:
        DataMissing: if a file does not exist.
        DataDamaged: if a file has other content than Fashion-MNIST.
    """
    paths = FASHION.required()
    images, labels = (_read_checked(paths[name], sha256) for name, sha256 in CONTENTS[part].items())
    return images, labels


def _read_checked(path: Path, sha256: str) -> np.ndarray:
    """Read the array in a file, and check the SHA-256 of its decompressed content.

    Raises:
        DataDamaged: if the SHA-256 is different.
    """
    content = read_content(path)
    if hashlib.sha256(content).hexdigest() != sha256:
        raise DataDamaged(
            f"{path}: is not the file of Fashion-MNIST with this name (the SHA-256 of its content is not "
            f"{sha256}; MNIST has files of the same names); fetch it again"
        )
    return parse_idx(content)


def parse_idx(content: bytes) -> np.ndarray:
    """Return the array (uint8, read-only) in the content of an idx file of unsigned bytes.

    The format is: two zeros, the type of the entries, the number of axes, the length of each axis as a
    big-endian 4-byte number, then the entries in row-major order.
    """
    start = 4 * (1 + content[3])
    shape = tuple(int.from_bytes(content[offset : offset + 4], "big") for offset in range(4, start, 4))
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


SIDE = 28  # height and width of an image, in pixels
TRAIN, TEST, CLASSES = 60_000, 10_000, 10  # numbers of training and test images, and of classes
# For the ReLU networks: shares of the standard test set that become the validation split and the test split.
HELD_OUT = {"validation": 0.25, "test": 0.75}
HEAD_WIDTH = 16  # units of an attention head
# Arguments of `Workload` that all workloads of this file share.
DATA: dict[str, Any] = {"missing": lambda _: FASHION.missing(), "files": lambda _: FASHION.paths()}
WINDOWS = (1, 2, 4, 7, 14)  # possible side lengths of the squares that an image is divided into


# The cache has room for the training and test sets of both networks (0.4 GB), which the seeds of a job share.
@lru_cache(maxsize=4)
def _examples(part: str, classes: int, pooling: int, pixel_scale: float) -> tuple[np.ndarray, np.ndarray]:
    """Return pixels (examples, inputs) and labels (examples,) of the standard set `part`, `train` or `test`.

    Args:
        part: name of the set.
        classes: number of classes; images with the label `classes` or a larger label are left out.
        pooling: side length of the squares of which only the largest pixel is used.
        pixel_scale: divisor of the pixels.
    """
    images, labels = read_fashion(part)
    selected = labels < classes
    pixels = max_pool(images[selected], pooling).reshape(np.count_nonzero(selected), -1)
    return pixels / pixel_scale, labels[selected].astype(np.int64)


def max_pool(images: np.ndarray, window: int) -> np.ndarray:
    """Return the largest pixel of each square of window x window pixels; the squares do not overlap.

    Pooling precedes all parameters. Therefore it can be computed once, and is equivalent to a first layer of
    the network (001 D.4).

    Args:
        images: pixels (examples, rows, columns); `window` divides rows and columns.
        window: side length of a square.
    """
    count, rows, columns = images.shape
    squares = images.reshape(count, rows // window, window, columns // window, window)
    return squares.max(axis=(2, 4))


def _of_classes(classes: int, hidden: int, pooling: int, **fields: Any) -> Workload:
    """Return the workload of a ReLU network with one hidden layer.

    Args:
        classes: number of classes; images with the label `classes` or a larger label are left out.
        hidden: units of the hidden layer.
        pooling: default value of the setting `pooling`.
        fields: further fields of the workload.
    """

    def network(settings: Settings) -> FullyConnected:
        """Return the network; starts and EGOP samples have PyTorch's default distribution (000 C.6)."""
        widths = (SIDE // settings["pooling"]) ** 2, hidden, classes
        return FullyConnected(widths, torch_default_weight, torch_default_bias)

    def problem(settings: Settings, random: Random) -> Problem:
        """Return the standard training set, the validation and test split, and random initial parameters.

        The standard test set is divided into both splits at random, in the same way for all seeds.
        """
        options = classes, settings["pooling"], settings["pixel_scale"]
        features, labels = _examples("train", *options)
        splits = {"train": {"features": features, "labels": labels}}
        features, labels = _examples("test", *options)
        counts = {name: round(share * len(labels)) for name, share in HELD_OUT.items()}
        for name, indices in random_parts(counts, random("split", shared=True)).items():
            splits[name] = {"features": features[indices], "labels": labels[indices]}
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
        **fields,
    )


FASHION_SMALL = _of_classes(
    classes=4,
    hidden=20,
    pooling=2,
    name="fashion_small",
    description="ReLU network on 4 classes of Fashion-MNIST, at pooling = 2 with 196-20-4 units (d = 4024)",
    source="001 Fig. 4, Fig. 11, D.1, D.4, D.5",
    start=Start(1.3817426319139599, 0.6244257283924366),
)
FASHION_LARGE = _of_classes(
    classes=10,
    hidden=100,
    pooling=1,
    name="fashion_large",
    description="ReLU network on Fashion-MNIST, at pooling = 1 with 784-100-10 units (d = 79510)",
    source="000 Fig. 7, Fig. 16, C.1, C.2, C.6",
    start=Start(2.3073006254878217, 0.7181641699196918),
)


# --- the vision transformer ---------------------------------------------------------------------------


def _vit(settings: Settings) -> PlainViT:
    """Return the network that the settings describe."""
    sizes = settings["patch"] ** 2, settings["width"], settings["depth"]
    return PlainViT(*sizes, classes=CLASSES, qkv_matrices=settings["qkv_matrices"])


@lru_cache(maxsize=2)  # training and test set are read once, and shared by the seeds of a job
def _patches(part: str, side: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return patches (examples, tokens, side * side) in [-1, 1] and labels of the first `count` images of
    `part`.
    """
    images, labels = (array[:count] for array in read_fashion(part))
    return patches_of((images / 127.5 - 1)[..., None], side), labels.astype(np.int64)


def _vit_problem(settings: Settings, random: Random) -> Problem:
    """Return a problem with the first images of the standard training set as its training split.

    The validation split has the first images of the standard test set, and the test split has the images that
    follow.
    """
    held_out, side = settings["held_out_examples"], settings["patch"]
    train, labels = _patches("train", side, settings["train_examples"])
    test_patches, test_labels = _patches("test", side, 2 * held_out)
    splits = {
        "train": {"patches": train, "labels": labels},
        "validation": {"patches": test_patches[:held_out], "labels": test_labels[:held_out]},
        "test": {"patches": test_patches[held_out:], "labels": test_labels[held_out:]},
    }
    state = fixed_positions((SIDE // side) ** 2, settings["width"])
    return Problem(_vit(settings).sample(random("parameters")), splits, state)


def _check_examples(settings: Settings) -> None:
    """Check that the settings do not request more images than the data set has."""
    require_batch(settings, settings["train_examples"])
    parts = {
        "train_examples": (TRAIN, "training part"),
        "held_out_examples": (TEST // 2, "test part that are left for each of two splits"),
    }
    for name, (count, part) in parts.items():
        if settings[name] > count:
            raise ValueError(f"{name} = {settings[name]} is larger than the {count} images of the {part}")


def _read_width(value: Any) -> Any:
    """Check that the width of a token is a positive multiple of the width of an attention head."""
    if type(value) is not int or value < HEAD_WIDTH or value % HEAD_WIDTH:
        raise ValueError(f"is not a multiple of {HEAD_WIDTH}, the units of an attention head")
    return value


def _vit_logits(ops: Ops, params: Arrays, state: Arrays, split: Arrays) -> Array:
    """Return the outputs (examples, classes) of the vision transformer."""
    return vit_logits(ops, params, state, split["patches"], HEAD_WIDTH)


FASHION_VIT = Workload(
    name="fashion_vit",
    description="vision transformer on Fashion-MNIST, at patch = 7 and width = 64 with 2 blocks (d = 103946)",
    source="003 Sec. 4.4 (PlainViT), with other data and sizes",
    metrics=classification_metrics(("train", "validation", "test")),
    settings={
        "batch_size": batch_size(128),
        "patch": Setting(7, "side of the square patches, in pixels", choice(*WINDOWS)),
        "width": Setting(64, f"of a token; with a head for every {HEAD_WIDTH} units", _read_width),
        "depth": Setting(2, "blocks of attention and MLP", whole(1)),
        "qkv_matrices": QKV_MATRICES,
        "train_examples": Setting(TRAIN, "first images of the standard training part", whole(1)),
        "held_out_examples": Setting(
            TEST // 2,
            "images of validation, and as many of test, of the first of the standard test part",
            whole(1),
        ),
    },
    **of_network(_vit, Classifier(with_fixed_state(_vit_logits))),
    problem=_vit_problem,
    evaluation_batch=1_000,
    start=Start(2.906044042387697, 4.21337108997239),
    check=_check_examples,
    **DATA,
)

WORKLOADS = (FASHION_SMALL, FASHION_LARGE, FASHION_VIT)
