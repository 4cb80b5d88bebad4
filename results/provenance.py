"""Provenance of a job: commit, packages, processor, threads, GPU and environment.

The values are stored in columns of the table `jobs`.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
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
    """Return the provenance of this process, without importing torch or jax.

    Args:
        threads: number of CPU threads that the job may use.

    Returns:
        Values of the table `jobs` by column, from the column `started` on. Values that cannot be determined
        are None.
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
    """Return the name of a machine in tables: 12 hexadecimal digits of the hash of its hardware.

    The hash does not depend on the number of threads, because timing jobs use more threads than runs, and the
    step times of timing jobs are combined with runs on the same machine.

    Args:
        cpu: model of the processor.
        cores: number of cores; None if the number is not known.
        gpu: names of the GPUs; None if there is no GPU.
    """
    return hashlib.sha256(f"{cpu}\n{cores}\n{gpu}".encode()).hexdigest()[:12]


def cpu_model(information: Path = CPU_INFO) -> str:
    """Return the model of the processor from /proc/cpuinfo or, if that fails, from Python's `platform`."""
    try:
        match = re.search(r"^model name\s*:\s*(.+)$", information.read_text(), re.MULTILINE)
    except OSError:
        match = None
    return match[1].strip() if match else platform.processor() or platform.machine()


def gpu_and_driver() -> tuple[str | None, str | None]:
    """Return names and driver version of the NVIDIA GPUs, or (None, None) if `nvidia-smi` finds no GPU."""
    lines = output_of(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"])
    pairs = [line.rpartition(", ") for line in (lines or "").splitlines() if ", " in line]
    if not pairs:
        return None, None
    return "; ".join(name for name, _, _ in pairs), pairs[0][2]


def commit(folder: Path) -> tuple[str | None, bool | None]:
    """Return the commit that is checked out in a folder, and whether files differ from the commit.

    The result is (None, None) if git is not installed or the folder is not the top of a working tree, and
    (None, True) before the first commit.
    """
    top = output_of(["git", "-C", str(folder), "rev-parse", "--show-toplevel"])
    if top is None or Path(top).resolve() != folder.resolve():
        return None, None
    revision = output_of(["git", "-C", str(folder), "rev-parse", "--verify", "HEAD"])
    changes = output_of(["git", "--no-optional-locks", "-C", str(folder), "status", "--porcelain"])
    if changes is None:
        return revision, None
    # Untracked Python files in the top folder are a user's own optimizers and do not change the project.
    return revision, any(not re.fullmatch(r"\?\? [^/]+\.py", line) for line in changes.splitlines())


def check_committed(files: Iterable[Path] = (), otherwise: str = "") -> None:
    """Check that the code of the project is the same as in the commit that is checked out.

    Args:
        files: files of a user that must be committed too.
        otherwise: text for the error message: an alternative to committing.

    Raises:
        InputError: when code or files differ from the commit.
    """
    revision, changed = commit(PROJECT)
    if revision is None or changed:
        raise InputError(
            "the code that runs jobs and computes verdicts is not what a commit has (git status); commit it "
            f"first{otherwise}"
        )
    for file in files:
        if not output_of(["git", "-C", str(PROJECT), "ls-tree", "HEAD", "--", str(file)]):
            raise InputError(
                f"{file}: no commit of {PROJECT} has this file; move it there and commit it first"
            )


@cache
def distributions() -> Mapping[str, str]:
    """Return the version of every installed distribution by its normalized name.

    If a name occurs twice, the first distribution on the import path counts.
    """
    versions: dict[str, str] = {}
    for distribution in metadata.distributions():
        fields = distribution.metadata  # Each access to the attribute `metadata` parses a file.
        if fields["Name"]:  # A package that was only partly removed has no name.
            versions.setdefault(re.sub(r"[-_.]+", "-", fields["Name"]).lower(), fields["Version"])
    return MappingProxyType(versions)


def environment_hash(versions: Mapping[str, str]) -> str:
    """Return the SHA-256 of the sorted lines `name==version`."""
    lines = sorted(f"{name}=={version}" for name, version in versions.items())
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def output_of(command: Sequence[str]) -> str | None:
    """Return the output of a program; None if the program is missing, fails or takes more than a minute."""
    # Git sets variables for its hooks; they would make a `git` command use another repository.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=60, check=True, env=environment
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
