"""Start and stop a Slurm cluster of one node: munged, slurmctld and slurmd, with all files in one folder."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

TEMPLATE = Path(__file__).with_name("slurm.conf")
DAEMONS = ("munged", "slurmctld", "slurmd")
# Debian's folder of daemons, which is not on every user's PATH.
SYSTEM = "/usr/sbin:/sbin"
START_SECONDS = 30.0


class SlurmError(Exception):
    """Raised if Slurm is not installed or does not start."""


@dataclass(frozen=True)
class Cluster:
    """Running Slurm cluster, with the environment variables that its commands need."""

    variables: dict[str, str]

    def ask(self, *command: str) -> str:
        """Run a Slurm command, and return its output."""
        completed = subprocess.run(
            command, env=self.variables, text=True, capture_output=True, check=True, timeout=60
        )
        return completed.stdout

    def jobs(self) -> list[tuple[str, str, str]]:
        """Return number, state and comment (rule and wildcards) of every job, including finished ones."""
        lines = self.ask("squeue", "--noheader", "--states=all", "--format=%i|%T|%k").splitlines()
        return [(number, state, comment) for number, state, comment in (line.split("|", 2) for line in lines)]


@contextmanager
def slurm(folder: Path, cpus: int) -> Iterator[Cluster]:
    """Start a Slurm cluster of one node, and stop it when the block ends.

    Args:
        folder: folder for all files.
        cpus: number of processors of the node.

    Raises:
        SlurmError: if a daemon is missing or does not start.
    """
    variables = {**os.environ, "PATH": f"{os.environ['PATH']}:{SYSTEM}"}
    missing = [daemon for daemon in DAEMONS if shutil.which(daemon, path=variables["PATH"]) is None]
    if missing:
        raise SlurmError(f"{', '.join(missing)}: not installed (Debian's slurm-wlm and munge bring them)")
    _configure(folder, cpus)
    variables |= {"PATH": f"{folder / 'bin'}:{variables['PATH']}", "SLURM_CONF": str(folder / "slurm.conf")}
    cluster = Cluster(variables)
    with ExitStack() as stack:
        paths = {name: str(folder / f"munge.{name}") for name in ("socket", "key", "pid", "log", "seed")}
        stack.enter_context(
            _daemon(
                folder, variables, "munged", "--foreground", "--force", f"--socket={paths['socket']}",
                f"--key-file={paths['key']}", f"--pid-file={paths['pid']}", f"--log-file={paths['log']}",
                f"--seed-file={paths['seed']}",
            )
        )  # fmt: skip
        _wait(folder, "munged", (folder / "munge.socket").exists)
        stack.enter_context(_daemon(folder, variables, "slurmctld", "-D"))
        stack.enter_context(_daemon(folder, variables, "slurmd", "-D"))
        _wait(folder, "slurmctld", lambda: _state(cluster) == "idle")
        stack.callback(_cancel_all, cluster)
        yield cluster


def _configure(folder: Path, cpus: int) -> None:
    """Write the configuration, munge's key, and an `srun` that finds the configuration by itself."""
    for name in ("state", "spool", "bin"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)  # munged requires that the folder of its socket is accessible to all
    # Keep both sockets open until both ports are known, so that the ports differ.
    with socket.socket() as first, socket.socket() as second:
        ports = []
        for endpoint in (first, second):
            endpoint.bind(("127.0.0.1", 0))
            ports.append(endpoint.getsockname()[1])
    text = TEMPLATE.read_text().format(
        host=socket.gethostname().partition(".")[0],
        user=pwd.getpwuid(os.getuid()).pw_name,
        folder=folder,
        cpus=cpus,
        controller_port=ports[0],
        node_port=ports[1],
    )
    (folder / "slurm.conf").write_text(text)
    # Snakemake's executor calls srun without SLURM_CONF; real clusters have the file in the default location.
    command = folder / "bin" / "srun"
    command.write_text(f'#!/bin/sh\nSLURM_CONF={folder}/slurm.conf exec {shutil.which("srun")} "$@"\n')
    command.chmod(0o755)
    key = folder / "munge.key"
    key.write_bytes(secrets.token_bytes(128))
    key.chmod(0o600)


@contextmanager
def _daemon(folder: Path, variables: dict[str, str], *command: str) -> Iterator[None]:
    """Start a daemon in the foreground of its own session, and terminate it when the block ends."""
    with (folder / f"{command[0]}.out").open("w") as output:
        process = subprocess.Popen(
            command, env=variables, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _state(cluster: Cluster) -> str:
    try:
        return cluster.ask("sinfo", "--noheader", "--format=%T").strip()
    except subprocess.CalledProcessError:  # The controller does not listen yet.
        return ""


def _wait(folder: Path, daemon: str, ready: Callable[[], bool]) -> None:
    """Wait until Slurm is ready.

    Raises:
        SlurmError: if it takes too long, with the ends of the logs.
    """
    end = time.monotonic() + START_SECONDS
    while not ready():
        if time.monotonic() > end:
            logs = [
                f"{path.name}: {path.read_text(errors='replace')[-1000:]}"
                for path in (*folder.glob("*.out"), *folder.glob("*.log"))
            ]
            raise SlurmError("\n".join([f"{daemon} is not ready after {START_SECONDS:.0f} s", *logs]))
        time.sleep(0.2)


def _cancel_all(cluster: Cluster) -> None:
    """Cancel all jobs, and with them their processes, before the daemons end."""
    unfinished = ["squeue", "--noheader", "--format=%i"]
    if numbers := cluster.ask(*unfinished).split():
        cluster.ask("scancel", *numbers)
        # This is longer than KillWait.
        end = time.monotonic() + 45
        while cluster.ask(*unfinished).split() and time.monotonic() < end:
            time.sleep(0.5)
