"""What a plan will cost, from a few steps of its bundles and one seed of its bases: `curvebench estimate`."""

from __future__ import annotations

import itertools
import math
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from curvebench.engine.execution import Bundle, Clock, execute, lanes_per_bundle, stretches
from curvebench.optimizers.gradient_descent import SGD
from curvebench.planning.counting import Operations, count, of_basis
from curvebench.planning.plan import Plan, PlannedJob, PlannedStudy
from curvebench.progress import Progress
from curvebench.seeding import generator
from curvebench.spec.errors import InputError
from curvebench.spec.job import HOST, BasesSpec, JobSpec, RunsSpec
from curvebench.spec.method import BasisSpec, WorkloadSpec
from curvebench.spec.tuning import REFINED_RATES
from curvebench.spec.values import Precision
from curvebench.stages.basis_jobs import estimate_bases
from curvebench.stages.job import (
    Cell,
    Instance,
    Job,
    LoadedBasis,
    basis_of,
    bundle_of,
    dtype_of,
    estimated_at,
    groups_of,
    instance,
    orders_of,
    precision_of,
    reestimation_of,
    sampling_of,
    steps_of,
    workload_of,
)

LONGEST = 20  # steps of a timed stretch at most
STRETCHES = 4  # the first one shows what a bundle takes to start, the others what its steps do
SEED = 0  # of what is measured, as all seeds cost the same
ANYWHERE: dict[str, Any] = {"study": "estimate", "scale": "any", "sources": {}, "versions": {}}
# Operations a second that large networks reach on one card as fast as an H100, by precision: assumed, not
# measured; `--tflops` says yours. Decompositions are far from it, and each job starts, and loads what others
# compiled.
ON_A_GPU: Mapping[str, float] = {
    "float64": 3e13,
    "float32": 4e13,
    "tf32": 1e14,
    "mixed": 3.5e14,
    "bfloat16": 3.5e14,
}
DECOMPOSITIONS_A_SECOND = 1e12
START_SECONDS = 20.0
ROUGH = (
    "With n jobs side by side, such as on n GPUs: process time over n, at least the longest job.",
    "A refined sweep costs, run by run, what the coarse sweep does; several bundles what the first does.",
    "Not in it: step times, parity and property checks, merging tables, figures and the site.",
)
ON_A_CPU = (
    "Times are those of one thread on this machine as it is now; jobs side by side take longer.",
    f"Work that a run does every so many steps counts as in its first {STRETCHES * LONGEST} steps.",
)


def rough(plan: Plan, tflops: float | None = None) -> tuple[str, ...]:
    """Where an estimate is rough, a sentence each."""
    devices = {job.spec.device for study in plan.studies for job in study.jobs}
    rates = ", ".join(f"{rate / 1e12:g} in {name}" for name, rate in ON_A_GPU.items())
    rate = f"{tflops:g}, as you say" if tflops else f"{rates}, as large networks reach on an H100: assumed"
    counted = (
        "On a GPU operations are counted, and nothing is measured; those of other libraries' optimizers,",
        f"of decoding and of clipping are left out. TFLOP/s of products: {rate};",
        f"of decompositions: {DECOMPOSITIONS_A_SECOND / 1e12:g}.",
        f"A job's start counts as {START_SECONDS:g} s. An H100's host compiled 32 and 76 s for the first",
        "jobs of a small network.",
    )
    return (*(ON_A_CPU if "cpu" in devices else ()), *(counted if "gpu" in devices else ()), *ROUGH)


@dataclass(frozen=True)
class Cost:
    """What a job, a study or several take.

    Args:
        jobs: processes.
        runs: single runs; none for bases.
        steps: of all runs together.
        gradients: gradient evaluations, those that bases sample among them.
        process_seconds: of one thread, one job after the other.
        longest_seconds: of the longest job; all take that long at least, however many run side by side.
    """

    jobs: int = 0
    runs: int = 0
    steps: int = 0
    gradients: int = 0
    process_seconds: float = 0.0
    longest_seconds: float = 0.0

    @staticmethod
    def total(costs: Iterable[Cost]) -> Cost:
        """All of them together."""
        every = [Cost(), *costs]
        summed = Cost(*map(sum, zip(*(asdict(cost).values() for cost in every), strict=True)))
        return replace(summed, longest_seconds=max(cost.longest_seconds for cost in every))


@dataclass(frozen=True)
class _Measured:
    """Lanes of a bundle that are run together: seconds to start them, of a step and of an evaluation.

    `evaluations` gives the gradient evaluations of so many steps of one of them.
    """

    lanes: int
    evaluations: Callable[[int], int]
    start: float
    step: float
    evaluation: float


