"""Estimated costs of studies: counts equal those of the plan, equal cells are measured once, and no file is
written.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from curvebench.__main__ import main
from curvebench.engine.clock import Clock
from curvebench.planning.config import Config
from curvebench.planning.plan import make_plan
from curvebench.spec.errors import InputError
from curvebench.stages import estimating
from curvebench.stages.estimating import ON_GPU, estimates, studies_on_cpu
from tests.curvebench.tiny import write_study

RUNS = ("runs",)
STEPS = 20  # steps of a run of the tiny study
COMPILE, STEP, EVALUATION = 1.0, 2.0, 3.0  # seconds of a bundle, of a run's step and of a run's evaluation


def pretend_to_measure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace measurements by constants."""

    def measured(*cell: Any) -> Clock:
        *_, steps, settings = cell
        clock = Clock()
        clock.seconds["compile"] = COMPILE
        clock.seconds["step"] = STEP * steps * len(settings)
        clock.seconds["evaluation"] = EVALUATION * 2 * len(settings)
        return clock

    monkeypatch.setattr(estimating._Meter, "measured", measured)
    monkeypatch.setattr(estimating._Meter, "basis", lambda *_: 0.0)


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
    assert (study["jobs"], study["runs"]) == (len(planned.jobs), runs)
    assert said["total"] == {name: study[name] for name in said["total"]}
    assert study["process_seconds"] > 3.0 * len(planned.jobs)
    assert [path.name for path in Path().iterdir()] == ["studies"], "nothing is written"


def test_equal_jobs_are_done_once(studies: Path, tmp_path: Path) -> None:
    plan = make_plan(Config(study_folder=studies, studies=("tiny",), backends=("jax",)))
    spec = next(job.spec for job in plan.jobs if job.spec.stage == "runs")
    meter = estimating._Meter(tmp_path)
    costs = [list(meter.cells(each)) for each in (spec, spec.changed(study="twin"))]
    assert costs[0] == costs[1]
    assert len(list(tmp_path.glob("runs/*/*/*/*"))) == len(meter.jobs) == 3, (
        "a basis, and a sweep in either basis"
    )


def test_seconds_are_those_of_runs_and_steps(studies: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_to_measure(monkeypatch)
    ((tiny, cost),) = estimates(make_plan(Config(study_folder=studies, backends=("jax",))).studies)
    runs = [job for job in tiny.jobs if job.spec.stage in RUNS]
    each = STEPS * STEP + 5 * EVALUATION
    starts = 3.0 * len(tiny.jobs) + 2 * COMPILE * len(runs)
    assert cost.process_seconds == starts + sum(job.lanes for job in runs) * each


def test_studies_with_jobs_on_a_gpu_are_left_out_and_say_so(studies: Path) -> None:
    write_study(studies, ("tuned_on: jax", "tuned_on: jax, device: gpu"))
    on_both = Config(study_folder=studies, studies=("tiny",))
    with pytest.raises(InputError, match=f"nothing to estimate at scale quick: tiny: {ON_GPU}"):
        studies_on_cpu(make_plan(on_both))
    plan = make_plan(on_both.model_copy(update={"backends": ("jax",)}))
    assert studies_on_cpu(plan) == (list(plan.studies), {})
