"""The figures of a study in SVG, in a light and a dark variant, with their alternative texts."""

from __future__ import annotations

import io
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from reports.curves import final_curves
from reports.formatting import metric_name, number, plain, power_of_ten, slug
from reports.formatting import rate as rate_text
from reports.measures import (
    CELL,
    chosen_rates,
    complete_curves,
    curve_bands,
    sensitivity,
    step_seconds,
    study_values,
    with_seconds,
)
from reports.palette import GHOST, GRID, MUTED, TEXT, dark, dashes_of, ink_of
from reports.plan import StudyPlan, WorkloadPlan
from reports.statistics.medians import quartile_bands
from reports.tables import Tables
from results.methods import method_parts

MANIFEST = "figures.json"
COLUMNS = 3  # panels side by side
PANEL = (2.8, 2.1)  # width and height, inches
KEY_HANDLE, KEY_LETTER, KEY_ROW = 0.7, 0.08, 0.2  # width of a line and of a letter, height of a row; inches
MARGINS = (0.85, 0.15, 0.62, 0.55)  # left, right, top and bottom of all panels, inches
Axes = Any  # matplotlib's classes have no annotations
Figure = Any


@dataclass(frozen=True)
class Drawn:
    """A figure as the site shows it; `name` is the stem of its two files."""

    name: str
    kind: str  # curve, target, sensitivity, cost, front, across, claim, series or ranks
    workload: str
    backend: str
    metric: str
    title: str
    caption: str
    alt: str
    width: int
    height: int


def draw_study(study: StudyPlan, tables: Tables, out: Path) -> list[Drawn]:
    """Draw every figure of a study's workloads into a folder.

    Args:
        out: is made where it is missing; holds `<name>.light.svg` and `<name>.dark.svg` afterwards.
    """
    out.mkdir(parents=True, exist_ok=True)
    return [
        figure
        for workload in study.workloads
        for backend in study.backends
        for figure in _draw_cell(study, workload, backend, tables, out)
    ]


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
    asked = [(study.metric, study.which)]
    asked += [(one.metric, one.which) for claim in study.claims for one in claim.conditions]
    return tuple(each for each in dict.fromkeys(asked) if each[0] in workload.metrics)


def _draw_cell(
    study: StudyPlan, workload: WorkloadPlan, backend: str, tables: Tables, out: Path
) -> Iterator[Drawn]:
    here = (pl.col("workload") == workload.name) & (pl.col("backend") == backend)
    runs = tables.runs.filter(here)
    final = runs.filter(pl.col("stage") == "final")
    present = set(final["method"])
    methods = [method for method in study.methods if method in present]
    timings = tables.timings.filter(here)
    if methods:
        judged = [metric for metric, _ in judged_metrics(study, workload)]
        epoch = steps_an_epoch(study, final)
        for metric in dict.fromkeys((*shown_metrics(study, workload), *judged)):
            recorded = final_curves(tables.folder, final, tables.checkpoints, metric)
            curves = complete_curves(final, recorded, metric, study.direction_of(metric))
            if len(curves):
                bands = curve_bands(curves).with_columns(epochs=pl.col("step") / (epoch or 1))
                bands = with_seconds(bands, final, timings)
                axes = ["charged_evaluations", "epochs" if epoch else "gradient_evaluations"]
                if not bands["charged_seconds"].has_nulls():
                    axes.append("charged_seconds")
                for axis in axes:
                    yield _curve(study, workload, backend, metric, axis, methods, bands, out)
    tuned = [method for method in study.methods if method in set(runs["method"])]
    for metric, which in judged_metrics(study, workload):
        rates = sensitivity(study_values(study, runs, metric, which))
        if len(rates):
            chosen = _starred(runs, study_values(study, final, metric, which))
            yield _sensitivity(study, workload, backend, (metric, which), tuned, rates, chosen, out)
    seconds = step_seconds(timings)
    timed = [method for method in study.methods if method in set(seconds["method"])]
    if timed:
        yield _cost(study, workload, backend, timed, seconds, timings, out)


