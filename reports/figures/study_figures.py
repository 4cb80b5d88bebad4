"""The figures of a study in SVG, in a light and a dark variant, with their alternative texts."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from documents.method import IDENTITY, Method
from documents.plan import StudyPlan, WorkloadPlan
from reports.figures.curves import final_curves
from reports.figures.palette import GHOST, GRID, MUTED, TEXT, Look, dark, dashes_of, ink_of, look_of
from reports.formatting import metric_name, plain, power_of_ten, slug
from reports.measures import (
    CELL,
    chosen_rates,
    complete_curves,
    curve_bands,
    final_runs,
    sensitivity,
    step_seconds,
    study_values,
    with_seconds,
)
from reports.plan import criterion
from reports.rendering import templates
from reports.statistics.medians import quartile_bands
from reports.tables import Tables

MANIFEST = "figures.json"
COLUMNS = 3  # panels side by side
PANEL = (2.8, 2.1)  # width and height, inches
KEY_HANDLE, KEY_LETTER, KEY_ROW = 0.7, 0.08, 0.2  # width of a line and of a letter, height of a row; inches
MARGINS = (0.85, 0.15, 0.62, 0.55)  # left, right, top and bottom of all panels, inches
Axes = Any  # matplotlib's classes have no annotations
Figure = Any


@dataclass(frozen=True)
class Drawn:
    """A figure as the site shows it.

    Args:
        name: the stem of its two files.
        kind: curve, target, sensitivity, cost, front, across, claim, series or ranks.
        stem: its name without workload and backend, by which studies name it.
        axis: what the curve of a metric is against; empty for other kinds.
    """

    name: str
    kind: str
    workload: str
    backend: str
    metric: str
    title: str
    caption: str
    alt: str
    width: int
    height: int
    stem: str = ""
    axis: str = ""


@dataclass(frozen=True)
class FigureCell:
    """What figures are of: a workload of a study on a backend, its final runs, and where files go."""

    study: StudyPlan
    workload: WorkloadPlan
    backend: str
    tables: Tables
    out: Path

    @property
    def runs(self) -> pl.DataFrame:
        """All runs, those of tuning too."""
        return self.tables.runs.filter(workload=self.workload.name, backend=self.backend)

    @property
    def final(self) -> pl.DataFrame:
        """The final runs."""
        return final_runs(self.tables.runs, self.workload.name, self.backend)

    @property
    def timings(self) -> pl.DataFrame:
        """The timings."""
        return self.tables.timings.filter(workload=self.workload.name, backend=self.backend)

    def methods_in(self, frame: pl.DataFrame) -> list[str]:
        """The study's methods that a frame has, in the study's order."""
        there = set(frame["method"])
        return [method for method in self.study.methods if method in there]

    def save(
        self, figure: Figure, kind: str, stem: str, metric: str, words: str | None = None, **facts: Any
    ) -> Drawn:
        """Write a figure of the cell, its words by the macros of that name, or of its kind, and the facts."""
        of = {"workload": self.workload.name, "backend": self.backend, "metric": metric}
        shown = {**of, "kind": kind, "stem": stem, "axis": facts.get("axis", "")}
        name = f"{self.workload.name}.{self.backend}.{stem}"
        return save(figure, self.out, name, **shown, **figure_words(words or kind, of | facts))


def cells(study: StudyPlan, tables: Tables, out: Path) -> list[FigureCell]:
    """Each workload on each backend; `out` is made where it is missing."""
    out.mkdir(parents=True, exist_ok=True)
    return [
        FigureCell(study, workload, backend, tables, out)
        for workload in study.workloads
        for backend in study.backends
    ]


@cache
def _said() -> Any:
    """The macros of `figures.jinja`."""
    return templates(markdown=True).get_template("figures.jinja").module


def figure_words(words: str, facts: Mapping[str, Any]) -> dict[str, str]:
    """Title, caption and alternative text of a figure, as the template `figures.jinja` says them."""
    parts = {part: str(getattr(_said(), f"{words}_{part}")(facts)) for part in ("title", "caption", "alt")}
    return {part: " ".join(text.split()) for part, text in parts.items()}


def draw_run_figures(cell: FigureCell) -> Iterator[Drawn]:
    """Draw curves, sensitivities and costs."""
    for draw in (_curves, _sensitivities, _cost):
        yield from draw(cell)


def list_figures(drawn: Sequence[Drawn], out: Path) -> None:
    """Write the list of a folder's figures as `figures.json`, which the site reads."""
    manifest = json.dumps([asdict(figure) for figure in drawn], indent=1, ensure_ascii=False)
    (out / MANIFEST).write_text(manifest + "\n")


