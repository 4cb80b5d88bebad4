"""What goes into a published set: the tables that a report shows, long curves thinned."""

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

MOST_CURVE_ROWS = 200_000  # of a study; about 2 MB
Frames = Mapping[str, pl.DataFrame]


@dataclass(frozen=True)
class Contents:
    """What goes into a set.

    Args:
        frames: tables by the folder in the set that holds them.
        thinned: the studies whose curves hold some of the recorded steps only.
        whole: those of them of which the curves that claims are decided by hold more steps.
    """

    frames: Mapping[str, Frames]
    thinned: tuple[str, ...]
    whole: tuple[str, ...] = ()

    @property
    def jobs(self) -> pl.DataFrame:
        """The jobs of all folders."""
        return pl.concat(own["jobs"] for own in self.frames.values()).unique(maintain_order=True)

    @property
    def runs(self) -> int:
        """How many runs there are."""
        return sum(len(frames["runs"]) for frames in self.frames.values() if "runs" in frames)


def gather(plan: ReportPlan) -> Contents:
    """Return the tables that a report shows; those of a published set as they are.

    The curves are those of final runs, and of alternative settings those that decide claims.

    Raises:
        InputError: when a table is missing or damaged.
    """
    frames: dict[str, Frames] = {}
    cut, whole = [], []
    if plan.published:
        known = json.loads((plan.path.parent / PROVENANCE).read_text())
        cut, whole = known["thinned_curves"], known["whole_curves"]
    for study in plan.studies:
        if study.name in SPECIAL:
            raise InputError(
                f"study {study.name}: a set keeps a folder of that name; rename the study's file"
            )
        own = {table: read(study.tables, table) for table in STUDY_TABLES if table != "curves"}
        if plan.published:
            own["curves"] = read(study.tables, "curves")
        else:
            own["curves"], shorter = _curves(study, own["runs"])
            cut += [study.name] * shorter
            points = own["curves"].group_by("run", "metric").len()["len"]
            whole += [study.name] * (shorter and bool((points > CURVE_POINTS).any()))
        frames[study.name] = own
    for where, part in zip(SPECIAL, (plan.parity, plan.checks), strict=True):
        if part is not None:
            frames[where] = {
                table: read([folder / f"{table}.parquet" for folder in part.tables], table)
                for table in (where, "jobs")
            }
    if plan.checks is not None:
        frames["checks"] = {**frames["checks"], "series": series_rows(plan.checks)}
    if not any("runs" in own and len(own["runs"]) for own in frames.values()) and "checks" not in frames:
        raise InputError(f"{plan.path}: has neither runs nor checks to publish; run snakemake")
    return Contents(frames, tuple(cut), tuple(whole))


def _curves(study: StudyPlan, runs: pl.DataFrame) -> tuple[pl.DataFrame, bool]:
    """Return the curves of a study that a set keeps, and whether they have fewer recorded steps."""
    judged = {stage: runs.filter(stage=stage) for stage in ("final", "alternative")}
    steps = steps_of_claims(study, read_tables(study.tables))
    of_claims = {stage: curves_of_claims(study, of_stage) for stage, of_stage in judged.items()}
    read_once = steps.join(judged["alternative"], on="run", how="semi").select("run", "metric")
    wanted = judged["final"].select("run"), pl.concat([of_claims["alternative"], read_once]).unique()

    def kept(curves: pl.LazyFrame) -> pl.LazyFrame:
        parts = (
            curves.join(rows.lazy(), on=rows.columns, how="semi", maintain_order="left") for rows in wanted
        )
        return pl.concat(parts)

    curves = read(study.tables, "curves", kept)
    thin = thinned(curves, pl.concat(of_claims.values()), steps)
    return thin, len(thin) < len(curves)


def _conditions(study: StudyPlan) -> Iterator[tuple[Condition, str]]:
    """Yield the conditions of all claims of a study with each workload whose runs they read."""
    for claim in (*study.claims, *study.repeated):
        for condition, workload in product(claim.conditions, study.workloads):
            own = condition.is_about(workload.name, workload.metrics)
            if own or condition.control_workload == workload.name:
                yield condition, workload.name


