"""What is wrong with the tables of a set: rows that contradict each other, and rows that were left out."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from math import isfinite

import polars as pl

from results.merging import KEYS
from results.provenance import machine
from results.publishing import CURVE_POINTS
from results.reading import with_method
from results.record_flaws import METRICS, of_records, of_seconds
from results.run_flaws import of_runs
from results.schema import FAILED, TUNING
from results.sentences import Row, of_rows, told, value
from results.set_plan import FIRST_FINAL_SEED, PlannedStudy
from results.tuning_flaws import of_cells, of_tuning

COMMIT = re.compile(r"[0-9a-f]{40}")
NOBODY = "null"  # in tables of times and memory: a step that takes its gradient and leaves all as it is
SHOWN = 3  # how many flaws of a plan are told
UNIQUE = {**KEYS, "parity": ["optimizer", "problem", "basis", "comparison"]}

Frames = Mapping[str, pl.DataFrame]


def of_folder(where: str, frames: Frames) -> Iterator[str]:
    """What is wrong with the tables of one folder, whatever the plan."""
    if "jobs" not in frames:
        return  # said already: a set needs this file
    yield from _jobs(where, frames["jobs"])
    for table, frame in frames.items():
        if table in UNIQUE:
            yield from _twice(where, table, frame)
        if table in KEYS:
            yield from _negative(where, table, frame)
        if table in ("runs", "timings", "memory", "parity", "checks", "series"):
            yield from _unknown_jobs(where, table, frames)
        if table in ("runs", "timings", "memory"):
            yield from _elsewhere(where, table, frame)
    if "runs" in frames:
        yield from _runs(where, frames["runs"])
    if "runs" in frames and "curves" in frames:
        strangers = frames["curves"].join(frames["runs"], on="run", how="anti").unique("run")
        yield from told(
            f"{where}/curves.parquet",
            strangers.sort("run"),
            lambda row: f"run {row['run']}: runs.parquet does not have it",
        )
    if "checks" in frames and "series" in frames:
        unmeasured = frames["series"].join(frames["checks"], on="claim", how="anti").unique("claim")
        yield from told(
            f"{where}/series.parquet",
            unmeasured.sort("claim"),
            lambda row: f"claim {row['claim']}: checks.parquet has no measure of it",
        )


def of_study(study: PlannedStudy, frames: Frames, thinned: bool, whole: bool = False) -> Iterator[str]:
    """Where the tables of a study contradict each other or its plan.

    Args:
        frames: at least `runs`, `curves` and `timings`.
        thinned: whether the set says that the curves hold some of the checkpoints only.
        whole: whether it says that those of them that claims are decided by hold all.
    """
    where = study.name
    runs = with_method(frames["runs"])
    yield from of_cells(study, runs)
    yield from of_tuning(study, runs)
    yield from of_runs(study, runs, frames["curves"])
    finished = runs.filter(~pl.col("outcome").is_in(FAILED))  # of the others `of_runs` has told
    yield from of_records(study, finished, frames["curves"], thinned)
    yield from of_seconds(where, runs, frames["timings"], frames["curves"], thinned)
    points = frames["curves"].group_by("run", "metric").len()["len"]
    if thinned and (CURVE_POINTS not in points if whole else points.max() != CURVE_POINTS):
        yield (
            f"{where}/curves.parquet: provenance.json says that it is thinned, which leaves {CURVE_POINTS} "
            f"checkpoints of long runs, and the longest has {max(points, default=0)}"
        )


def of_scale(where: str, frames: Frames, scale: str) -> Iterator[str]:
    """Rows of another scale than the set's; comparisons of backends are of all scales."""
    for table, frame in frames.items():
        if "scale" in frame.columns:
            others = frame.filter(~pl.col("scale").is_in([scale, "all"]).fill_null(value=False))
            yield from of_rows(
                where, table, others, lambda row: f"scale is {row['scale']}, and the set's {scale}"
            )


# --- one table -----------------------------------------------------------------------------------


def _jobs(where: str, jobs: pl.DataFrame) -> Iterator[str]:
    unnamed = jobs.filter(pl.col("machine").is_null() | pl.col("cpu").is_null())
    yield from of_rows(
        where,
        "jobs",
        unnamed,
        lambda row: f"machine is {value(row['machine'])} and cpu {value(row['cpu'])}; both must be there",
    )
    strange = jobs.filter(~pl.col("commit").fill_null("0" * 40).str.contains(f"^{COMMIT.pattern}$"))
    yield from of_rows(
        where,
        "jobs",
        strange,
        lambda row: f"commit is {row['commit']!r}, and should be 40 hexadecimal digits",
    )
    hardware = ["machine", "cpu", "cores", "gpu"]
    known = jobs.drop_nulls(["machine", "cpu"]).unique(hardware, maintain_order=True)
    right = [machine(cpu, cores, gpu) for cpu, cores, gpu in known.select(hardware[1:]).iter_rows()]
    named = known.with_columns(pl.Series("right", right, dtype=pl.String))
    yield from of_rows(where, "jobs", named.filter(pl.col("machine") != pl.col("right")), _misnamed)


