"""Components of figures: house style, grids of panels, lines with bands, legends, and saving as SVG.

The code calls a legend a key. A look is the colour and marker of an optimizer.
"""

from __future__ import annotations

import io
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from curvebench.reports.figures.palette import GRID, MUTED, TEXT, Dashes, Look, dark_style, dashes_of
from curvebench.reports.formatting import plain, power_of_ten, slug
from curvebench.reports.rendering import TEMPLATES, macros
from curvebench.spec.errors import InputError

MANIFEST = "figures.json"
COLUMNS = 3  # Maximum number of panels side by side.
PDF = "pdf"
PANEL = (2.6, 1.6)  # Width and height of a panel, inches.
BETWEEN = (0.2, 0.5)  # Horizontal and vertical distance between panels, inches.
LEFT, RIGHT, TOP, BOTTOM = 0.85, 0.15, 0.62, 0.55  # Margins around all panels, inches.
OPEN = 1e30  # Finite height, beyond every axis, at which a band with an infinite upper end is drawn.
ROUNDING = 1e-12  # Tolerance for rounding, relative to the largest value or to 1, whichever is larger.
NARROW = 5.0  # A logarithmic axis whose end is at most this many times its start gets linear ticks.
TITLE = 0.22  # Height of a panel's title, inches.
LEAST_WIDTH = 5.5  # Minimum width of a figure, inches, so that its legend fits.
# Sizes in a legend, inches: width of a line, width of a letter, and height of a row.
KEY_HANDLE, KEY_LETTER, KEY_ROW = 0.7, 0.08, 0.2
Axes = Any  # Matplotlib's classes have no annotations.
Figure = Any
FONTS = "system-ui, 'Segoe UI', 'Helvetica Neue', Arial, sans-serif"
# Patterns of a path in an SVG file, and of coordinates with more than two decimals.
# Further decimals of coordinates are removed, since differences below 0.01 points cannot be seen.
PATHS, DECIMALS = (re.compile(r'<path (id="[^"]*" )?d="[^"]*"'), re.compile(r"(\.\d\d)\d+"))
STYLE = TEMPLATES / "figures.mplstyle"  # Matplotlib style of all figures, without its colours.
OF_TICKS = tuple(f"{axis}tick.{part}" for axis in "xy" for part in ("color", "labelcolor"))
COLOURS = {
    "grid.color": GRID.light,
    **dict.fromkeys(("text.color", "axes.labelcolor"), TEXT.light),
    **dict.fromkeys(("axes.edgecolor", *OF_TICKS), MUTED.light),
}


@dataclass(frozen=True)
class Drawn:
    """A figure with the facts and texts that the site shows.

    Args:
        name: file name without its extension.
        kind: curve, wall_clock, target, sensitivity, front, across, sweep, claim, series or anytime.
        workload: label of the workload. For the kind sweep: name of the sweep. For the kinds claim and
            series: id of the claim. For the kind anytime: name of the board.
        backend: backend of the runs.
        metric: metric that the figure shows.
        title: heading on the page.
        width, height: size of the figure on the page, in CSS pixels.
        caption: text below the figure.
        alt: alternative text for readers who do not see the figure.
        stem: name without workload and backend, with which study files refer to the figure.
        axis: horizontal axis of a figure of the kind curve; empty for other kinds.
        empty: whether there was no finite value to draw. Such a figure has no file, no caption and no
            alternative text, and pages say in its place that there is nothing to draw.
    """

    name: str
    kind: str
    workload: str
    backend: str
    metric: str
    title: str
    width: int
    height: int
    caption: str = ""
    alt: str = ""
    stem: str = ""
    axis: str = ""
    empty: bool = False


# --- figures and panels --------------------------------------------------------------------------


