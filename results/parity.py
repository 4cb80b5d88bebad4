"""Parity of backends: what follows from a difference; needs no library, and harness and checks share it."""

from __future__ import annotations

import math

ULPS, RELATIVE = "ulps", "relative"


def unit_of(comparison: str) -> str:
    """`ulps` where float32 stands beside float64, else `relative`."""
    return ULPS if comparison.startswith("float32") else RELATIVE


def is_judged(full_rank: bool, free_of_noise: bool, by_entry: bool) -> bool:
    """Whether a rule must take equal steps on a problem.

    Args:
        full_rank, free_of_noise: of the problem's gradients (`harness.stages.parity_problems.Problem`).
        by_entry: whether the rule looks at single entries, and so at no matrix with a null space.
    """
    return free_of_noise and (full_rank or by_entry)


def is_within(judged: bool, difference: float, tolerance: float) -> bool:
    """Whether a difference is legal: where it is judged, a number within the tolerance; else any."""
    return not judged or (math.isfinite(difference) and difference <= tolerance)
