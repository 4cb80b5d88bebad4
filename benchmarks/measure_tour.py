"""The tour from a fresh checkout: its time as a share of a reference computation, and what it writes."""

from __future__ import annotations

import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from curvebench.benchmarks.kernels.clock import one_thread, seconds_of
from curvebench.benchmarks.kernels.worktrees import commit_of, git, worktree
from curvebench.spec.errors import InputError

CORES = 2
REFERENCE_SIZE = 500  # of a symmetric matrix whose eigenvalues are the reference computation
REPETITIONS = 9
MOST_SHARE = (
    19_500.0  # 300 s where the reference computation takes 15.4 ms, as on two quiet cores of an AMD EPYC
)
MOST_BYTES = 300_000_000


@dataclass(frozen=True)
class TourTime:
    """What a tour took.

    Args:
        seconds: of the wall clock, set-up of the environment not included.
        processor_seconds: of all of its processes.
        reference_seconds: of the reference computation, the mean of the medians before and after.
        written: bytes of results and site.
    """

    seconds: float
    processor_seconds: float
    reference_seconds: float
    written: int

    @property
    def share(self) -> float:
        """Seconds in reference computations."""
        return self.seconds / self.reference_seconds

    @property
    def holds(self) -> bool:
        """Whether time and size are within their limits."""
        return self.share <= MOST_SHARE and self.written <= MOST_BYTES


def reference_seconds() -> float:
    """Median seconds of the eigenvalues of a symmetric matrix, in float64 on one pinned thread."""
    matrix = np.random.default_rng(0).standard_normal((REFERENCE_SIZE, REFERENCE_SIZE))

    def call() -> None:
        np.linalg.eigvalsh(matrix + matrix.T)

    with one_thread():
        return statistics.median(seconds_of(call, 1) for _ in range(REPETITIONS))


def measure_tour(root: Path, commit: str = "HEAD") -> TourTime:
    """Run the tour of a commit in a checkout of its own, in this environment, on two cores.

    Raises:
        InputError: when git does not know the commit, or the tour fails; it names the log.
    """
    before = reference_seconds()
    folder = Path(tempfile.mkdtemp(prefix="curvebench-tour."))
    try:
        with worktree(root, commit_of(root, commit), folder / "checkout") as checkout:
            spent = _processor_seconds()
            start = time.perf_counter()
            command = [sys.executable, "-m", "snakemake", "--cores", str(CORES), "reports"]
            status = subprocess.run(command, cwd=checkout, check=False).returncode
            seconds, processor = time.perf_counter() - start, _processor_seconds() - spent
            if status:
                raise InputError(f"{checkout}: the tour of {commit} failed with status {status}")
            written = _written(checkout)
        return TourTime(seconds, processor, (before + reference_seconds()) / 2, written)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _written(checkout: Path) -> int:
    """The bytes of results and site, which git ignores."""
    ignored = ("ls-files", "-z", "--others", "--ignored", "--exclude-standard", "results", "reports/site")
    return sum((checkout / name).stat().st_size for name in git(checkout, *ignored).split("\0") if name)


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
