"""What is wrong with the tables of a set: rows that contradict each other, and rows that were left out."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from math import isfinite

import polars as pl

from results.merging import KEYS, model_seconds, unmodelled
from results.methods import IDENTITY, method_label, method_parts
from results.provenance import machine
from results.publishing import CURVE_POINTS
from results.reading import with_method
from results.schema import FAILED, TUNING
from results.sentences import Row, row_of, told, value
from results.set_plan import FIRST_FINAL_SEED, PlannedStudy, SetPlan
from results.verdicts import share_of_limit

COMMIT = re.compile(r"[0-9a-f]{40}")
SHOWN = 3  # how many flaws of a plan are told
ROUNDING = 1e-9  # relative: what another processor's rounding may change of a modelled time
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


def of_study(study: PlannedStudy, frames: Frames, thinned: bool) -> Iterator[str]:
    """Where the tables of a study contradict each other or its plan.

    Args:
        frames: at least `runs`, `curves` and `timings`.
        thinned: whether the set says that the curves hold some of the checkpoints only.
    """
    where = study.name
    runs = with_method(frames["runs"])
    yield from _left_out(study, runs)
    yield from _untuned(study, runs)
    yield from _records(study, runs.filter(~pl.col("outcome").is_in(FAILED)), frames["curves"], thinned)
    yield from _seconds(where, runs, frames["timings"], frames["curves"], thinned)
    points = frames["curves"].group_by("run", "metric").len()["len"]
    if thinned and points.max() != CURVE_POINTS:
        yield (
            f"{where}/curves.parquet: provenance.json says that it is thinned, which leaves {CURVE_POINTS} "
            f"checkpoints of long runs, and the longest has {max(points, default=0)}"
        )


def of_scale(where: str, frames: Frames, scale: str) -> Iterator[str]:
    """Rows of another scale than the set's; comparisons of backends are of all scales."""
    for table, frame in frames.items():
        if "scale" in frame.columns:
            others = frame.filter(~pl.col("scale").is_in([scale, "all"]).fill_null(value=False))
            yield from _rows(
                where, table, others, lambda row: f"scale is {row['scale']}, and the set's {scale}"
            )


def of_checks(plan: SetPlan, checks: pl.DataFrame) -> Iterator[str]:
    """Measures of property checks that do not say what follows from them, and instances left out."""
    about = checks.select("value", pl.col("relation").cast(pl.String), "limit", "tolerance")
    holds = pl.Series([share_of_limit(*measure) <= 1 for measure in about.iter_rows()], dtype=pl.Boolean)
    wrong = checks.filter(holds.ne_missing(checks["holds"]))
    yield from _rows("checks", "checks", wrong, _not_what_holds)
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


def _not_what_holds(row: Row) -> str:
    said, right = value(row["holds"]), value(not row["holds"])
    within = f" with tolerance {value(row['tolerance'])}" if row["tolerance"] else ""
    return (
        f"holds is {said}, and should be {right}: {value(row['value'])} {row['relation']} "
        f"{value(row['limit'])}{within}"
    )


# --- one table -----------------------------------------------------------------------------------


def _rows(where: str, table: str, rows: pl.DataFrame, flaw: Callable[[Row], str]) -> Iterator[str]:
    """A complaint that names file and row: what is wrong with the first, and how many more there are."""
    yield from told(f"{where}/{table}.parquet", rows, lambda row: f"{row_of(table, row)}: {flaw(row)}")


def _jobs(where: str, jobs: pl.DataFrame) -> Iterator[str]:
    unnamed = jobs.filter(pl.col("machine").is_null() | pl.col("cpu").is_null())
    yield from _rows(
        where,
        "jobs",
        unnamed,
        lambda row: f"machine is {value(row['machine'])} and cpu {value(row['cpu'])}; both must be there",
    )
    strange = jobs.filter(~pl.col("commit").fill_null("0" * 40).str.contains(f"^{COMMIT.pattern}$"))
    yield from _rows(
        where,
        "jobs",
        strange,
        lambda row: f"commit is {row['commit']!r}, and should be 40 hexadecimal digits",
    )
    hardware = ["machine", "cpu", "cores", "gpu"]
    known = jobs.drop_nulls(["machine", "cpu"]).unique(hardware, maintain_order=True)
    right = [machine(cpu, cores, gpu) for cpu, cores, gpu in known.select(hardware[1:]).iter_rows()]
    named = known.with_columns(pl.Series("right", right, dtype=pl.String))
    yield from _rows(where, "jobs", named.filter(pl.col("machine") != pl.col("right")), _misnamed)


