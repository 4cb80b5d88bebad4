"""The plan: which jobs answer the chosen studies, from which files to which files."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import product
from pathlib import Path
from typing import Any

from curvebench import EXPORTS
from curvebench.backends import BACKENDS
from curvebench.backends import module_of as backend_module
from curvebench.interop.foreign import named_in
from curvebench.optimizers import rules
from curvebench.optimizers.bases import KIND as BASES
from curvebench.optimizers.bases import bases as known_bases
from curvebench.paths import FAILED, stored_kernels
from curvebench.planning.config import CENSUS, Config, read_config
from curvebench.planning.parity_problems import CORE, PROBLEMS, STEPS, TOLERANCE, ParityProblem
from curvebench.planning.studies.reading import read_studies
from curvebench.planning.studies.seeds import FirstSeeds
from curvebench.planning.studies.study import Study
from curvebench.planning.wiring import MERGED, PATTERNS, TABLES, WiredJob, Wiring, tables_in
from curvebench.precision import policy_of
from curvebench.property_checks.check_rules import check_rule
from curvebench.property_checks.checks import FOLDER, PACKAGE, PropertyClaim, claims_by_id, claims_of, file_of
from curvebench.registry import RULES, WORKLOADS, at_defaults, find_workload, missing_of
from curvebench.results.archive import archive_of, checksums_of, joined_locally, with_figures
from curvebench.results.temporary import write_texts
from curvebench.sources import ROOT, RULES_AND_WORKLOADS, SourceTree, files_hash
from curvebench.spec import job as job_specs
from curvebench.spec import plan as report_plans
from curvebench.spec.errors import InputError, Problems, by_reason, nearest, unknown
from curvebench.spec.method import BasisSpec, Method, OptimizerSpec, WorkloadSpec, methods
from curvebench.spec.study import Scale
from curvebench.spec.tuning import Tuning
from curvebench.workloads.data import FOLDER_VARIABLE

ALL = "all"  # parity compares every backend with every other
CLAIMS = "claims"  # what the checks of claims have for a study
ARCHIVE = "archive"  # what the figures of published sets have
VALUES = "curvebench.spec.values"  # of all documents the only one that decides what parity and checks compute
PACKAGES = {
    "jax": ("jax", "jaxlib", "numpy"),
    "torch": ("numpy", "torch"),
    job_specs.HOST: ("jax", "jaxlib", "numpy"),
    ALL: ("jax", "jaxlib", "numpy", "torch"),
}
SHOWN = "plan.json"  # the site's copy of the plan that it shows

# The packages that decide what parity and property checks compute, beside optimizers and workloads.
EXECUTION = tuple(
    f"curvebench.{name}"
    for name in (
        *("arrays", "backends", "basis_estimation", "engine", "interop", "planning", "precision", "progress"),
        *("property_checks", "registry", "seeding", "sources", "stages", "steps", "timing"),
    )
)
RESULTS_CODE = ("curvebench/spec/*.py", "results/*.py")
REPORTS_CODE = ("curvebench/spec/*.*", "reports/**/*.py", "reports/templates/**/*", "reports/static/**/*")


# --- what the user asks for ----------------------------------------------------------------------


def _select(studies: tuple[Study, ...], claims: Iterable[str], config: Config) -> tuple[Study, ...]:
    """The studies asked for, by file stem or claim id; `claims` are the ids of property checks.

    One that only repeats claims is among them where it is named, or what it repeats is and `repeats` is set.
    """
    by_name = {claim.id: study for study in studies for claim in study.claims}
    by_name |= {study.name: study for study in studies}
    known = [*by_name, *claims]
    for name in config.studies:
        if name not in known:
            where = f"{config.study_folder} (or benchmarks/claims)"
            said = f"{where} has no study or claim {name!r}{nearest(name, known)}"
            there = ", ".join(study.name for study in studies)
            raise InputError(f"--config studies: {said} (studies: {there}; claims: curvebench list)")
    wanted = {by_name[name].name for name in config.studies if name in by_name}
    if not any(config.scale in study.scales for study in studies):
        named = [study for study in studies if study.name in wanted] or studies
        where = ", ".join(study.name for study in named) if wanted else str(config.study_folder)
        scales = sorted({scale for study in named for scale in study.scales})
        raise InputError(f"--config scale: {unknown(where, 'scale', config.scale, scales)}")
    if not config.studies:
        wanted = {study.name for study in studies if not study.only_repeats}
    if config.repeats:
        shown = {claim.id for study in studies if study.name in wanted for claim in study.claims}
        wanted |= {study.name for study in studies if study.only_repeats and study.repeated & shown}
    return tuple(study for study in studies if study.name in wanted)


def _with_seeds(studies: tuple[Study, ...], config: Config) -> tuple[Study, ...]:
    """Studies on the seeds of a published set, where the configuration names one and it has them."""
    if config.seeds_of is None:
        return studies
    known = {
        one.name: FirstSeeds(one.first_tuning_seed, one.first_final_seed)
        for one in report_plans.read_plan(config.seeds_of).studies
    }
    return tuple(study.model_copy(update={"first_seeds": known.get(study.name)}) for study in studies)


def _why_skipped(study: Study, config: Config) -> str | None:
    if config.scale not in study.scales:
        return f"it has no scale {config.scale!r} (it has: {', '.join(study.scales)})"
    if not study.backends_at(config.scale, config.backends):
        backends = ", ".join(config.backends or study.scales[config.scale].backends)
        used = ", ".join(study.backends_at(config.scale)) or "none"
        return f"it does not run on {backends} at this scale (it runs on: {used})"
    alone = [one.name for one in study.workloads[config.scale] if find_workload(one.locator).separate_jobs]
    if alone and not config.studies:
        return f"each run of {' and '.join(alone)} takes minutes to hours; name the study to run it"
    return missing_of(study.workloads[config.scale])


# --- jobs ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RunSelection:
    """The share of a study's runs or bases that one job makes, such as all rounds of one optimizer.

    Args:
        seeds: of the final round, or of bases.
        rounds: the numbers of the rounds; empty for bases.
        tuning_seeds: of the other rounds.
        alone: whether the job makes a single run (in the final round: the runs of a single seed).
        setting: the index of that run's setting among those that its round tries; None: the job makes all.
    """

    workloads: tuple[WorkloadSpec, ...]
    bases: tuple[BasisSpec, ...]
    seeds: tuple[int, ...]
    rounds: tuple[int, ...] = ()
    tuning_seeds: tuple[int, ...] = ()
    alone: bool = False
    setting: int | None = None

    def reads(self, spec: job_specs.JobSpec, tuning: Tuning) -> bool:
        """Whether an earlier job has settings or bases for it."""
        if isinstance(spec, job_specs.BasesSpec):
            return (
                any(basis in spec.bases for basis in self.bases)
                and any(seed in spec.seeds for seed in (*self.seeds, *self.tuning_seeds))
                and self.workloads[0] in spec.workloads  # where one is, all are
            )
        assert isinstance(spec, job_specs.RunsSpec)
        if not (self.alone == spec.alone and spec.rounds[0] < self.rounds[0]):
            return False
        if self.workloads[0] not in spec.workloads:
            return False
        return not self.alone or spec.bases[0].label == tuning.tuning_basis(self.bases[0].label)


@dataclass(frozen=True)
class PlannedJob:
    """One job with its place in the DAG.

    Args:
        results: the results folder.
        lanes: how many runs it holds; for bases how many estimates, for timing how many methods, for checks
            how many claims.
        upstream: the jobs whose tables it reads.
    """

    spec: job_specs.JobSpec
    results: Path
    lanes: int
    upstream: tuple[PlannedJob, ...] = ()

    @property
    def spec_path(self) -> Path:
        """Its spec file."""
        return job_specs.spec_file(self.results, self.spec)

    @property
    def folder(self) -> Path:
        """The folder of its tables."""
        return job_specs.job_folder(self.results, self.spec)


@dataclass(frozen=True)
class PlannedStudy:
    """A study with its jobs and what is made of their tables."""

    study: Study
    jobs: tuple[PlannedJob, ...]
    plan: report_plans.StudyPlan


@dataclass(frozen=True)
class Planner:
    """Makes the jobs of one study at one scale.

    Args:
        size: what the scale has besides its study's plan.
    """

    study: report_plans.StudyPlan
    scale: str
    size: Scale
    results: Path
    tree: SourceTree

    @property
    def workloads(self) -> tuple[WorkloadSpec, ...]:
        """The study's workloads as jobs have them."""
        return tuple(workload.spec for workload in self.study.workloads)

    @property
    def tuning_seeds(self) -> tuple[int, ...]:
        """The seeds that settings are tried on."""
        first = self.study.first_tuning_seed
        return tuple(range(first, first + self.study.seeds.tuning))

    def final_seeds(self, backend: str) -> tuple[int, ...]:
        """The seeds that methods are judged on, disjoint from the tuning seeds."""
        first = self.study.first_final_seed
        return tuple(range(first, first + self.size.final_seeds(backend)))

    def jobs(self) -> tuple[PlannedJob, ...]:
        """All jobs that the study's backends need, upstream jobs first."""
        final_seeds = max(map(self.final_seeds, self.size.backends), key=len)
        tried = tuple(one for one in self.study.bases if self.study.tuning.tries(one.label))
        bases = self._bases(self.tuning_seeds, tried)
        final_bases = self._bases(final_seeds, self.study.bases)
        made: dict[tuple[str, str], tuple[PlannedJob, ...]] = {}  # by the backend and optimizer that tune
        finals: dict[str, list[PlannedJob]] = {backend: [] for backend in self.study.backends}
        for backend in self.study.backends:
            for optimizer in self._running(backend):
                tuner = backend if optimizer.only_backend else self.study.tuned_on[backend]
                key = tuner, optimizer.label
                if key not in made:
                    seeds = self.final_seeds(tuner) if tuner in self.study.backends else ()
                    made[key] = self._of_method(tuner, optimizer, (*bases, *final_bases), True, seeds)
                own = made[key]
                if tuner != backend:
                    upstream = (*own, *final_bases)
                    own = self._of_method(backend, optimizer, upstream, False, self.final_seeds(backend))
                    made[backend, optimizer.label] = own
                finals[backend] += (job for job in own if job.spec.seeds)
        timed = self.size.timing and not self.study.joins  # seconds are those of one machine
        timings = [self._timing(backend, (*jobs, *final_bases)) for backend, jobs in finals.items() if timed]
        return (*bases, *final_bases, *(job for jobs in made.values() for job in jobs), *timings)

    def _bases(self, seeds: tuple[int, ...], among: tuple[BasisSpec, ...]) -> tuple[PlannedJob, ...]:
        """The jobs that compute bases for some seeds; none where no basis is stored."""
        bases = tuple(basis for basis in among if known_bases()[basis.name].stored)
        workloads = self.workloads if bases else ()
        first, where = next(iter(self.size.backends.items()))
        separate = [find_workload(workload.locator).separate_jobs for workload in workloads]
        places = [job_specs.estimated_at(separate_jobs, first, where.device) for separate_jobs in separate]
        jobs = []
        for backend, device in dict.fromkeys(places):
            here = tuple(
                one for one, place in zip(workloads, places, strict=True) if place == (backend, device)
            )
            precision = self.study.training.precision
            if precision and backend == job_specs.HOST:
                precision = policy_of(precision).computed
            for share in self._shares(here, bases, seeds):
                spec = job_specs.BasesSpec(
                    stage="bases",
                    device=device,
                    precision=precision,
                    **self._common(backend, (), share, ()),
                )
                jobs.append(PlannedJob(spec, self.results, spec.cells))
        return tuple(jobs)

    def _shares(
        self, workloads: tuple[WorkloadSpec, ...], bases: tuple[BasisSpec, ...], seeds: tuple[int, ...]
    ) -> list[RunSelection]:
        """Return the final runs of each final job, or the bases of each basis job (the scale's `jobs`)."""
        parts = {"workload": [(one,) for one in workloads]}.get(self.size.jobs, [workloads])
        cut_bases = [(basis,) for basis in bases] if self.size.jobs in ("basis", "seed") else [bases]
        cut_seeds = [(seed,) for seed in seeds] if self.size.jobs == "seed" else [seeds]
        return [RunSelection(*one) for one in product(parts, cut_bases, cut_seeds)]

    def _of_method(
        self,
        backend: str,
        optimizer: OptimizerSpec,
        upstream: tuple[PlannedJob, ...],
        tunes: bool,
        seeds: tuple[int, ...],
    ) -> tuple[PlannedJob, ...]:
        """Return the jobs that make an optimizer's runs on a backend, upstream jobs first.

        Args:
            upstream: the jobs of bases, and those that tune the optimizer on another backend.
            tunes: whether the tuning rounds are made here.
            seeds: of the final round; empty: it is not made here.
        """
        assert not set(seeds).intersection(self.tuning_seeds), "final seeds must not have tuned"
        tuning, jobs = self.study.tuning.for_optimizer(optimizer), upstream
        for share in self._selections(optimizer, tunes, seeds):
            read = tuple(job for job in jobs if share.reads(job.spec, tuning))
            spec = job_specs.RunsSpec(
                stage="runs",
                tuning=tuning,
                rounds=share.rounds,
                tuning_seeds=share.tuning_seeds,
                alone=share.alone,
                setting=share.setting,
                compared=self._compared(optimizer, share.bases) if share.seeds else (),
                claim_rules=self.study.rules if share.seeds else {},
                **self._common(backend, (optimizer,), share, read),
                **self._training(backend),
            )
            jobs += (PlannedJob(spec, self.results, sum(spec.lanes), read),)
        return jobs[len(upstream) :]

    def _selections(
        self, optimizer: OptimizerSpec, tunes: bool, seeds: tuple[int, ...]
    ) -> Iterator[RunSelection]:
        """Yield the runs of each job of an optimizer: all rounds together where nothing else is said.

        A scale that gives each basis or seed a final job of its own has all tuning rounds in a job before
        those. Where each run of a workload is a job of its own, a round's jobs come after those of the
        rounds before.
        """
        bases = tuple(basis for basis in self.study.bases if basis.applies_to(optimizer.label))
        tried = tuple(basis for basis in bases if self.study.tuning.tries(basis.label))
        counts = self.study.tuning.for_optimizer(optimizer).rounds
        final, tuning_seeds = len(counts), self.tuning_seeds if tunes else ()
        rounds = tuple(range(final)) if tunes else ()
        alone = tuple(one for one in self.workloads if find_workload(one.locator).separate_jobs)
        together = tuple(one for one in self.workloads if one not in alone)
        shares = self._shares(together, bases, seeds) if together and seeds else []
        apart = not shares or self.size.jobs in ("basis", "seed")
        if together and rounds and apart:
            yield RunSelection(together, tried, (), rounds, tuning_seeds)
        made, tried_on = ((final,), ()) if apart else ((*rounds, final), tuning_seeds)
        yield from (replace(share, rounds=made, tuning_seeds=tried_on) for share in shares)
        for number in rounds:
            runs = product(alone, tried, self.tuning_seeds, range(counts[number]))
            for workload, basis, seed, setting in runs:
                yield RunSelection((workload,), (basis,), (), (number,), (seed,), True, setting)
        for workload, basis, seed in product(alone, bases, seeds):
            yield RunSelection((workload,), (basis,), (seed,), (final,), (), True)

    def _compared(self, optimizer: OptimizerSpec, bases: Iterable[BasisSpec]) -> tuple[str, ...]:
        """Those of some bases in which claims of the study compare final runs of a method."""
        if not self.size.alternatives:
            return ()
        compared = frozenset[str]().union(*(one.methods for one in self.study.claims))
        labels = [basis.label for basis in bases]
        return tuple(label for label in labels if Method(optimizer.label, label).label in compared)

    def _timing(self, backend: str, upstream: tuple[PlannedJob, ...]) -> PlannedJob:
        share = RunSelection(self.workloads, self.study.bases, self.final_seeds(backend)[:1])
        upstream = tuple(job for job in upstream if share.seeds[0] in job.spec.seeds)
        common = self._common(backend, self._running(backend), share, upstream)
        spec = job_specs.TimingSpec(stage="timing", **common, **self._training(backend))
        count = len(methods(spec.optimizers, spec.bases))
        return PlannedJob(spec, self.results, len(spec.workloads) * count, upstream)

    def _common(
        self,
        backend: str,
        optimizers: tuple[OptimizerSpec, ...],
        share: RunSelection,
        upstream: tuple[PlannedJob, ...],
    ) -> dict[str, Any]:
        """Return the fields that all jobs of the study have."""
        locators = [name for one in optimizers for name in (one.locator, *named_in(one.options))]
        return {
            "study": self.study.name,
            "scale": self.scale,
            "backend": backend,
            "optimizers": optimizers,
            "workloads": share.workloads,
            "bases": share.bases,
            "seeds": share.seeds,
            "upstream": {
                stage: tuple(job.spec.hash for job in upstream if job.spec.stage == stage)
                for stage in dict.fromkeys(job.spec.stage for job in upstream)
            },
            **self.tree.decisive((), locators, share.workloads, share.bases, PACKAGES[backend]),
        }

    def _training(self, backend: str) -> dict[str, Any]:
        """Return how, where and in what memory a backend runs methods."""
        device, memory = self.size.backends[backend].device, self.size.bundle_memory_bytes
        return {"training": self.study.training, "device": device, "bundle_memory_bytes": memory}

    def _running(self, backend: str) -> tuple[OptimizerSpec, ...]:
        """Return the optimizers that run on a backend: those of other libraries run on one alone."""
        return tuple(one for one in self.study.optimizers if one.runs_on(backend))


