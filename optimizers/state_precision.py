"""Storage of state and parameters in bfloat16 between steps; the steps themselves are computed in float32.

The state of a rule is, for example, Adam's running means. bfloat16 halves its memory.

In citations, 003 is Lin et al. (2025), "Spectral-factorized Positive-definite Curvature Learning for NN
Training" (docs/sources.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import wraps
from typing import Any

from curvebench.optimizers.arrays import Array, Ops, State, map_arrays
from curvebench.optimizers.options import Option, Options
from curvebench.optimizers.rule import Build, Rule, changed_parts, configured
from curvebench.spec.values import choice

HALF = "bfloat16"
STATE_PRECISION = Option(
    "parameters",
    f"what state is held in between steps: parameters, as they are, computed, as updates are, or {HALF}, in "
    "which a running mean needs a rate of 0.01 or more, such as a beta2 of 0.99 at most, and a basis of "
    "spectral orthogonalize_every",
    choice("parameters", "computed", HALF),
)
# Option `state_precision` for rules that decompose matrices in their state: float32 by default (003 App. D).
HELD_WIDE = replace(STATE_PRECISION, default="computed")


def configured_with_state(
    name: str, options: Mapping[str, Option], state_precision: Option = STATE_PRECISION
) -> Callable[[Build], Build]:
    """Return the decorator `configured` with an additional option, the precision of stored state."""

    def decorated(make: Build) -> Build:
        @wraps(make)
        def with_precision(chosen: Options) -> Rule:
            rule = make(chosen)
            if chosen["state_precision"] == HALF:
                rule = in_half_precision(rule)
            return replace(rule, dtypes=tuple(dict.fromkeys((*rule.dtypes, HALF))))

        return configured(name, {**options, "state_precision": state_precision})(with_precision)

    return decorated


def with_parameters_in_half(rule: Rule) -> Rule:
    """Return the rule for parameters and gradients in bfloat16, with state in bfloat16 by default.

    With the option `state_precision: computed`, the state stays in float32. The state of an optimizer of
    another library always stays in float32, because such a state may contain sums and counts, which would
    stop growing if they were rounded to bfloat16.
    """
    as_computed = rule.backend is not None or rule.chosen.get("state_precision") == "computed"
    return in_half_precision(rule, state=not as_computed)


def in_half_precision(rule: Rule, state: bool = True) -> Rule:
    """Return the rule for parameters in float32 or bfloat16, with its state in bfloat16 between steps.

    Each step first casts parameters and state up to float32. At its end, the step rounds the new parameters
    to the precision of the old parameters, and the new state to bfloat16. All computations of the step are in
    float32, including hyperparameters and decompositions. Float64 is not supported, because a study that
    needs float64 cannot accept the rounding to bfloat16. A run with such a rule cannot estimate its basis
    again, because the matrices of a basis are float32.

    Args:
        rule: any rule.
        state: False to leave the state in float32.
    """

    def widened(
        function: Callable[..., Any] | None, narrow: Callable[..., Any] = lambda ops, result, _: result
    ) -> Any:
        """Return a function that casts arguments up to float32, calls `function`, and casts its result down.

        Args:
            function: function whose first argument is the array functions, followed by arrays and states. If
                it is None, None is returned.
            narrow: `narrow(ops, result, arguments)`, which casts the result down.
        """
        if function is None:
            return None
        return lambda ops, *arguments: narrow(
            ops, function(ops, *(_cast(ops, array, ops.dtype) for array in arguments)), arguments
        )

    def stored(ops: Ops, result: State, arguments: Any) -> State:
        return _cast(ops, result, HALF) if state else result

    def updated(ops: Ops, result: tuple[Array, State], arguments: Any) -> tuple[Array, State]:
        return map_arrays(ops.cast_like, result[0], arguments[2]), stored(ops, result[1], arguments)

    def like_parameters(ops: Ops, result: Array, arguments: Any) -> Array:
        return map_arrays(ops.cast_like, result, arguments[1])

    def for_model(shapes: Any, roles: Any) -> Rule:
        assert rule.for_model is not None
        return in_half_precision(rule.for_model(shapes, roles), state)

    return replace(
        rule,
        init=widened(rule.init, stored),
        update=widened(rule.update, updated),
        start=widened(rule.start),
        observe=widened(rule.observe),
        refresh=widened(rule.refresh),
        gradient_at=widened(rule.gradient_at, like_parameters),
        evaluated_at=widened(rule.evaluated_at, like_parameters),
        part=rule.part and changed_parts(rule.part, lambda own, _: in_half_precision(own, state)),
        for_model=for_model if rule.for_model else None,
        dtypes=("float32", HALF),
        first_moments=None,
    )


def _cast(ops: Ops, state: State, dtype: str) -> State:
    """Cast the real arrays in nested tuples and mappings to a precision; leave other arrays unchanged."""
    return map_arrays(lambda array: ops.cast(array, dtype), state)
