"""Kernel speed over commits: what asv stored in tables and figures, and asv's own pages, opened from disk.

Nothing is measured here: `python -m benchmarks.kernels.history` measures, and stores a file a commit.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import math
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
from polars.exceptions import PolarsError

from reports import formatting
from reports.plan import ReportError

MANIFEST = "kernels.json"
ASV_FOLDER = "asv"
VENDORED = Path(__file__).parent / "static" / ASV_FOLDER
COMMITS_SHOWN = 8  # columns of a table; the figures show every commit
CHANGES_SHOWN = 20
SHORT = 8  # letters of a hash

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
    """What asv has stored: a row a measured value, facts of machines, and what could not be read.

    `files` are the readable results and their commits.
    """

    frame: pl.DataFrame
    machines: Mapping[str, Mapping[str, Any]]
    files: tuple[tuple[Path, str], ...]
    notes: tuple[str, ...]


# --- reading -------------------------------------------------------------------------------------


def read_stored(folder: Path) -> Stored:
    """Read a folder of asv's results; a damaged file becomes a note.

    Args:
        folder: holds one folder a machine, and in it `machine.json` and one file a commit and environment.
    """
    frames: list[pl.DataFrame] = []
    files: list[tuple[Path, str]] = []
    machines: dict[str, Mapping[str, Any]] = {}
    notes: list[str] = []
    for path in sorted(folder.glob("*/*.json")):
        try:
            content = json.loads(path.read_text())
            if path.name == "machine.json":
                machines[path.parent.name] = {**content}
            else:
                frames.append(pl.DataFrame(_rows(content, path.parent.name), SCHEMA))
                files.append((path, content["commit_hash"]))
        except (
            OSError,
            ValueError,
            LookupError,
            TypeError,
            AttributeError,
            SyntaxError,
            PolarsError,
        ) as error:
            told = f"{type(error).__name__}: {error}"
            notes.append(f"{path}: not a result of asv ({told}), left out; delete it and measure again")
    frame, dropped = _comparable(pl.concat([pl.DataFrame(schema=SCHEMA), *frames]))
    if dropped:
        notes.append(
            f"{dropped} values of an older version of a benchmark are left out: what they measure differs"
        )
    return Stored(frame, machines, tuple(files), tuple(notes))


def _rows(content: Mapping[str, Any], machine: str) -> list[dict[str, Any]]:
    """The values of one file of asv's, in the columns that it names itself."""
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
                    "machine": machine,
                    "environment": content["env_name"],
                    "commit": content["commit_hash"],
                    "date": content["date"],
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


# --- changes -------------------------------------------------------------------------------------


