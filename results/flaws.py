"""What is wrong with the tables of a set: rows that contradict each other, and rows that were left out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import polars as pl

from results.merging import KEYS
from results.methods import IDENTITY, method_label, method_parts
from results.provenance import machine
from results.publishing import CURVE_POINTS
from results.reading import with_method
from results.schema import FAILED, TUNING
from results.set_plan import FIRST_FINAL_SEED, PlannedStudy, SetPlan
from results.verdicts import share_of_limit

COMMIT = re.compile(r"[0-9a-f]{40}")
SHOWN = 3  # how many rows a complaint names
UNIQUE = {**KEYS, "parity": ["optimizer", "problem", "basis", "comparison"]}
PART = ["claim", "part", "variant"]
CELL = ["backend", "workload", "method"]

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
        if table in ("runs", "timings", "memory", "parity", "checks"):
            yield from _unknown_jobs(where, table, frames)
        if table in ("runs", "timings", "memory"):
            yield from _elsewhere(where, table, frame)
    if "runs" in frames:
        yield from _runs(where, frames["runs"])
    if "runs" in frames and "curves" in frames:
        strangers = frames["curves"].join(frames["runs"], on="run", how="anti")["run"].unique().sort()
        yield from _told(where, "curves of runs that runs.parquet does not have:", strangers.to_frame())


def of_study(study: PlannedStudy, frames: Frames, thinned: bool) -> Iterator[str]:
    """Where the tables of a study contradict each other or its plan.

    Args:
        frames: at least `runs` and `curves`.
        thinned: whether the set says that the curves hold some of the checkpoints only.
    """
    where = study.name
    runs = with_method(frames["runs"])
    yield from _left_out(study, runs)
    yield from _untuned(study, runs)
    yield from _records(study, runs.filter(~pl.col("outcome").is_in(FAILED)), frames["curves"], thinned)
    points = frames["curves"].group_by("run", "metric").len()["len"]
    if thinned and points.max() != CURVE_POINTS:
        yield f"{where}/curves.parquet: said to be thinned, and no run has {CURVE_POINTS} checkpoints"


def of_scale(where: str, frames: Frames, scale: str) -> Iterator[str]:
    """Rows of another scale than the set's; comparisons of backends are of all scales."""
    for table, frame in frames.items():
        if "scale" in frame.columns:
            others = frame.filter(~pl.col("scale").is_in([scale, "all"]))["scale"].unique().sort()
            if len(others):
                yield f"{where}/{table}.parquet: rows of scale {others[0]!r} in a set of scale {scale!r}"


def of_checks(plan: SetPlan, checks: pl.DataFrame) -> Iterator[str]:
    """Measures of property checks that do not say what follows from them, and instances left out."""
    about = checks.select("value", pl.col("relation").cast(pl.String), "limit", "tolerance")
    holds = pl.Series([share_of_limit(*measure) <= 1 for measure in about.iter_rows()], dtype=pl.Boolean)
    wrong = checks.filter(holds.ne_missing(checks["holds"]))
    if len(wrong):
        first = wrong.row(0, named=True)
        yield (
            f"checks/checks.parquet: {len(wrong)} measures say that they hold, or do not, and their "
            f"values say otherwise (the first: {first['claim']}, {first['quantity']}, instance "
            f"{first['instance']})"
        )
    counts = checks.group_by(PART).agg(
        pl.col("instance").n_unique().alias("count"), pl.col("instance").max().alias("last")
    )
    gaps = counts.filter(pl.col("last") != pl.col("count").cast(pl.Int64) - 1).sort(PART)
    yield from (
        f"checks/checks.parquet: {claim}, {part}: instances up to number {last}, and {count} are there; "
        "all that were drawn belong in a set"
        for claim, part, count, last in gaps.select("claim", "part", "count", "last").iter_rows()
    )
    known = {claim.id: claim for claim in plan.checks.claims} if plan.checks else {}
    asked = {name for name, claim in known.items() if not claim.missing}
    there = set(checks["claim"])
    yield from (f"checks/checks.parquet: no measure of the claim {name}" for name in sorted(asked - there))
    yield from (
        f"checks/checks.parquet: measures of {name}, a claim that the plan does not have"
        for name in sorted(there - set(known))
    )


