"""Jobs from spec to tables: each stage on what the stage before it wrote."""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from itertools import pairwise, product
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import polars as pl
import pytest

from curvebench.engine.bundle import Bundle, Trajectories
from curvebench.engine.clock import PHASES
from curvebench.engine.execution import execute
from curvebench.optimizers.bases import bases
from curvebench.paths import basis_file
from curvebench.results.reading import named, read
from curvebench.sources import ROOT, content_hash
from curvebench.spec.errors import InputError
from curvebench.spec.job import (
    HOST,
    BasesSpec,
    ChecksSpec,
    JobSpec,
    ParitySpec,
    RunsSpec,
    TimingSpec,
    job_folder,
    spec_file,
)
from curvebench.spec.method import BasisSpec, OptimizerSpec, WorkloadSpec
from curvebench.spec.training import TrainingProtocol
from curvebench.spec.tuning import ParzenSearch, Search, SuccessiveHalving, TwoStageSweep
from curvebench.stages import run_jobs, timing_jobs
from curvebench.stages.jobs import run_job
from curvebench.stages.supervision import Interrupted, Supervision
from curvebench.timing.step_times import Measured
from curvebench.workloads import workloads

TUNING = TwoStageSweep.model_validate(
    {
        "protocol": "two_stage_sweep",
        "of": "learning_rate",
        "coarse": [0.01, 10.0],
        "choose": "median final train_loss",
        "shared_across": "none",
    }
)
LEAST_SQUARES = WorkloadSpec("least_squares", workloads()["least_squares"].complete({"n": 12, "d": 8}))
SWEEP = RunsSpec(
    stage="runs",
    rounds=(0,),
    study="small",
    scale="quick",
    backend="jax",
    device="cpu",
    optimizers=(OptimizerSpec("momentum", {}),),
    workloads=(LEAST_SQUARES,),
    bases=(
        BasisSpec("identity", "identity"),
        BasisSpec("egop", "egop", bases()["egop"].complete({"samples": 40})),
    ),
    seeds=(),
    tuning_seeds=(0, 1),
    settings=({"learning_rate": 0.01}, {"learning_rate": 1.0}, {"learning_rate": 10.0}),
    tuning=TUNING,
    training=TrainingProtocol(budget={"steps": 400}, evaluations=4, targets={"train_loss": 1e-3}),
    bundle_memory_bytes=1 << 30,
    sources={},
    versions={},
)


def of_stage(stage: str, **changes: Any) -> JobSpec:
    """Return a job of another stage with the keys that it has in common with the sweep."""
    kinds: dict[str, type[JobSpec]] = {
        "bases": BasesSpec,
        "timing": TimingSpec,
        "parity": ParitySpec,
        "checks": ChecksSpec,
    }
    kind = kinds[stage]
    common = {name: value for name, value in dict(SWEEP).items() if name in kind.model_fields}
    where = {"backend": HOST} if stage == "bases" else {}
    seeds = {"seeds": SWEEP.tuning_seeds}
    return kind.model_validate({**common, **where, **seeds, "stage": stage, **changes})


def written(spec: JobSpec, results: Path) -> Path:
    """Write the file of a job specification, and return its path."""
    path = spec_file(results, spec)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(spec.to_json())
    return path


def run(spec: JobSpec, results: Path, supervision: Supervision | None = None) -> Path:
    return run_job(written(spec, results), results, supervision=supervision)


def test_runs_have_the_precision_that_is_asked_for(tmp_path):
    spec, losses = SWEEP.changed(bases=SWEEP.bases[:1], budget={"steps": 20}), {}
    for precision, dtype in ((None, "float64"), ("float32", "float32"), ("float64", "float64")):
        frame = read(run(spec.changed(precision=precision), tmp_path), "runs")
        assert set(frame["dtype"]) == {dtype}
        losses[precision] = frame.with_columns(named("train_loss", "final_metrics"))["train_loss"].to_numpy()
    np.testing.assert_array_equal(losses[None], losses["float64"])
    single = losses["float32"]
    np.testing.assert_array_equal(single, single.astype(np.float32))
    assert (single != losses["float64"]).any()


