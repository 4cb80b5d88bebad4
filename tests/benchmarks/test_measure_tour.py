"""The time of the tour: measured in a checkout of its own, of a commit, with a failure said."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from curvebench.benchmarks.measure_tour import MOST_BYTES, MOST_SHARE, TourTime, measure_tour
from curvebench.spec.errors import InputError

# in place of Snakemake: a checkout's own modules are found before installed ones
MAIN = """import pathlib, sys
assert sys.argv[1:] == ["--cores", "2", "reports"]
for name, size in {"results/runs/a.bin": 1000, "reports/site/b.html": 200, "other/c": 5000}.items():
    path = pathlib.Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(size))
sys.exit(STATUS)
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository whose last commit has a tour that succeeds, and the one before one that fails."""
    root = tmp_path / "root"
    (root / "snakemake").mkdir(parents=True)
    (root / "snakemake/__init__.py").touch()
    (root / ".gitignore").write_text("results/runs/\nreports/site/\n__pycache__/\n")
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    for status in (3, 0):
        (root / "snakemake/__main__.py").write_text(MAIN.replace("STATUS", str(status)))
        subprocess.run(["git", "add", "."], cwd=root, check=True)
        who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", *who, "commit", "-q", "-m", str(status)], cwd=root, check=True)
    return root


def test_a_tour_is_measured_in_a_checkout_that_is_removed(repository: Path):
    took = measure_tour(repository)
    assert took.written == 1200, "what git ignores of results and the site"
    assert min(took.seconds, took.processor_seconds, took.reference_seconds) > 0
    assert len(list((repository / ".git").glob("worktrees/*"))) == 0


def test_a_tour_that_fails_is_an_error(repository: Path):
    with pytest.raises(InputError, match=r"the tour of HEAD~1 failed with status 3"):
        measure_tour(repository, "HEAD~1")


def test_time_and_size_have_limits():
    fits = TourTime(MOST_SHARE * 0.05, 1.0, 0.05, MOST_BYTES)
    assert fits.holds
    assert not replace(fits, seconds=fits.seconds * 1.01).holds
    assert not replace(fits, written=MOST_BYTES + 1).holds
