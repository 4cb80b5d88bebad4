"""A job in a process of its own: where that dies, what was under way has failed, and the rest goes on."""

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

CRASHES = ("SIGSEGV", "SIGABRT", "SIGBUS", "SIGFPE", "SIGILL")  # the process' own doing
# Python's, NumPy's, torch's on GPU and host, XLA's, those of CUDA's libraries, C++'s
MEMORY_ERRORS = (
    "memoryerror",
    "out of memory",
    "can't allocate memory",
    "resource_exhausted",
    "status_alloc_failed",
    "bad_alloc",
)
GRACE = 20.0  # seconds that a job has to end after a SIGTERM; clusters often give 30
PARENT_DEATH = 1  # PR_SET_PDEATHSIG of prctl(2)


class Lanes(NamedTuple):
    """What may fail alone: seeds and settings of a job's cell (or a basis), by their numbers from 0."""

    cell: int = -1
    first_seed: int = 0
    end_seed: int = 0
    first_setting: int = 0
    end_setting: int = 0

    def contains(self, other: Lanes) -> bool:
        """Whether another range lies in this one."""
        return self.cell == other.cell and set(other.pairs) <= set(self.pairs)

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """The seed and the setting of each lane, by number."""
        seeds, settings = (range(*bounds) for bounds in (self[1:3], self[3:]))
        return list(itertools.product(seeds, settings))

    @property
    def numbers(self) -> str:
        """The range in a cell, as names of files have it."""
        return "-".join(map(str, self[1:]))

    def by_setting(self) -> list[Lanes]:
        """The same seeds, setting by setting."""
        settings = range(self.first_setting, self.end_setting)
        return [self._replace(first_setting=one, end_setting=one + 1) for one in settings]


NOTHING = Lanes()  # a job that has not come to its first cell, or that has none
DONE = Lanes(-2)  # a job whose tables are written
FAULTS = (Exception, SystemExit)  # what a rule or a library may raise
BAD_INPUT = 2  # the status of a command that refuses what it was given


class Failure(NamedTuple):
    """How something failed: an outcome (curvebench.results.outcomes), why, and after which step where that
    is known.
    """

    outcome: str
    reason: str
    step: int | None = None


class FailedBefore(Exception):
    """What is needed here has failed in another job."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.reason)
        self.failure = failure


class Interrupted(KeyboardInterrupt):
    """The system asks the job to end; no `except Exception` on the way holds it up."""


def failure_of(error: BaseException, step: int | None = None) -> Failure:
    """The failure that an exception is."""
    if isinstance(error, FailedBefore):
        return error.failure
    said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    if isinstance(error, Interrupted):
        return Failure("interrupted", str(error), step)
    memory = any(word in said.lower() for word in MEMORY_ERRORS)
    return Failure("out_of_memory" if memory else "error", said, step)


class Journal:
    """What a job has under way, in memory that outlives its process: lanes, step, and since when."""

    FORM = struct.Struct("6qd")

    def __init__(self, file: int = -1) -> None:
        self._memory = mmap.mmap(file, self.FORM.size)

    def begin(self, lanes: Lanes) -> None:
        """Note what is begun; lanes of one cell share its time."""
        before, _, since = self.read()
        self._memory[:] = self.FORM.pack(*lanes, 0, since if lanes.cell == before.cell else time.monotonic())

    def step(self, done: int, earlier: float = 0.0) -> None:
        """Note how many steps are done, and seconds that they took in a process before this one."""
        lanes, _, since = self.read()
        self._memory[:] = self.FORM.pack(*lanes, done, since - earlier)

    def read(self) -> tuple[Lanes, int | None, float]:
        """The lanes, the last step that is known, and when they were begun, on the monotonic clock."""
        *lanes, step, since = self.FORM.unpack(self._memory)
        return Lanes(*lanes), step or None, since


@dataclass
class Attendance:
    """What a job's process shares with the one that attends it.

    Args:
        lost: what took earlier processes of the job with it.
        ended: why nothing more is to be computed; None while the job goes on.
        kept: how things failed before, by their names, where nothing is tried again.
        since: when a worker received the job, on the monotonic clock; None: the process has this job alone.
    """

    journal: Journal = field(default_factory=Journal)
    lost: Mapping[Lanes, Failure] = field(default_factory=dict)
    ended: Failure | None = None
    kept: Mapping[str, Failure] = field(default_factory=dict)
    since: float | None = None

    def not_tried(self, what: str) -> Failure | None:
        """Why something is not to be computed: None where it is."""
        return self.kept.get(what, self.ended)


def attended(text: str) -> Attendance:
    """Return what the supervisor hands on, read in the job's process; a child dies with its supervisor."""
    handed_on = json.loads(text)
    since = handed_on.get("since")
    if since is None and sys.platform == "linux":
        ctypes.CDLL(None).prctl(PARENT_DEATH, signal.SIGKILL)
    lost = {Lanes(*lanes): Failure(*failure) for lanes, failure in handed_on["lost"]}
    ended = Failure(*handed_on["ended"]) if handed_on["ended"] else lost.get(NOTHING)
    return Attendance(Journal(handed_on["journal"]), lost, ended, since=since)