def test_a_random_rotation_is_free_and_moves_other_rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    random = BasisSpec("random", "random_orthogonal", bases()["random_orthogonal"].complete({}))
    rotated, rates = (SWEEP.bases[0], random), ({"learning_rate": 0.01},)
    first = of_stage("bases", bases=rotated)
    monkeypatch.setattr("curvebench.stages.basis_jobs.sampler", lambda *_: pytest.fail("it samples"))
    run(first, tmp_path)
    short = after(SWEEP, {"bases": first}, bases=rotated, budget={"steps": 20}, settings=rates)
    losses = {}
    for name in ("momentum", "adam"):
        runs = read(run(short.changed(optimizers=(OptimizerSpec(name, {}),)), tmp_path), "runs")
        assert set(runs["basis_gradient_evaluations"]) == set(runs["basis_seconds"]) == {0}
        frame = runs.with_columns(named("train_loss", "final_metrics")).sort("seed")
        losses[name] = [
            frame.filter(basis=label)["train_loss"].to_numpy() for label in ("identity", "random")
        ]
    np.testing.assert_allclose(losses["momentum"][0], losses["momentum"][1], rtol=1e-9)
    assert (np.abs(losses["adam"][0] / losses["adam"][1] - 1) > 1e-3).all()


Spec = TypeVar("Spec", bound=JobSpec)


def after(spec: Spec, upstream: Mapping[str, JobSpec], **changes: Any) -> Spec:
    hashes = {stage: (other.hash,) for stage, other in upstream.items()}
    return spec.changed(upstream=hashes, **changes)


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, JobSpec]]:
    """All stages of a small study, run one after the other."""
    results = tmp_path_factory.mktemp("results")
    specs = {"bases": of_stage("bases", seeds=(0, 1, 1000, 1001))}
    specs["runs"] = after(SWEEP, specs, rounds=(0, 1, 2), settings=None, seeds=(1000, 1001))
    specs["timing"] = after(of_stage("timing", seeds=(1000,)), specs)
    for spec in specs.values():
        run(spec, results)
    return results, specs


def table_of(chain: tuple[Path, dict[str, JobSpec]], stage: str, table: str) -> pl.DataFrame:
    return read(job_folder(chain[0], chain[1][stage]), table)


def runs_of(chain: tuple[Path, dict[str, JobSpec]], number: int) -> pl.DataFrame:
    """Return the runs of a round."""
    return table_of(chain, "runs", "runs").filter(round=number)


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_bases_are_estimated_where_their_runs_are(tmp_path: Path, backend: str):
    """They are estimated and stored in the precision of the runs. Those of the host are as near as the gaps
    between eigenvalues allow.
    """
    found = {}
    for at in (HOST, backend):
        spec = of_stage("bases", backend=at, seeds=(0,), precision="float32")
        run(spec, tmp_path)
        with np.load(basis_file(job_folder(tmp_path, spec), "least_squares", "egop", 0)) as arrays:
            found[at] = arrays["matrix0"], arrays["eigenvalues0"]
    (host, values), (there, single) = found[HOST], found[backend]
    assert host.dtype == there.dtype == np.float32
    np.testing.assert_allclose(single, values, rtol=0, atol=1e-5 * values[0])
    assert (single != values).any(), "gradients in float32"
    gaps = values[:-1] - values[1:]
    for rank in range(1, len(values)):
        sine = np.linalg.norm(there[:, :rank] - host[:, :rank] @ (host[:, :rank].T @ there[:, :rank]), 2)
        assert sine < 1e-5 * values[0] / gaps[rank - 1]


