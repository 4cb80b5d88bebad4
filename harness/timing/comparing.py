"""Two methods of a study timed in turn, without its results: `curvebench compare`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from documents.errors import InputError
from documents.job import BasesSpec, TimingSpec
from documents.method import BasisSpec, Method, OptimizerSpec, WorkloadSpec
from documents.names import unknown
from harness.engine.execution import Bundle, Clock
from harness.paths import STUDY_FOLDER
from harness.planning.plan import Planner
from harness.planning.studies import Study, missing_data, read_studies, rule_of
from harness.seeding import generator
from harness.sources import SourceTree
from harness.stages.basis_jobs import estimate_bases
from harness.stages.job import Cell, Job, bundle_of, instance, load_basis, precision_of, workload_of
from harness.stages.timing_jobs import NOT_PINNED, STEPS
from harness.timing.clocks import limit_threads, pinned
from harness.timing.step_times import Measured, measure_methods
from optimizers import HyperparameterError
from optimizers.bases import bases
from results.intervals import MedianInterval, median_interval

THREADS = 1
AGAIN = " (again)"


@dataclass(frozen=True)
class Request:
    """What is compared: two methods of a study on one backend.

    Args:
        study: a study file's stem.
        methods: two labels, such as `adam` and `adam @ egop`; the second's step is given over the first's.
        backend: one that the study runs on at the scale.
        scale: the size of the study.
        workload: one of the study's; None for all.
        learning_rate: for both methods; None for that of the first setting that the study tries.
        repetitions: measured stretches of each method.
        studies: the folder of the study files.
    """

    study: str
    methods: tuple[str, str]
    backend: str
    scale: str = "quick"
    workload: str | None = None
    learning_rate: float | None = None
    repetitions: int = 21
    studies: Path = STUDY_FOLDER


@dataclass(frozen=True)
class StepComparison:
    """Two methods on one workload; seconds are those of a step.

    Args:
        first, second, gradient: the methods' steps, and a step that computes the gradient and stays.
        ratio: the second's step over the first's, by repetition.
        same: the first's step over its own, timed a second time (A/A): what no difference looks like here.
        setting: the hyperparameters that both methods take.
        notes: what a reader of the numbers should know.
    """

    study: str
    scale: str
    workload: str
    backend: str
    device: str
    methods: tuple[str, str]
    setting: Mapping[str, float]
    first: MedianInterval
    second: MedianInterval
    gradient: MedianInterval
    ratio: MedianInterval
    same: MedianInterval
    notes: tuple[str, ...]


def compare(request: Request) -> Iterator[StepComparison]:
    """Time two methods in turn on every workload asked for; bases are estimated first.

    Raises:
        InputError: for what the study does not have, or data that is missing, before anything is computed.
    """
    study = _study(request)
    methods = [_method(study, name) for name in request.methods]
    setting = _setting(study, request, methods)
    spec, bases_spec = _specs(study, request, [basis for _, basis in methods])
    limit_threads(THREADS)
    with pinned(THREADS) as processors, TemporaryDirectory(prefix="curvebench-") as folder:
        if bases_spec is not None:
            estimate_bases(Job(bases_spec, Path(folder), Clock(), THREADS, machine=""))
        job = Job(spec, Path(folder), Clock(), THREADS, machine="")
        for workload in spec.workloads:
            engine = job.engine(precision_of(spec, workload_of(workload)))
            bundles = _bundles(job, workload, dict(zip(request.methods, methods, strict=True)), setting)
            measured = measure_methods(bundles, engine, STEPS, request.repetitions)
            notes = (*engine.notes, *(() if processors else (NOT_PINNED,)))
            yield _comparison(job, workload.name, request.methods, setting, measured, notes)


Contestant = tuple[OptimizerSpec, BasisSpec]


def _study(request: Request) -> Study:
    studies = {study.name: study for study in read_studies(request.studies, [request.study])}
    if request.study not in studies:
        raise InputError(unknown(str(request.studies), "study", request.study, studies))
    study = studies[request.study]
    if request.scale not in study.scales:
        raise InputError(f"--scale: {unknown(str(study.path), 'scale', request.scale, study.scales)}")
    own = study.scales[request.scale]
    if request.backend not in own.backends:
        raise InputError(f"--backend: {unknown(str(study.path), 'backend', request.backend, own.backends)}")
    names = [workload.name for workload in study.workloads[request.scale]]
    if request.workload is not None and request.workload not in names:
        raise InputError(f"--workload: {unknown(str(study.path), 'workload', request.workload, names)}")
    if request.methods[0] == request.methods[1]:
        raise InputError(
            f"{request.methods[0]!r} is named twice; name two methods (the first is timed twice anyway)"
        )
    missing = missing_data(study, request.scale)
    if missing:
        raise InputError(f"{study.path}: {missing}")
    return study


def _method(study: Study, name: str) -> Contestant:
    for optimizer in study.optimizers:
        for basis in study.bases:
            if Method(optimizer.label, basis.label).label == name:
                return optimizer, basis
    raise InputError(unknown(str(study.path), "method", name, study.methods))


def _setting(study: Study, request: Request, methods: Sequence[Contestant]) -> dict[str, float]:
    """The first setting that the study tries, with the learning rate asked for."""
    if any(optimizer.space for optimizer, _ in methods):
        raise InputError(f"{study.path}: an optimizer has a space of its own; compare those that share one")
    setting = dict(study.tuning.settings(generator(study.name, study.tuning.protocol))[0])
    if request.learning_rate is not None:
        setting["learning_rate"] = request.learning_rate
    for optimizer, _ in methods:
        try:
            rule_of(optimizer).complete({**optimizer.hyperparameters, **setting})
        except HyperparameterError as error:
            raise InputError(f"--rate: {error}") from error
    return setting


def _specs(study: Study, request: Request, used: Sequence[BasisSpec]) -> tuple[TimingSpec, BasesSpec | None]:
    """The spec of the timing job, and of the job that estimates the bases, if any is estimated."""
    planned = [
        job.spec for job in Planner(study, request.scale, Path(), SourceTree()).jobs((request.backend,))
    ]
    timing = planned[-1]
    assert isinstance(timing, TimingSpec)
    workloads = tuple(one for one in timing.workloads if request.workload in (None, one.name))
    timing = timing.changed(workloads=workloads, upstream={})
    estimated = tuple({basis.label: basis for basis in used if bases()[basis.name].needs_gradients}.values())
    if not estimated:
        return timing, None
    spec = next(spec for spec in planned if isinstance(spec, BasesSpec))
    spec = spec.changed(workloads=workloads, bases=estimated, seeds=timing.seeds)
    return timing.changed(upstream={"bases": (spec.hash,)}), spec


def _bundles(
    job: Job, workload: WorkloadSpec, methods: Mapping[str, Contestant], setting: Mapping[str, float]
) -> dict[str, Bundle]:
    """The runs of both methods, and of the first one again."""
    one = instance(workload_of(workload), workload.settings, job.spec.seeds[0])
    bundles = {}
    for name, (optimizer, basis) in methods.items():
        cell = Cell(workload_of(workload), workload, optimizer, basis, [setting])
        dtype = precision_of(job.training, cell.workload)
        matrices = load_basis(job, workload.name, basis, job.spec.seeds, dtype)
        bundles[name] = bundle_of(job, cell, [one], matrices)
    first = next(iter(methods))
    return {**bundles, first + AGAIN: bundles[first]}


def _comparison(
    job: Job,
    workload: str,
    methods: tuple[str, str],
    setting: Mapping[str, float],
    measured: Measured,
    notes: tuple[str, ...],
) -> StepComparison:
    steps: dict[str, list[float]] = {}
    for timing in measured.timings:
        if timing.phase in ("step", "null_step"):
            steps.setdefault(timing.method, []).append(timing.seconds / timing.steps)
    first, second, again = (np.array(steps[name]) for name in (*methods, methods[0] + AGAIN))
    return StepComparison(
        study=job.spec.study,
        scale=job.spec.scale,
        workload=workload,
        backend=job.spec.backend,
        device=job.spec.device,
        methods=methods,
        setting=setting,
        first=median_interval(first),
        second=median_interval(second),
        gradient=median_interval(steps["null"]),
        ratio=median_interval(second / first),
        same=median_interval(again / first),
        notes=notes,
    )


def lines(comparison: StepComparison) -> list[str]:
    """A comparison for people."""
    first, second = comparison.methods
    given = ", ".join(f"{name} {value:g}" for name, value in comparison.setting.items())
    steps = {first: comparison.first, second: comparison.second, "the gradient alone": comparison.gradient}
    ratios = {f"{second} / {first}": comparison.ratio, f"{first} / {first} (A/A)": comparison.same}
    width = max(map(len, [*steps, *ratios]))
    where = f"{comparison.workload} ({comparison.study}, {comparison.scale}) on {comparison.backend}"
    return [
        f"{where}, {given}: {comparison.ratio.count} repetitions, one thread",
        *(f"  {name:<{width}}  {_shown(step, 1e3, ' ms a step')}" for name, step in steps.items()),
        *(f"  {name:<{width}}  {_shown(ratio, 1.0, '')}" for name, ratio in ratios.items()),
        f"  brackets cover the median with {100 * comparison.ratio.level:.1f} %",
        *(f"  note: {note}" for note in comparison.notes),
    ]


def _shown(value: MedianInterval, factor: float, unit: str) -> str:
    low, median, high = (factor * number for number in (value.low, value.median, value.high))
    return f"{median:8.4g}{unit} [{low:.4g}, {high:.4g}]"