def supervise(command: Sequence[str], minutes: float | None = None, workers: Path | None = None) -> int:
    """Run a job's command in another process, and again for the rest of the job where that dies.

    Args:
        command: takes `--attended TEXT` (`attended`).
        minutes: the most that all lanes of a cell may take; None for no limit.
        workers: the folder of workers, one of which runs the command if it can; None: a child runs it.

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
        self.late: tuple[Lanes, int | None] | None = None  # the cell, all of which has failed then

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
            if ending:  # which the child inherits: it is to write what there is, however often it is told to
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
            self.child = self._started(ending)
            try:
                status = self.child.wait()
            except KeyboardInterrupt:  # the terminal sends it to a child too; a worker dies with this process
                if not isinstance(self.child, Worker):
                    self.child.wait()
                return 128 + signal.SIGINT
            if status in (0, BAD_INPUT):
                return status
            self.workers = None
            lanes, step = self._under_way()
            if status is None:  # nobody knows why the worker died
                if lanes != DONE and self.ended is None and self.late is None:
                    continue
                status = -signal.SIGKILL
            if lanes == DONE:  # it died at exit
                return 0
            if ending or lanes in self.lost:  # it died again where nothing is computed
                return status if status > 0 else 128 - status
            if self.ended is None:
                self.lost[lanes] = self._failure(status, step, kills)

    def _started(self, ending: bool) -> subprocess.Popen[bytes] | Worker:
        """Start the job in a worker or in a child process."""
        attendance = {"journal": self.file, "lost": [*self.lost.items()], "ended": self.ended}
        if self.workers is not None and not ending:
            worker = Worker.found_in(self.workers)
            worker.begin(self.command[3:], attendance)  # without `python -m curvebench`
            return worker
        command = [*self.command, "--attended", json.dumps(attendance)]
        return subprocess.Popen(command, pass_fds=[self.file])

    def _under_way(self) -> tuple[Lanes, int | None]:
        """What a process that died was at: what it was killed for, else what it noted last."""
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
        """Have the job write what it has, and hurry it on."""
        self.ended = Failure("interrupted", "SIGTERM: out of time, cancelled or preempted")
        self.ends_at = time.monotonic() + GRACE
        if self.child is not None:
            self.child.send_signal(signal.SIGTERM)

    def _look(self, *unused: object) -> None:
        """Kill what takes too long."""
        if self.child is None or self.child.poll() is not None:
            return
        lanes, step, since = self.journal.read()
        now = time.monotonic()
        limit = float("inf") if self.minutes is None or lanes in (NOTHING, DONE) else 60 * self.minutes
        late = now - since > limit
        if late or now > self.ends_at:
            self.late = (Lanes(lanes.cell), step) if late else None  # its process may go on before it dies
            self.ends_at = float("inf")
            self.child.kill()


def _memory_kills() -> int:
    """How many processes the system has killed for want of memory; 0 where it does not say."""
    try:
        lines = Path("/proc/vmstat").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)


def main(arguments: Sequence[str] | None = None) -> int:
    """`python -m curvebench.stages.supervision run SPEC ...`: `curvebench run SPEC ...`, attended."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument(
        "--minutes", type=float, metavar="NUMBER", help="the most that the runs of a cell may take"
    )
    parser.add_argument("--threads", default="1", help="processor threads of the job (default: %(default)s)")
    given, rest = parser.parse_known_args(arguments)
    command = [sys.executable, "-m", "curvebench", *rest, "--threads", given.threads]
    return supervise(command, given.minutes, folder_of_workers(Path(rest[1]), given.threads))


if __name__ == "__main__":
    sys.exit(main())
