"""Where the files of a job lie under the results folder."""

from __future__ import annotations

from pathlib import Path

from harness.errors import InputError
from harness.spec import JobSpec

STUDY_FOLDER = Path("benchmarks/studies")
RESULTS = Path("results")
SITE = Path("reports/site")


def stored_kernels(results: Path) -> Path:
    """Where asv stores the speed of kernels over commits; asv.conf.json says so too."""
    return results / "kernels"


def job_name(spec: JobSpec) -> str:
    """The last part of a job's paths: optimizer, backend and hash."""
    who = spec.optimizers[0].label if len(spec.optimizers) == 1 and spec.stage != "timing" else "all"
    return f"{who}.{spec.backend}.{spec.hash}"


def spec_file(results: Path, spec: JobSpec) -> Path:
    """The spec file of a job."""
    return results / "specs" / f"{spec.study}.{spec.scale}.{spec.stage}.{job_name(spec)}.json"


def job_folder(results: Path, spec: JobSpec) -> Path:
    """The folder of a job's tables."""
    return results / "runs" / spec.study / spec.scale / spec.stage / job_name(spec)


def upstream_folder(results: Path, spec: JobSpec, stage: str, hash_: str) -> Path:
    """The folder of a job of an earlier stage of the same study, by its hash.

    Raises:
        InputError: when it has not been run.
    """
    parent = results / "runs" / spec.study / spec.scale / stage
    found = sorted(parent.glob(f"*.{hash_}"))
    if not found:
        raise InputError(f"{parent}: no job with the hash {hash_}; run snakemake, which computes it first")
    return found[0]


def basis_file(folder: Path, workload: str, label: str, seed: int) -> Path:
    """The file of one estimated basis in a bases job's folder."""
    return folder / f"{workload}.{label}.{seed}.npz"
