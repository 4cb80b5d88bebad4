"""Two sides row by row: what agrees, differs, is inconclusive or in one only, and the page that says so."""

from __future__ import annotations

import json
import math
import re
import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from curvebench.__main__ import main
from curvebench.reports.sets.comparing import (
    ComparedRow,
    Tolerance,
    answer_of,
    compare,
    overall_answer,
    overlap,
    paired_row,
    render,
)
from curvebench.reports.sets.reproduce import as_text
from curvebench.reports.sets.sides import Side, narrowed_to_claim, read_side, side_of
from curvebench.results.intervals import MedianInterval
from curvebench.results.schema import TABLES
from curvebench.results.writing import write_table
from curvebench.spec.errors import InputError
from curvebench.spec.plan import read_plan
from tests.reports.changing import replace
from tests.reports.example_sets import Change, scaled, write_report, write_set
from tests.reports.synthetic import HOSTILE, Shape

CLAIM = "egop.digits_mlp"
SHAPE = Shape(optimizers=("sgd", "adam", HOSTILE), backends=("jax",))


def report(folder: Path, *shapes: Shape, checks: bool = False, **changes: Change) -> Side:
    """Return a report with changed tables."""
    return side_of(read_plan(write_report(folder, shapes or [SHAPE], checks, **changes)), "after")


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Side:
    """Return the report with which changed reports are compared."""
    return report(tmp_path_factory.mktemp("before"), checks=True)


def answers(rows: list[ComparedRow], kind: str) -> dict[str, str]:
    """Return the answers of the rows of a kind, by their subject."""
    return {row.subject: row.answer for row in rows if row.kind == kind}


def of(rows: list[ComparedRow], kind: str, method: str) -> ComparedRow:
    (row,) = (row for row in rows if row.kind == kind and f"{method}, " in f" {row.subject}")
    return row


def test_a_side_agrees_with_itself(before: Side):
    rows = compare(before, before)
    assert {row.answer for row in rows} == {"agrees"}
    assert {row.kind for row in rows} == {"verdicts", "comparisons of claims", "runs"}
    assert [(row.kind, row.subject) for row in compare(before, before, CLAIM)] == [
        ("verdicts", f"{CLAIM} on jax"),
        (
            "comparisons of claims",
            f"{CLAIM}: final training loss of {HOSTILE} @ egop over {HOSTILE}, digits_mlp on jax",
        ),
        ("runs", f"final training loss of {HOSTILE} @ egop, digits_mlp on jax"),
        ("runs", f"final training loss of {HOSTILE}, digits_mlp on jax"),
    ]


# --- claims --------------------------------------------------------------------------------------


def turned(runs: pl.DataFrame) -> pl.DataFrame:
    """Make the optimizer with the hostile name worse in its basis, so that its claim fails."""
    own = (pl.col("optimizer") == HOSTILE) & (pl.col("basis") == "egop")
    moved = scaled(HOSTILE, 1e6)(runs)
    return runs.with_columns(
        final_metrics=pl.when(own).then(moved["final_metrics"]).otherwise(pl.col("final_metrics"))
    )


@pytest.mark.parametrize(
    ("change", "differing", "verdicts"),
    [
        (turned, {"verdicts", "comparisons of claims", "runs"}, ("reproduced", "not reproduced")),
        (scaled(HOSTILE, 1.5), {"runs"}, ("reproduced", "reproduced")),
        (scaled(HOSTILE, 1 + 1e-6), set(), ("reproduced", "reproduced")),
    ],
    ids=["verdict", "end", "rounding"],
)
def test_what_differs_is_told_by_kind(
    before: Side, tmp_path: Path, change: Change, differing: set[str], verdicts: tuple[str, str]
):
    rows = compare(before, report(tmp_path, runs=change), CLAIM)
    assert {row.kind for row in rows if row.answer == "differs"} == differing
    assert overall_answer([row.answer for row in rows]) == ("differs" if differing else "agrees")
    assert rows[0].values == verdicts
    if not differing:
        for token in ("+1.00×10⁻⁶", "10 seeds", "tolerance 0.0526"):  # 5 % less is 1 / 1.0526
            assert token in rows[-1].note


