"""What `curvebench check` says of valid studies: claims out of the reach of their seeds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from documents.claim import Condition
from harness.planning.studies import Study, final_seeds, tuning_seeds
from harness.registry import find_workload
from results.least_p import least_paired_p, least_pairs
from results.verdicts import ALPHA


def cautions(studies: Iterable[Study], scale: str) -> Iterator[str]:
    """A sentence on each claim that cannot hold at a scale: so few pairs give no p-value small enough.

    Args:
        studies: as a report shows them together: comparisons of all may share a family.
    """
    deciding = [
        (study, claim, backend)
        for study in studies
        for claim in study.claims
        if scale in study.scales and not claim.repeats
        for backend in study.scales[scale].backends
    ]
    families: Counter[tuple[str, str]] = Counter()
    for study, claim, backend in deciding:
        for condition in claim.conditions:
            families[condition.family, backend] += _comparisons(study, condition, scale)
    for study, claim, backend in deciding:
        short = []
        for condition in claim.conditions:
            pairs = _pairs(study, condition, scale, backend)
            family = families[condition.family, backend]
            if pairs and family and least_paired_p(pairs, family) > ALPHA:
                short.append((least_pairs(ALPHA, family), family, pairs))
        if short:
            needed, family, pairs = max(short)
            compared = "comparison" if family == 1 else "comparisons"
            yield (
                f"{study.path}: {claim.id} cannot be reproduced on {backend}: with {pairs} pairs of runs no "
                f"p-value is below {least_paired_p(pairs, family):.2g} after Holm's correction for {family} "
                f"{compared}; {needed} seeds can reach {ALPHA}"
            )


def _comparisons(study: Study, condition: Condition, scale: str) -> int:
    """How many comparisons a condition makes."""
    asked = [
        spec
        for spec in study.workloads[scale]
        if condition.workload in (None, spec.name) and condition.metric in find_workload(spec.locator).metrics
    ]
    return len(condition.contests) * len(asked)


def _pairs(study: Study, condition: Condition, scale: str, backend: str) -> int:
    """How many pairs of runs a comparison has; none of tuning runs where a backend has none."""
    own = study.scales[scale]
    if not condition.of_tuning:
        return len(final_seeds(own, backend))
    return 0 if own.backends[backend].tuned_on else len(tuning_seeds(own))