@dataclass(frozen=True)
class Grid:
    """A Matplotlib figure, with its panels by their titles."""

    figure: Figure
    panels: dict[str, Axes]

    def draw_key(self, handles: Sequence[Any]) -> None:
        """Draw a legend above all panels, and make the figure higher if the legend has several rows.

        Args:
            handles: legend entries, such as `key_line` returns.
        """
        figure = self.figure
        width, height = figure.get_size_inches()
        widest = KEY_HANDLE + KEY_LETTER * max(len(handle.get_label()) for handle in handles)
        columns = max(1, min(len(handles), int(width / widest)))
        new_height = height + KEY_ROW * (math.ceil(len(handles) / columns) - 1)
        box = figure.subplotpars
        figure.set_size_inches(width, new_height)
        figure.subplots_adjust(bottom=box.bottom * height / new_height, top=box.top * height / new_height)
        figure.legend(handles=handles, loc="upper left", borderaxespad=0.1, ncols=columns, handlelength=2.6)

    def limit_heights(
        self, bands: pl.DataFrame, start: str, direction: str, marks: pl.Series | None = None
    ) -> None:
        """Limit the vertical axis, which the panels share, to the values of the bands.

        For a minimized metric, the axis must not extend far above the largest median at the start, because
        runs that exploded would otherwise compress all other curves. A logarithmic axis ends at most at ten
        times this median. A linear axis ends at most at this median plus 0.2 times the distance between this
        median and the smallest value of the bands.

        Args:
            bands: columns lower_quartile, median, upper_quartile and `start`.
            start: column whose smallest value belongs to the start: the step, or the learning rate.
            direction: whether less or more of the metric is better.
            marks: further values that must be visible.
        """
        panel = next(iter(self.panels.values()))
        log = panel.get_yscale() == "log"
        extra = pl.Series([], dtype=pl.Float64) if marks is None else marks.cast(pl.Float64)
        lows, highs = (
            _finite(pl.concat([bands[name].cast(pl.Float64), extra]))
            for name in ("lower_quartile", "upper_quartile")
        )
        lows = lows.filter(lows > 0) if log else lows
        first = _finite(bands.filter(pl.col(start) == pl.col(start).min())["median"])
        low, high, begin = as_float(lows.min()), as_float(highs.max()), as_float(first.max())
        if direction == "minimize" and begin > low:
            high = min(high, begin * 10 if log else begin + 0.2 * (begin - low))
        if not high > low:  # If no value is finite, `high` and `low` are NaN.
            return
        if log:
            room = (high / low) ** 0.05
            panel.set_ylim(low / room, high * room**2.4)
        else:
            panel.set_ylim(low - 0.04 * (high - low), high + 0.12 * (high - low))

    def complete(self, x: str, y: str, methods: Iterable[str], more: Iterable[Any] = ()) -> None:
        """Label the axes, and draw a legend with the dashes of the methods' bases.

        Args:
            x, y: labels of the axes.
            methods: methods in the figure.
            more: further legend entries.
        """
        dashes = {f"{basis} basis": dash for basis, dash in dashes_of(list(methods)).items()}
        self.draw_key([*dashed(dashes), *more])
        self.label(x, y)

    def label(self, x: str, y: str) -> None:
        """Label the axes once for the whole figure and set plain ticks.

        Call this method last, when the limits of the axes are final.
        """
        box = self.figure.subplotpars
        width, height = self.figure.get_size_inches()
        style = {"fontsize": 9.5, "color": TEXT.light}
        self.figure.supxlabel(x, x=(box.left + box.right) / 2, y=0.08 / height, **style)
        self.figure.supylabel(y, x=0.08 / width, y=(box.bottom + box.top) / 2, **style)
        lowest_row = list(self.panels.values())[-COLUMNS:]
        for panel in self.panels.values():
            for axis in (panel.xaxis, panel.yaxis):
                axis.label.set_visible(False)
                # A fixed position saves Matplotlib the search for a position of the invisible label.
                axis.set_label_coords(0.5, 0.5)
            plain_ticks(panel, 1.3)
            if panel in lowest_row:
                panel.tick_params(labelbottom=True)


