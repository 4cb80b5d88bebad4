"""Colours and dashes: one colour an optimizer everywhere, one dash a basis, in a light and a dark theme."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from zlib import crc32

from results.methods import IDENTITY, method_parts


@dataclass(frozen=True)
class Ink:
    """One colour of a figure in both themes, as hexadecimal RGB."""

    light: str
    dark: str


TEXT = Ink("#1b1e23", "#e8eaed")
MUTED = Ink("#5b626c", "#a3abb6")
GRID = Ink("#e3e6ea", "#30363e")
GHOST = Ink("#c9ced5", "#48505a")  # the other methods, for comparison
PAPER = Ink("#fdfdfc", "#14171b")  # of the page; figures are transparent

# Okabe and Ito's palette (jfly.uni-koeln.de/color), each colour darkened or lightened until it stands out.
BLUE = Ink("#0072b2", "#5cb8f0")
VERMILLION = Ink("#d05a00", "#ff8a3d")
GREEN = Ink("#00875f", "#2fc799")
PURPLE = Ink("#b0508f", "#e08fc0")
GOLD = Ink("#8a6f00", "#e3c53a")
SKY = Ink("#2a86bd", "#8fd0f7")
BROWN = Ink("#8c5a3c", "#c99b7c")
SLATE = Ink("#6b6f9c", "#a9adde")
OTHERS = (SKY, BROWN, SLATE, BLUE, VERMILLION, GREEN, PURPLE, GOLD)

OPTIMIZERS: Mapping[str, Ink] = {
    "adagrad": BLUE,
    "adam": VERMILLION,
    "adamw": GREEN,
    "momentum": PURPLE,
    "sgd": GOLD,
}

DASHES = ("5 2", "1.5 1.5", "7 2 1.5 2", "3 1 1 1 1 1", "10 2.5", "1 3")


def ink_of(optimizer: str) -> Ink:
    """The optimizer's colour: fixed for known names, from a checksum of the name for others."""
    return OPTIMIZERS.get(optimizer) or OTHERS[crc32(optimizer.encode()) % len(OTHERS)]


def dashes_of(methods: Sequence[str]) -> dict[str, tuple[float, ...]]:
    """The on and off lengths of every basis among the methods: empty (solid) for the identity."""
    bases = dict.fromkeys(method_parts(method)[1] for method in methods)
    others = [basis for basis in bases if basis != IDENTITY]
    dashed = {basis: DASHES[number % len(DASHES)] for number, basis in enumerate(others)}
    return {IDENTITY: ()} | {basis: tuple(map(float, text.split())) for basis, text in dashed.items()}


def dark(svg: str) -> str:
    """The dark variant of a figure that was drawn in the light colours."""
    inks = (TEXT, MUTED, GRID, GHOST, PAPER, *OPTIMIZERS.values(), *OTHERS)
    pairs = {ink.light: ink.dark for ink in inks}
    for light, replacement in pairs.items():
        svg = svg.replace(light, replacement)
    return svg
