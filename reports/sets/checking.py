"""Checks of a published set: its files, the cells of its plan, and the verdicts computed from its tables.

A cell of a study is a stage (tuning or final), a backend, a workload, a method and a seed, whose runs the
plan counts; a cell of property checks is a subclaim (one sentence of a claim), whose random instances the
plan counts. An objection is a reason against publishing a set, such as a failed job. Objections can be waived
by their kind.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any

import polars as pl
from polars.exceptions import PolarsError
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from curvebench.paths import PUBLISHED
from curvebench.reports.rendering import say
from curvebench.reports.sets.derived import derived, read_set
from curvebench.reports.sets.files import SPECIAL, STUDY_TABLES, TOP, files_of, sha256
from curvebench.reports.sets.objections import all_objections
from curvebench.results.archive import submission_flaws
from curvebench.results.reading import read, with_method
from curvebench.results.verdicts import RULE_VERSION, rules, satisfies
from curvebench.spec.errors import InputError, Problems
from curvebench.spec.method import Method
from curvebench.spec.plan import ChecksPlan, ReportPlan, StudyPlan
from curvebench.spec.sets import PLAN, PROVENANCE, SUMS, check_letters

# Largest relative difference between a stored and a recomputed number that counts as rounding.
ROUNDING = 1e-6
# Control characters, which a terminal would execute, and characters that cannot be encoded.
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")

SetTables = Mapping[str, Mapping[str, pl.DataFrame]]  # tables of a set by their folder, then by their name
Counts = Mapping[tuple[Any, ...], int]  # number of runs or instances by cell


class Provenance(BaseModel):
    """The part of `provenance.json` that the code reads.

    Args:
        commit: commit of the code that computed the verdicts; None if the commit is not known.
        dirty: whether files differed from the commit; None if that is not known.
        rule_version: version of the rules by which verdicts follow from runs.
        published: time of publication in ISO 8601.
    """

    model_config = ConfigDict(strict=True, extra="allow")

    commit: str | None = Field(pattern="^[0-9a-f]{40}$")
    dirty: bool | None
    rule_version: int
    published: str = Field(pattern=r"^\d{4}-\d\d-\d\d(T.*)?$")


def check(folder: Path) -> list[str]:
    """Return all reasons to refuse a set, each with the name of a file; an empty list if the set is accepted.

    Files must match the checksums, and tables must have their schema. The tables must have exactly the runs
    and the random instances that the plan counts. The stored verdicts and leaderboard must equal the verdicts
    and leaderboard computed from the tables. Nothing from the folder is executed. The rows of the table
    `runs` are trusted. To check them, `curvebench.commands.rerun` computes a random sample of the runs again.
    """
    reasons = flaws(folder) or disagreements(folder)
    return [CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", reason) for reason in reasons]


def flaws(folder: Path) -> list[str]:
    """Return the reasons to refuse a set that can be found without computing verdicts."""
    if not folder.is_dir():
        return [f"{folder}: no such folder"]
    if reasons := list(checksum_flaws(folder)):
        return reasons  # do not read files that differ from their checksums
    try:
        plan, provenance = read_set(folder), read_provenance(folder)
        check_letters(plan.published)
        if reasons := list(_layout(folder, plan)):
            return reasons
        tables, problems = dict[str, dict[str, pl.DataFrame]](), Problems()
        for path in sorted(folder.rglob("*.parquet")):
            with problems.caught():
                tables.setdefault(path.parent.name, {})[path.stem] = read([path], path.stem)
        if problems:
            return [line.removeprefix(f"{folder}/") for line in problems.lines]
        claims = tables.pop(folder.name)["claims"]
        return [
            *_cells(plan, tables),
            *_rule_hashes(plan),
            *_not_waived(provenance, plan, tables, claims),
            *submission_flaws(plan, provenance.published, (PUBLISHED, folder.parent)),
        ]
    except InputError as error:
        return [str(error).removeprefix(f"{folder}/")]
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError, PolarsError) as error:
        return [f"{PLAN}: not the plan of a set ({type(error).__name__}: {error})"]


# --- files ---------------------------------------------------------------------------------------


def checksum_flaws(folder: Path) -> Iterator[str]:
    """Yield a sentence for each file that is missing, changed, or absent from the checksums."""
    if (folder / SUMS).is_symlink() or not (folder / SUMS).is_file():
        yield f"{SUMS}: is missing, a link, or no file; get the set's folder again"
        return
    lines = (folder / SUMS).read_text(errors="replace").splitlines()
    sums = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    names = files_of(folder)
    for name in names:
        if (folder / name).is_symlink() or not (folder / name).is_file():
            yield f"{name}: a link, or no file; remove it"
        elif name not in sums:
            yield f"{name}: is not among the checksums; remove it"
        elif (digest := sha256(folder / name)) != sums[name]:
            yield (
                f"{name}: is not the file that the checksum is of: its SHA-256 begins with {digest[:12]}, "
                f"and {SUMS} has {sums[name][:12]}; it was changed or damaged since the set was published"
            )
    yield from (f"{name}: is missing; {SUMS} names it" for name in sorted(sums.keys() - set(names)))


def read_provenance(folder: Path) -> Provenance:
    """Read the `provenance.json` of a set.

    Raises:
        InputError: when the file lacks a key, or when the set's verdicts were computed by another version of
            the rules than the version of this code.
    """
    try:
        provenance = Provenance.model_validate_json((folder / PROVENANCE).read_bytes())
    except (OSError, ValidationError) as error:
        raise InputError(f"{PROVENANCE}: not that of a set ({error})") from error
    if provenance.rule_version != RULE_VERSION:
        raise InputError(
            f"{PROVENANCE}: verdicts by version {provenance.rule_version} of the rules, and here is version "
            f"{RULE_VERSION}; check it with its own commit, {provenance.commit}, or derive it anew with "
            "curvebench sets renew"
        )
    return provenance


def _layout(folder: Path, plan: ReportPlan) -> Iterator[str]:
    """Yield a sentence for each missing or superfluous file, and for each folder in the plan that is outside
    the set.
    """
    if plan.verdicts != folder:
        yield f"{PLAN}: verdicts should be the folder of the set"
    tables = {name: part.tables for name in SPECIAL if (part := getattr(plan, name)) is not None}
    tables |= {study.name: (study.tables,) for study in plan.studies}
    for name, folders in tables.items():
        if tuple(folders) != (folder / name,):
            yield f"{PLAN}: the tables of {name} should lie in the folder {name}, and no others"
    needed = TOP | {f"{name}/{table}.parquet" for name in tables for table in SPECIAL.get(name, STUDY_TABLES)}
    present = set(files_of(folder))
    yield from (f"{name}: a set needs this file" for name in sorted(needed - present))
    yield from (f"{name}: a set has no such file; remove it" for name in sorted(present - needed))


# --- cells of the plan ---------------------------------------------------------------------------


def _cells(plan: ReportPlan, tables: SetTables) -> Iterator[str]:
    """Yield a sentence for each table whose cells differ from the cells of the plan.

    A cell is a combination of stage, backend, workload, method and seed, or a subclaim of property checks.
    The runs or instances of each cell are counted.
    """
    for study in plan.studies:
        runs = with_method(tables[study.name]["runs"]).filter(pl.col("stage") != "alternative")
        counts = runs.group_by("stage", "backend", "workload", "method", "seed").len()
        present = {tuple(cell): count for *cell, count in counts.rows()}
        yield from _unplanned(f"{study.name}/runs.parquet", "runs", _runs_planned(study), present)
    if plan.checks:
        checks = tables["checks"]["checks"]
        # The search for the worst case of a bound adds at least one instance; further ones are not planned.
        planned = {
            (claim.id, part.part, part.variant): part.instances + part.bound
            for claim in plan.checks.claims
            for part in claim.parts
            if not claim.missing
        }
        counts = checks.group_by("claim", "part", "variant").agg(pl.col("instance").n_unique())
        present = {tuple(cell): min(count, planned.get(tuple(cell), count)) for *cell, count in counts.rows()}
        yield from _unplanned("checks/checks.parquet", "instances", planned, present)
        yield from _wrongly_held(plan.checks, checks)


def _unplanned(file: str, unit: str, planned: Counts, present: Counts) -> Iterator[str]:
    """Yield a sentence if the number of runs or instances of a cell in a table differs from the plan.

    Args:
        file: name of the table's file.
        unit: "runs" or "instances", the things that are counted.
        planned: number of runs or instances by cell, in the plan.
        present: number of runs or instances by cell, in the table.
    """
    wrong = sorted(cell for cell in {*planned, *present} if planned.get(cell, 0) != present.get(cell, 0))
    if wrong:
        counts = f"{present.get(wrong[0], 0)} {unit}, and the plan has {planned.get(wrong[0], 0)}"
        more = f"; {len(wrong) - 1} more cells likewise" if len(wrong) > 1 else ""
        yield f"{file}: {', '.join(str(name) for name in wrong[0] if name != '')}: {counts}{more}"


def _runs_planned(study: StudyPlan) -> Counts:
    """Count the runs in a study's plan by stage, backend, workload, method and seed.

    The stage is `tuning`, for the runs of all tuning rounds together, or `final`.
    """
    planned = {}
    workloads = [workload.name for workload in study.workloads]
    for backend, workload, method in product(study.backends, workloads, study.methods):
        optimizer, basis = Method.of(method)
        spec = study.optimizer(optimizer)
        only, tries = spec.only_backend, sum(study.tuning.for_optimizer(spec).rounds)
        if only not in (None, backend):
            continue
        for seed in range(study.runs_on[backend].final_seeds):
            planned["final", backend, workload, method, study.first_final_seed + seed] = 1
        if study.tuning.tries(basis):
            for seed in range(study.seeds.tuning):
                cell = ("tuning", only or study.tuned_on[backend], workload, method)
                planned[*cell, study.first_tuning_seed + seed] = tries
    return planned


def _wrongly_held(plan: ChecksPlan, checks: pl.DataFrame) -> Iterator[str]:
    """Yield a sentence if the column `holds` of a row disagrees with the row's measured value and limit."""
    sampled = {
        (claim.id, part.part, part.variant) for claim in plan.claims for part in claim.parts if part.sampled
    }
    columns = ("claim", "part", "variant", "value", "relation", "limit", "tolerance", "holds")
    rows = checks.with_columns(pl.col("variant", "relation").cast(pl.String)).select(columns).rows()
    wrong = [
        f"claim {claim}, part {part}: holds is {holds}"
        for claim, part, variant, value, relation, limit, tolerance, holds in rows
        if satisfies(value, relation, limit, tolerance, (claim, part, variant) in sampled) != holds
    ]
    if wrong:
        yield (
            f"checks/checks.parquet: {wrong[0]}, and should be what its numbers give; "
            f"{len(wrong)} measures in all"
        )


