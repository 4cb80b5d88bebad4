"""Failures: each is a row with its outcome and its reason, other runs continue, and the next call of the
job repeats only what failed.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import polars as pl
import pytest
import torch

from curvebench.engine.bundle import Bundle
from curvebench.engine.execution import execute
from curvebench.paths import WORKERS
from curvebench.results import tuning
from curvebench.results.outcomes import FINISHED
from curvebench.results.reading import read
from curvebench.results.tuning import TuningOutcome
from curvebench.results.writing import NotWritten
from curvebench.spec.job import JobSpec, job_folder, spec_file
from curvebench.spec.method import OptimizerSpec, WorkloadSpec
from curvebench.spec.training import TrainingProtocol
from curvebench.stages import run_jobs, supervision
from curvebench.stages.job import Job
from curvebench.stages.jobs import run_job
from curvebench.stages.supervision import (
    NOTHING,
    Failure,
    Interrupted,
    Journal,
    Lanes,
    Supervision,
    failure_of,
    supervise,
)
from tests.curvebench.stages.test_jobs import LEAST_SQUARES, after, of_stage, run, written
from tests.curvebench.stages.test_jobs import SWEEP as WITH_BASES
from tests.curvebench.user_files import user_file

CHOSEN = {("least_squares", "identity"): TuningOutcome(((0.01,),), np.zeros((2, 1, 1)), 0.0)}
# The jobs run on PyTorch, which compiles nothing.
SWEEP = WITH_BASES.changed(backend="torch", bases=WITH_BASES.bases[:1], budget={"steps": 40})
RATE = 1.0  # learning rate that fails, of the settings 0.01, 1 and 10


def outcomes(folder: Path) -> dict[float, set[str]]:
    """Return the outcomes of runs by learning rate."""
    runs = read(folder, "runs").cast({"outcome": pl.String})
    return {rate: set(own["outcome"]) for (rate,), own in runs.group_by("learning_rate")}


def failing(what: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Have bundles with `RATE` fail after their first step; returns the lanes of each bundle that is run."""
    executed: list[tuple[int, int]] = []

    def watched(
        bundle: Bundle, engine: Any, clock: Any, progress: Callable[[int], None], *others: Any
    ) -> Any:
        executed.append(bundle.lanes)
        if RATE in bundle.hyperparameters["learning_rate"]:
            progress(10)
            what()
        return execute(bundle, engine, clock, progress, *others)

    monkeypatch.setattr(run_jobs, "execute", watched)
    return executed


def raising(error: BaseException) -> Callable[[], None]:
    def act() -> None:
        raise error

    return act


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (MemoryError("40 GiB"), "out_of_memory"),
        (RuntimeError("RESOURCE_EXHAUSTED: out"), "out_of_memory"),
        (ArithmeticError("broken"), "error"),
        (SystemExit(3), "error"),
    ],
)
def test_a_setting_that_fails_is_a_row_and_is_tried_again_alone(
    error: BaseException,
    outcome: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
):
    with monkeypatch.context() as patch:
        executed = failing(raising(error), patch)
        folder = run(SWEEP, tmp_path)
    assert capfd.readouterr().err.count("Traceback") == 1, "that of the bundle; its setting's is the same"
    assert executed == [(2, 3), (2, 1), (2, 1), (2, 1)], "together, then setting by setting"
    assert outcomes(folder) == {0.01: {"budget"}, RATE: {outcome}, 10.0: {"budget"}}
    rows = read(folder, "runs").filter(learning_rate=RATE)
    assert rows["seed"].to_list() == [0, 1]
    assert rows["outcome_step"].to_list() == [10, 10]
    reason = f"{type(error).__name__}: {error}"
    if outcome == "out_of_memory":
        reason += "; all examples are one batch; a batch_size in the study would hold less at a time"
    assert set(rows["reason"]) == {reason}
    (failure,) = json.loads((folder / "failed.json").read_text())
    assert failure == {
        "what": "momentum on least_squares in tuning round 1 at learning_rate 1, 2 of 6 runs",
        "outcome": outcome,
        "reason": reason,
    }
    assert read(folder, "jobs")["failures"].to_list() == [[failure]]

    (part,) = (folder / "parts").iterdir()
    # Temporary file of a process that was killed.
    (part / ".1-a1b2c3d4.0-2-1-2.runs.parquet").write_bytes(b"half")
    with monkeypatch.context() as patch:
        executed = failing(lambda: None, patch)
        assert run(SWEEP, tmp_path) == folder
    assert executed == [(2, 1)]
    assert set(read(folder, "runs")["outcome"]) <= {*FINISHED, "diverged"}
    assert {path.name for path in folder.iterdir()} == {"curves.parquet", "jobs.parquet", "runs.parquet"}
    undisturbed = run(SWEEP, tmp_path / "undisturbed")
    for table, keys in (("runs", ["run", "outcome", "outcome_step"]), ("curves", ["run", "step", "metric"])):
        assert read(folder, table).select(keys).equals(read(undisturbed, table).select(keys))


