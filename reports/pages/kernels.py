"""Kernel speed: over commits what asv stored, in tables and steps, and next to other libraries.

Nothing is measured here: `python -m benchmarks.kernels.history` measures, and stores a file a commit. Steps
beside those of other libraries are as `python -m benchmarks.kernels.ratios --out` measured them; that table
is kept with the code, so that the page has it where nothing was measured since.
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

from curvebench.reports.statistics.steps import LEAST, find_steps
from curvebench.spec.errors import InputError

MEASURED = Path(__file__).parent.parent / "measured" / "step_ratios.csv"
COMMITS_SHOWN = 8  # columns of a table, the last ones
STEPS_SHOWN = 20

# asv's name of a benchmark -> what it measures here
MEASURES: Mapping[str, str] = {"time_call": "seconds", "peakmem_call": "memory", "track_error": "error"}
SCHEMA = {
    "machine": pl.String,
    "environment": pl.String,
    "commit": pl.String,
    "date": pl.Int64,  # of the commit, milliseconds since 1970, UTC
    "day": pl.String,  # of the commit, UTC
    "started": pl.Int64,  # of the measurement, milliseconds since 1970, UTC
    "measure": pl.String,
    "version": pl.String,  # of the benchmark: others are not comparable
    "case": pl.String,
    "backend": pl.String,
    "value": pl.Float64,  # null where the call failed
    "low": pl.Float64,  # asv's 99 % interval of the median; null where too few samples were taken
    "high": pl.Float64,
}
ORDER = ("date", "started", "commit")


@dataclass(frozen=True)
class Stored:
    """What asv has stored: a row a measured value, facts of machines, and what could not be read."""

    frame: pl.DataFrame
    machines: Mapping[str, Mapping[str, Any]]
    notes: tuple[str, ...]


# --- reading -------------------------------------------------------------------------------------


def read_stored(folder: Path) -> Stored:
    """Read a folder of asv's results; a damaged file becomes a note.

    Args:
        folder: holds one folder a machine, and in it `machine.json` and one file a commit and environment.
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
        except Exception as error:  # whatever another content raises
            reason = f"{type(error).__name__}: {error}"
            notes.append(f"{path}: not a result of asv ({reason}), left out; delete it and measure again")
    stored = pl.concat([pl.DataFrame(schema=SCHEMA), *frames])
    stored = stored.filter(pl.col("value").is_not_nan().fill_null(True))  # a case that was not asked for
    ends = pl.col("low", "high")
    stored = stored.with_columns(pl.when(ends.is_finite()).then(ends))
    frame = stored.filter(pl.col("version") == pl.col("version").sort_by(*ORDER).last().over("measure"))
    if dropped := len(stored) - len(frame):
        notes.append(
            f"{dropped} values of an older version of a benchmark are left out: what they measure differs"
        )
    return Stored(frame, machines, tuple(notes))


def _rows(content: Mapping[str, Any], machine: str) -> list[dict[str, Any]]:
    """The values of one file of asv's, in the columns that it names itself.

    Raises:
        Exception: of any kind, where it is no such file.
    """
    environment, commit, date = content["env_name"], content["commit_hash"], content["date"]
    if not (isinstance(environment, str) and isinstance(commit, str)):
        raise TypeError(f"env_name and commit_hash are {environment!r} and {commit!r}, not text")
    day = datetime.fromtimestamp(date / 1000, UTC).strftime("%Y-%m-%d")
    about = {"machine": machine, "environment": environment, "commit": commit, "date": date, "day": day}
    rows = []
    for name, entry in content["results"].items():
        measure = MEASURES.get(name.rpartition(".")[2])
        if measure is None:
            continue
        fields = dict(zip(content["result_columns"], entry, strict=False))
        (labels,) = fields["params"]
        about |= {"started": fields.get("started_at") or 0, "measure": measure, "version": fields["version"]}
        missing = [None] * len(labels)
        columns = (fields.get(key) or missing for key in ("result", "stats_ci_99_a", "stats_ci_99_b"))
        for label, value, low, high in zip(labels, *columns, strict=True):
            case, backend, _ = ast.literal_eval(label).split(" ")  # and the precision
            ends = {"value": value, "low": low, "high": high}
            rows.append({**about, "case": case, "backend": backend, **ends})
    return rows


# --- the page ------------------------------------------------------------------------------------


def steps_of(seconds: pl.DataFrame) -> list[dict[str, Any]]:
    """The steps of every case on every backend, the latest first.

    Args:
        seconds: rows of one machine and environment, of measure `seconds`, in the order of commits.

    Returns:
        Dictionaries with `case`, `backend`, `commit` (the first after the step), and `ratio` with its 95 %
        interval `low` and `high`.
    """
    place = {commit: number for number, commit in enumerate(seconds["commit"].unique(maintain_order=True))}
    steps: list[dict[str, Any]] = [
        {"case": case, "backend": backend, "commit": points["commit"][step.at], **vars(step)}
        for (case, backend), points in seconds.filter(pl.col("value") > 0).group_by("case", "backend")
        for step in find_steps(points["value"].to_list())
    ]
    return sorted(steps, key=lambda step: (-place[step["commit"]], step["case"], step["backend"]))


