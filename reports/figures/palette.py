"""Colours, marks and dashes: a colour and a mark an optimizer, dashes a basis, for light and dark pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from zlib import crc32

from curvebench.spec.method import IDENTITY, Method


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

# Hues of Okabe and Ito (jfly.uni-koeln.de/color), so light or dark that every kind of sight tells them apart.
BLUE = Ink("#05309c", "#3d7bff")
VERMILLION = Ink("#e8500a", "#ee8a5c")
GREEN = Ink("#0da28b", "#9ff5dd")
PURPLE = Ink("#681a58", "#c93f96")
GOLD = Ink("#665000", "#f5d820")
SKY = Ink("#1e7099", "#31bff9")
INKS = (BLUE, VERMILLION, GREEN, PURPLE, GOLD, SKY)
BROWN = Ink("#8c5a3c", "#c99b7c")  # of what is no optimizer
SLATE = Ink("#6b6f9c", "#a9adde")

MARKS = ("o", "s", "D", "^", "v", "d")  # as matplotlib names them; a row of the table below each
MARKS_OF_OTHERS = ("P", "X", "p", "h", "<", ">")
OPTIMIZERS = (
    ("adagrad", "adam", "adamw", "momentum", "sgd", "nesterov"),
    ("rmsprop", "soap", "shampoo", "sign_descent", "riemannian_sgd", "nesterov_lookahead"),
    ("adagrad_norm", "adam_atan2", "idealized_shampoo", "steepest_descent", "pin_to_sphere",
     "mirror_descent"),
    ("adagrad_full", "adam_nmf", "muon", "regularized_update_descent", "trust_region_sphere",
     "exponentiated_gradient"),
    ("adafactor", "newton", "manifold_muon", "weight_normalization", "symo",
     "kfac"),
    ("kfac_as_004", "spectral", "spectral_full", "spectral_diagonal"),
)  # fmt: skip

Dashes = tuple[float, ...]  # the lengths on and off; () is solid
DASHES: tuple[Dashes, ...] = (
    (5.0, 2.0), (1.5, 1.5), (7.0, 2.0, 1.5, 2.0), (3.0, 1.0, 1.0, 1.0, 1.0, 1.0), (10.0, 2.5), (1.0, 3.0)
)  # fmt: skip


@dataclass(frozen=True)
class Look:
    """How an optimizer is drawn: its colour and its mark, which no other known optimizer has both of."""

    ink: Ink
    mark: str


LOOKS: Mapping[str, Look] = {
    name: Look(ink, mark)
    for mark, row in zip(MARKS, OPTIMIZERS, strict=True)
    for ink, name in zip(INKS, row, strict=False)
}


def look_of(optimizer: str) -> Look:
    """The optimizer's colour and mark: fixed for known names, from a checksum of the name for others."""
    place = crc32(optimizer.encode())
    other = Look(INKS[place % len(INKS)], MARKS_OF_OTHERS[place // len(INKS) % len(MARKS_OF_OTHERS)])
    return LOOKS.get(optimizer, other)


def looks_of(methods: Sequence[str]) -> dict[str, Look]:
    """How a study's optimizers are drawn: as everywhere, but no two in one ink while others are left.

    Of two that share one, the first of `OPTIMIZERS`, or by name, keeps it, in whatever order they come.
    """
    order, known = list(LOOKS), dict.fromkeys(Method.of(method).optimizer for method in methods)
    ranked = sorted(known, key=lambda name: (order.index(name) if name in LOOKS else len(order), name))
    keeps: dict[Ink, str] = {}
    for name in ranked:
        keeps.setdefault(look_of(name).ink, name)
    later = (name for name in ranked if name not in keeps.values())
    free = (ink for ink in INKS if ink not in keeps)
    given = dict(zip(later, free, strict=False))
    return {name: Look(given.get(name, look_of(name).ink), look_of(name).mark) for name in known}


def dashes_of(methods: Sequence[str]) -> dict[str, Dashes]:
    """The dashes of every basis among the methods: solid for the identity."""
    bases = dict.fromkeys(Method.of(method).basis for method in methods)
    others = (basis for basis in bases if basis != IDENTITY)
    return {IDENTITY: (), **dict(zip(others, cycle(DASHES), strict=False))}


def dark_style(svg: str) -> str:
    """The CSS by which a figure, drawn in the light colours, has the dark ones on a dark page.

    What knows no style sheets, such as a program for slides, shows the light ones, which elements have.
    """
    rules = [
        f'[style*="{part}: {ink.light}"] {{{part}: {ink.dark} !important}}'
        for ink in (TEXT, MUTED, GRID, GHOST, PAPER, *INKS, BROWN, SLATE)
        for part in ("fill", "stroke")
        if f"{part}: {ink.light}" in svg
    ]
    return "\n".join(
        (":root {color-scheme: light dark}", "@media (prefers-color-scheme: dark) {", *rules, "}")
    )