def _gathered(spec: job_specs.JobSpec) -> list[str]:
    """Return the upstream stages whose runs a job of a single run reads; empty for other jobs.

    The runs of such a stage are gathered in one file, and the jobs that read them wait for that file: n jobs
    that each read m runs need n + m edges in Snakemake's graph instead of n m.
    """
    alone = isinstance(spec, job_specs.RunsSpec) and spec.alone
    return [stage for stage in spec.upstream if alone and stage != "bases"]


def parity_job(
    optimizers: tuple[str, ...], problems: tuple[ParityProblem, ...], results: Path, tree: SourceTree
) -> PlannedJob:
    """The job that compares the backends on some optimizers; it belongs to no study and no scale."""
    workload_specs = tuple(problem.workload_spec for problem in problems)
    basis_specs = tuple(problem.basis_spec for problem in problems)
    engines = (f"curvebench.backends.{backend}_engine" for backend in BACKENDS)
    modules, followed = ("curvebench.stages.parity", VALUES, *engines), (*RULES_AND_WORKLOADS, *EXECUTION)
    spec = job_specs.ParitySpec(
        stage="parity",
        study="parity",
        scale=ALL,
        backend=ALL,
        optimizers=tuple(map(OptimizerSpec, optimizers)),
        workloads=workload_specs,
        bases=basis_specs,
        steps=STEPS,
        **tree.decisive(modules, optimizers, workload_specs, basis_specs, PACKAGES[ALL], followed),
    )
    return PlannedJob(spec, results, len(problems) * len(optimizers))


