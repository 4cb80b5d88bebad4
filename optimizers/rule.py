"""Definition of an update rule: its hyperparameters, its options, its state and its pure functions.

Lanes are the runs of a batch, which have different seeds and settings; a rule sees them as leading batch
axes. A need is a value that a rule uses besides the gradient, such as a Hessian.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import Any, Literal, Protocol

from curvebench.optimizers.arrays import Array, Hyper, Ops, State
from curvebench.optimizers.needs import Need
from curvebench.optimizers.options import Option, OptionError, Options, complete
from curvebench.spec.values import Read, completed, interval, number

PRECISIONS = ("float64", "float32", "bfloat16")  # All precisions that parameters may have in a study.
# For each option that restricts the precision of parameters, the value that allows every precision.
WIDEST = {"precision": "any", "state_precision": "parameters"}


class HyperparameterError(ValueError):
    """Raised for an unknown, missing or illegal hyperparameter; the message lists what is legal."""


@dataclass(frozen=True)
class Hyperparameter:
    """Definition of a rule's hyperparameter: its meaning, its default and its legal interval.

    Args:
        description: one line for `curvebench list`.
        default: the value if a study gives none; None if a study must give a value.
        low, high: the bounds of the legal interval.
        low_open, high_open: whether the lower or upper bound itself is excluded.

    Example:
        >>> from curvebench import Hyperparameter
        >>> Hyperparameter("decay of the first moment", 0.9, 0.0, 1.0, high_open=True).interval
        '[0, 1)'
    """

    description: str
    default: float | None = None
    low: float = -math.inf
    high: float = math.inf
    low_open: bool = False
    high_open: bool = False

    @property
    def interval(self) -> str:
        """Text of the legal interval, such as `(0, inf)` or `[0, 1)`."""
        return interval(self.low, self.high, self.low_open, self.high_open)

    @property
    def read(self) -> Read:
        """Function that converts a value to a float and checks that it is in the legal interval."""
        checked = number(self.low, self.high, self.low_open, self.high_open)
        return lambda value: float(checked(value))


LEARNING_RATE = Hyperparameter("step size, multiplied by the schedule", low=0.0, low_open=True)
# Decoupled weight decay: the parameter is multiplied by 1 - learning_rate * weight_decay.
WEIGHT_DECAY = Hyperparameter("lambda, multiplied by the learning rate", 0.0, 0.0)


def share(description: str, default: float, low_open: bool = False) -> Hyperparameter:
    """Return a hyperparameter with values in [0, 1), or in (0, 1) if `low_open`.

    An example is the decay of a running mean.
    """
    return Hyperparameter(description, default, 0.0, 1.0, low_open, high_open=True)


def positive(description: str, default: float) -> Hyperparameter:
    """Return a hyperparameter whose values must be above 0."""
    return Hyperparameter(description, default, 0.0, low_open=True)


def starting_at_zero(state: Any) -> Callable[[Ops, Array], State]:
    """Return the `init` of a rule whose state fields all have the parameter's shape and start at 0.

    Args:
        state: class of the state, a NamedTuple.
    """
    return lambda ops, param: state(*(ops.zeros_like(param) for _ in state._fields))


class ParameterRole(Protocol):
    """Role of a parameter in its model: its kind and its layer (see curvebench.workloads.workload.Role)."""

    @property
    def kind(self) -> str:
        """Kind of the parameter: weight, bias, convolution, norm, embedding, head or vector."""

    @property
    def layer(self) -> int:
        """Number of the parameter's layer; 0 is nearest to the input."""


Shapes = Mapping[str, tuple[int, ...]]
Roles = Mapping[str, ParameterRole]