# --- rules and objections ------------------------------------------------------------------------


def _rule_hashes(plan: ReportPlan) -> Iterator[str]:
    """Yield a sentence for each claim whose hash in the plan is not the current hash of the claim's rule."""
    for study in (*plan.studies, *plan.skipped):
        for claim, computed in rules(study).items():
            if (recorded := study.rules.get(claim)) != computed:
                yield (
                    f"{PLAN}: claim {claim}: its rule is not the one whose hash stands beside it: "
                    f"{recorded}, and the hash of what stands there is {computed}"
                )


def _not_waived(
    origin: Provenance, plan: ReportPlan, tables: SetTables, claims: pl.DataFrame
) -> Iterator[str]:
    """Yield a sentence for each objection whose kind was not waived when the set was published."""
    waived = {objection.kind for objection in plan.waived}
    for objection in all_objections((origin.commit, origin.dirty), plan, tables, claims):
        if objection.kind not in waived:
            sentence, remedy = (say("objections.jinja", macro, objection) for macro in ("sentence", "remedy"))
            yield f"{sentence}; remedy: {remedy}, or publish with waive={objection.kind}"


# --- verdicts and leaderboard --------------------------------------------------------------------


def disagreements(folder: Path) -> list[str]:
    """Compare the tables claims, findings and leaderboard of a set with tables computed from its runs.

    Returns:
        A sentence for each table that differs from the computed table.

    Raises:
        InputError: when the set cannot be read.
    """
    differences = []
    for table, computed in derived(read_set(folder)).items():
        stored = read([folder / f"{table}.parquet"], table)
        differences.append(_first_difference(f"{table}.parquet", stored.to_dicts(), computed.to_dicts()))
    return [difference for difference in differences if difference]