def test_the_bases_are_orthogonal_and_charged(chain: tuple[Path, dict[str, JobSpec]]):
    folder = job_folder(chain[0], chain[1]["bases"])
    with np.load(basis_file(folder, "least_squares", "egop", 1000)) as arrays:
        matrix = arrays["matrix0"]
        np.testing.assert_allclose(matrix.T @ matrix, np.eye(8), atol=1e-12)
        assert (np.diff(arrays["eigenvalues0"]) <= 0).all()
    runs = runs_of(chain, 2)
    charged = dict(runs.group_by("basis").agg(pl.col("basis_gradient_evaluations").first()).iter_rows())
    assert charged == {"identity": 0, "egop": 40}
    assert runs.filter(pl.col("basis") == "egop")["basis_seconds"].min() > 0  # type: ignore[operator]


def test_a_round_holds_every_run_once(chain: tuple[Path, dict[str, JobSpec]]):
    runs = runs_of(chain, 0)
    cells = runs.select("basis", "seed", "learning_rate").rows()
    assert sorted(cells) == sorted(product(("egop", "identity"), (0, 1), (0.01, 0.1, 1.0, 10.0)))
    everything = table_of(chain, "runs", "runs")
    assert everything["run"].n_unique() == everything.height == 2 * (2 * (4 + 6) + 2)
    assert set(runs.filter(pl.col("learning_rate") == 10.0)["outcome"]) == {"diverged"}


def test_a_diverged_run_keeps_its_curve(chain: tuple[Path, dict[str, JobSpec]]):
    run_row = runs_of(chain, 0).filter(pl.col("learning_rate") == 10.0).row(0, named=True)
    curve = table_of(chain, "runs", "curves").filter(
        (pl.col("run") == run_row["run"]) & (pl.col("metric") == "train_loss")
    )
    assert 0 < run_row["outcome_step"] <= 400
    assert curve["step"].to_list()[0] == 0
    assert np.isfinite(curve["value"][0])
    assert not np.isfinite(curve["value"][-1])
    assert curve["value"].null_count() == 0


def test_momentum_agrees_with_numpy(chain: tuple[Path, dict[str, JobSpec]]):
    """The final loss of a run, computed again from the problem's arrays by a plain loop."""
    from curvebench.stages.job import instance

    finals = runs_of(chain, 2).with_columns(named("train_loss", "final_metrics"))
    row = finals.filter((pl.col("basis") == "identity") & (pl.col("seed") == 1001)).row(0, named=True)
    problem = instance(workloads()["least_squares"], LEAST_SQUARES.settings, 1001).problem
    a, y = problem.splits["train"]["features"], problem.splits["train"]["targets"]
    theta, velocity = problem.parameters["theta"].copy(), np.zeros(8)
    for _ in range(400):
        velocity = 0.9 * velocity + a.T @ (a @ theta - y)
        theta -= row["learning_rate"] * velocity
    assert row["train_loss"] == pytest.approx(0.5 * np.sum((a @ theta - y) ** 2), rel=1e-9, abs=1e-24)
    assert row["gradient_evaluations"] == row["steps"] == 400
    assert row["examples"] == 400 * 12


def test_timings_hold_every_method_and_phase(chain: tuple[Path, dict[str, JobSpec]]):
    timings = table_of(chain, "timing", "timings")
    found = set(timings.select("optimizer", "basis", "phase").unique().iter_rows())
    once = ("data", "compile", "warm_up", "evaluation")
    expected = {("null", "identity", phase) for phase in (*once, "null_step")}
    for basis in ("identity", "egop"):
        expected |= {("momentum", basis, phase) for phase in (*once, "step")}
    assert found == expected
    assert timings["seconds"].min() > 0  # type: ignore[operator]


def test_the_memory_of_every_method_is_measured(chain: tuple[Path, dict[str, JobSpec]]):
    memory = table_of(chain, "timing", "memory")
    methods = memory.select("optimizer", "basis").rows()
    assert methods == [("null", "identity"), ("momentum", "identity"), ("momentum", "egop")]
    device = memory["device_peak_bytes"].to_list()
    assert device[0] < device[1] < device[2], "momentum adds its buffer, and the basis its matrix"
    if sys.platform == "linux":
        # Others' pages may be given back meanwhile, so that the least growth is not exactly 0.
        assert (memory["host_peak_bytes"] > memory["host_baseline_bytes"] - 2**20).all()
        assert memory["host_baseline_bytes"].min() > 50e6  # type: ignore[operator]


