"""The Snakefile: a plan that reads well, and the main job on a study that is cut down to seconds."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from curvebench.__main__ import main
from tests.curvebench.property_checks.toy_claims import TOY
from tests.curvebench.runs_alone import IN_ONE_BASIS
from tests.curvebench.tiny import leave_tiny, write_study
from tests.reports.stored_kernels import write_stored

RULES = ("bases", "runs", "timing", "parity", "tables", "figures", "site", "reports")
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
    """Return the messages of the jobs that Snakemake announced."""
    lines = [line.partition(": ")[2] for line in said.splitlines() if line.startswith("Job ")]
    return [line for line in lines if line]


def touch(path: Path) -> None:
    path.write_text(path.read_text() + "\nADDED = 1\n")  # a hash ignores comments


def test_the_plan_reads_well(snakemake):
    done = snakemake("-n", *REPORTS)
    assert done.returncode == 0, done.stdout
    messages = jobs_of(done.stdout)
    assert "tiny: runs of adam on jax" in messages
    assert "tiny: bases on host" in messages
    assert "tiny: step times on torch, nothing else running" in messages
    assert "parity of adam: PyTorch against JAX, NumPy against PyTorch" in messages
    assert "runs 4 jobs, 84 runs" in done.stdout
    assert all(f"\n{rule} " in done.stdout for rule in RULES)


def test_bad_input_ends_without_a_traceback(snakemake):
    done = snakemake("-n", "reports", "--config", "studies=tinny")
    assert done.returncode != 0
    assert done.stdout.splitlines()[-1].startswith("error: --config studies:")
    assert "did you mean 'tiny'?" in done.stdout
    assert "Traceback" not in done.stdout


def times(project: Path) -> dict[Path, int]:
    """Return the time at which each finished job wrote its last table, by its path, in nanoseconds."""
    return {path: path.stat().st_mtime_ns for path in (project / "results/runs").rglob("jobs.parquet")}


FAILING = """
def _raise(*arguments):
    if FIXED.exists():
        return SGD.update(*arguments)
    raise MemoryError("40 GiB")


FIXED = __import__("pathlib").Path("fixed")
RULES = (*RULES, __import__("dataclasses").replace(SGD, name="sgd_that_raises", update=_raise))
"""
FAILING_TOY = TOY.replace('.mean()), "==", 1.0', '.mn()), "==", 1.0')


@pytest.mark.slow
@pytest.mark.parametrize("backends", ["jax", pytest.param("jax,torch", marks=pytest.mark.long)])
def test_the_main_job_from_failures_to_changes(snakemake, project, monkeypatch, capsys, backends):
    """A failure takes nothing else away, and is tried again alone; a change as well."""
    monkeypatch.chdir(project)
    rules, claims = project / "optimizers/gradient_descent.py", project / "benchmarks/claims/toy.py"
    rules.write_text(rules.read_text() + FAILING)
    claims.write_text(FAILING_TOY)
    on_both = "," in backends
    write_study(project / "benchmarks/studies", ("[sgd, adam]", "[sgd_that_raises, adam]"), *IN_ONE_BASIS)
    stored = project / "results/kernels"
    write_stored(stored, [letter * 40 for letter in "abc"])
    asked = ("reports", "--config", "studies=tiny,toy.mean", f"backends={backends}")
    index = project / "reports/site/index.html"

    def toy_mean() -> dict[str, Any]:
        capsys.readouterr()
        assert main(["verdicts", "--json", "toy.mean"]) == 0
        (told,) = json.loads(capsys.readouterr().out)
        return told

    first = snakemake("--cores", "2", *asked)
    assert first.returncode != 0
    written = times(project)
    said = "sgd_that_raises on least_squares, 19 of 19 runs: out of memory: MemoryError: 40 GiB"
    assert f"failed: tiny, runs on jax: {said}" in first.stdout, first.stdout
    raised = "toy.mean: error: it is as said (as printed): AttributeError"
    assert f"failed: claims, checks on host: {raised}" in first.stdout
    assert "MemoryError: 40 GiB" in index.read_text()
    assert "study_tiny.html" in index.read_text()
    told = toy_mean()
    assert told["verdict"] == "not run"
    assert "AttributeError" in told["reason"]

    kept = snakemake("-n", *asked, "keep_failed=true")
    assert jobs_of(kept.stdout) == ["what failed"], "it is not tried again"
    if on_both:
        assert snakemake("--cores", "2", *asked, "keep_failed=true").returncode != 0
        assert times(project) == written

    (project / "fixed").touch()
    claims.write_text(TOY)
    again = snakemake("--cores", "2", *asked)
    assert again.returncode == 0, again.stdout
    tried = [path.parent for path, at in times(project).items() if written.get(path) != at]
    assert {path.name.split(".")[0] for path in tried} == {"sgd_that_raises", "all", "toy"}
    assert {path.parent.name for path in tried if path.name.startswith("all.")} == {"timing"}
    assert "MemoryError" not in index.read_text()
    told = toy_mean()
    assert told["verdict"] == "reproduced"
    assert told["others"] == [{"variant": "as printed", "backend": None, "verdict": "not reproduced"}]
    assert "as printed" in (project / "reports/site/claims.html").read_text()
    if on_both:
        assert "4 of 4 judged comparisons" in (project / "reports/site/parity.html").read_text()
    assert "step.adam.one_large" in (project / "reports/site/kernels.html").read_text()
    (tables,) = (project / "results/tables").iterdir()
    runs = pl.read_parquet(tables / "runs.parquet")
    stages = [
        ("tuning", 0, "jax", 2 * 2 * 2),  # optimizers, rates, seeds
        ("tuning", 1, "jax", 2 * 6 * 2),
        ("final", 2, "jax", 2 * 3),
        *([("final", 2, "torch", 2 * 2)] if on_both else []),
    ]
    planned = runs.filter(pl.col("stage") != "alternative")
    by_stage = planned.group_by("stage", "round", "backend").len()
    assert by_stage.sort("stage", "round", "backend").rows() == stages
    assert len(planned) < len(runs), "settings that other tuning seeds would choose have runs"
    assert set(runs["outcome"]) <= {"reached", "budget", "diverged"}
    assert "Nothing to be done" in snakemake("-n", *asked).stdout

    touch(project / "optimizers/adam.py")
    touch(claims)
    of_torch_alone = [
        "parity of sgd_that_raises: PyTorch against JAX, NumPy against PyTorch",
        "tiny: runs of sgd_that_raises on torch",
    ]
    listed = jobs_of(snakemake("-n", *asked[:-1], "backends=jax,torch").stdout)
    assert sorted(listed) == sorted(
        [
            *([] if on_both else of_torch_alone),
            "claims of toy, on random instances",
            "claims: figures",
            "parity of adam: PyTorch against JAX, NumPy against PyTorch",
            "report: reports/site",
            "tiny: figures",
            "tiny: runs of adam on jax",
            "tiny: runs of adam on torch",
            "tiny: step times on jax, nothing else running",
            "tiny: step times on torch, nothing else running",
            "tiny: tables",
            "what failed",
        ]
    )
