"""A study as its pages show it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from curvebench.planning.studies.seeds import first_seeds
from curvebench.planning.studies.study import Study
from curvebench.registry import find_workload, rule_of
from curvebench.results.verdicts import rules as rules_of
from curvebench.spec.method import WorkloadSpec
from curvebench.spec.plan import BackendPlan, Deciding, MetricPlan, StudyPlan, WorkloadPlan
from curvebench.spec.study import Sized


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


def deciding(study: Study, scale: str) -> dict[str, Any]:
    """What a study decides at a scale: the fields of `curvebench.spec.plan.Deciding`."""
    decided = Deciding(
        name=study.name,
        claims=study.own_claims,
        repeated=tuple(claim for claim in study.claims if claim.repeats),
        at_most_partly=study.scales[scale].at_most_partly if scale in study.scales else "",
    )
    return {**dict(decided), "rules": rules_of(decided)}