@contextmanager
def styled(size: tuple[float, float]) -> Iterator[Figure]:
    """Create a figure of a given size in inches in the house style.

    Add panels inside of the `with` block, because the style applies only there. Outside of the block, the
    style of Matplotlib does not change.
    """
    import matplotlib as mpl
    import seaborn
    from matplotlib import style
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure as MatplotlibFigure

    with mpl.rc_context(), seaborn.axes_style("whitegrid"), style.context([STYLE, COLOURS]):
        # An automatic layout is switched off, since Matplotlib would draw the figure twice for it.
        figure = MatplotlibFigure(figsize=size, layout=None, facecolor="none")
        FigureCanvasSVG(figure)
        yield figure


@contextmanager
def panel_grid(
    names: Sequence[str], log: str, panel: tuple[float, float] = PANEL, columns: int = COLUMNS, **shared: bool
) -> Iterator[Grid]:
    """Create a figure with one titled panel per name, in rows; the caller adds a legend and labels.

    Args:
        names: titles of the panels.
        log: which axes are logarithmic: "", "x", "y" or "xy".
        panel: width and height of a panel, inches.
        columns: maximum number of panels side by side.
        shared: sharex and sharey, whether panels share their axes; both are true by default.
    """
    names = list(dict.fromkeys(names))
    columns = min(columns, len(names))
    rows = math.ceil(len(names) / columns)
    width = LEFT + columns * panel[0] + (columns - 1) * BETWEEN[0] + RIGHT
    top = TOP if any(names) else TOP - TITLE
    height = top + rows * panel[1] + (rows - 1) * BETWEEN[1] + BOTTOM
    size = (max(width, LEAST_WIDTH), height)
    with styled(size) as figure:
        cells: list[str | None] = [*names, *[None] * (rows * columns - len(names))]
        layout = [cells[first : first + columns] for first in range(0, len(cells), columns)]
        shared = {"sharex": True, "sharey": True} | shared
        panels = figure.subplot_mosaic(layout, empty_sentinel=None, **shared)
        figure.subplots_adjust(
            left=LEFT / size[0], right=(width - RIGHT) / size[0], wspace=BETWEEN[0] / panel[0],
            bottom=BOTTOM / height, top=1 - top / height, hspace=BETWEEN[1] / panel[1],
        )  # fmt: skip
        for name, axes in panels.items():
            axes.set_title(name, color=TEXT.light)
            for axis in log:
                getattr(axes, f"set_{axis}scale")("log")
        yield Grid(figure, panels)


def plain_ticks(panel: Axes, decades: float) -> None:
    """Set ticks whose labels need no mathematical markup.

    Args:
        decades: a logarithmic axis with fewer than `decades` decades also has ticks between powers of ten.
    """
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    for axis in (panel.xaxis, panel.yaxis):
        if axis.get_scale() == "log":
            low, high = axis.get_view_interval()
            is_short = low <= 0 or math.log10(high / low) < decades
            narrow = 0 < high <= NARROW * low  # A narrow axis may contain only one tick at 1, 2 or 5.
            marks = LogLocator(subs=(1, 2, 5) if is_short else (1,), numticks=7)
            axis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]) if narrow else marks)
            axis.set_major_formatter(FuncFormatter(power_of_ten))
            axis.set_minor_locator(NullLocator())
        else:
            axis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))  # A panel has room for six labels.
            axis.set_major_formatter(FuncFormatter(lambda value, _: plain(value)))


# --- lines and keys ------------------------------------------------------------------------------


