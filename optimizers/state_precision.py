"""State and parameters held in half precision from step to step; a step is computed in float32."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import wraps
from typing import Any

from curvebench.optimizers.options import Option, Options
from curvebench.optimizers.rule import Array, Build, Ops, Part, Rule, State, configured, map_arrays
from curvebench.spec.values import choice

HALF = "bfloat16"
STATE_PRECISION = Option(
    "parameters",
    f"what state is held in between steps: parameters, as they are, computed, as updates are, or {HALF}, in "
    "which a running mean needs a rate of 0.01 or more, such as a beta2 of 0.99 at most, and a basis of "
    "spectral orthogonalize_every",
    choice("parameters", "computed", HALF),
)
HELD_WIDE = replace(STATE_PRECISION, default="computed")  # of rules that decompose their state (003 App. D)


def configured_with_state(
    name: str, options: Mapping[str, Option], state_precision: Option = STATE_PRECISION
) -> Callable[[Build], Build]:
    """`configured` with one option more: what the rule's state is held in."""

    def decorated(make: Build) -> Build:
        @wraps(make)
        def held(chosen: Options) -> Rule:
            rule = make(chosen)
            if chosen["state_precision"] == HALF:
                rule = in_half_precision(rule)
            return replace(rule, dtypes=tuple(dict.fromkeys((*rule.dtypes, HALF))))

        return configured(name, {**options, "state_precision": state_precision})(held)

    return decorated


def with_parameters_in_half(rule: Rule) -> Rule:
    """The rule for parameters and gradients in bfloat16; its state is held so too, or as its option says.

    That of another library is held in float32: it may hold sums and numbers that rounding would stop.
    """
    as_computed = rule.backend is not None or rule.chosen.get("state_precision") == "computed"
    return in_half_precision(rule, state=not as_computed)


def in_half_precision(rule: Rule, state: bool = True) -> Rule:
    """The rule for parameters in any precision up to float32, with its state held in bfloat16 between steps.

    Each step begins with all that is held cast up to float32 and ends with what `update` returns cast down to
    nearest, parameters to the precision in which they came: all between is float32, hyperparameters and
    decompositions too. Float64 is not taken, since it is asked for where rounding counts. The state cannot go
    on in other coordinates, whose matrices are float32.

    Args:
        rule: any.
        state: False to leave the state in float32.
    """

    def widened(
        function: Callable[..., Any] | None, narrowed: Callable[..., Any] = lambda ops, found, given: found
    ) -> Any:
        """A function of arrays and states, all of them cast up.

        Args:
            function: of a table of array functions, and arrays and states.
            narrowed: casts down what it gives, `narrowed(ops, found, given)`.
        """
        if function is None:
            return None
        return lambda ops, *given: narrowed(
            ops, function(ops, *(_cast(ops, each, ops.dtype) for each in given)), given
        )

    def held(ops: Ops, found: State, given: Any) -> State:
        return _cast(ops, found, HALF) if state else found

    def updated(ops: Ops, found: tuple[Array, State], given: Any) -> tuple[Array, State]:
        return map_arrays(ops.cast_like, found[0], given[2]), held(ops, found[1], given)

    def like_parameters(ops: Ops, found: Array, given: Any) -> Array:
        return map_arrays(ops.cast_like, found, given[1])

    parts: dict[int, tuple[Part, Part]] = {}  # by id, and with the part: pieces are alike by identity

    def part(role: Any, shape: tuple[int, ...]) -> Part:
        assert rule.part is not None
        own = rule.part(role, shape)
        return parts.setdefault(id(own), (own, replace(own, rule=in_half_precision(own.rule, state))))[1]

    def for_model(shapes: Any, roles: Any) -> Rule:
        assert rule.for_model is not None
        return in_half_precision(rule.for_model(shapes, roles), state)

    return replace(
        rule,
        init=widened(rule.init, held),
        update=widened(rule.update, updated),
        start=widened(rule.start),
        observe=widened(rule.observe),
        refresh=widened(rule.refresh),
        gradient_at=widened(rule.gradient_at, like_parameters),
        evaluated_at=widened(rule.evaluated_at, like_parameters),
        part=part if rule.part else None,
        for_model=for_model if rule.for_model else None,
        dtypes=("float32", HALF),
        first_moments=None,
    )


def _cast(ops: Ops, state: State, dtype: str) -> State:
    """Nested tuples and mappings with their real arrays in a precision, the others as they are."""
    return map_arrays(lambda array: ops.cast(array, dtype), state)
