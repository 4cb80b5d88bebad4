"""Figures of what runs cost: the share that has reached a target by each cost, and loss against cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite

import polars as pl

from curvebench.reports import measures
from curvebench.reports.figures import drawing
from curvebench.reports.figures.drawing import Axes, Drawn, floats
from curvebench.reports.figures.palette import MUTED, PAPER, TEXT
from curvebench.reports.figures.study_figures import FigureCell, complete, optimizer_panels
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
    """Draw the share of runs that have reached each target against gradient evaluations.

    A target that no run reached has no figure.
    """
    for metric, threshold in cell.targets.items():
        times = target_times(cell.final, metric)
        if times["reached"].any():
            yield _reached(cell, metric, threshold, times)


def target_times(runs: pl.DataFrame, metric: str) -> pl.DataFrame:
    """When each run reached a target, or ended without it, in gradient evaluations, the basis included.

    A run that failed never reaches the target: its time is the budget, the steps of the longest run. One
    that starts at its target has taken no gradient, and counts as one evaluation: a time is above 0.

    Args:
        runs: the final runs of one workload on one backend, as `evaluations_to_target` takes them.

    Returns:
        The rows of `evaluations_to_target` with columns time, reached.
    """
    found = measures.evaluations_to_target(runs, metric)
    longest = pl.col("steps").max()
    steps = pl.when(failed()).then(longest).otherwise(pl.col("steps"))
    ended = (steps * pl.col("step_evaluations") + measures.BASIS_GRADIENTS).cast(pl.Float64)
    reached = pl.col("value").is_finite()
    time = pl.when(reached).then(pl.col("value")).otherwise(ended).clip(lower_bound=1.0)
    return found.with_columns(time=time, reached=reached)


def _reached(cell: FigureCell, metric: str, threshold: float, times: pl.DataFrame) -> Drawn:
    # A basis that costs several times the budget would press the curves into the frame.
    budgets = (times["time"] - times["basis_gradient_evaluations"].fill_null(0)).max()
    end = drawing.as_float(times["time"].max())
    log = "x" if end > 4 * drawing.as_float(budgets) else ""
    start, edge = (drawing.as_float(times["time"].min()) / 1.3, 1.1) if log else (0.0, 1.02)
    shares = reached_shares(times).rename(
        {"share": "median", "low": "lower_quartile", "high": "upper_quartile"}
    )
    curves = {method: _from_start(own, start, end * edge) for method, own in cell.lines(shares).items()}
    with optimizer_panels(curves, log) as grid:
        cell.draw(grid, curves, "time", ghosts=True, marks=0.25, drawstyle="steps-post")
        for method, curve in curves.items():
            optimizer = Method.of(method).optimizer
            missed = times.filter(~pl.col("reached"), method=method)["time"].unique()
            marks = curve.filter(pl.col("time").is_in(missed.implode()))
            grid.panels[optimizer].plot(
                floats(marks, "time"), floats(marks, "median"), "|", markersize=9, markeredgewidth=1.6,
                color=cell.looks[optimizer].ink.light, clip_on=False,
            )  # fmt: skip
        next(iter(grid.panels.values())).set(xlim=(start, end * edge), ylim=(-0.02, 1.04))
        complete(grid, LABEL, "share of seeds", curves)
        at = pl.col("time").filter(pl.col("reached"))
        reached = times.group_by("method").agg(
            pl.col("reached").sum(), count=pl.len(), first=at.min(), last=at.max()
        )
        facts = {"threshold": threshold, "axis_label": LABEL, "reached": cell.lines(reached)}
        return cell.save(grid.figure, "target", f"{metric}.target", metric, facts)


def _from_start(own: pl.DataFrame, start: float, end: float) -> pl.DataFrame:
    """The shares of a method from the start on, as steps; to the end only where all have reached it."""
    own = own.drop("method")
    first = pl.DataFrame({"time": [start]} | {name: [0.0] for name in own.columns[1:]})
    last = own.tail(1).filter(pl.col("median") == 1).with_columns(time=pl.lit(end))
    return pl.concat([first, own, last])


# --- loss against cost ----------------------------------------------------------------------------


COSTS = {
    "evaluations": "gradient evaluations, basis included",
    "seconds": "seconds of the run, basis included",
}
PANEL = (3.6, 2.6)  # width and height, inches


@dataclass(frozen=True)
class Standing:
    """Where a method stands by the headline metric and one cost, on the seeds that all methods have.

    Args:
        value, cost: medians over seeds; of seconds, steps times the timed step, and the basis.
        on_front: whether no method is better in one without being worse in the other.
    """

    method: str
    value: MedianInterval
    cost: MedianInterval
    on_front: bool


def standings(problem: measures.StudyProblem) -> dict[str, list[Standing]]:
    """Every method's place by each cost; seconds are left out where a method was not timed.

    A failed run's loss is the worst, and it costs what it has used. Missing runs, and seeds that not all
    methods have, are left out.
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
    found = {}
    for name in (name for name in COSTS if not frame[name].has_nulls()):
        costs = measures.median_by_method(frame, name)
        front = on_front(losses, [costs[method].median for method in methods], NEGLIGIBLE)
        found[name] = [
            Standing(method, values[method], costs[method], bool(best))
            for method, best in zip(methods, front, strict=True)
        ]
    return found


