"""What the rows of a published set's tables must say: rules as expressions, by the sentence on a row."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import polars as pl

from curvebench.reports.measures import settings_tried
from curvebench.reports.sets.files import CURVE_POINTS, SPECIAL
from curvebench.results.merging import KEYS
from curvebench.results.outcomes import FINISHED
from curvebench.results.reading import with_method
from curvebench.results.schema import COMPARISONS, TUNING
from curvebench.results.tuning import settings_of
from curvebench.results.verdicts import holds
from curvebench.spec.method import IDENTITY, Method
from curvebench.spec.plan import ChecksPlan, ParityPlan, ReportPlan, StudyPlan
from curvebench.spec.sets import PROVENANCE

ROWS = {  # what names a row
    **KEYS,
    "parity": ["optimizer", "problem", "comparison"],
    "checks": ["claim", "part", "variant", "instance", "quantity"],
    "claims": ["claim", "variant", "backend"],
    "findings": ["claim", "backend", "workload", "metric", "treated", "control"],
    "leaderboard": ["backend", "studies", "method"],
}
CELL = ["backend", "workload", "method"]
Rules = Mapping[str, pl.Expr]  # which rows break a rule, by the sentence on such a row, columns in braces


def broken_rows(
    plan: ReportPlan,
    tables: Mapping[str, Mapping[str, pl.DataFrame]],
    thinned: Sequence[str],
    whole: Sequence[str],
) -> Iterator[str]:
    """A sentence for each rule that rows of a set break: on the first of them, and how many more there are.

    Args:
        tables: by folder and name.
        thinned, whole: studies, as `provenance.json` has them (`curvebench.reports.sets.contents.Contents`).
    """
    for where, frames in tables.items():
        for table, frame in frames.items():
            yield from _jobs_and_keys(where, table, frame, frames["jobs"], plan.scale)
    for study in plan.studies:
        runs, curves = with_method(tables[study.name]["runs"]), tables[study.name]["curves"]
        yield from _cells(study, runs)
        yield from _settings(study, runs)
        yield from _records(study, runs, curves, study.name in thinned)
        points = curves.group_by("run", "metric").len()["len"]
        if study.name in thinned and (
            CURVE_POINTS not in points if study.name in whole else points.max() != CURVE_POINTS
        ):
            yield (
                f"{study.name}/curves.parquet: {PROVENANCE} says that it is thinned to {CURVE_POINTS} "
                f"recorded steps of long runs, and the longest has {max(points, default=0)}"
            )
    if plan.parity:
        yield from _parity(plan.parity, tables["parity"]["parity"])
    if plan.checks:
        yield from _checks(plan.checks, tables["checks"]["checks"])


def named_row(names: Sequence[str], row: Mapping[str, Any]) -> str:
    """A row by the columns that name it."""
    return ", ".join(f"{name} {row[name]}" for name in names if row.get(name) not in (None, ""))


def _broken(file: str, names: Sequence[str], rows: pl.DataFrame, rules: Rules) -> Iterator[str]:
    for sentence, wrong in rules.items():
        found = rows.filter(wrong)
        if len(found):
            row = found.row(0, named=True)
            more = f"; {len(found) - 1} more likewise" if len(found) > 1 else ""
            yield f"{file}.parquet: {named_row(names, row)}: {sentence.format_map(row)}{more}"


def _unlike(*names: str) -> dict[str, pl.Expr]:
    """The rules that columns are as the columns `right <name>` have them."""
    return {
        f"{name} is {{{name}}}, and should be {{right {name}}}": pl.col(name).ne_missing(
            pl.col(f"right {name}")
        )
        for name in names
    }


def _jobs_and_keys(
    where: str, table: str, frame: pl.DataFrame, jobs: pl.DataFrame, scale: str
) -> Iterator[str]:
    rules: dict[str, pl.Expr] = {}
    if table in KEYS or table == "parity":
        rules["has more than one row; one is wanted"] = pl.struct(ROWS[table]).is_duplicated()
    if table != "jobs" and "spec_hash" in frame.columns:
        key = ["spec_hash", "machine", *(["optimizer"] if table == "runs" else [])]
        known = jobs.select(key).unique().with_columns(job=True)
        frame = frame.join(known, on=key, how="left", nulls_equal=True, maintain_order="left")
        rules["jobs.parquet has no job {spec_hash} of it"] = pl.col("job").is_null()
    if where not in SPECIAL and "study" in frame.columns:
        rules["is of {study}, scale {scale}"] = (pl.col("study") != where) | (pl.col("scale") != scale)
    return _broken(f"{where}/{table}", ROWS.get(table, ()), frame, rules)


# --- runs ----------------------------------------------------------------------------------------


def _tuner(study: StudyPlan, optimizer: str, backend: str) -> str:
    return study.optimizer(optimizer).only_backend or study.tuned_on[backend]


def _planned(study: StudyPlan) -> pl.DataFrame:
    """The cells of a plan: how many final runs each has, and how many settings tuning tries in it."""
    found = {}
    workloads = [workload.name for workload in study.workloads]
    for backend, workload, method in product(study.backends, workloads, study.methods):
        optimizer, basis = Method.of(method)
        if study.optimizer(optimizer).only_backend not in (None, backend):
            continue
        for seed in range(study.runs_on[backend].final_seeds):
            found["final", backend, workload, method, study.first_final_seed + seed] = 1
        if study.tuning.tries(basis):
            for seed in range(study.seeds.tuning):
                tuner = _tuner(study, optimizer, backend)
                found["tuning", tuner, workload, method, study.first_tuning_seed + seed] = study.tuning.trials
    rows = [(*cell, count) for cell, count in found.items()]
    text = dict.fromkeys(["kind", *CELL], pl.String)
    return pl.DataFrame(rows, schema={**text, "seed": pl.Int64, "planned": pl.Int64}, orient="row")


def _cells(study: StudyPlan, runs: pl.DataFrame) -> Iterator[str]:
    """Cells of the plan that have no run or several, and runs of no cell."""
    names = ["kind", *CELL, "seed"]
    settings = pl.struct("learning_rate", pl.col("hyperparameters").hash()).n_unique()
    kind = pl.when(pl.col("stage").is_in(TUNING)).then(pl.lit("tuning")).otherwise(pl.lit("final"))
    there = (
        runs.filter(pl.col("stage") != "alternative")
        .with_columns(kind=kind)
        .group_by(names)
        .agg(there=pl.when(pl.col("kind").first() == "final").then(pl.len()).otherwise(settings))
    )
    both = _planned(study).join(there, on=names, how="full", coalesce=True)
    both = both.with_columns(pl.col("planned", "there").fill_null(0).cast(pl.Int64)).sort(names)
    rules = {"{there} runs, and the plan asks for {planned}": pl.col("there") != pl.col("planned")}
    yield from _broken(f"{study.name}/runs", names, both, rules)


def _settings(study: StudyPlan, runs: pl.DataFrame) -> Iterator[str]:
    """Final runs at another setting than tuning chose, and alternatives that it would not have chosen."""
    tuning = dict(runs.filter(pl.col("stage").is_in(TUNING)).group_by(CELL))
    final = runs.filter(~pl.col("stage").is_in(TUNING)).sort(*CELL, "seed")
    for (backend, workload, method, stage), judged in final.group_by(*CELL, "stage", maintain_order=True):
        optimizer, basis = Method.of(str(method))
        tuner = _tuner(study, optimizer, str(backend))
        chooser = Method(optimizer, IDENTITY if study.shares_rates else basis).label
        found = settings_tried(study, optimizer, tuning.get((tuner, workload, chooser), runs.clear()))
        if found is None:
            continue  # one of the cells without runs
        names = study.tuned_names(optimizer)
        right = {found.chosen} if stage == "final" else set(found.likely[1:])
        wrong = set(settings_of(judged, names)) - right
        if wrong:
            yield (
                f"{study.name}/runs.parquet: {stage} runs of {method} on {workload}, {backend}: "
                f"{', '.join(names)} are {min(wrong)}, and tuning on {tuner} chose {found.chosen}"
            )


def _records(study: StudyPlan, runs: pl.DataFrame, curves: pl.DataFrame, thinned: bool) -> Iterator[str]:
    """Final and best metrics and steps to targets that are not those of the curves.

    Args:
        thinned: whether some recorded steps were left out: best values and first steps may lie between those
            that stayed.
    """
    file, ended = f"{study.name}/runs", [*FINISHED, "diverged"]  # of others nothing was recorded
    final = runs.filter(pl.col("stage") == "final", pl.col("outcome").is_in(ended))
    about = pl.DataFrame(
        [
            (
                workload.name,
                name,
                1.0 if metric.direction == "minimize" else -1.0,
                study.targets_on(workload).get(name),
            )
            for workload in study.workloads
            for name, metric in workload.metrics.items()
        ],
        schema={"workload": pl.String, "metric": pl.String, "sign": pl.Float64, "right target": pl.Float64},
        orient="row",
    )
    expected = final.select("run", "workload", "steps").join(about, on="workload")
    cost = pl.when(pl.col("value").is_not_nan()).then(pl.col("sign") * pl.col("value"))
    points = curves.join(expected, on=["run", "metric"]).sort("step").with_columns(cost=cost)
    best = pl.col("cost") == pl.col("cost").min()
    met = pl.col("cost") <= pl.col("sign") * pl.col("right target")
    right = points.group_by("run", "metric").agg(
        pl.col("step").first().alias("first"),
        pl.col("step").last().alias("last"),
        pl.col("value").last().alias("right final"),
        pl.col("value").filter(best).first().fill_null(math.nan).alias("right best"),
        pl.coalesce(pl.col("step").filter(best).first(), pl.col("step").first()).alias("right best step"),
        pl.col("step").filter(met).first().alias("right steps to target"),
    )
    both = expected.join(right, on=["run", "metric"], how="left")
    for column, fields in (
        ("final_metrics", {"name": "metric", "value": "final"}),
        ("best_metrics", {"name": "metric", "value": "best", "step": "best step"}),
        ("targets", {"metric": "metric", "threshold": "target", "steps": "steps to target"}),
    ):
        given = final.select("run", column).explode(column).drop_nulls(column).unnest(column)
        given = given.select("run", *(pl.col(old).alias(new) for old, new in fields.items()))
        strange = given.join(expected, on=["run", "metric"], how="anti")
        yield from _broken(
            file, ["run", "metric"], strange, {"is no metric of the workload": pl.lit(value=True)}
        )
        both = both.join(given, on=["run", "metric"], how="left")
    whole = ((pl.col("first") == 0) & (pl.col("last") == pl.col("steps"))).fill_null(value=False)
    rules = {"needs a curve from step 0 to {steps}": ~whole} | _unlike("target", "final")
    if thinned:
        best, met = (pl.col(name) for name in ("best", "steps to target"))
        worse = pl.col("sign") * best > pl.col("sign") * pl.col("right best")
        late = pl.col("right steps to target") < met.fill_null(math.inf)
        rules["best is {best}, and its curve has {right best}"] = worse & best.is_not_nan()
        rules["steps to target is {steps to target}, and its curve has {right steps to target}"] = late
    else:
        rules |= _unlike("best", "best step", "steps to target")
    yield from _broken(file, ["run", "metric"], both, rules)


# --- parity and checks ---------------------------------------------------------------------------


def _parity(plan: ParityPlan, rows: pl.DataFrame) -> Iterator[str]:
    """Comparisons of backends that were left out, or do not say what differences and tolerance give."""
    there = rows.with_columns(pl.col("comparison", "unit").cast(pl.String))
    compared = there.select("optimizer", "problem").unique()
    whole = compared.join(pl.DataFrame({"comparison": COMPARISONS}), how="cross")
    missing = whole.join(there, on=ROWS["parity"], how="anti").sort(ROWS["parity"])
    yield from _broken("parity/parity", ROWS["parity"], missing, {"is missing": pl.lit(value=True)})
    judged, difference = pl.col("judged"), pl.col("difference")
    single = pl.col("comparison").str.starts_with("float32")
    right = there.with_columns(
        pl.when(single).then(pl.lit("ulps")).otherwise(pl.lit("relative")).alias("right unit"),
        pl.when(judged).then(plan.tolerance).alias("right tolerance"),
        pl.lit(plan.steps).alias("right steps"),
        (~judged | (difference.is_finite() & (difference <= plan.tolerance))).alias("right holds"),
    )
    known = pl.col("problem").is_in([problem.label for problem in plan.problems])
    rules = {"the plan has no problem {problem}": ~known} | _unlike("unit", "tolerance", "steps", "holds")
    yield from _broken("parity/parity", ROWS["parity"], right, rules)


def _checks(plan: ChecksPlan, rows: pl.DataFrame) -> Iterator[str]:
    """Measures that do not say what follows from their numbers, and instances that are not the plan's."""
    part = ["claim", "part", "variant"]
    sampled = {
        (claim.id, one.part, one.variant) for claim in plan.claims for one in claim.parts if one.sampled
    }
    rows = rows.with_columns(pl.col("variant", "relation").cast(pl.String))
    about = rows.select("value", "relation", "limit", "tolerance", *part).iter_rows()
    holding = [
        holds(value, relation, limit, tolerance, tuple(of) in sampled)
        for value, relation, limit, tolerance, *of in about
    ]
    right = rows.with_columns(pl.Series("right holds", holding, dtype=pl.Boolean))
    yield from _broken("checks/checks", ROWS["checks"], right, _unlike("holds"))
    planned = pl.DataFrame(
        [
            (claim.id, one.part, one.variant, one.instances + one.bound, one.bound)
            for claim in plan.claims
            if not claim.missing
            for one in claim.parts
        ],
        schema={**dict.fromkeys(part, pl.String), "planned count": pl.Int64, "bound": pl.Boolean},
        orient="row",
    )
    there = right.group_by(part).agg(
        pl.col("instance").unique().sort(), quantities=pl.col("quantity").n_unique()
    )
    both = planned.join(there, on=part, how="full", coalesce=True).sort(part)
    both = both.with_columns(
        pl.col("instance").list.len().fill_null(0).alias("there count"), pl.col("planned count").fill_null(0)
    )
    # of a bound each quantity may have an instance that a search found
    most = pl.col("planned count") + pl.when(pl.col("bound")).then(pl.col("quantities") - 1).otherwise(0)
    gaps = pl.col("instance").ne_missing(pl.int_ranges("there count"))
    other = gaps | ~pl.col("there count").is_between("planned count", most)
    rules = {"{there count} instances, and the plan asks for {planned count}": other}
    yield from _broken("checks/checks", part, both, rules)