def checks_job(module: str, scale: str, results: Path, tree: SourceTree) -> PlannedJob:
    """Return the job that checks the claims of a module of `benchmarks/claims`.

    Claims look up rules, bases and workloads by name: the job's hash covers the sources of all of them.
    """
    claims = claims_of(module)
    workload_specs = at_defaults(name for claim in claims for name in claim.workloads)
    found_by_name = (kind.module_of(name) for kind in (RULES, BASES, WORKLOADS) for name in kind.own())
    modules = (
        *("curvebench.property_checks.checks", VALUES, f"{PACKAGE}.{module}", *found_by_name),
        *(*map(backend_module, BACKENDS), *EXPORTS.values()),
    )
    packages = (*PACKAGES[ALL], "scipy")
    followed = (*RULES_AND_WORKLOADS, *EXECUTION, "curvebench.benchmarks")
    spec = job_specs.ChecksSpec(
        stage="checks",
        study=CLAIMS,
        scale=scale,
        backend=job_specs.HOST,
        optimizers=(OptimizerSpec(module),),
        workloads=workload_specs,
        **tree.decisive(modules, (), workload_specs, (), packages, followed),
        claim_rules={claim.id: check_rule(claim) for claim in claims},
    )
    lanes = sum(missing_of(at_defaults(claim.workloads)) is None for claim in claims)
    return PlannedJob(spec, results, lanes)


