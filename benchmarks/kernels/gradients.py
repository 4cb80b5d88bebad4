"""Gradients of the digits network: sampled as for EGOP, and inside a step of mapped lanes."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from harness.backends.engine import engine
from harness.engine.derivatives import sampled_gradients
from harness.engine.execution import Bundle, load, stretch_inputs
from optimizers import rules
from workloads import Problem, workloads

from .case import KernelCase, ReadyCase, representable
from .steps import end_to_end

EXAMPLES, PIXELS, HIDDEN, CLASSES = 300, 64, 32, 10
SHAPES = {"W1": (HIDDEN, PIXELS), "b1": (HIDDEN,), "W2": (CLASSES, HIDDEN), "b2": (CLASSES,)}
SAMPLES = 16
SEEDS, RATES = 2, (0.03, 0.1, 0.3, 1.0)
PARAMETERS = sum(map(prod, SHAPES.values()))
DATA_ENTRIES = EXAMPLES * (PIXELS + 1)

Named = Mapping[str, np.ndarray]


def _data() -> dict[str, np.ndarray]:
    generator = np.random.default_rng(3)
    return {
        "features": np.abs(representable(generator, (EXAMPLES, PIXELS))),
        "labels": generator.integers(0, CLASSES, EXAMPLES),
    }


def _draws(count: int) -> list[dict[str, np.ndarray]]:
    generator = np.random.default_rng(4)
    return [
        {name: representable(generator, shape) / 8 for name, shape in SHAPES.items()} for _ in range(count)
    ]


def digits_gradient(params: Named, data: Named) -> dict[str, np.ndarray]:
    """The gradient of the mean negative log-likelihood, by hand (000 C.2), in float64."""
    x, labels = data["features"], data["labels"]
    before = x @ params["W1"].T + params["b1"]
    hidden = np.maximum(before, 0)
    logits = hidden @ params["W2"].T + params["b2"]
    probabilities = np.exp(logits - logits.max(axis=1, keepdims=True))
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    outer = (probabilities - np.eye(CLASSES)[labels]) / len(x)
    inner = (outer @ params["W2"]) * (before > 0)
    return {"W1": inner.T @ x, "b1": inner.sum(axis=0), "W2": outer.T @ hidden, "b2": outer.sum(axis=0)}


def _samples(backend: str, dtype: str) -> ReadyCase:
    """What `harness.basis_estimation.gradients.sample_gradients` calls for a chunk of samples."""
    made = engine(backend, dtype)
    ops, drawn = made.ops, _draws(SAMPLES)
    with made.context():
        params = {name: ops.asarray(np.stack([draw[name] for draw in drawn])) for name in SHAPES}
        data = {name: ops.asarray(array) for name, array in _data().items()}
        gradients = sampled_gradients(made, workloads()["digits_mlp"].loss, per_sample=False)
        results = [gradients(params, {}, data, {})]

    def run() -> None:
        results[0] = gradients(params, {}, data, {})
        made.finish(results[0])

    def result() -> np.ndarray:
        return end_to_end({name: np.array(ops.to_numpy(results[0][name])) for name in SHAPES})

    return ReadyCase(run, result, made.context)


def _sampled() -> np.ndarray:
    data = _data()
    gradients = [digits_gradient(draw, data) for draw in _draws(SAMPLES)]
    return end_to_end({name: np.stack([gradient[name] for gradient in gradients]) for name in SHAPES})


def _lanes(backend: str, dtype: str, steps: int | None = None) -> ReadyCase:
    """A step of gradient descent in every lane, seeds x rates, through the engine's segment.

    `steps` are planned, by which the engine decides whether compiling is worth its time; None: many.
    """
    made = engine(backend, dtype)
    ops = made.ops
    bundle = Bundle(
        workload=workloads()["digits_mlp"],
        rule=rules()["sgd"],
        problems=[Problem(parameters=draw, splits={"train": _data()}) for draw in _draws(SEEDS)],
        orders=None,
        hyperparameters={"learning_rate": np.array(RATES)},
        schedule=np.ones(1),
        evaluations=1,
    )
    with made.context():
        loaded = load(bundle, made)
        inputs = stretch_inputs(bundle, made, 0, 1)
        carry: Any = loaded.carry
        segment = made.segment(loaded.program, carry, loaded.constants, inputs, steps)

    def run() -> None:
        nonlocal carry
        carry = segment(carry, loaded.constants, inputs)
        made.finish(carry)

    return ReadyCase(run, lambda: np.array(ops.to_numpy(carry.coordinates)), made.context)


def _stepped() -> np.ndarray:
    data = _data()
    lanes = []
    for draw in _draws(SEEDS):
        theta, gradient = end_to_end(draw), end_to_end(digits_gradient(draw, data))
        lanes.append([theta - rate * gradient for rate in RATES])
    return np.array(lanes)


def gradient_cases() -> tuple[KernelCase, ...]:
    """Sampled gradients in float64, and a step of lanes."""
    lanes = SEEDS * len(RATES)
    sizes = {"examples": EXAMPLES, "parameters": PARAMETERS}
    return (
        KernelCase(
            name="gradient.digits_samples",
            group="gradient",
            sizes={**sizes, "samples": SAMPLES},
            entries=DATA_ENTRIES + 2 * SAMPLES * PARAMETERS,
            prepare=_samples,
            reference=_sampled,
            tolerance={"float64": 1e-12},
            dtypes=("float64",),
        ),
        KernelCase(
            name="gradient.digits_lanes",
            group="gradient",
            sizes={**sizes, "seeds": SEEDS, "settings": len(RATES)},
            entries=DATA_ENTRIES + 3 * lanes * PARAMETERS,
            prepare=_lanes,
            prepare_few=lambda backend, dtype: _lanes(backend, dtype, 1),
            reference=_stepped,
            tolerance={"float64": 1e-12, "float32": 2e-5},
        ),
    )
