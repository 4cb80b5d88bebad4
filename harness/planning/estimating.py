"""What a plan will cost, from short measurements of its own shapes: `curvebench estimate`.

Measured is the processor time of one thread, which other work on the machine does not lengthen.
"""

from __future__ import annotations

import json
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from documents.errors import InputError
from documents.job import JobSpec, RunsSpec, TimingSpec, TrainingSpec
from documents.method import BasisSpec, Method, OptimizerSpec, WorkloadSpec
from documents.tuning import REFINED_RATES
from harness.basis_estimation.gradients import chunk_of, sampler
from harness.engine.execution import (
    Bundle,
    Clock,
    evaluator,
    lanes_per_bundle,
    load,
    parts,
    stretch_inputs,
    stretches,
)
from harness.planning.plan import HOST, Plan, PlannedJob, PlannedStudy
from harness.progress import Progress
from harness.seeding import generator
from harness.stages.job import (
    Cell,
    Instance,
    Job,
    LoadedBasis,
    bundle_of,
    instance,
    precision_of,
    sampling_of,
    steps_of,
    workload_of,
)
from harness.stages.timing_jobs import REPETITIONS, STEPS
from harness.timing.memory import peak_resident_bytes, resident_bytes
from harness.timing.step_times import SAMPLE_SECONDS
from optimizers.bases import Group, bases

LONGEST = 20  # steps of a timed stretch at most
TIMED_SECONDS = 0.3  # a stretch and an evaluation are repeated until they took so long
MOST_REPETITIONS = 5
WORK = 1e9  # multiplications of a timed decomposition, M n min(M, n), at most; a larger one is extrapolated
ROUGH = tuple(
    """\
Times are processor time of one thread on this machine; jobs side by side share caches, and take longer.
A large decomposition is timed on fewer entries and extrapolated with the cube of the size: usually too long.
A refined sweep costs, run by run, what the coarse sweep does; a job of several bundles, what its first does.
Work that a rule does every so many steps counts as in the first 40 steps.
Steps of step-time jobs are derived from those of the final runs, without what the bundle saves.
Memory is what a bundle adds to a process, with minibatch orders and bases of all seeds; tables are not in it.
Not in it: merging tables, figures and the site (minutes), parity and property checks.""".splitlines()
)


@dataclass(frozen=True)
class Estimate:
    """What a part of a plan costs: one stage of one method on one workload and backend.

    Args:
        runs: single runs; none for bases and step times.
        steps: of all runs together.
        gradients: gradient evaluations, those that bases sample among them.
        seconds: of one thread, by phase: data, compile, step, evaluation, sampling, decomposition.
        memory_bytes: the peak of the process; None where the system does not say.
    """

    study: str
    stage: str
    backend: str
    workload: str
    method: str
    runs: int
    steps: int
    gradients: int
    seconds: Mapping[str, float]
    memory_bytes: int | None

    @property
    def total_seconds(self) -> float:
        """Of all phases."""
        return sum(self.seconds.values())


@dataclass(frozen=True)
class StudyEstimate:
    """What a study costs, with its parts.

    Args:
        jobs: processes; each takes `startup` of its backend's seconds beside its parts.
    """

    name: str
    backends: tuple[str, ...]
    jobs: int
    startup_seconds: float
    parts: tuple[Estimate, ...]

    def sum_of(self, name: str) -> int:
        """A count over all parts: `runs`, `steps` or `gradients`."""
        return sum(getattr(part, name) for part in self.parts)

    @property
    def total_seconds(self) -> float:
        """Seconds of one thread, all jobs one after the other."""
        return self.startup_seconds + sum(part.total_seconds for part in self.parts)

    @property
    def memory_bytes(self) -> int | None:
        """The most that one of its processes takes."""
        return max((part.memory_bytes for part in self.parts if part.memory_bytes), default=None)


@dataclass(frozen=True)
class Startup:
    """What a process of a backend costs before it does anything."""

    seconds: float
    memory_bytes: int


@dataclass(frozen=True)
class _Bundled:
    """One bundle as measured; seconds of a step and an evaluation are those of all its lanes together."""

    lanes: int
    data: float
    compile: float
    step: float
    evaluation: float
    memory_bytes: int | None


@dataclass(frozen=True)
class _Based:
    """One basis of one seed as measured."""

    gradients: int
    compile: float
    sampling: float
    decomposition: float
    memory_bytes: int | None


