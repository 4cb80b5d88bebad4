"""Figures of a study's workloads: metrics along runs against each cost, and against learning rates.

A cost is the quantity on a horizontal axis, such as steps, gradient evaluations or seconds. A cost may
include the cost of estimating a method's basis (an orthogonal change of coordinates of the parameters).
Figures have a panel for each optimizer, with a line for each basis of the optimizer. The headline metric is
the metric by which a study compares methods. Final runs use the setting that tuning chose.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from curvebench.reports import measures
from curvebench.reports.figures import drawing
from curvebench.reports.figures.drawing import Drawn, Figure, Grid, as_float, floats, log_axes
from curvebench.reports.figures.palette import GHOST, TEXT, Look, dashes_of, looks_of
from curvebench.reports.formatting import metric_name
from curvebench.reports.statistics.medians import quartile_bands
from curvebench.reports.tables import Tables, final_curves
from curvebench.reports.wall_clock import paces, with_seconds
from curvebench.spec.method import Method
from curvebench.spec.plan import StudyPlan, WorkloadPlan

AXES = {
    "epochs": "epochs of the run",
    "gradient_evaluations": "gradient evaluations of the run",
    "charged_evaluations": "gradient evaluations, basis included",
    "charged_seconds": "seconds of the run, basis included",
}
# For each horizontal axis that includes the cost of the basis, the axis of the cost of steps only.
UNCHARGED = {
    "charged_evaluations": "gradient_evaluations",
    "charged_seconds": "run_seconds",
    "compiled_seconds": "run_seconds",
}
# Titles of the panels that compare costs.
CLOCKS = {
    "epochs": "epochs",
    "gradient_evaluations": "gradient evaluations of the run",
    "charged_seconds": "seconds, compiling left out",
    "compiled_seconds": "seconds, compiling included",
}
CLOCK_PANEL = (2.6, 2.2)  # Width and height of a panel that compares costs, inches.
SPARSE = 0.12  # Distance between two markers of a curve, as a share of the curve's length.


@dataclass(frozen=True)
class FigureCell(measures.StudyProblem):
    """A problem (a workload of a study on one backend) whose figures are drawn.

    Args:
        out: folder for the files of the figures.
    """

    out: Path

    @property
    def looks(self) -> dict[str, Look]:
        """Colours and markers of the study's optimizers, by optimizer."""
        return looks_of(self.study.methods)

    def lines(self, frame: pl.DataFrame) -> dict[str, pl.DataFrame]:
        """Divide a frame into one frame per method, in the study's order; omit methods without rows."""
        lines = {method: frame.filter(method=method) for method in self.study.methods}
        return {method: line for method, line in lines.items() if len(line)}

    def draw(
        self, grid: Grid, lines: Mapping[str, pl.DataFrame], axis: str, ghosts: bool = False, **options: Any
    ) -> None:
        """Draw each method's line in the panel of its optimizer, with the dashes of its basis.

        Args:
            lines: line of each method, with the columns that `draw_line` needs.
            axis: column of the horizontal axis.
            ghosts: whether each line also appears in grey in the panels of the other optimizers.
            options: options of `draw_line`.
        """
        dashes, looks = dashes_of(list(lines)), self.looks
        for method, line in lines.items():
            optimizer, basis = Method.of(method)
            drawing.draw_line(grid.panels[optimizer], looks[optimizer], line, axis, dashes[basis], **options)
        if ghosts:
            _draw_ghosts(grid, lines, axis, options.get("drawstyle", "default"))

    def save(
        self, figure: Figure, kind: str, stem: str, metric: str, facts: Mapping[str, Any], words: str = ""
    ) -> Drawn:
        """Save a figure of the problem with its title, caption and alternative text.

        Args:
            stem: name of the figure without workload and backend.
            facts: values that the macros of the texts need.
            words: prefix of the names of the macros; by default the kind of figure.
        """
        common = {"workload": self.workload.name, "backend": self.backend, "metric": metric, "kind": kind}
        common |= {"stem": stem, "axis": facts.get("axis", "")}
        name = f"{self.workload.name}.{self.backend}.{stem}"
        return drawing.save(figure, self.out, name, words or kind, facts, **common)


def cells(study: StudyPlan, tables: Tables, out: Path) -> list[FigureCell]:
    """Return the problems of a study that get figures: every workload, on the study's first backend.

    Other backends repeat the same problem instances.

    Args:
        out: folder of the figures; it is created if necessary.
    """
    out.mkdir(parents=True, exist_ok=True)
    return [FigureCell(study, workload, study.backends[0], tables, out) for workload in study.workloads]


def shown_metrics(study: StudyPlan, workload: WorkloadPlan) -> tuple[str, ...]:
    """Return the metrics that get curves: the headline metric, a training metric and a validation metric."""
    metrics = [study.metric]
    for split in ("train", "validation"):
        of_split = [name for name in workload.metrics if name.startswith(f"{split}_")]
        preferred = [*study.training.targets, f"{split}_suboptimality", f"{split}_loss"]
        metrics += ([name for name in preferred if name in of_split] or of_split)[:1]
    return tuple(dict.fromkeys(metrics))


