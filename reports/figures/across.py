"""Figures across workloads that differ in one number, across bases, and across the ranks of bases.

A basis is an orthogonal change of coordinates of the parameters in which an optimizer works; the identity
basis keeps the original coordinates. The rank of an eigenbasis is the number of eigenvectors in it. The
headline metric is the metric by which a study compares methods.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import isfinite
from typing import Any

import polars as pl

from curvebench.reports.claims.quantities import seconds_to_nearly_best
from curvebench.reports.figures import drawing
from curvebench.reports.figures.palette import DASHES, MUTED
from curvebench.reports.figures.study_figures import SPARSE, FigureCell, judged_metrics, optimizer_panels
from curvebench.reports.formatting import in_dimensions, metric_name, plain
from curvebench.reports.measures import complete_curves, curve_bands, sensitivity, study_values
from curvebench.reports.statistics.medians import quartile_bands
from curvebench.reports.tables import final_curves
from curvebench.spec.conditions.costs import NEARLY_BEST
from curvebench.spec.method import IDENTITY, Method
from curvebench.spec.plan import StudyPlan, WorkloadPlan

ACCURACY = "validation_accuracy"
# Minimum number of different ranks for which a figure against the rank is drawn.
LEAST_RANKS = 3
# The random orthogonal basis. Figures against the rank leave it out, because it has no eigenvectors.
RANDOM = "random_orthogonal"
DASHED = (5.0, 2.0)


def draw_across(cell: FigureCell) -> Iterator[drawing.Drawn]:
    """Draw the figures across workloads, across bases and across ranks of bases, as far as a study has
    several.

    Args:
        cell: the problem for which to draw. The figures across workloads are drawn only if the workload of
            the problem is the study's first workload.
    """
    if cell.workload is cell.study.workloads[0]:
        yield from _family(cell)
    yield from _bases(cell)
    yield from _ranks(cell)


# --- workloads that differ in one number ---------------------------------------------------------


def varied(workloads: Sequence[WorkloadPlan]) -> tuple[str, dict[str, float]] | None:
    """Return the name of the only setting in which workloads differ, and the setting's number by workload.

    The numbers are in increasing order. The result is None if the workloads have different sources, settings
    or metrics, if they differ in several settings, or if the setting is not a number. The result is also None
    for a sweep, which has a figure of its own (`curvebench.reports.figures.sweeps`).
    """
    kinds = {(workload.source, *sorted(workload.settings), "", *workload.metrics) for workload in workloads}
    if len(workloads) < 2 or len(kinds) > 1 or workloads[0].sweep:
        return None
    names = workloads[0].settings
    differing = [name for name in names if len({str(workload.settings[name]) for workload in workloads}) > 1]
    if len(differing) != 1:
        return None
    values = {workload.name: workload.settings[differing[0]] for workload in workloads}
    if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in values.values()):
        return None
    return differing[0], dict(sorted(values.items(), key=lambda item: float(item[1])))


def _family(cell: FigureCell) -> Iterator[drawing.Drawn]:
    """Draw two figures of the headline metric for workloads that differ in one setting.

    The first figure shows the metric along the runs. The second figure shows the metric at the end of the
    runs, against the setting.
    """
    study, backend, tables = cell.study, cell.backend, cell.tables
    variation, final = varied(study.workloads), tables.runs.filter(backend=backend, stage="final")
    methods = list(cell.lines(final))
    if variation is None or not methods:
        return
    setting, values = variation
    name = f"{study.name}.{backend}.{setting}"
    facts: dict[str, Any] = {"setting": setting, "family": list(values)}
    common = {"workload": cell.workload.name, "backend": backend, "metric": study.metric, "kind": "across"}
    recorded = final_curves(tables, final, study.metric)
    curves = complete_curves(final, recorded, study.metric, study.direction)
    if len(curves):
        bands = curve_bands(curves)
        last = bands.filter(pl.col("step") == pl.col("step").max().over("workload", "method"))
        last = last.join(_places(values, "workload"), on="workload").sort("place")
        dashes = dict(zip(values, ((), *DASHES), strict=False))
        with drawing.panel_grid(methods, drawing.log_axes(study.direction, bands["lower_quartile"])) as grid:
            for (method, workload), line in bands.group_by("method", "workload", maintain_order=True):
                look = cell.looks[Method.of(str(method)).optimizer]
                panel, dash = grid.panels[str(method)], dashes[str(workload)]
                drawing.draw_line(panel, look, line, "step", dash, markevery=SPARSE)
            grid.limit_heights(bands, "step", study.direction)
            keys = {f"{setting} = {plain(values[name])}": dash for name, dash in dashes.items()}
            grid.draw_key(drawing.dashed(keys))
            grid.label("steps", metric_name(study.metric))
            facts |= {"bands": bands, "lines": cell.lines(last)}
            yield drawing.save(grid.figure, cell.out, f"{name}.curves", "family_curves", facts, **common)
    ends = study_values(study, final).join(_places(values, "workload"), on="workload")
    bands = quartile_bands(ends, ["method", "place"], "value")
    if not len(bands):
        return
    with optimizer_panels(methods, drawing.log_axes(study.direction, bands["lower_quartile"])) as grid:
        cell.draw(grid, cell.lines(bands), "place")
        grid.complete(setting, metric_name(study.metric, study.which), methods)
        facts |= {"which": study.which, "bands": bands, "lines": cell.lines(bands)}
        yield drawing.save(grid.figure, cell.out, name, "family_ends", facts, **common)


def _places(positions: Mapping[str, float], of: str) -> pl.DataFrame:
    """Return a frame with the positions of names on an axis.

    Args:
        positions: position by name.
        of: column for the names.

    Returns:
        Columns `of` and place (the position).
    """
    return pl.DataFrame(list(positions.items()), {of: pl.String, "place": pl.Float64}, orient="row")


# --- several bases -------------------------------------------------------------------------------


def _bases(cell: FigureCell) -> Iterator[drawing.Drawn]:
    """Draw metrics against the learning rate, with one panel per basis except the identity."""
    methods = [Method.of(label) for label in cell.study.methods]
    bases = [name for name in dict.fromkeys(method.basis for method in methods) if name != IDENTITY]
    for metric, which in judged_metrics(cell.study, cell.workload) if len(bases) > 1 else ():
        rates = sensitivity(study_values(cell.study, cell.runs, metric, which))
        tuned = [name for name in bases if name in {Method.of(label).basis for label in rates["method"]}]
        if len(tuned) > 1:
            yield _rates_by_basis(cell, metric, which, tuned, rates)


def _rates_by_basis(
    cell: FigureCell, metric: str, which: str, bases: Sequence[str], rates: pl.DataFrame
) -> drawing.Drawn:
    """Draw a metric against the learning rate, with a panel for each of `bases`.

    A panel has two lines per optimizer: a dashed line in the panel's basis, and a solid line in original
    coordinates.

    Args:
        rates: quartiles of the metric by method and learning rate, as `sensitivity` returns them.
    """
    direction = cell.study.direction_of(metric)
    panels = {f"{basis} basis": basis for basis in bases}
    with drawing.panel_grid(list(panels), drawing.log_axes(direction, rates["lower_quartile"], True)) as grid:
        for method, line in cell.lines(rates).items():
            optimizer, basis = Method.of(method)
            for title, panel in grid.panels.items():
                if basis in (IDENTITY, panels[title]):
                    dash = () if basis == IDENTITY else DASHED
                    drawing.draw_line(panel, cell.looks[optimizer], line, "learning_rate", dash)
        grid.limit_heights(rates, "learning_rate", direction)
        keys = drawing.dashed({"original coordinates": (), "the panel's basis": DASHED})
        grid.draw_key([*drawing.optimizer_keys(cell.looks), *keys])
        grid.label("learning rate", metric_name(metric, which))
        facts = {"which": which, "bands": rates, "best": best_rates(rates, direction), "of": cell.study}
        return cell.save(grid.figure, "across", f"bases.{which}.{metric}", metric, facts, "bases")


def best_rates(rates: pl.DataFrame, direction: str) -> list[tuple[str, float, float]]:
    """Return for each method the learning rate with the best median.

    Args:
        rates: quartiles of the metric by method and learning rate, as `sensitivity` returns them.
        direction: whether less or more of the metric is better.

    Returns:
        Triples of method, learning rate and the median at this rate, sorted by method.
    """
    ordered = rates.sort("median", descending=direction == "maximize", maintain_order=True)
    best = ordered.unique("method", keep="first", maintain_order=True)
    return best.sort("method").select("method", "learning_rate", "median").rows()


# --- bases that differ in their rank -------------------------------------------------------------


def ranks(study: StudyPlan) -> tuple[bool, dict[str, float]] | None:
    """Return whether a study's ranks of eigenbases are shares of the dimension, and the rank of each basis.

    The result is None if there are fewer than `LEAST_RANKS` different ranks, or if some ranks are shares of
    the dimension and others are numbers of eigenvectors.
    """
    eigenbases = [basis for basis in study.bases if basis.name != RANDOM]
    options = {basis.label: rank for basis in eigenbases if (rank := basis.options.get("rank")) is not None}
    shares = {label: share for label, rank in options.items() if (share := in_dimensions(rank)) is not None}
    if len(set((shares or options).values())) < LEAST_RANKS or (shares and len(shares) < len(options)):
        return None
    rank_of = shares or {label: float(rank) for label, rank in options.items()}
    return bool(shares), dict(sorted(rank_of.items(), key=lambda item: item[1]))


def _ranks(cell: FigureCell) -> Iterator[drawing.Drawn]:
    """Draw two figures against the rank of the basis.

    The first figure shows the headline metric. The second figure shows the seconds to nearly the best
    accuracy, if the workload has an accuracy.
    """
    study, final, rank_of = cell.study, cell.final, ranks(cell.study)
    if rank_of is None or not len(final):
        return
    yield from _against_rank(cell, *rank_of, study.metric, study_values(study, final))
    if ACCURACY in cell.workload.metrics:
        seconds = seconds_to_nearly_best(study, cell.tables, final, ACCURACY).drop_nulls("value")
        yield from _against_rank(cell, *rank_of, "seconds", seconds)


def _against_rank(
    cell: FigureCell, shares: bool, by_basis: Mapping[str, float], metric: str, values: pl.DataFrame
) -> Iterator[drawing.Drawn]:
    """Draw a metric against the rank of the basis, with a panel per optimizer.

    A horizontal line shows the value of the optimizer in the original coordinates.

    Args:
        shares: whether ranks are shares of the dimension.
        by_basis: rank by label of the basis.
        values: final runs with the metric as column `value`.
    """
    bands = quartile_bands(values, ["optimizer", "basis"], "value")
    places = bands.join(_places(by_basis, "basis"), on="basis").sort("place")
    lines = {name: line for name in cell.looks if len(line := places.filter(optimizer=name))}
    if not lines:
        return
    levels = {name: bands.filter(optimizer=name, basis=IDENTITY) for name in lines}
    direction, which = ("none", "") if metric == "seconds" else (cell.study.direction, cell.study.which)
    with optimizer_panels(lines, drawing.log_axes(direction, bands["lower_quartile"], True)) as grid:
        cell.draw(grid, lines, "place")
        for optimizer, level in levels.items():
            panel, edge = grid.panels[optimizer], {"color": MUTED.light, "linestyle": (0, DASHED)}
            for row in level.filter(pl.col("median").is_finite()).iter_rows(named=True):
                ends = row["lower_quartile"], row["upper_quartile"]
                if isfinite(ends[1]):
                    panel.axhspan(*ends, color=MUTED.light, alpha=0.14, linewidth=0)
                panel.axhline(row["median"], linewidth=1.4, **edge)
        grid.draw_key(drawing.dashed({"basis of leading eigenvectors": (), "original coordinates": DASHED}))
        grid.label("rank r over the dimension d" if shares else "rank r", metric_name(metric, which))
        facts = {"which": which, "bands": bands, "lines": lines, "levels": levels, "shares": shares}
        facts |= {"share": NEARLY_BEST, "of": ACCURACY}
        yield cell.save(grid.figure, "across", f"rank.{metric}", metric, facts, "rank")
