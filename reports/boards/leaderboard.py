"""Leaderboard: the methods of studies at one scale on one backend, ranked over problem instances.

A board is a table with a row per method and a column per workload. A method is an optimizer in a basis, which
is an orthogonal change of coordinates of the parameters. A problem instance is a workload with a seed. Final
runs use the setting that tuning chose, and the headline metric is the metric by which a study compares
methods. The cost to a target is the number of gradient evaluations or seconds until a run reached the target,
including the cost of estimating the basis. A study joins another study if it adds methods to the methods of
the other study.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
import polars as pl

from curvebench.reports import measures
from curvebench.reports.boards.runtimes import Runtimes, runtimes_of
from curvebench.reports.measures import StudyProblem, problems_of
from curvebench.reports.statistics.anytime import SCORED
from curvebench.reports.statistics.profiles import RESAMPLED, ranks_by_subset, score_intervals
from curvebench.reports.statistics.ranks import MIN_SEEDS, instance_ranks, mean_ranks, wins
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
    """Column of a board: one workload of one study.

    Args:
        problem: name of the problem in ranks and scores; all workloads of a sweep have the same problem.
        target: metric and threshold of the workload's first target; None if the workload has no target.
        seeds: largest number of seeds on which a method has a value of the headline metric.
        can_reject: whether there are enough seeds for a test to find one method better than another.
        entries: results on the workload, by the label of the method.
    """

    study: StudyPlan
    workload: str
    problem: str
    target: tuple[str, float] | None
    seeds: int
    can_reject: bool
    entries: Mapping[str, BoardEntry]


@dataclass(frozen=True)
class TuningBudget:
    """Cost of choosing a method's setting.

    Args:
        tuner: label of the method whose runs chose the setting. In a study whose bases share learning rates,
            the tuner is the same optimizer in the identity basis; otherwise it is the method itself.
        runs: number of tuning runs.
        evaluations: gradient evaluations of the tuning runs, including the evaluations for the basis.
    """

    tuner: str
    runs: int
    evaluations: int


@dataclass(frozen=True)
class Overall:
    """A number that summarizes a method over the workloads of a board, with an interval or a range.

    Args:
        low, high: ends of the interval or range of `value`; None if there are too few seeds.
        workloads: number of workloads; the workloads of a sweep count as one workload.
        seeds: smallest number of seeds on any workload; 0 for ratios of costs and for
            decades of learning rates, where this number is not computed.
    """

    value: float
    low: float | None
    high: float | None
    workloads: int = 0
    seeds: int = 0


@dataclass(frozen=True)
class RankRanges:
    """Ranks of a method by its score on parts of a board.

    Args:
        by_target: rank at each target of `SCORED` by itself, the easiest target first.
        without: lowest and highest rank if one problem is left out; None for a single problem.
        new: lowest and highest rank on a single problem. If the problems of the board and a further problem
            are exchangeable, the rank on the further problem is in this range with a probability of at least
            `chance` (up to ties): the largest and the smallest of n + 1 exchangeable numbers are equally
            likely at each position.
        chance: (n - 1) / (n + 1) for n workloads; problems that are settings of one workload count once.
    """

    by_target: tuple[float, ...]
    without: tuple[float, float] | None
    new: tuple[float, float]
    chance: float


@dataclass(frozen=True)
class BoardEntry:
    """Results of a method on a workload.

    Args:
        value: median of the headline metric over seeds.
        best: whether the method has the best median, or a median that ties with the best.
        evaluations, seconds: median over seeds of the cost to the first target, including the basis. Both are
            None if the workload has no target. `seconds` is also None if steps were not timed.
        wins: share of instances on which the method is the best or ties with the best. Only instances on
            which all methods ran count.
        reached: share of final runs that reached the target; None if the workload has no target.
        diverged: share of final runs that failed.
        decades: decades of learning rates that do nearly as well as the best rate (`lr_robustness_decades`),
            as a median over tuning seeds; None if tuning did not sweep learning rates.
        tuning: cost of choosing the setting; None if the method was not tuned.
        at_edge: whether tuning chose an end of the range of learning rates that it tried. The method counts
            as not tuned there, since a better rate may lie beyond the range.
        acts_as: the known method that the method is on this workload, such as `adamw` for Muon on a model
            without weight matrices; None if the method is itself.
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
    at_edge: bool
    acts_as: str | None