def draw_line(
    panel: Axes, look: Look, line: pl.DataFrame, axis: str, dash: Dashes = (), **style: Any
) -> None:
    """Draw a median line with the band of its quartiles.

    Where the upper quartile is infinite, the band is open at the top.

    Args:
        look: colour and marker of the line.
        line: columns `axis`, lower_quartile, median, upper_quartile.
        axis: column with the horizontal positions.
        dash: dash pattern; () is a solid line.
        style: properties of Matplotlib's line. `markevery` is the distance between markers as a share of the
            line; without it, every point has a marker.
    """
    x, median, colour = floats(line, axis), floats(line, "median"), look.ink.light
    if not np.isfinite(x + median).any():  # Matplotlib fails to space markers along a line without points.
        return
    low, top = floats(line, "lower_quartile"), line["upper_quartile"].to_numpy().astype(np.float64)
    top[np.isinf(top)] = OPEN
    if (low < top).any():
        _draw_band(panel, x, low, top, colour, style.get("drawstyle", "")[6:])
    panel.plot(
        x, median, color=colour, linestyle=(0, dash) if dash else "-", linewidth=1.7, marker=look.mark,
        markersize=4, markeredgewidth=0, **style,
    )  # fmt: skip


def _draw_band(panel: Axes, x: Any, low: Any, top: Any, colour: str, step: str) -> None:
    """Draw a band as Matplotlib's `fill_between` does, but without extending the axes to infinite ends.

    Args:
        x: horizontal positions, shape (points,).
        low, top: lower and upper end of the band, shape (points,).
        step: whether and how the band has steps, as in `fill_between`.
    """
    from matplotlib.collections import FillBetweenPolyCollection

    where = np.isfinite(x) & np.isfinite(low) & np.isfinite(top)
    style: dict[str, Any] = {"color": colour, "alpha": 0.16, "linewidth": 0, "step": step or None}
    panel.add_collection(FillBetweenPolyCollection("x", x, low, top, where=where, **style), autolim=False)
    ends = np.concatenate([np.column_stack([x, low])[where], np.column_stack([x, top])[where & (top < OPEN)]])
    panel.update_datalim(ends)


def key_line(label: str, **style: Any) -> Any:
    """Return a legend entry drawn as a line: grey and solid by default.

    Args:
        style: properties of Matplotlib's line; `dash` is a dash pattern.
    """
    from matplotlib.lines import Line2D

    dash = style.pop("dash", ())
    usual: dict[str, Any] = {"color": MUTED.light, "linewidth": 1.7, "linestyle": (0, dash) if dash else "-"}
    return Line2D([], [], label=label, **(usual | style))


def optimizer_keys(looks: Mapping[str, Look], dashes: Mapping[str, Dashes] = {}, **style: Any) -> list[Any]:
    """Return legend entries with the colours and markers of optimizers.

    Args:
        looks: colour and marker of an optimizer by label of the entry.
        dashes: dash pattern by label; an entry without a dash pattern is solid.
        style: further properties of Matplotlib's line.
    """
    style = {"markersize": 4, **style}
    return [
        key_line(label, color=look.ink.light, marker=look.mark, dash=dashes.get(label, ()), **style)
        for label, look in looks.items()
    ]


def dashed(dashes: Mapping[str, Dashes]) -> list[Any]:
    """Return grey legend entries with the dash patterns of `dashes`, by label; () is a solid line."""
    return [key_line(label, dash=dash) for label, dash in dashes.items()]


# --- saving --------------------------------------------------------------------------------------


def save(figure: Figure, out: Path, name: str, words: str, facts: Mapping[str, Any], **fields: str) -> Drawn:
    """Save a figure as SVG for light and dark pages, and return its texts and other facts.

    Equal data give equal bytes. If no panel has a finite value, no file is written, and the result is marked
    as empty.

    Args:
        out: folder for the file. If its name is `pdf`, the figure is saved as PDF in light colours.
        name: file name without its extension.
        words: prefix of the macros of `figures.jinja` that write title, caption and alternative text.
        facts: values that these macros need.
        fields: kind, workload, backend and other fields of `Drawn`, which are also facts for the macros.
    """
    width, height = (round(96 * inches) for inches in figure.get_size_inches())
    empty = not any(np.isfinite(panel.dataLim.intervaly).all() for panel in figure.axes)
    texts = {
        part: " ".join(getattr(macros("figures.jinja"), f"{words}_{part}")({**fields, **facts}).split())
        for part in ("title", *(() if empty else ("caption", "alt")))
    }
    entry = Drawn(name=slug(name), width=width, height=height, empty=empty, **texts, **fields)
    if empty:
        return entry
    if out.name == PDF:
        figure.savefig(out / f"{entry.name}.pdf", transparent=True, metadata={"CreationDate": None})
        return entry
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    (out / f"{entry.name}.svg").write_text(_portable(buffer.getvalue()))
    return entry


