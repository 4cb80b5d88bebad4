"""Made-up tables that nothing stands in the way of publishing, and sets published from them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from documents.plan import read_plan
from documents.study import FIRST_FINAL_SEED
from reports.sets.files import seal
from reports.sets.publish import publish
from results.merging import model_seconds, unmodelled
from results.provenance import machine
from results.schema import TABLES
from results.verdicts import rule_hash
from results.writing import write_table
from tests.reports.synthetic import CONVEX, METRICS, RATES, Shape, final_seeds, write_plan

SHAPES = (Shape(), CONVEX)
CORES = {"m1": 2, "m2": 4}  # of the made-up machines
CODE = ("0123456789abcdef0123456789abcdef01234567", False)  # a commit, and no file that differs
Change = Callable[[pl.DataFrame], pl.DataFrame]


def write_report(
    folder: Path, shapes: Sequence[Shape] = SHAPES, checks: bool = True, **changes: Change
) -> Path:
    """Write a made-up plan whose jobs are clean, known to every row and planned by the claims' rules.

    Args:
        changes: what is done to each study's table of that name in the end.

    Returns:
        The plan's file.
    """
    path = write_plan(folder, shapes, checks=checks)
    raw = json.loads(path.read_text())
    for study, shape in zip(raw["studies"], shapes, strict=True):
        study["runs_on"] = {
            name: {"device": "cpu", "tuned_on": name, "final_seeds": len(final_seeds(shape, name))}
            for name in shape.backends
        }
        del study["tuning"]["of"], study["tuning"]["coarse"]
        space = {"learning_rate": {"low": min(RATES), "high": max(RATES), "scale": "log"}}
        study["tuning"] |= {"protocol": "random_search", "budget": len(RATES), "space": space}
    studies = [*raw["studies"], *raw["skipped"]]
    for study in studies:
        study["rules"] = {claim["id"]: rule_hash(claim, study["claims"], "") for claim in study["claims"]}
    for claim in raw["checks"]["claims"] if checks else []:
        claim["parts"] = _parts(
            pl.read_parquet(Path(raw["checks"]["tables"][0]) / "checks.parquet"), claim["id"]
        )
    path.write_text(json.dumps(raw))
    rules = [{"claim": name, "rule": rule} for study in studies for name, rule in study["rules"].items()]
    for study in raw["studies"]:
        tables = Path(study["tables"])
        jobs = _clean(pl.read_parquet(tables / "jobs.parquet")).with_columns(
            claim_rules=pl.when(pl.col("stage") == "final")
            .then(pl.lit(rules))
            .otherwise(pl.col("claim_rules"))
        )
        frames = {"jobs": jobs, "curves": pl.read_parquet(tables / "curves.parquet")}
        for table in ("runs", "timings", "memory"):
            frame = _named(pl.read_parquet(tables / f"{table}.parquet"))
            frames[table] = _of_jobs(frame, jobs)
        frames["runs"] = _seeded(frames["runs"])
        for table, change in changes.items():
            frames[table] = change(frames[table])
        settled, frames["curves"] = _settled(frames["runs"], frames["curves"])
        frames["runs"] = model_seconds(unmodelled(settled), frames["timings"])
        for table, frame in frames.items():
            write_table(tables / f"{table}.parquet", frame, TABLES[table])
    for where in ("parity", "checks"):
        for job in map(Path, (raw.get(where) or {"tables": []})["tables"]):
            jobs = _clean(pl.read_parquet(job / "jobs.parquet"))
            write_table(job / "jobs.parquet", jobs, TABLES["jobs"])
            for table in (where, *(["series"] if where == "checks" else [])):
                rows = _named(pl.read_parquet(job / f"{table}.parquet"))
                rows = rows.with_columns(spec_hash=pl.lit(jobs["spec_hash"][0]))
                write_table(job / f"{table}.parquet", rows, TABLES[table])
    return path


def _parts(checks: pl.DataFrame, claim: str) -> list[dict[str, Any]]:
    """The parts of a claim, and how many instances are drawn of each."""
    own = checks.filter(claim=claim).with_columns(pl.col("variant").cast(pl.String))
    counts = own.group_by("part", "variant", maintain_order=True).agg(instances=pl.col("instance").n_unique())
    return counts.to_dicts()


def _clean(jobs: pl.DataFrame) -> pl.DataFrame:
    """Jobs that a commit has, on machines that differ in cores."""
    cores = pl.col("machine").replace_strict(CORES)
    return _named(jobs.with_columns(dirty=pl.lit(False), cores=cores))


def _named(frame: pl.DataFrame) -> pl.DataFrame:
    """The table with its machines called as their hardware has it."""
    names = {name: machine("Toy CPU at 3 GHz", count, None) for name, count in CORES.items()}
    return frame.with_columns(machine=pl.col("machine").replace(names))


def _seeded(runs: pl.DataFrame) -> pl.DataFrame:
    """The runs with final seeds that begin where the harness begins them."""
    final = pl.col("stage") == "final"
    first = runs.filter(final)["seed"].min()
    seed = pl.col("seed") - first + FIRST_FINAL_SEED
    return runs.with_columns(seed=pl.when(final).then(seed).otherwise(pl.col("seed")))


def _settled(runs: pl.DataFrame, curves: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Curves that end at the runs' final metrics, and best metrics that are those of the curves."""
    finals = runs.select("run", "final_metrics").explode("final_metrics").unnest("final_metrics")
    joined = curves.join(finals, left_on=["run", "metric"], right_on=["run", "name"], suffix="_final")
    last = pl.col("step") == pl.col("step").max().over("run", "metric")
    ended = joined.with_columns(value=pl.when(last).then("value_final").otherwise("value"))
    signs = {name: 1 if about["direction"] == "minimize" else -1 for name, about in METRICS.items()}
    order = pl.col("value") * pl.col("metric").replace_strict(signs)
    best = (
        ended.filter(pl.col("value").is_not_nan())
        .sort(order, maintain_order=True)
        .group_by("run", "metric", maintain_order=True)
        .first()
        .group_by("run")
        .agg(pl.struct(pl.col("metric").alias("name"), "value", "step").alias("best"))
    )
    settled = runs.join(best, on="run", how="left", maintain_order="left").with_columns(
        best_metrics=pl.coalesce("best", "best_metrics")
    )
    return settled.select(runs.columns), ended.select(curves.columns)