def of_parity(parity: pl.DataFrame) -> Iterator[str]:
    """Comparisons of backends that do not say what follows from their differences."""
    holds = ~pl.col("judged") | (
        pl.col("difference").is_finite() & (pl.col("difference") <= pl.col("tolerance"))
    )
    wrong = parity.filter(holds.fill_null(value=False).ne_missing(pl.col("holds")))
    if len(wrong):
        first = wrong.row(0, named=True)
        yield (
            f"parity/parity.parquet: {len(wrong)} comparisons say that they hold, or do not, and their "
            f"differences say otherwise (the first: {first['optimizer']}, {first['problem']})"
        )


# --- one table -----------------------------------------------------------------------------------


def _jobs(where: str, jobs: pl.DataFrame) -> Iterator[str]:
    unnamed = jobs.filter(pl.col("machine").is_null() | pl.col("cpu").is_null())
    if len(unnamed):
        yield f"{where}/jobs.parquet: {len(unnamed)} jobs name no machine or no processor"
    strange = jobs.filter(~pl.col("commit").fill_null("0" * 40).str.contains(f"^{COMMIT.pattern}$"))
    if len(strange):
        yield f"{where}/jobs.parquet: {strange['commit'][0]!r} is not a commit (40 hexadecimal digits)"
    hardware = jobs.select("machine", "cpu", "cores", "gpu").drop_nulls(["machine", "cpu"]).unique()
    yield from (
        f"{where}/jobs.parquet: machine {name} is not the name of {cpu} with {cores} cores and GPU {gpu}"
        for name, cpu, cores, gpu in hardware.sort(hardware.columns).iter_rows()
        if name != machine(cpu, cores, gpu)
    )


def _twice(where: str, table: str, frame: pl.DataFrame) -> Iterator[str]:
    """Rows that claim to be the same."""
    key = UNIQUE[table]
    again = frame.filter(pl.struct(key).is_duplicated())
    if len(again):
        first = ", ".join(f"{name} {value}" for name, value in again.select(key).row(0, named=True).items())
        yield f"{where}/{table}.parquet: {len(again)} rows are not the only ones of what they are of: {first}"


def _negative(where: str, table: str, frame: pl.DataFrame) -> Iterator[str]:
    """Counts and seconds below 0, or no numbers: every column of integers holds counts."""
    for name, dtype in frame.schema.items():
        if dtype == pl.Int64 or (dtype == pl.Float64 and name.endswith("seconds")):
            bad = frame.filter(~(pl.col(name).cast(pl.Float64).is_finite() & (pl.col(name) >= 0)))
            if len(bad):
                yield f"{where}/{table}.parquet: {len(bad)} {name} are negative or not finite"


def _unknown_jobs(where: str, table: str, frames: Frames) -> Iterator[str]:
    """Rows without provenance: no job of their hash and, where they have one, stage ran on their machine."""
    key = ["spec_hash", "machine", *(["stage"] if table == "runs" else [])]
    rows = frames[table].with_columns(pl.col(key).cast(pl.String))
    lost = rows.join(frames["jobs"].select(key).unique(), on=key, how="anti", nulls_equal=True)
    if len(lost):
        first = ", ".join(f"{name} {value}" for name, value in lost.select(key).row(0, named=True).items())
        yield (
            f"{where}/{table}.parquet: {len(lost)} rows without provenance: jobs.parquet has no job of them "
            f"(the first: {first})"
        )


def _elsewhere(where: str, table: str, frame: pl.DataFrame) -> Iterator[str]:
    if len(wrong := frame.filter(pl.col("study") != where)):
        yield f"{where}/{table}.parquet: {len(wrong)} rows are of the study {wrong['study'][0]!r}"


