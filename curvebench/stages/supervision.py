"""Supervision of a job in another process: after a crash, the rest of the job is computed in a new process.

The job notes in a journal which lanes (runs) it is computing. If the process of the job dies, the supervisor
reads the journal, and starts the job again in a new process. The supervisor passes to the new process which
lanes have failed. The new process records the failure, and computes all other lanes. A cell is a method on a
workload in one round of a job.
"""

from __future__ import annotations

import argparse
import ctypes
import itertools
import json
import mmap
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from curvebench.stages.workers import Worker, folder_of_workers

# Signals that end a process because of an error in the process, and not because another process sent a signal
CRASHES = ("SIGSEGV", "SIGABRT", "SIGBUS", "SIGFPE", "SIGILL")
# Texts that occur in messages about missing memory.
# The messages are from Python, NumPy, PyTorch, XLA, CUDA libraries and C++.
MEMORY_ERRORS = (
    "memoryerror",
    "out of memory",
    "can't allocate memory",
    "resource_exhausted",
    "status_alloc_failed",
    "bad_alloc",
)
GRACE_SECONDS = 20.0  # time for a job to end after SIGTERM; clusters often allow 30 s
# The option PR_SET_PDEATHSIG of prctl(2).
# The option makes the system send this process a signal when the parent process dies.
PARENT_DEATH = 1


class Lanes(NamedTuple):
    """Range of seeds and settings in a cell of a job. The runs (lanes) in the range are computed together.

    Indices start at 0, and the ends are exclusive. For a basis-estimation job, `cell` is the index of the
    pair of a workload and a basis, and all other fields are 0.
    """

    cell: int = -1
    first_seed: int = 0
    end_seed: int = 0
    first_setting: int = 0
    end_setting: int = 0

    def contains(self, lanes: Lanes) -> bool:
        """Return whether this range contains all lanes of another range."""
        return self.cell == lanes.cell and set(lanes.pairs) <= set(self.pairs)

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """A pair for each lane in the range: index of the seed, and index of the setting."""
        seeds, settings = (range(*bounds) for bounds in (self[1:3], self[3:]))
        return list(itertools.product(seeds, settings))

    @property
    def numbers(self) -> str:
        """The fields except `cell`, joined by hyphens, for the names of files."""
        return "-".join(map(str, self[1:]))

    def by_setting(self) -> list[Lanes]:
        """Divide the range into ranges with the same seeds and one setting each."""
        settings = range(self.first_setting, self.end_setting)
        return [self._replace(first_setting=setting, end_setting=setting + 1) for setting in settings]


NOTHING = Lanes()  # journal entry of a job that has not begun its first cell, or has no cells
DONE = Lanes(-2)  # journal entry of a job whose tables are written
FAULTS = (Exception, SystemExit)  # exceptions that rules and libraries raise, which are recorded as failures
BAD_INPUT = 2  # exit status of a command that rejects its input


class Failure(NamedTuple):
    """A failure of lanes or of another computation of a job.

    Args:
        outcome: the outcome of the failed runs, as named in `curvebench.results.outcomes`.
        reason: a sentence for tables and the log.
        step: number of steps that were taken before the failure; None if the number is unknown.
    """

    outcome: str
    reason: str
    step: int | None = None


