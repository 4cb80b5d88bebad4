"""GPUs of this machine: each job has one for itself until its process ends; the energy that they use."""

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

VISIBLE = "CUDA_VISIBLE_DEVICES"  # what CUDA, and so PyTorch and JAX, may see of the devices
ORDER, BY_BUS = "CUDA_DEVICE_ORDER", "PCI_BUS_ID"  # how CUDA numbers them; by default not as the driver does
EVERY = 1.0  # seconds between looks at devices that are taken


@dataclass(frozen=True)
class Taken:
    """A GPU that this process has for itself.

    Args:
        name: as CUDA names it.
        waited: seconds until it was free.
    """

    name: str
    waited: float


def devices(variables: Mapping[str, str]) -> tuple[str, ...]:
    """The GPUs that this process may use, as CUDA names them; none where there is none.

    Args:
        variables: of the environment. Where `CUDA_VISIBLE_DEVICES` is set, by the user or by Slurm, they are
            those that it names; else all that `nvidia-smi` lists.
    """
    if VISIBLE in variables:
        named = [name.strip() for name in variables[VISIBLE].split(",")]
        end = next((at for at, name in enumerate(named) if name in ("", "-1", "NoDevFiles")), len(named))
        return tuple(dict.fromkeys(named[:end]))  # as CUDA does: those after an invalid name do not count
    listed = (output_of(["nvidia-smi", "--list-gpus"]) or "").splitlines()
    return tuple(map(str, range(sum(line.startswith("GPU ") for line in listed))))


def see_own(device: str) -> None:
    """Have this process see the GPUs of its job alone, before a backend is imported: one, or none.

    On a CPU JAX would make itself a context on every GPU that it sees, beside the runs that are there; and
    complain of none where it looks for one.

    Args:
        device: of the job, `cpu` or `gpu`.
    """
    if device == "gpu":
        take_device()
    else:
        os.environ[VISIBLE] = ""
        os.environ["JAX_PLATFORMS"] = "cpu"


@cache  # a process has one, however many jobs it does
def take_device() -> Taken | None:
    """Take the first GPU that no other job has, wait for one where all are taken, and see no other.

    The lock is held until the process ends, however it ends.

    Returns:
        None where there is none, of which the backend then tells.
    """
    known = devices(os.environ)
    if not known:
        return None
    folder = lock_folder(os.environ)
    begun = time.monotonic()
    while (name := _first_free(known, folder)) is None:
        if time.monotonic() - begun < EVERY:
            several = f"all {len(known)} GPUs are" if len(known) > 1 else "the GPU is"
            _say(f"{several} taken by other jobs ({', '.join(known)}, {folder}): waiting for one")
        time.sleep(EVERY)
    waited = time.monotonic() - begun
    os.environ[VISIBLE] = name
    os.environ.setdefault(ORDER, BY_BUS)
    _say(f"GPU {name}")
    return Taken(name, waited)


def joules_used(device: str | None) -> float | None:
    """The energy in joules that a GPU has used since its driver was loaded, as the driver counts it.

    Args:
        device: its number or UUID, as CUDA names it; None: there is none.

    Returns:
        None where nobody tells: no GPU, one before Volta, a part of one (MIG), a number in another order than
        the driver's, or no package nvidia-ml-py.
    """
    numbered_as_the_driver_does = os.environ.get(ORDER) == BY_BUS
    if device is None or (device.isdecimal() and not numbered_as_the_driver_does):
        return None
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
        of_number, of_uuid = pynvml.nvmlDeviceGetHandleByIndex, pynvml.nvmlDeviceGetHandleByUUID
        handle = of_number(int(device)) if device.isdecimal() else of_uuid(device)
        return float(pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)) / 1000
    except pynvml.NVMLError:
        return None


def lock_folder(variables: Mapping[str, str]) -> Path:
    """Where this user's jobs on this machine lock devices; those of a Slurm job number its own devices."""
    step = [variables[name] for name in ("SLURM_JOB_ID", "SLURM_STEP_ID") if name in variables]
    name = "-".join(["curvebench", "devices", str(os.getuid()), *step])
    return Path(tempfile.gettempdir()) / name


def _first_free(known: Sequence[str], folder: Path) -> str | None:
    folder.mkdir(mode=0o700, exist_ok=True)
    for device in known:
        file = os.open(folder / f"{device.replace('/', '_')}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        with suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return device  # and the file stays open
        os.close(file)
    return None


def _say(what: str) -> None:
    sys.stderr.write(f"{what}\n")
    sys.stderr.flush()