def _misnamed(row: Row) -> str:
    gpu = row["gpu"] or "no GPU"
    return (
        f"machine is {row['machine']}, and {row['cpu']} with {row['cores']} cores and {gpu} is called "
        f"{row['right']}"
    )


def _twice(where: str, table: str, frame: pl.DataFrame) -> Iterator[str]:
    """Rows that claim to be the same."""
    again = frame.filter(pl.struct(UNIQUE[table]).is_duplicated())
    yield from of_rows(where, table, again, lambda _: "has more than one row; one is wanted")


def _negative(where: str, table: str, frame: pl.DataFrame) -> Iterator[str]:
    """Counts and seconds below 0, or no numbers: every column of integers holds counts."""
    for name, dtype in frame.schema.items():
        if dtype == pl.Int64 or (dtype == pl.Float64 and name.endswith("seconds")):
            bad = frame.filter(~(pl.col(name).cast(pl.Float64).is_finite() & (pl.col(name) >= 0)))
            yield from of_rows(where, table, bad, partial(_no_count, name))


def _no_count(name: str, row: Row) -> str:
    return f"{name} is {value(row[name])}, and should be a number that is not negative"


def _unknown_jobs(where: str, table: str, frames: Frames) -> Iterator[str]:
    """Rows without provenance: no job of their hash ran on their machine, for what else both name.

    That is a stage, a backend and an optimizer, where the job is of one; of checks it has their module.
    """
    rows = frames[table]
    key = ["spec_hash", "machine", *(name for name in ("stage", "backend") if name in rows.columns)]
    whose = [*key, *(["optimizer"] if "optimizer" in rows.columns else [])]
    jobs, lost = frames["jobs"], rows.with_columns(pl.col(key).cast(pl.String))
    named = pl.concat([jobs, jobs.with_columns(optimizer=pl.lit(NOBODY))])  # beside whom each job times
    for one, on in ((jobs.filter(pl.col("optimizer").is_null()), key), (named, whose)):
        lost = lost.join(one.select(on).unique(), on=on, how="anti", nulls_equal=True)

    def flaw(row: Row) -> str:
        stage = f" of stage {row['stage']}" if "stage" in key else ""
        job = f"job {value(row['spec_hash'])}{stage} on machine {value(row['machine'])}"
        own = [f"{name} {value(row[name])}" for name in ("optimizer", "backend") if name in whose]
        return f"without provenance: jobs.parquet has no {job}{', '.join(['', *own])}"

    yield from of_rows(where, table, lost, flaw)


def _elsewhere(where: str, table: str, frame: pl.DataFrame) -> Iterator[str]:
    wrong = frame.filter(pl.col("study").ne_missing(where))
    yield from of_rows(
        where, table, wrong, lambda row: f"study is {value(row['study'])}, and should be {where}"
    )


def _runs(where: str, runs: pl.DataFrame) -> Iterator[str]:
    """Seeds that judge twice or have tuned, and metrics and outcomes that do not go together."""
    cell = ["workload", "optimizer", "basis", "backend", "machine", "seed"]
    final = runs.filter(pl.col("stage") == "final")
    tuned = set(runs.filter(pl.col("stage").is_in(TUNING))["seed"])
    fine = runs.filter(~pl.col("outcome").cast(pl.String).is_in(["diverged", *FAILED]))
    flaws: list[tuple[pl.DataFrame, Callable[[Row], str]]] = [
        (
            final.filter(pl.struct(cell).is_duplicated()),
            lambda row: f"the method has more than one final run of seed {row['seed']}",
        ),
        (
            final.filter(pl.col("seed").is_in(sorted(tuned))),
            lambda row: (
                f"a seed that tuned judges as well: {row['seed']}; final seeds begin at {FIRST_FINAL_SEED}"
            ),
        ),
        *((_infinite(fine, column), partial(_not_finite, column)) for column in METRICS),
        (
            fine.filter(pl.col("final_metrics").list.len().fill_null(0) == 0),
            lambda row: f"outcome is {row['outcome']}, and there are no final metrics",
        ),
        (
            runs.filter((pl.col("outcome") == "diverged") & pl.col("outcome_step").is_null()),
            lambda _: "outcome is diverged, and outcome_step is missing",
        ),
        (
            runs.filter(pl.col("gradient_evaluations") < pl.col("steps")),
            lambda row: (
                f"gradient_evaluations is {row['gradient_evaluations']}, fewer than the {row['steps']} steps"
            ),
        ),
    ]
    for rows, flaw in flaws:
        yield from of_rows(where, "runs", rows, flaw)


def _infinite(runs: pl.DataFrame, column: str) -> pl.DataFrame:
    finite = pl.col(column).list.eval(pl.element().struct.field("value").is_finite().fill_null(False))
    return runs.filter(~finite.list.all())


def _not_finite(column: str, row: Row) -> str:
    which = column.removesuffix("_metrics")
    said = next(item for item in row[column] if item["value"] is None or not isfinite(item["value"]))
    return (
        f"{which} {said['name']} is {value(said['value'])} and outcome {row['outcome']}; without a finite "
        "value it should be diverged or a failure"
    )
