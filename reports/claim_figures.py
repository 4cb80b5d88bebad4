"""Figures of property checks: one a claim, a row a part, how much each measure takes of its limit."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from reports.claims import PART
from reports.figures import MANIFEST, Drawn, save, styled
from reports.formatting import number, power_of_ten, ratio
from reports.palette import BLUE, MUTED, TEXT, VERMILLION
from reports.plan import ChecksPlan, ClaimPlan

LEAST, MOST = 1e-6, 1e6  # of the axis; what is beyond is drawn at its edge
DOTS = 150  # a row, at most
LETTERS = 46  # of a line beside a row
WIDTH, LABELS, LINE = 8.6, 3.45, 0.165  # of the figure, of the texts, and the height of a line; inches
MARGINS = (0.4, 0.55)  # top and bottom, inches
GOLDEN = (5**0.5 - 1) / 2


def draw_claims(plan: ChecksPlan, rows: pl.DataFrame, out: Path) -> list[Drawn]:
    """Draw the measures of every claim into a folder, and the list of figures as `figures.json`.

    Args:
        plan: the claims.
        rows: as `reports.claims.check_rows` gives them.
        out: is made where it is missing.
    """
    out.mkdir(parents=True, exist_ok=True)
    drawn = [
        _draw(claim, own, out)
        for claim in plan.claims
        for own in [rows.filter(pl.col("claim") == claim.id)]
        if len(own)
    ]
    manifest = json.dumps([asdict(figure) for figure in drawn], indent=1, ensure_ascii=False)
    (out / MANIFEST).write_text(manifest + "\n")
    return drawn


def _draw(claim: ClaimPlan, rows: pl.DataFrame, out: Path) -> Drawn:
    import seaborn
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    parts = rows.partition_by(PART, maintain_order=True)
    labels = [_label(part) for part in parts]
    spans = [max(2, label.count("\n") + 1) * LINE + 0.12 for label in labels]
    middles = np.cumsum(spans) - np.array(spans) / 2
    top, bottom = MARGINS
    height = top + sum(spans) + bottom
    low, high = _limits(rows["share"])
    with styled((WIDTH, height), None) as (figure, panel):
        figure.subplots_adjust(
            left=LABELS / WIDTH, right=1 - 0.2 / WIDTH, bottom=bottom / height, top=1 - top / height
        )
        panel.set_xscale("log")
        panel.set_xlim(low, high)
        for part, middle in zip(parts, middles, strict=True):
            shares = part["share"].clip(low, high).to_numpy()
            seaborn.boxplot(
                x=shares, y=np.full(len(shares), middle), ax=panel, orient="y", native_scale=True, width=0.22,
                whis=(0, 100), fill=False, color=MUTED.light, linewidth=1, legend=False,
            )  # fmt: skip
            shown = _thinned(part.sort("share"))
            place = np.arange(len(shown))
            beside = middle + 0.2 * ((place * GOLDEN) % 1 - 0.5)
            for holds, colour, marker in ((True, BLUE, "o"), (False, VERMILLION, "X")):
                chosen = (shown["holds"] == holds).to_numpy()
                seaborn.scatterplot(
                    x=shown["share"].clip(low, high).to_numpy()[chosen], y=beside[chosen], ax=panel,
                    color=colour.light, marker=marker, s=14 if holds else 22, alpha=0.75, linewidth=0,
                    legend=False, clip_on=False, zorder=4,
                )  # fmt: skip
        panel.axvline(1, color=TEXT.light, linewidth=1.2)
        panel.annotate("the limit", (1, 1), xycoords=("data", "axes fraction"), xytext=(0, 3),
                       textcoords="offset points", ha="center", fontsize=8.5, color=TEXT.light)  # fmt: skip
        panel.set_ylim(sum(spans), 0)
        panel.set_yticks(middles, labels, fontsize=8.5, color=TEXT.light)
        panel.grid(axis="y", visible=False)
        panel.set(xlabel="share of the limit (below 1 holds, above 1 misses)", ylabel="")
        panel.xaxis.set_major_locator(LogLocator(numticks=9))
        panel.xaxis.set_major_formatter(FuncFormatter(power_of_ten))
        panel.xaxis.set_minor_locator(NullLocator())
        return save(
            figure,
            out,
            name=claim.id,
            kind="claim",
            workload=claim.id,
            backend="host",
            metric="share",
            title="Measures against their limits",
            caption=_caption(rows, parts, low, high),
            alt=f"How much of its limit each measure of {claim.id} takes, a row a part. "
            + " ".join(_told(part) for part in parts),
        )


def _label(part: pl.DataFrame) -> str:
    name, variant = part["part"][0], part["variant"][0]
    return textwrap.fill(f"{name} ({variant})" if variant else name, LETTERS)


def _limits(shares: pl.Series) -> tuple[float, float]:
    """The ends of the axis: all shares between the least and the most, and the limit among them."""
    seen = shares.clip(LEAST, MOST)
    least, most = min(float(seen.min()), 0.5), max(float(seen.max()), 2.0)  # type: ignore[arg-type]
    room = (most / least) ** 0.03
    return least / room, most * room


def _thinned(part: pl.DataFrame) -> pl.DataFrame:
    """At most `DOTS` of a part's measures in order of their shares, evenly, both ends among them."""
    if len(part) <= DOTS:
        return part
    return part[np.linspace(0, len(part) - 1, DOTS).round().astype(int)]


def _caption(rows: pl.DataFrame, parts: Sequence[pl.DataFrame], low: float, high: float) -> str:
    said = ["How much each measure takes of what the claim allows; ×: it misses."]
    said.append("Boxes: the quartiles, with lines to the least and the greatest.")
    if max(map(len, parts)) > DOTS:
        said.append(f"Of more than {DOTS} measures, {DOTS} are drawn, evenly by rank.")
    if float(rows["share"].min()) < low or float(rows["share"].max()) > high:  # type: ignore[arg-type]
        said.append("At an edge lies what is beyond it, 0 among that.")
    return " ".join(said)


def _told(part: pl.DataFrame) -> str:
    """A row in words."""
    middle: Any = part["share"].median()
    missed = len(part) - part["holds"].sum()
    name = _label(part).replace("\n", " ")
    return (
        f"{name}: median {number(middle)}, worst {ratio(part['share'].max())}, "
        f"{missed} of {len(part)} measures miss."
    )