def shown_metrics(study: StudyPlan, workload: WorkloadPlan) -> tuple[str, ...]:
    """The metrics that get curves: the headline one, one of training and one of validation."""
    wanted = [study.metric]
    for split in ("train", "validation"):
        of_split = [name for name in workload.metrics if name.startswith(f"{split}_")]
        preferred = [*study.targets, f"{split}_suboptimality", f"{split}_loss"]
        wanted += ([name for name in preferred if name in of_split] or of_split)[:1]
    return tuple(dict.fromkeys(wanted))


def judged_metrics(study: StudyPlan, workload: WorkloadPlan) -> tuple[tuple[str, str], ...]:
    """The metrics that a study or its claims compare on a workload, and which value; the headline first."""
    compared = [(study.metric, study.which)]
    compared += [(one.metric, one.which) for claim in study.claims for one in claim.conditions]
    return tuple(each for each in dict.fromkeys(compared) if each[0] in workload.metrics)


def steps_an_epoch(study: StudyPlan, final: pl.DataFrame) -> float | None:
    """The steps of an epoch, from a run that had all of its epochs; None where none had, or has a number."""
    epochs = study.budget.get("epochs")
    ends = ["budget"] if study.stop else ["budget", "reached"]  # without a stop, runs go on past a target
    whole = final.filter(pl.col("outcome").is_in(ends))["steps"]
    return as_float(whole.max()) / epochs if epochs and len(whole) else None


# --- kinds of figures ----------------------------------------------------------------------------

AXES = {
    "epochs": "epochs of the run",
    "gradient_evaluations": "gradient evaluations of the run",
    "charged_evaluations": "gradient evaluations, basis included",
    "charged_seconds": "seconds of the run, basis included",
}
UNCHARGED = {"charged_evaluations": "gradient_evaluations", "charged_seconds": "run_seconds"}


def _curves(cell: FigureCell) -> Iterator[Drawn]:
    """The metrics that are shown or judged against every cost."""
    study, final = cell.study, cell.final
    judged = [metric for metric, _ in judged_metrics(study, cell.workload)]
    epoch = steps_an_epoch(study, final)
    for metric in dict.fromkeys((*shown_metrics(study, cell.workload), *judged)) if len(final) else ():
        recorded = final_curves(cell.tables.folder, final, cell.tables.checkpoints, metric)
        curves = complete_curves(final, recorded, metric, study.direction_of(metric))
        if len(curves):
            bands = curve_bands(curves).with_columns(epochs=pl.col("step") / (epoch or 1))
            bands = with_seconds(bands, final, cell.timings)
            yield _curve(cell, metric, "charged_evaluations", bands)
            yield _curve(cell, metric, "epochs" if epoch else "gradient_evaluations", bands)
            if not bands["charged_seconds"].has_nulls():
                yield _curve(cell, metric, "charged_seconds", bands)


def _curve(cell: FigureCell, metric: str, axis: str, bands: pl.DataFrame) -> Drawn:
    direction = cell.study.direction_of(metric)
    log_y = direction == "minimize" and fits_log(bands["lower_quartile"])
    # A basis that costs several times the budget would press the curves into the frame.
    log_x = as_float(bands[axis].max()) > 4 * as_float(bands[UNCHARGED.get(axis, axis)].max())
    shown = thinned(bands.filter(pl.col(axis) > 0) if log_x else bands, 120)
    drawn = set(bands["method"])  # not one of which all runs raised
    methods = [method for method in cell.methods_in(cell.final) if method in drawn]
    lines = {method: shown.filter(method=method) for method in methods}
    with one_panel_each(methods, log_x, log_y) as (figure, panels):
        for optimizer, panel in panels.items():
            for method, line in lines.items():
                if Method.of(method).optimizer != optimizer:
                    panel.plot(floats(line, axis), floats(line, "median"), color=GHOST.light, linewidth=0.7)
            draw_lines(panel, optimizer, lines, axis, methods, marked=False)
        limit_heights(panels, bands, "step", direction, log_y)
        label_axes(figure, panels, AXES[axis], metric_name(metric), methods)
        return cell.save(
            figure,
            "curve",
            f"{metric}.{axis}",
            metric,
            name=metric_name(metric),
            axis=axis,
            axis_label=AXES[axis],
            count=int(as_float(bands["count"].max())),
            start=bands[axis].min(),
            end=bands[axis].max(),
            ends=[(method, line.sort("step").tail(1)["median"].item()) for method, line in lines.items()],
        )


