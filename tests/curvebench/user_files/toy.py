"""Claims about the mean of uniform numbers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from curvebench.property_checks.checks import CORRECTED, PRINTED, Check, Measure, PropertyClaim


def _below_one(random: np.random.Generator) -> Iterator[Measure]:
    yield Measure("mean", float(random.random(8).mean()), "<=", 1.0)
    yield Measure("least", float(random.random(8).min()), ">=", 0.0)


def _printed(random: np.random.Generator) -> Iterator[Measure]:
    yield Measure("mean", float(random.random(8).mean()), "==", 1.0, 1e-12)


def _corrected(random: np.random.Generator) -> Iterator[Measure]:
    yield Measure("mean", float(random.random(8).mean()), "==", 0.5, 0.5)


CLAIMS = (
    PropertyClaim(
        id="toy.mean",
        sentence="The mean of uniform numbers is a half.",
        source="none, line 1",
        setting="8 numbers",
        checks=(
            Check("it is between 0 and 1", "none, line 2", _below_one, {"quick": 3, "paper": 5}),
            Check("it is as said", "none, line 3", _printed, {"quick": 2, "paper": 5}, PRINTED),
            Check("it is as said", "none, line 3", _corrected, {"quick": 2, "paper": 5}, CORRECTED),
        ),
    ),
    PropertyClaim(
        id="toy.other",
        sentence="Uniform numbers are below 1.",
        source="none, line 4",
        setting="8 numbers",
        checks=(Check("they are below 1", "none, line 5", _below_one, {"paper": 2}),),
    ),
)