def test_failures_are_kept_where_they_were_and_only_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Settings that never ran, because tuning now chooses other settings, are not recorded as failed."""
    sweep = SWEEP.changed(settings=({"learning_rate": 0.01}, {"learning_rate": RATE}))
    final = after(sweep, {"runs": sweep}, rounds=(2,), settings=None, seeds=(1000,))
    kept = spec_file(tmp_path, final)
    run(sweep, tmp_path)
    with monkeypatch.context() as patch:
        failing(raising(MemoryError("40 GiB")), patch)
        folder = run(final, tmp_path)
        failed = read(folder, "runs")
        assert failed.select("learning_rate", "outcome", "steps").rows() == [(RATE, "out_of_memory", 10)]
        run_job(kept, tmp_path, keep_failed=True)
        assert read(folder, "runs").equals(failed)
        run(final, tmp_path, Supervision(ended=Failure("interrupted", "SIGTERM")))
        assert read(folder, "runs").equals(failed), "it was not tried again"
        monkeypatch.setattr(tuning, "tuning_outcomes", lambda *unused: CHOSEN)
        run_job(kept, tmp_path, keep_failed=True)
    (row,) = read(folder, "runs").iter_rows(named=True)
    assert (row["learning_rate"], row["outcome"]) == (0.01, "interrupted")
    assert "keep_failed" in row["reason"]


def test_runs_at_alternative_settings_have_their_own_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    mild = WorkloadSpec("mild", LEAST_SQUARES.settings, "least_squares")
    sweep = SWEEP.changed(workloads=(LEAST_SQUARES, mild), tuning_seeds=(0, 1, 2), budget={"steps": 20})
    changes = {"rounds": (2,), "settings": None, "compared_bases": ("identity",)}
    final = after(sweep, {"runs": sweep}, seeds=(1000, 1001, 1002), **changes)
    run(sweep, tmp_path)
    least = np.zeros((2, 2, 1))
    tied = TuningOutcome(((0.01,), (0.02,)), least, 0.0), TuningOutcome(((0.01,),), least[:, :1], 0.0)
    groups = dict(zip((("least_squares", "identity"), ("mild", "identity")), tied, strict=True))
    monkeypatch.setattr(tuning, "tuning_outcomes", lambda *unused: groups)
    runs = read(run(final, tmp_path), "runs")
    assert runs["run"].n_unique() == len(runs) == 3 * 2 + 3
    assert runs.group_by("workload", "stage").len().sort("workload", "stage").rows() == [
        ("least_squares", "final", 3),
        ("least_squares", "alternative", 3),
        ("mild", "final", 3),
    ]


def test_a_disk_that_is_full_is_no_failure_of_a_method(tmp_path: Path):
    folder = job_folder(tmp_path, SWEEP)
    folder.mkdir(parents=True)
    (folder / "parts").write_text("a file where a folder is wanted")
    with pytest.raises(NotWritten, match="parts"):
        run(SWEEP, tmp_path)
    assert not (folder / "runs.parquet").exists()
    assert not (folder / "failed.json").exists()


def test_what_failed_cost_its_steps_and_its_basis(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    bases = of_stage("bases")
    sweep = after(WITH_BASES, {"bases": bases}, budget={"steps": 40}, bases=WITH_BASES.bases[1:])
    run(bases, tmp_path)
    failing(raising(ArithmeticError("broken")), monkeypatch)
    monkeypatch.setattr(Bundle, "evaluations_of", lambda bundle, steps: 3 * steps)
    runs = read(run(sweep, tmp_path), "runs")
    failed, others = runs.filter(outcome="error"), runs.filter(pl.col("outcome") != "error")
    assert set(failed.select("steps", "gradient_evaluations", "examples").rows()) == {(10, 30, 30 * 12)}
    for column in ("basis_gradient_evaluations", "basis_seconds"):
        assert set(failed[column]) == set(others[column]) != {0}


def test_a_sigterm_ends_a_job_with_what_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with monkeypatch.context() as patch:
        executed = failing(lambda: os.kill(os.getpid(), signal.SIGTERM), patch)
        folder = run(SWEEP, tmp_path)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL, "for the next job of a worker"
    assert executed == [(2, 3)]
    assert set(read(folder, "runs")["outcome"]) == {"interrupted"}
    assert "SIGTERM" in read(folder, "runs")["reason"][0]
    run(SWEEP, tmp_path)
    assert not (folder / "failed.json").exists()


def test_a_failure_before_a_sigterm_is_recorded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def execute_some(bundle: Bundle, *others: Any) -> Any:
        rates = set(bundle.hyperparameters["learning_rate"])
        if RATE in rates:
            raise ArithmeticError("broken")
        if 10.0 in rates:
            raise Interrupted("SIGTERM")
        return execute(bundle, *others)

    monkeypatch.setattr(run_jobs, "execute", execute_some)
    failures = json.loads((run(SWEEP, tmp_path) / "failed.json").read_text())
    assert [failure["outcome"] for failure in failures] == ["error", "interrupted"]


def test_a_run_that_ended_its_process_is_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The bundle is tried setting by setting; where one of these has ended its process too, it has failed."""
    lost = {
        Lanes(0, 0, 2, 0, 3): Failure("interrupted", "SIGKILL"),
        Lanes(0, 0, 2, 1, 2): Failure("out_of_memory", "SIGKILL", 7),
    }
    executed = failing(raising(AssertionError("it is lost")), monkeypatch)
    folder = run(SWEEP, tmp_path, Supervision(lost=lost))
    assert executed == [(2, 1), (2, 1)]
    assert outcomes(folder) == {0.01: {"budget"}, RATE: {"out_of_memory"}, 10.0: {"budget"}}
    assert set(read(folder, "runs").filter(learning_rate=RATE)["outcome_step"]) == {7}
    executed.clear()
    late = {Lanes(0): Failure("out_of_time", "late", 7)}
    folder = run(SWEEP, tmp_path / "late", Supervision(lost=late))
    assert executed == [], "the time of a cell is over for each of its settings"
    assert outcomes(folder) == {rate: {"out_of_time"} for rate in (0.01, RATE, 10.0)}
    assert set(read(folder, "runs")["gradient_evaluations"]) == {7}


