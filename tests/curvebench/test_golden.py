"""Golden trajectories: what a run computes changes only together with the trajectory version.

After a change that is meant: raise TRAJECTORY_VERSION in curvebench/spec/job.py, run
`python -m tests.curvebench.test_golden`, and say in CHANGELOG.md what changed.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from curvebench.backends.engine import engine
from curvebench.basis_estimation.gradients import sampler
from curvebench.engine.execution import execute
from curvebench.optimizers.bases import bases
from curvebench.results.reading import read
from curvebench.spec.job import TRAJECTORY_VERSION
from curvebench.spec.method import BasisSpec, OptimizerSpec, WorkloadSpec
from curvebench.spec.training import Schedule
from curvebench.stages.job import (
    Cell,
    Job,
    LoadedBasis,
    bundle_of,
    estimate,
    instance,
    sampling_of,
    workload_of,
)
from tests.curvebench.alone import alone
from tests.curvebench.stages.test_jobs import SWEEP, run
from tests.curvebench.stages.test_training_keys import SETTINGS

GOLDEN = Path(__file__).parent / "golden.json"
# Workload, settings, optimizer, and the options of an EGOP basis of full rank (of the digits network there
# is none: dead pixels leave its null space to the LAPACK).
CASES: dict[str, tuple[str, dict[str, Any], str, dict[str, Any] | None]] = {
    "digits": ("digits_mlp", {}, "adam", None),
    "least squares": ("least_squares", {"n": 12, "d": 8}, "adagrad", {"sampling": {"normal": 1.0}}),
    "linear network": ("linear_network", SETTINGS, "momentum", {"blocks": "all", "samples": "2.0 d"}),
}
# A job of no study: only what decides the trajectory is filled in.
SPEC = SWEEP.changed(
    study="golden",
    scale="golden",
    optimizers=(),
    workloads=(),
    bases=(),
    seeds=(0, 1000),
    settings=None,
    budget={"steps": 6},
    evaluations=2,
    schedule=Schedule(name="cosine", warmup=0.2, final=0.1),
    targets={},
)


def trajectory(case: str, backend: str) -> dict[str, list[float]]:
    """Metrics at the recorded steps, first seed and then second, with the basis estimated as a job does."""
    name, given, optimizer, options = CASES[case]
    workload = workload_of(WorkloadSpec(name, {}))
    settings = workload.complete(given)
    workload_spec = WorkloadSpec(name, settings)
    instances = [instance(workload, settings, seed) for seed in SPEC.seeds]
    loaded, basis = LoadedBasis({}, 0, []), BasisSpec("identity", "identity")
    if options is not None:
        basis = BasisSpec("egop", "egop", bases()["egop"].complete(options))
        first = instances[0]
        sample = sampler(sampling_of(basis, first), engine("jax", "float64"), first.problem, first.random)
        loaded = LoadedBasis.of([estimate(basis, one, sample) for one in instances], np.float64)
    contestant = OptimizerSpec(optimizer, {})
    spec = SPEC.changed(optimizers=(contestant,), workloads=(workload_spec,), bases=(basis,), backend=backend)
    cell = Cell(workload, workload_spec, contestant, basis, [{"learning_rate": 0.03}])
    bundle = bundle_of(Job(spec, Path("results")), cell, instances, loaded)
    metrics = execute(bundle, engine(backend, "float64")).metrics
    return {metric: values[:, :, 0].T.ravel().tolist() for metric, values in sorted(metrics.items())}


COLUMNS = ("seed", "learning_rate", "outcome", "outcome_step", "steps", "gradient_evaluations", "examples")


def small_tables(results: Path) -> dict[str, Any]:
    """Return facts from the tables of small jobs: outcomes of runs, recorded steps, steps of best values and
    of targets, and learning rates that tuning chose.
    """
    first = SWEEP.changed(
        bases=SWEEP.bases[:1],
        tuning_seeds=(0, 1, 2),
        stop={"gradient_norm": 1e-3},
        targets={"train_loss": 0.5},
    )
    second = first.changed(rounds=(1,), settings=None, upstream={"runs": (first.hash,)})
    upstream = {"runs": (first.hash, second.hash)}
    final = second.changed(rounds=(2,), upstream=upstream, tuning_seeds=(), seeds=(1000,))
    rows: dict[str, Any] = {}
    for number, spec in enumerate((first, second, final)):
        folder = run(spec, results)
        curves = read(folder, "curves").filter(pl.col("metric") == "train_loss")
        last = dict(curves.group_by("run").agg(pl.col("step").max()).iter_rows())
        rows[f"round {number}"] = [
            [
                *(row[name] for name in COLUMNS),
                last[row["run"]],
                [best["step"] for best in row["best_metrics"]],
                [target["steps"] for target in row["targets"]],
            ]
            for row in read(folder, "runs").iter_rows(named=True)
        ]
    return rows


@pytest.mark.usefixtures("all_passes")
def test_records_are_those_of_this_version(tmp_path: Path) -> None:
    """Whole jobs as users run them: steps and choices are whole numbers, which rounding leaves alone."""
    assert alone(small_tables, tmp_path) == json.loads(GOLDEN.read_text())["records"], (
        "raise TRAJECTORY_VERSION if this change is meant"
    )


@pytest.mark.parametrize("backend", ["jax", "torch"])
@pytest.mark.parametrize("case", CASES)
def test_trajectories_are_those_of_this_version(case: str, backend: str) -> None:
    golden = json.loads(GOLDEN.read_text())
    assert golden["trajectory_version"] == TRAJECTORY_VERSION, "regenerate golden.json (see this file's head)"
    computed = trajectory(case, backend)
    assert set(computed) == set(golden["trajectories"][case])
    for metric, values in computed.items():
        np.testing.assert_allclose(
            values,
            golden["trajectories"][case][metric],
            rtol=1e-7,  # LAPACKs differ by more than rounding where eigenvalues are close
            atol=1e-12,
            err_msg=f"{case}, {metric}: raise TRAJECTORY_VERSION if this change is meant",
        )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        golden = {
            "trajectory_version": TRAJECTORY_VERSION,
            "trajectories": {case: trajectory(case, "jax") for case in CASES},
            "records": small_tables(Path(folder)),
        }
    GOLDEN.write_text(json.dumps(golden, indent=1) + "\n")
