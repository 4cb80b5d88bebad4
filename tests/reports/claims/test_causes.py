"""Causes of verdicts and where they turn, domains, hardware, and targets that decide nothing."""

from __future__ import annotations

import json
from typing import Any

import polars as pl
import pytest

from curvebench.reports.claims.checked import check_rows, property_rows
from curvebench.reports.claims.quantities import recorded
from curvebench.reports.claims.verdict_list import ClaimVerdict, as_text, listed
from curvebench.reports.claims.verdicts import claim_verdicts
from curvebench.reports.measures import cost_to_value
from curvebench.reports.tables import Tables, read_tables
from curvebench.results.schema import TABLES
from curvebench.results.verdicts import rule_hash
from curvebench.results.writing import write_table
from curvebench.spec.claim import Claim
from curvebench.spec.plan import ChecksPlan, ReportPlan, StudyPlan
from tests.reports.changing import replace
from tests.reports.conftest import Report
from tests.reports.synthetic import CLAIMS, STEPS, Shape, claim_of

TREATED = "adam @ egop"
REGRET, *_ = CLAIMS


def ending(tables: Tables, loss: float) -> Tables:
    """Return the tables with these final training losses of the treated method, over those of its control."""
    final = tables.runs.filter(stage="final", backend="jax")
    control = {
        seed: metrics[0]["value"]
        for seed, metrics in final.filter(method="adam").select("seed", "final_metrics").iter_rows()
    }
    rows = [
        {**run, "final_metrics": [{"name": "train_loss", "value": loss * control[run["seed"]]}]}
        if run["method"] == TREATED
        else run
        for run in final.iter_rows(named=True)
    ]
    return replace(tables, runs=pl.DataFrame(rows, schema=final.schema))


def verdict_of(study: StudyPlan, tables: Tables) -> ClaimVerdict:
    """Return the verdict on the only claim of a study."""
    plan = ReportPlan(scale="quick", studies=(study,))
    decided = claim_verdicts(plan, {study.name: tables}, None)
    (found,) = listed(plan, decided.claims, decided.findings)
    return found


@pytest.fixture
def study(report: Report) -> StudyPlan:
    study = report.plan.study("digits_mlp")
    return replace(study, backends=("jax",))


def asking(study: StudyPlan, *conditions: dict[str, Any], **changes: Any) -> StudyPlan:
    """Return the study with these conditions of its claim, which change the condition that it has."""
    (claim,) = study.claims
    (condition,) = claim.conditions
    changed = tuple(replace(condition, **each) for each in conditions) or claim.conditions
    return replace(study, claims=(replace(claim, conditions=changed, **changes),))


@pytest.fixture
def tables(study: StudyPlan) -> Tables:
    return read_tables(study.tables)


@pytest.mark.parametrize(
    ("loss", "relation", "cause", "turns"),
    [
        (0.5, "better", None, (None, None)),
        (0.97, "better", "threshold", ("margin", 0.97)),
        (0.98, "better", "contradicts", ("margin", 0.98)),  # less than half of the margin
        (0.9999, "better", "contradicts", (None, None)),  # a tie
        (1.1, "better", "contradicts", (None, None)),
        (1.08, "no_worse", "threshold", ("margin", 1.08)),  # 1 / 0.95 is accepted
        (1.5, "no_worse", "contradicts", ("margin", 1.5)),
        (0.93, "same", "threshold", ("margin", 0.93)),
    ],
)
def test_a_refuted_claim_says_why_and_which_margin_would_do(study, tables, loss, relation, cause, turns):
    methods = {"better": None, relation: (TREATED,)}
    found = verdict_of(asking(study, methods), ending(tables, loss))
    assert found.verdict == ("not reproduced" if cause else "reproduced")
    assert (found.cause, found.turns_in) == (cause, turns[0])
    assert found.turns_at == (turns[1] and pytest.approx(turns[1]))


def test_data_that_are_not_the_sources_come_before_a_contradiction(study, tables):
    found = verdict_of(replace(study, at_most_partly="the data are reduced"), ending(tables, 1.1))
    assert (found.cause, found.turns_in) == ("other_data", None)


def test_two_methods_at_the_floor_cannot_be_told_apart(study, tables):
    found = verdict_of(asking(study, {"floor": 1e9}), tables)
    assert (found.verdict, found.estimate, found.cause) == ("not reproduced", 1.0, "saturated")


