"""Figures across workloads that differ in one number, across several bases, and across their ranks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import polars as pl

from documents.method import IDENTITY, Method
from documents.plan import StudyPlan, WorkloadPlan
from reports.claims.outcome_measures import seconds_to_nearly_best
from reports.figures.curves import final_curves
from reports.figures.palette import DASHES, MUTED, TEXT, look_of
from reports.figures.study_figures import (
    Drawn,
    FigureCell,
    as_float,
    dashed,
    draw_key,
    draw_line,
    draw_lines,
    figure_words,
    fits_log,
    judged_metrics,
    label_axes,
    label_panels,
    limit_heights,
    one_panel_each,
    panels_of,
    save,
    thinned,
)
from reports.formatting import in_dimensions, metric_name, plain
from reports.measures import complete_curves, curve_bands, sensitivity, study_values
from reports.plan import NEARLY_BEST
from reports.statistics.medians import quartile_bands

ACCURACY = "validation_accuracy"
LEAST_RANKS = 3


def draw_across(cell: FigureCell) -> Iterator[Drawn]:
    """Draw what goes across workloads, with the first of them, and across bases, where there are such."""
    if cell.workload is cell.study.workloads[0]:
        yield from _family(cell)
    yield from _bases(cell)
    yield from _ranks(cell)


# --- workloads that differ in one number ---------------------------------------------------------


def varied(workloads: Sequence[WorkloadPlan]) -> tuple[str, dict[str, float]] | None:
    """The setting that alone tells workloads apart, and its number by workload, from the least on.

    None where workloads are not of one source, settings and metrics, or differ in several settings, or in
    what is no number.
    """
    kinds = {(one.source, *sorted(one.settings), "", *one.metrics) for one in workloads}
    if len(workloads) < 2 or len(kinds) > 1:
        return None
    names = workloads[0].settings
    differing = [name for name in names if len({str(one.settings[name]) for one in workloads}) > 1]
    if len(differing) != 1:
        return None
    values = {one.name: one.settings[differing[0]] for one in workloads}
    if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in values.values()):
        return None
    return differing[0], dict(sorted(values.items(), key=lambda item: float(item[1])))


def _family(cell: FigureCell) -> Iterator[Drawn]:
    """A metric along runs, and at their end, of workloads that differ in one setting."""
    study, backend, tables = cell.study, cell.backend, cell.tables
    found = varied(study.workloads)
    final = tables.runs.filter(backend=backend, stage="final")
    methods = [method for method in study.methods if method in set(final["method"])]
    if found is None or not methods:
        return
    setting, values = found
    of = {"workload": cell.workload.name, "backend": backend, "metric": study.metric}
    facts = {**of, "setting": setting, "family": list(values)}
    recorded = final_curves(tables.folder, final, tables.checkpoints, study.metric)
    curves = complete_curves(final, recorded, study.metric, study.direction)
    if len(curves):
        bands = curve_bands(curves)
        name = metric_name(study.metric)
        last = bands.filter(pl.col("step") == pl.col("step").max().over("workload", "method"))
        last = last.join(_places(values, "workload"), on="workload").sort("place")
        log_y = study.direction == "minimize" and fits_log(bands["lower_quartile"])
        patterns = [(), *(tuple(map(float, dash.split())) for dash in DASHES)]
        shown, dashes = thinned(bands, 120), dict(zip(values, patterns, strict=False))
        with panels_of(methods, False, log_y) as (figure, panels):
            for method, panel in panels.items():
                for workload, dash in dashes.items():
                    line = shown.filter(method=method, workload=workload)
                    draw_line(panel, look_of(Method.of(method).optimizer), line, "step", dash, marked=False)
            limit_heights(panels, bands, "step", study.direction, log_y)
            labels = {f"{setting} = {plain(values[one])}": dash for one, dash in dashes.items()}
            draw_key(figure, dashed(labels))
            label_panels(figure, panels, "steps", name)
            lines = [(method, _points(last.filter(method=method))) for method in methods]
            words = facts | {"name": name, "count": _count(bands), "lines": lines}
            yield save(figure, cell.out, f"{study.name}.{backend}.{setting}.curves", kind="across", **of,
                       **figure_words("family_curves", words))  # fmt: skip
    ends = study_values(study, final).join(_places(values, "workload"), on="workload")
    bands = quartile_bands(ends, ["method", "place"], "value")
    log_y = study.direction == "minimize" and fits_log(bands["lower_quartile"])
    name = f"{study.which} {metric_name(study.metric)}"
    by_method = {method: bands.filter(method=method) for method in methods}
    with one_panel_each(methods, False, log_y) as (figure, panels):
        for optimizer, panel in panels.items():
            draw_lines(panel, optimizer, by_method, "place", methods)
        label_axes(figure, panels, setting, name, methods)
        lines = [(method, _points(line)) for method, line in by_method.items()]
        words = facts | {"name": name, "count": _count(bands), "lines": lines}
        yield save(figure, cell.out, f"{study.name}.{backend}.{setting}", kind="across", **of,
                   **figure_words("family_ends", words))  # fmt: skip


def _places(places: Mapping[str, float], of: str) -> pl.DataFrame:
    """Columns `of` and place."""
    return pl.DataFrame(
        {of: list(places), "place": list(places.values())}, schema_overrides={"place": pl.Float64}
    )


def _points(line: pl.DataFrame) -> list[tuple[float, float]]:
    return line.select("place", "median").rows()


def _count(bands: pl.DataFrame) -> int:
    return int(as_float(bands["count"].max()))


# --- several bases -------------------------------------------------------------------------------


def _bases(cell: FigureCell) -> Iterator[Drawn]:
    """Metrics against the learning rate, one panel a basis, where there are several beside the identity."""
    methods = [Method.of(label) for label in cell.study.methods]
    bases = [name for name in dict.fromkeys(method.basis for method in methods) if name != IDENTITY]
    if len(bases) < 2:
        return
    for metric, which in judged_metrics(cell.study, cell.workload):
        rates = sensitivity(study_values(cell.study, cell.runs, metric, which))
        tuned = [name for name in bases if name in {Method.of(label).basis for label in rates["method"]}]
        if len(tuned) > 1:
            yield _rates_by_basis(cell, metric, which, tuned, rates)


def _rates_by_basis(
    cell: FigureCell, metric: str, which: str, bases: Sequence[str], rates: pl.DataFrame
) -> Drawn:
    """Each optimizer in the panel's basis, dashed, and in original coordinates, solid."""
    from matplotlib.lines import Line2D

    name, direction = f"{which} {metric_name(metric)}", cell.study.direction_of(metric)
    log_y = direction == "minimize" and fits_log(rates["lower_quartile"])
    lines = {method: rates.filter(method=method) for method in cell.study.methods}
    looks = {name: look_of(name) for name in dict.fromkeys(Method.of(one).optimizer for one in lines)}
    with panels_of(bases, True, log_y) as (figure, panels):
        for basis, panel in panels.items():
            panel.set_title(f"{basis} basis", color=TEXT.light)
            for optimizer in looks:
                own = [Method(optimizer, each).label for each in (IDENTITY, basis)]
                shown = {method: lines[method] for method in own if method in lines}
                draw_lines(panel, optimizer, shown, "learning_rate", own)
        limit_heights(panels, rates, "learning_rate", direction, log_y)
        handles = [
            Line2D([], [], color=look.ink.light, marker=look.mark, markersize=4, linewidth=1.7, label=label)
            for label, look in looks.items()
        ]
        draw_key(figure, [*handles, *dashed({"original coordinates": (), "the panel's basis": (5.0, 2.0)})])
        label_panels(figure, panels, "learning rate", name)
        best = best_rates(rates, direction)
        return cell.save(figure, "across", f"bases.{which}.{metric}", metric, "bases", name=name,
                         count=_count(rates), best=best)  # fmt: skip


