"""The leaderboard as a table: one row a backend, set of studies and method, for programs that read it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from reports.leaderboard import Board, Column, Count, Entry, Row, Tuning
from reports.statistics.medians import MedianInterval
from results.schema import LEADERBOARD


def board_table(boards: Sequence[Board], scale: str) -> pl.DataFrame:
    """The table `leaderboard` of boards at one scale, in their order and the best method first.

    Numbers that a board does not have (no target, too few seeds for an interval, no sweep, nothing timed)
    are null; the column `workloads` is nested, all others are flat.
    """
    rows = [
        _row(board, row, place, scale) for board in boards for place, row in enumerate(board.rows, start=1)
    ]
    return pl.DataFrame(rows, schema=LEADERBOARD)


def _row(board: Board, row: Row, place: int, scale: str) -> dict[str, Any]:
    score, rank, decades = row.score, row.rank, row.decades
    return {
        "scale": scale,
        "backend": board.backend,
        "studies": ", ".join(board.studies),
        "place": place,
        "method": row.method,
        "basis": row.basis,
        "score": score and score.value,
        "score_low": score and score.low,
        "score_high": score and score.high,
        "rank": score and score.rank,
        "rank_low": score and score.rank_low,
        "rank_high": score and score.rank_high,
        "mean_rank": rank and rank.mean,
        "mean_rank_low": rank and rank.low,
        "mean_rank_high": rank and rank.high,
        "met": sum(entry is not None for entry in row.entries),
        **_counts(row.wins, "wins", "instances"),
        **_counts(row.reached, "reached", "aimed"),
        **_counts(row.diverged, "diverged", "runs"),
        **_interval(row.step, "step_ratio"),
        "step_reference": board.reference,
        "peak_memory_bytes": row.memory,
        "memory_of": board.memory,
        "nearly_best_decades": decades and decades.mean,
        "nearly_best_decades_low": decades and decades.low,
        "nearly_best_decades_high": decades and decades.high,
        **_tuning(row.tuning),
        "tuned_equally": board.tuned_equally,
        "workloads": [
            _workload(column, entry)
            for column, entry in zip(board.columns, row.entries, strict=True)
            if entry is not None
        ],
    }


def _workload(column: Column, entry: Entry) -> dict[str, Any]:
    metric, threshold = column.target or (None, None)
    return {
        "study": column.study,
        "workload": column.workload,
        "metric": column.metric,
        "which": column.which,
        "direction": column.direction,
        "seeds": entry.value.count,
        **_interval(entry.value, "value"),
        "best": entry.best,
        **_counts(entry.wins, "wins", "instances"),
        **_counts(entry.diverged, "diverged", "runs"),
        "target_metric": metric,
        "target": threshold,
        "reached": entry.reached and entry.reached.successes,
        **_interval(entry.evaluations, "evaluations_to_target"),
        **_interval(entry.seconds, "seconds_to_target"),
        **_interval(entry.decades, "nearly_best_decades"),
        **_tuning(entry.tuning),
    }


def _interval(value: MedianInterval | None, name: str) -> dict[str, Any]:
    return {
        name: value and value.median,
        f"{name}_low": value and value.low,
        f"{name}_high": value and value.high,
    }


def _counts(count: Count | None, successes: str, total: str) -> dict[str, Any]:
    return {successes: count and count.successes, total: count and count.count}


def _tuning(tuning: Tuning | None) -> dict[str, Any]:
    return {
        "tuned_by": tuning and tuning.tuner,
        "tuning_runs": tuning and tuning.runs,
        "tuning_gradient_evaluations": tuning and tuning.evaluations,
    }
