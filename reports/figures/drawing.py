"""The parts of figures: house style, grids of panels, lines with bands, keys, and saving as SVG."""

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

from curvebench.reports.figures.palette import GRID, MUTED, TEXT, Dashes, Look, dark_style
from curvebench.reports.formatting import plain, power_of_ten, slug
from curvebench.reports.rendering import TEMPLATES, macros
from curvebench.spec.errors import InputError

MANIFEST = "figures.json"
COLUMNS = 3  # panels side by side
PDF = "pdf"
PANEL = (2.6, 1.6)  # width and height of a panel, inches
BETWEEN = (0.2, 0.5)  # panels side by side, and one below the other, inches
LEFT, RIGHT, TOP, BOTTOM = 0.85, 0.15, 0.62, 0.55  # of all panels, inches
OPEN = 1e30  # the upper end of a band that has none, beyond every axis
ROUNDING = 1e-12  # relative to the largest value, or to the loss, which is of the order of 1
NARROW = 5.0  # the ratio of the ends of a logarithmic axis up to which its marks are those of a linear one
TITLE = 0.22  # height of the titles of panels, inches
LEAST_WIDTH = 5.5  # of a figure: room for its key, however few panels there are
KEY_HANDLE, KEY_LETTER, KEY_ROW = 0.7, 0.08, 0.2  # width of a line and of a letter, height of a row; inches
Axes = Any  # matplotlib's classes have no annotations
Figure = Any
FONTS = "system-ui, 'Segoe UI', 'Helvetica Neue', Arial, sans-serif"
PATHS, DECIMALS = (
    re.compile(r'<path (id="[^"]*" )?d="[^"]*"'),
    re.compile(r"(\.\d\d)\d+"),
)  # a hundredth of a point is not seen
STYLE = TEMPLATES / "figures.mplstyle"  # all but colours
OF_TICKS = tuple(f"{axis}tick.{part}" for axis in "xy" for part in ("color", "labelcolor"))
COLOURS = {
    "grid.color": GRID.light,
    **dict.fromkeys(("text.color", "axes.labelcolor"), TEXT.light),
    **dict.fromkeys(("axes.edgecolor", *OF_TICKS), MUTED.light),
}


