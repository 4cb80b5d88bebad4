"""`curvebench score`: scores of submissions from a table of runs, by a named set of rules."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from curvebench.reports.rendering import text_of
from curvebench.reports.statistics.profiles import LIMIT, POINTS, score_intervals, time_ratios
from curvebench.results.intervals import LEVEL
from curvebench.spec.errors import InputError

TYPES: Mapping[str, Any] = {
    "submission": pl.String,
    "workload": pl.String,
    "held_out": pl.String,
    "study": pl.String,
    "trial": pl.String,
    "seconds": pl.Float64,
    "seconds_to_target": pl.Float64,
    "evals_to_target": pl.Float64,
}
TRUTHS = {"0": False, "1": True, "false": False, "true": True}


@dataclass(frozen=True)
class PreparedRuns:
    """Runs as scores are computed from.

    Args:
        runs: columns submission, workload, study, seconds (null = missed).
        variants: base workload by the name of its held-out variant.
        left_out: workloads that do not count.
    """

    runs: pl.DataFrame
    variants: Mapping[str, str]
    left_out: tuple[str, ...]


@dataclass(frozen=True)
class Rules:
    """How runs become scores.

    Args:
        about: in a sentence.
        columns: what a table must have.
        prepare: from the table to one time a submission, workload and study; raises ValueError.
        paired: whether studies of one name are the same problem instances for all submissions.
    """

    about: str
    columns: tuple[str, ...]
    prepare: Callable[[pl.DataFrame], PreparedRuns]
    paired: bool


@dataclass(frozen=True)
class Scores:
    """Scores by a set of rules, with the times that they rest on.

    Args:
        rules: a name of `RULES`.
        table: what `score_intervals` returns.
        ratios: what `time_ratios` returns.
        prepared: what was scored.
    """

    rules: str
    table: pl.DataFrame
    ratios: pl.DataFrame
    prepared: PreparedRuns

    @property
    def workloads(self) -> list[str]:
        """Those that enter the profile."""
        names = self.ratios["workload"].unique().sort()
        return [name for name in names if name not in self.prepared.variants]


def fastest_trials(runs: pl.DataFrame) -> pl.DataFrame:
    """The trial of every study that took fewest evaluations to the target; of equal ones the first by name.

    Args:
        runs: columns submission, workload, study, trial, seconds_to_target, evals_to_target; both null where
            the target was missed.

    Returns:
        Columns submission, workload, study, seconds (null where no trial reached the target).

    Raises:
        ValueError: for two rows of one trial, or one of seconds and evaluations without the other.
    """
    key = ["submission", "workload", "study", "trial"]
    twice = runs.filter(runs.select(key).is_duplicated())
    half = runs.filter(pl.col("seconds_to_target").is_null() != pl.col("evals_to_target").is_null())
    for wrong, what in (
        (twice, "there must be one row"),
        (half, "seconds_to_target and evals_to_target must both be there, or none"),
    ):
        if len(wrong):
            raise ValueError(f"{' / '.join(map(str, wrong.select(key).row(0)))}: {what}")
    return (
        runs.sort("evals_to_target", "trial", nulls_last=True)
        .group_by(key[:-1], maintain_order=True)
        .first()
        .select(*key[:-1], pl.col("seconds_to_target").alias("seconds"))
    )


def variants_of(held_out: Mapping[str, bool]) -> tuple[dict[str, str], list[str]]:
    """Which workloads are variants, by their names: `ogbg_gelu` is a variant of `ogbg` where there is one.

    Args:
        held_out: by workload, whether it was drawn as held out.

    Returns:
        The base of each held-out variant, and the variants that were not drawn, which do not count.

    Raises:
        ValueError: for a held-out workload that is no variant of another.
    """

    def base_of(name: str, among: Iterable[str]) -> str | None:
        return max((other for other in among if name.startswith(f"{other}_")), key=len, default=None)

    common = [name for name, drawn in held_out.items() if not drawn]
    left_out = [name for name in common if base_of(name, held_out)]
    bases = [name for name in common if name not in left_out]
    found = {}
    for name in (name for name, drawn in held_out.items() if drawn):
        base = base_of(name, bases)
        if base is None:
            raise ValueError(
                f"held-out workload {name}: expected BASE_{name.rpartition('_')[2]}, where BASE is "
                f"a workload that is not held out; there are {', '.join(sorted(bases)) or 'none'}"
            )
        found[name] = base
    return found, left_out


def _algoperf(runs: pl.DataFrame) -> PreparedRuns:
    drawn: dict[str, bool] = {}
    for name, text in runs.select("workload", "held_out").unique().sort("workload").iter_rows():
        if str(text).lower() not in TRUTHS:
            raise ValueError(f"workload {name}: held_out is {text}, expected 0 or 1")
        if drawn.setdefault(name, TRUTHS[str(text).lower()]) != TRUTHS[str(text).lower()]:
            raise ValueError(f"workload {name}: held_out differs between its rows")
    variants, left_out = variants_of(drawn)
    counted = runs.filter(~pl.col("workload").is_in(left_out))
    return PreparedRuns(fastest_trials(counted), variants, tuple(left_out))


def _plain(runs: pl.DataFrame) -> PreparedRuns:
    return PreparedRuns(runs.select("submission", "workload", "study", "seconds"), {}, ())


RULES: Mapping[str, Rules] = {
    "algoperf-v05": Rules(
        about="AlgoPerf 0.5, external tuning: the fastest trial of a study in evaluations, medians over "
        "studies, held-out variants (Dahl et al., arXiv:2306.07179)",
        columns=tuple(name for name in TYPES if name != "seconds"),
        prepare=_algoperf,
        paired=False,
    ),
    "plain": Rules(
        about="one time a study, medians over studies; studies of one name are the same problem instances",
        columns=("submission", "workload", "study", "seconds"),
        prepare=_plain,
        paired=True,
    ),
}


def read_csv(path: Path) -> pl.DataFrame:
    """A CSV file as text, null where a field is empty; lines without anything are passed over.

    Raises:
        InputError: naming file and line, for a row with other fields than the head, and for what is no CSV.
        OSError: when the file cannot be read.
    """
    with path.open(newline="", encoding="utf-8-sig") as file:
        lines = csv.reader(file)
        rows = []
        try:
            head = next(lines, [])
            if not head:
                raise InputError(f"{path}: the first line is empty, and should name the columns")
            if twice := [name for name in dict.fromkeys(head) if head.count(name) > 1]:
                raise InputError(f"{path}: the first line names {', '.join(twice)} twice")
            for row in filter(None, lines):
                if len(row) != len(head):
                    raise InputError(
                        f"{path}, line {lines.line_num}: {len(row)} fields, and the head has {len(head)}; "
                        "a target that was missed is an empty field, with its comma"
                    )
                rows.append([field or None for field in row])
        except (csv.Error, UnicodeDecodeError) as error:
            raise InputError(f"{path}, after line {lines.line_num}: no CSV in UTF-8 ({error})") from error
    return pl.DataFrame(rows, schema=dict.fromkeys(head, pl.String), orient="row")


def read_runs(path: Path, rules: Rules) -> pl.DataFrame:
    """The columns that the rules ask for, of a CSV or Parquet file.

    Raises:
        InputError: naming the file, for one that cannot be read, a missing column, or a cell that is no
            number or name.
    """
    kinds: Mapping[str, Callable[[Path], pl.DataFrame]] = {".csv": read_csv, ".parquet": pl.read_parquet}
    if path.suffix not in kinds:
        raise InputError(f"{path}: expected a file that ends in {' or '.join(kinds)}")
    if not path.is_file():
        raise InputError(f"{path}: there is no such file; give the path of a table of runs")
    try:
        table = kinds[path.suffix](path)
        missing = [column for column in rules.columns if column not in table.columns]
        if missing:
            raise InputError(
                f"{path}: no column {', '.join(missing)}; the rules ask for {', '.join(rules.columns)}, "
                "by these names and with commas between"
            )
        given = table.select(rules.columns)
        found = given.select(pl.col(column).cast(TYPES[column], strict=False) for column in rules.columns)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise InputError(f"{path}: {str(error).splitlines()[0]}") from error
    for column in rules.columns:
        wrong = (found[column].is_null() & given[column].is_not_null()).arg_true()
        empty = found[column].is_null().arg_true() if TYPES[column] == pl.String else wrong
        if len(wrong):
            raise InputError(
                f"{path}: column {column} is {given[column][wrong[0]]!r} in row {wrong[0] + 1} below the "
                "head, which is no number; leave it empty where the target was missed"
            )
        if len(empty):
            raise InputError(f"{path}: column {column} is empty in row {empty[0] + 1} below the head")
    return found


def score_file(path: Path, name: str) -> Scores:
    """Score the runs of a file.

    Args:
        name: of `RULES`.

    Raises:
        InputError: for a file that the rules cannot be applied to; it says where and why.
    """
    rules = RULES.get(name)
    if rules is None:
        known = "; ".join(f"{name}: {rules.about}" for name, rules in RULES.items())
        raise InputError(f"--rules: {name!r} is none of {known}")
    runs = read_runs(path, rules)
    try:
        prepared = rules.prepare(runs)
        table = score_intervals(prepared.runs, prepared.variants, paired=rules.paired)
        ratios = time_ratios(prepared.runs, prepared.variants)
    except ValueError as error:
        raise InputError(f"{path}: {error}") from error
    return Scores(name, table, ratios, prepared)


def as_json(scores: Scores) -> str:
    """The scores for programs: one object; a ratio of null is a target missed, or a time that is void."""
    rules = RULES[scores.rules]
    rows = scores.table.to_dicts()
    for row in rows:
        times = scores.ratios.filter(submission=row["submission"])
        row["workloads"] = {time.pop("workload"): time for time in times.drop("submission").to_dicts()}
    content = {
        "rules": scores.rules,
        "about": rules.about,
        "limit": LIMIT,
        "points": POINTS,
        "level": LEVEL,
        "workloads": scores.workloads,
        "variants": dict(scores.prepared.variants),
        "left_out": list(scores.prepared.left_out),
        "submissions": rows,
    }
    return json.dumps(content, indent=1, ensure_ascii=False)


def as_text(scores: Scores) -> str:
    """The scores for people: what was applied, and a line a submission, the best first."""
    solved = scores.ratios.filter(pl.col("workload").is_in(scores.workloads)).group_by("submission")
    counts = dict(solved.agg(pl.col("ratio").count()).iter_rows())
    about = RULES[scores.rules].about
    return text_of("scores", scores=scores, about=about, points=POINTS, solved=counts)