def verdict(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Whether a value changed beyond the spread that is stored with it.

    Args:
        before, now: `low` and `high` of the 99 % intervals at consecutive commits.

    Returns:
        `slower` or `faster` where the intervals do not meet, `same` where they do, else `unknown`.
    """
    ends = (before["low"], before["high"], now["low"], now["high"])
    if None in ends:
        return "unknown"
    if now["low"] > before["high"]:
        return "slower"
    return "faster" if now["high"] < before["low"] else "same"


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
        measure: a key of `WORDS`; only seconds are stored with a spread, so only they are judged.
    """
    shown, before = {}, None
    tell = WORDS[measure][1]
    for point in points:
        cell: dict[str, Any] = {
            "value": point["value"],
            "text": "failed",
            "range": "",
            "change": "",
            "verdict": "",
        }
        if point["value"] is not None:
            cell["text"] = tell(point["value"])
            if point["low"] is not None and point["high"] is not None:
                cell["range"] = f"{tell(point['low'])} to {tell(point['high'])}"
            if before is not None and before["value"] > 0:
                cell["change"] = change_text(point["value"] / before["value"])
                cell["verdict"] = verdict(before, point) if measure == "seconds" else ""
            before = point
        shown[point["commit"]] = cell
    return shown


# --- the page ------------------------------------------------------------------------------------


def machine_part(frame: pl.DataFrame, name: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Everything that the page shows of one machine and environment, but the figures.

    Args:
        frame: the rows of that machine.
        name: its title.
        facts: what asv knows of the machine.
    """
    commits = frame.select("commit", "date").unique("commit", maintain_order=True).to_dicts()
    tables: list[dict[str, Any]] = []
    changes: list[dict[str, Any]] = []
    for measure, (title, _) in WORDS.items():
        rows: list[dict[str, Any]] = []
        of_measure = frame.filter(pl.col("measure") == measure)
        for key, points in of_measure.group_by("case", "backend", maintain_order=True):
            case, backend = key
            by_commit = cells(points.iter_rows(named=True), measure)
            rows.append({"case": case, "backend": backend, "cells": by_commit})
            changes += [
                {"case": case, "backend": backend, "commit": commit, **cell}
                for commit, cell in by_commit.items()
                if cell["verdict"] in ("slower", "faster")
            ]
        tables.append(
            {
                "measure": measure,
                "title": title,
                "rows": sorted(rows, key=lambda row: (row["case"], row["backend"])),
            }
        )
    place = {commit["commit"]: number for number, commit in enumerate(commits)}
    changes.sort(key=lambda change: (-place[change["commit"]], change["case"], change["backend"]))
    judged = any(cell["range"] for row in tables[0]["rows"] for cell in row["cells"].values())
    return {
        "name": name,
        "facts": {key: facts[key] for key in ("cpu", "num_cpu", "ram", "os") if facts.get(key)},
        "commits": [{**commit, "date": day(commit["date"])} for commit in commits],
        "tables": tables,
        "changes": changes,
        "judged": judged,
    }


def all_commits(frame: pl.DataFrame) -> list[dict[str, Any]]:
    """Every measured commit, the newest first, with the machines that measured it."""
    machines = pl.col("machine").unique().sort()
    grouped = frame.sort(*ORDER).group_by("commit", "date", maintain_order=True).agg(machines)
    return [{**row, "date": day(row["date"])} for row in grouped.reverse().to_dicts()]


def day(milliseconds: int) -> str:
    """A date of asv's as year, month and day, UTC."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d")


def machine_parts(stored: Stored) -> list[tuple[dict[str, Any], pl.DataFrame]]:
    """What is shown of each machine and environment, with its rows in the order of commits."""
    parts = []
    environments = stored.frame.group_by("machine").agg(pl.col("environment").n_unique())
    several = dict(environments.rows())
    ordered = stored.frame.sort(*ORDER)
    for (machine, environment), rows in sorted(
        ordered.group_by("machine", "environment", maintain_order=True)
    ):
        name = f"{machine}, {environment}" if several[machine] > 1 else str(machine)
        parts.append((machine_part(rows, name, stored.machines.get(str(machine), {})), rows))
    return parts


def draw_kernels(folder: Path, out: Path, repository: Path) -> dict[str, Any]:
    """Make what the site shows of stored results: figures, `kernels.json`, and asv's own pages.

    Args:
        folder: asv's results.
        out: is made anew.
        repository: the git repository whose commits were measured.
    """
    from reports.kernel_figures import draw_machine

    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    stored = read_stored(folder)
    machines = [
        {**part, "figures": [asdict(figure) for figure in draw_machine(rows, part["name"], out)]}
        for part, rows in machine_parts(stored)
    ]
    own_pages, notes = publish(stored, folder, out / ASV_FOLDER, repository)
    made = {
        "machines": machines,
        "commits": all_commits(stored.frame),
        "notes": [*stored.notes, *notes],
        "asv": own_pages,
    }
    (out / MANIFEST).write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n")
    return made


def read_kernels(folder: Path | None) -> dict[str, Any]:
    """What `draw_kernels` made; nothing where there are no stored results.

    Raises:
        ReportError: when it is missing or damaged.
    """
    if folder is None:
        return {"machines": [], "commits": [], "notes": [], "asv": False}
    path = folder / MANIFEST
    try:
        made: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ReportError(
            f"{path}: cannot be read ({error}); run snakemake, or python -m reports kernels, which writes it"
        ) from error
    return made


def site_files(folder: Path | None) -> dict[str, Path]:
    """What the site copies, by its place there: figures below `figures/kernels`, asv's pages below `asv`."""
    if folder is None:
        return {}
    figures = {f"figures/kernels/{path.name}": path for path in sorted(folder.glob("*.svg"))}
    own = {
        path.relative_to(folder).as_posix(): path
        for path in sorted((folder / ASV_FOLDER).rglob("*"))
        if path.is_file()
    }
    return figures | own


# --- asv's own pages -----------------------------------------------------------------------------


def publish(stored: Stored, folder: Path, out: Path, repository: Path) -> tuple[bool, list[str]]:
    """Render asv's own pages from stored results, so that they open from disk without a network.

    asv counts revisions along HEAD: results of commits that HEAD does not contain would end it.

    Args:
        stored: what of the folder can be read.
        folder: asv's results.
        out: the folder of the pages.
        repository: the git repository whose commits were measured.

    Returns:
        Whether there are pages, and notes on what is missing.
    """
    if not stored.files:
        return False, []
    if importlib.util.find_spec("asv") is None:
        return False, ["asv's own pages are left out: asv is not installed; make environment installs it"]
    known = _commits(repository)
    usable = [path for path, commit in stored.files if commit in known]
    unknown = len({commit for _, commit in stored.files if commit not in known})
    notes = [f"asv's own pages leave out commits that HEAD does not contain: {unknown}"] if unknown else []
    if not usable:
        return False, ["asv's own pages are left out: HEAD contains none of the measured commits"]
    with tempfile.TemporaryDirectory(prefix="curvebench-asv-") as temporary:
        results = Path(temporary) / "results"
        for path in usable:
            (results / path.parent.name).mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, results / path.parent.name / path.name)
            facts = stored.machines.get(path.parent.name)
            if facts is not None:
                (results / path.parent.name / "machine.json").write_text(json.dumps(facts))
        if (folder / "benchmarks.json").is_file():
            shutil.copyfile(folder / "benchmarks.json", results / "benchmarks.json")
        configuration = Path(temporary) / "asv.conf.json"
        configuration.write_text(json.dumps(_settings(repository, results, out)))
        command = [sys.executable, "-m", "asv", "publish", "--config", str(configuration), "--no-pull"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode or not (out / "index.html").is_file():
        shutil.rmtree(out, ignore_errors=True)
        said = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        return False, [
            *notes,
            f"asv's own pages are left out: asv publish failed ({said[-1] if said else 'no message'})",
        ]
    try:
        open_from_disk(out)
    except ReportError as error:
        shutil.rmtree(out)
        return False, [*notes, f"asv's own pages are left out: {error}"]
    return True, notes


def _commits(repository: Path) -> set[str]:
    """The commits that HEAD contains; none outside a git repository."""
    command = ["git", "rev-list", "HEAD"]
    try:
        done = subprocess.run(command, cwd=repository, capture_output=True, text=True, check=False)
    except OSError:
        return set()
    return set(done.stdout.split())


def _settings(repository: Path, results: Path, out: Path) -> dict[str, Any]:
    """asv's settings for rendering; links to commits lead to our page."""
    return {
        "version": 1,
        "project": "curvebench",
        "project_url": "../kernels.html",
        "show_commit_url": "../kernels.html#",
        "repo": str(repository.resolve()),
        "branches": ["HEAD"],
        "environment_type": "existing",
        "results_dir": str(results),
        "html_dir": str(out.resolve()),
    }


TAG = re.compile(r"<(script|link)\b[^>]*?\b(src|href)=\"https?://[^\"]*/([^\"/]+)\"[^>]*>")


def open_from_disk(out: Path) -> None:
    """Make asv's pages work from disk: libraries from `reports/static/asv`, JSON inside a script.

    Raises:
        ReportError: when the pages ask for a library that is not there.
    """
    index = out / "index.html"
    text = TAG.sub(_local, index.read_text())
    marker = re.search(r"<script[^>]*\bsrc=\"asv\.js\"", text)
    if marker is None:
        raise ReportError("asv's index.html does not load asv.js")
    ours = '<script src="data.js"></script>\n    <script src="offline.js"></script>\n    '
    index.write_text(text[: marker.start()] + ours + text[marker.start() :])
    for library in VENDORED.iterdir():
        if library.suffix in (".js", ".css"):
            shutil.copyfile(library, out / library.name)
    shutil.copyfile(VENDORED / "LICENCES.txt", out / "LICENCES.txt")
    stored = {}
    for path in sorted(out.rglob("*.json")):
        stored[path.relative_to(out).as_posix()] = json.loads(path.read_text())
        path.unlink()
    (out / "data.js").write_text(f"window.asvFiles = {json.dumps(stored)};\n")


def _local(tag: re.Match[str]) -> str:
    """The same tag with a file of ours."""
    kind, _, name = tag.groups()
    name = re.sub(r"^jquery-[\d.]+(\.min)?\.js$", r"jquery\1.js", name)
    here = next((each for each in (name, name.replace(".min.", ".")) if (VENDORED / each).is_file()), None)
    if here is None:
        raise ReportError(f"asv's pages ask for {name}, which is not in {VENDORED}")
    return f'<script src="{here}">' if kind == "script" else f'<link rel="stylesheet" href="{here}">'