def machine_parts(stored: Stored) -> list[dict[str, Any]]:
    """Everything that the page shows of each machine and environment."""
    several = pl.col("environment").n_unique().over("machine") > 1
    both = pl.format("{}, {}", "machine", "environment")
    named = stored.frame.sort(*ORDER).with_columns(name=pl.when(several).then(both).otherwise("machine"))
    before = pl.col("value").forward_fill().shift(1).over("measure", "case", "backend")
    parts = []
    for (name,), frame in sorted(named.group_by("name")):
        facts = stored.machines.get(frame["machine"][0], {})
        changes = frame.with_columns(change=pl.when(before > 0).then(pl.col("value") / before))
        tables = {
            measure: [
                {"case": case, "backend": backend, "cells": {one["commit"]: one for one in points.to_dicts()}}
                for (case, backend), points in sorted(
                    changes.filter(measure=measure).group_by("case", "backend")
                )
            ]
            for measure in MEASURES.values()
        }
        parts.append(
            {
                "name": name,
                "facts": {key: facts[key] for key in ("cpu", "num_cpu", "ram", "os") if facts.get(key)},
                "commits": frame.select("commit", "day").unique("commit", maintain_order=True).to_dicts(),
                "tables": tables,
                "steps": steps_of(frame.filter(measure="seconds")),
            }
        )
    return parts


def all_commits(frame: pl.DataFrame) -> list[dict[str, Any]]:
    """Every measured commit, the newest first, with the machines that measured it."""
    machines = pl.col("machine").unique().sort()
    grouped = frame.sort(*ORDER).group_by("commit", "day", maintain_order=True).agg(machines)
    return grouped.reverse().to_dicts()


def kernels_page(folder: Path | None) -> dict[str, Any]:
    """What the page shows of stored results, and of steps next to other libraries.

    Args:
        folder: asv's results; None where nothing is stored.

    Raises:
        InputError: where there is no such folder.
    """
    if folder and not folder.is_dir():
        raise InputError(
            f"{folder}: the plan's folder of kernel speed is not there; run snakemake reports again"
        )
    stored = read_stored(folder) if folder else Stored(pl.DataFrame(schema=SCHEMA), {}, ())
    ratios = read_ratios()
    where = ratios.select("measured", "processor", "versions").unique(maintain_order=True)
    return {
        "machines": machine_parts(stored),
        "commits": all_commits(stored.frame),
        "notes": stored.notes,
        "columns": COMMITS_SHOWN,
        "steps_shown": STEPS_SHOWN,
        "step_least": LEAST,
        "ratios": ratio_tables(ratios),
        "measured": where.to_dicts(),
    }


# --- next to other libraries ---------------------------------------------------------------------


def read_ratios(path: Path = MEASURED) -> pl.DataFrame:
    """The stored comparisons: a row each of our steps and each library that takes the same step.

    Columns: step, backend, precision, peer, ours_milliseconds, peer_milliseconds, ratio with low and high
    (ours over theirs, 95 %), same_low and same_high (ours over ours), measured, processor, versions.
    """
    return pl.read_csv(path, schema_overrides={"measured": pl.String})


def ratio_tables(stored: pl.DataFrame) -> list[dict[str, Any]]:
    """A table for each backend: a row a rule, a cell for each set of shapes, beside the fastest library.

    Returns:
        Dictionaries with `backend`, `shapes` (in the order stored), `rows` (`rule`, and `cells` by shapes),
        `worst` (a row of `stored`) and `mean` (geometric), which leaves out what is compared with another
        computation, as the step says behind its shapes ("beside bfloat16").
    """
    contest = ["step", "backend", "precision"]
    fastest = stored.filter(pl.col("ratio") == pl.col("ratio").max().over(contest)).unique(
        contest, keep="first", maintain_order=True
    )
    parts = pl.col("step").str.extract_groups(r"^step\.(?<rule>\w+)\.(?<shapes>\w+)(?<more>.*)$")
    named = fastest.with_columns(parts.alias("parts")).unnest("parts")
    named = named.with_columns(rule=pl.col("rule") + pl.col("more"))
    tables = []
    for (backend,), own in named.group_by("backend", maintain_order=True):
        cells = {(row["rule"], row["shapes"]): row for row in own.iter_rows(named=True)}
        same = own.filter(pl.col("more") == "")
        shapes = own["shapes"].unique(maintain_order=True).to_list()
        tables.append(
            {
                "backend": backend,
                "shapes": shapes,
                "mean": statistics.geometric_mean(same["ratio"]),
                "worst": own.sort("ratio").row(-1, named=True),
                "rows": [
                    {"rule": rule, "cells": [cells.get((rule, kind)) for kind in shapes]}
                    for rule in sorted({rule for rule, _ in cells})
                ],
            }
        )
    return sorted(tables, key=lambda table: str(table["backend"]))