def describe_parity(tables: Iterable[Path]) -> report_plans.ParityPlan:
    """The parity of backends as the report shows it: the problems, and where the tables are."""
    problems = tuple(map(report_plans.ProblemPlan.taken_from, PROBLEMS))
    return report_plans.ParityPlan(steps=STEPS, tolerance=TOLERANCE, problems=problems, tables=tuple(tables))


def describe_checks(tables: Mapping[str, Path], scale: str) -> report_plans.ChecksPlan:
    """Return the plan of all claims that property checks decide; its folder of figures is filled in later.

    Args:
        tables: the folder of each module's tables.
    """
    claims = [
        report_plans.ClaimPlan.taken_from(
            claim,
            file=file_of(module),
            rule=check_rule(claim),
            missing=missing_of(at_defaults(claim.workloads)) or "",
            parts=tuple(
                report_plans.PartPlan.taken_from(one, instances=one.count(scale)) for one in claim.checks
            ),
        )
        for module in tables
        for claim in claims_of(module)
    ]
    return report_plans.ChecksPlan(claims=tuple(claims), tables=tuple(tables.values()), figures=Path())


# --- the whole -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Plan:
    """The plan of `snakemake reports`: all jobs, and the report that is rendered from them.

    Args:
        others: the jobs of no study: the parity of backends, and property checks.
        report: what the site shows, with the hash of the code that shows it.
        kernels: the files of kernel speed.
        archive_figures: the folder of the figures of published sets.
    """

    config: Config
    studies: tuple[PlannedStudy, ...]
    others: tuple[PlannedJob, ...]
    report: report_plans.ReportPlan
    kernels: tuple[Path, ...]
    archive_figures: Path

    @cached_property
    def figures(self) -> dict[Path, tuple[report_plans.ReportPlan, tuple[str, ...]]]:
        """The folders of figures: what is drawn into each, and the tables that it is drawn from.

        A study that joins another has none: its methods are in the figures of the study that it joins.
        """
        shown, report = self.report, partial(report_plans.ReportPlan, scale=self.config.scale)
        own = [study for study in shown.studies if not study.joins]
        drawn = {study.figures: (report(studies=(study,)), _merged([study])) for study in own}
        if shown.checks:
            tables = tuple(tables_in(shown.checks.tables))
            drawn[shown.checks.figures] = report(studies=(), checks=shown.checks), tables
        if shown.archive:
            tables = _merged(study for plan in shown.archive for study in plan.studies)
            drawn[self.archive_figures] = report(studies=(), archive=shown.archive), tables
        return drawn

    @property
    def jobs(self) -> tuple[PlannedJob, ...]:
        """All jobs, upstream first."""
        return (*(job for planned in self.studies for job in planned.jobs), *self.others)

    @property
    def report_path(self) -> Path:
        """The file that tells the report what to show; its name carries its hash."""
        return self.config.results / "specs" / f"plan.{_digest(self.report.to_json())}.json"

    @property
    def wiring_path(self) -> Path:
        """The file of the wiring; its name carries its hash."""
        return self.config.results / "specs" / f"wiring.{_digest(self.wiring.to_json())}.json"

    @cached_property
    def wiring(self) -> Wiring:
        """What the Snakefile asks."""
        shown = (
            *_merged(self.report.studies),
            *map(str, self.kernels),
            *tables_in(job.folder for job in self.others),
            *map(str, self.figures),
        )
        made_of = {_hash_of(folder): tables for folder, (_, tables) in self.figures.items()}
        for study in self.studies:
            made_of[_hash_of(study.plan.tables)] = tuple(tables_in(job.folder for job in study.jobs))
        jobs = {job.spec.hash: WiredJob.of(job.spec) for job in self.jobs}
        for job in self.jobs:
            spec, files = job.spec, []
            for stage in _gathered(spec):
                runs = [one for one in job.upstream if one.spec.stage == stage]
                hash_ = _digest([run.spec.hash for run in runs])
                gathered = PATTERNS["gathered"].format(study=spec.study, scale=spec.scale, hash=hash_)
                files.append(f"{self.config.results}/{gathered}")
                said = f"{len(runs)} runs are there, the first of them {runs[0].spec.description}"
                jobs[hash_] = WiredJob(description=said)
                made_of[hash_] = tuple(tables_in(run.folder for run in runs))
            direct = (one.folder for one in job.upstream if one.spec.stage not in _gathered(spec))
            made_of[spec.hash] = (*files, *tables_in(direct))
        return Wiring(
            summary=self.summary(),
            config=self.config,
            report_path=str(self.report_path),
            shown=shown,
            jobs=jobs,
            made_of=made_of,
        )

    def summary(self) -> str:
        """The plan for people: jobs and runs by study and stage, and what is skipped."""
        lines = [f"curvebench, scale {self.config.scale}: {_jobs(self.jobs)}"]
        for planned in self.studies:
            stages = [
                f"{stage} {_jobs(jobs)}, {sum(job.lanes for job in jobs)} {LANES.get(stage, 'runs')}"
                for stage in TABLES
                if (jobs := [job for job in planned.jobs if job.spec.stage == stage])
            ]
            lines.append(
                f"  {planned.study.name} on {' and '.join(planned.plan.backends)}: "
                f"{'; '.join([*stages, *_remarks(planned.jobs)])}"
            )
        kinds = {"parity": (f"parity of {' and '.join(BACKENDS)}", "problems")}
        kinds["checks"] = ("property checks", "claims")
        for stage, (name, unit) in kinds.items():
            if jobs := [job for job in self.others if job.spec.stage == stage]:
                lines.append(f"  {name}: {_jobs(jobs)}, {sum(job.lanes for job in jobs)} {unit}")
        return "\n".join([*lines, *(f"  {line}" for line in self.left_out)])

    @property
    def left_out(self) -> list[str]:
        """What is skipped, studies and property claims, in a line a reason."""
        checks = self.report.checks
        claims = {claim.id: claim.missing for claim in (checks.claims if checks else ())}
        studies = {study.name: study.reason for study in self.report.skipped}
        return [f"skipped {names}: {reason}" for names, reason in by_reason(studies | claims)]


