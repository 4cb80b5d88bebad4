"""What a newcomer's runs say next to a published field: its place, whom it beats, what it costs."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import polars as pl

from curvebench.reports.boards.leaderboard import Board, MethodRow, leaderboard
from curvebench.reports.formatting import json_value, listed
from curvebench.reports.measures import chosen_rates, problems_of
from curvebench.reports.rendering import text_of
from curvebench.reports.statistics.ranks import instance_ranks, mean_ranks
from curvebench.reports.tables import Tables
from curvebench.results.archive import HERE
from curvebench.results.intervals import LEVEL
from curvebench.results.outcomes import failed
from curvebench.spec.method import OptimizerSpec
from curvebench.spec.plan import StudyPlan
from curvebench.spec.study import Contribution

Standing = Literal["beats", "cannot be told from", "loses to"]
Edge = Literal["lowest", "highest"]


@dataclass(frozen=True)
class ProblemResult:
    """A newcomer on a problem.

    Args:
        median: of the headline metric over seeds.
        ratio: the median over the best one of any method; infinite where that is 0 and the median is not.
        best: the method with the best median.
        reached, failed, seeds: runs that got to the target, that diverged or failed, and runs.
        evaluations: gradient evaluations to the target, the median over seeds; infinite where half missed it.
        learning_rate: what its tuning chose; None where all its runs failed.
        edge: which end of the rates tried that is, so that a better one may lie beyond; None inside.
    """

    problem: str
    median: float
    ratio: float
    best: str
    reached: int
    failed: int
    seeds: int
    evaluations: float
    learning_rate: float | None
    edge: Edge | None


@dataclass(frozen=True)
class Placed:
    """A newcomer on the board of the study that it joins.

    Args:
        place: the published set that it is of, or `curvebench.results.archive.HERE`.
        backend, field_backend: what it ran on, and what the field's methods did.
        command: what runs it again.
        row: its row, without rank and score where all its final runs failed.
        methods: how many the board has.
        field_problems: how many the published field has.
        standing: how it stands to every other method, by its name; empty where all its final runs failed.
    """

    field: str
    place: str
    contributed: Contribution | None
    backend: str
    field_backend: str
    command: str
    row: MethodRow
    methods: int
    field_problems: int
    problems: tuple[ProblemResult, ...]
    standing: Mapping[str, Standing]


def standings(study: StudyPlan, tables: Tables, method: str) -> dict[str, Standing]:
    """How a method stands to each of the others: on which share of problem instances it ends better.

    A tie is half an instance; seeds are averaged on each problem, then problems. The intervals hold jointly
    with 95 %: each has 5 % over the number of other methods (Bonferroni).

    Returns:
        By the other method's name; without those that share no problem instance.
    """
    problems = problems_of(study, tables)
    others = [one for one in study.methods if one != method]
    level = 1 - (1 - LEVEL) / max(len(others), 1)
    found: dict[str, Standing] = {}
    for other in others:
        two = pl.col("method").is_in([method, other])
        ranks = pl.concat(
            instance_ranks(one.values.filter(two), study.direction == "maximize").with_columns(
                stratum=pl.lit(one.name)
            )
            for one in problems
        )
        pair = {row["method"]: row for row in mean_ranks(ranks, level).to_dicts()}
        if len(pair) == 2:
            low, high = pair[method]["low"] or 1.0, pair[method]["high"] or 2.0
            found[other] = "beats" if high < 1.5 else "loses to" if low > 1.5 else "cannot be told from"
    return found


def newcomers(study: StudyPlan, tables: Tables) -> list[Placed]:
    """Every method of a study that joins this one, on the board that they share.

    Args:
        tables: those of all (`curvebench.reports.tables.tables_of`).
    """
    if not study.joined:
        return []
    board = leaderboard([(study, tables)], study.backends[0])
    rows = {row.method: row for row in board.rows}
    found = []
    for place, joined in ((place, one) for place, own in study.joined.items() for one in own):
        for optimizer in (one for one in joined.optimizers if one.label in rows):
            method = optimizer.label
            row, rates = rows[method], chosen_rates(tables.runs.filter(method=method))
            lost = row.diverged.successes == row.diverged.count
            chosen = {rate["workload"]: rate for rate in rates.iter_rows(named=True)}
            found.append(
                Placed(
                    field=study.name,
                    place=place,
                    contributed=joined.contributed,
                    backend=joined.backends[0],
                    field_backend=study.backends[0],
                    command=_command(optimizer, [one.name for one in joined.workloads], place),
                    row=replace(row, rank=None, score=None, mean_rank=None) if lost else row,
                    methods=len(rows),
                    field_problems=study.all_workloads or len(study.workloads),
                    problems=tuple(_problems(board, row, chosen)),
                    standing={} if lost else standings(study, tables, method),
                )
            )
    return found


def _command(optimizer: OptimizerSpec, problems: Sequence[str], place: str) -> str:
    """What runs a newcomer again: one of a set on all problems, by a label that is not taken."""
    given = optimizer.options if optimizer.only_backend is None else optimizer.options["arguments"]
    space = {"space": optimizer.space} if optimizer.space else {}
    options = {**given, **optimizer.hyperparameters, **space}
    label = optimizer.label if place == HERE else f"{optimizer.label}-again"
    library, _, where = optimizer.locator.partition(":")
    named = (
        where if library == "torch" and ".py:" in where else optimizer.locator
    )  # a class of PyTorch is known
    words = ["curvebench", "try", named, "--label", label]
    words += ["--options", json.dumps(options)] if options else []
    words += ["--problems", ",".join(problems)] if place == HERE else []
    return shlex.join(words)


def _problems(board: Board, row: MethodRow, chosen: Mapping[str, dict[str, Any]]) -> Iterator[ProblemResult]:
    for place, (column, entry) in enumerate(zip(board.columns, row.entries, strict=True)):
        if entry is None:
            continue
        medians = {one.method: cell.value.median for one in board.rows if (cell := one.entries[place])}
        best = (min if column.study.direction == "minimize" else max)(medians, key=medians.__getitem__)
        own, least = medians[row.method], medians[best]
        tuned, lost = chosen[column.workload], entry.diverged.successes == entry.diverged.count
        at_edge = tuned["at_edge"] and not lost
        yield ProblemResult(
            column.workload,
            own,
            own / least if least else 1.0 if own == least else math.inf,
            best,
            int(entry.reached.successes) if entry.reached else 0,
            int(entry.diverged.successes),
            entry.value.count,
            entry.evaluations.median if entry.evaluations else math.inf,
            None if lost else tuned["learning_rate"],
            ("lowest" if tuned["learning_rate"] <= tuned["least"] else "highest") if at_edge else None,
        )


def hopeless(runs: pl.DataFrame, named: str, method: str) -> str | None:
    """A line on each problem on which no run of a method came to its end; None where there are none.

    Args:
        runs: of all stages (`curvebench.results.schema.RUNS`).
        named: what the user calls it.
    """
    own = runs.filter(method=method)
    ended = own.filter(~failed())["workload"].unique().implode()
    lost = own.filter(~pl.col("workload").is_in(ended)).partition_by("workload", maintain_order=True)
    return "\n".join(f"{named} ({method}): {_lost(runs)}" for runs in lost) or None


def _lost(lost: pl.DataFrame) -> str:
    """What became of a method's runs on a problem, all of which failed."""
    counts = lost["outcome"].value_counts(sort=True)
    outcomes = listed([f"{count} {name.replace('_', ' ')}" for name, count in counts.iter_rows()])
    steps = lost["outcome_step"].drop_nulls().sort()
    seen = f" (half of them by step {steps[len(steps) // 2]})" if len(steps) else ""
    reason = next(iter(lost["reason"].drop_nulls()), f"the loss is not finite{seen}")
    return f"every run on {lost['workload'][0]} failed ({outcomes}): {reason}"


# --- what is printed -----------------------------------------------------------------------------


def as_text(found: Placed) -> str:
    """The result for people."""
    return text_of("newcomer", placed=found)


def as_json(found: Placed) -> dict[str, Any]:
    """The result for programs; what is infinite is null."""
    about = ("field", "methods", "command", "backend", "field_backend")
    overall = {name: getattr(found.row, name) for name in ("rank", "score", "mean_rank")}
    return {
        "method": found.row.method,
        **{name: getattr(found, name) for name in about},
        **{name: asdict(value) if value else None for name, value in overall.items()},
        "runs": int(found.row.diverged.count),
        "failed": int(found.row.diverged.successes),
        "standing": dict(found.standing),
        "problems": [json_value(asdict(one)) for one in found.problems],
    }
