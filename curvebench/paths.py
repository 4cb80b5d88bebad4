"""Where files lie by default, and those of bases and of kernels; the files of a job:
`curvebench.spec.job`.
"""

from __future__ import annotations

from pathlib import Path

STUDY_FOLDER = Path("benchmarks/studies")
RESULTS = Path("results")
SITE = Path("reports/site")


def stored_kernels(results: Path) -> Path:
    """Where asv stores the speed of kernels over commits; asv.conf.json says so too."""
    return results / "kernels"


def checkpoints_folder(results: Path, job: str) -> Path:
    """Where a job keeps its runs on the way, by its name: not among its tables, which Snakemake deletes."""
    return results / "checkpoints" / job


def basis_file(folder: Path, workload: str, label: str, seed: int) -> Path:
    """The file of one estimated basis in a bases job's folder."""
    return folder / f"{workload}.{label}.{seed}.npz"