def check_asked(plan: Plan) -> None:
    """Check that a plan has a study to measure.

    Raises:
        InputError: when it has none; says why each study is left out, and with it which scales it has.
    """
    if plan.studies:
        return
    reasons = [f"{study.name}: {reason}" for study, reason in plan.skipped]
    asked = ", ".join(plan.config.studies)
    said = reasons or [f"{asked}: only property checks, whose cost is not estimated; name a study"]
    raise InputError("\n".join(f"nothing to estimate at scale {plan.config.scale}: {each}" for each in said))


def estimates(plan: Plan) -> Iterator[StudyEstimate]:
    """Measure what the studies of a plan cost, study by study; nothing is written."""
    run_stages = [job for study in plan.studies for job in study.jobs]
    meter = _Meter(Progress("estimate", sum(_cells(job) for job in run_stages), even=False))
    for study in plan.studies:
        yield meter.study(study)


def _cells(job: PlannedJob) -> int:
    spec = job.spec
    return 0 if spec.stage == "timing" else len(spec.workloads) * len(spec.bases)


class _Meter:
    """Measures each shape once, however many studies and stages have it."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.known: dict[str, Any] = {}

    def once(self, key: Sequence[Any], measure: Callable[[], Any]) -> Any:
        """What was measured for a key, or is now."""
        text = json.dumps(key, default=str, sort_keys=True)
        if text not in self.known:
            self.known[text] = measure()
        return self.known[text]

    def study(self, planned: PlannedStudy) -> StudyEstimate:
        """What a study costs."""
        found: list[Estimate] = []
        startup = 0.0
        for job in planned.jobs:
            backend = "jax" if job.spec.backend == HOST else job.spec.backend
            startup += self.startup(backend).seconds
            if isinstance(job.spec, TimingSpec):
                found += _timed(job.spec, found)
                continue
            for workload in job.spec.workloads:
                for basis in job.spec.bases:
                    part = self.basis if job.spec.stage == "bases" else self.runs
                    found.append(part(job, workload, basis))
                    passed = duration(time.monotonic() - self.progress.started)
                    what = f"{job.spec.study} {found[-1].stage} {found[-1].method}"
                    self.progress.advance(1, f"{passed} so far ({what})")
        return StudyEstimate(planned.study.name, planned.backends, len(planned.jobs), startup, tuple(found))

    def startup(self, backend: str) -> Startup:
        """The import of a backend, in a process of its own."""
        found: Startup = self.once(["startup", backend], lambda: _startup(backend))
        return found

    def instance(self, spec: WorkloadSpec, seed: int) -> tuple[Instance, float]:
        """A problem of a workload, and the seconds that it takes to make one."""

        def measure() -> tuple[Instance, float]:
            start = time.process_time()
            made = instance(workload_of(spec), spec.settings, seed)
            return made, time.process_time() - start

        found: tuple[Instance, float] = self.once(["instance", spec.locator, spec.settings], measure)
        return found

    def basis(self, job: PlannedJob, workload: WorkloadSpec, basis: BasisSpec) -> Estimate:
        """One basis of all seeds."""
        spec = job.spec
        one, seconds = self.instance(workload, spec.seeds[0])
        found = self.based(spec, workload, basis, one)
        seeds = len(spec.seeds)
        before = self.startup("jax").memory_bytes
        return Estimate(
            study=spec.study,
            stage="bases",
            backend=spec.backend,
            workload=workload.name,
            method=basis.label,
            runs=0,
            steps=0,
            gradients=found.gradients * seeds,
            seconds={
                "data": seeds * seconds / len(spec.bases),
                "compile": found.compile,
                "sampling": seeds * found.sampling,
                "decomposition": seeds * found.decomposition,
            },
            memory_bytes=None if found.memory_bytes is None else before + found.memory_bytes,
        )

    def based(self, spec: JobSpec, workload: WorkloadSpec, basis: BasisSpec, one: Instance) -> _Based:
        """One basis of one seed, measured."""
        key = ["basis", workload.locator, workload.settings, basis.name, basis.options]
        found: _Based = self.once(key, lambda: _based(_job(spec), workload, basis, one))
        return found

    def runs(self, job: PlannedJob, workload: WorkloadSpec, basis: BasisSpec) -> Estimate:
        """All runs of a sweep, refined sweep or final job in one basis."""
        spec, optimizer = job.spec, job.spec.optimizers[0]
        assert isinstance(spec, RunsSpec)
        one, seconds = self.instance(workload, spec.seeds[0])
        settings = spec.settings or spec.tuning.settings(generator(spec.study, spec.tuning.protocol))
        tried = {"sweep": len(settings), "refine": REFINED_RATES, "final": 1}[spec.stage]
        bundled = 1 if spec.stage == "final" else len(settings)  # a refined sweep as the coarse one
        seeds = len(spec.seeds)
        steps = steps_of(spec, workload.settings, one.examples)
        lengths = stretches(steps, spec.evaluations)
        stretch = min(max(lengths), LONGEST)
        loaded = self.loaded(spec, workload, basis, one)
        short = spec.changed(budget={"steps": 2 * stretch}, evaluations=2)
        cell = Cell(workload_of(workload), workload, optimizer, basis, [settings[0]] * bundled)
        whole = bundle_of(_job(short), cell, [one] * seeds, _repeated(loaded, seeds))
        key: list[Any] = [
            "bundle",
            spec.backend,
            spec.device,
            workload.locator,
            workload.settings,
            _rule(optimizer),
        ]
        key += [_shapes(loaded), seeds, bundled, stretch, spec.bundle_memory_bytes, spec.stop]
        measured: _Bundled = self.once(key, lambda: _bundled(_job(short), whole, stretch, steps))
        bundles = seeds * bundled / measured.lanes
        runs = seeds * tried
        itemsize = np.dtype(precision_of(spec, cell.workload)).itemsize
        matrices = seeds * itemsize * sum(matrix.size for matrix in loaded.matrices.values())
        orders = 0 if whole.orders is None else steps * whole.orders[0].nbytes
        before = self.startup(spec.backend).memory_bytes
        held = max(2 * matrices, matrices + orders + (measured.memory_bytes or 0))
        return Estimate(
            study=spec.study,
            stage=spec.stage,
            backend=spec.backend,
            workload=workload.name,
            method=Method(optimizer.label, basis.label).label,
            runs=runs,
            steps=runs * steps,
            gradients=runs * steps * whole.gradients_per_step,
            seconds={
                "data": seeds * seconds / len(spec.bases) + bundles * measured.data,
                "compile": math.ceil(bundles) * measured.compile,
                "step": runs / measured.lanes * steps * measured.step,
                "evaluation": runs / measured.lanes * (len(lengths) + 1) * measured.evaluation,
            },
            memory_bytes=None if measured.memory_bytes is None else before + held,
        )

    def loaded(
        self, spec: TrainingSpec, workload: WorkloadSpec, basis: BasisSpec, one: Instance
    ) -> LoadedBasis:
        """A stand-in for the basis of one seed: orthogonal columns of its shapes, in its form."""
        if not bases()[basis.name].needs_gradients:
            return LoadedBasis({}, 0, [0.0])
        groups = _groups(basis, workload, one)
        dtype = precision_of(spec, workload_of(workload))
        matrices = {
            group.names: self.reflection(group.size, _columns(basis, group), dtype) for group in groups
        }
        return LoadedBasis(matrices, 0, [0.0], {group.names: group.change for group in groups})

    def reflection(self, rows: int, columns: int, dtype: str) -> np.ndarray:
        """As `_reflection`."""
        made: np.ndarray = self.once(
            ["reflection", rows, columns, dtype], lambda: _reflection(rows, columns, dtype)
        )
        return made


# --- measurements --------------------------------------------------------------------------------


def _job(spec: JobSpec) -> Job:
    return Job(spec, Path(), Clock(), 1, machine="")


IMPORT = """
import resource, sys, time
import harness.stages.run_jobs
from harness.backends.engine import engine
engine(sys.argv[1], "float32").ops.zeros((1,))
print(time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


def _startup(backend: str) -> Startup:
    said = subprocess.run([sys.executable, "-c", IMPORT, backend], check=True, capture_output=True, text=True)
    seconds, memory = said.stdout.split()[-2:]
    return Startup(float(seconds), int(memory))


def _rule(optimizer: OptimizerSpec) -> list[Any]:
    """What of a contestant decides the cost of its steps; not its label."""
    return [value for name, value in vars(optimizer).items() if name != "label"]


def _groups(basis: BasisSpec, workload: WorkloadSpec, one: Instance) -> tuple[Group, ...]:
    roles = workload_of(workload).roles(workload.settings)
    shapes = {name: value.shape for name, value in one.problem.parameters.items()}
    return bases()[basis.name].groups(
        basis.options, shapes, {name: str(role.kind) for name, role in roles.items()}
    )


def _columns(basis: BasisSpec, group: Group) -> int:
    """How many columns a group's matrix has."""
    estimator = bases()[basis.name].estimator(basis.options, group, np.random.default_rng(0))
    return int(getattr(estimator, "rank", group.size))


def _reflection(rows: int, columns: int, dtype: str) -> np.ndarray:
    """The first columns of I - 2 v v^T for a unit vector v: orthonormal and dense."""
    v = np.random.default_rng(0).standard_normal(rows).astype(dtype)
    v /= np.linalg.norm(v)
    return np.eye(rows, columns, dtype=dtype) - 2 * np.outer(v, v[:columns])


def _repeated(basis: LoadedBasis, seeds: int) -> LoadedBasis:
    """The same basis for every seed, in the memory of one."""
    matrices = {
        group: np.broadcast_to(matrix, (seeds, *matrix.shape)) for group, matrix in basis.matrices.items()
    }
    return replace(basis, matrices=matrices)


def _shapes(basis: LoadedBasis) -> list[Any]:
    return [[group, matrix.shape, basis.changes[group].name] for group, matrix in basis.matrices.items()]


def _based(job: Job, workload: WorkloadSpec, basis: BasisSpec, one: Instance) -> _Based:
    kind = bases()[basis.name]
    if not kind.needs_gradients:
        return _Based(0, 0.0, 0.0, 0.0, 0)
    what = sampling_of(basis, workload, one)
    engine = job.engine("float64", backend="jax", device="cpu")
    start = time.process_time()
    sample = sampler(what, engine, one.problem, one.random)
    compiled = time.process_time() - start
    chunks: list[float] = []
    start = time.process_time()
    for _ in sample(one.problem, one.random):
        chunks.append(time.process_time() - start)
        if sum(chunks) > TIMED_SECONDS or len(chunks) == MOST_REPETITIONS:
            break
        start = time.process_time()
    decomposition, most = 0.0, 0.0
    for group in _groups(basis, workload, one):
        seconds, memory = _decomposed(basis, group, what.count)
        decomposition, most = decomposition + seconds, max(most, memory)
    return _Based(
        gradients=what.count,
        compile=compiled,
        sampling=math.ceil(what.count / chunk_of(what, engine, one.problem)) * statistics.median(chunks),
        decomposition=decomposition,
        memory_bytes=None if math.isnan(most) else round(most),
    )


def _decomposed(basis: BasisSpec, group: Group, count: int) -> tuple[float, float]:
    """Seconds and bytes of one decomposition, timed on a smaller one where it is large; NaN: not known."""
    shrink = max(1.0, (count * group.size * min(count, group.size) / WORK) ** (1 / 3))
    fewer = replace(basis, options=dict(basis.options))
    rank = basis.options.get("rank")
    if isinstance(rank, int):
        fewer = replace(basis, options={**basis.options, "rank": max(1, round(rank / shrink))})
    size = max(2, round(group.size / shrink))
    random = np.random.default_rng(0)
    gradients = random.standard_normal((max(2, round(count / shrink)), size))
    estimator = bases()[basis.name].estimator(fewer.options, group._replace(size=size), random)
    before = resident_bytes()
    start = time.process_time()

    def run() -> None:
        estimator.add(gradients)
        estimator.result()

    peak = peak_resident_bytes(run)
    seconds = time.process_time() - start
    added = math.nan if before is None or peak is None else max(0, peak - before) + gradients.nbytes
    return seconds * shrink**3, added * shrink**2


def _bundled(job: Job, whole: Bundle, stretch: int, steps: int) -> _Bundled:
    """The first bundle of several, measured."""
    spec, workload = job.training, whole.workload
    dtype = precision_of(spec, workload)
    engine = job.engine(dtype)
    size = lanes_per_bundle(whole, np.dtype(dtype).itemsize, spec.bundle_memory_bytes)
    bundle = parts(whole, size)[0][0]
    before = resident_bytes()
    taken: dict[str, Any] = {}

    def run() -> None:
        with engine.context():
            start = time.process_time()
            loaded = load(bundle, engine)
            engine.finish(loaded.carry)
            made = time.process_time()
            evaluate = evaluator(bundle, engine, loaded)
            first = stretch_inputs(bundle, engine, 0, stretch)
            advance = engine.segment(loaded.program, loaded.carry, loaded.constants, first, steps)
            ready = time.process_time()
            carry = advance(loaded.carry, loaded.constants, first)
            engine.finish(carry)
            evaluate(carry, loaded.constants)
            warm = time.process_time() - ready
            stretched: list[float] = []
            evaluated: list[float] = []
            while sum(stretched) + sum(evaluated) < TIMED_SECONDS and len(stretched) < MOST_REPETITIONS:
                begin = time.process_time()
                inputs = stretch_inputs(bundle, engine, stretch, stretch)
                carry = advance(carry, loaded.constants, inputs)
                engine.finish(carry)
                stepped = time.process_time()
                evaluate(carry, loaded.constants)
                stretched.append(stepped - begin)
                evaluated.append(time.process_time() - stepped)
        step, evaluation = statistics.median(stretched), statistics.median(evaluated)
        taken.update(
            data=made - start,
            compile=ready - made + max(0.0, warm - step - evaluation),
            step=step / stretch,
            evaluation=evaluation,
        )

    peak = peak_resident_bytes(run)
    memory = None if before is None or peak is None else max(0, peak - before)
    return _Bundled(lanes=math.prod(bundle.lanes), memory_bytes=memory, **taken)


def _timed(spec: TimingSpec, found: Sequence[Estimate]) -> list[Estimate]:
    """The step times of a study's methods on a backend, derived from its final runs, and the null method."""
    made: list[Estimate] = []
    for part in found:
        if (part.stage, part.backend) != ("final", spec.backend):
            continue
        step = part.seconds["step"] / part.steps
        stretches_of_one = 3 + REPETITIONS  # two to warm up, one for memory
        seconds = {
            "data": part.seconds["data"] / part.runs,
            "compile": part.seconds["compile"],
            "step": stretches_of_one * max(SAMPLE_SECONDS, STEPS * step),
            "evaluation": stretches_of_one * part.seconds["evaluation"] / part.runs / spec.evaluations,
        }
        gradients = stretches_of_one * STEPS * (part.gradients // part.steps)
        made.append(replace(part, stage="timing", runs=0, steps=0, gradients=gradients, seconds=seconds))
    return made


# --- what is printed -----------------------------------------------------------------------------


def described(plan: Plan, found: Sequence[StudyEstimate]) -> dict[str, Any]:
    """All estimates in plain JSON types."""
    return {
        "scale": plan.config.scale,
        "studies": [
            {
                "name": study.name,
                "backends": list(study.backends),
                **_totals([study]),
                "startup_seconds": study.startup_seconds,
                "parts": [{**vars(part), "total_seconds": part.total_seconds} for part in study.parts],
            }
            for study in found
        ],
        "total": _totals(found),
        "skipped": {study.name: reason for study, reason in plan.skipped},
        "rough": list(ROUGH),
    }


def _totals(studies: Sequence[StudyEstimate]) -> dict[str, Any]:
    return {
        "jobs": sum(study.jobs for study in studies),
        **{name: sum(study.sum_of(name) for study in studies) for name in ("runs", "steps", "gradients")},
        "process_seconds": sum(study.total_seconds for study in studies),
        "memory_bytes": max((study.memory_bytes for study in studies if study.memory_bytes), default=None),
    }


HEAD = ("jobs", "runs", "steps", "gradients", "process time", "peak memory")
WIDTHS = (6, 8, 14, 14, 14, 13)
SHOWN = 15  # of the largest parts


def head(plan: Plan) -> str:
    """The first lines of the table of studies."""
    return f"scale {plan.config.scale}, one thread a process\n{_row('study', HEAD)}"


def line(name: str, studies: Sequence[StudyEstimate]) -> str:
    """The line of a study, or of all."""
    totals = _totals(studies)
    memory = totals["memory_bytes"]
    cells = [f"{totals[key]:,}" for key in HEAD[:4]]
    shown = "not known" if memory is None else f"{memory / 2**30:.1f} GiB"
    return _row(name, (*cells, duration(totals["process_seconds"]), shown))


def _row(name: str, cells: Sequence[str]) -> str:
    return f"{name:<24}" + "".join(f"{cell:>{width}}" for cell, width in zip(cells, WIDTHS, strict=True))


def tail(plan: Plan, found: Sequence[StudyEstimate]) -> list[str]:
    """The total, the largest parts, and where it is rough."""
    said = [line("total", found), "", "LARGEST PARTS"]
    everything = [part for study in found for part in study.parts]
    whole = sum(study.total_seconds for study in found)
    for part in sorted(everything, key=lambda part: -part.total_seconds)[:SHOWN]:
        where = f"{part.study} {part.stage}: {part.method} on {part.workload}, {part.backend}"
        most = sorted(part.seconds.items(), key=lambda item: -item[1])
        phases = ", ".join(f"{name} {duration(seconds)}" for name, seconds in most if seconds >= 0.5)
        share = part.total_seconds / whole
        told = f" ({phases})" if phases else ""
        said.append(f"  {duration(part.total_seconds):>9} {share:4.0%}  {where}{told}")
    said += ["", "ROUGH", *(f"  {line}" for line in ROUGH)]
    return said + [f"  skipped {study.name}: {reason}" for study, reason in plan.skipped]


def duration(seconds: float) -> str:
    """Seconds, minutes or hours, in two units at most."""
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60:02d} min"
