"""Step times and memory of single runs: one at a time, warmed up, synchronized, methods interleaved."""

from __future__ import annotations

import copy
import dataclasses
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from curvebench.backends.engine import Engine
from curvebench.engine.execution import (
    Bundle,
    Clock,
    Evaluate,
    Loaded,
    evaluator,
    is_held,
    load,
    pieces_of,
    stretch_inputs,
)
from curvebench.engine.program import Carry
from curvebench.optimizers.rule import LEARNING_RATE, PRECISIONS, Array, Ops, Rule
from curvebench.timing.clocks import uncollected
from curvebench.timing.memory import peak_resident_bytes, resident_bytes

SAMPLE_SECONDS = 0.01  # short stretches are taken several times in a row: clock and interrupts are small
MOST_CALLS = 50


def _no_update(
    ops: Ops, grad: Array, state: tuple[()], param: Array, hyper: Mapping[str, Array]
) -> tuple[Array, tuple[()]]:
    # The choice never falls on the gradient, which a compiler can neither leave out nor move out of a loop.
    return ops.where(hyper["step"] < 0, grad, param), state


NULL = Rule(
    name="null",
    source="the harness: a step that computes the gradient and stays",
    hyperparameters={"learning_rate": LEARNING_RATE},
    init=lambda ops, param: (),
    update=_no_update,
    dtypes=PRECISIONS,
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
class Memory:
    """What one method alone needs while its steps run.

    Args:
        host_baseline, host_peak: resident bytes of the process, before its arrays were loaded and the most
            while its steps ran; None where the system cannot reset the peak.
        device: the most bytes of arrays, as the backend counts them; None where it does not.
    """

    method: str
    host_baseline: int | None
    host_peak: int | None
    device: int | None


@dataclass(frozen=True)
class Measured:
    """Timings in the order in which they were taken, and the memory of each method, the null one first."""

    timings: list[Timing]
    memory: list[Memory]


class _Contestant:
    """One method, compiled; its arrays are loaded anew for each use."""

    def __init__(self, method: str, phase: str, bundle: Bundle, engine: Engine, steps: int) -> None:
        self.method, self.phase, self.bundle, self.engine = method, phase, bundle, engine
        self.steps, self.start = stretch(bundle, steps)
        self.clock = Clock()
        loaded = self.load()
        with self.clock.phase("data"):
            inputs = stretch_inputs(bundle, engine, 0, self.steps)
        with self.clock.phase("compile"):
            self.segment = engine.segment(
                loaded.program, loaded.carry, loaded.constants, inputs, len(bundle.schedule)
            )

    def load(self, bundle: Bundle | None = None) -> Loaded:
        """The arrays before the first step, of a copy of the bundle where one is given."""
        # The first state is not charged to compiling: the first method compiles its operations for all.
        with self.clock.phase("data"):
            loaded = load(bundle or self.bundle, self.engine)
            self.engine.finish(loaded.carry)
        return loaded

    def memory(self) -> Memory:
        """What the method needs: from before its arrays are loaded to the end of a stretch."""
        baseline = resident_bytes()
        # A backend may share a host array or copy it, as its address has it; a copy of our own counts once.
        loaded = self.load(_copied(self.bundle))
        inputs = stretch_inputs(self.bundle, self.engine, 0, self.steps)
        resident_bytes()  # gives back what of the copy is not shared
        device: list[int | None] = []

        def run() -> None:
            def steps() -> None:
                self.engine.finish(self.segment(loaded.carry, loaded.constants, inputs))

            device.append(self.engine.device_peak(self.segment, steps))

        peak = peak_resident_bytes(run)
        return Memory(self.method, None if peak is None else baseline, peak, device[0])


def _copied(bundle: Bundle) -> Bundle:
    """The bundle with arrays of its own, but for those that stay on the host."""
    problems = [
        dataclasses.replace(
            problem,
            parameters=copy.deepcopy(problem.parameters),
            splits={
                name: copy.deepcopy(split) if is_held(bundle.workload, name) else split
                for name, split in problem.splits.items()
            },
        )
        for problem in bundle.problems
    ]
    return dataclasses.replace(bundle, problems=problems, matrices=copy.deepcopy(bundle.matrices))


class _TimedRun:
    """A contestant's run under the clocks: its arrays stay, and each stretch goes on from the one before."""

    def __init__(self, contestant: _Contestant) -> None:
        self.contestant = contestant
        engine, bundle, clock = contestant.engine, contestant.bundle, contestant.clock
        self.loaded = contestant.load()
        with clock.phase("compile"):
            self.measure: Evaluate = evaluator(bundle, engine, self.loaded)
        self.carry: Carry = self.loaded.carry
        start = time.perf_counter()
        self.advance(0)
        self.evaluate()
        self.warm_up_seconds = time.perf_counter() - start
        seconds = self.advance(contestant.start)
        most = 1 if bundle.workload.streamed else MOST_CALLS
        self.calls = math.ceil(SAMPLE_SECONDS / max(seconds, SAMPLE_SECONDS / most))

    def advance(self, start: int, calls: int = 1) -> float:
        """Seconds of a stretch, taken several times in a row; its inputs are made before."""
        engine, bundle = self.contestant.engine, self.contestant.bundle
        inputs = [stretch_inputs(bundle, engine, start, self.contestant.steps) for _ in range(calls)]
        engine.finish(inputs)
        with uncollected():
            begin = time.perf_counter()
            for given in inputs:
                self.carry = self.contestant.segment(self.carry, self.loaded.constants, given)
            engine.finish(self.carry)
            return time.perf_counter() - begin

    def evaluate(self) -> float:
        """Seconds of an evaluation, its results on the host."""
        with uncollected():
            begin = time.perf_counter()
            self.measure(self.carry, self.loaded.constants)
            return time.perf_counter() - begin


def stretch(bundle: Bundle, steps: int) -> tuple[int, int]:
    """How many steps a measured stretch has, and how many steps of the run lie before it.

    Work that a rule does every k steps falls into each stretch alike: its length is a multiple of k, where
    the run is long enough. The first step, which some rules spend on more than the others, belongs to the
    warm-up.

    Args:
        bundle: the run.
        steps: the least number of steps, where the run has so many.
    """
    every = bundle.rule.refresh_every or 1
    steps = max(pieces_of(bundle, steps))  # what is sent at once fits
    before = min(1, len(bundle.schedule) - 1)
    return min(every * math.ceil(steps / every), len(bundle.schedule) - before), before


def measure_methods(
    bundles: Mapping[str, Bundle],
    engine: Engine,
    steps: int,
    repetitions: int,
    progress: Callable[[str], None] = lambda method: None,
    fail: Callable[[str, Exception], None] | None = None,
) -> Measured:
    """Measure single runs of several methods: memory one after the other, then time, interleaved.

    Every repetition takes one stretch and one evaluation of each method, forth and back (A B C, C B A, then
    B C A, A C B, ...), so that a drift of the machine, and what a method leaves in the caches, fall on all
    alike. The stretches of a repetition are pairs to compare.

    Args:
        bundles: one seed and one setting each, by method; the first also gives the null optimizer's
            gradients.
        engine: the backend.
        steps: the least number of steps in one measured stretch; short ones are taken several times.
        repetitions: measured stretches of each method.
        progress: takes the name of each method when it is compiled, and at each of its repetitions.
        fail: takes what a method raises, which is left out then; None to raise it.

    Returns:
        Phases `data` (loading), `compile`, `warm_up` (a first stretch and evaluation, with what backends
        compile or allocate at first use), `step`, `null_step` and `evaluation`, of a method named `null` too.
    """
    first = next(iter(bundles.values()))
    null = dataclasses.replace(
        first,
        rule=NULL,
        hyperparameters={"learning_rate": np.ones(1)},
        matrices={},
        factors={},
        reestimation=None,
    )
    entries = [("null", "null_step", null), *((name, "step", bundle) for name, bundle in bundles.items())]
    with engine.context():
        contestants: dict[str, _Contestant] = {}
        memory: dict[str, Memory] = {}
        runs: dict[str, _TimedRun] = {}
        for method, phase, bundle in entries:
            with _left_out(method, fail):
                contestants[method] = _Contestant(method, phase, bundle, engine, steps)
            progress(method)
        contestants["null"].memory()  # what the process needs once, for threads and libraries, is no method's
        for method, contestant in contestants.items():
            with _left_out(method, fail):
                memory[method] = contestant.memory()
        for method in memory:
            with _left_out(method, fail):
                runs[method] = _TimedRun(contestants[method])
        timings = _timings(list(runs.values()), repetitions, progress)
        return Measured(timings, [memory[method] for method in runs])


@contextmanager
def _left_out(method: str, fail: Callable[[str, Exception], None] | None) -> Iterator[None]:
    """Hand on what a method raises; all are measured against the null method, which may not fail."""
    try:
        yield
    except Exception as error:
        if fail is None or method == NULL.name:
            raise
        fail(method, error)


def interleaved_order(count: int, repetition: int) -> list[int]:
    """The order of a repetition: forth and back, and then forth and back from the next method on."""
    first = repetition // 2
    order = [(first + place) % count for place in range(count)]
    return order[::-1] if repetition % 2 else order


def _timings(runs: list[_TimedRun], repetitions: int, progress: Callable[[str], None]) -> list[Timing]:
    timings = []
    for run in runs:
        one, seconds = run.contestant, run.contestant.clock.seconds
        timings += [Timing(one.method, phase, 0, 0, seconds[phase]) for phase in ("data", "compile")]
        timings.append(Timing(one.method, "warm_up", 0, one.steps, run.warm_up_seconds))
    for repetition in range(repetitions):
        for place in interleaved_order(len(runs), repetition):
            run = runs[place]
            one = run.contestant
            taken = run.advance(one.start, run.calls)
            timings.append(Timing(one.method, one.phase, repetition, run.calls * one.steps, taken))
            timings.append(Timing(one.method, "evaluation", repetition, 0, run.evaluate()))
            progress(one.method)
    return timings
