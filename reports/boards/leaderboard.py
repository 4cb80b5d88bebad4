"""The leaderboard: the methods of studies at one scale on one backend, ranked over problem instances."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl

from curvebench.reports import measures
from curvebench.reports.measures import StudyProblem, problems_of
from curvebench.reports.statistics.profiles import RESAMPLED, score_intervals
from curvebench.reports.statistics.ranks import LEAST_SEEDS, instance_ranks, mean_ranks, wins
from curvebench.reports.statistics.shares import Share, joined, share_interval
from curvebench.reports.tables import Tables
from curvebench.reports.wall_clock import peak_memory, step_pairs
from curvebench.results.intervals import MedianInterval
from curvebench.spec.plan import StudyPlan
from curvebench.spec.sources import Source, source_of
from curvebench.spec.tuning import TwoStageSweep

Studies = Sequence[tuple[StudyPlan, Tables]]


@dataclass(frozen=True)
class Column:
    """One workload of one study.

    Args:
        target: the metric and threshold of the first one; None without.
        seeds: the most that a method has.
        can_reject: to distinguish a method from the others.
        entries: by method.
        times: until the first target, as `score_intervals` takes them.
    """

    study: StudyPlan
    workload: str
    target: tuple[str, float] | None
    seeds: int
    can_reject: bool
    entries: Mapping[str, BoardEntry]
    times: pl.DataFrame = field(compare=False)


@dataclass(frozen=True)
class TuningBudget:
    """What choosing a method's setting took, by runs of the method `tuner` (itself unless rates are shared).

    `evaluations` are gradient evaluations, those of the basis included.
    """

    tuner: str
    runs: int
    evaluations: int


@dataclass(frozen=True)
class Overall:
    """A number over the workloads of a board, and its interval, which is None with few seeds.

    `seeds` is the least number of seeds of a workload.
    """

    value: float
    low: float | None
    high: float | None
    workloads: int = 0
    seeds: int = 0


@dataclass(frozen=True)
class BoardEntry:
    """A method on a workload.

    Args:
        value: the headline metric.
        best: whether no other median is better.
        evaluations, seconds: to the target, the basis included; None without a target, or where steps were
            not timed.
        wins: instances on which the method is the best or ties with it, of those that all methods ran.
        reached, diverged: final runs; `reached` is None without a target.
        decades: of learning rates that do nearly as well as the best (`lr_robustness_decades`), over tuning
            seeds; None where the rate was not swept.
        tuning: None where the method was not tuned.
    """

    value: MedianInterval
    best: bool
    evaluations: MedianInterval | None
    seconds: MedianInterval | None
    wins: Share
    reached: Share | None
    diverged: Share
    decades: MedianInterval | None
    tuning: TuningBudget | None


@dataclass(frozen=True)
class MethodRow:
    """A method; `entries` follows the board's columns, with None where the method took no part.

    Args:
        score: the area under the performance profile; None where no study of the board has a target.
        rank: by the score, ties averaged.
        tier: of the score, from 1 on (`curvebench.reports.statistics.profiles`); None with few seeds too.
        mean_rank: over problem instances.
        wins, reached, diverged, tuning: sums over workloads; None where there is nothing to add.
        gradients, seconds: to target over the fewest of any method: the middle, the least and the greatest
            over workloads, which is no interval; None where the method took part in none with a target.
        decades: the mean over the workloads where the rate was swept; None where it never was.
    """

    method: str
    studies: tuple[str, ...]
    entries: tuple[BoardEntry | None, ...]
    score: Overall | None
    rank: Overall | None
    tier: int | None
    mean_rank: Overall | None
    wins: Share | None
    reached: Share | None
    diverged: Share
    gradients: Overall | None
    seconds: Overall | None
    step: MedianInterval | None
    memory: int | None
    decades: Overall | None
    tuning: TuningBudget | None


@dataclass(frozen=True)
class Board:
    """Best method first; those that met fewer workloads come after those that met more.

    Args:
        reference: the method over whose step the steps of the others are given.
        memory: where the peak memory was measured: `device` where each method has one, else `host`.
    """

    backend: str
    columns: tuple[Column, ...]
    rows: tuple[MethodRow, ...]
    reference: str | None
    memory: str

    @property
    def studies(self) -> tuple[str, ...]:
        """The studies whose workloads are its columns."""
        return tuple(dict.fromkeys(column.study.name for column in self.columns))

    @property
    def tuned_equally(self) -> bool:
        """Whether on every workload the same number of runs chose the setting of each method."""
        return all(
            len({entry.tuning.runs if entry.tuning else 0 for entry in entries if entry is not None}) <= 1
            for entries in zip(*(row.entries for row in self.rows), strict=True)
        )

    @property
    def late_winner(self) -> MethodRow | None:
        """The method with most wins, where others are told apart from it as better by the score."""
        winners = [row for row in self.rows if row.wins and row.wins.successes]
        most = max(winners, key=lambda row: row.wins.successes if row.wins else 0, default=None)
        return most if most and most.gradients and (most.tier or 1) > 1 else None


def by_source(boards: Sequence[Board]) -> tuple[Board | None, dict[Source, list[Board]]]:
    """The board that comes first, that with most results (a method on a problem), and the others by source.

    The source of a board is the document that its studies cite first.

    Args:
        boards: of equal ones the first comes first.
    """
    first = max(boards, key=lambda board: sum(len(one.entries) for one in board.columns), default=None)
    others: dict[Source, list[Board]] = {}
    for board in (board for board in boards if board is not first):
        others.setdefault(source_of(board.columns[0].study.source), []).append(board)
    return first, others


def leaderboards(studies: Studies) -> list[Board]:
    """A board for each backend and set of methods, in the order of the studies.

    A rank among three methods says nothing beside one among ten, so that only studies of the same methods
    share a board: one more study leaves the ranks of the others as they are. Those that only repeat claims of
    other studies have none, nor have those that join another, which stand on that one's.
    """
    studies = [one for one in studies if not (one[0].only_repeats or one[0].joins)]
    backends = dict.fromkeys(backend for study, _ in studies for backend in study.backends)
    contests: dict[frozenset[str], list[tuple[StudyPlan, Tables]]] = {}
    for study, tables in studies:
        contests.setdefault(frozenset(study.methods), []).append((study, tables))
    boards = [leaderboard(contest, backend) for backend in backends for contest in contests.values()]
    return [board for board in boards if board.columns]


def leaderboard(studies: Studies, backend: str) -> Board:
    """Compare every method on one backend.

    The score is the area under the performance profile of gradient evaluations to target, the median over
    seeds on each workload (see `curvebench.reports.statistics.profiles`). Beside it stands the mean rank by
    the headline metric: inside a workload, methods are ranked on every problem instance (seed) that all of
    them ran, 1 being best; ranks are averaged over seeds, then over workloads with equal weight (see
    `curvebench.reports.statistics.ranks`). Methods are ordered by the workloads they met, the score, the
    mean rank.
    """
    columns = tuple(_column(problem) for problem in _finished(studies, backend))
    ranks = board_ranks(studies, backend)
    mean_rank = {
        row["method"]: Overall(*(row[key] for key in ("mean", "low", "high", "strata", "seeds")))
        for row in (mean_ranks(ranks).to_dicts() if len(ranks) else [])
    }
    scores = _scores(columns)
    order = list(dict.fromkeys(method for column in columns for method in column.entries))
    place = {method: number for number, method in enumerate(mean_rank)}

    def standing(method: str) -> tuple[float, float, int]:
        workloads = mean_rank[method].workloads if method in mean_rank else 0
        score = scores[method][0].value if method in scores else 0.0
        return -workloads, -score, place.get(method, len(place))

    reference = next((study.methods[0] for study, _ in studies if study.methods), None)
    steps, (memory, peaks) = _steps(studies, backend, reference), _peaks(studies, backend, order)
    gradients, seconds = (_over_fewest(columns, cost) for cost in ("evaluations", "seconds"))
    rows = []
    for method in sorted(order, key=standing):
        entries = tuple(column.entries.get(method) for column in columns)
        own = [entry for entry in entries if entry is not None]
        score, rank, tier = scores.get(method, (None, None, None))
        rows.append(
            MethodRow(
                method=method,
                studies=tuple(dict.fromkeys(each.study.name for each in columns if method in each.entries)),
                entries=entries,
                score=score,
                rank=rank,
                tier=tier,
                mean_rank=mean_rank.get(method),
                wins=_sum([entry.wins for entry in own if entry.wins.count]),
                reached=_sum([entry.reached for entry in own if entry.reached is not None]),
                diverged=_sum([entry.diverged for entry in own]) or Share(0, 0),
                gradients=gradients.get(method),
                seconds=seconds.get(method),
                step=steps.get(method),
                memory=peaks.get(method),
                decades=_mean_decades([entry.decades for entry in own if entry.decades is not None]),
                tuning=_sum_of_tuning([entry.tuning for entry in own if entry.tuning is not None]),
            )
        )
    return Board(backend, columns, tuple(rows), reference, memory)


# --- one workload --------------------------------------------------------------------------------


def _finished(studies: Studies, backend: str) -> list[StudyProblem]:
    """Each workload that has headline values."""
    problems = (problem for own in studies for problem in problems_of(*own, backend))
    return [problem for problem in problems if len(problem.values)]


def board_ranks(studies: Studies, backend: str) -> pl.DataFrame:
    """The methods' ranks on every problem instance of a board, by the headline metric.

    Returns:
        Columns stratum (study and workload), seed, method, rank.
    """
    found = [
        instance_ranks(one.values, one.study.direction == "maximize").with_columns(stratum=pl.lit(one.name))
        for one in _finished(studies, backend)
    ]
    schema = {"seed": pl.Int64(), "method": pl.String(), "rank": pl.Float64(), "stratum": pl.String()}
    return pl.concat([pl.DataFrame(schema=schema), *found])


def _column(problem: StudyProblem) -> Column:
    """The column of a workload from its final runs and their headline values."""
    study, runs, values = problem.study, problem.final, problem.values
    won = {
        row["method"]: share_interval(row["wins"], row["count"])
        for row in wins(values, study.direction == "maximize").to_dicts()
    }
    summary = measures.median_by_method(values)
    best = measures.best_methods(study, {method: value.median for method, value in summary.items()})
    aimed = problem.target[0] if problem.target else ""  # of which no run has times
    reached, clocked = measures.evaluations_to_target(runs, aimed), measures.seconds_to_target(runs, aimed)
    totals = {row["method"]: row for row in measures.outcome_counts(runs).to_dicts()}
    decades: dict[str, MedianInterval] = {}
    if isinstance(study.tuning, TwoStageSweep):  # of methods whose rates were swept, from their own tuning
        tried = measures.study_values(study, measures.tuning_runs(problem, own=True))
        decades = measures.median_by_method(measures.lr_robustness_decades(tried, study.direction))
    spent = measures.tuning_budgets(measures.tuning_runs(problem))
    budgets = {row.pop("method"): TuningBudget(**row) for row in spent.to_dicts()}
    entries = {}
    for method in (method for method in study.methods if method in summary):
        evaluations, total = reached.filter(method=method)["value"], totals[method]
        entries[method] = BoardEntry(
            value=summary[method],
            best=method in best,
            evaluations=measures.complete_interval(evaluations),
            seconds=measures.complete_interval(clocked.filter(method=method)["value"]),
            wins=won.get(method, Share(0, 0)),
            reached=measures.reached_share(evaluations),
            diverged=share_interval(total["failed"], total["count"] - total["missing"]),
            decades=decades.get(method),
            tuning=budgets.get(method),
        )
    seeds = max(value.count for value in summary.values())
    # A run that starts at its target has taken no gradient; a time of 0 has no ratio to others.
    times = reached.filter(pl.col("method").is_in(list(entries))).select(
        submission="method",
        workload=pl.lit(problem.name),
        study="seed",
        seconds=pl.col("value").clip(lower_bound=1.0),
    )
    enough = measures.can_reject(values)
    return Column(study, problem.workload.name, problem.target, seeds, enough, entries, times)


# --- over workloads ------------------------------------------------------------------------------


def _scores(columns: Sequence[Column]) -> dict[str, tuple[Overall, Overall, int | None]]:
    """Score, rank and tier of every method; where others ran and it has no result, it missed its target."""
    times = [column.times for column in columns if len(column.times)]
    found = {}
    for row in score_intervals(pl.concat(times), paired=True).to_dicts() if times else ():
        if row["studies"] < LEAST_SEEDS:
            row |= dict.fromkeys(RESAMPLED)
        over = {"workloads": len(times), "seeds": row["studies"]}
        found[row["submission"]] = (
            Overall(row["score"], row["low"], row["high"], **over),
            Overall(row["rank"], row["rank_low"], row["rank_high"], **over),
            row["tier"],
        )
    return found


def _steps(studies: Studies, backend: str, reference: str | None) -> dict[str, MedianInterval]:
    """Each method's step over the reference's: the geometric mean over workloads, by repetition."""
    if reference is None:
        return {}
    pairs = [
        step_pairs(
            tables.timings.filter(pl.col("backend") == backend),
            {method: reference for method in study.methods if method != reference},
        ).select("method", "repetition", "value")
        for study, tables in studies
    ]
    over = pl.concat(pairs).group_by("method", "repetition", maintain_order=True)
    return measures.median_by_method(over.agg(pl.col("value").log().mean().exp()))


def _peaks(studies: Studies, backend: str, methods: Sequence[str]) -> tuple[str, Mapping[str, int | None]]:
    """Where memory was measured, and each method's peak on the workload that takes most."""
    peaks = pl.concat([peak_memory(tables.memory.filter(backend=backend)) for _, tables in studies])
    found = peaks.filter(pl.col("method").is_in(methods))
    kind = "device" if len(found) and not found["device"].has_nulls() else "host"
    return kind, dict(found.group_by("method").agg(pl.col(kind).max()).iter_rows())


