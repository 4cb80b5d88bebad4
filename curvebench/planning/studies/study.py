"""A question with the grid of runs that answers it, at all its scales and at one of them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from curvebench.planning.studies.seeds import FirstSeeds, first_seeds
from curvebench.registry import find_workload
from curvebench.results.verdicts import rules as rules_of
from curvebench.spec.claim import Claim
from curvebench.spec.document import Document, Headline
from curvebench.spec.method import BasisSpec, OptimizerSpec, WorkloadSpec, methods
from curvebench.spec.plan import BackendPlan, Deciding, MetricPlan, SkippedStudy, StudyPlan, WorkloadPlan
from curvebench.spec.study import Scale, StudyFile


class Study(Document):
    """A study file whose names are looked up; its name is the file's stem.

    Args:
        file: the study as it is written.
        workloads: each scale's, with their settings completed.
        first_seeds: those of a published set that is run again; None: as the rules say.
    """

    path: Path
    file: StudyFile
    optimizers: tuple[OptimizerSpec, ...]
    bases: tuple[BasisSpec, ...]
    workloads: dict[str, tuple[WorkloadSpec, ...]]
    first_seeds: FirstSeeds | None = None

    @property
    def name(self) -> str:
        """Its name."""
        return self.path.stem

    @property
    def claims(self) -> tuple[Claim, ...]:
        """The claims that it decides, and those of another study that it repeats."""
        return self.file.claims

    @property
    def scales(self) -> dict[str, Scale]:
        """Its scales by name."""
        return self.file.scales

    @property
    def repeated(self) -> frozenset[str]:
        """The claims of another study that are repeated here."""
        return frozenset(claim.repeats for claim in self.claims if claim.repeats)

    @property
    def only_repeats(self) -> bool:
        """Whether it has claims, all of them repeated."""
        return bool(self.claims) and all(claim.repeats for claim in self.claims)

    @property
    def cost(self) -> str:
        """What it would cost, by scale, as far as its file says so."""
        return "; ".join(f"at scale {name} {own.cost}" for name, own in self.scales.items() if own.cost)

    def optimizers_at(self, scale: str) -> tuple[OptimizerSpec, ...]:
        """Return the optimizers that are run at a scale."""
        labels = self.scales[scale].optimizers
        return tuple(one for one in self.optimizers if labels is None or one.label in labels)

    def claims_at(self, scale: str) -> tuple[Claim, ...]:
        """Return the claims whose methods are run at a scale."""
        labels = set(methods(self.optimizers_at(scale), self.bases))
        return tuple(claim for claim in self.claims if claim.methods <= labels)

    def backends_at(self, scale: str, asked: Sequence[str] = ()) -> tuple[str, ...]:
        """Return the backends that run methods of the study at a scale, of those asked for; empty for all."""
        own = (name for name in self.scales[scale].backends if not asked or name in asked)
        return tuple(name for name in own if any(one.runs_on(name) for one in self.optimizers_at(scale)))

    def scale_deciding(self, claim: Claim, preferred: str) -> str:
        """A scale at which a claim is decided: the preferred one, else that of the paper, else the first."""
        deciding = [name for name in self.scales if claim in self.claims_at(name)]
        return next((name for name in (preferred, "paper", *deciding) if name in deciding), preferred)

    def skipped(self, scale: str, reason: str) -> SkippedStudy:
        """Return the study as the report names it where it is left out at a scale."""
        return SkippedStudy(reason=reason, cost=self.cost, **self._deciding(scale, self.claims))

    def at(self, scale: str, backends: Sequence[str] = ()) -> StudyPlan:
        """Return the study as it is run and shown at a scale, in folders that are not known yet.

        Args:
            backends: on which it is run; empty for all that run its methods.
        """
        file, own, optimizers = self.file, self.scales[scale], self.optimizers_at(scale)
        used = {name: own.backends[name] for name in self.backends_at(scale, backends)}
        splits = own.evaluated_splits
        plan = StudyPlan.taken_from(
            file,
            tuning=file.tuning.sized(own.tuning),
            training=file.training(scale),
            compare=Headline(**dict(file.compare.metric), floor=file.compare.floor),
            notes=(*file.setting_notes, *filter(None, [own.note]), *_bound_to_backends(optimizers, used)),
            optimizers=optimizers,
            bases=tuple(one for one in self.bases if any(one.is_of(other.label) for other in optimizers)),
            workloads=tuple(_workload_plan(one, splits) for one in self.workloads[scale]),
            runs_on={
                name: BackendPlan(
                    device=use.device, tuned_on=use.tuned_on or name, final_seeds=own.final_seeds(name)
                )
                for name, use in used.items()
            },
            seeds=own.seeds,
            tables=Path(),
            figures=Path(),
            **self._deciding(scale, self.claims_at(scale)),
        )
        first = first_seeds(plan, {name: use.seeds for name, use in own.backends.items()}, self.first_seeds)
        return plan.model_copy(update={"first_tuning_seed": first.tuning, "first_final_seed": first.final})

    def _deciding(self, scale: str, claims: Sequence[Claim]) -> dict[str, Any]:
        """The fields of `curvebench.spec.plan.Deciding`, of some of its claims."""
        decided = Deciding(
            name=self.name,
            claims=tuple(claim for claim in claims if not claim.repeats),
            repeated=tuple(claim for claim in claims if claim.repeats),
            at_most_partly=self.scales[scale].at_most_partly if scale in self.scales else "",
        )
        return {**dict(decided), "rules": rules_of(decided)}


def _bound_to_backends(optimizers: Sequence[OptimizerSpec], backends: Collection[str]) -> list[str]:
    """A sentence on each contestant that does not run on every backend."""
    return [
        f"{one.label} is another library's and runs on {one.only_backend} alone"
        + ("." if one.only_backend in backends else ", which is not part of this run.")
        for one in optimizers
        if one.only_backend is not None
    ]


def _workload_plan(spec: WorkloadSpec, splits: tuple[str, ...] | None) -> WorkloadPlan:
    workload = find_workload(spec.locator).evaluated_on(splits)
    metrics = {name: MetricPlan.taken_from(metric) for name, metric in workload.metrics.items()}
    return WorkloadPlan.taken_from(
        workload, name=spec.name, locator=spec.locator, settings=dict(spec.settings), metrics=metrics
    )
