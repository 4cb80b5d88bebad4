"""What reaching the target costs a method beside the one that needs least, over the workloads of a board."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass

from reports.leaderboard import Board, Entry
from reports.statistics.medians import MedianInterval


@dataclass(frozen=True)
class Spread:
    """The middle, the least and the greatest of a method's ratios, and over how many workloads they go.

    A description of these workloads, not an interval: they are no sample of others.
    """

    median: float
    least: float
    greatest: float
    workloads: int


def gradients_beside_fewest(board: Board) -> list[Spread | None]:
    """Each method's gradient evaluations to target over the fewest of any method, basis included.

    Returns:
        By row; None where a method took part in no workload that has a target.
    """
    return _beside_least(board, lambda entry: entry.evaluations)


def seconds_beside_fewest(board: Board) -> list[Spread | None]:
    """Each method's seconds to target over the fewest of any method, as for gradient evaluations."""
    return _beside_least(board, lambda entry: entry.seconds)


def _beside_least(board: Board, cost: Callable[[Entry], MedianInterval | None]) -> list[Spread | None]:
    ratios: list[list[float]] = [[] for _ in board.rows]
    for place in range(len(board.columns)):
        found = [
            (own, spent.median)
            for own, row in zip(ratios, board.rows, strict=True)
            if (entry := row.entries[place]) is not None and (spent := cost(entry)) is not None
        ]
        least = min((value for _, value in found), default=math.inf)
        for own, value in found:
            own.append(ratio_to_least(value, least))
    return [Spread(statistics.median(own), min(own), max(own), len(own)) if own else None for own in ratios]


def ratio_to_least(value: float, least: float) -> float:
    """A cost over the least: infinite for a target that was missed, 1 for the least even where it is 0."""
    if math.isinf(value):
        return math.inf
    return 1.0 if value == least else value / least if least else math.inf
