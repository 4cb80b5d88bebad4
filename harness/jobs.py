"""What one job does: from its spec file to its tables."""

from __future__ import annotations

import json
import os
import resource
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import optimizers
import workloads
from harness import tuning
from harness.errors import InputError
from harness.execution import PHASES, Bundle, Clock, Trajectories, execute, joined, parts, seeds_per_bundle
from harness.paths import basis_file, job_folder, upstream_folder
from harness.progress import Progress
from harness.schedules import multipliers
from harness.seeding import WorkloadRandom, batch_order
from harness.spec import BasisSpec, JobSpec, WorkloadSpec, read_spec
from optimizers import bases as basis_registry
from results import schema
from results.provenance import provenance
from results.writing import write_table
from workloads.workload import Problem, Workload

MEMORY_LIMIT_BYTES = 1 << 30  # of one bundle; two jobs side by side stay well inside 6 GiB
TIMED_STEPS, TIMED_REPETITIONS = 20, 7


@dataclass(frozen=True)
class Job:
    """A spec with what its stages share: where results lie, and the clock of this process."""

    spec: JobSpec
    results: Path
    clock: Clock
    threads: int

    @property
    def folder(self) -> Path:
        """Where this job's tables go."""
        return job_folder(self.results, self.spec)


@dataclass(frozen=True)
class Instance:
    """A workload's problem for one seed, with the generators it was drawn from."""

    problem: Problem
    random: WorkloadRandom


def run_job(spec_path: Path, results: Path, threads: int = 1) -> Path:
    """Compute one job and write its tables; the last file written is jobs.parquet.

    Args:
        spec_path: the spec file.
        results: the results folder.
        threads: how many processor threads the job may use.

    Returns:
        The job's folder.

    Raises:
        InputError: for a damaged spec, or a batch that is larger than the data.
    """
    job = Job(read_spec(spec_path), results, Clock(), threads)
    _limit_threads(threads)
    job.folder.mkdir(parents=True, exist_ok=True)
    notes = STAGES[job.spec.stage](job)
    write_table(job.folder / "jobs.parquet", _job_row(job, notes), schema.JOBS)
    return job.folder


def _limit_threads(threads: int) -> None:
    """Hold this process's libraries to the job's threads; JAX reads its share when it is imported."""
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))
    available = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_setaffinity") else []
    if len(available) > threads:
        # JAX sizes its pool by affinity; the job's number keeps two jobs off one core.
        first = os.getpid() % len(available)
        os.sched_setaffinity(0, {available[(first + i) % len(available)] for i in range(threads)})


def _job_row(job: Job, notes: Sequence[str]) -> pl.DataFrame:
    import psutil

    spec, seconds = job.spec, job.clock.seconds
    total = time.time() - psutil.Process().create_time()
    imports = seconds.get("import", 0.0)
    measured = imports + sum(seconds[phase] for phase in PHASES)
    row = {
        **provenance(job.threads),
        "spec_hash": spec.hash,
        "study": spec.study,
        "scale": spec.scale,
        "stage": spec.stage,
        "optimizer": spec.optimizers[0].name if len(spec.optimizers) == 1 else None,
        "backend": spec.backend,
        "device": spec.device,
        "import_seconds": imports,
        **{f"{phase}_seconds": seconds[phase] for phase in PHASES},
        "other_seconds": total - measured,
        "total_seconds": total,
        "peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "notes": list(notes),
    }
    return pl.DataFrame([row], schema=schema.JOBS)


def _instance(workload: Workload, settings: Mapping[str, Any], seed: int) -> Instance:
    random = WorkloadRandom(workload.name, seed)
    return Instance(workload.problem(settings, random), random)


