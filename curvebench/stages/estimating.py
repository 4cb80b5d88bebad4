"""Estimation of a plan's rough cost on the CPU before it is executed, for the command `curvebench estimate`.

Each method takes a few measured steps, and each basis is estimated for one seed. The cost of a job is
extrapolated from the measured seconds. The rounds of a method are its tuning rounds and the final round.
Studies with jobs on a GPU are left out, and the reason is printed: this machine need not have a GPU, and the
time of a run on a GPU cannot be predicted from the number of operations of the run.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stderr
from dataclasses import asdict, dataclass
from datetime import timedelta
from io import StringIO
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from curvebench.engine.clock import WAITING, Clock
from curvebench.optimizers.bases import bases
from curvebench.planning.plan import Plan, PlannedJob, PlannedStudy
from curvebench.progress import Progress
from curvebench.seeding import generator
from curvebench.spec.errors import InputError
from curvebench.spec.job import BasesSpec, JobSpec, RunsSpec, estimated_at
from curvebench.spec.method import BasisSpec, WorkloadSpec
from curvebench.spec.tuning import Setting
from curvebench.stages.basis_jobs import estimate_bases
from curvebench.stages.job import Instance, Job, instance, steps_of, workload_of
from curvebench.stages.run_jobs import run_lanes

STEPS = 20  # largest number of steps that are measured in a run
# Largest number of runs that are measured together.
# The time of more runs is assumed to be proportional to their number.
MAX_LANES = 32
SEED = 0  # seed of all measurements; all seeds are assumed to cost the same
START_SECONDS = 3.0  # time for a process to start and import its backend
# Values for the fields of a measured runs job that do not affect the time of a step
NOTHING_ELSE: dict[str, Any] = {
    "targets": {},
    "tuning_seeds": (),
    "claim_rules": {},
    "single_run": False,
    "setting_index": None,
    "compared_bases": (),
}
NO_NAMES: dict[str, Any] = {"study": "estimate", "scale": "any", "sources": {}, "versions": {}}
ON_GPU = "it has jobs on a GPU, whose cost is not estimated"
CAVEATS = (
    "With n jobs side by side: process time over n, at least the longest job.",
    f"{STEPS} steps of at most {MAX_LANES} runs, measured on one thread of this machine as it is now;",
    "work that comes more rarely is not in it, and jobs side by side take longer.",
    "Not in it: step times, parity and property checks, merging tables, figures and the site.",
)


@dataclass(frozen=True)
class Cost:
    """Cost of a job, of a study or of several studies.

    Args:
        jobs: number of jobs, each of which is a process.
        runs: number of single runs; 0 for jobs that are not runs jobs.
        process_seconds: sum of the times of all jobs.
        longest_seconds: time of the longest job. All jobs together take at least this long, however many of
            them run in parallel.
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
    """Return the studies of a plan whose cost can be estimated.

    Returns:
        The studies whose cost can be estimated, and a dictionary of all other studies. The dictionary has, by
        name of the study, the reason why there is no estimate.

    Raises:
        InputError: if there is no study whose cost can be estimated. The message contains the reasons.
    """
    on_gpu = [study for study in plan.studies if any(job.spec.device != "cpu" for job in study.jobs)]
    reasons = {study.name: study.reason for study in plan.report.skipped}
    reasons |= {planned.study.name: ON_GPU for planned in on_gpu}
    if on_cpu := [study for study in plan.studies if study not in on_gpu]:
        return on_cpu, reasons
    names = ", ".join(plan.config.studies)
    reasons = reasons or {names: "only property checks, whose cost is not estimated; name a study"}
    head = f"nothing to estimate at scale {plan.config.scale}"
    raise InputError("\n".join(f"{head}: {name}: {reason}" for name, reason in reasons.items()))


def estimates(studies: Sequence[PlannedStudy]) -> Iterator[tuple[PlannedStudy, Cost]]:
    """Measure the cost of each study, and yield pairs of the study and its cost.

    Raises:
        InputError: if a measured run or basis fails.
    """
    costs = job_costs(studies)
    for study in studies:
        yield study, sum((cost for _, cost in itertools.islice(costs, len(study.jobs))), Cost())


def job_costs(studies: Sequence[PlannedStudy]) -> Iterator[tuple[PlannedJob, Cost]]:
    """Measure the cost of each job, and yield pairs of the job and its cost.

    Files are written only to a temporary folder.

    Raises:
        InputError: if a measured run or basis fails.
    """
    with TemporaryDirectory(prefix="curvebench-") as folder:
        meter = _Meter(Path(folder))
        progress = Progress("estimate", sum(len(study.jobs) for study in studies), even=False)
        for name, job in ((study.study.name, job) for study in studies for job in study.jobs):
            cells = [*meter.cells(job.spec)]
            seconds = START_SECONDS + sum(cost.process_seconds for cost in cells)
            yield job, Cost(1, sum(cost.runs for cost in cells), seconds, seconds)
            progress.advance(1, f"({name} {job.spec.stage})")


