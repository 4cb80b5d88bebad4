"""What is wrong with what runs say of metrics and targets, held against plan, curves and timings."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import polars as pl

from results.merging import model_seconds, unmodelled
from results.sentences import Row, of_rows, value, when
from results.set_plan import PlannedStudy

ROUNDING = 1e-9  # relative: what another processor's rounding may change of a modelled time
METRICS = ("final_metrics", "best_metrics")
Flaw = tuple[pl.DataFrame, Callable[[Row], str]]  # the rows that have it, and what is said of one


def of_records(study: PlannedStudy, runs: pl.DataFrame, curves: pl.DataFrame, thinned: bool) -> Iterator[str]:
    """Final and best values and steps to targets that are not those of the workload or of the curves."""
    asked, said = _said(study, runs)
    judged = _beside_curves(said.filter(pl.col("stage") == "final"), curves)
    for rows, flaw in (*_beside_plan(runs, asked, said), *_beside_checkpoints(judged, thinned)):
        yield from of_rows(study.name, "runs", rows, flaw)


BEST = pl.col("sign") * pl.col("best")


def _beside_plan(runs: pl.DataFrame, asked: pl.DataFrame, said: pl.DataFrame) -> Iterator[Flaw]:
    """What the plan and the run itself contradict."""
    counts = asked.group_by("run", "metrics").len()
    named = runs.join(counts, on="run", how="left").filter(
        pl.col("final_metrics").list.len().ne_missing(pl.col("len").cast(pl.UInt32))
        | pl.col("best_metrics").list.len().ne_missing(pl.col("len").cast(pl.UInt32))
    )
    lost = said.filter(pl.col("has_final").is_null() | pl.col("has_best").is_null())
    yield named, _other_metrics
    yield (
        lost.filter(~pl.col("run").is_in(named["run"].to_list())),
        lambda row: f"metrics are not those of the workload: {row['metric']} is missing",
    )
    outside = ~pl.col("best_step").is_between(0, pl.col("steps")).fill_null(value=False)
    yield (
        said.filter(pl.col("has_best") & outside),
        lambda row: (
            f"best {row['metric']} is of step {value(row['best_step'])}, and the run has {row['steps']}"
        ),
    )
    yield (
        said.filter(pl.col("final").is_not_nan() & (pl.col("sign") * pl.col("final") < BEST)),
        lambda row: (
            f"best {row['metric']} is {value(row['best'])}, worse than the last, {value(row['final'])}"
        ),
    )
    yield (
        said.filter(pl.col("threshold").ne_missing(pl.col("target"))),
        lambda row: (
            f"target of {row['metric']} is {value(row['threshold'])}, and plan.json has "
            f"{value(row['target'])}"
        ),
    )
    late = pl.col("target_steps").is_not_null() & ~pl.col("target_steps").is_between(0, pl.col("steps"))
    yield (
        said.filter(late),
        lambda row: (
            f"target of {row['metric']} is {when(row['target_steps'])}, and the run has {row['steps']}"
        ),
    )


def _beside_checkpoints(judged: pl.DataFrame, thinned: bool) -> Iterator[Flaw]:
    """What the curves contradict, of which all checkpoints are there or, `thinned`, some."""
    ends = (pl.col("first_step") == 0) & (pl.col("last_step") == pl.col("steps"))
    yield judged.filter(~ends.fill_null(value=False)), _no_whole_curve
    judged = judged.filter(pl.col("first_step").is_not_null())
    yield (
        judged.filter(pl.col("last").ne_missing(pl.col("final"))),
        lambda row: (
            f"final {row['metric']} is {value(row['final'])}, and the curve ends at {value(row['last'])}"
        ),
    )
    if thinned:
        missed = pl.col("extreme") < BEST
        elsewhere = pl.col("at_best").is_not_null() & pl.col("at_best").ne_missing(pl.col("best"))
        later = pl.col("met").is_not_null() & ~(pl.col("target_steps") <= pl.col("met")).fill_null(
            value=False
        )
    else:
        missed = pl.col("extreme") != BEST
        elsewhere = pl.col("at_best").ne_missing(pl.col("best"))
        later = pl.col("target_steps").ne_missing(pl.col("met"))
    yield judged.filter(missed | elsewhere), _other_best
    yield (
        judged.filter(later),
        lambda row: (
            f"target of {row['metric']} is {when(row['target_steps'])}, and by the curve {when(row['met'])}"
        ),
    )


def _other_metrics(row: Row) -> str:
    said = " and ".join(
        f"{column} has {', '.join(item['name'] for item in row[column] or []) or 'none'}"
        for column in METRICS
    )
    return f"metrics are not those of the workload: {said}, and should have {row['metrics'] or 'none'}"


def _no_whole_curve(row: Row) -> str:
    if row["first_step"] is None:
        return f"{row['metric']} has no curve; it should go from step 0 to {row['steps']}"
    return (
        f"the curve of {row['metric']} goes from step {row['first_step']} to {row['last_step']}, and should "
        f"go from 0 to {row['steps']}"
    )


def _other_best(row: Row) -> str:
    extreme = row["extreme"] if row["extreme"] is None else row["sign"] * row["extreme"]
    at = value(row["at_best"])
    return (
        f"best {row['metric']} is {value(row['best'])} at step {value(row['best_step'])}, and the curve has "
        f"{at} there and at best {value(extreme)}"
    )


def of_seconds(
    where: str, runs: pl.DataFrame, timings: pl.DataFrame, curves: pl.DataFrame, thinned: bool
) -> Iterator[str]:
    """Seconds to targets that are not those of timings, where modelled, or of curves, where measured."""
    about = ["run", "optimizer", "basis", "workload", "backend", "seed", "stage", "steps"]
    parts = [
        frame.filter(pl.col("targets").list.len() > 0)
        .select(*about, pl.col("seconds").alias("alone"), "targets")
        .rename({"steps": "total"})
        .explode("targets")
        .unnest("targets")
        for frame in (runs, model_seconds(unmodelled(runs), timings))
    ]
    said = parts[0].with_columns(
        parts[1]["seconds"].alias("right"), parts[1]["seconds_kind"].alias("right_kind")
    )
    measured = pl.col("seconds_kind").eq_missing("measured")
    far = (pl.col("seconds") - pl.col("right")).abs() > ROUNDING * pl.col("right").abs()
    one_missing = pl.col("seconds").is_null() != pl.col("right").is_null()
    other = far.fill_null(value=False) | one_missing | pl.col("seconds_kind").ne_missing(pl.col("right_kind"))
    yield from of_rows(where, "runs", said.filter(~measured & other), _other_seconds)
    at = curves.select("run", "metric", "step", pl.col("seconds").alias("by_curve"))
    clocked = said.filter(measured).join(
        at, left_on=["run", "metric", "steps"], right_on=["run", "metric", "step"], how="left"
    )
    unknown = pl.col("alone").is_null() | pl.col("steps").is_null()
    seen = (pl.col("stage") == "final") & (~pl.lit(thinned) | pl.col("by_curve").is_not_null())
    wrong = unknown | (seen & pl.col("seconds").ne_missing(pl.col("by_curve")))
    yield from of_rows(where, "runs", clocked.filter(wrong), _not_measured)


def _other_seconds(row: Row) -> str:
    said = f"{value(row['seconds'])} ({row['seconds_kind'] or 'of no kind'})"
    right = "missing" if row["right"] is None else f"{value(row['right'])} (modelled)"
    return (
        f"seconds to the target of {row['metric']}, {when(row['steps'])}, are {said}, and steps times the "
        f"median step in timings.parquet gives {right}"
    )


def _not_measured(row: Row) -> str:
    said = f"seconds to the target of {row['metric']} are said to be measured, {value(row['seconds'])}"
    if row["alone"] is None or row["steps"] is None:
        return f"{said}, and the run was not timed alone, or did not reach it"
    return f"{said}, and the curve has {value(row['by_curve'])} at step {row['steps']}"


def _said(study: PlannedStudy, runs: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """One row a run and metric: what the plan asks, and what the run says beside it."""
    about = pl.DataFrame(
        [
            (workload.name, name, 1 if metric.direction == "minimize" else -1, targets.get(name))
            for workload in study.workloads
            for targets in [study.targets_on(workload)]
            for name, metric in workload.metrics.items()
        ],
        schema={"workload": pl.String, "metric": pl.String, "sign": pl.Int64, "target": pl.Float64},
        orient="row",
    )
    whose = ("run", "optimizer", "basis", "workload", "backend", "seed")
    names = about.group_by("workload", maintain_order=True).agg(
        pl.col("metric").str.join(", ").alias("metrics")
    )
    asked = runs.select(*whose, "stage", "steps").join(about, on="workload").join(names, on="workload")
    said = asked
    for column, fields in (
        ("final_metrics", {"name": "metric", "value": "final"}),
        ("best_metrics", {"name": "metric", "value": "best", "step": "best_step"}),
        ("targets", {"metric": "metric", "threshold": "threshold", "steps": "target_steps"}),
    ):
        rows = runs.select("run", column).explode(column).drop_nulls(column).unnest(column)
        own = rows.select("run", *(pl.col(old).alias(new) for old, new in fields.items()))
        flag = pl.lit(value=True).alias(f"has_{column.removesuffix('_metrics')}")
        said = said.join(own.with_columns(flag), on=["run", "metric"], how="left")
    return asked, said


def _beside_curves(said: pl.DataFrame, curves: pl.DataFrame) -> pl.DataFrame:
    """The rows beside what their curves say: ends, best value, first step on target."""
    points = curves.join(said.select("run", "metric", "sign", "target"), on=["run", "metric"]).with_columns(
        number=pl.when(pl.col("value").is_not_nan()).then(pl.col("sign") * pl.col("value"))
    )
    met = pl.col("number") <= pl.col("sign") * pl.col("target")
    found = points.group_by("run", "metric").agg(
        pl.col("step").min().alias("first_step"),
        pl.col("step").max().alias("last_step"),
        pl.col("value").sort_by("step").last().alias("last"),
        pl.col("number").min().alias("extreme"),
        pl.col("step").filter(met).min().alias("met"),
    )
    at = curves.select("run", "metric", pl.col("step").alias("best_step"), pl.col("value").alias("at_best"))
    return said.join(found, on=["run", "metric"], how="left").join(
        at, on=["run", "metric", "best_step"], how="left"
    )