class FailedBefore(Exception):
    """Raised instead of repeating a computation that has failed in another process or in an upstream job."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.reason)
        self.failure = failure


class Interrupted(KeyboardInterrupt):
    """Raised in a job on SIGTERM. The class is no subclass of `Exception`, which handlers of errors catch."""


def failure_of(error: BaseException, step: int | None = None) -> Failure:
    """Describe an exception as a failure.

    Args:
        error: the exception.
        step: number of steps that were taken before the exception; None if the number is unknown.
    """
    if isinstance(error, FailedBefore):
        return error.failure
    reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    if isinstance(error, Interrupted):
        return Failure("interrupted", str(error), step)
    lacks_memory = any(text in reason.lower() for text in MEMORY_ERRORS)
    return Failure("out_of_memory" if lacks_memory else "error", reason, step)


class Journal:
    """Record of the lanes that a job is computing, their last step and their start time.

    The job writes the journal, and the supervisor reads it. The journal is a memory-mapped file, which
    remains when the process of the job dies.

    Args:
        file: number of the open file; -1 for memory without a file.
    """

    FORM = struct.Struct("6qd")

    def __init__(self, file: int = -1) -> None:
        self._memory = mmap.mmap(file, self.FORM.size)

    def begin(self, lanes: Lanes) -> None:
        """Note the lanes that the job begins.

        The start time becomes the present time if the lanes are the first of their cell. For later lanes of
        the cell, the start time does not change.
        """
        last, _, since = self.read()
        self._memory[:] = self.FORM.pack(*lanes, 0, since if lanes.cell == last.cell else time.monotonic())

    def step(self, done: int, earlier: float = 0.0) -> None:
        """Note the number of steps that the present lanes have taken.

        Args:
            done: the number of steps.
            earlier: further seconds that an earlier process spent on these lanes. The start time is moved
                back by these seconds.
        """
        lanes, _, since = self.read()
        self._memory[:] = self.FORM.pack(*lanes, done, since - earlier)

    def read(self) -> tuple[Lanes, int | None, float]:
        """Return the lanes that the job is computing, their last step, and their start time.

        The last step is None if the job has noted no step. The start time is the time at which the job began
        the cell of the lanes, in seconds on the monotonic clock.
        """
        *lanes, step, since = self.FORM.unpack(self._memory)
        return Lanes(*lanes), step or None, since


@dataclass
class Supervision:
    """Information that the process of a job receives from its supervisor.

    Args:
        journal: journal in which the job notes its progress.
        lost: lanes during whose computation an earlier process of the job died, each with the failure that
            the job records for the lanes.
        ended: failure that the job records for all computations that are not done yet, because the job must
            end; None while the job continues.
        not_retried: a mapping from names of failed computations to the failures that the job recorded when
            Snakemake was last called. The job records these failures again, and does not repeat the
            computations (`keep_failed`). Empty if the job repeats the failed computations.
        since: time at which the process received the job, on the monotonic clock, if several jobs share the
            process (a worker); None if the process has only this job.
    """

    journal: Journal = field(default_factory=Journal)
    lost: Mapping[Lanes, Failure] = field(default_factory=dict)
    ended: Failure | None = None
    not_retried: Mapping[str, Failure] = field(default_factory=dict)
    since: float | None = None

    def failure_to_record(self, name: str) -> Failure | None:
        """Return the failure that the job records instead of doing a computation; None to do the computation.

        Args:
            name: name of the computation.
        """
        return self.not_retried.get(name, self.ended)


def supervision_of(text: str) -> Supervision:
    """Read the information from the supervisor, in the process of the job.

    If this process is a child of the supervisor, also let the system kill this process when the supervisor
    dies.

    Args:
        text: value of the option `--supervision`.
    """
    fields = json.loads(text)
    since = fields.get("since")
    if since is None and sys.platform == "linux":
        ctypes.CDLL(None).prctl(PARENT_DEATH, signal.SIGKILL)
    lost = {Lanes(*lanes): Failure(*failure) for lanes, failure in fields["lost"]}
    ended = Failure(*fields["ended"]) if fields["ended"] else lost.get(NOTHING)
    return Supervision(Journal(fields["journal"]), lost, ended, since=since)


def supervise(command: Sequence[str], minutes: float | None = None, workers: Path | None = None) -> int:
    """Run a job's command in another process. If the process dies, run the rest of the job in a new process.

    Args:
        command: the command, which accepts `--supervision TEXT` (`supervision_of`).
        minutes: time limit for all lanes of a cell; None for no limit.
        workers: folder of the worker processes (`curvebench.stages.workers`), one of which runs the command;
            None to run the command in a child process.

    Returns:
        The exit status.
    """
    with tempfile.TemporaryFile() as file:
        file.truncate(Journal.FORM.size)
        return _Supervisor(command, minutes, file.fileno(), workers).run()


class _Supervisor:
    def __init__(
        self, command: Sequence[str], minutes: float | None, file: int, workers: Path | None = None
    ) -> None:
        self.command, self.minutes, self.file, self.workers = command, minutes, file, workers
        self.journal = Journal(file)
        self.child: subprocess.Popen[bytes] | Worker | None = None
        self.lost: dict[Lanes, Failure] = {}
        self.ended: Failure | None = None
        self.ends_at = float("inf")
        # The cell that exceeded its time limit, and the last step before the limit.
        # All lanes of this cell have failed.
        self.late: tuple[Lanes, int | None] | None = None

    def run(self) -> int:
        signal.signal(signal.SIGTERM, self._terminate)
        signal.signal(signal.SIGALRM, self._look)
        signal.setitimer(signal.ITIMER_REAL, 1.0, 1.0)
        try:
            return self._run()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def _run(self) -> int:
        while True:
            self.journal.begin(NOTHING)
            kills, ending, self.late = _memory_kills(), self.ended is not None, None
            # The child process inherits that SIGTERM is ignored, and can therefore write its tables.
            if ending:
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
            self.child = self._started(ending)
            try:
                status = self.child.wait()
            # Ctrl-C reaches a child process directly, so it is enough to wait for the end of the process.
            # A worker needs no signal, since it ends when the connection to its supervisor is closed.
            except KeyboardInterrupt:
                self.child.wait()
                return 128 + signal.SIGINT
            if status in (0, BAD_INPUT):
                return status
            self.workers = None
            lanes, step = self._under_way()
            if status is None:  # the worker died for an unknown reason; run the job again in a child process
                if lanes != DONE and self.ended is None and self.late is None:
                    continue
                status = -signal.SIGKILL
            if lanes == DONE:  # the process of the job died after it had written all tables
                return 0
            if ending or lanes in self.lost:  # the process died although it had nothing to compute
                return status if status > 0 else 128 - status
            if self.ended is None:
                self.lost[lanes] = self._failure(status, step, kills)

    def _started(self, ending: bool) -> subprocess.Popen[bytes] | Worker:
        """Start the job in a worker or in a child process, and return the worker or the process.

        Args:
            ending: whether the job only writes tables, because it must end. Then it runs in a child process.
        """
        supervision = {"journal": self.file, "lost": [*self.lost.items()], "ended": self.ended}
        if self.workers is not None and not ending:
            worker = Worker.found_in(self.workers)
            # Leave out the first three words of the command, `python -m curvebench`.
            worker.begin(self.command[3:], supervision)
            return worker
        command = [*self.command, "--supervision", json.dumps(supervision)]
        return subprocess.Popen(command, pass_fds=[self.file])

    def _under_way(self) -> tuple[Lanes, int | None]:
        """Return the lanes that a dead process was computing, and the last step of the lanes.

        Both are read from the journal. If the process was killed because a cell exceeded its time limit,
        return the whole cell instead, and its last step before the limit.
        """
        lanes, step, _ = self.journal.read()
        return (lanes, step) if self.late is None or lanes == DONE else self.late

    def _failure(self, status: int, step: int | None, kills: int) -> Failure:
        if self.late:
            return Failure("out_of_time", f"took more than {self.minutes:.3g} minutes", step)
        if status > 0:
            return Failure("error", f"the process ended with status {status}", step)
        name = signal.Signals(-status).name
        if name == "SIGKILL" and _memory_kills() > kills:
            return Failure("out_of_memory", "SIGKILL by the system, which was out of memory", step)
        if name in CRASHES:
            return Failure("error", f"{name}: the process crashed", step)
        return Failure("interrupted", f"{name}: the process was killed", step)

    def _terminate(self, *unused: object) -> None:
        """Handle SIGTERM: send SIGTERM to the job, which then writes the tables of its finished lanes.

        If the job takes longer than `GRACE_SECONDS`, `_look` kills the job.
        """
        self.ended = Failure("interrupted", "SIGTERM: out of time, cancelled or preempted")
        self.ends_at = time.monotonic() + GRACE_SECONDS
        if self.child is not None:
            self.child.send_signal(signal.SIGTERM)

    def _look(self, *unused: object) -> None:
        """Kill the job if a cell exceeds its time limit, or if the job does not end after SIGTERM."""
        if self.child is None or self.child.poll() is not None:
            return
        lanes, step, since = self.journal.read()
        now = time.monotonic()
        limit = float("inf") if self.minutes is None or lanes in (NOTHING, DONE) else 60 * self.minutes
        late = now - since > limit
        if late or now > self.ends_at:
            # Store the cell before the job is killed, since the job may begin another cell before it dies.
            self.late = (Lanes(lanes.cell), step) if late else None
            self.ends_at = float("inf")
            self.child.kill()


def _memory_kills() -> int:
    """Return how many processes the system has killed for lack of memory since its start; 0 if unknown."""
    try:
        lines = Path("/proc/vmstat").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `curvebench run SPEC ...` in another process, and supervise it."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument(
        "--minutes", type=float, metavar="NUMBER", help="the most that the runs of a cell may take"
    )
    parser.add_argument("--threads", default="1", help="processor threads of the job (default: %(default)s)")
    options, job = parser.parse_known_args(arguments)
    command = [sys.executable, "-m", "curvebench", *job, "--threads", options.threads]
    return supervise(command, options.minutes, folder_of_workers(Path(job[1]), options.threads))


if __name__ == "__main__":
    sys.exit(main())
