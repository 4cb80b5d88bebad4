"""Which methods of a leaderboard differ: Friedman's test, mean ranks and their critical difference."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from documents.method import IDENTITY, Method
from reports.figures.drawing import Axes, Drawn, rendered, styled
from reports.figures.palette import PAPER, TEXT, Look, looks_of
from reports.formatting import number
from reports.statistics.friedman import (
    FriedmanTest,
    critical_difference,
    friedman_test,
    indifferent_groups,
    least_pairwise_p,
)
from results.verdicts import ALPHA

WIDTH, LETTER = 8.6, 0.076  # of the figure, and of a letter of a name; inches
LETTERS = 34  # of a name; longer ones are cut
ROW, ABOVE = 0.27, 0.75  # height of a name; of the axis and what is above it, inches
BAR = 0.13  # between two bars of a group, inches


@dataclass(frozen=True)
class Differences:
    """The methods of a board on the problem instances that all of them ran.

    Args:
        ranks: mean rank by method, the best first: over instances, each counting the same.
        friedman: whether ranks differ at all; an instance is a seed of a workload.
        critical: the difference of mean ranks from which on Nemenyi's test tells two methods apart.
        groups: the largest runs of methods in which it tells none from another.
        workloads: how many the instances are of.
        least_over_workloads: the smallest corrected p-value that tests of all pairs could give if there were
            one value a workload.
    """

    ranks: tuple[tuple[str, float], ...]
    friedman: FriedmanTest
    critical: float
    groups: tuple[tuple[str, ...], ...]
    workloads: int
    least_over_workloads: float


def rank_differences(ranks: pl.DataFrame) -> Differences | None:
    """Test the methods of a board; None for one method, or where no instance has them all.

    Args:
        ranks: columns stratum (the workload), seed, method, rank inside the instance, 1 being best.
    """
    methods = ranks["method"].n_unique()
    shared = ranks.filter(pl.len().over("stratum", "seed") == methods)
    if methods < 2 or shared.is_empty():
        return None
    means = tuple(shared.group_by("method").agg(pl.col("rank").mean()).sort("rank", "method").iter_rows())
    table = shared.pivot(on="method", index=["stratum", "seed"], values="rank").drop("stratum", "seed")
    test = friedman_test(table.to_numpy())
    critical = critical_difference(methods, test.instances, ALPHA)
    workloads = shared["stratum"].n_unique()
    return Differences(
        ranks=means,
        friedman=test,
        critical=critical,
        groups=tuple(indifferent_groups(means, critical)),
        workloads=workloads,
        least_over_workloads=least_pairwise_p(methods, workloads),
    )


def draw_differences(found: Differences, studies: str, backend: str) -> tuple[Drawn, str]:
    """The diagram of critical differences: its description, and its light variant as SVG.

    Mean ranks on an axis, the best on the left; a bar joins methods that do not differ (Demsar, Journal of
    Machine Learning Research 7, 2006, section 3.2.4).

    Args:
        studies: names of the board's studies, as readers see them.
    """
    count = len(found.ranks)
    half = (count + 1) // 2
    bars = 0.2 + BAR * len(found.groups)
    below = bars + ROW * half + 0.1
    height = ABOVE + below
    looks = looks_of([method for method, _ in found.ranks])
    with styled((WIDTH, height)) as (figure, ((panel,),)):
        longest = min(LETTERS, max(len(method) for method, _ in found.ranks))
        room = (0.6 + LETTER * longest) / WIDTH
        figure.subplots_adjust(left=room, right=1 - room, bottom=below / height, top=1 - 0.02 / height)
        panel.set(xlim=(1, count), ylim=(0, ABOVE), yticks=[])
        panel.grid(visible=False)
        for side in ("left", "bottom"):
            panel.spines[side].set_visible(False)
        panel.spines["top"].set(visible=True, position=("data", 0))
        panel.xaxis.tick_top()
        panel.tick_params(axis="x", direction="out", pad=5, length=3)
        panel.set_xticks(range(1, count + 1))
        _critical(panel, found.critical, count)
        for number_, group in enumerate(found.groups):
            of_group = [mean for method, mean in found.ranks if method in group]
            panel.plot(
                [min(of_group) - 0.06, max(of_group) + 0.06], [-0.16 - BAR * number_] * 2,
                color=TEXT.light, linewidth=3.2, solid_capstyle="butt", clip_on=False, zorder=3,
            )  # fmt: skip
        for place, (method, mean) in enumerate(found.ranks):
            on_left = place < half
            row = place if on_left else count - 1 - place
            down, edge = -(bars + ROW * (row + 0.5)), 1 if on_left else count
            _name(panel, method, looks[Method.of(method).optimizer], mean, down, edge, on_left)
        shown = {"kind": "ranks", "workload": studies, "backend": backend, "metric": "rank"}
        return rendered(figure, f"ranks.{backend}.{studies}", "ranks", {"found": found}, **shown)


def _critical(panel: Axes, critical: float, count: int) -> None:
    """The critical difference as a length above the axis, as far as it fits on it."""
    end = min(1 + critical, count)
    panel.errorbar(
        (1 + end) / 2, 0.42, xerr=(end - 1) / 2, color=TEXT.light, fmt="none", linewidth=1.4, capsize=3,
        clip_on=False,
    )  # fmt: skip
    beyond = ", longer than the axis" if 1 + critical > count else ""
    panel.annotate(
        f"critical difference {number(critical)}{beyond}", (1, 0.47), xytext=(0, 2),
        textcoords="offset points", fontsize=8.5, color=TEXT.light, annotation_clip=False,
    )  # fmt: skip


def _name(panel: Axes, method: str, look: Look, mean: float, down: float, edge: float, on_left: bool) -> None:
    """A method's mark on the axis, its name at the side, and the line between them."""
    basis = Method.of(method).basis
    colour, name = look.ink.light, f"{method[: LETTERS - 1]}…" if len(method) > LETTERS else method
    panel.plot([mean, mean, edge], [0, down, down], color=colour, linewidth=1.1, clip_on=False)
    panel.plot(
        mean, 0, look.mark, color=colour, markersize=6, markeredgewidth=1.5, clip_on=False, zorder=4,
        markerfacecolor=colour if basis == IDENTITY else PAPER.light,
    )  # fmt: skip
    panel.annotate(
        f"{name}  {number(mean)}" if on_left else f"{number(mean)}  {name}", (edge, down),
        xytext=(-5 if on_left else 5, 0), textcoords="offset points", ha="right" if on_left else "left",
        va="center", fontsize=9, color=colour, annotation_clip=False,
    )  # fmt: skip