def best_rates(rates: pl.DataFrame, direction: str) -> list[tuple[str, float, float]]:
    """Method, learning rate and median where the median is best, in order of the methods' names.

    Args:
        rates: what `sensitivity` returns.
    """
    ordered = rates.sort("median", descending=direction == "maximize", maintain_order=True)
    best = ordered.unique("method", keep="first", maintain_order=True)
    return best.sort("method").select("method", "learning_rate", "median").rows()


# --- bases that differ in their rank -------------------------------------------------------------


def ranks(study: StudyPlan) -> tuple[bool, dict[str, float]] | None:
    """Whether ranks of bases are shares of the dimension, and each by the basis' label.

    None where fewer than 3 differ, or some are shares and others numbers.
    """
    given = {one.label: rank for one in study.bases if (rank := one.options.get("rank")) is not None}
    shares = {label: share for label, rank in given.items() if (share := in_dimensions(rank)) is not None}
    if len(set((shares or given).values())) < LEAST_RANKS or (shares and len(shares) < len(given)):
        return None
    found = shares or {label: float(rank) for label, rank in given.items()}
    return bool(shares), dict(sorted(found.items(), key=lambda item: item[1]))


def _ranks(cell: FigureCell) -> Iterator[Drawn]:
    """The headline metric, and the seconds to nearly the best accuracy, against the rank."""
    study, final, found = cell.study, cell.final, ranks(cell.study)
    if found is None or not len(final):
        return
    name = f"{study.which} {metric_name(study.metric)}"
    yield from _against_rank(cell, *found, study.metric, name, study_values(study, final))
    if ACCURACY in cell.workload.metrics:
        took = seconds_to_nearly_best(study, cell.tables, final, ACCURACY).drop_nulls("value")
        yield from _against_rank(cell, *found, "seconds", "seconds", took)