def test_a_basis_that_fails_is_an_error_of_the_cells_that_need_it(tmp_path: Path):
    """And the job of the bases, of the times, and one whose tuning is missing, leave tables all the same."""
    bases = of_stage("bases")
    sweep = after(WITH_BASES, {"bases": bases}, budget={"steps": 40})
    folder = run(bases, tmp_path, Supervision(lost={Lanes(0): Failure("out_of_memory", "SIGKILL")}))
    runs = read(run(sweep, tmp_path), "runs").cast({"outcome": pl.String})
    assert set(runs.filter(basis="identity")["outcome"]) <= {*FINISHED, "diverged"}
    assert set(runs.filter(basis="egop")["outcome"]) == {"error"}
    assert set(runs.filter(basis="egop")["reason"]) == {"basis egop on least_squares: out_of_memory: SIGKILL"}

    ended = Supervision(ended=Failure("interrupted", "SIGTERM"))
    final = after(sweep, {"bases": bases, "runs": sweep}, rounds=(2,), settings=None, seeds=(0,))
    timing = after(of_stage("timing", seeds=(0,)), {"bases": bases, "runs": final}, budget={"steps": 40})
    run(final, tmp_path, ended)
    timed = run(timing, tmp_path, ended)
    assert read(timed, "timings").is_empty()
    assert read(timed, "jobs")["failures"].to_list() == [
        [{"what": "momentum", "outcome": "interrupted", "reason": "SIGTERM"}]
    ]
    assert (folder / "failed.json").exists()
    run(bases, tmp_path)
    assert not (folder / "failed.json").exists()
    assert set(read(run(sweep, tmp_path), "runs")["reason"]) == {None}


