"""Default places of files: those that the project brings, and those that it writes.

`curvebench.spec.job` has the files of a job.
"""

from __future__ import annotations

from pathlib import Path

# The project's files: below the working folder in a checkout, elsewhere below the installed package. A folder
# with a Snakefile of its own, and a checkout or results in `curvebench`, is no checkout.
CHECKOUT = (Path("Snakefile"), Path("curvebench/paths.py"))
HOME = Path() if all(path.is_file() for path in CHECKOUT) else Path(__file__).parent
STUDY_FOLDER = HOME / "benchmarks/studies"
PUBLISHED = HOME / "results/published"
SNAKEMAKE = ("snakemake", "--snakefile", str(HOME / "Snakefile"))
# What a run writes, below the working folder
RESULTS = Path("results")
TABLES = RESULTS / "tables"
SITE = Path("reports/site")
NEW_SETS = RESULTS / "published"
WORKERS = (
    "CURVEBENCH_WORKERS"  # the variable that names the folder of worker processes (curvebench.stages.workers)
)
FAILED = "failed.json"  # among the tables of a job of which something failed: the next call tries it again


def stored_kernels(results: Path) -> Path:
    """Where asv stores the speed of kernels over commits; asv.conf.json says so too."""
    return results / "kernels"


def checkpoints_folder(results: Path, job: str) -> Path:
    """Where a job keeps its runs on the way, by its name: not among its tables, which Snakemake deletes."""
    return results / "checkpoints" / job


def basis_file(folder: Path, workload: str, label: str, seed: int) -> Path:
    """The file of one estimated basis in a bases job's folder."""
    return folder / f"{workload}.{label}.{seed}.npz"
