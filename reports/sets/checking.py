"""Whether a published set is whole, holds what its plan asks, and says what its own tables give."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import polars as pl
from polars.exceptions import PolarsError
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from curvebench.reports.sets.contents import all_jobs, provenance_of
from curvebench.reports.sets.derived import derived, read_set, texts
from curvebench.reports.sets.files import LICENCE, SPECIAL, STUDY_TABLES, TOP, files_of, sha256
from curvebench.reports.sets.objections import all_objections, remedy, sentence
from curvebench.reports.sets.rows import ROWS, broken_rows, named_row
from curvebench.results.merging import model_seconds, unmodelled
from curvebench.results.reading import read
from curvebench.results.verdicts import RULE_VERSION, rules
from curvebench.spec.archive import unjoined
from curvebench.spec.errors import InputError
from curvebench.spec.plan import ReportPlan
from curvebench.spec.sets import FOLDER, PLAN, PROVENANCE, SUMS

EQUAL = 1e-6  # relative: what another processor's rounding may change of a number that is computed anew
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")  # what a terminal would obey

Tables = Mapping[str, Mapping[str, pl.DataFrame]]


class Revision(BaseModel):
    """A commit, and whether files differed from it; None where that is not known."""

    model_config = ConfigDict(strict=True, extra="allow")

    commit: str | None = Field(pattern="^[0-9a-f]{40}$")
    dirty: bool | None


class Provenance(Revision):
    """What `provenance.json` holds; jobs, machines and environments are compared with the tables."""

    rule_version: int
    published: str = Field(pattern=r"^\d{4}-\d\d-\d\d(T.*)?$")
    thinned_curves: list[str]
    whole_curves: list[str]


def check(folder: Path) -> list[str]:
    """All reasons to refuse a set, each naming its file; none where nothing is wrong.

    Files are those of the checksums, tables have their schema, the cells of the plan are all there and no
    others, and what follows from tables is what they give: metrics and steps to targets from curves, chosen
    settings from tuning, verdicts and leaderboard from runs. Nothing from the folder is executed, and what
    its results say plays no part. Whether the runs happened is for `curvebench.commands.rerun` to find.
    """
    found = flaws(folder) or disagreements(folder)
    return [CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", reason) for reason in found]


def flaws(folder: Path) -> list[str]:
    """The reasons that need no verdict to be computed."""
    if not folder.is_dir():
        return [f"{folder}: no such folder"]
    if found := list(checksum_flaws(folder)):
        return found  # what lies there is not what was written: nothing else can be relied on
    try:
        plan = read_set(folder)
        about = read_provenance(folder)
        if found := list(_layout(folder, plan)):
            return found
        tables = _read(folder, found)
        if found:
            return found
        for study in plan.studies:
            frames = tables[study.name]
            modelled = model_seconds(unmodelled(frames["runs"]), frames["timings"])
            found += _differences(f"{study.name}/", "runs", frames["runs"].select("run", "targets"), modelled)
        return [
            *broken_rows(plan, tables, about.thinned_curves, about.whole_curves),
            *found,
            *_provenance(about, plan, tables),
            *_rule_hashes(plan),
            *_waived(about, plan, tables, read([folder / "claims.parquet"], "claims")),
            *unjoined(plan, about.published, (FOLDER, folder.parent)),
        ]
    except InputError as error:
        return [str(error).removeprefix(f"{folder}/")]
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError, PolarsError) as error:
        return [f"{PLAN}: not the plan of a set ({type(error).__name__}: {error})"]


# --- files ---------------------------------------------------------------------------------------


def checksum_flaws(folder: Path) -> Iterator[str]:
    """Missing, changed and further files."""
    if (folder / SUMS).is_symlink() or not (folder / SUMS).is_file():
        yield f"{SUMS}: is missing, a link, or no file; get the set's folder again"
        return
    lines = (folder / SUMS).read_text(errors="replace").splitlines()
    sums = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    there = files_of(folder)
    for name in there:
        if (folder / name).is_symlink():
            yield f"{name}: a link; a set holds files"
        elif not (folder / name).is_file():
            yield f"{name}: neither a file nor a folder; remove it"
        elif name not in sums:
            yield f"{name}: is not among the checksums; remove it"
        elif (digest := sha256(folder / name)) != sums[name]:
            yield (
                f"{name}: is not the file that the checksum is of: its SHA-256 begins with {digest[:12]}, "
                f"and {SUMS} has {sums[name][:12]}; it was changed or damaged since the set was published"
            )
    yield from (f"{name}: is missing; {SUMS} names it" for name in sorted(sums.keys() - set(there)))


def read_provenance(folder: Path) -> Provenance:
    """What a set says of its jobs, machines and versions.

    Raises:
        InputError: when it does not say it, or its verdicts are by other rules than those of this code.
    """
    try:
        about = Provenance.model_validate_json((folder / PROVENANCE).read_bytes())
    except (OSError, ValidationError) as error:
        raise InputError(f"{PROVENANCE}: not that of a set ({error})") from error
    if about.rule_version != RULE_VERSION:
        raise InputError(
            f"{PROVENANCE}: verdicts by version {about.rule_version} of the rules, and here is version "
            f"{RULE_VERSION}; check it with its own commit, {about.commit}, or derive it anew with "
            "curvebench sets renew"
        )
    return about


def _layout(folder: Path, plan: ReportPlan) -> Iterator[str]:
    """Files that a set has or may not have, and folders that the plan calls otherwise."""
    special = {name: part.tables for name in SPECIAL if (part := getattr(plan, name)) is not None}
    places = [*special.items(), *((study.name, (study.tables,)) for study in plan.studies)]
    names = [name for name, _ in places]
    if plan.verdicts != folder:
        yield f"{PLAN}: verdicts should be the folder of the set"
    for name, given in places:
        if names.count(name) > 1 or tuple(given) != (folder / name,):
            yield f"{PLAN}: the tables of {name} should lie in the folder {name}, and no others"
    tables = {name: SPECIAL.get(name, STUDY_TABLES) for name in names}
    needed = TOP | {f"{name}/{table}.parquet" for name in names for table in tables[name]}
    there = set(files_of(folder))
    yield from (f"{name}: a set needs this file" for name in sorted(needed - there))
    yield from (f"{name}: a set has no such file; remove it" for name in sorted(there - needed))


def _read(folder: Path, found: list[str]) -> Tables:
    """The tables by folder; what cannot be read, or has another schema, is added to `found`."""
    tables: dict[str, dict[str, pl.DataFrame]] = {}
    for path in sorted(folder.rglob("*.parquet")):
        try:
            frame = read([path], path.stem)
        except InputError as error:
            found.append(str(error).removeprefix(f"{folder}/"))
            continue
        if path.parent != folder:
            tables.setdefault(path.parent.name, {})[path.stem] = frame
    return tables


# --- provenance, and what was waived -------------------------------------------------------------


def _provenance(about: Provenance, plan: ReportPlan, tables: Tables) -> Iterator[str]:
    """What provenance.json says otherwise than plan and tables."""
    runs = sum(len(tables[study.name]["runs"]) for study in plan.studies)
    right = {
        "name": plan.published,
        "scale": plan.scale,
        "licence": LICENCE,
        **provenance_of(all_jobs(frames["jobs"] for frames in tables.values()), runs),
    }
    given = about.model_dump()
    for key, value in right.items():
        if given.get(key) != value:
            yield f"{PROVENANCE}: {key} is {given.get(key)}, and plan and tables give {value}"
    for name in {*about.thinned_curves, *about.whole_curves} - set(tables):
        yield f"{PROVENANCE}: thinned_curves names {name}, and the set has no such study"


def _rule_hashes(plan: ReportPlan) -> Iterator[str]:
    """Claims of studies whose rule is not the one that its hash is of."""
    for study in (*plan.studies, *plan.skipped):
        for claim, right in rules(study).items():
            if (given := study.rules.get(claim)) != right:
                yield (
                    f"{PLAN}: claim {claim}: its rule is not the one whose hash stands beside it: "
                    f"{given}, and the hash of what stands there is {right}"
                )


def _waived(about: Provenance, plan: ReportPlan, tables: Tables, claims: pl.DataFrame) -> Iterator[str]:
    """Say what stands in the way of publishing and is not waived, and what is waived and does not."""
    found = all_objections((about.commit, about.dirty), plan, tables, claims)
    for each in found:
        if each not in plan.waived:
            yield f"{sentence(each)}; remedy: {remedy(each)}, or publish with waive={each.kind}"
    yield from (
        f"{PLAN}: waived: {sentence(each)}: nothing of that kind stands in the way"
        for each in plan.waived
        if each not in found
    )


# --- what follows from the tables ----------------------------------------------------------------


def disagreements(folder: Path) -> list[str]:
    """Return where claims, findings and leaderboard of a set are not those that its tables give.

    Raises:
        InputError: when the set cannot be read.
    """
    plan, found = read_set(folder), list[str]()
    for table, computed in derived(plan).items():
        found += _differences("", table, read([folder / f"{table}.parquet"], table), computed)
    if found:
        return found
    # of the leaderboard as it is given, so that rounding makes no other text
    board = read([folder / "leaderboard.parquet"], "leaderboard")
    for name, text in texts(board).items():
        if (folder / name).read_text() != text:
            found.append(
                f"{name}: is not what the table leaderboard gives; run curvebench sets renew"
            )
    return found


def _differences(where: str, table: str, given: pl.DataFrame, right: pl.DataFrame) -> Iterator[str]:
    """A sentence on each column that is not what the tables give: its first row, and how many more.

    Args:
        where: the table's folder, with a slash; empty of those at the top.
    """
    file = f"{where}{table}.parquet"
    if len(given) != len(right):
        yield f"{file}: has {len(given)} rows, and the tables give {len(right)}"
        return
    for name in given.columns:
        if given[name].equals(right[name]):
            continue
        pairs = zip(given[name].to_list(), right[name].to_list(), strict=True)
        wrong = [number for number, pair in enumerate(pairs) if not alike(*pair)]
        if wrong:
            here, wanted = (frame[name][wrong[0]] for frame in (given, right))
            values = f" is {here}, and the tables give {wanted}"
            if given.schema[name].is_nested():
                values = " are not what the tables give"
            more = f"; {len(wrong) - 1} more rows likewise" if len(wrong) > 1 else ""
            row = named_row(ROWS[table], given.row(wrong[0], named=True))
            yield f"{file}: {row}: {name}{values}{more}"


def alike(left: Any, right: Any) -> bool:
    """Whether two values of a table are equal but for rounding; NaN is like NaN."""
    if isinstance(left, float) and isinstance(right, float):
        both_nan = math.isnan(left) and math.isnan(right)
        return both_nan or math.isclose(left, right, rel_tol=EQUAL)
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return left.keys() == right.keys() and all(alike(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(alike, left, right))
    return bool(left == right)
