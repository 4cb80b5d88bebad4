"""A study file whose names are looked up, and what stands beside them is checked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

from curvebench.backends import BACKENDS
from curvebench.basis_estimation.transformed_inputs import check_inputs
from curvebench.engine.bundle import check_accumulation
from curvebench.engine.loading import rule_held
from curvebench.engine.schedules import EXPONENTIAL, SHAPES, scheduled
from curvebench.interop.foreign import is_foreign
from curvebench.optimizers import HyperparameterError
from curvebench.optimizers.bases import bases
from curvebench.planning.studies.study import Study
from curvebench.precision import POLICIES, Policy
from curvebench.registry import canonical, canonical_in, find_rule, find_workload, rule_of
from curvebench.spec.claim import Claim
from curvebench.spec.conditions.condition import Condition
from curvebench.spec.errors import InputError, Problems, unknown
from curvebench.spec.method import IDENTITY, BasisSpec, Method, OptimizerSpec, WorkloadSpec, methods
from curvebench.spec.study import Contestant, Named, Scale, StudyFile, in_letters, read_study_file
from curvebench.spec.training import TrainingProtocol
from curvebench.spec.tuning import SpaceSearch
from curvebench.spec.values import completed
from curvebench.steps.layout import Layout, layout
from curvebench.steps.program import StepProtocol
from curvebench.steps.update import Update
from curvebench.workloads import Metric, Workload
from curvebench.workloads.workload import split_of


def read_study(path: Path) -> Study:
    """One study, validated against the registries of workloads, optimizers, bases and backends.

    Raises:
        InputError: with a line for each problem.
    """
    return _Reader(read_study_file(path), path, Problems(f"{path}: ")).study()


class Known(NamedTuple):
    """A workload as the study has it, where it is found, and what is there."""

    entry: Named
    locator: str
    workload: Workload


@dataclass(frozen=True)
class _Reader:
    """Looks up the names of a study file, and checks them and what stands beside them.

    Args:
        problems: where all that is wrong is reported.
    """

    file: StudyFile
    path: Path
    problems: Problems

    def study(self) -> Study:
        """The study of the file.

        Raises:
            InputError: with a line for each problem.
        """
        file, problems = self.file, self.problems
        with problems.caught("file name: "):
            in_letters(self.path.stem)
        ids = [claim.id for claim in file.claims]
        problems.once("claims", ids, "the id {!r} is given twice; ids must differ")
        resolved = self.known, self.optimizers, self.bases
        if not problems:  # else a name that lacks is no claim's fault
            self._check_metrics()
            self._check_ties()
            for key, condition in _conditions(file.claims):
                self._check_condition(key, condition)
                problems.known(key, "the study", "method", condition.named, methods(*resolved[1:]))
            self._check_workloads()
        self._check_costs()
        for name, scale in file.scales.items():
            self._check_backends(f"scales.{name}", scale)
            self._check_splits(f"scales.{name}.evaluated_splits", scale.evaluated_splits)
            self._check_warmup(f"scales.{name}", scale)
            self._check_methods(f"scales.{name}", scale)
        workloads = {name: self._workloads(name) for name in file.scales}
        for name, specs in workloads.items():
            self._check_layouts(specs)
            self._check_accumulation(f"scales.{name}.gradient_accumulation", file.training(name), specs)
        problems.known("schedule.name", "the harness", "schedule", [file.schedule.name], SHAPES)
        problems.check()
        return Study(
            path=self.path, file=file, optimizers=self.optimizers, bases=self.bases, workloads=workloads
        )

    # --- names -----------------------------------------------------------------------------------

    @cached_property
    def known(self) -> dict[str, Known]:
        """The workloads of the study, by what tables call them: their labels, or their own names."""
        found: list[tuple[str, Known]] = []
        for entry in self.file.workloads:
            locator = canonical(entry.name, self.path.parent)
            with self.problems.caught("workloads: "):
                workload = find_workload(locator)
                found.append((entry.label or workload.name, Known(entry, locator, workload)))
        names = [name for name, _ in found]
        self.problems.once("workloads", names, "two workloads are called {!r}; give each its own `label:`")
        return dict(found)

    @cached_property
    def metrics(self) -> dict[str, Metric]:
        """The metrics that all workloads of the study give."""
        first, *others = [one.workload.metrics for one in self.known.values()]
        return {name: metric for name, metric in first.items() if all(name in other for other in others)}

    @cached_property
    def optimizers(self) -> tuple[OptimizerSpec, ...]:
        """The optimizers of the study, with their options completed."""
        specs, folder = [], self.path.parent
        for entry in self.file.optimizers:
            with self.problems.caught(f"optimizers.{entry.name}: "):
                options = canonical_in(entry.options, folder)
                found = entry.model_copy(update={"options": options})
                specs.append(_optimizer(self.file, found, canonical(entry.name, folder)))
        labels = [spec.label for spec in specs]
        self.problems.once("optimizers", labels, "two optimizers are called {!r}; give each its own `label:`")
        return tuple(specs)

    @cached_property
    def bases(self) -> tuple[BasisSpec, ...]:
        """The bases of the study, with their options completed."""
        specs, problems, tuning = [], self.problems, self.file.tuning
        for entry in self.file.bases:
            label, own = entry.label or entry.name, entry.optimizers or ()
            problems.known("bases", "the suite", "basis", [entry.name], bases())
            if entry.name not in bases():
                continue
            if (entry.name == IDENTITY) != (label == IDENTITY):
                said = "'identity' is the label of the identity basis, and of no other"
                problems.add(f"bases.{entry.name}.label: {said}")
                continue
            with problems.caught(f"bases.{label}: "):
                specs.append(BasisSpec(label, entry.name, bases()[entry.name].complete(entry.options), own))
            self._check_labels(f"bases.{label}.optimizers", own)
            if own and label == IDENTITY:
                problems.add("bases.identity.optimizers: all run in original coordinates; leave it out")
        labels, tried = [spec.label for spec in specs], tuning.tuned_bases or ()
        problems.once("bases", labels, "two bases are labelled {!r}; give each its own `label:`")
        problems.known("tuning.tuned_bases", "the study", "basis", tried, labels)
        if tried and tuning.shared_across == "none":
            said = "each basis chooses for itself; leave it out, or say shared_across: bases"
            problems.add(f"tuning.tuned_bases: {said}")
        elif tried and IDENTITY not in tried:
            problems.add("tuning.tuned_bases: the identity basis chooses for all; add identity")
        if tuning.shared_across == "bases" and IDENTITY not in {entry.name for entry in self.file.bases}:
            said = "needs the identity basis, whose choice is shared; add it to bases"
            problems.add(f"tuning.shared_across: {said}")
        return tuple(specs)

    def _workloads(self, scale: str) -> tuple[WorkloadSpec, ...]:
        """The workloads with their settings at a scale, whose own settings stand above the study's."""
        own, specs = self.file.scales[scale].settings, []
        self.problems.known(f"scales.{scale}.settings", "the study", "workload", own, self.known)
        for name, (entry, locator, workload) in self.known.items():
            with self.problems.caught(f"workloads.{name}: "):
                settings = workload.complete({**entry.options, **own.get(name, {})})
                specs.append(WorkloadSpec(name, settings, locator))
        return tuple(specs)

    # --- metrics and claims ----------------------------------------------------------------------

    @property
    def _named_metrics(self) -> dict[str, str]:
        """The metrics that the study names, by the key that does."""
        file = self.file
        used = {"tuning.choose": file.tuning.choose.metric, "compare.metric": file.compare.metric.metric}
        if file.tuning.tie_break is not None:
            used["tuning.tie_break"] = file.tuning.tie_break.metric
        used |= {f"targets.{metric}": metric for metric in file.targets}
        return used | {key: condition.metric for key, condition in _conditions(file.claims)}

    def _check_metrics(self) -> None:
        owner = "the study" if len(self.known) == 1 else "the list of what all workloads measure"
        for key, metric in self._named_metrics.items():
            self.problems.known(key, owner, "metric", [metric], self.metrics)

    def _check_ties(self) -> None:
        """Check that settings that tie can be told apart, as all do that stop where the criterion does."""
        choose, ties, stop = self.file.tuning.choose, self.file.tuning.tie_break, self.file.stop
        said = None
        if ties is None and choose.metric in stop:
            given = f"median steps_to_stop {choose.metric}"
            said = f"all settings that stop tie by {choose.metric}; give what decides, such as {given}"
        if ties is not None and ties.which == "steps_to_stop" and ties.metric not in stop:
            said = f"runs do not stop at a {ties.metric}; give it in stop"
        if ties is not None and ties.which == "steps_to_target" and ties.metric not in self.file.targets:
            said = f"there is no target of {ties.metric}; give it in targets"
        if said:
            self.problems.add(f"tuning.tie_break: {said}")

    def _check_condition(self, key: str, condition: Condition) -> None:
        """Check that what a condition asks of a metric is in the runs of the study, and can be so."""
        file, metric, known = self.file, condition.metric, self.metrics.get(condition.metric)
        untried = [name for name in sorted(condition.named) if not file.tuning.tries(Method.of(name).basis)]
        if condition.of_tuning and untried:
            remedy = "add its basis to tuning.tuned_bases"
            self.problems.add(f"{key}.quantity: tuning does not try {untried[0]}; {remedy}")
        direction = known.direction if known else None
        for said in condition.misfits(file.stop.get(metric), metric in file.targets, direction):
            self.problems.add(f"{key}.{said}")

    def _check_workloads(self) -> None:
        """Check that targets and conditions are about workloads of the study."""
        file, known = self.file, partial(self.problems.known, owner="the study", kind="workload")
        for metric, at in file.targets.items():
            if isinstance(at, dict) and not file.joins:  # of one that joins they may be more
                known(f"targets.{metric}", names=sorted(at), valid=self.known)
        for key, condition in _conditions(claim for claim in file.claims if not claim.repeats):
            known(f"{key}.workload", names=filter(None, [condition.workload]), valid=self.known)
            known(
                f"{key}.control_workload", names=filter(None, [condition.control_workload]), valid=self.known
            )

    def _check_costs(self) -> None:
        """Check that no basis is estimated during a run whose costs are charged: only those before are."""
        charged = any(condition.charges_bases for _, condition in _conditions(self.file.claims))
        for basis in self.bases if self.file.targets or charged else ():
            if basis.options.get("every") is not None:
                self.problems.add(
                    f"bases.{basis.label}: its gradients during a run are not charged to times to targets, "
                    "at_equal and seconds_to_nearly_best; leave out every, or these"
                )

    # --- scales ----------------------------------------------------------------------------------

    def _check_backends(self, key: str, scale: Scale) -> None:
        tuners = [name for name, use in scale.backends.items() if use.tuned_on is None]
        problems, misspelt = self.problems, scale.backends.keys() - {*BACKENDS}
        problems.known(f"{key}.backends", "the harness", "backend", scale.backends, BACKENDS)
        for name, use in scale.backends.items():
            at = f"{key}.backends.{name}"
            if use.tuned_on is not None and not misspelt:  # one error, not two
                kind = "backend with its own tuning"
                problems.known(f"{at}.tuned_on", "this scale", kind, [use.tuned_on], tuners)
            if scale.final_seeds(name) > scale.seeds.final:
                said = f"{scale.final_seeds(name)} is more than the scale's final seeds"
                problems.add(f"{at}.seeds.final: {said}; use at most {scale.seeds.final}")

    def _check_splits(self, key: str, evaluated: tuple[str, ...] | None) -> None:
        """Check that evaluated splits are there, and that no metric of another is named."""
        if evaluated is None:
            return
        there = dict.fromkeys(split for one in self.known.values() for split in one.workload.evaluated_splits)
        if there:
            self.problems.known(key, "the list of what workloads evaluate", "split", evaluated, there)
        self.problems.once(key, evaluated)
        for where, metric in self._named_metrics.items():
            if (split := split_of(metric)) in there and split not in evaluated:
                remedy = "add it there, or name another metric"
                self.problems.add(f"{where}: {metric} is not evaluated: {key} leaves {split} out; {remedy}")

    def _check_labels(self, key: str, labels: Sequence[str]) -> None:
        """Check that labels are those of optimizers of the study, each given once."""
        known = [one.label for one in self.optimizers]
        self.problems.known(key, "the study", "optimizer", labels, known)
        self.problems.once(key, labels)

    def _check_methods(self, key: str, scale: Scale) -> None:
        """Check the optimizers that a scale names, and that spaces of their own go with its tuning."""
        self._check_labels(f"{key}.optimizers", scale.optimizers or ())
        own = [one.label for one in self.optimizers if one.space]
        if own and {"space", "coarse"} & scale.tuning.keys():
            said = f"{', '.join(own)} have a space of their own; give a budget alone"
            self.problems.add(f"{key}.tuning: {said}")

    def _check_warmup(self, key: str, scale: Scale) -> None:
        """Check that a run of so many epochs is as long as its warm-up; steps an epoch are known in a job."""
        schedule = self.file.schedule
        epochs, after = schedule.warmup_epochs or 0.0, " and the cool-down" if schedule.cooldown else ""
        shortest = min(self.file.tuning.sized(scale.tuning).shares)
        for runs, share in ((f"{key}.epochs", Fraction(1)), ("the shortest runs that tune", shortest)):
            length = share * (scale.epochs or 0)
            if length and epochs + schedule.cooldown * length > length:
                said = f"{epochs:g} epochs{after} are more than the {length} of {runs}"
                self.problems.add(f"schedule.warmup_epochs: {said}; give fewer, or more {key}.epochs")
                return

    def _check_layouts(self, specs: Iterable[WorkloadSpec]) -> None:
        """Check that workloads have the precision and the parameters that bases and optimizers ask for."""
        for spec in specs:
            workload = find_workload(spec.locator)
            policy = POLICIES[self.file.precision or workload.dtype]
            for optimizer in self.optimizers:
                with self.problems.caught(f"optimizers.{optimizer.label}: {spec.name}: "):
                    rule_of(optimizer).check_dtype(policy.parameters)
            roles, shapes = workload.roles(spec.settings), workload.shapes_at(spec.settings)
            kinds = {name: role.kind for name, role in roles.items()}
            for basis in self.bases:
                with self.problems.caught(f"bases.{basis.label}: {spec.name}: "):
                    groups = bases()[basis.name].groups(basis.options, shapes, kinds)
                    check_inputs(workload, ((group.names, group.change) for group in groups))
                    changes = {group.names: (group.change, 1) for group in groups}  # of V with any columns
                    made = layout(shapes, roles, [group.names for group in groups], changes)
                    carried_by = policy if bases()[basis.name].reestimation(basis.options) else None
                    for optimizer in (one for one in self.optimizers if basis.is_of(one.label)):
                        with self.problems.caught(f"optimizers.{optimizer.label}: {spec.name}: "):
                            _check_leaves(optimizer, workload, made, carried_by)

    def _check_accumulation(
        self, key: str, training: TrainingProtocol, specs: Iterable[WorkloadSpec]
    ) -> None:
        """Check that minibatches can be cut into the parts, and that rules can do with means over them."""
        problems, parts = self.problems, training.gradient_accumulation
        if parts == 1:
            return
        for spec in specs:
            batch_size = spec.settings.get("batch_size")
            if batch_size is None:
                remedy = "give its batch_size, or leave this out"
                problems.add(f"{key}: {spec.name} has no minibatches to cut; {remedy}")
            elif batch_size % parts:
                remedy = f"give a divisor of it, or a batch_size that is a multiple of {parts}"
                said = f"{parts} does not divide the batch_size of {spec.name}, {batch_size}"
                problems.add(f"{key}: {said}; {remedy}")
            else:
                cut = f"{key}: {parts} cuts the batch_size of {spec.name}, {batch_size}, into parts: "
                with problems.caught(cut):  # each part is a batch to the workload
                    part = {**spec.settings, "batch_size": batch_size // parts}
                    find_workload(spec.locator).check(part)
        for optimizer in self.optimizers:
            with problems.caught(f"{key}: "):
                check_accumulation(optimizer.label, rule_of(optimizer).needs, StepProtocol.of(training))


def _conditions(claims: Iterable[Claim]) -> list[tuple[str, Condition]]:
    """The conditions of claims, by their keys."""
    return [
        (f"claims.{claim.id}.supported_if[{index}]", condition)
        for claim in claims
        for index, condition in enumerate(claim.conditions)
    ]


def _optimizer(file: StudyFile, entry: Contestant, locator: str) -> OptimizerSpec:
    """One entry of a study's optimizers.

    Raises:
        ValueError: for what the rule does not know, what is tuned as well, and values that are wrong.
    """
    rule = find_rule(locator)
    if entry.space and not isinstance(file.tuning, SpaceSearch):
        raise InputError(f"space: {file.tuning.protocol} tunes the learning rate alone; leave the space out")
    if entry.space and "learning_rate" not in entry.space:
        raise InputError("space: is no mapping of hyperparameters to axes with learning_rate among them")
    tuned = {name: (axis.low, axis.high) for name, axis in entry.space.items()} or file.tuning.bounds
    for name in entry.options:
        if name in tuned:
            raise InputError(f"{name}: is tuned by this study; remove it here or there")
    given: dict[str, Any] = {}
    if is_foreign(locator) and file.schedule.name == EXPONENTIAL:
        raise InputError("an exponential schedule is of this project's own rules; take another schedule")
    if is_foreign(locator):
        rule = rule.choose({"arguments": entry.options, "tuned": list(tuned)})
    else:
        given = {name: value for name, value in entry.options.items() if name not in rule.options}
        rule = rule.choose({name: value for name, value in entry.options.items() if name in rule.options})
        rule = scheduled(rule, file.schedule.name)
    valid = [*rule.hyperparameters, *rule.options, *Contestant.model_fields]
    for name in given:
        if name not in valid:
            raise InputError(unknown(rule.name, "hyperparameter or option", name, valid))
    for ends in zip(*tuned.values(), strict=True):
        at = dict(zip(tuned, ends, strict=True))
        completed(rule.name, "hyperparameter", rule.hyperparameters, at, HyperparameterError)
    rates_first = sorted(entry.space, key=lambda name: name != "learning_rate")
    return OptimizerSpec(
        rule.name,
        rule.complete(given, tuple(tuned)),
        rule.chosen,
        entry.label or rule.name,
        {name: entry.space[name].model_dump() for name in rates_first},
        locator,
    )


def _check_leaves(
    optimizer: OptimizerSpec, workload: Workload, made: Layout, carried_by: Policy | None
) -> None:
    """Check that an optimizer takes the parameters of a workload in a basis.

    Args:
        carried_by: the precision of runs whose state goes on in other coordinates; None: it does not.

    Raises:
        OptionError: where it does not.
    """
    update = Update(rule_of(optimizer), made)
    assert update.pieces  # an option may be wrong for a shape
    for need in update.bound.needs:
        need.check_likelihood(update.rule.name, workload.likelihood)
    if carried_by is not None:
        Update(rule_held(update.rule, carried_by), made).check_change_of_basis()
