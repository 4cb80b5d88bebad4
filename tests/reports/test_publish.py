"""A published set as pages, and the command that verifies it."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import polars as pl
import pytest

from reports.__main__ import main
from reports.plan import ReportError, read_plan
from reports.publish import alike, curves_of_claims, disagreements, gather, publish
from reports.tables import read_tables
from results import flaws
from results.checking import unfounded
from results.publishing import BEGIN, END, thinned
from results.set_plan import PlannedStudy
from tests.reports.conftest import Report
from tests.reports.sets import CODE, write_report, write_set
from tests.reports.synthetic import Shape

SMALL = Shape(optimizers=("sgd", "adam"), backends=("jax",))


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A published set of one study."""
    return write_set(tmp_path_factory.mktemp("published"), "small.quick", [SMALL], checks=False)


def dirty(jobs: pl.DataFrame) -> pl.DataFrame:
    return jobs.with_columns(dirty=pl.lit(value=True))


def test_a_set_renders_with_its_figures_and_what_was_waived(tmp_path: Path):
    plan = read_plan(write_report(tmp_path / "tables", [SMALL], checks=False, jobs=dirty))
    made = publish(plan, "waived.quick", tmp_path / "published", ["dirty"], code=CODE)
    site = tmp_path / "site"
    assert main(["site", "--plan", str(made / "plan.json"), "--out", str(site)]) == 0
    board = (site / "leaderboard.html").read_text()
    assert '<details class="warning"><summary><strong>What this set was published in spite of<' in board
    assert "digits_mlp: 6 of 6 jobs ran code that differs from its commit" in board
    assert list((site / "figures/digits_mlp").glob("*.svg"))
    assert not list(made.rglob("*.svg"))  # a set holds no figures
    runs = next(site.glob("runs*.html")).read_text()
    assert "python -m harness show RUN --results results/published/waived.quick" in runs
    again = "python -m reports reproduce egop.digits_mlp --published results/published/waived.quick"
    assert again in (site / "claims.html").read_text()
    named = [
        page.name for page in site.glob("*.html") if "Published set <code>waived.quick" in page.read_text()
    ]
    assert sorted(named) == sorted(page.name for page in site.glob("*.html"))
    assert not (site / "plan.json").exists()  # its folders are beside the set's own


def test_the_site_of_a_set_needs_a_folder(small: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["site", "--plan", str(small / "plan.json")]) == 1
    assert "say with --out where its site should lie" in capsys.readouterr().err


def test_a_set_is_published_anew_from_its_own_tables(small: Path, tmp_path: Path):
    """What a change of the statistics spoiled is computed again; the runs stay as they are."""
    old = tmp_path / "old"
    shutil.copytree(small, old)
    findings = pl.read_parquet(old / "findings.parquet")
    findings.with_columns(low=pl.col("low") - 1).write_parquet(old / "findings.parquet")
    assert disagreements(old)
    made = publish(read_plan(old / "plan.json"), "again.quick", tmp_path, code=CODE)
    assert unfounded(made) == []
    for table in ("runs", "curves", "timings", "jobs"):
        kept = [pl.read_parquet(folder / f"digits_mlp/{table}.parquet") for folder in (old, made)]
        assert kept[0].equals(kept[1]), table
    about = json.loads((old / "provenance.json").read_text())
    (old / "provenance.json").write_text(json.dumps({**about, "thinned_curves": ["digits_mlp"]}))
    assert gather(read_plan(old / "plan.json")).thinned == ("digits_mlp",)


def test_curves_that_claims_are_decided_by_stay_whole(report: Report, monkeypatch: pytest.MonkeyPatch):
    """Of the methods and the metric that a condition at equal cost, or on the shape of a curve, names."""
    study = report.plan.study("digits_mlp")
    (claim,) = study.claims
    runs = read_tables(study.tables).runs
    assert not len(curves_of_claims(study, runs))
    for change in ({"at_equal": "gradients"}, {"quantity": "log_linearity", "down_to": 0.1}):
        asked = replace(claim, conditions=(replace(claim.conditions[0], **change),))
        found = curves_of_claims(replace(study, claims=(asked,)), runs)
        named = runs.filter(pl.col("method").is_in(["adam", "adam @ egop"]))
        assert set(found["run"]) == set(named["run"])
        assert set(found["metric"]) == {"train_loss"}
    monkeypatch.setattr("reports.publish.thinned", partial(thinned, most=0, points=3))
    monkeypatch.setattr("reports.publish.CURVE_POINTS", 3)
    contents = gather(replace(report.plan, studies=(replace(study, claims=(asked,)),)))
    assert contents.thinned == contents.whole == ("digits_mlp",)
    curves = contents.frames["digits_mlp"]["curves"].join(runs.select("run", "method"), on="run")
    longest = curves.group_by("method", "metric").agg(pl.len() / pl.col("run").n_unique())
    lengths = {(method, metric): length for method, metric, length in longest.iter_rows()}
    assert lengths["adam", "train_loss"] == 8
    assert lengths["adam", "validation_accuracy"] == lengths["adagrad", "train_loss"] == 3


