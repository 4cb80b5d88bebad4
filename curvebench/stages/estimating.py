"""Rough cost of a plan, before anything is run: `curvebench estimate`.

For jobs on the CPU, each method takes a few steps and each basis is estimated for one seed. For jobs on a
GPU, which need not be there, the operations of gradients and evaluations are counted on arrays without
values.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from curvebench.engine.clock import WAITING, Clock
from curvebench.optimizers.bases import bases
from curvebench.planning.plan import Plan, PlannedStudy
from curvebench.progress import Progress
from curvebench.seeding import generator
from curvebench.spec.errors import InputError
from curvebench.spec.job import BasesSpec, JobSpec, RunsSpec, estimated_at
from curvebench.spec.method import BasisSpec, WorkloadSpec
from curvebench.spec.tuning import Setting
from curvebench.stages.basis_jobs import estimate_bases
from curvebench.stages.job import Instance, Job, instance, precision_of, sampling_of, steps_of, workload_of
from curvebench.stages.run_jobs import run_lanes
from curvebench.steps.examples import placeholders
from curvebench.workloads.workload import examples_in

STEPS = 20  # measured steps of a run on the CPU
LANES = 32  # runs that are measured together; more of them are assumed to take proportionally longer
FEW = 2  # examples on which operations are counted
BACKWARD = 3  # a gradient takes three times the operations of the loss
SEED = 0  # all seeds cost the same
START_SECONDS = {"cpu": 3.0, "gpu": 20.0}  # until a process has imported its backend and, on a GPU, compiled
# Operations a second of large networks on one H100, by precision. They are assumed, not measured; `--tflops`
# replaces them.
GPU_RATES = {"float64": 3e13, "float32": 4e13, "tf32": 1e14, "mixed": 3.5e14, "bfloat16": 3.5e14}
NOTHING_ELSE: dict[str, Any] = {
    "targets": {},
    "tuning_seeds": (),
    "claim_rules": {},
    "alone": False,
    "setting": None,
    "compared": (),
}
NO_NAMES: dict[str, Any] = {"study": "estimate", "scale": "any", "sources": {}, "versions": {}}
ROUGH = (
    "With n jobs side by side, such as on n GPUs: process time over n, at least the longest job.",
    f"CPU: {STEPS} steps of at most {LANES} runs, measured on one thread of this machine as it is now;",
    "work that comes more rarely is not in it, and jobs side by side take longer.",
    "GPU: operations of gradients and evaluations over an assumed rate (--tflops), nothing is measured;",
    "what an optimizer computes besides, decompositions above all, and decoding come on top.",
    "Not in it: step times, parity and property checks, merging tables, figures and the site.",
)


@dataclass(frozen=True)
class Cost:
    """Cost of a job, of a study or of several studies.

    Args:
        jobs: number of processes.
        runs: number of single runs; 0 for bases.
        process_seconds: time of one thread that does one job after the other.
        longest_seconds: time of the longest job, which jobs side by side take at least.
    """

    jobs: int = 0
    runs: int = 0
    process_seconds: float = 0.0
    longest_seconds: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.jobs + other.jobs,
            self.runs + other.runs,
            self.process_seconds + other.process_seconds,
            max(self.longest_seconds, other.longest_seconds),
        )


def check_has_studies(plan: Plan) -> None:
    """Check that a plan has a study whose cost can be estimated.

    Raises:
        InputError: when it has none; says why each study is left out, and with it which scales it has.
    """
    if plan.studies:
        return
    reasons = [f"{study.name}: {study.reason}" for study in plan.report.skipped]
    names = ", ".join(plan.config.studies)
    said = reasons or [f"{names}: only property checks, whose cost is not estimated; name a study"]
    raise InputError("\n".join(f"nothing to estimate at scale {plan.config.scale}: {each}" for each in said))


def estimates(plan: Plan, tflops: float | None = None) -> Iterator[tuple[PlannedStudy, Cost]]:
    """Yield the cost of each study of a plan; only a temporary folder is written to.

    Args:
        tflops: 10^12 operations a second that a run reaches on a GPU; None for `GPU_RATES`.

    Raises:
        InputError: when a run or a basis fails.
    """
    with TemporaryDirectory(prefix="curvebench-") as folder:
        meter = _Meter(Path(folder), tflops)
        progress = Progress("estimate", sum(len(study.jobs) for study in plan.studies), even=False)
        for study in plan.studies:
            total = Cost()
            for job in study.jobs:
                cells = [*meter.cells(job.spec)]
                seconds = START_SECONDS[job.spec.device] + sum(cost.process_seconds for cost in cells)
                total += Cost(1, sum(cost.runs for cost in cells), seconds, seconds)
                progress.advance(1, f"({study.study.name} {job.spec.stage})")
            yield study, total


class _Meter:
    """Measures or counts each kind of cell once.

    Args:
        folder: the jobs that are measured write into it.
        tflops: as in `estimates`.
    """

    def __init__(self, folder: Path, tflops: float | None) -> None:
        self.folder, self.tflops = folder, tflops
        self.jobs: dict[str, Job] = {}
        self.instances: dict[str, Instance] = {}
        self.gradients: dict[str, tuple[float, float]] = {}

    def cells(self, spec: JobSpec) -> Iterator[Cost]:
        """Yield the cost of each cell of a job that estimates bases or makes runs."""
        for workload, basis in product(spec.workloads, spec.bases):
            if isinstance(spec, BasesSpec):
                yield Cost(process_seconds=len(spec.seeds) * self.basis(spec, workload, basis))
            elif isinstance(spec, RunsSpec):
                yield self.runs(spec, workload, basis)

    def basis(self, spec: BasesSpec, workload: WorkloadSpec, basis: BasisSpec) -> float:
        """Return the seconds of estimating one basis."""
        if spec.device == "cpu":
            return sum(self.estimated(spec, workload, basis).clock.seconds.values())
        count = sampling_of(basis, self.instance(workload)).count
        return count * self.counted(spec, workload, ())[0]

    def runs(self, spec: RunsSpec, workload: WorkloadSpec, basis: BasisSpec) -> Cost:
        """Return the cost of all rounds of a job on a workload in a basis, whose program is compiled once."""
        rounds = [one for one in map(spec.in_round, spec.rounds) if basis in one.bases]
        counts = [len(one.seeds) * one.tries(one.rounds[0]) for one in rounds]
        if spec.device != "cpu":
            start, (step, evaluation) = 0.0, self.counted(spec, workload, spec.training.evaluated_splits)
        else:
            few = min(steps_of(spec, self.instance(workload)), STEPS)
            lanes = min(max(counts), LANES)
            settings = spec.tuning.settings(0, generator(spec.study, spec.tuning.protocol), None)
            clock = self.measured(spec, workload, basis, few, settings[:1] * lanes)
            start = clock.seconds["compile"]
            step = (clock.seconds["step"] + clock.parts[WAITING]) / (few * lanes)
            evaluation = clock.seconds["evaluation"] / (2 * lanes)  # before the first step and after the last
        seconds = start
        for one, runs in zip(rounds, counts, strict=True):
            steps = steps_of(one, self.instance(workload))
            seconds += runs * (steps * step + (one.training.evaluations + 1) * evaluation)
        return Cost(0, sum(counts), seconds)

    def measured(
        self,
        spec: RunsSpec,
        workload: WorkloadSpec,
        basis: BasisSpec,
        steps: int,
        settings: tuple[Setting, ...],
    ) -> Clock:
        """Return the clock of a job that makes a run of a few steps at each setting."""
        known = bases()[basis.name].estimated
        needed = (self.estimated(spec, workload, basis).spec.hash,) if known else ()
        schedule = spec.training.schedule
        short = spec.changed(
            rounds=(spec.final_round,),
            workloads=(workload,),
            bases=(basis,),
            seeds=(SEED,),
            settings=settings,
            budget={"steps": steps},
            schedule=schedule.model_copy(update={"warmup_epochs": None}),  # may be longer than the steps
            evaluations=1,
            upstream={"bases": needed},
            **NOTHING_ELSE,
            **NO_NAMES,
        )
        return self.done(short, run_lanes).clock

    def estimated(self, spec: BasesSpec | RunsSpec, workload: WorkloadSpec, basis: BasisSpec) -> Job:
        """Return a job that has estimated a basis for one seed."""
        backend, device = estimated_at(workload_of(workload).alone, spec.backend, spec.device)
        cell: dict[str, Any] = {"workloads": (workload,), "bases": (basis,), "seeds": (SEED,)}
        short = BasesSpec(
            stage="bases", backend=backend, device=device, precision=spec.precision, **cell, **NO_NAMES
        )
        return self.done(short, estimate_bases)

    def done(self, spec: JobSpec, stage: Callable[[Job], Any]) -> Job:
        """Return the job of a spec, done now or before."""
        if spec.hash not in self.jobs:
            job = Job(spec, self.folder)
            job.folder.mkdir(parents=True, exist_ok=True)
            stage(job)
            for failure in job.failures:
                raise InputError(f"{failure['what']}: {failure['reason']}; nothing can be estimated with it")
            self.jobs[spec.hash] = job
        return self.jobs[spec.hash]

    def counted(
        self, spec: BasesSpec | RunsSpec, workload: WorkloadSpec, splits: Collection[str] | None
    ) -> tuple[float, float]:
        """Return the seconds of a gradient and of an evaluation on a GPU, by the operations of the loss."""
        from torch.utils.flop_counter import FlopCounterMode

        from curvebench.backends.torch_engine import TorchEngine

        evaluated = workload_of(workload, splits)
        problem, precision = self.instance(workload).problem, precision_of(spec, evaluated)
        engine = TorchEngine(precision, "meta")
        train = problem.splits["train"]
        with engine.context(), FlopCounterMode(display=False) as counter:
            params, state, few = (
                {name: engine.single_run_ops.asarray(value) for name, value in arrays.items()}
                for arrays in (problem.parameters, problem.state, placeholders(train, FEW))
            )
            evaluated.evaluate(engine.single_run_ops, params, state, few)
        rate = GPU_RATES[precision] if self.tflops is None else 1e12 * self.tflops
        example = counter.get_total_flops() / FEW / rate
        batch = workload.settings.get("batch_size") or examples_in(train)
        examples = sum(examples_in(problem.splits[name]) for name in evaluated.evaluated_splits)
        return BACKWARD * batch * example, examples * example

    def instance(self, workload: WorkloadSpec) -> Instance:
        """Return the problem of a workload."""
        key = repr(workload)
        if key not in self.instances:
            self.instances[key] = instance(workload_of(workload), workload.settings, SEED)
        return self.instances[key]


# --- what is printed -----------------------------------------------------------------------------

HEAD = f"{'study':<32}{'jobs':>6}{'runs':>8}{'process time':>20}{'longest job':>20}"


def described(plan: Plan, found: Sequence[tuple[PlannedStudy, Cost]]) -> dict[str, Any]:
    """Return all estimates in plain JSON types."""
    return {
        "scale": plan.config.scale,
        "studies": [
            {"name": planned.study.name, "backends": list(planned.plan.backends), **asdict(cost)}
            for planned, cost in found
        ],
        "total": asdict(sum((cost for _, cost in found), Cost())),
        "skipped": {study.name: study.reason for study in plan.report.skipped},
        "rough": list(ROUGH),
    }


def line(name: str, cost: Cost) -> str:
    """Return the line of a study, or of the total."""
    process, longest = (
        str(timedelta(seconds=round(seconds))) for seconds in (cost.process_seconds, cost.longest_seconds)
    )
    return f"{name:<32}{cost.jobs:>6,}{cost.runs:>8,}{process:>20}{longest:>20}"
