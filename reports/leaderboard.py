"""The leaderboard: the methods of studies at one scale on one backend, ranked over problem instances."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import polars as pl

from reports.measures import (
    best_methods,
    complete_interval,
    diverged_counts,
    evaluations_to_target,
    nearly_best_decades,
    peak_memory,
    seconds_to_target,
    step_pairs,
    study_values,
    tuning_budgets,
    tuning_runs,
)
from reports.plan import StudyPlan
from reports.statistics.improvement import joined
from reports.statistics.medians import LEVEL, MedianInterval, medians
from reports.statistics.profiles import score_intervals
from reports.statistics.ranks import LEAST_SEEDS, instance_ranks, mean_ranks, wins
from reports.statistics.shares import share_interval
from reports.tables import Tables
from results.methods import method_parts
from results.tuning import tuning_scores

DecadesBy = Literal["compared", "tuning"]
SWEEP = "two_stage_sweep"  # the protocol that varies nothing but the learning rate


@dataclass(frozen=True)
class Column:
    """One workload of one study; `methods` took part, `seeds` is the most that one of them has."""

    study: str
    workload: str
    metric: str
    which: str
    direction: str
    target: tuple[str, float] | None
    stop: float | None
    methods: int
    seeds: int


@dataclass(frozen=True)
class Count:
    """`successes` of `count`, and an interval of the chance behind them.

    Over workloads whose chances differ there is no exact interval: `low` and `high` are then None.
    """

    successes: int
    count: int
    low: float | None = None
    high: float | None = None

    @property
    def value(self) -> float | None:
        """The share; None of nothing."""
        return self.successes / self.count if self.count else None


@dataclass(frozen=True)
class Tuning:
    """What choosing a method's setting took, by runs of the method `tuner` (itself unless rates are shared).

    `evaluations` are gradient evaluations, those of the basis included.
    """

    tuner: str
    runs: int
    evaluations: int


@dataclass(frozen=True)
class Decades:
    """The mean over workloads of how many decades of learning rates do nearly as well as the best.

    The interval is joined from those of the workloads (`reports.statistics.improvement.joined`).
    """

    mean: float
    low: float
    high: float
    workloads: int


@dataclass(frozen=True)
class Entry:
    """A method on a workload.

    Args:
        value: the headline metric.
        best: whether no other median is better.
        evaluations, seconds: to the target, the basis included; None without a target, or where steps were
            not timed.
        wins: instances on which the method is the best or ties with it, of those that all methods ran.
        reached, diverged: final runs; `reached` is None without a target.
        decades: of learning rates that do nearly as well as the best (`nearly_best_decades`), over tuning
            seeds; None where the rate was not swept.
        tuning: None where the method was not tuned.
    """

    value: MedianInterval
    best: bool
    evaluations: MedianInterval | None
    seconds: MedianInterval | None
    wins: Count
    reached: Count | None
    diverged: Count
    decades: MedianInterval | None
    tuning: Tuning | None


@dataclass(frozen=True)
class Score:
    """The area under the performance profile, the rank by it (ties averaged), and their intervals.

    The intervals are None where a workload has fewer than 5 `seeds`, the least number of a workload.
    """

    value: float
    low: float | None
    high: float | None
    rank: float
    rank_low: float | None
    rank_high: float | None
    seeds: int


@dataclass(frozen=True)
class Rank:
    """The mean rank over instances, its interval (none with few seeds), and what it goes over.

    `seeds` is the least number of seeds of a workload.
    """

    mean: float
    low: float | None
    high: float | None
    workloads: int
    instances: int
    seeds: int


@dataclass(frozen=True)
class Row:
    """A method; `entries` follows the board's columns, with None where the method took no part.

    Args:
        score: None where no study of the board has a target.
        wins, reached, diverged, tuning: sums over workloads; None where there is nothing to add.
        decades: over the workloads where the rate was swept; None where it never was.
    """

    method: str
    basis: str
    studies: tuple[str, ...]
    score: Score | None
    rank: Rank | None
    entries: tuple[Entry | None, ...]
    wins: Count | None
    reached: Count | None
    diverged: Count
    step: MedianInterval | None
    memory: int | None
    decades: Decades | None
    tuning: Tuning | None


@dataclass(frozen=True)
class Board:
    """Best method first; those that met fewer workloads come after those that met more.

    Args:
        reference: the method over whose step the steps of the others are given.
        memory: where the peak memory was measured: `device` where each method has one, else `host`.
    """

    backend: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    reference: str | None
    memory: str
    level: float = LEVEL

    @property
    def studies(self) -> tuple[str, ...]:
        """The studies whose workloads are its columns."""
        return tuple(dict.fromkeys(column.study for column in self.columns))

    @property
    def values(self) -> list[MedianInterval]:
        """All headline medians on the board."""
        return [entry.value for row in self.rows for entry in row.entries if entry is not None]

    @property
    def steps(self) -> list[MedianInterval]:
        """The steps of all methods over the reference's."""
        return [row.step for row in self.rows if row.step is not None]

    @property
    def decades(self) -> list[MedianInterval]:
        """How forgiving each method is of its learning rate, on each workload."""
        entries = [entry for row in self.rows for entry in row.entries if entry is not None]
        return [entry.decades for entry in entries if entry.decades is not None]

    @property
    def scored(self) -> bool:
        """Whether a study of the board has a target."""
        return any(column.target is not None for column in self.columns)

    @property
    def tuned_equally(self) -> bool:
        """Whether on every workload the same number of runs chose the setting of each method."""
        return all(
            len({entry.tuning.runs if entry.tuning else 0 for entry in entries if entry is not None}) <= 1
            for entries in zip(*(row.entries for row in self.rows), strict=True)
        )


