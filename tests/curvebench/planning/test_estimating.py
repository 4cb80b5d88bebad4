"""What studies will cost: counts equal the plan's, equal cells are measured once, and nothing is written."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest

from curvebench.__main__ import main
from curvebench.planning import estimating
from curvebench.planning.config import Config
from curvebench.planning.estimating import estimates
from curvebench.planning.plan import make_plan
from curvebench.spec.job import RunsSpec
from tests.curvebench.tiny import write_study

RUNS = ("sweep", "refine", "final")
STEPS = 20  # of a run of the tiny study
SAMPLES = 8  # gradients of its basis


def pretend_to_measure(monkeypatch: pytest.MonkeyPatch, lanes: Callable[[RunsSpec], int]) -> list[RunsSpec]:
    """Has a process start in 100 s, lanes in 1 s, a step take 2 and an evaluation 3; what is measured."""
    measured: list[RunsSpec] = []

    def pretended(meter: object, spec: RunsSpec) -> estimating._Measured:
        measured.append(spec)
        return estimating._Measured(
            lanes(spec), evaluations=lambda steps: steps, start=1.0, step=2.0, evaluation=3.0
        )

    monkeypatch.setattr(estimating._Meter, "measured", pretended)
    monkeypatch.setattr(estimating._Meter, "basis", lambda *_: estimating.Cost(gradients=8))
    monkeypatch.setattr(estimating, "_startup", lambda backend: 100.0)
    return measured


@pytest.fixture
def studies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "studies"
    write_study(folder)
    monkeypatch.chdir(tmp_path)
    return folder


@pytest.mark.slow
def test_counts_are_those_of_the_plan(studies: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["estimate", "tiny", "--studies", "studies", "--backend", "jax", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    [planned] = make_plan(Config(study_folder=studies, studies=("tiny",), backends=("jax",))).studies
    [study] = said["studies"]
    runs = sum(job.lanes for job in planned.jobs if job.spec.stage in RUNS)
    bases = sum(job.lanes for job in planned.jobs if job.spec.stage == "bases")
    assert (study["jobs"], study["runs"], study["steps"]) == (len(planned.jobs), runs, runs * STEPS)
    assert study["gradients"] == runs * STEPS + bases * SAMPLES
    assert said["total"] == {name: study[name] for name in said["total"]}
    assert study["process_seconds"] > 0
    assert [path.name for path in Path().iterdir()] == ["studies"], "nothing is written"


def test_seconds_are_those_of_lanes_and_steps_and_equal_cells_are_measured_once(
    studies: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_study(studies, ("tiny.claim", "twin.claim"), name="twin")
    measured = pretend_to_measure(monkeypatch, lambda spec: len(spec.seeds) * len(spec.settings or ()))
    plan = make_plan(Config(study_folder=studies, backends=("jax",)))
    (tiny, cost), (_, twin) = estimates(plan)
    assert len(measured) == 2 * 2 * 2, "two optimizers and bases, tuned and final; none for the twin"
    assert cost == twin
    runs = [job for job in tiny.jobs if job.spec.stage in RUNS]
    bundles = {"sweep": 1.0, "refine": 12 / 4, "final": 1.0}  # by method: refined runs over coarse ones
    expected = sum(
        2 * (1 * math.ceil(n) + n * (STEPS * 2 + 5 * 3)) for n in (bundles[j.spec.stage] for j in runs)
    )
    assert cost.process_seconds == 100.0 * len(tiny.jobs) + expected


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (
            ("tiny", "other", "--scale", "large", "--backend", "torch"),
            "tiny: it has no scale 'large' (it has: quick)",
        ),
        (("notes.regret",), "nothing to estimate at scale quick: notes.regret: only property checks"),
    ],
)
def test_what_cannot_be_measured_is_told_before_anything_is(
    studies: Path, capsys: pytest.CaptureFixture[str], asked: tuple[str, ...], told: str
) -> None:
    only_jax = ("      torch: {tuned_on: jax, seeds: {final: 2}}\n", "")
    write_study(studies, ("quick:", "large:"), ("tiny.claim", "other.claim"), only_jax, name="other")
    assert main(["estimate", *asked, "--studies", "studies"]) == 2
    said = capsys.readouterr()
    assert told in said.err
    assert said.out == ""


def test_what_runs_on_a_gpu_is_counted_without_one(studies: Path) -> None:
    write_study(studies, ("      jax: {}", "      jax: {device: gpu}"))
    plan = make_plan(Config(study_folder=studies, studies=("tiny",), backends=("jax",)))
    ((_, cost),) = estimates(plan)
    ((_, slower),) = estimates(plan, tflops=1e-10)
    runs = sum(job.lanes for job in plan.jobs if job.spec.stage in RUNS)
    assert (cost.runs, cost.steps) == (runs, runs * STEPS)
    on_gpu = sum(job.spec.device == "gpu" for job in plan.jobs if job.spec.stage != "bases")
    assert cost.process_seconds == pytest.approx(estimating.START_SECONDS * on_gpu, rel=0.2)
    assert slower.process_seconds > 2 * cost.process_seconds
