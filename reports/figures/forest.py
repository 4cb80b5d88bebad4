"""Forest plots: the comparisons of a study's claims, each with its interval and what the claim allows."""

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

LEAST, MOST = 1e-9, 1e9  # of a logarithmic axis; what is beyond is drawn at its edge
WIDTH, LABELS, LINE = 9.0, 3.1, 0.25  # of the figure, of texts, and the height of a line; inches
ABOVE, BELOW = 0.1, 0.62  # of the lines of a panel, inches
LETTERS = 125  # of a head
OVER_RATES = {"trend": "Kendall's tau", "rates_won": "share of learning rates won less lost"}  # of an axis


class Panel(NamedTuple):
    """The comparisons that share an axis: all ratios, or the differences of one metric.

    Args:
        label: of the axis.
        lines: from above, comparisons and the heads that say what is claimed of those below them.
    """

    label: str
    logarithmic: bool
    lines: list[str | ClaimComparison]

    @property
    def rows(self) -> list[ClaimComparison]:
        """The comparisons."""
        return [line for line in self.lines if isinstance(line, ClaimComparison)]


def draw_forests(study: StudyPlan, tables: Tables, out: Path) -> list[Drawn]:
    """Draw the comparisons of every claim of a study on its first backend, where there are pairs.

    What is drawn rests on this study's runs alone. Corrected p-values and findings are not drawn: a family
    may span studies, so that only the whole report knows them.

    Args:
        out: is made where it is missing.
    """
    out.mkdir(parents=True, exist_ok=True)
    backend = study.backends[0]
    return [
        _forest(claim.id, backend, compared, looks_of(study.methods), out)
        for claim in study.claims
        if (compared := [one for one in comparisons(study, claim, tables, backend) if len(one.gains)])
    ]


def _panels(compared: Sequence[ClaimComparison]) -> list[Panel]:
    found: dict[tuple[str, str], Panel] = {}
    for one in compared:
        metric = f"{say('reading', one.condition)} {metric_name(one.condition.metric)}"
        ratios = one.effect == "ratio"
        named = OVER_RATES.get(one.condition.quantity, f"difference of the {metric}")
        label = "ratio of the two" if ratios else named
        panel = found.setdefault((one.effect, "" if ratios else metric), Panel(label, ratios, []))
        head = f"{metric} on {one.key.workload}, claimed {requirement(one.effect, *one.accepted_range)}"
        heads = [line for line in panel.lines if isinstance(line, str)]
        panel.lines.extend([one] if head in heads[-1:] else [head, one])
    return list(found.values())


def _forest(
    claim: str, backend: str, compared: Sequence[ClaimComparison], looks: Mapping[str, Look], out: Path
) -> Drawn:
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
        shown = {"kind": "claim", "workload": claim, "backend": backend, "metric": "effect"}
        counts = [len(one.gains) for one in compared]
        facts = {
            "counts": (min(counts), max(counts)),
            "open": any(one.bounds.median is None for one in compared),
            "beyond": any(_beyond(one) for one in compared),
            "lines": [
                line if isinstance(line, str) else (_label(line), line.bounds)
                for panel in panels
                for line in panel.lines
            ],
        }
        return save(figure, out, f"{claim}.{backend}", "forest", facts, **shown)


def _panel(axes: Axes, panel: Panel, looks: Mapping[str, Look]) -> None:
    low, high = _limits(panel)
    axes.set_xscale("log" if panel.logarithmic else "linear")
    axes.set(xlim=(low, high), ylim=(len(panel.lines) - 0.5, -0.5), xlabel=panel.label, ylabel="")
    axes.axvline(1.0 if panel.logarithmic else 0.0, color=TEXT.light, linewidth=1)
    labels = {}
    for place, line in enumerate(panel.lines):
        if isinstance(line, str):
            axes.annotate(
                textwrap.shorten(line, LETTERS, placeholder="…"), (0, place), ha="left", va="center",
                xycoords=("axes fraction", "data"), xytext=(-72 * (LABELS - 0.1), 0),
                textcoords="offset points", fontsize=9, color=TEXT.light, zorder=5,
                bbox={"facecolor": PAPER.light, "edgecolor": "none", "pad": 1},
            )  # fmt: skip
        else:
            _row(axes, line, looks, place, low, high)
            labels[place] = textwrap.shorten(_label(line), 46, placeholder="…")
    plain_ticks(axes, 2.2)
    axes.set_yticks(list(labels), list(labels.values()), fontsize=8.5)
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_visible(False)


def _label(one: ClaimComparison) -> str:
    """What a row compares, short where it is a method with itself on another workload."""
    sign = "/" if one.effect == "ratio" else "−"
    control = one.control if one.key.control != one.key.treated else f"on {one.key.control_workload}"
    return f"{one.key.treated} {sign} {control}"


def _row(
    axes: Axes, one: ClaimComparison, looks: Mapping[str, Look], place: int, low: float, high: float
) -> None:
    """What the claim allows as a band, the interval, and the estimate; an arrow where it leaves the axis."""
    optimizer, basis = Method.of(one.key.treated)
    look, effect = looks[optimizer], one.bounds
    colour = look.ink.light
    band = [place - 0.44, place + 0.44]
    axes.fill_betweenx(
        band, *np.clip(one.accepted_range, low, high), color=GHOST.light, alpha=0.35, linewidth=0
    )
    for end in (end for end in one.accepted_range if low < end < high):
        axes.plot([end, end], band, color=MUTED.light, linewidth=1)
    ends = np.clip([effect.low, effect.high], low, high)
    axes.plot(ends, [place, place], color=colour, linewidth=1.8, zorder=3, clip_on=False)
    for edge, marker, leaves in ((low, "<", effect.low < low), (high, ">", effect.high > high)):
        if leaves:
            axes.plot(edge, place, marker=marker, color=colour, markersize=6, clip_on=False, zorder=4)
    # Runs that stopped may leave open where in its interval the median lies; an arrow stands for one beyond.
    if effect.median is not None and low <= effect.median <= high:
        inside = colour if basis == IDENTITY else PAPER.light
        axes.plot(
            effect.median, place, marker=look.mark, color=colour, markerfacecolor=inside, markersize=6.5,
            markeredgewidth=1.6, clip_on=False, zorder=5,
        )  # fmt: skip


def _limits(panel: Panel) -> tuple[float, float]:
    """The ends of the axis: the null, all that is allowed and all that was found, as far as it is finite."""
    seen = [1.0 if panel.logarithmic else 0.0]
    for one in panel.rows:
        effect = one.bounds
        seen += [*one.accepted_range, effect.floor.median, effect.ceiling.median, effect.low, effect.high]
    if panel.logarithmic:
        seen = [value for value in seen if LEAST <= value <= MOST]
        room = max((max(seen) / min(seen)) ** 0.06, 1.05)
        return min(seen) / room, max(seen) * room
    seen = [value for value in seen if isfinite(value)]
    room = 0.06 * (max(seen) - min(seen)) or 1.0
    return min(seen) - room, max(seen) + room


def _beyond(one: ClaimComparison) -> bool:
    effect = one.bounds
    if one.effect == "ratio":
        return effect.low < LEAST or effect.high > MOST
    return not (isfinite(effect.low) and isfinite(effect.high))