class _Meter:
    """Measures the cost of runs and of basis estimation. Equal measurements are made only once.

    Args:
        folder: results folder of the short jobs that are run to measure their time.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.jobs: dict[str, Job] = {}
        self.instances: dict[str, Instance] = {}

    def cells(self, spec: JobSpec) -> Iterator[Cost]:
        """Yield a cost for each basis on each workload.

        In a basis-estimation job, the yielded cost is the cost of estimating the basis for all seeds. In a
        runs job, the yielded cost is the cost of all runs in the basis. For other jobs, nothing is yielded.
        """
        for workload, basis in product(spec.workloads, spec.bases):
            if isinstance(spec, BasesSpec):
                yield Cost(process_seconds=len(spec.seeds) * self.basis(spec, workload, basis))
            elif isinstance(spec, RunsSpec):
                yield self.runs(spec, workload, basis)

    def basis(self, spec: BasesSpec, workload: WorkloadSpec, basis: BasisSpec) -> float:
        """Return the seconds that the estimation of a basis takes for one seed."""
        return sum(self.estimated(spec, workload, basis).clock.seconds.values())

    def runs(self, spec: RunsSpec, workload: WorkloadSpec, basis: BasisSpec) -> Cost:
        """Return the cost of a method on a workload, summed over all rounds of the job.

        Compilation counts once, because all rounds share compiled programs.
        """
        rounds = [in_round for in_round in map(spec.in_round, spec.rounds) if basis in in_round.bases]
        counts = [len(in_round.seeds) * in_round.tries(in_round.rounds[0]) for in_round in rounds]
        count, lanes = min(steps_of(spec, self.instance(workload)), STEPS), min(max(counts), MAX_LANES)
        lanes = lanes if workload_of(workload).mapped else 1
        settings = spec.tuning.settings(0, generator(spec.study, spec.tuning.protocol), None)
        clock = self.measured(spec, workload, basis, count, settings[:1] * lanes)
        step = (clock.seconds["step"] + clock.parts[WAITING]) / (count * lanes)
        evaluation = clock.seconds["evaluation"] / (2 * lanes)  # a measured run has two evaluations
        seconds = clock.seconds["compile"]
        for in_round, runs in zip(rounds, counts, strict=True):
            steps = steps_of(in_round, self.instance(workload))
            seconds += runs * (steps * step + (in_round.training.evaluations + 1) * evaluation)
        return Cost(0, sum(counts), seconds)

    def measured(
        self,
        spec: RunsSpec,
        workload: WorkloadSpec,
        basis: BasisSpec,
        steps: int,
        settings: tuple[Setting, ...],
    ) -> Clock:
        """Run a job with a short run for each setting, and return the clock of the job.

        The clock has the seconds of the job by phase.
        """
        stored = bases()[basis.name].stored
        bases_jobs = (self.estimated(spec, workload, basis).spec.hash,) if stored else ()
        schedule = spec.training.schedule
        short = spec.changed(
            rounds=(spec.final_round,),
            workloads=(workload,),
            bases=(basis,),
            seeds=(SEED,),
            settings=settings,
            budget={"steps": steps},
            # A warm-up in epochs might be longer than this short run. Such a warm-up is refused as an error.
            schedule=schedule.model_copy(update={"warmup_epochs": None}),
            evaluations=1,
            upstream={"bases": bases_jobs},
            **NOTHING_ELSE,
            **NO_NAMES,
        )
        return self.done(short, run_lanes).clock

    def estimated(self, spec: BasesSpec | RunsSpec, workload: WorkloadSpec, basis: BasisSpec) -> Job:
        """Run a basis-estimation job for one basis, workload and seed, and return the job."""
        backend, device = estimated_at(workload_of(workload).separate_jobs, spec.backend, spec.device)
        cell: dict[str, Any] = {"workloads": (workload,), "bases": (basis,), "seeds": (SEED,)}
        short = BasesSpec(
            stage="bases", backend=backend, device=device, precision=spec.precision, **cell, **NO_NAMES
        )
        return self.done(short, estimate_bases)

    def done(self, spec: JobSpec, stage: Callable[[Job], Any]) -> Job:
        """Run the job of a spec, unless an equal job was run before, and return the job.

        Args:
            spec: the specification of the job.
            stage: function that does the computation of the job.

        Raises:
            InputError: if a run or a basis estimation of the job fails.
        """
        if spec.hash not in self.jobs:
            job = Job(spec, self.folder)
            job.folder.mkdir(parents=True, exist_ok=True)
            with redirect_stderr(StringIO()):  # hide the progress bar, since the job takes only seconds
                stage(job)
            for failure in job.failures:
                raise InputError(f"{failure['what']}: {failure['reason']}; nothing can be estimated with it")
            self.jobs[spec.hash] = job
        return self.jobs[spec.hash]

    def instance(self, workload: WorkloadSpec) -> Instance:
        """Return the problem of a workload with the seed SEED."""
        key = repr(workload)
        if key not in self.instances:
            self.instances[key] = instance(workload_of(workload), workload.settings, SEED)
        return self.instances[key]


# --- what is printed -----------------------------------------------------------------------------

HEAD = f"{'study':<32}{'jobs':>6}{'runs':>8}{'process time':>20}{'longest job':>20}"


def described(
    scale: str, costs: Sequence[tuple[PlannedStudy, Cost]], skipped: Mapping[str, str]
) -> dict[str, Any]:
    """Return all estimates in JSON types.

    Args:
        scale: the scale of the plan.
        costs: the studies with their costs.
        skipped: a mapping from the names of studies without an estimate to the reasons.
    """
    return {
        "scale": scale,
        "studies": [
            {"name": planned.study.name, "backends": list(planned.plan.backends), **asdict(cost)}
            for planned, cost in costs
        ],
        "total": asdict(sum((cost for _, cost in costs), Cost())),
        "skipped": dict(skipped),
        "caveats": list(CAVEATS),
    }


def line(name: str, cost: Cost) -> str:
    """Format the costs of a study, or of all studies, as a line of a table whose header is HEAD."""
    process, longest = (
        str(timedelta(seconds=round(seconds))) for seconds in (cost.process_seconds, cost.longest_seconds)
    )
    return f"{name:<32}{cost.jobs:>6,}{cost.runs:>8,}{process:>20}{longest:>20}"
