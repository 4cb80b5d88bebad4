"""Published sets: names, waivers, and pages that show a leaderboard."""

from __future__ import annotations

from pathlib import Path

import pytest

from curvebench.spec.errors import InputError
from curvebench.spec.sets import BEGIN, END, between_markers, check_name, check_waivers


@pytest.mark.parametrize("name", ["digits-quick.2026-11", "a" * 60])
def test_a_name_of_the_right_letters_is_taken(name: str, tmp_path: Path):
    assert check_name(name, tmp_path) == name


@pytest.mark.parametrize("name", ["", "Digits", "../a", "a..b", "a-", "a" * 61, 2026, "a\n"])
def test_another_name_is_refused(name: object, tmp_path: Path):
    with pytest.raises(InputError, match="begins with a small letter"):
        check_name(name, tmp_path)


def test_a_missing_and_a_taken_name_are_told_apart(tmp_path: Path):
    with pytest.raises(InputError, match="add --config name=NAME"):
        check_name(None, tmp_path)
    (tmp_path / "there").mkdir()
    with pytest.raises(InputError, match="is there already"):
        check_name("there", tmp_path)


def test_what_can_be_waived_is_known():
    assert check_waivers(["tuning", "dirty", "dirty"]) == ("dirty", "tuning")
    with pytest.raises(InputError, match=r"'durty'.*valid: dirty, hardware, tuning, failures, rules"):
        check_waivers(["durty"])


@pytest.mark.parametrize("text", ["", BEGIN, END + BEGIN, f"{BEGIN}{END}{BEGIN}{END}"])
def test_a_page_without_its_markers_is_named(text: str):
    with pytest.raises(InputError, match=r"page\.md.*each once"):
        between_markers(text, Path("page.md"), [])
