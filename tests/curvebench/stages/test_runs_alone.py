"""Runs that are jobs of their own give what runs give that share a job, and fail alone."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from curvebench.engine.bundle import Bundle
from curvebench.planning.config import Config
from curvebench.planning.plan import Plan, PlannedJob, make_plan, write_specs
from curvebench.results.merging import merge
from curvebench.results.outcomes import FINISHED
from curvebench.results.reading import read
from curvebench.spec.job import RunsSpec
from curvebench.stages import run_jobs
from curvebench.stages.jobs import run_job
from tests.curvebench.runs_alone import IN_ONE_BASIS, write_alone
from tests.curvebench.tiny import SEARCH, TWO_STAGES

SMALL = (
    ("optimizers: [sgd, adam]", "optimizers: [adam]"),
    ("better: [adam @ egop], compared_to: [adam]", "better: [adam], compared_to: [adam @ egop]"),
    ("torch: {tuned_on: jax, seeds: {final: 2}}", "torch: {}"),
    ("seeds: {tuning: 2, final: 3}", "seeds: {tuning: 2, final: 2}"),
    ("    steps: 20", "    steps: 8"),
    ("shared_across: bases", "shared_across: bases\n  tuned_bases: identity"),
)
CONFIG = Config(
    results=Path("results"), site=Path("site"), study_folder=Path("studies"), studies=("tiny",), parity=False
)
SAME = ("run", "spec_hash", "bundle_lanes", "basis_seconds")  # names of jobs, and times


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working folder: files of workloads are named from there, and the seeds follow from their
    names.
    """
    monkeypatch.chdir(tmp_path)
    return tmp_path


def planned(backend: str) -> Plan:
    plan = make_plan(CONFIG.model_copy(update={"backends": (backend,)}))
    write_specs(plan)
    return plan


def of_round(plan: Plan, number: int) -> list[PlannedJob]:
    """Return the jobs of runs that are made in a round."""
    return [job for job in plan.jobs if isinstance(job.spec, RunsSpec) and job.spec.rounds == (number,)]


def run_all(jobs: Iterable[PlannedJob]) -> list[Path]:
    return [run_job(job.spec_path, CONFIG.results) for job in jobs if job.spec.stage in ("bases", "runs")]


def rows(tables: Path) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Runs and curves without names and times, in an order that does not come from jobs."""
    runs = read(tables, "runs")
    names = ["stage", "optimizer", "basis", "seed", "learning_rate"]
    curves = runs.select("run", *names).join(read(tables, "curves"), on="run").drop("run")
    return runs.drop(SAME).sort(names), curves.sort([*names, "metric", "step"])


@pytest.mark.slow
@pytest.mark.parametrize("backend", [pytest.param("jax", marks=pytest.mark.long), "torch"])
def test_runs_alone_equal_runs_that_share_a_job(folder: Path, monkeypatch: pytest.MonkeyPatch, backend: str):
    """Alternatives among them; bundles that share a job hold one lane each, as lanes round otherwise."""
    tables = {}
    for alone in (False, True):
        own = folder / f"{'alone' if alone else 'together'}"
        own.mkdir()
        monkeypatch.chdir(own)
        write_alone(own / "studies", *SMALL, alone=alone)
        merge(run_all(planned(backend).jobs), own / "tables")
        tables[alone] = own / "tables"
    for ours, theirs in zip(rows(tables[True]), rows(tables[False]), strict=True):
        assert_frame_equal(ours, theirs, check_exact=True)
    runs = read(tables[True], "runs")
    assert set(runs["bundle_lanes"]) == {1}
    stages = Counter(runs.select("stage", "round").rows())
    assert stages.pop(("alternative", 2), 0) >= 1, (
        "settings that may have been chosen share the job of their seed"
    )
    assert stages == {("tuning", 0): 4, ("tuning", 1): 12, ("final", 2): 4}
    assert runs.filter(stage="tuning")["spec_hash"].n_unique() == 16


def test_a_run_that_fails_takes_nothing_else_away_and_is_named_by_its_setting_and_seed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    write_alone(Path("studies"), *IN_ONE_BASIS, *SMALL[:1], *SMALL[2:])
    execute: Any = vars(run_jobs)["execute"]

    def full(bundle: Bundle, *others: Any) -> Any:
        if bundle.hyperparameters["learning_rate"][0] == 0.1 and vars(bundle.randoms[0])["seed"] == 1:
            raise MemoryError("40 GiB")
        return execute(bundle, *others)

    with monkeypatch.context() as patch:
        patch.setattr(run_jobs, "execute", full)
        plan = planned("jax")
        first = run_all(of_round(plan, 0))
    ((failure,),) = (
        json.loads((job / "failed.json").read_text()) for job in first if (job / "failed.json").exists()
    )
    where = "seed 1 in tuning round 1 at learning_rate 0.1"
    assert failure["what"] == f"adam on long_squares, {where}, 1 of 1 runs"
    assert failure["reason"].startswith("MemoryError: 40 GiB; all examples are one batch")
    assert "tiny adam on long_squares, tuning round 1, setting 1, seed 0 on jax [" in capfd.readouterr().err
    refined = run_all(of_round(plan, 1))
    assert len(read(refined[0], "runs")) == 1
    rates = {read(one, "runs")["learning_rate"].item() for one in refined}
    assert len(rates) == 6, "a job each, of the rates that the tables give"

    # The next call repeats only the run that failed. Runs that are complete are read from their tables.
    refine = of_round(plan, 1)[0]
    assert (refine.folder / "parts").is_dir()
    monkeypatch.setattr(run_jobs, "execute", lambda *_: pytest.fail("it is run again"))
    before = read(refine.folder, "runs")
    run_job(refine.spec_path, CONFIG.results)
    assert_frame_equal(read(refine.folder, "runs"), before, check_exact=True)


def test_what_runs_that_were_interrupted_tune_waits_for_them(folder: Path, monkeypatch: pytest.MonkeyPatch):
    """And is decided by the others where nothing is to be tried again."""
    one_seed = ("seeds: {tuning: 2, final: 3}", "seeds: {tuning: 1, final: 1}")
    search = (TWO_STAGES, SEARCH)
    write_alone(Path("studies"), *IN_ONE_BASIS, *SMALL[:1], SMALL[2], one_seed, search)
    plan = planned("jax")
    execute: Any = vars(run_jobs)["execute"]

    def interrupted(*given: Any) -> Any:
        os.kill(os.getpid(), signal.SIGTERM)
        return execute(*given)

    first, second = of_round(plan, 0)
    run_job(first.spec_path, CONFIG.results)
    with monkeypatch.context() as patch:
        patch.setattr(run_jobs, "execute", interrupted)
        run_job(second.spec_path, CONFIG.results)
    (final,) = run_all(of_round(plan, 1))
    assert read(final, "runs").is_empty()
    (failure,) = json.loads((final / "failed.json").read_text())
    assert failure["what"].startswith("adam on long_squares, seed 1")
    assert failure["outcome"] == "interrupted", "it does not count against the method"
    assert failure["reason"] == "no runs that tune it: they were interrupted, and come first, or failed"
    shutil.rmtree(final)
    (job,) = of_round(plan, 1)
    run_job(job.spec_path, CONFIG.results, keep_failed=True)
    rate = read(first.folder, "runs")["learning_rate"].item()
    assert read(final, "runs")["learning_rate"].to_list() == [rate]

    run_all(plan.jobs)
    assert set(read(final, "runs")["outcome"]) <= {*FINISHED}
    assert not (final / "failed.json").exists()
