"""Published sets: what stands in the way of publishing, and a folder written whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from results.errors import TableError
from results.merging import machines
from results.schema import TUNING
from results.set_names import SUMS, check_name
from results.writing import replacing

PROVENANCE = "provenance.json"
PLAN = "plan.json"
STUDY_TABLES = ("runs", "curves", "timings", "memory", "jobs")
LICENCE = "CC BY 4.0"
MOST_CURVE_ROWS = 200_000  # of a study; about 2 MB
CURVE_POINTS = 50  # of a run and metric, where there are more rows than that

Revision = tuple[str | None, bool | None]  # a commit, and whether files differ from it

NOTICE = """\
The tables of this folder are published under the licence Creative Commons Attribution 4.0 International
(CC BY 4.0): https://creativecommons.org/licenses/by/4.0/legalcode

You may share and change them for any purpose, if you name their source (curvebench, the name of this set
and its commit, as in provenance.json), link to the licence, and say what you changed.
"""


@dataclass(frozen=True)
class Objection:
    """Something that stands in the way of publishing.

    Args:
        kind: a key of `WAIVERS`.
        sentence: what is wrong, and where.
        remedy: what to do about it.
    """

    kind: str
    sentence: str
    remedy: str

    @property
    def told(self) -> dict[str, str]:
        """What a set says of it where it was waived."""
        return {"kind": self.kind, "sentence": self.sentence}


# --- what stands in the way ----------------------------------------------------------------------


RULE_SENTENCE = re.compile(
    r"(?P<claim>\S+)(?: on \S+)?: its rule is [0-9a-f]{16}, and was .* when the runs were planned"
)


def in_short(sentences: Iterable[str]) -> list[str]:
    """What was waived for readers: several changed rules become one sentence, which names their claims."""
    sentences = list(sentences)
    found = [match["claim"] for sentence in sentences if (match := RULE_SENTENCE.fullmatch(sentence))]
    claims = list(dict.fromkeys(found))
    if len(found) < 2:
        return sentences
    what = "the rule of a claim was" if len(claims) == 1 else f"the rules of {len(claims)} claims were"
    others = [sentence for sentence in sentences if not RULE_SENTENCE.fullmatch(sentence)]
    return [*others, f"{what} changed after the runs were planned: {', '.join(claims)}"]


def objections(
    study: str, tables: Mapping[str, pl.DataFrame], tried_in: Sequence[str] | None = None
) -> list[Objection]:
    """What stands in the way of publishing the tables of one study.

    Args:
        tables: `jobs`, and of studies `runs`, `timings` and `memory`.
        tried_in: the bases in which tuning tries settings; None is all of them. The others take the setting
            of the identity basis, and have no budget of their own.
    """
    found = _dirty(study, tables["jobs"])
    if "runs" in tables:
        found += _mixed_hardware(study, [tables[name] for name in ("runs", "timings", "memory")])
        runs = tables["runs"]
        tuned = runs if tried_in is None else runs.filter(pl.col("basis").is_in(list(tried_in)))
        found += _unequal_tuning(study, tuned)
    return found


def unclean(code: Revision) -> list[Objection]:
    """One where the code that computes verdicts and leaderboard is not known to be what a commit has.

    Args:
        code: its commit and whether files differ from it, as `results.provenance.commit` says.
    """
    revision, dirty = code
    if revision is not None and dirty is False:
        return []
    said = f"differs from its commit ({revision[:12]})" if revision and dirty else "is of no known commit"
    sentence = f"the code that computes verdicts and leaderboard {said}"
    return [Objection("dirty", sentence, "commit, and publish again")]


def _dirty(study: str, jobs: pl.DataFrame) -> list[Objection]:
    unknown = jobs.filter(pl.col("commit").is_null() | pl.col("dirty").is_null())
    changed = jobs.filter(pl.col("commit").is_not_null() & pl.col("dirty"))
    found = []
    if len(changed):
        commits = ", ".join(commit[:12] for commit in changed["commit"].unique().sort())
        found.append(f"{len(changed)} of {len(jobs)} jobs ran code that differs from its commit ({commits})")
    if len(unknown):
        found.append(f"{len(unknown)} of {len(jobs)} jobs do not know the commit of their code")
    remedy = "commit, delete their folders below results/runs (a job is done once), and run snakemake again"
    return [Objection("dirty", f"{study}: {sentence}", remedy) for sentence in found]


def _mixed_hardware(study: str, frames: Iterable[pl.DataFrame]) -> list[Objection]:
    """One for each backend whose rows come from more than one machine."""
    rows = pl.concat([frame.select("backend", "machine") for frame in frames])
    mixed = (
        rows.group_by("backend")
        .agg(pl.col("machine").fill_null("unknown").unique().sort())
        .filter(pl.col("machine").list.len() > 1)
        .sort("backend")
    )
    return [
        Objection(
            "hardware",
            f"{study}: what ran on {backend} comes from {len(names)} machines ({', '.join(names)})",
            "run the study on one of them",
        )
        for backend, names in mixed.iter_rows()
    ]


def _unequal_tuning(study: str, runs: pl.DataFrame) -> list[Objection]:
    """One for each workload on which methods had different numbers of tuning runs, none counted as 0."""
    method = ["workload", "optimizer", "basis"]
    counts = runs.filter(pl.col("stage").is_in(TUNING)).group_by(*method, "backend").len()
    judged = runs.filter(pl.col("stage") == "final").select(method).unique()
    spent = judged.join(counts, on=method, how="left").with_columns(pl.col("len").fill_null(0))
    found = []
    for (workload,), rows in spent.sort("len", *method).group_by(["workload"], maintain_order=True):
        if rows["len"].n_unique() == 1:
            continue
        least, most = rows.row(0, named=True), rows.row(-1, named=True)
        told = [f"{row['optimizer']} @ {row['basis']} {row['len']}" for row in (least, most)]
        found.append(
            Objection(
                "tuning",
                f"{study}: tuning runs on {workload} differ between methods: {' and '.join(told)}",
                "give every method the same tuning in the study file",
            )
        )
    return found


def changed_rules(claims: pl.DataFrame) -> list[Objection]:
    """One for each claim that ran and whose rule is not known to be the one of when its runs were planned.

    Args:
        claims: the table `claims`.
    """
    ran = claims.filter(pl.col("verdict").cast(pl.String) != "not run")
    changed = ran.filter(pl.col("rule").ne_missing(pl.col("rule_of_runs")))
    return [
        Objection(
            "rules",
            f"{claim}{f' on {backend}' if backend else ''}: its rule is {rule}, and was "
            f"{before or 'not recorded, or several,'} when the runs were planned",
            "undo the change of the claim, or run it anew with --config results=FOLDER",
        )
        for claim, backend, rule, before in changed.select(
            "claim", "backend", "rule", "rule_of_runs"
        ).iter_rows()
    ]


# --- what is written -----------------------------------------------------------------------------


def thinned(
    curves: pl.DataFrame,
    whole: pl.DataFrame | None = None,
    most: int = MOST_CURVE_ROWS,
    points: int = CURVE_POINTS,
) -> pl.DataFrame:
    """The curves, or where they have more than `most` rows `points` checkpoints a run and metric.

    Those that stay lie evenly among the run's checkpoints; the first and the last are always among them.

    Args:
        whole: columns run and metric, of curves that keep all checkpoints; None for none.
    """
    if len(curves) <= most:
        return curves
    of = ["run", "metric"]
    place = pl.col("step").rank("ordinal").over(of).cast(pl.Int64) - 1
    count = pl.len().over(of).cast(pl.Int64)
    share = place * (points - 1)
    kept = (share // (count - 1)) != ((share - (points - 1)) // (count - 1))
    rows = curves.with_row_index("row")
    parts = [rows.filter((count <= points) | (place == 0) | kept)]
    if whole is not None:
        parts.append(rows.join(whole, on=of, how="semi"))
    return pl.concat(parts).unique("row").sort("row").drop("row")


def all_jobs(tables: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """The jobs of all folders of a set, each once."""
    return pl.concat(tables).unique(maintain_order=True)


def provenance_of(jobs: pl.DataFrame, runs: int) -> dict[str, Any]:
    """What `provenance.json` says of the jobs: machines, environments, commits, and when they ran.

    Args:
        jobs: the table `jobs` of all studies.
        runs: how many runs there are.
    """
    environments = jobs.select("environment_hash", "python", "packages").unique(
        "environment_hash", maintain_order=True
    )
    return {
        "runs": runs,
        "jobs": len(jobs),
        "first_started": jobs["started"].min(),
        "last_started": jobs["started"].max(),
        "commits": jobs.select("commit", "dirty").unique().sort("commit", "dirty").to_dicts(),
        "machines": machines(jobs).to_dicts(),
        "environments": environments.to_dicts(),
    }


@contextmanager
def new_set(folder: Path, name: str) -> Iterator[Path]:
    """A folder to write a set into; it gets the set's name when the block ends without an error.

    Raises:
        TableError: as `check_name`, and when the system refuses.
    """
    check_name(name, folder)
    stage = folder / f".{name}.{os.getpid()}-{secrets.token_hex(4)}"
    try:
        try:
            stage.mkdir(parents=True)
            yield stage
            stage.rename(folder / name)
        except OSError as error:
            raise TableError(
                f"{folder / name}: cannot be written ({error.strerror}); make room there, or make it writable"
            ) from error
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def write_text(path: Path, text: str) -> None:
    """Write a text, whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(text)


