"""The comparison of methods on one model: costs to the best of the others, decisions, and what is printed."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from statistics import median

import numpy as np
import polars as pl
import pytest

from curvebench.reports.boards.model_comparison import ModelResults, as_json, as_text, comparison_of
from curvebench.reports.statistics.decisions import SEEDS
from curvebench.reports.tables import Tables, read_tables
from curvebench.spec.method import OptimizerSpec
from curvebench.spec.plan import StudyPlan, read_plan
from tests.reports.changing import replace
from tests.reports.example_sets import with_metric
from tests.reports.synthetic import Shape, write_plan

SHAPE = Shape(name="own_model", workloads=("own_model",), backends=("jax",))
FINAL = pl.col("stage") == "final"
Compared = tuple[StudyPlan, Tables]


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Compared:
    (study,) = read_plan(write_plan(tmp_path_factory.mktemp("own"), [SHAPE])).studies
    return study, read_tables(study.tables)


def of_methods(compared: Compared, methods: Sequence[str], final: pl.DataFrame) -> ModelResults:
    """Compare some optimizers, without a basis, with other final runs."""
    study, tables = compared
    optimizers = tuple(OptimizerSpec(name) for name in methods)
    study = study.model_copy(update={"optimizers": optimizers, "bases": study.bases[:1]})
    return comparison_of(study, replace(tables, runs=pl.concat([tables.runs.filter(~FINAL), final])))


def final_of(compared: Compared, *methods: str) -> pl.DataFrame:
    return compared[1].runs.filter(FINAL, pl.col("method").is_in(methods))


def with_loss(runs: pl.DataFrame, method: str, loss: pl.Expr) -> pl.DataFrame:
    """Runs of another method whose losses are a function of these losses."""
    changed = runs.with_columns(with_metric(runs, "train_loss", loss))
    return changed.with_columns(method=pl.lit(method), optimizer=pl.lit(method, runs["optimizer"].dtype))


LOSS = pl.element().struct.field("value")


def test_costs_are_those_of_a_computation_by_hand(compared: Compared):
    study, tables = compared
    curves = pl.read_parquet(study.tables / "curves.parquet").filter(metric="train_loss").to_dicts()
    found = comparison_of(study, tables)
    finals = {
        method: [
            np.inf if run["outcome"] == "diverged" else run["final_metrics"][0]["value"]
            for run in tables.runs.filter(FINAL, method=method).to_dicts()
        ]
        for method in study.methods
    }
    assert [row.method for row in found.methods] == sorted(finals, key=lambda name: median(finals[name]))
    steps = tables.timings.filter(phase="step")
    for row in found.methods:
        target = min(median(values) for name, values in finals.items() if name != row.method)
        assert (row.target, row.value and row.value.median) == (target, median(finals[row.method]))
        pace = median((steps.filter(method=row.method)["seconds"] / 20).to_list())
        costs = []
        for run in tables.runs.filter(FINAL, method=row.method).to_dicts():
            met = [line["step"] for line in curves if line["run"] == run["run"] and line["value"] <= target]
            first = min(met, default=np.inf)
            gradients = first + run["basis_gradient_evaluations"]
            costs.append((first, gradients, first * pace + run["basis_seconds"]))
        for cost, values in zip(
            (row.steps, row.gradients, row.seconds), zip(*costs, strict=True), strict=True
        ):
            assert cost
            assert cost.median == pytest.approx(median(values))
        assert row.reached == sum(np.isfinite(cost[0]) for cost in costs)
        assert row.settings == {"learning_rate": 0.1}
    leader, runner_up = found.methods[:2]
    assert leader.reached > 5 > found.methods[-1].reached == 0
    assert leader.steps
    assert found.shares["steps"] == leader.steps.median / 100
    for lead in found.leads:
        with np.errstate(divide="ignore"):
            ratios = np.divide(finals[leader.method], finals[lead.method])
            assert lead.effect.median == pytest.approx(np.exp(median(np.log(ratios))))
        assert lead.effect.wins == (ratios < 0.999).sum()
        # All pairs won decide, since 5 × 2⁻¹⁰ is below 5 %.
        assert lead.finding == ("supported" if lead.effect.wins == 10 else "inconclusive")
    assert found.joint_level == pytest.approx(1 - sum(1 - lead.effect.level for lead in found.leads))
    text = as_text(found)
    assert f"{runner_up.method} with " in text
    assert as_json(found)["leader"] == leader.method


@pytest.mark.parametrize(("seeds", "others", "needed"), [(5, 1, None), (5, 2, 6), (5, 9, 8), (2, 3, 6)])
def test_seeds_that_would_decide_are_the_fewest_with_which_all_pairs_won_suffice(
    compared: Compared, seeds: int, others: int, needed: int | None
):
    adam = final_of(compared, "adam").sort("seed").head(seeds)
    names = [f"worse_{number}" for number in range(others)]
    worse = [with_loss(adam, name, LOSS * 2) for name in names]
    found = of_methods(compared, [*names, "adam"], pl.concat([adam, *worse]))
    assert (found.leader and found.leader.method, found.seeds_needed) == ("adam", needed)
    assert found.outcome == ("leads" if needed is None else "undecided")
    if needed:
        assert needed == min(size for size in SEEDS if others / 2**size <= 0.05)
        assert f"About {needed} final seeds would do" in as_text(found)
    assert {lead.effect.level for lead in found.leads} == {1 - 2 / 2**seeds}
    assert "0.5000 times" in as_text(found) or "0.500 times" in as_text(found)


def test_a_refuted_lead_leaves_the_seeds_that_would_decide_the_others(compared: Compared):
    adam = final_of(compared, "adam").sort("seed").head(3)
    worse = [with_loss(adam, name, LOSS * 2) for name in ("worse", "other")]
    found = of_methods(compared, ["worse", "other", "adam"], pl.concat([adam, *worse]))
    first, second = found.leads
    refuted = dataclasses.replace(found, leads=(dataclasses.replace(first, finding="refuted"), second))
    assert refuted.seeds_needed == second.seeds_needed == found.seeds_needed
    said = as_text(refuted)
    assert (
        f"do not distinguish adam from {second.method}, and show that it is worse than {first.method}."
        in said
    )
    assert f"About {second.seeds_needed} final seeds would do" in said


def test_no_number_of_seeds_decides_a_tie(compared: Compared):
    adam = final_of(compared, "adam")
    found = of_methods(compared, ["adam", "twin"], pl.concat([adam, with_loss(adam, "twin", LOSS)]))
    [lead] = found.leads
    assert (lead.effect.ties, lead.finding, found.seeds_needed) == (10, "inconclusive", None)
    assert "Even 1,000 seeds like these would not decide it." in as_text(found)


def test_one_method_has_no_target(compared: Compared):
    found = of_methods(compared, ["adam"], final_of(compared, "adam"))
    [row] = found.methods
    assert (found.outcome, row.target, row.steps, row.reached) == ("only one", None, None, 0)
    assert "adam alone has results" in as_text(found)


def test_a_method_that_failed_is_listed_last_and_nobody_reaches_what_only_one_can(compared: Compared):
    adam = final_of(compared, "adam")
    lost = adam.with_columns(
        run="lost " + pl.col("run"),
        method=pl.lit("lost"),
        outcome=pl.lit("error"),
        reason=pl.lit("no rule"),
    )
    found = of_methods(compared, ["lost", "absent", "adam"], pl.concat([lost, adam]))
    leader, failed, absent = found.methods
    assert (leader.method, leader.target, leader.steps) == ("adam", None, None)
    assert (failed.method, failed.failed, failed.reason, failed.reached) == ("lost", 10, "no rule", 0)
    assert failed.steps
    assert failed.steps.median == np.inf
    assert (absent.method, absent.seeds, absent.value) == ("absent", 0, None)
    assert found.outcome == "leads"
    text = as_text(found)
    assert "lost: every final run failed: no rule" in text
    assert text.endswith("absent: no final run")
    assert as_json(found)["methods"][1]["steps"]["median"] is None
    nothing = of_methods(compared, ["lost"], lost)
    assert (nothing.leader, nothing.outcome, nothing.leads) == (None, "none", ())
    assert "No method has a final training loss" in as_text(nothing)


def test_a_method_of_another_backend_has_its_reason(compared: Compared):
    study, tables = compared
    other = OptimizerSpec("torch-nadam", locator="torch:torch.optim.NAdam")
    with_other = study.model_copy(update={"optimizers": (*study.optimizers, other)})
    text = as_text(comparison_of(with_other, tables))
    assert "torch-nadam: no final run: it runs on torch only; the backends of this run: jax" in text
