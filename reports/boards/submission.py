"""Results of a submission compared with the methods of a published study: ranks, wins and costs.

A submission is one method that its author adds to a published study; the submission joins this study. The
field consists of the methods of the published study. A problem is a workload of the study, and a problem
instance is a problem with a seed.
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import polars as pl

from curvebench.reports.boards.leaderboard import Board, MethodRow, added, leaderboard, ranks_on
from curvebench.reports.formatting import json_value, listed
from curvebench.reports.measures import StudyProblem, chosen_rates, problems_of
from curvebench.reports.rendering import text_of
from curvebench.reports.statistics.ranks import mean_ranks
from curvebench.reports.statistics.shares import Share
from curvebench.reports.tables import Tables
from curvebench.results.archive import LOCAL
from curvebench.results.intervals import LEVEL
from curvebench.results.outcomes import failed
from curvebench.spec.method import OptimizerSpec
from curvebench.spec.plan import StudyPlan
from curvebench.spec.study import Contribution

FIELD = "field"  # Name of the study that a submission joins if it names no other
Standing = Literal["beats", "cannot be told from", "loses to"]
Edge = Literal["lowest", "highest"]


@dataclass(frozen=True)
class ProblemResult:
    """Result of a submission on a problem.

    Args:
        problem: label of the workload.
        median: median of the headline metric over seeds.
        ratio: `median` divided by the best median of any method; infinite if only the best median is 0.
        best: label of the method with the best median.
        reached: number of final runs that reached the first target; 0 if the workload has no target.
        failed: number of final runs that failed (`curvebench.results.outcomes`).
        seeds: number of final runs.
        evaluations: median over seeds of the gradient evaluations to the target; infinite if at least half of
            the runs missed the target, or if the workload has no target.
        learning_rate: learning rate that tuning chose; None if all final runs failed.
        edge: "lowest" or "highest" if tuning chose this end of the range of learning rates that it tried, so
            that a better rate may lie beyond the range; None if the chosen rate is inside the range.
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
class Place:
    """A submission among the methods of one group of problems.

    Args:
        group: name of the group; empty if the study has no groups.
        row: row of the submission on the board of the group; if all final runs of the submission failed, the
            row has no rank, score and mean rank.
        methods: number of methods with a score on the board.
        problems: number of problems of the board.
        standing: for each other method, by its label, whether the submission beats it. Empty if the
            submission has no rank.
    """

    group: str
    row: MethodRow
    methods: int
    problems: int
    standing: Mapping[str, Standing]


@dataclass(frozen=True)
class Placed:
    """A submission on the boards of the study that the submission joins.

    Args:
        field: name of the study that the submission joins.
        origin: name of the published set that contains the submission, or
            `curvebench.results.archive.LOCAL` for local runs.
        contributed: author, paper and code of the submission; None if the author did not give them.
        backend: backend of the submission's runs.
        field_backend: backend of the runs of the field's methods.
        command: command that runs the submission again.
        method: label of the submission.
        places: the submission among the methods of each group of problems on which it ran.
        diverged: number of final runs, and how many of them failed.
        field_problems: number of problems of the published study.
        problems: results of the submission on each problem on which it ran.
    """

    field: str
    origin: str
    contributed: Contribution | None
    backend: str
    field_backend: str
    command: str
    method: str
    places: tuple[Place, ...]
    diverged: Share
    field_problems: int
    problems: tuple[ProblemResult, ...]


def standings(problems: Sequence[StudyProblem], method: str, rivals: Sequence[str]) -> dict[str, Standing]:
    """Compare a method with every other method by the share of problem instances that the method wins.

    A tie counts as half an instance. The shares are averaged over the seeds of each problem, then over
    problems. The method beats another method if the whole interval of the share is above one half, and loses
    to the other method if the whole interval is below one half. With a probability of at least 95 %, the
    intervals of all comparisons contain the true shares: each interval misses its share with a probability of
    at most 5 % divided by the number of other methods (Bonferroni's correction).

    Args:
        method: label of the method that is compared with all other methods.
        rivals: labels of the other methods.

    Returns:
        The result by the label of the other method. Methods that share no problem instance with `method` are
        missing.
    """
    level = 1 - (1 - LEVEL) / max(len(rivals), 1)
    standing_of: dict[str, Standing] = {}
    for rival in rivals:
        ranks = mean_ranks(ranks_on(problems, [method, rival]), level)
        pair = {row["method"]: row for row in ranks.to_dicts()}
        if len(pair) == 2:
            low, high = pair[method]["low"] or 1.0, pair[method]["high"] or 2.0
            standing_of[rival] = "beats" if high < 1.5 else "loses to" if low > 1.5 else "cannot be told from"
    return standing_of


