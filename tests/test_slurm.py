"""The profile for clusters on a Slurm of one node: jobs land, come again, run out of time, fail alone."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import psutil
import pytest
from ruamel.yaml import YAML
from snakemake.iocontainers import ResourceList
from snakemake_executor_plugin_slurm.utils import set_gres_string

from tests.conftest import ROOT
from tests.results.comparing import assert_same_results
from tests.slurm.cluster import Cluster, SlurmError, slurm
from tests.slurm.studies import write_studies

PATIENCE = 1200.0  # seconds for a whole pipeline; it takes about 200
COMMAND = (
    "snakemake", "--profile", "profiles/slurm", "--slurm-no-account", "--slurm-status-command", "squeue",
    "--slurm-init-seconds-before-status-checks", "2",
)  # fmt: skip
SHORT_RUNS = ("--retries", "1", "--set-resources", "runs:runtime=1", "--")  # minutes
CONVEX = ("--config", "studies=convex", "--")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Yield a running Slurm cluster. Without Slurm, skip the test, unless tests must not be skipped."""
    try:
        running = slurm(tmp_path / "slurm", cpus=4)
        with running as started:
            yield started
    except SlurmError as error:
        if os.environ.get("CI") and "not installed" not in str(error):
            raise
        pytest.skip(f"no Slurm here: {error}")


