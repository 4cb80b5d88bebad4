"""Step times of single runs: one at a time, warmed up, synchronized, methods interleaved."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.backends.engine import Engine
from harness.execution import Bundle, evaluation, load, stretch_inputs
from optimizers.rule import LEARNING_RATE, Array, Ops, Rule


def _no_state(ops: Ops, param: Array) -> tuple[()]:
    return ()


def _no_update(
    ops: Ops, grad: Array, state: tuple[()], param: Array, hyper: Mapping[str, Array]
) -> tuple[Array, tuple[()]]:
    # The choice never falls on the gradient, which a compiler can neither leave out nor move out of a loop.
    return ops.where(hyper["step"] < 0, grad, param), state


NULL = Rule(
    name="null",
    source="the harness: a step that computes the gradient and stays",
    hyperparameters={"learning_rate": LEARNING_RATE},
    init=_no_state,
    update=_no_update,
)


@dataclass(frozen=True)
class Timing:
    """Seconds of one phase of one method; `steps` is how many steps they cover."""

    method: str
    phase: str
    repetition: int
    steps: int
    seconds: float


@dataclass(frozen=True)
class _Ready:
    method: str
    phase: str
    advance: Callable[[], None]
    measure: Callable[[], None]


def _ready(method: str, phase: str, bundle: Bundle, engine: Engine, steps: int) -> tuple[_Ready, float]:
    start = time.perf_counter()
    loaded = load(bundle, engine)
    inputs = stretch_inputs(bundle, engine, 0, steps)
    segment = engine.segment(loaded.program, loaded.carry, loaded.constants, inputs)
    evaluate = engine.compiled(
        evaluation(bundle, engine, loaded.program), loaded.carry, loaded.constants, loaded.splits
    )
    carry: list[Any] = [loaded.carry]

    def advance() -> None:
        carry[0] = segment(carry[0], loaded.constants, inputs)
        engine.finish(carry[0])

    def measure() -> None:
        engine.finish(evaluate(carry[0], loaded.constants, loaded.splits))

    advance()
    measure()
    return _Ready(method, phase, advance, measure), time.perf_counter() - start


def time_methods(
    bundles: Mapping[str, Bundle],
    engine: Engine,
    steps: int,
    repetitions: int,
    progress: Callable[[str], None] = lambda method: None,
) -> list[Timing]:
    """Time single runs of several methods, interleaved (A B A B ...).

    Args:
        bundles: one seed and one setting each, by method; the first also gives the null optimizer's
            gradients.
        engine: the backend.
        steps: steps in one measured stretch.
        repetitions: measured stretches of each method.

    Returns:
        Phases `compile` (with the warm-up stretch and loading), `step`, `null_step` and `evaluation`.
    """
    first = next(iter(bundles.values()))
    null = dataclasses.replace(first, rule=NULL, hyperparameters={"learning_rate": np.ones(1)}, matrices={})
    timings: list[Timing] = []
    ready: list[_Ready] = []
    with engine.context():
        contestants: Sequence[tuple[str, str, Bundle]] = [
            ("null", "null_step", null),
            *((method, "step", bundle) for method, bundle in bundles.items()),
        ]
        for method, phase, bundle in contestants:
            contestant, seconds = _ready(method, phase, bundle, engine, steps)
            ready.append(contestant)
            timings.append(Timing(method, "compile", 0, steps, seconds))
            progress(method)
        for repetition in range(repetitions):
            for contestant in ready:
                start = time.perf_counter()
                contestant.advance()
                middle = time.perf_counter()
                contestant.measure()
                end = time.perf_counter()
                timings.append(Timing(contestant.method, contestant.phase, repetition, steps, middle - start))
                timings.append(Timing(contestant.method, "evaluation", repetition, 0, end - middle))
    return timings
