"""What `curvebench check` says of valid studies: claims out of the reach of their seeds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import ceil, log2

from documents.claim import Condition
from harness.planning.studies import Study, final_seeds, tuning_seeds
from results.verdicts import ALPHA

LEAST_PAIRS = ceil(-log2(ALPHA))  # all leaning one way have a p-value of 2^-pairs on one side


def cautions(studies: Iterable[Study], scale: str) -> Iterator[str]:
    """A sentence on each claim that cannot hold at a scale: so few pairs give no p-value small enough."""
    for study in studies:
        for claim in study.claims if scale in study.scales else ():
            for backend in study.scales[scale].backends if not claim.repeats else ():
                counts = [_pairs(study, condition, scale, backend) for condition in claim.conditions]
                pairs = min(filter(None, counts), default=LEAST_PAIRS)
                if pairs < LEAST_PAIRS:
                    yield (
                        f"{study.path}: {claim.id} cannot be reproduced on {backend}: with {pairs} pairs of "
                        f"runs no p-value is below {2.0**-pairs:.2g}; {LEAST_PAIRS} seeds can reach {ALPHA}"
                    )


def _pairs(study: Study, condition: Condition, scale: str, backend: str) -> int:
    """How many pairs of runs a comparison has; none of tuning runs where a backend has none."""
    own = study.scales[scale]
    if not condition.of_tuning:
        return len(final_seeds(study, scale, backend))
    return 0 if own.backends[backend].tuned_on else len(tuning_seeds(own))
