"""Find from git when the limits of claims were registered: `python -m benchmarks.registration`.

The limits of a claim are the relations and the numbers by which it is decided, such as targets, floors and
smallest effects, and the number of comparisons. A published set with a verdict on the claim is a look at its
outcome. If the limits were committed before the first look, they cannot have been chosen by the outcome. If
they changed after a look, the claim is exploratory until it is decided by data that did not exist at that
time. The program finds such changes by itself: it compares the limits at each commit with the sets that
existed at that commit.

Runs that were never committed leave no trace but words. The limits of a property claim may have changed
before its first set was published, and after runs of its author. Such a claim is found by the words of its
setting (`NOTE`).

The program writes `results/published/registration.json`, which reports read
(`curvebench.reports.claims.registration`). It needs the whole history of the repository, which reports do not
have.
"""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
from ruamel.yaml import YAML

from curvebench.paths import PUBLISHED
from curvebench.reports.claims.registration import FILE, Registration
from curvebench.results.temporary import write_texts
from curvebench.spec.document import under_first_names

STUDIES = "benchmarks/studies/*.yaml"
SETS = f"{PUBLISHED.as_posix()}/*"
NUMBER = re.compile(r"([-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?)( ?%)?", re.IGNORECASE)
# A part of a sentence that says that limits of a claim were chosen after runs
NOTE = re.compile(
    r"(?:(?!\. )[^;()])*\b(?:was asked until|given up after|limits were chosen after)\b(?:(?!\. )[^;()])*",
    re.IGNORECASE,
)
# Keys of a condition that name methods, which are counted
METHODS = {"better", "no_worse", "same", "than", "gain_from", "gain_to"}
# Keys of a condition that are no terms: they are counted, or words for readers
NOT_LIMITS = METHODS | {"pairs", "workload", "family", "positive_control"}


class ConditionLimits(NamedTuple):
    """Limits of a condition of a claim.

    Args:
        terms: the relation that is claimed, what is compared, and all numbers, as JSON.
        comparisons: number of comparisons of two methods on a workload.
        workloads: labels of the workloads.
    """

    terms: str
    comparisons: int
    workloads: frozenset[str]


# Limits of a claim. If a study decides the claim, each condition has limits.
# If property checks decide the claim: limit by quantity of a subclaim, and whether all instances satisfy it.
# A limit of a quantity is None if instances have different limits.
Limits = tuple[ConditionLimits, ...] | dict[tuple[str, ...], tuple[float | None, bool]]


class LimitsSince(NamedTuple):
    """The limits of a claim since a commit, and the time of that commit in ISO format."""

    commit: str
    time: str
    limits: Limits


class FileChange(NamedTuple):
    """A commit that changed files, and the content of each file before and after; None for no such file."""

    commit: str
    time: str
    files: dict[str, tuple[bytes | None, bytes | None]]


def changes(root: Path, pattern: str, kinds: str) -> list[FileChange]:
    """Return the commits that changed files, oldest first, without merges.

    Merges are left out, because a merge brings no limits of its own. Only the changes of each commit to its
    parent count, in the order of time.

    Args:
        root: folder of the repository.
        pattern: pattern of the paths of the files, as git understands it.
        kinds: kinds of changes, such as `A` for added files and `AMD` for all files.
    """

    def git(*arguments: str, text: str = "") -> bytes:
        command = ["git", *arguments]
        environment = os.environ | {"TZ": "UTC"}  # the times of commits are compared as texts
        options: Any = {"cwd": root, "env": environment, "input": text.encode(), "stdout": subprocess.PIPE}
        return subprocess.run(command, check=True, **options).stdout

    listing = (
        "--no-merges",
        "--no-renames",
        f"--diff-filter={kinds}",
        "--date=format-local:%Y-%m-%dT%H:%M:%S",
        "--format=@%H %cd",
        "--name-only",
    )
    commits: list[tuple[str, str, list[str]]] = []
    for line in git("log", *listing, "--", pattern).decode().splitlines():
        if line.startswith("@"):
            commits.append((*line[1:].split(), []))  # type: ignore[arg-type]  # a hash and a time
        elif line:
            commits[-1][2].append(line)
    names = [
        f"{commit}{parent}:{path}" for commit, _, paths in commits for path in paths for parent in ("^", "")
    ]
    output, blobs = git("cat-file", "--batch", text="".join(f"{name}\n" for name in names)), []
    for _ in names:
        head, _, output = output.partition(b"\n")
        size = 0 if head.endswith(b" missing") else int(head.split()[-1]) + 1
        blobs.append(output[: size - 1] if size else None)
        output = output[size:]
    pairs = iter(zip(blobs[::2], blobs[1::2], strict=True))
    found = [
        FileChange(commit, time, {path: next(pairs) for path in paths}) for commit, time, paths in commits
    ]
    return sorted(found, key=lambda change: change.time)


