"""Figures of a board: the share of targets reached over gradient evaluations, and profiles of one target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from curvebench.reports.boards.leaderboard import Board, Studies
from curvebench.reports.boards.runtimes import POINTS, Runtimes, board_runtimes
from curvebench.reports.figures import drawing
from curvebench.reports.figures.drawing import Axes, Drawn, Figure
from curvebench.reports.figures.palette import GHOST, MUTED, TEXT, Look, dashes_of, looks_of
from curvebench.reports.statistics import anytime
from curvebench.reports.statistics.anytime import SHARES_LEFT, Bands, Floats
from curvebench.reports.statistics.ranks import LEAST_SEEDS
from curvebench.spec.method import Method

COLOURED, HIGHEST = 6, 3  # methods in colour, the best by area, and of them those that end highest
PROFILED = 19  # the place of the target of profiles, which leaves 0.01 of the way
WIDE, PROFILE = (5.4, 3.1), (2.45, 2.2)  # width and height of panels, inches; the first is higher for many
APART = 0.22  # between panels of profiles, as a share of one
MARKS = 0.15  # between two marks of a line, as a share of it
LABELS = 2.1  # width of the names beside a panel, inches
LINE = 0.16  # height of a name, inches
ABOVE = 0.1  # a panel that has no key, inches
RATIOS = (4.0, 64.0)  # to the fastest: the axis ends at the greatest there is, but between these
DATA, PERFORMANCE, LOG_RATIO = "data profile", "performance profile", "log-ratio profile (log₂)"
ALONG = {  # what is along the axis of each
    DATA: "evaluations / steps of the budget",
    PERFORMANCE: "evaluations / fewest of any method",
    LOG_RATIO: "instances, sorted",
}


@dataclass(frozen=True)
class Shown:
    """A board's times, its methods in colour by their places, and how these look."""

    times: Runtimes
    bands: Bands
    places: tuple[int, ...]
    looks: Mapping[str, Look]

    def draw(self, panel: Axes, at: Floats, low: Floats, middle: Floats, high: Floats) -> None:
        """Each method's line, with its band if it is in colour; shape of the last three (methods, points)."""
        dashes = dashes_of(self.times.methods)
        for place, method in enumerate(self.times.methods):
            if place not in self.places:
                panel.plot(at, middle[place], color=GHOST.light, linewidth=0.9, zorder=1.5)
                continue
            optimizer, basis = Method.of(method)
            line = {"lower_quartile": low[place], "median": middle[place], "upper_quartile": high[place]}
            drawing.draw_line(
                panel, self.looks[optimizer], pl.DataFrame({"at": at, **line}), "at", dashes[basis], MARKS
            )

    def ink(self, place: int) -> str:
        """The colour of a method."""
        return self.looks[Method.of(self.times.methods[place]).optimizer].ink.light


@dataclass(frozen=True)
class Anytime:
    """A board's times to targets, and the figures of them."""

    times: Runtimes
    figures: tuple[Drawn, ...]


def anytime_of(boards: Sequence[Board], studies: Studies, out: Path) -> list[Anytime | None]:
    """Draw the figures of boards into a folder; None for a board on which no method gets anywhere.

    Those of one problem are on its study's page, and other backends than the first repeat its instances:
    None for such boards too. Which studies share a board, and which versions of them, is known when a site
    is rendered and not before.

    Args:
        out: is made where it is missing.

    Raises:
        InputError: when a table of curves is missing or damaged.
    """
    out.mkdir(parents=True, exist_ok=True)
    found: list[Anytime | None] = []
    for board in boards:
        leads = board.backend == board.columns[0].study.backends[0] and len(board.columns) > 1
        times = board_runtimes(board, studies) if leads else None
        name = f"{board.backend}.{board.studies[0]}"
        found.append(Anytime(times, tuple(draw_board(times, board.backend, name, out))) if times else None)
    return found


def draw_board(found: Runtimes, backend: str, name: str, out: Path) -> list[Drawn]:
    """Draw a board's two figures; of one method, or where none reaches the profiles' target, the first alone.

    Args:
        name: begins the names of the files.
        out: a folder that is there.
    """
    words = {"backend": backend, "workload": name, "metric": "targets", "kind": "anytime"}
    bands = found.bands
    last = np.argsort(-bands.share[:, -1], kind="stable")
    first = dict.fromkeys([*map(int, last[:HIGHEST]), *range(len(last))])
    places = tuple(sorted(list(first)[:COLOURED]))
    shown = Shown(found, bands, places, looks_of([found.methods[place] for place in places]))
    return [_reached(shown, out, words), *_profiles(shown, out, words)]


def _reached(shown: Shown, out: Path, words: Mapping[str, str]) -> Drawn:
    found, bands, at = shown.times, shown.bands, shown.times.at
    banded = found.seeds >= LEAST_SEEDS
    low, high = (bands.low, bands.high) if banded else (bands.share, bands.share)
    size = WIDE[0], max(WIDE[1], LINE * len(found.methods))
    with drawing.panel_grid([""], "x", size) as grid:
        panel = grid.panels[""]
        shown.draw(panel, at, low, bands.share, high)
        panel.set(xlim=(at[0], at[-1]), ylim=(0, 1))
        _name_lines(grid.figure, panel, shown)
        grid.label("gradient evaluations, basis included", "share of targets reached")
        ends = zip(found.methods, bands.share[:, -1], low[:, -1], high[:, -1], strict=True)
        facts = {"ends": list(ends), "banded": banded, "greyed": len(found.methods) > len(shown.places),
                 "highest": HIGHEST, "targets": len(SHARES_LEFT), "seeds": found.seeds,
                 "least": SHARES_LEFT[-1], "problems": len(set(found.problem)),
                 "start": at[0], "end": at[-1]}  # fmt: skip
        return drawing.save(grid.figure, out, f"{words['workload']}.reached", "reached", facts, **words)


