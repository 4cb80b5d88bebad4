"""Rough cost of a plan on the CPU, before anything is run: `curvebench estimate`.

Each method takes a few steps and each basis is estimated for one seed. Studies with jobs on a GPU are left
out, with the reason: no GPU need be here, and a count of operations says little of what a run takes on one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
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
from curvebench.stages.job import Instance, Job, instance, steps_of, workload_of
from curvebench.stages.run_jobs import run_lanes

STEPS = 20  # measured steps of a run
LANES = 32  # runs that are measured together; more of them are assumed to take proportionally longer
SEED = 0  # all seeds cost the same
START_SECONDS = 3.0  # until a process has imported its backend
NOTHING_ELSE: dict[str, Any] = {
    "targets": {},
    "tuning_seeds": (),
    "claim_rules": {},
    "alone": False,
    "setting": None,
    "compared": (),
}
NO_NAMES: dict[str, Any] = {"study": "estimate", "scale": "any", "sources": {}, "versions": {}}
ON_GPU = "it has jobs on a GPU, whose cost is not estimated"
ROUGH = (
    "With n jobs side by side: process time over n, at least the longest job.",
    f"{STEPS} steps of at most {LANES} runs, measured on one thread of this machine as it is now;",
    "work that comes more rarely is not in it, and jobs side by side take longer.",
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


def studies_on_cpu(plan: Plan) -> tuple[list[PlannedStudy], dict[str, str]]:
    """Return the studies of a plan whose cost can be estimated; and of the others, by name, why it cannot.

    Raises:
        InputError: when no study's cost can be; says why of each, and with it which scales it has.
    """
    on_gpu = [one for one in plan.studies if any(job.spec.device != "cpu" for job in one.jobs)]
    reasons = {study.name: study.reason for study in plan.report.skipped}
    reasons |= {planned.study.name: ON_GPU for planned in on_gpu}
    if found := [one for one in plan.studies if one not in on_gpu]:
        return found, reasons
    names = ", ".join(plan.config.studies)
    reasons = reasons or {names: "only property checks, whose cost is not estimated; name a study"}
    head = f"nothing to estimate at scale {plan.config.scale}"
    raise InputError("\n".join(f"{head}: {name}: {reason}" for name, reason in reasons.items()))


def estimates(studies: Sequence[PlannedStudy]) -> Iterator[tuple[PlannedStudy, Cost]]:
    """Yield the cost of each study; only a temporary folder is written to.

    Raises:
        InputError: when a run or a basis fails.
    """
    with TemporaryDirectory(prefix="curvebench-") as folder:
        meter = _Meter(Path(folder))
        progress = Progress("estimate", sum(len(study.jobs) for study in studies), even=False)
        for study in studies:
            total = Cost()
            for job in study.jobs:
                cells = [*meter.cells(job.spec)]
                seconds = START_SECONDS + sum(cost.process_seconds for cost in cells)
                total += Cost(1, sum(cost.runs for cost in cells), seconds, seconds)
                progress.advance(1, f"({study.study.name} {job.spec.stage})")
            yield study, total


class _Meter:
    """Measures each kind of cell once.

    Args:
        folder: the jobs that are measured write into it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.jobs: dict[str, Job] = {}
        self.instances: dict[str, Instance] = {}

    def cells(self, spec: JobSpec) -> Iterator[Cost]:
        """Yield the cost of each cell of a job that estimates bases or makes runs."""
        for workload, basis in product(spec.workloads, spec.bases):
            if isinstance(spec, BasesSpec):
                yield Cost(process_seconds=len(spec.seeds) * self.basis(spec, workload, basis))
            elif isinstance(spec, RunsSpec):
                yield self.runs(spec, workload, basis)

    def basis(self, spec: BasesSpec, workload: WorkloadSpec, basis: BasisSpec) -> float:
        """Return the seconds of estimating one basis."""
        return sum(self.estimated(spec, workload, basis).clock.seconds.values())

    def runs(self, spec: RunsSpec, workload: WorkloadSpec, basis: BasisSpec) -> Cost:
        """Return the cost of all rounds of a job on a workload in a basis, whose program is compiled once."""
        rounds = [one for one in map(spec.in_round, spec.rounds) if basis in one.bases]
        counts = [len(one.seeds) * one.tries(one.rounds[0]) for one in rounds]
        few, lanes = min(steps_of(spec, self.instance(workload)), STEPS), min(max(counts), LANES)
        settings = spec.tuning.settings(0, generator(spec.study, spec.tuning.protocol), None)
        clock = self.measured(spec, workload, basis, few, settings[:1] * lanes)
        step = (clock.seconds["step"] + clock.parts[WAITING]) / (few * lanes)
        evaluation = clock.seconds["evaluation"] / (2 * lanes)  # before the first step and after the last
        seconds = clock.seconds["compile"]
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
        stored = bases()[basis.name].stored
        needed = (self.estimated(spec, workload, basis).spec.hash,) if stored else ()
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
        backend, device = estimated_at(workload_of(workload).separate_jobs, spec.backend, spec.device)
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

    def instance(self, workload: WorkloadSpec) -> Instance:
        """Return the problem of a workload."""
        key = repr(workload)
        if key not in self.instances:
            self.instances[key] = instance(workload_of(workload), workload.settings, SEED)
        return self.instances[key]


# --- what is printed -----------------------------------------------------------------------------

HEAD = f"{'study':<32}{'jobs':>6}{'runs':>8}{'process time':>20}{'longest job':>20}"


def described(
    scale: str, found: Sequence[tuple[PlannedStudy, Cost]], skipped: Mapping[str, str]
) -> dict[str, Any]:
    """Return all estimates in plain JSON types, and by study why it has none."""
    return {
        "scale": scale,
        "studies": [
            {"name": planned.study.name, "backends": list(planned.plan.backends), **asdict(cost)}
            for planned, cost in found
        ],
        "total": asdict(sum((cost for _, cost in found), Cost())),
        "skipped": dict(skipped),
        "rough": list(ROUGH),
    }


def line(name: str, cost: Cost) -> str:
    """Return the line of a study, or of the total."""
    process, longest = (
        str(timedelta(seconds=round(seconds))) for seconds in (cost.process_seconds, cost.longest_seconds)
    )
    return f"{name:<32}{cost.jobs:>6,}{cost.runs:>8,}{process:>20}{longest:>20}"