def as_json(content: Any) -> str:
    """The text of a JSON file."""
    return json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


# --- checksums -----------------------------------------------------------------------------------


def files_of(folder: Path) -> list[str]:
    """The names of all that lies in a set and is no folder, the checksums left out, sorted."""
    found = (
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_symlink() or not path.is_dir()
    )
    return sorted(name for name in found if name != SUMS)


def seal(folder: Path) -> None:
    """Write the checksums of a set's files, as `sha256sum --check` reads them."""
    lines = (f"{sha256(folder / name)}  {name}\n" for name in files_of(folder))
    write_text(folder / SUMS, "".join(lines))


def sha256(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# --- the table in the project's README -----------------------------------------------------------

BEGIN, END = "<!-- leaderboard:begin -->", "<!-- leaderboard:end -->"


def check_page(file: Path) -> None:
    """Check that a page has a place for a leaderboard.

    Raises:
        TableError: when it cannot be read, or has not both markers once and in order.
    """
    try:
        text = file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise TableError(f"{file}: cannot be read ({error}); name a page with the line {BEGIN}") from error
    between_markers(text, file, [])


def between_markers(text: str, file: Path, lines: Iterable[str]) -> str:
    """A page with what stands between the markers of the leaderboard replaced.

    Args:
        file: where the text comes from, for messages.

    Raises:
        TableError: unless the page has both markers once and in order.
    """
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise TableError(f"{file}: needs the line {BEGIN} and below it {END}, each once; put them back")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return "\n".join([before + BEGIN, *lines, END]) + after
