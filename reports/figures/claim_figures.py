"""Figures of property checks: what they draw of a source, and how much each measure takes of its limit."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from documents.plan import ChecksPlan, ClaimPlan
from reports.claims.page import PART
from reports.figures.palette import BLUE, MUTED, PAPER, TEXT, VERMILLION
from reports.figures.series import draw_series
from reports.figures.study_figures import (
    Axes,
    Drawn,
    evenly,
    figure_words,
    list_figures,
    plain_ticks,
    save,
    styled,
)

LEAST, MOST = 1e-6, 1e6  # of the axis; what is beyond is drawn at its edge
DOTS = 150  # a row, at most
LETTERS, HEAD_LETTERS = 46, 100  # of a line beside a row, and above the rows of a part
WIDTH, LABELS, LINE = 8.6, 3.3, 0.165  # of the figure, of the texts, and the height of a line; inches
MARGINS = (0.35, 0.55)  # top and bottom, inches
GOLDEN = (5**0.5 - 1) / 2


def draw_claims(plan: ChecksPlan, rows: pl.DataFrame, series: pl.DataFrame, out: Path) -> list[Drawn]:
    """Draw series and measures of every claim into a folder, and the list of figures as `figures.json`.

    Args:
        plan: the claims.
        rows: as `reports.claims.page.check_rows` gives them.
        series: as `reports.figures.series.series_rows` gives them.
        out: is made where it is missing.
    """
    out.mkdir(parents=True, exist_ok=True)
    drawn = []
    for claim in plan.claims:
        drawn += draw_series(claim.id, series.filter(pl.col("claim") == claim.id), out)
        own = rows.filter(pl.col("claim") == claim.id)
        if len(own):
            drawn.append(_draw(claim, own, out))
    list_figures(drawn, out)
    return drawn


def _draw(claim: ClaimPlan, rows: pl.DataFrame, out: Path) -> Drawn:
    groups = [
        (_label(part), part.partition_by("quantity", maintain_order=True))
        for part in rows.partition_by(PART, maintain_order=True)
    ]
    laid = list(_laid_out(groups))
    bottom_line = max(line.bottom for line in laid) + 0.05
    top, bottom = MARGINS
    height = top + bottom_line + bottom
    low, high = _limits(rows["share"])
    with styled((WIDTH, height), None) as (figure, panel):
        figure.subplots_adjust(
            left=LABELS / WIDTH, right=1 - 0.2 / WIDTH, bottom=bottom / height, top=1 - top / height
        )
        panel.set_xscale("log")
        panel.set_xlim(low, high)
        panel.axvline(1, color=TEXT.light, linewidth=1.2)
        for line in laid:
            if line.measures is not None:
                _row(panel, line.measures, (line.top + line.bottom) / 2, low, high)
                continue
            panel.annotate(
                line.text, (0, 1 - line.top / bottom_line), xycoords="axes fraction", ha="left", va="top",
                xytext=(-72 * (LABELS - 0.1), -2), textcoords="offset points", fontsize=9, color=TEXT.light,
                bbox={"facecolor": PAPER.light, "edgecolor": "none", "pad": 1}, zorder=5,
            )  # fmt: skip
        panel.annotate("the limit", (1, 1), xycoords=("data", "axes fraction"), xytext=(0, 3),
                       textcoords="offset points", ha="center", fontsize=8.5, color=TEXT.light)  # fmt: skip
        panel.set_ylim(bottom_line, 0)
        measured = [line for line in laid if line.measures is not None]
        plain_ticks(panel, 0.0)
        panel.set_yticks(
            [(line.top + line.bottom) / 2 for line in measured], [line.text for line in measured],
            fontsize=8, color=MUTED.light,
        )  # fmt: skip
        panel.grid(axis="y", visible=False)
        panel.set(xlabel="share of the limit (up to 1 holds, above 1 misses)", ylabel="")
        of = {"kind": "claim", "workload": claim.id, "backend": "host", "metric": "share"}
        facts = {
            "dots": DOTS,
            "thinned": any(len(measures) > DOTS for _, quantities in groups for measures in quantities),
            "beyond": not rows["share"].is_between(low, high).all(),
            "groups": groups,
        }
        return save(figure, out, claim.id, **of, **figure_words("measures", of | facts))


class FigureRow(NamedTuple):
    """A part's head, or a row of measures of one quantity; `top` and `bottom` in inches from above."""

    text: str
    top: float
    bottom: float
    measures: pl.DataFrame | None = None


def _laid_out(groups: Sequence[tuple[str, Sequence[pl.DataFrame]]]) -> Iterator[FigureRow]:
    """The lines of a figure from above: the head of each part, and below it its quantities."""
    top = 0.0
    for label, quantities in groups:
        text = textwrap.fill(label, HEAD_LETTERS)
        bottom = top + (text.count("\n") + 1) * LINE + 0.08
        yield FigureRow(text, top, bottom)
        for measures in quantities:
            top, text = bottom, textwrap.fill(measures["quantity"][0], LETTERS)
            bottom = top + max(2, text.count("\n") + 1) * LINE
            yield FigureRow(text, top, bottom, measures)
        top = bottom + 0.06


def _row(panel: Axes, measures: pl.DataFrame, middle: float, low: float, high: float) -> None:
    """The box and the dots of one quantity."""
    import seaborn

    shares = measures["share"].clip(low, high).to_numpy()
    lines = {"color": MUTED.light, "linewidth": 1}
    panel.boxplot(  # seaborn's asks matplotlib for it in a way that matplotlib has deprecated
        shares, positions=[middle], widths=0.2, orientation="horizontal", whis=(0, 100), manage_ticks=False,
        boxprops=lines, medianprops=lines, whiskerprops=lines, capprops=lines,
    )  # fmt: skip
    shown = evenly(measures.sort("share", maintain_order=True), DOTS)
    jittered = middle + 0.18 * ((np.arange(len(shown)) * GOLDEN) % 1 - 0.5)
    for holds, colour, marker, size in ((True, BLUE, "o", 12), (False, VERMILLION, "X", 20)):
        chosen = (shown["holds"] == holds).to_numpy()
        seaborn.scatterplot(
            x=shown["share"].clip(low, high).to_numpy()[chosen], y=jittered[chosen], ax=panel,
            color=colour.light, marker=marker, s=size, alpha=0.75, linewidth=0, legend=False, clip_on=False,
            zorder=4,
        )  # fmt: skip


def _label(part: pl.DataFrame) -> str:
    """What a part is called, with its variant."""
    name, variant = part["part"][0], part["variant"][0]
    return f"{name} ({variant})" if variant else name


def _limits(shares: pl.Series) -> tuple[float, float]:
    """The ends of the axis: all shares between the least and the most, and the limit among them."""
    seen = shares.clip(LEAST, MOST)
    least, most = min(float(seen.min()), 0.5), max(float(seen.max()), 2.0)  # type: ignore[arg-type]
    room = (most / least) ** 0.03
    return least / room, most * room
