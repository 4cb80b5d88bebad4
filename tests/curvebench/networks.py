"""Two small networks of the tests for 8 x 8 digits, with convolution and with attention; both take noise."""

from __future__ import annotations

from typing import Any

import numpy as np

from curvebench.workloads.arguments import Array, Arrays, Ops, Random, Settings
from curvebench.workloads.data import read_reduced_digits
from curvebench.workloads.workload import Metric, Problem, Role, Setting, Workload

TRAIN, VALIDATION = 64, 32
SIDE, CLASSES = 8, 10
# Constant that normalization adds to a variance, so that no division by 0 occurs.
EPSILON = 1e-5
# Probability that dropout keeps an entry.
KEEP = 0.75
# Decay of the running statistics per step.
DECAY = 0.9

Shapes = dict[str, tuple[tuple[int, ...], Role]]

CHANNELS = 4
FEATURES = CHANNELS * (SIDE // 2) ** 2
CONVOLUTION: Shapes = {
    "kernel": ((CHANNELS, 1, 3, 3), Role("convolution", 0)),
    "scale": ((CHANNELS,), Role("norm", 0)),
    "shift": ((CHANNELS,), Role("norm", 0)),
    "head": ((CLASSES, FEATURES), Role("weight", 1)),
    "bias": ((CLASSES,), Role("bias", 1)),
}

PATCH, DIM, HEADS = 2, 8, 2
TOKENS = (SIDE // PATCH) ** 2
ATTENTION: Shapes = {
    "patch": ((DIM, 1, PATCH, PATCH), Role("embedding", 0)),
    "position": ((TOKENS, DIM), Role("embedding", 0)),
    "scale": ((DIM,), Role("norm", 1)),
    "shift": ((DIM,), Role("norm", 1)),
    **{name: ((DIM, DIM), Role("weight", 1)) for name in ("query", "key", "value", "output")},
    "head": ((CLASSES, DIM), Role("weight", 2)),
    "bias": ((CLASSES,), Role("bias", 2)),
}


# --- what both share -----------------------------------------------------------------------------


def _sample(shapes: Shapes, generator: np.random.Generator) -> dict[str, np.ndarray]:
    """Draw normal entries over the root of the fan-in; vectors are around 0, and scales of norms around 1."""
    parameters = {}
    for name, (shape, _) in shapes.items():
        inputs = int(np.prod(shape[1:])) if len(shape) > 1 else 100
        centre = 1.0 if name == "scale" else 0.0
        parameters[name] = centre + generator.standard_normal(shape) / np.sqrt(inputs)
    return parameters


def _splits(random: Random) -> dict[str, dict[str, np.ndarray]]:
    pixels, labels = read_reduced_digits()
    chosen = random("split", shared=True).permutation(len(labels))[: TRAIN + VALIDATION]
    images = pixels.reshape(-1, 1, SIDE, SIDE) / 16
    return {
        name: {"images": images[part], "labels": labels[part]}
        for name, part in (("train", chosen[:TRAIN]), ("validation", chosen[TRAIN:]))
    }


def _dropout(generator: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Draw factors that preserve the mean: 0, or 1 over the probability of being kept."""
    return (generator.random(shape) < KEEP) / KEEP


def _head_loss(ops: Ops, params: Arrays, features: Array, labels: Array) -> Array:
    """Return the mean negative log-likelihood of the linear layer at the end of both networks."""
    logits = ops.linear(features, params["head"], params["bias"])
    return -ops.mean(ops.take_along_axis(ops.log_softmax(logits, -1), labels[:, None], -1))


def _workload(name: str, description: str, shapes: Shapes, **functions: Any) -> Workload:
    return Workload(
        name=name,
        description=description,
        source="the tests",
        metrics={
            f"{split}_loss": Metric("mean negative log-likelihood", "minimize", "nats")
            for split in ("train", "validation")
        },
        settings={"batch_size": Setting(16, "examples in a minibatch; null for all")},
        dtype="float64",
        shared_data=True,
        roles=lambda settings: {name: role for name, (_, role) in shapes.items()},
        sample_parameters=lambda settings, generator: _sample(shapes, generator),
        **functions,
    )


# --- convolution ---------------------------------------------------------------------------------


def _convolution_problem(settings: Settings, random: Random) -> Problem:
    return Problem(
        parameters=_sample(CONVOLUTION, random("parameters")),
        splits=_splits(random),
        state={"mean": np.zeros(CHANNELS), "variance": np.ones(CHANNELS)},
    )


def _convolution_noise(
    settings: Settings, generator: np.random.Generator, batch: int
) -> dict[str, np.ndarray]:
    """Draw the order of the image's columns (a flip), and dropout factors."""
    flipped = generator.random((batch, 1)) < 0.5
    return {
        "columns": np.where(flipped, np.arange(SIDE)[::-1], np.arange(SIDE)),
        "keep": _dropout(generator, (batch, FEATURES)),
    }


def _features(ops: Ops, normal: Array) -> Array:
    return ops.reshape(ops.max_pool2d(ops.relu(normal), 2, 2), (-1, FEATURES))


def _convolution_loss(
    ops: Ops, params: Arrays, state: Arrays, batch: Arrays, noise: Arrays
) -> tuple[Array, Arrays, Arrays]:
    seen = ops.take_along_axis(batch["images"], noise["columns"][:, None, None, :], 3)
    hidden = ops.conv2d(seen, params["kernel"], padding=1)
    normal, mean, variance = ops.batch_norm_in_training(hidden, params["scale"], params["shift"], EPSILON)
    running = {
        name: DECAY * state[name] + (1 - DECAY) * value
        for name, value in (("mean", mean), ("variance", variance))
    }
    return _head_loss(ops, params, _features(ops, normal) * noise["keep"], batch["labels"]), running, {}


def _convolution_evaluate(ops: Ops, params: Arrays, state: Arrays, split: Arrays) -> dict[str, Array]:
    hidden = ops.conv2d(split["images"], params["kernel"], padding=1)
    normal = ops.batch_norm(
        hidden, state["mean"], state["variance"], params["scale"], params["shift"], EPSILON
    )
    return {"loss": _head_loss(ops, params, _features(ops, normal), split["labels"])}


SMALL_CONVOLUTION = _workload(
    "small_convolution",
    "a convolution with batch norm, max pooling, dropout and flips",
    CONVOLUTION,
    problem=_convolution_problem,
    loss=_convolution_loss,
    evaluate=_convolution_evaluate,
    noise=_convolution_noise,
    mapped=False,
    # 24 divides neither split, so that the last part is smaller.
    evaluation_batch=24,
)


# --- attention -----------------------------------------------------------------------------------


def _attention_problem(settings: Settings, random: Random) -> Problem:
    return Problem(parameters=_sample(ATTENTION, random("parameters")), splits=_splits(random))


def _attention_noise(settings: Settings, generator: np.random.Generator, batch: int) -> dict[str, np.ndarray]:
    return {"keep": _dropout(generator, (batch, TOKENS, DIM))}


def _embedded(ops: Ops, params: Arrays, images: Array) -> Array:
    patches = ops.conv2d(images, params["patch"], stride=PATCH)
    return ops.matrix_transpose(ops.reshape(patches, (-1, DIM, TOKENS))) + params["position"]


def _attended(ops: Ops, params: Arrays, tokens: Array) -> Array:
    """Return the mean over tokens of the input plus attention after a norm."""
    normal = ops.layer_norm(tokens, params["scale"], params["shift"], EPSILON)
    heads = [
        ops.swapaxes(ops.reshape(ops.linear(normal, params[part]), (-1, TOKENS, HEADS, DIM // HEADS)), 1, 2)
        for part in ("query", "key", "value")
    ]
    seen = ops.reshape(ops.swapaxes(ops.attention(*heads), 1, 2), (-1, TOKENS, DIM))
    return ops.mean(tokens + ops.gelu(ops.linear(seen, params["output"])), axis=1)


def _attention_loss(
    ops: Ops, params: Arrays, state: Arrays, batch: Arrays, noise: Arrays
) -> tuple[Array, Arrays, Arrays]:
    tokens = _embedded(ops, params, batch["images"]) * noise["keep"]
    return _head_loss(ops, params, _attended(ops, params, tokens), batch["labels"]), state, {}


def _attention_evaluate(ops: Ops, params: Arrays, state: Arrays, split: Arrays) -> dict[str, Array]:
    tokens = _embedded(ops, params, split["images"])
    return {"loss": _head_loss(ops, params, _attended(ops, params, tokens), split["labels"])}


SMALL_ATTENTION = _workload(
    "small_attention",
    "attention between patches of 2 x 2 pixels, with dropout",
    ATTENTION,
    problem=_attention_problem,
    loss=_attention_loss,
    evaluate=_attention_evaluate,
    noise=_attention_noise,
)