def leaderboards(
    studies: Sequence[tuple[StudyPlan, Tables]], decades_by: DecadesBy = "compared"
) -> list[Board]:
    """A board for each backend and set of methods, in the order of the studies.

    A rank among three methods says nothing beside one among ten, so that only studies of the same methods
    share a board: one more study leaves the ranks of the others as they are. Those that only repeat claims of
    other studies have none.

    Args:
        decades_by: the metric by which learning rates do nearly as well: what the study compares, or, as
            boards of versions 1 and 2 have it, what its tuning judges by.
    """
    studies = [(study, tables) for study, tables in studies if not study.only_repeats]
    backends = dict.fromkeys(backend for study, _ in studies for backend in study.backends)
    contests: dict[frozenset[str], list[tuple[StudyPlan, Tables]]] = {}
    for study, tables in studies:
        contests.setdefault(frozenset(study.methods), []).append((study, tables))
    boards = [
        leaderboard(contest, backend, decades_by) for backend in backends for contest in contests.values()
    ]
    return [board for board in boards if board.columns]


def leaderboard(
    studies: Sequence[tuple[StudyPlan, Tables]], backend: str, decades_by: DecadesBy = "compared"
) -> Board:
    """Compare every method on one backend.

    The score is the area under the performance profile of gradient evaluations to target, the median over
    seeds on each workload (see `reports.statistics.profiles`). Beside it stands the mean rank by the
    headline metric: inside a workload, methods are ranked on every problem instance (seed) that all of them
    ran, 1 being best; ranks are averaged over seeds, then over workloads with equal weight (see
    `reports.statistics.ranks`). Methods are ordered by the workloads they met, the score, the mean rank.
    """
    cells = [
        _cell(study, workload, backend, tables.runs, runs, values, decades_by)
        for study, workload, tables, runs, values in _finished(studies, backend)
    ]
    ranked = [cell.ranks for cell in cells]
    means = mean_ranks(pl.concat(ranked), ["stratum"], "method") if ranked else pl.DataFrame()
    ranks = {row["method"]: row for row in means.iter_rows(named=True)}
    scores = _scores(cells)
    order = list(dict.fromkeys(method for cell in cells for method in cell.study.methods))
    order = [method for method in order if any(method in cell.entries for cell in cells)]
    place = {method: number for number, method in enumerate(ranks)}

    def standing(method: str) -> tuple[float, float, int]:
        workloads = ranks[method]["strata"] if method in ranks else 0
        return -workloads, -scores[method].value if method in scores else 0.0, place.get(method, len(place))

    order.sort(key=standing)
    reference = next((study.methods[0] for study, _ in studies if study.methods), None)
    steps, (memory, peaks) = _steps(studies, backend, reference), _peaks(studies, backend, order)
    rows = [
        _row(method, scores.get(method), ranks.get(method), cells, steps.get(method), peaks.get(method))
        for method in order
    ]
    return Board(backend, tuple(cell.column for cell in cells), tuple(rows), reference, memory)


def _steps(
    studies: Sequence[tuple[StudyPlan, Tables]], backend: str, reference: str | None
) -> dict[str, MedianInterval]:
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
    means = (
        pl.concat(pairs)
        .group_by("method", "repetition", maintain_order=True)
        .agg(pl.col("value").log().mean().exp())
    )
    return {
        row.pop("method"): MedianInterval(**row) for row in medians(means, ["method"], "value").to_dicts()
    }


