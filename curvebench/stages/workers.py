"""Worker processes, which compute several jobs one after another, so that libraries are imported only once.

A job is started by a supervisor process (`curvebench.stages.supervision`). Importing libraries and reading
sources takes about two seconds of processor time. In many jobs, all steps together take no longer. A worker
that has finished a job therefore waits some seconds for another supervisor, and then ends. Not every job is
given to a worker (`is_for_workers`): a run of hours gains nothing, a GPU can be used by one process only, and
a user's code may change the state of libraries. Timing jobs have workers of their own.

A worker outlives its first supervisor and is no child process of a supervisor, so that no supervisor gets the
exit status of a worker. If a worker dies during a job, the supervisor runs the job again in a child process,
whose exit status shows the cause.
"""

from __future__ import annotations

import gc
import hashlib
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any

from curvebench.paths import WORKERS

IDLE_SECONDS = 10.0  # time for which a worker waits for a job; Snakemake starts the next job within 1 or 2 s
# The spec of a job names the files that decide its result.
# A name without one of these prefixes is the name of a Python file of a user.
OWN_CODE = ("curvebench/", "data:")


def folder_of_workers(spec: Path, threads: str) -> Path | None:
    """Return the folder of the workers of this Snakemake run; None if no worker may compute the job.

    Args:
        spec: the job's spec file.
        threads: number of CPU threads of the job. All jobs of a worker have the same number of threads.
    """
    folder = Path(os.environ.get(WORKERS) or os.devnull)
    if not folder.is_dir():
        return None
    # Machines and Slurm jobs cannot share workers, but may share a folder for temporary files.
    # Therefore the name of the folder of workers contains a hash of machine and Slurm job.
    # The hash is short, since the path of a socket has at most 103 bytes on some systems.
    place = f"{socket.gethostname()} {os.environ.get('SLURM_JOB_ID')}"
    try:
        content = json.loads(spec.read_text())
        if not is_for_workers(content):
            return None
        kind = "timing-" if content["stage"] == "timing" else ""
        folder /= f"{kind}{threads}-{hashlib.sha256(place.encode()).hexdigest()[:4]}"
        folder.mkdir(exist_ok=True)
    # If there is no folder, the supervisor starts a child process, which reports errors in the spec.
    except (OSError, ValueError, LookupError):
        return None
    return folder


def is_for_workers(spec: Mapping[str, Any]) -> bool:
    """Return whether a worker may compute a job.

    Args:
        spec: the content of the job's spec file.
    """
    short_on_cpu = spec["device"] == "cpu" and not spec.get("single_run")
    return short_on_cpu and all(source.startswith(OWN_CODE) for source in spec["sources"])


