"""Colours: fixed for known optimizers, readable in both themes, told apart without colour vision."""

from __future__ import annotations

import re
from itertools import combinations

import pytest

from reports.palette import GHOST, GRID, MUTED, OPTIMIZERS, OTHERS, PAPER, TEXT, dark, dashes_of, ink_of
from reports.site import STATIC


def luminance(colour: str) -> float:
    """Relative luminance of hexadecimal RGB (WCAG 2.2)."""
    channels = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(left: str, right: str) -> float:
    low, high = sorted((luminance(left), luminance(right)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_lines_and_texts_stand_out_from_the_page(theme: str):
    paper = getattr(PAPER, theme)
    for ink in (*OPTIMIZERS.values(), *OTHERS):
        assert contrast(getattr(ink, theme), paper) >= 3  # graphics, WCAG 1.4.11
    for ink in (TEXT, MUTED):
        assert contrast(getattr(ink, theme), paper) >= 4.5  # text, WCAG 1.4.3


def test_the_dark_variant_replaces_each_colour_once():
    inks = {TEXT, MUTED, GRID, GHOST, PAPER, *OPTIMIZERS.values(), *OTHERS}
    assert len({ink.light for ink in inks}) == len(inks)
    assert not {ink.light for ink in inks} & {ink.dark for ink in inks}
    assert dark(" ".join(ink.light for ink in OTHERS)) == " ".join(ink.dark for ink in OTHERS)


def test_known_optimizers_have_colours_of_their_own_and_unknown_ones_keep_theirs():
    assert all(left != right for left, right in combinations(OPTIMIZERS.values(), 2))
    assert ink_of("my own optimizer") == ink_of("my own optimizer")
    assert ink_of("my own optimizer") in OTHERS


def test_the_identity_is_solid_and_every_basis_has_its_own_dashes():
    dashes = dashes_of(["adam @ egop", "adam", "sgd @ block", "sgd @ egop"])
    assert list(dashes) == ["identity", "egop", "block"]
    assert dashes["identity"] == ()
    assert len(set(dashes.values())) == 3


def test_borders_of_controls_and_sort_arrows_stand_out_in_both_themes():
    style = (STATIC / "style.css").read_text()
    themes = re.findall(r"--paper: [^}]*", style.partition("@media print")[0])
    [opacity] = map(float, re.findall(r'content: " ↕"; opacity: ([0-9.]+)', style))
    assert len(themes) == 3
    for theme in themes:
        colours = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})\b", theme))
        assert contrast(colours["control"], colours["paper"]) >= 3
        assert contrast(mixed(colours["muted"], colours["raised"], opacity), colours["raised"]) >= 3


def mixed(ink: str, paper: str, opacity: float) -> str:
    """An ink that lets its paper shine through."""
    pairs = [(int(ink[place : place + 2], 16), int(paper[place : place + 2], 16)) for place in (1, 3, 5)]
    return "#" + "".join(f"{round(opacity * over + (1 - opacity) * under):02x}" for over, under in pairs)
