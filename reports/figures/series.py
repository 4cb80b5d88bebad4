"""Figures of the sources, redrawn from the series that property checks record.

A source is a document whose claims curvebench tests. A series is the data of one line: points (x, y) that a
property check computed on each of several random instances.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from curvebench.reports.figures import drawing
from curvebench.reports.figures.drawing import Axes, Drawn, floats
from curvebench.reports.figures.palette import BROWN, DASHES, MUTED, SKY, SLATE, TEXT, look_of
from curvebench.reports.statistics.medians import quartile_bands
from curvebench.results.reading import read
from curvebench.spec.method import Method
from curvebench.spec.plan import ChecksPlan

INKS = (SKY, BROWN, SLATE)  # Colours that belong to no optimizer, each used solid first and then dashed.
DASHED = ((), *DASHES)
LAWS = ((4.0, 2.0), (1.0, 1.5), (6.0, 2.0, 1.0, 2.0))  # Dashes of fitted laws and reference lines.
LEVELS = "level sets"
PANEL = (3.2, 2.6)  # Width and height of a panel, inches.
WIDE = 1.35  # Factor by which the panel of a figure with a single panel is wider.
COLUMNS = 2  # Number of panels side by side.
POINTS = 400  # Maximum number of points of a line.
ROUNDING = 1e-12  # Values below this share of the largest value are not drawn on a logarithmic axis.
LINE = ["panel", "label", "kind"]


def series_rows(plan: ChecksPlan) -> pl.DataFrame:
    """Read the table `series` of all property checks of a plan.

    Sets that were published before series were recorded have no rows.

    Raises:
        InputError: when a table is damaged.
    """
    files = [file for folder in plan.tables if (file := folder / "series.parquet").is_file()]
    return read(files, "series")


def draw_series(plan: ChecksPlan, out: Path) -> list[Drawn]:
    """Draw each figure of a source for which a claim has recorded series, and write the list of figures for
    the site.

    Args:
        out: folder of the figures; it is created if necessary.

    Raises:
        InputError: when a table is damaged.
    """
    out.mkdir(parents=True, exist_ok=True)
    groups = series_rows(plan).partition_by("claim", "figure", maintain_order=True)
    figures = [_draw(group["claim"][0], group, out) for group in groups]
    drawing.list_figures(figures, out)
    return figures


def _draw(claim: str, series: pl.DataFrame, out: Path) -> Drawn:
    """Draw one figure of a source for one claim.

    Args:
        series: rows of the table `series` for this claim and figure.
    """
    names = series["panel"].unique(maintain_order=True).to_list()
    source, x_name, y_name, log = (series[name][0] for name in ("figure", "x_name", "y_name", "log"))
    lines, paths = _lines(series), "path" in set(series["kind"])
    looks = _looks(lines)
    panel = PANEL if len(names) > 1 else (WIDE * PANEL[0], PANEL[1])
    log = log.replace(" ", "")
    with drawing.panel_grid(names, log, panel, COLUMNS, sharex=False, sharey=not paths) as grid:
        for line in lines:
            _line(grid.panels[line["panel"][0]], line, looks, log)
        for axes in grid.panels.values() if paths else ():
            _square(axes)
        grid.draw_key([drawing.key_line(label, **look) for label, look in looks.items()])
        grid.label(x_name, y_name)
        facts = {
            "x_name": x_name,
            "source": source,
            "count": max(int(drawing.as_float(line["count"].max())) for line in lines),
            "levels": list(dict.fromkeys(line["label"][0] for line in lines if line["kind"][0] == "contour")),
            "rounded": "y" in log and any(len(_above_rounding(line)) < len(line) for line in lines),
            "rounding": ROUNDING,
            "lines": lines,
        }
        common = {"kind": "series", "workload": claim, "backend": "host", "metric": y_name}
        return drawing.save(grid.figure, out, f"{claim}.{source}", "series", facts, **common)


def _lines(series: pl.DataFrame) -> list[pl.DataFrame]:
    """Return one frame per line, with the median and quartiles of y over instances at each x.

    Level sets and paths have no meaningful median. For level sets and paths, the points of the first instance
    are taken in the recorded order.

    Returns:
        Frames with columns panel, label, kind, x, median, lower_quartile, upper_quartile and count.
    """
    lines = []
    for line in series.partition_by(LINE, maintain_order=True):
        rows, order = line, ["x"]
        if line["kind"][0] in ("contour", "path"):
            rows = line.filter(pl.col("instance") == pl.col("instance").min()).with_row_index()
            order = ["index", "x"]
        lines.append(quartile_bands(rows, [*LINE, *order], "y").sort(order))
    return lines


# --- drawing -------------------------------------------------------------------------------------


def _looks(lines: Sequence[pl.DataFrame]) -> dict[str, dict[str, Any]]:
    """Return the properties of Matplotlib's line (such as its colour) for each label of `lines`.

    All level sets share one style. All other lines differ in colour or dashes if their labels differ.
    """
    looks: dict[str, dict[str, Any]] = {}
    measured, laws = product(DASHED, INKS), iter(LAWS * len(lines))
    for line in lines:
        kind, label = line["kind"][0], line["label"][0]
        if kind == "contour":
            looks.setdefault(LEVELS, {"color": MUTED.light, "linewidth": 0.8})
        elif label in looks:
            continue
        elif kind == "path":
            look = look_of(Method.of(label)[0])
            looks[label] = {"color": look.ink.light, "linewidth": 1.1, "marker": look.mark, "markersize": 2.5}
        elif kind == "line":
            dash, ink = next(measured)
            looks[label] = {"color": ink.light, "linewidth": 1.6, "linestyle": (0, dash) if dash else "-"}
        else:
            looks[label] = {"color": TEXT.light, "linewidth": 1.1, "linestyle": (0, next(laws))}
    return looks


def _line(panel: Axes, line: pl.DataFrame, looks: Mapping[str, Mapping[str, Any]], log: str) -> None:
    """Draw a line with its band, and for a path also its start and end."""
    kind = line["kind"][0]
    look = looks[LEVELS if kind == "contour" else line["label"][0]]
    visible = _thinned(_above_rounding(line) if "y" in log else line)
    x, y = floats(visible, "x"), floats(visible, "median")
    if drawing.as_float(visible["count"].max()) > 1:
        low, high = floats(visible, "lower_quartile"), floats(visible, "upper_quartile")
        panel.fill_between(x, low, high, color=look["color"], alpha=0.16, linewidth=0)
    panel.plot(x, y, **look)
    if kind == "path":
        panel.plot(x[0], y[0], "o", color=look["color"], markersize=6)
        panel.plot(x[-1], y[-1], "*", color=look["color"], markersize=12, markeredgecolor=TEXT.light,
                   markeredgewidth=0.6, zorder=5)  # fmt: skip


def _above_rounding(line: pl.DataFrame) -> pl.DataFrame:
    """Return the points of a line that a logarithmic axis shows, without points that are rounding errors.

    A point is left out if its median is below the share `ROUNDING` of the line's largest median.
    """
    return line.filter(pl.col("median") >= ROUNDING * pl.col("median").max())


def _thinned(line: pl.DataFrame) -> pl.DataFrame:
    """Return at most `POINTS` points of a line, including both ends; readers could not distinguish more."""
    if line["kind"][0] == "path":
        return line[_spaced(line.select("x", "median").to_numpy())]
    # Positions of the points to keep, evenly spaced and including both ends.
    return line[np.linspace(0, len(line) - 1, min(len(line), POINTS)).round().astype(int)]


def _spaced(points: np.ndarray) -> list[int]:
    """Return the indices of a path's points that are visibly apart from the last point kept before.

    The first and the last point are always kept.

    Args:
        points: coordinates of the path, shape (points, 2).
    """
    distance = float(np.ptp(points, axis=0).max()) / POINTS
    indices = [0]
    for index, point in enumerate(points):
        if np.abs(point - points[indices[-1]]).max() > distance:
            indices.append(index)
    return [*indices, len(points) - 1]


def _square(panel: Axes) -> None:
    """Give both axes of a panel the same scale and equally long ranges around its content."""
    ends = np.array([panel.get_xlim(), panel.get_ylim()])
    half = np.ptp(ends, axis=1).max() / 2
    panel.set_aspect("equal", adjustable="box")
    limits = [(end.mean() - half, end.mean() + half) for end in ends]
    panel.set(xlim=limits[0], ylim=limits[1])
