"""What the leaderboard shows of how soon methods get how far: of each board its times and their figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from curvebench.reports.boards.leaderboard import Board, Studies
from curvebench.reports.boards.runtimes import Runtimes, board_runtimes
from curvebench.reports.figures.anytime import draw_board
from curvebench.reports.figures.drawing import Drawn


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
    first = {study.name: study.backends[0] for study, _ in studies}
    found: list[Anytime | None] = []
    for board in boards:
        leads = board.backend == first[board.studies[0]] and len(board.columns) > 1
        times = board_runtimes(board, studies) if leads else None
        name = f"{board.backend}.{board.studies[0]}"
        found.append(Anytime(times, tuple(draw_board(times, board.backend, name, out))) if times else None)
    return found
