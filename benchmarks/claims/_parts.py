"""Constructors of checks: single checks, and pairs of checks for a misprinted statement.

A part is a check that belongs to a claim.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from curvebench.property_checks.checks import CORRECTED, PRINTED, Check, Measure, Series
from curvebench.results.verdicts import Variant

# Type of the random generator from which a check draws its instances.
Random = np.random.Generator
Measures = Callable[..., Iterable[Measure | Series]]


def part(
    name: str, source: str, measures: Measures, quick: int, variant: Variant = "", /, **case: Any
) -> Check:
    """Return a check with `quick` instances at scale `quick`, and ten times that number at scale `paper`.

    Args:
        name, source, variant: as in `Check`.
        measures: `measures(random, **case)` returns the measures of one instance.
        quick: number of instances at scale `quick`.
        case: further arguments of `measures`, such as the optimizer.
    """
    return Check(name, source, partial(measures, **case), {"quick": quick, "paper": 10 * quick}, variant)


def bounds(*checks: Check) -> tuple[Check, ...]:
    """Return the same checks with `bound` set, which says that the claimed statements are upper bounds.

    For checks of upper bounds, a search also tries to find a counterexample.
    """
    return tuple(replace(check, bound=True) for check in checks)


def estimates(*checks: Check) -> tuple[Check, ...]:
    """Return the same checks with `sampled` set, which says that the measured values are estimates.

    The values are then confidence intervals. If an interval contains the limit of an inequality, the check is
    undecided.
    """
    return tuple(replace(check, sampled=True) for check in checks)


def parts_for(
    name: str, source: str, measures: Measures, quick: int, /, **cases: Mapping[str, Any]
) -> tuple[Check, ...]:
    """Return one check for each value of one argument of `measures`.

    Args:
        name: name of the checks, in which {} stands for the label of the value.
        source, measures, quick: as in `part`.
        cases: one keyword argument, whose name is the name of the argument of `measures`. Its value maps
            labels to values of this argument.
    """
    ((argument, by_label),) = cases.items()
    return tuple(
        part(name.format(label), source, measures, quick, **{argument: case})
        for label, case in by_label.items()
    )


def printed_and_corrected(
    name: str, source: str, measures: Measures, quick: int, /, **case: Any
) -> tuple[Check, Check]:
    """Return the two checks of a misprinted statement, as printed and as corrected.

    Args:
        name, source, quick, case: as in `part`.
        measures: `measures(random, printed, **case)` returns the measures of one instance; `printed` is true
            for the statement as printed.
    """
    return (
        part(name, source, measures, quick, PRINTED, printed=True, **case),
        part(name, source, measures, quick, CORRECTED, printed=False, **case),
    )
