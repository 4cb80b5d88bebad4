"""A worker computes jobs of several supervisors, ends with the one it works for, and with Snakemake's run."""

from __future__ import annotations

import errno
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from shutil import rmtree
from threading import Thread
from types import ModuleType
from typing import Any

import psutil
import pytest

from curvebench.paths import WORKERS
from curvebench.results.reading import read
from curvebench.spec.job import job_folder
from curvebench.stages import jobs, workers
from curvebench.stages.supervision import Failure, Journal, Lanes, Supervision, supervise
from curvebench.stages.workers import Worker, folder_of_workers, is_for_workers
from tests.curvebench.stages.test_jobs import SWEEP, of_stage, run, written

SHORT = SWEEP.changed(
    backend="torch", bases=SWEEP.bases[:1], budget={"steps": 8}, settings=({"learning_rate": 0.01},)
)
LONG = SHORT.changed(budget={"steps": 10_000}, evaluations=10_000)


@pytest.fixture
def folder() -> Iterator[Path]:
    """Yield a folder for workers, which end when it is removed. Sockets require its short path."""
    path = Path(tempfile.mkdtemp())
    yield path
    rmtree(path, ignore_errors=True)


@pytest.fixture
def supervision(tmp_path: Path) -> Iterator[dict[str, Any]]:
    with (tmp_path / "journal").open("w+b") as file:
        file.truncate(Journal.FORM.size)
        yield {"journal": file.fileno(), "lost": [], "ended": None}


def waited_for(condition: Callable[[], object]) -> bool:
    """Return whether a condition holds within a minute."""
    ends_at = time.monotonic() + 60
    while not condition() and time.monotonic() < ends_at:
        time.sleep(0.05)
    return bool(condition())


def has_ended(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, True),
        ({"single_run": True}, False),
        ({"device": "gpu"}, False),
        ({"sources": {"curvebench/optimizers/adam.py": "", "data:digits.csv.gz": ""}}, True),
        ({"sources": {"curvebench/optimizers/adam.py": "", "mine.py": ""}}, False),
    ],
)
def test_which_jobs_are_for_workers(changes: dict[str, Any], expected: bool):
    assert is_for_workers({**SHORT.model_dump(), **changes}) == expected


