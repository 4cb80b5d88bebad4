"""Trials of methods: three steps of each method of a study on each of its problems, before anything is run.

A trial shows that a method fails, takes no step, or ignores one of its arguments. The lanes of a trial are
runs with different settings of the hyperparameters. The lanes advance together, as in a job, if the workload
and the optimizer allow that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from curvebench.arrays.numpy_ops import numpy_ops
from curvebench.backends.engine import engine
from curvebench.engine.bundle import Bundle
from curvebench.engine.evaluation import evaluator
from curvebench.engine.first_evaluation import line_of_user
from curvebench.engine.inputs import segment_inputs
from curvebench.engine.loading import load
from curvebench.engine.memory import runs_singly
from curvebench.engine.programs import Programs, segment_of
from curvebench.interop.foreign import CLOSURE, GROUPS, VALUE, defaults_of, is_foreign
from curvebench.interop.models import global_seed
from curvebench.interop.replaying import Online
from curvebench.optimizers.arrays import map_arrays
from curvebench.optimizers.options import OptionError
from curvebench.optimizers.rule import Rule
from curvebench.planning.studies.study import Study
from curvebench.registry import RULES, WORKLOADS, find_workload, origin, rule_of
from curvebench.seeding import WorkloadRandom
from curvebench.spec.errors import InputError
from curvebench.spec.method import OptimizerSpec, WorkloadSpec
from curvebench.spec.values import Precision
from curvebench.steps.derivatives import model_of
from curvebench.steps.layout import by_name, layout
from curvebench.steps.torch_rule import TorchRule
from curvebench.workloads.arguments import Arrays
from curvebench.workloads.workload import Metric, Problem, Role, Workload, examples_in, loss_of

STEPS = 3
# On workloads of this project, the arguments of its own update rules are tried by so many steps on NumPy.
# The number exceeds the usual number of steps between two decompositions.
RULE_STEPS = 12
# These steps are taken only on workloads with at most this number of parameters.
MAX_RULE_PARAMETERS = 5_000
EXAMPLES = 8  # largest number of examples in a minibatch of a trial
# A workload with more parameters than this number is not evaluated in a trial, which would take minutes.
MAX_EVALUATED_PARAMETERS = 10_000_000
# Each step of a trial on a squared distance uses one of these numbers.
# The loss of the step is the squared distance of the parameters from the number.
# The numbers are larger than usual parameters, so that no gradient is 0.
# The signs of the numbers alternate, so that the signs of gradients change from step to step.
# Moving averages of gradients then change the signs of updates.
CENTRES = ((30.0,), (-6.0,), (1.2,))
MAX_CHARACTERS = 400  # length from which the message of another library is truncated
# Explanations of errors of other libraries.
# The keys are parts of the type or the message of an error.
EXPLANATIONS = {
    "TracerArrayConversionError": "calls NumPy on an array of a step, which JAX cannot compile; use the "
    "array functions `ops` that a rule receives, or jax.numpy in an optimizer of Optax",
    "must have equal types": "changes the shape or type of its state; update must return (param, state) "
    "with a state like that of init",
}
FALLING = 0.5 ** np.arange(STEPS)  # learning-rate schedule of a trial: the factor of the rate at each step
BASE = ""  # name of the lane with which all other lanes of a trial are compared


@dataclass
class Findings:
    """Findings of all trials of a method on the problems of a study.

    Args:
        tried: names of all problems on which the method was tried.
        errors: a mapping from messages about mistakes of the method, which make a run useless, to the names
            of the affected problems.
        cautions: a mapping from messages about choices, with which a run is possible but likely to
            disappoint, to the names of the affected problems.
        workload_errors: messages about mistakes of workloads, each with the name of the workload.
    """

    tried: list[str] = field(default_factory=list)
    errors: dict[str, list[str]] = field(default_factory=dict)
    cautions: dict[str, list[str]] = field(default_factory=dict)
    workload_errors: list[str] = field(default_factory=list)


class WorkloadError(InputError):
    """Raised for a mistake in a workload, which makes every method on the workload fail."""


@dataclass(frozen=True)
class Steps:
    """Parameters of a trial before and after its steps. The arrays have no axis of lanes.

    Args:
        start: a mapping from parameter names to initial values, which are equal for all lanes.
        ends: for each lane, a mapping from parameter names to the values after the steps. The key of a lane
            is its name.
    """

    start: Mapping[str, np.ndarray]
    ends: Mapping[str, Mapping[str, np.ndarray]]

    @property
    def unchanged(self) -> set[str]:
        """Names of the parameters that have kept their values in all lanes."""
        return {
            name
            for name, value in self.start.items()
            if all(_equal(value, end[name]) for end in self.ends.values())
        }

    def same(self, lane: str, other: Steps) -> bool:
        """Return whether a lane of this trial ends at the same parameters as the lane BASE of another trial.

        Args:
            lane: name of the lane of this trial.
            other: steps of the other trial, or of this trial.
        """
        return all(_equal(self.ends[lane][name], other.ends[BASE][name]) for name in self.start)


def _equal(one: np.ndarray, other: np.ndarray) -> bool:
    return np.array_equal(one, other, equal_nan=True)


@dataclass(frozen=True)
class Trial:
    """A trial: a few steps of a method on a problem.

    Args:
        problem_name: name of the problem in messages.
        locator: name of the optimizer in messages.
        rule: the optimizer with its options.
        workload: the workload.
        settings: values of the settings of the workload.
        problem: parameters and data of the workload for one seed.
        precision: precision policy of the steps.
        backend: name of the backend that computes the steps.
        lanes: for each name of a lane, a mapping from the names of all hyperparameters to values. The first
            lane is BASE. Every other lane has the name of the only hyperparameter in which it differs from
            BASE.
        has_own_loss: whether the loss is the loss of the workload in the study; otherwise it is a squared
            distance of the parameters from `CENTRES`.
        evaluates: whether to evaluate the metrics after the steps, on all examples of the trial.
        separately: whether lanes are computed one after another although they could advance together.
    """

    problem_name: str
    locator: str
    rule: Rule
    workload: Workload
    settings: Mapping[str, Any]
    problem: Problem
    precision: Precision
    backend: str
    lanes: Mapping[str, Mapping[str, float]]
    has_own_loss: bool = True
    evaluates: bool = False
    separately: bool = False

    def at_distance(self, roles: Mapping[str, Role], parameters: Mapping[str, np.ndarray]) -> Trial:
        """Return a trial of the same method in which the loss is the squared distance from `CENTRES`.

        Args:
            roles: a mapping from the names of the parameters of the new trial to roles.
            parameters: a mapping from the names of these parameters to initial values.
        """
        return replace(
            self,
            workload=workload_of(_squared_distance, roles, self.precision),
            settings={"batch_size": 1},
            problem=Problem(dict(parameters), {"train": {"centre": np.array(CENTRES)}}),
            has_own_loss=False,
            evaluates=False,
        )

    def simpler(self) -> Trial:
        """Return a trial with the same parameters whose loss is the squared distance from `CENTRES`."""
        return self.at_distance(self.workload.roles(self.settings), self.problem.parameters)

    def of_matrix(self) -> Trial:
        """Return a trial of the method on the squared distance of a single matrix from `CENTRES`."""
        return self.at_distance({"matrix": Role("weight")}, {"matrix": np.arange(6.0).reshape(3, 2) / 8})

    @property
    def bundle(self) -> Bundle:
        """Bundle with all lanes of the trial: the arrays that a program needs to compute the steps."""
        lanes, train = self.lanes.values(), self.problem.splits["train"]
        size = self.settings.get("batch_size")
        examples = None if size is None else min(size, EXAMPLES, examples_in(train))
        splits, orders = dict(self.problem.splits), None
        if examples is not None:
            for name, split in splits.items():
                if isinstance(split, Mapping):
                    splits[name] = {key: array[: STEPS * EXAMPLES] for key, array in split.items()}
            orders = np.arange(STEPS * examples).reshape(STEPS, 1, examples) % examples_in(splits["train"])
        return Bundle(
            workload=self.workload,
            rule=self.rule,
            problems=[replace(self.problem, splits=splits)],
            orders=orders,
            hyperparameters={name: np.array([lane[name] for lane in lanes]) for name in self.lanes[BASE]},
            schedule=np.ones(STEPS),
            settings=self.settings,
            randoms=[WorkloadRandom(self.workload.name, 0)],
        )

    def steps(self, schedule: np.ndarray | None = None) -> Steps:
        """Take the steps of the trial in all lanes.

        Args:
            schedule: factor of the learning rate at each step, of shape (STEPS,); None for a constant rate.

        Raises:
            Exception: any exception that the method or the workload raises.
            WorkloadError: if the loss is not finite at the initial parameters.
            InputError: if the loss or the parameters of the lane BASE are not finite after a step.
        """
        bundle, backend = self.bundle, engine(self.backend, self.precision)
        bundle = bundle if schedule is None else replace(bundle, schedule=schedule)
        at_once = 1 if self.separately or runs_singly(bundle) else len(self.lanes)
        parts = [slice(number, number + at_once) for number in range(0, len(self.lanes), at_once)]
        programs, starts, ends, diverged_at = Programs(), list[Any](), list[Any](), list[Any]()
        with global_seed(0), backend.context():
            for part in parts:
                subset = bundle.subset(slice(0, 1), part)
                loaded = load(subset, backend, programs=programs)
                inputs = segment_inputs(subset, backend, 0, STEPS)
                starts += [*np.array(backend.ops.to_numpy(loaded.carry.coordinates))[0]]
                carry = segment_of(backend, loaded, inputs, programs)(loaded.carry, loaded.constants, inputs)
                ends += [*np.array(backend.ops.to_numpy(carry.coordinates))[0]]
                diverged_at += [*np.array(backend.ops.to_numpy(carry.diverged_at))[0]]
                if self.evaluates:
                    evaluator(subset, backend, loaded, programs)(carry, loaded.constants)
        if diverged_at[0] == 1:
            raise WorkloadError("its loss is not finite at the initial parameters")
        if diverged_at[0] or not np.isfinite(ends[0]).all():
            count, values = int(diverged_at[0] or STEPS + 1) - 1, self.lanes[BASE].items()
            after = "a step" if count == 1 else f"{count} steps"
            numbers = ", ".join(f"{name} = {value:g}" for name, value in values)
            raise InputError(f"is not finite after {after} at {numbers}")
        shapes = bundle.layout.parameters
        named = [by_name(numpy_ops(), shapes, flat) for flat in (starts[0], *ends)]
        return Steps(named[0], dict(zip(self.lanes, named[1:], strict=True)))

    @property
    def succeeds(self) -> bool:
        """Whether the steps of the trial raise no exception and change at least one parameter."""
        try:
            steps = self.steps()
        except Exception:  # the code of a user may raise any exception
            return False
        return len(steps.unchanged) < len(steps.start)

    def checked(self) -> tuple[Steps, set[str]]:
        """Take the steps of the trial. If the steps fail, find the reason with further trials.

        Returns:
            The steps, and the names of the parameters that the method does not change.

        Raises:
            WorkloadError: for a mistake of the workload.
            InputError: for a mistake of the method. The message is one line.
        """
        try:
            steps = self.steps()
            unchanged = steps.unchanged
            # A gradient of the workload's loss may be 0, a gradient of the squared distance is not.
            if unchanged and self.has_own_loss:
                unchanged &= self.simpler().steps().unchanged
            if len(unchanged) == len(steps.start):
                place = "; change parameters in place, as param.add_ does" if self.backend == "torch" else ""
                raise InputError(f"takes no step: all parameters are unchanged after {STEPS} steps{place}")
        except WorkloadError:
            raise
        except Exception as error:  # the code of a user may raise any exception
            raise self._explained(error) from error
        return steps, unchanged

    def _explained(self, error: Exception) -> InputError:
        """Return the error to report for an exception that the steps of the trial raised.

        Further trials show whether the workload or the method causes the exception. The message of the
        returned error is one line.
        """
        chain = [error]
        while cause := chain[-1].__cause__ or chain[-1].__context__:
            chain.append(cause)  # type: ignore[arg-type]  # its causes are exceptions too
        line = next(filter(None, map(line_of_user, chain)), "")
        at, text = f" ({line})" if line else "", str(error).removeprefix(f"{self.locator}: ")
        if not isinstance(error, InputError | OptionError):
            text = f"a step fails ({type(error).__name__}: {error}){at}"
        names = " ".join(f"{type(cause).__name__}: {cause}" for cause in chain)
        text = next((f"{EXPLANATIONS[part]}{at}" for part in EXPLANATIONS if part in names), text)
        file = Path(line.rpartition(":")[0]).name or "no file"
        in_optimizer = isinstance(error, InputError | OptionError) or file in self.locator
        if self.has_own_loss and not in_optimizer and self.simpler().succeeds:
            if replace(self, separately=True).succeeds:
                text = f"cannot be computed for several runs at once: give it mapped=False ({error}){at}"
            return WorkloadError(_shortened(text))
        if all(value.ndim < 2 for value in self.problem.parameters.values()) and self.of_matrix().succeeds:
            text = f"is an optimizer for matrices, and no parameter is a matrix ({text})"
        return InputError(_shortened(f"{self.locator}: {text}"))


def _shortened(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MAX_CHARACTERS else f"{line[:MAX_CHARACTERS]}..."


class Trials:
    """Trials of the methods of studies. The problem of a workload is drawn once and used in all trials."""

    def __init__(self) -> None:
        self.problems: dict[str, Problem] = {}
        # Names of problems on which a workload failed.
        # The lanes of later trials on these problems are computed one after another.
        self.unmapped: set[str] = set()

    def findings(self, study: Study, optimizer: OptimizerSpec) -> Findings:
        """Try an optimizer on all workloads of its study.

        Of optimizers of this project on workloads of this project, only the arguments are tried, because the
        tests of the project cover these combinations. If a workload has many parameters or lacks its data,
        the squared distance of the parameters from `CENTRES` replaces the loss of the workload. All trials
        are in the identity basis.
        """
        findings, effects = Findings(), dict[str, bool]()
        for trial in self.trials(study, optimizer):
            caution = partial(_add, findings.cautions, trial)
            findings.tried = list(dict.fromkeys([*findings.tried, trial.problem_name]))
            try:
                steps, unchanged = trial.checked()
                self._compare(study, optimizer, trial, steps, effects)
            except WorkloadError as error:
                findings.workload_errors.append(f"workload {trial.problem_name}: {error}")
                self.unmapped.add(trial.problem_name)
            except InputError as error:
                _add(findings.errors, trial, str(error))
            else:
                if unchanged:
                    caution(f"leaves {', '.join(sorted(unchanged))} unchanged in {STEPS} steps")
        own = _own_workloads(study) if origin(RULES, optimizer.locator).modules else ()
        tried = findings.tried.copy()
        for spec in (spec for spec in own if size_of(spec) <= MAX_RULE_PARAMETERS):
            tried.append(spec.name)
            self._compare_rules(study, optimizer, spec, effects)
        findings.tried += [spec.name for spec in own]
        if not findings.errors:
            count = RULE_STEPS if own else STEPS
            idle = [name for name, has_effect in effects.items() if not has_effect]
            findings.cautions |= {f"{name} changes nothing in {count} steps": tried for name in idle}
        return findings

    def _compare(
        self, study: Study, optimizer: OptimizerSpec, trial: Trial, steps: Steps, effects: dict[str, bool]
    ) -> None:
        """Record which arguments of an optimizer have an effect on the steps of a trial.

        An argument without an effect is tried again on a squared distance, because the gradients of a loss
        may change too little in a few steps.

        Args:
            study: the study.
            optimizer: an optimizer of the study.
            trial: a trial of the optimizer.
            steps: the steps of the trial.
            effects: a dictionary with the names of arguments as keys. A value says whether the argument has
                had an effect in any trial so far. The dictionary is updated.

        Raises:
            InputError: if an optimizer of PyTorch does not follow the schedule of the study.
        """
        changes: dict[str, Rule | None] = {name: None for name in trial.lanes if name != BASE}
        changes |= _changed_arguments(trial.rule, optimizer)
        for at, base in ((trial, steps), (trial.simpler(), None)):
            for name in (name for name in changes if not effects.get(name)):
                base, rule = base or at.steps(), changes[name]
                try:
                    lane, other = (name, base) if rule is None else (BASE, replace(at, rule=rule).steps())
                    effects[name] = not other.same(lane, base)
                except Exception:  # An argument without which the optimizer fails has an effect.
                    effects[name] = True
        schedule = study.file.schedule
        falls = schedule.name != "constant" or schedule.warmup or schedule.warmup_epochs or schedule.cooldown
        if falls and isinstance(trial.rule, TorchRule) and trial.steps(FALLING).same(BASE, steps):
            raise InputError(
                f"{trial.locator}: does not follow the schedule, because its steps do not read lr from "
                "param_groups; read it there in each step, and do not assign other groups to param_groups"
            )

    def _compare_rules(
        self, study: Study, optimizer: OptimizerSpec, spec: WorkloadSpec, effects: dict[str, bool]
    ) -> None:
        """Record which arguments of an update rule of this project have an effect on a workload's parameters.

        The steps are computed on NumPy. The gradients are noise plus the point at which they are taken.

        Args:
            study, optimizer, effects: as for `_compare`.
            spec: a workload of the study.
        """
        rule, roles = rule_of(optimizer), find_workload(spec.locator).roles(spec.settings)
        lanes = _lanes(rule_of(optimizer, study.file.schedule.name), optimizer, study)
        changed, start = dict(_changed_arguments(rule, optimizer)), self._problem(spec, False).parameters
        model = model_of(layout({name: value.shape for name, value in start.items()}, roles))

        def end(rule: Rule, lane: Mapping[str, float]) -> Mapping[str, np.ndarray]:
            numbers = {name: value for name, value in lane.items() if name in rule.hyperparameters}
            dtype = "float64" if "float64" in rule.dtypes else "float32"
            online, noise = Online(rule, start, numbers, dtype=dtype, kinds=roles), np.random.default_rng(0)
            for step in range(1, RULE_STEPS + 1):
                points = online.gradient_at()
                grads = {name: at + noise.standard_normal(at.shape) for name, at in points.items()}
                scaled = partial(np.multiply, 1 / step)  # needs that change, and losses that fall
                needs = {need.name: map_arrays(scaled, need.example(model)) for need in rule.needs}
                online.step(grads, **needs)
            return online.params

        names = [name for name in {**lanes, **changed} if name in {**rule.hyperparameters, **changed}]
        base = end(rule, lanes[BASE])
        for name in (name for name in names if not effects.get(name)):
            other = changed.get(name, rule)
            after = end(other, lanes.get(name, lanes[BASE]))
            effects[name] = (other.needs, other.dtypes) != (rule.needs, rule.dtypes) or not all(
                _equal(base[parameter], value) for parameter, value in after.items()
            )

    def trials(self, study: Study, optimizer: OptimizerSpec) -> Iterator[Trial]:
        """Yield the trials of an optimizer, the workloads with the fewest parameters first.

        A study may have a workload with several settings. If the parameters have the same kinds (such as
        weight or bias) and the same numbers of axes with several settings, only the settings with the fewest
        parameters are tried, because optimizers refuse kinds of parameters, not sizes. In trials on the
        squared distance, the same applies to different workloads.
        """
        method = origin(RULES, optimizer.locator)
        rule = rule_of(optimizer, study.file.schedule.name)
        lanes = _lanes(rule, optimizer, study)
        of_scales = dict.fromkeys(name for scale in study.scales for name in study.backends_at(scale))
        backends = [rule.backend] if rule.backend else list(of_scales)
        tested = set()
        uses = [(study.scales[scale], spec) for scale, specs in study.workloads.items() for spec in specs]
        for scale, spec in sorted(uses, key=lambda use: size_of(use[1])):
            workload = find_workload(spec.locator).at(spec.settings).evaluated_on(scale.evaluated_splits)
            is_own = bool(origin(WORKLOADS, spec.locator).modules)
            if is_own and method.modules:
                continue
            is_small = size_of(spec) <= MAX_EVALUATED_PARAMETERS
            has_own_loss = is_small and workload.missing(spec.settings) is None
            key = (has_own_loss and spec.locator, _kinds(spec))
            if key in tested:
                continue
            tested.add(key)
            problem = self._problem(spec, has_own_loss)
            in_memory = all(isinstance(split, Mapping) for split in problem.splits.values())
            for backend in (name for name in backends if workload.backend in (None, name)):
                trial = Trial(
                    problem_name=spec.name,
                    locator=optimizer.locator,
                    rule=rule,
                    workload=workload,
                    settings=spec.settings,
                    problem=problem,
                    precision=study.file.precision or workload.dtype,
                    backend=backend,
                    lanes=lanes,
                    evaluates=in_memory and not is_own,
                    separately=spec.name in self.unmapped,
                )
                yield trial if has_own_loss else trial.simpler()

    def _problem(self, spec: WorkloadSpec, has_data: bool) -> Problem:
        """Draw the problem of a workload with the seed 0. A later call returns the same problem again.

        Args:
            spec: the workload with its settings.
            has_data: whether to draw parameters and data; otherwise only the parameters are drawn.
        """
        workload = find_workload(spec.locator)
        if not has_data:
            return Problem(workload.sample_parameters(spec.settings, np.random.default_rng(0)), {})
        if (key := repr(spec)) not in self.problems:
            self.problems[key] = workload.problem(spec.settings, WorkloadRandom(workload.name, 0))
        return self.problems[key]


def _kinds(spec: WorkloadSpec) -> frozenset[tuple[str, int]]:
    """Return the kinds of a workload's parameters, such as weight, with their numbers of axes."""
    workload = find_workload(spec.locator)
    shapes, roles = workload.shapes_at(spec.settings), workload.roles(spec.settings)
    return frozenset((role.kind, len(shapes[name])) for name, role in roles.items())