def _runs(where: str, runs: pl.DataFrame) -> Iterator[str]:
    """Seeds that judge twice or have tuned, and metrics and outcomes that do not go together."""
    cell = ["workload", "optimizer", "basis", "backend", "machine", "seed"]
    final = runs.filter(pl.col("stage") == "final")
    twice = final.filter(pl.struct(cell).is_duplicated())
    yield from _told(where, "a method has more than one final run of a seed:", twice)
    tuned = set(runs.filter(pl.col("stage").is_in(TUNING))["seed"])
    judged_too = final.filter(pl.col("seed").is_in(sorted(tuned)))
    yield from _told(where, "a seed that tuned judges as well:", judged_too)
    fine = runs.filter(~pl.col("outcome").cast(pl.String).is_in(["diverged", *FAILED]))
    for column in ("final_metrics", "best_metrics"):
        finite = pl.col(column).list.eval(pl.element().struct.field("value").is_finite().fill_null(False))
        wrong = fine.filter(~finite.list.all())
        yield from _told(where, f"{column} are not finite, and the outcome is not diverged:", wrong)
    empty = fine.filter(pl.col("final_metrics").list.len().fill_null(0) == 0)
    yield from _told(where, "no final metrics, and the outcome is no failure:", empty)
    stepless = runs.filter((pl.col("outcome") == "diverged") & pl.col("outcome_step").is_null())
    yield from _told(where, "diverged, and at no step:", stepless)
    free = runs.filter(pl.col("gradient_evaluations") < pl.col("steps"))
    yield from _told(where, "fewer gradient evaluations than steps:", free)


def _told(where: str, what: str, rows: pl.DataFrame) -> Iterator[str]:
    if len(rows):
        names = rows["run"].unique(maintain_order=True)
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        yield f"{where}: {what} {', '.join(map(str, names[:SHOWN]))}{more}"


# --- runs and what was planned -------------------------------------------------------------------


def _left_out(study: PlannedStudy, runs: pl.DataFrame) -> Iterator[str]:
    """Final runs that were planned and are missing, or are there and were not planned."""
    final = runs.filter(pl.col("stage") == "final")
    found = {
        cell: set(seeds)
        for *cell_, seeds in final.group_by(CELL).agg("seed").iter_rows()
        for cell in [tuple(cell_)]
    }
    asked: dict[tuple[str, str, str], set[int]] = {}
    for name, backend in study.backends.items():
        seeds = set(range(FIRST_FINAL_SEED, FIRST_FINAL_SEED + backend.final_seeds))
        for each in study.methods:
            if study.only_backend(method_parts(each)[0]) in (None, name):
                asked |= {(name, workload.name, each): seeds for workload in study.workloads}
    for cell in sorted(asked.keys() | found.keys()):
        wanted, got = asked.get(cell, set()), found.get(cell, set())
        if wanted != got:
            backend, workload, each = cell
            kinds = (("missing", wanted - got), ("not planned", got - wanted))
            told = [f"{kind}: seeds {', '.join(map(str, sorted(own)))}" for kind, own in kinds if own]
            yield f"{study.name}: final runs of {each} on {workload}, {backend}: {'; '.join(told)}"