def test_few_seeds_cannot_tell(before: Side, tmp_path: Path):
    few = Shape(optimizers=SHAPE.optimizers, backends=("jax",), seeds=(1000, 1001))
    rows = compare(before, report(tmp_path, few, runs=scaled(HOSTILE, 3.0)), CLAIM)
    assert overall_answer([row.answer for row in rows]) == "inconclusive"
    assert {row.answer for row in rows if row.kind in ("verdicts", "runs")} == {"inconclusive"}


def test_stopped_runs_agree_bound_by_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    # counting seeds takes seconds
    monkeypatch.setattr("curvebench.reports.statistics.decisions.seeds_needed", lambda *_: None)
    plan = read_plan(write_report(tmp_path, [SHAPE], checks=False))
    studies = tuple(replace(study, stop={"train_loss": 0.00025}) for study in plan.studies)
    stopping = side_of(replace(plan, studies=studies), "stopping")  # about half of the runs of one method
    (row,) = (row for row in compare(stopping, stopping, CLAIM) if row.kind == "comparisons of claims")
    assert row.answer == "agrees"
    assert "≤" in row.values[0]


def test_what_depends_on_the_clock_is_listed_apart_and_does_not_count(tmp_path: Path):
    """Steps of the second side take a thousandth of the time in the EGOP basis, so that the verdict turns."""
    condition = {"quantity": "training_seconds_to_nearly_best", "which": "best"}

    def in_basis(frame: pl.DataFrame) -> pl.DataFrame:
        seconds = pl.when(basis="egop").then(pl.col("seconds") / 1000).otherwise("seconds")
        return frame.with_columns(seconds=seconds)

    sides = []
    for name, changes in (("slow", {}), ("fast", {"timings": in_basis})):
        plan = read_plan(write_report(tmp_path / name, [SHAPE], False, **changes))
        (study,) = plan.studies
        (claim,) = study.claims
        clock = replace(claim, conditions=(replace(claim.conditions[0], **condition),))
        sides.append(side_of(replace(plan, studies=(replace(study, claims=(clock,)),)), name))
    rows = compare(sides[0], sides[1], CLAIM)
    assert {row.kind for row in rows if row.answer == "differs"} == {"by the clock"}
    assert answer_of(rows) == "inconclusive", "the claim rests on the clock alone"
    same = ComparedRow("verdicts", "an other claim", ("reproduced", "reproduced"), "agrees")
    assert answer_of([*rows, same]) == "agrees"
    above, below = as_text(CLAIM, sides[0], [*rows, same]).split("by the clock, which differs", 1)
    assert "agrees with slow" in above
    assert "differs" not in above
    assert below.count("differs: by the clock") == 2


def test_a_claim_that_asks_something_else_cannot_be_told(before: Side, tmp_path: Path):
    path = write_report(tmp_path, [SHAPE], checks=False)
    raw = json.loads(path.read_text())
    study = raw["studies"][0]
    study["rules"] = {CLAIM: "0" * 16}
    asked = study["claims"][0]["supported_if"][0]
    asked["no_worse"] = asked.pop("better")
    path.write_text(json.dumps(raw))
    rows = compare(before, side_of(read_plan(path), "after"), CLAIM)
    assert [(row.kind, row.answer) for row in rows[:3]] == [
        ("verdicts", "inconclusive"),
        ("comparisons of claims", "only in one"),
        ("comparisons of claims", "only in one"),
    ]
    assert rows[0].note == "the rule of the claim is another one"
    assert overall_answer([row.answer for row in rows]) == "inconclusive"


def test_what_one_side_has_is_in_one_only(before: Side, tmp_path: Path):
    more = report(tmp_path, Shape(optimizers=("sgd", "adam"), backends=("jax", "torch")), Shape("convex"))
    rows = compare(before, more)
    verdicts = answers(rows, "verdicts")
    assert {verdicts["egop.convex on jax"], verdicts[f"{CLAIM} on torch"], verdicts["notes.regret"]} == {
        "only in one"
    }
    runs = answers(rows, "runs")
    assert runs["study convex"] == "only in one"
    assert runs[f"final training loss of {HOSTILE}, digits_mlp on jax"] == "only in one"
    assert runs["final training loss of sgd, digits_mlp on jax"] == "agrees"
    assert "differs" not in verdicts.values()
    with pytest.raises(InputError, match="before of scale quick and after of scale paper cannot be compared"):
        compare(replace(before, name="before"), replace(more, plan=replace(more.plan, scale="paper")))


