"""Step times and memory of single runs: one at a time, warmed up, synchronized, methods interleaved.

Peak memory is that of the resident process, where the system can reset it (Linux).
"""

from __future__ import annotations

import copy
import ctypes
import dataclasses
import gc
import math
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from curvebench.engine.bundle import Bundle
from curvebench.engine.clock import Clock
from curvebench.engine.evaluation import Evaluate, evaluator
from curvebench.engine.inputs import segment_inputs, split_interval
from curvebench.engine.loading import load
from curvebench.engine.memory import is_resident
from curvebench.engine.programs import Programs
from curvebench.optimizers.rule import LEARNING_RATE, PRECISIONS, Array, Ops, Rule
from curvebench.steps.engine import Engine
from curvebench.steps.program import Carry, Loaded
from curvebench.timing.clocks import seconds_of
from curvebench.timing.interleaving import turns

PROCESS = Path("/proc/self")
RESET_PEAK = "5"  # what the kernel takes in clear_refs: the peak becomes what is resident now (proc(5))


def resident_bytes(process: Path = PROCESS) -> int | None:
    """What this process has in memory, with what it no longer uses given back; None where nobody says."""
    gc.collect()
    if sys.platform == "linux":
        # the GNU library's; others give back themselves
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
    return _status(process, "VmRSS")


def peak_resident_bytes(run: Callable[[], None], process: Path = PROCESS) -> int | None:
    """The most that this process has in memory while `run` runs; None where the peak cannot be reset."""
    try:
        (process / "clear_refs").write_text(RESET_PEAK)
    except OSError:
        run()
        return None
    run()
    return _status(process, "VmHWM")


def _status(process: Path, key: str) -> int | None:
    try:
        text = (process / "status").read_text()
    except OSError:
        return None
    found = re.search(rf"^{key}:\s+(\d+) kB$", text, re.MULTILINE)
    return int(found[1]) * 1024 if found else None


# Short stretches are taken several times in a row until a sample takes this long, at most MOST_CALLS times,
# so that the clock's resolution and interrupts are small.
SAMPLE_SECONDS = 0.01
MOST_CALLS = 50


def _no_update(
    ops: Ops, grad: Array, state: tuple[()], param: Array, hyper: Mapping[str, Array]
) -> tuple[Array, tuple[()]]:
    # The condition is never true, so that parameters stay. A compiler does not know that: it can neither
    # leave the gradient out nor move it out of a loop.
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
    """Seconds of one phase of one method; `steps` is the number of optimizer steps in them."""

    method: str
    phase: str
    repetition: int
    steps: int
    seconds: float


@dataclass(frozen=True)
class Memory:
    """Memory that one method needs while its steps run and no other method is loaded.

    Args:
        host_baseline_bytes, host_peak_bytes: resident bytes of the process before the method's arrays were
            loaded, and their maximum while its steps ran; None where the system cannot reset the peak.
        device_peak_bytes: peak bytes of arrays, as the backend counts them; None where it does not count.
    """

    method: str
    host_baseline_bytes: int | None
    host_peak_bytes: int | None
    device_peak_bytes: int | None


@dataclass(frozen=True)
class Measured:
    """Timings in the order in which they were taken, and the memory of each method, the null one first."""

    timings: list[Timing]
    memory: list[Memory]


class _Contestant:
    """A compiled method, whose arrays are loaded anew for each use."""

    def __init__(self, method: str, phase: str, bundle: Bundle, engine: Engine, steps: int) -> None:
        self.method, self.phase, self.bundle, self.engine = method, phase, bundle, engine
        self.steps, self.start = stretch(bundle, steps)
        self.clock, self.programs = Clock(), Programs()
        loaded = self.load()
        with self.clock.phase("data"):
            inputs = segment_inputs(bundle, engine, 0, self.steps)
        with self.clock.phase("compile"):
            self.segment = engine.segment(loaded, inputs, len(bundle.schedule))

    def load(self, bundle: Bundle | None = None) -> Loaded:
        """Load the arrays before the first step, from another bundle than the method's where one is given."""
        loaded = load(bundle or self.bundle, self.engine, self.clock, self.programs)
        with self.clock.phase("data"):
            self.engine.synchronize(loaded.carry)
        return loaded

    def memory(self) -> Memory:
        """Measure the memory of the method, from before its arrays are loaded to the end of a stretch."""
        baseline = resident_bytes()
        # Depending on its address, a backend shares a host array or copies it. A copy made here counts once.
        loaded = self.load(_copied(self.bundle))
        inputs = segment_inputs(self.bundle, self.engine, 0, self.steps)
        resident_bytes()  # frees those arrays of the copy that the backend does not share
        device: list[int | None] = []

        def run() -> None:
            def steps() -> None:
                self.engine.synchronize(self.segment(loaded.carry, loaded.constants, inputs))

            device.append(self.engine.device_peak(self.segment, steps))

        peak = peak_resident_bytes(run)
        return Memory(self.method, None if peak is None else baseline, peak, device[0])