def _jobs(jobs: Sequence[PlannedJob]) -> str:
    return f"{len(jobs)} {'job' if len(jobs) == 1 else 'jobs'}"


def _remarks(jobs: Iterable[PlannedJob]) -> Iterator[str]:
    """What to know of some jobs: whose runs are jobs of their own, and how many take a GPU."""
    specs = [job.spec for job in jobs]
    alone = {
        spec.workloads[0].name: None for spec in specs if isinstance(spec, job_specs.RunsSpec) and spec.alone
    }
    if alone:
        yield f"each run of {' and '.join(alone)} a job of its own"
    on_gpus = sum(spec.device != "cpu" for spec in specs)
    if on_gpus:
        yield f"a GPU each for {on_gpus} jobs"


LANES = {"bases": "matrices", "timing": "methods"}


def make_plan(config: Config, root: Path = ROOT) -> Plan:
    """The plan of a configuration. Writes nothing, imports neither torch nor jax.

    Args:
        config: what the user asks for.
        root: the folder of the first-party packages, whose sources are hashed.

    Raises:
        InputError: for bad studies or a configuration that they do not know.
    """
    names, config = config.studies, config.with_tour()
    names = names and config.studies  # none for the tour and for all
    planned, skipped = [], []
    scale, results = config.scale, config.results
    tree = SourceTree(root)
    reports_code, results_code = _code(root, REPORTS_CODE), _code(root, RESULTS_CODE)
    claims = _property_claims(names, config, root)
    studies = _with_seeds(read_studies(config.study_folder, () if config.repeats else names), config)
    _check_ids(studies, claims)
    for study in _select(studies, claims, config):
        reason = _why_skipped(study, config)
        if reason is not None:
            skipped.append(study.skipped(scale, reason))
        else:
            planned.append(_planned(study, config, tree, reports_code, results_code))
    named = (*names, *(one.plan.joins for one in planned if one.plan.joins)) if names else ()
    archive = archive_of(named, [one.plan for one in planned])
    sums = checksums_of(
        (plan.published for plan in archive), (one for plan in archive for one in plan.studies)
    )
    archive_hash = _digest([*(plan.to_json() for plan in archive), *sums, reports_code])
    archive_figures = results / "figures" / f"{ARCHIVE}.published.{archive_hash}"
    own = {"study_folder", "seeds_of"}  # the studies of published sets are the checkout's
    folders = {key: folder for key, folder in config.other_folders.items() if key not in own}
    parity = [parity_job(*one, results, tree) for one in _compared(planned, config)]
    modules = {module: None for name, (module, _) in claims.items() if name in (config.studies or claims)}
    checks = {module: checks_job(module, scale, results, tree) for module in modules}
    planned = [_with_joined(one, archive, config) for one in planned]
    others = (*parity, *checks.values())
    kernels = _kernels(results)
    report = report_plans.ReportPlan(
        scale=scale,
        studies=tuple(one.plan for one in planned),
        skipped=tuple(skipped),
        parity=describe_parity(job.folder for job in parity) if parity else None,
        checks=_shown_claims(checks, config, [results_code, reports_code]) if checks else None,
        code=reports_code,
        jobs=sum(len(one.jobs) for one in planned) + len(others),
        kernels=stored_kernels(results) if kernels else None,
        folders=config.other_folders,
        archive=tuple(
            with_figures(plan, archive_figures / plan.published).model_copy(update={"folders": folders})
            for plan in archive
        ),
    )
    if not names:
        census = _census(config, studies, claims, set(_decided(report)))
        report = report.model_copy(update={"census": census})
    return Plan(config, tuple(planned), others, report, kernels, archive_figures)


