"""The leaderboard: the methods of studies at one scale on one backend, ranked over problem instances."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from reports.measures import (
    best_methods,
    diverged_counts,
    evaluations_to_target,
    method_parts,
    peak_memory,
    step_pairs,
    study_values,
)
from reports.plan import StudyPlan
from reports.statistics.medians import LEVEL, MedianInterval, median_interval, medians
from reports.statistics.ranks import instance_ranks, mean_ranks
from reports.tables import Tables


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
class Entry:
    """A method on a workload: its headline metric, and gradient evaluations to the target."""

    value: MedianInterval
    best: bool
    evaluations: MedianInterval | None


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
class Count:
    """`successes` of `count` runs; over workloads whose chances differ there is no exact interval."""

    successes: int
    count: int


@dataclass(frozen=True)
class Row:
    """A method; `entries` follows the board's columns, with None where the method took no part."""

    method: str
    basis: str
    studies: tuple[str, ...]
    rank: Rank | None
    entries: tuple[Entry | None, ...]
    reached: Count | None
    diverged: Count
    step: MedianInterval | None
    memory: int | None


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


def leaderboards(studies: Sequence[tuple[StudyPlan, Tables]]) -> list[Board]:
    """A board for each backend and set of methods, in the order of the studies.

    A rank among three methods says nothing beside one among ten, so that only studies of the same methods
    share a board: one more study leaves the ranks of the others as they are.
    """
    backends = dict.fromkeys(backend for study, _ in studies for backend in study.backends)
    contests: dict[frozenset[str], list[tuple[StudyPlan, Tables]]] = {}
    for study, tables in studies:
        contests.setdefault(frozenset(study.methods), []).append((study, tables))
    boards = [leaderboard(contest, backend) for backend in backends for contest in contests.values()]
    return [board for board in boards if board.columns]


def leaderboard(studies: Sequence[tuple[StudyPlan, Tables]], backend: str) -> Board:
    """Compare every method on one backend.

    The score is the mean rank: inside a workload, methods are ranked on every problem instance (seed)
    that all of them ran, 1 being best; ranks are averaged over seeds, then over workloads with equal
    weight (see `reports.statistics.ranks`).
    """
    cells = list(_cells(studies, backend))
    ranked = [ranks for _, _, ranks, _, _ in cells]
    means = mean_ranks(pl.concat(ranked), ["stratum"], "method") if ranked else pl.DataFrame()
    ranks = {row["method"]: row for row in means.iter_rows(named=True)}
    order = list(dict.fromkeys(method for _, study, *_ in cells for method in study.methods))
    order = [method for method in order if any(method in entries for *_, entries, _ in cells)]
    place = {method: number for number, method in enumerate(ranks)}
    order.sort(key=lambda method: place.get(method, len(place)))
    reference = next((study.methods[0] for study, _ in studies if study.methods), None)
    steps, (memory, peaks) = _steps(studies, backend, reference), _peaks(studies, backend, order)
    rows = [_row(method, ranks.get(method), cells, steps.get(method), peaks.get(method)) for method in order]
    return Board(backend, tuple(column for column, *_ in cells), tuple(rows), reference, memory)


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
class _Counts:
    runs: int
    diverged: int
    counted: int
    reached: int | None


_Cell = tuple[Column, StudyPlan, pl.DataFrame, dict[str, Entry], dict[str, _Counts]]


def _cells(studies: Sequence[tuple[StudyPlan, Tables]], backend: str) -> Iterator[_Cell]:
    for study, tables in studies:
        for workload in study.workloads:
            runs = tables.runs.filter(
                (pl.col("stage") == "final")
                & (pl.col("backend") == backend)
                & (pl.col("workload") == workload.name)
            )
            values = study_values(study, runs).drop_nulls("value")
            if len(values):
                yield _cell(study, workload.name, runs, values)


def _cell(study: StudyPlan, workload: str, runs: pl.DataFrame, values: pl.DataFrame) -> _Cell:
    descending = study.direction == "maximize"
    ranks = instance_ranks(values, ["seed"], "method", "value", descending)
    ranks = ranks.with_columns(pl.lit(f"{study.name}/{workload}").alias("stratum"))
    summary = medians(values, ["method"], "value")
    best = best_methods(study, dict(summary.select("method", "median").iter_rows()))
    target = next(iter(study.targets.items()), None)
    reached = evaluations_to_target(runs, target[0]) if target else runs.clear().with_columns(value=0.0)
    entries, counts = {}, {}
    totals = {row["method"]: row for row in diverged_counts(runs).iter_rows(named=True)}
    for row in summary.iter_rows(named=True):
        method = row.pop("method")
        evaluations = reached.filter(pl.col("method") == method)["value"]
        entries[method] = Entry(
            value=MedianInterval(**row),
            best=method in best,
            evaluations=median_interval(evaluations.to_numpy()) if len(evaluations) else None,
        )
        total = totals[method]
        counts[method] = _Counts(
            runs=total["count"] - total["failed"],
            diverged=total["diverged"],
            counted=len(evaluations),
            reached=int(evaluations.is_finite().sum()) if target else None,
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
    return column, study, ranks, entries, counts


def _row(
    method: str,
    rank: dict[str, Any] | None,
    cells: Sequence[_Cell],
    step: MedianInterval | None,
    memory: int | None,
) -> Row:
    mine = [(column, counts[method]) for column, _, _, _, counts in cells if method in counts]
    counted = sum(count.counted for _, count in mine)
    return Row(
        method=method,
        basis=method_parts(method)[1],
        studies=tuple(dict.fromkeys(column.study for column, _ in mine)),
        rank=Rank(*(rank[key] for key in ("mean", "low", "high", "strata", "count", "seeds")))
        if rank
        else None,
        entries=tuple(entries.get(method) for *_, entries, _ in cells),
        reached=Count(sum(count.reached or 0 for _, count in mine), counted) if counted else None,
        diverged=Count(sum(count.diverged for _, count in mine), sum(count.runs for _, count in mine)),
        step=step,
        memory=memory,
    )
