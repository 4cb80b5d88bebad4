"""Published sets: names, waivers, and pages that show a leaderboard."""

from __future__ import annotations

from pathlib import Path

import pytest

from curvebench.spec.sets import check_name, check_waivers


@pytest.mark.parametrize("name", ["digits-quick.2026-11", "a" * 60])
def test_a_name_of_the_right_letters_is_taken(name: str, tmp_path: Path):
    assert check_name(name, tmp_path) == name


def test_what_can_be_waived_is_known():
    assert check_waivers(["tuning", "dirty", "dirty"]) == ("dirty", "tuning")
