"""Which method is good where: problems by methods, each cell how many times worse than the best it is."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from curvebench.reports.boards.leaderboard import Board
from curvebench.reports.figures.all_figures import MOST_DRAWN
from curvebench.reports.pages.overview import Answer
from curvebench.spec.method import Method

STEPS = (1.1, 1.5, 3.0, 10.0)  # ratios up to which a cell has the colours 0 to 3; 4 above, 5 for a miss
LEAST_PROBLEMS = 2  # that a method needs for a column of its own


@dataclass(frozen=True)
class HeatCell:
    """A method on a problem.

    Args:
        ratio: to the best median (of what is to be large the best one to it), 1 or more; infinite where half
            of its runs missed the target.
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
    """A column a method and a row a problem.

    Args:
        methods: those that join a study first, then those of the first board as it ranks them, then those on
            most problems.
        joined: how many join.
        ranked: how many the first board ranks beside them; all others where there is none.
    """

    methods: tuple[str, ...]
    rows: tuple[HeatRow, ...]
    joined: int = 0
    ranked: int = 0

    @property
    def leading(self) -> HeatMap:
        """The columns that fit a page, those that join and the best of the first board, and their rows.

        A problem on which fewer than half of them ran is left out.
        """
        kept = self.joined + min(self.ranked, max(MOST_DRAWN - self.joined, 1))
        rows = (replace(row, cells=row.cells[:kept]) for row in self.rows)
        full = tuple(row for row in rows if 2 * row.cells.count(None) <= kept)
        return replace(self, methods=self.methods[:kept], rows=full)


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
    for answer in sorted(own, key=shared, reverse=True):  # of equal ones the first stays first
        best.setdefault(answer.workload.name, answer)
    kept = [answer for answer in answers if best.get(answer.workload.name) is answer]
    return kept, [answer for answer in answers if best.get(answer.workload.name) is not answer]


def heat_map(answers: Sequence[Answer], board: Board | None = None) -> HeatMap:
    """The map of one answer a problem; rows of one method are left out.

    So are columns of one problem of several, but of methods that join.

    Args:
        board: the one that comes first.
    """
    costs = [_costs(answer) for answer in answers]
    counts = Counter(method for own in costs for method in own)
    joining = {one.label for answer in answers for other in answer.study.joining for one in other.optimizers}
    joined = [method for method in counts if Method.of(method).optimizer in joining]
    least = min(LEAST_PROBLEMS, len(answers))
    often = (method for method, count in counts.most_common() if count >= least)
    others = [method for method in often if method not in joined]
    ranked = [row.method for row in board.rows if row.method in others] if board else others
    methods = tuple(dict.fromkeys((*joined, *ranked, *others)))
    rows = [
        HeatRow(answer, tuple(_cell(answer, own, method) for method in methods))
        for answer, own in zip(answers, costs, strict=True)
    ]
    shown = tuple(row for row in rows if len(row.cells) - row.cells.count(None) > 1)
    return HeatMap(methods, shown, len(joined), len(ranked))


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
