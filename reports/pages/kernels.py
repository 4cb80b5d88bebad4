"""Kernel speed over commits: what asv stored, in tables and steps.

Nothing is measured here: `python -m benchmarks.kernels.history` measures, and stores a file a commit.
"""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl

from curvebench.reports import formatting
from curvebench.reports.statistics.steps import find_steps
from curvebench.spec.errors import InputError

COMMITS_SHOWN = 8  # columns of a table, the last ones
STEPS_SHOWN = 20

# asv's name of a benchmark -> what it measures here
MEASURES: Mapping[str, str] = {"time_call": "seconds", "peakmem_call": "memory", "track_error": "error"}
WORDS: Mapping[str, tuple[str, Callable[[Any], str]]] = {
    "seconds": ("Seconds of a call", formatting.seconds),
    "memory": ("Peak memory of a process that makes a call, libraries included", formatting.size),
    "error": ("Error against float64, relative to the largest entry", formatting.number),
}
SCHEMA = {
    "machine": pl.String,
    "environment": pl.String,
    "commit": pl.String,
    "date": pl.Int64,  # of the commit, milliseconds since 1970, UTC
    "started": pl.Int64,  # of the measurement, likewise
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
    frame, dropped = _comparable(pl.concat([pl.DataFrame(schema=SCHEMA), *frames]))
    if dropped:
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
    day(date)  # raises where it is none
    about = {"machine": machine, "environment": environment, "commit": commit, "date": date}
    rows = []
    for name, entry in content["results"].items():
        measure = MEASURES.get(name.rpartition(".")[2])
        if measure is None:
            continue
        fields = dict(zip(content["result_columns"], entry, strict=False))
        (labels,) = fields["params"]
        missing = [None] * len(labels)
        columns = (fields.get(key) or missing for key in ("result", "stats_ci_99_a", "stats_ci_99_b"))
        for label, value, low, high in zip(labels, *columns, strict=True):
            if value is not None and math.isnan(value):
                continue  # asv's sign for a case that was not asked for
            words: list[str] = ast.literal_eval(label).split(" ")  # case, backend, precision
            rows.append(
                {
                    **about,
                    "started": fields.get("started_at") or 0,
                    "measure": measure,
                    "version": fields["version"],
                    "case": words[0],
                    "backend": words[1],
                    "value": value,
                    "low": _finite(low),
                    "high": _finite(high),
                }
            )
    return rows


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _comparable(frame: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """The values of each benchmark's latest version, and how many others there are."""
    latest = pl.col("version").sort_by(*ORDER).last().over("measure")
    kept = frame.filter(pl.col("version") == latest)
    return kept, len(frame) - len(kept)


# --- changes and steps -------------------------------------------------------------------------------------


def change_text(ratio: float) -> str:
    """A ratio as a change: +12 %, −3 %, ×2.3 from a doubling on."""
    if ratio >= 2:
        return f"×{formatting.number(ratio, 2)}"
    percent = round(100 * (ratio - 1))
    return f"{'+' if percent > 0 else formatting.MINUS if percent < 0 else '±'}{abs(percent)} %"


def cells(points: Iterable[Mapping[str, Any]], measure: str) -> dict[str, dict[str, Any]]:
    """What a table shows of one case on one backend, by commit, each beside the measured commit before it.

    Args:
        points: rows of the frame in the order of commits.
        measure: a key of `WORDS`.
    """
    shown, before = {}, None
    written = WORDS[measure][1]
    for point in points:
        value, low, high = (point[name] for name in ("value", "low", "high"))
        failed = value is None
        shown[point["commit"]] = {
            "value": value,
            "text": "failed" if failed else written(value),
            "range": "" if failed or None in (low, high) else f"{written(low)} to {written(high)}",
            "change": "" if failed or not before else change_text(value / before),
        }
        before = before if failed else value
    return shown


def steps_of(seconds: pl.DataFrame) -> list[dict[str, Any]]:
    """The steps of every case on every backend, the latest first.

    Args:
        seconds: rows of one machine and environment, of measure `seconds`, in the order of commits.

    Returns:
        Dictionaries with `case`, `backend`, `commit` (the first after the step), `verdict`, and `change` with
        its 95 % interval in words.
    """
    place = {commit: number for number, commit in enumerate(seconds["commit"].unique(maintain_order=True))}
    steps: list[dict[str, Any]] = []
    measured = seconds.filter(pl.col("value") > 0)
    for (case, backend), points in measured.group_by("case", "backend", maintain_order=True):
        steps += [
            {
                "case": case,
                "backend": backend,
                "commit": points["commit"][step.at],
                "verdict": "slower" if step.ratio > 1 else "faster",
                "change": f"{change_text(step.ratio)} [{change_text(step.low)}, {change_text(step.high)}]",
            }
            for step in find_steps(points["value"].to_list())
        ]
    return sorted(steps, key=lambda step: (-place[step["commit"]], step["case"], step["backend"]))


# --- the page ------------------------------------------------------------------------------------


def machine_part(frame: pl.DataFrame, name: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Everything that the page shows of one machine and environment.

    Args:
        frame: the rows of that machine.
        name: its title.
        facts: what asv knows of the machine.
    """
    commits = frame.select("commit", "date").unique("commit", maintain_order=True).to_dicts()
    tables: list[dict[str, Any]] = []
    for measure, (title, _) in WORDS.items():
        groups = frame.filter(measure=measure).group_by("case", "backend")
        rows = [
            {"case": case, "backend": backend, "cells": cells(points.iter_rows(named=True), measure)}
            for (case, backend), points in groups
        ]
        rows.sort(key=lambda row: (row["case"], row["backend"]))
        tables.append({"measure": measure, "title": title, "rows": rows})
    return {
        "name": name,
        "facts": {key: facts[key] for key in ("cpu", "num_cpu", "ram", "os") if facts.get(key)},
        "commits": [{**commit, "date": day(commit["date"])} for commit in commits],
        "tables": tables,
        "steps": steps_of(frame.filter(measure="seconds")),
    }


def all_commits(frame: pl.DataFrame) -> list[dict[str, Any]]:
    """Every measured commit, the newest first, with the machines that measured it."""
    machines = pl.col("machine").unique().sort()
    grouped = frame.sort(*ORDER).group_by("commit", "date", maintain_order=True).agg(machines)
    return [{**row, "date": day(row["date"])} for row in grouped.reverse().to_dicts()]


def day(milliseconds: int) -> str:
    """A date of asv's as year, month and day, UTC."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d")


def machine_parts(stored: Stored) -> list[dict[str, Any]]:
    """What is shown of each machine and environment."""
    several = dict(stored.frame.group_by("machine").agg(pl.col("environment").n_unique()).rows())
    parts = stored.frame.sort(*ORDER).group_by("machine", "environment", maintain_order=True)
    return [
        machine_part(
            rows,
            f"{machine}, {environment}" if several[machine] > 1 else str(machine),
            stored.machines.get(str(machine), {}),
        )
        for (machine, environment), rows in sorted(parts)
    ]


def kernels_page(folder: Path | None) -> dict[str, Any]:
    """What the page shows of stored results; nothing where there are none.

    Args:
        folder: asv's results.

    Raises:
        InputError: where there is no such folder.
    """
    if folder is None:
        return {"machines": [], "commits": [], "notes": []}
    if not folder.is_dir():
        raise InputError(
            f"{folder}: the plan's folder of kernel speed is not there; run snakemake reports again"
        )
    stored = read_stored(folder)
    return {
        "machines": machine_parts(stored),
        "commits": all_commits(stored.frame),
        "notes": stored.notes,
    }
