"""The documents of a plan that reports read: studies, the parity of backends and the checks of claims."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from curvebench.planning.studies import (
    Study,
    at_defaults,
    first_seeds,
    missing_of,
    rule_of,
)
from curvebench.property_checks.check_rules import check_rule
from curvebench.property_checks.checks import claims_of, file_of
from curvebench.registry import find_workload
from curvebench.results.verdicts import rules as rules_of
from curvebench.spec.method import WorkloadSpec
from curvebench.spec.plan import (
    BackendPlan,
    ChecksPlan,
    ClaimPlan,
    Deciding,
    MetricPlan,
    ParityPlan,
    PartPlan,
    ProblemPlan,
    StudyPlan,
    WorkloadPlan,
)
from curvebench.spec.study import Sized
from curvebench.stages.parity_problems import PROBLEMS, STEPS, TOLERANCE


def _alone(study: Study, backends: tuple[str, ...]) -> list[str]:
    """A sentence on each contestant that does not run on every backend."""
    only = {spec.label: rule_of(spec).backend for spec in study.optimizers}
    return [
        f"{label} is another library's and runs on {backend} alone"
        + ("." if backend in backends else ", which is not part of this run.")
        for label, backend in only.items()
        if backend is not None
    ]


def describe(study: Study, scale: str, backends: tuple[str, ...]) -> StudyPlan:
    """A study as the report shows it, in folders that are not known yet."""
    own, first = study.scales[scale], first_seeds(study, scale)
    runs_on = {
        name: BackendPlan(
            device=own.backends[name].device,
            tuned_on=own.backends[name].tuned_on or name,
            final_seeds=own.final_seeds(name),
        )
        for name in backends
    }
    return StudyPlan.taken_from(
        study,
        notes=(*study.setting_notes, *filter(None, [own.note]), *_alone(study, backends)),
        workloads=tuple(_workload_plan(one, own.evaluated_splits) for one in study.workloads[scale]),
        runs_on=runs_on,
        first_tuning_seed=first.tuning,
        first_final_seed=first.final,
        targets=dict(sorted(study.targets.items())),  # the first one heads pages
        tables=Path(),
        figures=Path(),
        budget=own.budget,
        **{name: getattr(own, name) for name in Sized.model_fields},
        **deciding(study, scale),
    )


def _workload_plan(spec: WorkloadSpec, splits: tuple[str, ...] | None) -> WorkloadPlan:
    workload = find_workload(spec.locator).evaluated_on(splits)
    metrics = {name: MetricPlan.taken_from(metric) for name, metric in workload.metrics.items()}
    return WorkloadPlan.taken_from(
        workload, name=spec.name, locator=spec.locator, settings=dict(spec.settings), metrics=metrics
    )


def cost_of(study: Study) -> str:
    """What a study would cost, by scale, as far as its file says so."""
    return "; ".join(f"at scale {name} {own.cost}" for name, own in study.scales.items() if own.cost)


def deciding(study: Study, scale: str) -> dict[str, Any]:
    """What a study decides at a scale: the fields of `curvebench.spec.plan.Deciding`."""
    decided = Deciding(
        name=study.name,
        claims=study.own_claims,
        repeated=tuple(claim for claim in study.claims if claim.repeats),
        at_most_partly=study.scales[scale].at_most_partly if scale in study.scales else "",
    )
    return {**dict(decided), "rules": rules_of(decided)}


def describe_parity(tables: Iterable[Path]) -> ParityPlan:
    """The parity of backends as the report shows it: the problems, and where the tables are."""
    problems = tuple(map(ProblemPlan.taken_from, PROBLEMS))
    return ParityPlan(steps=STEPS, tolerance=TOLERANCE, problems=problems, tables=tuple(tables))


def describe_checks(tables: Mapping[str, Path], scale: str) -> ChecksPlan:
    """The claims that property checks decide as the report shows them, in figures that are not known yet.

    Args:
        tables: the folder of each module's tables.
    """
    claims = [
        ClaimPlan.taken_from(
            claim,
            file=file_of(module),
            rule=check_rule(claim),
            missing=missing_of(at_defaults(claim.workloads)) or "",
            parts=tuple(PartPlan.taken_from(one, instances=one.count(scale)) for one in claim.checks),
        )
        for module in tables
        for claim in claims_of(module)
    ]
    return ChecksPlan(claims=tuple(claims), tables=tuple(tables.values()), figures=Path())