@dataclass(frozen=True)
class Drawn:
    """A figure as the site shows it.

    Args:
        name: the stem of its file.
        kind: curve, wall_clock, target, sensitivity, front, across, claim or series.
        stem: its name without workload and backend, by which studies name it.
        axis: what the curve of a metric is against; empty for other kinds.
        empty: whether there was no finite value to draw. Such a figure has no file, no caption and no
            alternative text; pages say so in its place.
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
    """A figure and its panels by their titles."""

    figure: Figure
    panels: dict[str, Axes]

    def draw_key(self, handles: Sequence[Any]) -> None:
        """The key above all panels, in as many rows as its width asks for; the figure grows by those."""
        figure = self.figure
        width, height = figure.get_size_inches()
        widest = KEY_HANDLE + KEY_LETTER * max(len(handle.get_label()) for handle in handles)
        columns = max(1, min(len(handles), int(width / widest)))
        grown = height + KEY_ROW * (math.ceil(len(handles) / columns) - 1)
        box = figure.subplotpars
        figure.set_size_inches(width, grown)
        figure.subplots_adjust(bottom=box.bottom * height / grown, top=box.top * height / grown)
        figure.legend(handles=handles, loc="upper left", borderaxespad=0.1, ncols=columns, handlelength=2.6)

    def limit_heights(
        self, bands: pl.DataFrame, start: str, direction: str, marks: pl.Series | None = None
    ) -> None:
        """Hold the shared value axis to what was seen, but for what exploded beyond ten times the start.

        Args:
            start: the column whose least value stands for an untrained model: the step, or the learning rate.
            marks: further values that are seen.
        """
        panel = next(iter(self.panels.values()))
        log = panel.get_yscale() == "log"
        more = pl.Series([], dtype=pl.Float64) if marks is None else marks.cast(pl.Float64)
        lows, highs = (
            _finite(pl.concat([bands[name].cast(pl.Float64), more]))
            for name in ("lower_quartile", "upper_quartile")
        )
        lows = lows.filter(lows > 0) if log else lows
        first = _finite(bands.filter(pl.col(start) == pl.col(start).min())["median"])
        low, high, begin = as_float(lows.min()), as_float(highs.max()), as_float(first.max())
        if direction == "minimize" and begin > low:
            high = min(high, begin * 10 if log else begin + 0.2 * (begin - low))
        if not high > low:  # or nothing is finite
            return
        if log:
            room = (high / low) ** 0.05
            panel.set_ylim(low / room, high * room**2.4)
        else:
            panel.set_ylim(low - 0.04 * (high - low), high + 0.12 * (high - low))

    def label(self, x: str, y: str) -> None:
        """Axis labels once a figure, and plain ticks; comes last, when the ends of the axes are known."""
        box = self.figure.subplotpars
        width, height = self.figure.get_size_inches()
        style = {"fontsize": 9.5, "color": TEXT.light}
        self.figure.supxlabel(x, x=(box.left + box.right) / 2, y=0.08 / height, **style)
        self.figure.supylabel(y, x=0.08 / width, y=(box.bottom + box.top) / 2, **style)
        below = list(self.panels.values())[-COLUMNS:]
        for panel in self.panels.values():
            for line in (panel.xaxis, panel.yaxis):
                line.label.set_visible(False)
                line.set_label_coords(0.5, 0.5)  # no place is looked for
            plain_ticks(panel, 1.3)
            if panel in below:
                panel.tick_params(labelbottom=True)


@contextmanager
def styled(size: tuple[float, float]) -> Iterator[Figure]:
    """A figure of so many inches in the house style, which its panels have too; nothing stays set."""
    import matplotlib as mpl
    import seaborn
    from matplotlib import style
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure as MatplotlibFigure

    with mpl.rc_context(), seaborn.axes_style("whitegrid"), style.context([STYLE, COLOURS]):
        # no layout by trial drawing, which would double the time
        figure = MatplotlibFigure(figsize=size, layout=None, facecolor="none")
        FigureCanvasSVG(figure)
        yield figure


@contextmanager
def panel_grid(
    names: Sequence[str],
    log: str = "",
    panel: tuple[float, float] = PANEL,
    columns: int = COLUMNS,
    **shared: bool,
) -> Iterator[Grid]:
    """A figure with a titled panel a name, in rows; its key and its labels complete it.

    Args:
        log: which axes are logarithmic: "", "x", "y" or "xy".
        panel: width and height, inches.
        columns: of panels, at most.
        shared: sharex and sharey, whether panels share their axes; both do if nothing is said.
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
    """Tick labels that need no mathematical markup; between powers of ten too on axes of few decades."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    for axis in (panel.xaxis, panel.yaxis):
        if axis.get_scale() == "log":
            low, high = axis.get_view_interval()
            few = low <= 0 or math.log10(high / low) < decades
            narrow = 0 < high <= NARROW * low  # it may hold only one of 1, 2 and 5
            marks = LogLocator(subs=(1, 2, 5) if few else (1,), numticks=7)
            axis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]) if narrow else marks)
            axis.set_major_formatter(FuncFormatter(power_of_ten))
            axis.set_minor_locator(NullLocator())
        else:
            axis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))  # six digits fit a narrow panel
            axis.set_major_formatter(FuncFormatter(lambda value, _: plain(value)))


# --- lines and keys ------------------------------------------------------------------------------


def draw_line(
    panel: Axes,
    look: Look,
    line: pl.DataFrame,
    axis: str,
    dash: Dashes = (),
    marks: float | None = None,
    **style: Any,
) -> None:
    """A median line and the band of its quartiles, an infinite one leaving the band open at the top.

    Args:
        line: columns `axis`, lower_quartile, median, upper_quartile.
        dash: the lengths of dashes; solid without.
        marks: how far apart marks are, as a share of the line; on every point if None.
    """
    x, median, colour = floats(line, axis), floats(line, "median"), look.ink.light
    if not np.isfinite(x + median).any():  # matplotlib cannot space marks along a line without a point
        return
    low, top = floats(line, "lower_quartile"), line["upper_quartile"].to_numpy().astype(np.float64)
    top[np.isinf(top)] = OPEN
    if (low < top).any():
        _draw_band(panel, x, low, top, colour, style.get("drawstyle", "")[6:])
    panel.plot(
        x, median, color=colour, linestyle=(0, dash) if dash else "-", linewidth=1.7, marker=look.mark,
        markevery=marks, markersize=4, markeredgewidth=0, **style,
    )  # fmt: skip


def _draw_band(panel: Axes, x: Any, low: Any, top: Any, colour: str, step: str) -> None:
    """Draw a band as `fill_between` does, without scaling the axes anew, and to no open end."""
    from matplotlib.collections import FillBetweenPolyCollection

    shown = np.isfinite(x) & np.isfinite(low) & np.isfinite(top)
    style: dict[str, Any] = {"color": colour, "alpha": 0.16, "linewidth": 0, "step": step or None}
    panel.add_collection(FillBetweenPolyCollection("x", x, low, top, where=shown, **style), autolim=False)
    ends = np.concatenate([np.column_stack([x, low])[shown], np.column_stack([x, top])[shown & (top < OPEN)]])
    panel.update_datalim(ends)


def key_line(label: str, **style: Any) -> Any:
    """A line of a key, muted and solid unless said otherwise; `dash` are the lengths of its dashes."""
    from matplotlib.lines import Line2D

    dash = style.pop("dash", ())
    usual: dict[str, Any] = {"color": MUTED.light, "linewidth": 1.7, "linestyle": (0, dash) if dash else "-"}
    return Line2D([], [], label=label, **(usual | style))


def optimizer_keys(looks: Mapping[str, Look], dashes: Mapping[str, Dashes] = {}, **style: Any) -> list[Any]:
    """Lines of a key by their labels, in the colour and with the mark of an optimizer, and in dashes."""
    style = {"markersize": 4, **style}
    return [
        key_line(label, color=look.ink.light, marker=look.mark, dash=dashes.get(label, ()), **style)
        for label, look in looks.items()
    ]


def dashed(dashes: Mapping[str, Dashes]) -> list[Any]:
    """Lines of a key by their labels, which differ in their dashes; () is solid."""
    return [key_line(label, dash=dash) for label, dash in dashes.items()]


# --- saving --------------------------------------------------------------------------------------


def save(figure: Figure, out: Path, name: str, words: str, facts: Mapping[str, Any], **shown: str) -> Drawn:
    """Write a figure as SVG that follows the page's theme and describe it; the same data give the same bytes.

    A figure none of whose panels has a finite value is only described, as empty.

    Args:
        out: a folder; one of the name `pdf` takes the figure as PDF, in light colours.
        words: of the macros of `figures.jinja` that say its title, caption and alternative text of the facts.
        shown: kind, workload, backend and more of `Drawn`, which are facts too.
    """
    width, height = (round(96 * inches) for inches in figure.get_size_inches())
    empty = not any(np.isfinite(panel.dataLim.intervaly).all() for panel in figure.axes)
    said = {
        part: " ".join(getattr(macros("figures.jinja"), f"{words}_{part}")({**shown, **facts}).split())
        for part in ("title", *(() if empty else ("caption", "alt")))
    }
    drawn = Drawn(name=slug(name), width=width, height=height, empty=empty, **said, **shown)
    if empty:
        return drawn
    if out.name == PDF:
        figure.savefig(out / f"{drawn.name}.pdf", transparent=True, metadata={"CreationDate": None})
        return drawn
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    (out / f"{drawn.name}.svg").write_text(_portable(buffer.getvalue()))
    return drawn


def list_figures(drawn: Sequence[Drawn], out: Path) -> None:
    """Write the list of a folder's figures as `figures.json`, which the site reads."""
    manifest = json.dumps([asdict(figure) for figure in drawn], indent=1, ensure_ascii=False)
    (out / MANIFEST).write_text(manifest + "\n")


