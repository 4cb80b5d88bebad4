"""Lines of progress: no time is told that is left before there is a basis for it."""

from __future__ import annotations

import pytest

from curvebench.progress import Progress


def test_the_time_that_is_left_is_told_from_a_tenth_of_the_work(capsys: pytest.CaptureFixture[str]):
    progress = Progress("runs", 100.0, every=0.0)
    progress.advance(9.0)
    assert "left" not in capsys.readouterr().err
    progress.advance(2.0)
    assert "s left" in capsys.readouterr().err


def test_the_end_is_told_once_when_more_is_done_than_planned(capsys: pytest.CaptureFixture[str]):
    progress = Progress("runs", 2.0)
    for _ in range(4):
        progress.advance(1.0)
    assert capsys.readouterr().err.count("100%") == 1
