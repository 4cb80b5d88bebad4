"""A study, and its plan at one scale. A study is a question with the grid of runs that answers the question.

A scale is a size in which a study can be run, such as `quick` or `paper`. A claim is a sentence of a paper
that the study decides by comparing methods. A study can also repeat a claim of another study, that is, test
the claim once more under changed circumstances. The repetition does not decide the claim.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from pydantic import Field

from curvebench.basis_estimation.transformed_inputs import check_inputs
from curvebench.optimizers.bases import bases
from curvebench.planning.studies.seeds import FirstSeeds, first_seeds
from curvebench.registry import find_workload, missing_of, rule_of
from curvebench.results.verdicts import rules as rules_of
from curvebench.spec.claim import Claim
from curvebench.spec.document import Document, Headline
from curvebench.spec.method import BasisSpec, Method, OptimizerSpec, WorkloadSpec, methods
from curvebench.spec.plan import BackendPlan, MetricPlan, SkippedStudy, StudyClaims, StudyPlan, WorkloadPlan
from curvebench.spec.study import Scale, StudyFile, Sweep
from curvebench.steps.layout import Layout, layout


def layout_in(basis: BasisSpec, spec: WorkloadSpec) -> Layout:
    """Return the layout of a workload's parameters in the coordinates of a basis.

    The number of columns of a projected basis is known only after the basis is estimated. In the layout it is
    1, which changes no check of shapes, and no answer to the question which rule updates a parameter.

    Raises:
        ValueError: if the basis does not support the workload.
    """
    workload, kind = find_workload(spec.locator), bases()[basis.name]
    roles, shapes = workload.roles(spec.settings), workload.shapes_at(spec.settings)
    groups = kind.groups(basis.options, shapes, {name: role.kind for name, role in roles.items()})
    check_inputs(workload, ((group.names, group.change) for group in groups))
    changes = {group.names: (group.change, 1) for group in groups}
    return layout(shapes, roles, [group.names for group in groups], changes)


class Study(Document):
    """A study file in which all names have been looked up and all defaults are filled in.

    Args:
        path: path of the study file. The name of the study is the name of the file without its suffix.
        file: the parsed study file.
        workloads: a mapping from each scale to the workloads with all their settings.
        sweeps: for each workload that belongs to a sweep (workloads that differ in one setting), the sweep,
            by label of the workload.
        first_seeds: first seeds of the study in the published set that is reproduced. None if no set is
            reproduced; then the function `first_seeds` chooses the seeds.
        not_wrapped: a sentence for each optimizer that a wrapper of the key `wrap` cannot wrap.
        without_data: for each workload that is left out because its data are missing on this machine, how to
            get the data, by label of the workload.
    """

    path: Path
    file: StudyFile
    optimizers: tuple[OptimizerSpec, ...]
    bases: tuple[BasisSpec, ...]
    workloads: dict[str, tuple[WorkloadSpec, ...]]
    sweeps: dict[str, Sweep]
    first_seeds: FirstSeeds | None = None
    not_wrapped: tuple[str, ...] = ()
    without_data: dict[str, str] = Field(default_factory=dict)

    @property
    def name(self) -> str:
        """Name of the study."""
        return self.path.stem

    @property
    def claims(self) -> tuple[Claim, ...]:
        """Claims that this study decides, and claims of other studies that it repeats."""
        return self.file.claims

    @property
    def scales(self) -> dict[str, Scale]:
        """Mapping from the name of each scale to its definition."""
        return self.file.scales

    @property
    def repeated(self) -> frozenset[str]:
        """Ids of the claims of other studies that this study repeats."""
        return frozenset(claim.repeats for claim in self.claims if claim.repeats)

    @property
    def only_repeats(self) -> bool:
        """Whether the study has claims and all of them are repeated from another study."""
        return bool(self.claims) and all(claim.repeats for claim in self.claims)

    @property
    def cost(self) -> str:
        """Cost of the study as text, which lists the cost of each scale whose definition gives a cost."""
        return "; ".join(f"at scale {name} {scale.cost}" for name, scale in self.scales.items() if scale.cost)

    def optimizers_at(self, scale: str) -> tuple[OptimizerSpec, ...]:
        """Return the optimizers that run at a scale."""
        labels = self.scales[scale].optimizers
        return tuple(spec for spec in self.optimizers if labels is None or spec.label in labels)

    def claims_at(self, scale: str) -> tuple[Claim, ...]:
        """Return the claims whose methods all run at a scale."""
        labels = set(methods(self.optimizers_at(scale), self.bases))
        return tuple(claim for claim in self.claims if claim.methods <= labels)

    def backends_at(self, scale: str, among: Sequence[str] = ()) -> tuple[str, ...]:
        """Return the backends that can run methods of the study at a scale.

        Args:
            scale: name of the scale.
            among: names of the backends to select from; empty for all backends of the scale.
        """
        names = (name for name in self.scales[scale].backends if not among or name in among)
        return tuple(name for name in names if any(spec.runs_on(name) for spec in self.optimizers_at(scale)))

    def scale_deciding(self, claim: Claim, preferred: str) -> str:
        """Return the scale at which a claim is decided, among the scales at which all its methods run.

        Args:
            claim: a claim of the study.
            preferred: name of the scale to return if it decides the claim. Otherwise the result is the scale
                `paper` if it decides the claim, else the first scale of the file that decides the claim. If
                no scale decides the claim, the result is `preferred`.
        """
        deciding = [name for name in self.scales if claim in self.claims_at(name)]
        return next((name for name in (preferred, "paper", *deciding) if name in deciding), preferred)

    def with_data(self, scale: str) -> Study:
        """Return the study without the workloads of a scale whose data are missing on this machine.

        The study is returned unchanged if it has claims, which may be about all its workloads, or if no
        workload would remain.
        """
        reasons = {spec.name: missing_of([spec]) for spec in self.workloads[scale]}
        absent = {name: reason for name, reason in reasons.items() if reason}
        if self.claims or len(absent) == len(reasons):
            return self
        kept = tuple(spec for spec in self.workloads[scale] if spec.name not in absent)
        return self.model_copy(update={"workloads": {**self.workloads, scale: kept}, "without_data": absent})

    def skipped(self, scale: str, reason: str) -> SkippedStudy:
        """Return the entry of the study in the list of skipped studies of the report plan.

        Args:
            scale: name of the scale at which the study is not run.
            reason: why the study is not run.
        """
        return SkippedStudy(reason=reason, cost=self.cost, **self._deciding(scale, self.claims))

    def at(self, scale: str, backends: Sequence[str] = ()) -> StudyPlan:
        """Return the plan of the study at a scale, still without the folders of tables and figures.

        Args:
            scale: name of the scale.
            backends: names of the backends to run on; empty for all backends that the scale lists and that
                can run a method of the study.
        """
        file, size, optimizers = self.file, self.scales[scale], self.optimizers_at(scale)
        used = {name: size.backends[name] for name in self.backends_at(scale, backends)}
        labels = [optimizer.label for optimizer in optimizers]
        splits = size.evaluated_splits
        left_out = (f"{name} is left out: {reason}" for name, reason in self.without_data.items())
        plan = StudyPlan.taken_from(
            file,
            tuning=file.tuning.sized(size.tuning),
            training=file.training(scale),
            compare=Headline(**dict(file.compare.metric), floor=file.compare.floor),
            notes=(
                *file.setting_notes,
                *filter(None, [size.note]),
                *left_out,
                *self.not_wrapped,
                *_bound_to_backends(optimizers, used),
            ),
            optimizers=optimizers,
            bases=tuple(basis for basis in self.bases if any(map(basis.applies_to, labels))),
            workloads=tuple(_workload_plan(spec, self.sweeps, splits) for spec in self.workloads[scale]),
            runs_on={
                name: BackendPlan(
                    device=use.device, tuned_on=use.tuned_on or name, final_seeds=size.final_seeds(name)
                )
                for name, use in used.items()
            },
            seeds=size.seeds,
            acts_as=self.acts_as(scale),
            tables=Path(),
            figures=Path(),
            **self._deciding(scale, self.claims_at(scale)),
        )
        first = first_seeds(plan, {name: use.seeds for name, use in size.backends.items()}, self.first_seeds)
        return plan.model_copy(update={"first_tuning_seed": first.tuning, "first_final_seed": first.final})

    def acts_as(self, scale: str) -> dict[str, dict[str, str]]:
        """Return a mapping from methods that are a known method on some workloads to these workloads.

        The values map the label of a workload to the name of the known method (`Rule.acts_as`).

        Args:
            scale: name of the scale.
        """
        names: dict[str, dict[str, str]] = {}
        for basis, spec in product(self.bases, self.workloads[scale]):
            arrays = layout_in(basis, spec)
            for optimizer in self.optimizers_at(scale):
                known = rule_of(optimizer).acts_as(arrays.shapes, arrays.roles)
                if known and basis.applies_to(optimizer.label):
                    method = Method(optimizer.label, basis.label).label
                    names.setdefault(method, {})[spec.name] = known
        return names

    def _deciding(self, scale: str, claims: Sequence[Claim]) -> dict[str, Any]:
        """Return a mapping from the names of the fields of `curvebench.spec.plan.StudyClaims` to values.

        Args:
            scale: name of the scale.
            claims: the claims of the study that are decided or repeated at the scale.
        """
        decided = StudyClaims(
            name=self.name,
            claims=tuple(claim for claim in claims if not claim.repeats),
            repeated=tuple(claim for claim in claims if claim.repeats),
            at_most_partly=self.scales[scale].at_most_partly if scale in self.scales else "",
        )
        return {**dict(decided), "rules": rules_of(decided)}


def _bound_to_backends(optimizers: Sequence[OptimizerSpec], backends: Collection[str]) -> list[str]:
    """Return for each optimizer of another library a sentence that says on which single backend it runs.

    Args:
        optimizers: the optimizers of a study.
        backends: the backends on which the study runs.
    """
    return [
        f"{spec.label} is another library's and runs on {spec.only_backend} alone."
        for spec in optimizers
        if spec.only_backend in backends
    ]


def _workload_plan(
    spec: WorkloadSpec, sweeps: Mapping[str, Sweep], splits: tuple[str, ...] | None
) -> WorkloadPlan:
    workload = find_workload(spec.locator).at(spec.settings).evaluated_on(splits)
    metrics = {name: MetricPlan.taken_from(metric) for name, metric in workload.metrics.items()}
    return WorkloadPlan.taken_from(
        workload,
        name=spec.name,
        locator=spec.locator,
        settings=dict(spec.settings),
        metrics=metrics,
        sweep=sweeps.get(spec.name),
    )
