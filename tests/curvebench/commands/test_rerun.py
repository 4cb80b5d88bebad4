"""Recomputed runs of a published set: agreement, differences, and how much a sample detects."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from curvebench.__main__ import main
from curvebench.commands import rerun
from curvebench.engine.bundle import Bundle, Trajectories
from curvebench.engine.execution import execute
from curvebench.planning.plan import prepare
from curvebench.reports.sets.derived import read_set
from curvebench.reports.sets.publish import publish
from curvebench.results.merging import merge
from curvebench.spec.errors import InputError
from curvebench.spec.plan import ReportPlan, read_plan
from curvebench.stages.basis_jobs import estimate_bases
from curvebench.stages.job import Job
from curvebench.stages.jobs import run_job
from tests.curvebench.tiny import SEARCH, TWO_STAGES, write_study
from tests.reports.example_sets import CODE, changed, with_metric

SMALL = (
    ("      torch: {tuned_on: jax, seeds: {final: 2}}\n", ""),
    ("{tuning: 2, final: 3}", "{tuning: 1, final: 2}"),
)


def report(folder: Path, *changes: tuple[str, str]) -> ReportPlan:
    """Run the tiny study in a folder, and return its plan."""
    write_study(folder, (TWO_STAGES, SEARCH), *SMALL, *changes)
    places = {"results": str(folder / "results"), "site": str(folder / "site")}
    plan = prepare({"studies": "tiny", "study_folder": str(folder), **places})
    done = [run_job(job.spec_path, folder / "results") for job in plan.jobs if job.spec.stage != "timing"]
    shown = read_plan(plan.report_path)
    merge(done, shown.studies[0].tables)
    return shown


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run the tiny study, publish it, and return the folder of the set."""
    folder = tmp_path_factory.mktemp("tiny")
    return publish(report(folder, ("[sgd, adam]", "[adam]")), "tiny.quick", folder, ["dirty"], code=CODE)


@pytest.fixture(scope="module")
def plan(published: Path) -> ReportPlan:
    return read_set(published)


def row(plan: ReportPlan, **named: Any) -> dict[str, Any]:
    """Return the row of the first final run that has the given values."""
    runs = pl.read_parquet(plan.studies[0].tables / "runs.parquet")
    return runs.filter(pl.col("stage") == "final").filter(**named).row(0, named=True)


def scaled(items: list[dict[str, Any]], factor: float) -> list[dict[str, Any]]:
    return [{**item, "value": item["value"] * factor} for item in items]


def test_runs_as_they_were_agree_with_or_without_a_basis(plan: ReportPlan):
    for named in ({"basis": "egop"}, {"basis": "identity"}):
        cell = rerun.compute(plan.studies[0], plan.scale, row(plan, **named))
        assert (cell.differences, cell.missing) == ((), "")
        assert cell.largest <= 1.0
        assert "tiny: " in cell.name


