"""Loss against cost: the methods of a workload that no other beats in one without losing in the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite

import polars as pl

from documents.method import IDENTITY, Method
from documents.plan import StudyPlan, WorkloadPlan
from reports.figures.palette import MUTED, PAPER, TEXT, look_of
from reports.figures.study_figures import (
    Axes,
    Drawn,
    Figure,
    FigureCell,
    fits_log,
    plain_ticks,
    styled,
)
from reports.formatting import metric_name
from reports.measures import median_by_method, step_seconds, study_values
from reports.statistics.pareto import front_shares
from reports.statistics.ranks import NEGLIGIBLE
from reports.tables import Tables
from results.intervals import MedianInterval

COSTS = {
    "evaluations": "gradient evaluations, basis included",
    "seconds": "seconds of the run, basis included",
}
PANEL = (4.1, 3.3)  # width and height of an axis with its labels, inches
KEY = 0.2  # height of a line of the key, inches
KEY_COLUMNS = 4


@dataclass(frozen=True)
class Place:
    """Where a method stands on one cost.

    Args:
        cost: the median over seeds; of seconds, steps times the timed step, and the basis.
        on_front: whether no method is better in loss or cost without being worse in the other.
        share: of the resamples of seeds in which it is on the front.
    """

    cost: MedianInterval
    on_front: bool
    share: float


@dataclass(frozen=True)
class Standing:
    """A method's headline metric and its places, by name of the cost, on the seeds that all methods have."""

    method: str
    value: MedianInterval
    places: Mapping[str, Place]


def standings(study: StudyPlan, workload: WorkloadPlan, backend: str, tables: Tables) -> list[Standing]:
    """Every method's loss and costs; seconds are left out where a method was not timed.

    A failed run's loss is the worst, and it costs what it has used. Missing runs, and seeds that not all
    methods have, are left out.
    """
    here = (pl.col("workload") == workload.name) & (pl.col("backend") == backend)
    final = study_values(study, tables.runs.filter(here, pl.col("stage") == "final")).drop_nulls("value")
    shared = final.filter(pl.len().over("seed") == final["method"].n_unique())
    if not len(shared):
        return []
    step = step_seconds(tables.timings.filter(here)).unique("method", keep="last", maintain_order=True)
    charged = pl.col("gradient_evaluations") + pl.col("basis_gradient_evaluations").fill_null(0)
    modelled = pl.col("steps") * pl.col("median") + pl.col("basis_seconds").fill_null(0)
    frame = shared.join(step.select("method", "median"), on="method", how="left").with_columns(
        loss=pl.col("value") if study.direction == "minimize" else -pl.col("value"),
        evaluations=charged.cast(pl.Float64),
        seconds=modelled,
    )
    costs = [cost for cost in COSTS if not frame[cost].has_nulls()]
    fronts = {cost: front_shares(frame, cost, negligible=NEGLIGIBLE) for cost in costs}
    values = median_by_method(frame)
    places: dict[str, dict[str, Place]] = {method: {} for method in values}
    for cost, front in fronts.items():
        of_cost = median_by_method(frame, cost)
        for row in front.iter_rows(named=True):
            places[row["method"]][cost] = Place(of_cost[row["method"]], row["on_front"], row["share"])
    return [Standing(method, values[method], places[method]) for method in study.methods if method in values]


# --- the figure ----------------------------------------------------------------------------------


def draw_front(cell: FigureCell) -> Iterator[Drawn]:
    """Draw the front where all methods share a seed."""
    found = standings(cell.study, cell.workload, cell.backend, cell.tables)
    if found:
        yield _draw(cell, found)


def _draw(cell: FigureCell, found: Sequence[Standing]) -> Drawn:
    study, costs = cell.study, list(found[0].places)
    name = f"{study.which} {metric_name(study.metric)}"
    optimizers = list(dict.fromkeys(Method.of(each.method).optimizer for each in found))
    lines = -(-(len(optimizers) + 2) // KEY_COLUMNS)
    width, height = max(PANEL[0] * len(costs), 6.5), PANEL[1] + KEY * lines
    with styled((width, height), None, 1, len(costs), sharey=True, squeeze=False) as (figure, grid):
        figure.subplots_adjust(
            left=0.8 / width, right=1 - 0.15 / width, bottom=0.55 / height,
            top=1 - (0.15 + KEY * lines) / height, wspace=0.08,
        )  # fmt: skip
        log_y = study.direction == "minimize" and fits_log(pl.Series([each.value.low for each in found]))
        for panel, cost in zip(grid[0], costs, strict=True):
            _panel(panel, cost, found, log_y)
        grid[0, 0].set_ylabel(name)
        _key(figure, optimizers)
        return cell.save(
            figure,
            "front",
            "front",
            study.metric,
            name=name,
            costs={cost: COSTS[cost] for cost in costs},
            count=found[0].value.count,
            rows=found,
        )


def _panel(panel: Axes, cost: str, found: Sequence[Standing], log_y: bool) -> None:
    drawn = [each for each in found if isfinite(each.value.median)]
    dearest = max(each.places[cost].cost.median for each in found)
    log_x = dearest > 4 * min(each.places[cost].cost.median for each in found)
    if log_x:
        panel.set_xscale("log")
    if log_y:
        panel.set_yscale("log")
    front = sorted(
        (each for each in drawn if each.places[cost].on_front), key=lambda each: each.places[cost].cost.median
    )
    panel.plot(
        [each.places[cost].cost.median for each in front], [each.value.median for each in front],
        drawstyle="steps-post", color=MUTED.light, linewidth=1.2, zorder=1,
    )  # fmt: skip
    for each in drawn:
        place, value = each.places[cost], each.value
        optimizer, basis = Method.of(each.method)
        look = look_of(optimizer)
        colour = look.ink.light
        panel.plot([place.cost.low, place.cost.high], [value.median] * 2, color=colour, linewidth=1)
        ends = [end if isfinite(end) else value.median for end in (value.low, value.high)]
        panel.plot([place.cost.median] * 2, ends, color=colour, linewidth=1)
        panel.plot(
            place.cost.median, value.median, look.mark, color=colour, markersize=8 if place.on_front else 5.5,
            markerfacecolor=colour if basis == IDENTITY else PAPER.light, markeredgewidth=1.5, zorder=3,
        )  # fmt: skip
    plain_ticks(panel, 2)
    panel.set_xlabel(COSTS[cost])


def _key(figure: Figure, optimizers: Sequence[str]) -> None:
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], marker=look.mark, linestyle="", markersize=6, color=look.ink.light, label=name)
        for name in optimizers
        for look in [look_of(name)]
    ]
    handles += [
        Line2D([], [], marker="o", linestyle="", markersize=6, color=MUTED.light,
               markerfacecolor=PAPER.light, markeredgewidth=1.5, label="in a basis"),
        Line2D([], [], marker="o", markersize=8, color=TEXT.light, linewidth=1.2, label="on the front"),
    ]  # fmt: skip
    figure.legend(handles=handles, loc="upper left", borderaxespad=0.1, ncols=KEY_COLUMNS)
