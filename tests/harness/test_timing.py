"""Timing of single runs: what is timed, how often, and that the null optimizer stays."""

from __future__ import annotations

from typing import Any

import numpy as np

from harness.backends.engine import engine
from harness.execution import execute
from harness.program import Program
from harness.timing import NULL, time_methods
from optimizers.gradient_descent import MOMENTUM, SGD
from tests.harness.test_execution import make_bundle


def test_every_method_is_timed_equally_often() -> None:
    bundles = {
        "sgd": make_bundle(rule=SGD, seeds=(0,), rates=(0.1,)),
        "momentum": make_bundle(rule=MOMENTUM, seeds=(0,), rates=(0.1,), basis=False),
    }
    for backend in ("jax", "torch"):
        timings = time_methods(bundles, engine(backend, "float64"), steps=4, repetitions=3)
        counted: dict[tuple[str, str], int] = {}
        for timing in timings:
            assert timing.seconds > 0
            assert timing.steps == (0 if timing.phase == "evaluation" else 4)
            key = (timing.method, timing.phase)
            counted[key] = counted.get(key, 0) + 1
        methods = {"null": "null_step", "sgd": "step", "momentum": "step"}
        expected = {(method, "compile"): 1 for method in methods}
        expected |= dict.fromkeys(methods.items(), 3)
        expected |= {(method, "evaluation"): 3 for method in methods}
        assert counted == expected


def test_the_null_optimizer_stays_where_it_is() -> None:
    metrics = execute(make_bundle(rule=NULL), engine("jax", "float64")).metrics
    assert np.ptp(metrics["train_loss"], axis=0).max() == 0


def test_the_null_optimizer_runs_the_methods_own_program() -> None:
    """A stopping rule costs its check in every step; the null step must hold it too."""
    seen: list[Program] = []
    made = engine("torch", "float64")

    class Watching:
        def __getattr__(self, name: str) -> Any:
            return getattr(made, name)

        def segment(self, program: Program, *arguments: Any) -> Any:
            seen.append(program)
            return made.segment(program, *arguments)

    bundle = make_bundle(rule=SGD, seeds=(0,), rates=(0.1,), batch_size=None, stop_gradient_norm=1e-9)
    time_methods({"sgd": bundle}, Watching(), steps=2, repetitions=1)
    assert [program.update.rule.name for program in seen] == ["null", "sgd"]
    assert {program.stop_gradient_norm for program in seen} == {1e-9}
