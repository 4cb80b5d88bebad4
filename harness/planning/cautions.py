"""What `curvebench check` says of valid studies: claims out of their reach, odd periods."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from documents.claim import Condition
from documents.method import BasisSpec
from harness.planning.studies import Study, final_seeds, tuning_seeds
from harness.registry import find_workload
from optimizers.bases import bases
from results.least_p import least_paired_p, least_pairs
from results.verdicts import ALPHA


def cautions(studies: Iterable[Study], scale: str) -> list[str]:
    """A sentence on each claim that a scale's seeds cannot bear out, and on each period that fits no stretch.

    Args:
        studies: as a report shows them together: comparisons of all may share a family.
    """
    here = [study for study in studies if scale in study.scales]
    return [*_out_of_reach(here, scale), *(said for study in here for said in _periods(study, scale))]


# --- claims --------------------------------------------------------------------------------------


def _out_of_reach(studies: Iterable[Study], scale: str) -> Iterator[str]:
    """The claims with a comparison that cannot hold: so few pairs give no p-value that survives Holm's."""
    deciding = [
        (study, claim, backend)
        for study in studies
        for claim in study.claims
        if not claim.repeats
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


# --- bases that are estimated anew ---------------------------------------------------------------


def _periods(study: Study, scale: str) -> Iterator[str]:
    """The bases whose period is longer than a run, or cuts the stretches between evaluations."""
    own = study.scales[scale]
    ((unit, budget),) = own.budget.items()
    for basis in study.bases:
        period = _period(basis, unit)
        if period is None:
            continue
        stretch = budget // own.evaluations
        where = f"{study.path}: scales.{scale}: basis {basis.label}, every {period} {unit}"
        if period >= budget:
            yield f"{where}: never anew in a run of {budget} {unit}"
        elif budget % period:
            yield f"{where}: does not divide {budget} {unit}; the last basis serves {budget % period} of them"
        elif period % stretch and stretch % period:
            yield (
                f"{where}: does not fit the {stretch} {unit} between evaluations, which are cut into pieces, "
                "each length compiled by itself"
            )


def _period(basis: BasisSpec, unit: str) -> int | None:
    """After how many steps or epochs a basis is estimated anew; None where it is not, or in another unit."""
    chosen = bases()[basis.name].reestimation(basis.options)
    return chosen.count if chosen is not None and chosen.unit == unit else None
