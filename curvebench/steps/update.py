"""An update rule bound to a layout: which parameters each call of it takes, and what it does at a step."""

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
from curvebench.steps.layout import Layout, Stack, side_by_side

# Of equal leaves that are updated at once, or one leaf: what lies in between takes several times as much.
ENTRIES_AT_ONCE = 1 << 22
SHARE_AT_ONCE = 8  # an eighth of all entries, where that is less; of fewer than MANY_ENTRIES all
MANY_ENTRIES = 1 << 19


class Work(IntFlag):
    """The amortized work before the update of a step."""

    NONE = 0
    REFRESH = 1
    START = 2  # of the first step, where a rule begins otherwise than it goes on
    OBSERVE = 4  # a rule takes up amortized needs, which are evaluated at such steps alone


@dataclass(frozen=True)
class UpdateGroup:
    """The leaves that one rule updates at once: a stack of the layout, or the whole buffer.

    Args:
        part: the rule, and what it calls its hyperparameters.
        stack: the leaves; None where the rule takes the buffer as it is.
        named: the layout by which the rule takes the whole buffer as arrays by name; None for an array.
    """

    part: Part
    stack: Stack | None
    named: Layout | None = None

    @property
    def rule(self) -> Rule:
        """The rule."""
        return self.part.rule

    def take(self, ops: Ops, flat: Array) -> Array:
        """What the rule sees of a buffer (*lanes, total)."""
        if self.named is not None:
            return self.named.unflatten(ops, flat)
        return flat if self.stack is None else self.stack.take(ops, flat)

    def flatten(self, ops: Ops, seen: Array, lanes: tuple[int, ...]) -> Array:
        """The part of a buffer (*lanes, entries) that the rule sees so."""
        if self.named is not None:
            return self.named.flatten(ops, seen, len(lanes))
        return ops.reshape(seen, (*lanes, -1))


def hyper_of(ops: Ops, part: Part, values: Mapping[str, Array], axes: int) -> dict[str, Array]:
    """A rule's hyperparameters, `step` and `schedule`, with so many axes and the rate scheduled.

    Args:
        part: the rule, and what the optimizer calls its hyperparameters.
        values: arrays (*lanes, 1) by the optimizer's names, `step` and `schedule` among them; and what the
            rule needs besides, (*lanes, ...), but for amortized needs at steps that do not observe.
        axes: how many axes the rule's arrays have.
    """
    names = {name: part.names.get(name, name) for name in part.rule.hyperparameters}
    names |= {"step": "step", "schedule": "schedule"}
    given = {name: values[other] for name, other in names.items()}
    given["learning_rate"] = given["learning_rate"] * given["schedule"]
    numbers = {
        name: ops.reshape(value, (*value.shape, *(1,) * (axes - value.ndim))) for name, value in given.items()
    }
    return numbers | {need.name: values[need.name] for need in part.rule.needs if need.name in values}


def updated(
    ops: Ops,
    part: Part,
    grad: Array,
    state: Any,
    param: Array,
    values: Mapping[str, Array],
    work: Work,
) -> tuple[Array, Any]:
    """A rule's update of what it sees, after its amortized work where this is a step for it."""
    rule = part.rule
    hyper = hyper_of(ops, part, values, 0 if rule.scope == "named" else param.ndim)
    if work & Work.OBSERVE and rule.observe is not None:
        state = rule.observe(ops, grad, state, hyper)
    refresh = rule.start if work & Work.START and rule.start else rule.refresh
    if work & (Work.REFRESH | Work.START) and refresh is not None:
        state = refresh(ops, grad, state, hyper)
    return rule.update(ops, grad, state, param, hyper)


