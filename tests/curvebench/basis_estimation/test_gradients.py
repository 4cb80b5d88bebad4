"""Gradients at random parameters against finite differences and a plain loop."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import numpy as np
import pytest

from curvebench.backends.engine import engine
from curvebench.basis_estimation import gradients as module
from curvebench.basis_estimation.gradients import CHUNK_BYTES, MAX_CHUNK, GradientSampling, chunk_of, sampler
from curvebench.seeding import WorkloadRandom, batch_order
from tests.curvebench.toys import TANH, central_differences


def difference(params: dict[str, np.ndarray], batch: dict[str, np.ndarray], name: str) -> np.ndarray:
    return central_differences(TANH, params, {"seen": np.zeros(())}, batch, {}, name)


def gathered(pieces: Iterable[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    found = list(pieces)
    return {name: np.concatenate([piece[name] for piece in found]) for name in found[0]}


def test_samples_are_minibatch_gradients_at_drawn_parameters() -> None:
    settings, random = {"batch_size": 10}, WorkloadRandom("tanh_regression", 3)
    problem = TANH.problem(settings, random)
    count = MAX_CHUNK + 5  # two chunks, the last one padded
    for backend in ("jax", "torch"):
        other = WorkloadRandom("tanh_regression", 8)  # compiled for another seed's problem
        sample = sampler(
            GradientSampling(TANH, settings, count),
            engine(backend, "float64"),
            TANH.problem(settings, other),
            other,
        )
        sampled = gathered(sample(problem, random))
        rng = random("egop sampling")
        drawn = [TANH.sample_parameters(settings, rng) for _ in range(count)]
        order = batch_order(random, 30, 10, count, purpose="egop batches")
        for number in (0, 1, MAX_CHUNK, count - 1):
            batch = {name: values[order[number]] for name, values in problem.splits["train"].items()}
            for name, gradients in sampled.items():
                assert gradients.shape == (count, *problem.parameters[name].shape)
                expected = difference(drawn[number], batch, name)
                np.testing.assert_allclose(gradients[number], expected, rtol=1e-6, atol=1e-8)


def test_on_a_cpu_as_many_are_mapped_at_once_as_fit_the_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    settings, random = {"batch_size": None}, WorkloadRandom("tanh_regression", 4)
    problem, made = TANH.problem(settings, random), engine("jax", "float64")
    what = GradientSampling(TANH, settings, 50)
    parameters = problem.parameters.values()
    entries, rows = sum(value.size for value in parameters), sum(value.shape[0] for value in parameters)
    one = 8 * (2 * entries + 2 * 30 * rows)  # 30 training examples in float64
    assert one < CHUNK_BYTES / 50
    assert chunk_of(what, made, problem) == 50
    alone = dataclasses.replace(what, workload=dataclasses.replace(TANH, mapped=False))
    assert chunk_of(alone, made, problem) == 1
    whole = gathered(sampler(what, made, problem, random)(problem, random))
    for fitting, expected in ((20.5, 17), (0.5, 1)):  # three pieces, the last padded by one
        monkeypatch.setattr(module, "CHUNK_BYTES", fitting * one)
        assert chunk_of(what, made, problem) == expected
        pieces = gathered(sampler(what, made, problem, random)(problem, random))
        for name, gradients in whole.items():
            np.testing.assert_allclose(pieces[name], gradients, rtol=0, atol=1e-13)
