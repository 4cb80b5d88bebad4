"""The Snakefile: a plan that reads well, and the main job on a study that is cut down to seconds."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.harness.tiny import SEARCH, TINY, TWO_STAGES, leave_tiny, write_study
from tests.harness.toy_claims import TOY
from tests.reports.stored_kernels import write_stored

RULES = ("bases", "sweep", "refine", "final", "timing", "parity", "tables", "figures", "site", "reports")
REPORTS = ("--config", "studies=tiny", "--", "reports")  # named: parity is then of its optimizers alone


@pytest.fixture
def snakemake(project, activated):
    """Snakemake in a copy of the project whose only study is tiny; returns the finished process."""
    leave_tiny(project)

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["snakemake", *arguments], cwd=project, env=activated, text=True, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    return run


def jobs_of(said: str) -> list[str]:
    """The messages of the jobs that Snakemake announced."""
    lines = [line.partition(": ")[2] for line in said.splitlines() if line.startswith("Job ")]
    return [line for line in lines if line]


def touch(path: Path) -> None:
    path.write_text(path.read_text() + "\n# a remark\n")


def test_the_plan_reads_well(snakemake):
    done = snakemake("-n", *REPORTS)
    assert done.returncode == 0, done.stdout
    messages = jobs_of(done.stdout)
    assert "tiny: coarse sweep of adam on jax" in messages
    assert "tiny: bases, in float64 on the host" in messages
    assert "tiny: step times on torch, nothing else running" in messages
    assert "parity of adam: PyTorch against JAX, NumPy against PyTorch" in messages
    assert "sweep 2 jobs, 16 runs" in done.stdout
    assert all(f"\n{rule} " in done.stdout for rule in RULES)


def test_bad_input_ends_without_a_traceback(snakemake):
    done = snakemake("-n", "reports", "--config", "studies=tinny")
    assert done.returncode != 0
    assert "--config studies:" in done.stdout
    assert "did you mean 'tiny'?" in done.stdout
    assert "Traceback" not in done.stdout


def times(project: Path) -> dict[Path, int]:
    """When each finished job wrote its last table."""
    return {path: path.stat().st_mtime_ns for path in (project / "results/runs").rglob("jobs.parquet")}


def start_and_kill(
    project: Path, activated: dict[str, str], asked: tuple[str, ...], jobs: int
) -> dict[Path, int]:
    """Start the main job and kill it, without a warning, once some jobs are done; returns what is there."""
    started = subprocess.Popen(
        ["snakemake", "--cores", "2", *asked],
        cwd=project,
        env=activated,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    while len(times(project)) < jobs and started.poll() is None:
        time.sleep(0.1)
    os.killpg(started.pid, signal.SIGKILL)
    started.wait()
    return times(project)


@pytest.mark.slow
def test_the_main_job_survives_a_kill_and_reruns_only_what_a_change_touches(snakemake, project, activated):
    asked = ("--config", "backends=jax,torch", *REPORTS[1:])
    before = start_and_kill(project, activated, asked, jobs=4)
    assert 4 <= len(before) < 14
    done = snakemake("--cores", "all", *asked)
    assert done.returncode == 0, done.stdout
    assert (project / "reports/site/index.html").is_file()
    lost = [path for path, written in before.items() if times(project)[path] != written]
    assert len(lost) <= 2  # the jobs that were running on two cores
    (tables,) = (project / "results/tables").iterdir()
    runs = pl.read_parquet(tables / "runs.parquet")
    stages = [
        ("sweep", "jax", 2 * 2 * 2 * 2),  # optimizers, bases, rates, seeds
        ("refine", "jax", 2 * 2 * 6 * 2),
        ("final", "jax", 2 * 2 * 3),
        ("final", "torch", 2 * 2 * 2),
    ]
    assert runs.group_by("stage", "backend").len().sort("stage", "backend").rows() == stages
    assert set(runs["outcome"]) <= {"reached", "budget", "diverged"}

    assert "28 of 28 judged comparisons" in (project / "reports/site/parity.html").read_text()

    original = (project / "optimizers/adam.py").read_text()
    touch(project / "optimizers/adam.py")
    messages = jobs_of(snakemake("-n", *asked).stdout)
    touched = [
        "parity of adam: PyTorch against JAX, NumPy against PyTorch",
        "report: reports/site/index.html",
        "tiny: coarse sweep of adam on jax",
        "tiny: figures",
        "tiny: final seeds of adam on jax",
        "tiny: final seeds of adam on torch",
        "tiny: refined sweep of adam on jax",
        "tiny: step times on jax, nothing else running",
        "tiny: step times on torch, nothing else running",
        "tiny: tables",
        "what failed",
    ]
    assert sorted(messages) == touched
    (project / "optimizers/adam.py").write_text(original)
    assert "Nothing to be done" in snakemake("-n", *asked).stdout


@pytest.mark.slow
def test_stored_kernel_results_are_drawn_once_and_again_when_they_change(snakemake, project):
    stored = project / "results" / "kernels"
    write_stored(stored, [letter * 40 for letter in "abc"])
    planned = snakemake("-n", "reports").stdout
    assert "kernels: speed over commits, as stored" in jobs_of(planned)
    (plan,) = (project / "results" / "specs").glob("plan.*.json")
    folder = json.loads(plan.read_text())["kernels"]
    done = snakemake("--cores", "1", folder)
    assert done.returncode == 0, done.stdout
    assert (project / folder / "kernels.json").is_file()
    assert "kernels: speed over commits, as stored" not in jobs_of(snakemake("-n", "reports").stdout)
    (stored / "one" / ("a" * 8 + "-existing-py.json")).unlink()
    assert "kernels: speed over commits, as stored" in jobs_of(snakemake("-n", "reports").stdout)


@pytest.mark.slow
def test_claims_are_checked_alone_and_one_that_raises_is_not_run(snakemake, project, activated):
    asked = ("--config", "studies=toy.mean", "--", "reports")
    module = project / "benchmarks/claims/toy.py"
    module.write_text(TOY)
    command = ["python", "-m", "curvebench", "verdicts", "--json"]

    def toy_mean() -> dict[str, Any]:
        rows = json.loads(subprocess.check_output(command, cwd=project, env=activated, text=True))
        return next(row for row in rows if row["id"] == "toy.mean")

    done = snakemake("--cores", "2", *asked)
    assert done.returncode == 0, done.stdout
    told = toy_mean()
    assert told["verdict"] == "reproduced"
    assert told["others"] == [{"variant": "as printed", "backend": None, "verdict": "not reproduced"}]
    assert "as printed" in (project / "reports/site/claims.html").read_text()
    assert "Nothing to be done" in snakemake("-n", *asked).stdout

    touch(module)
    assert sorted(jobs_of(snakemake("-n", *asked).stdout)) == [
        "claims of toy, on random instances",
        "claims: figures of their checks",
        "report: reports/site/index.html",
        "what failed",
    ]
    module.write_text(TOY.replace('.mean()), "==", 1.0', '.mn()), "==", 1.0'))
    failed = snakemake("--cores", "2", *asked)
    assert failed.returncode != 0
    assert (
        "failed: claims, checks on host: toy.mean: error: it is as said (as printed): AttributeError"
        in failed.stdout
    )
    told = toy_mean()
    assert told["verdict"] == "not run"
    assert "AttributeError" in told["reason"]


FAILING = """
def _raise(*arguments):
    if FIXED.exists():
        return SGD.update(*arguments)
    raise MemoryError("40 GiB")


