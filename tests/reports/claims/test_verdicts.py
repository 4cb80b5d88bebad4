"""Verdicts on claims of studies: from made-up tables, and told to people and to programs."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from curvebench.__main__ import main
from curvebench.paths import SITE
from curvebench.reports.claims.comparison import ClaimComparison, comparisons
from curvebench.reports.claims.findings import decided
from curvebench.reports.claims.verdict_list import ClaimVerdict, as_json, as_text, listed, read_verdicts
from curvebench.reports.claims.verdicts import FEWEST_TUNING_SEEDS, claim_verdicts, combined
from curvebench.reports.claims.wording import say
from curvebench.reports.pages.site import render_site
from curvebench.reports.statistics.decisions import Question, decide
from curvebench.reports.tables import Tables, read_tables
from curvebench.results.schema import CLAIMS, FINDINGS
from curvebench.results.tuning import resamples
from curvebench.results.verdicts import ALPHA, MIN_AGREEMENT, RULE_VERSION, rule_hash
from curvebench.spec.errors import InputError
from curvebench.spec.plan import ReportPlan, StudyPlan
from tests.conftest import ROOT
from tests.reports.changing import replace
from tests.reports.conftest import Report
from tests.reports.example_sets import with_metric
from tests.reports.synthetic import Shape, rules_of


@pytest.fixture(scope="module")
def found(report: Report):
    return read_verdicts(report.plan)


@pytest.mark.parametrize(
    ("findings", "verdict"),
    [
        (["supported", "supported"], "reproduced"),
        (["supported", "refuted"], "not reproduced"),
        (["supported", "inconclusive"], "underpowered"),
        (["refuted", "inconclusive"], "not reproduced"),
        (["inconclusive"], "underpowered"),
    ],
)
def test_how_findings_make_a_verdict(findings, verdict):
    assert combined(findings) == verdict


def test_tables_have_their_schemas_and_a_row_a_claim_and_backend(found, report: Report):
    assert (found.claims.schema, found.findings.schema) == (CLAIMS, FINDINGS)
    rows = found.claims.filter(pl.col("study") == "digits_mlp")
    assert rows["backend"].to_list() == list(report.plan.study("digits_mlp").backends)
    assert rows["rule"].to_list() == rows["rule_of_runs"].to_list() == [*rules_of(Shape()).values()] * 2
    (skipped,) = found.claims.filter(pl.col("verdict") == "not run").to_dicts()
    assert (skipped["study"], skipped["estimate"]) == ("fashion", None)


def test_an_estimate_is_the_ratio_of_the_tables_own_values(found, tables: Tables):
    final = tables.runs.filter((pl.col("stage") == "final") & (pl.col("backend") == "jax"))
    values = {
        (method, seed): metrics[0]["value"]
        for method, seed, metrics in final.select("method", "seed", "final_metrics").iter_rows()
    }
    ratios = sorted(
        values["adam @ egop", seed] / values["adam", seed] for seed in sorted(final["seed"].unique())
    )
    (finding,) = found.findings.filter(claim="egop.digits_mlp", backend="jax").to_dicts()
    assert finding["estimate"] == pytest.approx((ratios[4] * ratios[5]) ** 0.5)
    # Of 10 values, the second covers with 1002/1024, the third with 912/1024; 0.95 is at this share between.
    share = (1002 / 1024 - 0.95) / (90 / 1024)
    inward = 8 * share / (2 + 6 * share)  # Hettmansperger and Sheather
    ends = [one ** (1 - inward) * next_one**inward for one, next_one in (ratios[1:3], ratios[-2:-4:-1])]
    assert [finding["low"], finding["high"]] == pytest.approx(ends)
    assert finding["margin"] == pytest.approx(0.95)


def altered(runs: pl.DataFrame, method: str, backend: str, factor: float) -> pl.DataFrame:
    """Return the runs with a method's training losses multiplied."""
    scaled = with_metric(runs, "train_loss", pl.element().struct.field("value") * factor)
    here = (pl.col("method") == method) & (pl.col("backend") == backend)
    return runs.with_columns(final_metrics=pl.when(here).then(scaled).otherwise("final_metrics"))