def _peaks(
    studies: Sequence[tuple[StudyPlan, Tables]], backend: str, methods: Sequence[str]
) -> tuple[str, dict[str, int | None]]:
    """Where memory was measured, and each method's peak on the workload that takes most."""
    peaks = pl.concat(
        [peak_memory(tables.memory.filter(pl.col("backend") == backend)) for _, tables in studies]
    )
    found = peaks.filter(pl.col("method").is_in(methods))
    kind = "device" if len(found) and not found["device"].has_nulls() else "host"
    return kind, dict(found.group_by("method").agg(pl.col(kind).max()).iter_rows())


@dataclass(frozen=True)
class _Cell:
    """A workload of a study: its column, ranks by instance, entries by method, and times to target."""

    column: Column
    study: StudyPlan
    ranks: pl.DataFrame
    entries: dict[str, Entry]
    times: pl.DataFrame


def board_ranks(studies: Sequence[tuple[StudyPlan, Tables]], backend: str) -> pl.DataFrame:
    """The methods' ranks on every problem instance of a board, by the headline metric.

    Returns:
        Columns stratum (study and workload), seed, method, rank.
    """
    found = [_ranks(study, workload, values) for study, workload, _, _, values in _finished(studies, backend)]
    schema = {"seed": pl.Int64(), "method": pl.String(), "rank": pl.Float64(), "stratum": pl.String()}
    return pl.concat([pl.DataFrame(schema=schema), *found])


Finished = tuple[StudyPlan, str, Tables, pl.DataFrame, pl.DataFrame]


def _finished(studies: Sequence[tuple[StudyPlan, Tables]], backend: str) -> Iterator[Finished]:
    """Each workload that has headline values: study, name, tables, final runs and their values."""
    for study, tables in studies:
        for workload in study.workloads:
            runs = tables.runs.filter(
                (pl.col("stage") == "final")
                & (pl.col("backend") == backend)
                & (pl.col("workload") == workload.name)
            )
            values = study_values(study, runs).drop_nulls("value")
            if len(values):
                yield study, workload.name, tables, runs, values


def _ranks(study: StudyPlan, workload: str, values: pl.DataFrame) -> pl.DataFrame:
    ranks = instance_ranks(values, ["seed"], "method", "value", study.direction == "maximize")
    return ranks.with_columns(pl.lit(f"{study.name}/{workload}").alias("stratum"))


def _cell(
    study: StudyPlan,
    workload: str,
    backend: str,
    all_runs: pl.DataFrame,
    runs: pl.DataFrame,
    values: pl.DataFrame,
    decades_by: DecadesBy,
) -> _Cell:
    """The cell of a workload from its final runs, their headline values, and all runs of the study."""
    descending = study.direction == "maximize"
    stratum = f"{study.name}/{workload}"
    ranks = _ranks(study, workload, values)
    won = {row["method"]: row for row in wins(values, ["seed"], "method", "value", descending).to_dicts()}
    summary = medians(values, ["method"], "value")
    best = best_methods(study, dict(summary.select("method", "median").iter_rows()))
    metrics = next(one.metrics for one in study.workloads if one.name == workload)
    target = next(((name, at) for name, at in study.targets.items() if name in metrics), None)
    empty = runs.clear().with_columns(value=pl.lit(0.0))
    reached = evaluations_to_target(runs, target[0]) if target else empty
    clocked = seconds_to_target(runs, target[0]) if target else empty
    totals = {row["method"]: row for row in diverged_counts(runs).iter_rows(named=True)}
    decades = _decades(study, tuning_runs(study, workload, backend, all_runs, own=True), decades_by)
    budgets = _budgets(tuning_runs(study, workload, backend, all_runs))
    entries = {}
    for row in summary.iter_rows(named=True):
        method = row.pop("method")
        evaluations = reached.filter(pl.col("method") == method)["value"]
        finite = int(evaluations.is_finite().sum())
        total, wins_of = totals[method], won.get(method, {"wins": 0, "count": 0})
        entries[method] = Entry(
            value=MedianInterval(**row),
            best=method in best,
            evaluations=complete_interval(evaluations),
            seconds=complete_interval(clocked.filter(pl.col("method") == method)["value"]),
            wins=_count(wins_of["wins"], wins_of["count"]),
            reached=_count(finite, len(evaluations)) if len(evaluations) else None,
            diverged=_count(total["diverged"], total["count"] - total["failed"]),
            decades=decades.get(method),
            tuning=budgets.get(method),
        )
    column = Column(
        study=study.name,
        workload=workload,
        metric=study.metric,
        which=study.which,
        direction=study.direction,
        target=target,
        stop=study.stop.get(study.metric),
        methods=len(summary),
        seeds=max(summary["count"].to_list()),
    )
    # A run that starts at its target has taken no gradient; a time of 0 has no ratio to others.
    times = reached.filter(pl.col("method").is_in(list(entries))).select(
        pl.col("method").alias("submission"),
        pl.lit(stratum).alias("workload"),
        pl.col("seed").alias("study"),
        pl.col("value").clip(lower_bound=1.0).alias("seconds"),
    )
    return _Cell(column, study, ranks, entries, times)