def _own_workloads(study: Study) -> Collection[WorkloadSpec]:
    """Return the smallest workload of this project in a study for each set of kinds of parameters."""
    specs = (spec for specs in study.workloads.values() for spec in specs)
    own = [spec for spec in specs if origin(WORKLOADS, spec.locator).modules]
    return {_kinds(spec): spec for spec in sorted(own, key=size_of, reverse=True)}.values()


def _add(messages: dict[str, list[str]], trial: Trial, message: str) -> None:
    """Add the name of a trial's problem to the list of problems that a message is about."""
    names = messages.setdefault(message, [])
    if trial.problem_name not in names:
        names.append(trial.problem_name)


def _lanes(rule: Rule, optimizer: OptimizerSpec, study: Study) -> dict[str, dict[str, float]]:
    """Return the values of all hyperparameters in each lane of a trial, in the form of `Trial.lanes`.

    In the lane BASE, tuned hyperparameters such as the learning rate have the lowest values that tuning may
    try. Every other lane differs from BASE in one hyperparameter. A tuned hyperparameter has a higher value.
    A hyperparameter that the study fixes to another value than its default has the default.
    """
    bounds = study.file.tuning.for_optimizer(optimizer).bounds
    lowest = {name: low for name, (low, _) in bounds.items()}
    changed = {
        name: math.sqrt(low * high) if low > 0 else high for name, (low, high) in bounds.items() if low < high
    }
    for name, value in optimizer.hyperparameters.items():
        if (default := rule.hyperparameters[name].default) not in (None, value):
            changed[name] = default
    base = rule.complete({**optimizer.hyperparameters, **lowest})
    return {BASE: base, **{name: {**base, name: value} for name, value in changed.items()}}


