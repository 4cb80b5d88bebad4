"""Two small networks of the tests on 8 x 8 digits, by convolution and by attention; both take noise."""

from __future__ import annotations

from typing import Any

import numpy as np

from workloads.data import read_reduced_digits
from workloads.workload import Array, Arrays, Metric, Ops, Problem, Random, Role, Setting, Settings, Workload

TRAIN, VALIDATION = 64, 32
SIDE, CLASSES = 8, 10
EPSILON = 1e-5  # beside a variance
KEEP = 0.75  # the probability that dropout keeps an entry
DECAY = 0.9  # of the running statistics, each step

Shapes = dict[str, tuple[tuple[int, ...], Role]]

CHANNELS = 4
FEATURES = CHANNELS * (SIDE // 2) ** 2
CONVOLUTION: Shapes = {
    "kernel1": ((CHANNELS, 1, 3, 3), Role("convolution", 0)),
    "scale1": ((CHANNELS,), Role("norm", 0)),
    "shift1": ((CHANNELS,), Role("norm", 0)),
    "kernel2": ((CHANNELS, CHANNELS, 3, 3), Role("convolution", 1)),
    "scale2": ((CHANNELS,), Role("norm", 1)),
    "shift2": ((CHANNELS,), Role("norm", 1)),
    "head_weight": ((CLASSES, FEATURES), Role("weight", 2)),
    "head_bias": ((CLASSES,), Role("bias", 2)),
}

PATCH, DIM, HEADS, HIDDEN, BLOCKS = 2, 8, 2, 16, 1
TOKENS = (SIDE // PATCH) ** 2


def _linear(name: str, outputs: int, inputs: int, layer: int) -> Shapes:
    return {
        f"{name}_weight": ((outputs, inputs), Role("weight", layer)),
        f"{name}_bias": ((outputs,), Role("bias", layer)),
    }


def _norm(name: str, layer: int) -> Shapes:
    return {f"{name}_scale": ((DIM,), Role("norm", layer)), f"{name}_shift": ((DIM,), Role("norm", layer))}


def _block(number: int) -> Shapes:
    name = f"block{number}"
    shapes = _norm(f"{name}_norm1", number) | _norm(f"{name}_norm2", number)
    for part in ("query", "key", "value", "output"):
        shapes |= _linear(f"{name}_{part}", DIM, DIM, number)
    return (
        shapes
        | _linear(f"{name}_hidden", HIDDEN, DIM, number)
        | _linear(f"{name}_result", DIM, HIDDEN, number)
    )


ATTENTION: Shapes = {
    "patch": ((DIM, 1, PATCH, PATCH), Role("embedding", 0)),
    "position": ((TOKENS, DIM), Role("embedding", 0)),
    **{name: shape for number in range(1, BLOCKS + 1) for name, shape in _block(number).items()},
    **_norm("norm", BLOCKS + 1),
    **_linear("head", CLASSES, DIM, BLOCKS + 1),
}


# --- what both share -----------------------------------------------------------------------------


def _sample(shapes: Shapes, generator: np.random.Generator) -> dict[str, np.ndarray]:
    """Normal entries over the root of the inputs of an output, vectors about 0, scales of norms about 1."""
    parameters = {}
    for name, (shape, _) in shapes.items():
        inputs = int(np.prod(shape[1:])) if len(shape) > 1 else 100
        centre = 1.0 if "scale" in name else 0.0
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
    """Factors that keep the mean: 0, or 1 over the probability of being kept."""
    return (generator.random(shape) < KEEP) / KEEP


def _apply(ops: Ops, params: Arrays, name: str, x: Array) -> Array:
    return x @ ops.matrix_transpose(params[f"{name}_weight"]) + params[f"{name}_bias"]


def _negative_log_likelihood(ops: Ops, logits: Array, labels: Array) -> Array:
    return -ops.mean(ops.take_along_axis(ops.log_softmax(logits, -1), labels[:, None], -1))


def _measured(ops: Ops, logits: Array, labels: Array) -> dict[str, Array]:
    correct = ops.astype_float(ops.argmax(logits, -1) == labels)
    return {"loss": _negative_log_likelihood(ops, logits, labels), "accuracy": ops.mean(correct)}


METRICS = {
    f"{split}_{key}": metric
    for split in ("train", "validation")
    for key, metric in {
        "loss": Metric("mean negative log-likelihood", "minimize", "nats"),
        "accuracy": Metric("share classified correctly", "maximize"),
    }.items()
}


def _workload(name: str, description: str, shapes: Shapes, **functions: Any) -> Workload:
    return Workload(
        name=name,
        description=description,
        source="the tests",
        metrics=METRICS,
        settings={"batch_size": Setting(16, "examples in a minibatch; null for all")},
        dtype="float64",
        shared_data=True,
        roles=lambda settings: {name: role for name, (_, role) in shapes.items()},
        sample_parameters=lambda settings, generator: _sample(shapes, generator),
        **functions,
    )


# --- convolutions --------------------------------------------------------------------------------


def _convolution_problem(settings: Settings, random: Random) -> Problem:
    return Problem(
        parameters=_sample(CONVOLUTION, random("parameters")),
        splits=_splits(random),
        state={
            f"{name}{layer}": np.full(CHANNELS, value)
            for layer in (1, 2)
            for name, value in (("mean", 0.0), ("variance", 1.0))
        },
    )


def _convolution_noise(
    settings: Settings, generator: np.random.Generator, batch: int
) -> dict[str, np.ndarray]:
    """Which rows and columns of the image with its margin are seen (a shift by one, a flip), and dropout."""
    places = np.arange(SIDE)
    rows, columns = (places + shift[:, None] for shift in generator.integers(0, 3, (2, batch)))
    flipped = generator.random((batch, 1)) < 0.5
    return {
        "rows": rows,
        "columns": np.where(flipped, columns[:, ::-1], columns),
        "keep": _dropout(generator, (batch, FEATURES)),
    }


def _augmented(ops: Ops, images: Array, noise: Arrays) -> Array:
    margin = ops.pad(images, ((0, 0), (0, 0), (1, 1), (1, 1)))
    seen = ops.take_along_axis(margin, noise["rows"][:, None, :, None], 2)
    return ops.take_along_axis(seen, noise["columns"][:, None, None, :], 3)


def _convolution_loss(
    ops: Ops, params: Arrays, state: Arrays, batch: Arrays, noise: Arrays
) -> tuple[Array, Arrays, Arrays]:
    hidden, new_state = _augmented(ops, batch["images"], noise), {}
    for layer in (1, 2):
        hidden = ops.conv2d(hidden, params[f"kernel{layer}"], padding=1)
        hidden, mean, variance = ops.batch_norm_in_training(
            hidden, params[f"scale{layer}"], params[f"shift{layer}"], EPSILON
        )
        new_state[f"mean{layer}"] = DECAY * state[f"mean{layer}"] + (1 - DECAY) * mean
        new_state[f"variance{layer}"] = DECAY * state[f"variance{layer}"] + (1 - DECAY) * variance
        hidden = ops.relu(hidden)
        hidden = ops.max_pool2d(hidden, 2, 2) if layer == 1 else hidden
    features = ops.reshape(hidden, (-1, FEATURES)) * noise["keep"]
    logits = _apply(ops, params, "head", features)
    return _negative_log_likelihood(ops, logits, batch["labels"]), new_state, {}


def _convolution_evaluate(ops: Ops, params: Arrays, state: Arrays, split: Arrays) -> dict[str, Array]:
    hidden = split["images"]
    for layer in (1, 2):
        hidden = ops.conv2d(hidden, params[f"kernel{layer}"], padding=1)
        statistics = state[f"mean{layer}"], state[f"variance{layer}"]
        hidden = ops.relu(
            ops.batch_norm(hidden, *statistics, params[f"scale{layer}"], params[f"shift{layer}"], EPSILON)
        )
        hidden = ops.max_pool2d(hidden, 2, 2) if layer == 1 else hidden
    return _measured(ops, _apply(ops, params, "head", ops.reshape(hidden, (-1, FEATURES))), split["labels"])


SMALL_CONVOLUTION = _workload(
    "small_convolution",
    "two convolutions with batch norm, max pooling, dropout, shifts and flips",
    CONVOLUTION,
    problem=_convolution_problem,
    loss=_convolution_loss,
    evaluate=_convolution_evaluate,
    noise=_convolution_noise,
    mapped=False,
    evaluation_batch=24,  # divides neither split: the last part is smaller
)


# --- attention -----------------------------------------------------------------------------------


def _attention_problem(settings: Settings, random: Random) -> Problem:
    return Problem(parameters=_sample(ATTENTION, random("parameters")), splits=_splits(random))


def _attention_noise(settings: Settings, generator: np.random.Generator, batch: int) -> dict[str, np.ndarray]:
    return {"keep": _dropout(generator, (batch, TOKENS, DIM))}


def _heads(ops: Ops, x: Array) -> Array:
    """(N, tokens, dim) as (N, heads, tokens, dim / heads)."""
    return ops.swapaxes(ops.reshape(x, (-1, TOKENS, HEADS, DIM // HEADS)), 1, 2)


def _layer_norm(ops: Ops, params: Arrays, name: str, x: Array) -> Array:
    return ops.layer_norm(x, params[f"{name}_scale"], params[f"{name}_shift"], EPSILON)


def _transformed(ops: Ops, params: Arrays, block: str, x: Array) -> Array:
    """One block: attention and a perceptron, each after a norm and added to its input."""
    normal = _layer_norm(ops, params, f"{block}_norm1", x)
    parts = [
        _heads(ops, _apply(ops, params, f"{block}_{part}", normal)) for part in ("query", "key", "value")
    ]
    seen = ops.reshape(ops.swapaxes(ops.attention(*parts), 1, 2), (-1, TOKENS, DIM))
    x = x + _apply(ops, params, f"{block}_output", seen)
    normal = _layer_norm(ops, params, f"{block}_norm2", x)
    hidden = ops.gelu(_apply(ops, params, f"{block}_hidden", normal))
    return x + _apply(ops, params, f"{block}_result", hidden)


def _embedded(ops: Ops, params: Arrays, images: Array) -> Array:
    patches = ops.conv2d(images, params["patch"], stride=PATCH)
    return ops.matrix_transpose(ops.reshape(patches, (-1, DIM, TOKENS))) + params["position"]


def _attention_logits(ops: Ops, params: Arrays, tokens: Array) -> Array:
    for number in range(1, BLOCKS + 1):
        tokens = _transformed(ops, params, f"block{number}", tokens)
    return _apply(ops, params, "head", ops.mean(_layer_norm(ops, params, "norm", tokens), axis=1))


def _attention_loss(
    ops: Ops, params: Arrays, state: Arrays, batch: Arrays, noise: Arrays
) -> tuple[Array, Arrays, Arrays]:
    tokens = _embedded(ops, params, batch["images"]) * noise["keep"]
    logits = _attention_logits(ops, params, tokens)
    return _negative_log_likelihood(ops, logits, batch["labels"]), state, {}


def _attention_evaluate(ops: Ops, params: Arrays, state: Arrays, split: Arrays) -> dict[str, Array]:
    tokens = _embedded(ops, params, split["images"])
    return _measured(ops, _attention_logits(ops, params, tokens), split["labels"])


SMALL_ATTENTION = _workload(
    "small_attention",
    "an attention block on patches of 2 x 2 pixels, with dropout",
    ATTENTION,
    problem=_attention_problem,
    loss=_attention_loss,
    evaluate=_attention_evaluate,
    noise=_attention_noise,
)