@pytest.mark.parametrize(("late", "cause"), [(1.0005, "saturated"), (2.0, "contradicts")])
def test_methods_that_end_where_the_treated_one_cannot_improve_are_saturated(
    study, tables, tmp_path, late, cause
):
    """Both methods end at the same loss; the treated method is there, or not, at half of its steps."""
    first = pl.col("step") <= STEPS[-1] / 2
    curves = pl.read_parquet(list(tables.curves)).with_columns(value=pl.when(first).then(late).otherwise(1.0))
    write_table(tmp_path / "curves.parquet", curves, TABLES["curves"])
    found = verdict_of(study, replace(ending(tables, 1.0005), curves=(tmp_path / "curves.parquet",)))
    assert (found.verdict, found.cause) == ("not reproduced", cause)


def test_a_study_that_is_at_most_partly_the_sources_caps_a_claim_that_holds_in_a_domain(study, tables):
    two = asking(
        study, {"where": "n = 1"}, {"where": "n = 2", "better": ("adam",), "compared_to": (TREATED,)}
    )
    found = verdict_of(replace(two, at_most_partly="the data are reduced"), ending(tables, 0.5))
    assert found.verdict == "partly reproduced"
    assert {"holds_where", "fails_where", "limited_scale"} <= {each["code"] for each in found.reasons}


def test_a_claim_is_decided_in_each_domain(study, tables):
    two = asking(
        study, {"where": "n = 1"}, {"where": "n = 2", "better": ("adam",), "compared_to": (TREATED,)}
    )
    found = verdict_of(two, ending(tables, 0.5))
    assert (found.verdict, found.cause, found.turns_in) == ("reproduced where", "unstated_setting", "setting")
    text = " ".join(as_text([found]).split())
    assert 'it holds where "n = 1"; it does not hold where "n = 2"' in text


def test_neither_domain_nor_hardware_change_rules_that_lack_them():
    def rule(**keys: Any) -> str:
        raw = claim_of(Shape())
        raw["supported_if"] = [{**raw["supported_if"][0], "where": keys.pop("where", "")}]
        return rule_hash(Claim.model_validate_json(json.dumps(raw | keys)).written_rule, "")

    plain = rule_hash(Claim.model_validate_json(json.dumps(claim_of(Shape()))).written_rule, "")
    assert rule(where="") == rule(hardware="gpu") == plain
    assert rule(where="n = 1") != plain


def test_seconds_decide_on_the_kind_of_machine_of_the_source_only(study, tables):
    clock = asking(study, {"at_equal": "seconds"}, hardware="gpu")
    found = verdict_of(clock, tables)
    assert (found.verdict, found.cause) == ("not run", "other_hardware")
    assert found.estimate is not None
    assert found.seeds > 0
    assert "the source timed a GPU" in found.reason
    on_gpu = replace(tables, jobs=tables.jobs.with_columns(device=pl.lit("gpu")))
    assert (
        verdict_of(clock, on_gpu).verdict
        == verdict_of(asking(study, {"at_equal": "seconds"}), tables).verdict
    )
    mixed = asking(study, {"at_equal": "seconds"}, {}, hardware="gpu")
    refuted = verdict_of(mixed, ending(tables, 1.1))
    assert {one["finding"] for one in refuted.comparisons} == {"refuted"}
    assert refuted.verdict == "not reproduced"
    assert refuted.estimate == pytest.approx(1.1), "the estimate is of the comparison that decides"
    assert verdict_of(mixed, ending(tables, 0.5)).verdict == "not run"


def to_target(study: StudyPlan, target: float, **changes: Any) -> StudyPlan:
    condition = {"quantity": "steps_to_target", "which": "best", "target": target}
    return asking(study, condition | changes)


@pytest.mark.parametrize(("target", "reach"), [(1e6, "saturated"), (1e-300, "unreached")])
def test_a_target_that_all_meet_at_once_or_nobody_meets_decides_nothing(study, tables, target, reach):
    found = verdict_of(to_target(study, target), tables)
    assert (found.verdict, found.cause, found.seeds_needed) == ("underpowered", "saturated", None)
    (comparison,) = found.comparisons
    assert (comparison["reach"], comparison["finding"]) == (reach, "inconclusive")
    assert [(each["code"], each["count"]) for each in found.reasons if each["code"] == reach] == [(reach, 1)]
    assert "no run meets" in found.reason or "within two evaluations" in found.reason