@pytest.mark.parametrize(
    ("lengths", "whole", "refused"),
    [((50, 50), False, False), ((50, 60), False, True), ((50, 60), True, False), ((60, 60), True, True)],
)
def test_thinned_curves_are_longer_only_where_the_set_says_so(
    small: Path, lengths: tuple[int, int], whole: bool, refused: bool
):
    (raw,) = json.loads((small / "plan.json").read_text())["studies"]
    frames = {
        name: pl.read_parquet(small / f"digits_mlp/{name}.parquet") for name in ("runs", "curves", "timings")
    }
    row = frames["curves"][:1]
    curves = [
        pl.concat([row] * length).with_columns(run=pl.lit(run), step=pl.int_range(length))
        for run, length in zip(frames["runs"]["run"], lengths, strict=False)
    ]
    changed = {**frames, "curves": pl.concat(curves)}
    found = flaws.of_study(PlannedStudy.model_validate(raw), changed, thinned=True, whole=whole)
    assert any("says that it is thinned" in flaw for flaw in found) == refused


def test_a_tree_with_changes_is_not_published_unless_the_set_says_so(tmp_path: Path):
    plan = read_plan(write_report(tmp_path / "tables", [SMALL], checks=False))
    changes = (CODE[0], True)
    with pytest.raises(ReportError, match="the code that computes verdicts and leaderboard differs from"):
        publish(plan, "new", tmp_path / "published", code=changes)
    made = publish(plan, "new", tmp_path / "published", ["dirty"], code=changes)
    assert "leaderboard differs from its commit" in (made / "README.md").read_text()
    assert unfounded(made) == []


def test_the_readme_links_to_the_set_from_where_it_lies(tmp_path: Path):
    plan = read_plan(write_report(tmp_path / "tables", [SMALL], checks=False))
    readme = tmp_path / "project/README.md"
    readme.parent.mkdir()
    readme.write_text(f"{BEGIN}\n{END}\n")
    with pytest.raises(ReportError, match="does not lie below its folder"):
        publish(plan, "new", tmp_path / "published", readme=readme, code=CODE)
    publish(plan, "new", readme.parent / "results", readme=readme, code=CODE)
    assert "[new](results/new/README.md)" in readme.read_text()


def test_a_set_is_verified_from_its_tables(small: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["verify", str(small)]) == 0
    assert "follow from its tables" in capsys.readouterr().out
    claims = small / "claims.parquet"
    whole = claims.read_bytes()
    pl.read_parquet(claims).with_columns(estimate=pl.lit(0.5)).write_parquet(claims)
    assert main(["verify", str(small)]) == 1
    said = "claims.parquet: claim egop.digits_mlp on jax: estimate is 0.5, and the tables give 0.0281"
    assert said in capsys.readouterr().out
    claims.write_bytes(whole)


@pytest.mark.parametrize(
    ("left", "right", "equal"),
    [
        (1.0, 1.0 + 1e-9, True),
        (1.0, 1.0 + 1e-3, False),
        (float("nan"), float("nan"), True),
        (float("inf"), float("inf"), True),
        (float("inf"), 1.0, False),
        (None, 1.0, False),
        (None, None, True),
        ("a", "a", True),
        ([1.0, {"a": 2.0}], [1.0, {"a": 2.0 + 1e-9}], True),
        ([1.0, {"a": 2.0}], [1.0, {"b": 2.0}], False),
        ([1.0], [1.0, 2.0], False),
    ],
)
def test_values_are_alike_but_for_rounding(left: object, right: object, equal: bool):
    assert alike(left, right) is equal