def test_of_several_jobs_of_bases_the_one_that_failed_is_named_and_no_other_is_blamed(tmp_path: Path):
    """One job for each seed, as `jobs: seed` cuts them."""
    lost = Supervision(lost={Lanes(0): Failure("out_of_memory", "SIGKILL")})
    first, second = (of_stage("bases", seeds=(seed,)) for seed in (0, 1))
    sweep = after(WITH_BASES, {"bases": first}, budget={"steps": 40})
    sweep = sweep.changed(upstream={"bases": (first.hash, second.hash)})
    run(first, tmp_path)
    run(second, tmp_path, lost)

    def of_basis() -> pl.DataFrame:
        return read(run(sweep, tmp_path), "runs").cast({"outcome": pl.String}).filter(basis="egop")

    assert set(of_basis()["reason"]) == {"basis egop on least_squares: out_of_memory: SIGKILL"}

    marker = job_folder(tmp_path, second) / "failed.json"
    (about,) = json.loads(marker.read_text())
    marker.write_text(json.dumps([about | {"what": "basis other on least_squares"}]))
    missing = of_basis()
    assert set(missing["outcome"]) == {"interrupted"}
    folders = [job_folder(tmp_path, one) for one in (first, second)]
    assert f"delete {folders[0]} and {folders[1]} and run" in missing["reason"][0]

    run(second, tmp_path)
    assert set(of_basis()["outcome"]) <= {*FINISHED, "diverged"}, "each seed's basis is in one of the jobs"


def test_a_rule_that_raises_at_its_start_always_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def raises(*_: object) -> None:
        raise ValueError("no state")

    # The function asks for the size of the state.
    monkeypatch.setattr("curvebench.engine.programs.lanes_per_bundle", raises)
    rows = read(run(SWEEP, tmp_path), "runs")
    assert (len(rows), set(rows["outcome"]), set(rows["reason"])) == (6, {"error"}, {"ValueError: no state"})


def test_what_no_run_tunes_has_no_rows_and_is_told(tmp_path: Path):
    ended = Supervision(ended=Failure("interrupted", "SIGTERM"))
    final = after(SWEEP, {"runs": SWEEP}, rounds=(2,), settings=None, seeds=(1000,))
    run(SWEEP, tmp_path, ended)
    folder = run(final, tmp_path)
    assert read(folder, "runs").is_empty()
    ((failure,),) = read(folder, "jobs")["failures"].to_list()
    assert failure["what"] == "momentum on least_squares"
    assert failure["outcome"] == "interrupted"


def test_failures_by_their_exceptions():
    assert failure_of(Interrupted("SIGTERM")) == Failure("interrupted", "SIGTERM")
    assert failure_of(ValueError(), 3) == Failure("error", "ValueError", 3)
    assert failure_of(RuntimeError("memory of the past")).outcome == "error"
    assert not NOTHING.contains(Lanes(0, 0, 1, 0, 1))
    assert Lanes(0, 0, 2, 0, 3).contains(Lanes(0, 1, 2, 2, 3))


ALLOCATE = "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 8 bytes."


