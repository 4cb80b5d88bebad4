"""Default paths of the files that belong to the project, and of the files that a run writes.

Paths of the files of a job are in `curvebench.spec.job`.
"""

from __future__ import annotations

from pathlib import Path

# Files by which a checkout of this project is recognized.
# The working directory counts as a checkout only if it has both files.
# One file is not enough, because another project may have a file of the same name.
# HOME is the folder of the project's files.
# If the working directory is a checkout, HOME is the working directory.
# Otherwise HOME is the folder of the installed package.
CHECKOUT = (Path("Snakefile"), Path("curvebench/paths.py"))
HOME = Path() if all(path.is_file() for path in CHECKOUT) else Path(__file__).parent
STUDY_FOLDER = HOME / "benchmarks/studies"
PAPERS = HOME / "benchmarks/papers"
# Folder of a user's own studies, relative to the working directory.
# These studies are read in addition to the studies of the project.
OWN_STUDIES = Path("studies")
PUBLISHED = HOME / "results/published"
# Snakemake uses the Snakefile in the working directory if `--snakefile` is not given.
SNAKEMAKE = ("snakemake",) if Path() == HOME else ("snakemake", "--snakefile", str(HOME / "Snakefile"))
# Folders that a run writes, relative to the working directory.
RESULTS = Path("results")
# Name of the folder in a results folder that has a folder for each comparison of `curvebench compare`.
COMPARISONS = "comparisons"
TABLES = RESULTS / "tables"
SITE = Path("reports/site")
NEW_SETS = RESULTS / "published"
# Environment variable that names the folder of worker processes (curvebench.stages.workers).
WORKERS = "CURVEBENCH_WORKERS"
# Name of the file that lists the failures of a job, next to the job's tables.
# A job with such a file is run again at the next call of Snakemake.
FAILED = "failed.json"


def stored_kernels(results: Path) -> Path:
    """Return the folder in which asv stores kernel times; asv.conf.json must name the same folder."""
    return results / "kernels"


def checkpoints_folder(results: Path, job: str) -> Path:
    """Return the folder for checkpoints of a job's runs.

    Checkpoints are not in the job's output folder, because Snakemake deletes that folder before it runs a job
    again.
    """
    return results / "checkpoints" / job


def basis_file(folder: Path, workload: str, label: str, seed: int) -> Path:
    """Return the path of the estimated basis of one seed in the output folder of a basis-estimation job."""
    return folder / f"{workload}.{label}.{seed}.npz"
