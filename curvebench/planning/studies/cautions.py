"""Warnings about valid studies: too few seeds, moving averages that stall, known settings that are not tried.

A claim is a sentence of a paper. It is decided by comparing pairs of runs: two methods with the same seed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import product
from math import ceil, log2

from curvebench.optimizers.rule import share
from curvebench.optimizers.state_precision import HALF
from curvebench.planning.studies.study import Study
from curvebench.registry import rule_of
from curvebench.results.reading import read
from curvebench.results.tuning import outside, search_lookup
from curvebench.results.verdicts import ALPHA
from curvebench.spec.conditions.condition import Condition
from curvebench.spec.method import Method, OptimizerSpec
from curvebench.spec.plan import ReportPlan, StudyPlan

# Smallest number of pairs of runs with which a claim can be decided.
# If all pairs favour the same method, the one-sided p-value is 2^-pairs, which must be at most ALPHA.
MIN_PAIRS = ceil(-log2(ALPHA))
# Largest decay rate with which an exponential moving average works in half precision.
# An update moves the average by (1 - decay rate) times the distance between new value and average.
# Half precision rounds away changes of less than 1/256 of the average.
# The average therefore stops far from its limit if the decay rate is larger.
MAX_DECAY = 0.99
# A published setting outside of a search is reported if its cost is lower by at least this share.
# The cost is compared with the costs of the published settings that the search contains.
MIN_GAIN = 0.05


def cautions(studies: Iterable[Study], scale: str) -> Iterator[str]:
    """Yield a sentence for each choice in a study that is valid but likely to disappoint.

    Three kinds of choices get a sentence: a claim that is not decided at the scale; a claim with too few
    pairs of runs for a p-value below the significance level; and a method whose exponential moving averages
    stall in half precision.

    Args:
        studies: the studies.
        scale: name of the scale, which is a size in which the studies can be run.
    """
    for study in (study for study in studies if scale in study.scales):
        plan, path = study.at(scale), study.path
        for claim in study.claims:
            if claim not in (*plan.claims, *plan.repeated):
                yield f"{path}: {claim.id} is not decided at {scale}, which leaves out methods of it"
        for optimizer in plan.optimizers:
            if slow := dict(_slow_means(plan, optimizer)):
                decays = " and ".join(f"{name} = {value:g}" for name, value in slow.items())
                yield (
                    f"{path}: {optimizer.label} holds running means in {HALF}, where those with {decays} "
                    f"stop short of what they are of; give {' and '.join(slow)} {MAX_DECAY} or less"
                )
        for claim in plan.claims:
            for backend in plan.backends:
                counts = [_pairs(plan, condition, backend) for condition in claim.conditions]
                pairs = min(filter(None, counts), default=MIN_PAIRS)
                if pairs < MIN_PAIRS:
                    yield (
                        f"{path}: {claim.id} cannot be reproduced on {backend}: with {pairs} pairs of "
                        f"runs no p-value is below {2.0**-pairs:.2g}; {MIN_PAIRS} seeds can reach {ALPHA}"
                    )


def acting(studies: Iterable[Study]) -> Iterator[str]:
    """Yield a sentence for each optimizer that is a known method on some workloads (`Rule.acts_as`)."""
    for study in studies:
        found: dict[tuple[str, str], dict[str, None]] = {}
        for method, names in (item for scale in study.scales for item in study.acts_as(scale).items()):
            for workload, known in names.items():
                found.setdefault((Method.of(method).optimizer, known), {})[workload] = None
        for (optimizer, known), workloads in found.items():
            where = ", ".join(workloads)
            yield f"{study.path}: optimizers.{optimizer}: acts as {known} on {where}, and has no score there"


def better_known(studies: Iterable[Study], published: Sequence[ReportPlan]) -> Iterator[str]:
    """Yield a sentence for each method whose search does not contain the best published setting.

    Args:
        studies: the studies.
        published: plans of the published sets. Their tuning runs show which setting of a method is best.
    """
    sets = [
        (of.published, search_lookup((one, partial(read, one.tables, "runs")) for one in of.studies))
        for of in published
    ]
    for study, scale in ((one, scale) for one in studies for scale in one.scales):
        plan = study.at(scale)
        found = [(name, search) for name, comparable_to in sets for search in comparable_to(plan)]
        for optimizer, basis, workload in product(plan.optimizers, plan.bases, plan.workloads):
            known = [item for item in found if item[1].is_of(optimizer, basis, workload)]
            name, best = min(known, key=lambda item: item[1].cost, default=("", None))
            if best is None or not (values := outside(plan, optimizer, best.setting)):
                continue
            inside = [search for _, search in known if not outside(plan, optimizer, search.setting)]
            if all(best.is_better(search, MIN_GAIN) for search in inside):
                method = Method(optimizer.label, basis.label).label
                names = plan.tuning.for_optimizer(optimizer).names
                tried = ", ".join(f"{key}: {best.setting[key]}" for key in names if key in best.setting)
                untuned = [f"{key} = {value:g}" for key, value in values.items() if key not in names]
                line = f"add also_try: [{{{tried}}}]" + f", tune or set {' and '.join(untuned)}" * bool(
                    untuned
                )
                yield (
                    f"{study.path}: scales.{scale}: the search of {method} on {workload.name} does not "
                    f"contain the best known setting, of {best.study.name} in {name}; {line}"
                )


def _slow_means(study: StudyPlan, optimizer: OptimizerSpec) -> Iterator[tuple[str, float]]:
    """Yield name and value of each decay rate of an optimizer that exceeds `MAX_DECAY`.

    Decay rates that are tuned are left out. Nothing is yielded for an optimizer that does not keep its moving
    averages in half precision.
    """
    state_precision = optimizer.options.get("state_precision")
    if state_precision == HALF or (study.training.precision == HALF and state_precision != "computed"):
        tuned = study.tuning.for_optimizer(optimizer).bounds
        for name, hyperparameter in rule_of(optimizer).hyperparameters.items():
            value = optimizer.hyperparameters.get(name, hyperparameter.default) or 0.0
            if hyperparameter.interval == share("", 0.0).interval and name not in tuned and value > MAX_DECAY:
                yield name, value


def _pairs(study: StudyPlan, condition: Condition, backend: str) -> int:
    """Return the number of pairs of runs with which a condition of a claim compares two methods on a backend.

    For a condition on final runs, the result is the number of final seeds. For a condition on tuning runs,
    the result is the number of tuning seeds, or 0 if the hyperparameters of the backend were tuned on another
    backend.
    """
    if not condition.of_tuning:
        return study.runs_on[backend].final_seeds
    return study.seeds.tuning if study.tuned_on[backend] == backend else 0