def _decided(plan: report_plans.ReportPlan) -> Iterator[str]:
    """The ids of all claims that a plan, what it leaves out, and its archive decide."""
    for one in (plan, *plan.archive):
        yield from (claim.id for study in (*one.studies, *one.skipped) for claim in study.claims)
        yield from (claim.id for claim in (one.checks.claims if one.checks else ()))


def _census(
    config: Config,
    studies: Iterable[Study],
    checked: Mapping[str, tuple[str, PropertyClaim]],
    decided: Collection[str],
) -> tuple[report_plans.UnrunClaim, ...]:
    """The claims of studies and of checks that are not decided, and why not.

    Raises:
        InputError: when the census is damaged, or names a claim that none of these decides.
    """
    unrun = partial(report_plans.UnrunClaim.taken_from, reason="neither run here nor published")
    known = {
        one.id: unrun(
            one,
            study=study.name,
            scale=study.scale_deciding(one, config.scale),
            cost=study.cost,
        )
        for study in studies
        for one in study.claims
        if not one.repeats
    }
    known |= {name: unrun(one, study=file_of(module)) for name, (module, one) in checked.items()}
    for claim in config.census():
        if claim not in known:
            path = config.study_folder.parent / CENSUS
            raise InputError(f"{path}: {unknown('curvebench', 'claim', claim, known)}")
    return tuple(claim for claim in known.values() if claim.id not in decided)