def curves_of_claims(study: StudyPlan, runs: pl.DataFrame) -> pl.DataFrame:
    """The runs and metrics whose whole curves claims of a study are decided by, columns run and metric.

    Args:
        runs: with optimizer and basis.
    """
    named = with_method(runs).select("run", "workload", "method")
    found = [
        named.filter(pl.col("method").is_in(condition.named), workload=workload).select(
            "run", metric=pl.lit(condition.metric)
        )
        for condition, workload in _conditions(study)
        if condition.of_curves
    ]
    return pl.concat([pl.DataFrame(schema={"run": pl.String, "metric": pl.String}), *found]).unique()


def steps_of_claims(study: StudyPlan, tables: Tables) -> pl.DataFrame:
    """The single steps of curves that claims of a study are decided by, columns run, metric and step."""
    judged = tables.runs.filter(pl.col("stage").is_in(["final", "alternative"]))
    found = [
        ValueAtCost(condition, study, tables)
        .affordable(pl.concat(pair))
        .select("run", metric=pl.lit(condition.metric), affords=pl.col("affords").cast(pl.Float64))
        for condition, workload in _conditions(study)
        if isinstance(condition, ValueAtEqualCost) and not condition.of_curves
        for runs in judged.filter(workload=workload).partition_by("backend")
        for contest in condition.compared_pairs
        for pair in product(*(_at_settings(study, runs, str(method)) for method in contest))
    ]
    schema = {"run": pl.String, "metric": pl.String, "affords": pl.Float64}
    affords = pl.concat([pl.DataFrame(schema=schema), *found]).unique().lazy()

    def last_steps(curves: pl.LazyFrame) -> pl.LazyFrame:
        seen = curves.join(affords, on=["run", "metric"]).filter(pl.col("step") <= pl.col("affords"))
        last = seen.group_by(*schema).agg(pl.col("step").max())
        return last.select("run", "metric", "step").unique()

    return read(tables.curves, "curves", last_steps)


def _at_settings(study: StudyPlan, runs: pl.DataFrame, method: str) -> Iterable[pl.DataFrame]:
    """The runs of a method at each setting."""
    return by_setting(runs.filter(method=method), study.tuned_names(Method.of(method).optimizer)).values()


def thinned(
    curves: pl.DataFrame,
    whole: pl.DataFrame | None = None,
    steps: pl.DataFrame | None = None,
    most: int = MOST_CURVE_ROWS,
    points: int = CURVE_POINTS,
) -> pl.DataFrame:
    """The curves, or where they have more than `most` rows `points` recorded steps a run and metric.

    Those that stay lie evenly among the run's recorded steps; the first and the last are always among them.

    Args:
        whole: columns run and metric, of curves that keep all recorded steps; None for none.
        steps: columns run, metric and step, of recorded steps that stay; None for none.
    """
    if len(curves) <= most:
        return curves
    of = ["run", "metric"]
    place = pl.col("step").rank("ordinal").over(of).cast(pl.Int64) - 1
    count = pl.len().over(of).cast(pl.Int64)
    share = place * (points - 1)
    kept = (share // (count - 1)) != ((share - (points - 1)) // (count - 1))
    rows = curves.with_row_index("row")
    parts = [rows.filter((count <= points) | (place == 0) | kept)]
    parts += [rows.join(more, on=more.columns, how="semi") for more in (whole, steps) if more is not None]
    return pl.concat(parts).unique("row").sort("row").drop("row")


def provenance_of(jobs: pl.DataFrame, runs: int) -> dict[str, Any]:
    """What `provenance.json` says of the jobs: machines, environments, commits, and when they ran.

    Args:
        jobs: the table `jobs` of all studies.
        runs: how many runs there are.
    """
    environments = jobs.select("environment_hash", "python", "packages").unique(
        "environment_hash", maintain_order=True
    )
    return {
        "runs": runs,
        "jobs": len(jobs),
        "first_started": jobs["started"].min(),
        "last_started": jobs["started"].max(),
        "commits": jobs.select("commit", "dirty").unique().sort("commit", "dirty").to_dicts(),
        "machines": machines(jobs).to_dicts(),
        "environments": environments.to_dicts(),
    }