def list_figures(figures: Sequence[Drawn], out: Path) -> None:
    """Write the list of a folder's figures as `figures.json`, which the site reads."""
    manifest = json.dumps([asdict(figure) for figure in figures], indent=1, ensure_ascii=False)
    (out / MANIFEST).write_text(manifest + "\n")


def read_figures(folder: Path) -> list[dict[str, Any]]:
    """Read the list of a folder's figures.

    Raises:
        InputError: when the list is missing or damaged.
    """
    path = folder / MANIFEST
    try:
        figures: list[dict[str, Any]] = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        remedy = "run snakemake, or curvebench figures, which writes it"
        raise InputError(f"{path}: cannot be read ({error}); {remedy}") from error
    return figures


def _portable(svg: str) -> str:
    """Make the text of an SVG file independent of themes and fonts, and shorter without a visible change.

    The result contains CSS for dark pages, and its texts use the sans-serif font of the reader's system.
    """
    for opening, closing in (("<!DOCTYPE", ">"), ("<metadata>", "</metadata>")):
        head, separator, tail = svg.partition(opening)
        svg = head + tail.partition(closing)[2].lstrip() if separator else svg
    svg = PATHS.sub(lambda path: DECIMALS.sub(r"\1", path[0]), svg)
    svg = svg.replace(" font-family: 'DejaVu Sans';", "").replace("<svg ", f'<svg font-family="{FONTS}" ', 1)
    return svg.replace("</style>", f"\n{dark_style(svg)}\n</style>", 1)


# --- numbers -------------------------------------------------------------------------------------


def _finite(values: pl.Series) -> pl.Series:
    """Return a series without its infinite values, NaN and null."""
    return values.filter(values.is_finite())


def log_axes(direction: str, values: pl.Series, x: bool = False) -> str:
    """Return which axes are logarithmic: "", "x", "y" or "xy".

    The y axis is logarithmic for a minimized metric if no value is negative and some values are not 0. A
    value that is below 0 only by rounding, such as a difference from an optimum, does not count as negative.

    Args:
        direction: whether less or more of the metric is better.
        values: values of the metric in the figure.
        x: whether the x axis is logarithmic.
    """
    finite = _finite(values.cast(pl.Float64))
    low, high = as_float(finite.min()), as_float(finite.max())
    y = direction == "minimize" and high > 0 and low >= -ROUNDING * max(1.0, high)
    return ("x" if x else "") + ("y" if y else "")


def on_axis(panel: Axes, values: Iterable[float]) -> Any:
    """Return the heights at which a panel shows values.

    On a logarithmic axis, values at or below 0 are shown at the lowest positive value. If no value is
    positive, all values are shown at the lower end of the axis.
    """
    heights = np.fromiter(values, np.float64)
    if panel.get_yscale() == "log":
        above = heights[heights > 0]
        heights[heights <= 0] = above.min() if len(above) else panel.get_ylim()[0]
    return heights


def floats(frame: pl.DataFrame, column: str) -> Any:
    """Return a column as NumPy floats; infinite values become NaN and are not drawn."""
    values = frame[column].to_numpy().astype(np.float64)
    values[~np.isfinite(values)] = math.nan
    return values


def as_float(value: Any) -> float:
    """Convert a value of Polars to a float; None becomes NaN."""
    return float(value) if value is not None else math.nan
