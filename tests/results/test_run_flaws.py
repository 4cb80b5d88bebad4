"""Outcomes, steps, gradients and costs that plan and curves contradict, in runs that made-up reports lack."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from results.reading import with_method
from results.run_flaws import of_runs
from results.set_plan import PlannedStudy
from tests.results.rows import rows, target

PLAN: dict[str, Any] = {
    "name": "toy",
    "methods": ["adam", "adam @ egop"],
    "workloads": [
        {
            "name": "quadratic",
            "metrics": {name: {"direction": "minimize"} for name in ("train_loss", "gradient_norm")},
            "settings": {"batch_size": None},
        }
    ],
    "backends": {"jax": {"tuned_on": "jax", "final_seeds": 2}},
    "seeds": {"tuning": 1},
    "tuning": {
        "trials": 1,
        "shared_across": "none",
        "metric": "train_loss",
        "which": "final",
        "direction": "minimize",
    },
    "stop": {"gradient_norm": 1e-8},
    "budget": {"steps": 10},
    "bases": {"egop": {"samples": 7, "every": None}},
    "optimizers": {"adam": {}, "newton": {}},
    "tables": "toy",
}
EVALUATIONS = 4  # of a step with a Hessian of 3 rows
BATCH = 10


def run(name: str, steps: int = 10, norm: float = 1.0, each: int = 1, **changes: Any) -> dict[str, Any]:
    """A run that took its budget, or stopped before its end, with the evaluations of its steps."""
    stopped = steps < 10
    evaluations = each * (steps + stopped)
    found: dict[str, Any] = {
        "run": name,
        "steps": steps,
        "outcome": "reached" if stopped else "budget",
        "outcome_step": steps if stopped else None,
        "gradient_evaluations": evaluations,
        "basis_gradient_evaluations": 0,
        "basis_seconds": 0.0,
        "examples": evaluations * BATCH,
        "final_metrics": [{"name": "train_loss", "value": 0.5}, {"name": "gradient_norm", "value": norm}],
    } | changes
    return found | {"examples": found["gradient_evaluations"] * BATCH}


def curve(
    name: str, points: Sequence[tuple[int, float]], each: int = 1, further: int = 0
) -> list[dict[str, Any]]:
    """Step and gradient norm at checkpoints; `further` evaluations come after half of the budget."""
    return [
        {
            "run": name,
            "step": step,
            "gradient_evaluations": (evaluations := each * step + further * (step > 5)),
            "examples": evaluations * BATCH,
            "metric": "gradient_norm",
            "value": norm,
        }
        for step, norm in points
    ]


def found(runs: Sequence[dict[str, Any]], curves: Sequence[dict[str, Any]], **changes: Any) -> list[str]:
    study = PlannedStudy.model_validate(PLAN | changes)
    return list(of_runs(study, with_method(rows("runs", *runs)), rows("curves", *curves)))


WENT_ON = curve("a", [(0, 1.0), (5, 0.1), (10, 0.01)])
STOPPED = curve("a", [(0, 1.0), (5, 1e-3), (7, 9e-9)])


def test_runs_that_took_their_budget_or_stopped_below_the_threshold_are_right():
    assert found([run("a")], WENT_ON) == []
    assert found([run("a", 7, norm=9e-9)], STOPPED) == []
    below = curve("a", [(0, 1.0), (5, 0.1), (10, 9e-9)])  # it would have stopped at the next step
    assert found([run("a", norm=9e-9)], below) == []


def test_a_run_that_stopped_above_the_threshold_or_went_on_below_it_is_refused():
    (told,) = found([run("a", 7, norm=1e-3)], curve("a", [(0, 1.0), (7, 1e-3)]))
    assert "outcome is reached after 7 of 10 steps, and gradient_norm ends at 0.001; a run that" in told
    (told,) = found([run("a")], curve("a", [(0, 1.0), (5, 9e-9), (10, 1.0)]))
    assert told.startswith("toy/curves.parquet: run a, step 5, gradient_norm: 9e-09 is below 1e-08")
    assert told.endswith("where runs stop, and the run goes on to step 10")
    failed = run("a", 7, norm=9e-9, outcome="out_of_memory")
    for given in (failed, failed | {"final_metrics": [], "steps": None}):
        (told,) = found([given], STOPPED)
        assert "is out_of_memory, and gradient_norm ends at 9e-09, below the 1e-08 where runs stop" in told
    (told,) = found([run("a", 7, norm=9e-9, outcome_step=3)], STOPPED)
    assert "outcome is reached with outcome_step 3, and the run stopped at step 7" in told
    (told,) = found([run("a", outcome="reached")], WENT_ON)
    assert "outcome is reached with outcome_step missing, and the first target is not reached" in told
    (told,) = found([run("a", 7, norm=9e-9, gradient_evaluations=7)], STOPPED)
    assert "gradient_evaluations is 7, and should be 8, 1 for each of 8 gradients" in told


@pytest.mark.parametrize(
    ("changes", "own"),
    [
        ({"looks_ahead": ["adam"]}, {}),  # its gradient is of another point than the iterate
        ({}, {"dtype": "float32"}),
        ({"workloads": [PLAN["workloads"][0] | {"settings": {"batch_size": BATCH}}]}, {}),
    ],
)
def test_a_threshold_is_judged_only_by_what_runs_stop_by(changes: dict[str, Any], own: dict[str, Any]):
    """Beside one that goes on, since the longest run says how many steps epochs of minibatches have."""
    runs = [run("a", 7, norm=1e-3, **own), run("b", **own)]
    points = curve("a", [(0, 1.0), (5, 9e-9), (7, 1e-3)]) + curve("b", [(0, 1.0), (10, 1.0)])
    assert found(runs, points, **changes) == []
    assert found(runs, points) == [] or not own


def test_a_run_that_stops_in_a_study_without_a_threshold_is_refused():
    points = curve("a", [(0, 1.0), (7, 1.0)])
    short = run("a", 7, outcome_step=None, outcome="budget", gradient_evaluations=7)
    (told,) = found([short], points)
    assert "outcome is budget after 7 steps, and should be after 10, the planned steps" in told
    given = run("a", 7, gradient_evaluations=7, targets=[target(steps=7)])
    (told,) = found([given], points, stop={})
    assert "outcome is reached after 7 steps, and should be after 10" in told


def test_a_run_said_to_have_failed_that_has_its_curve_is_refused():
    failed = run("a", outcome="interrupted", final_metrics=[]) | {"steps": None}
    losses = [one | {"metric": "train_loss"} for one in WENT_ON]
    (told,) = found([failed], losses)
    assert "outcome is interrupted, and the run took all of its 10 steps, with train_loss 0.01; it" in told
    assert found([failed], [one for one in losses if one["step"] < 10]) == []


def test_epochs_of_a_full_batch_are_steps_and_of_minibatches_as_many_for_all():
    (told,) = found([run("a")], WENT_ON, budget={"epochs": 5})
    assert "outcome is budget after 10 steps, and should be after 5, the planned epochs, each a step" in told
    batches = [PLAN["workloads"][0] | {"settings": {"batch_size": BATCH}}]
    both = [run("a"), run("b", 7, outcome="budget", outcome_step=None, gradient_evaluations=7)]
    points = WENT_ON + curve("b", [(0, 1.0), (7, 1.0)])
    (told,) = found(both, points, budget={"epochs": 5}, workloads=batches)
    assert "run b" in told
    assert "outcome is budget after 7 steps, and should be after 10, as of other runs on quadratic" in told
    (told,) = found([run("a")], WENT_ON, budget={"epochs": 4}, workloads=batches)
    assert told.endswith("have 10 steps, and should have a multiple of the 4 epochs of plan.json")
    (told,) = found(
        [run("a", examples=7)],
        WENT_ON,
        budget={"steps": 10},
        workloads=[PLAN["workloads"][0] | {"settings": {"batch_size": 3}}],
    )[:1]
    assert "examples is 100, and should be 30: 10 gradients of 3 examples each" in told


def test_a_rule_with_a_hessian_takes_several_evaluations_a_step():
    newton = run("a", each=EVALUATIONS, optimizer="newton")
    points = curve("a", [(0, 1.0), (5, 0.1), (10, 0.01)], each=EVALUATIONS)
    for plan in ({}, {"needs_hessian": ["newton"]}):
        assert found([newton], points, **plan) == []
        stopped = run("a", 7, norm=9e-9, each=EVALUATIONS, optimizer="newton")
        assert found([stopped], curve("a", [(0, 1.0), (7, 9e-9)], each=EVALUATIONS), **plan) == []
    found_each = found([newton], points, needs_hessian=[])
    assert "gradient_evaluations is 40, and should be 10, 1 for each of 10 gradients" in found_each[0]
    free = [one | {"gradient_evaluations": 0} for one in points]
    assert found([newton | {"gradient_evaluations": 0}], free)


def test_a_basis_that_is_estimated_anew_takes_its_samples_again():
    basis = {"egop": {"samples": 7, "every": "5 steps"}}
    own: dict[str, Any] = {"basis": "egop", "basis_gradient_evaluations": 7}
    points = curve("a", [(0, 1.0), (5, 0.1), (10, 0.01)], further=7)
    once = curve("b", [(0, 1.0), (10, 1.0)])  # of the same optimizer without it, for what a step takes
    runs = [run("a", gradient_evaluations=17, **own), run("b")]
    assert found(runs, points + once, bases=basis) == []
    (told, _) = found([run("a", gradient_evaluations=18, **own), run("b")], points + once, bases=basis)
    assert "is 18, and should be 10, 1 for each of 10 gradients, and 7 more for each new estimate of" in told
    (told,) = found([run("a", gradient_evaluations=24, **own), run("b")], points + once, bases=basis)
    assert "gradient_evaluations is 24, and the curve ends with 17" in told


def test_a_basis_costs_its_samples_and_one_that_is_not_sampled_nothing():
    own: dict[str, Any] = {"basis": "egop", "basis_gradient_evaluations": 6}
    (told,) = found([run("a", **own)], WENT_ON)
    assert "basis_gradient_evaluations is 6, and should be 7, as of every run in the basis egop on" in told
    fixed = {"egop": {"samples": None}}
    (told,) = found([run("a", **own)], WENT_ON, bases=fixed)
    assert "basis_gradient_evaluations is 6, and should be 0" in told
    assert found([run("a", **own)], WENT_ON, bases={"egop": {"samples": "2.0 d"}}) == []
