"""Wrappers: functions that change the steps of any rule, or the point at which the rule is judged.

A wrapper maps a rule to a rule, so that `cautious(find_rule("adamw"))` is cautious AdamW. Studies name such a
rule by the locator `adamw+cautious`, or by the key `wrap`. A wrapped rule has the hyperparameters and options
of its rule, and the hyperparameters of the wrapper.

In formulas, w is the parameter, g its gradient, and eta the learning rate. The step u of a rule is w minus
the new parameter, without weight decay if the rule has the hyperparameter `weight_decay`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from curvebench.optimizers.arrays import Array, Hyper, Ops, State, safe_divide
from curvebench.optimizers.layers import is_matrix
from curvebench.optimizers.options import OptionError
from curvebench.optimizers.rule import (
    Hyperparameter,
    ParameterRole,
    Part,
    Roles,
    Rule,
    Shapes,
    changed_parts,
    share,
)
from curvebench.optimizers.state_precision import HALF

DECAY = "weight_decay"
# Hyperparameters of momentum, which Schedule-Free replaces by its average; their default becomes 0.
MOMENTA = ("beta1", "momentum")


class Wrapped(NamedTuple):
    rule: State  # state of the wrapped rule
    own: tuple[Array, ...]  # arrays of the wrapper, which start as its function `own` says


@dataclass(frozen=True)
class Parameters:
    """The parameters that one call of a rule updates.

    Args:
        order: number of axes of a parameter; 1 for a rule that receives all parameters as one vector.
        are_matrices: whether the parameters are weight matrices or convolutions.
    """

    order: int = 1
    are_matrices: bool = False

    @classmethod
    def of(cls, role: ParameterRole, shape: tuple[int, ...]) -> Parameters:
        """Return the description of parameters of a role and shape."""
        return cls(len(shape), is_matrix(role, len(shape)))

    @property
    def axes(self) -> tuple[int, ...]:
        """The axes of a single parameter in an array of parameters, counted from the end."""
        return tuple(range(-self.order, 0))

    def total(self, ops: Ops, array: Array) -> Array:
        """Return the sum over the entries of each parameter, with length 1 along all its axes."""
        return ops.sum(array, axis=self.axes, keepdims=True) if self.order else array

    def norm(self, ops: Ops, array: Array) -> Array:
        """Return the Frobenius norm of each parameter, with length 1 along all its axes."""
        return ops.sqrt(self.total(ops, ops.square(array)))


@dataclass(frozen=True)
class Wrapper:
    """A function from rules to rules.

    Args:
        name: name of the wrapper in studies.
        source: the source document.
        description: one line for `curvebench list`.
        change: `change(rule, parameters) -> Rule`, which wraps a rule for the given parameters.
        hyperparameters: the wrapper's hyperparameters by full name.
        by_parameter: whether a step depends on all entries of a parameter. Otherwise, a step depends only on
            the same entry, so that rules of scope `entry` keep their scope.
        sets: fields of Rule that the wrapper sets. A rule that uses one of these fields itself is refused.
        matrices_only: whether only weight matrices and convolutions are changed; the rule itself updates all
            other parameters.
        requires: name of a hyperparameter without which a rule is not changed; empty for none.
        replaces_momentum: whether hyperparameters of momentum get the default 0.

    Example:
        >>> from curvebench import find_rule
        >>> from curvebench.optimizers.wrappers import ema
        >>> ema(find_rule("sgd")).name
        'sgd-ema'
    """

    name: str
    source: str
    description: str
    change: Callable[[Rule, Parameters], Rule]
    hyperparameters: Mapping[str, Hyperparameter] = field(default_factory=dict)
    by_parameter: bool = False
    sets: tuple[str, ...] = ()
    matrices_only: bool = False
    requires: str = ""
    replaces_momentum: bool = False

    def __call__(self, rule: Rule) -> Rule:
        """Return the wrapped rule.

        Raises:
            OptionError: if the rule cannot be wrapped.
        """
        self._check(rule)
        numbers = dict(rule.hyperparameters)
        if self.replaces_momentum:
            numbers |= {
                name: replace(number, default=0.0)
                for name, number in numbers.items()
                if name.removeprefix("others_") in MOMENTA
            }
        build = rule.build

        def special_case(shapes: Shapes, roles: Roles) -> str | None:
            known = rule.acts_as(shapes, roles)
            if not any(self._changes(rule, Parameters.of(roles[name], shapes[name])) for name in shapes):
                return known or rule.name
            return known and f"{known}-{self.name}"

        return replace(
            self._changed(rule),
            name=f"{rule.name}-{self.name}",
            source=f"{rule.source}; {self.source}",
            hyperparameters={**numbers, **self.hyperparameters},
            special_case=special_case,
            build=build and (lambda chosen: self(build(chosen))),
        )

    def _check(self, rule: Rule) -> None:
        """Check that the rule can be wrapped; otherwise raise an OptionError."""
        reason = ""
        if self.matrices_only and rule.scope == "model":
            reason = "gets all parameters as one vector"
        if self.requires and self.requires not in rule.hyperparameters:
            reason = f"has no hyperparameter {self.requires}"
        for name in self.sets:
            if getattr(rule, name) is not None:
                reason = f"has a point of its own ({name}), as this wrapper does"
        if rule.scope == "named":
            reason = "gets its parameters by name, and wrappers change rules that get arrays"
        if reason:
            raise OptionError(f"{self.name} cannot wrap {rule.name}, which {reason}; wrap another rule")

    def _changed(self, rule: Rule) -> Rule:
        """Return the rule with the wrapper's changes for each of its parameters."""
        if rule.scope == "model":
            return self._for(rule, Parameters())
        if rule.scope == "entry" and rule.part is None and not self.by_parameter:
            return self._for(rule, Parameters())
        whole = Part(rule)
        part = changed_parts(rule.part or (lambda role, shape: whole), self._for, Parameters.of)
        return replace(self._for(rule, Parameters(2, are_matrices=True)), scope="leaf", part=part)

    def _changes(self, rule: Rule, parameters: Parameters) -> bool:
        """Return whether the wrapper changes the steps of a rule for parameters, or its point."""
        has_required = not self.requires or self.requires in rule.hyperparameters
        return has_required and (parameters.are_matrices or not self.matrices_only)

    def _for(self, rule: Rule, parameters: Parameters) -> Rule:
        changed = self.change(rule, parameters) if self._changes(rule, parameters) else rule
        return replace(changed, hyperparameters={**rule.hyperparameters, **self.hyperparameters})