def test_a_run_of_snakemake_has_a_folder_of_workers_for_each_number_of_threads(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    spec = written(SHORT, tmp_path)
    monkeypatch.setenv(WORKERS, str(folder))
    made = folder_of_workers(spec, "2")
    assert made is not None
    assert (made.parent, made.name[:-4]) == (folder, "2-")
    timing = folder_of_workers(written(of_stage("timing"), tmp_path), "2")
    assert timing == folder / f"timing-{made.name}"
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert folder_of_workers(spec, "2") != made, "a worker ends with the Slurm job that started it"
    assert folder_of_workers(written(SHORT.changed(device="gpu"), tmp_path), "2") is None
    assert folder_of_workers(tmp_path / "lost.json", "1") is None
    monkeypatch.setenv(WORKERS, str(folder / "gone"))  # the folder is missing on another machine of a cluster
    assert folder_of_workers(spec, "1") is None
    monkeypatch.setenv(WORKERS, "")
    assert folder_of_workers(spec, "1") is None
    monkeypatch.delenv(WORKERS)
    assert folder_of_workers(spec, "1") is None


def test_without_room_for_the_folder_of_workers_the_job_is_a_child(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    def full(*unused: object, **options: object) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    spec = written(SHORT, tmp_path)
    monkeypatch.setenv(WORKERS, str(folder))
    monkeypatch.setattr(Path, "mkdir", full)
    assert folder_of_workers(spec, "1") is None


def test_a_worker_gets_no_signal_for_a_job_that_has_ended():
    """The worker may have a job of another supervisor then, which the signal would interrupt."""
    for has_ended, expected in ((True, None), (False, -signal.SIGTERM)):
        ours, of_worker = socket.socketpair()
        with subprocess.Popen(["sleep", "60"]) as process, of_worker:
            worker = Worker(ours, process.pid)
            assert worker.poll() is None
            if has_ended:
                of_worker.send(bytes([3]))
                assert worker.wait() == 3
                assert worker.poll() is not None
            worker.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.5 if has_ended else 60)
            assert process.poll() == expected
            process.kill()
            ours.close()


def test_a_worker_that_died_before_it_read_its_job_has_no_status():
    ours, of_worker = socket.socketpair()
    ours.send(b"a job")
    of_worker.close()  # closing it with unread data resets the connection
    assert Worker(ours, os.getpid()).wait() is None


@pytest.mark.slow
def test_the_output_of_a_job_ends_before_its_worker(tmp_path: Path, folder: Path):
    """Otherwise `tee`, which writes the log, would wait until the worker ends."""
    spec = written(SHORT, tmp_path)
    command = [*(sys.executable, "-m", "curvebench.stages.supervision", "run"), spec, "--results", tmp_path]
    environment = os.environ | {WORKERS: str(folder)}
    done = subprocess.run(command, env=environment, text=True, capture_output=True, check=True)
    assert str(job_folder(tmp_path, SHORT)) in done.stdout
    assert waited_for(lambda: list(folder.glob("*/*.idle")))
    (idle,) = folder.glob("*/*.idle")
    time.sleep(0.2)
    assert not has_ended(int(idle.stem)), "it outlives its first supervisor"


def test_a_worker_with_an_edited_module_takes_no_job(folder: Path, monkeypatch: pytest.MonkeyPatch):
    assert not workers._has_old_sources(time.time())
    monkeypatch.setattr(workers, "_has_old_sources", lambda started: True)
    monkeypatch.setattr(workers, "_compute", lambda connection, main: pytest.fail("it computes"))
    with socket.socket() as connection:
        workers.work(connection, folder, lambda words: 0)


def test_a_worker_with_much_memory_takes_no_further_job(folder: Path, monkeypatch: pytest.MonkeyPatch):
    computed = []
    monkeypatch.setattr(workers, "_compute", lambda connection, *unused: computed.append(connection))
    monkeypatch.setattr(workers, "_next_supervisor", lambda folder: None if len(computed) > 1 else object())
    for memory, expected in ((0, 2), (1 << 40, 1)):
        monkeypatch.setattr(workers, "_memory_bytes", lambda memory=memory: memory)
        computed.clear()
        with socket.socket() as connection:
            workers.work(connection, folder, lambda words: 0)
        assert len(computed) == expected


def test_a_module_that_was_edited_or_removed_is_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    edited, started = ModuleType("curvebench.edited"), time.time()
    edited.__file__ = str(tmp_path / "edited.py")
    monkeypatch.setitem(sys.modules, edited.__name__, edited)
    assert workers._has_old_sources(started), "it is removed"
    Path(edited.__file__).touch()
    os.utime(edited.__file__, (started + 1, started + 1))
    assert workers._has_old_sources(started)
    os.utime(edited.__file__, (started - 1, started - 1))
    assert not workers._has_old_sources(started)


def test_a_worker_ends_if_the_supervisor_that_claimed_it_never_comes(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(workers, "IDLE_SECONDS", 0.0)
    idle = folder / f"{os.getpid()}.idle"
    claim = Thread(target=lambda: waited_for(idle.exists) and idle.rename(folder / "claimed"))
    claim.start()
    assert workers._next_supervisor(folder) is None
    claim.join()
    assert (folder / "claimed").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="the peak is reset on Linux only")
def test_the_peak_of_memory_is_of_one_job(tmp_path: Path):
    memory = bytearray(1 << 30)
    before = jobs._peak_memory_bytes()
    del memory
    done = run(SHORT, tmp_path, Supervision(since=time.monotonic()))
    assert read(done, "jobs")["peak_memory_bytes"][0] < before - (1 << 29)


@pytest.mark.slow
def test_a_worker_computes_jobs_one_after_another_with_the_output_of_each(
    tmp_path: Path, folder: Path, supervision: dict[str, Any], capfd: pytest.CaptureFixture[str]
):
    pids, files = [], []
    for steps in (8, 12):
        spec = SHORT.changed(budget={"steps": steps})
        worker = Worker.found_in(folder)
        worker.begin(["run", str(written(spec, tmp_path)), "--results", str(tmp_path)], supervision)
        assert worker.wait() == 0
        pids.append(worker.pid)
        done = job_folder(tmp_path, spec)
        assert str(done) in capfd.readouterr().out
        assert read(done, "runs")["steps"].unique().to_list() == [steps]
        (job,) = read(done, "jobs").iter_rows(named=True)
        assert 0 < job["total_seconds"] < 60
        assert waited_for(lambda: list(folder.glob("*.idle")))
        files.append(len(psutil.Process(worker.pid).open_files()))
    assert pids[0] == pids[1]
    assert files[0] == files[1], "it has closed the files of the first job"
    worker = Worker.found_in(folder)
    # more than one call of recv returns
    lost = [[Lanes(number), Failure("error", 100 * "x")] for number in range(1000)]
    worker.begin(["run", str(tmp_path / "lost.json")], {**supervision, "lost": lost})
    select.select([worker.connection], [], [])
    time.sleep(0.2)
    assert not list(folder.glob("*.idle")), "it takes no other job before its supervisor knows the status"
    assert worker.wait() == 2, "bad input"
    assert "lost.json" in capfd.readouterr().err
    rmtree(folder)
    assert waited_for(lambda: has_ended(pids[0])), "Snakemake has ended"


@pytest.mark.slow
def test_a_worker_ends_with_its_supervisor(tmp_path: Path, folder: Path, supervision: dict[str, Any]):
    worker = Worker.found_in(folder)
    worker.begin(["run", str(written(LONG, tmp_path)), "--results", str(tmp_path)], supervision)
    journal = Journal(supervision["journal"])
    assert waited_for(lambda: journal.read()[0].cell == 0), "it has begun"
    worker.connection.close()
    assert waited_for(lambda: has_ended(worker.pid))


@pytest.mark.slow
def test_a_child_computes_a_dead_workers_job(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch):
    class Dying(Worker):
        def begin(self, *unused: object) -> None:
            self.kill()

    monkeypatch.setattr("curvebench.stages.supervision.Worker", Dying)
    spec = written(SHORT, tmp_path)
    command = [*(sys.executable, "-m", "curvebench", "run"), str(spec), "--results", str(tmp_path)]
    assert supervise(command, workers=folder) == 0
    assert read(job_folder(tmp_path, SHORT), "jobs")["failures"].to_list() == [[]]


def test_a_worker_that_nobody_takes_ends(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(workers, "IDLE_SECONDS", 0.0)
    assert workers._next_supervisor(folder) is None
    assert not list(folder.iterdir())
    # A file in the place of the socket, so that the worker cannot offer itself.
    (folder / f"{os.getpid()}.idle").touch()
    assert workers._next_supervisor(folder) is None