def _sensitivities(cell: FigureCell) -> Iterator[Drawn]:
    """The judged metrics against the learning rate."""
    for metric, which in judged_metrics(cell.study, cell.workload):
        rates = sensitivity(study_values(cell.study, cell.runs, metric, which))
        if len(rates):
            yield _sensitivity(cell, metric, which, rates)


def _sensitivity(cell: FigureCell, metric: str, which: str, rates: pl.DataFrame) -> Drawn:
    study, direction = cell.study, cell.study.direction_of(metric)
    keys = ["method", "learning_rate"]
    ends = quartile_bands(study_values(study, cell.final, metric, which), keys, "value")
    chosen = chosen_rates(cell.runs).select(keys).join(ends, on=keys)
    methods = cell.methods_in(cell.runs)
    log_y = direction == "minimize" and fits_log(rates["lower_quartile"])
    name = f"{which} {metric_name(metric)}"
    lines = {method: rates.filter(method=method) for method in methods}
    with one_panel_each(methods, True, log_y) as (figure, panels):
        places = list(dashes_of(methods))
        limit_heights(panels, rates, "learning_rate", direction, log_y, chosen["median"])
        for optimizer, panel in panels.items():
            draw_lines(panel, optimizer, lines, "learning_rate", methods)
            colour = ink_of(optimizer).light
            for method in (method for method in methods if Method.of(method).optimizer == optimizer):
                stars = chosen.filter(method=method)
                panel.plot(
                    floats(stars, "learning_rate"), floats(stars, "median"), "*", color=colour,
                    markeredgecolor=TEXT.light, markeredgewidth=0.6, markersize=11, zorder=5,
                )  # fmt: skip
                lost = lines[method].filter(pl.col("failed") > 0)
                panel.scatter(
                    floats(lost, "learning_rate"),
                    [0.96 - 0.07 * places.index(Method.of(method).basis)] * len(lost),
                    s=[12 + 34 * share for share in lost["failed"]],
                    marker="x", color=colour, linewidth=1.1, transform=panel.get_xaxis_transform(),
                    clip_on=False,
                )  # fmt: skip
        label_axes(figure, panels, "learning rate", name, methods, tuning=True)
        headline = (metric, which) == (study.metric, study.which)
        best = {method: chosen.filter(method=method)["learning_rate"] for method in methods}
        return cell.save(
            figure,
            "sensitivity",
            "sensitivity" if headline else f"sensitivity.{which}.{metric}",
            metric,
            name=name,
            count=int(as_float(rates["count"].max())),
            criterion=criterion(study),
            start=rates["learning_rate"].min(),
            end=rates["learning_rate"].max(),
            chosen=[(method, rate.item() if len(rate) == 1 else None) for method, rate in best.items()],
        )


def _cost(cell: FigureCell) -> Iterator[Drawn]:
    """The seconds of a step; nothing where none was timed."""
    seconds = step_seconds(cell.timings)
    methods = cell.methods_in(seconds)
    if not methods:
        return
    rows = {method: seconds.filter(method=method).row(0, named=True) for method in methods}
    longest = max(row["high"] for row in rows.values())
    unit, factor = ("s", 1.0) if longest >= 1 else ("ms", 1e3) if longest >= 1e-3 else ("µs", 1e6)
    null = cell.timings.filter((pl.col("phase") == "null_step") & (pl.col("steps") > 0))
    size = (PANEL[0] * COLUMNS * 0.82, 0.9 + 0.24 * len(methods))
    with styled(size, "constrained") as (figure, panel):
        for position, method in enumerate(methods):
            look, solid = look_of(Method.of(method).optimizer), Method.of(method).basis == IDENTITY
            low, middle, high = (rows[method][end] * factor for end in ("low", "median", "high"))
            colour = look.ink.light
            panel.plot([0, middle], [position, position], color=colour, linewidth=1.6, alpha=0.35,
                       linestyle="-" if solid else (0, (4, 2)))  # fmt: skip
            panel.errorbar(
                middle, position, xerr=[[middle - low], [high - middle]], fmt=look.mark, color=colour,
                markerfacecolor=colour if solid else "none", markersize=5.5, capsize=2.5, linewidth=1.2,
            )  # fmt: skip
        if len(null):
            middle = as_float((null["seconds"] / null["steps"]).median())
            panel.axvline(middle * factor, color=MUTED.light, linewidth=1, linestyle=(0, (1, 2)))
        panel.set_yticks(range(len(methods)), methods)
        panel.invert_yaxis()
        panel.set_xlim(left=0)
        panel.grid(axis="y", visible=False)
        panel.set_xlabel(f"{unit} a step")
        yield cell.save(
            figure,
            "cost",
            "cost",
            "seconds",
            count=int(as_float(seconds["count"].max())),
            gradient=len(null) > 0,
            unit=unit,
            steps=[(method, row["median"] * factor) for method, row in rows.items()],
        )


