"""Constructors of measures, by the kind of statement: an upper bound, a lower bound, a value, or a zero
error.
"""

from __future__ import annotations

from typing import SupportsFloat

import numpy as np

from curvebench.benchmarks.claims._matrices import relative_error
from curvebench.property_checks.checks import Measure


def at_most(
    quantity: str, value: SupportsFloat, limit: SupportsFloat, tolerance: SupportsFloat = 0.0
) -> Measure:
    """Measure a value that the limit bounds from above."""
    return Measure(quantity, float(value), "<=", float(limit), float(tolerance))


def at_least(
    quantity: str, value: SupportsFloat, limit: SupportsFloat, tolerance: SupportsFloat = 0.0
) -> Measure:
    """Measure a value that the limit bounds from below."""
    return Measure(quantity, float(value), ">=", float(limit), float(tolerance))


def equals(
    quantity: str, value: SupportsFloat, limit: SupportsFloat, tolerance: SupportsFloat = 0.0
) -> Measure:
    """Measure a value that must be equal to the limit."""
    return Measure(quantity, float(value), "==", float(limit), float(tolerance))


def vanishes(quantity: str, value: SupportsFloat, tolerance: SupportsFloat = 0.0) -> Measure:
    """Measure an error, or an excess over a bound, that must be at most 0."""
    return at_most(quantity, value, 0.0, tolerance)


def agrees(quantity: str, found: np.ndarray, expected: np.ndarray, tolerance: SupportsFloat = 0.0) -> Measure:
    """Measure the relative error of an array in Frobenius norms, which must be 0 up to the tolerance."""
    return vanishes(quantity, relative_error(found, expected), tolerance)
