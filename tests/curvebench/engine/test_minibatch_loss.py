"""The mean loss of steps between evaluations: every step's loss by hand, stops, divergence, parts."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curvebench import optimizers
from curvebench.engine.bundle import Trajectories
from curvebench.workloads.workload import MINIBATCH_LOSS, Metric
from tests.curvebench.engine.test_execution import STEPS, changed, make_bundle, run
from tests.curvebench.toys import TANH, steep_loss, steps_by_hand

BACKENDS = ("jax", "torch")
SGD = optimizers.rules()["sgd"]
DECLARED = Metric("mean loss of the steps since the evaluation before", "minimize")
METRICS = {"train_loss": TANH.metrics["train_loss"], MINIBATCH_LOSS: DECLARED}
WORKLOAD = dataclasses.replace(TANH, metrics=METRICS)


def losses_of(found: Trajectories) -> np.ndarray:
    return found.metrics[MINIBATCH_LOSS]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("parts", [1, 5])
def test_it_is_the_mean_of_the_steps_since_the_evaluation_before(parts: int, backend: str) -> None:
    """At step 0 it is the loss of the first step's minibatch, before any update."""
    bundle = make_bundle(WORKLOAD, SGD, rates=(0.05, 0.2), basis=False, gradient_accumulation=parts)
    found = losses_of(run(bundle, backend))
    for seed, k in np.ndindex(3, 2):
        losses = np.array([step.loss for step in steps_by_hand(bundle, seed, (0.05, 0.2)[k])[0]])
        expected = [losses[0], *losses.reshape(4, 3).mean(axis=1)]
        np.testing.assert_allclose(found[:, seed, k], expected, rtol=1e-11)


@given(st.integers(1, STEPS))
def test_the_means_weighted_by_their_steps_are_the_mean_of_all(evaluations: int) -> None:
    found = run(make_bundle(WORKLOAD, SGD, seeds=(0,), rates=(0.1,), evaluations=evaluations), "torch")
    whole = run(make_bundle(WORKLOAD, SGD, seeds=(0,), rates=(0.1,), evaluations=1), "torch")
    mean = np.average(losses_of(found)[1:, 0, 0], weights=np.diff(found.steps))
    assert mean == pytest.approx(losses_of(whole)[1, 0, 0], rel=1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
def test_steps_after_a_stop_do_not_count(backend: str) -> None:
    """A stretch of full batches in which a lane stops: the mean of its losses up to the short gradient."""
    every = make_bundle(WORKLOAD, SGD, batch_size=None, rates=(0.3,), steps=40, evaluations=40, basis=False)
    one = dataclasses.replace(every, evaluations=2)
    norms = make_bundle(TANH, SGD, batch_size=None, rates=(0.3,), steps=40, evaluations=40, basis=False)
    threshold = float(np.median(run(norms, backend).metrics["gradient_norm"][:, :, 0]))
    found = run(changed(one, stop_gradient_norm=threshold), backend)
    losses = losses_of(run(every, backend))[1:, :, 0]
    for seed, stopped in enumerate(found.stopped_at[:, 0]):
        assert stopped > 0
        ends = [(0, min(stopped, 20)), (20, min(stopped, 40))]
        for number, (start, end) in enumerate(ends, start=1):
            value = losses_of(found)[number, seed, 0]
            if start >= end:
                assert np.isnan(value)  # the mean over no steps; records end before it
            else:
                assert value == pytest.approx(losses[start:end, seed].mean(), rel=1e-11)


@pytest.mark.parametrize("backend", BACKENDS)
def test_it_is_not_finite_where_a_run_diverges(backend: str) -> None:
    workload = dataclasses.replace(WORKLOAD, loss=steep_loss)
    found = run(make_bundle(workload, SGD, rates=(0.001, 1e3)), backend)
    at = np.searchsorted(found.steps, found.diverged_at[:, 1])
    assert not np.isfinite(losses_of(found)[at, np.arange(3), 1]).any()
    assert np.isfinite(losses_of(found)[:, :, 0]).all()