def _with_state(rule: Rule, own: Callable[[Ops, Array], tuple[Array, ...]], **functions: Any) -> Rule:
    """Return a rule whose state is that of `rule` and the arrays of a wrapper.

    Args:
        rule: the rule.
        own: `own(ops, param) -> arrays`, the arrays of the wrapper before the first step.
        functions: functions of the new rule, which receive a state `Wrapped`.
    """

    def amortized(function: Callable[[Ops, Array, State, Hyper], State] | None) -> Any:
        if function is None:
            return None
        return lambda ops, grad, state, hyper: state._replace(rule=function(ops, grad, state.rule, hyper))

    def at_point(function: Callable[..., Array] | None) -> Any:
        return function and (lambda ops, state, *arguments: function(ops, state.rule, *arguments))

    return replace(
        rule,
        init=lambda ops, param: Wrapped(rule.init(ops, param), own(ops, param)),
        dtypes=tuple(dtype for dtype in rule.dtypes if dtype != HALF),
        first_moments=None,
        **{name: amortized(getattr(rule, name)) for name in ("observe", "refresh", "start")},
        **{name: at_point(getattr(rule, name)) for name in ("gradient_at", "evaluated_at")} | functions,
    )


def _step(
    rule: Rule, ops: Ops, grad: Array, state: State, param: Array, hyper: Hyper
) -> tuple[Array, Array | float, State]:
    """Compute a step of a rule with and without weight decay.

    Rules differ in where and how much they decay parameters, so that a rule with weight decay is called
    twice. JAX and torch.compile compute only once what both calls have in common.

    Returns:
        The step u without weight decay, the array that weight decay adds to the new parameter, and the new
        state.
    """
    if DECAY not in rule.hyperparameters:
        new, new_state = rule.update(ops, grad, state, param, hyper)
        return param - new, 0.0, new_state
    new, new_state = rule.update(ops, grad, state, param, {**hyper, DECAY: 0 * hyper[DECAY]})
    return param - new, rule.update(ops, grad, state, param, hyper)[0] - new, new_state