def _steps(spec: JobSpec, settings: Mapping[str, Any], examples: int) -> int:
    if "steps" in spec.budget:
        return spec.budget["steps"]
    batch_size = settings.get("batch_size") or examples
    if batch_size > examples:
        raise InputError(
            f"study {spec.study}: batch_size = {batch_size} is larger than the {examples} training examples; "
            "give a smaller batch_size, or null for the full batch"
        )
    return spec.budget["epochs"] * (examples // batch_size)


def _examples(problem: Problem) -> int:
    return len(next(iter(problem.splits["train"].values())))


def _engine(job: Job, dtype: str, backend: str, device: str) -> Any:
    start = time.perf_counter()
    from harness.backends.engine import engine

    if backend == "torch":
        import torch

        torch.set_num_threads(job.threads)
    made = engine(backend, dtype, device)
    seconds = job.clock.seconds
    seconds["import"] = seconds.get("import", 0.0) + time.perf_counter() - start
    return made


# --- bases ---------------------------------------------------------------------------------------


def _bases(job: Job) -> list[str]:
    from harness.gradients import sample_gradients

    spec = job.spec
    engine = _engine(job, "float64", "jax", "cpu")
    wanted = [basis for basis in spec.bases if basis_registry.bases()[basis.name].needs_gradients]
    progress = Progress(
        f"{spec.study} bases", len(spec.workloads) * len(wanted) * len(spec.seeds)
    )
    for workload_spec in spec.workloads:
        workload = workloads.workloads()[workload_spec.name]
        kinds = {name: role.kind for name, role in workload.roles(workload_spec.settings).items()}
        for seed in spec.seeds:
            instance = _instance(workload, workload_spec.settings, seed)
            shapes = {name: value.shape for name, value in instance.problem.parameters.items()}
            dimension = sum(value.size for value in instance.problem.parameters.values())
            for basis_spec in wanted:
                start = time.perf_counter()
                basis = basis_registry.bases()[basis_spec.name]
                count = basis.samples(basis_spec.options, dimension)
                sampling = basis.sampling(basis_spec.options)
                with job.clock.phase("step"):
                    gradients = sample_gradients(
                        workload,
                        workload_spec.settings,
                        instance.problem,
                        instance.random,
                        engine,
                        count,
                        normal_scale=sampling.scale if sampling.kind == "normal" else None,
                    )
                    arrays: dict[str, np.ndarray] = {}
                    groups = basis.groups(basis_spec.options, shapes, kinds)
                    for number, group in enumerate(groups):
                        rows = np.concatenate([gradients[name].reshape(count, -1) for name in group], axis=1)
                        matrix, eigenvalues = basis.eigenbasis(rows)
                        arrays[f"matrix{number}"], arrays[f"eigenvalues{number}"] = matrix, eigenvalues
                arrays["groups"] = np.array(json.dumps(groups))
                arrays["gradient_evaluations"] = np.array(count)
                arrays["seconds"] = np.array(time.perf_counter() - start)
                target = basis_file(job.folder, workload.name, basis_spec.label, seed)
                temporary = target.with_suffix(".tmp.npz")
                np.savez(temporary, **arrays)
                temporary.replace(target)
                progress.advance(1, f"({workload.name}, seed {seed})")
    return []


@dataclass(frozen=True)
class LoadedBasis:
    """The basis of several seeds: matrices by group of parameters, (S, d, d), and what they cost."""

    matrices: Mapping[tuple[str, ...], np.ndarray]
    gradient_evaluations: int
    seconds: float


def _load_basis(job: Job, workload: str, basis: BasisSpec, seeds: Sequence[int], dtype: str) -> LoadedBasis:
    if not basis_registry.bases()[basis.name].needs_gradients:
        return LoadedBasis({}, 0, 0.0)
    folders = [upstream_folder(job.results, job.spec, "bases", hash_) for hash_ in job.spec.upstream["bases"]]
    stacks: dict[tuple[str, ...], list[np.ndarray]] = {}
    evaluations, seconds = 0, []
    for seed in seeds:
        candidates = [basis_file(folder, workload, basis.label, seed) for folder in folders]
        found = next((path for path in candidates if path.exists()), None)
        if found is None:
            raise InputError(f"{candidates[0]}: the basis is missing; run snakemake, which computes it")
        with np.load(found) as arrays:
            groups = [tuple(group) for group in json.loads(str(arrays["groups"]))]
            for number, group in enumerate(groups):
                stacks.setdefault(group, []).append(arrays[f"matrix{number}"].astype(dtype))
            evaluations = int(arrays["gradient_evaluations"])
            seconds.append(float(arrays["seconds"]))
    return LoadedBasis(
        {group: np.stack(matrices) for group, matrices in stacks.items()}, evaluations, float(np.median(seconds))
    )


# --- sweep, refine, final ------------------------------------------------------------------------


@dataclass(frozen=True)
class Cell:
    """One workload, optimizer and basis of a job, with the settings that its lanes take."""

    workload: Workload
    workload_spec: WorkloadSpec
    basis: BasisSpec
    settings: Sequence[Mapping[str, float]]


def _upstream_runs(job: Job) -> pl.DataFrame:
    from results.reading import scan

    folders = [
        upstream_folder(job.results, job.spec, stage, hash_)
        for stage in ("sweep", "refine")
        for hash_ in job.spec.upstream.get(stage, ())
    ]
    return pl.concat([scan(folder, "runs").collect() for folder in folders])


def _cells(job: Job) -> list[Cell]:
    spec = job.spec
    upstream = None if spec.settings is not None else _upstream_runs(job)
    cells = []
    for workload_spec in spec.workloads:
        workload = workloads.workloads()[workload_spec.name]
        for basis in spec.bases:
            if spec.settings is not None:
                settings: Sequence[Mapping[str, float]] = spec.settings
            else:
                assert upstream is not None
                settings = tuning.settings_of(spec, upstream, workload_spec.name, basis.label)
            cells.append(Cell(workload, workload_spec, basis, settings))
    return cells


def _bundle(job: Job, cell: Cell, instances: Sequence[Instance], loaded: LoadedBasis, rule_index: int = 0) -> Bundle:
    spec = job.spec
    optimizer = spec.optimizers[rule_index]
    rule = optimizers.rules()[optimizer.name]
    complete = [rule.complete({**optimizer.hyperparameters, **setting}) for setting in cell.settings]
    examples = _examples(instances[0].problem)
    settings = cell.workload_spec.settings
    steps = _steps(spec, settings, examples)
    batch_size = settings.get("batch_size")
    orders = (
        None
        if batch_size is None
        else np.stack([batch_order(i.random, examples, batch_size, steps) for i in instances], axis=1)
    )
    return Bundle(
        workload=cell.workload,
        rule=rule,
        problems=[instance.problem for instance in instances],
        orders=orders,
        hyperparameters={name: np.array([values[name] for values in complete]) for name in complete[0]},
        schedule=multipliers(spec.schedule, steps),
        evaluations=spec.evaluations,
        matrices=loaded.matrices,
        stop_gradient_norm=spec.stop.get("gradient_norm"),
    )


def _trajectories(job: Job) -> list[str]:
    spec, notes = job.spec, []
    with job.clock.phase("data"):
        cells = _cells(job)
    engines = {
        dtype: _engine(job, dtype, spec.backend, spec.device)
        for dtype in sorted({cell.workload.dtype for cell in cells})
    }
    machine = provenance(job.threads)["machine"]
    runs: list[dict[str, Any]] = []
    curves: list[pl.DataFrame] = []
    progress = Progress(
        f"{spec.study} {spec.stage} {spec.optimizers[0].name} on {spec.backend}",
        sum(len(cell.settings) for cell in cells),
    )
    instances: dict[str, list[Instance]] = {}
    for cell in cells:
        if not cell.settings:
            continue
        with job.clock.phase("data"):
            name = cell.workload.name
            if name not in instances:
                settings = cell.workload_spec.settings
                instances = {name: [_instance(cell.workload, settings, seed) for seed in spec.seeds]}
            loaded = _load_basis(job, name, cell.basis, spec.seeds, cell.workload.dtype)
            whole = _bundle(job, cell, instances[name], loaded)
        engine = engines[cell.workload.dtype]
        itemsize = np.dtype(cell.workload.dtype).itemsize
        seeds = seeds_per_bundle(whole, itemsize, MEMORY_LIMIT_BYTES)
        steps, pieces = len(whole.schedule), []
        for _, part in parts(whole, seeds):
            weight = len(cell.settings) * len(part.problems) / len(whole.problems)
            before = [0]

            def report(done: int, weight: float = weight, before: list[int] = before) -> None:
                progress.advance(weight * (done - before[0]) / steps)
                before[0] = done

            pieces.append(execute(part, engine, job.clock, report))
        cell_runs, cell_curves = _rows(job, cell, whole, joined(pieces), loaded, len(runs), machine, seeds)
        runs += cell_runs
        curves.append(cell_curves)
        notes += engine.notes
    write_table(job.folder / "runs.parquet", pl.DataFrame(runs, schema=schema.RUNS), schema.RUNS)
    write_table(
        job.folder / "curves.parquet", pl.concat(curves) if curves else pl.DataFrame(schema=schema.CURVES), schema.CURVES
    )
    return sorted(set(notes))


def _named(values: Mapping[str, float]) -> list[dict[str, Any]]:
    return [{"name": name, "value": value} for name, value in values.items()]


@dataclass(frozen=True)
class Lane:
    """What one lane did: the checkpoints that it kept, and how it ended."""

    steps: np.ndarray  # (C,) kept checkpoints
    values: Mapping[str, np.ndarray]  # metric to (C,) values
    outcome: str
    outcome_step: int | None
    total_steps: int


def lane(trajectories: Trajectories, seed: int, setting: int, targets: Mapping[str, float], workload: Workload) -> Lane:
    """The record of one lane: the curve up to its divergence or stop, and its outcome."""
    steps = trajectories.steps
    diverged, stopped = int(trajectories.diverged_at[seed, setting]), int(trajectories.stopped_at[seed, setting])
    values = {name: table[:, seed, setting] for name, table in trajectories.metrics.items()}
    total = int(steps[-1])
    if not diverged and not np.isfinite(values["train_loss"][-1]):
        diverged = total
    end = diverged or stopped or total
    kept = int(np.searchsorted(steps, end)) + 1
    steps, values = steps[:kept], {name: value[:kept] for name, value in values.items()}
    met = [
        first
        for metric, threshold in targets.items()
        if metric in values
        and (first := steps_to(steps, values[metric], threshold, workload.metrics[metric].direction)) is not None
    ]
    if diverged:
        return Lane(steps, values, "diverged", diverged, diverged)
    if stopped:
        return Lane(steps, values, "reached", stopped, stopped)
    if met:
        return Lane(steps, values, "reached", min(met), total)
    return Lane(steps, values, "budget", None, total)


def steps_to(steps: np.ndarray, values: np.ndarray, threshold: float, direction: str) -> int | None:
    """The first checkpoint's step at which a target is met, or None."""
    met = values <= threshold if direction == "minimize" else values >= threshold
    return int(steps[np.argmax(met)]) if met.any() else None


def _best(steps: np.ndarray, values: np.ndarray, direction: str) -> tuple[float, int]:
    if np.isnan(values).all():
        return float("nan"), int(steps[0])
    index = int(np.nanargmin(values) if direction == "minimize" else np.nanargmax(values))
    return float(values[index]), int(steps[index])


def _rows(
    job: Job,
    cell: Cell,
    bundle: Bundle,
    trajectories: Trajectories,
    basis: LoadedBasis,
    first: int,
    machine: str,
    seeds_a_bundle: int,
) -> tuple[list[dict[str, Any]], pl.DataFrame]:
    spec, workload = job.spec, cell.workload
    batch = cell.workload_spec.settings.get("batch_size") or _examples(bundle.problems[0])
    runs, curves = [], []
    for s, seed in enumerate(spec.seeds):
        for k in range(len(cell.settings)):
            one = lane(trajectories, s, k, spec.targets, workload)
            run = f"{spec.hash[:12]}-{first + len(runs):04d}"
            hyper = {name: float(values[k]) for name, values in bundle.hyperparameters.items()}
            direction = {name: metric.direction for name, metric in workload.metrics.items()}
            best = {name: _best(one.steps, values, direction[name]) for name, values in one.values.items()}
            runs.append(
                {
                    "run": run,
                    "study": spec.study,
                    "scale": spec.scale,
                    "workload": workload.name,
                    "optimizer": spec.optimizers[0].name,
                    "basis": cell.basis.label,
                    "backend": spec.backend,
                    "device": spec.device,
                    "dtype": workload.dtype,
                    "stage": spec.stage,
                    "seed": seed,
                    "learning_rate": hyper.pop("learning_rate"),
                    "hyperparameters": _named(hyper),
                    "outcome": one.outcome,
                    "outcome_step": one.outcome_step,
                    "steps": one.total_steps,
                    "gradient_evaluations": one.total_steps,
                    "basis_gradient_evaluations": basis.gradient_evaluations,
                    "basis_seconds": basis.seconds,
                    "examples": one.total_steps * batch,
                    "final_metrics": _named({name: float(values[-1]) for name, values in one.values.items()}),
                    "best_metrics": [
                        {"name": name, "value": value, "step": step} for name, (value, step) in best.items()
                    ],
                    "targets": [
                        {
                            "metric": metric,
                            "threshold": threshold,
                            "steps": steps_to(one.steps, one.values[metric], threshold, direction[metric]),
                            "seconds": None,
                            "seconds_kind": None,
                        }
                        for metric, threshold in spec.targets.items()
                        if metric in one.values
                    ],
                    "seconds": None,
                    "state_bytes": trajectories.state_bytes,
                    "bundle_lanes": seeds_a_bundle * len(cell.settings),
                    "spec_hash": spec.hash,
                    "machine": machine,
                }
            )
            for name, values in one.values.items():
                curves.append(
                    pl.DataFrame(
                        {
                            "run": [run] * len(values),
                            "step": one.steps,
                            "gradient_evaluations": one.steps,
                            "examples": one.steps * batch,
                            "seconds": [None] * len(values),
                            "metric": [name] * len(values),
                            "value": values,
                        },
                        schema=schema.CURVES,
                    )
                )
    return runs, pl.concat(curves)


# --- timing --------------------------------------------------------------------------------------


def _timing(job: Job) -> list[str]:
    from harness.timing import time_methods
    from results.reading import scan

    spec = job.spec
    folders = [upstream_folder(job.results, spec, "final", hash_) for hash_ in spec.upstream["final"]]
    finals = pl.concat([scan(folder, "runs").collect() for folder in folders])
    rows: list[dict[str, Any]] = []
    seed = spec.seeds[0]
    machine = provenance(job.threads)["machine"]
    progress = Progress(
        f"{spec.study} timing on {spec.backend}",
        len(spec.workloads) * (1 + len(spec.optimizers) * len(spec.bases)),
    )
    for workload_spec in spec.workloads:
        workload = workloads.workloads()[workload_spec.name]
        engine = _engine(job, workload.dtype, spec.backend, spec.device)
        instance = _instance(workload, workload_spec.settings, seed)
        bundles: dict[str, Bundle] = {}
        names: dict[str, tuple[str, str]] = {"null": ("null", "identity")}
        for number, optimizer in enumerate(spec.optimizers):
            for basis in spec.bases:
                cell_runs = finals.filter(
                    (pl.col("workload") == workload.name)
                    & (pl.col("optimizer") == optimizer.name)
                    & (pl.col("basis") == basis.label)
                )
                chosen = cell_runs.row(0, named=True)
                hyper = {item["name"]: item["value"] for item in chosen["hyperparameters"]}
                setting = {**hyper, "learning_rate": chosen["learning_rate"]}
                cell = Cell(workload, workload_spec, basis, [setting])
                with job.clock.phase("data"):
                    loaded = _load_basis(job, workload.name, basis, [seed], workload.dtype)
                    bundle = _bundle(job, cell, [instance], loaded, number)
                method = f"{optimizer.name} @ {basis.label}"
                names[method], bundles[method] = (optimizer.name, basis.label), bundle
        steps = min(TIMED_STEPS, min(len(bundle.schedule) for bundle in bundles.values()))
        timings = time_methods(
            bundles, engine, steps, TIMED_REPETITIONS, lambda method: progress.advance(1, f"({method})")
        )
        for timing in timings:
            phase = {"null_step": "step"}.get(timing.phase, timing.phase)
            job.clock.seconds[phase] += timing.seconds
            rows.append(
                {
                    "study": spec.study,
                    "scale": spec.scale,
                    "workload": workload.name,
                    "optimizer": names[timing.method][0],
                    "basis": names[timing.method][1],
                    "backend": spec.backend,
                    "device": spec.device,
                    "phase": timing.phase,
                    "repetition": timing.repetition,
                    "steps": timing.steps,
                    "seconds": timing.seconds,
                    "spec_hash": spec.hash,
                    "machine": machine,
                }
            )
    write_table(job.folder / "timings.parquet", pl.DataFrame(rows, schema=schema.TIMINGS), schema.TIMINGS)
    return []


STAGES: Mapping[str, Callable[[Job], list[str]]] = {
    "bases": _bases,
    "sweep": _trajectories,
    "refine": _trajectories,
    "final": _trajectories,
    "timing": _timing,
}
