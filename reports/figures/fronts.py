"""Loss against cost: the methods of a workload that no other beats in one without losing in the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite

import polars as pl

from curvebench.reports.figures.drawing import (
    Axes,
    Drawn,
    key_line,
    log_axes,
    on_axis,
    optimizer_keys,
    panel_grid,
)
from curvebench.reports.figures.palette import MUTED, PAPER, TEXT
from curvebench.reports.figures.study_figures import FigureCell
from curvebench.reports.formatting import metric_name
from curvebench.reports.measures import CHARGED_GRADIENTS, StudyProblem, median_by_method
from curvebench.reports.statistics.pareto import on_front
from curvebench.reports.statistics.ranks import NEGLIGIBLE
from curvebench.reports.wall_clock import step_seconds
from curvebench.results.intervals import MedianInterval
from curvebench.spec.method import IDENTITY, Method

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


def standings(problem: StudyProblem) -> dict[str, list[Standing]]:
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
        evaluations=CHARGED_GRADIENTS.cast(pl.Float64),
        seconds=pl.col("steps") * pl.col("median") + pl.col("basis_seconds").fill_null(0),
    )
    values, sign = median_by_method(frame), 1 if study.direction == "minimize" else -1
    methods = [method for method in study.methods if method in values]
    losses = [sign * values[method].median for method in methods]
    found = {}
    for name in (name for name in COSTS if not frame[name].has_nulls()):
        costs = median_by_method(frame, name)
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
        yield _draw(cell, found)


def _draw(cell: FigureCell, found: Mapping[str, Sequence[Standing]]) -> Drawn:
    study, methods = cell.study, next(iter(found.values()))
    log_y = log_axes(study.direction, pl.Series([each.value.low for each in methods]))
    with panel_grid([COSTS[cost] for cost in found], log_y, PANEL, sharex=False) as grid:
        for panel, places in zip(grid.panels.values(), found.values(), strict=True):
            _panel(cell, panel, places)
        handles = optimizer_keys(cell.looks, linestyle="", markersize=6)
        hollow = {"linestyle": "", "markersize": 6, "markerfacecolor": PAPER.light, "markeredgewidth": 1.5}
        handles.append(key_line("in a basis", marker="o", **hollow))
        handles.append(key_line("on the front", marker="o", markersize=8, color=TEXT.light, linewidth=1.2))
        grid.draw_key(handles)
        grid.label("cost", metric_name(study.metric, study.which))
        facts = {"which": study.which, "costs": COSTS, "count": methods[0].value.count, "places": found}
        return cell.save(grid.figure, "front", "front", study.metric, facts)


def _panel(cell: FigureCell, panel: Axes, places: Sequence[Standing]) -> None:
    costs = [each.cost.median for each in places]
    if max(costs) > 4 * min(costs):
        panel.set_xscale("log")
    drawn = [each for each in places if isfinite(each.value.median)]
    heights = on_axis(panel, (each.value.median for each in drawn))
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