def _misnamed(row: Row) -> str:
    gpu = row["gpu"] or "no GPU"
    return (
        f"machine is {row['machine']}, and {row['cpu']} with {row['cores']} cores and {gpu} is called "
        f"{row['right']}"
    )


def _twice(where: str, table: str, frame: pl.DataFrame) -> Iterator[str]:
    """Rows that claim to be the same."""
    again = frame.filter(pl.struct(UNIQUE[table]).is_duplicated())
    yield from _rows(where, table, again, lambda _: "has more than one row; one is wanted")


def _negative(where: str, table: str, frame: pl.DataFrame) -> Iterator[str]:
    """Counts and seconds below 0, or no numbers: every column of integers holds counts."""
    for name, dtype in frame.schema.items():
        if dtype == pl.Int64 or (dtype == pl.Float64 and name.endswith("seconds")):
            bad = frame.filter(~(pl.col(name).cast(pl.Float64).is_finite() & (pl.col(name) >= 0)))
            yield from _rows(where, table, bad, partial(_no_count, name))


def _no_count(name: str, row: Row) -> str:
    return f"{name} is {value(row[name])}, and should be a number that is not negative"


def _unknown_jobs(where: str, table: str, frames: Frames) -> Iterator[str]:
    """Rows without provenance: no job of their hash and, where they have one, stage ran on their machine."""
    key = ["spec_hash", "machine", *(["stage"] if table == "runs" else [])]
    rows = frames[table].with_columns(pl.col(key).cast(pl.String))
    lost = rows.join(frames["jobs"].select(key).unique(), on=key, how="anti", nulls_equal=True)

    def flaw(row: Row) -> str:
        stage = f" of stage {row['stage']}" if "stage" in key else ""
        job = f"job {value(row['spec_hash'])}{stage} on machine {value(row['machine'])}"
        return f"without provenance: jobs.parquet has no {job}"

    yield from _rows(where, table, lost, flaw)


def _elsewhere(where: str, table: str, frame: pl.DataFrame) -> Iterator[str]:
    wrong = frame.filter(pl.col("study").ne_missing(where))
    yield from _rows(
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
        yield from _rows(where, "runs", rows, flaw)


METRICS = ("final_metrics", "best_metrics")


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
            kinds_told = [f"{kind}: seeds {', '.join(map(str, sorted(own)))}" for kind, own in kinds if own]
            who = f"final runs of {each} on {workload}, {backend}"
            yield f"{study.name}/runs.parquet: {who}: {'; '.join(kinds_told)}"


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
                f"{study.name}/runs.parquet: learning rates of {each} on {workload}, {backend}: "
                f"{', '.join(map(str, sorted(used)))}; one is wanted, of those that were tried on {tuner} "
                f"({', '.join(map(str, sorted(among))) or 'none'})"
            )
    yield from (
        f"{study.name}/runs.parquet: tuning runs of {each} on {workload}, {tuner}: {count} settings and "
        f"seeds, and {wanted} were planned"
        for (tuner, workload, each), wanted in sorted(dict.fromkeys(tuners | tried.keys(), planned).items())
        for count in [tried.get((tuner, workload, each), 0)]
        if count != wanted
    )