@pytest.mark.parametrize(
    ("factor", "verdict"), [(0.5, "reproduced"), (0.97, "not reproduced"), (2.0, "not reproduced")]
)
def test_the_verdict_follows_the_runs(study: StudyPlan, tables: Tables, factor, verdict):
    runs = tables.runs
    same = runs.filter(pl.col("method") == "adam").with_columns(
        pl.lit("adam @ egop").alias("method"), pl.lit("egop").alias("basis")
    )
    runs = pl.concat([runs.filter(pl.col("method") != "adam @ egop"), same])
    (claim,) = study.claims
    changed = replace(tables, runs=altered(runs, "adam @ egop", "jax", factor))
    findings = decided(list(comparisons(study, claim, changed, "jax")))
    assert combined(findings["finding"].to_list()) == verdict
    assert findings["estimate"].item() == pytest.approx(factor)


def stopping(report: Report, treated: list[float], control: list[float], stop: float, **asked: Any) -> Any:
    """Return the made-up study with these final losses of its claim's methods and a stop, its claim and
    tables.
    """
    study = replace(report.plan.study("digits_mlp"), stop={"train_loss": stop})
    (claim,) = study.claims
    claim = replace(claim, conditions=(replace(claim.conditions[0], test="sign", **asked),))
    tables = read_tables(study.tables)
    losses = {"adam @ egop": dict(enumerate(treated, 1000)), "adam": dict(enumerate(control, 1000))}
    rows = []
    for run in tables.runs.filter(stage="final", backend="jax").iter_rows(named=True):
        if run["method"] in losses:
            loss = losses[run["method"]][run["seed"]]
            ended = {"outcome": "reached", "steps": round(1000 * loss / stop)} if loss <= stop else {}
            metrics = [{"name": "train_loss", "value": loss}]
            rows.append({**run, "final_metrics": metrics, "outcome": "budget", "steps": 1000, **ended})
    runs = pl.DataFrame(rows, schema=tables.runs.schema)
    return replace(study, claims=(claim,), backends=("jax",)), claim, replace(tables, runs=runs)


def stopped(report: Report, *losses: Any, **asked: Any) -> tuple[ClaimComparison, dict[str, Any]]:
    """Return the one comparison of the study of `stopping`, and its finding."""
    study, claim, tables = stopping(report, *losses, **asked)
    (one,) = comparisons(study, claim, tables, "jax")
    (row,) = decided([one]).to_dicts()
    return one, row


BOTH_STOP = [0.09] * 7 + [0.2] * 3
NOT = [0.5] * 10


def codes(claim: ClaimVerdict) -> dict[str, tuple[int | None, int | None]]:
    """Return the reasons of a verdict, with their counts."""
    return {each["code"]: (each["count"], each["of"]) for each in claim.reasons}


def claim_of(study: Any, tables: Any) -> ClaimVerdict:
    """Return the verdict on the only claim of a study."""
    plan = ReportPlan(scale="quick", studies=(study,))
    told = claim_verdicts(plan, {study.name: tables}, None)
    (found,) = listed(plan, told.claims, told.findings)
    return found


@pytest.mark.parametrize("relation", ["same", "no_worse", "better"])
def test_pairs_that_stopped_in_both_are_equal_for_no_relation(report: Report, relation):
    one, row = stopped(report, BOTH_STOP, BOTH_STOP, 0.1, relation=relation)
    assert (one.gains == 0).all()
    assert one.bounds.words == ("open", "[0, ∞]"), "of three pairs something is known"
    assert (row["finding"], row["estimate"], row["low"], row["high"]) == ("inconclusive", None, 0.0, np.inf)
    assert row["seeds_needed"] is None
    assert (row["unknown"], row["bounded"], row["stop"], row["beyond_seeds"]) == (7, 7, 0.1, True)
    study, _, tables = stopping(report, BOTH_STOP, BOTH_STOP, 0.1, relation=relation)
    claimed = claim_of(study, tables)
    assert (claimed.verdict, claimed.seeds_needed) == ("underpowered", None)
    assert "7 of 10 pairs stopped at 0.1 in both" in claimed.reason


@pytest.mark.parametrize(
    ("treated", "control", "finding", "low", "high"),
    [([0.09] * 10, NOT, "supported", 0.0, 0.2), (NOT, [0.09] * 10, "refuted", 5.0, np.inf)],
)
def test_what_a_bound_is_enough_for_is_decided(report: Report, treated, control, finding, low, high):
    _, row = stopped(report, treated, control, 0.1)
    assert (row["finding"], row["estimate"]) == (finding, None)
    assert (row["low"], row["high"]) == pytest.approx((low, high))
    study, _, tables = stopping(report, treated, control, 0.1)
    assert codes(claim_of(study, tables)) == {finding: (1, 1)}


