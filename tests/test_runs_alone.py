"""The main job on a study whose runs are jobs of their own, and on one that asks for GPUs."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from tests.curvebench.runs_alone import IN_ONE_BASIS, write_alone
from tests.curvebench.tiny import SEARCH, TWO_STAGES, leave_tiny

ASKED = ("--until", "tables", "--config", "studies=tiny", "parity=false", "backends=jax", "--", "reports")
SMALL = (
    *IN_ONE_BASIS,
    (TWO_STAGES, SEARCH),
    ("[sgd, adam]", "[adam]"),
    ("seeds: {tuning: 2, final: 3}", "seeds: {tuning: 1, final: 1}"),
    ("torch: {tuned_on: jax, seeds: {final: 2}}", "torch: {}"),
    ("    evaluations: 4", "    evaluations: 4\n    timing: false"),
)
ON_GPUS = ("      jax: {}", "      jax: {device: gpu}")
Snakemake = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def snakemake(project: Path, activated: dict[str, str]) -> Snakemake:
    """Snakemake in a copy of the project whose only study is the tiny one on a workload of a file."""
    leave_tiny(project)

    def run(
        *arguments: str, changes: tuple[tuple[str, str], ...] = SMALL
    ) -> subprocess.CompletedProcess[str]:
        write_alone(project / "benchmarks/studies", *changes)
        return subprocess.run(
            ["snakemake", *arguments], cwd=project, env=activated, text=True, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    return run


@pytest.mark.slow
def test_the_main_job_merges_all_runs(snakemake: Snakemake, project: Path):
    done = snakemake("--cores", "2", *ASKED)
    assert done.returncode == 0, done.stdout
    first = "adam on long_squares, tuning round 1, setting 1, seed 0"
    assert f"tiny: runs of {first} on jax" in done.stdout
    assert f"tiny: 2 runs are there, the first of them {first}" in done.stdout
    (tables,) = (project / "results/tables").iterdir()
    runs = pl.read_parquet(tables / "runs.parquet")
    planned = runs.filter(pl.col("stage") != "alternative").group_by("stage").len().sort("stage")
    assert planned.rows() == [("tuning", 2), ("final", 1)]
    logs = {path.name.rpartition(".jax.")[0] for path in (project / "results/logs").glob("tiny.*.jax.*")}
    assert "tiny.quick.runs.adam-long_squares-identity-round1-setting2-seed0" in logs
    assert re.search(r"^total +0$", snakemake("-n", *ASKED).stdout, re.MULTILINE)


@pytest.mark.slow
def test_as_many_jobs_on_gpus_run_at_once_as_snakemake_is_told(snakemake: Snakemake, project: Path):
    """Here there is none, so that they end at once and say so."""
    limits = ("--cores", "2", "--resources", "gpu=1")
    done = snakemake(*limits, *ASKED, changes=(*SMALL, ON_GPUS))
    assert "a GPU each for 3 jobs" in done.stdout
    assert done.stdout.count("error: study tiny, scale quick: device: gpu: JAX sees no GPU") == 2
    begun_and_ended = re.findall(r"^(Job \d+: tiny|Error in rule runs)", done.stdout, re.MULTILINE)
    assert [what.partition(" ")[0] for what in begun_and_ended] == ["Job", "Error"] * 2
    assert not list((project / "results/runs").rglob("*.parquet"))
