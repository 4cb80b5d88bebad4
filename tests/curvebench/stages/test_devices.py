"""GPUs of a machine: which there are, and that each job has one for itself as long as its process lives."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

from curvebench.engine.clock import Clock
from curvebench.stages import devices, jobs
from tests.conftest import ROOT
from tests.curvebench.stages.test_jobs import SWEEP, written

TAKING = """
import os, sys
from curvebench.stages.devices import reserve_gpu
own = reserve_gpu()
assert own is reserve_gpu(), "a process has one"
print(own and own.name, os.environ.get("CUDA_VISIBLE_DEVICES"), own and own.waited, flush=True)
sys.stdin.read()
"""
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Return a function that starts a process with some environment variables. The process takes a device,
    and holds it until its input ends.
    """
    started: list[subprocess.Popen[str]] = []

    def begin(**variables: str) -> subprocess.Popen[str]:
        outside = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")}
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        process = subprocess.Popen(
            [sys.executable, "-c", TAKING],
            cwd=ROOT,
            env=outside | {"TMPDIR": str(tmp_path), "CUDA_VISIBLE_DEVICES": "3,7"} | variables,
            text=True,
            **pipes,  # type: ignore[call-overload]
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        with process:
            pass  # closes its pipes and waits


def taken(process: subprocess.Popen[str], waits: bool = False) -> str:
    """Wait until a process has a device, check the seconds that it says it waited, and return the device."""
    assert process.stdout is not None
    device, visible, waited = process.stdout.readline().split()
    assert device == visible
    assert (float(waited) >= devices.POLL_SECONDS) == waits
    return device


def waiting(process: subprocess.Popen[str]) -> str:
    """Return the line that a process prints when it has to wait for a device."""
    assert process.stderr is not None
    return process.stderr.readline()


def test_each_process_has_a_device_of_its_own_and_gives_it_back_however_it_ends(start: Start):
    first, second = start(), start()
    assert {taken(first), taken(second)} == {"3", "7"}
    third = start()
    assert "all 2 GPUs are taken by other jobs (3, 7, " in waiting(third)
    other = {"3": "7", "7": "3"}
    assert first.stdin is not None
    first.stdin.close()
    own = taken(third, waits=True)
    assert first.wait() == 0

    fourth = start()
    assert "waiting for one" in waiting(fourth)
    second.kill()  # SIGKILL
    assert taken(fourth, waits=True) == other[own]


def test_a_slurm_job_uses_what_it_is_given_whatever_other_jobs_call_theirs(start: Start):
    """In its own control group each job's device may be 0."""
    for job, step in (("11", "0"), ("12", "0"), ("12", "1")):
        process = start(CUDA_VISIBLE_DEVICES="0", SLURM_JOB_ID=job, SLURM_STEP_ID=step)
        assert taken(process) == "0"


@pytest.mark.parametrize("given", ["", "-1", "NoDevFiles"])
def test_without_a_device_nothing_is_taken(start: Start, given: str):
    process = start(CUDA_VISIBLE_DEVICES=given)
    assert process.stdout is not None
    assert process.stdout.readline().split()[0] == "None"


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("0", ("0",)),
        ("2, 0", ("2", "0")),
        ("1,-1,0", ("1",)),
        ("0,0", ("0",)),
        ("GPU-5ebe9f43,MIG-GPU-5ebe9f43/1/0", ("GPU-5ebe9f43", "MIG-GPU-5ebe9f43/1/0")),
        ("", ()),
    ],
)
def test_what_is_given_from_outside_counts(given: str, found: tuple[str, ...]):
    assert devices.visible_gpus({"CUDA_VISIBLE_DEVICES": given}) == found


LISTED = (
    "echo 'GPU 0: NVIDIA H100 (UUID: GPU-a)'; echo '  MIG 1g.10gb (UUID: MIG-b)'; echo 'GPU 1: NVIDIA H100'"
)