def _name_lines(figure: Figure, panel: Axes, shown: Shown) -> None:
    """Each method's name and last share beside its line's end, as far apart as names are high."""
    width, height = figure.get_size_inches()
    figure.set_size_inches(width + LABELS, height)
    share, top = width / (width + LABELS), 1 - ABOVE / height
    figure.subplots_adjust(
        left=figure.subplotpars.left * share, right=figure.subplotpars.right * share, top=top
    )
    ends = shown.bands.share[:, -1]
    named = np.argsort(ends, kind="stable")
    places = spaced(ends[named], LINE / (height * (top - figure.subplotpars.bottom)))
    for place, at in zip(named, places, strict=True):
        coloured = place in shown.places
        line = shown.ink(place) if coloured else GHOST.light
        panel.plot([1.0, 1.03], [ends[place], at], transform=panel.transAxes, color=line, linewidth=0.8,
                   clip_on=False)  # fmt: skip
        panel.text(1.04, at, f"{shown.times.methods[place]}: {ends[place]:.2f}", transform=panel.transAxes,
                   color=TEXT.light if coloured else MUTED.light, fontsize=8.5, va="center")  # fmt: skip


def spaced(heights: Floats, distance: float) -> Floats:
    """Heights in their order, moved up, or down from 1, as far as they must to be at that distance.

    Args:
        heights: increasing, at most 1, shape (names,).
    """
    steps = distance * np.arange(len(heights))
    up = np.maximum.accumulate(heights - steps) + steps
    room = 1.0 - steps[::-1]  # that those above leave
    return np.asarray(np.minimum(up, room))


def _profiles(shown: Shown, out: Path, words: Mapping[str, str]) -> Sequence[Drawn]:
    """Data and performance profiles, and the log-ratio profile of two methods, at one target.

    The two: that with the greatest area, and that which ends highest, or the second.
    """
    found, work = shown.times, shown.times.times[:, :, PROFILED]
    if len(work) < 2 or not np.isfinite(work).any():
        return []
    first, second = pair = 0, int(shown.bands.share[:, -1].argmax()) or 1
    both = np.isfinite(work[first]) & np.isfinite(work[second])
    met = bool((work[first] != work[second])[both].any())
    facts = {"left": SHARES_LEFT[PROFILED], "pair": [found.methods[place] for place in pair] if met else [],
             "instances": work.shape[1], "sooner": int((work[first] < work[second]).sum()),
             "later": int((work[first] > work[second]).sum()),
             "solved": list(zip(found.methods, np.isfinite(work).mean(axis=1), strict=True))}  # fmt: skip
    with drawing.panel_grid(list(ALONG)[: 2 + met], "", PROFILE, sharex=False, sharey=False) as grid:
        grid.figure.subplots_adjust(wspace=APART)
        _steps(grid.panels[DATA], shown, work / found.budgets)
        _steps(grid.panels[PERFORMANCE], shown, anytime.performance_ratios(work), *RATIOS)
        if met:
            _log_ratio(
                grid.panels[LOG_RATIO], shown, pair, anytime.log_ratio_profile(work[first], work[second])
            )
        grid.draw_key(_keys(shown))
        grid.label("", "share of instances")
        for title, panel in grid.panels.items():
            panel.text(0.5, -0.16, ALONG[title], transform=panel.transAxes, color=TEXT.light, fontsize=9,
                       ha="center", va="top")  # fmt: skip
        return [drawing.save(grid.figure, out, f"{words['workload']}.profiles", "profiles", facts, **words)]


def _steps(panel: Axes, shown: Shown, costs: Floats, least: float = 0.0, most: float = np.inf) -> None:
    """The share of instances within each cost, on an axis that ends between two costs."""
    finite = costs[np.isfinite(costs)]
    at = np.geomspace(finite.min() * (1 if least else 0.7), np.clip(finite.max() * 1.4, least, most), POINTS)
    shares = anytime.share_reached(costs[:, :, None], at)
    panel.set(xscale="log", xlim=(at[0], at[-1]), ylim=(0, 1.02))
    shown.draw(panel, at, shares, shares, shares)


def _log_ratio(panel: Axes, shown: Shown, pair: tuple[int, int], ratios: Floats) -> None:
    """Bars in the colour of the method that is sooner."""
    edges, edge = np.arange(len(ratios) + 1) + 0.5, float(np.abs(ratios).max())
    for place, sign in zip(pair, (-1, 1), strict=True):
        own = np.where(np.sign(ratios) == sign, ratios, 0.0)
        style = {"alpha": 0.75, "linewidth": 0, "hatch": "///" if sign > 0 else ""}
        panel.stairs(own, edges, fill=True, color=shown.ink(place), **style)
    panel.set(xlim=(0.5, len(ratios) + 0.5), ylim=(-1.05 * edge, 1.05 * edge))
    panel.axhline(0, color=MUTED.light, linewidth=0.8)


def _keys(shown: Shown) -> list[object]:
    """A line of the key for each method in colour."""
    methods = [Method.of(shown.times.methods[place]) for place in shown.places]
    dashes = dashes_of(shown.times.methods)
    looks = {method.label: shown.looks[method.optimizer] for method in methods}
    return drawing.optimizer_keys(looks, {method.label: dashes[method.basis] for method in methods})
