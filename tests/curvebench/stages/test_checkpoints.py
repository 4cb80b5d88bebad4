"""Jobs that are ended and go on from checkpoints: their tables, notes, times and folders."""

from __future__ import annotations

import json
import math
import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from polars.testing import assert_frame_equal

from curvebench.__main__ import main
from curvebench.engine import inputs
from curvebench.engine.bundle import Bundle
from curvebench.engine.checkpoints import Checkpoints
from curvebench.engine.clock import PHASES, Clock
from curvebench.engine.execution import execute
from curvebench.reports.failures import failures_of, in_words
from curvebench.results.reading import read
from curvebench.spec.job import RunsSpec
from curvebench.stages import run_jobs
from curvebench.stages.supervision import Failure, Journal, Lanes, Supervision
from tests.curvebench.stages.test_jobs import SWEEP as WITH_BASES
from tests.curvebench.stages.test_jobs import run, written
from tests.results.comparing import determined

# The jobs run on PyTorch, which compiles nothing.
SWEEP = WITH_BASES.changed(backend="torch", bases=WITH_BASES.bases[:1], settings=({"learning_rate": 0.01},))


@pytest.fixture
def at_every_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs are kept every 10 of their 400 steps."""
    monkeypatch.setattr(run_jobs, "Checkpoints", partial(Checkpoints, worth=0.0, share=math.inf))
    monkeypatch.setattr(run_jobs, "CHECKPOINT_SECONDS", 0.0)
    monkeypatch.setattr(inputs, "MIN_SEGMENT_PRODUCTS", 1)
    monkeypatch.setattr(inputs, "MIN_SEGMENTS", 40)


def ended_after(
    steps: int, spec: RunsSpec, results: Path, monkeypatch: pytest.MonkeyPatch, noted: bool = True
) -> Path:
    """Run a job that gets a SIGTERM when a run has taken `steps` steps, and return the folder of the job.

    If `noted` is false, remove the rows of the failure afterwards, as if the process had been killed.
    """

    def watched(
        bundle: Bundle, engine: Any, clock: Any, progress: Callable[[int], None], *others: Any
    ) -> Any:
        def report(done: int) -> None:
            progress(done)
            if done == steps:
                os.kill(os.getpid(), signal.SIGTERM)

        return execute(bundle, engine, clock, report, *others)

    with monkeypatch.context() as patch:
        patch.setattr(run_jobs, "execute", watched)
        folder = run(spec, results)
    if not noted:
        (stored,) = folder.rglob("*.failed.parquet")
        stored.unlink()
    return folder


ENDED = Supervision(ended=Failure("interrupted", "SIGTERM: out of time, cancelled or preempted"))


def notes_of(folder: Path) -> list[str]:
    (notes,) = read(folder, "jobs")["notes"].to_list()
    return [note for note in notes if "step" in note]


def assert_interrupted(folder: Path, steps: int, kept: str = "") -> None:
    """Check the two rows of `runs` and the summary of failures of a job that SIGTERM interrupted.

    Args:
        folder: folder of the job.
        steps: number of steps that the runs had made.
        kept: end of the reason, if a checkpoint exists.
    """
    reason = f"SIGTERM: out of time, cancelled or preempted{kept}"
    columns = ("outcome", "reason", "outcome_step", "steps", "gradient_evaluations")
    row = ("interrupted", reason, steps, steps, steps)
    assert read(folder, "runs").select(columns).rows() == [row] * 2
    (failure,) = failures_of(read(folder, "jobs"))
    said = f"momentum on least_squares in tuning round 1, 2 of 2 runs: interrupted: {reason}"
    assert in_words(failure) == f"small, runs on {failure['backend']}: {said}"


@pytest.mark.parametrize("backend", ["jax", "torch"])
@pytest.mark.usefixtures("at_every_piece")
def test_a_job_that_is_told_to_end_goes_on_where_it_was(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    spec = SWEEP.changed(backend=backend)
    undisturbed = run(spec, tmp_path / "undisturbed")
    results = tmp_path / "ended"
    for after in (100, 300):
        folder = ended_after(after, spec, results, monkeypatch)
        assert_interrupted(folder, after, f"; tried again, it goes on after step {after}")
        ((kept,),) = ([*one.iterdir()] for one in (results / "checkpoints").iterdir())
        assert max(path.name for path in kept.glob("*.npz")) == f"{after:012d}.npz"
    folder = run(spec, results)
    for table in ("runs", "curves"):
        one, other = (determined(each / f"{table}.parquet") for each in (undisturbed, folder))
        assert_frame_equal(one, other, check_exact=True)
    name = "momentum on least_squares, 2 runs"
    said = capfd.readouterr().err.splitlines()
    for note, step in zip(notes_of(folder), (100, 300), strict=True):
        assert note.startswith(f"{name}: went on at 2")
        assert f" after step {step}, kept at 2" in note
        assert note in said
    assert not notes_of(undisturbed)
    assert not any((each / "checkpoints").exists() for each in (results, tmp_path / "undisturbed"))
    (row,) = read(folder, "jobs").to_dicts()
    parts = [row[f"{phase}_seconds"] for phase in (*PHASES, "other")]
    assert min(parts) >= 0
    assert math.fsum(parts) == pytest.approx(row["total_seconds"])


@pytest.mark.usefixtures("at_every_piece")
def test_the_time_of_processes_before_is_part_of_the_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Of the total too, and of what `minutes` limits."""
    ended_after(200, SWEEP, tmp_path, monkeypatch)
    (file,) = (tmp_path / "checkpoints").rglob("000000000200.npz")
    told: list[float] = []
    before = Clock.take_over

    def taken_over(clock: Clock, seconds: dict[str, float]) -> None:
        before(clock, dict.fromkeys(seconds, 1000.0))

    monkeypatch.setattr(Clock, "take_over", taken_over)
    step = Journal.step

    def stepped(journal: Journal, done: int, earlier: float = 0.0) -> None:
        step(journal, done, earlier)
        told.append(earlier)

    monkeypatch.setattr(Journal, "step", stepped)
    (row,) = read(run(SWEEP, tmp_path), "jobs").to_dicts()
    assert all(row[f"{phase}_seconds"] >= 1000 for phase in PHASES)
    assert row["total_seconds"] >= 1000 * len(PHASES)
    assert row["other_seconds"] >= row["checkpoint_seconds"] >= 1000
    assert row["data_seconds"] >= row["waiting_seconds"] >= 1000
    assert told == [1000.0 * (len(PHASES) + 1), 0.0, 0.0], "once, and then after each evaluation"
    assert not file.exists()