def _untuned(study: PlannedStudy, runs: pl.DataFrame) -> Iterator[str]:
    """Tuning runs that are not as many as planned, and final learning rates that no tuning run tried."""
    tuning = runs.filter(pl.col("stage").is_in(TUNING))
    planned, tried, rates = study.tuning.trials * study.seeds.tuning, {}, {}
    for cell, own in tuning.group_by(CELL):
        settings = own.select("learning_rate", "hyperparameters", "seed").iter_rows()
        tried[cell] = len(set(map(repr, settings)))
        rates[cell] = set(own["learning_rate"])
    final = runs.filter(pl.col("stage") == "final")
    cells = final.group_by(*CELL, "optimizer", "basis").agg(pl.col("learning_rate").unique())
    tuners: set[tuple[str, ...]] = set()
    for backend, workload, each, optimizer, basis, used in cells.sort(CELL).iter_rows():
        if backend not in study.backends:
            continue  # told by `_left_out`
        tuner = study.only_backend(optimizer) or study.backends[backend].tuned_on
        tuners.add((tuner, workload, each))
        chooser = IDENTITY if study.tuning.shared_across == "bases" else basis
        among = rates.get((tuner, workload, method_label(optimizer, chooser)), set())
        if len(used) != 1 or not among.issuperset(used):
            yield (
                f"{study.name}: learning rates of {each} on {workload}, {backend}: "
                f"{', '.join(map(str, sorted(used)))}; one is wanted, of those that were tried on {tuner}"
            )
    yield from (
        f"{study.name}: tuning runs of {each} on {workload}, {tuner}: {count} settings and seeds, and "
        f"{wanted} were planned"
        for (tuner, workload, each), wanted in sorted(dict.fromkeys(tuners | tried.keys(), planned).items())
        for count in [tried.get((tuner, workload, each), 0)]
        if count != wanted
    )


def _records(study: PlannedStudy, runs: pl.DataFrame, curves: pl.DataFrame, thinned: bool) -> Iterator[str]:
    """Final and best values and steps to targets that are not those of the workload or of the curves."""
    where, final = study.name, pl.col("stage") == "final"
    asked, said = _said(study, runs)
    named = runs.join(asked.group_by("run").len(), on="run", how="left").filter(
        pl.col("final_metrics").list.len().ne_missing(pl.col("len").cast(pl.UInt32))
        | pl.col("best_metrics").list.len().ne_missing(pl.col("len").cast(pl.UInt32))
    )
    lost = said.filter(pl.col("has_final").is_null() | pl.col("has_best").is_null())
    yield from _told(
        where, "metrics are not those of the workload:", pl.concat([named["run"], lost["run"]]).to_frame()
    )
    best = pl.col("sign") * pl.col("best")
    outside = ~pl.col("best_step").is_between(0, pl.col("steps")).fill_null(value=False)
    worse = pl.col("final").is_not_nan() & (best > pl.col("sign") * pl.col("final"))
    yield from _told(
        where, "best_metrics are worse than the last, or of no step:", said.filter(outside | worse)
    )
    late = pl.col("target_steps").is_not_null() & ~pl.col("target_steps").is_between(0, pl.col("steps"))
    other = pl.col("threshold").ne_missing(pl.col("target"))
    yield from _told(where, "targets are not those of the plan, or of no step:", said.filter(late | other))

    judged = _beside_curves(said.filter(final), curves)
    ends = (pl.col("first_step") == 0) & (pl.col("last_step") == pl.col("steps"))
    off = ~ends.fill_null(value=False) | pl.col("last").ne_missing(pl.col("final"))
    yield from _told(where, "final_metrics are not where the curves end:", judged.filter(off))
    if thinned:
        missed = best > pl.col("extreme")
        elsewhere = pl.col("at_best").is_not_null() & pl.col("at_best").ne_missing(pl.col("best"))
        later = pl.col("met").is_not_null() & ~(pl.col("target_steps") <= pl.col("met")).fill_null(
            value=False
        )
    else:
        missed = best != pl.col("extreme")
        elsewhere = pl.col("at_best").ne_missing(pl.col("best"))
        later = pl.col("target_steps").ne_missing(pl.col("met"))
    yield from _told(where, "best_metrics are not those of the curves:", judged.filter(missed | elsewhere))
    yield from _told(where, "steps to targets are not those of the curves:", judged.filter(later))


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
    asked = runs.select("run", "workload", "stage", "steps").join(about, on="workload")
    said = asked
    for column, names in (
        ("final_metrics", {"name": "metric", "value": "final"}),
        ("best_metrics", {"name": "metric", "value": "best", "step": "best_step"}),
        ("targets", {"metric": "metric", "threshold": "threshold", "steps": "target_steps"}),
    ):
        rows = runs.select("run", column).explode(column).drop_nulls(column).unnest(column)
        own = rows.select("run", *(pl.col(old).alias(new) for old, new in names.items()))
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