def _disagree(ops: Ops, first: Array, second: Array) -> Array:
    """Return where two arrays have opposite signs; neither 0 nor NaN is opposite to anything."""
    return ops.sign(first) * ops.sign(second) < 0


def _cautious(rule: Rule, parameters: Parameters) -> Rule:
    """Return a rule without the entries of its step that increase the loss to first order.

    w <- w - d / (n + xi) u where u g >= 0, and w elsewhere, then weight decay (2411.16085 Alg. 2). d is the
    number of entries of the parameter, and n the number of entries with u g >= 0.
    """

    def update(ops: Ops, grad: Array, state: State, param: Array, hyper: Hyper) -> tuple[Array, State]:
        step, decay, new_state = _step(rule, ops, grad, state, param, hyper)
        disagrees, zeros = _disagree(ops, step, grad), ops.zeros_like(step)
        count = parameters.total(ops, ops.where(disagrees, zeros, ops.ones_like(step)))
        size = float(math.prod(param.shape[param.ndim - parameters.order :]))
        scale = safe_divide(ops, size, count + hyper["cautious_offset"])
        return param - ops.where(disagrees, zeros, scale * step) + decay, new_state

    return replace(rule, update=update)


def _cautious_decay(rule: Rule, parameters: Parameters) -> Rule:
    """Return a rule with weight decay only where u w >= 0, where step and decay agree (2510.12402)."""

    def update(ops: Ops, grad: Array, state: State, param: Array, hyper: Hyper) -> tuple[Array, State]:
        step, decay, new_state = _step(rule, ops, grad, state, param, hyper)
        return param - step + ops.where(_disagree(ops, step, param), 0.0, decay), new_state

    return replace(rule, update=update)


def _hyperball(rule: Rule, parameters: Parameters) -> Rule:
    """Return a rule that keeps the Frobenius norm R of each matrix at its value before the first step.

    W <- R N(W - eta R N(U)), where N(X) = X / |X|, and U is the step with weight decay, which Wen et al.
    (2025) leave out. Vectors, and matrices that start at 0, are updated by the rule itself.
    """

    def update(ops: Ops, grad: Array, state: Wrapped, param: Array, hyper: Hyper) -> tuple[Array, Wrapped]:
        new, new_state = rule.update(ops, grad, state.rule, param, hyper)
        (radius,) = state.own
        step = safe_divide(ops, param - new, parameters.norm(ops, param - new))
        moved = param - hyper["learning_rate"] * radius * step
        on_ball = moved * safe_divide(ops, radius, parameters.norm(ops, moved))
        return ops.where(radius == 0, new, on_ball), Wrapped(new_state, state.own)

    return _with_state(rule, lambda ops, param: (parameters.norm(ops, param),), update=update)


def _judged_at_mean(weight: Callable[[Ops, Hyper], Array]) -> Callable[[Rule, Parameters], Rule]:
    """Return the function `change` of a wrapper whose rule is judged at an average a of its iterates.

    After each step, a <- (1 - c) a + c w; a starts at w. The steps of the rule do not change.

    Args:
        weight: `weight(ops, hyper)`, the weight c of the newest iterate.
    """

    def change(rule: Rule, parameters: Parameters) -> Rule:
        def update(
            ops: Ops, grad: Array, state: Wrapped, param: Array, hyper: Hyper
        ) -> tuple[Array, Wrapped]:
            new, new_state = rule.update(ops, grad, state.rule, param, hyper)
            newest = weight(ops, hyper)
            return new, Wrapped(new_state, ((1 - newest) * state.own[0] + newest * new,))

        return _with_state(
            rule,
            lambda ops, param: (1 * param,),
            update=update,
            evaluated_at=lambda ops, state, param: state.own[0],
        )

    return change


def _newest_in_tail(ops: Ops, hyper: Hyper) -> Array:
    """Return min(1, 1 / (s t)), the weight of the newest iterate in a mean that reaches back s t steps."""
    reach = hyper["tail_share"] * hyper["step"]
    return 1 / ops.maximum(reach, ops.ones_like(reach))


