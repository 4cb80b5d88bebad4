"""Figures of sweeps: cost to the target, final value and learning rate of all methods against a setting.

A sweep consists of workloads that differ in one setting, such as the batch size.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from curvebench.reports.boards.sweeps import EXAMPLES, RATE, STEPS, VALUE, StudySweep, sweeps_of
from curvebench.reports.figures import drawing
from curvebench.reports.figures.palette import dashes_of, looks_of
from curvebench.reports.formatting import metric_name, plain, words
from curvebench.reports.tables import Tables
from curvebench.spec.method import Method
from curvebench.spec.plan import StudyPlan

COLUMNS = 2  # Number of panels side by side
DECADES = 2.0  # A vertical axis with fewer decades has ticks between powers of ten
BETWEEN = 0.35  # Distance between panels, as a share of a panel's width, with room for labels


def titles_of(study: StudyPlan) -> dict[str, str]:
    """Return the title of the panel for each quantity of a sweep."""
    value = metric_name(study.metric, study.which)
    return {STEPS: "steps to target", EXAMPLES: "examples to target", VALUE: value, RATE: "learning rate"}


def draw_sweeps(study: StudyPlan, tables: Tables, out: Path) -> Iterator[drawing.Drawn]:
    """Draw a figure for each sweep of a study, on the study's first backend, with a panel per quantity."""
    for sweep in sweeps_of(study, tables):
        yield _draw(sweep, out)


def _draw(sweep: StudySweep, out: Path) -> drawing.Drawn:
    study, titles = sweep.study, titles_of(sweep.study)
    methods = [method for method in study.methods if method in set(sweep.bands["method"])]
    looks, dashes = looks_of(study.methods), dashes_of(methods)
    shown = {Method.of(method).optimizer for method in methods}
    names = [titles[quantity] for quantity in sweep.quantities]
    log = "x" if sweep.is_positive else ""
    with drawing.panel_grid(names, log, columns=COLUMNS, sharey=False) as grid:
        grid.figure.subplots_adjust(wspace=BETWEEN)
        lines = {}
        for quantity in sweep.quantities:
            panel, bands = grid.panels[titles[quantity]], sweep.bands.filter(quantity=quantity)
            if "y" in drawing.log_axes("minimize", bands["lower_quartile"]):
                panel.set_yscale("log")
            lines[titles[quantity]] = {method: bands.filter(method=method) for method in methods}
            for method, line in lines[titles[quantity]].items():
                optimizer, basis = Method.of(method)
                drawing.draw_line(panel, looks[optimizer], line, "place", dashes[basis])
        bases = {f"{name} basis": dash for name, dash in dashes.items() if len(dashes) > 1}
        keys = {name: look for name, look in looks.items() if name in shown}
        grid.draw_key([*drawing.optimizer_keys(keys), *drawing.dashed(bases)])
        grid.label(words(sweep.setting), "")
        for panel in grid.panels.values():
            drawing.plain_ticks(panel, DECADES)
            panel.tick_params(labelbottom=True)
            panel.set_xticks(sweep.places, [plain(place) for place in sweep.places])
        about = {"workload": sweep.name, "backend": study.backends[0], "metric": study.metric}
        facts = {"sweep": sweep, "lines": lines, "bands": sweep.bands}
        name = f"{study.name}.{study.backends[0]}.sweep.{sweep.name}"
        return drawing.save(grid.figure, out, name, "sweep", facts, kind="sweep", **about)
