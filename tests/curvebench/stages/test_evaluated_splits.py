"""Runs of which some splits alone are evaluated: no pass over the others, and tables without them."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from curvebench.backends.engine import engine
from curvebench.engine.execution import execute
from curvebench.engine.loading import load
from curvebench.stages.records import lane_of
from curvebench.workloads.workload import MINIBATCH_LOSS, Metric
from tests.curvebench.engine.test_execution import make_bundle, run
from tests.curvebench.stages.test_records import trajectories
from tests.curvebench.toys import TANH

BACKENDS = ("jax", "torch")
HELD_OUT = TANH.evaluated_on(("validation",))


def test_a_workload_keeps_the_metrics_of_its_splits():
    declared = {**TANH.metrics, MINIBATCH_LOSS: Metric("mean loss of steps", "minimize")}
    workload = dataclasses.replace(TANH, metrics=declared)
    assert list(workload.evaluated_on(("validation",)).metrics) == ["validation_loss", MINIBATCH_LOSS]
    assert workload.evaluated_on(None) is workload
    assert workload.evaluated_splits == ("train", "validation")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("pieces", [False, True], ids=["at once", "in pieces"])
def test_values_are_those_of_a_full_evaluation(pieces: bool, backend: str):
    changes: dict[str, Any] = {"evaluation_batch": 4} if pieces else {}
    seen: list[int] = []

    def evaluate(ops: Any, params: Any, state: Any, split: Any) -> Any:
        seen.append(split["targets"].shape[0])
        return TANH.evaluate(ops, params, state, split)

    workload = dataclasses.replace(HELD_OUT, evaluate=evaluate, **changes)
    found, whole = run(make_bundle(workload), backend), run(make_bundle(), backend)
    assert set(found.metrics) == {"validation_loss"}
    assert set(seen) == ({4, 2} if pieces else {10})  # no batch has the 30 training examples
    np.testing.assert_allclose(found.metrics["validation_loss"], whole.metrics["validation_loss"], rtol=1e-12)


def test_a_split_that_is_not_evaluated_stays_on_the_host():
    made = engine("jax", "float64")
    with made.context():
        assert set(load(make_bundle(TANH.evaluated_on(("train",))), made).splits) == {"train"}


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_run_may_be_seen_by_its_steps_alone(backend: str):
    workload = dataclasses.replace(TANH, metrics={MINIBATCH_LOSS: Metric("mean loss of steps", "minimize")})
    found = execute(make_bundle(workload), engine(backend, "float64"))
    assert set(found.metrics) == {MINIBATCH_LOSS}
    assert np.isfinite(found.metrics[MINIBATCH_LOSS]).all()


@pytest.mark.parametrize(
    ("metrics", "outcome"),
    [
        ({"validation_loss": [3.0, 2.0, np.nan]}, "diverged"),
        ({"validation_loss": [3.0, 2.0, 1.0]}, "budget"),
        ({"test_loss": [3.0, 2.0, np.inf]}, "diverged"),
        ({"train_loss": [3.0, 2.0, 1.0], "validation_loss": [3.0, 2.0, np.inf]}, "budget"),
        ({"validation_accuracy": [0.1, 0.2, 0.3]}, "budget"),
    ],
)
def test_a_late_divergence_shows_in_the_first_evaluated_loss(metrics: dict[str, list[float]], outcome: str):
    assert lane_of(trajectories(metrics), 0, 0, {}, HELD_OUT).outcome == outcome