@dataclass(frozen=True)
class MethodRow:
    """Row of a board: the results of one method.

    Args:
        method: label of the method.
        studies: names of the studies in which the method ran.
        entries: results in the order of the board's columns; None for a workload that the method did not run.
        score: area under the performance profile; None if no run improves on its start, or if the method acts
            as another method on one of the workloads.
        rank: rank by the score, with ties averaged; None if there is no score.
        ranges: ranks by parts of the board; None if there is no score.
        tier: group of methods with indistinguishable scores, from 1 on
            (`curvebench.reports.statistics.profiles`); None if there is no score or too few seeds.
        mean_rank: mean rank over problem instances.
        wins, reached, diverged, tuning: the attributes of `entries` with these names, added up over
            workloads. None if no entry has the attribute; `diverged` is never None.
        gradients, seconds: cost to the target (in gradient evaluations, in seconds) divided by the smallest
            cost of any method. `value` is the median over workloads; `low` and `high` are the smallest and
            the largest ratio, not an interval. None if the cost is known on no workload.
        step: step time of the method divided by the step time of the board's reference method; None if steps
            were not timed.
        memory: peak memory in bytes, on the host or the device as `Board.memory` says; None if it was not
            measured.
        decades: mean over workloads of the entries' `decades`; None if tuning swept no learning rates.
    """

    method: str
    studies: tuple[str, ...]
    entries: tuple[BoardEntry | None, ...]
    score: Overall | None
    rank: Overall | None
    ranges: RankRanges | None
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

    @property
    def acts_as(self) -> str | None:
        """The known method that the method is on one of the workloads; None if it is itself on all."""
        return next((entry.acts_as for entry in self.entries if entry and entry.acts_as), None)


@dataclass(frozen=True)
class Board:
    """Leaderboard with the best method first.

    Methods that ran on fewer workloads come after methods that ran on more.

    Args:
        group: name of the group to which the workloads belong in their studies; empty if they have no groups.
        columns: one column per workload.
        rows: one row per method.
        reference: method by whose step time the step times of all other methods are divided.
        memory: kind of peak memory in the rows: "device" if the device's peak is known for every method,
            otherwise "host".
        times: times of the methods to the targets; None if no run improves on its start.
    """

    backend: str
    group: str
    columns: tuple[Column, ...]
    rows: tuple[MethodRow, ...]
    reference: str | None
    memory: str
    times: Runtimes | None = field(compare=False, repr=False)

    @property
    def studies(self) -> tuple[str, ...]:
        """Names of the studies whose workloads are the board's columns."""
        return tuple(dict.fromkeys(column.study.name for column in self.columns))

    @property
    def key(self) -> tuple[str, ...]:
        """Backend and studies, which the boards of all groups of the studies have in common."""
        return self.backend, *self.studies

    @property
    def problems(self) -> tuple[str, ...]:
        """Names of the problems in ranks and scores. A sweep is one problem with several columns."""
        return tuple(dict.fromkeys(column.problem for column in self.columns))

    @property
    def tuned_equally(self) -> bool:
        """Whether, on each workload, the settings of all methods were chosen by equally many tuning runs."""
        return all(
            len({entry.tuning.runs if entry.tuning else 0 for entry in entries if entry is not None}) <= 1
            for entries in zip(*(row.entries for row in self.rows), strict=True)
        )


def by_source(boards: Sequence[Board]) -> tuple[list[Board], dict[Source, list[Board]]]:
    """Return the boards of the studies with the most results, and the other boards by their source.

    A result is an entry of one method on one workload. The boards of a group of problems each belong to the
    same studies. The source of a board is the source document that the study of its first column cites.

    Args:
        boards: boards in order of preference: of studies with equally many results, the studies of the first
            board count as those with the most results.

    Returns:
        The boards of the studies with the most results on one backend, and lists of the other boards by
        source.
    """
    results = Counter[tuple[str, ...]]()
    for board in boards:
        results[board.key] += sum(len(column.entries) for column in board.columns)
    first = max(results, key=results.__getitem__, default=())
    boards_of: dict[Source, list[Board]] = {}
    for board in (board for board in boards if board.key != first):
        boards_of.setdefault(source_of(board.columns[0].study.source), []).append(board)
    return [board for board in boards if board.key == first], boards_of


