"""Whether a published set, one's own or a stranger's, can be believed: `python -m results check`."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from results.errors import TableError
from results.provenance import PROJECT
from results.publishing import (
    LICENCE,
    PLAN,
    PROVENANCE,
    STUDY_TABLES,
    SUMS,
    TUNING,
    changed_rules,
    files_of,
    objections,
    sha256,
)
from results.reading import read
from results.schema import TABLES
from results.set_names import WAIVERS
from results.verdicts import rule_hash

PAGES = ("README.md", "LICENSE")
DERIVED = ("claims", "findings", "leaderboard")
TOP = {
    *PAGES,
    PLAN,
    PROVENANCE,
    *(f"{table}.parquet" for table in DERIVED),
    *(f"leaderboard.{kind}" for kind in ("csv", "json", "schema.json")),
}
SPECIAL = {"parity": ("parity", "jobs"), "checks": ("checks", "jobs")}  # folders that are no studies
LINE = re.compile(r"(?P<digest>[0-9a-f]{64})  (?P<name>.+)")
COMMIT = re.compile(r"[0-9a-f]{40}")
FAILED = ("out_of_memory", "interrupted", "error")
SHOWN = 3  # how many rows a complaint names

Tables = Mapping[str, Mapping[str, pl.DataFrame]]


def complaints(folder: Path) -> list[str]:
    """Why a set is refused, all reasons at once; none where it is accepted.

    Nothing from the folder is executed. What its verdicts and records say plays no part, only whether they
    follow from its tables.
    """
    return unfounded(folder) or recomputed(folder)


def unfounded(folder: Path) -> list[str]:
    """The complaints that need no verdict to be computed."""
    if not folder.is_dir():
        return [f"{folder}: no such folder"]
    found = [*_sums(folder)]
    if found:
        return found  # what lies there is not what was written: nothing else can be relied on
    tables, broken = _read(folder)
    plan, provenance = (_json(folder / name, found) for name in (PLAN, PROVENANCE))
    found += [*broken, *_layout(folder, plan)]
    for where, frames in tables.items():
        found += _study(where, frames)
    found += _provenance(provenance, tables)
    if not found:
        found += _unwaived(folder, provenance, tables)
        found += _rules(plan)
    return found


# --- files ---------------------------------------------------------------------------------------


def _sums(folder: Path) -> Iterator[str]:
    """Missing, changed and further files."""
    try:
        lines = (folder / SUMS).read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        yield f"{SUMS}: cannot be read ({error}); write it with sha256sum, or publish the set anew"
        return
    said = {}
    for line in lines:
        match = LINE.fullmatch(line)
        if match is None:
            yield f"{SUMS}: not a checksum and a file's name: {line!r}"
            continue
        said[match["name"]] = match["digest"]
    there = files_of(folder)
    for name in there:
        if (folder / name).is_symlink():
            yield f"{name}: a link; a set holds files"
        elif name not in said:
            yield f"{name}: is not among the checksums; remove it"
        elif sha256(folder / name) != said[name]:
            yield f"{name}: is not the file that the checksum is of; it was changed or damaged"
    yield from (f"{name}: is missing" for name in sorted(set(said) - set(there)))


def _layout(folder: Path, plan: Mapping[str, Any]) -> Iterator[str]:
    """Files that a set has or may not have."""
    try:
        studies = [study["name"] for study in plan.get("studies", [])]
        others = [name for name in SPECIAL if plan.get(name)]
    except (TypeError, KeyError, AttributeError) as error:
        yield f"{PLAN}: not the plan of a set ({error!r})"
        return
    needed = TOP | {f"{study}/{table}.parquet" for study in studies for table in STUDY_TABLES}
    needed |= {f"{name}/{table}.parquet" for name in others for table in SPECIAL[name]}
    there = set(files_of(folder))
    yield from (f"{name}: a set needs this file" for name in sorted(needed - there))
    yield from (f"{name}: a set has no such file; remove it" for name in sorted(there - needed))
    if not plan.get("published"):
        yield f"{PLAN}: names no published set; publish the tables with snakemake publish"


def _read(folder: Path) -> tuple[Tables, list[str]]:
    """The tables by folder, and what cannot be read."""
    tables: dict[str, dict[str, pl.DataFrame]] = {}
    broken = []
    for name in files_of(folder):
        path = folder / name
        if path.suffix != ".parquet":
            continue
        if path.stem not in TABLES:
            broken.append(f"{name}: no table is called {path.stem} (valid: {', '.join(TABLES)})")
            continue
        try:
            frame = read([path], path.stem)
        except TableError as error:
            broken.append(str(error).replace("run snakemake again", "publish the set anew"))
            continue
        if path.parent != folder:
            tables.setdefault(path.parent.relative_to(folder).as_posix(), {})[path.stem] = frame
        elif path.stem == "claims":
            tables.setdefault("", {})[path.stem] = frame
    return tables, broken


def _json(path: Path, found: list[str]) -> Mapping[str, Any]:
    """What a JSON file holds; a complaint and nothing where it holds no object."""
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        found.append(f"{path.name}: cannot be read as JSON ({error})")
        return {}
    if isinstance(content, dict):
        return content
    found.append(f"{path.name}: holds no JSON object")
    return {}


# --- tables --------------------------------------------------------------------------------------


def _study(where: str, frames: Mapping[str, pl.DataFrame]) -> Iterator[str]:
    """What is wrong with the tables of one folder."""
    if "jobs" not in frames:
        return  # said already: a set needs this file
    yield from _jobs(where, frames["jobs"])
    for table in ("runs", "timings", "memory", "parity", "checks"):
        if table in frames:
            yield from _unknown_jobs(where, table, frames)
    for table in ("runs", "timings", "memory"):
        if table in frames:
            yield from _elsewhere(where, table, frames[table])
    if "runs" not in frames:
        return
    runs = frames["runs"]
    yield from _told(where, "more than one run is called", runs.filter(pl.col("run").is_duplicated()))
    cell = ["workload", "optimizer", "basis", "backend", "machine", "seed"]
    final = runs.filter(pl.col("stage") == "final")
    twice = final.filter(pl.struct(cell).is_duplicated())
    yield from _told(where, "a method has more than one final run of a seed:", twice)
    tuned = set(runs.filter(pl.col("stage").is_in(TUNING))["seed"])
    judged_too = final.filter(pl.col("seed").is_in(sorted(tuned)))
    yield from _told(where, "a seed that tuned judges as well:", judged_too)
    yield from _metrics(where, runs)
    if "curves" in frames:
        strangers = frames["curves"].join(runs, on="run", how="anti")["run"].unique().sort()
        yield from _told(where, "curves of runs that runs.parquet does not have:", strangers.to_frame())
    if "timings" in frames:
        bad = frames["timings"].filter(~(pl.col("seconds").is_finite() & (pl.col("seconds") >= 0)))
        if len(bad):
            yield f"{where}/timings.parquet: {len(bad)} seconds are negative or not finite"


def _jobs(where: str, jobs: pl.DataFrame) -> Iterator[str]:
    unnamed = jobs.filter(pl.col("machine").is_null() | pl.col("cpu").is_null())
    if len(unnamed):
        yield f"{where}/jobs.parquet: {len(unnamed)} jobs name no machine or no processor"
    strange = jobs.filter(~pl.col("commit").fill_null("0" * 40).str.contains(f"^{COMMIT.pattern}$"))
    if len(strange):
        yield f"{where}/jobs.parquet: {strange['commit'][0]!r} is not a commit (40 hexadecimal digits)"


def _unknown_jobs(where: str, table: str, frames: Mapping[str, pl.DataFrame]) -> Iterator[str]:
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


def _metrics(where: str, runs: pl.DataFrame) -> Iterator[str]:
    """Metrics that are not finite where no outcome says why, and outcomes without their step."""
    fine = runs.filter(~pl.col("outcome").cast(pl.String).is_in(["diverged", *FAILED]))
    for column in ("final_metrics", "best_metrics"):
        finite = pl.col(column).list.eval(pl.element().struct.field("value").is_finite().fill_null(False))
        wrong = fine.filter(~finite.list.all())
        yield from _told(where, f"{column} are not finite, and the outcome is not diverged:", wrong)
    empty = fine.filter(pl.col("final_metrics").list.len().fill_null(0) == 0)
    yield from _told(where, "no final metrics, and the outcome is no failure:", empty)
    stepless = runs.filter((pl.col("outcome") == "diverged") & pl.col("outcome_step").is_null())
    yield from _told(where, "diverged, and at no step:", stepless)


def _told(where: str, what: str, rows: pl.DataFrame) -> Iterator[str]:
    if len(rows):
        names = rows["run"].unique(maintain_order=True)
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        yield f"{where}: {what} {', '.join(map(str, names[:SHOWN]))}{more}"


# --- provenance, rules and what follows from the tables ------------------------------------------


def _provenance(about: Mapping[str, Any], tables: Tables) -> Iterator[str]:
    if not about:
        return
    if about.get("licence") != LICENCE:
        yield f"{PROVENANCE}: licence is {about.get('licence')!r}, and should be {LICENCE!r}"
    if not isinstance(about.get("waived"), list):
        yield f"{PROVENANCE}: waived is not a list"
    runs = sum(len(frames["runs"]) for frames in tables.values() if "runs" in frames)
    if about.get("runs") != runs:
        yield f"{PROVENANCE}: says {about.get('runs')} runs, and the tables have {runs}"


def _unwaived(folder: Path, about: Mapping[str, Any], tables: Tables) -> Iterator[str]:
    """What stands in the way of publishing, and is not told as waived."""
    kinds = {item.get("kind") for item in about["waived"] if isinstance(item, dict)}
    found = changed_rules(tables[""]["claims"])
    for where, frames in tables.items():
        if "jobs" in frames:
            found += objections(where, frames)
    yield from (
        f"{each.sentence}; remedy: {each.remedy}, or publish with waive={each.kind}"
        for each in found
        if each.kind not in kinds
    )
    yield from (
        f"{PROVENANCE}: {kind!r} is no kind of what can be waived (valid: {', '.join(WAIVERS)})"
        for kind in sorted(map(str, kinds - WAIVERS.keys()))
    )


def _rules(plan: Mapping[str, Any]) -> Iterator[str]:
    """Claims of studies whose rule is not the one that its hash is of."""
    try:
        changed = [
            claim["id"]
            for study in [*plan["studies"], *plan.get("skipped", [])]
            for claims in [study.get("claims") or []]
            for claim in claims
            if claim["rule"] != rule_hash(claim, claims, study.get("at_most_partly", ""))
        ]
    except (KeyError, TypeError, AttributeError) as error:
        yield f"{PLAN}: not the plan of a set ({error!r})"
        return
    yield from (
        f"{PLAN}: claim {name}: its rule is not the one whose hash stands beside it" for name in changed
    )


def recomputed(folder: Path) -> list[str]:
    """What `python -m reports verify` finds; in its own process, since tables know nothing of reports."""
    done = subprocess.run(
        [sys.executable, "-m", "reports", "verify", str(folder.resolve())],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 0:
        return []
    return done.stdout.splitlines() or [
        f"verdicts and leaderboard cannot be recomputed: {done.stderr.strip()}"
    ]