def _with_joined(
    planned: PlannedStudy, archive: Sequence[report_plans.ReportPlan], config: Config
) -> PlannedStudy:
    """A study with what joins its published version; the name of its figures carries the hash of that."""
    plan = joined_locally(planned.plan, archive)
    if not plan.joined:
        return planned
    hash_ = _digest([plan.model_dump(mode="json"), checksums_of((), [plan])])
    figures = plan.figures.with_name(f"{plan.name}.{config.scale}.{hash_}")
    return replace(planned, plan=plan.model_copy(update={"figures": figures}))


def _merged(studies: Iterable[report_plans.StudyPlan]) -> tuple[str, ...]:
    """The merged tables of studies, and of those that join them."""
    folders = (one.tables for study in studies for one in (study, *study.joining))
    return tuple(f"{folder}/{name}.parquet" for folder in folders for name in MERGED)


def _shown_claims(
    checks: Mapping[str, PlannedJob], config: Config, code: Sequence[str]
) -> report_plans.ChecksPlan:
    """The checks of claims as the report shows them; the name of their figures carries their hash."""
    described = describe_checks({module: job.folder for module, job in checks.items()}, config.scale)
    hash_ = _digest([described.model_dump(mode="json"), *code])
    return described.model_copy(
        update={"figures": config.results / "figures" / f"{CLAIMS}.{config.scale}.{hash_}"}
    )


def _property_claims(
    names: Sequence[str], config: Config, root: Path
) -> dict[str, tuple[str, PropertyClaim]]:
    """The claims that property checks decide, with their modules, by id.

    None where each name that is asked for is a study's file: a broken module is then in nobody's way.
    """
    files = {path.stem for path in config.study_folder.glob("*.yaml")}
    if names and files.issuperset(names):
        return {}
    return claims_by_id(root / FOLDER.relative_to(ROOT))