@dataclass
class Pipeline:
    """A running Snakemake, and what there is to see of it from outside."""

    process: subprocess.Popen[str]
    project: Path
    cluster: Cluster

    def wait(self, seen: Callable[[], Any]) -> Any:
        """Call `seen` until it returns a true value, and return it; fail if the pipeline ends before."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end and self.process.poll() is None:
            with suppress(FileNotFoundError, psutil.Error, pl.exceptions.PolarsError):
                if found := seen():
                    return found
            time.sleep(0.1)
        raise AssertionError(f"not seen; Snakemake said:\n{self.said}")

    @property
    def said(self) -> str:
        return (self.project / "said").read_text()[-6000:]

    def states(self, comment: str) -> list[str]:
        """Return the states of the Slurm jobs of a rule and study, in the order of submission."""
        return [state for _, state, said in sorted(self.cluster.jobs(), key=number) if comment in said]

    def running(self, comment: str) -> str | None:
        """Return the number of a running Slurm job of a rule and study."""
        jobs = self.cluster.jobs()
        return next((job for job, state, said in jobs if state == "RUNNING" and comment in said), None)

    def finish(self) -> int:
        """Wait for the end; returns the exit status."""
        return self.process.wait(PATIENCE)

    def computing(self, stage: str) -> psutil.Process | None:
        """Return the process that computes a job of a stage of the tiny study."""
        for process in psutil.process_iter(["cmdline"]):
            words = process.info["cmdline"] or []
            ours = words[1:4] == ["-m", "curvebench", "run"] and f"tiny.quick.{stage}." in words[4]
            if ours and Path(process.cwd()) == self.project:
                return process
        return None


def number(job: tuple[str, str, str]) -> int:
    return int(job[0])


@contextmanager
def pipeline(cluster: Cluster, project: Path, activated: dict[str, str], *options: str) -> Iterator[Pipeline]:
    """Yield the main job of a project, started on the cluster."""
    slurm_only = {name: cluster.variables[name] for name in ("SLURM_CONF", "PATH")}
    variables = activated | slurm_only
    variables["PATH"] = f"{activated['PATH'].partition(':')[0]}:{slurm_only['PATH']}"
    with (project / "said").open("w") as said:
        process = subprocess.Popen(
            (*COMMAND, *options, "reports"),
            cwd=project,
            env=variables,
            text=True,
            stdout=said,
            stderr=subprocess.STDOUT,
        )
    try:
        yield Pipeline(process, project, cluster)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)  # Snakemake cancels its jobs
            process.wait(60)


@pytest.mark.long
@pytest.mark.slurm
def test_jobs_on_a_cluster_land_come_again_run_out_of_time_and_fail_alone(
    cluster: Cluster, project: Path, activated: dict[str, str]
):
    write_studies(project)
    with pipeline(cluster, project, activated, *SHORT_RUNS) as running:
        _kill_wait_and_look(running)


def _kill_wait_and_look(pipeline: Pipeline) -> None:
    runs = pipeline.project / "results/runs"

    # two ways to kill a job
    pipeline.cluster.ask("scancel", pipeline.wait(lambda: pipeline.running("rule_bases_wildcards_tiny")))
    pipeline.wait(lambda: pipeline.computing("runs")).send_signal(signal.SIGKILL)

    # the limit of one minute, and what Slurm and the job make of it
    late = pipeline.wait(lambda: next(runs.glob("asleep/quick/runs/*/failed.json"), None))
    record, *_ = json.loads(late.read_text())
    assert record["outcome"] == "interrupted"
    assert "SIGTERM" in record["reason"]

    assert pipeline.finish() == 1, pipeline.said  # one study is broken
    assert sorted(pipeline.states("rule_bases_wildcards_tiny")) == ["CANCELLED", "COMPLETED", "COMPLETED"]
    assert sorted(pipeline.states("rule_runs_wildcards_tiny")) == ["COMPLETED", "COMPLETED"]
    assert sorted(pipeline.states("rule_runs_wildcards_asleep")) == ["COMPLETED", "COMPLETED", "TIMEOUT"]
    assert set(pipeline.states("rule_runs_wildcards_broken")) == {"COMPLETED"}

    shared = pipeline.cluster.ask("squeue", "--noheader", "--states=all", "--format=%k %h").splitlines()
    assert {line.split()[1] for line in shared if line.startswith("rule_timing")} == {"NO"}
    assert {line.split()[1] for line in shared if not line.startswith("rule_timing")} == {"OK"}

    # Runs that did not fail are complete, and the marker of a failure is there as long as the failure.
    for study, lanes in (("tiny", 16), ("asleep", 8)):
        (tables,) = (pipeline.project / "results/tables").glob(f"{study}.quick.*")
        table = pl.read_parquet(tables / "runs.parquet")
        assert table.filter(stage="tuning", round=0).height == lanes
        assert set(table["outcome"]) <= {"reached", "budget", "diverged"}
        assert list((pipeline.project / "results/figures").glob(f"{study}.quick.*/*.svg"))
    assert not late.exists()
    (tables,) = (pipeline.project / "results/tables").glob("broken.quick.*")
    broken = pl.read_parquet(tables / "runs.parquet")
    assert set(broken["outcome"]) == {"error"}
    assert set(broken["reason"]) == {"ArithmeticError: this workload is broken"}
    assert "this workload is broken" in (pipeline.project / "reports/site/index.html").read_text()


@pytest.mark.long
@pytest.mark.slurm
def test_a_cluster_gives_the_tables_of_a_local_run(
    cluster: Cluster, project: Path, activated: dict[str, str]
):
    local = project.with_name("local")
    shutil.copytree(project, local)
    with pipeline(cluster, project, activated, *CONVEX) as running:
        running.wait(lambda: running.running("rule_bases_wildcards_convex"))
        # jobs read the plan that submitted them: from here on there is no study to plan from
        (project / "benchmarks/studies/convex.yaml").unlink()
        assert running.finish() == 0, running.said
        states = [state for _, state, _ in cluster.jobs()]
    assert set(states) == {"COMPLETED"}
    assert len(states) > 20
    subprocess.run(("snakemake", "--cores", "all", *CONVEX, "reports"), cwd=local, env=activated, check=True)
    assert_same_results(local / "results", project / "results")


def test_the_profile_for_gpus_adds_a_gpu_for_each_job_that_trains_to_the_one_for_clusters():
    profiles = ROOT / "profiles"
    on_processors, on_gpus = (
        YAML(typ="safe").load(profiles / name / "config.yaml") for name in ("slurm", "gpu")
    )
    training = ("runs", "timing")
    asked = [f"{rule}:{what}" for rule in training for what in ("gres=gpu:1", "gpu=0")]
    assert on_gpus == on_processors | {"set-resources": asked}


@pytest.mark.parametrize(
    ("resources", "said"),
    [({"gpu": 1}, "--gpus=1"), ({"gpu": 0}, ""), ({"gpu": 0, "gres": "gpu:1"}, "--gres=gpu:1")],
)
def test_slurm_is_asked_for_the_gpu_of_a_job_once(resources: dict[str, Any], said: str):
    """By what rules of the Snakefile declare, and what the profile for GPUs sets in its place."""
    job = SimpleNamespace(resources=ResourceList(fromdict=resources))
    assert set_gres_string(job).strip() == said