def test_the_steps_to_the_stop_tell_runs_apart_that_all_stop(report: Report):
    """A made-up run stops after its loss over the stop, in thousandths: 500 and 900 steps."""
    one, row = stopped(report, [0.05] * 10, [0.09] * 10, 0.1, quantity="steps_to_stop")
    assert np.exp(one.gains) == pytest.approx([1.8] * 10)
    assert (row["finding"], row["estimate"]) == ("supported", pytest.approx(5 / 9))
    assert (row["quantity"], row["which"]) == ("steps_to_stop", "final")


def charged_to_the_stop(report: Report, treated: float, control: float) -> tuple[Any, dict[str, Any]]:
    """Return the comparison by gradients to the stop, 500 of them the basis', and its finding."""
    study, claim, tables = stopping(report, [treated] * 10, [control] * 10, 0.1, quantity="gradients_to_stop")
    of_basis = pl.when(method="adam @ egop").then(pl.lit(500, pl.Int64))
    runs = tables.runs.with_columns(gradient_evaluations="steps", basis_gradient_evaluations=of_basis)
    (one,) = comparisons(study, claim, replace(tables, runs=runs), "jax")
    (row,) = decided([one]).to_dicts()
    return one, row


def test_the_gradients_to_the_stop_charge_the_basis(report: Report):
    """Made-up runs stop after 500 and 900 steps, which 500 gradients of the basis turn into 1,000 and 900."""
    _, row = charged_to_the_stop(report, 0.05, 0.09)
    assert (row["finding"], row["estimate"]) == ("refuted", pytest.approx(10 / 9))
    assert (row["quantity"], row["which"]) == ("gradients_to_stop", "final")


def test_a_run_that_missed_the_stop_for_fewer_gradients_bounds_one_that_met_it(report: Report):
    """1,500 gradients to the stop, 500 of them the basis', and more than 1,000: either may be fewer."""
    one, row = charged_to_the_stop(report, 0.1, 0.3)
    assert (row["finding"], one.bounds.words[0]) == ("inconclusive", "≤ 1.50")
    assert (row["unknown"], row["bounded"], row["stop"], row["beyond_seeds"]) == (0, 10, 0.1, True)
    assert "10 of 10 pairs, of which one run stopped at 0.1" in say("censoring", row, one.condition)


def test_a_run_that_did_not_stop_is_worse_than_any_that_did(report: Report):
    one, row = stopped(report, [0.1] * 8 + [0.3] * 2, [0.3] * 10, 0.1, quantity="steps_to_stop")
    assert (one.gains[:8] > 0).all()  # after 1,000 steps, and more than 1,000
    assert (one.gains[8:] == 0).all()
    assert one.bounds.words == ("≤ 0.9990", "[0, ∞]")
    assert (row["unknown"], row["beyond_seeds"]) == (2, True)
    assert "2 of 10 pairs met 0.1 in neither run" in say("censoring", row, one.condition)


def test_the_steps_to_a_target_leave_open_what_missed_it(report: Report):
    """Made-up runs reach a loss of 0.1 as `stopping` lets them stop: the treated all, the control two."""
    study, claim, tables = stopping(
        report, [0.05] * 10, [0.1] * 2 + [0.3] * 8, 0.1, quantity="steps_to_target", which="best"
    )
    met = pl.when(pl.col("outcome") == "reached").then(pl.col("steps"))
    aim = pl.struct(
        metric=pl.lit("train_loss"), threshold=pl.lit(0.1), steps=met, seconds=pl.lit(None, pl.Float64)
    )
    runs = tables.runs.with_columns(targets=pl.concat_list(aim), outcome=pl.lit("budget"))
    study = replace(study, stop={}, targets={"train_loss": 0.1})
    (one,) = comparisons(study, claim, replace(tables, runs=runs), "jax")
    assert np.exp(one.gains[:2]) == pytest.approx([2.0] * 2)
    assert np.exp(one.gains[2:]) == pytest.approx([1001 / 500] * 8)
    assert np.isinf(one.gain_bounds.high[2:]).all()
    (row,) = decided([one]).to_dicts()
    assert (row["finding"], row["which"]) == ("supported", "best")


