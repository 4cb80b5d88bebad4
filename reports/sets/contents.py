"""Contents of a published set: the tables that a report shows, with long curves thinned.

A curve has the values of one metric at the recorded steps of a run. Thinning keeps only some of the steps,
but always the steps that decide a claim. Final runs use the setting that tuning chose; alternative runs use
other settings that tuning may have chosen.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import polars as pl

from curvebench.reports.claims.quantities import ValueAtCost
from curvebench.reports.figures.series import series_rows
from curvebench.reports.sets.files import CURVE_POINTS, SPECIAL, STUDY_TABLES
from curvebench.reports.tables import Tables, read_tables
from curvebench.results.merging import machines
from curvebench.results.reading import read, with_method
from curvebench.results.tuning import by_setting
from curvebench.spec.conditions.condition import Condition
from curvebench.spec.conditions.value import ValueAtEqualCost
from curvebench.spec.errors import InputError
from curvebench.spec.method import Method
from curvebench.spec.plan import ReportPlan, StudyPlan
from curvebench.spec.sets import PROVENANCE

MAX_CURVE_ROWS = 200_000  # maximum number of rows of a study's curves without thinning, about 2 MB
Frames = Mapping[str, pl.DataFrame]


@dataclass(frozen=True)
class Contents:
    """Contents of a published set.

    Args:
        frames: tables by their folder in the set, then by their name.
        thinned: names of the studies whose curves have only some of the recorded steps.
        whole: names of the thinned studies in which curves that decide claims keep all recorded steps.
    """

    frames: Mapping[str, Frames]
    thinned: tuple[str, ...]
    whole: tuple[str, ...] = ()

    @property
    def jobs(self) -> pl.DataFrame:
        """Rows of the table `jobs` for all studies, parity checks and property checks."""
        return pl.concat(tables["jobs"] for tables in self.frames.values()).unique(maintain_order=True)

    @property
    def runs(self) -> int:
        """Number of runs of all studies."""
        return sum(len(frames["runs"]) for frames in self.frames.values() if "runs" in frames)


def gather(plan: ReportPlan) -> Contents:
    """Return the tables that a report shows, for a published set.

    If the report shows a published set, the tables of that set are returned unchanged. Otherwise curves are
    kept for final runs, and for alternative runs if their curves decide claims. The curves may be thinned.

    Raises:
        InputError: when a table is missing or damaged.
    """
    frames: dict[str, Frames] = {}
    thinned_studies, with_whole_curves = [], []
    if plan.published:
        provenance = json.loads((plan.path.parent / PROVENANCE).read_text())
        thinned_studies, with_whole_curves = provenance["thinned_curves"], provenance["whole_curves"]
    for study in plan.studies:
        if study.name in SPECIAL:
            raise InputError(
                f"study {study.name}: a set keeps a folder of that name; rename the study's file"
            )
        tables = {table: read(study.tables, table) for table in STUDY_TABLES if table != "curves"}
        if plan.published:
            tables["curves"] = read(study.tables, "curves")
        else:
            tables["curves"], is_thinned = _curves(study, tables["runs"])
            thinned_studies += [study.name] * is_thinned
            points = tables["curves"].group_by("run", "metric").len()["len"]
            with_whole_curves += [study.name] * (is_thinned and bool((points > CURVE_POINTS).any()))
        frames[study.name] = tables
    for name, part in zip(SPECIAL, (plan.parity, plan.checks), strict=True):
        if part is not None:
            frames[name] = {
                table: read([folder / f"{table}.parquet" for folder in part.tables], table)
                for table in (name, "jobs")
            }
    if plan.checks is not None:
        frames["checks"] = {**frames["checks"], "series": series_rows(plan.checks)}
    contents = Contents(frames, tuple(thinned_studies), tuple(with_whole_curves))
    if not contents.runs and "checks" not in frames:
        raise InputError(f"{plan.path}: has neither runs nor checks to publish; run snakemake")
    return contents


def _curves(study: StudyPlan, runs: pl.DataFrame) -> tuple[pl.DataFrame, bool]:
    """Return the curves of a study that a set keeps, and whether these curves were thinned.

    Args:
        runs: the table `runs` of the study.
    """
    judged = {stage: runs.filter(stage=stage) for stage in ("final", "alternative")}
    steps = steps_of_claims(study, read_tables(study.tables))
    of_claims = {stage: curves_of_claims(study, of_stage) for stage, of_stage in judged.items()}
    read_once = steps.join(judged["alternative"], on="run", how="semi").select("run", "metric")
    selections = judged["final"].select("run"), pl.concat([of_claims["alternative"], read_once]).unique()

    def select(curves: pl.LazyFrame) -> pl.LazyFrame:
        return pl.concat(
            curves.join(rows.lazy(), on=rows.columns, how="semi", maintain_order="left")
            for rows in selections
        )

    curves = read(study.tables, "curves", select)
    thin = thinned(curves, pl.concat(of_claims.values()), steps)
    return thin, len(thin) < len(curves)


def _conditions(study: StudyPlan) -> Iterator[tuple[Condition, str]]:
    """Yield each condition of a study's claims, together with each workload whose runs the condition
    compares.
    """
    for claim in (*study.claims, *study.repeated):
        for condition, workload in product(claim.conditions, study.workloads):
            applies = condition.is_about(workload.name, workload.metrics)
            if applies or condition.control_workload == workload.name:
                yield condition, workload.name


def curves_of_claims(study: StudyPlan, runs: pl.DataFrame) -> pl.DataFrame:
    """Return the run and the metric of each curve of which all steps are needed to decide a claim.

    Args:
        runs: runs with columns optimizer and basis.

    Returns:
        Frame with the columns run and metric.
    """
    named = with_method(runs).select("run", "workload", "method")
    selections = [
        named.filter(pl.col("method").is_in(condition.named), workload=workload).select(
            "run", metric=pl.lit(condition.metric)
        )
        for condition, workload in _conditions(study)
        if condition.of_curves
    ]
    return pl.concat([pl.DataFrame(schema={"run": pl.String, "metric": pl.String}), *selections]).unique()


def steps_of_claims(study: StudyPlan, tables: Tables) -> pl.DataFrame:
    """Return single steps of a study's curves: the steps at which a claim compares values at equal cost.

    A condition at equal cost compares two runs at the last evaluations whose cost does not exceed the total
    cost of the cheaper run.

    Returns:
        Frame with the columns run, metric and step.
    """
    judged = tables.runs.filter(pl.col("stage").is_in(["final", "alternative"]))
    selections = [
        ValueAtCost(condition, study, tables)
        .affordable(pair, "median")
        .select("run", metric=pl.lit(condition.metric), affords=pl.col("affords").cast(pl.Float64))
        for condition, workload in _conditions(study)
        if isinstance(condition, ValueAtEqualCost) and not condition.of_curves
        for runs in judged.filter(workload=workload).partition_by("backend")
        for contest in condition.compared_pairs
        for pair in product(*(_at_settings(study, runs, str(method)) for method in contest))
    ]
    schema = {"run": pl.String, "metric": pl.String, "affords": pl.Float64}
    affords = pl.concat([pl.DataFrame(schema=schema), *selections]).unique().lazy()

    def last_steps(curves: pl.LazyFrame) -> pl.LazyFrame:
        affordable = curves.join(affords, on=["run", "metric"]).filter(pl.col("step") <= pl.col("affords"))
        last = affordable.group_by(*schema).agg(pl.col("step").max())
        return last.select("run", "metric", "step").unique()

    return read(tables.curves, "curves", last_steps)


def _at_settings(study: StudyPlan, runs: pl.DataFrame, method: str) -> Iterable[pl.DataFrame]:
    """Return the runs of a method, one frame for each setting (choice of tuned options)."""
    return by_setting(runs.filter(method=method), study.tuned_names(Method.of(method).optimizer)).values()


def thinned(
    curves: pl.DataFrame, *whole: pl.DataFrame, most: int = MAX_CURVE_ROWS, points: int = CURVE_POINTS
) -> pl.DataFrame:
    """Reduce curves with more than `most` rows to at most `points` recorded steps per run and metric.

    The kept steps are spread evenly over the recorded steps of a run, and include the first and the last
    recorded step.

    Args:
        whole: frames that say which rows are kept in addition. A frame with the columns run and metric keeps
            all rows of the curves in it; a frame with the columns run, metric and step keeps the single steps
            in it.
        most: number of rows up to which curves are returned unchanged.
        points: number of steps to keep for each run and metric.
    """
    if len(curves) <= most:
        return curves
    curve = ["run", "metric"]
    index = pl.col("step").rank("ordinal").over(curve).cast(pl.Int64) - 1
    count = pl.len().over(curve).cast(pl.Int64)
    share = index * (points - 1)
    is_kept = (share // (count - 1)) != ((share - (points - 1)) // (count - 1))
    rows = curves.with_row_index("row")
    parts = [rows.filter((count <= points) | (index == 0) | is_kept)]
    parts += [rows.join(selection, on=selection.columns, how="semi") for selection in whole]
    return pl.concat(parts).unique("row").sort("row").drop("row")


def provenance_of(jobs: pl.DataFrame, runs: int) -> dict[str, Any]:
    """Return the contents of `provenance.json` about jobs: machines, environments, commits and times.

    Args:
        jobs: the table `jobs` of all studies.
        runs: number of runs.
    """
    named = jobs.select("environment_hash", "python", "packages")
    environments = named.unique("environment_hash", maintain_order=True)
    return {
        "runs": runs,
        "jobs": len(jobs),
        "first_started": jobs["started"].min(),
        "last_started": jobs["started"].max(),
        "commits": jobs.select("commit", "dirty").unique().sort("commit", "dirty").to_dicts(),
        "machines": machines(jobs).to_dicts(),
        "environments": environments.to_dicts(),
    }
