"""Validation of one study file: look up names, and check that the entries of the file are consistent.

A basis is a change of coordinates of the parameters in which an optimizer makes its steps. A scale is a size
in which the study can be run. Tuning tries settings; a setting is a value for each tuned hyperparameter.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

from curvebench.backends import BACKENDS
from curvebench.engine.bundle import check_accumulation
from curvebench.engine.loading import cast_rule
from curvebench.engine.schedules import EXPONENTIAL, SHAPES, scheduled
from curvebench.interop import FLOATS
from curvebench.interop.foreign import is_foreign
from curvebench.optimizers import HyperparameterError
from curvebench.optimizers.bases import bases
from curvebench.optimizers.bases.basis import ROTATION_NUMBER
from curvebench.optimizers.options import OptionError
from curvebench.planning.studies.study import Study, layout_in
from curvebench.precision import POLICIES, Policy
from curvebench.registry import canonical, canonical_in, find_rule, find_workload, rule_of, unwrapped
from curvebench.spec.claim import Claim
from curvebench.spec.conditions.condition import Condition
from curvebench.spec.conditions.learning_rates import GainOverRates
from curvebench.spec.errors import InputError, Problems, check_known
from curvebench.spec.method import IDENTITY, BasisSpec, Method, OptimizerSpec, WorkloadSpec, methods
from curvebench.spec.study import (
    NamedOptimizer,
    NamedWorkload,
    Scale,
    StudyFile,
    Sweep,
    in_letters,
    read_study_file,
)
from curvebench.spec.training import TrainingProtocol
from curvebench.spec.tuning import Criterion, SpaceSearch
from curvebench.spec.values import completed
from curvebench.steps.layout import Layout
from curvebench.steps.program import StepProtocol
from curvebench.steps.update import Update
from curvebench.workloads import Metric, Workload
from curvebench.workloads.workload import split_of

# Smallest number of learning rates with which a claim about gains at several learning rates makes sense
FEWEST_RATES = 3


def read_study(path: Path) -> Study:
    """Read and validate a study file, and look up its workloads, optimizers, bases and backends by name.

    Raises:
        InputError: with a line for each problem.
    """
    return _Reader(read_study_file(path), path, Problems(f"{path}: ")).study()


class StudyWorkload(NamedTuple):
    """A workload of a study.

    Args:
        entry: entry of the workload in the study file. A workload of a sweep (workloads that differ in one
            setting) has an entry of its own, with a label and without the key `sweep`.
        locator: text by which `curvebench.registry.find_workload` finds the workload.
        workload: the workload.
        sweep: the sweep to which the workload belongs; None if there is no sweep.
    """

    entry: NamedWorkload
    locator: str
    workload: Workload
    sweep: Sweep | None


@dataclass(frozen=True)
class _Reader:
    """The state of the validation of one study file.

    Args:
        file: the parsed study file.
        path: path of the file. Relative paths in the file start at the folder of the file.
        problems: errors in the file that have been found so far, which are reported together.
        not_wrapped: a sentence for each optimizer that a wrapper of the key `wrap` cannot wrap.
    """

    file: StudyFile
    path: Path
    problems: Problems
    not_wrapped: list[str] = field(default_factory=list)

    def study(self) -> Study:
        """Return the study after all checks, with all defaults filled in.

        Raises:
            InputError: with a line for each problem.
        """
        file, problems = self.file, self.problems
        with problems.caught("file name: "):
            in_letters(self.path.stem)
        ids = [claim.id for claim in file.claims]
        problems.once("claims", ids, "the id {!r} is given twice; ids must differ")
        _, optimizers, bases = self.workloads, self.optimizers, self.bases
        # If a workload, optimizer or basis is unknown, each claim that names it would cause another message.
        if not problems:
            self._check_metrics()
            self._check_ties()
            for key, condition in _conditions(file.claims):
                self._check_condition(key, condition)
                problems.known(key, "the study", "method", condition.named, methods(optimizers, bases))
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
        problems.known("schedule.name", "curvebench", "schedule", [file.schedule.name], SHAPES)
        problems.check()
        sweeps = {name: entry.sweep for name, entry in self.workloads.items() if entry.sweep}
        return Study(
            path=self.path,
            file=file,
            optimizers=optimizers,
            bases=bases,
            workloads=workloads,
            sweeps=sweeps,
            not_wrapped=tuple(self.not_wrapped),
        )

    # --- names -----------------------------------------------------------------------------------

    @cached_property
    def workloads(self) -> dict[str, StudyWorkload]:
        """Mapping from labels to workloads of the study. The default label is the name of the workload."""
        names: list[str] = []
        workloads: dict[str, StudyWorkload] = {}
        for entry in self.file.workloads:
            locator = canonical(entry.name, self.path.parent)
            with self.problems.caught("workloads: "):
                unbound = find_workload(locator)
                entries = entry.entries(unbound.name)
                names += [part.label for part, _ in entries]
                names += [sweep.name for _, sweep in entries[:1] if sweep]
                for part, sweep in entries:
                    key = f"{sweep.name}.sweep.{sweep.setting}" if sweep else part.label
                    with self.problems.caught(f"workloads.{key}: "):
                        workload = unbound.at(unbound.complete(part.options))
                        workloads[part.label] = StudyWorkload(part, locator, workload, sweep)
        self.problems.once("workloads", names, "two workloads are called {!r}; give each its own `label:`")
        return workloads

    @cached_property
    def metrics(self) -> dict[str, Metric]:
        """Mapping from names to the metrics that all workloads of the study have."""
        first, *others = [entry.workload.metrics for entry in self.workloads.values()]
        return {name: metric for name, metric in first.items() if all(name in other for other in others)}

    @cached_property
    def optimizers(self) -> tuple[OptimizerSpec, ...]:
        """Optimizers of the study, with the values of all their options."""
        specs, folder = [], self.path.parent
        for entry in (part for whole in self.file.optimizers for part in whole.entries(self.file.wrap)):
            with self.problems.caught(f"optimizers.{entry.name}: "):
                locator, options = canonical(entry.name, folder), canonical_in(entry.options, folder)
                if not entry.wrap and (reason := _cannot_wrap(locator)):
                    self.not_wrapped.append(reason)
                    continue
                specs.append(_optimizer(self.file, entry.model_copy(update={"options": options}), locator))
                self._check_tuned(f"optimizers.{entry.name}.space", specs[-1])
        labels = [spec.label for spec in specs]
        self.problems.once("optimizers", labels, "two optimizers are called {!r}; give each its own `label:`")
        return tuple(specs)

    def _check_tuned(self, own_space: str, optimizer: OptimizerSpec) -> None:
        """Check that the optimizer accepts both ends of each search interval, and its additional settings.

        Otherwise a job would fail when tuning tries such a setting.

        Args:
            own_space: key of the optimizer's own search space, for messages.
            optimizer: the optimizer.
        """
        rule, tuning = rule_of(optimizer, self.file.schedule.name), self.file.tuning
        bounds = tuning.for_optimizer(optimizer).bounds
        key = own_space if optimizer.space else f"tuning.{'space' if 'space' in dict(tuning) else 'coarse'}"
        with self.problems.caught(f"{key}: "):
            for ends in zip(*bounds.values(), strict=True):
                values = dict(zip(bounds, ends, strict=True))
                completed(rule.name, "hyperparameter", rule.hyperparameters, values, HyperparameterError)
        with self.problems.caught(f"{own_space.removesuffix('space')}also_try: "):
            for setting in optimizer.also_try:
                if setting.keys() != bounds.keys():
                    raise InputError(f"{setting} has not exactly the tuned values: {', '.join(bounds)}")
                completed(rule.name, "hyperparameter", rule.hyperparameters, setting, HyperparameterError)

    @cached_property
    def bases(self) -> tuple[BasisSpec, ...]:
        """Bases of the study, with the values of all their options.

        If the study file gives no number for the rotation of a random basis, the number is the smallest that
        no random basis before it has.
        """
        specs: list[BasisSpec] = []
        problems, tuning = self.problems, self.file.tuning
        for entry in self.file.bases:
            label, users = entry.label or entry.name, entry.optimizers or ()
            problems.known("bases", "curvebench", "basis", [entry.name], bases())
            if entry.name not in bases():
                continue
            if (entry.name == IDENTITY) != (label == IDENTITY):
                message = "'identity' is the label of the identity basis, and of no other"
                problems.add(f"bases.{entry.name}.label: {message}")
                continue
            with problems.caught(f"bases.{label}: "):
                options = bases()[entry.name].complete(entry.options)
                if ROTATION_NUMBER in options and ROTATION_NUMBER not in entry.options:
                    taken = {spec.options.get(ROTATION_NUMBER) for spec in specs}
                    options[ROTATION_NUMBER] = min({*range(len(specs) + 1)} - taken)
                specs.append(BasisSpec(label, entry.name, options, users))
            self._check_labels(f"bases.{label}.optimizers", users)
            if users and label == IDENTITY:
                problems.add("bases.identity.optimizers: all run in original coordinates; leave it out")
        labels, tuned_bases = [spec.label for spec in specs], tuning.tuned_bases or ()
        problems.once("bases", labels, "two bases are labelled {!r}; give each its own `label:`")
        problems.known("tuning.tuned_bases", "the study", "basis", tuned_bases, labels)
        if tuned_bases and tuning.shared_across == "none":
            message = "each basis chooses for itself; leave it out, or say shared_across: bases"
            problems.add(f"tuning.tuned_bases: {message}")
        elif tuned_bases and IDENTITY not in tuned_bases:
            problems.add("tuning.tuned_bases: the identity basis chooses for all; add identity")
        if tuning.shared_across == "bases" and IDENTITY not in {entry.name for entry in self.file.bases}:
            message = "needs the identity basis, whose choice is shared; add it to bases"
            problems.add(f"tuning.shared_across: {message}")
        return tuple(specs)

    def _workloads(self, scale: str) -> tuple[WorkloadSpec, ...]:
        """Return the workloads with all their settings at a scale.

        Settings that the scale gives replace the settings that the study gives.
        """
        changed, specs = self.file.scales[scale].settings, []
        self.problems.known(f"scales.{scale}.settings", "the study", "workload", changed, self.workloads)
        for name, (entry, locator, workload, sweep) in self.workloads.items():
            changes = changed.get(name, {})
            if sweep and sweep.setting in changes:
                key = f"scales.{scale}.settings.{name}.{sweep.setting}"
                self.problems.add(f"{key}: is swept at all scales; leave it out")
            with self.problems.caught(f"workloads.{name}: "):
                settings = workload.complete({**entry.options, **changes})
                specs.append(WorkloadSpec(name, settings, locator))
        return tuple(specs)

    # --- metrics and claims ----------------------------------------------------------------------

    @property
    def _criteria(self) -> dict[str, Criterion]:
        """Criteria by which tuning compares settings, by the key of the criterion in the study file."""
        tuning = self.file.tuning
        criteria = {"tuning.choose": tuning.choose, "tuning.tie_break": tuning.tie_break}
        return {key: criterion for key, criterion in criteria.items() if criterion is not None}

    @property
    def _named_metrics(self) -> dict[str, str]:
        """Names of the metrics that the study uses, by the key of the study file that names the metric."""
        file = self.file
        used = {key: criterion.metric for key, criterion in self._criteria.items()}
        used["compare.metric"] = file.compare.metric.metric
        used |= {f"targets.{metric}": metric for metric in file.targets}
        return used | {key: condition.metric for key, condition in _conditions(file.claims)}

    def _check_metrics(self) -> None:
        owner = "the study" if len(self.workloads) == 1 else "the list of what all workloads measure"
        for key, metric in self._named_metrics.items():
            self.problems.known(key, owner, "metric", [metric], self.metrics)

    def _check_ties(self) -> None:
        """Check that thresholds of tuning criteria exist, and that ties between settings can be broken.

        A criterion that counts steps to a threshold requires that the study gives the threshold. The key
        `tuning.tie_break` is required in two cases, because many settings may then tie. In the first case,
        runs stop at a value of the criterion's metric, and all settings that reach the value tie. In the
        second case, the criterion counts steps, and all settings that never meet the threshold tie.
        """
        file, choose = self.file, self.file.tuning.choose
        for key, criterion in self._criteria.items():
            if criterion.which == "steps_to_stop" and criterion.metric not in file.stop:
                self.problems.add(f"{key}: runs do not stop at a {criterion.metric}; give it in stop")
            if criterion.which == "steps_to_target" and criterion.metric not in file.targets:
                self.problems.add(f"{key}: there is no target of {criterion.metric}; give it in targets")
        if file.tuning.tie_break is None and (choose.counts_steps or choose.metric in file.stop):
            settings = "that never get there" if choose.counts_steps else "that stop"
            example = f"median {'best' if choose.counts_steps else 'steps_to_stop'} {choose.metric}"
            message = f"all settings {settings} tie by {choose.metric}; give what decides, such as {example}"
            self.problems.add(f"tuning.tie_break: {message}")

    def _check_condition(self, key: str, condition: Condition) -> None:
        """Check that runs of the study can satisfy a condition, and have the quantity that it compares.

        Args:
            key: key of the condition in the study file, for messages.
            condition: the condition.
        """
        file, metric, definition = self.file, condition.metric, self.metrics.get(condition.metric)
        untried = [name for name in sorted(condition.named) if not file.tuning.tries(Method.of(name).basis)]
        if condition.of_tuning and untried:
            remedy = "add its basis to tuning.tuned_bases"
            self.problems.add(f"{key}.quantity: tuning does not try {untried[0]}; {remedy}")
        for name, scale in file.scales.items() if isinstance(condition, GainOverRates) else ():
            if (rates := file.tuning.sized(scale.tuning).compared_settings) < FEWEST_RATES:
                needed = f"{condition.quantity} needs at least {FEWEST_RATES} settings with full-length runs"
                remedy = "try more, or halve them less often"
                self.problems.add(f"{key}.quantity: {needed}; tuning at scales.{name} has {rates}; {remedy}")
        direction = definition.direction if definition else None
        for message in condition.misfits(file.stop.get(metric), metric in file.targets, direction):
            self.problems.add(f"{key}.{message}")

    def _check_workloads(self) -> None:
        """Check that targets and conditions name workloads of the study."""
        file = self.file
        known = partial(self.problems.known, owner="the study", kind="workload", valid=self.workloads)
        for metric, values in file.targets.items():
            # Targets of a submission are not checked.
            # The submission takes them from the joined study, and may leave out workloads of that study.
            if isinstance(values, dict) and not file.joins:
                known(f"targets.{metric}", names=sorted(values))
        grouped = [name for names in file.groups.values() for name in names]
        if grouped and not file.joins and sorted(grouped) != sorted(self.workloads):
            one = next((name for name in self.workloads if grouped.count(name) != 1), None)
            known("groups", names=sorted(set(grouped)))
            if one:
                self.problems.add(f"groups: {one} is in {grouped.count(one)} groups; put it into one")
        for key, condition in _conditions(claim for claim in file.claims if not claim.repeats):
            known(f"{key}.workload", names=filter(None, [condition.workload]))
            known(f"{key}.control_workload", names=filter(None, [condition.control_workload]))

    def _check_costs(self) -> None:
        """Reject bases that are estimated again during a run if the study compares costs.

        The cost of a run includes only gradients from which a basis was estimated before the run, not
        gradients from which a basis is estimated again during the run.
        """
        charged = any(condition.charges_bases for _, condition in _conditions(self.file.claims))
        for basis in self.bases if self.file.targets or charged else ():
            if basis.options.get("every") is not None:
                self.problems.add(
                    f"bases.{basis.label}: its gradients during a run are not charged to times to targets, "
                    "at_equal and seconds_to_nearly_best; leave out every, or these"
                )

    # --- scales ----------------------------------------------------------------------------------

    def _check_backends(self, key: str, scale: Scale) -> None:
        """Check the backends of a scale: their names, their keys `tuned_on`, and their final seeds.

        Args:
            key: key of the scale in the study file, for messages.
            scale: the scale.
        """
        for label, used in self.workloads.items():
            only = used.workload.backend
            if only is not None and (others := scale.backends.keys() - {only}):
                message = f"{label} is a model of {only}, which does not run on {', '.join(sorted(others))}"
                self.problems.add(f"{key}.backends: {message}; give {only} alone")
        tuners = [name for name, use in scale.backends.items() if use.tuned_on is None]
        problems, misspelt = self.problems, scale.backends.keys() - {*BACKENDS}
        problems.known(f"{key}.backends", "curvebench", "backend", scale.backends, BACKENDS)
        for name, use in scale.backends.items():
            entry = f"{key}.backends.{name}"
            # A misspelt backend is missing in `tuners`, too.
            # One message about the misspelt name is enough.
            if use.tuned_on is not None and not misspelt:
                kind = "backend with its own tuning"
                problems.known(f"{entry}.tuned_on", "this scale", kind, [use.tuned_on], tuners)
            if scale.final_seeds(name) > scale.seeds.final:
                message = f"{scale.final_seeds(name)} is more than the scale's final seeds"
                problems.add(f"{entry}.seeds.final: {message}; use at most {scale.seeds.final}")

    def _check_splits(self, key: str, evaluated: tuple[str, ...] | None) -> None:
        """Check the splits of the data on which a scale evaluates metrics.

        Each split must be a split of a workload. The study must not name a metric of a split that is not
        evaluated.

        Args:
            key: key of the splits in the study file, for messages.
            evaluated: splits of the data to evaluate; None for all splits.
        """
        if evaluated is None:
            return
        workloads = [entry.workload for entry in self.workloads.values()]
        valid = dict.fromkeys(split for workload in workloads for split in workload.evaluated_splits)
        if valid:
            self.problems.known(key, "the list of what workloads evaluate", "split", evaluated, valid)
        self.problems.once(key, evaluated)
        for entry, metric in self._named_metrics.items():
            if (split := split_of(metric)) in valid and split not in evaluated:
                remedy = "add it there, or name another metric"
                self.problems.add(f"{entry}: {metric} is not evaluated: {key} leaves {split} out; {remedy}")

    def _check_labels(self, key: str, labels: Sequence[str]) -> None:
        """Check that every label belongs to an optimizer of the study, and that no label is repeated.

        Args:
            key: key of the study file under which the labels are listed, for messages.
            labels: the labels.
        """
        labels_of_study = [spec.label for spec in self.optimizers]
        self.problems.known(key, "the study", "optimizer", labels, labels_of_study)
        self.problems.once(key, labels)

    def _check_methods(self, key: str, scale: Scale) -> None:
        """Check the optimizers of a scale, and its search space for tuning.

        A scale must not have a search space if an optimizer of the study has a search space of its own.

        Args:
            key: key of the scale in the study file, for messages.
            scale: the scale.
        """
        self._check_labels(f"{key}.optimizers", scale.optimizers or ())
        with_space = [spec.label for spec in self.optimizers if spec.space]
        if with_space and {"space", "coarse"} & scale.tuning.keys():
            message = f"{', '.join(with_space)} have a space of their own; give budget_per_dimension alone"
            self.problems.add(f"{key}.tuning: {message}")

    def _check_warmup(self, key: str, scale: Scale) -> None:
        """Check that no run of a scale is shorter than warm-up and cool-down together.

        Only lengths in epochs are compared, because the number of steps per epoch is known only when a job
        reads the data of a workload.
        """
        schedule = self.file.schedule
        epochs, after = schedule.warmup_epochs or 0.0, " and the cool-down" if schedule.cooldown else ""
        shortest = min(self.file.tuning.sized(scale.tuning).shares)
        for runs, share in ((f"{key}.epochs", Fraction(1)), ("the shortest runs that tune", shortest)):
            length = share * (scale.epochs or 0)
            if length and epochs + schedule.cooldown * length > length:
                message = f"{epochs:g} epochs{after} are more than the {length} of {runs}"
                self.problems.add(f"schedule.warmup_epochs: {message}; give fewer, or more {key}.epochs")
                return

    def _check_layouts(self, specs: Iterable[WorkloadSpec]) -> None:
        """Check that optimizers support the precision and the parameters of workloads, in every basis."""
        for spec in specs:
            workload = find_workload(spec.locator).at(spec.settings)
            policy = POLICIES[self.file.precision or workload.dtype]
            if workload.backend is not None and policy.products not in FLOATS:
                message = (
                    f"{spec.name} is a model of {workload.backend}, which computes in {' or '.join(FLOATS)}"
                )
                self.problems.add(f"precision: {message}")
            for optimizer in self.optimizers:
                with self.problems.caught(f"optimizers.{optimizer.label}: {spec.name}: "):
                    rule_of(optimizer).check_dtype(policy.parameters)
                    is_full_batch = spec.settings.get("batch_size") is None
                    rule_of(optimizer).check_loss(is_full_batch and workload.noise is None)
            for basis in self.bases:
                with self.problems.caught(f"bases.{basis.label}: {spec.name}: "):
                    layout_in_basis = layout_in(basis, spec)
                    carried_in = policy if bases()[basis.name].reestimation(basis.options) else None
                    for optimizer in (entry for entry in self.optimizers if basis.applies_to(entry.label)):
                        with self.problems.caught(f"optimizers.{optimizer.label}: {spec.name}: "):
                            _check_leaves(optimizer, workload, layout_in_basis, carried_in)

    def _check_accumulation(
        self, key: str, training: TrainingProtocol, specs: Iterable[WorkloadSpec]
    ) -> None:
        """Check that gradients can be accumulated over microbatches, the equal parts of a minibatch.

        The batch size must be a multiple of the number of microbatches, the workload must accept a batch of
        the size of a microbatch, and every rule must need only statistics that can be averaged over
        microbatches.

        Args:
            key: key of the number of microbatches in the study file, for messages.
            training: the training protocol of a scale.
            specs: workloads at the scale.
        """
        problems, microbatches = self.problems, training.gradient_accumulation
        if microbatches == 1:
            return
        for spec in specs:
            batch_size = spec.settings.get("batch_size")
            if batch_size is None:
                remedy = "give its batch_size, or leave this out"
                problems.add(f"{key}: {spec.name} has no minibatches to cut; {remedy}")
            elif batch_size % microbatches:
                remedy = f"give a divisor of it, or a batch_size that is a multiple of {microbatches}"
                message = f"{microbatches} does not divide the batch_size of {spec.name}, {batch_size}"
                problems.add(f"{key}: {message}; {remedy}")
            else:
                cut = f"{key}: {microbatches} cuts the batch_size of {spec.name}, {batch_size}, into parts: "
                # The workload computes each microbatch as if it were a batch.
                # Therefore the requirements of the workload on batch sizes apply to microbatches.
                with problems.caught(cut):
                    part = {**spec.settings, "batch_size": batch_size // microbatches}
                    find_workload(spec.locator).check(part)
        for optimizer in self.optimizers:
            with problems.caught(f"{key}: "):
                check_accumulation(optimizer.label, rule_of(optimizer).needs, StepProtocol.of(training))


def _conditions(claims: Iterable[Claim]) -> list[tuple[str, Condition]]:
    """Return pairs of a key and a condition: each condition of the claims, with its key in the study file."""
    return [
        (f"claims.{claim.id}.supported_if[{index}]", condition)
        for claim in claims
        for index, condition in enumerate(claim.conditions)
    ]


def _optimizer(file: StudyFile, entry: NamedOptimizer, locator: str) -> OptimizerSpec:
    """Return the optimizer of an entry of a study, with its options, hyperparameters and defaults.

    Args:
        file: the study file.
        entry: the entry.
        locator: text by which `curvebench.registry.find_rule` finds the update rule.

    Raises:
        ValueError: for an unknown option, for an option that is also tuned, and for an invalid value.
    """
    rule = find_rule(locator)
    if entry.space and not isinstance(file.tuning, SpaceSearch):
        raise InputError(f"space: {file.tuning.protocol} tunes the learning rate alone; leave the space out")
    if entry.space and "learning_rate" not in entry.space:
        raise InputError("space: is no mapping of hyperparameters to axes with learning_rate among them")
    tuned = entry.space or file.tuning.bounds
    for name in entry.options:
        if name in tuned:
            raise InputError(f"{name}: is tuned by this study; remove it here or there")
    hyperparameters: dict[str, Any] = {}
    if is_foreign(locator) and file.schedule.name == EXPONENTIAL:
        raise InputError("an exponential schedule is of this project's own rules; take another schedule")
    if is_foreign(locator):
        rule = rule.choose({"arguments": entry.options, "tuned": list(tuned)})
    else:
        hyperparameters = {name: value for name, value in entry.options.items() if name not in rule.options}
        rule = rule.choose({name: value for name, value in entry.options.items() if name in rule.options})
        rule = scheduled(rule, file.schedule.name)
    valid = [*rule.hyperparameters, *rule.options, *NamedOptimizer.model_fields]
    check_known(rule.name, "hyperparameter or option", hyperparameters, valid)
    rates_first = sorted(entry.space, key=lambda name: name != "learning_rate")
    return OptimizerSpec(
        rule.name,
        rule.complete(hyperparameters, tuple(tuned)),
        rule.chosen,
        entry.label or rule.name,
        {name: entry.space[name].model_dump() for name in rates_first},
        locator,
        entry.also_try,
    )


def _cannot_wrap(locator: str) -> str:
    """Return a sentence that says why an optimizer cannot have its wrapper; empty if it can, or has none."""
    inner, wrapper = unwrapped(locator)
    if wrapper is not None:
        rule = find_rule(inner)
        try:
            wrapper(rule)
        except OptionError as error:
            return f"{str(error).partition(';')[0]}."
    return ""


def _check_leaves(
    optimizer: OptimizerSpec, workload: Workload, layout_in_basis: Layout, carried_in: Policy | None
) -> None:
    """Check that an optimizer supports the parameters and the loss of a workload in a basis.

    Args:
        optimizer: the optimizer.
        workload: the workload.
        layout_in_basis: groups of the workload's parameters in the coordinates of the basis.
        carried_in: precision of the runs if the basis changes during a run, so that the rule has to transform
            its state to new coordinates; None if the basis does not change.

    Raises:
        OptionError: if the rule does not support the parameters or the loss.
    """
    update = Update(rule_of(optimizer), layout_in_basis)
    # Computing the update groups checks the rule's options for the shapes of the parameters.
    assert update.groups
    for need in update.bound.needs:
        need.check_likelihood(update.rule.name, workload.likelihood)
    if carried_in is not None:
        Update(cast_rule(update.rule, carried_in), layout_in_basis).check_change_of_basis()
