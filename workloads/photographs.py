"""Photographs in folders, such as ImageNet, for networks of any size; and CIFAR-10 with a residual network.

For images in folders, each run is a job of its own (`separate_jobs`), and images are read and decoded when
they are needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from curvebench.spec.values import choice, number, whole
from curvebench.workloads.arguments import Array, Arrays, Ops, Random, Settings
from curvebench.workloads.classification import (
    MINIBATCH_METRICS,
    Network,
    classification_metrics,
    of_network,
    with_fixed_state,
)
from curvebench.workloads.data import random_parts
from curvebench.workloads.images.augmentation import Augmentation
from curvebench.workloads.images.cifar import CIFAR, CLASSES, SIDE, TEST, TRAIN, read_cifar
from curvebench.workloads.images.classifier import ImageClassifier
from curvebench.workloads.images.decoding import MIN_AREA
from curvebench.workloads.images.folders import drawn_classes, images_folder, index_files, missing_images
from curvebench.workloads.images.source import image_sources
from curvebench.workloads.networks.hierarchical_transformer import HieraViT, MaskUnitAttention, hiera_logits
from curvebench.workloads.networks.residual_network import ResidualNetwork, read_stages, residual_outputs
from curvebench.workloads.networks.transformer import QKV_MATRICES, Transformer
from curvebench.workloads.networks.vision_transformer import PlainViT, fixed_positions, vit_logits
from curvebench.workloads.workload import DataMissing, Problem, Setting, Workload, batch_size

COLOURS = 3  # channels of an image
HEAD_WIDTH = 64  # number of units of an attention head of PlainViT
# Length to which evaluation resizes an image's shorter side, divided by the side of a crop.
RESIZE_RATIO = 256 / 224
REMEDIES = {
    "imagenet": "get ImageNet-1k from image-net.org, or from Kaggle's ILSVRC challenge",
    "imagewoof2": "get ImageWoof (imagewoof2.tgz) from github.com/fastai/imagenette",
    "stamps": "make it: `python -m benchmarks.stamps FOLDER/stamps` says how",
}


def _read_folder(value: Any) -> Any:
    """Check that a value of the setting `folder` is the plain name of a folder."""
    if not isinstance(value, str) or not value or "/" in value or value.startswith("."):
        raise ValueError("is not the name of a folder, such as imagenet")
    return value


def _missing(settings: Settings) -> str | None:
    """Return a text on missing data and how to get it; None if the folder and its index exist."""
    name = settings["folder"]
    return missing_images(name, REMEDIES.get(name, "put it there, a folder a class"))


def _splits(settings: Settings, random: Random) -> dict[str, Any]:
    """Return the splits of the folder that the settings name, with random classes that all seeds share.

    If the number of classes in the settings is the number of classes in the folder, these are all classes.
    """
    absent, folder = _missing(settings), images_folder(settings["folder"])
    if absent or folder is None:
        raise DataMissing(absent or "")

    def chosen(names: Sequence[str]) -> Sequence[str]:
        return drawn_classes(names, settings["classes"], random("classes", shared=True))

    side, crops = settings["side"], "five" if settings["crops"] == "ten" else "centre"
    shorter, area = round(RESIZE_RATIO * side), settings["crop_area"]
    return image_sources(folder, chosen, side=side, shorter=shorter, crops=crops, min_area=area)


def _workload(
    network: Callable[[Settings], ResidualNetwork | Transformer],
    state: Callable[[Settings], dict[str, np.ndarray]],
    outputs: Network,
    augmentation: Callable[[Settings], Augmentation],
    settings: dict[str, Setting],
    check: Callable[[Settings], None] = lambda settings: None,
    **fields: Any,
) -> Workload:
    """Return the workload of a network for images in a folder.

    Args:
        network: function from completed settings to the network.
        state: function from completed settings to the initial model state.
        outputs: function that computes the logits.
        augmentation: function from completed settings to the augmentation in training. Whether the
            augmentation mixes images (`Augmentation.mixes`) must not depend on the settings.
        settings: settings that only this workload has.
        check: function that raises a ValueError for settings that contradict each other, before the network
            is made.
        fields: further fields of the workload.
    """
    common = {
        "batch_size": batch_size(128),
        "folder": Setting("imagenet", "the folder of images, below the one of the data", _read_folder),
        "classes": Setting(1000, "how many of its classes, drawn alike for all seeds", whole(2)),
        "side": Setting(224, "pixels of the crops", whole(8)),
        "crop_area": Setting(
            MIN_AREA, "least share of an image that training sees", number(0.0, 1.0, low_open=True)
        ),
        "crops": Setting(
            "ten",
            "what evaluation sees of an image whose shorter side is 8 / 7 of side: ten, corners, centre and "
            "their mirror images, or centre",
            choice("ten", "centre"),
        ),
    }
    defaults = {name: setting.default for name, setting in {**common, **settings}.items()}
    classifier = ImageClassifier(outputs, augmentation(defaults))

    def problem(chosen: Settings, random: Random) -> Problem:
        splits = _splits(chosen, random)
        return Problem(network(chosen).sample(random("parameters")), splits, state(chosen))

    def checked(chosen: Settings) -> None:
        check(chosen)
        # The shapes of the network raise a ValueError if sizes are inconsistent.
        _ = network(chosen).shapes
        if chosen["batch_size"] is None:
            raise ValueError("batch_size: is null; images do not fit into one batch, give a number")

    return Workload(
        metrics=classification_metrics(("train", "validation", "test")) | MINIBATCH_METRICS,
        settings=common | settings,
        **of_network(network, classifier),
        problem=problem,
        noise=lambda chosen, generator, count: augmentation(chosen).draw(generator, count, chosen["side"]),
        mapped=False,
        evaluation_batch=100,
        streamed=True,
        separate_jobs=True,
        missing=_missing,
        files=lambda chosen: index_files(chosen["folder"]),
        check=checked,
        **fields,
    )


# --- the residual network ------------------------------------------------------------------------


def _resnet(settings: Settings) -> ResidualNetwork:
    """Return the residual network that the settings describe."""
    blocks = tuple(settings["blocks"])
    return ResidualNetwork(COLOURS, blocks, settings["width"], settings["classes"], stem=settings["stem"])


IMAGE_RESNET = _workload(
    _resnet,
    lambda settings: _resnet(settings).state,
    residual_outputs,
    lambda settings: Augmentation(),
    {
        "blocks": Setting([3, 4, 6, 3], "basic blocks of two convolutions in each stage", read_stages),
        "width": Setting(64, "channels of the first stage; each next has twice as many", whole(1)),
        "stem": Setting(
            7, "side of the first convolution: 7 with stride 2 and pooling after it, or 3", choice(3, 7)
        ),
    },
    name="image_resnet",
    description="residual network on photographs; ResNet-34 on ImageNet-1k by default (d = 21797672)",
    source="000 Fig. 2, Fig. 4, C.1, C.2",
)


# --- the vision transformers ---------------------------------------------------------------------

_MIXING = {
    "mixup": Setting(0.2, "alpha of MixUp's shares; 0: no MixUp", number(0.0)),
    "cutmix": Setting(1.0, "alpha of CutMix's shares; 0: no CutMix", number(0.0)),
}


def _mixing(settings: Settings) -> Augmentation:
    """Return the augmentation by MixUp and CutMix with the strengths in the settings."""
    return Augmentation(mixup=settings["mixup"], cutmix=settings["cutmix"])


def _check_mixing(settings: Settings) -> None:
    """Check that MixUp or CutMix is on, and that the batch size is even, so that pairs can be mixed."""
    if not _mixing(settings).mixes:
        raise ValueError("mixup and cutmix are both 0; one of them mixes images")
    if settings["batch_size"] is not None and settings["batch_size"] % 2:
        raise ValueError(f"batch_size = {settings['batch_size']} is odd, and images are mixed in pairs")


def _check_vit(settings: Settings) -> None:
    """Check that the settings of PlainViT are consistent with each other."""
    _check_mixing(settings)
    if settings["side"] % settings["patch"]:
        raise ValueError(f"side = {settings['side']} is not a multiple of patch = {settings['patch']}")
    if settings["width"] % HEAD_WIDTH:
        raise ValueError(f"width = {settings['width']} is not a multiple of {HEAD_WIDTH}, an attention head")


def _vit(settings: Settings) -> PlainViT:
    """Return the transformer that the settings describe."""
    return PlainViT(
        COLOURS * settings["patch"] ** 2,
        settings["width"],
        settings["depth"],
        classes=settings["classes"],
        qkv_matrices=settings["qkv_matrices"],
    )


def patches(ops: Ops, images: Array, inputs: int) -> Array:
    """Divide images into square patches, row by row, with the array functions of a backend.

    The function `vision_transformer.patches_of` does the same for NumPy arrays with channels last.

    Args:
        ops: array functions.
        images: images (examples, channels, rows, columns).
        inputs: entries of a patch, side * side * channels.

    Returns:
        Patches (examples, tokens, inputs).
    """
    count, channels, rows, columns = images.shape
    side = round((inputs // channels) ** 0.5)
    cut = ops.reshape(images, (count, channels, rows // side, side, columns // side, side))
    return ops.reshape(ops.permute_dims(cut, (0, 2, 4, 3, 5, 1)), (count, -1, inputs))


def _vit_outputs(ops: Ops, params: Arrays, state: Arrays, split: Arrays) -> Array:
    """Return the outputs (examples, classes) of PlainViT."""
    tokens = patches(ops, split["images"], params["patch_weight"].shape[1])
    return vit_logits(ops, params, state, tokens, HEAD_WIDTH)


IMAGE_VIT = _workload(
    _vit,
    lambda settings: fixed_positions((settings["side"] // settings["patch"]) ** 2, settings["width"]),
    with_fixed_state(_vit_outputs),
    _mixing,
    {
        "patch": Setting(16, "side of the square patches, in pixels", whole(1)),
        "width": Setting(768, f"of a token; with a head for every {HEAD_WIDTH} units", whole(1)),
        "depth": Setting(12, "blocks of attention and MLP", whole(1)),
        "qkv_matrices": QKV_MATRICES,
        **_MIXING,
    },
    _check_vit,
    name="image_vit",
    description="PlainViT on photographs, MixUp and CutMix; ViT-B/16 by default (10 classes: d = 85654282)",
    source="003 Sec. 4.4 (PlainViT), App. D",
)


def _attention(width: int) -> MaskUnitAttention:
    """Return the options of attention for a first stage of `width` units, which has a single head."""
    return MaskUnitAttention(head_width=width)


def _hiera(settings: Settings) -> HieraViT:
    """Return the hierarchical transformer that the settings describe."""
    return HieraViT(
        side=settings["side"],
        channels=COLOURS,
        width=settings["width"],
        stages=tuple(settings["blocks"]),
        attention=_attention(settings["width"]),
        classes=settings["classes"],
        qkv_matrices=settings["qkv_matrices"],
    )


def _hiera_outputs(ops: Ops, params: Arrays, state: Arrays, split: Arrays) -> Array:
    """Return the outputs (examples, classes) of HieraViT."""
    return hiera_logits(ops, params, split["images"], _attention(params["patch_weight"].shape[0]))


IMAGE_HIERA = _workload(
    _hiera,
    lambda settings: {},
    with_fixed_state(_hiera_outputs),
    _mixing,
    {
        "width": Setting(96, "of a token and of a head in the first stage, doubled in each next", whole(1)),
        "blocks": Setting([2, 3, 16, 3], "blocks of attention and MLP in each stage", read_stages),
        "qkv_matrices": QKV_MATRICES,
        **_MIXING,
    },
    _check_mixing,
    name="image_hiera",
    description="HieraViT on photographs, MixUp and CutMix; Hiera-B by default (10 classes: d = 50763658)",
    source="003 Sec. 4.4 (HieraViT), App. D",
)

# --- CIFAR-10, which is stored on the device -----------------------------------------------------

VALIDATION = 5_000  # number of images of the standard training set that are the validation split
# Means and standard deviations of the channels of the training set.
CIFAR_MEANS, CIFAR_DEVIATIONS = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)


def _cifar(settings: Settings) -> ResidualNetwork:
    """Return the residual network that the settings describe."""
    return ResidualNetwork(COLOURS, tuple(settings["blocks"]), settings["width"], CLASSES, stem=3)


def _cifar_problem(settings: Settings, random: Random) -> Problem:
    """Return the data set with a random validation split that all seeds share, and initial parameters."""
    images, labels = read_cifar(TRAIN)
    parts = random_parts(
        {"train": len(labels) - VALIDATION, "validation": VALIDATION}, random("split", shared=True)
    )
    splits = {name: {"images": images[part], "labels": labels[part]} for name, part in parts.items()}
    images, labels = read_cifar(TEST)
    splits["test"] = {"images": images, "labels": labels}
    return Problem(_cifar(settings).sample(random("parameters")), splits, _cifar(settings).state)


CIFAR10 = Workload(
    name="cifar10_resnet",
    description="residual network on CIFAR-10, ResNet-18 for small images by default (d = 11173962)",
    source="He et al. 2016, Sec. 4.2",
    metrics=classification_metrics(("train", "validation", "test")) | MINIBATCH_METRICS,
    settings={
        "batch_size": batch_size(512),
        "blocks": Setting([2, 2, 2, 2], "basic blocks of two convolutions in each stage", read_stages),
        "width": Setting(64, "channels of the first stage; each next has twice as many", whole(1)),
        "shift": Setting(2, "pixels that training moves images by at most, in rows and columns", whole(0)),
    },
    **of_network(
        _cifar, ImageClassifier(residual_outputs, Augmentation(shift=2), CIFAR_MEANS, CIFAR_DEVIATIONS)
    ),
    problem=_cifar_problem,
    noise=lambda settings, generator, count: Augmentation(shift=settings["shift"]).draw(
        generator, count, SIDE
    ),
    mapped=False,
    evaluation_batch=1_000,
    missing=lambda settings: CIFAR.missing(),
    files=lambda settings: CIFAR.paths(),
)

WORKLOADS = (IMAGE_RESNET, IMAGE_VIT, IMAGE_HIERA, CIFAR10)