def _records(study: PlannedStudy, runs: pl.DataFrame, curves: pl.DataFrame, thinned: bool) -> Iterator[str]:
    """Final and best values and steps to targets that are not those of the workload or of the curves."""
    where, final = study.name, pl.col("stage") == "final"
    asked, said = _said(study, runs)
    counts = asked.group_by("run", "metrics").len()
    named = runs.join(counts, on="run", how="left").filter(
        pl.col("final_metrics").list.len().ne_missing(pl.col("len").cast(pl.UInt32))
        | pl.col("best_metrics").list.len().ne_missing(pl.col("len").cast(pl.UInt32))
    )
    lost = said.filter(pl.col("has_final").is_null() | pl.col("has_best").is_null())
    yield from _rows(where, "runs", named, _other_metrics)
    yield from _rows(
        where,
        "runs",
        lost.filter(~pl.col("run").is_in(named["run"].to_list())),
        lambda row: f"metrics are not those of the workload: {row['metric']} is missing",
    )
    best = pl.col("sign") * pl.col("best")
    outside = ~pl.col("best_step").is_between(0, pl.col("steps")).fill_null(value=False)
    worse = pl.col("final").is_not_nan() & (best > pl.col("sign") * pl.col("final"))
    yield from _rows(
        where,
        "runs",
        said.filter(pl.col("has_best") & outside),
        lambda row: (
            f"best {row['metric']} is of step {value(row['best_step'])}, and the run has {row['steps']}"
        ),
    )
    yield from _rows(
        where,
        "runs",
        said.filter(worse),
        lambda row: (
            f"best {row['metric']} is {value(row['best'])}, worse than the last, {value(row['final'])}"
        ),
    )
    other = pl.col("threshold").ne_missing(pl.col("target"))
    yield from _rows(
        where,
        "runs",
        said.filter(other),
        lambda row: (
            f"target of {row['metric']} is {value(row['threshold'])}, and plan.json has "
            f"{value(row['target'])}"
        ),
    )
    late = pl.col("target_steps").is_not_null() & ~pl.col("target_steps").is_between(0, pl.col("steps"))
    yield from _rows(
        where,
        "runs",
        said.filter(late),
        lambda row: (
            f"target of {row['metric']} is {_when(row['target_steps'])}, and the run has {row['steps']}"
        ),
    )

    judged = _beside_curves(said.filter(final), curves)
    ends = (pl.col("first_step") == 0) & (pl.col("last_step") == pl.col("steps"))
    off = judged.filter(~ends.fill_null(value=False))
    yield from _rows(where, "runs", off, _no_whole_curve)
    judged = judged.filter(pl.col("first_step").is_not_null())
    wrong = pl.col("last").ne_missing(pl.col("final"))
    yield from _rows(
        where,
        "runs",
        judged.filter(wrong),
        lambda row: (
            f"final {row['metric']} is {value(row['final'])}, and the curve ends at {value(row['last'])}"
        ),
    )
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
    yield from _rows(where, "runs", judged.filter(missed | elsewhere), _other_best)
    yield from _rows(
        where,
        "runs",
        judged.filter(later),
        lambda row: (
            f"target of {row['metric']} is {_when(row['target_steps'])}, and by the curve {_when(row['met'])}"
        ),
    )


def _when(steps: int | None) -> str:
    return "not reached" if steps is None else f"reached at step {steps}"


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


def _seconds(
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
    yield from _rows(where, "runs", said.filter(~measured & other), _other_seconds)
    at = curves.select("run", "metric", "step", pl.col("seconds").alias("by_curve"))
    clocked = said.filter(measured).join(
        at, left_on=["run", "metric", "steps"], right_on=["run", "metric", "step"], how="left"
    )
    unknown = pl.col("alone").is_null() | pl.col("steps").is_null()
    seen = (pl.col("stage") == "final") & (~pl.lit(thinned) | pl.col("by_curve").is_not_null())
    wrong = unknown | (seen & pl.col("seconds").ne_missing(pl.col("by_curve")))
    yield from _rows(where, "runs", clocked.filter(wrong), _not_measured)


def _other_seconds(row: Row) -> str:
    said = f"{value(row['seconds'])} ({row['seconds_kind'] or 'of no kind'})"
    right = "missing" if row["right"] is None else f"{value(row['right'])} (modelled)"
    return (
        f"seconds to the target of {row['metric']}, {_when(row['steps'])}, are {said}, and steps times the "
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
