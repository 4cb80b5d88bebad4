"""Times to target as censored data: the share of runs that has reached the target by each time."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from curvebench.reports.figures.drawing import Drawn, as_float, floats
from curvebench.reports.figures.study_figures import FigureCell, complete, optimizer_panels
from curvebench.reports.measures import BASIS_GRADIENTS, evaluations_to_target
from curvebench.reports.statistics.survival import reached_shares
from curvebench.results.outcomes import failed
from curvebench.spec.method import Method

LABEL = "gradient evaluations, basis included"


def draw_targets(cell: FigureCell) -> Iterator[Drawn]:
    """Draw the share of runs that have reached each target against gradient evaluations.

    A target that no run reached has no figure.
    """
    for metric, threshold in cell.targets.items():
        times = target_times(cell.final, metric)
        if times["reached"].any():
            yield _draw(cell, metric, threshold, times)


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
    ended = (steps * pl.col("step_evaluations") + BASIS_GRADIENTS).cast(pl.Float64)
    reached = pl.col("value").is_finite()
    time = pl.when(reached).then(pl.col("value")).otherwise(ended).clip(lower_bound=1.0)
    return found.with_columns(time=time, reached=reached)


def _draw(cell: FigureCell, metric: str, threshold: float, times: pl.DataFrame) -> Drawn:
    # A basis that costs several times the budget would press the curves into the frame.
    budgets = (times["time"] - times["basis_gradient_evaluations"].fill_null(0)).max()
    end = as_float(times["time"].max())
    log = "x" if end > 4 * as_float(budgets) else ""
    start, edge = (as_float(times["time"].min()) / 1.3, 1.1) if log else (0.0, 1.02)
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
