"""Linear attention that solves linear regressions which its inputs contain.

Each example is a regression of its own: n inputs x_i with outputs y_i = w . x_i, and an input x whose output
w . x has to be predicted, where w is standard normal. The tokens z_i = (x_i, y_i) and (x, 0) pass layers of
linear attention with the weights Q and P, in which each token z becomes

    z + P sum_i z_i (z_i . Q z) / n.

The prediction is the negative last entry of the last token (Ahn et al. 2023, "Linear attention is (maybe) all
you need (to understand transformer optimization)", arXiv 2310.01082). On this small problem, the known
differences between optimizers of transformers appear. One layer can make one step of gradient descent for w.
"""

from __future__ import annotations

import numpy as np

from curvebench.spec.values import choice, number, whole
from curvebench.workloads.arguments import Array, Arrays, Ops, Random, Settings
from curvebench.workloads.workload import (
    Likelihood,
    Metric,
    Problem,
    Role,
    Setting,
    Start,
    Workload,
    batch_size,
    loss_of,
    require_batch,
)

SPLITS = ("train", "validation")
SHAPE, SCALE = 0.1, 10.0  # of the Gamma distribution of |x|^2 with heavy tails, whose mean is 1 (2310.01082)


def sample_inputs(kind: str, shape: tuple[int, ...], generator: np.random.Generator) -> np.ndarray:
    """Draw inputs (..., d): standard normal, or `heavy`, in a uniform direction with |x|^2 of a Gamma law."""
    normal = generator.normal(size=shape)
    if kind == "normal":
        return normal
    squares = generator.gamma(SHAPE, SCALE, size=(*shape[:-1], 1))
    return normal * np.sqrt(squares / np.sum(normal**2, axis=-1, keepdims=True))


def _roles(settings: Settings) -> dict[str, Role]:
    """Return the role of each weight: Q1, P1, Q2, P2, ..."""
    names = [f"{name}{layer}" for layer in range(1, settings["layers"] + 1) for name in "QP"]
    return {name: Role("weight", number) for number, name in enumerate(names)}


def _sample_parameters(settings: Settings, generator: np.random.Generator) -> dict[str, np.ndarray]:
    """Draw weights (d + 1, d + 1) with normal entries, whose standard deviation is a setting."""
    size = (settings["dimension"] + 1,) * 2
    return {name: generator.normal(scale=settings["start_scale"], size=size) for name in _roles(settings)}


def _problem(settings: Settings, random: Random) -> Problem:
    """Draw regressions and initial parameters, different for each seed."""
    generator, splits = random("data"), {}
    for split in SPLITS:
        shape = settings[f"{split}_examples"], settings["context"] + 1, settings["dimension"]
        inputs = sample_inputs(settings["inputs"], shape, generator)
        outputs = np.einsum("eid,ed->ei", inputs, generator.normal(size=(shape[0], shape[2])))
        targets = outputs[:, -1:].copy()
        outputs[:, -1] = 0.0
        splits[split] = {"tokens": np.concatenate([inputs, outputs[..., None]], axis=-1), "targets": targets}
    return Problem(_sample_parameters(settings, random("parameters")), splits)


def _predictions(ops: Ops, params: Arrays, state: Arrays, batch: Arrays, noise: Arrays) -> Array:
    """Return the predicted outputs of the last inputs, (examples, 1)."""
    tokens = batch["tokens"]
    context = tokens.shape[1] - 1
    for layer in range(1, len(params) // 2 + 1):
        known = tokens[:, :context]  # the sum over i leaves out the last token
        scores = ops.matmul(ops.linear(tokens, params[f"Q{layer}"]), ops.matrix_transpose(known))
        tokens = tokens + ops.linear(ops.matmul(scores, known), params[f"P{layer}"]) / context
    return -tokens[:, -1, -1:]


def _squared_error(ops: Ops, params: Arrays, batch: Arrays) -> Array:
    """Return the mean squared error of the predictions."""
    return ops.mean(ops.square(_predictions(ops, params, {}, batch, {}) - batch["targets"]))


IN_CONTEXT_REGRESSION = Workload(
    name="in_context_regression",
    description="3 layers of linear attention that solve linear regressions in 5 dimensions (d = 216)",
    source="Ahn et al. 2023, arXiv 2310.01082",
    metrics={
        f"{split}_loss": Metric(f"squared error of the prediction on the {split} split", "minimize")
        for split in SPLITS
    },
    settings={
        "batch_size": batch_size(128),
        "layers": Setting(3, "layers of attention, with two matrices each", whole()),
        "dimension": Setting(5, "dimension of the inputs of a regression", whole()),
        "context": Setting(20, "known examples of a regression", whole()),
        "inputs": Setting(
            "normal", "normal, or heavy: with squares of a Gamma distribution", choice("normal", "heavy")
        ),
        "start_scale": Setting(0.1, "standard deviation of the entries of the start", number(0.0)),
        "train_examples": Setting(2048, "regressions of the training split", whole()),
        "validation_examples": Setting(1024, "regressions of the validation split", whole()),
    },
    dtype="float32",
    shared_data=False,
    roles=_roles,
    problem=_problem,
    sample_parameters=_sample_parameters,
    loss=loss_of(_squared_error),
    evaluate=lambda ops, params, state, split: {"loss": _squared_error(ops, params, split)},
    likelihood=Likelihood(_predictions, "gaussian", scale=2.0),
    start=Start(5.159092216475239, 3.321147319606971),
    check=lambda settings: require_batch(settings, settings["train_examples"]),
)

WORKLOADS = (IN_CONTEXT_REGRESSION,)