# --- parts of figures ----------------------------------------------------------------------------


@contextmanager
def styled(
    size: tuple[float, float], layout: Any, rows: int = 1, columns: int = 1, **options: Any
) -> Iterator[tuple[Figure, Any]]:
    """A figure in the house style, closed afterwards; nothing stays set."""
    import matplotlib as mpl
    import seaborn
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure as MatplotlibFigure

    style = {
        "svg.fonttype": "none",
        "svg.hashsalt": "curvebench",
        "path.simplify_threshold": 0.3,
        "text.parse_math": False,
        "text.color": TEXT.light,
        "axes.labelcolor": TEXT.light,
        "axes.edgecolor": MUTED.light,
        "axes.facecolor": "none",
        "axes.titlesize": 10.5,
        "axes.titleweight": "bold",
        "axes.titlelocation": "left",
        "axes.labelsize": 9.5,
        "axes.linewidth": 0.8,
        "axes.unicode_minus": True,
        "grid.color": GRID.light,
        "grid.linewidth": 0.8,
        "xtick.color": MUTED.light,
        "ytick.color": MUTED.light,
        "xtick.labelcolor": MUTED.light,
        "ytick.labelcolor": MUTED.light,
        "xtick.labelsize": 8.5,
        "ytick.labelsize": 8.5,
        "font.family": ["DejaVu Sans"],  # comes with matplotlib; measures the text, the page's font shows it
        "legend.frameon": False,
        "legend.fontsize": 9,
    }
    with mpl.rc_context(), seaborn.axes_style("whitegrid"), mpl.rc_context(style):
        figure = MatplotlibFigure(figsize=size, layout=layout, facecolor="none")
        FigureCanvasSVG(figure)
        axes = figure.subplots(rows, columns, **options)
        seaborn.despine(fig=figure)
        yield figure, axes


@contextmanager
def one_panel_each(
    methods: Sequence[str], log_x: bool, log_y: bool
) -> Iterator[tuple[Figure, dict[str, Axes]]]:
    """One panel an optimizer, sharing their axes."""
    with panels_of([Method.of(method)[0] for method in methods], log_x, log_y) as drawn:
        yield drawn


@contextmanager
def panels_of(names: Sequence[str], log_x: bool, log_y: bool) -> Iterator[tuple[Figure, dict[str, Axes]]]:
    """One panel a name, of an optimizer or a method, in the optimizer's colour, sharing their axes."""
    names = list(dict.fromkeys(names))
    columns = min(COLUMNS, len(names))
    rows = math.ceil(len(names) / columns)
    left, right, top, bottom = MARGINS
    width = left + PANEL[0] * columns + right
    height = top + PANEL[1] * rows + bottom
    # room for the key of the dashes, however few panels there are
    size = (max(width, 5.5), height)
    shared = {"sharex": True, "sharey": True, "squeeze": False}
    # no layout by trial drawing, which would double the time
    with styled(size, None, rows, columns, **shared) as (figure, grid):
        figure.subplots_adjust(
            left=left / size[0],
            right=(width - right) / size[0],
            bottom=bottom / height,
            top=1 - top / height,
            wspace=0.08,
            hspace=0.34,
        )
        panels = dict(zip(names, grid.flat, strict=False))
        for empty in list(grid.flat)[len(names) :]:
            empty.set_visible(False)
        if log_x:
            grid[0, 0].set_xscale("log")
        if log_y:
            grid[0, 0].set_yscale("log")
        for name, panel in panels.items():
            panel.set_title(name, color=ink_of(Method.of(name)[0]).light)
        yield figure, panels


