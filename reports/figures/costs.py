"""Figures of the costs of runs: the share of runs at a target by cost, and the final metric against cost.

The headline metric is the metric by which a study compares methods. Final runs use the setting that tuning
chose for their method.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite

import polars as pl

from curvebench.reports import measures
from curvebench.reports.figures import drawing
from curvebench.reports.figures.drawing import Axes, Drawn, floats
from curvebench.reports.figures.palette import MUTED, PAPER, TEXT
from curvebench.reports.figures.study_figures import FigureCell, optimizer_panels
from curvebench.reports.formatting import metric_name
from curvebench.reports.statistics.ranks import NEGLIGIBLE
from curvebench.reports.statistics.selection import on_front
from curvebench.reports.statistics.shares import reached_shares
from curvebench.reports.wall_clock import step_seconds
from curvebench.results.intervals import MedianInterval
from curvebench.results.outcomes import failed
from curvebench.spec.method import IDENTITY, Method

LABEL = "gradient evaluations, basis included"


def draw_targets(cell: FigureCell) -> Iterator[Drawn]:
    """Draw for each target the share of runs that have reached the target, against gradient evaluations.

    A target that no run reached has no figure.
    """
    for metric, threshold in cell.targets.items():
        times = target_times(cell.final, metric)
        if times["reached"].any():
            yield _reached(cell, metric, threshold, times)


def target_times(runs: pl.DataFrame, metric: str) -> pl.DataFrame:
    """Return how many gradient evaluations each run needed until it reached a target or ended.

    The evaluations for the run's basis are included.

    A failed run never reaches the target, and its time is the time of the longest run. The time of a run that
    is at its target from the start is one evaluation instead of none, because times must be positive.

    Args:
        runs: final runs of one workload on one backend, with the column `step_evaluations` (gradient
            evaluations that a step costs).
        metric: metric of the target.

    Returns:
        The runs that are not missing and whose study has a target for the metric. The additional columns are
        time (gradient evaluations) and reached (whether the run reached the target).
    """
    evaluations = measures.evaluations_to_target(runs, metric)
    longest = pl.col("steps").max()
    steps = pl.when(failed()).then(longest).otherwise(pl.col("steps"))
    ended = (steps * pl.col("step_evaluations") + measures.BASIS_GRADIENTS).cast(pl.Float64)
    reached = pl.col("value").is_finite()
    time = pl.when(reached).then(pl.col("value")).otherwise(ended).clip(lower_bound=1.0)
    return evaluations.with_columns(time=time, reached=reached)


def _reached(cell: FigureCell, metric: str, threshold: float, times: pl.DataFrame) -> Drawn:
    """Draw the share of runs that have reached one target.

    Args:
        metric: metric of the target.
        threshold: value of the metric at the target.
        times: time of each run, and whether it reached the target, as `target_times` returns them.
    """
    budgets = (times["time"] - times["basis_gradient_evaluations"].fill_null(0)).max()
    end = drawing.as_float(times["time"].max())
    # The axis is logarithmic if a basis costs several times as much as the steps of a run.
    # If the basis costs that much, a linear axis would compress all curves.
    log = "x" if end > 4 * drawing.as_float(budgets) else ""
    start, edge = (drawing.as_float(times["time"].min()) / 1.3, 1.1) if log else (0.0, 1.02)
    band = {"share": "median", "low": "lower_quartile", "high": "upper_quartile"}
    shares = reached_shares(times).rename(band)
    curves = {method: _from_start(line, start, end * edge) for method, line in cell.lines(shares).items()}
    with optimizer_panels(curves, log) as grid:
        cell.draw(grid, curves, "time", ghosts=True, markevery=0.25, drawstyle="steps-post")
        for method, curve in curves.items():
            optimizer = Method.of(method).optimizer
            missed = times.filter(~pl.col("reached"), method=method)["time"].unique()
            marks = curve.filter(pl.col("time").is_in(missed.implode()))
            grid.panels[optimizer].plot(
                floats(marks, "time"), floats(marks, "median"), "|", markersize=9, markeredgewidth=1.6,
                color=cell.looks[optimizer].ink.light, clip_on=False,
            )  # fmt: skip
        next(iter(grid.panels.values())).set(xlim=(start, end * edge), ylim=(-0.02, 1.04))
        grid.complete(LABEL, "share of seeds", curves)
        reached_times = pl.col("time").filter(pl.col("reached"))
        reached = times.group_by("method").agg(
            pl.col("reached").sum(), count=pl.len(), first=reached_times.min(), last=reached_times.max()
        )
        facts = {"threshold": threshold, "axis_label": LABEL, "reached": cell.lines(reached)}
        return cell.save(grid.figure, "target", f"{metric}.target", metric, facts)


def _from_start(shares: pl.DataFrame, start: float, end: float) -> pl.DataFrame:
    """Extend a method's line of shares to the left end of the axis; also to the right end if all runs reached
    the target.

    Args:
        shares: share of runs at the target, with its band, by time.
        start, end: ends of the axis.
    """
    shares = shares.drop("method")
    first = pl.DataFrame({"time": [start]} | {name: [0.0] for name in shares.columns[1:]})
    last = shares.tail(1).filter(pl.col("median") == 1).with_columns(time=pl.lit(end))
    return pl.concat([first, shares, last])


# --- loss against cost ----------------------------------------------------------------------------


COSTS = {"evaluations": LABEL, "seconds": "seconds of the run, basis included"}
PANEL = (3.6, 2.6)  # Width and height of a panel, inches.


@dataclass(frozen=True)
class CostResult:
    """Result of a method by the headline metric and one cost, on the seeds that all methods have.

    Args:
        method: label of the method.
        value: median of the headline metric over seeds.
        cost: median cost over seeds, in gradient evaluations or in seconds. Seconds are steps times the timed
            seconds of a step, plus the seconds for the basis.
        on_front: whether the method is on the Pareto front: no other method is better in one of metric and
            cost without being worse in the other.
    """

    method: str
    value: MedianInterval
    cost: MedianInterval
    on_front: bool


def cost_results(problem: measures.StudyProblem) -> dict[str, list[CostResult]]:
    """Return the result of every method by each cost.

    The cost in seconds is left out if a method was not timed. A failed run has the worst value and the cost
    of the steps that it made. Missing runs (`curvebench.results.outcomes`), and seeds that not all methods
    ran, are left out.

    Returns:
        The results of the methods, by "evaluations" or "seconds".
    """
    study, final = problem.study, problem.values
    shared = final.filter(pl.len().over("seed") == final["method"].n_unique())
    if not len(shared):
        return {}
    timed = step_seconds(problem.of(problem.tables.timings))
    step = timed.unique("method", keep="last", maintain_order=True)
    frame = shared.join(step.select("method", "median"), on="method", how="left").with_columns(
        evaluations=measures.CHARGED_GRADIENTS.cast(pl.Float64),
        seconds=pl.col("steps") * pl.col("median") + pl.col("basis_seconds").fill_null(0),
    )
    values, sign = measures.median_by_method(frame), 1 if study.direction == "minimize" else -1
    methods = [method for method in study.methods if method in values]
    losses = [sign * values[method].median for method in methods]
    by_cost = {}
    for name in (name for name in COSTS if not frame[name].has_nulls()):
        costs = measures.median_by_method(frame, name)
        front = on_front(losses, [costs[method].median for method in methods], NEGLIGIBLE)
        by_cost[name] = [
            CostResult(method, values[method], costs[method], bool(best))
            for method, best in zip(methods, front, strict=True)
        ]
    return by_cost


# --- the figure ----------------------------------------------------------------------------------


def draw_front(cell: FigureCell) -> Iterator[Drawn]:
    """Draw the headline metric against each cost in which methods differ, if all methods share a seed."""
    every = cost_results(cell)
    by_cost = {cost: group for cost, group in every.items() if len({item.cost.median for item in group}) > 1}
    if by_cost:
        yield _front(cell, by_cost)


def _front(cell: FigureCell, by_cost: Mapping[str, Sequence[CostResult]]) -> Drawn:
    """Draw the headline metric against each cost, with a panel per cost.

    Args:
        by_cost: results of all methods by each cost, as `cost_results` returns them.
    """
    study, methods = cell.study, next(iter(by_cost.values()))
    log_y = drawing.log_axes(study.direction, pl.Series([result.value.low for result in methods]))
    with drawing.panel_grid([COSTS[cost] for cost in by_cost], log_y, PANEL, sharex=False) as grid:
        for panel, panel_results in zip(grid.panels.values(), by_cost.values(), strict=True):
            _panel(cell, panel, panel_results)
        hollow = {"linestyle": "", "markersize": 6, "markerfacecolor": PAPER.light, "markeredgewidth": 1.5}
        in_basis = drawing.key_line("in a basis", marker="o", **hollow)
        front = drawing.key_line("on the front", marker="o", markersize=8, color=TEXT.light, linewidth=1.2)
        optimizers = drawing.optimizer_keys(cell.looks, linestyle="", markersize=6)
        grid.draw_key([*optimizers, in_basis, front])
        grid.label("cost", metric_name(study.metric, study.which))
        facts = {"which": study.which, "costs": COSTS, "count": methods[0].value.count, "places": by_cost}
        return cell.save(grid.figure, "front", "front", study.metric, facts)


def _panel(cell: FigureCell, panel: Axes, entries: Sequence[CostResult]) -> None:
    """Draw the results by one cost: a point with two intervals for each method, and the Pareto front."""
    costs = [result.cost.median for result in entries]
    if max(costs) > 4 * min(costs):
        panel.set_xscale("log")
    finite = [result for result in entries if isfinite(result.value.median)]
    heights = drawing.on_axis(panel, (result.value.median for result in finite))
    with_heights = zip(finite, heights, strict=True)
    front = [(result.cost.median, height) for result, height in with_heights if result.on_front]
    points = zip(*sorted(front, key=lambda point: point[0]), strict=True)
    panel.plot(*points, drawstyle="steps-post", color=MUTED.light, linewidth=1.2, zorder=1)
    for result, height in zip(finite, heights, strict=True):
        optimizer, basis = Method.of(result.method)
        look, cost, value = cell.looks[optimizer], result.cost, result.value
        colour = look.ink.light
        panel.plot([cost.low, cost.high], [height] * 2, color=colour, linewidth=1)
        ends = [end if isfinite(end) else height for end in (value.low, value.high)]
        panel.plot([cost.median] * 2, ends, color=colour, linewidth=1)
        panel.plot(
            cost.median, height, look.mark, color=colour, markersize=8 if result.on_front else 5.5,
            markerfacecolor=colour if basis == IDENTITY else PAPER.light, markeredgewidth=1.5, zorder=3,
        )  # fmt: skip
