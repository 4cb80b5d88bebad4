"""Whether a published set, one's own or a stranger's, can be believed: `python -m results check`."""

from __future__ import annotations

import json
import operator
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import polars as pl
from pydantic import ValidationError

from results import flaws
from results.check_flaws import of_checks
from results.errors import TableError
from results.methods import IDENTITY
from results.parity_flaws import of_parity
from results.provenance import PROJECT
from results.publishing import (
    LICENCE,
    PLAN,
    PROVENANCE,
    STUDY_TABLES,
    Objection,
    all_jobs,
    changed_rules,
    files_of,
    objections,
    provenance_of,
    sha256,
    unclean,
)
from results.reading import read
from results.run_flaws import left_open
from results.schema import TABLES, TUNING
from results.sentences import differences
from results.set_names import SUMS, WAIVERS
from results.set_plan import Claim, SetPlan
from results.verdicts import RULE_VERSION, rule_hash

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
OPTIONAL = {"checks": ("series",)}  # what sets that were published before do not hold
LINE = re.compile(r"(?P<digest>[0-9a-f]{64})  (?P<name>.+)")
CONTROL = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]"
)  # what a terminal would obey, or refuse

Tables = Mapping[str, Mapping[str, pl.DataFrame]]


Judgement = Literal["accepted", "refused", "not wholly checkable here"]


def judged(folder: Path) -> tuple[Judgement, list[str]]:
    """What is to be said of a set, and why: all reasons to refuse it at once, or how to check the rest of it.

    Nothing from the folder is executed. What its verdicts and records say plays no part, only whether they
    follow from its tables.
    """
    found = unfounded(folder)
    if not found:
        about = json.loads((folder / PROVENANCE).read_text())
        if (version := about.get("rule_version")) != RULE_VERSION and type(version) is int:
            return "not wholly checkable here", [
                _plain(told) for told in _by_other_rules(folder, version, about["commit"])
            ]
        found = recomputed(folder)
    return ("refused" if found else "accepted"), [_plain(told) for told in found]


def _by_other_rules(folder: Path, version: int, revision: str | None) -> Iterator[str]:
    """What was found right in a set by another version of the rules, and what checks the rest.

    Args:
        revision: the commit of the code that computed its verdicts.
    """
    yield f"verdicts by version {version} of the rules, and here is version {RULE_VERSION}"
    yield "found right: checksums, tables, provenance, what was waived, and the hashes of its rules"
    yield "not checked: claims, findings, leaderboard and pages"
    if revision is None:
        yield "no commit is known to have the code that computed these"
    else:
        there = f"../curvebench-at-{revision[:12]}"
        yield "these are checked by the code that computed them, in the project's folder:"
        yield f"  git worktree add {shlex.quote(there)} {revision}"
        yield f"  cd {shlex.quote(there)} && python -m results check {shlex.quote(str(folder.resolve()))}"


def unchecked(folder: Path) -> list[str]:
    """What an accepted set says that nothing in it can show, because what it was computed from is not there.

    Raises:
        TableError: when a table is missing or damaged.
    """
    plan = SetPlan.model_validate_json((folder / PLAN).read_text())
    thinned = json.loads((folder / PROVENANCE).read_text())["thinned_curves"]
    found = []
    for study in plan.studies:
        runs = read([folder / study.name / "runs.parquet"], "runs")
        tuning = len(runs.filter(pl.col("stage").is_in(TUNING)))
        where = f"{study.name}/runs.parquet"
        if tuning:
            found.append(
                f"{where}: metrics and steps to targets of {tuning} tuning runs: their curves are not here"
            )
        if study.name in thinned:
            found.append(f"{where}: best metrics and steps to targets between the checkpoints that are left")
        if study.needs_hessian is None:
            found.append(
                f"{where}: how many gradient evaluations a step takes: plan.json does not say which "
                "optimizers need a Hessian"
            )
        if study.budget.steps is None and any(one.settings.batch_size for one in study.workloads):
            found.append(f"{where}: how many steps {study.budget.epochs} epochs have: the data are not here")
        found += left_open(study, runs)
        bases = runs.filter(pl.col("basis") != IDENTITY)
        if len(bases):
            found.append(
                f"{where}: seconds that the bases of {len(bases)} runs took: their jobs are not here"
            )
        multiples = [label for label, basis in study.bases.items() if isinstance(basis.samples, str)]
        if count := len(bases.filter(pl.col("basis").is_in(multiples))):
            found.append(
                f"{where}: how many gradients the bases of {count} runs sampled, beyond that all sampled as "
                "many: plan.json gives a multiple of d"
            )
        together = read([folder / study.name / "jobs.parquet"], "jobs").filter(
            pl.col("optimizer").is_null() & (pl.col("stage") == "timing")
        )
        if len(together):
            found.append(
                f"{study.name}/timings.parquet: whose times and bytes are whose within {len(together)} jobs: "
                "each timed several methods"
            )
    found += [f"{PLAN}: that {each.name} could not be run: {each.reason}" for each in plan.skipped]
    if plan.parity:
        count = len(read([folder / "parity/parity.parquet"], "parity"))
        found.append(
            f"parity/parity.parquet: first_step and difference of {count} comparisons: the arrays that "
            "they are of are not here; python -m harness parity computes them anew"
        )
    if plan.checks:
        count = len(read([folder / "checks/checks.parquet"], "checks"))
        found.append(
            f"checks/checks.parquet: {count} values: the instances that they are of are not here; "
            "python -m harness checks draws them anew"
        )
        found += _not_asked(plan.checks.claims, count)
        missing = [claim for claim in plan.checks.claims if claim.missing]
        found += [f"{PLAN}: that {claim.id} could not be checked: {claim.missing}" for claim in missing]
    return [_plain(told) for told in found]