def numbers(value: Any) -> Iterator[float]:
    """Yield all numbers in a value of a study file, including percentages and numbers written as text."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from numbers(item)
    elif match := NUMBER.fullmatch(str(value)):
        yield float(match[1]) / (100 if match[2] else 1)


@cache
def study_limits(*texts: bytes) -> dict[str, Limits]:
    """Return the limits of each condition of each claim of a study, by the claim's id.

    If a condition counts steps to a target of the study, its terms have the study's targets. Thresholds at
    which runs stop, and the floor of tuning, are terms of all conditions.

    Args:
        texts: text of the study file, followed by the texts of the studies from which it takes keys (`like`).
    """
    studies, limits = [_read(text) for text in texts], dict[str, Limits]()
    study = {key: value for each in reversed(studies) for key, value in each.items()}
    for claim in studies[0].get("claims") or []:
        listed = [value if isinstance(value, list) else [value] for value in claim.values()]
        conditions = [
            item for items in listed for item in items if isinstance(item, dict) and "metric" in item
        ]
        if conditions:
            limits[claim["id"]] = tuple(_condition_limits(item, study) for item in conditions)
    return limits


@cache
def _read(text: bytes) -> dict[str, Any]:
    study: dict[str, Any] = under_first_names(YAML(typ="safe").load(text))
    return study


def claim_limits(studies: Mapping[str, bytes | None]) -> dict[str, Limits]:
    """Return the limits of the claims of all studies, by the claim's id.

    Args:
        studies: text of each study file, by its path; None for a file that was deleted.
    """
    limits, texts = dict[str, Limits](), {Path(path).stem: text for path, text in studies.items() if text}
    for text in texts.values():
        chain = [text]
        while (parent := texts.get(_read(chain[-1]).get("like", ""))) and parent not in chain:
            chain.append(parent)
        limits |= study_limits(*chain)
    return limits


def _condition_limits(condition: dict[str, Any], study: dict[str, Any]) -> ConditionLimits:
    (relation,) = condition.keys() & METHODS - {"than", "gain_from", "gain_to"}
    controls = condition.get("than") if condition.get("pairs") == "all" else None
    terms = {key: [*numbers(value)] or value for key, value in condition.items() if key not in NOT_LIMITS}
    if condition.get("quantity") == "steps_to_target" and "target" not in condition:
        terms["target"] = [*numbers(study.get("targets"))]
    terms |= {
        "stop": [*numbers(study.get("stop"))],
        "tuning": [*numbers(study.get("tuning", {}).get("floor"))],
    }
    named = condition.get("workload") or study.get("workload") or study.get("workloads")
    workloads = (
        options.get("label", name) if options else name
        for item in (named if isinstance(named, list) else [named])
        for name, options in (item.items() if isinstance(item, dict) else [(item, None)])
    )
    count = len(condition[relation]) * (len(controls) if isinstance(controls, list) else 1)
    key = json.dumps({"relation": relation, **terms}, sort_keys=True)
    return ConditionLimits(key, count, frozenset(map(str, workloads)))


def check_limits(table: bytes) -> dict[str, Limits]:
    """Return the limits of the property claims in a table `checks`, by the claim's id."""
    key = ("part", "variant", "quantity", "relation")
    rows = pl.read_parquet(io.BytesIO(table)).with_columns(pl.col("variant", "relation").cast(pl.String))
    groups = rows.group_by("claim", "scale", *key, maintain_order=True).agg(
        limit=pl.when(pl.col("limit").n_unique() == 1).then(pl.col("limit").first()),
        satisfied=pl.col("holds").all(),
    )
    limits: dict[str, Limits] = defaultdict(dict)
    for claim, scale, *names, limit, satisfied in groups.iter_rows():
        limits[claim][scale, *names] = (limit, satisfied)  # type: ignore[index]  # a mapping
    return limits