def check_has_studies(plan: Plan) -> None:
    """Check that a plan has a study to measure.

    Raises:
        InputError: when it has none; says why each study is left out, and with it which scales it has.
    """
    if plan.studies:
        return
    reasons = [f"{study.name}: {reason}" for study, reason in plan.skipped]
    names = ", ".join(plan.config.studies)
    said = reasons or [f"{names}: only property checks, whose cost is not estimated; name a study"]
    raise InputError("\n".join(f"nothing to estimate at scale {plan.config.scale}: {each}" for each in said))


def estimates(plan: Plan, tflops: float | None = None) -> Iterator[tuple[PlannedStudy, Cost]]:
    """Measure what the studies of a plan cost, study by study; nothing is written but in a temporary folder.

    Args:
        plan: its jobs on a GPU are not measured but counted (`curvebench.planning.counting`).
        tflops: 10^12 operations a second that a run reaches there; None: `ON_A_GPU`.

    Raises:
        InputError: when a basis cannot be estimated.
    """
    jobs = sum(len(study.jobs) for study in plan.studies)
    with TemporaryDirectory(prefix="curvebench-") as folder:
        meter = _Meter(Path(folder), Progress("estimate", jobs, even=False), tflops)
        for study in plan.studies:
            yield study, Cost.total(map(meter.job, study.jobs))


def problem_costs(plan: Plan) -> dict[str, float]:
    """Process-seconds of the runs of a plan's studies by workload, without what processes take to start.

    Raises:
        InputError: when a basis cannot be estimated.
    """
    found: dict[str, float] = {}
    specs = [job.spec for study in plan.studies for job in study.jobs if isinstance(job.spec, RunsSpec)]
    with TemporaryDirectory(prefix="curvebench-") as folder:
        meter = _Meter(Path(folder), Progress("estimate", len(specs), even=False))
        for spec in specs:
            for workload, basis in itertools.product(spec.workloads, spec.bases):
                cost = meter.runs(spec, workload, basis).process_seconds
                found[workload.name] = found.get(workload.name, 0.0) + cost
            meter.progress.advance(1, f"({spec.stage})")
    return found