# --- the figure ----------------------------------------------------------------------------------


def draw_front(cell: FigureCell) -> Iterator[Drawn]:
    """Draw the front where all methods share a seed, against the costs by which they differ."""
    every = standings(cell)
    found = {cost: places for cost, places in every.items() if len({one.cost.median for one in places}) > 1}
    if found:
        yield _front(cell, found)


def _front(cell: FigureCell, found: Mapping[str, Sequence[Standing]]) -> Drawn:
    study, methods = cell.study, next(iter(found.values()))
    log_y = drawing.log_axes(study.direction, pl.Series([each.value.low for each in methods]))
    with drawing.panel_grid([COSTS[cost] for cost in found], log_y, PANEL, sharex=False) as grid:
        for panel, places in zip(grid.panels.values(), found.values(), strict=True):
            _panel(cell, panel, places)
        handles = drawing.optimizer_keys(cell.looks, linestyle="", markersize=6)
        hollow = {"linestyle": "", "markersize": 6, "markerfacecolor": PAPER.light, "markeredgewidth": 1.5}
        handles.append(drawing.key_line("in a basis", marker="o", **hollow))
        handles.append(
            drawing.key_line("on the front", marker="o", markersize=8, color=TEXT.light, linewidth=1.2)
        )
        grid.draw_key(handles)
        grid.label("cost", metric_name(study.metric, study.which))
        facts = {"which": study.which, "costs": COSTS, "count": methods[0].value.count, "places": found}
        return cell.save(grid.figure, "front", "front", study.metric, facts)


def _panel(cell: FigureCell, panel: Axes, places: Sequence[Standing]) -> None:
    costs = [each.cost.median for each in places]
    if max(costs) > 4 * min(costs):
        panel.set_xscale("log")
    drawn = [each for each in places if isfinite(each.value.median)]
    heights = drawing.on_axis(panel, (each.value.median for each in drawn))
    placed = zip(drawn, heights, strict=True)
    front = [(each.cost.median, height) for each, height in placed if each.on_front]
    panel.plot(
        *zip(*sorted(front, key=lambda place: place[0]), strict=True),
        drawstyle="steps-post", color=MUTED.light, linewidth=1.2, zorder=1,
    )  # fmt: skip
    for each, height in zip(drawn, heights, strict=True):
        optimizer, basis = Method.of(each.method)
        look, cost, value = cell.looks[optimizer], each.cost, each.value
        colour = look.ink.light
        panel.plot([cost.low, cost.high], [height] * 2, color=colour, linewidth=1)
        ends = [end if isfinite(end) else height for end in (value.low, value.high)]
        panel.plot([cost.median] * 2, ends, color=colour, linewidth=1)
        panel.plot(
            cost.median, height, look.mark, color=colour, markersize=8 if each.on_front else 5.5,
            markerfacecolor=colour if basis == IDENTITY else PAPER.light, markeredgewidth=1.5, zorder=3,
        )  # fmt: skip