FIXED = __import__("pathlib").Path("fixed")
RULES = (*RULES, __import__("dataclasses").replace(SGD, name="sgd_that_raises", update=_raise))
"""


@pytest.mark.slow
def test_a_rule_that_raises_takes_nothing_else_away_and_is_tried_again_alone(snakemake, project, activated):
    """Two studies, one with a rule that raises until a file is there: the site has the rest, and says so."""
    rules = project / "optimizers/gradient_descent.py"
    rules.write_text(rules.read_text() + FAILING)
    small = [
        ("      torch: {tuned_on: jax, seeds: {final: 2}}\n", ""),
        (
            "bases: [identity, {egop: {blocks: all, samples: 2.0 d, sampling: {normal: 1.0}}}]",
            "bases: [identity]",
        ),
        (TINY[TINY.index("claims:") : TINY.index("scales:")], ""),
        (TWO_STAGES, SEARCH),
    ]
    folder = project / "benchmarks/studies"
    write_study(folder, *small, ("[sgd, adam]", "[sgd]"))
    write_study(folder, *small, ("[sgd, adam]", "[sgd, sgd_that_raises]"), name="other")
    asked = ("--cores", "2", "reports", "--config", "studies=tiny,other")

    first = snakemake(*asked)
    assert first.returncode != 0
    said = "sgd_that_raises on least_squares, 3 of 3 runs: out of memory: MemoryError: 40 GiB"
    assert f"failed: other, final on jax: {said}" in first.stdout
    index = (project / "reports/site/index.html").read_text()
    assert "MemoryError: 40 GiB" in index
    assert "study_tiny.html" in index
    written = times(project)

    kept = snakemake(*asked, "keep_failed=true")
    assert kept.returncode != 0
    assert times(project) == written, "what failed is not tried again"
    (project / "fixed").touch()
    again = snakemake(*asked)
    assert again.returncode == 0, again.stdout
    changed = {
        path.parent.name.split(".")[0] for path, at in times(project).items() if written.get(path) != at
    }
    assert changed == {"sgd_that_raises", "all"}, "the rule's own jobs, and the times of all"
    assert "MemoryError" not in (project / "reports/site/index.html").read_text()
    assert "Nothing to be done" in snakemake(*asked).stdout
