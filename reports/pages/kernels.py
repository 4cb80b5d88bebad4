"""Page of kernel speed: measurements over commits, and steps compared with other libraries.

This module measures nothing. `python -m benchmarks.kernels.history` measures the kernels and lets asv
(airspeed velocity, a tool that benchmarks commits) store one file per commit. `python -m
benchmarks.kernels.ratios --out` measures steps against other libraries. The table of these measurements is
part of the repository, so that the page shows it on every machine.
"""

from __future__ import annotations

import ast
import json
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl

from curvebench.reports.statistics.steps import MIN_VALUES, find_steps
from curvebench.spec.errors import InputError

MEASURED = Path(__file__).parent.parent / "measured" / "step_ratios.csv"
COMMITS_SHOWN = 8  # Number of the latest commits that have a column in a table.
STEPS_SHOWN = 20

# Quantity measured by a benchmark, by the last part of asv's name for it.
MEASURES: Mapping[str, str] = {"time_call": "seconds", "peakmem_call": "memory", "track_error": "error"}
SCHEMA = {
    "machine": pl.String,
    "environment": pl.String,
    "commit": pl.String,
    "date": pl.Int64,  # Time of the commit in milliseconds since 1970, UTC.
    "day": pl.String,  # Day of the commit, UTC.
    "started": pl.Int64,  # Time of the measurement in milliseconds since 1970, UTC.
    "measure": pl.String,
    "version": pl.String,  # Version of the benchmark; values of different versions cannot be compared.
    "case": pl.String,
    "backend": pl.String,
    "value": pl.Float64,  # Measured value; null if the call failed.
    "low": pl.Float64,  # Ends of asv's 99 % interval of the median; null if too few samples were taken.
    "high": pl.Float64,
}
ORDER = ("date", "started", "commit")


@dataclass(frozen=True)
class Stored:
    """Stored results of asv.

    Attributes:
        frame: one row per measured value, with the columns of `SCHEMA`.
        machines: facts about each machine, by its name.
        notes: sentences about files that could not be read and values that are left out.
    """

    frame: pl.DataFrame
    machines: Mapping[str, Mapping[str, Any]]
    notes: tuple[str, ...]


# --- reading -------------------------------------------------------------------------------------


def read_stored(folder: Path) -> Stored:
    """Read a folder of asv's results. For a damaged file, the result has a note instead of values.

    Args:
        folder: folder with a subfolder for each machine. A subfolder contains `machine.json` and one file for
            each commit and environment.
    """
    frames: list[pl.DataFrame] = []
    machines: dict[str, Mapping[str, Any]] = {}
    notes: list[str] = []
    for path in sorted(folder.glob("*/*.json")):
        try:
            content = json.loads(path.read_text())
            if path.name == "machine.json":
                machines[path.parent.name] = {**content}
            else:
                frames.append(pl.DataFrame(_rows(content, path.parent.name), SCHEMA))
        except Exception as error:  # A file with unexpected content may raise any exception.
            reason = f"{type(error).__name__}: {error}"
            notes.append(f"{path}: not a result of asv ({reason}), left out; delete it and measure again")
    stored = pl.concat([pl.DataFrame(schema=SCHEMA), *frames])
    # asv stores NaN for a case that was not selected; such rows are removed.
    stored = stored.filter(pl.col("value").is_not_nan().fill_null(True))
    ends = pl.col("low", "high")
    stored = stored.with_columns(pl.when(ends.is_finite()).then(ends))
    frame = stored.filter(pl.col("version") == pl.col("version").sort_by(*ORDER).last().over("measure"))
    if dropped := len(stored) - len(frame):
        notes.append(
            f"{dropped} values of an older version of a benchmark are left out: what they measure differs"
        )
    return Stored(frame, machines, tuple(notes))