def _check_ids(studies: Iterable[Study], claims: Mapping[str, tuple[str, PropertyClaim]]) -> None:
    """Check that a name that is asked for can mean one thing only."""
    homes = {name: study.path for study in studies for name in (study.name, *(c.id for c in study.claims))}
    problems = Problems()
    for name, (module, _) in claims.items():
        if name in homes:
            problems.add(f"{file_of(module)}: the id {name!r} is also in {homes[name]}; ids must differ")
    problems.check()


def _compared(
    planned: Iterable[PlannedStudy], config: Config
) -> list[tuple[tuple[str, ...], tuple[ParityProblem, ...]]]:
    """The optimizers whose backends are compared, with the problems, by job.

    Those of the studies on all problems; where all studies are shown, the others on a few. None where what is
    shown ran on one backend, or parity is not asked for.
    """
    if not config.parity:
        return []
    if not {backend for study in planned for backend in study.plan.backends}.issuperset(BACKENDS):
        return []
    used = {optimizer.locator for study in planned for optimizer in study.plan.optimizers}
    shown = [name for name in rules() if name in used]
    others = [name for name in rules() if name not in used and not config.studies]
    return [((name,), PROBLEMS) for name in shown] + ([(tuple(others), CORE)] if others else [])


def _kernels(results: Path) -> tuple[Path, ...]:
    """The files in which asv has stored the speed of kernels; none where it has measured nothing."""
    stored = stored_kernels(results)
    files = {path for pattern in ("*.json", "*/*.json") for path in stored.glob(pattern)}
    measured = any(path.parent != stored and path.name != "machine.json" for path in files)
    return tuple(sorted(files)) if measured else ()


def _planned(
    study: Study, config: Config, tree: SourceTree, reports_code: str, results_code: str
) -> PlannedStudy:
    described = study.at(config.scale, config.backends)
    jobs = Planner(described, config.scale, study.scales[config.scale], config.results, tree).jobs()
    tables_hash = _digest([*sorted(job.spec.hash for job in jobs), results_code])
    figures_hash = _digest([tables_hash, described.model_dump(mode="json"), reports_code])
    name = f"{study.name}.{config.scale}"
    folders = {
        "tables": config.results / "tables" / f"{name}.{tables_hash}",
        "figures": config.results / "figures" / f"{name}.{figures_hash}",
    }
    return PlannedStudy(study, jobs, described.model_copy(update=folders))


def _digest(content: str | list[Any]) -> str:
    text = content if isinstance(content, str) else json.dumps(content, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _hash_of(folder: Path) -> str:
    return folder.name.rpartition(".")[2]


def _code(root: Path, patterns: Iterable[str]) -> str:
    return files_hash({path for pattern in patterns for path in root.glob(pattern) if path.is_file()}, root)


# --- writing -------------------------------------------------------------------------------------


def write_specs(plan: Plan) -> None:
    """Write the spec files and the report's plan, each only where absent, so that times stay as they are.

    Raises:
        InputError: when the results folder cannot be written to, before any compute is spent.
    """
    files = {job.spec_path: job.spec.to_json() for job in plan.jobs}
    files[plan.report_path] = plan.report.to_json()
    files[plan.wiring_path] = plan.wiring.to_json()
    specs = plan.report_path.parent
    for folder, (drawn, _) in plan.figures.items():
        files[specs / f"{folder.stem}.figures.{_hash_of(folder)}.json"] = drawn.to_json()
    for study in plan.studies:  # on a command line they would be too many
        folders = "".join(f"{job.folder}\n" for job in study.jobs)
        files[specs / f"{study.plan.tables.stem}.tables.{_hash_of(study.plan.tables)}.txt"] = folders
    try:
        for folder in (specs, plan.config.site):
            folder.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=folder).close()  # the folder may be there and yet be read-only
        write_texts({path: text for path, text in files.items() if not path.exists()})
        before = plan.config.site / SHOWN
        if not before.exists() or before.read_text() != files[plan.report_path]:
            os.utime(plan.report_path)  # the site is gone or shows another plan: newer input renders it
        _touch_failed(plan)
    except OSError as error:
        raise InputError(
            f"{error.filename or plan.config.results}: cannot be written ({error.strerror}); make room, or "
            "give other folders with --config results=FOLDER site=FOLDER"
        ) from error


def _touch_failed(plan: Plan) -> None:
    """Have jobs of which something failed run again: a spec that is newer than their tables does that."""
    for job in plan.jobs:
        if (job.folder / FAILED).exists():
            os.utime(job.spec_path, (0, 0) if plan.config.keep_failed else None)


def with_data(config: Config) -> Config:
    """The configuration, whose folder of data this process and its children read from now on."""
    if config.data is not None:
        os.environ[FOLDER_VARIABLE] = str(config.data)
    return config


def prepare(raw: Mapping[str, Any]) -> Plan:
    """The plan for a Snakefile's `config`, with its spec files in place.

    Raises:
        InputError: for bad input of any kind.
    """
    config = read_config(raw)
    plan = make_plan(with_data(config))
    write_specs(plan)
    return plan
