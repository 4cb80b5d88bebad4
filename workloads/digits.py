"""The UCI hand-written digits, 8 x 8 pixels in 10 classes, and a small ReLU network that reads them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from workloads.checks import require_batch, require_number
from workloads.data import (
    CLASSES,
    PIXELS,
    full_digits_files,
    missing_optdigits,
    read_full_digits,
    read_reduced_digits,
    reduced_digits_files,
)
from workloads.initialization import uniform_bias, xavier_normal
from workloads.workload import Array, Arrays, Metric, Ops, Problem, Random, Role, Setting, Settings, Workload

HIDDEN = 32
LAYERS = ((HIDDEN, PIXELS), (CLASSES, HIDDEN))  # (outputs, inputs) of each weight (000 C.2)
READERS = {"reduced": read_reduced_digits, "full": read_full_digits}
FILES = {"reduced": reduced_digits_files, "full": full_digits_files}
# Examples of each split: the paper's (000 C.1), and its proportions for the digits that can be installed.
SPLITS = {
    "reduced": {"train": 1222, "validation": 191, "test": 384},
    "full": {"train": 3823, "validation": 598, "test": 1199},
}


def _check(settings: Settings) -> None:
    require_number(settings, "pixel_scale", low=0.0, low_open=True)
    require_batch(settings, SPLITS[settings["source"]]["train"])


def _files(settings: Settings) -> tuple[Path, ...]:
    return FILES[settings["source"]]()


def _missing(settings: Settings) -> str | None:
    return missing_optdigits() if settings["source"] == "full" else None


def _roles(settings: Settings) -> dict[str, Role]:
    return {
        "W1": Role("weight", 0),
        "b1": Role("bias", 0),
        "W2": Role("weight", 1),
        "b2": Role("bias", 1),
    }


def _sample_parameters(settings: Settings, generator: np.random.Generator) -> dict[str, np.ndarray]:
    """Xavier normal weights, uniform biases, for starts and for EGOP samples alike (000 C.6 l.1095-1099)."""
    parameters = {}
    for layer, shape in enumerate(LAYERS, start=1):
        parameters[f"W{layer}"] = xavier_normal(*shape, generator)
        parameters[f"b{layer}"] = uniform_bias(*shape, generator)
    return parameters


def _problem(settings: Settings, random: Random) -> Problem:
    """The digits under one random partition that all seeds share (000 C.6 l.1075-1076)."""
    pixels, labels = READERS[settings["source"]]()
    counts = SPLITS[settings["source"]]
    permutation = random("split", shared=True).permutation(len(labels))
    parts = np.split(permutation, np.cumsum(list(counts.values()))[:-1])
    return Problem(
        parameters=_sample_parameters(settings, random("parameters")),
        splits={
            name: {"features": pixels[part] / settings["pixel_scale"], "labels": labels[part]}
            for name, part in zip(counts, parts, strict=True)
        },
        facts={"examples": float(len(labels))},
    )


def _log_probabilities(ops: Ops, params: Arrays, split: Arrays) -> Array:
    """The network's log-probabilities (examples, classes) (000 C.2)."""
    hidden = ops.relu(split["features"] @ ops.swapaxes(params["W1"], 0, 1) + params["b1"])
    return ops.log_softmax(hidden @ ops.swapaxes(params["W2"], 0, 1) + params["b2"], axis=-1)


def _negative_log_likelihood(ops: Ops, log_probabilities: Array, labels: Array) -> Array:
    """The mean over examples of -log p(label)."""
    return -ops.mean(ops.take_along_axis(log_probabilities, labels[:, None], axis=-1))


def _loss(
    ops: Ops, params: Arrays, state: Arrays, batch: Arrays, noise: Arrays
) -> tuple[Array, Arrays, Arrays]:
    log_probabilities = _log_probabilities(ops, params, batch)
    return _negative_log_likelihood(ops, log_probabilities, batch["labels"]), state, {}


def _evaluate(ops: Ops, params: Arrays, state: Arrays, split: Arrays) -> dict[str, Array]:
    log_probabilities = _log_probabilities(ops, params, split)
    correct = ops.argmax(log_probabilities, axis=-1) == split["labels"]
    return {
        "loss": _negative_log_likelihood(ops, log_probabilities, split["labels"]),
        "accuracy": ops.mean(ops.astype_float(correct)),
    }


def _metrics() -> dict[str, Metric]:
    loss = {
        f"{split}_loss": Metric(f"mean negative log-likelihood on the {split} split", "minimize", "nats")
        for split in SPLITS["full"]
    }
    accuracy = {
        f"{split}_accuracy": Metric(f"share of the {split} split classified correctly", "maximize")
        for split in SPLITS["full"]
    }
    return loss | accuracy


DIGITS_MLP = Workload(
    name="digits_mlp",
    description="ReLU network 64-32-10 with biases on the UCI digits (d = 2410)",
    source="000 Fig. 1 right, Fig. 15, C.1, C.2, C.6",
    metrics=_metrics(),
    settings={
        "batch_size": Setting(300, "examples in a minibatch; null: full batch"),
        "source": Setting(
            "reduced",
            "reduced: the 1,797 digits of scikit-learn, the test part of UCI optdigits, split 1222/191/384; "
            "full: all 5,620, split 3823/598/1199 as in the paper, from optdigits.tra and optdigits.tes "
            "in the folder named by CURVEBENCH_DATA",
            choices=("reduced", "full"),
        ),
        "pixel_scale": Setting(
            16.0,
            "divides the pixels, which are whole numbers from 0 to 16; the paper is silent, 16 gives [0, 1]",
        ),
    },
    dtype="float32",
    shared_data=True,
    roles=_roles,
    problem=_problem,
    sample_parameters=_sample_parameters,
    loss=_loss,
    evaluate=_evaluate,
    missing=_missing,
    files=_files,
    check=_check,
)

WORKLOADS = (DIGITS_MLP,)