class _Meter:
    """Measures each cell once, however many studies and stages have it; its folder takes the bases."""

    def __init__(self, folder: Path, progress: Progress, tflops: float | None = None) -> None:
        self.folder = folder
        self.tflops = tflops
        self.progress = progress
        self.known: dict[str, Any] = {}

    def once(self, measure: Callable[..., Any], *arguments: Any) -> Any:
        """What was measured with these arguments, or is now."""
        key = repr((measure.__name__, arguments))
        if key not in self.known:
            self.known[key] = measure(*arguments)
        return self.known[key]

    def job(self, planned: PlannedJob) -> Cost:
        """What a job costs."""
        spec = planned.spec
        start = START_SECONDS
        if spec.device == "cpu":
            start = self.once(_startup, "jax" if spec.backend == HOST else spec.backend)
        found = [Cost(jobs=1, process_seconds=start)]
        for workload, basis in itertools.product(spec.workloads, spec.bases):
            if isinstance(spec, BasesSpec):
                found.append(self.basis(spec, workload, basis))
            elif isinstance(spec, RunsSpec):
                found.append(self.runs(spec, workload, basis))
        self.progress.advance(1, f"({spec.study} {spec.stage})")
        cost = Cost.total(found)
        return replace(cost, longest_seconds=cost.process_seconds)

    def basis(self, spec: BasesSpec, workload: WorkloadSpec, basis: BasisSpec) -> Cost:
        """One basis of all seeds."""
        if spec.device != "cpu":
            gradients, seconds = self.once(self.counted_basis, spec, workload, basis)
            return Cost(gradients=len(spec.seeds) * gradients, process_seconds=len(spec.seeds) * seconds)
        done = self.before(spec, workload, basis)
        one, _ = self.once(_made, workload)
        seeds, seconds = len(spec.seeds), done.clock.seconds
        gradients = basis_of(done, workload, basis, [one], "float64").gradient_evaluations
        taken = seeds * (seconds["data"] + seconds["step"]) + seconds["compile"]
        return Cost(gradients=seeds * gradients, process_seconds=taken)

    def before(self, spec: JobSpec, workload: WorkloadSpec, basis: BasisSpec) -> Job:
        """A job behind one that has estimated a basis for one seed; its clock has what that took."""
        backend, device = estimated_at(workload_of(workload), spec.backend, spec.device)
        found: Job = self.once(self.estimated, workload, basis, backend, device)
        return found

    def estimated(self, workload: WorkloadSpec, basis: BasisSpec, backend: str, device: str) -> Job:
        """As `before`."""
        cell: dict[str, Any] = {"workloads": (workload,), "bases": (basis,), "seeds": (SEED,)}
        spec = BasesSpec(stage="bases", backend=backend, device=device, **cell, **ANYWHERE)
        job = Job(spec, self.folder, Clock(), 1, machine="")
        job.folder.mkdir(parents=True, exist_ok=True)
        estimate_bases(job)
        for failure in job.failures:
            raise InputError(f"{failure['what']}: {failure['reason']}; nothing can be estimated with it")
        return Job(spec.changed(upstream={"bases": (spec.hash,)}), self.folder, job.clock, 1, machine="")

    def runs(self, spec: RunsSpec, workload: WorkloadSpec, basis: BasisSpec) -> Cost:
        """All runs of a sweep, refined sweep or final job in one basis."""
        settings = spec.tuning.settings(generator(spec.study, spec.tuning.protocol))
        tried = {"sweep": len(settings), "refine": REFINED_RATES, "final": 1}[spec.stage]
        together = 1 if spec.stage == "final" else len(settings)  # a refined sweep as the coarse one
        if spec.alone:
            tried = together = 1
        one, _ = self.once(_made, workload)
        steps, seeds = steps_of(spec, workload.settings, one.examples), len(spec.seeds)
        stretch = min(max(stretches(steps, spec.evaluations)), LONGEST)
        short = spec.changed(
            stage="sweep",
            workloads=(workload,),
            bases=(basis,),
            seeds=(SEED,) * seeds,
            settings=settings[:1] * together,
            budget={"steps": STRETCHES * stretch},
            schedule=spec.schedule.model_copy(update={"warmup_epochs": None}),  # may be longer than that
            evaluations=STRETCHES,
            targets={},
            upstream={},
            claim_rules={},
            alone=False,
            setting=None,
            compared=(),
            **ANYWHERE,
        )
        found: _Measured = (
            self.once(self.measured, short) if spec.device == "cpu" else self.once(self.counted, short, steps)
        )
        runs = seeds * tried
        bundles = runs / found.lanes
        taken = math.ceil(bundles) * found.start
        taken += bundles * (steps * found.step + (spec.evaluations + 1) * found.evaluation)
        renewal = reestimation_of(basis, workload, one, steps)
        anew = int(renewal.evaluations(np.array(steps))) if renewal else 0
        if renewal and spec.device != "cpu":  # of a measured step it is a part
            taken += runs * len(renewal.points) * self.once(self.counted_basis, short, workload, basis)[1]
        return Cost(0, runs, runs * steps, runs * (found.evaluations(steps) + anew), taken)

    def counted(self, spec: RunsSpec, steps: int) -> _Measured:
        """A run of so many steps of the spec's one cell on a GPU, by its operations, without decoding."""
        (workload,), (basis,), (optimizer,) = spec.workloads, spec.bases, spec.optimizers
        one, _ = self.once(_made, workload)
        groups = groups_of(basis, workload, one)
        shapes = {group.names: (1, group.size, group.size) for group in groups}
        matrices = {names: np.broadcast_to(np.float32(0), shape) for names, shape in shapes.items()}
        loaded = LoadedBasis(matrices, 0, (), {group.names: group.change for group in groups})
        cell = Cell(
            workload_of(workload, spec.evaluated_splits),
            workload,
            optimizer,
            basis,
            (spec.settings or ())[:1],
        )
        bundle = bundle_of(Job(spec, self.folder, Clock(), 1, machine=""), cell, [one], loaded)
        precision = precision_of(spec, cell.workload)
        found = count(bundle, precision, steps)
        step, evaluation = (self.seconds(precision, one) for one in (found.step, found.evaluation))
        return _Measured(1, bundle.own_evaluations, 0.0, step, evaluation)

    def counted_basis(
        self, spec: BasesSpec | RunsSpec, workload: WorkloadSpec, basis: BasisSpec
    ) -> tuple[int, float]:
        """The gradients of one estimate of a basis on a GPU, and its seconds, by its operations."""
        one, _ = self.once(_made, workload)
        gradients = sampling_of(basis, workload, one).count
        found, precision = workload_of(workload, ()), precision_of(spec, workload_of(workload))
        plain = Bundle(
            workload=found,
            rule=SGD,
            problems=[one.problem],
            orders=orders_of([one], workload.settings, 1),
            hyperparameters={"learning_rate": np.ones(1)},
            schedule=np.ones(1),
            evaluations=1,
            settings=workload.settings,
            randoms=[one.random],
        )
        groups = groups_of(basis, workload, one)
        taken = of_basis(groups, one.problem.parameters, gradients, count(plain, precision).gradient)
        return gradients, self.seconds(precision, taken)

    def seconds(self, precision: Precision, taken: Operations) -> float:
        """What operations take on a GPU."""
        rate = 1e12 * self.tflops if self.tflops is not None else ON_A_GPU[precision]
        return taken.products / rate + taken.decompositions / DECOMPOSITIONS_A_SECOND

    def measured(self, spec: RunsSpec) -> _Measured:
        """The first lanes of the spec's one cell that fit into its memory, run for its few steps."""
        (workload,), (basis,), (optimizer,) = spec.workloads, spec.bases, spec.optimizers
        one, made = self.once(_made, workload)
        dtype = dtype_of(spec, workload_of(workload))
        job = Job(spec, self.folder, Clock(), 1, machine="")
        loaded = basis_of(self.before(spec, workload, basis), workload, basis, [one], dtype)
        stacks = {group: np.repeat(each, len(spec.seeds), 0) for group, each in loaded.matrices.items()}
        evaluated = workload_of(workload, spec.evaluated_splits)
        cell = Cell(evaluated, workload, optimizer, basis, spec.settings or ())
        whole = bundle_of(job, cell, [one] * len(spec.seeds), replace(loaded, matrices=stacks))
        size = lanes_per_bundle(whole, dtype.itemsize, spec.bundle_memory_bytes)
        marks: list[dict[str, float]] = []
        clock, part = Clock(), whole.part(slice(size[0]), slice(size[1]))
        execute(
            part,
            job.engine(precision_of(spec, workload_of(workload))),
            clock,
            lambda done: marks.append(dict(clock.seconds)),
        )
        later = {phase: (marks[-1][phase] - marks[0][phase]) / (STRETCHES - 1) for phase in clock.seconds}
        stretched, evaluation = later["data"] + later["step"], later["evaluation"]
        return _Measured(
            lanes=math.prod(part.lanes),
            evaluations=whole.own_evaluations,
            start=len(spec.seeds) * made + max(0.0, sum(marks[0].values()) - stretched - 2 * evaluation),
            step=stretched * STRETCHES / len(part.schedule),
            evaluation=evaluation,
        )