def changed(old: Limits, new: Limits) -> bool:
    """Return whether the limits of a claim have changed.

    If a study decides the claim, the limits have changed if a condition has another relation, metric or
    number, if conditions were added or dropped, or if there are fewer comparisons or workloads. If property
    checks decide the claim, the limits have changed if a limit has another value, or if a subclaim was
    dropped that was violated. New subclaims, subclaims that only one scale has, and dropped subclaims that
    were satisfied do not count.
    """
    if isinstance(old, tuple) and isinstance(new, tuple):
        (had, then, there), (have, now, here) = ([*zip(*each, strict=True)] for each in (old, new))
        dropped = sum(then) > sum(now) or frozenset().union(*there) - frozenset().union(*here)
        return sorted(had) != sorted(have) or bool(dropped)
    if isinstance(old, tuple) or isinstance(new, tuple):
        return True
    scales = {key[0] for key in new}
    return any(
        limit != new[key][0] if key in new else not satisfied
        for key, (limit, satisfied) in old.items()
        if key[0] in scales
    )


def registration(versions: Sequence[LimitsSince], looks: Mapping[str, str], note: str) -> Registration:
    """Return when the present limits of a claim were committed, and which published sets were earlier.

    Args:
        versions: limits of the claim, oldest first. The last entry has the present limits.
        looks: names of the published sets with a verdict on the claim, oldest first, with the times of the
            commits that added the sets.
        note: words of the claim's setting about limits that were chosen after runs; empty if there are none.
    """
    first = len(versions) - 1
    while first and not changed(versions[first - 1].limits, versions[-1].limits):
        first -= 1
    since = versions[first]
    earlier = tuple(name for name, time in looks.items() if time < since.time)
    return Registration(since.commit[:8], since.time[:10], tuple(looks), earlier, note)


def registrations(root: Path) -> dict[str, Registration]:
    """Return the registration of each claim that has conditions of its own or property checks.

    Args:
        root: folder of the repository, which must have its whole history.
    """
    versions = defaultdict[str, list[LimitsSince]](list)
    looks = defaultdict[str, dict[str, str]](dict)
    studies: dict[str, bytes | None] = {}
    for commit, time, files in changes(root, STUDIES, "AMD"):
        then = studies | {path: old for path, (old, _) in files.items()}
        studies |= {path: new for path, (_, new) in files.items()}
        before, after = map(claim_limits, (then, studies))
        for claim, limits in after.items():
            if limits != before.get(claim):
                versions[claim].append(LimitsSince(commit, time, limits))
    for commit, time, files in changes(root, f"{SETS}/checks/checks.parquet", "A"):
        for _, table in files.values():
            for claim, limits in check_limits(table or b"").items():
                versions[claim].append(LimitsSince(commit, time, limits))
    for _, time, files in changes(root, f"{SETS}/claims.parquet", "A"):
        for path, (_, table) in files.items():
            verdicts = pl.read_parquet(io.BytesIO(table or b""), columns=["claim", "verdict"]).cast(pl.String)
            for claim in sorted(verdicts.filter(pl.col("verdict") != "not run")["claim"].unique()):
                looks[claim].setdefault(Path(path).parent.name, time)
    notes: dict[str, str] = {}
    for _, _, files in changes(root, f"{SETS}/plan.json", "A"):
        for _, plan in files.values():
            for claim in (json.loads(plan or b"{}").get("checks") or {}).get("claims", ()):
                if found := NOTE.search(claim.get("setting", "")):
                    notes[claim["id"]] = found[0].strip()
    return {
        claim: registration(versions[claim], looks[claim], notes.get(claim, "")) for claim in sorted(versions)
    }


def as_text(found: dict[str, Registration]) -> str:
    """Format registrations as the text of the file."""
    written = {
        claim: {key: value for key, value in asdict(item).items() if value or key != "note"}
        for claim, item in found.items()
    }
    return json.dumps(written, indent=1) + "\n"


if __name__ == "__main__":
    write_texts({FILE: as_text(registrations(Path.cwd()))})
    sys.stdout.write(f"wrote {FILE}\n")
