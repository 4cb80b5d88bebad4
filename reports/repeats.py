"""Claims that are repeated in another setting: whether their comparisons keep their direction."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from reports.statistics.medians import median_interval

if TYPE_CHECKING:
    from reports.verdicts import Compared


@dataclass(frozen=True)
class Repeat:
    """What became of a claim's comparisons where they were made once more.

    Args:
        claim: the id of the claim that repeats.
        changed: how its runs differ, such as "in float64".
        study: whose runs they are.
        comparisons: how many have pairs in both studies.
        turned: those whose median effect has another direction, as words.
        seeds: the fewest pairs of a comparison made once more.
        effect: the effect with its interval, in words, where it is one comparison.
    """

    claim: str
    changed: str
    study: str
    comparisons: int
    turned: tuple[str, ...]
    seeds: int
    effect: str = ""

    def __str__(self) -> str:
        kept = self.comparisons - len(self.turned)
        what = "comparison" if self.comparisons == 1 else "comparisons"
        seeds = "1 seed" if self.seeds == 1 else f"{self.seeds} seeds"
        effect = f": {self.effect}" if self.effect else ""
        return f"{self.changed}: same direction in {kept} of {self.comparisons} {what} ({seeds}){effect}"


def keeps_direction(gains: np.ndarray, again: np.ndarray, margin: float) -> bool:
    """Whether two medians of gains have one sign, or both are too small to matter."""
    first, second = median_interval(gains).median, median_interval(again).median
    return bool(np.sign(first) == np.sign(second)) or max(abs(first), abs(second)) < margin


def repeat_of(
    claim: str, changed: str, study: str, first: Iterable[Compared], again: Iterable[Compared]
) -> Repeat | None:
    """How a claim's comparisons came out when they were made once more; None where there is no pair.

    Args:
        claim, changed, study: as `Repeat` has them.
        first: the comparisons of the claim that is repeated, on one backend.
        again: the same ones, workload by workload in the same order, though basis labels may differ.
    """
    before, after = _by_workload(first), _by_workload(again)
    pairs = [
        (one, other)
        for workload in before
        if workload in after
        for one, other in zip(before[workload], after[workload], strict=True)
        if len(one.gains) and len(other.gains)
    ]
    if not pairs:
        return None
    turned = tuple(
        f"{one.treated} and {one.control}, {one.condition.read} {one.condition.metric} on {one.workload}"
        for one, other in pairs
        if not keeps_direction(one.gains, other.gains, one.margin)
    )
    seeds = min(len(other.gains) for _, other in pairs)
    alone = pairs[0][1].bounds if len(pairs) == 1 else None
    effect = f"{alone.shown} {alone.range}" if alone else ""
    return Repeat(claim, changed, study, len(pairs), turned, seeds, effect)


def _by_workload(compared: Iterable[Compared]) -> dict[str, list[Compared]]:
    found: dict[str, list[Compared]] = {}
    for one in compared:
        found.setdefault(one.workload, []).append(one)
    return found
