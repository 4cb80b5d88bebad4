"""The plan of a call of Snakemake: the jobs that the requested studies need, and the files between them.

A study compares methods on workloads, at a scale, which is one of the sizes that the study file defines. A
method is an optimizer in a basis (a change of coordinates of the parameters). A stage is a kind of job.
Basis-estimation jobs estimate bases. Runs jobs make runs: tuning rounds, which choose a setting (a value for
each tuned hyperparameter), and a final round, which judges the method on other seeds. Timing jobs measure
step times. Parity jobs compare backends. Checks jobs check property claims, which are claims on random
instances. A submission is a study that adds a method to a published study.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import islice, product
from pathlib import Path
from typing import Any

from curvebench import EXPORTS
from curvebench.backends import BACKENDS
from curvebench.backends import module_of as backend_module
from curvebench.interop.foreign import named_in
from curvebench.optimizers import rules
from curvebench.optimizers.bases import KIND as BASES
from curvebench.optimizers.bases import bases as known_bases
from curvebench.paths import FAILED, PAPERS, STUDY_FOLDER, stored_kernels
from curvebench.planning import snakemake_inputs as inputs
from curvebench.planning.config import Config, read_config
from curvebench.planning.parity_problems import CORE, PROBLEMS, STEPS, TOLERANCE, ParityProblem
from curvebench.planning.studies.reading import comparisons, read_studies, study_files
from curvebench.planning.studies.seeds import FirstSeeds
from curvebench.planning.studies.study import Study
from curvebench.precision import policy_of
from curvebench.property_checks.check_rules import check_rule
from curvebench.property_checks.checks import FOLDER, PACKAGE, PropertyClaim, claims_by_id, claims_of, file_of
from curvebench.registry import RULES, WORKLOADS, at_defaults, find_workload, missing_of
from curvebench.results.archive import archive_of, checksums_of, joined_locally, with_figures
from curvebench.results.temporary import write_texts
from curvebench.sources import ROOT, RULES_AND_WORKLOADS, SourceTree, files_hash
from curvebench.spec import job as job_specs
from curvebench.spec import plan as plans
from curvebench.spec.errors import InputError, Problems, by_reason, check_known, nearest, unknown
from curvebench.spec.method import BasisSpec, Method, OptimizerSpec, WorkloadSpec, methods
from curvebench.spec.sets import PLAN
from curvebench.spec.sources import papers
from curvebench.spec.study import Scale
from curvebench.spec.tuning import Tuning
from curvebench.workloads.data import FOLDER_VARIABLE

ALL = "all"  # scale and backend in the names of parity jobs, since parity jobs compare all backends
# This word replaces the name of a study in paths of jobs and figures of property claims.
CLAIMS = "claims"
# This word replaces the name of a study in paths of figures of published sets.
ARCHIVE = "archive"
# The only module in `curvebench.spec` that influences the results of parity checks and property checks
VALUES = "curvebench.spec.values"
# Names of Python packages whose versions are part of a job's hash, by backend of the job.
PACKAGES = {
    "jax": ("jax", "jaxlib", "numpy"),
    "torch": ("numpy", "torch"),
    job_specs.HOST: ("jax", "jaxlib", "numpy"),
    ALL: ("jax", "jaxlib", "numpy", "torch"),
}

# Packages that decide the results of parity and property checks, in addition to optimizers and workloads.
EXECUTION = tuple(
    f"curvebench.{name}"
    for name in (
        *("arrays", "backends", "basis_estimation", "engine", "interop", "planning", "precision", "progress"),
        *("property_checks", "registry", "seeding", "sources", "stages", "steps", "timing"),
    )
)
# Files of code. If a file that matches one of the patterns changes, merged tables are made again.
RESULTS_CODE = ("curvebench/spec/*.py", "results/*.py")
# Files of code. If a file that matches one of the patterns changes, figures and the site are made again.
REPORTS_CODE = (
    "curvebench/spec/*.py",
    "benchmarks/papers/*.yaml",
    "results/published/*.json",
    "reports/**/*.py",
    "reports/templates/**/*",
    "reports/static/**/*",
)


# --- selection of studies ------------------------------------------------------------------------


def _select(
    studies: tuple[Study, ...], claims: Iterable[str], broken: Mapping[str, str], config: Config
) -> tuple[Study, ...]:
    """Return the requested studies.

    Some studies only repeat claims of other studies, that is, test the claims once more under changed
    circumstances. Such a study is selected if the user names the study. It is also selected if the
    configuration sets `repeats` and another selected study has one of the repeated claims.

    Args:
        studies: all studies of the folder.
        claims: ids of the property claims, which the user may also request.
        broken: a mapping from names of studies and of files of property claims that cannot be used to the
            reasons.
        config: the configuration, whose key `studies` has the names that the user requests.

    Raises:
        InputError: if a requested study cannot be used, if no study or claim has a requested name, or if no
            study has the scale of the configuration.
    """
    if reasons := [reason for name, reason in broken.items() if name in (config.studies or broken)]:
        raise InputError("\n".join(reasons))
    by_name = {claim.id: study for study in studies for claim in study.claims}
    by_name |= {study.name: study for study in studies}
    valid, own = [*by_name, *claims], comparisons(config.study_folder)
    for name in config.studies:
        if name not in valid:
            owner = f"{config.study_folder} (or benchmarks/claims)"
            message = f"{owner} has no study or claim {name!r}{nearest(name, [*valid, *own])}"
            names = ", ".join(study.name for study in studies)
            message = f"--config studies: {message} (studies: {names}; claims: curvebench list)"
            raise InputError("\n".join([message, *broken.values()]))
    selected = {by_name[name].name for name in config.studies if name in by_name}
    if not any(config.scale in study.scales for study in studies):
        requested = [study for study in studies if study.name in selected] or studies
        owner = ", ".join(study.name for study in requested) if selected else str(config.study_folder)
        scales = sorted({scale for study in requested for scale in study.scales})
        raise InputError(f"--config scale: {unknown(owner, 'scale', config.scale, scales)}")
    if not config.studies:
        selected = {study.name for study in studies if not study.only_repeats}
    if config.repeats:
        claim_ids = {claim.id for study in studies if study.name in selected for claim in study.claims}
        selected |= {study.name for study in studies if study.only_repeats and study.repeated & claim_ids}
    return tuple(study for study in studies if study.name in selected)


def _with_seeds(studies: tuple[Study, ...], config: Config) -> tuple[Study, ...]:
    """Return the studies, with the seeds of the published set that the configuration names (`seeds_of`).

    A study in the set gets the seeds that the study has in the set. All other studies are returned unchanged.
    If the configuration names no set, all studies are returned unchanged.
    """
    if config.seeds_of is None:
        return studies
    seeds = {
        plan.name: FirstSeeds(plan.first_tuning_seed, plan.first_final_seed)
        for plan in plans.read_plan(config.seeds_of).studies
    }
    return tuple(study.model_copy(update={"first_seeds": seeds.get(study.name)}) for study in studies)


def _why_skipped(study: Study, config: Config) -> str | None:
    """Return the reason why a study is not run with this configuration; None if it is run."""
    if config.scale not in study.scales:
        return f"it has no scale {config.scale!r} (it has: {', '.join(study.scales)})"
    if not study.backends_at(config.scale, config.backends):
        backends = ", ".join(config.backends or study.scales[config.scale].backends)
        only = ", ".join(sorted({spec.only_backend or "" for spec in study.optimizers_at(config.scale)}))
        used = ", ".join(study.backends_at(config.scale)) or f"none; its optimizers run on {only} only"
        return f"it does not run on {backends} at this scale (it runs on: {used})"
    slow = [spec.name for spec in study.workloads[config.scale] if find_workload(spec.locator).separate_jobs]
    if slow and not config.studies:
        return f"each run of {' and '.join(slow)} takes minutes to hours; name the study to run it"
    return missing_of(study.workloads[config.scale])


# --- jobs ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RunSelection:
    """The runs that one runs job makes, or the bases that one basis-estimation job estimates.

    Args:
        workloads: workloads of the runs or bases.
        bases: bases of the runs, or bases to estimate.
        seeds: seeds of the final round, or seeds for which bases are estimated.
        rounds: numbers of the rounds; empty if bases are estimated.
        tuning_seeds: seeds of the tuning rounds.
        single_run: whether the job makes a single tuning run, or the final runs of a single seed.
        setting_index: for a job that makes a single tuning run, index of the setting of the run; None for
            other jobs.
    """

    workloads: tuple[WorkloadSpec, ...]
    bases: tuple[BasisSpec, ...]
    seeds: tuple[int, ...]
    rounds: tuple[int, ...] = ()
    tuning_seeds: tuple[int, ...] = ()
    single_run: bool = False
    setting_index: int | None = None

    def reads(self, spec: job_specs.JobSpec, tuning: Tuning) -> bool:
        """Return whether runs of this selection need the results of another job.

        The results are bases, or tuning runs of the same optimizer in earlier rounds.

        Args:
            spec: specification of the other job.
            tuning: the tuning protocol of the optimizer.
        """
        if isinstance(spec, job_specs.BasesSpec):
            return (
                any(basis in spec.bases for basis in self.bases)
                and any(seed in spec.seeds for seed in (*self.seeds, *self.tuning_seeds))
                # A basis-estimation job has either all workloads of the selection or none of them.
                and self.workloads[0] in spec.workloads
            )
        assert isinstance(spec, job_specs.RunsSpec)
        if self.single_run != spec.single_run or spec.rounds[0] >= self.rounds[0]:
            return False
        same_basis = spec.bases[0].label == tuning.tuning_basis(self.bases[0].label)
        return self.workloads[0] in spec.workloads and (same_basis or not self.single_run)


@dataclass(frozen=True)
class PlannedJob:
    """A job, and the jobs that it depends on.

    Args:
        spec: specification of the job, which the process of the job reads.
        results: results folder.
        lanes: size of the job. A runs job counts runs, a basis-estimation job counts estimates, a timing job
            counts pairs of a method and a workload, a parity job counts pairs of an optimizer and a problem,
            and a checks job counts claims whose data is available.
        upstream: jobs whose tables this job reads.
    """

    spec: job_specs.JobSpec
    results: Path
    lanes: int
    upstream: tuple[PlannedJob, ...] = ()

    @property
    def spec_path(self) -> Path:
        """Path of the file with the specification of the job."""
        return job_specs.spec_file(self.results, self.spec)

    @property
    def folder(self) -> Path:
        """Folder of the tables that the job writes."""
        return job_specs.job_folder(self.results, self.spec)


@dataclass(frozen=True)
class PlannedStudy:
    """A study with its jobs.

    Args:
        study: the study.
        jobs: the jobs of the study.
        plan: the entry of the study in the report plan.
    """

    study: Study
    jobs: tuple[PlannedJob, ...]
    plan: plans.StudyPlan


@dataclass(frozen=True)
class Planner:
    """Divides one study at one scale into jobs.

    Args:
        study: plan of the study.
        scale: name of the scale.
        size: definition of the scale in the study file.
        results: results folder.
        tree: cache of the hashes of source files.
    """

    study: plans.StudyPlan
    scale: str
    size: Scale
    results: Path
    tree: SourceTree

    @property
    def workloads(self) -> tuple[WorkloadSpec, ...]:
        """Workloads of the study in the form that job specifications have."""
        return tuple(workload.spec for workload in self.study.workloads)

    @property
    def tuning_seeds(self) -> tuple[int, ...]:
        """Seeds of the tuning runs. Tuning runs compare settings of a method."""
        first = self.study.first_tuning_seed
        return tuple(range(first, first + self.study.seeds.tuning))

    def final_seeds(self, backend: str) -> tuple[int, ...]:
        """Return the seeds of the final runs on a backend, in which methods are compared.

        No seed of a final run is also a tuning seed.
        """
        first = self.study.first_final_seed
        return tuple(range(first, first + self.size.final_seeds(backend)))

    def jobs(self) -> tuple[PlannedJob, ...]:
        """Return all jobs of the study, each after the jobs whose tables it reads."""
        final_seeds = max(map(self.final_seeds, self.size.backends), key=len)
        tuned = tuple(basis for basis in self.study.bases if self.study.tuning.tries(basis.label))
        bases = self._bases(self.tuning_seeds, tuned)
        final_bases = self._bases(final_seeds, self.study.bases)
        # Runs jobs that have been planned so far, by backend of the jobs and label of the optimizer.
        planned: dict[tuple[str, str], tuple[PlannedJob, ...]] = {}
        finals: dict[str, list[PlannedJob]] = {backend: [] for backend in self.study.backends}
        for backend in self.study.backends:
            for optimizer in self._running(backend):
                tuner = backend if optimizer.only_backend else self.study.tuned_on[backend]
                key = tuner, optimizer.label
                if key not in planned:
                    seeds = self.final_seeds(tuner) if tuner in self.study.backends else ()
                    planned[key] = self._of_method(tuner, optimizer, (*bases, *final_bases), True, seeds)
                jobs = planned[key]
                if tuner != backend:
                    upstream = (*jobs, *final_bases)
                    jobs = self._of_method(backend, optimizer, upstream, False, self.final_seeds(backend))
                    planned[backend, optimizer.label] = jobs
                finals[backend] += (job for job in jobs if job.spec.seeds)
        # A submission has no timing jobs.
        # The submission runs on another machine than the study that it joins.
        # Step times cannot be compared.
        timed = self.size.timing and not self.study.joins
        timings = [self._timing(backend, (*jobs, *final_bases)) for backend, jobs in finals.items() if timed]
        return (*bases, *final_bases, *(job for jobs in planned.values() for job in jobs), *timings)

    def _bases(self, seeds: tuple[int, ...], among: tuple[BasisSpec, ...]) -> tuple[PlannedJob, ...]:
        """Return the jobs that estimate bases for some seeds.

        Args:
            seeds: seeds for which the bases are estimated.
            among: the bases. Bases that need no estimate, such as the identity, are ignored.
        """
        bases = tuple(basis for basis in among if known_bases()[basis.name].stored)
        workloads = self.workloads if bases else ()
        first, use = next(iter(self.size.backends.items()))

        def target(spec: WorkloadSpec) -> tuple[str, str]:
            return job_specs.estimated_at(find_workload(spec.locator).separate_jobs, first, use.device)

        jobs = []
        for backend, device in dict.fromkeys(map(target, workloads)):
            group = tuple(spec for spec in workloads if target(spec) == (backend, device))
            precision = self.study.training.precision
            if precision and backend == job_specs.HOST:
                precision = policy_of(precision).computed
            for share in self._shares(group, bases, seeds):
                spec = job_specs.BasesSpec(
                    stage="bases", device=device, precision=precision, **self._common(backend, (), share, ())
                )
                jobs.append(PlannedJob(spec, self.results, spec.combinations))
        return tuple(jobs)

    def _shares(
        self, workloads: tuple[WorkloadSpec, ...], bases: tuple[BasisSpec, ...], seeds: tuple[int, ...]
    ) -> list[RunSelection]:
        """Divide final runs, or bases to estimate, into jobs.

        The key `jobs` of the scale says whether there is a job for each workload, for each basis, or for each
        basis and seed.
        """
        groups = {"workload": [(workload,) for workload in workloads]}.get(self.size.jobs, [workloads])
        cut_bases = [(basis,) for basis in bases] if self.size.jobs in ("basis", "seed") else [bases]
        cut_seeds = [(seed,) for seed in seeds] if self.size.jobs == "seed" else self._batches(seeds)
        return [RunSelection(*share) for share in product(groups, cut_bases, cut_seeds)]

    def _batches(self, seeds: tuple[int, ...]) -> list[tuple[int, ...]]:
        """Divide final seeds into the batches that the scale defines. Each batch is run by a job of its own.

        All seeds are one batch if the scale has no batches, or if the sizes of the batches do not add up to
        the number of `seeds`, as for tuning seeds.
        """
        sizes = self.size.seeds.batches
        if not sizes or len(seeds) != sum(sizes):
            return [seeds]
        rest = iter(seeds)
        return [tuple(islice(rest, size)) for size in sizes]

    def _of_method(
        self,
        backend: str,
        optimizer: OptimizerSpec,
        upstream: tuple[PlannedJob, ...],
        tunes: bool,
        seeds: tuple[int, ...],
    ) -> tuple[PlannedJob, ...]:
        """Return the jobs that make an optimizer's runs on a backend, each after the jobs that it depends on.

        Args:
            backend: backend of the runs.
            optimizer: the optimizer.
            upstream: jobs that estimate bases, and jobs that tune the optimizer on another backend.
            tunes: whether the jobs make the tuning rounds.
            seeds: seeds of the final round; if it is empty, there is no final round.
        """
        assert not set(seeds).intersection(self.tuning_seeds), "final seeds must not have tuned"
        tuning, jobs = self.study.tuning.for_optimizer(optimizer), upstream
        for share in self._selections(optimizer, tunes, seeds):
            read = tuple(job for job in jobs if share.reads(job.spec, tuning))
            spec = job_specs.RunsSpec(
                stage="runs",
                tuning=tuning,
                compared_bases=self._compared(optimizer, share.bases) if share.seeds else (),
                claim_rules=self.study.rules if share.seeds else {},
                **self._common(backend, (optimizer,), share, read) | self._training(backend) | vars(share),
            )
            jobs += (PlannedJob(spec, self.results, sum(spec.lanes), read),)
        return jobs[len(upstream) :]

    def _selections(
        self, optimizer: OptimizerSpec, tunes: bool, seeds: tuple[int, ...]
    ) -> Iterator[RunSelection]:
        """Yield the runs of each job of an optimizer. By default, one job makes all rounds.

        If the key `jobs` of the scale is `basis` or `seed`, a first job makes all tuning rounds, and further
        jobs make the final runs for each basis, or for each basis and seed. For a workload with the attribute
        `separate_jobs`, whose runs take long, each run is a job. Jobs of earlier rounds come first.

        Args:
            optimizer: the optimizer.
            tunes: whether the jobs make the tuning rounds.
            seeds: seeds of the final round; if it is empty, there is no final round.
        """
        bases = tuple(basis for basis in self.study.bases if basis.applies_to(optimizer.label))
        tuned = tuple(basis for basis in bases if self.study.tuning.tries(basis.label))
        counts = self.study.tuning.for_optimizer(optimizer).rounds
        final, tuning_seeds = len(counts), self.tuning_seeds if tunes else ()
        rounds = tuple(range(final)) if tunes else ()
        separate = tuple(spec for spec in self.workloads if find_workload(spec.locator).separate_jobs)
        together = tuple(spec for spec in self.workloads if spec not in separate)
        shares = self._shares(together, bases, seeds) if together and seeds else []
        tunes_first = not shares or self.size.jobs in ("basis", "seed")
        if together and rounds and tunes_first:
            yield RunSelection(together, tuned, (), rounds, tuning_seeds)
        numbers, used_seeds = ((final,), ()) if tunes_first else ((*rounds, final), tuning_seeds)
        first_seeds = shares[0].seeds if shares else ()
        for share in shares:
            if share.seeds == first_seeds or tunes_first:
                yield replace(share, rounds=numbers, tuning_seeds=used_seeds)
            else:  # Seeds that were added later need no tuning rounds; the job of the first batch made them.
                yield replace(share, rounds=(final,))
        for number in rounds:
            runs = product(separate, tuned, self.tuning_seeds, range(counts[number]))
            for workload, basis, seed, setting in runs:
                yield RunSelection((workload,), (basis,), (), (number,), (seed,), True, setting)
        for workload, basis, seed in product(separate, bases, seeds):
            yield RunSelection((workload,), (basis,), (seed,), (final,), (), True)

    def _compared(self, optimizer: OptimizerSpec, bases: Iterable[BasisSpec]) -> tuple[str, ...]:
        """Return the labels of the bases in which claims compare final runs of the optimizer."""
        if not self.size.alternatives:
            return ()
        compared = frozenset[str]().union(*(claim.methods for claim in self.study.claims))
        labels = [basis.label for basis in bases]
        return tuple(label for label in labels if Method(optimizer.label, label).label in compared)

    def _timing(self, backend: str, upstream: tuple[PlannedJob, ...]) -> PlannedJob:
        """Return the job that times the steps of all methods on a backend, with the first final seed.

        Args:
            backend: the backend.
            upstream: runs jobs of the backend, and basis-estimation jobs. The timing job reads the tables of
                the jobs that have the first final seed.
        """
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
        """Return the fields that the specifications of all kinds of jobs have in common.

        Args:
            backend: backend of the job.
            optimizers: optimizers that the job runs.
            share: workloads, bases and seeds of the job.
            upstream: jobs whose tables the job reads.
        """
        locators = [name for spec in optimizers for name in (spec.locator, *named_in(spec.options))]
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
        """Return the fields that the specifications of runs jobs and timing jobs have in common.

        The fields are training protocol, device and memory limit of the runs on a backend.
        """
        device, memory = self.size.backends[backend].device, self.size.bundle_memory_bytes
        return {"training": self.study.training, "device": device, "bundle_memory_bytes": memory}

    def _running(self, backend: str) -> tuple[OptimizerSpec, ...]:
        """Return the study's optimizers that can run on a backend.

        An optimizer of another library runs only on the backend of the library. Other optimizers run on all
        backends.
        """
        return tuple(optimizer for optimizer in self.study.optimizers if optimizer.runs_on(backend))


def _gathered(spec: job_specs.JobSpec) -> list[str]:
    """Return the stages of the upstream jobs for which a job waits by means of one empty file.

    A job with a single run may depend on many jobs with a single run each. If n jobs waited for m jobs
    directly, Snakemake's graph would need n m edges. With an empty file that is written after the m jobs, the
    graph needs n + m edges. For other kinds of jobs, which have few upstream jobs, the result is empty.
    """
    single = isinstance(spec, job_specs.RunsSpec) and spec.single_run
    return [stage for stage in spec.upstream if single and stage != "bases"]


def parity_job(
    optimizers: tuple[str, ...], problems: tuple[ParityProblem, ...], results: Path, tree: SourceTree
) -> PlannedJob:
    """Return the parity job that compares the steps of some optimizers on all backends.

    Args:
        optimizers: locators of the optimizers.
        problems: problems on which the steps are compared.
        results: results folder.
        tree: cache of the hashes of source files.
    """
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

    Claims may look up update rules, bases and workloads by name. Therefore the hash of the job depends on the
    source code of all update rules, bases and workloads.
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


# --- the plan ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Plan:
    """The plan of `snakemake reports`: all jobs, and the report that is rendered from their tables.

    Args:
        config: the configuration.
        studies: studies that are run, with their jobs.
        extra_jobs: jobs that belong to no study: parity jobs and checks jobs.
        report: the report plan, which is the content of the site.
        kernels: files in which asv has stored kernel times.
        archive_figures: folder of the figures of published sets.
        broken: a mapping from names of studies and of files of property claims that cannot be used to the
            reasons. Studies and files that the user requests are not in the mapping.
    """

    config: Config
    studies: tuple[PlannedStudy, ...]
    extra_jobs: tuple[PlannedJob, ...]
    report: plans.ReportPlan
    kernels: tuple[Path, ...]
    archive_figures: Path
    broken: dict[str, str]

    @cached_property
    def figures(self) -> dict[Path, tuple[plans.ReportPlan, tuple[str, ...]]]:
        """Mapping from folders of figures to their inputs: report plan, and paths of the tables to read.

        A submission has no figures of its own. The submitted method appears in the figures of the study that
        the submission joins.
        """
        site, report = self.report, partial(plans.ReportPlan, scale=self.config.scale)
        studies = [study for study in site.studies if not study.joins]
        folders = {study.figures: (report(studies=(study,)), _merged([study])) for study in studies}
        if site.checks:
            tables = tuple(inputs.tables_in(site.checks.tables))
            folders[site.checks.figures] = report(studies=(), checks=site.checks), tables
        if site.archive:
            tables = _merged(study for plan in site.archive for study in plan.studies)
            folders[self.archive_figures] = report(studies=(), archive=site.archive), tables
        return folders

    @property
    def jobs(self) -> tuple[PlannedJob, ...]:
        """All jobs, sorted so that each job comes after the jobs whose tables it reads."""
        return (*(job for planned in self.studies for job in planned.jobs), *self.extra_jobs)

    @property
    def report_path(self) -> Path:
        """Path of the file with the report plan. The name of the file has the hash of the content."""
        return self.config.results / "specs" / f"plan.{_digest(self.report.to_json())}.json"

    @property
    def snakemake_path(self) -> Path:
        """Path of the file with the inputs for Snakemake. The file name has the hash of the content."""
        return self.config.results / "specs" / f"snakemake.{_digest(self.snakemake.to_json())}.json"

    @cached_property
    def snakemake(self) -> inputs.SnakemakeInputs:
        """Paths, input files and resources for all rules of the Snakefile."""
        site_inputs = (
            *_merged(self.report.studies),
            *map(str, self.kernels),
            *inputs.tables_in(job.folder for job in self.extra_jobs),
            *map(str, self.figures),
        )
        files_of = {_hash_of(folder): tables for folder, (_, tables) in self.figures.items()}
        for study in self.studies:
            files_of[_hash_of(study.plan.tables)] = tuple(inputs.tables_in(job.folder for job in study.jobs))
        jobs = {job.spec.hash: inputs.SnakemakeJob.of(job.spec) for job in self.jobs}
        for job in self.jobs:
            spec, files = job.spec, []
            for stage in _gathered(spec):
                runs = [run for run in job.upstream if run.spec.stage == stage]
                hash_ = _digest([run.spec.hash for run in runs])
                gathered = inputs.PATTERNS["gathered"].format(study=spec.study, scale=spec.scale, hash=hash_)
                files.append(f"{self.config.results}/{gathered}")
                description = f"{len(runs)} runs are there, the first of them {runs[0].spec.description}"
                jobs[hash_] = inputs.SnakemakeJob(description=description)
                files_of[hash_] = tuple(inputs.tables_in(run.folder for run in runs))
            direct = (run.folder for run in job.upstream if run.spec.stage not in _gathered(spec))
            files_of[spec.hash] = (*files, *inputs.tables_in(direct))
        return inputs.SnakemakeInputs(
            summary=self.summary(),
            config=self.config,
            report_path=str(self.report_path),
            site_inputs=site_inputs,
            jobs=jobs,
            input_files=files_of,
        )

    def summary(self) -> str:
        """Return the plan as text: numbers of jobs and runs by study and stage, and skipped studies."""
        lines = [f"curvebench, scale {self.config.scale}: {_jobs(self.jobs)}"]
        for planned in self.studies:
            counts = {stage: _counted(planned.jobs, stage) for stage in inputs.TABLES}
            stages = [f"{stage} {count}" for stage, count in counts.items() if count]
            remarks = "; ".join([*stages, *_remarks(planned.jobs)])
            lines.append(f"  {planned.study.name} on {' and '.join(planned.plan.backends)}: {remarks}")
        names = {"parity": f"parity of {' and '.join(BACKENDS)}", "checks": "property checks"}
        counts = {name: _counted(self.extra_jobs, stage) for stage, name in names.items()}
        lines += [f"  {name}: {count}" for name, count in counts.items() if count]
        return "\n".join([*lines, *(f"  {line}" for line in self.left_out)])

    @property
    def left_out(self) -> list[str]:
        """Lines of text about skipped studies, claims, methods and workloads: one line for each reason."""
        checks = self.report.checks
        claims = {claim.id: claim.missing for claim in (checks.claims if checks else ())}
        studies = {study.name: study.reason for study in self.report.skipped}
        plans = [study.plan for study in self.studies]
        methods = {f"{name} in {plan.name}": why for plan in plans for name, why in plan.unable.items()}
        workloads = {
            f"{name} in {planned.study.name}": why
            for planned in self.studies
            for name, why in planned.study.without_data.items()
        }
        left_out = by_reason(studies | claims | methods | workloads | self.broken)
        return [f"skipped {names}: {reason}" for names, reason in left_out]


def _jobs(jobs: Sequence[PlannedJob]) -> str:
    """Return the number of jobs as text, such as "2 jobs"."""
    return f"{len(jobs)} {'job' if len(jobs) == 1 else 'jobs'}"


def _counted(jobs: Iterable[PlannedJob], stage: str) -> str:
    """Return the number of jobs of a stage, and their sizes together, as text; empty if there is no job."""
    chosen = [job for job in jobs if job.spec.stage == stage]
    return f"{_jobs(chosen)}, {sum(job.lanes for job in chosen)} {LANES.get(stage, 'runs')}" if chosen else ""


def _remarks(jobs: Iterable[PlannedJob]) -> Iterator[str]:
    """Yield remarks about the jobs of a study for the printed plan.

    One remark names the workloads on which every single run has a job of its own. The other has the number of
    jobs on GPUs.
    """
    specs = [job.spec for job in jobs]
    runs = [spec for spec in specs if isinstance(spec, job_specs.RunsSpec)]
    if separate := dict.fromkeys(spec.workloads[0].name for spec in runs if spec.single_run):
        yield f"each run of {' and '.join(separate)} a job of its own"
    if on_gpus := sum(spec.device != "cpu" for spec in specs):
        yield f"a GPU each for {on_gpus} jobs"


# Plural nouns for the things that `PlannedJob.lanes` counts, by stage. For other stages the noun is "runs".
LANES = {"bases": "matrices", "timing": "methods", "parity": "problems", "checks": "claims"}


def make_plan(config: Config, root: Path = ROOT) -> Plan:
    """Return the plan for a configuration. Nothing is written, and neither torch nor jax is imported.

    Args:
        config: the configuration.
        root: folder that contains the package `curvebench`, whose source files are hashed.

    Raises:
        InputError: if a study is invalid, or the configuration names something that does not exist.
    """
    names, config = config.studies, config.with_tour()
    names = names and config.studies  # the names that the user gave, or nothing for the tour and for `all`
    planned, skipped = [], []
    scale, results = config.scale, config.results
    tree = SourceTree(root)
    reports_code, results_code = _code(root, REPORTS_CODE), _code(root, RESULTS_CODE)
    broken: dict[str, str] = {}
    claims = _checked_claims(names, config, root, broken)
    studies = _with_seeds(read_studies(config.study_folder, () if config.repeats else names, broken), config)
    _check_ids(studies, claims)
    for study in _select(studies, claims, broken, config):
        study = study.with_data(scale) if scale in study.scales else study
        reason = _why_skipped(study, config)
        if reason is not None:
            skipped.append(study.skipped(scale, reason))
        else:
            planned.append(_planned(study, config, tree, reports_code, results_code))
    requested = (*names, *(study.plan.joins for study in planned if study.plan.joins)) if names else ()
    archive = archive_of(requested, [study.plan for study in planned])
    in_archive = [study for plan in archive for study in plan.studies]
    sums = checksums_of((plan.published for plan in archive), in_archive)
    archive_hash = _digest([*(plan.to_json() for plan in archive), *sums, reports_code])
    archive_figures = results / "figures" / f"{ARCHIVE}.published.{archive_hash}"
    # Commands that reproduce a published set use the studies of the checkout, not of another folder.
    checkout_keys = {"study_folder", "seeds_of"}
    folders = {key: folder for key, folder in config.other_folders.items() if key not in checkout_keys}
    parity = [parity_job(*job, results, tree) for job in _compared(planned, config)]
    modules = {module: None for name, (module, _) in claims.items() if name in (config.studies or claims)}
    checks = {module: checks_job(module, scale, results, tree) for module in modules}
    planned = [_with_joined(study, archive, config) for study in planned]
    extra_jobs = (*parity, *checks.values())
    kernels = _kernels(results)
    problems, tables = map(plans.ProblemPlan.taken_from, PROBLEMS), tuple(job.folder for job in parity)
    compared = plans.ParityPlan(steps=STEPS, tolerance=TOLERANCE, problems=tuple(problems), tables=tables)
    report = plans.ReportPlan(
        scale=scale,
        studies=tuple(study.plan for study in planned),
        skipped=tuple(skipped),
        parity=compared if parity else None,
        checks=_shown_claims(checks, config, [results_code, reports_code]) if checks else None,
        code=reports_code,
        jobs=sum(len(study.jobs) for study in planned) + len(extra_jobs),
        kernels=stored_kernels(results) if kernels else None,
        folders=config.other_folders,
        archive=tuple(
            with_figures(plan, archive_figures / plan.published).model_copy(update={"folders": folders})
            for plan in archive
        ),
    )
    if not names:
        census = _census(config, studies, claims, broken, set(_decided(report)))
        report = report.model_copy(update={"census": census})
    return Plan(config, tuple(planned), extra_jobs, report, kernels, archive_figures, broken)


def _decided(plan: plans.ReportPlan) -> Iterator[str]:
    """Yield the ids of all claims in a plan, including claims of skipped studies and of published sets."""
    for report in (plan, *plan.archive):
        yield from (claim.id for study in (*report.studies, *report.skipped) for claim in study.claims)
        yield from (claim.id for claim in (report.checks.claims if report.checks else ()))


def _census(
    config: Config,
    studies: Iterable[Study],
    checked: Mapping[str, tuple[str, PropertyClaim]],
    broken: Collection[str],
    decided: Collection[str],
) -> tuple[plans.UnrunClaim, ...]:
    """Return all claims that neither this plan nor a published set decides.

    A returned claim is a claim of a study or a property claim. This function also checks the files of the
    papers (benchmarks/papers). A file lists sentences of a paper, each with a claim that decides it. Each of
    these claims must exist.

    Args:
        config: the configuration. Papers are checked only if the configuration uses the project's own
            studies.
        studies: all studies.
        checked: a mapping from the id of each property claim to a pair: the module of the claim, and the
            claim.
        broken: names of studies and of files of property claims that cannot be used. If there are any, the
            papers are not checked, because these studies and files may have claims of the papers.
        decided: ids of the claims that this plan or a published set decides.

    Raises:
        InputError: if a paper is damaged, or names a claim that does not exist.
    """
    unrun = partial(plans.UnrunClaim.taken_from, reason="neither run here nor published")
    by_id = {
        claim.id: unrun(
            claim, study=study.name, scale=study.scale_deciding(claim, config.scale), cost=study.cost
        )
        for study in studies
        for claim in study.claims
        if not claim.repeats
    }
    by_id |= {name: unrun(claim, study=file_of(module)) for name, (module, claim) in checked.items()}
    for number, paper in (papers() if config.study_folder == STUDY_FOLDER and not broken else {}).items():
        names = (name for sentence in paper.sentences for name in (sentence.claim, sentence.stand_in))
        check_known("curvebench", "claim", filter(None, names), by_id, where=f"{PAPERS / number}.yaml: ")
    return tuple(claim for claim in by_id.values() if claim.id not in decided)


def _with_joined(planned: PlannedStudy, archive: Sequence[plans.ReportPlan], config: Config) -> PlannedStudy:
    """Add the submissions that join a study's published version to the study's entry in the report plan.

    With submissions, the name of the study's folder of figures also contains a hash of the submissions.

    Args:
        planned: the study.
        archive: plans of the published sets.
        config: the configuration.
    """
    plan = joined_locally(planned.plan, archive)
    if not plan.joined:
        return planned
    hash_ = _digest([plan.model_dump(mode="json"), checksums_of((), [plan])])
    figures = plan.figures.with_name(f"{plan.name}.{config.scale}.{hash_}")
    return replace(planned, plan=plan.model_copy(update={"figures": figures}))


def _merged(studies: Iterable[plans.StudyPlan]) -> tuple[str, ...]:
    """Return the paths of the merged tables of studies, and of submissions that join the studies."""
    folders = (plan.tables for study in studies for plan in (study, *study.joining))
    return tuple(f"{folder}/{name}.parquet" for folder in folders for name in inputs.MERGED)


def _shown_claims(checks: Mapping[str, PlannedJob], config: Config, code: Sequence[str]) -> plans.ChecksPlan:
    """Return the description of the property claims for the report plan, with the folder of their figures.

    Args:
        checks: a mapping from the names of modules of claims to the checks jobs.
        config: the configuration.
        code: hashes of the code that decides the figures. A hash of `code` and of the claims is part of the
            name of the folder.
    """
    claims = tuple(
        plans.ClaimPlan.taken_from(
            claim,
            file=file_of(module),
            rule=check_rule(claim),
            missing=missing_of(at_defaults(claim.workloads)) or "",
            parts=tuple(
                plans.PartPlan.taken_from(part, instances=part.count(config.scale)) for part in claim.checks
            ),
        )
        for module in checks
        for claim in claims_of(module)
    )
    tables = tuple(job.folder for job in checks.values())
    described = plans.ChecksPlan(claims=claims, tables=tables, figures=Path())
    hash_ = _digest([described.model_dump(mode="json"), *code])
    figures = config.results / "figures" / f"{CLAIMS}.{config.scale}.{hash_}"
    return described.model_copy(update={"figures": figures})


def _checked_claims(
    names: Sequence[str], config: Config, root: Path, broken: dict[str, str]
) -> dict[str, tuple[str, PropertyClaim]]:
    """Return a mapping from the id of each property claim to a pair: the name of its module, and the claim.

    If all names that the user requested are names of study files, the result is empty and no module of claims
    is imported, so that a broken module does not matter.

    Args:
        names: names that the user requested.
        config: the configuration.
        root: folder that contains the package `curvebench`.
        broken: dictionary to which the reason why a module cannot be used is added, by name of the module.
    """
    files = {path.stem for path in study_files(config.study_folder, names)}
    if names and files.issuperset(names):
        return {}
    return claims_by_id(root / FOLDER.relative_to(ROOT), broken)


def _check_ids(studies: Iterable[Study], claims: Mapping[str, tuple[str, PropertyClaim]]) -> None:
    """Check that no property claim has the name of a study or the id of a study's claim.

    Args:
        studies: all studies.
        claims: a mapping from the id of each property claim to a pair: the name of its module, and the claim.

    Raises:
        InputError: with a line for each such property claim.
    """
    paths = {name: study.path for study in studies for name in (study.name, *(c.id for c in study.claims))}
    problems = Problems()
    for name, (module, _) in claims.items():
        if name in paths:
            problems.add(f"{file_of(module)}: the id {name!r} is also in {paths[name]}; ids must differ")
    problems.check()


def _compared(
    planned: Iterable[PlannedStudy], config: Config
) -> list[tuple[tuple[str, ...], tuple[ParityProblem, ...]]]:
    """Return the locators of optimizers, and the problems, of each parity job.

    Each optimizer of the planned studies has a parity job of its own, with all problems. If all studies are
    run, one further job compares all other optimizers on the core problems. There are no parity jobs if the
    planned studies do not run on all backends, or if the configuration turns parity off.
    """
    backends = {backend for study in planned for backend in study.plan.backends}
    if not (config.parity and backends.issuperset(BACKENDS)):
        return []
    used = {optimizer.locator for study in planned for optimizer in study.plan.optimizers}
    studied = [name for name in rules() if name in used]
    unused = [name for name in rules() if name not in used and not config.studies]
    return [((name,), PROBLEMS) for name in studied] + ([(tuple(unused), CORE)] if unused else [])


def _kernels(results: Path) -> tuple[Path, ...]:
    """Return the files in which asv has stored kernel times; empty if nothing has been measured."""
    stored = stored_kernels(results)
    files = {path for pattern in ("*.json", "*/*.json") for path in stored.glob(pattern)}
    measured = any(path.parent != stored and path.name != "machine.json" for path in files)
    return tuple(sorted(files)) if measured else ()


def _planned(
    study: Study, config: Config, tree: SourceTree, reports_code: str, results_code: str
) -> PlannedStudy:
    """Return a study with its jobs, and with folders of tables and figures.

    Args:
        study: the study.
        config: the configuration.
        tree: cache of the hashes of source files.
        reports_code: hash of the code that draws figures. It affects the name of the folder of figures.
        results_code: hash of the code that merges tables. It affects the names of both folders.
    """
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
    """Return the first 16 hexadecimal digits of the SHA-256 of a text or of JSON values."""
    text = content if isinstance(content, str) else json.dumps(content, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _hash_of(folder: Path) -> str:
    """Return the hash that is a part of the name of a folder of tables or figures."""
    return folder.name.rpartition(".")[2]


def _code(root: Path, patterns: Iterable[str]) -> str:
    """Return the hash of all files below `root` that match at least one of the patterns."""
    return files_hash({path for pattern in patterns for path in root.glob(pattern) if path.is_file()}, root)


# --- writing -------------------------------------------------------------------------------------


def write_specs(plan: Plan) -> None:
    """Write the specification files of all jobs, the report plan, and the inputs for Snakemake.

    Existing files are not written again, because Snakemake compares modification times. The exception is the
    file `plan.json` next to the tables of each study. No rule of the Snakefile reads that file, and its
    modification time says when the study was planned last in this form (`curvebench.results.reading.newest`).

    Raises:
        InputError: if the results folder or the folder of the site cannot be written to. The error is raised
            before anything is computed.
    """
    files = {job.spec_path: job.spec.to_json() for job in plan.jobs}
    files[plan.report_path] = plan.report.to_json()
    files[plan.snakemake_path] = plan.snakemake.to_json()
    specs = plan.report_path.parent
    for folder, (figure_plan, _) in plan.figures.items():
        files[specs / f"{folder.stem}.figures.{_hash_of(folder)}.json"] = figure_plan.to_json()
    # The list of the folders whose tables are merged is a file.
    # The length of a command line is limited.
    for study in plan.studies:
        folders = "".join(f"{job.folder}\n" for job in study.jobs)
        files[specs / f"{study.plan.tables.stem}.tables.{_hash_of(study.plan.tables)}.txt"] = folders
    scale, studies = plan.config.scale, [study.plan for study in plan.studies]
    described = {
        study.tables / PLAN: plans.ReportPlan(scale=scale, studies=(study,)).to_json() for study in studies
    }
    try:
        for folder in (specs, plan.config.site, *(study.tables for study in studies)):
            folder.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=folder).close()  # this call fails if an existing folder is read-only
        write_texts(described | {path: text for path, text in files.items() if not path.exists()})
        rendered = plan.config.site / PLAN
        if not rendered.exists() or rendered.read_text() != files[plan.report_path]:
            # The site is missing or shows another plan.
            # Snakemake renders the site if one of its inputs is newer.
            # Therefore the file of the plan gets the current time.
            os.utime(plan.report_path)
        # Snakemake runs a job again if the job's specification is newer than the job's outputs.
        # A failed job gets the current time, or the year 1970 if the job must not run again.
        for job in (job for job in plan.jobs if (job.folder / FAILED).exists()):
            os.utime(job.spec_path, (0, 0) if plan.config.keep_failed else None)
    except OSError as error:
        raise InputError(
            f"{error.filename or plan.config.results}: cannot be written ({error.strerror}); make room, or "
            "give other folders with --config results=FOLDER site=FOLDER"
        ) from error


def with_data(config: Config) -> Config:
    """Set the environment variable of the data folder for this process and its children.

    Returns:
        The configuration, unchanged.
    """
    if config.data is not None:
        os.environ[FOLDER_VARIABLE] = str(config.data)
    return config


def prepare(raw: Mapping[str, Any]) -> Plan:
    """Make the plan for the `config` of the Snakefile, write the files of the plan, and return the plan.

    Raises:
        InputError: for bad input of any kind, and if all studies and claims are skipped.
    """
    config = read_config(raw)
    plan = make_plan(with_data(config))
    if not any(job.lanes for job in plan.jobs):
        raise InputError(f"nothing to run: {'; '.join(plan.left_out)}")
    write_specs(plan)
    return plan