def _made(workload: WorkloadSpec) -> tuple[Instance, float]:
    """A problem of a workload, and the seconds that it takes to make one."""
    begun = time.perf_counter()
    return instance(workload_of(workload), workload.settings, SEED), time.perf_counter() - begun


def _startup(backend: str) -> float:
    """Seconds that a process takes until it has a backend."""
    said = "import sys\nimport curvebench.stages.run_jobs\nfrom curvebench.backends.engine import engine\n"
    begun = time.perf_counter()
    subprocess.run([sys.executable, "-c", f"{said}engine(sys.argv[1], 'float32')", backend], check=True)
    return time.perf_counter() - begun


# --- what is printed -----------------------------------------------------------------------------

HEAD = f"{'study':<32}{'jobs':>6}{'runs':>8}{'steps':>14}{'gradients':>14}{'process time':>20}"
HEAD += f"{'longest job':>20}"


def described(
    plan: Plan, found: Sequence[tuple[PlannedStudy, Cost]], tflops: float | None = None
) -> dict[str, Any]:
    """All estimates in plain JSON types."""
    return {
        "scale": plan.config.scale,
        "studies": [
            {"name": planned.study.name, "backends": list(planned.plan.backends), **asdict(cost)}
            for planned, cost in found
        ],
        "total": asdict(Cost.total(cost for _, cost in found)),
        "skipped": {study.name: reason for study, reason in plan.skipped},
        "rough": list(rough(plan, tflops)),
    }


def line(name: str, cost: Cost) -> str:
    """The line of a study, or of all."""
    counts = f"{cost.jobs:>6,}{cost.runs:>8,}{cost.steps:>14,}{cost.gradients:>14,}"
    process, longest = (
        str(timedelta(seconds=round(seconds))) for seconds in (cost.process_seconds, cost.longest_seconds)
    )
    return f"{name:<32}{counts}{process:>20}{longest:>20}"