def _of_jobs(frame: pl.DataFrame, jobs: pl.DataFrame) -> pl.DataFrame:
    """The rows with the hash of the job that they come from."""
    key = ["stage", "backend", "optimizer"] if "stage" in frame.columns else ["backend"]
    among = jobs if "stage" in frame.columns else jobs.filter(stage="timing")
    hashes = among.select(*key, pl.col("spec_hash").alias("hash"))
    given = frame.with_columns(pl.col("stage").cast(pl.String)) if "stage" in frame.columns else frame
    joined = given.join(hashes, on=key, how="left", maintain_order="left")
    return joined.with_columns(spec_hash=pl.col("hash")).drop("hash")


def write_set(
    folder: Path, name: str, shapes: Sequence[Shape] = SHAPES, checks: bool = True, **changes: Change
) -> Path:
    """Publish made-up tables, as `write_report` writes them, below `folder`; returns the set's folder."""
    plan = write_report(folder / f"{name}.tables", shapes, checks, **changes)
    return publish(read_plan(plan), name, folder, code=CODE)


def changed(given: Path, to: Path, table: str, change: Change) -> Path:
    """A copy of a set with one table changed and the checksums made anew.

    Args:
        table: its file inside the set.
    """
    shutil.copytree(given, to)
    path = to / table
    frame = change(pl.read_parquet(path))
    frame.write_parquet(path)
    seal(to)
    return to


def with_metric(frame: pl.DataFrame, name: str, value: pl.Expr) -> pl.Series:
    """The column `final_metrics` with one metric's value replaced."""
    element = pl.element().struct
    replaced = pl.when(element.field("name") == name).then(value).otherwise(element.field("value"))
    each = pl.struct(element.field("name"), replaced.alias("value"))
    return frame.select(pl.col("final_metrics").list.eval(each)).to_series()


def scaled(optimizer: str, factor: float) -> Change:
    """What multiplies the final training losses of an optimizer."""

    def change(runs: pl.DataFrame) -> pl.DataFrame:
        moved = with_metric(runs, "train_loss", pl.element().struct.field("value") * factor)
        own = pl.col("optimizer") == optimizer
        return runs.with_columns(final_metrics=pl.when(own).then(moved).otherwise(pl.col("final_metrics")))

    return change
