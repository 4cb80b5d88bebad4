"""An update rule bound to a layout: the parameters that each of its calls updates, and the work of each step.

The layout puts the parameters of a run into one flat buffer of `total` numbers, in the coordinates of a basis
if there is one. Buffers of several runs (lanes) have leading axes, written `*lanes`, usually (S, K) for S
seeds and K settings. The scope of a rule says what one call receives: `leaf` (parameters of equal shape as
separate arrays), `entry` or `model` (the whole buffer), or `named` (all parameters by name). The needs of a
rule are values that it uses in addition to the gradient, such as a Hessian.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntFlag
from functools import cached_property
from typing import Any

from curvebench.arrays.ops import Array, Ops
from curvebench.optimizers.options import OptionError
from curvebench.optimizers.rule import Part, Rule
from curvebench.spec.errors import InputError
from curvebench.steps.layout import Layout, Stack, side_by_side

# One call of a rule updates at most ENTRIES_AT_ONCE entries of parameters, or a single parameter (leaf).
# The reason is that intermediate arrays take several times the memory of the arguments of the call.
# For the same reason, at least MIN_CALLS calls update a model with at least MANY_ENTRIES entries.
# The exception is a model with a leaf that has more than a MIN_CALLS-th of all entries.
ENTRIES_AT_ONCE = 1 << 22
MIN_CALLS = 8
MANY_ENTRIES = 1 << 19


class Work(IntFlag):
    """Amortized work of a step: expensive computations of a rule that only some steps do.

    A step does this work before its update. A step with OBSERVE is said to observe: it evaluates the
    amortized needs of the rule (`Need.amortized`), such as the statistics of K-FAC.
    """

    NONE = 0
    REFRESH = 1  # the step calls `Rule.refresh`, for example for an eigendecomposition
    START = 2  # the step calls `Rule.start`, which replaces the refresh of the first step
    OBSERVE = 4  # the step calls `Rule.observe`, which receives the amortized needs


@dataclass(frozen=True)
class UpdateGroup:
    """Parameters that one call of a rule updates: a stack of leaves of equal shape, or the whole flat buffer.

    Args:
        part: the rule that updates the group. It also maps each hyperparameter of the rule to its name in the
            whole optimizer, such as `beta1` to `others_beta1`.
        stack: the leaves; None if the rule updates the whole buffer.
        named: the layout by which the buffer is divided into the parameters, for a rule that receives a
            mapping from parameter names to arrays; None for a rule that receives one array.
    """

    part: Part
    stack: Stack | None
    named: Layout | None = None

    @property
    def rule(self) -> Rule:
        """The rule that updates the group."""
        return self.part.rule

    def take(self, ops: Ops, flat: Array) -> Array:
        """Return the entries of the group in a buffer (*lanes, total).

        The result is one array or, with `named`, a mapping from parameter names to arrays.
        """
        if self.named is not None:
            return self.named.unflatten(ops, flat)
        return flat if self.stack is None else self.stack.take(ops, flat)

    def flatten(self, ops: Ops, arrays: Array, lanes: tuple[int, ...]) -> Array:
        """Return the group's section (*lanes, entries) of a buffer: the inverse of `take`.

        Args:
            ops: array functions.
            arrays: the group's array or, with `named`, a mapping from parameter names to arrays.
            lanes: lengths of the leading axes.
        """
        if self.named is not None:
            return self.named.flatten(ops, arrays, len(lanes))
        return ops.reshape(arrays, (*lanes, -1))


def hyper_of(ops: Ops, part: Part, values: Mapping[str, Array], axes: int) -> dict[str, Array]:
    """Return the argument `hyper` of a rule's functions.

    The entry `learning_rate` of the result is the learning rate multiplied by the schedule.

    Args:
        ops: array functions.
        part: the rule. It also maps each hyperparameter of the rule to its name in the whole optimizer, such
            as `beta1` to `others_beta1`.
        values: a mapping from names to arrays: all hyperparameters of the optimizer, the number of the step
            (`step`) and the multiplier of the learning rate (`schedule`), each of shape (*lanes, 1), and the
            values of the rule's needs, (*lanes, ...). Amortized needs are missing at steps that do not
            evaluate them.
        axes: number of axes of the arrays that the rule updates. Axes of length 1 are appended to each
            hyperparameter until it has this number of axes, so that the hyperparameter broadcasts with the
            arrays.

    Returns:
        The same values as in `values`, with the names that the functions of the rule use.
    """
    hyper = part.hyper(values) | {"step": values["step"], "schedule": values["schedule"]}
    hyper["learning_rate"] = hyper["learning_rate"] * hyper["schedule"]
    numbers = {
        name: ops.reshape(value, (*value.shape, *(1,) * (axes - value.ndim))) for name, value in hyper.items()
    }
    return numbers | {need.name: values[need.name] for need in part.rule.needs if need.name in values}


def updated(
    ops: Ops, part: Part, grad: Array, state: Any, param: Array, values: Mapping[str, Array], work: Work
) -> tuple[Array, Any]:
    """Do the amortized work of a step for a group of parameters, and then update the group by the rule.

    Args:
        ops: array functions.
        part: the rule. It also maps each hyperparameter of the rule to its name in the whole optimizer, such
            as `beta1` to `others_beta1`.
        grad, param: gradient and parameters of a group, as `UpdateGroup.take` returns them.
        state: the rule's state for the group.
        values: a mapping from names to arrays: hyperparameters of the whole optimizer, number of the step
            (`step`), multiplier of the learning rate (`schedule`), and needs of the rule.
        work: the amortized work of the step.

    Returns:
        The new parameters, with the structure of `param`, and the new state.

    Raises:
        InputError: if the update of the rule returns anything but new parameters and a state.
    """
    rule = part.rule
    hyper = hyper_of(ops, part, values, 0 if rule.scope == "named" else param.ndim)
    if work & Work.OBSERVE and rule.observe is not None:
        state = rule.observe(ops, grad, state, hyper)
    refresh = rule.start if work & Work.START and rule.start else rule.refresh
    if work & (Work.REFRESH | Work.START) and refresh is not None:
        state = refresh(ops, grad, state, hyper)
    result: Any = rule.update(ops, grad, state, param, hyper)
    # Compare numbers of axes instead of shapes, because a compiled update is used for any number of lanes.
    if type(result) is not tuple or len(result) != 2 or _form(result[0]) != _form(param):
        kinds = result if isinstance(result, tuple) else [result]
        types = ", ".join(type(value).__name__ for value in kinds)
        raise InputError(
            f"update returns {types}; it must return (param, state), with param in its former shape"
        )
    return result


def _form(arrays: Any) -> Any:
    """Return the number of axes of an array, or the names of a mapping; None for any other object."""
    return set(arrays) if isinstance(arrays, Mapping) else getattr(arrays, "ndim", None)


@dataclass(frozen=True)
class Update:
    """A rule bound to the layout of a run.

    The methods take flat buffers of shape (*lanes, total), divide them into the arrays that the rule expects,
    and concatenate the arrays that the rule returns.
    """

    rule: Rule
    layout: Layout

    @cached_property
    def bound(self) -> Rule:
        """The rule for this layout.

        If the rule depends on the model's layers, `Rule.for_model` builds it from the layout; otherwise it is
        `rule` itself.

        Raises:
            OptionError: if the rule depends on layers, and does not support the layers of the layout or is
                run in a basis.
        """
        if self.rule.for_model is None:
            return self.rule
        if self.layout.blocks:
            raise OptionError(f"{self.rule.name}: sees layers, which no basis keeps; run it without a basis")
        return self.rule.for_model(self.layout.shapes, self.layout.roles)

    @cached_property
    def groups(self) -> tuple[UpdateGroup, ...]:
        """The update groups in the order of the buffer. Together they cover the buffer.

        A rule of scope `model` or `named` has one group, and so has a rule of scope `entry` without
        `Rule.part`. For other rules, leaves are in one group if they are neighbours in the buffer, have the
        same shape and kind, and are updated by the same rule. A group with more than ENTRIES_AT_ONCE entries
        is divided.

        Raises:
            OptionError: if an option is invalid for a shape, if the rule cannot run in the basis, or if the
                rule that updates some of the parameters has a need that the whole optimizer does not declare.
        """
        for need in self.bound.needs:
            if self.layout.blocks and need.change_basis is None:
                raise OptionError(
                    f"{self.rule.name}: needs {need.description} of the loss, which is known in the original "
                    "coordinates alone; run it without a basis"
                )
        uniform = self.rule.scope == "entry" and self.rule.part is None
        if uniform or self.rule.scope == "model":
            return (UpdateGroup(Part(self.rule), None),)
        if self.rule.scope == "named":
            return (UpdateGroup(Part(self.bound), None, self.layout),)
        default = Part(self.rule)
        part_of = self.rule.part or (lambda role, shape: default)
        total = self.layout.total
        entries_at_once = min(ENTRIES_AT_ONCE, total // MIN_CALLS if total >= MANY_ENTRIES else total)
        groups = []
        for stack in self.layout.stacks:
            parts = [part_of(role, stack.shape) for role in stack.roles]
            first = 0
            for _, same_part in itertools.groupby(parts, id):
                last = first + len(list(same_part))
                leaves_at_once = max(1, entries_at_once // math.prod(stack.shape))
                groups += [
                    UpdateGroup(parts[first], stack.subset(start, min(start + leaves_at_once, last)))
                    for start in range(first, last, leaves_at_once)
                ]
                kind = stack.roles[first].kind
                for need in parts[first].rule.needs:
                    if need not in self.rule.needs:
                        raise OptionError(
                            f"{self.rule.name}: the rule of a {kind}, {parts[first].rule.name}, needs "
                            f"{need.name!r}, which the needs of {self.rule.name} do not have"
                        )
                first = last
        return tuple(groups)

    def check_change_of_basis(self) -> tuple[str, ...]:
        """Check that the rule's state can be expressed in another basis.

        Returns:
            The names of the state fields that transform like a gradient under a change of basis
            (`Rule.first_moments`).

        Raises:
            OptionError: if the rule has state that cannot be expressed in other coordinates.
        """
        fields = {group.rule.first_moments for group in self.groups}
        first_moments = fields.pop() if len(fields) == 1 else None
        if first_moments is None:
            raise OptionError(
                f"{self.rule.name}: its state cannot go on in other coordinates, as a basis with every "
                "needs; leave every out, or name other optimizers in the basis"
            )
        return first_moments

    def change_basis(
        self, ops: Ops, state: Sequence[Any], change: Callable[[Array], Array]
    ) -> tuple[Any, ...]:
        """Express the state of all groups in other coordinates.

        Args:
            ops: array functions.
            state: the state of each group.
            change: function that maps a gradient (S, K, total) from the old to the new coordinates.

        Raises:
            OptionError: if the rule has state that cannot be expressed in other coordinates.
        """
        states = list(state)
        for field in self.check_change_of_basis():
            moments = [getattr(group_state, field) for group_state in states]
            lanes = tuple(moments[0].shape[:2])
            pairs = zip(self.groups, moments, strict=True)
            flats = [group.flatten(ops, moment, lanes) for group, moment in pairs]
            changed = change(side_by_side(ops, flats))
            pairs = zip(self.groups, states, strict=True)
            states = [old._replace(**{field: group.take(ops, changed)}) for group, old in pairs]
        return tuple(states)

    @property
    def cadence(self) -> frozenset[Work]:
        """The combinations of amortized work that occur at the steps of a run.

        A backend compiles a step for each combination.
        """
        refresh, observe = self.bound.refresh_every or 1, self.bound.observe_every
        steps = (1, 2, 1 + refresh, 1 + observe, 1 + math.lcm(refresh, observe))
        return frozenset(map(self.work_of, steps))

    def work_of(self, step: int) -> Work:
        """Return the amortized work of the step with this number, counted from 1."""
        work = Work.NONE
        if any(group.rule.observe for group in self.groups) and (step - 1) % self.bound.observe_every == 0:
            work |= Work.OBSERVE
        if step == 1 and any(group.rule.start for group in self.groups):
            return work | Work.START
        every = self.bound.refresh_every
        due = step == 1 if every is None else (step - 1) % every == 0
        if due and any(group.rule.refresh or group.rule.start for group in self.groups):
            work |= Work.REFRESH
        return work

    def observations(self, steps: Any) -> Any:
        """Return how many of the first `steps` steps evaluate the amortized needs of the rule.

        Args:
            steps: number of steps, or an integer array of such numbers.
        """
        return -(-steps // self.bound.observe_every)

    @property
    def looks_ahead(self) -> bool:
        """Whether the gradient is not taken at the current parameters, for example in Nesterov momentum."""
        return any(group.rule.gradient_at is not None for group in self.groups)

    def point(self, ops: Ops, state: Sequence[Any], flat: Array, values: Mapping[str, Array]) -> Array:
        """Return the point (*lanes, total) at which the gradient is taken.

        Args:
            ops: array functions.
            state: the state of each group.
            flat: the current coordinates, (*lanes, total).
            values: a mapping from names to arrays: hyperparameters of the whole optimizer, number of the step
                (`step`), multiplier of the learning rate (`schedule`), and needs of the rule.
        """
        if not self.looks_ahead:
            return flat
        points = []
        for group, group_state in zip(self.groups, state, strict=True):
            param = group.take(ops, flat)
            if group.rule.gradient_at is not None:
                hyper = hyper_of(ops, group.part, values, param.ndim)
                param = group.rule.gradient_at(ops, group_state, param, hyper)
            points.append(ops.reshape(param, (*flat.shape[:-1], -1)))
        return side_by_side(ops, points)

    def evaluation_point(self, ops: Ops, state: Sequence[Any], flat: Array) -> Array:
        """Return the point (*lanes, total) at which metrics are evaluated, for the coordinates `flat`.

        The point differs from `flat` for rules whose result is, for example, an average of all iterates.
        """
        if all(group.rule.evaluated_at is None for group in self.groups):
            return flat
        points = []
        for group, group_state in zip(self.groups, state, strict=True):
            param = group.take(ops, flat)
            if group.rule.evaluated_at is not None:
                param = group.rule.evaluated_at(ops, group_state, param)
            points.append(group.flatten(ops, param, tuple(flat.shape[:-1])))
        return side_by_side(ops, points)

    def init(self, ops: Ops, flat: Array) -> tuple[Any, ...]:
        """Return the initial state of each group, given the initial coordinates `flat`, (*lanes, total)."""
        return tuple(group.rule.init(ops, group.take(ops, flat)) for group in self.groups)

    def apply(
        self,
        ops: Ops,
        grad: Array,
        state: Sequence[Any],
        flat: Array,
        values: Mapping[str, Array],
        work: Work = Work.NONE,
    ) -> tuple[Array, tuple[Any, ...]]:
        """Take one step: update the coordinates and the state of all groups.

        Args:
            ops: array functions.
            grad, flat: the gradient and the current coordinates, (*lanes, total).
            state: the state of each group.
            values: a mapping from names to arrays: hyperparameters of the whole optimizer, number of the step
                (`step`), multiplier of the learning rate (`schedule`), and needs of the rule.
            work: the amortized work of the step.

        Returns:
            The new coordinates (*lanes, total), and the new state of each group.
        """
        flats, states = [], []
        for group, group_state in zip(self.groups, state, strict=True):
            param = group.take(ops, flat)
            new, new_state = updated(ops, group.part, group.take(ops, grad), group_state, param, values, work)
            flats.append(group.flatten(ops, new, tuple(flat.shape[:-1])))
            states.append(new_state)
        return side_by_side(ops, flats), tuple(states)