def _not_asked(claims: Sequence[Claim], rows: int) -> Iterator[str]:
    """What plan.json does not say of the measures of property checks."""
    known = [claim.parts for claim in claims if claim.parts is not None]
    if len(known) < len(claims):
        yield (
            f"checks/checks.parquet: whether {rows} measures are all that were asked for, and their "
            "relations, limits and tolerances: plan.json does not have the parts of its claims"
        )
    asks = [ask for parts in known for part in parts for ask in part.asks]
    for name in ("limit", "tolerance"):
        count = sum(getattr(ask, name) is None for ask in asks)
        if count:
            yield (
                f"checks/checks.parquet: the {name} of {count} of {len(asks)} quantities: it is computed for "
                "each instance"
            )


def _plain(told: str) -> str:
    """A complaint without characters that a terminal would obey: a set's names are a stranger's."""
    return CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", told)


def unfounded(folder: Path) -> list[str]:
    """The complaints that need no verdict to be computed."""
    if not folder.is_dir():
        return [f"{folder}: no such folder"]
    found = [*_sums(folder)]
    if found:
        return found  # what lies there is not what was written: nothing else can be relied on
    tables, broken = _read(folder)
    raw, about = (_json(folder / name, found) for name in (PLAN, PROVENANCE))
    found += broken
    plan = _plan(raw, found) if raw else None
    if plan is None:
        return found
    found += _layout(folder, plan)
    if found:
        return found  # the rest needs all tables
    thinned, whole = (about.get(f"{kind}_curves") for kind in ("thinned", "whole"))
    for where, frames in tables.items():
        if where:
            found += flaws.of_folder(where, frames)
            found += flaws.of_scale(where, frames, plan.scale)
    for study in plan.studies:
        cut, kept = (isinstance(names, list) and study.name in names for names in (thinned, whole))
        found += flaws.of_study(study, tables[study.name], cut, kept)
    if plan.parity:
        found += of_parity(plan.parity, tables["parity"]["parity"])
    if plan.checks:
        found += of_checks(plan, tables["checks"]["checks"])
    found += _provenance(about, plan, tables)
    if not found:
        found += _waived(about, plan, tables)
        found += _rules(raw, about.get("rule_version", RULE_VERSION))
    return found


# --- files ---------------------------------------------------------------------------------------


def _sums(folder: Path) -> Iterator[str]:
    """Missing, changed and further files."""
    if (folder / SUMS).is_symlink() or ((folder / SUMS).exists() and not (folder / SUMS).is_file()):
        yield f"{SUMS}: a link, or no file; a set holds files"
        return
    try:
        lines = (folder / SUMS).read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        yield f"{SUMS}: cannot be read ({error}); get the set's folder again, or write it with sha256sum"
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
        elif not (folder / name).is_file():
            yield f"{name}: neither a file nor a folder; remove it"
        elif name not in said:
            yield f"{name}: is not among the checksums; remove it"
        elif (digest := sha256(folder / name)) != said[name]:
            yield (
                f"{name}: is not the file that the checksum is of: its SHA-256 begins with {digest[:12]}, "
                f"and {SUMS} has {said[name][:12]}; it was changed or damaged since the set was published"
            )
    yield from (f"{name}: is missing; {SUMS} names it" for name in sorted(set(said) - set(there)))


def _plan(raw: Mapping[str, Any], found: list[str]) -> SetPlan | None:
    """What a plan asks; complaints and None where it is the plan of no set."""
    if not raw.get("published"):
        found.append(f"{PLAN}: names no published set; a set is what snakemake publish writes")
        return None
    try:
        return SetPlan.model_validate(raw)
    except ValidationError as error:
        found += [
            f"{PLAN}: {'.'.join(map(str, flaw['loc']))}: {flaw['msg']}; publish wrote it otherwise"
            for flaw in error.errors(include_url=False)[: flaws.SHOWN]
        ]
        return None