def test_json_has_bounds_and_words(report: Report):
    study, _, tables = stopping(report, [0.09] * 10, NOT, 0.1)
    (told,) = json.loads(as_json([claim_of(study, tables)]))
    assert (told["estimate"], told["low"], told["high"]) == (None, 0.0, pytest.approx(0.2))
    assert (told["estimate_text"], told["interval_text"]) == ("≤ 0.200", "[0, 0.200]")
    (comparison,) = told["comparisons"]
    assert (comparison["at_least"], comparison["at_most"]) == (0.0, pytest.approx(0.2))
    assert told["decided_by"] == "{treated} / {control} on {workload}".format(**comparison)
    assert told["accepted_range"] == comparison["accepted_range"] == "at most 0.950"
    text = " ".join(as_text([claim_of(study, tables)]).split())
    for token in ("≤ 0.200 [0, 0.200]", told["decided_by"], "asks at most 0.950"):
        assert token in text


@pytest.mark.parametrize(
    ("losses", "others", "stop", "why"),
    [
        ([0.9] * 4 + [0.97] * 6, [1.0] * 10, 0.001, ("p 0.00098 for it", "not as asked")),
        ([0.9, 1.2] * 5, [1.0] * 10, 0.001, ("against it", "0.950", "not even 1,000 final seeds")),
        ([0.09] * 10, [0.09] * 10, 0.1, ("stopped", "more seeds would not")),
    ],
)
def test_an_inconclusive_comparison_says_why(
    report: Report, losses: list[float], others: list[float], stop: float, why: tuple[str, ...]
):
    study, _, tables = stopping(report, losses, others, stop)
    text = as_text([claim_of(study, tables)], details=True)
    (line,) = (line for line in text.splitlines() if line.startswith("  inconclusive"))
    assert [token for token in why if token not in line] == []


def test_steps_to_a_target_of_the_study_are_told_with_its_value(report: Report):
    study, _, tables = stopping(report, [0.09] * 10, NOT, 0.1, quantity="steps_to_target", which="best")
    study = replace(study, stop={}, targets={"train_loss": 0.1})
    said = "steps to the target of the best training loss (target 0.1)"
    text = " ".join(as_text([claim_of(study, tables)], details=True).split())
    assert text.count(said) == 3, "of the claim, in the table and below, and the comparison"


def test_fewer_seeds_are_underpowered_and_told_how_many_would_do(study: StudyPlan, tables: Tables):
    few = tables.runs.filter(pl.col("seed").is_in((1000, 1001, 1002)))
    (claim,) = study.claims
    (finding,) = decided(list(comparisons(study, claim, replace(tables, runs=few), "jax"))).to_dicts()
    assert (finding["finding"], finding["seeds"]) == ("inconclusive", 3)
    assert finding["seeds_needed"] in (5, 6)


@pytest.mark.parametrize(
    ("change", "workload", "remedy"),
    [
        (lambda runs: altered(runs, "adam", "jax", -1.0), None, "give effect: difference"),
        (lambda runs: pl.concat([runs, runs]), None, "merge tables of one plan"),
        # a claim of two workloads is not decided by one of them
        (lambda runs: runs, "absent", "on absent, which the plan does not have"),
    ],
    ids=["negative", "twice", "absent"],
)
def test_what_cannot_be_compared_is_refused(study: StudyPlan, tables: Tables, change, workload, remedy):
    (claim,) = study.claims
    claim = replace(claim, conditions=(replace(claim.conditions[0], workload=workload),))
    with pytest.raises(InputError, match=remedy):
        list(comparisons(study, claim, replace(tables, runs=change(tables.runs)), "jax"))


# findings by their first letters: holds, fails, open
PINNED = "irrrriirrrirrrririiiiisiiissssirrrriiiiiiiiisissssissssissssiirrriiiiiiisisiiiiiiiiiiiirrr"
CLAIM: dict[str, Any] = {
    "id": "a",
    "sentence": "s",
    "supported_if": [
        {"metric": {"which": "final", "metric": "y"}, "smallest_effect": 0.05},
        {"metric": {"which": "best", "metric": "z"}},
    ],
}