def _over_fewest(columns: Sequence[Column], cost: str) -> dict[str, Overall]:
    """Each method's cost to target over the least of any method, over workloads."""
    ratios: dict[str, list[float]] = {}
    for column in columns:
        found = {method: getattr(entry, cost) for method, entry in column.entries.items()}
        spent = {method: interval.median for method, interval in found.items() if interval}
        for method, value in spent.items():
            ratios.setdefault(method, []).append(ratio_to_least(value, min(spent.values())))
    return {
        method: Overall(statistics.median(own), min(own), max(own), workloads=len(own))
        for method, own in ratios.items()
    }


def ratio_to_least(value: float, least: float) -> float:
    """A cost over the least: infinite for a target that was missed, 1 for the least even where it is 0."""
    if math.isinf(value):
        return math.inf
    return 1.0 if value == least else value / least if least else math.inf


def _sum(counts: Sequence[Share]) -> Share | None:
    """The counts of several workloads as one; its interval if there is one workload only."""
    if len(counts) <= 1:
        return counts[0] if counts else None
    return Share(sum(one.successes for one in counts), sum(one.count for one in counts))


def _mean_decades(swept: Sequence[MedianInterval]) -> Overall | None:
    """The mean over workloads, its interval joined from theirs
    (`curvebench.reports.statistics.shares.joined`).
    """
    if not swept:
        return None
    return Overall(*joined([(each.median, each.low, each.high) for each in swept]), workloads=len(swept))


def _sum_of_tuning(parts: Sequence[TuningBudget]) -> TuningBudget | None:
    if not parts:
        return None
    tuners = ", ".join(dict.fromkeys(part.tuner for part in parts))
    return TuningBudget(tuners, sum(part.runs for part in parts), sum(part.evaluations for part in parts))