STAGES = ["timing", *(pytest.param(name, marks=pytest.mark.long) for name in ("bases", "runs"))]


@pytest.mark.parametrize("stage", STAGES)
def test_the_seconds_of_a_job_add_up(chain: tuple[Path, dict[str, JobSpec]], tmp_path: Path, stage: str):
    """Run in a process of its own, whose whole life the job's seconds account for."""
    results, specs = tmp_path / "results", chain[1]
    shutil.copytree(chain[0], results)
    shutil.rmtree(job_folder(results, specs[stage]))
    begin = time.time()
    subprocess.run(
        [
            *(sys.executable, "-m", "curvebench", "run", str(spec_file(results, specs[stage]))),
            *("--results", str(results)),
        ],
        check=True,
        capture_output=True,
    )
    wall = time.time() - begin
    row = read(job_folder(results, specs[stage]), "jobs").row(0, named=True)
    phases = {phase: row[f"{phase}_seconds"] for phase in (*PHASES, "other")}
    assert min(phases.values()) >= 0, "phases that overlapped would leave less than nothing"
    assert sum(phases.values()) == pytest.approx(row["total_seconds"])
    assert row["total_seconds"] <= wall + 0.1  # the system counts a process' start in hundredths
    assert row["peak_memory_bytes"] > 50e6
    if stage == "timing":
        measured = dict(
            read(job_folder(results, specs[stage]), "timings")
            .group_by("phase")
            .agg(pl.col("seconds").sum())
            .iter_rows()
        )
        assert phases["step"] == pytest.approx(measured["step"] + measured["null_step"])
        assert phases["evaluation"] == pytest.approx(measured["evaluation"])
        assert phases["compile"] == pytest.approx(measured["compile"])
        assert phases["data"] >= measured["data"]
        assert phases["other"] >= measured["warm_up"]