@pytest.mark.parametrize(("instances", "answer"), [(0, "agrees"), (150, "differs")])
def test_the_share_of_instances_that_hold(before: Side, tmp_path: Path, instances: int, answer: str):
    plan = read_plan(write_report(tmp_path, [SHAPE]))
    assert plan.checks is not None
    path = plan.checks.tables[0] / "checks.parquet"
    missed = (pl.col("part") == "gradient descent") & (pl.col("instance") < instances)
    holds = pl.when(missed).then(pl.lit(value=False)).otherwise(pl.col("holds"))
    write_table(path, pl.read_parquet(path).with_columns(holds=holds), TABLES["checks"])
    rows = compare(before, side_of(narrowed_to_claim("notes.regret", plan), "after"), "notes.regret")
    assert answers(rows, "verdicts") == {
        "notes.regret": answer,
        "notes.regret: share of instances that hold": answer,
    }


@pytest.mark.parametrize(
    ("one", "other", "near", "answer"),
    [
        ((1.0, 0.9, 1.1), (1.05, 0.95, 1.2), 0.0, "agrees"),
        ((1.0, 0.9, 1.1), (1.2, 1.05, 1.3), 0.0, "inconclusive"),
        ((1.0, 0.9, 1.1), (1.2, 1.05, 1.3), 0.2, "agrees"),
        ((1.0, 0.9, 1.1), (1.3, 1.2, 1.4), 0.2, "differs"),
        ((math.inf, 1.0, math.inf), (math.inf, 2.0, math.inf), 0.0, "agrees"),
    ],
)
def test_intervals_overlap_or_have_nothing_in_common(one: Any, other: Any, near: float, answer: str):
    left, right = (MedianInterval(ends[0], ends[1], ends[2], 0.95, 10) for ends in (one, other))
    assert overlap(left, right, near) == overlap(right, left, near) == answer
    if answer == "differs":
        assert overlap(left, replace(right, level=0.75), near) == "inconclusive"


# --- runs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("factor", "answer", "word"),
    [(0.7, "differs", "better"), (1.3, "differs", "worse"), (1.0005, "agrees", "median")],
)
def test_headlines_have_one_tolerance(before: Side, tmp_path: Path, factor: float, answer: str, word: str):
    rows = compare(before, report(tmp_path, runs=scaled("adam", factor)))
    for method in ("adam", "adam @ egop"):
        row = of(rows, "runs", f" of {method}")
        assert (row.answer, row.note.split()[0].rstrip(",")) == (answer, word)
        assert row.note.endswith("tolerance 0.00100")
    assert of(rows, "runs", " of sgd").answer == "agrees"


@pytest.mark.parametrize("floored", ["before", "after"])
def test_values_beyond_the_floor_have_not_changed(tmp_path: Path, floored: str):
    def side(name: str, factor: float) -> Side:
        plan = read_plan(write_report(tmp_path / name, [SHAPE], checks=False, runs=scaled("adam", factor)))
        changed = (
            replace(study, compare=study.compare.model_copy(update={"floor": 1e9}))
            for study in plan.studies
            if name == floored
        )
        return side_of(replace(plan, studies=tuple(changed) or plan.studies), name)

    rows = compare(side("before", 1.0), side("after", 0.7))
    assert of(rows, "runs", " of adam").answer == ("agrees" if floored == "after" else "differs")


@pytest.mark.parametrize(
    ("floors", "answer"), [((1e9, None), "agrees"), ((None, 1e9), "agrees"), ((None, None), "differs")]
)
def test_the_floor_of_any_condition_holds(tmp_path: Path, floors: tuple[float | None, ...], answer: str):
    """The runs of a method are in two conditions, of which the second has the smaller effect that matters."""

    def side(name: str, factor: float) -> Side:
        plan = read_plan(write_report(tmp_path / name, [SHAPE], checks=False, runs=scaled(HOSTILE, factor)))
        (study,) = plan.studies
        claim = study.claims[0]
        (condition,) = claim.conditions
        conditions = tuple(
            condition.model_copy(update={"floor": floor, "smallest_effect": effect})
            for floor, effect in zip(floors, (0.05, 0.01), strict=True)
        )
        claim = claim.model_copy(update={"conditions": conditions})
        return side_of(replace(plan, studies=(replace(study, claims=(claim,)),)), name)

    rows = compare(side("before", 1.0), side("after", 0.7), "egop.digits_mlp")
    assert {row.answer for row in rows if row.kind == "runs"} == {answer}