@pytest.mark.parametrize(
    ("claim", "cap", "same"),
    [
        ({**CLAIM, "sentence": "in other words"}, "", True),
        ({**CLAIM, "supported_if": CLAIM["supported_if"][::-1]}, "", True),
        (json.loads(json.dumps(CLAIM, sort_keys=True)), "", True),  # keys are sorted in plan.json
        ({**CLAIM, "supported_if": [CLAIM["supported_if"][0] | {"smallest_effect": 0.01}]}, "", False),
        ({**CLAIM, "supported_if": [CLAIM["supported_if"][0] | {"at_equal": "seconds"}]}, "", False),
        (CLAIM, "the data are reduced", False),
    ],
)
def test_the_hash_of_a_rule_is_that_of_what_decides(claim, cap, same):
    assert (rule_hash(claim, cap) == rule_hash(CLAIM, "")) == same


def test_another_way_from_gains_to_verdicts_raises_the_rules_version():
    """Fixed gains have fixed findings. If this test fails, increase RULE_VERSION, and update PINNED."""
    random = np.random.default_rng(7)
    found = []
    for relation in ("better", "no_worse", "same"):
        question = Question(relation, 0.05)
        for median in (-0.2, -0.05, 0.0, 0.05, 0.06, 0.2):
            for size in (3, 5, 8, 10, 20):
                gains = median + 0.05 * random.standard_normal(size)
                found.append(decide(question, gains, question.refuting_p_value(gains), ALPHA)[0])
    assert (RULE_VERSION, ALPHA, "".join(found)) == (5, 0.05, PINNED)


def test_a_claim_is_decided_only_where_its_positive_control_is_met(report: Report):
    study, claim, tables = stopping(report, [0.1] * 10, NOT, 0.1)
    study = replace(study, stop={})
    (own,) = claim.conditions
    for held, verdict in (
        (own, "reproduced"),
        (replace(own, better=own.compared_to, compared_to=own.better), "underpowered"),
    ):
        control = replace(held, positive_control="Adam stalls")
        changed = replace(study, claims=(replace(claim, conditions=(own, control)),))
        found = claim_of(changed, tables)
        assert found.verdict == verdict
        unmet = verdict == "underpowered"
        assert codes(found).get("control_unmet") == ((1, 1) if unmet else None)
        assert ("Adam stalls" in found.reason) == unmet


def test_a_cap_is_told(study: StudyPlan, tables: Tables):
    found = claim_of(replace(study, at_most_partly="the data are reduced"), tables)
    assert (found.verdict, *codes(found)) == ("partly reproduced", "supported", "limited_scale")
    assert "the data are reduced" in found.reason


def test_the_newest_runs_of_a_study_that_the_site_does_not_select_decide_its_claims(
    report: Report, folder_of_sets: Path, capsys: pytest.CaptureFixture[str]
):
    """A first report decided egop.convex; a later one has only the other study."""
    study = report.plan.study("convex")
    folder = folder_of_sets / "results/tables/convex.quick.1"
    shutil.copytree(study.tables, folder)
    plan = report.plan.model_copy(update={"archive": (), "parity": None, "checks": None, "skipped": ()})
    alone = plan.model_copy(update={"studies": (replace(study, tables=folder),)})
    (folder / "plan.json").write_text(alone.to_json())
    (folder_of_sets / SITE).mkdir(parents=True)
    other = plan.model_copy(update={"studies": (report.plan.study("digits_mlp"),)})
    (folder_of_sets / SITE / "plan.json").write_text(other.to_json())
    assert main(["verdicts", "egop.convex", "egop.digits_mlp", "--json"]) == 0
    told = {one["id"]: one["published"] for one in json.loads(capsys.readouterr().out)}
    assert (told["egop.convex"], told["egop.digits_mlp"]) == ("", "")
    # The limits were others when the study ran before, and all seeds agree.
    earlier = folder_of_sets / "results/tables/convex.quick.2"
    shutil.copytree(folder, earlier)
    others = replace(study, tables=earlier, rules={"egop.convex": "0123456789abcdef"})
    before = plan.model_copy(update={"studies": (others,)})
    (earlier / "plan.json").write_text(before.to_json())
    os.utime(earlier / "plan.json", (0, 0))
    assert main(["verdicts", "egop.convex", "--json"]) == 0
    told = {one["id"]: one["exploratory"] for one in json.loads(capsys.readouterr().out)}
    assert "changed after runs on this machine had decided it" in told["egop.convex"]


