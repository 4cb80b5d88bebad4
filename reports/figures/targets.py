"""Times to target as censored data: what a study's page shows of them, and their figure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from documents.method import IDENTITY, Method
from documents.plan import StudyPlan, WorkloadPlan
from reports.figures.palette import GHOST, dashes_of, look_of
from reports.figures.study_figures import (
    Axes,
    Drawn,
    FigureCell,
    as_float,
    floats,
    label_axes,
    one_panel_each,
)
from reports.measures import evaluations_to_target, final_runs, references
from reports.statistics.decisions import holm
from reports.statistics.shares import Share, share_interval
from reports.statistics.survival import (
    LogRankTest,
    common_horizon,
    log_rank_test,
    reached_shares,
    restricted_means,
    win_probability,
)
from results.intervals import MedianInterval, median_interval
from results.outcomes import failed

LABEL = "gradient evaluations, basis included"


@dataclass(frozen=True)
class Sooner:
    """A method against another one on times to target, as far as both are known.

    Args:
        horizon: the time up to which it is known of every run of both whether it has reached the target.
        mean, control_mean: the restricted means of both up to the horizon, with low and high; those are None
            for one run that reached the target.
        chance: that a run reaches the target before the other method's run of the same seed.
        test: the one-sided log-rank test that it is sooner; `p_value` is corrected for the table.
    """

    horizon: float
    mean: Mapping[str, Any]
    control_mean: Mapping[str, Any]
    chance: Share
    test: LogRankTest
    p_value: float


@dataclass(frozen=True)
class Incomparable:
    """Why two methods are not compared: a run of one ended, at a time, before what a basis alone costs."""

    ended: str
    at: float
    dearest: str
    cost: int


@dataclass(frozen=True)
class TimeToTarget:
    """A method's gradient evaluations to target, those of its basis included.

    Args:
        reached: runs that reached the target within their own budget.
        time: the median, infinite where half of the runs missed the target.
        control: what it is held against; None for a method without a reference, or one that shares no seed
            with it.
        sooner: None without a control, and where `reason` says why the two cannot be compared.
    """

    method: str
    reached: Share
    time: MedianInterval
    control: str | None
    sooner: Sooner | None
    reason: Incomparable | None


@dataclass(frozen=True)
class TargetTable:
    """All methods on one target; `least` is what no corrected p-value can be below, None without tests."""

    metric: str
    threshold: float
    rows: tuple[TimeToTarget, ...]
    least: float | None


def target_times(runs: pl.DataFrame, metric: str) -> pl.DataFrame:
    """When each run reached a target, or ended without it, in gradient evaluations, the basis included.

    A run that failed never reaches the target: its time is the budget, the steps of the longest run. One
    that starts at its target has taken no gradient, and counts as one evaluation: a time is above 0.

    Args:
        runs: the final runs of one workload on one backend, as `evaluations_to_target` takes them.

    Returns:
        The rows of `evaluations_to_target` with columns time, reached.
    """
    found = evaluations_to_target(runs, metric)
    longest = pl.col("steps").max()
    steps = pl.when(failed()).then(longest).otherwise(pl.col("steps"))
    basis = pl.col("basis_gradient_evaluations").fill_null(0)
    ended = (steps * pl.col("step_evaluations") + basis).cast(pl.Float64)
    reached = pl.col("value").is_finite()
    time = pl.when(reached).then(pl.col("value")).otherwise(ended).clip(lower_bound=1.0)
    return found.with_columns(time=time, reached=reached)


def target_tables(
    study: StudyPlan, workload: WorkloadPlan, backend: str, runs: pl.DataFrame
) -> list[TargetTable]:
    """The methods of a workload on each target of its study.

    Two methods are compared up to the longest time at which every run of both was still observed, or had
    reached the target. A third method's runs that missed it, and how long those were, change nothing.

    Args:
        runs: the table `runs` with `method`.
    """
    return [_table(study, metric, times) for metric, times in _targets(study, workload, backend, runs)]


def draw_targets(cell: FigureCell) -> Iterator[Drawn]:
    """Draw the share of runs that have reached each target against gradient evaluations.

    A target that no run reached has no figure.
    """
    for metric, times in _targets(cell.study, cell.workload, cell.backend, cell.tables.runs):
        if times["reached"].any():
            yield _draw(cell, metric, times)


def _targets(
    study: StudyPlan, workload: WorkloadPlan, backend: str, runs: pl.DataFrame
) -> Iterator[tuple[str, pl.DataFrame]]:
    """Each target of a workload that was aimed at, with the times of its final runs."""
    final = final_runs(runs, workload.name, backend)
    for metric in study.targets:
        if metric in workload.metrics and len(times := target_times(final, metric)):
            yield metric, times


def _table(study: StudyPlan, metric: str, times: pl.DataFrame) -> TargetTable:
    there = set(times["method"])
    against = {
        method: control
        for method, control in references(study.methods).items()
        if _seeds(times, method) & _seeds(times, control)
    }
    pairs = {method: _compared(times, method, control) for method, control in against.items()}
    tested = {method: pair for method, pair in pairs.items() if isinstance(pair, Sooner)}
    corrected = dict(zip(tested, holm([pair.p_value for pair in tested.values()]), strict=True))
    rows = []
    for method in [method for method in study.methods if method in there]:
        own, pair = times.filter(method=method), pairs.get(method)
        rows.append(
            TimeToTarget(
                method=method,
                reached=share_interval(int(own["reached"].sum()), len(own)),
                time=median_interval(own["value"].to_numpy()),
                control=against.get(method),
                sooner=replace(pair, p_value=corrected[method]) if isinstance(pair, Sooner) else None,
                reason=pair if isinstance(pair, Incomparable) else None,
            )
        )
    least = min((pair.test.least for pair in tested.values()), default=None)
    bound = min(1.0, least * len(tested)) if least is not None else None
    return TargetTable(metric, study.targets[metric], tuple(rows), bound)


def _compared(times: pl.DataFrame, method: str, control: str) -> Sooner | Incomparable:
    """A method against another one, its p-value not corrected; a reason where their times do not overlap."""
    both = times.filter(pl.col("method").is_in([method, control])).with_columns(
        basis=pl.col("basis_gradient_evaluations").fill_null(0)
    )
    horizon = common_horizon(both)
    dearest = both.sort("basis", descending=True).row(0, named=True)
    if horizon <= dearest["basis"] and not both["reached"].all():
        ended = both.filter(~pl.col("reached")).sort("time")["method"][0]
        return Incomparable(ended, horizon, dearest["method"], dearest["basis"])
    within = both.with_columns(
        time=pl.col("time").clip(upper_bound=horizon),
        reached=pl.col("reached") & (pl.col("time") <= horizon),
    )
    means = {row.pop("method"): row for row in restricted_means(within, horizon).to_dicts()}
    test = log_rank_test(within, method, control)
    chance = win_probability(within, method, control, horizon=horizon)
    return Sooner(horizon, means[method], means[control], chance, test, test.p_value)


def _seeds(times: pl.DataFrame, method: str) -> set[int]:
    return set(times.filter(method=method)["seed"])


# --- the figure ----------------------------------------------------------------------------------


def _draw(cell: FigureCell, metric: str, times: pl.DataFrame) -> Drawn:
    shares = reached_shares(times)
    methods = cell.methods_in(shares)
    # A basis that costs several times the budget would press the curves into the frame.
    budgets = (times["time"] - times["basis_gradient_evaluations"].fill_null(0)).max()
    end = as_float(times["time"].max())
    log_x = end > 4 * as_float(budgets)
    start, edge = (as_float(times["time"].min()) / 1.3, 1.1) if log_x else (0.0, 1.02)
    curves = {method: _curve(shares, method, start, end * edge) for method in methods}
    with one_panel_each(methods, log_x, log_y=False) as (figure, panels):
        for optimizer, panel in panels.items():
            for method, curve in curves.items():
                if Method.of(method).optimizer != optimizer:
                    panel.plot(*_points(curve), color=GHOST.light, linewidth=0.7, drawstyle="steps-post")
            _steps(panel, optimizer, curves, times, methods)
            panel.set_xlim(start, end * edge)
            panel.set_ylim(-0.02, 1.04)
        label_axes(figure, panels, LABEL, "share of seeds", methods)
        at = pl.col("time").filter(pl.col("reached"))
        reached = times.group_by("method").agg(
            pl.col("reached").sum(), count=pl.len(), first=at.min(), last=at.max()
        )
        by_method = {row["method"]: row for row in reached.to_dicts()}
        return cell.save(
            figure,
            "target",
            f"{metric}.target",
            metric,
            threshold=cell.study.targets[metric],
            axis_label=LABEL,
            reached=[by_method[method] for method in methods],
        )


def _curve(shares: pl.DataFrame, method: str, start: float, end: float) -> pl.DataFrame:
    """The shares of a method from the start on, as steps; to the end only where all have reached it."""
    own = shares.filter(pl.col("method") == method).drop("method", "at_risk")
    first = pl.DataFrame({"time": [start], "share": [0.0], "low": [0.0], "high": [0.0]})
    last = own.tail(1).filter(pl.col("share") == 1).with_columns(time=pl.lit(end))
    return pl.concat([first, own, last])


def _points(curve: pl.DataFrame) -> tuple[object, object]:
    return floats(curve, "time"), floats(curve, "share")


def _steps(
    panel: Axes,
    optimizer: str,
    curves: dict[str, pl.DataFrame],
    times: pl.DataFrame,
    methods: Sequence[str],
) -> None:
    """The methods of one optimizer: steps in the basis' dashes, their bands, and marks of censored runs."""
    dashes, look = dashes_of(methods), look_of(optimizer)
    colour = look.ink.light
    for method, curve in curves.items():
        name, basis = Method.of(method)
        if name != optimizer:
            continue
        panel.fill_between(
            floats(curve, "time"), floats(curve, "low"), floats(curve, "high"), step="post",
            color=colour, alpha=0.16, linewidth=0,
        )  # fmt: skip
        panel.plot(
            *_points(curve), color=colour, linewidth=1.7, drawstyle="steps-post", marker=look.mark,
            markersize=4, markeredgewidth=0, markevery=0.25,
            linestyle=(0, dashes[basis]) if basis != IDENTITY else "-",
        )  # fmt: skip
        missed = times.filter((pl.col("method") == method) & ~pl.col("reached"))["time"].unique()
        marks = curve.filter(pl.col("time").is_in(missed.implode()))
        panel.plot(*_points(marks), "|", color=colour, markersize=9, markeredgewidth=1.6, clip_on=False)