def _first_difference(file: str, stored: list[dict[str, Any]], computed: list[dict[str, Any]]) -> str:
    """Return a sentence about the first stored value that differs from the computed value.

    The result is empty if all values are equal.

    Args:
        file: name of the stored file, for the sentence.
        stored: rows of the file.
        computed: rows computed from the tables.
    """
    if len(stored) != len(computed):
        return f"{file}: has {len(stored)} rows, and the tables give {len(computed)}"
    for number, rows in enumerate(zip(stored, computed, strict=True), start=1):
        for key in dict.fromkeys(key for row in rows for key in row):
            values = [row.get(key) for row in rows]
            if not nearly_equal(*values):
                text, correct = (str(value)[:60] for value in values)
                named = " ".join(str(rows[0][name]) for name in ("id", "claim", "method") if name in rows[0])
                return f"{file}: row {number} ({named}): {key} is {text!r}, and the tables give {correct!r}"
    return ""


def nearly_equal(first: Any, second: Any) -> bool:
    """Return whether two values of a table are equal except for rounding; two NaN count as equal."""
    if isinstance(first, float) and isinstance(second, float):
        both_nan = math.isnan(first) and math.isnan(second)
        return both_nan or math.isclose(first, second, rel_tol=ROUNDING)
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        return first.keys() == second.keys() and all(nearly_equal(first[key], second[key]) for key in first)
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(map(nearly_equal, first, second))
    return bool(first == second)
