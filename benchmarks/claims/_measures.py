"""Constructors of measures for an upper bound, a lower bound, an equality, or an error that must be 0.

A measure is a number with a limit and a tolerance. A check is satisfied if all its measures are within their
limits, up to the tolerances.
"""

from __future__ import annotations

from typing import SupportsFloat

import numpy as np

from curvebench.benchmarks.claims._matrices import relative_error
from curvebench.property_checks.checks import Measure


def at_most(
    quantity: str, value: SupportsFloat, limit: SupportsFloat, tolerance: SupportsFloat = 0.0
) -> Measure:
    """Return the measure that `value` is at most `limit`, up to the tolerance."""
    return Measure(quantity, float(value), "<=", float(limit), float(tolerance))


def at_least(
    quantity: str, value: SupportsFloat, limit: SupportsFloat, tolerance: SupportsFloat = 0.0
) -> Measure:
    """Return the measure that `value` is at least `limit`, up to the tolerance."""
    return Measure(quantity, float(value), ">=", float(limit), float(tolerance))


def equals(
    quantity: str, value: SupportsFloat, limit: SupportsFloat, tolerance: SupportsFloat = 0.0
) -> Measure:
    """Return the measure that `value` is equal to `limit`, up to the tolerance."""
    return Measure(quantity, float(value), "==", float(limit), float(tolerance))


def vanishes(quantity: str, value: SupportsFloat, tolerance: SupportsFloat = 0.0) -> Measure:
    """Return the measure that `value`, an error or an excess over a bound, is at most 0.

    The tolerance is the largest value that counts as 0.

    """
    return at_most(quantity, value, 0.0, tolerance)


def agrees(quantity: str, found: np.ndarray, expected: np.ndarray, tolerance: SupportsFloat = 0.0) -> Measure:
    """Return the measure that the relative error of `found` is at most the tolerance.

    The relative error is |found - expected| / |expected|, in Frobenius norms.
    """
    return vanishes(quantity, relative_error(found, expected), tolerance)
