"""Colours: each optimizer has its own, readable in both themes, and distinguishable without colour vision."""

from __future__ import annotations

import re
from itertools import combinations, product
from pathlib import Path

import numpy as np
import pytest
from ruamel.yaml import YAML

from curvebench.reports.figures import palette
from curvebench.reports.pages.site import STATIC

COLOURS = YAML(typ="safe").load(Path(__file__).with_name("sights.yaml"))
SIGHTS = {name: np.array(matrix) for name, matrix in COLOURS["sights"].items()}
TO_CONES, FROM_CONES = np.array(COLOURS["to_cones"]), np.array(COLOURS["from_cones"])
STYLE = (STATIC / "style.css").read_text()
THEMES = [
    dict(re.findall(r"--([a-z-]+): ([^;]+);", theme))
    for theme in re.findall(r"--paper: [^}]*", STYLE.partition("@media print")[0])
]
TEXTS = ("ink", "muted", "link")
GROUNDS = ("paper", "raised", "mark", "warn-paper")
OUTLINES = (*product(("focus", "control"), ("paper", "raised")), ("warn-line", "warn-paper"))


def linear(colour: str) -> np.ndarray:
    """Linear RGB of hexadecimal sRGB."""
    channels = np.array([int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)])
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def luminance(colour: str) -> float:
    """Relative luminance of hexadecimal RGB (WCAG 2.2)."""
    return float(linear(colour) @ [0.2126, 0.7152, 0.0722])


def contrast(left: str, right: str) -> float:
    low, high = sorted((luminance(left), luminance(right)))
    return (high + 0.05) / (low + 0.05)


def seen(colour: str, sight: str) -> np.ndarray:
    """Return a colour as a kind of sight has it, in OKLab (Ottosson 2020), whose distances are even."""
    light = np.clip(SIGHTS[sight] @ linear(colour), 0, 1)
    return FROM_CONES @ np.cbrt(TO_CONES @ light)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_lines_and_texts_stand_out_from_the_page(theme: str):
    paper = getattr(palette.PAPER, theme)
    for ink in (*palette.INKS, palette.BROWN, palette.SLATE):
        assert contrast(getattr(ink, theme), paper) >= 3  # graphics, WCAG 1.4.11
    for ink in (palette.TEXT, palette.MUTED):
        assert contrast(getattr(ink, theme), paper) >= 4.5  # text, WCAG 1.4.3


@pytest.mark.parametrize("sight", SIGHTS)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_kind_of_sight_tells_the_colours_of_optimizers_apart(theme: str, sight: str):
    colours = [seen(getattr(ink, theme), sight) for ink in palette.INKS]
    nearest = min(np.linalg.norm(left - right) for left, right in combinations(colours, 2))
    assert nearest > 0.085  # 0.02 is about what eyes can tell side by side


def test_every_optimizer_of_the_table_has_a_look_of_its_own():
    assert len(set(palette.LOOKS.values())) == len(palette.LOOKS)
    assert palette.look_of("nesterov").ink != palette.look_of("adam").ink


def test_the_look_of_a_name_that_is_not_known_stays_and_is_no_known_one():
    looks = {name: palette.look_of(name) for name in ("my own optimizer", "torch:torch.optim.Rprop", "lion")}
    assert looks == {name: palette.look_of(name) for name in looks}
    assert not set(looks.values()) & set(palette.LOOKS.values())


def test_dark_pages_replace_each_colour_once():
    inks = {
        palette.TEXT,
        palette.MUTED,
        palette.GRID,
        palette.GHOST,
        palette.PAPER,
        palette.BROWN,
        palette.SLATE,
        *palette.INKS,
    }
    assert len({ink.light for ink in inks}) == len(inks)
    assert not {ink.light for ink in inks} & {ink.dark for ink in inks}
    style = palette.dark_style(" ".join(f"stroke: {ink.light}" for ink in palette.INKS))
    assert re.findall(r'"stroke: (#\w+)"\] {stroke: (#\w+) ', style) == [
        (ink.light, ink.dark) for ink in palette.INKS
    ]


def test_the_identity_is_solid_and_every_basis_has_its_own_dashes():
    dashes = palette.dashes_of(["adam @ egop", "adam", "sgd @ block", "sgd @ egop"])
    assert list(dashes) == ["identity", "egop", "block"]
    assert dashes["identity"] == ()
    assert len(set(dashes.values())) == 3


def test_texts_outlines_and_sort_arrows_of_pages_stand_out_in_every_theme():
    """As WCAG 2.2 asks: 4.5 for text (1.4.3), 3 for outlines and signs (1.4.11)."""
    [opacity] = map(float, re.findall(r'content: "\\202f↕"; opacity: ([0-9.]+)', STYLE))
    assert len(THEMES) == 3, "light, dark by the system, dark by choice"
    for colours in THEMES:
        for text, ground in product(TEXTS, GROUNDS):
            assert contrast(colours[text], colours[ground]) >= 4.5, (text, ground)
        for outline, ground in OUTLINES:
            assert contrast(colours[outline], colours[ground]) >= 3, (outline, ground)
        assert contrast(mixed(colours["muted"], colours["raised"], opacity), colours["raised"]) >= 3


def test_the_numbers_of_the_map_stand_out_in_both_themes():
    cells = re.findall(r"heat-\d {.*?(#[0-9a-f]{6}) ([^,]+), var\(--paper\)\);(?: color: #(fff);)? }", STYLE)
    assert len(cells) == 6
    for values in THEMES:
        for ground, share, white in cells:
            part = float(values.get(share[6:-1], share).rstrip("%")) / 100
            ink = "#ffffff" if white else values["ink"]
            assert contrast(ink, mixed(ground, values["paper"], part)) >= 4.5


def mixed(ink: str, paper: str, opacity: float) -> str:
    """Return the colour of ink with an opacity on paper."""
    pairs = [(int(ink[place : place + 2], 16), int(paper[place : place + 2], 16)) for place in (1, 3, 5)]
    return "#" + "".join(f"{round(opacity * over + (1 - opacity) * under):02x}" for over, under in pairs)


def test_no_two_optimizers_of_a_study_share_an_ink_while_others_are_left():
    assert palette.look_of("rmsprop").ink == palette.look_of("adagrad").ink
    looks = palette.looks_of(["adagrad", "rmsprop", "adagrad @ egop", "adam", "lion", "soap"])
    assert list(looks) == ["adagrad", "rmsprop", "adam", "lion", "soap"]
    assert len({look.ink for look in looks.values()}) == 5
    assert {name: looks[name] for name in ("adagrad", "adam")} == {
        name: palette.look_of(name) for name in ("adagrad", "adam")
    }
    again = palette.looks_of(["soap", "lion", "adam", "rmsprop", "adagrad"])
    assert again == looks, "in whatever order they come"
    assert len(palette.looks_of([*palette.LOOKS])) == len(palette.LOOKS)
