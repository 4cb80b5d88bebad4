"""Forest plots: the comparisons of a study's claims, with intervals and the ranges that claims accept.

A comparison has a treated method and a control, whose runs with the same seed are paired. Its effect is a
ratio or a difference; the claim accepts a range of median effects.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import NamedTuple

import numpy as np

from curvebench.reports.claims.comparison import ClaimComparison, comparisons
from curvebench.reports.claims.wording import requirement, say
from curvebench.reports.figures.drawing import Axes, Drawn, plain_ticks, save, styled
from curvebench.reports.figures.palette import GHOST, MUTED, PAPER, TEXT, Look, looks_of
from curvebench.reports.formatting import metric_name
from curvebench.reports.tables import Tables
from curvebench.spec.method import IDENTITY, Method
from curvebench.spec.plan import StudyPlan

LEAST, MOST = 1e-9, 1e9  # Limits of a logarithmic axis; values beyond a limit are drawn at the limit.
WIDTH, LABELS, LINE = 9.0, 3.1, 0.25  # Width of the figure, width of the texts, and height of a line; inches.
ABOVE, BELOW = 0.1, 0.62  # Margins above and below the lines of a panel, inches.
LETTERS = 125  # Maximum length of a heading, in letters.
# Label of the horizontal axis for quantities that are computed over learning rates.
OVER_RATES = {"trend": "Kendall's tau", "rates_won": "share of learning rates won less lost"}


class Panel(NamedTuple):
    """Comparisons that share an axis: all ratios, or the differences of one metric.

    Args:
        label: label of the horizontal axis.
        logarithmic: whether this axis is logarithmic.
        lines: lines of the panel from top to bottom. A line is a comparison, or a heading with the claimed
            relation of the comparisons below it.
    """

    label: str
    logarithmic: bool
    lines: list[str | ClaimComparison]

    @property
    def rows(self) -> list[ClaimComparison]:
        """Comparisons of the panel."""
        return [line for line in self.lines if isinstance(line, ClaimComparison)]


def draw_forests(study: StudyPlan, tables: Tables, out: Path) -> list[Drawn]:
    """Draw a figure for every claim of a study that has pairs of runs on the study's first backend.

    The figures depend on the runs of this study only. Therefore the figures show no corrected p-values and
    findings, which depend on the whole report, because a family of claims may span several studies.

    Args:
        out: folder of the figures; it is created if necessary.
    """
    out.mkdir(parents=True, exist_ok=True)
    backend = study.backends[0]
    return [
        _forest(claim.id, backend, compared, looks_of(study.methods), out)
        for claim in study.claims
        if (compared := [row for row in comparisons(study, claim, tables, backend) if len(row.gains)])
    ]


def _panels(compared: Sequence[ClaimComparison]) -> list[Panel]:
    """Divide comparisons into panels, with a heading above comparisons of the same metric, workload and
    claimed range.
    """
    panels: dict[tuple[str, str], Panel] = {}
    for row in compared:
        metric = f"{say('reading', row.condition)} {metric_name(row.condition.metric)}"
        ratios = row.effect == "ratio"
        named = OVER_RATES.get(row.condition.quantity, f"difference of the {metric}")
        label = "ratio of the two" if ratios else named
        panel = panels.setdefault((row.effect, "" if ratios else metric), Panel(label, ratios, []))
        head = f"{metric} on {row.key.workload}, claimed {requirement(row.effect, *row.accepted_range)}"
        heads = [line for line in panel.lines if isinstance(line, str)]
        panel.lines.extend([row] if head in heads[-1:] else [head, row])
    return list(panels.values())


def _forest(
    claim: str, backend: str, compared: Sequence[ClaimComparison], looks: Mapping[str, Look], out: Path
) -> Drawn:
    """Draw the panels of one claim below each other.

    Args:
        compared: comparisons of the claim.
        looks: colour and marker by optimizer.
    """
    panels = _panels(compared)
    heights = [len(panel.lines) * LINE for panel in panels]
    height = sum(heights) + len(panels) * (ABOVE + BELOW)
    with styled((WIDTH, height)) as figure:
        lower = height
        for panel, high in zip(panels, heights, strict=True):
            lower -= ABOVE + high
            box = (LABELS / WIDTH, lower / height, 1 - (LABELS + 0.25) / WIDTH, high / height)
            _panel(figure.add_axes(box), panel, looks)
            lower -= BELOW
        common = {"kind": "claim", "workload": claim, "backend": backend, "metric": "effect"}
        counts = [len(row.gains) for row in compared]
        facts = {
            "counts": (min(counts), max(counts)),
            "open": any(row.bounds.median is None for row in compared),
            "beyond": any(_beyond(row) for row in compared),
            "lines": [
                line if isinstance(line, str) else (_label(line), line.bounds)
                for panel in panels
                for line in panel.lines
            ],
        }
        return save(figure, out, f"{claim}.{backend}", "forest", facts, **common)


def _panel(axes: Axes, panel: Panel, looks: Mapping[str, Look]) -> None:
    """Draw the lines of a panel."""
    low, high = _limits(panel)
    axes.set_xscale("log" if panel.logarithmic else "linear")
    axes.set(xlim=(low, high), ylim=(len(panel.lines) - 0.5, -0.5), xlabel=panel.label, ylabel="")
    axes.axvline(1.0 if panel.logarithmic else 0.0, color=TEXT.light, linewidth=1)
    labels = {}
    for position, line in enumerate(panel.lines):
        if isinstance(line, str):
            axes.annotate(
                textwrap.shorten(line, LETTERS, placeholder="…"), (0, position), ha="left", va="center",
                xycoords=("axes fraction", "data"), xytext=(-72 * (LABELS - 0.1), 0),
                textcoords="offset points", fontsize=9, color=TEXT.light, zorder=5,
                bbox={"facecolor": PAPER.light, "edgecolor": "none", "pad": 1},
            )  # fmt: skip
        else:
            _row(axes, line, looks, position, low, high)
            labels[position] = textwrap.shorten(_label(line), 46, placeholder="…")
    plain_ticks(axes, 2.2)
    axes.set_yticks(list(labels), list(labels.values()), fontsize=8.5)
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_visible(False)


def _label(row: ClaimComparison) -> str:
    """Return the label of a comparison: both methods, or the method and the workload of the control."""
    sign = "/" if row.effect == "ratio" else "−"
    control = row.control if row.key.control != row.key.treated else f"on {row.key.control_workload}"
    return f"{row.key.treated} {sign} {control}"


def _row(
    axes: Axes, row: ClaimComparison, looks: Mapping[str, Look], y: int, low: float, high: float
) -> None:
    """Draw a comparison: the accepted range as a band, the confidence interval, and the estimate.

    An arrow marks an end of the interval that is outside of the axis.

    Args:
        row: the comparison.
        y: vertical position of the comparison's line.
        low, high: limits of the axis.
    """
    optimizer, basis = Method.of(row.key.treated)
    look, effect = looks[optimizer], row.bounds
    colour = look.ink.light
    band = [y - 0.44, y + 0.44]
    accepted = np.clip(row.accepted_range, low, high)
    axes.fill_betweenx(band, *accepted, color=GHOST.light, alpha=0.35, linewidth=0)
    for end in (end for end in row.accepted_range if low < end < high):
        axes.plot([end, end], band, color=MUTED.light, linewidth=1)
    ends = np.clip([effect.low, effect.high], low, high)
    axes.plot(ends, [y, y], color=colour, linewidth=1.8, zorder=3, clip_on=False)
    for edge, marker, leaves in ((low, "<", effect.low < low), (high, ">", effect.high > high)):
        if leaves:
            axes.plot(edge, y, marker=marker, color=colour, markersize=6, clip_on=False, zorder=4)
    # The median is not drawn if censoring leaves it unknown, or if it is outside of the axis.
    if effect.median is not None and low <= effect.median <= high:
        inside = colour if basis == IDENTITY else PAPER.light
        axes.plot(
            effect.median, y, marker=look.mark, color=colour, markerfacecolor=inside, markersize=6.5,
            markeredgewidth=1.6, clip_on=False, zorder=5,
        )  # fmt: skip


def _limits(panel: Panel) -> tuple[float, float]:
    """Return the limits of a panel's axis.

    The limits include the position of no effect, the accepted ranges, and all finite ends of intervals.
    """
    values = [1.0 if panel.logarithmic else 0.0]
    for row in panel.rows:
        effect = row.bounds
        values += [*row.accepted_range, effect.floor.median, effect.ceiling.median, effect.low, effect.high]
    if panel.logarithmic:
        values = [value for value in values if LEAST <= value <= MOST]
        room = max((max(values) / min(values)) ** 0.06, 1.05)
        return min(values) / room, max(values) * room
    values = [value for value in values if isfinite(value)]
    room = 0.06 * (max(values) - min(values)) or 1.0
    return min(values) - room, max(values) + room


def _beyond(row: ClaimComparison) -> bool:
    """Return whether the confidence interval of a comparison exceeds the largest possible axis."""
    effect = row.bounds
    if row.effect == "ratio":
        return effect.low < LEAST or effect.high > MOST
    return not (isfinite(effect.low) and isfinite(effect.high))