@dataclass(frozen=True)
class Part:
    """Rule for some of the parameters of an optimizer, such as AdamW for the biases in Muon.

    Args:
        rule: the rule.
        names: maps the name of a hyperparameter in `rule` to its name in the whole optimizer, such as `beta1`
            to `others_beta1`. Hyperparameters with equal names are left out.
        ratio: name of the hyperparameter of the whole optimizer by which the learning rate of the whole
            optimizer is multiplied to get the learning rate of `rule`; None if both rates are equal.
    """

    rule: Rule
    names: Mapping[str, str] = field(default_factory=dict)
    ratio: str | None = None

    def hyper(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the hyperparameters of the rule, by the names that its functions use.

        Args:
            values: hyperparameters of the whole optimizer.
        """
        hyper = {name: values[self.names.get(name, name)] for name in self.rule.hyperparameters}
        if self.ratio is not None:
            hyper["learning_rate"] = hyper["learning_rate"] * values[self.ratio]
        return hyper


@dataclass(frozen=True)
class Rule:
    """An update rule: the pure functions of an optimizer, on arrays with leading batch axes.

    Arrays have shape `(..., n)` or `(..., m, n)`. Every leading axis is a batch axis: runs that are computed
    together, and stacked parameters of equal shape. Each hyperparameter is an array that broadcasts against
    the parameter.

    Args:
        name: the name in studies and tables.
        source: the source document and equation.
        hyperparameters: the rule's hyperparameters by full name; `learning_rate` is one of them.
        init: `init(ops, param) -> state`.
        update: `update(ops, grad, state, param, hyper) -> (param, state)`. `hyper` maps each hyperparameter
            to its array, and also has `step` (1 at the first update) and `schedule` (a multiplier, by which
            `learning_rate` is already multiplied).
        scope: what an entry of the update depends on, and in which form the rule receives parameters.
            `entry`: only on the same entry of gradient, state and parameter. The rule receives all parameters
            as one flat buffer.
            `leaf`: on all entries of the same parameter. The rule receives the parameters of one shape and
            role as a stack `(..., leaves, *shape)`.
            `model`: on all parameters. The rule receives all parameters as one vector `(..., d)`.
            `named`: on all parameters. The rule receives a mapping of names to arrays `(..., *shape)`.
        refresh: `refresh(ops, grad, state, hyper) -> state`, an expensive computation that only some steps do
            before their update, such as eigendecompositions and matrix roots. The resulting state is passed
            to the update of the same step, and may contain fields that the stored state lacks.
        refresh_every: k, if `refresh` runs at steps 1, k + 1, 2 k + 1, ...; None, if only at the first step.
        observe: `observe(ops, grad, state, hyper) -> state`, which uses the values of amortized needs (needs
            computed at only some steps), or does a computation with another period than `refresh`. `observe`
            runs before `refresh`.
        observe_every: k, if `observe` runs at steps 1, k + 1, 2 k + 1, ...
        start: `start(ops, grad, state, hyper) -> state`, which replaces `refresh` before the first update.
        gradient_at: `gradient_at(ops, state, param, hyper) -> param`, the point at which the gradient is
            computed, such as Nesterov's look-ahead point; None for the parameters themselves.
        evaluated_at: `evaluated_at(ops, state, param) -> param`, the point at which metrics are computed,
            such as an average of the parameters over steps; None for the parameters themselves.
        backend: the only backend on which the rule runs; None for every backend.
        dtypes: the precisions of parameters in which the rule runs. If parameters are in bfloat16, the state
            may be in bfloat16, too.
        needs: further values that `hyper` contains, computed at the point of the gradient, such as a Hessian
            (curvebench/optimizers/needs.py).
        compares_losses: whether the rule compares losses of different steps, as a line search does. The loss
            must then be the same function at each step, without minibatches and noise.
        for_model: `for_model(shapes, roles) -> Rule`, which builds the rule for the layers of one model
            (curvebench/optimizers/layers.py). The scope of such a rule is `named`, and the rule runs in the
            original coordinates only. None for a rule that does not depend on the model's layers.
        first_moments: the state fields that transform like a gradient under a change of coordinates. A run
            needs their names to keep its state when it changes its basis. None if the state cannot be
            transformed.
        part: `part(role, shape) -> Part`, the rule for parameters of this role and shape, for an optimizer
            with different rules for different parameters. The function must return the same object for all
            parameters with the same rule. None for a rule that updates all parameters itself.
        special_case: `special_case(shapes, roles) -> str | None`, the name of another rule if this rule takes
            the steps of the other rule on a model with these parameters; otherwise None. An example is
            Shampoo, which is full Adagrad on vectors. None for a rule that has no such models, or only models
            whose parameters are all updated by a rule of another name (`part`).
        options: the rule's options, choices that are not numbers to tune, by name.
        chosen: the value of each option.
        build: `build(options) -> Rule` for completed options; None for a rule without options.

    Example:
        >>> import numpy as np
        >>> from curvebench import LEARNING_RATE, Rule, numpy_ops
        >>> sign_descent = Rule(
        ...     name="sign_descent",
        ...     source="an example",
        ...     hyperparameters={"learning_rate": LEARNING_RATE},
        ...     init=lambda ops, param: (),
        ...     update=lambda ops, grad, state, param, hyper: (
        ...         param - hyper["learning_rate"] * ops.sign(grad),
        ...         state,
        ...     ),
        ... )
        >>> grad, param = np.array([4.0, -0.5]), np.array([1.0, 1.0])
        >>> sign_descent.update(numpy_ops(), grad, (), param, {"learning_rate": 0.5})[0].tolist()
        [0.5, 1.5]
    """

    name: str
    source: str
    hyperparameters: Mapping[str, Hyperparameter]
    init: Callable[[Ops, Array], State]
    update: Callable[[Ops, Array, State, Array, Hyper], tuple[Array, State]]
    scope: Literal["entry", "leaf", "model", "named"] = "entry"
    refresh: Callable[[Ops, Array, State, Hyper], State] | None = None
    refresh_every: int | None = 1
    observe: Callable[[Ops, Array, State, Hyper], State] | None = None
    observe_every: int = 1
    start: Callable[[Ops, Array, State, Hyper], State] | None = None
    gradient_at: Callable[[Ops, State, Array, Hyper], Array] | None = None
    evaluated_at: Callable[[Ops, State, Any], Any] | None = None
    backend: str | None = None
    dtypes: tuple[str, ...] = ("float64", "float32")
    needs: tuple[Need, ...] = ()
    compares_losses: bool = False
    for_model: Callable[[Shapes, Roles], Rule] | None = None
    first_moments: tuple[str, ...] | None = None
    part: Callable[[ParameterRole, tuple[int, ...]], Part] | None = None
    special_case: Callable[[Shapes, Roles], str | None] | None = None
    options: Mapping[str, Option] = field(default_factory=dict)
    chosen: Options = field(default_factory=dict)
    build: Callable[[Options], Rule] | None = None

    @property
    def sees_model(self) -> bool:
        """Whether the rule receives all parameters of a model together, and not one by one."""
        return self.scope in ("model", "named")

    def acts_as(self, shapes: Shapes, roles: Roles) -> str | None:
        """Return the name of the known method that the rule is on a model, or None if the rule is itself.

        For example, Muon is AdamW on a model without weight matrices, which the fallback rule then updates.

        Args:
            shapes: shapes by parameter name.
            roles: roles by parameter name.
        """
        if self.special_case is not None:
            return self.special_case(shapes, roles)
        parts = (self.part(roles[name], shape) for name, shape in shapes.items()) if self.part else ()
        names = {part.rule.name for part in parts}
        return names.pop() if len(names) == 1 and self.name not in names else None

    def choose(self, options: Options) -> Rule:
        """Return the rule with the given options; options that are not given keep their defaults.

        Raises:
            OptionError: for an unknown option or a wrong value.
        """
        chosen = complete(self.name, self.options, options)
        return self if self.build is None else self.build(chosen)

    def check_dtype(self, dtype: str) -> None:
        """Check that the rule runs in the precision `dtype`.

        Raises:
            OptionError: if the rule does not; the message names the nearest precision in which the rule runs,
                and the options to change.
        """
        if dtype not in self.dtypes:
            allowing = "".join(
                f", or set its option {name}: {value}"
                for name, value in WIDEST.items()
                if self.chosen.get(name, value) != value
            )
            near, word = self.dtypes[0], self.dtypes[0]
            if dtype == "bfloat16" and "float32" in self.dtypes:
                near, word = "float32", "mixed"
            raise OptionError(
                f"{self.name}: runs in {' or '.join(self.dtypes)}, and this is {dtype}; give it "
                f"{near}, in a study by precision: {word}{allowing}"
            )

    def check_loss(self, is_fixed: bool) -> None:
        """Check that the rule runs on a workload, whose loss is the same function at each step if `is_fixed`.

        Raises:
            OptionError: if the rule compares losses of different steps, and they are different functions.
        """
        if self.compares_losses and not is_fixed:
            raise OptionError(
                f"{self.name}: compares the losses of different steps, which are different functions with "
                "minibatches or noise; give batch_size: null"
            )

    def complete(self, numbers: Mapping[str, float], tuned: Sequence[str] = ()) -> dict[str, float]:
        """Check the values in `numbers`, and return them with the defaults of missing hyperparameters.

        Args:
            numbers: values by full name.
            tuned: names that are left out of the result, because a study tunes them.

        Raises:
            HyperparameterError: for an unknown name, a missing value, or a value outside its interval.
        """
        legal = {name: spec for name, spec in self.hyperparameters.items() if name not in tuned}
        for name in numbers:
            if name in self.options and name not in self.hyperparameters:
                raise HyperparameterError(f"{self.name}: {name!r} is an option; give it with the options")
        values = completed(self.name, "hyperparameter", legal, numbers, HyperparameterError)
        for name, value in values.items():
            if value is None:
                raise HyperparameterError(
                    f"{self.name} needs {name!r}, which has no default "
                    f"(valid: {', '.join(self.hyperparameters)})"
                )
        return values


def changed_parts(
    part: Callable[[ParameterRole, tuple[int, ...]], Part],
    change: Callable[[Rule, Any], Rule],
    key: Callable[[ParameterRole, tuple[int, ...]], Any] = lambda role, shape: None,
) -> Callable[[ParameterRole, tuple[int, ...]], Part]:
    """Return the field `part` of a rule that changes the rule of each part.

    `Rule.part` must return the same object for all parameters with the same rule. Each new part is therefore
    stored by the identity of the original part, and by the key. The original part is stored with the new
    part, so that no other object gets the same identity.

    Args:
        part: the field `part` of the original rule.
        change: `change(rule, key) -> Rule`, the new rule of parameters.
        key: `key(role, shape)`, a hashable value that says what else the new rule depends on.
    """
    parts: dict[tuple[int, Any], tuple[Part, Part]] = {}

    def changed(role: ParameterRole, shape: tuple[int, ...]) -> Part:
        original, kind = part(role, shape), key(role, shape)
        new = replace(original, rule=change(original.rule, kind))
        return parts.setdefault((id(original), kind), (original, new))[1]

    return changed


Build = Callable[[Options], Rule]


def configured(name: str, options: Mapping[str, Option]) -> Callable[[Build], Build]:
    """Return a decorator for a function `make(options) -> Rule` that expects complete and legal options.

    The decorated function accepts any subset of the options and adds the defaults of missing options. It
    raises an OptionError for an unknown option or a wrong value.
    """

    def decorated(make: Build) -> Build:
        def build(choices: Options) -> Rule:
            chosen = complete(name, options, choices)
            return replace(make(chosen), options=options, chosen=chosen, build=build)

        return wraps(make)(build)

    return decorated