def judged_metrics(study: StudyPlan, workload: WorkloadPlan) -> tuple[tuple[str, str], ...]:
    """Return pairs of a metric and "final" or "best" that a study or its claims compare on a workload.

    The headline metric comes first.
    """
    compared = [(study.metric, study.which)]
    conditions = (condition for claim in study.claims for condition in claim.conditions)
    compared += [(condition.metric, condition.which) for condition in conditions]
    return tuple(pair for pair in dict.fromkeys(compared) if pair[0] in workload.metrics)


def source_figures_at(study: StudyPlan, workload: str, stem: str) -> list[str]:
    """Return the names of the source document's figures that correspond to a figure of a workload.

    Args:
        stem: name of the figure without workload and backend.
    """
    names = (stem, f"{workload}.{stem}")
    return [source for source, stem_of_study in study.source_figures.items() if stem_of_study in names]


def steps_an_epoch(study: StudyPlan, final: pl.DataFrame) -> float | None:
    """Return the number of steps per epoch, from a run that completed all epochs.

    The result is None if there is no such run, or if the study does not give the length of runs in epochs.
    """
    epochs = study.training.budget.get("epochs")
    # If runs do not stop at a threshold, a run that reached its target continues to its last step.
    complete_outcomes = ["budget"] if study.training.stop else ["budget", "reached"]
    complete_steps = final.filter(pl.col("outcome").is_in(complete_outcomes))["steps"]
    return as_float(complete_steps.max()) / epochs if epochs and len(complete_steps) else None


# --- kinds of figures ----------------------------------------------------------------------------


def draw_curves(cell: FigureCell) -> Iterator[Drawn]:
    """Draw figures of metrics along the final runs.

    The headline metric has a figure for each cost. The other metrics, which `shown_metrics` or
    `judged_metrics` returns, have a figure against gradient evaluations, including evaluations for the basis.
    Figures that correspond to a figure of the source document are drawn too.
    """
    study, final = cell.study, cell.final
    judged = [metric for metric, _ in judged_metrics(study, cell.workload)]
    epoch = steps_an_epoch(study, final)
    redundant = set() if (final["basis_gradient_evaluations"] > 0).any() else {"gradient_evaluations"}
    pace = paces(cell)
    timed = bool(pace["timed"].all())
    for metric in dict.fromkeys((*shown_metrics(study, cell.workload), *judged)) if len(final) else ():
        recorded = final_curves(cell.tables, final, metric)
        curves = measures.complete_curves(final, recorded, metric, study.direction_of(metric))
        if len(curves):
            bands = measures.curve_bands(curves).with_columns(epochs=pl.col("step") / (epoch or 1))
            bands = with_seconds(bands, final, pace)
            axes = ["charged_evaluations", "epochs" if epoch else "gradient_evaluations"]
            clocks = [axis for axis in ("charged_seconds", "compiled_seconds") if not bands[axis].has_nulls()]
            for axis in (*axes, *clocks[:1]):
                of_source = source_figures_at(study, cell.workload.name, f"{metric}.{axis}")
                # If no basis costs anything, both axes of gradient evaluations are equal; draw one.
                headline = metric == study.metric and axis not in redundant
                if headline or axis == "charged_evaluations" or of_source:
                    yield _curve(cell, metric, axis, bands, timed)
            if metric == study.metric and clocks:
                yield _wall_clock(cell, [axes[1], *clocks], bands, timed)


def _wall_clock(cell: FigureCell, axes: Sequence[str], bands: pl.DataFrame, timed: bool) -> Drawn:
    """Draw the headline metric of all methods in panels side by side, against epochs and against seconds."""
    metric, direction = cell.study.metric, cell.study.direction
    lines, looks = cell.lines(bands), cell.looks
    dashes = dashes_of(list(lines))
    titles = {axis: CLOCKS[axis] for axis in axes}
    log = log_axes(direction, bands["lower_quartile"])
    with drawing.panel_grid(list(titles.values()), log, CLOCK_PANEL, sharex=False) as grid:
        for axis, title in titles.items():
            if _is_wide(bands, axis):
                grid.panels[title].set_xscale("log")
            for method, line in lines.items():
                optimizer, basis = Method.of(method)
                # Both quartiles are set to the median, so that the line has no visible band.
                bare = line.with_columns(lower_quartile="median", upper_quartile="median")
                look, dash = looks[optimizer], dashes[basis]
                drawing.draw_line(grid.panels[title], look, bare, axis, dash, markevery=SPARSE)
        grid.limit_heights(bands, "step", direction)
        bases = {f"{name} basis": dash for name, dash in dashes.items() if len(dashes) > 1}
        grid.draw_key([*drawing.optimizer_keys(looks), *drawing.dashed(bases)])
        grid.label("cost", metric_name(metric))
        facts = {"bands": bands, "lines": lines, "axes": list(titles.values()), "timed": timed}
        return cell.save(grid.figure, "wall_clock", "wall_clock", metric, facts)