def _copied(bundle: Bundle) -> Bundle:
    """Return the bundle with its arrays copied, except for those that stay on the host."""
    problems = [
        dataclasses.replace(
            problem,
            parameters=copy.deepcopy(problem.parameters),
            splits={
                name: copy.deepcopy(split) if is_resident(bundle.workload, name) else split
                for name, split in problem.splits.items()
            },
        )
        for problem in bundle.problems
    ]
    return dataclasses.replace(bundle, problems=problems, matrices=copy.deepcopy(bundle.matrices))


class _TimedRun:
    """A timed run of a method: its arrays stay loaded, and each stretch continues the stretch before."""

    def __init__(self, contestant: _Contestant) -> None:
        self.contestant = contestant
        engine, bundle, clock = contestant.engine, contestant.bundle, contestant.clock
        self.loaded = contestant.load()
        with clock.phase("compile"):
            self.measure: Evaluate = evaluator(bundle, engine, self.loaded, contestant.programs)
        self.carry: Carry = self.loaded.carry
        start = time.perf_counter()
        self.advance(0)
        self.evaluate()
        self.warm_up_seconds = time.perf_counter() - start
        seconds = self.advance(contestant.start)
        most = 1 if bundle.workload.streamed else MOST_CALLS
        self.calls = math.ceil(SAMPLE_SECONDS / max(seconds, SAMPLE_SECONDS / most))

    def advance(self, start: int, calls: int = 1) -> float:
        """Return the seconds of a stretch taken `calls` times; inputs are made before the clock starts."""
        engine, bundle = self.contestant.engine, self.contestant.bundle
        inputs = [segment_inputs(bundle, engine, start, self.contestant.steps) for _ in range(calls)]
        engine.synchronize(inputs)

        def run() -> None:
            for given in inputs:
                self.carry = self.contestant.segment(self.carry, self.loaded.constants, given)
            engine.synchronize(self.carry)

        return seconds_of(run, 1)

    def evaluate(self) -> float:
        """Return the seconds of an evaluation, its results on the host."""

        def run() -> None:
            self.measure(self.carry, self.loaded.constants)

        return seconds_of(run, 1)


def stretch(bundle: Bundle, steps: int) -> tuple[int, int]:
    """Return the number of steps of a measured stretch, and the number of steps of the run before it.

    The length is a multiple of k where a rule does amortized work every k steps and the run is long enough,
    so that each stretch has an equal share of it. The first step, in which some rules do more work than in
    others, belongs to the warm-up.

    Args:
        bundle: the run.
        steps: the minimum number of steps, where the run has as many.
    """
    every = bundle.rule.refresh_every or 1
    steps = max(split_interval(bundle, steps))  # what is sent at once fits
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

    Every repetition takes one stretch and one evaluation of each method in the order of `turns`, so that a
    drift of the machine, and what a method leaves in the caches, fall on all alike. The stretches of a
    repetition are pairs to compare.

    Args:
        bundles: one seed and one setting each, by method; the first also gives the null optimizer's
            gradients.
        engine: the backend.
        steps: the least number of steps in one measured stretch; short ones are taken several times.
        repetitions: measured stretches of each method.
        progress: is called with the name of a method when it is compiled, and after each of its repetitions.
        fail: is called with the name of a method that raises, which is left out then, and the exception;
            where it is None, the exception is raised.

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
        contestants["null"].memory()  # once, so that memory for threads and libraries is charged to no method
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
    """Pass what a method raises to `fail`. The null method must not fail: all are compared with it."""
    try:
        yield
    except Exception as error:
        if fail is None or method == NULL.name:
            raise
        fail(method, error)


def _timings(runs: list[_TimedRun], repetitions: int, progress: Callable[[str], None]) -> list[Timing]:
    timings = []
    for run in runs:
        one, seconds = run.contestant, run.contestant.clock.seconds
        timings += [Timing(one.method, phase, 0, 0, seconds[phase]) for phase in ("data", "compile")]
        timings.append(Timing(one.method, "warm_up", 0, one.steps, run.warm_up_seconds))
    for repetition, place in turns(len(runs), repetitions):
        run = runs[place]
        one = run.contestant
        taken = run.advance(one.start, run.calls)
        timings.append(Timing(one.method, one.phase, repetition, run.calls * one.steps, taken))
        timings.append(Timing(one.method, "evaluation", repetition, 0, run.evaluate()))
        progress(one.method)
    return timings