def steps_an_epoch(study: StudyPlan, final: pl.DataFrame) -> float | None:
    """The steps of an epoch, from a run that had all of its epochs; None where none had, or has a number."""
    epochs = study.settings.get("budget", {}).get("epochs")
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


def _curve(
    study: StudyPlan,
    workload: WorkloadPlan,
    backend: str,
    metric: str,
    axis: str,
    methods: Sequence[str],
    bands: pl.DataFrame,
    out: Path,
) -> Drawn:
    direction = study.direction_of(metric)
    log_y = direction == "minimize" and fits_log(bands["lower_quartile"])
    starts, ends = bands[axis].min(), bands[axis].max()
    # A basis that costs several times the budget would press the curves into the frame.
    uncharged = UNCHARGED.get(axis, axis)
    log_x = as_float(bands[axis].max()) > 4 * as_float(bands[uncharged].max())
    shown = thinned(bands.filter(pl.col(axis) > 0) if log_x else bands, 120)
    count = int(as_float(bands["count"].max()))
    lines = {method: shown.filter(pl.col("method") == method) for method in methods}
    with one_panel_each(methods, log_x, log_y) as (figure, panels):
        for optimizer, panel in panels.items():
            for method, line in lines.items():
                if method_parts(method)[0] != optimizer:
                    panel.plot(floats(line, axis), floats(line, "median"), color=GHOST.light, linewidth=0.7)
            draw_lines(panel, optimizer, lines, axis, methods, marker=None)
        limit_heights(panels, bands, "step", direction, log_y)
        label_axes(figure, panels, AXES[axis], metric_name(metric), methods)
        last = {method: line.sort("step").tail(1) for method, line in lines.items()}
        name = metric_name(metric)
        return save(
            figure,
            out,
            kind="curve",
            name=f"{workload.name}.{backend}.{metric}.{axis}",
            workload=workload.name,
            backend=backend,
            metric=metric,
            title=f"{name.capitalize()} against {AXES[axis]}",
            caption=(
                f"Median over {count} final seeds, with the band {band(count)}; a diverged run counts as "
                "worst, one that stopped keeps its last value. One panel an optimizer, the other methods in "
                "grey."
                + (
                    " Seconds: steps times the timed step, and those of the basis."
                    if axis == "charged_seconds"
                    else ""
                )
            ),
            alt=(
                f"{name.capitalize()} of {workload.name} on {backend} against {AXES[axis]} "
                f"(from {number(starts)} to {number(ends)}), one panel an optimizer. Median at the end: "
                + "; ".join(f"{method} {number(line['median'].item())}" for method, line in last.items())
                + "."
            ),
        )


def _starred(runs: pl.DataFrame, values: pl.DataFrame) -> pl.DataFrame:
    """The chosen rate of every method with the median of its final runs, whose values are given."""
    at = quartile_bands(values, ["method", "learning_rate"], "value")
    return chosen_rates(runs).select("method", "learning_rate").join(at, on=["method", "learning_rate"])


