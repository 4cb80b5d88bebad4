"""Parts of claims: how many instances are drawn, and a misprinted statement beside the one that is meant."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from harness.checks import CORRECTED, PRINTED, Check, Measure, Series


def draws(quick: int) -> dict[str, int]:
    """So many instances at scale `quick`, and ten times as many at scale `paper`."""
    return {"quick": quick, "paper": 10 * quick}


def printed_and_corrected(
    part: str, source: str, measures: Callable[..., Iterable[Measure | Series]], quick: int
) -> tuple[Check, Check]:
    """A part as its statement is printed, and as it must be meant.

    Args:
        part, source: of both checks.
        measures: `measures(random, printed)`, the measures of one instance.
        quick: as `draws` takes it.
    """
    return (
        Check(part, source, partial(measures, printed=True), draws(quick), PRINTED),
        Check(part, source, partial(measures, printed=False), draws(quick), CORRECTED),
    )
