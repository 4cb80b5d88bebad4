"""Outcomes, steps, gradients and costs that plan and curves contradict, in runs that made-up reports lack."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import polars as pl
import pytest

from harness.reestimation import Reestimation
from results.reading import with_method
from results.run_flaws import MOST, left_open, of_runs
from results.set_plan import PlannedStudy
from tests.results.rows import STUDY, rows, target

PLAN: dict[str, Any] = STUDY | {
    "workloads": [
        {
            "name": "quadratic",
            "metrics": {name: {"direction": "minimize"} for name in ("train_loss", "gradient_norm")},
            "settings": {"batch_size": None},
        }
    ],
    "backends": {"jax": {"tuned_on": "jax", "final_seeds": 2}},
    "stop": {"gradient_norm": 1e-8},
    "bases": {"egop": {"samples": 7, "every": None}},
    "optimizers": {"adam": {}, "newton": {}},
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


def opened(runs: Sequence[dict[str, Any]], **changes: Any) -> list[str]:
    study = PlannedStudy.model_validate(PLAN | changes)
    return list(left_open(study, with_method(rows("runs", *runs))))


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
    (told,) = found([run("a", 7, norm=9e-9, outcome_step=3)], STOPPED)
    assert "outcome is reached with outcome_step 3, and the run stopped at step 7" in told
    (told,) = found([run("a", outcome="reached")], WENT_ON)
    assert "outcome is reached with outcome_step missing, and the first target is not reached" in told
    (told,) = found([run("a", 7, norm=9e-9, gradient_evaluations=7)], STOPPED)
    assert "gradient_evaluations is 7, and should be 8, 1 for each of 8 gradients" in told


def test_rounding_excuses_a_thousandth_and_no_more():
    points = curve("a", [(0, 1.0), (7, 1.0005e-8)])
    assert found([run("a", 7, norm=1.0005e-8)], points) == []
    assert len(found([run("a", 7, norm=1.002e-8)], curve("a", [(0, 1.0), (7, 1.002e-8)]))) == 1
    assert found([run("a")], curve("a", [(0, 1.0), (5, 0.9995e-8), (10, 1.0)])) == []
    assert len(found([run("a")], curve("a", [(0, 1.0), (5, 0.998e-8), (10, 1.0)]))) == 1


MINIBATCHES = [PLAN["workloads"][0] | {"settings": {"batch_size": BATCH}}]


@pytest.mark.parametrize(
    ("changes", "own", "right", "wrong", "limit"),
    [
        ({"looks_ahead": ["adam"]}, {}, 9e-6, 1.1e-5, "1e-05"),  # its gradient is of another point
        ({}, {"dtype": "float32"}, 1.4e-8, 1.6e-8, "1.5e-08"),
        ({"workloads": MINIBATCHES}, {}, 9e-6, 1.1e-5, "1e-05"),
    ],
)
def test_a_threshold_is_judged_roughly_where_runs_stop_by_something_near(
    changes: dict[str, Any], own: dict[str, Any], right: float, wrong: float, limit: str
):
    other = curve("b", [(0, 1.0), (5, 6e-9), (10, 1.0)])
    for end, count in ((right, 0), (wrong, 1)):
        runs = [run("a", 7, norm=end, **own), run("b", **own)]
        told = found(runs, curve("a", [(0, 1.0), (7, end)]) + other, **changes)
        assert len(told) == count
        assert all(each.endswith(f"ends below 1e-08, here below {limit}") for each in told)


def test_a_run_in_float32_may_not_go_on_far_below_the_threshold():
    points = curve("a", [(0, 1.0), (5, 4e-9), (10, 1.0)])
    (told,) = found([run("a", dtype="float32")], points)
    assert "4e-09 is below 1e-08, where runs stop, and the run goes on to step 10" in told
    assert found([run("a", dtype="float32")], points, looks_ahead=["adam"]) == []


def test_a_run_in_another_precision_is_refused():
    both = [run("a"), run("b"), run("c", dtype="float32")]
    points = [row for name in "abc" for row in curve(name, [(0, 1.0), (10, 0.01)])]
    (told,) = found(both, points)
    assert "run c" in told
    assert told.endswith("dtype is float32, and should be float64, as of other runs on quadratic")
    own = [PLAN["workloads"][0] | {"dtype": "float32"}]
    (told,) = found(both, points, workloads=own)
    assert "dtype is float64, and should be float32, as plan.json has it; 1 more row likewise" in told
    (told,) = found(both, points, workloads=own, precision="float64")
    assert "run c" in told
    assert found(both[:2], points[:4], workloads=own, precision="float64") == []


def test_a_run_that_stops_in_a_study_without_a_threshold_is_refused():
    points = curve("a", [(0, 1.0), (7, 1.0)])
    short = run("a", 7, outcome_step=None, outcome="budget", gradient_evaluations=7)
    (told,) = found([short], points)
    assert "outcome is budget after 7 steps, and should be after 10, the planned steps" in told
    given = run("a", 7, gradient_evaluations=7, targets=[target(steps=7)])
    (told,) = found([given], points, stop={})
    assert "outcome is reached after 7 steps, and should be after 10" in told


@pytest.mark.parametrize("outcome", ["out_of_memory", "interrupted", "error", None])
def test_a_run_that_did_not_finish_is_refused(outcome: str | None):
    points = curve("a", [(0, 1.0), (5, 0.1)])
    (told,) = found([run("a", 5, outcome=outcome, outcome_step=None, gradient_evaluations=5)], points)
    assert told.endswith(
        f"outcome is {outcome or 'missing'}; a job that fails leaves no runs, and those that are here are "
        "reached, budget or diverged: compute it anew"
    )


def test_epochs_of_a_full_batch_are_steps_and_of_minibatches_as_many_for_all():
    (told,) = found([run("a")], WENT_ON, budget={"epochs": 5})
    assert "outcome is budget after 10 steps, and should be after 5, the planned epochs, each a step" in told
    both = [run("a"), run("b", 7, outcome="budget", outcome_step=None, gradient_evaluations=7)]
    points = WENT_ON + curve("b", [(0, 1.0), (7, 1.0)])
    (told,) = found(both, points, budget={"epochs": 5}, workloads=MINIBATCHES)
    assert "run b" in told
    assert "outcome is budget after 7 steps, and should be after 10, as of other runs on quadratic" in told
    (told,) = found([run("a")], WENT_ON, budget={"epochs": 4}, workloads=MINIBATCHES)
    assert told.endswith("have 10 steps, and should have a multiple of the 4 epochs of plan.json")
    (told,) = found(
        [run("a", examples=7)],
        WENT_ON,
        budget={"steps": 10},
        workloads=[PLAN["workloads"][0] | {"settings": {"batch_size": 3}}],
    )[:1]
    assert "examples is 100, and should be 30: 10 gradients of 3 examples each" in told


def test_where_all_runs_stop_early_none_says_how_long_epochs_are():
    """The longest run stopped as well, and so is not the budget of the others."""
    epochs: dict[str, Any] = {"budget": {"epochs": 5}, "workloads": MINIBATCHES}
    runs = [run("a", 8, norm=9e-9), run("b", 6, norm=9e-9)]
    points = curve("a", [(0, 1.0), (8, 9e-9)]) + curve("b", [(0, 1.0), (6, 9e-9)])
    assert found(runs, points, **epochs) == []
    assert any(
        told.endswith("how long runs on quadratic may be: none took its budget")
        for told in opened(runs, **epochs)
    )
    (told,) = found([runs[0], run("b", 6, norm=1.0)], points, **epochs)
    assert "outcome is reached after 6 steps, and gradient_norm ends at 1; a run that stops so early" in told
    (told,) = found([runs[0], runs[1] | {"gradient_evaluations": 6, "examples": 60}], points, **epochs)
    assert "gradient_evaluations is 6, and should be 7" in told
    budget = [run("c"), run("d", 12, norm=9e-9, outcome="reached", outcome_step=12, gradient_evaluations=13)]
    more = points + curve("c", [(0, 1.0), (10, 0.1)]) + curve("d", [(0, 1.0), (12, 9e-9)])
    assert any(
        "outcome is reached after 12 steps, and should be after 10, as of other runs on quadratic" in told
        for told in found([*runs, *budget], more, **epochs)
    )
    met = run("e", 8, norm=9e-9, targets=[target(steps=8)])  # it may have stopped there, or have ended
    for evaluations in (8, 9):
        given = met | {"gradient_evaluations": evaluations, "examples": evaluations * BATCH}
        assert found([given], curve("e", [(0, 1.0), (8, 9e-9)]), **epochs) == []


def test_a_rule_with_a_hessian_takes_several_evaluations_a_step():
    newton = run("a", each=EVALUATIONS, optimizer="newton")
    points = curve("a", [(0, 1.0), (5, 0.1), (10, 0.01)], each=EVALUATIONS)
    for plan in ({}, {"needs_hessian": ["newton"]}):
        assert found([newton], points, **plan) == []
        stopped = run("a", 7, norm=9e-9, each=EVALUATIONS, optimizer="newton")
        assert found([stopped], curve("a", [(0, 1.0), (7, 9e-9)], each=EVALUATIONS), **plan) == []
    found_each = found([newton], points, needs_hessian=[])
    assert "gradient_evaluations is 40, and should be 10, 1 for each of 10 gradients" in found_each[0]
    once = curve("a", [(0, 1.0), (5, 0.1), (10, 0.01)])
    (told, _) = found([run("a", optimizer="newton")], once, needs_hessian=["newton"])
    assert "gradient_evaluations is 10, and should be 20, 2 for each of 10 gradients" in told
    free = [one | {"gradient_evaluations": 0} for one in points]
    assert found([newton | {"gradient_evaluations": 0}], free)


ANEW: dict[str, Any] = {"basis": "egop", "basis_gradient_evaluations": 7}


def test_a_basis_that_is_estimated_anew_takes_its_samples_again():
    basis = {"egop": {"samples": 7, "every": "5 steps"}}
    points = curve("a", [(0, 1.0), (5, 0.1), (10, 0.01)], further=7)
    once = curve("b", [(0, 1.0), (10, 1.0)])  # of the same optimizer without it, for what a step takes
    runs = [run("a", gradient_evaluations=17, **ANEW), run("b")]
    assert found(runs, points + once, bases=basis) == []
    plans: list[dict[str, Any]] = [{}, {"needs_hessian": []}]
    for plan in plans:
        assert found(runs[:1], points, bases=basis, **plan) == []
        never = [run("a", **ANEW)], curve("a", [(0, 1.0), (5, 0.1), (10, 0.01)])
        assert (
            "gradient_evaluations is 10, and should be 17: 1 for each of"
            in found(*never, bases=basis, **plan)[0]
        )
    for evaluations in (10, 18, 24):
        (told, _) = found(
            [run("a", gradient_evaluations=evaluations, **ANEW), run("b")], points + once, bases=basis
        )
        assert (
            f"is {evaluations}, and should be 17: 1 for each of 10 gradients, and 7 for 1 new estimates of "
            "the basis"
        ) in told
    (_, told) = found([run("a", gradient_evaluations=24, **ANEW), run("b")], points + once, bases=basis)
    assert "gradient_evaluations is 24, and the curve ends with 17" in told
    stopped = run("a", 5, norm=9e-9, gradient_evaluations=13, **ANEW)  # before its sixth, which it took
    assert found([stopped, run("b")], curve("a", [(0, 1.0), (5, 9e-9)]) + once, bases=basis) == []


@pytest.mark.parametrize("every", [1, 3, 5, 20])
def test_new_estimates_are_counted_as_the_harness_counts_them(every: int):
    sampling = cast(Any, SimpleNamespace(count=1))
    harness = Reestimation(tuple(range(every, 20, every)), True, sampling, (), cast(Any, None))
    taken = np.arange(21)
    ours = pl.DataFrame({"taken": taken}).select(MOST // every).to_series().to_list()
    assert ours == harness.evaluations(taken).tolist()


def test_new_estimates_are_no_part_of_what_a_step_takes():
    often = {"bases": {"egop": {"samples": 7, "every": "1 steps"}}}
    points = curve("a", [(0, 1.0)]) + curve("a", [(10, 0.01)], further=63)
    assert found([run("a", gradient_evaluations=73, **ANEW)], points, **often) == []


@pytest.mark.parametrize(
    ("changes", "right"),
    [
        ({"budget": {"epochs": 10}}, 3),  # a full batch: an epoch is a step
        ({"budget": {"epochs": 5}, "workloads": MINIBATCHES}, 1),  # as long as the longest run's
    ],
)
def test_epochs_between_estimates_are_steps_where_their_length_is_known(changes: dict[str, Any], right: int):
    basis = {"egop": {"samples": 7, "every": "3 epochs"}}
    plan = {"bases": basis, "needs_hessian": [], **changes}
    for times in range(5):
        given = run("a", gradient_evaluations=10 + 7 * times, **ANEW)
        end = curve("a", [(0, 1.0)]) + curve("a", [(10, 0.01)], further=7 * times)
        assert (found([given], end, **plan) == []) == (times == right)


def test_epochs_of_unknown_length_allow_a_new_estimate_after_each_gradient_and_no_more():
    basis = {"egop": {"samples": 7, "every": "3 epochs"}}
    plan: dict[str, Any] = {"bases": basis, "needs_hessian": [], "workloads": MINIBATCHES}
    for times in (-1, 0, 4, 9, 10):
        given = run("a", gradient_evaluations=10 + 7 * times, **ANEW)
        end = curve("a", [(0, 1.0)]) + curve("a", [(10, 0.01)], further=7 * times)
        told = found([given], end, **plan)
        assert (told == []) == (0 <= times <= 9)
        assert all("and 7 more for each new estimate of the basis" in each for each in told)
    assert any(
        "how often the bases of 1 runs were estimated anew" in each for each in opened([given], **plan)
    )


def test_a_basis_costs_its_samples_and_one_that_is_not_sampled_nothing():
    own: dict[str, Any] = {"basis": "egop", "basis_gradient_evaluations": 6}
    (told,) = found([run("a", **own)], WENT_ON)
    assert "basis_gradient_evaluations is 6, and should be 7, as of every run in the basis egop on" in told
    fixed = {"egop": {"samples": None}}
    (told,) = found([run("a", **own)], WENT_ON, bases=fixed)
    assert "basis_gradient_evaluations is 6, and should be 0" in told
    assert found([run("a", **own)], WENT_ON, bases={"egop": {"samples": "2.0 d"}}) == []


def test_what_is_judged_roughly_or_not_at_all_is_said():
    where = "toy/runs.parquet: "
    own = [PLAN["workloads"][0] | {"dtype": "float64"}]
    assert opened([run("a")], workloads=own) == []
    assert opened([run("a")], precision="float64") == []
    assert opened([run("a")]) == [
        where + "which precision runs should have, beyond that all have one: plan.json does not say"
    ]
    runs = [run("a"), run("b", optimizer="newton")]
    assert opened(runs, workloads=own, looks_ahead=["adam"], needs_hessian=["newton"]) == [
        where + "where 1 runs stopped whose gradient is of a point ahead of the iterate, beyond that the "
        "metric is below 1000 times the threshold",
        where + "how many gradient evaluations a step of 1 runs takes, beyond that a method takes as many in "
        "each: they need a Hessian, whose rows plan.json does not count",
    ]
    batches = [own[0] | {"settings": {"batch_size": BATCH}}]
    told = opened(runs, workloads=batches, looks_ahead=["adam"])
    assert "where 1 runs stopped whose gradient is of a point ahead of the iterate" in told[0]
    assert "where 1 runs stopped whose gradient is of a minibatch" in told[1]
