"""Which method to use for what: on every workload the first at the target and the one that ends best.

The map of methods and problems has in each cell how many times worse than the best a method is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, isfinite
from typing import Literal

import polars as pl

from curvebench.reports import measures
from curvebench.reports.boards.leaderboard import Board
from curvebench.reports.claims.censoring import PairedEffect, effect_by_seed
from curvebench.reports.figures.all_figures import MOST_DRAWN
from curvebench.reports.statistics.paired import Direction
from curvebench.reports.statistics.ranks import NEGLIGIBLE, tied
from curvebench.reports.statistics.selection import best_set, least_p_value
from curvebench.reports.statistics.shares import Share
from curvebench.reports.tables import Tables
from curvebench.results.intervals import MedianInterval, median_interval
from curvebench.results.verdicts import ALPHA
from curvebench.spec.method import Method
from curvebench.spec.plan import StudyPlan, WorkloadPlan

STEPS = (1.1, 1.5, 3.0, 10.0)  # ratios up to which a cell has the colours 0 to 3; 4 above, 5 for a miss
LEAST_PROBLEMS = 2  # that a method needs for a column of its own


@dataclass(frozen=True)
class BestMethods:
    """The methods that may be the best by one measure, the one with the best median first.

    Args:
        beaten: how many others are out of the question.
        least: the smallest corrected p-value that shared seeds permit.
    """

    methods: tuple[str, ...]
    beaten: int
    least: float

    @property
    def method(self) -> str:
        """The one with the best median."""
        return self.methods[0]

    @property
    def can_reject(self) -> bool:
        """Whether the seeds are enough to distinguish a method from the others."""
        return self.least <= ALPHA


@dataclass(frozen=True)
class Winner:
    """How the best method ends on a workload, and what the target took it, the sampling of its basis charged.

    Args:
        measure: what it is the best at: getting to the target, or the end after equal steps.
        value: the headline metric.
        effect: beside the baseline, seed by seed; None for the baseline itself.
        evaluations, seconds: to the target; None without a target, or where steps were not timed.
        basis: gradient evaluations before the first step; 0 without a basis.
        reached: runs that reached the target; None without one.
    """

    measure: Literal["target", "end"]
    best: BestMethods
    value: MedianInterval
    effect: PairedEffect | None
    evaluations: MedianInterval | None
    seconds: MedianInterval | None
    basis: int
    reached: Share | None


@dataclass(frozen=True)
class Answer:
    """What may be said of one workload.

    Args:
        backend: the study's first.
        baseline: the study's first method, with which losses are compared.
        target: the metric and threshold; None where the study has none.
        ends: the method that ends best after equal steps.
        use: the method to use: the first at the target, its sampling charged; without a target, or where half
            of the runs of every method miss it, the one that ends best.
        medians: by method, of that by which the method to use is chosen.
        shared: whether other studies have the workload too.
    """

    study: StudyPlan
    workload: WorkloadPlan
    backend: str
    baseline: str
    target: tuple[str, float] | None
    use: Winner
    ends: Winner
    medians: Mapping[str, float]
    shared: bool = False

    @property
    def agree(self) -> bool:
        """Whether the method to use is the one that ends best."""
        return self.use.best.method == self.ends.best.method

    @property
    def winners(self) -> tuple[Winner, ...]:
        """The method to use and, if it is another, the one that ends best; none where seeds are too few."""
        if len(self.medians) > 1 and not self.use.best.can_reject:
            return ()
        return (self.use,) if self.agree else (self.use, self.ends)


def answers(studies: Sequence[tuple[StudyPlan, Tables]]) -> list[Answer]:
    """One answer a workload of a study, on the study's first backend; none where there are no final runs."""
    problems = (problem for own in studies for problem in measures.problems_of(*own))
    found = [_answer(problem) for problem in problems if len(problem.values)]
    names = Counter(answer.workload.name for answer in found)
    return [replace(answer, shared=names[answer.workload.name] > 1) for answer in found]


def _answer(problem: measures.StudyProblem) -> Answer:
    study, target, final, values = problem.study, problem.target, problem.final, problem.values
    there = set(values["method"])
    baseline = next(method for method in study.methods if method in there)
    aimed = target[0] if target else ""  # of which no run has times
    times = measures.evaluations_to_target(final, aimed)

    def winner(measure: Literal["target", "end"], best: BestMethods) -> Winner:
        runs = final.filter(method=best.method)
        evaluations = times.filter(method=best.method)["value"]
        return Winner(
            measure=measure,
            best=best,
            value=median_interval(values.filter(method=best.method)["value"].to_numpy()),
            effect=None if best.method == baseline else effect_by_seed(study, values, best.method, baseline),
            evaluations=measures.complete_interval(evaluations),
            seconds=measures.complete_interval(measures.seconds_to_target(runs, aimed)["value"]),
            basis=int(runs["basis_gradient_evaluations"].fill_null(0).max()),  # type: ignore[arg-type]
            reached=measures.reached_share(evaluations),
        )

    ends = winner("end", best_methods_of(values, study.direction, study.methods))
    use, judged = ends, values
    if len(times):
        sign = 1 if study.direction == "minimize" else -1
        at_end = measures.median_by_method(values)
        order = sorted(
            (name for name in study.methods if name in at_end), key=lambda name: sign * at_end[name].median
        )
        first = best_methods_of(times, "minimize", order)  # of two that are as soon, the one that ends best
        fewest = median_interval(times.filter(method=first.method)["value"].to_numpy())
        if isfinite(fewest.median):
            use, judged = winner("target", first), times
    found = {name: value.median for name, value in measures.median_by_method(judged).items()}
    return Answer(study, problem.workload, problem.backend, baseline, target, use, ends, found)


def best_methods_of(values: pl.DataFrame, direction: Direction, order: Sequence[str]) -> BestMethods:
    """The methods that may be the best; of medians that tie, the one that is named first leads.

    Args:
        values: columns method, seed, value.
        order: names of methods.
    """
    chosen = best_set(values, direction, ALPHA, NEGLIGIBLE)
    # of a ring in which each beats the next nobody is kept, and all may be the best
    kept = set(chosen.filter("kept")["method"]) or set(chosen["method"])
    finished = set(values.filter(pl.col("value").is_finite())["method"])  # others are not the best
    beaten, kept = len(chosen) - len(kept), kept & finished or kept
    found = {name: value.median for name, value in measures.median_by_method(values).items()}
    sign = 1 if direction == "minimize" else -1
    best = sorted((name for name in order if name in kept), key=lambda name: sign * found[name])
    lead = next(name for name in order if name in kept and tied(found[name], found[best[0]]))
    methods = (lead, *(name for name in best if name != lead))
    return BestMethods(methods, beaten, least_p_value(values))


# --- the map ------------------------------------------------------------------------------------


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
    ratio = costs[method] / min(costs.values()) if isfinite(costs[method]) else inf
    level = 5 if ratio == inf else sum(ratio > step for step in STEPS)
    return HeatCell(ratio, level, isfinite(ratio) and method in answer.use.best.methods)
