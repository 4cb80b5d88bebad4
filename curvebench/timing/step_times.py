"""Measurement of step times and memory of single runs, one run per method.

Runs are warmed up before they are timed, and the clock is read only when the device has finished. Peak memory
is the peak of the process's resident memory. The peak is measured on Linux only, where it can be reset. A
segment is a number of steps that one call of a compiled function computes.
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
from curvebench.optimizers.arrays import Array, Ops
from curvebench.optimizers.rule import LEARNING_RATE, PRECISIONS, Rule
from curvebench.steps.engine import Engine
from curvebench.steps.program import Carry, Loaded
from curvebench.timing.clocks import seconds_of, uncollected
from curvebench.timing.interleaving import turns

PROCESS = Path("/proc/self")
RELEASE_SECONDS = 0.03  # time in which the threads of a backend release the memory of a finished computation
# Value to write to the file clear_refs: the kernel then resets the peak of resident memory (see proc(5)).
RESET_PEAK = "5"


def resident_bytes(process: Path = PROCESS) -> int | None:
    """Free unused memory, and return the bytes of this process's resident memory, or None if unknown.

    Of reference cycles, only those in the youngest generation of the garbage collector are freed. A
    collection of all generations would take 0.1 s, because it visits millions of objects of libraries.
    """
    time.sleep(RELEASE_SECONDS)
    gc.collect(0)  # frees arrays that threads of JAX have released, too
    if sys.platform == "linux":
        # malloc_trim is a function of the GNU C library. Other libraries return unused memory by themselves.
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
    return _status(process, "VmRSS")


def peak_resident_bytes(run: Callable[[], None], process: Path = PROCESS) -> int | None:
    """Call `run`, and return the peak of resident memory during the call in bytes.

    The result is None if the system cannot reset the peak.
    """
    try:
        (process / "clear_refs").write_text(RESET_PEAK)
    except OSError:
        run()
        return None
    run()
    return _status(process, "VmHWM")


def _status(process: Path, key: str) -> int | None:
    """Return the entry `key` of the file `status` of a process, in bytes; None if there is no such entry."""
    try:
        text = (process / "status").read_text()
    except OSError:
        return None
    match = re.search(rf"^{key}:\s+(\d+) kB$", text, re.MULTILINE)
    return int(match[1]) * 1024 if match else None


# Smallest duration of a sample. With this duration, the resolution of the clock and interrupts matter little.
# If a segment is shorter, a sample consists of several segments, at most MAX_CALLS.
SAMPLE_SECONDS = 0.01
MAX_CALLS = 50


def _no_update(
    ops: Ops, grad: Array, state: tuple[()], param: Array, hyper: Mapping[str, Array]
) -> tuple[Array, tuple[()]]:
    # `step < 0` is never true, so that parameters do not change. A compiler does not know this.
    # Therefore a compiler can neither remove the computation of the gradient nor move it out of a loop.
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
    """Duration of one phase of one method, and the number of optimizer steps in this phase."""

    method: str
    phase: str
    repetition: int
    steps: int
    seconds: float


@dataclass(frozen=True)
class Memory:
    """Memory of the process during the steps of one method, while no other method is loaded.

    Args:
        method: name of the method.
        host_baseline_bytes: resident memory of the process before the arrays of the method were loaded; None
            if the system cannot reset the peak.
        host_peak_bytes: peak of the resident memory during the steps; None if the system cannot reset it.
        device_peak_bytes: peak of the bytes of arrays on the device; None if the backend does not count these
            bytes.
    """

    method: str
    host_baseline_bytes: int | None
    host_peak_bytes: int | None
    device_peak_bytes: int | None


@dataclass(frozen=True)
class Measured:
    """Timings in the order of measurement, and the memory of each method.

    The null optimizer, which computes gradients and changes no parameters, counts as the first method.
    """

    timings: list[Timing]
    memory: list[Memory]


class _Compiled:
    """A method with a compiled segment.

    Its arrays are loaded for each measurement and freed afterwards.
    """

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
        """Load the arrays of `bundle`, or of the method's own bundle, as they are before the first step."""
        loaded = load(bundle or self.bundle, self.engine, self.clock, self.programs)
        with self.clock.phase("data"):
            self.engine.synchronize(loaded.carry)
        return loaded

    def memory(self) -> Memory:
        """Measure the memory of the process, before the method's arrays are loaded and during a segment."""
        baseline = resident_bytes()
        # Depending on the address of a host array, a backend either shares its memory or copies the array.
        # Load from copies that are made after the baseline, so that each array is counted once in both cases.
        loaded = self.load(_copied(self.bundle))
        inputs = segment_inputs(self.bundle, self.engine, 0, self.steps)
        resident_bytes()  # free the copies whose memory the backend does not share
        device: list[int | None] = []

        def run() -> None:
            def steps() -> None:
                self.engine.synchronize(self.segment(loaded.carry, loaded.constants, inputs))

            device.append(self.engine.device_peak(self.segment, steps))

        peak = peak_resident_bytes(run)
        return Memory(self.method, None if peak is None else baseline, peak, device[0])


