"""Loss against cost: the methods of a workload that no other beats in one without losing in the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path

import polars as pl

from reports.figures import Axes, Drawn, Figure, fits_log, save, styled
from reports.formatting import metric_name, number, percent, plain, power_of_ten, seconds
from reports.measures import step_seconds, study_values
from reports.palette import MUTED, PAPER, TEXT, ink_of
from reports.plan import StudyPlan, WorkloadPlan
from reports.statistics.medians import MedianInterval, medians
from reports.statistics.pareto import front_shares
from reports.statistics.ranks import NEGLIGIBLE
from reports.tables import Tables
from results.methods import IDENTITY, method_parts

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

    A diverged run's loss is the worst, and it costs what it has used. Failed runs, and seeds that not all
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
    fronts = {
        cost: front_shares(frame, [], "method", ["seed"], "loss", cost, negligible=NEGLIGIBLE)
        for cost in costs
    }
    values = _intervals(frame, "value")
    places: dict[str, dict[str, Place]] = {method: {} for method in values}
    for cost, front in fronts.items():
        of_cost = _intervals(frame, cost)
        for row in front.iter_rows(named=True):
            places[row["method"]][cost] = Place(of_cost[row["method"]], row["on_front"], row["share"])
    return [Standing(method, values[method], places[method]) for method in study.methods if method in values]


def _intervals(frame: pl.DataFrame, column: str) -> dict[str, MedianInterval]:
    return {row.pop("method"): MedianInterval(**row) for row in medians(frame, ["method"], column).to_dicts()}


# --- the figure ----------------------------------------------------------------------------------


def draw_fronts(study: StudyPlan, tables: Tables, out: Path) -> list[Drawn]:
    """Draw the front of every workload and backend on which methods share a seed.

    Args:
        out: is made where it is missing.
    """
    out.mkdir(parents=True, exist_ok=True)
    return [
        _draw(study, workload, backend, found, out)
        for workload in study.workloads
        for backend in study.backends
        for found in [standings(study, workload, backend, tables)]
        if found
    ]


def _draw(
    study: StudyPlan, workload: WorkloadPlan, backend: str, found: Sequence[Standing], out: Path
) -> Drawn:
    name = f"{study.which} {metric_name(study.metric)}"
    costs = list(found[0].places)
    optimizers = list(dict.fromkeys(method_parts(each.method)[0] for each in found))
    lines = -(-(len(optimizers) + 2) // KEY_COLUMNS)
    width, height = max(PANEL[0] * len(costs), 6.5), PANEL[1] + KEY * lines
    with styled((width, height), None, 1, len(costs), sharey=True, squeeze=False) as (figure, grid):
        figure.subplots_adjust(
            left=0.8 / width, right=1 - 0.15 / width, bottom=0.55 / height,
            top=1 - (0.15 + KEY * lines) / height, wspace=0.08,
        )  # fmt: skip
        low = pl.Series([each.value.low for each in found])
        log_y = study.direction == "minimize" and fits_log(low)
        for panel, cost in zip(grid[0], costs, strict=True):
            _panel(panel, cost, found, log_y)
        grid[0, 0].set_ylabel(name)
        _key(figure, optimizers)
        on_front = {cost: [each for each in found if each.places[cost].on_front] for cost in costs}
        return save(
            figure,
            out,
            kind="front",
            name=f"{workload.name}.{backend}.front",
            workload=workload.name,
            backend=backend,
            metric=study.metric,
            title=f"{name.capitalize()} against cost",
            caption=(
                f"Medians over {found[0].value.count} seeds and their intervals. On the line: the methods "
                "that no other beats in one without losing in the other. Methods of which half of the runs "
                "diverged are not drawn."
            ),
            alt=(
                f"{name.capitalize()} of {workload.name} on {backend} against "
                f"{' and '.join(COSTS[cost] for cost in costs)}. "
                + " ".join(
                    f"On the front of {cost}: {', '.join(each.method for each in front) or 'none'}."
                    for cost, front in on_front.items()
                )
                + " "
                + "; ".join(_told(each) for each in found)
                + "."
            ),
        )


def _panel(panel: Axes, cost: str, found: Sequence[Standing], log_y: bool) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

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
        optimizer, basis = method_parts(each.method)
        colour = ink_of(optimizer).light
        panel.plot([place.cost.low, place.cost.high], [value.median] * 2, color=colour, linewidth=1)
        ends = [end if isfinite(end) else value.median for end in (value.low, value.high)]
        panel.plot([place.cost.median] * 2, ends, color=colour, linewidth=1)
        panel.plot(
            place.cost.median, value.median, "o", color=colour, markersize=8 if place.on_front else 5.5,
            markerfacecolor=colour if basis == IDENTITY else PAPER.light, markeredgewidth=1.5, zorder=3,
        )  # fmt: skip
    shown = ((panel.xaxis, log_x, panel.get_xlim()), (panel.yaxis, log_y, panel.get_ylim()))
    for axis, logarithmic, (low, high) in shown:
        if logarithmic:
            few = high / low < 100
            axis.set_major_locator(LogLocator(subs=(1, 2, 5) if few else (1,), numticks=7))
            axis.set_major_formatter(FuncFormatter(power_of_ten))
            axis.set_minor_locator(NullLocator())
        else:
            axis.set_major_formatter(FuncFormatter(lambda value, _: plain(value)))
    panel.set_xlabel(COSTS[cost])


def _key(figure: Figure, optimizers: Sequence[str]) -> None:
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], marker="o", linestyle="", markersize=6, color=ink_of(name).light, label=name)
        for name in optimizers
    ]
    handles += [
        Line2D([], [], marker="o", linestyle="", markersize=6, color=MUTED.light,
               markerfacecolor=PAPER.light, markeredgewidth=1.5, label="in a basis"),
        Line2D([], [], marker="o", markersize=8, color=TEXT.light, linewidth=1.2, label="on the front"),
    ]  # fmt: skip
    figure.legend(handles=handles, loc="upper left", borderaxespad=0.1, ncols=KEY_COLUMNS)


def _told(each: Standing) -> str:
    shown = {"evaluations": lambda cost: f"{number(cost)} evaluations", "seconds": seconds}
    costs = ", ".join(
        f"{shown[name](place.cost.median)} (on the front in {percent(place.share)} of resamples)"
        for name, place in each.places.items()
    )
    return f"{each.method} {number(each.value.median)} at {costs}"