def test_the_command_lists_each_claim_once(
    report: Report, capsys: pytest.CaptureFixture, tmp_path: Path, frozen: Callable[[Path, str], None]
):
    command = ["verdicts", "--plan", str(report.plan_file)]
    assert main([*command, "--json"]) == 0
    told = {verdict["id"]: verdict for verdict in json.loads(capsys.readouterr().out)}
    assert {"egop.digits_mlp", "egop.convex", "egop.fashion", "notes.regret"} < {*told}
    for verdict in told.values():
        assert {"sentence", "command", "scale", "estimate", "low", "high", "p", "seeds"} <= {*verdict}
    pages = tmp_path / "site"
    render_site(report.plan, pages, tmp_path / "drawn", lambda _: None)
    drawn = {name: verdict["figure"] for name, verdict in told.items() if verdict["figure"]}
    # Claims that comparisons decide, and that were run.
    assert set(drawn) == {"egop.digits_mlp", "egop.convex"}
    assert all((pages / figure).is_file() for figure in drawn.values())
    misprint = told["notes.misprint"]
    assert misprint["variant"] == "as corrected"
    assert misprint["others"] == [{"variant": "as printed", "backend": None, "verdict": "not reproduced"}]
    assert len(misprint["missed"]) == 1
    assert main(command) == 0
    assert main([*command, "egop.conv", "002"]) == 0
    said = capsys.readouterr().out.replace(str(report.folder), "FOLDER")
    frozen(Path(__file__).with_name("verdicts.txt"), said)


def final_losses(tables: Tables, workload: str, method: str) -> np.ndarray:
    """Training losses of a method's final runs on JAX, by seed."""
    own = tables.runs.filter(stage="final", backend="jax", workload=workload, method=method).sort("seed")
    return np.array([metrics[0]["value"] for metrics in own["final_metrics"]])


def test_methods_are_held_against_a_number(study: StudyPlan, tables: Tables):
    """Each method by itself, its runs' values less or over the number; a seed is a pair."""
    (claim,) = study.claims
    condition = replace(claim.conditions[0], methods=("adam", "adam @ egop"), compared_to=0.25)
    claim = replace(claim, conditions=(replace(condition, test="sign"),))
    both = list(comparisons(study, claim, tables, "jax"))
    assert [(one.key.treated, one.control, one.effect) for one in both] == [
        ("adam", "0.25", "ratio"),
        ("adam @ egop", "0.25", "ratio"),
    ]
    for one in both:
        assert one.key.arms == (("digits_mlp", one.key.treated),)
        assert one.gains == pytest.approx(-np.log(final_losses(tables, "digits_mlp", one.key.treated) / 0.25))


@pytest.mark.parametrize(("relation", "number", "finding"), [
    ("no_worse", 0.1, "supported"), ("better", 0.2, "supported"),
    ("no_worse", 0.05, "inconclusive"), ("better", 0.1, "inconclusive"),
])  # fmt: skip
def test_a_stop_bounds_runs_only(report: Report, relation: str, number: float, finding: str):
    """All runs stopped at 0.1: they are no worse than it, and how much better they would get nobody knows."""
    asked = {"relation": relation, "methods": ("adam @ egop",), "compared_to": number}
    assert stopped(report, [0.09] * 10, NOT, 0.1, **asked)[1]["finding"] == finding


def test_a_method_is_held_against_itself_on_another_workload(report: Report):
    study = report.plan.study("convex")
    (claim,) = study.claims
    condition = replace(
        claim.conditions[0],
        methods=("adam",),
        compared_to=("adam",),
        workload="least_squares",
        control_workload="log_sum_exp",
    )
    claim = replace(claim, conditions=(condition,))
    tables = read_tables(study.tables)
    (one,) = comparisons(study, claim, tables, "jax")
    assert (one.key.treated, one.control) == ("adam", "adam on log_sum_exp")
    assert one.key.arms == (("least_squares", "adam"), ("log_sum_exp", "adam"))
    here, there = (final_losses(tables, name, "adam") for name in ("least_squares", "log_sum_exp"))
    assert one.gains == pytest.approx(np.log(there) - np.log(here))
    assert np.abs(one.gains).max() > 0, "the two workloads' losses differ"
    (row,) = decided([one]).to_dicts()
    assert (row["workload"], row["control"], row["seeds"]) == ("least_squares", "adam", 10)
    absent = replace(claim, conditions=(replace(condition, control_workload="absent"),))
    with pytest.raises(InputError, match="on absent, which the plan does not have"):
        list(comparisons(study, absent, tables, "jax"))
    (again,) = comparisons(study, replace(absent, repeats="egop.other"), tables, "jax")
    assert not len(again.gains), "a claim may be repeated on some of its workloads"


