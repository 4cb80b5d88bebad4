"""Parts of claims: how many instances are drawn, and a misprinted statement beside the one that is meant."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from curvebench.property_checks.checks import CORRECTED, PRINTED, Check, Measure, Series
from curvebench.results.verdicts import Variant

Random = np.random.Generator  # what instances are drawn from
Measures = Callable[..., Iterable[Measure | Series]]


def part(
    name: str, source: str, measures: Measures, quick: int, variant: Variant = "", /, **case: Any
) -> Check:
    """A part of which `quick` instances are drawn at scale `quick`, and ten times as many at scale `paper`.

    Args:
        name, source, variant: of the check.
        measures: `measures(random, **case)`, the measures of one instance.
        quick: the number of instances.
        case: what it is measured for, such as a rule.
    """
    return Check(name, source, partial(measures, **case), {"quick": quick, "paper": 10 * quick}, variant)


def bounds(*checks: Check) -> tuple[Check, ...]:
    """Parts that are bounds, which a search tries to break."""
    return tuple(replace(check, bound=True) for check in checks)


def estimates(*checks: Check) -> tuple[Check, ...]:
    """Parts of estimates: an interval that holds the limit of an inequality decides nothing."""
    return tuple(replace(check, sampled=True) for check in checks)


def parts_for(
    name: str, source: str, measures: Measures, quick: int, /, **cases: Mapping[str, Any]
) -> tuple[Check, ...]:
    """A part for each case of one argument of `measures`, by what the name has in place of {}."""
    ((argument, by_label),) = cases.items()
    return tuple(
        part(name.format(label), source, measures, quick, **{argument: case})
        for label, case in by_label.items()
    )


def printed_and_corrected(
    name: str, source: str, measures: Measures, quick: int, /, **case: Any
) -> tuple[Check, Check]:
    """A part as its statement is printed, and as it must be meant: `measures(random, printed, **case)`."""
    return (
        part(name, source, measures, quick, PRINTED, printed=True, **case),
        part(name, source, measures, quick, CORRECTED, printed=False, **case),
    )