def _rows(content: Mapping[str, Any], machine: str) -> list[dict[str, Any]]:
    """Return the values of one file of asv's results as rows with the columns of `SCHEMA`.

    Raises:
        Exception: of any kind, if the file is not a result of asv.
    """
    environment, commit, date = content["env_name"], content["commit_hash"], content["date"]
    if not (isinstance(environment, str) and isinstance(commit, str)):
        raise TypeError(f"env_name and commit_hash are {environment!r} and {commit!r}, not text")
    day = datetime.fromtimestamp(date / 1000, UTC).strftime("%Y-%m-%d")
    common = {"machine": machine, "environment": environment, "commit": commit, "date": date, "day": day}
    rows = []
    for name, entry in content["results"].items():
        measure = MEASURES.get(name.rpartition(".")[2])
        if measure is None:
            continue
        fields = dict(zip(content["result_columns"], entry, strict=False))
        (labels,) = fields["params"]
        common |= {"started": fields.get("started_at") or 0, "measure": measure, "version": fields["version"]}
        missing = [None] * len(labels)
        columns = (fields.get(key) or missing for key in ("result", "stats_ci_99_a", "stats_ci_99_b"))
        for label, value, low, high in zip(labels, *columns, strict=True):
            # The three words of asv's label are the case, the backend and the precision.
            case, backend, _ = ast.literal_eval(label).split(" ")
            ends = {"value": value, "low": low, "high": high}
            rows.append({**common, "case": case, "backend": backend, **ends})
    return rows


# --- the page ------------------------------------------------------------------------------------


def steps_of(seconds: pl.DataFrame) -> list[dict[str, Any]]:
    """Return the sudden changes in the seconds of every case on every backend, the latest first.

    Args:
        seconds: rows of one machine and environment, with measure `seconds`, in the order of commits.

    Returns:
        Dictionaries with `case`, `backend`, `commit` (the first commit after the change), and `ratio` (time
        after / time before) with its 95 % interval `low` and `high`.
    """
    position = {commit: number for number, commit in enumerate(seconds["commit"].unique(maintain_order=True))}
    steps: list[dict[str, Any]] = [
        {"case": case, "backend": backend, "commit": points["commit"][step.at], **vars(step)}
        for (case, backend), points in seconds.filter(pl.col("value") > 0).group_by("case", "backend")
        for step in find_steps(points["value"].to_list())
    ]
    return sorted(steps, key=lambda step: (-position[step["commit"]], step["case"], step["backend"]))


def machine_parts(stored: Stored) -> list[dict[str, Any]]:
    """Return the context of each section of the page: a section for each machine and environment."""
    multiple = pl.col("environment").n_unique().over("machine") > 1
    both = pl.format("{}, {}", "machine", "environment")
    named = stored.frame.sort(*ORDER).with_columns(name=pl.when(multiple).then(both).otherwise("machine"))
    previous = pl.col("value").forward_fill().shift(1).over("measure", "case", "backend")
    sections = []
    for (name,), frame in sorted(named.group_by("name")):
        facts = stored.machines.get(frame["machine"][0], {})
        changes = frame.with_columns(change=pl.when(previous > 0).then(pl.col("value") / previous))
        tables = {
            measure: [
                {"case": case, "backend": backend, "cells": {row["commit"]: row for row in points.to_dicts()}}
                for (case, backend), points in sorted(
                    changes.filter(measure=measure).group_by("case", "backend")
                )
            ]
            for measure in MEASURES.values()
        }
        sections.append(
            {
                "name": name,
                "facts": {key: facts[key] for key in ("cpu", "num_cpu", "ram", "os") if facts.get(key)},
                "commits": frame.select("commit", "day").unique("commit", maintain_order=True).to_dicts(),
                "tables": tables,
                "steps": steps_of(frame.filter(measure="seconds")),
            }
        )
    return sections