def test_a_basis_has_its_runs_precision(plan: ReportPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    asked = []

    def estimated(job: Job) -> None:
        asked.append(vars(job.spec)["precision"])
        estimate_bases(job)

    monkeypatch.setattr("curvebench.commands.rerun.estimate_bases", estimated)
    own = {**row(plan, basis="egop"), "dtype": "float32"}  # the precision differs from that of the workload
    rerun.run_cell(plan.studies[0], plan.scale, own, tmp_path)
    assert asked == ["float32"]


@pytest.fixture(scope="module")
def anew(plan: ReportPlan, tmp_path_factory: pytest.TempPathFactory) -> list[rerun.RunRecord]:
    """Recompute a run of Adam in the EGOP basis, and return its record with those of its twins."""
    own = row(plan, optimizer="adam", basis="egop")
    return rerun.run_cell(plan.studies[0], plan.scale, own, tmp_path_factory.mktemp("cell"))


@pytest.mark.parametrize(
    ("column", "change", "told"),
    [
        ("final_metrics", lambda items: scaled(items, 1 + 1e-6), "final gradient_norm is"),
        ("best_metrics", lambda items: scaled(items, 0.5), "best gradient_norm is"),
        ("hyperparameters", lambda items: scaled(items, 0.9), "hyperparameters is"),
        ("outcome", lambda _: "diverged", "outcome is diverged, and recomputed"),
        ("steps", lambda steps: steps - 1, "steps is 19, and recomputed 20"),
        ("gradient_evaluations", lambda count: count // 2, "gradient_evaluations is 10"),
        ("basis_gradient_evaluations", lambda _: 0, "basis_gradient_evaluations is 0"),
    ],
)
def test_changed_runs_are_found(
    plan: ReportPlan, anew: list[rerun.RunRecord], column: str, change: Any, told: str
):
    own = row(plan, optimizer="adam", basis="egop")
    curve = pl.read_parquet(plan.studies[0].tables / "curves.parquet").filter(run=own["run"])
    found, _ = rerun.differences(rerun.record({**own, column: change(own[column])}, curve), anew)
    assert any(each.startswith(told) for each in found), found


@pytest.mark.parametrize(
    ("column", "change", "told"),
    [
        ("learning_rate", lambda rate: rate * 1.001, "train_loss at step 5 is"),
        ("seed", lambda seed: seed + 1, "train_loss at step 0 is"),
    ],
)
def test_a_run_at_another_setting_is_found(plan: ReportPlan, column: str, change: Any, told: str):
    own = row(plan, optimizer="adam", basis="egop")
    cell = rerun.compute(plan.studies[0], plan.scale, {**own, column: change(own[column])})
    assert any(each.startswith(told) for each in cell.differences), cell.differences


def test_a_final_run_at_another_setting_is_found(published: Path, plan: ReportPlan, tmp_path: Path):
    def moved_finals(runs: pl.DataFrame) -> pl.DataFrame:
        final = pl.col("stage") == "final"
        return runs.with_columns(
            learning_rate=pl.col("learning_rate") * pl.when(final).then(2.0).otherwise(1.0)
        )

    other = read_set(changed(published, tmp_path / "set", "tiny/runs.parquet", moved_finals))
    for named in ({"basis": "egop"}, {"basis": "identity"}):
        assert rerun.not_chosen(plan.studies[0], row(plan, **named)) == []
        (found,) = rerun.not_chosen(other.studies[0], row(other, **named))
        assert found.startswith("learning_rate are (")
    (tuned,) = [own for _, own in rerun.sample(other, 10**6, 0) if own["stage"] != "final"][:1]
    assert rerun.not_chosen(other.studies[0], tuned) == []


def test_what_differs_is_told_with_the_options_that_the_plan_does_not_name(
    plan: ReportPlan, anew: list[rerun.RunRecord], monkeypatch: pytest.MonkeyPatch
):
    """If the runs differ, options are named that a rule, a basis or a workload lacks in the plan."""
    monkeypatch.setattr("curvebench.commands.rerun.run_cell", lambda *_: anew)
    (study,), own = plan.studies, row(plan, basis="egop")
    adam, *others = study.optimizers
    options = {name: value for name, value in adam.options.items() if name != "nesterov"}
    older = study.model_copy(update={"optimizers": (replace(adam, options=options), *others)})
    said = "the plan names no nesterov, option of adam: recomputed with its present default, False"
    assert rerun.compute(older, plan.scale, own).differences == ()
    assert rerun.compute(older, plan.scale, {**own, "steps": 19}).differences[1:] == (said,)
    assert len(rerun.compute(study, plan.scale, {**own, "steps": 19}).differences) == 1


def test_what_cannot_be_computed_is_told_and_is_no_difference(plan: ReportPlan):
    study = plan.studies[0]
    named = (replace(study.optimizers[0], locator="elsewhere:nothing"),)
    lost = study.model_copy(update={"optimizers": named})
    cell = rerun.compute(lost, plan.scale, row(plan, optimizer="adam"))
    assert cell.differences == ()
    assert "elsewhere" in cell.missing


@pytest.mark.parametrize(
    ("stage", "function", "error"),
    [("run_jobs", "execute", MemoryError("40 GiB")), ("job", "estimate", ImportError("no libgomp"))],
)
def test_a_machine_that_cannot_compute_accuses_nobody(
    published: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    stage: str,
    function: str,
    error: Exception,
):
    def fails(*_: object) -> None:
        raise error

    monkeypatch.setattr(f"curvebench.stages.{stage}.{function}", fails)
    plan = read_set(published)
    cell = rerun.compute(plan.studies[0], plan.scale, row(plan, basis="egop"))
    assert cell.differences == ()
    assert str(error) in cell.missing
    if function == "execute":
        assert main(["sets", "check", str(published), "--rerun", "1"]) == 3
        said = capsys.readouterr().out
        assert "0 of 0 agree, 0 differ, 1 cannot be computed" in said
        assert "invented" not in said


def test_a_method_that_always_fails_is_never_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def broken(bundle: Bundle, *rest: Any) -> Trajectories:
        if bundle.rule.name == "sgd":
            raise MemoryError("40 GiB")
        return execute(bundle, *rest)

    monkeypatch.setattr("curvebench.stages.run_jobs.execute", broken)
    egop = ", {egop: {blocks: all, samples: 2.0 d, sampling: {normal: 1.0}}}"
    shown = report(tmp_path, (egop, ""), ("[adam @ egop], compared_to: [adam]", "[adam], compared_to: [sgd]"))
    with pytest.raises(InputError, match=r"(?s)1 of \d jobs failed, such as sgd .*waive=failures"):
        publish(shown, "tiny.quick", tmp_path, ["dirty"], code=CODE)
    made = publish(shown, "tiny.quick", tmp_path, ["dirty", "failures"], code=CODE)
    assert main(["sets", "check", str(made)]) == 0
    assert "1 of 2 jobs failed" in (made / "README.md").read_text()
    assert {own["optimizer"] for _, own in rerun.sample(read_set(made), 10**6, 0)} == {"adam"}


def test_the_same_seed_draws_the_same_runs_and_none_twice(plan: ReportPlan):
    drawn = [[own["run"] for _, own in rerun.sample(plan, 5, seed)] for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    every = [own["run"] for _, own in rerun.sample(plan, 10**6, 0)]
    assert sorted(every) == sorted(pl.read_parquet(plan.studies[0].tables / "runs.parquet")["run"])


def test_a_rerun_finds_invented_tuning(published: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """A set has no curves of tuning runs, so that only a rerun finds invented values."""

    def invented(runs: pl.DataFrame) -> pl.DataFrame:
        better = with_metric(runs, "gradient_norm", pl.element().struct.field("value") * 0.9)
        tuned = pl.col("stage") != "final"
        return runs.with_columns(final_metrics=pl.when(tuned).then(better).otherwise(pl.col("final_metrics")))

    false = changed(published, tmp_path / "false", "tiny/runs.parquet", invented)
    assert main(["sets", "check", str(false)]) == 0
    assert main(["sets", "check", str(false), "--rerun", "3", "--seed", "0"]) == 1
    said = capsys.readouterr().out
    assert "recomputing 3 runs, sampled with --seed 0" in said
    assert "final gradient_norm is" in said
    assert "if 63% of all runs of the set were invented, a sample of 3 would contain one with" in said
    assert main(["sets", "check", str(published), "--rerun", "1"]) == 0
    assert "1 of 1 agree, 0 differ, 0 cannot be computed" in capsys.readouterr().out


@pytest.mark.parametrize(("count", "share"), [(0, 1.0), (1, 0.95), (29, 0.098)])
def test_the_share_of_invented_runs_that_a_sample_finds(count: int, share: float):
    assert rerun.detectable_share(count) == pytest.approx(share, rel=0.01)
    assert (1 - rerun.detectable_share(count)) ** count <= 0.05 + 1e-12 or count == 0


@pytest.mark.parametrize(
    ("said", "values", "growth", "dtype", "right"),
    [
        (1.0 + 1e-12, [1.0, 1.0], 0.0, "float64", True),  # another machine's rounding
        (1.0 + 1e-6, [1.0, 1.0], 0.0, "float64", False),
        (1.0 + 1e-5, [1.0, 1.0], 0.0, "float32", True),
        (1.0 + 1e-2, [1.0, 1.0], 0.0, "float32", False),
        (1.45, [1.0, 0.9], 0.0, "float32", True),  # rounding moved a twin as far: the run is chaotic
        (1.6, [1.0, 0.9], 0.0, "float32", False),
        (1.01, [1.0, 1.0], 0.01, "float32", True),  # it was so before
        (1e-17, [-1e-17, 1e-17], 0.0, "float64", True),
        (math.nan, [1.0, math.nan], 0.0, "float64", True),
        (math.nan, [1.0, 2.0], 0.0, "float64", False),
        (math.inf, [math.nan, 1.0], 0.0, "float64", False),
        (1.0, [math.nan, math.inf], 0.0, "float64", False),
        (0.5, [math.nan, 0.5], 0.0, "float64", True),
    ],
)
def test_what_rounding_may_change(said: float, values: list[float], growth: float, dtype: str, right: bool):
    assert (rerun.excess(said, values, 1.0, growth, dtype) <= 1.0) is right


def test_a_stop_between_those_of_the_twins_is_right():
    def lane(steps: int) -> rerun.RunRecord:
        row = {"outcome": "reached", "outcome_step": steps, "steps": steps, "dtype": "float64"}
        row |= {"gradient_evaluations": 9, "examples": 9, "basis_gradient_evaluations": 0}
        return rerun.RunRecord(row | {"hyperparameters": [], "final_metrics": [], "best_metrics": []}, {})

    assert rerun.differences(lane(101), [lane(100), lane(102)]) == ([], 0.0)
    found, _ = rerun.differences(lane(103), [lane(100), lane(102)])
    assert found[0] == "outcome_step is 103, and recomputed 100"


def test_twins_differ_by_units_in_the_last_place():
    assert rerun.moved(0.1, 0, "float64") == 0.1
    assert 0 < rerun.moved(0.1, 1, "float64") - 0.1 < 1e-16
    assert rerun.moved(0.1, -4, "float32") == pytest.approx(0.1, rel=1e-6)
