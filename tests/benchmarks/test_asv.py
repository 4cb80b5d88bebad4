"""asv runs the kernel cases on this environment and stores what it finds; the pass over commits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from curvebench.benchmarks.kernels.cases import timed
from curvebench.benchmarks.kernels.history import CODE, recorded, run_asv, settings
from curvebench.benchmarks.kernels.worktrees import last_commits
from curvebench.paths import RESULTS, stored_kernels
from curvebench.reports.pages.kernels import machine_parts, read_stored
from tests.benchmarks.test_gate import record, start_repository

ROOT = Path(__file__).resolve().parents[2]
LABELS = ["step.sgd.many_tiny torch float32", "basis.rotation jax float32"]


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a repository of one commit that has the project's asv settings, and a home for asv's machine
    file.
    """
    folder = tmp_path / "repository"
    (folder / "curvebench").mkdir(parents=True)
    (folder / "asv.conf.json").write_text((ROOT / "asv.conf.json").read_text())
    (folder / "curvebench" / "code.py").write_text("")
    monkeypatch.setenv("HOME", str(tmp_path))
    with monkeypatch.context() as there:  # asv is to find the project, not this folder
        start_repository(folder, there)
        record(folder, "one")
    return folder


@pytest.mark.long
def test_a_run_stores_what_the_report_shows(repository: Path, tmp_path: Path):
    checkout = tmp_path / "checkout"
    checkout.symlink_to(ROOT)
    (commit,) = last_commits(repository, 5, CODE)
    pattern = "|".join(label.replace(".", r"\.") for label in LABELS)
    assert run_asv(repository, commit, checkout, ["--attribute", "rounds=1", "--bench", pattern]) == 0

    results = repository / "results" / "kernels"
    assert recorded(results, commit)
    (file,) = results.glob(f"*/{commit[:8]}-*.json")
    stored = json.loads(file.read_text())
    assert stored["commit_hash"] == commit
    order = list(timed())
    for benchmark in ("time_call", "peakmem_call", "track_error"):
        values, params, *_ = stored["results"][f"asv_cases.Kernel.{benchmark}"]
        assert [name.strip("'") for name in params[0]] == order
        found = dict(zip(order, values, strict=True))
        assert all(found[label] > 0 for label in LABELS), benchmark

    report = read_stored(results)
    assert report.notes == ()
    (part,) = machine_parts(report)
    rows = part["tables"]["seconds"]
    points = [point for row in rows for point in row["cells"].values()]
    assert all(point["low"] <= point["high"] for point in points), "asv stores the spread of repeated calls"
    assert {f"{row['case']} {row['backend']} float32" for row in rows} == set(LABELS)


def test_the_settings_name_places_that_exist():
    given = settings(ROOT)
    assert (ROOT / given["benchmark_dir"] / "asv_cases.py").is_file()
    assert given["environment_type"] == "existing"
    assert Path(given["results_dir"]) == stored_kernels(RESULTS), "where the report looks for them"


def test_commits_without_cases_or_with_results_are_passed_over(repository: Path):
    (commit,) = last_commits(repository, 5, CODE)
    command = [sys.executable, "-m", "curvebench.benchmarks.kernels.history"]
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}

    def printed() -> str:
        done = subprocess.run(
            command, cwd=repository, env=variables, capture_output=True, text=True, check=True
        )
        return done.stdout

    assert f"{commit[:8]}: has no benchmarks/kernels" in printed()
    stored = repository / "results" / "kernels" / "machine" / f"{commit[:8]}-existing.json"
    stored.parent.mkdir(parents=True)
    stored.write_text("{}")
    assert f"{commit[:8]}: recorded already" in printed()