def test_a_target_that_the_slower_run_meets_late_is_not_saturated(study, tables):
    """Runs are evaluated at `STEPS`; the slower one of a pair must meet the target after the second."""
    final = tables.runs.filter(stage="final", backend="jax", method="adam")
    curves = recorded(tables, final, "train_loss")
    late = float(curves.filter(step=STEPS[-1])["value"].to_numpy().max())
    steps = cost_to_value(final, curves, late, "minimize", "steps")["value"]
    assert steps.max() > 2 * STEPS[-1] / study.training.evaluations
    (comparison,) = verdict_of(to_target(study, late), tables).comparisons
    assert comparison["reach"] is None


@pytest.mark.parametrize(
    ("target", "cause", "factor"), [(0.1, "contradicts", 10**-1.5), (0.02, "threshold", 10**-0.5)]
)
def test_the_target_at_which_a_claim_turns_is_read_from_curves(
    study, tables, tmp_path, target, cause, factor
):
    """The treated method is still at 10 before step 60, so that the control is sooner at large targets."""
    treated = tables.runs.filter(method=TREATED)["run"].implode()
    late = (pl.col("step") < 60) & pl.col("run").is_in(treated) & (pl.col("metric") == "train_loss")
    curves = pl.read_parquet(list(tables.curves))
    write_table(
        tmp_path / "curves.parquet",
        curves.with_columns(value=pl.when(late).then(10.0).otherwise("value")),
        TABLES["curves"],
    )
    found = verdict_of(to_target(study, target), replace(tables, curves=(tmp_path / "curves.parquet",)))
    assert (found.verdict, found.cause, found.turns_in) == ("not reproduced", cause, "target")
    assert found.turns_at == pytest.approx(target * factor)


def test_parts_of_a_property_have_domains_and_causes(checks: ChecksPlan):
    missed = pl.col("part") == "gradient descent"
    rows = check_rows(checks).with_columns(
        holds=pl.col("holds") & ~missed, value=pl.when(missed).then(2.5).otherwise("value")
    )

    def row_of(share: float, **changes: Any) -> dict[str, Any]:
        measured = rows.with_columns(share=pl.when(missed).then(share).otherwise("share"))
        claims = tuple(replace(one, **changes) if one.id == REGRET else one for one in checks.claims)
        found = property_rows(replace(checks, claims=claims), measured, "quick")
        return next(row for row in found if row["claim"] == REGRET)

    (claim,) = (one for one in checks.claims if one.id == REGRET)
    domain = {"gradient descent": "x"}
    parts = tuple(replace(part, where=domain.get(part.part, "y")) for part in claim.parts)
    found = row_of(3.0, parts=parts)
    assert (found["verdict"], found["cause"]) == ("reproduced where", "unstated_setting")
    assert [each["names"] for each in found["reasons"] if "where" in each["code"]] == [["y"], ["x"]]
    assert (row_of(3.0)["verdict"], row_of(3.0)["cause"]) == ("not reproduced", "contradicts")
    assert (row_of(1.5)["cause"], row_of(1.5)["turns_in"], row_of(1.5)["turns_at"]) == (
        "threshold",
        "limit",
        2.5,
    )
    assert row_of(3.0, cause="resolution")["cause"] == "resolution"
    assert row_of(3.0, at_most_partly="the data are reduced")["cause"] == "other_data"


def test_the_limit_at_which_a_property_turns_is_that_of_its_worst_measure(checks: ChecksPlan):
    """With a limit of 0, all measures that violate it have an infinite share."""
    place = pl.col("instance").cast(pl.Float64)
    measured = check_rows(checks).with_columns(
        holds=False, relation=pl.lit("<="), limit=0.0, tolerance=0.5, share=float("inf"), value=1.0 + place
    )
    (found,) = (row for row in property_rows(checks, measured, "quick") if row["claim"] == REGRET)
    last = max(measured.filter(claim=REGRET)["instance"].to_list())
    assert last > 0
    assert found["turns_at"] == last + 0.5