@dataclass(frozen=True)
class Update:
    """A rule bound to a layout: how it sees the flat buffer of shape (*lanes, total)."""

    rule: Rule
    layout: Layout

    @cached_property
    def bound(self) -> Rule:
        """The rule for these parameters.

        Raises:
            OptionError: where they are not those of a model that it is for.
        """
        if self.rule.for_model is None:
            return self.rule
        if self.layout.blocks:
            raise OptionError(f"{self.rule.name}: sees layers, which no basis keeps; run it without a basis")
        return self.rule.for_model(self.layout.shapes, self.layout.roles)

    @cached_property
    def groups(self) -> tuple[UpdateGroup, ...]:
        """What is updated at once, in buffer order.

        Raises:
            OptionError: for an option that is wrong for a shape, a basis that the rule cannot take, or a need
                of a part that the whole rule does not declare.
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
        whole = Part(self.rule)
        part_of = self.rule.part or (lambda role, shape: whole)
        total = self.layout.total
        entries_at_once = min(ENTRIES_AT_ONCE, total // SHARE_AT_ONCE if total >= MANY_ENTRIES else total)
        groups = []
        for stack in self.layout.stacks:
            parts = [part_of(role, stack.shape) for role in stack.roles]
            first = 0
            for _, alike in itertools.groupby(parts, id):
                last = first + len(list(alike))
                at_once = max(1, entries_at_once // math.prod(stack.shape))
                groups += [
                    UpdateGroup(parts[first], stack.subset(start, min(start + at_once, last)))
                    for start in range(first, last, at_once)
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
        """The fields of its state that change with the coordinates like a gradient.

        Raises:
            OptionError: where its state cannot go on in other coordinates.
        """
        fields = {group.rule.first_moments for group in self.groups}
        found = fields.pop() if len(fields) == 1 else None
        if found is None:
            raise OptionError(
                f"{self.rule.name}: its state cannot go on in other coordinates, as a basis with every "
                "needs; leave every out, or name other optimizers in the basis"
            )
        return found

    def change_basis(
        self, ops: Ops, state: Sequence[Any], change: Callable[[Array], Array]
    ) -> tuple[Any, ...]:
        """The state in other coordinates: `change` takes a gradient's (S, K, total) to the new ones.

        Raises:
            OptionError: where its state cannot go on in other coordinates.
        """
        states = list(state)
        for field in self.check_change_of_basis():
            seen = [getattr(held, field) for held in states]
            lanes = tuple(seen[0].shape[:2])
            flats = [group.flatten(ops, one, lanes) for group, one in zip(self.groups, seen, strict=True)]
            changed = change(side_by_side(ops, flats))
            states = [
                held._replace(**{field: group.take(ops, changed)})
                for group, held in zip(self.groups, states, strict=True)
            ]
        return tuple(states)

    @property
    def cadence(self) -> frozenset[Work]:
        """The amortized work that steps differ by."""
        refresh, observe = self.bound.refresh_every or 1, self.bound.observe_every
        steps = (1, 2, 1 + refresh, 1 + observe, 1 + math.lcm(refresh, observe))
        return frozenset(map(self.work_of, steps))

    def work_of(self, step: int) -> Work:
        """The amortized work that is done before the update of a step, from 1."""
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
        """How many of so many first steps observe, whole numbers or arrays of them."""
        return -(-steps // self.bound.observe_every)

    @property
    def looks_ahead(self) -> bool:
        """Whether gradients are taken elsewhere than at the parameters."""
        return any(group.rule.gradient_at is not None for group in self.groups)

    def point(self, ops: Ops, state: Sequence[Any], flat: Array, values: Mapping[str, Array]) -> Array:
        """Where the gradient is taken, (*lanes, total); `values` as in `apply`."""
        if not self.looks_ahead:
            return flat
        points = []
        for group, held in zip(self.groups, state, strict=True):
            param = group.take(ops, flat)
            if group.rule.gradient_at is not None:
                hyper = hyper_of(ops, group.part, values, param.ndim)
                param = group.rule.gradient_at(ops, held, param, hyper)
            points.append(ops.reshape(param, (*flat.shape[:-1], -1)))
        return side_by_side(ops, points)

    def evaluation_point(self, ops: Ops, state: Sequence[Any], flat: Array) -> Array:
        """Where metrics are taken, (*lanes, total)."""
        if all(group.rule.evaluated_at is None for group in self.groups):
            return flat
        points = []
        for group, held in zip(self.groups, state, strict=True):
            param = group.take(ops, flat)
            if group.rule.evaluated_at is not None:
                param = group.rule.evaluated_at(ops, held, param)
            points.append(group.flatten(ops, param, tuple(flat.shape[:-1])))
        return side_by_side(ops, points)

    def init(self, ops: Ops, flat: Array) -> tuple[Any, ...]:
        """The state at the first parameters: one of its rule's for each group."""
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
        """One update; `values` as in `hyper_of`, each number (*lanes, 1)."""
        flats, states = [], []
        for group, held in zip(self.groups, state, strict=True):
            param = group.take(ops, flat)
            new, new_state = updated(ops, group.part, group.take(ops, grad), held, param, values, work)
            flats.append(group.flatten(ops, new, tuple(flat.shape[:-1])))
            states.append(new_state)
        return side_by_side(ops, flats), tuple(states)
