"""State in half precision: what a rule remembers from step to step, not what it computes with inside one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import wraps
from typing import Any

from documents.values import choice
from optimizers.options import Option, Options
from optimizers.rule import Array, Build, Hyper, Ops, Part, Rule, State, configured

HALF = "bfloat16"
STATE_PRECISION = Option(
    "parameters",
    f"what state is held in between steps: parameters, as they are, or {HALF}, of parameters in float32, "
    "in which a running mean needs a rate of 0.01 or more, such as a beta2 of 0.99 at most",
    choice("parameters", HALF),
)


def configured_with_state(name: str, options: Mapping[str, Option]) -> Callable[[Build], Build]:
    """`configured` with one option more: what the rule's state is held in."""

    def decorated(make: Build) -> Build:
        @wraps(make)
        def held(chosen: Options) -> Rule:
            rule = make(chosen)
            return in_half_precision(rule) if chosen["state_precision"] == HALF else rule

        return configured(name, {**options, "state_precision": STATE_PRECISION})(held)

    return decorated


def in_half_precision(rule: Rule) -> Rule:
    """The rule with the real numbers of its state held in bfloat16 between steps.

    Each step begins with state cast up to the parameters' precision and ends with what `update` returns cast
    down, to nearest: all between them, hyperparameters and decompositions too, has the parameters' precision.
    Only float32 is taken, since float64 is asked for where rounding counts. The state cannot go on in other
    coordinates, whose matrices have the parameters' precision.
    """

    def reading(function: Callable[..., Any] | None, place: int) -> Callable[..., Any] | None:
        """A function with the state, its argument of this place, cast up."""
        if function is None:
            return None

        def read(ops: Ops, *given: Any) -> Any:
            state = _cast(ops, given[place], ops.dtype)
            return function(ops, *given[:place], state, *given[place + 1 :])

        return read

    def init(ops: Ops, param: Array) -> State:
        return _cast(ops, rule.init(ops, param), HALF)

    def update(ops: Ops, grad: Array, state: State, param: Array, hyper: Hyper) -> tuple[Array, State]:
        new, state = rule.update(ops, grad, _cast(ops, state, ops.dtype), param, hyper)
        return new, _cast(ops, state, HALF)

    parts: dict[int, tuple[Part, Part]] = {}  # by id, and with the part: pieces are alike by identity

    def part(role: Any, shape: tuple[int, ...]) -> Part:
        assert rule.part is not None
        own = rule.part(role, shape)
        return parts.setdefault(id(own), (own, replace(own, rule=in_half_precision(own.rule))))[1]

    def for_model(shapes: Any, roles: Any) -> Rule:
        assert rule.for_model is not None
        return in_half_precision(rule.for_model(shapes, roles))

    return replace(
        rule,
        init=init,
        update=update,
        start=reading(rule.start, 1),
        observe=reading(rule.observe, 1),
        refresh=reading(rule.refresh, 1),
        gradient_at=reading(rule.gradient_at, 0),
        evaluated_at=reading(rule.evaluated_at, 0),
        part=part if rule.part else None,
        for_model=for_model if rule.for_model else None,
        dtypes=("float32",),
        first_moments=None,
    )


def _cast(ops: Ops, state: State, dtype: str) -> State:
    """Nested tuples and mappings with their real arrays in a precision, the others as they are."""
    if isinstance(state, Mapping):
        return {name: _cast(ops, one, dtype) for name, one in state.items()}
    if isinstance(state, tuple):
        parts = [_cast(ops, one, dtype) for one in state]
        return type(state)(*parts) if hasattr(state, "_fields") else tuple(parts)
    return ops.cast(state, dtype)