def leaderboards(studies: Studies) -> list[Board]:
    """Return a board for each backend, set of methods and group of problems, in the order of the studies.

    Only studies with the same methods share a board, because ranks among different numbers of methods cannot
    be compared. Therefore adding a study with other methods leaves the ranks on existing boards unchanged. A
    study with groups shares no board, because its protocol is what its ranks are about. A study that only
    repeats claims of other studies is on no board. A study that joins another study is on the
    board of the other study.

    Args:
        studies: plan and tables of each study.
    """
    studies = [pair for pair in studies if not (pair[0].only_repeats or pair[0].joins)]
    backends = dict.fromkeys(backend for study, _ in studies for backend in study.backends)
    by_methods: dict[tuple[frozenset[str], str, str], list[tuple[StudyPlan, Tables]]] = {}
    for study, tables in studies:
        for group in study.groups or [""]:
            alone = study.name if study.groups else ""
            by_methods.setdefault((frozenset(study.methods), alone, group), []).append((study, tables))
    boards = [
        leaderboard(sharing, backend, group)
        for backend in backends
        for (_, _, group), sharing in by_methods.items()
    ]
    return [board for board in boards if board.columns]


def leaderboard(studies: Studies, backend: str, group: str = "") -> Board:
    """Return the board of a group of problems of studies on one backend.

    The score is the area under the performance profile of gradient evaluations to several targets per
    workload (`SCORED`), computed from the median over seeds (see `curvebench.reports.statistics.profiles`).
    A method that acts as another method on one of the workloads has no score and no rank. The mean rank uses
    the headline metric: on a workload, methods are ranked for every seed that all methods ran, with 1 as the
    best rank. Ranks are averaged over seeds, then over workloads with equal weight (see
    `curvebench.reports.statistics.ranks`). Rows are sorted by the number of workloads, then by the score,
    then by the mean rank. The workloads of a sweep together have the weight of one workload (`ranks_on` and
    `score_intervals`).

    Args:
        studies: plan and tables of each study.
        backend: backend whose runs are ranked.
        group: name of the group; empty for all workloads.
    """
    problems = _finished(studies, backend, group)
    columns = tuple(map(_column, problems))
    order = list(dict.fromkeys(method for column in columns for method in column.entries))
    itself = [method for method in order if not any(_acts_as(problem, method) for problem in problems)]
    ranks, times = ranks_on(problems, itself), runtimes_of(problems, itself)
    mean_rank = {
        row["method"]: Overall(*(row[key] for key in ("mean", "low", "high", "strata", "seeds")))
        for row in (mean_ranks(ranks).to_dicts() if len(ranks) else [])
    }
    scores = _scores(times) if times else {}
    position = {method: number for number, method in enumerate(mean_rank)}

    def standing(method: str) -> tuple[float, float, int]:
        workloads = mean_rank[method].workloads if method in mean_rank else 0
        score = scores[method][0].value if method in scores else 0.0
        return -workloads, -score, position.get(method, len(position))

    reference = next((study.methods[0] for study, _ in studies if study.methods), None)
    steps, (memory, peaks) = _steps(problems, reference), _peaks(problems, order)
    gradients, seconds = (_over_fewest(columns, cost) for cost in ("evaluations", "seconds"))
    rows = []
    for method in sorted(order, key=standing):
        entries = tuple(column.entries.get(method) for column in columns)
        run_entries = [entry for entry in entries if entry is not None]
        score, rank, ranges, tier = scores.get(method, (None, None, None, None))
        rows.append(
            MethodRow(
                method=method,
                studies=tuple(dict.fromkeys(item.study.name for item in columns if method in item.entries)),
                entries=entries,
                score=score,
                rank=rank,
                ranges=ranges,
                tier=tier,
                mean_rank=mean_rank.get(method),
                wins=added([entry.wins for entry in run_entries if entry.wins.count]),
                reached=added([entry.reached for entry in run_entries if entry.reached is not None]),
                diverged=added([entry.diverged for entry in run_entries]) or Share(0, 0),
                gradients=gradients.get(method),
                seconds=seconds.get(method),
                step=steps.get(method),
                memory=peaks.get(method),
                decades=_mean_decades([entry.decades for entry in run_entries if entry.decades is not None]),
                tuning=_sum_of_tuning([entry.tuning for entry in run_entries if entry.tuning is not None]),
            )
        )
    return Board(backend, group, columns, tuple(rows), reference, memory, times)


