"""The leaderboard as a table: one row a backend, set of studies and method, for programs that read it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from curvebench.reports.boards.leaderboard import Board, BoardEntry, Column, MethodRow, Overall, TuningBudget
from curvebench.reports.statistics.shares import Share
from curvebench.results.intervals import MedianInterval
from curvebench.results.schema import LEADERBOARD
from curvebench.spec.method import Method


def board_table(boards: Sequence[Board], scale: str) -> pl.DataFrame:
    """The table `leaderboard` of boards at one scale, in their order and the best method first.

    Numbers that a board does not have (no target, too few seeds for an interval, no tuning, nothing timed)
    are null; the column `workloads` is nested, all others are flat.
    """
    rows = [
        _row(board, row, place, scale) for board in boards for place, row in enumerate(board.rows, start=1)
    ]
    return pl.DataFrame(rows, schema=LEADERBOARD)


def _row(board: Board, row: MethodRow, place: int, scale: str) -> dict[str, Any]:
    return {
        "scale": scale,
        "backend": board.backend,
        "studies": ", ".join(board.studies),
        "place": place,
        "method": row.method,
        "basis": Method.of(row.method).basis,
        **_interval(row.score, "score"),
        **_interval(row.rank, "rank"),
        **_interval(row.mean_rank, "mean_rank"),
        "met": sum(entry is not None for entry in row.entries),
        **_outcomes(row),
        **_interval(row.step, "step_ratio"),
        "step_reference": board.reference,
        "peak_memory_bytes": row.memory,
        "memory_of": board.memory,
        "tuned_equally": board.tuned_equally,
        "workloads": [
            _workload(column, entry)
            for column, entry in zip(board.columns, row.entries, strict=True)
            if entry is not None
        ],
    }


def _workload(column: Column, entry: BoardEntry) -> dict[str, Any]:
    metric, threshold = column.target or (None, None)
    return {
        "study": column.study.name,
        "workload": column.workload,
        **{name: getattr(column.study, name) for name in ("metric", "which", "direction")},
        "seeds": entry.value.count,
        **_interval(entry.value, "value"),
        "best": entry.best,
        "target_metric": metric,
        "target": threshold,
        **_outcomes(entry),
        **_interval(entry.evaluations, "evaluations_to_target"),
        **_interval(entry.seconds, "seconds_to_target"),
    }


def _outcomes(of: MethodRow | BoardEntry) -> dict[str, Any]:
    """What a method has on a workload as it has it over all."""
    tuning: TuningBudget | None = of.tuning
    return {
        **_counts(of.wins, "wins", "instances"),
        **_counts(of.reached, "reached", "aimed"),
        **_counts(of.diverged, "diverged", "runs"),
        **_interval(of.decades, "nearly_best_decades"),
        "tuned_by": tuning and tuning.tuner,
        "tuning_runs": tuning and tuning.runs,
        "tuning_gradient_evaluations": tuning and tuning.evaluations,
    }


def _interval(value: MedianInterval | Overall | None, name: str) -> dict[str, Any]:
    middle = value.median if isinstance(value, MedianInterval) else value and value.value
    return {name: middle, f"{name}_low": value and value.low, f"{name}_high": value and value.high}


def _counts(count: Share | None, successes: str, total: str) -> dict[str, Any]:
    return {successes: count and count.successes, total: count and count.count}
