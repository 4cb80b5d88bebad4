"""Jobs that fail: each leaves a typed record, which is no result, and which the next success takes away."""

from __future__ import annotations

import dataclasses
import os
import signal
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from harness import run_jobs
from harness.job import Job
from harness.jobs import Interrupted, run_job
from harness.paths import job_folder, spec_file
from results.reading import read
from results.schema import FAILURES
from tests.harness.test_jobs import SWEEP as WITH_BASES

SWEEP = dataclasses.replace(WITH_BASES, bases=WITH_BASES.bases[:1])


def _terminated(job: Job) -> list[str]:
    os.kill(os.getpid(), signal.SIGTERM)
    raise AssertionError("SIGTERM did not end the job")


def _raising(error: Exception) -> Callable[[Job], list[str]]:
    def run(job: Job) -> list[str]:
        raise error

    return run


FAILURES_OF = {
    "interrupted": (_terminated, Interrupted),
    "out_of_memory": (_raising(MemoryError("40 GiB")), MemoryError),
    "out_of_memory on a device": (_raising(RuntimeError("RESOURCE_EXHAUSTED: out")), RuntimeError),
    "error": (_raising(ArithmeticError("broken")), ArithmeticError),
}


@pytest.mark.parametrize("case", FAILURES_OF)
def test_a_failure_is_recorded_and_no_result(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    spec_path = spec_file(tmp_path, SWEEP)
    spec_path.parent.mkdir(parents=True)
    spec_path.write_text(SWEEP.to_json())
    stage, error = FAILURES_OF[case]
    before = signal.getsignal(signal.SIGTERM)
    with monkeypatch.context() as patch:
        patch.setattr(run_jobs, "run_lanes", stage)
        with pytest.raises(error):
            run_job(spec_path, tmp_path)
    assert signal.getsignal(signal.SIGTERM) == before
    folder = job_folder(tmp_path, SWEEP)
    assert [path.name for path in folder.iterdir()] == ["failure.parquet"]
    failure = pl.read_parquet(folder / "failure.parquet")
    assert failure.schema == FAILURES
    assert failure["outcome"].item() == case.partition(" ")[0]
    assert failure["spec_hash"].item() == SWEEP.hash
    assert error.__name__ in failure["reason"].item()

    run_job(spec_path, tmp_path)
    assert not (folder / "failure.parquet").exists()
    assert read(folder, "runs").height == 2 * 3  # seeds, rates
