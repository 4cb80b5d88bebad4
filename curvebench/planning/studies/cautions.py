"""What `check` and `plan` say of valid studies: claims out of reach of their seeds, means that stop."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import ceil, log2

from curvebench.optimizers.rule import share
from curvebench.optimizers.state_precision import HALF
from curvebench.planning.studies.study import Study
from curvebench.registry import rule_of
from curvebench.results.verdicts import ALPHA
from curvebench.spec.conditions.condition import Condition
from curvebench.spec.method import OptimizerSpec
from curvebench.spec.plan import StudyPlan

LEAST_PAIRS = ceil(-log2(ALPHA))  # all leaning one way have a p-value of 2^-pairs on one side
MOST_KEPT = 0.99  # of a running mean in half precision: smaller moves than 1/256 of it are rounded away


def cautions(studies: Iterable[Study], scale: str) -> Iterator[str]:
    """A sentence on each claim that cannot hold at a scale: so few pairs give no p-value small enough.

    And one on each method whose state in half precision holds running means that hardly move there.
    """
    for whole in (one for one in studies if scale in one.scales):
        study, path = whole.at(scale), whole.path
        for claim in whole.claims:
            if claim not in (*study.claims, *study.repeated):
                yield f"{path}: {claim.id} is not decided at {scale}, which leaves out methods of it"
        for optimizer in study.optimizers:
            if slow := dict(_slow_means(study, optimizer)):
                kept = " and ".join(f"{name} = {value:g}" for name, value in slow.items())
                yield (
                    f"{path}: {optimizer.label} holds running means in {HALF}, where those with {kept} "
                    f"stop short of what they are of; give {' and '.join(slow)} {MOST_KEPT} or less"
                )
        for claim in study.claims:
            for backend in study.backends:
                counts = [_pairs(study, one, backend) for one in claim.conditions]
                pairs = min(filter(None, counts), default=LEAST_PAIRS)
                if pairs < LEAST_PAIRS:
                    yield (
                        f"{path}: {claim.id} cannot be reproduced on {backend}: with {pairs} pairs of "
                        f"runs no p-value is below {2.0**-pairs:.2g}; {LEAST_PAIRS} seeds can reach {ALPHA}"
                    )


def _slow_means(study: StudyPlan, optimizer: OptimizerSpec) -> Iterator[tuple[str, float]]:
    """The shares kept of running means, by name, that are too large for state in half precision."""
    held = optimizer.options.get("state_precision")
    if held == HALF or (study.training.precision == HALF and held != "computed"):
        tuned = study.tuning.for_optimizer(optimizer).bounds
        for name, one in rule_of(optimizer).hyperparameters.items():
            value = optimizer.hyperparameters.get(name, one.default) or 0.0
            if one.interval == share("", 0.0).interval and name not in tuned and value > MOST_KEPT:
                yield name, value


def _pairs(study: StudyPlan, condition: Condition, backend: str) -> int:
    """How many pairs of runs a comparison has; none of tuning runs where a backend has none."""
    if not condition.of_tuning:
        return study.runs_on[backend].final_seeds
    return study.seeds.tuning if study.tuned_on[backend] == backend else 0