def draw_lines(
    panel: Axes,
    optimizer: str,
    lines: Mapping[str, pl.DataFrame],
    axis: str,
    methods: Sequence[str],
    marked: bool = True,
) -> None:
    """The methods of one optimizer: a median line in the basis' dashes, and its band.

    Args:
        marked: whether every point has the optimizer's mark; else one here and there.
    """
    dashes = dashes_of(methods)
    for method, line in lines.items():
        name, basis = Method.of(method)
        if name == optimizer and len(line):
            draw_line(panel, look_of(name), line, axis, dashes[basis], marked)


def draw_line(
    panel: Axes, look: Look, line: pl.DataFrame, axis: str, dash: tuple[float, ...], marked: bool
) -> None:
    """A median line and its band; every point has the mark, or else one here and there."""
    x, colour = floats(line, axis), look.ink.light
    panel.fill_between(x, floats(line, "lower_quartile"), capped(line), color=colour, alpha=0.16, linewidth=0)
    panel.plot(
        x, floats(line, "median"), color=colour, linestyle=(0, dash) if dash else "-", linewidth=1.7,
        marker=look.mark, markevery=None if marked else 0.12, markersize=4, markeredgewidth=0,
    )  # fmt: skip


def limit_heights(
    panels: Mapping[str, Axes],
    bands: pl.DataFrame,
    start: str,
    direction: str,
    log_y: bool,
    marks: pl.Series | None = None,
) -> None:
    """Hold the value axis to what was seen, but for what exploded beyond ten times where all began.

    Args:
        start: the column whose least value stands for an untrained model: the step, or the learning rate.
        marks: further values that are seen.
    """
    medians, lows, highs = (_finite(bands[name]) for name in ("median", "lower_quartile", "upper_quartile"))
    if marks is not None:
        lows, highs = pl.concat([lows, _finite(marks)]), pl.concat([highs, _finite(marks)])
    if log_y:
        lows = lows.filter(lows > 0)
    if not len(medians) or not len(lows) or not len(highs):
        return
    low, high = as_float(lows.min()), as_float(highs.max())
    first = _finite(bands.filter(pl.col(start) == pl.col(start).min())["median"])
    if direction == "minimize" and len(first) and as_float(first.max()) > low:
        begin = as_float(first.max())
        high = min(high, begin * 10 if log_y else begin + 0.2 * (begin - low))
    panel = next(iter(panels.values()))
    if log_y and high > low:
        room = (high / low) ** 0.05
        panel.set_ylim(low / room, high * room**2.4)
    elif high > low:
        panel.set_ylim(low - 0.04 * (high - low), high + 0.12 * (high - low))


def dashed(dashes: Mapping[str, tuple[float, ...]]) -> list[Any]:
    """Lines of a key by their labels, without a colour of their own; () is solid."""
    from matplotlib.lines import Line2D

    return [
        Line2D([], [], color=MUTED.light, linewidth=1.7, linestyle=(0, dash) if dash else "-", label=label)
        for label, dash in dashes.items()
    ]


def label_axes(
    figure: Figure, panels: Mapping[str, Axes], x: str, y: str, methods: Sequence[str], tuning: bool = False
) -> None:
    """As `label_panels`, with the key of the bases' dashes."""
    from matplotlib.lines import Line2D

    handles = dashed({f"{basis} basis": dash for basis, dash in dashes_of(methods).items()})
    if tuning:
        handles += [
            Line2D([], [], color=MUTED.light, marker="*", markersize=10, linestyle="", label="chosen"),
            Line2D([], [], color=MUTED.light, marker="x", markersize=6, linestyle="", label="some diverged"),
        ]
    draw_key(figure, handles)
    label_panels(figure, panels, x, y)


def draw_key(figure: Figure, handles: Sequence[Any]) -> None:
    """The key above all panels, in as many rows as its width asks for; the figure grows by those."""
    width, height = figure.get_size_inches()
    widest = KEY_HANDLE + KEY_LETTER * max(len(handle.get_label()) for handle in handles)
    columns = max(1, min(len(handles), int(width / widest)))
    more = KEY_ROW * (math.ceil(len(handles) / columns) - 1)
    box = figure.subplotpars
    figure.set_size_inches(width, height + more)
    figure.subplots_adjust(
        bottom=box.bottom * height / (height + more), top=box.top * height / (height + more)
    )
    figure.legend(handles=handles, loc="upper left", borderaxespad=0.1, ncols=columns, handlelength=2.6)