class Worker:
    """Connection of a supervisor to a worker that computes one job.

    The class has the methods of `subprocess.Popen` that a supervisor uses.

    Args:
        connection: connected socket, whose other end the worker has.
        pid: process id of the worker.
    """

    def __init__(self, connection: socket.socket, pid: int) -> None:
        self.connection, self.pid = connection, pid

    @classmethod
    def found_in(cls, folder: Path) -> Worker:
        """Return a connection to a worker that has no job. If there is no such worker, start a worker.

        Args:
            folder: folder with the sockets of workers that have no job.
        """
        for path in folder.glob("*.idle"):
            claimed = path.with_suffix(".taken")
            with suppress(OSError):
                path.rename(claimed)  # if several supervisors rename the socket, only one of them succeeds
                connection = socket.socket(socket.AF_UNIX)
                connection.connect(str(claimed))
                return cls(connection, int(path.stem))
        connection, of_worker = socket.socketpair()
        with of_worker:
            of_worker.set_inheritable(True)
            command = [
                sys.executable,
                "-m",
                "curvebench.commands.worker",
                str(of_worker.fileno()),
                str(folder),
            ]
            no_files = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in range(3)]
            pid = os.posix_spawn(sys.executable, command, os.environ, file_actions=no_files)
        return cls(connection, pid)

    def begin(self, arguments: Sequence[str], supervision: Mapping[str, Any]) -> None:
        """Let the worker run `curvebench ARGUMENTS`, with the standard output and error of this process.

        Args:
            arguments: arguments of the command.
            supervision: information for the job, in JSON types. The value of the key `journal` is the number
                of an open file. The file is passed to the worker.
        """
        text = json.dumps({"arguments": arguments, "supervision": supervision}) + "\n"
        with suppress(OSError):  # If the worker has died, `wait` reports it.
            socket.send_fds(self.connection, [text.encode()], [supervision["journal"], 1, 2])

    def wait(self) -> int | None:
        """Wait for the end of the job's command, and return the exit status of the command.

        Return None if the worker has died before the end of the command.
        """
        with self.connection:
            try:
                status = self.connection.recv(1)
            except OSError:
                status = b""
        return status[0] if status else None

    def poll(self) -> int | None:
        """Return None while the connection to the worker is open, and 0 after it was closed.

        The worker accepts no other job before the supervisor closes the connection.
        """
        return None if self.connection.fileno() >= 0 else 0

    def send_signal(self, number: int) -> None:
        """Send a signal to the worker, unless the connection was closed after the end of the job.

        After the connection was closed, the worker may compute a job of another supervisor.
        """
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill the worker."""
        self.send_signal(signal.SIGKILL)


# --- in the process of a worker -------------------------------------------------------------------


def work(connection: socket.socket, folder: Path, main: Callable[[list[str]], int]) -> None:
    """Compute a job for the supervisor at the other end of a connection, then jobs of other supervisors.

    An exception ends the worker.

    Args:
        connection: connection to the first supervisor.
        folder: folder with the sockets of workers that have no job.
        main: function that runs a command of `curvebench` and returns its exit status.
    """
    from curvebench.timing.clocks import process_seconds

    seconds_before = process_seconds()  # the time to start this process counts as time of its first job
    started = time.time() - seconds_before
    following: socket.socket | None = connection
    while following is not None and not _has_old_sources(started):
        _compute(following, main, seconds_before)
        seconds_before = 0.0
        following = _next_supervisor(folder) if _memory_bytes() < _memory_limit_bytes() else None


def _has_old_sources(started: float) -> bool:
    """Return whether a module that this process has imported from this project was edited since the start.

    In that case the worker ends, and the supervisor runs the job in a child process, which imports all
    modules again. The check of a job's sources, `sources.check_unchanged`, is not enough, because it compares
    only files: it would not find that a worker has imported an edited module if the edit was undone
    afterwards.

    Args:
        started: time at which the worker started.
    """
    modules = [module for name, module in sys.modules.items() if name.partition(".")[0] == "curvebench"]
    files = [Path(name) for module in modules if (name := getattr(module, "__file__", None)) is not None]
    return any(not file.exists() or file.stat().st_mtime > started for file in files)


def _compute(connection: socket.socket, main: Callable[[list[str]], int], seconds_before: float) -> None:
    """Compute one job, and send the exit status of the job to its supervisor.

    Args:
        connection: connection to the supervisor, which sends the command of the job.
        main: function that runs a command of `curvebench` and returns its exit status.
        seconds_before: seconds that are added to the time of the job.
    """
    text, files, _, _ = socket.recv_fds(connection, 1 << 16, 3)
    while not text.endswith(b"\n"):
        more = connection.recv(1 << 16)
        if not more:
            return
        text += more
    journal, output, errors = files
    for file, number in ((output, 1), (errors, 2)):
        os.dup2(file, number)
        os.close(file)
    done = Event()
    leash = Thread(target=_end_with_supervisor, args=(connection, done), daemon=True)
    leash.start()
    job = json.loads(text)
    supervision = {**job["supervision"], "journal": journal, "since": time.monotonic() - seconds_before}
    status = main([*job["arguments"], "--supervision", json.dumps(supervision)])
    sys.stdout.flush()
    sys.stderr.flush()
    os.close(journal)
    # Close the output of the job, so that a process that reads the output finds the end.
    with Path(os.devnull).open("wb") as nothing:
        for number in (1, 2):
            os.dup2(nothing.fileno(), number)
    gc.collect()
    done.set()
    with suppress(OSError):
        connection.send(bytes([status]))
    leash.join()
    connection.close()


def _end_with_supervisor(connection: socket.socket, done: Event) -> None:
    """Wait until the supervisor closes the connection. Then kill this process if the job is not done."""
    with suppress(OSError):
        connection.recv(1)
    if not done.is_set():
        os.kill(os.getpid(), signal.SIGKILL)


def _next_supervisor(folder: Path) -> socket.socket | None:
    """Wait IDLE_SECONDS for a supervisor, and return the connection to it; None if no supervisor connects.

    Supervisors find a waiting worker by the name of its socket in `folder`.
    """
    path = folder / f"{os.getpid()}.idle"
    with socket.socket(socket.AF_UNIX) as listening:
        try:
            listening.bind(str(path))
        except OSError:  # Snakemake has ended, and has removed its folder
            return None
        listening.listen(1)
        listening.settimeout(1.0)
        ends_at, claimed = time.monotonic() + IDLE_SECONDS, False
        while True:
            with suppress(TimeoutError):
                return listening.accept()[0]
            if time.monotonic() > ends_at or not folder.exists():
                try:
                    path.unlink()
                    return None
                except FileNotFoundError:  # a supervisor has claimed the worker, and is about to connect
                    if claimed or not folder.exists():  # the supervisor died before it could connect
                        return None
                    claimed, ends_at = True, time.monotonic() + IDLE_SECONDS


def _memory_bytes() -> int:
    import psutil

    return int(psutil.Process().memory_info().rss)


def _memory_limit_bytes() -> int:
    """Return the memory limit of a worker in bytes. A worker that uses more memory accepts no further job.

    The limit is the memory that Snakemake reserves for a job without the job's bundle.
    """
    from curvebench.planning.snakemake_inputs import PROCESS_MB

    return PROCESS_MB << 20
