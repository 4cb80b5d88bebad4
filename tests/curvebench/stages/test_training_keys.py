"""Jobs with accumulation, clipping, a warm-up in epochs and fewer splits: tables, seconds, estimates."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from curvebench.engine.bundle import Bundle
from curvebench.engine.schedules import multipliers
from curvebench.results.reading import named, read
from curvebench.spec.errors import InputError
from curvebench.spec.job import RunsSpec, TimingSpec
from curvebench.spec.method import BasisSpec, OptimizerSpec, WorkloadSpec
from curvebench.spec.training import Schedule
from curvebench.spec.tuning import TwoStageSweep
from curvebench.stages.estimating import _Meter
from curvebench.stages.job import Cell, Job, LoadedBasis, bundle_of, instance, workload_of
from curvebench.timing import step_times
from curvebench.workloads import workloads
from tests.curvebench.stages.test_jobs import SWEEP, TUNING, run

SETTINGS = {
    "widths": [4, 6, 5, 3],
    "train_examples": 60,
    "validation_examples": 20,
    "test_examples": 20,
    "batch_size": 20,
}
NETWORK = WorkloadSpec("linear_network", workloads()["linear_network"].complete(SETTINGS))
IDENTITY = BasisSpec("identity", "identity")
PLAIN = SWEEP.changed(
    backend="torch",  # which compiles nothing
    workloads=(NETWORK,),
    bases=(IDENTITY,),
    settings=({"learning_rate": 0.01}, {"learning_rate": 0.03}),
    tuning=TwoStageSweep.model_validate({**dict(TUNING), "choose": "median final validation_loss"}),
    budget={"epochs": 4},
    targets={"validation_loss": 1e-3},
    precision="float64",
    clip_gradient_norm=0.5,
    schedule=Schedule(name="cosine", warmup_epochs=1.5),
)
KEYS = PLAIN.changed(gradient_accumulation=5, evaluated_splits=("validation",))


def bundle(spec: RunsSpec) -> Bundle:
    """Return a bundle of two settings of Adam on one seed, with the training protocol of a spec."""
    workload = workload_of(NETWORK, spec.training.evaluated_splits)
    adam = OptimizerSpec("adam", {"beta1": 0.5, "beta2": 0.75})
    settings = [{"learning_rate": 0.1, "epsilon": 0.25}, {"learning_rate": 0.2, "beta2": 0.5, "epsilon": 0.5}]
    cell = Cell(workload, NETWORK, adam, IDENTITY, settings)
    return bundle_of(
        Job(spec, Path("results")), cell, [instance(workload, NETWORK.settings, 0)], LoadedBasis({}, 0, [0.0])
    )


def test_runs_of_a_split_in_parts_are_those_of_all_and_of_the_whole(tmp_path: Path) -> None:
    folders = [run(spec, tmp_path) for spec in (PLAIN, KEYS)]
    whole, parts = (read(folder, "curves") for folder in folders)
    assert set(parts["metric"]) == {"validation_loss"}
    for s in range(4):
        one, other = (
            curves.filter(pl.col("run").str.ends_with(f"{s // 2:03d}-{s % 2:03d}"), metric="validation_loss")
            for curves in (whole, parts)
        )
        assert one.height == 5
        np.testing.assert_allclose(one["value"], other["value"], rtol=1e-12)
        assert one["gradient_evaluations"].equals(other["gradient_evaluations"])
        assert one["examples"].equals(other["examples"])
    rows = read(folders[1], "runs").with_columns(named("validation_loss", "final_metrics"))
    assert rows["validation_loss"].is_finite().all()
    assert all(
        [item["name"] for item in row] == ["validation_loss"] for row in rows["best_metrics"].to_list()
    )


def test_a_bundle_has_what_its_spec_says() -> None:
    found = bundle(KEYS)
    assert (found.protocol.clip_gradient_norm, found.protocol.gradient_accumulation) == (0.5, 5)
    assert found.workload.evaluated_splits == ("validation",)
    numbers = {name: list(values) for name, values in found.hyperparameters.items()}
    assert numbers == {
        "learning_rate": [0.1, 0.2],
        "beta1": [0.5] * 2,
        "beta2": [0.75, 0.5],
        "epsilon": [0.25, 0.5],
    }
    # 60 examples in minibatches of 20: 1.5 epochs are 4.5 steps, rounded to even
    np.testing.assert_array_equal(found.schedule, multipliers({"name": "cosine", "warmup": 4 / 12}, 12))


def test_a_warm_up_that_is_longer_than_the_steps_is_an_error() -> None:
    assert len(bundle(KEYS.changed(budget={"steps": 4})).schedule) == 4
    with pytest.raises(InputError, match=r"study small: schedule.warmup_epochs: 1.5 are 4 steps, .* has 3;"):
        bundle(KEYS.changed(budget={"steps": 3}))


def test_steps_are_timed_as_they_are_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The null optimizer has the same parts and clipping; of splits the evaluated ones alone are timed."""
    seen = []
    measured = step_times.measure_methods

    def kept(bundles, *others):
        seen.extend(bundles.values())
        return measured(bundles, *others)

    monkeypatch.setattr("curvebench.stages.timing_jobs.measure_methods", kept)
    final = KEYS.changed(rounds=(2,), settings=({"learning_rate": 0.01},), seeds=(1000,))
    run(final, tmp_path)
    common = {name: value for name, value in final if name in TimingSpec.model_fields}
    timing = TimingSpec(**{**common, "stage": "timing", "upstream": {"runs": (final.hash,)}})
    rows = read(run(timing, tmp_path), "timings")
    assert set(rows["phase"]) >= {"step", "null_step", "evaluation"}
    (timed,) = seen
    assert (timed.protocol.clip_gradient_norm, timed.protocol.gradient_accumulation) == (0.5, 5)
    assert timed.workload.evaluated_splits == ("validation",)


def test_an_estimate_runs_the_parts_and_splits(tmp_path: Path) -> None:
    """For fewer steps than the warm-up has, too."""
    spec = KEYS.changed(budget={"epochs": 400}, schedule=Schedule(name="cosine", warmup_epochs=300.0))
    (cost,) = _Meter(tmp_path).cells(spec)
    assert cost.runs == 2 * TUNING.rounds[0]
    assert cost.process_seconds > 0