def _against_rank(
    cell: FigureCell,
    shares: bool,
    by_basis: Mapping[str, float],
    metric: str,
    name: str,
    values: pl.DataFrame,
) -> Iterator[Drawn]:
    """One panel an optimizer: a line over ranks, and the original coordinates as a level."""
    bands = quartile_bands(values, ["optimizer", "basis"], "value")
    optimizers = [
        name
        for name in dict.fromkeys(Method.of(label).optimizer for label in cell.study.methods)
        if name in set(bands["optimizer"])
    ]
    if not optimizers:
        return
    places = _places(by_basis, "basis")
    lines = {name: bands.filter(optimizer=name).join(places, on="basis").sort("place") for name in optimizers}
    levels = {name: bands.filter(optimizer=name, basis=IDENTITY) for name in optimizers}
    log_y = metric != "seconds" and cell.study.direction == "minimize" and fits_log(bands["lower_quartile"])
    with one_panel_each(optimizers, True, log_y) as (figure, panels):
        for optimizer, panel in panels.items():
            draw_lines(panel, optimizer, lines, "place", optimizers)
            for row in levels[optimizer].iter_rows(named=True):
                panel.axhspan(row["lower_quartile"], row["upper_quartile"], color=MUTED.light, alpha=0.14,
                              linewidth=0)  # fmt: skip
                panel.axhline(row["median"], color=MUTED.light, linewidth=1.4, linestyle=(0, (5, 2)))
        draw_key(figure, dashed({"basis of leading eigenvectors": (), "original coordinates": (5.0, 2.0)}))
        label_panels(figure, panels, "rank r over the dimension d" if shares else "rank r", name)
        yield cell.save(
            figure,
            "across",
            f"rank.{metric}",
            metric,
            "rank",
            name=name,
            shares=shares,
            share=NEARLY_BEST,
            of=ACCURACY,
            count=_count(bands),
            lines=[(optimizer, _points(line)) for optimizer, line in lines.items()],
            levels={optimizer: level["median"].to_list() for optimizer, level in levels.items()},
        )