def test_other_machines_are_named_on_the_page(before: Side, tmp_path: Path):
    other = report(tmp_path, jobs=lambda jobs: jobs.with_columns(machine=pl.lit("other")))
    assert "losses differ by rounding" in render(before, other)


@pytest.mark.parametrize(
    ("old", "new", "tolerance", "answer"),
    [
        ([1.0] * 10, [1.2, 0.8] * 5, Tolerance(0.1, "ratio"), "inconclusive"),
        ([1.0] * 4, [1.2] * 4, Tolerance(0.1, "ratio"), "inconclusive"),
        ([1.0] * 10, [math.inf] * 10, Tolerance(0.1, "ratio"), "differs"),
        # The third argument is a limit: values better than it count as equal to it.
        ([0.5] * 8, [0.1] * 8, Tolerance(0.1, "ratio", None), "differs"),
        ([0.5] * 8, [0.1] * 8, Tolerance(0.1, "ratio", 0.4), "differs"),
        ([0.5] * 8, [0.1] * 8, Tolerance(0.1, "ratio", 0.5), "agrees"),
        ([0.0, math.inf, 2.0], [0.0, math.inf, 2.0], Tolerance(1e-3), "agrees"),
        ([0.0, math.inf, 2.0], [None] * 3, Tolerance(1e-3), "only in one"),
    ],
)
def test_pairs_of_runs_are_judged(
    old: list[float], new: list[float | None], tolerance: Tolerance, answer: str
):
    schema = {"seed": pl.Int64, "value": pl.Float64, "value_right": pl.Float64}
    runs = pl.DataFrame({"seed": range(len(old)), "value": old, "value_right": new}, schema=schema)
    assert paired_row("it", runs, tolerance, "minimize").answer == answer


# --- the page ------------------------------------------------------------------------------------


def test_the_page_stands_alone_and_names_what_changed(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    sides = [
        write_set(tmp_path / name, f"{name}.quick", [SHAPE], False, **changes)
        for name, changes in (("before", {}), ("after", {"runs": turned}))
    ]
    copy = tmp_path / "set"
    shutil.copytree(sides[1], copy)
    plan = copy / "plan.json"
    waived = {"kind": "hardware", "where": "mixed <b>hardware</b>", "names": ["m1", "m2"]}
    plan.write_text(json.dumps({**json.loads(plan.read_text()), "waived": [waived]}))
    out = tmp_path / "pages/changes.html"
    assert main(["sets", "compare", str(sides[0]), str(copy), "--out", str(out)]) == 0
    assert capsys.readouterr().out.strip() == str(out)
    text = out.read_text()
    assert not re.search(r'(src|href)="(?!#)|<script', text)
    assert HOSTILE not in text
    assert "&lt;script&gt;" in text
    assert "mixed &lt;b&gt;hardware" in text
    assert re.search('>reproduced</td><td[^>]*after.quick">not reproduced</td>', text)
    told = re.findall(r'role="cell">([^<]*)</td><th', text.partition('id="runs"')[2])
    assert list(dict.fromkeys(told)) == ["≠ differs", "= agrees"]
    assert "Other machines" not in text


def test_a_checkout_is_read_by_the_plan_of_its_site(before: Side, tmp_path: Path):
    checkout = tmp_path / "checkout"
    plan = write_report(checkout, [SHAPE])
    site = checkout / "reports/site/plan.json"
    site.parent.mkdir(parents=True)
    site.write_text(plan.read_text().replace(f"{checkout}/", ""))  # relative, as Snakemake's are
    assert read_side(checkout).name == "checkout"
    assert overall_answer([row.answer for row in compare(before, read_side(checkout))]) == "agrees"
    with pytest.raises(InputError, match="neither a published set"):
        read_side(tmp_path)