def submissions(study: StudyPlan, tables: Tables, boards: Sequence[Board] = ()) -> list[Placed]:
    """Return the submissions that join a study, each with its rows on the study's boards.

    Args:
        tables: tables of the study and of the studies that join it (`curvebench.reports.tables.tables_of`).
        boards: boards of a report. Those that rank this study alone on its first backend are used; if there
            are none, they are computed.
    """
    if not study.joined:
        return []
    key = study.backends[0], study.name
    own = [board for board in boards if board.key == key]
    own = own or [leaderboard([(study, tables)], key[0], group) for group in study.groups or [""]]
    placed = []
    for source, joined in ((source, plan) for source, plans in study.joined.items() for plan in plans):
        for optimizer in joined.optimizers:
            method = optimizer.label
            rows = [(board, row) for board in own for row in board.rows if row.method == method]
            if not rows:
                continue
            rates = chosen_rates(tables.runs.filter(method=method)).iter_rows(named=True)
            chosen = {rate["workload"]: rate for rate in rates}
            placed.append(
                Placed(
                    field=study.name,
                    origin=source,
                    contributed=joined.contributed,
                    backend=joined.backends[0],
                    field_backend=study.backends[0],
                    command=_command(
                        optimizer, study.name, [workload.name for workload in joined.workloads], source
                    ),
                    method=method,
                    places=tuple(_place(study, tables, board, row) for board, row in rows),
                    diverged=added([row.diverged for _, row in rows]) or Share(0, 0),
                    field_problems=study.all_workloads or len(study.workloads),
                    problems=tuple(one for board, row in rows for one in _problems(board, row, chosen)),
                )
            )
    return placed


def _place(study: StudyPlan, tables: Tables, board: Board, row: MethodRow) -> Place:
    """Return the place of a submission, whose row is `row`, on a board of the study."""
    lost = row.diverged.successes == row.diverged.count
    ranked = [other.method for other in board.rows if other.score]
    problems = [problem for problem in problems_of(study, tables) if problem.is_in(board.group)]
    rivals = [] if lost or row.method not in ranked else [name for name in ranked if name != row.method]
    return Place(
        group=board.group,
        row=replace(row, rank=None, score=None, mean_rank=None) if lost else row,
        methods=len(ranked),
        problems=len(board.problems),
        standing=standings(problems, row.method, rivals),
    )


def _command(optimizer: OptimizerSpec, field: str, problems: Sequence[str], source: str) -> str:
    """Return the shell command that runs a submission again.

    For a submission in a published set, the command runs the submission on all problems of the study. It uses
    a new label, because the label of the submission is taken.

    Args:
        optimizer: the submitted optimizer.
        field: name of the study that the submission joins.
        problems: labels of the problems on which the submission ran.
        source: name of the published set that contains the submission, or
            `curvebench.results.archive.LOCAL` for local runs.
    """
    arguments = optimizer.options if optimizer.only_backend is None else optimizer.options["arguments"]
    space = {"space": optimizer.space} if optimizer.space else {}
    more = {"also_try": optimizer.also_try} if optimizer.also_try else {}
    options = {**arguments, **optimizer.hyperparameters, **space, **more}
    label = optimizer.label if source == LOCAL else f"{optimizer.label}-again"
    library, _, where = optimizer.locator.partition(":")
    # A class of PyTorch in a file is recognized without the prefix "torch:".
    named = where if library == "torch" and ".py:" in where else optimizer.locator
    words = ["curvebench", "try", named, "--label", label]
    words += ["--options", json.dumps(options)] if options else []
    words += ["--field", field] if field != FIELD else []
    words += ["--problems", ",".join(problems)] if source == LOCAL else []
    return shlex.join(words)


