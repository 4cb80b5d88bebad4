"""Reservation of GPUs of this machine by jobs, and measurement of the energy that a GPU uses."""

from __future__ import annotations

import fcntl
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from curvebench.results.provenance import output_of

# Environment variable that lists the GPUs that CUDA, and therefore PyTorch and JAX, can use
VISIBLE = "CUDA_VISIBLE_DEVICES"
# Environment variable for the order in which CUDA numbers GPUs, and a value of this variable.
# The value BY_BUS makes CUDA number GPUs by bus, as the driver does.
# CUDA numbers GPUs by speed if the variable is not set.
ORDER, BY_BUS = "CUDA_DEVICE_ORDER", "PCI_BUS_ID"
POLL_SECONDS = 1.0  # time between two attempts to reserve a GPU


@dataclass(frozen=True)
class ReservedGpu:
    """A GPU that this process has reserved for itself.

    Args:
        name: number or UUID of the GPU, as CUDA names the GPU.
        waited: seconds for which this process waited until the GPU was free.
    """

    name: str
    waited: float


def visible_gpus(variables: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names by which CUDA knows the GPUs that this process may use.

    Args:
        variables: environment variables. If `CUDA_VISIBLE_DEVICES` is set, by the user or by Slurm, this
            variable lists the GPUs. Otherwise the process may use all GPUs that `nvidia-smi` lists.
    """
    if VISIBLE in variables:
        names = [name.strip() for name in variables[VISIBLE].split(",")]
        # Like CUDA, ignore all names after the first invalid one.
        end = next((at for at, name in enumerate(names) if name in ("", "-1", "NoDevFiles")), len(names))
        return tuple(dict.fromkeys(names[:end]))
    lines = (output_of(["nvidia-smi", "--list-gpus"]) or "").splitlines()
    return tuple(map(str, range(sum(line.startswith("GPU ") for line in lines))))


def restrict_devices(device: str) -> None:
    """Let this process use only the GPU of its job, or no GPU. Call this before a backend is imported.

    Without this restriction, JAX would create a context on every GPU even for a job on the CPU. These
    contexts would disturb the runs of other jobs on the GPUs. On a machine without GPUs, JAX would print
    warnings.

    Args:
        device: the device of the job, `cpu` or `gpu`.
    """
    if device == "gpu":
        reserve_gpu()
    else:
        os.environ[VISIBLE] = ""
        os.environ["JAX_PLATFORMS"] = "cpu"


# The result is cached, so that all jobs of a process share one reservation.
@cache
def reserve_gpu() -> ReservedGpu | None:
    """Reserve the first GPU that no other job has reserved, and hide the other GPUs from this process.

    If all GPUs are reserved, wait until a GPU is free. The reservation is a file lock, which the system
    releases when the process ends, even after a crash.

    Returns:
        The reserved GPU; None if this process may use no GPU. The backend reports the missing GPU later.
    """
    names = visible_gpus(os.environ)
    if not names:
        return None
    folder = lock_folder(os.environ)
    start = time.monotonic()
    while (name := _first_free(names, folder)) is None:
        if time.monotonic() - start < POLL_SECONDS:
            subject = f"all {len(names)} GPUs are" if len(names) > 1 else "the GPU is"
            _report(f"{subject} taken by other jobs ({', '.join(names)}, {folder}): waiting for one")
        time.sleep(POLL_SECONDS)
    waited = time.monotonic() - start
    os.environ[VISIBLE] = name
    os.environ.setdefault(ORDER, BY_BUS)
    _report(f"GPU {name}")
    return ReservedGpu(name, waited)


def joules_used(device: str | None) -> float | None:
    """Return the energy in joules that a GPU has used since its driver was loaded, by the driver's counter.

    Args:
        device: number or UUID of the GPU, as CUDA names the GPU; None if the process has no GPU.

    Returns:
        The energy; None if the energy is unknown. It is unknown without a GPU, for a GPU older than Volta,
        for a partition of a GPU (MIG), and without the package nvidia-ml-py. It is also unknown if `device`
        is a number and CUDA does not number GPUs as the driver does.
    """
    is_drivers_number = os.environ.get(ORDER) == BY_BUS
    if device is None or (device.isdecimal() and not is_drivers_number):
        return None
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
        by_number, by_uuid = pynvml.nvmlDeviceGetHandleByIndex, pynvml.nvmlDeviceGetHandleByUUID
        handle = by_number(int(device)) if device.isdecimal() else by_uuid(device)
        return float(pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)) / 1000
    except pynvml.NVMLError:
        return None


def lock_folder(variables: Mapping[str, str]) -> Path:
    """Return the folder with the lock files by which jobs of this user reserve GPUs.

    Each Slurm job has a folder of its own, because CUDA numbers the GPUs of each Slurm job from 0.
    """
    step = [variables[name] for name in ("SLURM_JOB_ID", "SLURM_STEP_ID") if name in variables]
    name = "-".join(["curvebench", "devices", str(os.getuid()), *step])
    return Path(tempfile.gettempdir()) / name


def _first_free(names: Sequence[str], folder: Path) -> str | None:
    """Lock the first GPU that no other process has locked, and return the name of the GPU.

    Args:
        names: names of the GPUs that this process may use.
        folder: folder of the lock files.

    Returns:
        The name of the GPU; None if all GPUs are locked.
    """
    folder.mkdir(mode=0o700, exist_ok=True)
    for name in names:
        file = os.open(folder / f"{name.replace('/', '_')}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        with suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return name  # the file stays open, and therefore locked
        os.close(file)
    return None


def _report(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