PUBLISHED = ROOT / "results/published"


@pytest.mark.parametrize(
    ("seeds", "verdict", "draws"),
    [(5, "reproduced", None), (4, "partly reproduced", 35), (1, "partly reproduced", 1)],
)
def test_a_choice_by_few_tuning_seeds_is_not_the_last_word(
    study: StudyPlan, tables: Tables, seeds: int, verdict: str, draws: int | None
):
    found = claim_of(replace(study, seeds=replace(study.seeds, tuning=seeds)), tables)
    assert found.verdict == verdict
    assert codes(found).get("few_tuning_seeds") == (draws and (seeds, draws))


def test_from_five_tuning_seeds_on_no_single_draw_outweighs_what_may_disagree():
    assert {seeds: resamples(seeds, seeds)[1].max() > 1 - MIN_AGREEMENT for seeds in range(1, 8)} == {
        seeds: seeds < FEWEST_TUNING_SEEDS for seeds in range(1, 8)
    }


@pytest.fixture
def folder_of_sets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a working directory with the published sets and nothing else."""
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "published").symlink_to(PUBLISHED)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_what_a_narrowed_site_does_not_decide_is_told_of_the_published_sets(
    report: Report, folder_of_sets: Path, capsys: pytest.CaptureFixture[str]
):
    (folder_of_sets / SITE).mkdir(parents=True)
    (folder_of_sets / SITE / "plan.json").write_text(report.plan_file.read_text())
    asked = ["symo.invariance", "egop.convex", "egop.fashion-small"]
    assert main(["verdicts", *asked, "--json"]) == 0
    told = [(one["id"], one["published"]) for one in json.loads(capsys.readouterr().out)]
    assert told[0] == ("egop.convex", ""), "the site's own claims come first, and once"
    assert ("symo.invariance", "symo-checks.2026-11-25") in told
    assert len(told) == len(dict(told))
    assert main(["verdicts", "egop.convex", "symo.invariance"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert {"  run here, scale quick", "  of the set symo-checks.2026-11-25, scale paper"} <= {*said}
    assert main(["verdicts", "egop.fashion", "--json"]) == 0
    (own, *_) = told = json.loads(capsys.readouterr().out)
    assert (own["id"], own["verdict"]) == ("egop.fashion", "not run"), "no set decides it either"
    assert len(told) > 1


def test_a_name_without_a_verdict_hides_no_other(folder_of_sets: Path, capsys: pytest.CaptureFixture[str]):
    (folder_of_sets / "benchmarks").symlink_to(ROOT / "benchmarks")
    assert main(["verdicts", "symo.invariance", "egop.imagenet-wallclock", "egop.convex-second"]) == 0
    said, missing = capsys.readouterr()
    assert "symo.invariance: " in said
    lacking, undecided = missing.splitlines()
    assert "studies=egop.imagenet-wallclock scale=paper; it costs 63 hours of a card" in lacking
    assert undecided.endswith(
        "decide it; run snakemake --cores all reports --config studies=egop.convex-second-basis"
    )
    assert main(["verdicts", "nonsense", "Symo", "symo.invariance"]) == 2
    said, missing = capsys.readouterr()
    assert "symo.invariance: " in said
    nonsense, case = missing.splitlines()
    assert nonsense == "error: nothing begins with 'nonsense'; curvebench list shows all names"
    assert "nothing begins with 'Symo'; did you mean 'symo'?" in case


def test_without_a_site_verdicts_are_those_of_the_published_sets(folder_of_sets, capsys):
    assert main(["verdicts", "symo.invariance", "spectral.metric", "--json"]) == 0
    told = {one["id"]: one for one in json.loads(capsys.readouterr().out)}
    assert list(told) == ["symo.invariance", "spectral.metric", "spectral.metric-nearness"]
    assert told["spectral.metric"]["published"] == "spectral-checks.2026-11-26"
    assert main(["verdicts", "spectral.metric"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    others = {one["variant"]: one["verdict"] for one in told["spectral.metric"]["others"]}
    assert f"as printed {others['as printed']}; of the set spectral-checks.2026-11-26, scale paper" in said
    assert main(["verdicts", "symo.invarience"]) == 2
    assert "did you mean 'symo.invariance'?" in capsys.readouterr().err