def _layout(folder: Path, plan: SetPlan) -> Iterator[str]:
    """Files that a set has or may not have, and folders that the plan calls otherwise."""
    others = [name for name in SPECIAL if getattr(plan, name)]
    names = [study.name for study in plan.studies]
    folders = [(name, [name], getattr(plan, name).tables) for name in others]
    folders += [(study.name, [study.name], [study.tables]) for study in plan.studies]
    yield from (
        f"{PLAN}: the tables of {name} lie in {', '.join(given)}, and should lie in {name}"
        for name, right, given in folders
        if given != right
    )
    yield from (
        f"{PLAN}: the study {name} is there twice, or called like another folder of a set"
        for name in sorted({name for name in names if names.count(name) > 1} | (set(names) & SPECIAL.keys()))
    )
    needed = TOP | {f"{name}/{table}.parquet" for name in names for table in STUDY_TABLES}
    needed |= {f"{name}/{table}.parquet" for name in others for table in SPECIAL[name]}
    there = set(files_of(folder))
    yield from (f"{name}: a set needs this file" for name in sorted(needed - there))
    allowed = needed | {f"{name}/{table}.parquet" for name in others for table in OPTIONAL.get(name, ())}
    yield from (f"{name}: a set has no such file; remove it" for name in sorted(there - allowed))


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
            broken.append(str(error).removeprefix(f"{folder}/"))
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
    except (OSError, ValueError, RecursionError) as error:
        found.append(f"{path.name}: cannot be read as JSON ({error})")
        return {}
    if isinstance(content, dict) and content:
        return content
    found.append(f"{path.name}: holds no JSON object with keys")
    return {}


# --- provenance, rules and what follows from the tables ------------------------------------------


def _provenance(about: Mapping[str, Any], plan: SetPlan, tables: Tables) -> Iterator[str]:
    """What provenance.json says otherwise than plan and tables."""
    where = [*(study.name for study in plan.studies), *(name for name in SPECIAL if getattr(plan, name))]
    runs = sum(len(tables[study.name]["runs"]) for study in plan.studies)
    right = {
        "name": plan.published,
        "scale": plan.scale,
        "licence": LICENCE,
        **provenance_of(all_jobs([tables[name]["jobs"] for name in where]), runs),
    }
    for key, value in right.items():
        for what, said, wanted in differences(about.get(key), value, operator.eq, key):
            yield f"{PROVENANCE}: {what} is {said}, and plan and tables give {wanted}"
    if not _is_time(about.get("published")):
        yield f"{PROVENANCE}: published is {about.get('published')!r}, and should be a date like 2026-11-21"
    commit, dirty = about.get("commit"), about.get("dirty")
    is_commit = isinstance(commit, str) and flaws.COMMIT.fullmatch(commit)
    if not (commit is None or is_commit) or dirty not in (None, False, True):
        yield (
            f"{PROVENANCE}: commit is {commit!r} and dirty {dirty!r}, and should be 40 hexadecimal digits, "
            "and whether files differed from that commit"
        )
    thinned = about.get("thinned_curves")
    if not isinstance(thinned, list) or not all(name in where for name in thinned):
        yield f"{PROVENANCE}: thinned_curves should be a list of the set's studies ({', '.join(where)})"


def _is_time(value: Any) -> bool:
    try:
        return bool(datetime.fromisoformat(value))
    except (TypeError, ValueError):
        return False


def _waived(about: Mapping[str, Any], plan: SetPlan, tables: Tables) -> Iterator[str]:
    """What stands in the way of publishing and is not told as waived, and what is told and is not so."""
    found: list[Objection] = unclean((about["commit"], about["dirty"]))
    tried = {study.name: study.tuning.tried_in for study in plan.studies}
    for where in [*tried, *(name for name in SPECIAL if name in tables)]:
        found += objections(where, tables[where], tried.get(where))
    found += changed_rules(tables[""]["claims"])
    said = about.get("waived")
    for each in found:
        if not isinstance(said, list) or each.told not in said:
            yield f"{each.sentence}; remedy: {each.remedy}, or publish with waive={each.kind}"
    if said != [each.told for each in found]:
        yield (
            f"{PROVENANCE}: waived is not the list of what stands in the way of publishing: {_listed(found)} "
            f"(kinds: {', '.join(WAIVERS)})"
        )
    if plan.waived != [each.sentence for each in found]:
        yield f"{PLAN}: waived is not the list of what stands in the way of publishing: {_listed(found)}"


def _listed(found: Sequence[Objection]) -> str:
    return "; ".join(each.sentence for each in found) or "nothing does"


def _rules(plan: Mapping[str, Any], version: int) -> Iterator[str]:
    """Claims of studies whose rule, by the version that the set names, is not the one that its hash is of."""
    try:
        changed = [
            (claim["id"], claim["rule"], right)
            for study in [*plan["studies"], *plan.get("skipped", [])]
            for claims in [study.get("claims") or []]
            for claim in claims
            for right in [rule_hash(claim, claims, study.get("at_most_partly", ""), version)]
            if claim["rule"] != right
        ]
    except (KeyError, TypeError, AttributeError) as error:
        what = f"the key {error}" if isinstance(error, KeyError) else f"what a claim has ({error})"
        yield f"{PLAN}: not the plan of a set, it lacks {what}"
        return
    yield from (
        f"{PLAN}: claim {name}: its rule is not the one whose hash stands beside it: {said}, and the hash of "
        f"what stands there is {right}"
        for name, said, right in changed
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
