"""Scores of submissions from a table of runs, by a named set of rules (`curvebench score`).

This module uses the terms of the AlgoPerf benchmark. A submission is one method. A study is one repetition of
all runs of a submission. A study may have several trials on a workload, which differ in hyperparameters. A
held-out workload is a variant of a base workload, by which the benchmark checks whether a method works only
on the base.
"""

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
    **dict.fromkeys(("submission", "workload", "held_out", "study", "trial"), pl.String),
    **dict.fromkeys(("seconds", "seconds_to_target", "evals_to_target"), pl.Float64),
}
TRUTHS = {"0": False, "1": True, "false": False, "true": True}


@dataclass(frozen=True)
class PreparedRuns:
    """Table of runs in the form from which scores are computed.

    Args:
        runs: columns submission, workload, study, seconds (null if the target was missed).
        variants: base workload by the name of its held-out variant.
        left_out: names of the workloads whose runs were removed, because they do not count.
    """

    runs: pl.DataFrame
    variants: Mapping[str, str]
    left_out: tuple[str, ...]


@dataclass(frozen=True)
class Rules:
    """Rules by which scores are computed from a table of runs.

    Args:
        description: the rules in one sentence.
        columns: columns that a table of runs must have.
        prepare: function that reduces the table to one time per submission, workload and study. It raises
            ValueError if the table is unsuitable.
        paired: whether studies with the same name are the same problem instance (such as a seed) for all
            submissions.
    """

    description: str
    columns: tuple[str, ...]
    prepare: Callable[[pl.DataFrame], PreparedRuns]
    paired: bool


@dataclass(frozen=True)
class Scores:
    """Scores by a set of rules, with the times from which they are computed.

    Args:
        rules: name of the rules, a key of `RULES`.
        table: scores and ranks of the submissions, as `score_intervals` returns them.
        ratios: times divided by the fastest time on the same workload, as `time_ratios` returns them.
        prepared: the runs that were scored.
    """

    rules: str
    table: pl.DataFrame
    ratios: pl.DataFrame
    prepared: PreparedRuns

    @property
    def workloads(self) -> list[str]:
        """Names of the workloads in the performance profile."""
        names = self.ratios["workload"].unique().sort()
        return [name for name in names if name not in self.prepared.variants]


def fastest_trials(runs: pl.DataFrame) -> pl.DataFrame:
    """Return, for every study on every workload, the seconds to the target of the fastest trial.

    The fastest trial is the trial with the fewest evaluations to the target. If several trials have the same
    number, the first of them by name counts.

    Args:
        runs: columns submission, workload, study, trial, seconds_to_target, evals_to_target. The last two
            columns are null if the target was missed.

    Returns:
        Columns submission, workload, study, seconds (null if no trial reached the target).

    Raises:
        ValueError: when a trial has two rows, or when only one of seconds_to_target and evals_to_target is
            null.
    """
    key = ["submission", "workload", "study", "trial"]
    twice = runs.filter(runs.select(key).is_duplicated())
    half = runs.filter(pl.col("seconds_to_target").is_null() != pl.col("evals_to_target").is_null())
    for wrong, problem in (
        (twice, "there must be one row"),
        (half, "seconds_to_target and evals_to_target must both be there, or none"),
    ):
        if len(wrong):
            raise ValueError(f"{' / '.join(map(str, wrong.select(key).row(0)))}: {problem}")
    ordered = runs.sort("evals_to_target", "trial", nulls_last=True)
    fastest = ordered.group_by(key[:-1], maintain_order=True).first()
    return fastest.select(*key[:-1], seconds="seconds_to_target")


def variants_of(held_out: Mapping[str, bool]) -> tuple[dict[str, str], list[str]]:
    """Return which workloads are variants of other workloads, according to their names.

    For example, `ogbg_gelu` is a variant of `ogbg` if there is a workload `ogbg`.

    Args:
        held_out: by name of a workload, whether it was drawn at random to be a held-out workload.

    Returns:
        The base workload by the name of each held-out variant, and a list of the variants that were not
        drawn. The runs on variants that were not drawn do not count.

    Raises:
        ValueError: when a held-out workload is not a variant of another workload.
    """

    def base_of(name: str, among: Iterable[str]) -> str | None:
        return max((base for base in among if name.startswith(f"{base}_")), key=len, default=None)

    common = [name for name, is_held_out in held_out.items() if not is_held_out]
    left_out = [name for name in common if base_of(name, held_out)]
    bases = [name for name in common if name not in left_out]
    base_by_variant = {}
    for name in (name for name, is_held_out in held_out.items() if is_held_out):
        base = base_of(name, bases)
        if base is None:
            raise ValueError(
                f"held-out workload {name}: expected BASE_{name.rpartition('_')[2]}, where BASE is "
                f"a workload that is not held out; there are {', '.join(sorted(bases)) or 'none'}"
            )
        base_by_variant[name] = base
    return base_by_variant, left_out