def _problems(board: Board, row: MethodRow, chosen: Mapping[str, dict[str, Any]]) -> Iterator[ProblemResult]:
    """Yield the results of a submission on the problems on which it ran.

    Args:
        row: row of the submission on the board.
        chosen: by workload, the submission's row of `chosen_rates`: the learning rate of the final runs, and
            the range of learning rates that tuning tried.
    """
    for index, (column, entry) in enumerate(zip(board.columns, row.entries, strict=True)):
        if entry is None:
            continue
        medians = {line.method: cell.value.median for line in board.rows if (cell := line.entries[index])}
        best = (min if column.study.direction == "minimize" else max)(medians, key=medians.__getitem__)
        median, best_median = medians[row.method], medians[best]
        tuned, lost = chosen[column.workload], entry.diverged.successes == entry.diverged.count
        yield ProblemResult(
            column.workload,
            median,
            median / best_median if best_median else 1.0 if median == best_median else math.inf,
            best,
            int(entry.reached.successes) if entry.reached else 0,
            int(entry.diverged.successes),
            entry.value.count,
            entry.evaluations.median if entry.evaluations else math.inf,
            None if lost else tuned["learning_rate"],
            None if lost else edge_of(tuned),
        )


def edge_of(tuned: Mapping[str, Any]) -> Edge | None:
    """Return which end of the range of learning rates tuning chose; None if it chose neither end.

    Args:
        tuned: row of `chosen_rates`, with the chosen rate and the range of rates that tuning tried.
    """
    if not tuned["at_edge"]:
        return None
    return "lowest" if tuned["learning_rate"] <= tuned["least"] else "highest"


def hopeless(runs: pl.DataFrame, named: str, method: str) -> str | None:
    """Return a text with a line for each problem on which every run of a method failed.

    The result is None if there is no such problem.

    Args:
        runs: the table `runs`, with tuning runs and final runs (`curvebench.results.schema.RUNS`).
        named: name of the method in the text, to which the label is added.
        method: label of the method.
    """
    of_method = runs.filter(method=method)
    ended = of_method.filter(~failed())["workload"].unique().implode()
    lost = of_method.filter(~pl.col("workload").is_in(ended)).partition_by("workload", maintain_order=True)
    return "\n".join(f"{named} ({method}): {_lost(runs)}" for runs in lost) or None


def _lost(lost: pl.DataFrame) -> str:
    """Describe how the runs of a method on a problem failed.

    Args:
        lost: rows of the table `runs` of one method on one workload; all of these runs failed.
    """
    counts = lost["outcome"].value_counts(sort=True)
    outcomes = listed([f"{count} {name.replace('_', ' ')}" for name, count in counts.iter_rows()])
    steps = lost["outcome_step"].drop_nulls().sort()
    by_step = f" (half of them by step {steps[len(steps) // 2]})" if len(steps) else ""
    reason = next(iter(lost["reason"].drop_nulls()), f"the loss is not finite{by_step}")
    return f"every run on {lost['workload'][0]} failed ({outcomes}): {reason}"


# --- what is printed -----------------------------------------------------------------------------


def as_text(placed: Placed) -> str:
    """Format the results of a submission as text for people."""
    return text_of("submission", placed=placed)


def as_json(placed: Placed) -> dict[str, Any]:
    """Convert the results of a submission to JSON values; infinite numbers become null."""
    fields = ("method", "field", "command", "backend", "field_backend")
    return {
        **{name: getattr(placed, name) for name in fields},
        "runs": int(placed.diverged.count),
        "failed": int(placed.diverged.successes),
        "groups": [
            {
                "group": place.group,
                "acts_as": place.row.acts_as,
                "methods": place.methods,
                **{
                    name: json_value(asdict(value)) if (value := getattr(place.row, name)) else None
                    for name in ("rank", "ranges", "score", "mean_rank")
                },
                "standing": dict(place.standing),
            }
            for place in placed.places
        ],
        "problems": [json_value(asdict(problem)) for problem in placed.problems],
    }