@pytest.mark.parametrize(
    ("program", "count"), [(LISTED, 2), ("echo 'NVIDIA-SMI has failed'; exit 9", 0), (None, 0)]
)
def test_they_are_counted(program: str | None, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    if program is not None:
        (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\n{program}\n")
        (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert devices.visible_gpus({}) == tuple(map(str, range(count)))


RUNNING = """
import os, sys
from curvebench.__main__ import main
from curvebench.stages import devices, jobs

see = devices.restrict_devices
loaded = lambda: [name for name in ("torch", "jax") if name in sys.modules]
devices.restrict_devices = lambda device: (print("before", loaded()), see(device))
visible = lambda: print("visible", *map(os.environ.get, ("CUDA_VISIBLE_DEVICES", "JAX_PLATFORMS")), sep=":")
jobs.run_job = lambda *given, **options: visible()
sys.exit(main(["run", *sys.argv[1:]]))
"""


@pytest.mark.parametrize(("device", "visible"), [("gpu", "5"), ("cpu", "")])
def test_a_job_sees_one_gpu_or_none_before_its_backend_is_loaded(tmp_path: Path, device: str, visible: str):
    outside = {name: value for name, value in os.environ.items() if name != "JAX_PLATFORMS"}
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            RUNNING,
            written(SWEEP.changed(device=device), tmp_path),
            "--results",
            tmp_path,
        ],
        cwd=ROOT,
        env=outside | {"TMPDIR": str(tmp_path), "CUDA_VISIBLE_DEVICES": "5"},
        capture_output=True,
        text=True,
        check=True,
    )
    platforms = None if device == "gpu" else "cpu"
    assert done.stdout.splitlines()[:2] == ["before []", f"visible:{visible}:{platforms}"]
    assert ("GPU 5\n" in done.stderr) == (device == "gpu")


class NoAnswer(Exception):
    """As NVML's errors."""


def driver() -> SimpleNamespace:
    """Return a replacement of the driver library for two GPUs, which reports the energy of the first one."""
    handles = {0: "first", "GPU-aa": "first", 1: "second"}

    def found(among: Mapping[Any, Any], name: Any) -> Any:
        if name not in among:
            raise NoAnswer("not found or not supported")
        return among[name]

    return SimpleNamespace(
        NVMLError=NoAnswer,
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByIndex=partial(found, handles),
        nvmlDeviceGetHandleByUUID=partial(found, handles),
        nvmlDeviceGetTotalEnergyConsumption=partial(found, {"first": 5000}),
    )


@pytest.mark.parametrize(
    ("device", "joules"), [("0", 5.0), ("GPU-aa", 5.0), ("1", None), ("7", None), (None, None)]
)
def test_energy_is_the_drivers(monkeypatch: pytest.MonkeyPatch, device: str | None, joules: float | None):
    monkeypatch.setitem(sys.modules, "pynvml", driver())
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    assert devices.joules_used(device) == joules
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "FASTEST_FIRST")
    by_name = joules if device == "GPU-aa" else None  # another may have the number
    assert devices.joules_used(device) == by_name
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert devices.joules_used(device) is None, "without the package nobody tells"


def test_a_job_that_began_in_another_process_has_no_energy(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "pynvml", driver())
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    job: Any = SimpleNamespace(clock=Clock())
    assert jobs._joules_since(2.0, "0", job) == 3.0
    assert jobs._joules_since(None, None, job) is None
    job.clock.take_over({"step": 1.0})
    assert jobs._joules_since(2.0, "0", job) is None


@pytest.mark.parametrize("waited", [0.0, 1000.0])
def test_waiting_for_a_gpu_is_not_job_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waited: float):
    monkeypatch.setattr(jobs, "reserve_gpu", lambda: devices.ReservedGpu("0", waited))
    monkeypatch.setattr(jobs, "_check_device", lambda job: None)
    monkeypatch.setattr(jobs, "_compute", lambda job: None)
    monkeypatch.setattr(jobs, "process_seconds", lambda: 1234.0)
    path = written(SWEEP.changed(device="gpu"), tmp_path)
    (row,) = pl.read_parquet(jobs.run_job(path, tmp_path, 1) / "jobs.parquet").to_dicts()
    assert row["total_seconds"] == row["other_seconds"] == 1234.0 - waited
