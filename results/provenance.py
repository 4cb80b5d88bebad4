"""Where a job ran: commit, packages, processor, threads, GPU and environment, as columns of `jobs`."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from types import MappingProxyType
from typing import Any

from curvebench.spec.errors import InputError

PROJECT = Path(__file__).resolve().parent.parent
PACKAGES = ("torch", "jax", "jaxlib", "numpy", "scipy", "polars", "snakemake", "scikit-learn")
CPU_INFO = Path("/proc/cpuinfo")


def provenance(threads: int) -> dict[str, Any]:
    """The provenance of this process, once a job; imports neither torch nor jax.

    Args:
        threads: the number of threads that the job is pinned to.

    Returns:
        The columns of `jobs` from `started` on, by name; what cannot be known is None.
    """
    cpu, cores = cpu_model(), os.cpu_count()
    gpu, driver = gpu_and_driver()
    revision, dirty = commit(PROJECT)
    installed = distributions()
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(cpu, cores, gpu),
        "cpu": cpu,
        "cores": cores,
        "threads": threads,
        "gpu": gpu,
        "driver": driver,
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
        "packages": [{"name": name, "version": installed[name]} for name in PACKAGES if name in installed],
        "environment_hash": environment_hash(installed),
        "commit": revision,
        "dirty": dirty,
    }


def machine(cpu: str, cores: int | None, gpu: str | None) -> str:
    """The name of a machine in tables: 12 hexadecimal digits of the hash of its hardware.

    Threads are left out: on one machine, timing jobs take more of them than the runs they are compared with.
    """
    return hashlib.sha256(f"{cpu}\n{cores}\n{gpu}".encode()).hexdigest()[:12]


def cpu_model(information: Path = CPU_INFO) -> str:
    """The processor's model as Linux tells it, or the best that the platform knows."""
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", information.read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found[1].strip() if found else platform.processor() or platform.machine()


def gpu_and_driver() -> tuple[str | None, str | None]:
    """Names and driver of the NVIDIA GPUs, or (None, None) where `nvidia-smi` finds none."""
    lines = output_of(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"])
    pairs = [line.rpartition(", ") for line in (lines or "").splitlines() if ", " in line]
    if not pairs:
        return None, None
    return "; ".join(name for name, _, _ in pairs), pairs[0][2]


def commit(folder: Path) -> tuple[str | None, bool | None]:
    """The commit checked out in a folder and whether files differ from it.

    (None, None) where there is no git or the folder is not the top of a working tree, (None, True) before
    the first commit.
    """
    top = output_of(["git", "-C", str(folder), "rev-parse", "--show-toplevel"])
    if top is None or Path(top).resolve() != folder.resolve():
        return None, None
    revision = output_of(["git", "-C", str(folder), "rev-parse", "--verify", "HEAD"])
    changes = output_of(["git", "--no-optional-locks", "-C", str(folder), "status", "--porcelain"])
    if changes is None:
        return revision, None
    # files of Python at the top that were never added are a user's own optimizers
    return revision, any(not re.fullmatch(r"\?\? [^/]+\.py", line) for line in changes.splitlines())


def check_committed(file: Path | None = None, otherwise: str = "") -> None:
    """Check that the code is what a commit has.

    Args:
        file: of a user, which counts too.
        otherwise: what else may be done than to commit it.

    Raises:
        InputError: where it is not.
    """
    revision, changed = commit(PROJECT)
    if revision is None or changed:
        raise InputError(
            "the code that runs jobs and computes verdicts is not what a commit has (git status); commit it "
            f"first{otherwise}"
        )
    if file and not output_of(["git", "-C", str(PROJECT), "ls-tree", "HEAD", "--", str(file)]):
        raise InputError(f"{file}: no commit of {PROJECT} has this file; move it there and commit it first")


@cache
def distributions() -> Mapping[str, str]:
    """Return the version of every installed distribution by normalized name; the first on the path counts."""
    versions: dict[str, str] = {}
    for distribution in metadata.distributions():
        about = distribution.metadata  # reads and parses the file each time
        if about["Name"]:  # a half-removed package has none
            versions.setdefault(re.sub(r"[-_.]+", "-", about["Name"]).lower(), about["Version"])
    return MappingProxyType(versions)


def environment_hash(versions: Mapping[str, str]) -> str:
    """The SHA-256 of the sorted lines `name==version`."""
    lines = sorted(f"{name}=={version}" for name, version in versions.items())
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def output_of(command: Sequence[str]) -> str | None:
    """Return what a program prints; None when it is missing, fails or takes more than a minute."""
    # inside a git hook, these would point git at another repository
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=60, check=True, env=environment
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