def _curve(cell: FigureCell, metric: str, axis: str, bands: pl.DataFrame, timed: bool) -> Drawn:
    """Draw one metric against one cost, with a panel per optimizer.

    Args:
        axis: column of the cost.
        bands: median and quartiles of the metric along the runs.
        timed: whether seconds come from timing jobs.
    """
    direction = cell.study.direction_of(metric)
    log_x = _is_wide(bands, axis)
    lines = cell.lines(bands.filter(pl.col(axis) > 0) if log_x else bands)
    with optimizer_panels(lines, log_axes(direction, bands["lower_quartile"], log_x)) as grid:
        cell.draw(grid, lines, axis, ghosts=True, markevery=SPARSE)
        grid.limit_heights(bands, "step", direction)
        grid.complete(AXES[axis], metric_name(metric), lines)
        facts = {"axis": axis, "axis_label": AXES[axis], "bands": bands, "lines": lines, "timed": timed}
        return cell.save(grid.figure, "curve", f"{metric}.{axis}", metric, facts)


def _is_wide(bands: pl.DataFrame, axis: str) -> bool:
    """Return whether the largest value of an axis is more than 4 times the cost of the steps alone.

    This happens if the axis includes a costly basis or compilation. A linear axis would then compress all
    curves.
    """
    return as_float(bands[axis].max()) > 4 * as_float(bands[UNCHARGED.get(axis, axis)].max())


def draw_sensitivities(cell: FigureCell) -> Iterator[Drawn]:
    """Draw against the learning rate each metric that the study or its claims compare."""
    for metric, which in judged_metrics(cell.study, cell.workload):
        rates = measures.sensitivity(measures.study_values(cell.study, cell.runs, metric, which))
        if rates["learning_rate"].n_unique() > 1:
            yield _sensitivity(cell, metric, which, rates)


def _sensitivity(cell: FigureCell, metric: str, which: str, rates: pl.DataFrame) -> Drawn:
    """Draw a metric against the learning rate, with the chosen rates and the rates at which runs diverged."""
    study, direction = cell.study, cell.study.direction_of(metric)
    keys = ["method", "learning_rate"]
    ends = quartile_bands(measures.study_values(study, cell.final, metric, which), keys, "value")
    chosen = measures.chosen_rates(cell.runs).select(keys).join(ends, on=keys)
    lines, methods = cell.lines(rates), list(cell.lines(cell.runs))
    bases = list(dashes_of(methods))
    with optimizer_panels(methods, log_axes(direction, rates["lower_quartile"], True)) as grid:
        grid.limit_heights(rates, "learning_rate", direction, chosen["median"])
        cell.draw(grid, lines, "learning_rate")
        for method, line in lines.items():
            optimizer, basis = Method.of(method)
            panel, colour = grid.panels[optimizer], cell.looks[optimizer].ink.light
            stars, lost = chosen.filter(method=method), line.filter(pl.col("failed") > 0)
            heights = drawing.on_axis(panel, floats(stars, "median"))
            panel.plot(
                floats(stars, "learning_rate"), heights, "*", color=colour, markeredgecolor=TEXT.light,
                markeredgewidth=0.6, markersize=11, zorder=5,
            )  # fmt: skip
            panel.scatter(
                floats(lost, "learning_rate"), [0.96 - 0.07 * bases.index(basis)] * len(lost),
                s=[12 + 34 * share for share in lost["failed"]], marker="x", color=colour, linewidth=1.1,
                transform=panel.get_xaxis_transform(), clip_on=False,
            )  # fmt: skip
        marks = [
            drawing.key_line("chosen", marker="*", markersize=10, linestyle=""),
            drawing.key_line("some diverged", marker="x", markersize=6, linestyle=""),
        ]
        grid.complete("learning rate", metric_name(metric, which), methods, marks)
        headline = (metric, which) == (study.metric, study.which)
        stem = "sensitivity" if headline else f"sensitivity.{which}.{metric}"
        rows = {method: chosen.filter(method=method) for method in methods}
        facts = {"which": which, "bands": rates, "chosen": rows, "of": study}
        return cell.save(grid.figure, "sensitivity", stem, metric, facts)


# --- figures with a panel for each optimizer -----------------------------------------------------


def optimizer_panels(methods: Iterable[str], log: str) -> AbstractContextManager[Grid]:
    """Create a figure with a titled panel for each optimizer among the methods (`panel_grid`)."""
    return drawing.panel_grid([Method.of(method).optimizer for method in methods], log)


def _draw_ghosts(grid: Grid, lines: Mapping[str, pl.DataFrame], axis: str, drawstyle: str) -> None:
    """Draw in each panel the lines of all other optimizers in grey.

    For speed, the lines of a panel are drawn as a single line with gaps.
    """
    gap = np.array([[np.nan, np.nan]])
    points = [np.column_stack([floats(line, axis), floats(line, "median")]) for line in lines.values()]
    paths = list(zip(lines, points, strict=True))
    for name, panel in grid.panels.items():
        other_paths = [path for method, path in paths if Method.of(method).optimizer != name]
        if other_paths:
            x, y = np.concatenate([part for path in other_paths for part in (path, gap)]).T
            panel.plot(x, y, color=GHOST.light, linewidth=0.7, zorder=1.5, drawstyle=drawstyle)
