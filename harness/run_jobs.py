"""The stages sweep, refine and final: every cell's lanes as bundles, written as runs and curves."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from harness import tuning
from harness.execution import Bundle, execute, joined, lanes_per_bundle, parts
from harness.job import Cell, Instance, Job, bundle_of, instance, load_basis, precision_of, workload_of
from harness.progress import Progress
from harness.records import rows
from results import schema
from results.reading import read
from results.writing import write_table


def run_lanes(job: Job) -> list[str]:
    """Run all lanes of a job and write its tables; returns notes."""
    spec = job.spec
    with job.clock.phase("data"):
        cells = _cells(job)
    precisions = {precision_of(spec, workload_of(one)) for one in spec.workloads}
    engines = {dtype: job.engine(dtype) for dtype in sorted(precisions)}
    progress = Progress(
        f"{spec.study} {spec.stage} {spec.optimizers[0].label} on {spec.backend}",
        sum(len(cell.settings) for cell in cells),
    )
    runs: list[dict[str, Any]] = []
    curves: list[pl.DataFrame] = []
    instances: dict[str, list[Instance]] = {}
    for cell in cells:
        name, dtype = cell.workload.name, precision_of(spec, cell.workload)
        with job.clock.phase("data"):
            if name not in instances:
                # Only one workload's problems are held at a time.
                instances = {
                    name: [instance(cell.workload, cell.workload_spec.settings, seed) for seed in spec.seeds]
                }
            basis = load_basis(job, name, cell.basis, spec.seeds, dtype)
            whole = bundle_of(job, cell, instances[name], basis)
        size = lanes_per_bundle(whole, np.dtype(dtype).itemsize, spec.bundle_memory_bytes)
        pieces = [
            [execute(part, engines[dtype], job.clock, _reporter(progress, whole, part)) for part in row]
            for row in parts(whole, size)
        ]
        cell_runs, cell_curves = rows(job, cell, whole, joined(pieces), basis, len(runs))
        runs += cell_runs
        curves.append(cell_curves)
    write_table(job.folder / "runs.parquet", pl.DataFrame(runs, schema=schema.RUNS), schema.RUNS)
    write_table(job.folder / "curves.parquet", pl.concat(curves), schema.CURVES)
    return sorted({note for engine in engines.values() for note in engine.notes})


def _cells(job: Job) -> list[Cell]:
    spec = job.spec
    settings = _settings(job)
    return [
        Cell(workload_of(workload), workload, spec.optimizers[0], basis, settings[workload.name, basis.label])
        for workload in spec.workloads
        for basis in spec.bases
    ]


def _settings(job: Job) -> Mapping[tuple[str, str], Sequence[Mapping[str, float]]]:
    """What each workload and basis tries: the spec's own settings, or what the upstream tables say."""
    spec = job.spec
    if spec.settings is not None:
        return {(one.name, basis.label): spec.settings for one in spec.workloads for basis in spec.bases}
    runs = pl.concat([read(folder, "runs") for folder in job.upstream("sweep", "refine")])
    found: Mapping[tuple[str, str], Sequence[Mapping[str, float]]]
    if spec.stage == "refine":
        found = tuning.refine(runs, spec.tuning)
    else:
        found = {group: [setting] for group, setting in tuning.choose(runs, spec.tuning).items()}
    return {
        (one.name, basis.label): found[one.name, tuning.chooser(spec.tuning, basis.label)]
        for one in spec.workloads
        for basis in spec.bases
    }


def _reporter(progress: Progress, whole: Bundle, part: Bundle) -> Callable[[int], None]:
    """Turns the steps done by a part of a bundle into its share of the job's work."""
    before = 0
    weight = whole.lanes[1] * math.prod(part.lanes) / math.prod(whole.lanes) / len(whole.schedule)

    def report(done: int) -> None:
        nonlocal before
        progress.advance(weight * (done - before))
        before = done

    return report
