"""Figures of the sources drawn again from the series that checks of claims record."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from documents.method import Method
from documents.plan import ChecksPlan
from reports.figures.palette import BROWN, DASHES, MUTED, SKY, SLATE, TEXT, look_of
from reports.figures.study_figures import (
    Axes,
    Drawn,
    Figure,
    as_float,
    evenly,
    figure_words,
    floats,
    plain_ticks,
    save,
    styled,
)
from reports.statistics.medians import quartile_bands
from results.reading import read

LINES = (SKY, BROWN, SLATE)  # no optimizer's, solid first and then in dashes
PANEL = (3.5, 2.7)  # width and height, inches
WIDE = 1.35  # how much wider a panel is that is alone
MARGINS = (
    0.75,
    0.15,
    0.15,
    0.55,
)  # left of panels, right, top without titles and key, below panels; inches
TITLE = 0.25  # height of a panel's title, inches
COLUMNS = 2  # panels side by side
KEY_LINE = 0.2  # height of a row of the key, inches
KEY_COLUMNS = 3
POINTS = 400  # of a line, at most
ROUNDING = 1e-12  # of the greatest value of a logarithmic axis; what is below is not drawn
LINE = ["panel", "label", "kind"]


def series_rows(plan: ChecksPlan) -> pl.DataFrame:
    """The series of all claims; without rows for a set that was published before there were any.

    Raises:
        InputError: when a table is damaged.
    """
    files = [file for folder in plan.tables if (file := folder / "series.parquet").is_file()]
    return read(files, "series")


def draw_series(claim: str, series: pl.DataFrame, out: Path) -> list[Drawn]:
    """Draw each of the source's figures that a claim has series for.

    Args:
        claim: its id.
        series: its rows of the table `series`.
        out: an existing folder.
    """
    return [_draw(claim, own, out) for own in series.partition_by("figure", maintain_order=True)]


def _draw(claim: str, series: pl.DataFrame, out: Path) -> Drawn:
    panels = series["panel"].unique(maintain_order=True).to_list()
    figure_of_source, x_name, y_name = (series[name][0] for name in ("figure", "x_name", "y_name"))
    lines = _lines(series)
    handles = _keyed(lines)
    left, right, top, bottom = MARGINS
    top += KEY_LINE * math.ceil(len(handles) / KEY_COLUMNS) + TITLE * any(panels)
    columns = min(COLUMNS, len(panels))
    rows = math.ceil(len(panels) / columns)
    wide = PANEL[0] * (WIDE if columns == 1 else 1)
    gap = bottom + TITLE
    width, height = (left + wide) * columns + right, top + (PANEL[1] + gap) * rows - TITLE
    with styled((width, height), None, rows, columns, squeeze=False) as (figure, grid):
        figure.subplots_adjust(
            left=left / width, right=1 - right / width, bottom=bottom / height, top=1 - top / height,
            wspace=left / wide, hspace=gap / PANEL[1],
        )  # fmt: skip
        for empty in list(grid.flat)[len(panels) :]:
            empty.set_visible(False)
        axes = dict(zip(panels, grid.flat, strict=False))
        for panel, shown in axes.items():
            if panel:
                shown.set_title(panel)
            own = [line for line in lines if line["panel"][0] == panel]
            _panel(shown, own, handles, series["log"][0])
            shown.set(xlabel=x_name, ylabel=y_name)
        if "path" not in set(series["kind"]):
            _shared_heights(list(axes.values()))
        _key(figure, handles)
        of = {"kind": "series", "workload": claim, "backend": "host", "metric": y_name}
        facts = {
            "x_name": x_name,
            "source": figure_of_source,
            "count": max(int(as_float(line["count"].max())) for line in lines),
            "levels": list(dict.fromkeys(line["label"][0] for line in lines if line["kind"][0] == "contour")),
            "rounded": "y" in series["log"][0].split()
            and any(len(_above_rounding(line)) < len(line) for line in lines),
            "rounding": ROUNDING,
            "lines": lines,
        }
        name = f"{claim}.{figure_of_source}"
        return save(figure, out, name, **of, **figure_words("series", of | facts))


def _lines(series: pl.DataFrame) -> list[pl.DataFrame]:
    """One frame a line with x, median, lower_quartile, upper_quartile, count over instances, in order of x.

    Level sets and paths, which no median can stand for, are those of the first instance in their own order.
    """
    found = []
    for line in series.partition_by(LINE, maintain_order=True):
        if line["kind"][0] in ("contour", "path"):
            first = line.filter(pl.col("instance") == pl.col("instance").min())
            height = pl.col("y")
            found.append(
                first.select(
                    *LINE, "x", lower_quartile=height, median=height, upper_quartile=height, count=pl.lit(1)
                )
            )
        else:
            found.append(quartile_bands(line, [*LINE, "x"], "y").sort("x"))
    return found


# --- drawing -------------------------------------------------------------------------------------

Handles = dict[str, dict[str, Any]]


def _keyed(lines: Sequence[pl.DataFrame]) -> Handles:
    """How the lines of each label look; level sets share one entry."""
    handles: Handles = {}
    measured = 0
    for line in lines:
        kind, label = line["kind"][0], line["label"][0]
        if kind == "contour":
            handles.setdefault("level sets", {"color": MUTED.light, "linewidth": 0.8})
        elif label in handles:
            continue
        elif kind == "path":
            look = look_of(Method.of(label)[0])
            handles[label] = {
                "color": look.ink.light,
                "linewidth": 1.1,
                "marker": look.mark,
                "markersize": 2.5,
            }
        elif kind == "line":
            ink, cycle = LINES[measured % len(LINES)], measured // len(LINES)
            handles[label] = {"color": ink.light, "linewidth": 1.6, "linestyle": _dash(cycle)}
            measured += 1
        else:
            handles[label] = {"color": TEXT.light, "linewidth": 1.1, "linestyle": (0, _references(handles))}
    return handles


def _dash(cycle: int) -> Any:
    return (0, tuple(map(float, DASHES[(cycle - 1) % len(DASHES)].split()))) if cycle else "-"


def _references(handles: Handles) -> tuple[float, ...]:
    """The dashes of one more law or reference, other than those before it."""
    before = sum(look["color"] == TEXT.light for look in handles.values())
    return ((4.0, 2.0), (1.0, 1.5), (6.0, 2.0, 1.0, 2.0))[before % 3]


def _panel(panel: Axes, lines: Sequence[pl.DataFrame], handles: Handles, log: str) -> None:
    for axis in log.split():
        getattr(panel, f"set_{axis}scale")("log")
    for line in lines:
        kind, label = line["kind"][0], line["label"][0]
        look = handles["level sets" if kind == "contour" else label]
        shown = _thinned(_above_rounding(line) if "y" in log else line)
        x, y = floats(shown, "x"), floats(shown, "median")
        if as_float(shown["count"].max()) > 1:
            low, high = floats(shown, "lower_quartile"), floats(shown, "upper_quartile")
            panel.fill_between(x, low, high, color=look["color"], alpha=0.16, linewidth=0)
        panel.plot(x, y, **look)
        if kind == "path":
            panel.plot(x[0], y[0], "o", color=look["color"], markersize=6)
            panel.plot(x[-1], y[-1], "*", color=look["color"], markersize=12, markeredgecolor=TEXT.light,
                       markeredgewidth=0.6, zorder=5)  # fmt: skip
    if any(line["kind"][0] == "path" for line in lines):
        _square(panel)
    plain_ticks(panel, 0.0)


def _above_rounding(line: pl.DataFrame) -> pl.DataFrame:
    """The points that a logarithmic axis shows."""
    return line.filter(pl.col("median") >= ROUNDING * pl.col("median").max())


def _thinned(line: pl.DataFrame) -> pl.DataFrame:
    """The points of a line that a reader can tell apart, both ends among them."""
    if line["kind"][0] == "path":
        return line[_spaced(line.select("x", "median").to_numpy())]
    return evenly(line, POINTS)


def _spaced(points: np.ndarray) -> list[int]:
    """Which of a path's points (n, 2) lie more than a hair from the one kept before; the last always."""
    hair = float(np.ptp(points, axis=0).max()) / POINTS
    kept = [0]
    for place, point in enumerate(points):
        if np.abs(point - points[kept[-1]]).max() > hair:
            kept.append(place)
    return [*kept, len(points) - 1]


def _square(panel: Axes) -> None:
    """A square around what is drawn, both axes in the same unit."""
    ends = np.array([panel.get_xlim(), panel.get_ylim()])
    half = np.ptp(ends, axis=1).max() / 2
    panel.set_aspect("equal", adjustable="box")
    limits = [(end.mean() - half, end.mean() + half) for end in ends]
    panel.set(xlim=limits[0], ylim=limits[1])


def _shared_heights(panels: Sequence[Axes]) -> None:
    """One value axis for all panels."""
    if panels:
        ends = [panel.get_ylim() for panel in panels]
        for panel in panels:
            panel.set_ylim(min(low for low, _ in ends), max(high for _, high in ends))


def _key(figure: Figure, handles: Handles) -> None:
    from matplotlib.lines import Line2D

    figure.legend(
        handles=[Line2D([], [], label=label, **look) for label, look in handles.items()],
        loc="upper left", borderaxespad=0.1, ncols=KEY_COLUMNS, handlelength=2.6, columnspacing=1.2,
    )  # fmt: skip
