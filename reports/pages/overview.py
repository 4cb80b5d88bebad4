"""Overview: which method to use for each workload, and a map of all methods and problems.

For each workload, the overview names the method that reaches the target first and the method that ends best,
which has the best headline metric after equal steps. A cell of the map says how many times worse than the
best method a method is. A method is an optimizer in a basis (an orthogonal change of coordinates of the
parameters). A study joins another study if it adds methods to the other study. A board is a ranking of
methods that ran on the same problems. The headline metric is the metric by which a study compares methods.
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

# Upper bounds of the ratios that cells of the map show in the colours 0 to 3.
# Ratios above the last bound have colour 4, and a method that misses the target has colour 5.
STEPS = (1.1, 1.5, 3.0, 10.0)
LEAST_PROBLEMS = 2  # Minimum number of problems that a method must have run to get a column of the map.


@dataclass(frozen=True)
class BestMethods:
    """Methods that may be the best by one criterion.

    Args:
        methods: labels of the methods that may be the best; the first one has the best median.
        beaten: number of all other methods. Each of them is significantly worse than at least one method.
        smallest_p: smallest corrected p-value that is possible with the seeds that the methods share.
    """

    methods: tuple[str, ...]
    beaten: int
    smallest_p: float

    @property
    def method(self) -> str:
        """Method with the best median."""
        return self.methods[0]

    @property
    def can_reject(self) -> bool:
        """Whether there are enough seeds for a test to find one method better than another."""
        return self.smallest_p <= ALPHA


@dataclass(frozen=True)
class Winner:
    """Result of the best method on a workload. Costs include the gradients sampled for the method's basis.

    Args:
        measure: criterion by which the method is the best: "target" for the cost to the target, "end" for the
            headline metric after equal steps.
        best: the method, and the other methods that may be the best.
        value: headline metric of the method.
        effect: effect of the method on the headline metric, seed by seed, compared to the baseline (the
            study's first method); None if the method is the baseline.
        evaluations, seconds: cost to the target, in gradient evaluations and in seconds. Both are None if
            there is no target; `seconds` is also None if steps were not timed.
        basis: gradient evaluations for the basis before the first step; 0 if the basis needs none.
        reached: share of runs that reached the target; None if there is no target.
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
    """Recommendation for one workload.

    Args:
        backend: the study's first backend.
        baseline: the study's first method, with which the headline metric of other methods is compared.
        target: metric and threshold of the target; None if the workload has no target.
        use: the recommended method. If there is a target, the recommended method is the method that reaches
            the target first, including the cost of its basis. If there is no target, or if every method
            misses the target in half of its runs, the recommended method is the method that ends best.
        ends: the method that ends best, that is, with the best headline metric after equal steps.
        medians: median of each method, in the quantity by which the recommended method was chosen.
        shared: whether other studies have the same workload.
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
        """Whether the recommended method is also the method that ends best."""
        return self.use.best.method == self.ends.best.method

    @property
    def winners(self) -> tuple[Winner, ...]:
        """The recommended method, and the method that ends best if it is another method.

        The result is empty if there are too few seeds to find one method better than another.
        """
        if len(self.medians) > 1 and not self.use.best.can_reject:
            return ()
        return (self.use,) if self.agree else (self.use, self.ends)


def answers(studies: Sequence[tuple[StudyPlan, Tables]]) -> list[Answer]:
    """Return one answer (recommendation of a method) for each workload of each study, on its first backend.

    A workload without final runs has no answer.
    """
    problems = (problem for study_tables in studies for problem in measures.problems_of(*study_tables))
    unmarked = [_answer(problem) for problem in problems if len(problem.values)]
    names = Counter(answer.workload.name for answer in unmarked)
    return [replace(answer, shared=names[answer.workload.name] > 1) for answer in unmarked]


def _answer(problem: measures.StudyProblem) -> Answer:
    """Return the answer (recommendation of a method) for one problem."""
    study, target, final, values = problem.study, problem.target, problem.final, problem.values
    with_values = set(values["method"])
    baseline = next(method for method in study.methods if method in with_values)
    # Without a target, the name of its metric is empty. The table of times to the target then has no rows.
    target_metric = target[0] if target else ""
    times = measures.evaluations_to_target(final, target_metric)

    def winner(measure: Literal["target", "end"], best: BestMethods) -> Winner:
        runs = final.filter(method=best.method)
        evaluations = times.filter(method=best.method)["value"]
        return Winner(
            measure=measure,
            best=best,
            value=median_interval(values.filter(method=best.method)["value"].to_numpy()),
            effect=None if best.method == baseline else effect_by_seed(study, values, best.method, baseline),
            evaluations=measures.complete_interval(evaluations),
            seconds=measures.complete_interval(measures.seconds_to_target(runs, target_metric)["value"]),
            basis=int(runs["basis_gradient_evaluations"].fill_null(0).max()),  # type: ignore[arg-type]
            reached=measures.reached_share(evaluations),
        )

    ends = winner("end", best_methods_of(values, study.direction, study.methods))
    use, criterion = ends, values
    if len(times):
        sign = 1 if study.direction == "minimize" else -1
        at_end = measures.median_by_method(values)
        ended = [name for name in study.methods if name in at_end]
        order = sorted(ended, key=lambda name: sign * at_end[name].median)
        # If several methods reach the target first, the method that ends best is recommended.
        first = best_methods_of(times, "minimize", order)
        fewest = median_interval(times.filter(method=first.method)["value"].to_numpy())
        if isfinite(fewest.median):
            use, criterion = winner("target", first), times
    medians = {name: value.median for name, value in measures.median_by_method(criterion).items()}
    return Answer(study, problem.workload, problem.backend, baseline, target, use, ends, medians)


def best_methods_of(values: pl.DataFrame, direction: Direction, order: Sequence[str]) -> BestMethods:
    """Return the methods that may be the best, the method with the best median first.

    Args:
        values: columns method, seed, value.
        direction: whether less or more of the value is better.
        order: labels of the methods. Of methods whose medians tie, the first in this order comes first.
    """
    chosen = best_set(values, direction, ALPHA, NEGLIGIBLE)
    # If methods beat each other in a circle, `best_set` excludes every method.
    # If `best_set` excludes every method, all methods may be the best.
    candidates = set(chosen.filter("kept")["method"]) or set(chosen["method"])
    # A method without a finite value is never the best.
    finished = set(values.filter(pl.col("value").is_finite())["method"])
    beaten, candidates = len(chosen) - len(candidates), candidates & finished or candidates
    median_of = {name: value.median for name, value in measures.median_by_method(values).items()}
    sign = 1 if direction == "minimize" else -1
    best = sorted((name for name in order if name in candidates), key=lambda name: sign * median_of[name])
    lead = next(name for name in order if name in candidates and tied(median_of[name], median_of[best[0]]))
    methods = (lead, *(name for name in best if name != lead))
    return BestMethods(methods, beaten, least_p_value(values))


# --- the heat map -------------------------------------------------------------------------------


@dataclass(frozen=True)
class HeatCell:
    """Cell of the map: one method on one problem.

    Args:
        ratio: the method's median divided by the best median, or its inverse for a metric that is maximized;
            at least 1. The ratio is infinite if half of the runs missed the target.
        level: number of the colour, from 0 for the best method to 5 for a method that missed the target.
        best: whether the method reached the target and is not significantly worse than any method.
    """

    ratio: float
    level: int
    best: bool


@dataclass(frozen=True)
class HeatRow:
    """Row of the map: a problem with one cell per method; the cell of a method that did not run is None."""

    answer: Answer
    cells: tuple[HeatCell | None, ...]


@dataclass(frozen=True)
class HeatMap:
    """Map of methods and problems, with a column per method and a row per problem.

    The first board is the board with the most results.

    Args:
        methods: first the methods that joining studies add, then the methods of the first board by rank, then
            the other methods by their number of problems.
        rows: problems.
        joined: number of methods that joining studies add.
        ranked: number of methods that the first board ranks and that no joining study adds. If there is no
            board, the number of all methods that no joining study adds.
    """

    methods: tuple[str, ...]
    rows: tuple[HeatRow, ...]
    joined: int = 0
    ranked: int = 0

    @property
    def leading(self) -> HeatMap:
        """Part of the heat map that fits on a page: submissions that join a study, and the best others.

        Problems that fewer than half of the shown methods ran are left out.
        """
        columns = self.joined + min(self.ranked, max(MOST_DRAWN - self.joined, 1))
        rows = (replace(row, cells=row.cells[:columns]) for row in self.rows)
        full = tuple(row for row in rows if 2 * row.cells.count(None) <= columns)
        return replace(self, methods=self.methods[:columns], rows=full)


def folded(answers: Sequence[Answer]) -> tuple[list[Answer], list[Answer]]:
    """Divide answers into one answer for each problem and the remaining answers.

    Of several answers for a problem, the answer with the most methods that also ran on other problems is
    chosen. Answers of studies that only repeat claims of other studies are never chosen.
    """
    original = [answer for answer in answers if not answer.study.only_repeats]
    method_problems = {(method, answer.workload.name) for answer in original for method in answer.medians}
    counts = Counter(method for method, _ in method_problems)

    def shared(answer: Answer) -> int:
        return sum(counts[method] >= LEAST_PROBLEMS for method in answer.medians)

    best: dict[str, Answer] = {}
    # Sorting is stable, so that the first of several equally good answers is chosen.
    for answer in sorted(original, key=shared, reverse=True):
        best.setdefault(answer.workload.name, answer)
    chosen = [answer for answer in answers if best.get(answer.workload.name) is answer]
    return chosen, [answer for answer in answers if best.get(answer.workload.name) is not answer]


def heat_map(answers: Sequence[Answer], board: Board | None = None) -> HeatMap:
    """Return the map of methods and problems.

    Problems that a single method ran are left out. Methods that ran a single problem are left out too, if
    there are several problems and the method was not added by a joining study.

    Args:
        answers: one answer for each problem.
        board: the first board, which orders the methods; None to order them by their number of problems.
    """
    costs = [_costs(answer) for answer in answers]
    counts = Counter(method for cost_of in costs for method in cost_of)
    studies = (study for answer in answers for study in answer.study.joining)
    joining = {optimizer.label for study in studies for optimizer in study.optimizers}
    joined = [method for method in counts if Method.of(method).optimizer in joining]
    required_problems = min(LEAST_PROBLEMS, len(answers))
    often = (method for method, count in counts.most_common() if count >= required_problems)
    not_joined = [method for method in often if method not in joined]
    ranked = [row.method for row in board.rows if row.method in not_joined] if board else not_joined
    methods = tuple(dict.fromkeys((*joined, *ranked, *not_joined)))
    rows = [
        HeatRow(answer, tuple(_cell(answer, cost_of, method) for method in methods))
        for answer, cost_of in zip(answers, costs, strict=True)
    ]
    comparable_rows = tuple(row for row in rows if len(row.cells) - row.cells.count(None) > 1)
    return HeatMap(methods, comparable_rows, len(joined), len(ranked))


def _costs(answer: Answer) -> dict[str, float]:
    """Return for each method the quantity, to be minimized, by which the map compares methods.

    If the recommended method was chosen by gradient evaluations to the target, the quantity is this number of
    evaluations. Otherwise the quantity is the headline metric at the end of runs, or the inverse of a metric
    that is maximized. The result is empty if a value is not positive, because ratios then have no meaning.
    """
    maximized = answer.use.measure == "end" and answer.study.direction == "maximize"
    costs = {method: 1 / value if maximized and value else value for method, value in answer.medians.items()}
    return costs if all(value > 0 for value in costs.values()) else {}


def _cell(answer: Answer, costs: dict[str, float], method: str) -> HeatCell | None:
    if method not in costs:
        return None
    ratio = costs[method] / min(costs.values()) if isfinite(costs[method]) else inf
    level = 5 if ratio == inf else sum(ratio > step for step in STEPS)
    return HeatCell(ratio, level, isfinite(ratio) and method in answer.use.best.methods)