def _copied(bundle: Bundle) -> Bundle:
    """Return the bundle with its arrays copied, except for arrays that stay on the host."""
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
    """A run of a method whose segments are timed. Its arrays stay loaded between the segments."""

    def __init__(self, contestant: _Compiled) -> None:
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
        limit = 1 if bundle.workload.streamed else MAX_CALLS
        self.calls = math.ceil(SAMPLE_SECONDS / max(seconds, SAMPLE_SECONDS / limit))

    def advance(self, start: int, calls: int = 1) -> float:
        """Take the steps of `calls` segments, and return the seconds.

        The inputs of the segments are computed before the clock starts.

        Args:
            start: number of steps that precede the first segment. The inputs are the inputs of the next
                steps.
            calls: number of segments, all with the same inputs.
        """
        engine, bundle = self.contestant.engine, self.contestant.bundle
        inputs = [segment_inputs(bundle, engine, start, self.contestant.steps) for _ in range(calls)]
        engine.synchronize(inputs)

        def run() -> None:
            for segment_input in inputs:
                self.carry = self.contestant.segment(self.carry, self.loaded.constants, segment_input)
            engine.synchronize(self.carry)

        return seconds_of(run, 1)

    def evaluate(self) -> float:
        """Evaluate the metrics, and return the seconds, including the transfer of results to the host."""

        def run() -> None:
            self.measure(self.carry, self.loaded.constants)

        return seconds_of(run, 1)


def stretch(bundle: Bundle, steps: int) -> tuple[int, int]:
    """Return the number of steps of a measured segment, and the number of steps that precede it.

    If a rule does expensive computations only every k steps, the length of the segment is a multiple of k, so
    that each segment contains the same number of expensive computations. A shorter run is the exception. The
    first step belongs to the warm-up, since some rules compute more in the first step.

    Args:
        bundle: the run.
        steps: minimum number of steps of the segment, unless the run has fewer steps.
    """
    every = bundle.rule.refresh_every or 1
    steps = max(split_interval(bundle, steps))  # shorten the segment if its inputs need too much memory
    first_steps = min(1, len(bundle.schedule) - 1)
    return min(every * math.ceil(steps / every), len(bundle.schedule) - first_steps), first_steps


def measure_methods(
    bundles: Mapping[str, Bundle],
    engine: Engine,
    steps: int,
    repetitions: int,
    progress: Callable[[str], None] = lambda method: None,
    fail: Callable[[str, Exception], None] | None = None,
) -> Measured:
    """Measure single runs of several methods: first the memory of each method, then the times, interleaved.

    Every repetition consists of a segment and an evaluation of each method in the order of `turns`, so that
    drift of the machine, and caches left by the method before, affect all methods alike. Therefore the times
    of two methods in the same repetition can be compared.

    Args:
        bundles: for each name of a method, a bundle of one seed and one setting. The null optimizer computes
            the gradients of the first bundle.
        engine: engine of the backend.
        steps: minimum number of steps of a measured segment; short segments are repeated.
        repetitions: number of measured segments of each method.
        progress: function that is called with the name of a method when the method is compiled, and after
            each repetition of the method.
        fail: function that is called with the name of a method and the exception that the method has raised.
            The method is then left out. With None, the exception is raised.

    Returns:
        Timings and memory. The phases of the timings are `data` (loading), `compile`, `warm_up` (a first
        segment and evaluation, with everything that backends compile or allocate at first use), `step`
        (`null_step` for the null optimizer) and `evaluation`. The null optimizer, which computes gradients
        and changes no parameters, is a method named `null`.
    """
    first = next(iter(bundles.values()))
    null = dataclasses.replace(
        first, rule=NULL, hyperparameters={"learning_rate": np.ones(1)}, matrices={}, reestimation=None
    )
    entries = [("null", "null_step", null), *((name, "step", bundle) for name, bundle in bundles.items())]
    with engine.context():
        contestants: dict[str, _Compiled] = {}
        memory: dict[str, Memory] = {}
        runs: dict[str, _TimedRun] = {}
        for method, phase, bundle in entries:
            with _left_out(method, fail):
                contestants[method] = _Compiled(method, phase, bundle, engine, steps)
            progress(method)
        gc.collect()
        # Objects of a measurement stay in the youngest generation, since there are no collections.
        with uncollected():
            # Discard the first measurement.
            # The first measurement includes memory that threads and libraries allocate at first use.
            contestants["null"].memory()
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
    """Return a context that passes an exception of a method to `fail`, so that the method is left out.

    An exception of the null optimizer is raised, since all methods are compared with it.
    """
    try:
        yield
    except Exception as error:
        if fail is None or method == NULL.name:
            raise
        fail(method, error)


def _timings(runs: list[_TimedRun], repetitions: int, progress: Callable[[str], None]) -> list[Timing]:
    """Time segments and evaluations of all runs in turn.

    The returned list begins with the times of loading, compilation and warm-up.
    """
    timings = []
    for run in runs:
        method, seconds = run.contestant, run.contestant.clock.seconds
        timings += [Timing(method.method, phase, 0, 0, seconds[phase]) for phase in ("data", "compile")]
        timings.append(Timing(method.method, "warm_up", 0, method.steps, run.warm_up_seconds))
    for repetition, position in turns(len(runs), repetitions):
        run = runs[position]
        method = run.contestant
        elapsed = run.advance(method.start, run.calls)
        timings.append(Timing(method.method, method.phase, repetition, run.calls * method.steps, elapsed))
        timings.append(Timing(method.method, "evaluation", repetition, 0, run.evaluate()))
        progress(method.method)
    return timings