def _sensitivity(
    study: StudyPlan,
    workload: WorkloadPlan,
    backend: str,
    judged: tuple[str, str],
    methods: Sequence[str],
    rates: pl.DataFrame,
    chosen: pl.DataFrame,
    out: Path,
) -> Drawn:
    metric, which = judged
    direction = study.direction_of(metric)
    log_y = direction == "minimize" and fits_log(rates["lower_quartile"])
    name = f"{which} {metric_name(metric)}"
    headline = judged == (study.metric, study.which)
    lines = {method: rates.filter(pl.col("method") == method) for method in methods}
    with one_panel_each(methods, True, log_y) as (figure, panels):
        dashes = dashes_of(methods)
        limit_heights(panels, rates, "learning_rate", direction, log_y, chosen["median"])
        for optimizer, panel in panels.items():
            draw_lines(panel, optimizer, lines, "learning_rate", methods, marker="o")
            for method, line in lines.items():
                if method_parts(method)[0] != optimizer:
                    continue
                colour = ink_of(optimizer).light
                stars = chosen.filter(pl.col("method") == method)
                panel.plot(
                    floats(stars, "learning_rate"),
                    floats(stars, "median"),
                    "*",
                    color=colour,
                    markeredgecolor=TEXT.light,
                    markeredgewidth=0.6,
                    markersize=11,
                    zorder=5,
                )
                lost = line.filter(pl.col("diverged") > 0)
                row = list(dashes).index(method_parts(method)[1])
                panel.scatter(
                    floats(lost, "learning_rate"),
                    [0.96 - 0.07 * row] * len(lost),
                    s=[12 + 34 * share for share in lost["diverged"]],
                    marker="x",
                    color=colour,
                    linewidth=1.1,
                    transform=panel.get_xaxis_transform(),
                    clip_on=False,
                )
        label_axes(figure, panels, "learning rate", name, methods, tuning=True)
        seeds = int(as_float(rates["count"].max()))
        best = {
            method: rate.item() if len(rate) == 1 else None
            for method in methods
            for rate in [chosen.filter(pl.col("method") == method)["learning_rate"]]
        }
        return save(
            figure,
            out,
            kind="sensitivity",
            name=f"{workload.name}.{backend}.sensitivity{'' if headline else f'.{which}.{metric}'}",
            workload=workload.name,
            backend=backend,
            metric=metric,
            title=f"{name.capitalize()} against the learning rate",
            caption=(
                f"Median over up to {seeds} tuning seeds, with the band {band(seeds)}. ★: the rate chosen by "
                f"{f'the {study.criterion}' if study.criterion else 'tuning'}, which need not be where the "
                "curve is lowest, at the median of the final runs. ×: rates at which runs diverged, the "
                "larger the more of them; one line of crosses a basis, the identity on top."
            ),
            alt=(
                f"{name.capitalize()} of {workload.name} on {backend} against the learning rate "
                f"(from {rate_text(rates['learning_rate'].min())} to "
                f"{rate_text(rates['learning_rate'].max())}), one panel an optimizer. Chosen rate: "
                + "; ".join(f"{method} {rate_text(rate)}" for method, rate in best.items())
                + "."
            ),
        )


