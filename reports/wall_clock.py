"""Where the seconds of final runs go: their jobs by phase, and the pace of a step."""

from __future__ import annotations

from typing import Any

import polars as pl

from curvebench.reports.measures import CELL, step_seconds
from curvebench.reports.tables import Tables
from curvebench.results.merging import machines
from curvebench.results.outcomes import finished
from curvebench.spec.plan import StudyPlan, WorkloadPlan

PHASES = ("import", "data", "compile", "waiting", "step", "evaluation", "basis", "checkpoint", "other")


def final_jobs(study: StudyPlan, tables: Tables, workload: str, backend: str) -> pl.DataFrame:
    """The jobs of final runs that hold one method on one workload, their seconds cut into `PHASES`.

    A basis that another job estimated before is charged to the job, once a seed. What a table of an earlier
    version does not tell apart is null, and among the phase that it is `curvebench.results.schema.WITHIN`.

    Returns:
        The rows of `jobs` with columns of `CELL`, runs, alone (whether its runs are made one at a time),
        steps and examples (of all runs; null where one did not take them all), and `{phase}_seconds`, whose
        sum is total_seconds.
    """
    # without a stop, runs go on past a target
    ends = ["budget"] if study.training.stop else ["budget", "reached"]
    of_final = pl.col("stage").is_in(("final", "alternative")).any().over("spec_hash", "machine")
    runs = tables.runs.filter(backend=backend).filter(of_final)
    whole = pl.when(pl.col("outcome").is_in(ends).all())
    batch = (pl.col("examples") / pl.col("gradient_evaluations")).max()
    held = (
        runs.group_by("spec_hash", "machine")
        .agg(
            *(pl.col(name).first() for name in CELL),
            cells=pl.struct(CELL).n_unique(),
            runs=pl.len().cast(pl.Int64),
            settings=pl.len() / pl.col("seed").n_unique(),
            alone=(pl.col("bundle_lanes") == 1).all(),
            steps=whole.then(pl.col("steps").sum()),
            examples=whole.then(pl.col("steps").sum() * batch),
            charged=pl.col("basis_seconds").fill_null(0).sum(),
        )
        .filter(cells=1, workload=workload)
    )
    elsewhere = pl.col("study").is_in([one.name for one in study.joining])  # whose seconds do not count
    jobs = tables.jobs.filter(~elsewhere).drop("backend", "optimizer")
    waiting, anew, kept = (pl.col(f"{part}_seconds") for part in ("waiting", "basis", "checkpoint"))
    anew = anew if study.estimates_anew else anew.fill_null(0)
    before = ((pl.col("charged") - anew) / pl.col("settings")).clip(lower_bound=0)
    return (
        held.join(jobs, on=["spec_hash", "machine"], nulls_equal=True)
        .with_columns(
            data_seconds=pl.col("data_seconds") - waiting.fill_null(0),
            step_seconds=pl.col("step_seconds") - anew.fill_null(0),
            other_seconds=pl.col("other_seconds") - kept.fill_null(0),
            basis_seconds=anew + before,
            total_seconds=pl.col("total_seconds") + before.fill_null(0),
        )
        .drop("cells", "settings", "charged")
    )


def clock_of(study: StudyPlan, workload: WorkloadPlan, backend: str, tables: Tables) -> dict[str, Any]:
    """What a page shows of the wall clock: of each method the job with the median total, and the machines.

    Of an even number of jobs it is the lower one, so that the parts add up; `least` and `most` are the totals
    of others. `examples_a_second` are those of the steps by the seconds of the steps.
    """
    jobs = final_jobs(study, tables, workload.name, backend).sort("total_seconds", "spec_hash")
    jobs = jobs.with_columns(examples_a_second=pl.col("examples") / pl.col("step_seconds"))
    rows = []
    for method in study.methods:
        own = jobs.filter(method=method)
        if len(own):
            totals = own["total_seconds"]
            median = own.row((len(own) - 1) // 2, named=True)
            rows.append({**median, "jobs": len(own), "least": totals.min(), "most": totals.max()})
    phases = [name for name in PHASES if any(row[f"{name}_seconds"] for row in rows)]
    return {"rows": rows, "phases": phases, "machines": machines(jobs).to_dicts()}


def paces(study: StudyPlan, tables: Tables, workload: str, backend: str) -> pl.DataFrame:
    """Seconds of a step and of compiling by method: as they were timed, else as the runs' own jobs have them.

    Only jobs whose runs are made one at a time tell it; waiting for data is then part of a step.

    Returns:
        Columns of `CELL`, each, compile, timed; the methods that were timed where neither tells all.
    """
    timings = tables.timings.filter(workload=workload, backend=backend)
    compiled = timings.filter(phase="compile").group_by(CELL).agg(compile=pl.col("seconds").median())
    steps = step_seconds(timings).unique(CELL, keep="last", maintain_order=True)
    timed = steps.select(*CELL, each="median").join(compiled, on=list(CELL), how="left")
    jobs = final_jobs(study, tables, workload, backend).filter("alone").drop_nulls("steps")
    taken = pl.col("step_seconds") + pl.col("waiting_seconds").fill_null(0)
    own = jobs.group_by(CELL).agg(
        each=(taken / pl.col("steps")).median(),
        compile=(pl.col("compile_seconds") / pl.col("runs")).median(),
    )
    final = tables.runs.filter(stage="final", workload=workload, backend=backend)
    wanted = set(final.filter(finished())["method"])
    by_jobs = not wanted <= set(timed["method"]) and wanted <= set(own["method"])
    return (own if by_jobs else timed).with_columns(timed=pl.lit(not by_jobs))