@pytest.mark.parametrize(
    "fill",
    [
        lambda: np.empty(1 << 60, np.uint8),
        lambda: torch.empty(1 << 60, dtype=torch.uint8),
        raising(
            torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has ...")
        ),
        raising(RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`")),
        raising(jax.errors.JaxRuntimeError(ALLOCATE)),
    ],
    ids=["numpy", "torch", "cuda", "cublas", "xla"],
)
def test_want_of_memory_is_told_whoever_says_so(fill: Callable[[], Any]):
    with pytest.raises((MemoryError, RuntimeError)) as raised:
        fill()
    assert failure_of(raised.value, 3).outcome == "out_of_memory"


@pytest.mark.parametrize(
    ("batch_size", "accumulation", "said"),
    [
        (128, 1, "batch_size 128 with gradient_accumulation 2 in the study would hold half"),
        (128, 4, "batch_size 128 with gradient_accumulation 8 in the study would hold half"),
        (None, 1, "all examples are one batch; a batch_size in the study would hold less"),
        (45, 1, "a smaller batch_size than 45 would hold less, and one that 2 divides with gradient"),
    ],
)
def test_want_of_memory_names_what_would_hold_half(batch_size: int | None, accumulation: int, said: str):
    training = TrainingProtocol(budget={"steps": 1}, evaluations=1, gradient_accumulation=accumulation)
    assert training.with_half_the_memory(batch_size).startswith(said)


def test_out_of_memory_names_twice_the_accumulation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    minibatches = WorkloadSpec("least_squares", {**LEAST_SQUARES.settings, "batch_size": 8})
    spec = SWEEP.changed(
        workloads=(minibatches,), settings=({"learning_rate": RATE},), gradient_accumulation=2
    )
    failing(raising(MemoryError("40 GiB")), monkeypatch)
    (reason,) = set(read(run(spec, tmp_path), "runs")["reason"])
    assert reason.startswith("MemoryError: 40 GiB; batch_size 8 with gradient_accumulation 4 in the study")


def test_an_error_that_is_told_keeps_no_arrays(tmp_path: Path):
    """The memory of a setting that failed is free for the settings after it."""

    def fill() -> None:
        held.append(weakref.ref(array := np.zeros(3)))
        raise MemoryError(len(array))

    held: list[weakref.ref[Any]] = []
    job = Job(SWEEP, tmp_path)
    try:
        fill()
    except MemoryError as error:
        job.trace(error)
    gc.collect()
    assert held[0]() is None


def test_what_is_late_is_what_was_under_way_when_it_was_killed(monkeypatch: pytest.MonkeyPatch):
    """Between the time limit and the kill, the process may continue with its next lanes."""
    late, following = Lanes(0, 0, 1, 0, 1), Lanes(0, 0, 1, 1, 2)
    with tempfile.TemporaryFile() as file:
        file.truncate(Journal.FORM.size)
        supervisor = supervision._Supervisor(["job"], 0.0, file.fileno())

        class Process:
            """Replacement of `Popen`: the first process is killed as late, the second one succeeds."""

            def __init__(self, *unused: object, **options: object) -> None:
                self.status = -signal.SIGKILL if not supervisor.lost else 0

            def poll(self) -> None:
                """Report that the process is running: `Popen.poll` returns None until it ends."""

            def kill(self) -> None:
                supervisor.journal.begin(following)

            def wait(self) -> int:
                supervisor.journal.begin(late)
                if self.status:
                    supervisor._look()
                return self.status

        monkeypatch.setattr(subprocess, "Popen", Process)
        assert supervisor.run() == 0
        since = []
        for lanes in (late, following, Lanes(1)):
            supervisor.journal.begin(lanes)
            since.append(supervisor.journal.read()[2])
        assert since[0] == since[1] < since[2], "the lanes of a cell share its time"
    assert supervisor.lost == {Lanes(0): Failure("out_of_time", "took more than 0 minutes")}


def test_a_cell_that_is_late_in_a_worker_fails_and_the_rest_is_for_a_child(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    late, commands = Lanes(0, 0, 1, 0, 1), list[str]()
    with tempfile.TemporaryFile() as file:
        file.truncate(Journal.FORM.size)
        supervisor = supervision._Supervisor(
            ["python", "-m", "curvebench", "run"], 0.0, file.fileno(), tmp_path
        )

        class Killed:
            """A worker that begins lanes and is killed, as no supervisor can wait for it."""

            found_in = classmethod(lambda cls, folder: cls())
            begin = send_signal = kill = poll = lambda *unused: None

            def wait(self) -> None:
                supervisor.journal.begin(late)
                supervisor._look()

        class Child:
            def __init__(self, command: Sequence[str], **options: object) -> None:
                commands.append(command[-1])

            poll = wait = lambda self: 0

        monkeypatch.setattr(supervision, "Worker", Killed)
        monkeypatch.setattr(subprocess, "Popen", Child)
        assert supervisor.run() == 0
    assert supervisor.lost == {Lanes(0): Failure("out_of_time", "took more than 0 minutes")}
    assert ["out_of_time" in command for command in commands] == [True]


# --- with a process of its own -------------------------------------------------------------------

CHILD = """
import os, signal, sys, time
from curvebench.stages.supervision import DONE, Lanes, supervision_of
again = '"lost": [[' in sys.argv[-1] or '"ended": [' in sys.argv[-1]
if again:
    os.kill(os.getpid(), SECOND)
supervision = supervision_of(sys.argv[-1])
if not again:
    supervision.journal.begin(LANES)
    FIRST
print(supervision.lost, supervision.ended)
"""
TERMINATED = "os.kill(os.getppid(), signal.SIGTERM); time.sleep(60)"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lanes", "first", "second", "status", "said"),
    [
        ("DONE", "os.abort()", 0, 0, ""),  # the process dies at exit, after its tables are written
        ("DONE", TERMINATED, 0, 0, ""),
        ("Lanes(0)", "os._exit(3)", 0, 0, "the process ended with status 3"),
        ("Lanes(0)", "os._exit(3)", int(signal.SIGABRT), 134, ""),
        ("Lanes(0)", "os._exit(2)", 0, 2, ""),  # bad input
        ("Lanes(0)", TERMINATED, int(signal.SIGTERM), 0, "SIGTERM: out of time"),
    ],
)
def test_how_a_process_ends(
    lanes: str, first: str, second: int, status: int, said: str, capfd: pytest.CaptureFixture[str]
):
    child = CHILD.replace("LANES", lanes).replace("FIRST", first).replace("SECOND", str(second))
    assert supervise([sys.executable, "-c", child]) == status
    out, err = capfd.readouterr()
    assert said in out
    assert bool(said) == bool(out), "what ended well is not begun again"
    assert "Traceback" not in err


FAILING = user_file("failing.py")
SAID = {
    4: ("error", "ZeroDivisionError: division by zero"),
    5: ("interrupted", "SIGKILL: the process was killed"),
    6: (
        "out_of_memory",
        "MemoryError; all examples are one batch; a batch_size in the study would hold less at a time",
    ),
    7: ("error", "SIGSEGV: the process crashed"),
    8: ("out_of_time", "took more than 0.4 minutes"),
}


# 4 GB for arrays: more than an engine needs, and less than there is
LIMITED = ("bash", "-c", 'ulimit -d 4194304 && exec "$@"', "limited")


@pytest.mark.long
@pytest.mark.parametrize("has_workers", [False, True])
def test_a_job_outlives_its_process(
    has_workers: bool, project: Path, activated: dict[str, str], tmp_path_factory: pytest.TempPathFactory
):
    """A rule that fails on every workload in another way: all are rows, and the status is 0.

    If the process that dies is a worker, the job goes on in a child.
    """
    workers = {WORKERS: str(tmp_path_factory.mktemp("workers"))} if has_workers else {}
    (project / "optimizers/failing.py").write_text(FAILING)
    spec: JobSpec = SWEEP.changed(
        optimizers=(OptimizerSpec("failing"),),
        workloads=tuple(
            WorkloadSpec(f"d{d}", {**LEAST_SQUARES.settings, "d": d}, "least_squares") for d in SAID
        ),
        settings=({"learning_rate": 0.1},),
        tuning_seeds=SWEEP.tuning_seeds[:1],
    )
    path = written(spec, project / "results")
    done = subprocess.run(
        [
            *(*LIMITED, sys.executable, "-m", "curvebench.stages.supervision", "--minutes", "0.4", "run"),
            *(str(path), "--results", str(project / "results")),
        ],
        cwd=project, env=activated | workers, text=True, capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    runs = read(job_folder(project / "results", spec), "runs").select("workload", "outcome", "reason")
    assert runs.rows() == [(f"d{d}", *said) for d, said in SAID.items()]