# --- one workload --------------------------------------------------------------------------------


def _finished(studies: Studies, backend: str, group: str = "") -> list[StudyProblem]:
    """Return the problems of a group on a backend whose final runs recorded the headline metric.

    Args:
        group: name of the group; empty for all problems of the studies.
    """
    problems = (problem for pair in studies for problem in problems_of(*pair, backend))
    return [problem for problem in problems if problem.is_in(group) and len(problem.values)]


def _acts_as(problem: StudyProblem, method: str) -> str | None:
    """Return the known method that a method is on a problem, or None if the method is itself."""
    return problem.study.acts_as.get(method, {}).get(problem.workload.name)


def board_ranks(studies: Studies, backend: str) -> pl.DataFrame:
    """Return the ranks of methods on every problem instance of a board, as `ranks_on` returns them."""
    return ranks_on(_finished(studies, backend))


def ranks_on(problems: Sequence[StudyProblem], among: Sequence[str] | None = None) -> pl.DataFrame:
    """Return the ranks of methods on every instance of some problems, by the headline metric.

    A sweep is one problem, whose instances are its seeds: methods are ranked for each value of the swept
    setting, and for each seed the ranks of a method are averaged over the values. The average is a mean, not
    a median, so that the ranks of n methods still have the sum n (n + 1) / 2.

    Args:
        among: labels of the methods to rank; None for all.

    Returns:
        Columns stratum (STUDY/WORKLOAD or STUDY/SWEEP), seed, method, rank.
    """
    ranks = [
        pl.DataFrame(schema={"seed": pl.Int64, "method": pl.String, "rank": pl.Float64, "stratum": pl.String})
    ]
    for problem in problems:
        values = problem.values if among is None else problem.values.filter(pl.col("method").is_in(among))
        of_values = instance_ranks(values, problem.study.direction == "maximize")
        ranks.append(of_values.with_columns(stratum=pl.lit(problem.name)))
    by_instance = pl.concat(ranks).group_by("stratum", "seed", "method", maintain_order=True)
    return by_instance.agg(pl.col("rank").mean())


def _column(problem: StudyProblem) -> Column:
    """Return the column of a board for one problem, with the results of all methods."""
    study, runs, values = problem.study, problem.final, problem.values
    acting = {method: other for method in study.methods if (other := _acts_as(problem, method))}
    ranked = values.filter(~pl.col("method").is_in(list(acting)))
    wins_of = {
        row["method"]: share_interval(row["wins"], row["count"])
        for row in wins(ranked, study.direction == "maximize").to_dicts()
    }
    summary = measures.median_by_method(values)
    best = measures.best_methods(
        study, {method: value.median for method, value in summary.items() if method not in acting}
    )
    # Without a target, the name of its metric is empty. The tables of times to the target then have no rows.
    metric = problem.target[0] if problem.target else ""
    reached, clocked = measures.evaluations_to_target(runs, metric), measures.seconds_to_target(runs, metric)
    totals = {row["method"]: row for row in measures.outcome_counts(runs).to_dicts()}
    decades: dict[str, MedianInterval] = {}
    # Decades of learning rates are known only if tuning swept a range of learning rates.
    # The decades of a method come from its own tuning runs, even if runs of another method chose its setting.
    if isinstance(study.tuning, TwoStageSweep):
        tuning_values = measures.study_values(study, measures.tuning_runs(problem, by_itself=True))
        decades = measures.median_by_method(measures.lr_robustness_decades(tuning_values, study.direction))
    spent = measures.tuning_budgets(measures.tuning_runs(problem))
    budgets = {row.pop("method"): TuningBudget(**row) for row in spent.to_dicts()}
    rates = dict(measures.chosen_rates(problem.runs).select("method", "at_edge").iter_rows())
    entries = {}
    for method in (method for method in study.methods if method in summary):
        evaluations, total = reached.filter(method=method)["value"], totals[method]
        entries[method] = BoardEntry(
            value=summary[method],
            best=method in best,
            evaluations=measures.complete_interval(evaluations),
            seconds=measures.complete_interval(clocked.filter(method=method)["value"]),
            wins=wins_of.get(method, Share(0, 0)),
            reached=measures.reached_share(evaluations),
            diverged=share_interval(total["failed"], total["count"] - total["missing"]),
            decades=decades.get(method),
            tuning=budgets.get(method),
            at_edge=rates.get(method, False),
            acts_as=acting.get(method),
        )
    seeds = max(value.count for value in summary.values())
    significant = measures.can_reject(values)
    name = problem.workload.name
    return Column(study, name, problem.name, problem.target, seeds, significant, entries)


