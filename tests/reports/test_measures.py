"""Measures: divergence is worst, failure is missing, curves meet at the same steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import polars as pl
import pytest

from curvebench.reports import measures
from curvebench.reports.tables import CELL, Tables
from curvebench.reports.wall_clock import (
    optimizer_overhead_seconds,
    references,
    step_ratios,
    step_seconds,
    with_seconds,
)
from curvebench.results.reading import with_method
from curvebench.results.schema import CURVES, RUNS
from curvebench.spec.document import Direction
from curvebench.spec.method import Method
from curvebench.spec.plan import StudyPlan
from tests.reports.changing import replace
from tests.reports.conftest import Report
from tests.results.rows import rows

INFINITE = float("inf")
NAN = float("nan")


def run(name: str, final: float = 1.0, **changes: Any) -> dict[str, Any]:
    row = {
        "run": name, "workload": "w", "optimizer": "adam", "basis": "identity", "backend": "jax",
        "stage": "final", "seed": 0, "learning_rate": 0.1, "outcome": "budget", "steps": 20,
        "gradient_evaluations": 20,
        "basis_gradient_evaluations": 0, "final_metrics": [{"name": "train_loss", "value": final}],
        "best_metrics": [{"name": "train_loss", "value": 0.5, "step": 3}], "targets": [],
    }  # fmt: skip
    return row | changes


def aimed(steps: int | None, seconds: float | None = None) -> list[dict[str, Any]]:
    target = {"metric": "accuracy", "threshold": 0.9, "steps": steps}
    return [{**target, "seconds": seconds, "seconds_kind": None}]


def runs(*rows: dict[str, Any]) -> pl.DataFrame:
    frame = pl.DataFrame([{"step_evaluations": 1, **row} for row in rows], schema_overrides=RUNS)
    return with_method(frame.with_columns(pl.col("stage", "outcome").cast(pl.String)))


def assert_measured(measure: Callable[[pl.DataFrame], pl.DataFrame], *given: tuple[Any, ...]) -> None:
    """Check the measures of runs.

    Each run is given as (changes of its row, value, least, most); without measures, it has no row.
    """
    table = runs(*(run(str(number), **changes) for number, (changes, *_) in enumerate(given)))
    columns = ["value", "least", "most"][: max(len(measures) for _, *measures in given)]
    found = {int(name): measures for name, *measures in measure(table).select("run", *columns).iter_rows()}
    assert found == {number: measures for number, (_, *measures) in enumerate(given) if measures}


@pytest.mark.parametrize(("direction", "worst"), [("minimize", INFINITE), ("maximize", -INFINITE)])
def test_a_failed_run_ends_worst_and_a_missing_one_says_nothing(direction: Direction, worst: float):
    failed = ("diverged", "error", "out_of_memory", "out_of_time")
    assert_measured(
        lambda table: measures.run_values(table, "train_loss", "final", direction),
        ({"final": 1.0}, 1.0),
        ({"final": NAN}, worst),
        *(({"final": 2.0, "outcome": outcome}, worst) for outcome in failed),
        ({"final": 3.0, "outcome": "interrupted"}, None),
        ({"final_metrics": [{"name": "validation_loss", "value": 1.0}]}, None),
    )


def test_a_target_costs_its_steps_and_the_basis_and_is_infinite_where_it_was_missed():
    assert_measured(
        lambda table: measures.evaluations_to_target(table, "accuracy"),
        ({"targets": aimed(5), "basis_gradient_evaluations": 7}, 12.0),
        ({"targets": aimed(5), "step_evaluations": 2}, 10.0),
        ({"targets": aimed(None)}, INFINITE),
        ({"targets": aimed(None), "outcome": "out_of_memory"}, INFINITE),
        ({"targets": aimed(None), "outcome": "interrupted"},),
        ({},),
    )


def test_seconds_to_a_target_have_the_basis_in_them():
    assert_measured(
        lambda table: measures.seconds_to_target(table, "accuracy"),
        ({"targets": aimed(5, 2.0), "basis_seconds": 3.0}, 5.0),
        ({"targets": aimed(5, 2.0)}, 2.0),
        ({"targets": aimed(5, None), "basis_seconds": 3.0}, None),
        ({"targets": aimed(None, None), "basis_seconds": 3.0}, INFINITE),
        ({"targets": aimed(None, None), "outcome": "interrupted"},),
    )


def test_how_far_a_stopped_run_overshoots_its_threshold_does_not_count():
    assert_measured(
        lambda table: measures.run_values(table, "train_loss", "final", "minimize", 1e-8),
        ({"final": 3e-9, "outcome": "reached"}, 1e-8),
        ({"final": 9e-9, "outcome": "reached"}, 1e-8),
        ({"final": 2e-8}, 2e-8),
        ({"final": 1.0, "outcome": "diverged"}, INFINITE),
    )
    most = measures.run_values(runs(run("a", 2e-8)), "train_loss", "final", "maximize", 1e-8)
    assert most["value"].to_list() == [1e-8]


def test_the_steps_to_the_stop_are_known_of_runs_that_met_it(report: Report):
    study = replace(report.plan.study("digits_mlp"), stop={"train_loss": 0.5})
    assert_measured(
        lambda table: measures.cost_to_stop(study, table, "train_loss", measures.RUN_STEPS),
        ({"final": 0.4, "steps": 7, "outcome": "reached"}, 7.0, 7.0, 7.0),
        ({"final": 0.5, "steps": 20}, 20.0, 20.0, 20.0),
        # The run would have needed more steps than it had.
        ({"final": 0.6, "steps": 20}, 21.0, 21.0, INFINITE),
        *(
            ({"final": 0.4, "steps": 3, "outcome": outcome}, INFINITE, INFINITE, INFINITE)
            for outcome in ("diverged", "error")
        ),
        ({"final": 0.4, "steps": 3, "outcome": "interrupted"}, None, None, None),
    )


def test_gradients_to_the_stop_have_those_of_the_basis_in_them(report: Report):
    study = replace(report.plan.study("digits_mlp"), stop={"train_loss": 0.5})
    met, missed = {"final": 0.4, "gradient_evaluations": 14}, {"final": 0.6, "gradient_evaluations": 40}
    assert_measured(
        lambda table: measures.cost_to_stop(study, table, "train_loss", measures.CHARGED_GRADIENTS),
        ({**met, "basis_gradient_evaluations": 100}, 114.0, 114.0, 114.0),
        ({**missed, "basis_gradient_evaluations": 100}, 141.0, 141.0, INFINITE),
        ({**met, "basis_gradient_evaluations": None}, 14.0, 14.0, 14.0),
    )


def test_the_steps_to_a_target_are_known_of_runs_that_met_it():
    assert_measured(
        lambda table: measures.steps_to_target(table, "accuracy"),
        ({"targets": aimed(7)}, 7.0, 7.0, 7.0),
        ({"targets": aimed(None)}, 21.0, 21.0, INFINITE),
        ({"targets": aimed(3), "steps": 9, "outcome": "diverged"}, 3.0, 3.0, 3.0),
        ({"targets": aimed(None), "outcome": "diverged"}, INFINITE, INFINITE, INFINITE),
        ({"targets": aimed(None), "outcome": "error"}, INFINITE, INFINITE, INFINITE),
        ({"targets": aimed(3), "outcome": "interrupted"}, None, None, None),
    )


def test_a_study_holds_its_headline_metric_at_its_stop_and_marks_all_that_tie(report: Report):
    study = replace(report.plan.study("digits_mlp"), stop={"train_loss": 0.5})
    table = runs(run("a", 0.1), run("b", 0.4, optimizer="sgd"), run("c", 0.7, optimizer="adagrad"))
    found = measures.study_values(study, table)
    assert found["value"].to_list() == [0.5, 0.5, 0.7]
    assert measures.best_methods(study, dict(found.select("method", "value").iter_rows())) == {"adam", "sgd"}
    assert measures.best_methods(study, {"adam": INFINITE}) == set()
    assert measures.best_methods(replace(study, metric="validation_accuracy"), {"a": 0.9, "b": 0.8}) == {"a"}


@pytest.mark.parametrize(
    ("scores", "direction", "decades"),
    [
        ({0.01: 9.0, 0.1: 1.05, 1.0: 1.0, 10.0: 1.1, 100.0: INFINITE}, "minimize", 2.0),
        ({0.01: 1.0, 0.1: 1.2, 1.0: 1.0, 10.0: 1.0}, "minimize", 0.0),  # the stretch is unbroken
        ({1.0: 1.0}, "minimize", 0.0),
        ({0.1: INFINITE, 1.0: INFINITE}, "minimize", 0.0),  # nothing finished: no rate does
        ({0.1: 0.0, 1.0: 0.0, 10.0: 1e-9}, "minimize", 1.0),
        ({0.1: 0.89, 1.0: 0.95, 10.0: 0.86, 100.0: -INFINITE}, "maximize", 1.0),
        ({0.1: -1.0, 1.0: 2.0}, "minimize", None),  # a tenth more of a negative loss means nothing
        ({0.1: 0.0, 1.0: -1.0}, "maximize", None),
    ],
)
def test_robustness_counts_decades(scores: dict[float, float], direction: Any, decades: float | None):
    rows = {"method": "adam", "learning_rate": list(scores), "value": list(scores.values()), "seed": 0}
    found = measures.lr_robustness_decades(
        pl.DataFrame(rows).sample(fraction=1.0, shuffle=True, seed=1), direction
    )
    assert found["value"].to_list() == ([] if decades is None else pytest.approx([decades]))


def test_a_setting_is_tuned_where_and_by_whom_the_study_says(study: StudyPlan, tables: Tables):
    study = replace(study, tuned_on={"jax": "jax", "torch": "jax"})
    table = runs(
        run("a", stage="tuning"),
        run("b", stage="tuning", round=1, basis="egop", gradient_evaluations=7, basis_gradient_evaluations=5),
        run("c", stage="tuning", optimizer="sgd", backend="torch"),
        run("d", stage="final"),
        run("e", stage="tuning", workload="another"),
    )
    assert measures.tuning_source(study, "adam @ egop", "torch", table) == ("adam @ egop", "jax")
    assert measures.tuning_source(study, "sgd", "torch", table) == ("sgd", "torch")  # runs there alone
    shared = replace(study, shared_across="bases")
    assert measures.tuning_source(shared, "adam @ egop", "torch", table) == ("adam", "jax")

    tables = replace(tables, runs=table.with_columns(workload=pl.col("workload").replace("w", "digits_mlp")))
    (separate,), (together,) = (measures.problems_of(one, tables, "torch") for one in (study, shared))
    budgets = measures.tuning_budgets(measures.tuning_runs(separate)).sort("method")
    assert budgets.rows() == [
        ("adam", "adam", 1, 20),
        ("adam @ egop", "adam @ egop", 1, 12),
        ("sgd", "sgd", 1, 20),
    ]
    own = measures.tuning_runs(together, by_itself=True)
    assert own.sort("method")["method", "tuner"].rows() == [
        (method, method) for method in ("adam", "adam @ egop", "sgd")
    ]
    budgets = measures.tuning_budgets(measures.tuning_runs(together)).sort("method")
    assert budgets.rows()[:2] == [("adam", "adam", 1, 20), ("adam @ egop", "adam", 1, 20)]


def curve(name: str, *points: tuple[int, float]) -> list[dict[str, Any]]:
    return [
        {"run": name, "step": step, "gradient_evaluations": step, "examples": step, "metric": "train_loss",
         "value": y}
        for step, y in points
    ]  # fmt: skip


def test_curves_meet_at_the_same_steps():
    table = runs(
        run("whole", basis_gradient_evaluations=100),
        run("early", outcome="reached", outcome_step=7),
        run("dies", outcome="diverged", outcome_step=10),
        run("raises", outcome="error"),
        run("missing", outcome="interrupted"),
    )
    points = (
        curve("whole", (0, 4.0), (10, 2.0), (20, 1.0))
        + curve("early", (0, 4.0), (7, 0.5))
        + curve("dies", (0, 4.0), (10, NAN))
        + curve("missing", (0, 4.0))
    )
    found = measures.complete_curves(table, pl.DataFrame(points, schema=CURVES), "train_loss", "minimize")
    by_run = {name: group["value"].to_list() for (name,), group in found.group_by(["run"])}
    assert by_run == {
        "whole": [4.0, 2.0, 1.0],
        "early": [4.0, 0.5, 0.5],
        "dies": [4.0, INFINITE, INFINITE],
        "raises": [INFINITE] * 3,
    }
    assert found.filter(pl.col("run") == "whole")["charged_evaluations"].to_list() == [100, 110, 120]
    bands = measures.curve_bands(found)
    assert bands["median"].to_list() == [4.0, INFINITE, INFINITE]
    assert bands["upper_quartile"].to_list() == [INFINITE] * 3
    assert bands["count"].to_list() == [4, 4, 4]


def test_the_rate_is_at_the_edge_or_inside_or_was_not_tuned():
    swept = [run(f"s{rate}", stage="tuning", learning_rate=rate) for rate in (0.01, 0.1, 1.0)]
    swept += [run(f"m{rate}", stage="tuning", learning_rate=rate, optimizer="sgd") for rate in (0.1, 1.0)]
    alone = [run(name, stage=stage, optimizer="muon") for name, stage in (("d", "tuning"), ("e", "final"))]
    table = runs(*swept, *alone, run("a"), run("b", optimizer="sgd"), run("c", basis="egop"))
    found = dict(measures.chosen_rates(table).select("method", "at_edge").rows())
    assert found == {"adam": False, "sgd": True, "adam @ egop": None, "muon": False}


def test_a_rate_swept_and_refined_with_the_same_seed_counts_once():
    table = runs(
        run("b", 1.0, stage="tuning", round=1),
        run("a", 2.0, stage="tuning"),
        run("c", 3.0, stage="tuning", seed=1, outcome="diverged"),
        run("d", 9.0),
    )
    found = measures.sensitivity(measures.run_values(table, "train_loss", "final", "minimize"))
    assert found.select("learning_rate", "count", "failed", "lower_quartile").rows() == [(0.1, 2, 0.5, 1.0)]


def test_an_optimizers_own_time_is_its_step_less_the_null_step_of_the_same_repetition():
    given = [
        {"optimizer": optimizer, "phase": phase, "repetition": repetition, "seconds": seconds}
        for repetition, noise in enumerate((0.0, 1.0, 5.0))
        for optimizer, phase, seconds in (("null", "null_step", 1.0 + noise), ("adam", "step", 3.0 + noise))
    ]
    timings = with_method(rows("timings", *given, {**given[0], "phase": "evaluation", "steps": 0}))
    assert step_seconds(timings).select("method", "median", "count").rows() == [("adam", 0.4, 3)]
    own = optimizer_overhead_seconds(timings).row(0, named=True)
    assert own["method"] == "adam"
    assert (own["low"], own["high"]) == (pytest.approx(0.2), pytest.approx(0.2))
    slow = timings.with_columns(pl.col("seconds") * 10, pl.lit("slow").alias("machine"))
    both = pl.concat([timings, slow])
    assert step_seconds(both).select("machine", "count").rows() == [("m1", 3), ("slow", 3)]
    assert optimizer_overhead_seconds(both)["median"].to_list() == [pytest.approx(0.2), pytest.approx(2.0)]


def timed(**steps: Sequence[float]) -> pl.DataFrame:
    """Timings of a workload: seconds of ten steps of each method (`_at_` for ` @ `), by repetition."""
    return with_method(
        rows(
            "timings",
            *(
                {"optimizer": method.optimizer, "basis": method.basis, "repetition": number, "seconds": value}
                for name, each in steps.items()
                for method in [Method.of(name.replace("_at_", " @ "))]
                for number, value in enumerate(each)
            ),
        )
    )


def test_seconds_of_curves_are_steps_times_the_timed_step_and_the_basis():
    cell = {"workload": "quadratic", "backend": "jax"}
    bands = pl.DataFrame(
        [
            {**cell, "method": name, "step": step}
            for name in ("sgd", "adam @ egop", "lion")
            for step in (0, 10)
        ]
    )
    final = pl.DataFrame(
        [
            {**cell, "method": name, "basis_seconds": seconds}
            for name, basis in (("sgd", None), ("adam @ egop", 5.0), ("lion", None))
            for seconds in (basis, basis and basis + 1, basis and basis + 7)
        ]
    )
    timings = timed(sgd=[1.0, 1.0, 4.0], adam_at_egop=[2.0] * 3)
    steps = step_seconds(timings).select(*CELL, each="median").with_columns(compile=pl.lit(3.0))
    found = with_seconds(bands, final, steps)
    each = dict(steps.select("method", "each").iter_rows())
    rows = {(row["method"], row["step"]): row for row in found.iter_rows(named=True)}
    assert rows["sgd", 10]["run_seconds"] == rows["sgd", 10]["charged_seconds"] == 10 * each["sgd"]
    assert rows["adam @ egop", 0]["charged_seconds"] == 6.0
    assert rows["adam @ egop", 10]["charged_seconds"] == 10 * each["adam @ egop"] + 6.0
    assert rows["lion", 10]["charged_seconds"] is None
    for row in rows.values():
        charged = row["charged_seconds"]
        assert row["compiled_seconds"] == (None if charged is None else charged + 3.0)


def test_step_ratios_are_paired_by_repetition_so_that_a_drift_cancels():
    drift = [1.0, 3.0, 10.0, 2.0, 5.0, 7.0]
    longer = {"sgd": 1, "adam": 2, "adam_at_egop": 5}
    timings = timed(**{name: [factor * one for one in drift] for name, factor in longer.items()})
    found = step_ratios(timings, references(["sgd", "adam", "adam @ egop"]))
    assert found.select("method", "reference").rows() == [("adam", "sgd"), ("adam @ egop", "adam")]
    for column in ("low", "median", "high"):
        assert found[column].to_list() == pytest.approx([2.0, 2.5])
    assert found["count"].to_list() == [6, 6]
    assert found["level"].to_list() == pytest.approx([0.95] * 2)
    assert step_ratios(timings, {"adam": "lion"}).is_empty()
