"""Colours, markers and dashes of figures, for light and dark pages.

Colour and marker of a line show its optimizer. The dashes of a line show its basis, an orthogonal change of
coordinates of the parameters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from zlib import crc32

from curvebench.spec.method import IDENTITY, Method


@dataclass(frozen=True)
class Ink:
    """A colour of a figure in the light and the dark theme, as hexadecimal RGB."""

    light: str
    dark: str


TEXT = Ink("#1b1e23", "#e8eaed")
MUTED = Ink("#5b626c", "#a3abb6")
GRID = Ink("#e3e6ea", "#30363e")
GHOST = Ink("#c9ced5", "#48505a")  # Grey of the lines that a panel shows only for comparison.
PAPER = Ink("#fdfdfc", "#14171b")  # Background of the page; figures themselves are transparent.

# Hues of Okabe and Ito (jfly.uni-koeln.de/color).
# The colours differ enough in lightness for people with any kind of colour vision.
BLUE = Ink("#05309c", "#3d7bff")
VERMILLION = Ink("#e8500a", "#ee8a5c")
GREEN = Ink("#0da28b", "#9ff5dd")
PURPLE = Ink("#681a58", "#c93f96")
GOLD = Ink("#665000", "#f5d820")
SKY = Ink("#1e7099", "#31bff9")
INKS = (BLUE, VERMILLION, GREEN, PURPLE, GOLD, SKY)
# Brown and slate are colours of lines that belong to no optimizer.
BROWN = Ink("#8c5a3c", "#c99b7c")
SLATE = Ink("#6b6f9c", "#a9adde")

# Markers by Matplotlib's names. Each marker belongs to the optimizers in one row of `OPTIMIZERS`.
# Each colour of `INKS` belongs to the optimizers in one column of `OPTIMIZERS`.
MARKS = ("o", "s", "D", "^", "v", "d")
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
    ("kfac_as_004", "spectral", "spectral_full", "spectral_diagonal", "nadam"),
)  # fmt: skip

Dashes = tuple[float, ...]  # Lengths of a dash pattern, alternately drawn and left blank; () is a solid line.
DASHES: tuple[Dashes, ...] = (
    (5.0, 2.0), (1.5, 1.5), (7.0, 2.0, 1.5, 2.0), (3.0, 1.0, 1.0, 1.0, 1.0, 1.0), (10.0, 2.5), (1.0, 3.0)
)  # fmt: skip


@dataclass(frozen=True)
class Look:
    """Colour and marker of an optimizer; no two optimizers in `OPTIMIZERS` share both."""

    ink: Ink
    mark: str


LOOKS: Mapping[str, Look] = {
    name: Look(ink, mark)
    for mark, row in zip(MARKS, OPTIMIZERS, strict=True)
    for ink, name in zip(INKS, row, strict=False)
}


def look_of(optimizer: str) -> Look:
    """Return the colour and marker of an optimizer.

    Optimizers in `OPTIMIZERS` have a fixed look. The look of another optimizer follows from a checksum of its
    name.
    """
    checksum = crc32(optimizer.encode())
    derived = Look(INKS[checksum % len(INKS)], MARKS_OF_OTHERS[checksum // len(INKS) % len(MARKS_OF_OTHERS)])
    return LOOKS.get(optimizer, derived)


def looks_of(methods: Sequence[str]) -> dict[str, Look]:
    """Return the colours and markers of a study's optimizers, by optimizer.

    The colours are different if there are enough colours. An optimizer has its usual colour (`look_of`),
    unless another optimizer of the study has the same usual colour. Of several optimizers with the same usual
    colour, the first in `OPTIMIZERS` keeps the colour; if none is in `OPTIMIZERS`, the first by name keeps
    the colour. The order of `methods` does not matter.
    """
    order, optimizers = list(LOOKS), dict.fromkeys(Method.of(method).optimizer for method in methods)
    ranked = sorted(optimizers, key=lambda name: (order.index(name) if name in LOOKS else len(order), name))
    keeps: dict[Ink, str] = {}
    for name in ranked:
        keeps.setdefault(look_of(name).ink, name)
    later = (name for name in ranked if name not in keeps.values())
    free = (ink for ink in INKS if ink not in keeps)
    replacement = dict(zip(later, free, strict=False))
    return {name: Look(replacement.get(name, look_of(name).ink), look_of(name).mark) for name in optimizers}


def dashes_of(methods: Sequence[str]) -> dict[str, Dashes]:
    """Return the dash pattern of every basis among the methods, by basis; the identity basis is solid."""
    bases = dict.fromkeys(Method.of(method).basis for method in methods)
    other_bases = (basis for basis in bases if basis != IDENTITY)
    return {IDENTITY: (), **dict(zip(other_bases, cycle(DASHES), strict=False))}


def dark_style(svg: str) -> str:
    """Return the CSS that gives an SVG figure dark colours on a dark page.

    The elements of the figure have light colours themselves. Programs that ignore style sheets, such as
    presentation software, show the light colours.
    """
    rules = [
        f'[style*="{attribute}: {ink.light}"] {{{attribute}: {ink.dark} !important}}'
        for ink in (TEXT, MUTED, GRID, GHOST, PAPER, *INKS, BROWN, SLATE)
        for attribute in ("fill", "stroke")
        if f"{attribute}: {ink.light}" in svg
    ]
    on_dark = ("@media (prefers-color-scheme: dark) {", *rules, "}")
    return "\n".join((":root {color-scheme: light dark}", *on_dark))