# --- over workloads ------------------------------------------------------------------------------


def _scores(times: Runtimes) -> dict[str, tuple[Overall, Overall, RankRanges, int | None]]:
    """Return the score, the rank, the ranges of ranks and the tier of every method, by the method's label.

    Each target of a workload is a workload of `score_intervals`; all targets of a problem have the weight of
    one workload. A tier is a group of methods with indistinguishable scores. A method that did not run on a
    workload counts as having missed the targets on this workload.
    """
    instances = enumerate(zip(times.problem, np.moveaxis(times.times[:, :, SCORED], 1, 0), strict=True))
    runs = pl.DataFrame(
        [
            (method, f"{problem.study.name}/{problem.workload.name}/{level}", problem.name, number, seconds)
            for number, (index, by_method) in instances
            for problem in [times.problems[index]]
            for method, by_level in zip(times.methods, by_method.tolist(), strict=True)
            for level, seconds in enumerate(by_level)
        ],
        schema=["submission", "workload", "problem", "study", "seconds"],
        orient="row",
    )
    problems = dict(runs.select("workload", "problem").unique().iter_rows())
    names = sorted({*problems.values()})
    at_level = [[name for name in problems if name.endswith(f"/{level}")] for level in range(len(SCORED))]
    on_one = [[name for name, problem in problems.items() if problem == one] for one in names]
    # Without the only problem, nothing would be left to rank by.
    without_one = [[name for name in problems if name not in own] for own in on_one] if names[1:] else []
    ranks_of = ranks_by_subset(runs, problems, [*at_level, *on_one, *without_one])
    families = len({times.problems[index].workload.spec.locator for index in times.problem})
    scores = {}
    for row in score_intervals(runs, problems=problems, paired=True).to_dicts():
        if row["studies"] < MIN_SEEDS:
            row |= dict.fromkeys(RESAMPLED)
        size = {"workloads": len(names), "seeds": row["studies"]}
        ranks = iter(ranks_of[row["submission"]])
        by_target, single = tuple(islice(ranks, len(at_level))), list(islice(ranks, len(on_one)))
        without = list(ranks)
        scores[row["submission"]] = (
            Overall(row["score"], row["low"], row["high"], **size),
            Overall(row["rank"], row["rank_low"], row["rank_high"], **size),
            RankRanges(
                by_target=by_target,
                without=(min(without), max(without)) if without else None,
                new=(min(single), max(single)),
                chance=(families - 1) / (families + 1),
            ),
            row["tier"],
        )
    return scores