@pytest.mark.usefixtures("at_every_piece")
def test_a_process_without_a_checkpoint_reports_the_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """It reports the last checkpoint of the process before it, which was killed within a segment."""
    ended_after(100, SWEEP, tmp_path, monkeypatch, noted=False)
    assert_interrupted(run(SWEEP, tmp_path, ENDED), 100, "; tried again, it goes on after step 100")


@pytest.mark.usefixtures("at_every_piece")
def test_settings_whose_process_is_killed_resume_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    spec = SWEEP.changed(settings=({"learning_rate": 0.01}, {"learning_rate": 0.02}))
    undisturbed = run(spec, tmp_path / "undisturbed")
    results = tmp_path / "killed"
    ended_after(100, spec, results, monkeypatch, noted=False)
    lost = {Lanes(0, 0, 2, 0, 2): Failure("interrupted", "SIGKILL: the process was killed", 100)}
    runs = read(run(spec, results, Supervision(lost=lost)), "runs")
    reason = "SIGKILL: the process was killed; tried again, it goes on after step 100"
    assert runs.select("outcome", "reason").rows() == [("interrupted", reason)] * 4
    folder = run(spec, results)
    assert [note for note in notes_of(folder) if "4 runs: went on" in note]
    one, other = (determined(each / "curves.parquet") for each in (undisturbed, folder))
    assert_frame_equal(one, other, check_exact=True)


def test_what_is_done_when_the_sigterm_comes_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = ended_after(400, SWEEP, tmp_path, monkeypatch)
    assert read(folder, "runs")["outcome"].to_list() == ["budget"] * 2
    assert not (folder / "failed.json").exists()


@pytest.mark.usefixtures("at_every_piece")
def test_a_row_has_no_cost_where_data_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The rows are written all the same: no error of the whole job takes their place."""
    ended_after(100, SWEEP, tmp_path, monkeypatch, noted=False)

    def gone(*unused: object) -> None:
        raise OSError("the data are gone")

    monkeypatch.setattr(run_jobs._CellRun, "_build", gone)
    runs = read(run(SWEEP, tmp_path, ENDED), "runs")
    assert runs.select("outcome", "steps", "gradient_evaluations").rows() == [("interrupted", 100, 0)] * 2


@pytest.mark.usefixtures("at_every_piece")
def test_the_checkpoint_of_another_spec_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    other = SWEEP.changed(settings=({"learning_rate": 0.02},))
    kept = {}
    for spec in (SWEEP, other):
        ended_after(100, spec, tmp_path, monkeypatch)
        (kept[spec.hash],) = (tmp_path / "checkpoints").glob(f"*{spec.hash}*/*")
    for path in kept[other.hash].iterdir():
        path.replace(kept[SWEEP.hash] / path.name)
    folder = run(SWEEP, tmp_path)
    undisturbed = run(SWEEP, tmp_path / "undisturbed")
    one, other_ = (determined(each / "curves.parquet") for each in (undisturbed, folder))
    assert_frame_equal(one, other_, check_exact=True)
    assert all("another run" in note for note in notes_of(folder))
    assert len(notes_of(folder)) == 2


def test_a_job_of_seconds_makes_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = ended_after(100, SWEEP, tmp_path, monkeypatch)
    assert json.loads((folder / "failed.json").read_text())
    assert_interrupted(folder, 100)
    assert not (tmp_path / "checkpoints").exists()


def test_the_journal_counts_time_of_processes_before():
    journal = Journal()
    journal.begin(Lanes(0))
    begun = journal.read()[2]
    journal.step(5, 60.0)
    assert journal.read()[1:] == (5, begun - 60.0)


def test_runs_are_kept_as_often_as_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    made: list[float] = []

    def watched(folder: Path, of: Any, name: str, every: float) -> Checkpoints:
        made.append(every)
        return Checkpoints(folder, of, name, every)

    monkeypatch.setattr(run_jobs, "Checkpoints", watched)
    path = str(written(SWEEP, tmp_path))
    main(["run", path, "--results", str(tmp_path), "--checkpoint-minutes", "2.5"])
    assert set(made) == {150.0}
    made.clear()
    run(SWEEP, tmp_path)
    assert set(made) == {900.0}