def all_commits(frame: pl.DataFrame) -> list[dict[str, Any]]:
    """Return every measured commit, the newest first, with the machines that measured the commit."""
    machines = pl.col("machine").unique().sort()
    grouped = frame.sort(*ORDER).group_by("commit", "day", maintain_order=True).agg(machines)
    return grouped.reverse().to_dicts()


def kernels_page(folder: Path | None) -> dict[str, Any]:
    """Return the context of the page, from stored results of asv and the comparison with other libraries.

    Args:
        folder: folder of asv's results; None if nothing is stored.

    Raises:
        InputError: when the folder does not exist.
    """
    if folder and not folder.is_dir():
        raise InputError(
            f"{folder}: the plan's folder of kernel speed is not there; run snakemake reports again"
        )
    stored = read_stored(folder) if folder else Stored(pl.DataFrame(schema=SCHEMA), {}, ())
    ratios = read_ratios()
    conditions = ratios.select("measured", "processor", "versions").unique(maintain_order=True)
    return {
        "machines": machine_parts(stored),
        "commits": all_commits(stored.frame),
        "notes": stored.notes,
        "columns": COMMITS_SHOWN,
        "steps_shown": STEPS_SHOWN,
        "step_least": MIN_VALUES,
        "ratios": ratio_tables(ratios),
        "measured": conditions.to_dicts(),
    }


# --- next to other libraries ---------------------------------------------------------------------


def read_ratios(path: Path = MEASURED) -> pl.DataFrame:
    """Read the stored comparisons of optimizer steps with the steps of other libraries.

    Returns:
        A row for each step of this project and each library (peer) that has the same step. The columns are
        step, backend, precision, peer, ours_milliseconds, peer_milliseconds; ratio (our time divided by the
        peer's) with its 95 % interval low and high; same_low and same_high (the interval if our step is
        compared with itself, which shows the noise); measured, processor, versions.
    """
    return pl.read_csv(path, schema_overrides={"measured": pl.String})


def ratio_tables(stored: pl.DataFrame) -> list[dict[str, Any]]:
    """Return one table per backend, with a row per update rule and a column per set of parameter shapes.

    A cell of the table compares our step with the same step of the fastest library.

    Returns:
        Dictionaries with `backend`, `shapes` (in the order stored), `rows` (each with `rule`, and `cells` in
        the order of `shapes`), `worst` (the row of `stored` with the highest ratio) and `mean` (geometric
        mean of the ratios). The mean leaves out steps whose name says something after the shapes, such as
        "beside bfloat16", because the peer computes something else or the lanes differ. If there are no other
        steps, the mean is over these steps.
    """
    comparison = ["step", "backend", "precision"]
    of_fastest = stored.filter(pl.col("ratio") == pl.col("ratio").max().over(comparison))
    fastest = of_fastest.unique(comparison, keep="first", maintain_order=True)
    fields = pl.col("step").str.extract_groups(r"^step\.(?<rule>\w+)\.(?<shapes>\w+)(?<more>.*)$")
    named = fastest.with_columns(fields.alias("parts")).unnest("parts")
    named = named.with_columns(rule=pl.col("rule") + pl.col("more"))
    tables = []
    for (backend,), on_backend in named.group_by("backend", maintain_order=True):
        cells = {(row["rule"], row["shapes"]): row for row in on_backend.iter_rows(named=True)}
        same_computation = on_backend.filter(pl.col("more") == "")
        averaged = on_backend if same_computation.is_empty() else same_computation
        shapes = on_backend["shapes"].unique(maintain_order=True).to_list()
        tables.append(
            {
                "backend": backend,
                "shapes": shapes,
                "mean": statistics.geometric_mean(averaged["ratio"]),
                "worst": on_backend.sort("ratio").row(-1, named=True),
                "rows": [
                    {"rule": rule, "cells": [cells.get((rule, kind)) for kind in shapes]}
                    for rule in sorted({rule for rule, _ in cells})
                ],
            }
        )
    return sorted(tables, key=lambda table: str(table["backend"]))