def _steps(problems: Sequence[StudyProblem], reference: str | None) -> dict[str, MedianInterval]:
    """Return the step time of each method divided by the step time of the reference method.

    For every repetition of the timing jobs, the ratios of a method are averaged over workloads (geometric
    mean). The result is the median over repetitions, by method.
    """
    if reference is None or not problems:
        return {}
    pairs = [
        step_pairs(
            problem.of(problem.tables.timings),
            {method: reference for method in problem.study.methods if method != reference},
        ).select("method", "repetition", "value")
        for problem in problems
    ]
    by_repetition = pl.concat(pairs).group_by("method", "repetition", maintain_order=True)
    return measures.median_by_method(by_repetition.agg(pl.col("value").log().mean().exp()))


def _peaks(problems: Sequence[StudyProblem], methods: Sequence[str]) -> tuple[str, Mapping[str, int | None]]:
    """Return the kind of memory to show, "device" or "host", and the largest peak of each method in bytes.

    The kind is "device" if the device's peak memory is known for all methods and workloads.
    """
    if not problems:
        return "host", {}
    peaks = pl.concat([peak_memory(problem.of(problem.tables.memory)) for problem in problems])
    selected = peaks.filter(pl.col("method").is_in(methods))
    kind = "device" if len(selected) and not selected["device"].has_nulls() else "host"
    return kind, dict(selected.group_by("method").agg(pl.col(kind).max()).iter_rows())


def _over_fewest(columns: Sequence[Column], cost: str) -> dict[str, Overall]:
    """Return the cost to the target of each method divided by the smallest cost of any method.

    The ratio is computed on each workload. The ratio on a sweep is the median over the workloads of the
    sweep.

    Args:
        cost: "evaluations" or "seconds".

    Returns:
        By method: the median of the ratios over workloads, with the smallest and the largest ratio as `low`
        and `high`.
    """
    ratios: dict[str, dict[str, list[float]]] = {}
    for column in columns:
        itself = {method: entry for method, entry in column.entries.items() if not entry.acts_as}
        intervals = {method: getattr(entry, cost) for method, entry in itself.items()}
        spent = {method: interval.median for method, interval in intervals.items() if interval}
        for method, value in spent.items():
            ratio = ratio_to_least(value, min(spent.values()))
            ratios.setdefault(method, {}).setdefault(column.problem, []).append(ratio)
    overall = {}
    for method, by_problem in ratios.items():
        every = [ratio for values in by_problem.values() for ratio in values]
        middle = statistics.median(map(statistics.median, by_problem.values()))
        overall[method] = Overall(middle, min(every), max(every), workloads=len(by_problem))
    return overall


def ratio_to_least(value: float, smallest: float) -> float:
    """Return the ratio value / smallest of a cost to the smallest cost of any method.

    The ratio is infinite if `value` is infinite, which means a missed target, or if only `smallest` is 0. It
    is 1 if both are finite and equal, even if both are 0.
    """
    if math.isinf(value):
        return math.inf
    return 1.0 if value == smallest else value / smallest if smallest else math.inf


def added(counts: Sequence[Share]) -> Share | None:
    """Add up the successes and the trials of shares over workloads.

    The sum has an interval only if there is a single workload. The result is None if there is no workload.

    Args:
        counts: share of one method on each workload.
    """
    if len(counts) <= 1:
        return counts[0] if counts else None
    return Share(sum(share.successes for share in counts), sum(share.count for share in counts))


def _mean_decades(swept: Sequence[MedianInterval]) -> Overall | None:
    """Return the mean over workloads of the decades of learning rates that do nearly as well as the best.

    The interval of the mean is computed from the intervals on the workloads (see
    `curvebench.reports.statistics.shares.joined`). The result is None without workloads.

    Args:
        swept: median decades of one method over tuning seeds, for each workload.
    """
    if not swept:
        return None
    return Overall(*joined([(entry.median, entry.low, entry.high) for entry in swept]), workloads=len(swept))


def _sum_of_tuning(parts: Sequence[TuningBudget]) -> TuningBudget | None:
    """Return the total cost of tuning a method over workloads; None without workloads.

    Args:
        parts: cost of tuning the method on each workload. If the tuners differ, the result names all of them.
    """
    if not parts:
        return None
    tuners = ", ".join(dict.fromkeys(part.tuner for part in parts))
    return TuningBudget(tuners, sum(part.runs for part in parts), sum(part.evaluations for part in parts))