def label_panels(figure: Figure, panels: Mapping[str, Axes], x: str, y: str) -> None:
    """Axis labels once a figure."""
    box = figure.subplotpars
    middle_x, middle_y = (box.left + box.right) / 2, (box.bottom + box.top) / 2
    width, height = figure.get_size_inches()
    figure.supxlabel(x, x=middle_x, y=0.08 / height, fontsize=9.5, color=TEXT.light)
    figure.supylabel(y, x=0.08 / width, y=middle_y, fontsize=9.5, color=TEXT.light)
    panels_list = list(panels.values())
    for panel in panels_list:
        panel.set(xlabel="", ylabel="")
        plain_ticks(panel, 1.2)
    for panel in panels_list[-min(COLUMNS, len(panels_list)) :]:
        panel.tick_params(labelbottom=True)


def plain_ticks(panel: Axes, decades: float) -> None:
    """Tick labels that need no mathematical markup; between powers of ten too on axes of few decades."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    for axis in (panel.xaxis, panel.yaxis):
        if axis.get_scale() == "log":
            low, high = axis.get_view_interval()
            few = low <= 0 or math.log10(high / low) < decades
            axis.set_major_locator(LogLocator(subs=(1, 2, 5) if few else (1,), numticks=7))
            axis.set_major_formatter(FuncFormatter(power_of_ten))
            axis.set_minor_locator(NullLocator())
        else:
            axis.set_major_formatter(FuncFormatter(lambda value, _: plain(value)))


def save(figure: Figure, out: Path, name: str, **shown: str) -> Drawn:
    """Write both variants; the same data give the same bytes."""
    drawn, light = rendered(figure, name, **shown)
    (out / f"{drawn.name}.light.svg").write_text(light)
    (out / f"{drawn.name}.dark.svg").write_text(dark(light))
    return drawn


def rendered(figure: Figure, name: str, **shown: str) -> tuple[Drawn, str]:
    """A figure's description and its light variant as SVG."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    width, height = (round(96 * inches) for inches in figure.get_size_inches())
    return Drawn(name=slug(name), width=width, height=height, **shown), _portable(buffer.getvalue())


def _portable(svg: str) -> str:
    """The drawing without document type and metadata, its text in the reader's own sans-serif."""
    for opening, closing in (("<!DOCTYPE", ">"), ("<metadata>", "</metadata>")):
        before, found, rest = svg.partition(opening)
        svg = before + rest.partition(closing)[2].lstrip() if found else svg
    return svg.replace("'DejaVu Sans'", "system-ui, 'Segoe UI', 'Helvetica Neue', Arial, sans-serif")


def thinned(bands: pl.DataFrame, most: int) -> pl.DataFrame:
    """At most about `most` steps of each cell, evenly, the last among them; cells have steps of their own.

    Args:
        bands: as `curve_bands` gives them, in order of steps.
    """
    place, count = pl.int_range(pl.len()).over(CELL), pl.len().over(CELL)
    stride = (count + most - 1) // most
    return bands.filter((place % stride == 0) | (place == count - 1))


def evenly(rows: pl.DataFrame, most: int) -> pl.DataFrame:
    """At most so many rows, evenly by place, both ends among them."""
    if len(rows) <= most:
        return rows
    return rows[np.linspace(0, len(rows) - 1, most).round().astype(int)]


def _finite(values: pl.Series) -> pl.Series:
    return values.filter(values.is_finite())


def fits_log(values: pl.Series) -> bool:
    """Whether a logarithmic axis can show the values: none is negative, some are positive."""
    finite = _finite(values)
    return bool(len(finite)) and as_float(finite.min()) >= 0 and as_float(finite.max()) > 0


def floats(frame: pl.DataFrame, column: str) -> Any:
    """A column as NumPy floats, what is infinite left out of the drawing."""
    values = frame[column].cast(pl.Float64)
    return values.set(~values.is_finite(), float("nan")).to_numpy()


def capped(frame: pl.DataFrame) -> Any:
    """Upper quartiles, an infinite one far above the frame so that its band stays open at the top."""
    values = frame["upper_quartile"].cast(pl.Float64)
    return values.set(values.is_infinite(), 1e30).to_numpy()


def as_float(value: Any) -> float:
    """What polars gives for a number, NaN for none."""
    return float(value) if value is not None else math.nan