def _decades(study: StudyPlan, own: pl.DataFrame, by: DecadesBy) -> dict[str, MedianInterval]:
    """Of every method whose learning rates were swept, from its own tuning runs."""
    if study.tuning.get("protocol") != SWEEP or not study.criterion:
        return {}
    if by == "compared":
        values, direction = study_values(study, own), study.direction
    else:
        metric, which = study.tuning["metric"], study.tuning["which"]
        direction = study.direction_of(metric)
        values = tuning_scores(own, metric, which, direction)
    found = nearly_best_decades(values, direction)
    return {
        row.pop("method"): MedianInterval(**row) for row in medians(found, ["method"], "value").to_dicts()
    }


def _budgets(tuned: pl.DataFrame) -> dict[str, Tuning]:
    return {row.pop("method"): Tuning(**row) for row in tuning_budgets(tuned).to_dicts()}


def _count(successes: int, count: int) -> Count:
    if not count:
        return Count(successes, count)
    share = share_interval(successes, count)
    return Count(successes, count, share.low, share.high)


def _scores(cells: Sequence[_Cell]) -> dict[str, Score]:
    """The score of every method; a seed or workload on which others ran and it has no result is missed."""
    times = [cell.times for cell in cells if len(cell.times)]
    if not times:
        return {}
    found = score_intervals(pl.concat(times), paired=True)
    bounds = ("low", "high", "rank_low", "rank_high")
    return {
        row["submission"]: Score(
            value=row["score"],
            rank=row["rank"],
            seeds=row["studies"],
            **{name: row[name] if row["studies"] >= LEAST_SEEDS else None for name in bounds},
        )
        for row in found.iter_rows(named=True)
    }


def _row(
    method: str,
    score: Score | None,
    rank: dict[str, Any] | None,
    cells: Sequence[_Cell],
    step: MedianInterval | None,
    memory: int | None,
) -> Row:
    entries = tuple(cell.entries.get(method) for cell in cells)
    mine = [entry for entry in entries if entry is not None]
    return Row(
        method=method,
        basis=method_parts(method)[1],
        studies=tuple(dict.fromkeys(cell.column.study for cell in cells if method in cell.entries)),
        score=score,
        rank=Rank(*(rank[key] for key in ("mean", "low", "high", "strata", "count", "seeds")))
        if rank
        else None,
        entries=entries,
        wins=_sum([entry.wins for entry in mine if entry.wins.count]),
        reached=_sum([entry.reached for entry in mine if entry.reached is not None]),
        diverged=_sum([entry.diverged for entry in mine]) or Count(0, 0),
        step=step,
        memory=memory,
        decades=_mean_decades([entry.decades for entry in mine if entry.decades is not None]),
        tuning=_sum_of_tuning([entry.tuning for entry in mine if entry.tuning is not None]),
    )


def _sum(counts: Sequence[Count]) -> Count | None:
    """The counts of several workloads as one; its interval if there is one workload only."""
    if len(counts) <= 1:
        return counts[0] if counts else None
    return Count(sum(count.successes for count in counts), sum(count.count for count in counts))


def _mean_decades(swept: Sequence[MedianInterval]) -> Decades | None:
    if not swept:
        return None
    mean, low, high = joined([(each.median, each.low, each.high) for each in swept])
    return Decades(mean, low, high, len(swept))


def _sum_of_tuning(parts: Sequence[Tuning]) -> Tuning | None:
    if not parts:
        return None
    tuners = ", ".join(dict.fromkeys(part.tuner for part in parts))
    return Tuning(tuners, sum(part.runs for part in parts), sum(part.evaluations for part in parts))