def test_a_timing_job_is_pinned_and_says_where_it_cannot_be(
    chain: tuple[Path, dict[str, JobSpec]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    held: list[set[int]] = []

    def watch(*arguments: Any) -> Measured:
        if hasattr(os, "sched_getaffinity"):
            held.append(os.sched_getaffinity(0))
        return Measured([], [])

    monkeypatch.setattr(timing_jobs, "measure_methods", watch)
    results = tmp_path / "results"
    shutil.copytree(chain[0], results)
    timing = chain[1]["timing"].changed(bases=SWEEP.bases[:1])
    folder = run(timing, results)
    if hasattr(os, "sched_setaffinity"):
        assert [len(processors) for processors in held] == [1]
        assert timing_jobs.NOT_PINNED not in read(folder, "jobs")["notes"][0]
    monkeypatch.delattr(os, "sched_setaffinity", raising=False)
    folder = run(timing, results)
    assert timing_jobs.NOT_PINNED in read(folder, "jobs")["notes"][0]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"batch_size": 5000}, "batch_size = 5000 is larger than the 1222 training examples"),
        ({"source": "full"}, "CURVEBENCH_DATA"),
    ],
)
def test_what_a_workload_cannot_do_is_the_reason_of_its_runs(
    settings: dict[str, Any], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("CURVEBENCH_DATA", raising=False)
    digits = WorkloadSpec("digits_mlp", {**workloads()["digits_mlp"].complete({}), **settings})
    runs = read(run(SWEEP.changed(bases=SWEEP.bases[:1], workloads=(digits,)), tmp_path), "runs")
    assert set(runs["outcome"]) == {"error"}
    assert all(said in reason for reason in runs["reason"])


def test_what_changed_since_the_plan_is_bad_input(tmp_path: Path):
    name, spec = "optimizers/gradient_descent.py", SWEEP.changed(bases=SWEEP.bases[:1])
    planned = spec.changed(sources={name: content_hash(ROOT / name)})
    assert (run(planned, tmp_path) / "jobs.parquet").exists()
    with pytest.raises(InputError, match=r"optimizers/gradient_descent\.py changed since it was planned"):
        run(spec.changed(sources={name: "0" * 64}), tmp_path)
    with pytest.raises(InputError, match="jax changed since"):
        run(spec.changed(versions={"jax": "0.0.1"}), tmp_path)


def test_a_source_edited_while_the_job_runs_leaves_no_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    checks = iter([None, InputError("changed")])

    def check(spec: JobSpec) -> None:
        error = next(checks)
        if error is not None:
            raise error

    monkeypatch.setattr("curvebench.stages.jobs.check_unchanged", check)
    spec = SWEEP.changed(bases=SWEEP.bases[:1])
    with pytest.raises(InputError, match="changed"):
        run(spec, tmp_path)
    assert not (job_folder(tmp_path, spec) / "jobs.parquet").exists()


@pytest.mark.parametrize(("stage", "files"), [("runs", "parts/*/*.parquet"), ("bases", "*.npz")])
def test_a_source_edited_while_the_job_runs_leaves_no_part_for_the_next_call(
    stage: str, files: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The edit may be undone before the next call, which would find the hash of the plan again."""

    def changed(spec: JobSpec) -> None:
        raise InputError("changed")

    spec = SWEEP.changed(backend="torch", bases=SWEEP.bases[:1]) if stage == "runs" else of_stage(stage)
    module = {"runs": "run_jobs", "bases": "basis_jobs"}[stage]
    with monkeypatch.context() as patch:
        patch.setattr(f"curvebench.stages.{module}.check_unchanged", changed)
        folder = run(spec, tmp_path)
    assert not list(folder.glob(files))
    assert "changed" in read(folder, "jobs")["failures"][0][0]["reason"]


@pytest.mark.parametrize("damage", ["truncated", "missing"])
def test_a_damaged_basis_names_a_remedy(chain: tuple[Path, dict[str, JobSpec]], tmp_path: Path, damage: str):
    bases_spec = chain[1]["bases"]
    shutil.copytree(job_folder(chain[0], bases_spec), job_folder(tmp_path, bases_spec))
    path = basis_file(job_folder(tmp_path, bases_spec), "least_squares", "egop", 1)
    if damage == "truncated":
        path.write_bytes(path.read_bytes()[:100])
    else:
        path.unlink()
    runs = read(run(after(SWEEP, {"bases": bases_spec}), tmp_path), "runs")
    assert set(runs.filter(basis="identity")["reason"]) == {None}
    assert set(runs.filter(basis="egop")["outcome"]) == {"interrupted"}, "no method is to blame"
    (reason,) = set(runs.filter(basis="egop")["reason"])
    assert str(path) in reason
    assert f"; delete {path.parent} and run snakemake" in reason


@pytest.mark.parametrize("stage", ["bases", "runs", "timing"])
@pytest.mark.parametrize(("backend", "library"), [("jax", "JAX"), ("torch", "PyTorch")])
def test_a_gpu_that_is_not_there_is_bad_input(
    tmp_path: Path, stage: str, backend: str, library: str, monkeypatch: pytest.MonkeyPatch
):
    """Nothing is computed or written, so that the same command does it all where there is one."""
    changes: dict[str, Any] = {"backend": backend, "device": "gpu"}
    spec = SWEEP.changed(**changes) if stage == "runs" else of_stage(stage, **changes)
    monkeypatch.setattr("curvebench.stages.jobs._compute", pytest.fail)
    said = f"^study small, scale quick: device: gpu: {library} sees no GPU on this machine"
    with pytest.raises(InputError, match=said):
        run(spec, tmp_path)
    assert not job_folder(tmp_path, spec).exists()


@pytest.mark.parametrize("protocol", ["random_search", "halton_search"])
def test_a_search_over_two_hyperparameters_ends_in_the_best_of_its_points(tmp_path: Path, protocol: str):
    axis = {"learning_rate": {"low": 1e-2, "high": 2.0, "scale": "log"}}
    space = axis | {"momentum": {"low": 0.0, "high": 0.95, "scale": "linear"}}
    shared = {"choose": TUNING.choose, "shared_across": TUNING.shared_across}
    search = Search.model_validate(
        {"protocol": protocol, "budget_per_dimension": 5, "space": space, **shared}
    )
    spec = SWEEP.changed(bases=SWEEP.bases[:1], tuning=search, rounds=(0, 1), settings=None, seeds=(1000,))
    runs = read(run(spec, tmp_path), "runs").with_columns(named("train_loss", "final_metrics"))
    tried = runs.filter(stage="tuning")
    momentum = pl.col("hyperparameters").list.first().struct.field("value").alias("momentum")
    scores = tried.group_by("learning_rate", momentum).agg(pl.col("train_loss").median())
    assert scores.height == 10
    best = scores.sort("train_loss").row(0, named=True)
    (row,) = runs.filter(stage="final").select("learning_rate", momentum).iter_rows(named=True)
    assert row == {"learning_rate": best["learning_rate"], "momentum": best["momentum"]}


def test_rounds_that_try_equal_settings_are_runs_of_their_own(tmp_path: Path):
    """As of a method that is not tuned, whose space is one point."""
    space = {"learning_rate": {"low": 0.1, "high": 0.1, "scale": "log"}}
    shared = {"choose": TUNING.choose, "shared_across": TUNING.shared_across}
    search = ParzenSearch.model_validate(
        {"protocol": "tpe", "budget_per_dimension": 4, "at_once": 2, "space": space, **shared}
    )
    changes = {"rounds": (0, 1, 2), "settings": None, "seeds": (1000,), "budget": {"steps": 4}}
    spec = SWEEP.changed(backend="torch", bases=SWEEP.bases[:1], tuning=search, evaluations=4, **changes)
    runs = read(run(spec, tmp_path), "runs")
    assert runs["run"].n_unique() == runs.height
    assert dict(runs.group_by("round").len().iter_rows()) == {0: 4, 1: 4, 2: 1}


def test_halving_gives_the_better_half_twice_the_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A job that ends in its second round goes on there, and has the runs of one that was never ended."""
    halving = SuccessiveHalving.model_validate(
        {
            "protocol": "successive_halving",
            "budget_per_dimension": 8,
            "halvings": 2,
            "space": {"learning_rate": {"low": 1e-3, "high": 30.0, "scale": "log"}},
            **{name: getattr(TUNING, name) for name in ("choose", "shared_across")},
        }
    )
    changes = {"rounds": (0, 1, 2, 3), "settings": None, "seeds": (1000,), "budget": {"steps": 40}}
    spec = SWEEP.changed(backend="torch", bases=SWEEP.bases[:1], tuning=halving, **changes)
    whole = read(run(spec, tmp_path / "whole"), "runs").with_columns(named("train_loss", "final_metrics"))
    rounds = [whole.filter(round=number) for number in range(4)]
    assert [runs.group_by("seed").len()["len"].to_list() for runs in rounds] == [[8, 8], [4, 4], [2, 2], [1]]
    assert [runs["steps"].max() for runs in rounds] == [10, 20, 40, 40]
    for before, after_it in pairwise(rounds):
        medians = before.group_by("learning_rate").agg(pl.col("train_loss").fill_nan(math.inf).median())
        best = medians.sort("train_loss", "learning_rate")["learning_rate"]
        kept = set(after_it["learning_rate"])
        assert kept == set(best[: len(kept)])

    def interrupted(bundle: Bundle, *others: Any) -> Trajectories:
        if len(bundle.schedule) == 20:
            raise Interrupted("SIGTERM")
        return execute(bundle, *others)

    with monkeypatch.context() as patch:
        patch.setattr(run_jobs, "execute", interrupted)
        part = read(run(spec, tmp_path), "runs")
    assert dict(part.group_by("round").len().iter_rows()) == {0: 16, 1: 8}
    again = read(run(spec, tmp_path), "runs")
    keys = ["run", "round", "stage", "learning_rate", "steps", "outcome", "final_metrics"]
    assert again.select(keys).equals(whole.select(keys))