def _cost(
    study: StudyPlan,
    workload: WorkloadPlan,
    backend: str,
    methods: Sequence[str],
    seconds: pl.DataFrame,
    timings: pl.DataFrame,
    out: Path,
) -> Drawn:
    rows = {method: seconds.filter(pl.col("method") == method).row(0, named=True) for method in methods}
    longest = max(row["high"] for row in rows.values())
    unit, factor = ("s", 1.0) if longest >= 1 else ("ms", 1e3) if longest >= 1e-3 else ("µs", 1e6)
    null = timings.filter((pl.col("phase") == "null_step") & (pl.col("steps") > 0))
    null_step = (null["seconds"] / null["steps"]).median() if len(null) else None
    size = (PANEL[0] * COLUMNS * 0.82, 0.9 + 0.24 * len(methods))
    with styled(size, "constrained") as (figure, panel):
        for position, method in enumerate(methods):
            row, (optimizer, _) = rows[method], method_parts(method)
            middle = row["median"] * factor
            colour = ink_of(optimizer).light
            solid = method == optimizer
            panel.plot([0, middle], [position, position], color=colour, linewidth=1.6, alpha=0.35,
                       linestyle="-" if solid else (0, (4, 2)))  # fmt: skip
            panel.errorbar(
                middle,
                position,
                xerr=[[middle - row["low"] * factor], [row["high"] * factor - middle]],
                fmt="o",
                color=colour,
                markerfacecolor=colour if solid else "none",
                markersize=5.5,
                capsize=2.5,
                linewidth=1.2,
            )
        if null_step is not None:
            panel.axvline(as_float(null_step) * factor, color=MUTED.light, linewidth=1, linestyle=(0, (1, 2)))
        panel.set_yticks(range(len(methods)), methods)
        panel.invert_yaxis()
        panel.set_xlim(left=0)
        panel.grid(axis="y", visible=False)
        panel.set_xlabel(f"{unit} a step")
        repetitions = int(as_float(seconds["count"].max()))
        return save(
            figure,
            out,
            kind="cost",
            name=f"{workload.name}.{backend}.cost",
            workload=workload.name,
            backend=backend,
            metric="seconds",
            title="Seconds a step",
            caption=(
                f"Median and interval over {repetitions} interleaved repetitions of one run at a time; "
                "hollow and dashed: in a basis. "
                + ("Dotted: the gradient alone (a null optimizer)." if null_step is not None else "")
            ),
            alt=(
                f"Time of one step of {workload.name} on {backend}. "
                + "; ".join(
                    f"{method} {number(row['median'] * factor)} {unit}" for method, row in rows.items()
                )
                + "."
            ),
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
    with panels_of([method_parts(method)[0] for method in methods], log_x, log_y) as drawn:
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
            panel.set_title(name, color=ink_of(method_parts(name)[0]).light)
        yield figure, panels


def draw_lines(
    panel: Axes,
    optimizer: str,
    lines: Mapping[str, pl.DataFrame],
    axis: str,
    methods: Sequence[str],
    marker: str | None,
) -> None:
    """The methods of one optimizer: a median line in the basis' dashes, and its band."""
    import seaborn

    dashes, colour = dashes_of(methods), ink_of(optimizer).light
    for method, line in lines.items():
        name, basis = method_parts(method)
        if name != optimizer or not len(line):
            continue
        x = floats(line, axis)
        panel.fill_between(
            x, floats(line, "lower_quartile"), capped(line), color=colour, alpha=0.16, linewidth=0
        )
        seaborn.lineplot(
            x=x,
            y=floats(line, "median"),
            ax=panel,
            color=colour,
            linestyle=(0, dashes[basis]) if dashes[basis] else "-",
            linewidth=1.7,
            marker=marker,
            markersize=4,
            markeredgewidth=0,
            estimator=None,
            errorbar=None,
            legend=False,
        )


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


def label_axes(
    figure: Figure, panels: Mapping[str, Axes], x: str, y: str, methods: Sequence[str], tuning: bool = False
) -> None:
    """As `label_panels`, with the key of the bases' dashes."""
    from matplotlib.lines import Line2D

    handles = [
        Line2D(
            [],
            [],
            color=MUTED.light,
            linewidth=1.7,
            linestyle=(0, dash) if dash else "-",
            label=f"{basis} basis",
        )
        for basis, dash in dashes_of(methods).items()
    ]
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
    """Axis labels once a figure, and tick labels that need no mathematical markup."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    box = figure.subplotpars
    middle_x, middle_y = (box.left + box.right) / 2, (box.bottom + box.top) / 2
    width, height = figure.get_size_inches()
    figure.supxlabel(x, x=middle_x, y=0.08 / height, fontsize=9.5, color=TEXT.light)
    figure.supylabel(y, x=0.08 / width, y=middle_y, fontsize=9.5, color=TEXT.light)
    panels_list = list(panels.values())
    for panel in panels_list:
        panel.set(xlabel="", ylabel="")
        for axis in (panel.xaxis, panel.yaxis):
            if axis.get_scale() == "log":
                low, high = axis.get_view_interval()
                few = low <= 0 or math.log10(high / low) < 1.2
                axis.set_major_locator(LogLocator(subs=(1, 2, 5) if few else (1,), numticks=7))
                axis.set_major_formatter(FuncFormatter(power_of_ten))
                axis.set_minor_locator(NullLocator())
            else:
                axis.set_major_formatter(FuncFormatter(lambda value, _: plain(value)))
    for panel in panels_list[-min(COLUMNS, len(panels_list)) :]:
        panel.tick_params(labelbottom=True)


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
    svg = re.sub(r"<!DOCTYPE.*?>\s*", "", svg, count=1, flags=re.DOTALL)
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, count=1, flags=re.DOTALL)
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


def band(count: int) -> str:
    """What the band of a curve spans: of fewer than 4 values, the quartiles are the extremes."""
    return "between the quartiles" if count >= 4 else "from the least to the greatest"


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