def _schedule_free(rule: Rule, parameters: Parameters) -> Rule:
    """Return a rule with its gradient at y = (1 - beta) w + beta x, judged at the average x.

    w <- w - u(y), then x <- (1 - c) x + c w with c = m^p / (sum of m^p so far), where u(y) is the step of the
    rule from y, and m the largest learning rate so far (2405.15682 Alg. 1). Weight decay is of y, as in the
    authors' package.
    """

    def gradient_at(ops: Ops, state: Wrapped, param: Array, hyper: Hyper) -> Array:
        beta = hyper["schedule_free_beta"]
        return (1 - beta) * param + beta * state.own[0]

    def update(ops: Ops, grad: Array, state: Wrapped, param: Array, hyper: Hyper) -> tuple[Array, Wrapped]:
        average, largest, total = state.own
        point = gradient_at(ops, state, param, hyper)
        moved, new_state = rule.update(ops, grad, state.rule, point, hyper)
        new = param + (moved - point)
        largest = ops.maximum(largest, hyper["learning_rate"])
        weight = largest ** hyper["schedule_free_power"]
        newest = weight / (total + weight)
        average = (1 - newest) * average + newest * new
        return new, Wrapped(new_state, (average, largest, total + weight))

    def own(ops: Ops, param: Array) -> tuple[Array, ...]:
        return 1 * param, ops.zeros_like(param[..., :1]), ops.zeros_like(param[..., :1])

    return _with_state(
        rule,
        own,
        update=update,
        gradient_at=gradient_at,
        evaluated_at=lambda ops, state, param: state.own[0],
    )


cautious = Wrapper(
    name="cautious",
    source="Liang et al. 2024, arXiv 2411.16085, Alg. 2",
    description="sets entries of a step to 0 whose sign differs from the gradient's; scales up the others",
    change=_cautious,
    hyperparameters={
        "cautious_offset": Hyperparameter(
            "xi, added to the number of entries that agree; 1 in the paper, 0 in its authors' code", 0.0, 0.0
        )
    },
    by_parameter=True,
)

cautious_decay = Wrapper(
    name="cautious_decay",
    source="Chen et al. 2025, arXiv 2510.12402",
    description="applies weight decay only to entries that the step itself moves towards 0",
    change=_cautious_decay,
    requires=DECAY,
)

hyperball = Wrapper(
    name="hyperball",
    source="Wen et al. 2025, Hyperball optimization",
    description="keeps the Frobenius norm of each weight matrix; a step has learning_rate times this norm",
    change=_hyperball,
    by_parameter=True,
    matrices_only=True,
)

ema = Wrapper(
    name="ema",
    source="Polyak and Juditsky 1992; 2604.15297",
    description="is judged at an exponential running mean of the iterates, which starts at the first",
    change=_judged_at_mean(lambda ops, hyper: 1 - hyper["ema_decay"]),
    hyperparameters={"ema_decay": share("the share of the mean kept at a step", 0.99)},
    sets=("evaluated_at",),
)

tail = Wrapper(
    name="tail",
    source="Shamir and Zhang 2013, arXiv 1212.1824, Sec. 4",
    description="is judged at a mean of the latest iterates, which reaches back a share of the steps so far",
    change=_judged_at_mean(_newest_in_tail),
    hyperparameters={
        "tail_share": Hyperparameter(
            "s: the newest of t iterates has the weight 1 / (s t); 1 is the mean of all",
            0.1,
            0.0,
            1.0,
            low_open=True,
        )
    },
    sets=("evaluated_at",),
)

schedule_free = Wrapper(
    name="schedule_free",
    source="Defazio et al. 2024, arXiv 2405.15682, Alg. 1",
    description="takes gradients between iterate and average, and is judged at the average",
    change=_schedule_free,
    hyperparameters={
        "schedule_free_beta": share("beta, the share of the average in the point of the gradient", 0.9),
        "schedule_free_power": Hyperparameter(
            "p: the weight of an iterate is the largest learning rate so far to this power",
            2.0,
            0.0,
        ),
    },
    sets=("gradient_at", "evaluated_at"),
    replaces_momentum=True,
)

WRAPPERS = {
    wrapper.name: wrapper for wrapper in (cautious, cautious_decay, hyperball, ema, tail, schedule_free)
}