def _algoperf(runs: pl.DataFrame) -> PreparedRuns:
    """Prepare runs by the rules of AlgoPerf: one trial per study, without variants that were not drawn.

    Raises:
        ValueError: when the columns are inconsistent, for example if `held_out` differs between rows.
    """
    held_out: dict[str, bool] = {}
    for name, text in runs.select("workload", "held_out").unique().sort("workload").iter_rows():
        if str(text).lower() not in TRUTHS:
            raise ValueError(f"workload {name}: held_out is {text}, expected 0 or 1")
        if held_out.setdefault(name, TRUTHS[str(text).lower()]) != TRUTHS[str(text).lower()]:
            raise ValueError(f"workload {name}: held_out differs between its rows")
    variants, left_out = variants_of(held_out)
    counted = runs.filter(~pl.col("workload").is_in(left_out))
    return PreparedRuns(fastest_trials(counted), variants, tuple(left_out))


def _plain(runs: pl.DataFrame) -> PreparedRuns:
    """Prepare runs that already have one time per submission, workload and study."""
    return PreparedRuns(runs.select("submission", "workload", "study", "seconds"), {}, ())


RULES: Mapping[str, Rules] = {
    "algoperf-v05": Rules(
        "AlgoPerf 0.5, external tuning: the fastest trial of a study in evaluations, medians over studies, "
        "held-out variants (Dahl et al., arXiv:2306.07179)",
        columns=tuple(name for name in TYPES if name != "seconds"),
        prepare=_algoperf,
        paired=False,
    ),
    "plain": Rules(
        "one time a study, medians over studies; studies of one name are the same problem instances",
        columns=("submission", "workload", "study", "seconds"),
        prepare=_plain,
        paired=True,
    ),
}


def read_csv(path: Path) -> pl.DataFrame:
    """Read a CSV file as columns of text. An empty field becomes null; empty lines are skipped.

    Raises:
        InputError: when the first line is empty or names a column twice, when a row has more or fewer fields
            than the first line, or when the file is not CSV in UTF-8. The message names the file.
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
    """Read the columns that the rules require from a CSV or Parquet file.

    Raises:
        InputError: when the file cannot be read, or a column is missing. Also when a column of numbers has a
            text that is no number, or a column of names has an empty cell. The message names the file.
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
        text = table.select(rules.columns)
        typed = text.select(pl.col(column).cast(TYPES[column], strict=False) for column in rules.columns)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise InputError(f"{path}: {str(error).splitlines()[0]}") from error
    for column in rules.columns:
        wrong = (typed[column].is_null() & text[column].is_not_null()).arg_true()
        empty = typed[column].is_null().arg_true() if TYPES[column] == pl.String else wrong
        if len(wrong):
            raise InputError(
                f"{path}: column {column} is {text[column][wrong[0]]!r} in row {wrong[0] + 1} below the "
                "head, which is no number; leave it empty where the target was missed"
            )
        if len(empty):
            raise InputError(f"{path}: column {column} is empty in row {empty[0] + 1} below the head")
    return typed


def score_file(path: Path, name: str) -> Scores:
    """Read a table of runs from a file, and score its submissions.

    Args:
        path: CSV or Parquet file with a table of runs.
        name: name of the rules, a key of `RULES`.

    Raises:
        InputError: when there are no rules with this name, or the rules cannot be applied to the file.
    """
    rules = RULES.get(name)
    if rules is None:
        choices = "; ".join(f"{name}: {rules.description}" for name, rules in RULES.items())
        raise InputError(f"--rules: {name!r} is none of {choices}")
    runs = read_runs(path, rules)
    try:
        prepared = rules.prepare(runs)
        table = score_intervals(prepared.runs, prepared.variants, paired=rules.paired)
        ratios = time_ratios(prepared.runs, prepared.variants)
    except ValueError as error:
        raise InputError(f"{path}: {error}") from error
    return Scores(name, table, ratios, prepared)


def as_json(scores: Scores) -> str:
    """Format the scores as a JSON object for programs.

    The field `ratio` is a submission's time to the target of a workload, divided by the fastest time on the
    workload. It is null if the submission missed the target, or if its time does not count (`time_ratios`).
    """
    rules = RULES[scores.rules]
    rows = scores.table.to_dicts()
    for row in rows:
        times = scores.ratios.filter(submission=row["submission"])
        row["workloads"] = {time.pop("workload"): time for time in times.drop("submission").to_dicts()}
    content = {
        "rules": scores.rules,
        "description": rules.description,
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
    """Format the scores for people: the rules, then a line for each submission, the best submission first."""
    solved = scores.ratios.filter(pl.col("workload").is_in(scores.workloads)).group_by("submission")
    counts = dict(solved.agg(pl.col("ratio").count()).iter_rows())
    return text_of("scores", scores=scores, rules=RULES[scores.rules], points=POINTS, solved=counts)