def _changed_arguments(rule: Rule, optimizer: OptimizerSpec) -> Iterator[tuple[str, Rule]]:
    """Yield each argument or option that differs from its default, and the rule with the default instead.

    Args:
        rule: the rule with the options of the study.
        optimizer: the optimizer in the study.
    """
    if not is_foreign(optimizer.locator):
        for name, option in rule.options.items():
            if rule.chosen[name] != option.default:
                yield name, rule.choose({**rule.chosen, name: option.default})
        return
    arguments, defaults = rule.chosen["arguments"], defaults_of(optimizer.locator)
    for name, value in arguments.items():
        default = defaults.get(name)
        is_default = value == (list(default) if isinstance(default, tuple) else default)
        if name not in (GROUPS, CLOSURE, VALUE) and not is_default:
            others = {key: other for key, other in arguments.items() if key != name}
            yield name, rule.choose({**rule.chosen, "arguments": others})


def size_of(spec: WorkloadSpec) -> int:
    """Return the number of parameters of a workload."""
    return sum(map(math.prod, find_workload(spec.locator).shapes_at(spec.settings).values()))


def workload_of(
    objective: Callable[[Any, Arrays, Arrays], Any], roles: Mapping[str, Role], precision: Precision
) -> Workload:
    """Return a workload whose loss is the given objective.

    The workload draws no parameters and no data. The caller must provide them.

    Args:
        objective: function `objective(ops, params, batch) -> scalar`. The objective is the loss of the
            workload, and also its only metric, `train_loss`.
        roles: a mapping from the names of the parameters to roles.
        precision: precision policy.
    """
    return Workload(
        name="trial",
        description="first steps of an optimizer",
        source="curvebench",
        metrics={"train_loss": Metric("the objective", "minimize")},
        settings={},
        dtype=precision,
        shared_data=True,
        roles=lambda settings: dict(roles),
        problem=lambda settings, random: Problem({}, {}),
        sample_parameters=lambda settings, generator: {},
        loss=loss_of(objective),
        evaluate=lambda ops, params, state, split: {"loss": objective(ops, params, split)},
    )


def _squared_distance(ops: Any, params: Arrays, batch: Arrays) -> Any:
    return sum(ops.sum(ops.square(param - ops.sum(batch["centre"]))) for param in params.values()) / 2
