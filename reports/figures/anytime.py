"""Figures of a board: the shares of targets that methods have reached, and profiles of methods at one target.

A board compares methods that ran on the same problems. For each problem and seed (an instance), targets lie
between the start value and the best value that any method reached. A profile shows for one target the share
of instances that a method has solved within a cost. The area of a method is the area under its line of
shares.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from curvebench.reports.boards.leaderboard import Board
from curvebench.reports.boards.runtimes import POINTS, Runtimes
from curvebench.reports.figures import drawing
from curvebench.reports.figures.drawing import Axes, Drawn, Figure
from curvebench.reports.figures.palette import GHOST, MUTED, TEXT, Look, dashes_of, looks_of
from curvebench.reports.statistics import anytime
from curvebench.reports.statistics.anytime import SHARES_LEFT, Bands, Floats
from curvebench.reports.statistics.ranks import MIN_SEEDS
from curvebench.spec.method import Method

# Only COLOURED methods are drawn in colour; all other methods are grey.
# The HIGHEST methods with the largest final shares of targets are among the methods in colour.
# The other methods in colour are the methods with the largest areas.
COLOURED, HIGHEST = 6, 3
# Index of the target of the profiles, at which 0.01 of the distance from start to best value remains.
PROFILED = 19
# Width and height, inches, of the panel with shares of targets, and of the panel of a profile.
# The panel with shares is higher if there are many methods.
WIDE, PROFILE = (5.4, 3.1), (2.45, 2.2)
APART = 0.22  # Distance between panels of profiles, as a share of a panel's width.
MARKS = 0.15  # Distance between two markers of a line, as a share of the line's length.
LABELS = 2.1  # Width of the names beside a panel, inches.
LINE = 0.16  # Height of a name, inches.
ABOVE = 0.1  # Margin above a panel without a legend, inches.
# Lower and upper limit of the ratio at which the horizontal axis of a performance profile ends.
# Between the lower and the upper limit, the axis ends at the largest ratio in the profile.
RATIOS = (4.0, 64.0)
DATA, PERFORMANCE, LOG_RATIO = "data profile", "performance profile", "log-ratio profile (log₂)"
ALONG = {  # Label of the horizontal axis of each profile.
    DATA: "evaluations / steps of the budget",
    PERFORMANCE: "evaluations / fewest of any method",
    LOG_RATIO: "instances, sorted",
}


@dataclass(frozen=True)
class Shown:
    """Times to the targets of a board, and the methods that are drawn in colour.

    Args:
        times: times of all methods.
        bands: shares of targets reached by each method.
        places: indices of the methods in colour.
        looks: colour and marker by optimizer.
    """

    times: Runtimes
    bands: Bands
    places: tuple[int, ...]
    looks: Mapping[str, Look]

    def draw(self, panel: Axes, at: Floats, low: Floats, middle: Floats, high: Floats) -> None:
        """Draw the line of each method: in colour and with a band, or in grey and without a band.

        Args:
            at: horizontal positions, shape (points,).
            low, middle, high: lower end of the band, line, and upper end of the band, shape (methods,
                points).
        """
        dashes = dashes_of(self.times.methods)
        for index, method in enumerate(self.times.methods):
            if index not in self.places:
                panel.plot(at, middle[index], color=GHOST.light, linewidth=0.9, zorder=1.5)
                continue
            optimizer, basis = Method.of(method)
            ends = {"lower_quartile": low[index], "median": middle[index], "upper_quartile": high[index]}
            line, look = pl.DataFrame({"at": at, **ends}), self.looks[optimizer]
            drawing.draw_line(panel, look, line, "at", dashes[basis], markevery=MARKS)

    def ink(self, index: int) -> str:
        """Return the colour of the method with this index."""
        return self.looks[Method.of(self.times.methods[index]).optimizer].ink.light


@dataclass(frozen=True)
class Anytime:
    """Times at which the methods of a board reached their targets, and the figures that show them."""

    times: Runtimes
    figures: tuple[Drawn, ...]


def anytime_of(boards: Sequence[Board], out: Path) -> list[Anytime | None]:
    """Draw the figures of boards into a folder.

    A board has no figures if no method reaches a target, if the board has a single problem (the page of the
    problem's study then has the figures), or if its backend is not the first backend of its study (other
    backends repeat the same instances). These figures are drawn while a site is rendered, because only then
    it is known which versions of which studies share a board.

    Args:
        boards: the boards.
        out: folder of the figures; it is created if necessary.

    Returns:
        The times and figures of each board; None for a board without figures.
    """
    out.mkdir(parents=True, exist_ok=True)
    drawings: list[Anytime | None] = []
    for board in boards:
        leads = board.backend == board.columns[0].study.backends[0] and len(board.columns) > 1
        times = board.times if leads else None
        name = ".".join(filter(None, [board.backend, board.studies[0], board.group]))
        drawings.append(Anytime(times, tuple(draw_board(times, board.backend, name, out))) if times else None)
    return drawings


def draw_board(times: Runtimes, backend: str, name: str, out: Path) -> list[Drawn]:
    """Draw the figures of a board: the shares of targets that methods have reached, and profiles.

    The profiles are about the target with the index `PROFILED`. They are left out if there is a single
    method, or if no method reaches this target.

    Args:
        times: times to the targets.
        backend: backend of the board.
        name: prefix of the file names.
        out: an existing folder.
    """
    words = {"backend": backend, "workload": name, "metric": "targets", "kind": "anytime"}
    bands = times.bands
    last = np.argsort(-bands.share[:, -1], kind="stable")
    first = dict.fromkeys([*map(int, last[:HIGHEST]), *range(len(last))])
    indices = tuple(sorted(list(first)[:COLOURED]))
    board = Shown(times, bands, indices, looks_of([times.methods[index] for index in indices]))
    return [_reached(board, out, words), *_profiles(board, out, words)]


def _reached(board: Shown, out: Path, words: Mapping[str, str]) -> Drawn:
    """Draw the share of targets that each method has reached, against gradient evaluations."""
    times, bands, at = board.times, board.bands, board.times.at
    banded = times.seeds >= MIN_SEEDS
    low, high = (bands.low, bands.high) if banded else (bands.share, bands.share)
    size = WIDE[0], max(WIDE[1], LINE * len(times.methods))
    with drawing.panel_grid([""], "x", size) as grid:
        panel = grid.panels[""]
        board.draw(panel, at, low, bands.share, high)
        panel.set(xlim=(at[0], at[-1]), ylim=(0, 1))
        _name_lines(grid.figure, panel, board)
        grid.label("gradient evaluations, basis included", "share of targets reached")
        ends = zip(times.methods, bands.share[:, -1], low[:, -1], high[:, -1], strict=True)
        facts = {"ends": list(ends), "banded": banded, "greyed": len(times.methods) > len(board.places),
                 "highest": HIGHEST, "targets": len(SHARES_LEFT), "seeds": times.seeds,
                 "least": SHARES_LEFT[-1], "problems": len(set(times.counted)),
                 "start": at[0], "end": at[-1]}  # fmt: skip
        return drawing.save(grid.figure, out, f"{words['workload']}.reached", "reached", facts, **words)


def _name_lines(figure: Figure, panel: Axes, board: Shown) -> None:
    """Write the name of each method, and its final share of targets, beside the end of its line.

    The texts do not overlap.
    """
    width, height = figure.get_size_inches()
    figure.set_size_inches(width + LABELS, height)
    share, top = width / (width + LABELS), 1 - ABOVE / height
    box = figure.subplotpars
    figure.subplots_adjust(left=box.left * share, right=box.right * share, top=top)
    ends = board.bands.share[:, -1]
    order = np.argsort(ends, kind="stable")
    heights = spaced(ends[order], LINE / (height * (top - box.bottom)))
    for index, y in zip(order, heights, strict=True):
        coloured = index in board.places
        line = board.ink(index) if coloured else GHOST.light
        panel.plot([1.0, 1.03], [ends[index], y], transform=panel.transAxes, color=line, linewidth=0.8,
                   clip_on=False)  # fmt: skip
        panel.text(1.04, y, f"{board.times.methods[index]}: {ends[index]:.2f}", transform=panel.transAxes,
                   color=TEXT.light if coloured else MUTED.light, fontsize=8.5, va="center")  # fmt: skip


def spaced(heights: Floats, distance: float) -> Floats:
    """Move the heights of names apart, so that neighbours are at least `distance` apart and no height exceeds
    1.

    Args:
        heights: heights in increasing order, at most 1, shape (names,).
    """
    steps = distance * np.arange(len(heights))
    up = np.maximum.accumulate(heights - steps) + steps
    room = 1.0 - steps[::-1]  # Maximum height of each name, so that the names above it fit below 1.
    return np.asarray(np.minimum(up, room))


def _profiles(board: Shown, out: Path, words: Mapping[str, str]) -> Sequence[Drawn]:
    """Draw data and performance profiles at one target, and the log-ratio profile of two methods.

    The log-ratio profile compares the method with the largest area and the method with the largest final
    share of targets. If both are the same method, the profile compares the two methods with the largest
    areas.
    """
    times, work = board.times, board.times.times[:, :, PROFILED]
    if len(work) < 2 or not np.isfinite(work).any():
        return []
    first, second = pair = 0, int(board.bands.share[:, -1].argmax()) or 1
    both_solved = np.isfinite(work[first]) & np.isfinite(work[second])
    unequal = bool((work[first] != work[second])[both_solved].any())
    named = [times.methods[index] for index in pair] if unequal else []
    facts = {"left": SHARES_LEFT[PROFILED], "pair": named,
             "instances": work.shape[1], "sooner": int((work[first] < work[second]).sum()),
             "later": int((work[first] > work[second]).sum()),
             "solved": list(zip(times.methods, np.isfinite(work).mean(axis=1), strict=True))}  # fmt: skip
    with drawing.panel_grid(list(ALONG)[: 2 + unequal], "", PROFILE, sharex=False, sharey=False) as grid:
        grid.figure.subplots_adjust(wspace=APART)
        _steps(grid.panels[DATA], board, work / times.budgets)
        _steps(grid.panels[PERFORMANCE], board, anytime.performance_ratios(work), *RATIOS)
        if unequal:
            ratios = anytime.log_ratio_profile(work[first], work[second])
            _log_ratio(grid.panels[LOG_RATIO], board, pair, ratios)
        grid.draw_key(_keys(board))
        grid.label("", "share of instances")
        for title, panel in grid.panels.items():
            panel.text(0.5, -0.16, ALONG[title], transform=panel.transAxes, color=TEXT.light, fontsize=9,
                       ha="center", va="top")  # fmt: skip
        return [drawing.save(grid.figure, out, f"{words['workload']}.profiles", "profiles", facts, **words)]


def _steps(panel: Axes, board: Shown, costs: Floats, low: float = 0.0, high: float = np.inf) -> None:
    """Draw for each method the share of instances that the method has solved, against the cost.

    Args:
        costs: cost of each method on each instance, shape (methods, instances); infinite if the method did
            not solve the instance.
        low, high: smallest and largest cost at which the horizontal axis may end.
    """
    finite = costs[np.isfinite(costs)]
    at = np.geomspace(finite.min() * (1 if low else 0.7), np.clip(finite.max() * 1.4, low, high), POINTS)
    shares = anytime.share_reached(costs[:, :, None], at)
    panel.set(xscale="log", xlim=(at[0], at[-1]), ylim=(0, 1.02))
    board.draw(panel, at, shares, shares, shares)


def _log_ratio(panel: Axes, board: Shown, pair: tuple[int, int], ratios: Floats) -> None:
    """Draw the log-ratio profile of two methods as bars in the colour of the faster method.

    Args:
        pair: indices of both methods.
        ratios: sorted log2 ratios of the two methods' times, as `log_ratio_profile` returns them.
    """
    edges, edge = np.arange(len(ratios) + 1) + 0.5, float(np.abs(ratios).max())
    for index, sign in zip(pair, (-1, 1), strict=True):
        bars = np.where(np.sign(ratios) == sign, ratios, 0.0)
        style = {"alpha": 0.75, "linewidth": 0, "hatch": "///" if sign > 0 else ""}
        panel.stairs(bars, edges, fill=True, color=board.ink(index), **style)
    panel.set(xlim=(0.5, len(ratios) + 0.5), ylim=(-1.05 * edge, 1.05 * edge))
    panel.axhline(0, color=MUTED.light, linewidth=0.8)


def _keys(board: Shown) -> list[object]:
    """Return a legend entry for each method in colour."""
    methods = [Method.of(board.times.methods[index]) for index in board.places]
    dashes = dashes_of(board.times.methods)
    looks = {method.label: board.looks[method.optimizer] for method in methods}
    return drawing.optimizer_keys(looks, {method.label: dashes[method.basis] for method in methods})
