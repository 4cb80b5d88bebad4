"""Which method is good where: problems by methods, each cell the ratio of its cost to the best."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from reports.pages.overview import Answer

STEPS = (1.1, 1.5, 3.0, 10.0)  # ratios up to which a cell has the colours 0 to 3; 4 above, 5 for a miss
LEAST_PROBLEMS = 2  # that a method needs for a column of its own


@dataclass(frozen=True)
class HeatCell:
    """A method on a problem.

    Args:
        ratio: to the best median, 1 or more; infinite where half of its runs missed the target.
        level: of the colour, 0 the best and 5 a miss.
        best: whether it reached the target and cannot be distinguished from the best.
    """

    ratio: float
    level: int
    best: bool


@dataclass(frozen=True)
class HeatRow:
    """A problem, and its cell of each column; None where the method did not run."""

    answer: Answer
    cells: tuple[HeatCell | None, ...]


@dataclass(frozen=True)
class HeatMap:
    """The methods that are columns, those on most problems first, and a row a problem."""

    methods: tuple[str, ...]
    rows: tuple[HeatRow, ...]


def folded(answers: Sequence[Answer]) -> tuple[list[Answer], list[Answer]]:
    """Of each problem one answer, that with most methods that other problems have, and the other answers.

    Studies that only repeat claims are among the others.
    """
    own = [answer for answer in answers if not answer.study.only_repeats]
    places = {(method, answer.workload.name) for answer in own for method in answer.medians}
    counts = Counter(method for method, _ in places)

    def shared(answer: Answer) -> int:
        return sum(counts[method] >= LEAST_PROBLEMS for method in answer.medians)

    best: dict[str, Answer] = {}
    for answer in own:
        name = answer.workload.name
        if name not in best or shared(answer) > shared(best[name]):
            best[name] = answer
    kept = [answer for answer in answers if best.get(answer.workload.name) is answer]
    return kept, [answer for answer in answers if best.get(answer.workload.name) is not answer]


def heat_map(answers: Sequence[Answer]) -> HeatMap:
    """The map of one answer a problem; rows of one method, and columns of one problem, are left out."""
    costs = [_costs(answer) for answer in answers]
    counts = Counter(method for own in costs for method in own)
    methods = tuple(method for method, count in counts.most_common() if count >= LEAST_PROBLEMS)
    rows = [
        HeatRow(answer, tuple(_cell(answer, own, method) for method in methods))
        for answer, own in zip(answers, costs, strict=True)
    ]
    return HeatMap(methods, tuple(row for row in rows if len(row.cells) - row.cells.count(None) > 1))


def _costs(answer: Answer) -> dict[str, float]:
    """What is to be small, by method: gradient evaluations to the target, or the loss or error at the end.

    Of what is to be large it is the inverse. Empty where a value is not positive: ratios say nothing then.
    """
    maximized = answer.use.measure == "end" and answer.study.direction == "maximize"
    found = {method: 1 / value if maximized and value else value for method, value in answer.medians.items()}
    return found if all(value > 0 for value in found.values()) else {}


def _cell(answer: Answer, costs: dict[str, float], method: str) -> HeatCell | None:
    if method not in costs:
        return None
    ratio = costs[method] / min(costs.values()) if math.isfinite(costs[method]) else math.inf
    level = 5 if math.isinf(ratio) else sum(ratio > step for step in STEPS)
    return HeatCell(ratio, level, math.isfinite(ratio) and method in answer.use.best.methods)