def read_figures(folder: Path) -> list[dict[str, Any]]:
    """Read the list of a folder's figures.

    Raises:
        InputError: when it is missing or damaged.
    """
    path = folder / MANIFEST
    try:
        figures: list[dict[str, Any]] = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        remedy = "run snakemake, or curvebench figures, which writes it"
        raise InputError(f"{path}: cannot be read ({error}); {remedy}") from error
    return figures


def _portable(svg: str) -> str:
    """The drawing in both themes, as small as it looks the same, its text in the reader's own sans-serif."""
    for opening, closing in (("<!DOCTYPE", ">"), ("<metadata>", "</metadata>")):
        before, found, rest = svg.partition(opening)
        svg = before + rest.partition(closing)[2].lstrip() if found else svg
    svg = PATHS.sub(lambda path: DECIMALS.sub(r"\1", path[0]), svg)
    svg = svg.replace(" font-family: 'DejaVu Sans';", "").replace("<svg ", f'<svg font-family="{FONTS}" ', 1)
    return svg.replace("</style>", f"\n{dark_style(svg)}\n</style>", 1)


# --- numbers -------------------------------------------------------------------------------------


def _finite(values: pl.Series) -> pl.Series:
    return values.filter(values.is_finite())


def log_axes(direction: str, values: pl.Series, x: bool = False) -> str:
    """Which axes are logarithmic: of a minimized metric y, where none is negative and some are not 0.

    What is below 0 by rounding alone, as the difference to an optimum may be, is not negative.
    """
    finite = _finite(values.cast(pl.Float64))
    low, high = as_float(finite.min()), as_float(finite.max())
    y = direction == "minimize" and high > 0 and low >= -ROUNDING * max(1.0, high)
    return ("x" if x else "") + ("y" if y else "")


def on_axis(panel: Axes, values: Iterable[float]) -> Any:
    """Heights of points: on a logarithmic axis those that are not above 0 lie on its floor.

    That is the least of the others, or the end of the axis.
    """
    heights = np.fromiter(values, np.float64)
    if panel.get_yscale() == "log":
        above = heights[heights > 0]
        heights[heights <= 0] = above.min() if len(above) else panel.get_ylim()[0]
    return heights


def floats(frame: pl.DataFrame, column: str) -> Any:
    """A column as NumPy floats, what is infinite left out of the drawing."""
    values = frame[column].to_numpy().astype(np.float64)
    values[~np.isfinite(values)] = math.nan
    return values


def as_float(value: Any) -> float:
    """What polars gives for a number, NaN for none."""
    return float(value) if value is not None else math.nan
