"""What studies will cost: counts equal the plan's, shapes are measured once, and nothing is written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from curvebench.__main__ import main
from harness.planning import estimating
from harness.planning.estimating import duration, estimates
from harness.planning.plan import Config, make_plan
from tests.harness.tiny import write_study

RUNS = ("sweep", "refine", "final")
STEPS = 20  # of a run of the tiny study
SAMPLES = 8  # gradients of its basis


@pytest.fixture
def studies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "studies"
    write_study(folder)
    monkeypatch.chdir(tmp_path)
    return folder


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert main(["estimate", "tiny", "--studies", "studies", "--json", *arguments]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.slow
def test_counts_are_those_of_the_plan(studies: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = answer(capsys)
    [planned] = make_plan(Config(study_folder=studies, studies=("tiny",))).studies
    [study] = said["studies"]
    runs = sum(job.lanes for job in planned.jobs if job.spec.stage in RUNS)
    bases = sum(job.lanes for job in planned.jobs if job.spec.stage == "bases")
    assert (study["jobs"], study["runs"], study["steps"]) == (len(planned.jobs), runs, runs * STEPS)
    timed = sum(part["gradients"] for part in study["parts"] if part["stage"] == "timing")
    assert study["gradients"] - timed == runs * STEPS + bases * SAMPLES
    for job in planned.jobs:
        parts = [
            part
            for part in study["parts"]
            if (part["stage"], part["backend"]) == (job.spec.stage, job.spec.backend)
            and (
                job.spec.stage in ("bases", "timing")
                or part["method"].startswith(job.spec.optimizers[0].label)
            )
        ]
        assert parts, job.spec.stage
        if job.spec.stage in RUNS:
            assert sum(part["runs"] for part in parts) == job.lanes
    total = {name: value for name, value in said["total"].items() if name != "memory_bytes"}
    assert total == {name: study[name] for name in total}
    assert study["process_seconds"] >= study["startup_seconds"] > 0
    assert [path.name for path in Path().iterdir()] == ["studies"], "nothing is written"


def test_equal_shapes_are_measured_once(
    studies: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_study(
        studies,
        ("tiny.claim", "twin.claim"),
        ("optimizers: [sgd, adam]", "optimizers: [{sgd: {label: s}}, adam]"),
        name="twin",
    )
    bundled: list[tuple[int, int]] = []

    def measured(job: Any, whole: Any, stretch: int, steps: int) -> Any:
        bundled.append(whole.lanes)
        return estimating._Bundled(
            lanes=int(np.prod(whole.lanes)), data=0, compile=1, step=2, evaluation=3, memory_bytes=None
        )

    monkeypatch.setattr(estimating, "_bundled", measured)
    monkeypatch.setattr(estimating, "_based", lambda *_: estimating._Based(8, 0.0, 0.0, 0.0, None))
    monkeypatch.setattr(estimating, "_startup", lambda backend: estimating.Startup(1.0, 1))
    plan = make_plan(Config(study_folder=studies, backends=("jax",)))
    tiny, twin = estimates(plan)
    assert len(bundled) == 2 * 2 * 2, "two optimizers and bases, tuned and final; none for the twin"
    [final] = [part for part in twin.parts if (part.stage, part.method) == ("final", "s")]
    assert (final.seconds["compile"], final.seconds["step"]) == (1, STEPS * 2)
    assert final.seconds["evaluation"] == 5 * 3, "before the first step and after each stretch"
    refined = next(part for part in tiny.parts if part.stage == "refine")
    assert (refined.runs, refined.seconds["step"]) == (12, 12 / 4 * STEPS * 2)
    assert tiny.memory_bytes is None


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.2, "0 s"), (99.4, "99 s"), (100, "2 min"), (5940, "99 min"), (6000, "1 h 40 min")],
)
def test_durations_read_well(seconds: float, said: str) -> None:
    assert duration(seconds) == said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["other"], "no study or claim 'other'"),
        (["--scale", "paper"], "no scale"),
        (["--backend", "numpyy"], "numpyy"),
    ],
)
def test_bad_input_is_told_before_anything_is_measured(
    studies: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert main(["estimate", "--studies", "studies", *arguments]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (("tiny", "--scale", "paper"), "quick"),
        (
            ("tiny", "other", "--scale", "large", "--backend", "torch"),
            "tiny: it has no scale 'large' (it has: quick)",
        ),
        (("notes.regret",), "nothing to estimate at scale quick: notes.regret: only property checks"),
    ],
)
def test_a_scale_without_a_study_is_refused_before_anything_is_measured(
    studies: Path, capsys: pytest.CaptureFixture[str], asked: tuple[str, ...], told: str
) -> None:
    only_jax = ("      torch: {tuned_on: jax, seeds: {final: 2}}\n", "")
    write_study(studies, ("quick:", "large:"), ("tiny.claim", "other.claim"), only_jax, name="other")
    assert main(["estimate", *asked, "--studies", "studies"]) == 2
    said = capsys.readouterr()
    assert told in said.err
    assert said.out == ""
