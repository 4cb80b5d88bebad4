"""The record of a lane: what is kept of its curve, how it ended, its best value and its targets."""

from __future__ import annotations

import numpy as np
import pytest

from curvebench.engine.bundle import Trajectories
from curvebench.stages.records import best, lane_of, steps_to
from tests.curvebench.toys import TANH

STEPS = np.array([0, 10, 20, 30, 40])


def trajectories(metrics: dict[str, list[float]], diverged: int = 0, stopped: int = 0) -> Trajectories:
    """One lane of 40 steps, or fewer, that is evaluated after every 10."""
    steps = STEPS[: len(next(iter(metrics.values())))]
    return Trajectories(
        steps=steps,
        metrics={name: np.array(values)[:, None, None] for name, values in metrics.items()},
        diverged_at=np.array([[diverged]]),
        stopped_at=np.array([[stopped]]),
        state_bytes=8,
        closure_gradients=np.zeros(len(steps), int),
        reestimation_seconds=np.zeros((1, 1)),
    )


@pytest.mark.parametrize(
    ("loss", "diverged", "stopped", "kept", "outcome", "outcome_step", "updates", "gradients"),
    [
        ([5, 4, 3, 2, 1], 0, 0, [0, 10, 20, 30, 40], "budget", None, 40, 40),
        ([5, 4, 0.4, 2, 1], 0, 0, [0, 10, 20, 30, 40], "reached", 20, 40, 40),
        ([5, 9, np.nan, np.nan, np.nan], 13, 0, [0, 10, 13], "diverged", 13, 13, 13),
        ([5, 9, 99, 999, np.inf], 0, 0, [0, 10, 20, 30, 40], "diverged", 40, 40, 40),
        ([5, 4, 3, 3, 3], 0, 17, [0, 10, 16], "reached", 16, 16, 17),
        ([5, 4, 4, 4, 4], 0, 11, [0, 10], "reached", 10, 10, 11),
        ([5, 5, 5, 5, 5], 0, 1, [0], "reached", 0, 0, 1),
        ([0.3, np.nan, np.nan, np.nan, np.nan], 1, 0, [0, 1], "diverged", 1, 1, 1),
    ],
)
def test_outcomes(
    loss: list[float],
    diverged: int,
    stopped: int,
    kept: list[int],
    outcome: str,
    outcome_step: int,
    updates: int,
    gradients: int,
):
    found = trajectories({"train_loss": loss, "train_seen": [0.0] * 5}, diverged, stopped)
    lane = lane_of(found, 0, 0, {"train_loss": 0.5}, TANH)
    assert (lane.outcome, lane.outcome_step) == (outcome, outcome_step)
    assert (lane.total_steps, lane.gradients) == (updates, gradients)
    assert lane.steps.tolist() == kept
    np.testing.assert_array_equal(lane.values["train_loss"], loss[: len(kept)])


def test_a_target_met_at_the_stop_is_met_at_its_step():
    found = trajectories({"train_loss": [5, 4, 0.4, 0.4, 0.4], "train_seen": [0.0] * 5}, stopped=17)
    lane = lane_of(found, 0, 0, {"train_loss": 0.5}, TANH)
    assert steps_to(lane.steps, lane.values["train_loss"], 0.5, "minimize") == 16


def test_targets_in_both_directions():
    values = np.array([0.1, 0.5, 0.9, 0.7, 0.95])
    assert steps_to(STEPS, values, 0.9, "maximize") == 20
    assert steps_to(STEPS, values, 0.96, "maximize") is None
    assert steps_to(STEPS, values, 0.1, "minimize") == 0
    assert steps_to(STEPS, np.full(5, np.nan), 1.0, "minimize") is None


def test_best_passes_over_nan():
    values = np.array([3.0, 1.0, np.nan, 2.0, np.nan])
    assert best(STEPS, values, "minimize") == (1.0, 10)
    assert best(STEPS, values, "maximize") == (3.0, 0)
    nothing, step = best(STEPS, np.full(5, np.nan), "minimize")
    assert np.isnan(nothing)
    assert step == 0
