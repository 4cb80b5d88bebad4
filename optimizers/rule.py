"""What an update rule is: its hyperparameters, its state and its pure functions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import Any, Literal, Protocol

from curvebench.optimizers.needs import Need
from curvebench.optimizers.options import Option, OptionError, Options, complete
from curvebench.spec.values import Read, completed, flag, interval, number

PRECISIONS = ("float64", "float32", "bfloat16")  # of parameters
# Options of which any other value may forbid a precision of parameters.
WIDEST = {"precision": "any", "state_precision": "parameters"}

Array = Any  # a numpy.ndarray, torch.Tensor or jax.Array; rules never ask which
Ops = Any  # the table of array functions that a backend hands over (curvebench/backends)
Hyper = Mapping[str, Any]  # of each hyperparameter its array, and `step`, `schedule` and needs
State = Any  # a NamedTuple of arrays (or of nested NamedTuples), never a bare array


def map_arrays(function: Callable[..., Any], tree: Any, *others: Any) -> Any:
    """A function of the arrays of nested mappings and tuples, and of their like in others."""
    if isinstance(tree, Mapping):
        return {
            name: map_arrays(function, value, *(other[name] for other in others))
            for name, value in tree.items()
        }
    if isinstance(tree, tuple):
        parts = [map_arrays(function, *each) for each in zip(tree, *others, strict=True)]
        return type(tree)(*parts) if hasattr(tree, "_fields") else tuple(parts)
    return function(tree, *others)


class HyperparameterError(ValueError):
    """A hyperparameter that is unknown, missing or out of range; the message lists what is valid."""


@dataclass(frozen=True)
class Hyperparameter:
    """One number that a rule takes: its meaning, its default and its legal interval.

    Args:
        description: one line for `curvebench list`.
        default: the value when none is given; None makes it obligatory.
        low, high: the legal interval.
        low_open, high_open: whether the bound itself is excluded.
    """

    description: str
    default: float | None = None
    low: float = -math.inf
    high: float = math.inf
    low_open: bool = False
    high_open: bool = False

    @property
    def interval(self) -> str:
        """The legal interval as text, such as `(0, inf)` or `[0, 1)`."""
        return interval(self.low, self.high, self.low_open, self.high_open)

    @property
    def read(self) -> Read:
        """A given value as a number inside the interval."""
        checked = number(self.low, self.high, self.low_open, self.high_open)
        return lambda value: float(checked(value))


def safe_divide(ops: Ops, numerator: Array, denominator: Array) -> Array:
    """Entrywise quotient that is 0 where the denominator is 0.

    That is the pseudo-inverse of a diagonal preconditioner: an entry that has seen no gradient stays.
    """
    is_zero = denominator == 0
    quotient = numerator / ops.where(is_zero, ops.ones_like(denominator), denominator)
    return ops.where(is_zero, ops.zeros_like(quotient), quotient)


def smoothed_root(ops: Ops, square: Array, epsilon: Array, inside: bool) -> Array:
    """sqrt(v) + epsilon, or with epsilon inside the root sqrt(v + epsilon) (002 Sec. 4.1.1, Fig. 1)."""
    return ops.sqrt(square + epsilon) if inside else ops.sqrt(square) + epsilon


EPSILON_INSIDE_ROOT = Option(False, "whether epsilon is added inside the root instead of to it", flag)
LEARNING_RATE = Hyperparameter("step size, multiplied by the schedule", low=0.0, low_open=True)


def share(description: str, default: float, low_open: bool = False) -> Hyperparameter:
    """A share that is kept, below 1."""
    return Hyperparameter(description, default, 0.0, 1.0, low_open, high_open=True)


def positive(description: str, default: float) -> Hyperparameter:
    """A number above 0."""
    return Hyperparameter(description, default, 0.0, low_open=True)


def starting_at_zero(state: Any) -> Callable[[Ops, Array], State]:
    """The `init` of a state whose fields are all of the parameter's shape and start at 0."""
    return lambda ops, param: state(*(ops.zeros_like(param) for _ in state._fields))


class ParameterRole(Protocol):
    """What a parameter is inside a model (curvebench.workloads.workload.Role)."""

    @property
    def kind(self) -> str:
        """weight, bias, convolution, norm, embedding, head or vector."""

    @property
    def layer(self) -> int:
        """The layer that it belongs to; 0 is nearest to the input."""


@dataclass(frozen=True)
class Part:
    """The rule that updates one kind of leaf.

    Args:
        rule: the rule.
        names: its hyperparameters that the whole optimizer has under another name, by its own name.
    """

    rule: Rule
    names: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Rule:
    """An update rule: pure functions on stacked leaves.

    Arrays have shape `(..., n)` or `(..., m, n)`; every leading axis is batch (lanes and same-shaped
    parameters), and each hyperparameter arrives as an array that broadcasts against the parameter.

    Args:
        name: the name in studies and tables.
        source: file and equation of the seed document.
        hyperparameters: the numbers that the rule takes, by full name; `learning_rate` among them.
        init: `init(ops, param) -> state`.
        update: `update(ops, grad, state, param, hyper) -> (param, state)`. `hyper` maps each
            hyperparameter's name to its array, and also holds `step` (1 at the first update) and
            `schedule` (the multiplier already contained in `learning_rate`).
        scope: what an entry of the update depends on: `entry`, on its own inputs alone, so that all
            parameters can be laid out in one flat buffer; `leaf`, on its whole parameter, so that the rule
            sees parameters of one shape and role stacked, `(..., leaves, *shape)`; `model`, on all
            parameters, which the rule sees as one vector, `(..., d)`; `named`, on all of them too, which the
            rule sees as arrays `(..., *shape)` by name.
        refresh: `refresh(ops, grad, state, hyper) -> state`, the amortized work (eigendecompositions, roots),
            done with the step's gradient before the update of some steps; the host decides which.
            What it returns goes to that step's update alone, which may be told more than a state holds.
        refresh_every: k for the steps 1, k + 1, 2 k + 1, ...; None for the first step alone.
        observe: `observe(ops, grad, state, hyper) -> state`, which takes up amortized needs, or does
            what has a cadence beside that of `refresh`, before any other work of steps 1, k + 1, 2 k + 1, ...
        observe_every: that k.
        start: `start(ops, grad, state, hyper) -> state`, the work before the first update where it is not
            that of `refresh`.
        gradient_at: `gradient_at(ops, state, param, hyper) -> param`, where the gradient is taken; None for
            the parameters themselves.
        evaluated_at: `evaluated_at(ops, state, param) -> param`, where metrics are taken; None for the
            parameters themselves.
        backend: the only backend that it runs on; None for all.
        dtypes: the precisions of parameters that it runs in; bfloat16 says that its state may be held so too.
        needs: what `hyper` holds besides, evaluated at that point (optimizers/needs.py).
        for_model: `for_model(shapes, roles) -> Rule`, the rule for the parameters of one model, each by name,
            where its functions depend on the model's layers (optimizers/layers.py); of scope `named`, in the
            original coordinates alone; None where they do not.
        first_moments: the fields of its state that change with the coordinates like a gradient, so that it
            can go on in others where all else stays; None where it cannot.
        part: `part(role, shape) -> Part` for one parameter's role and shape, where not all leaves are updated
            alike, the same object where they are; None where this rule updates all.
        options: the choices that a study makes besides numbers, by name.
        chosen: what was chosen for each.
        build: `build(options) -> Rule` for completed options; None where there are none.
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
    for_model: Callable[[Mapping[str, tuple[int, ...]], Mapping[str, ParameterRole]], Rule] | None = None
    first_moments: tuple[str, ...] | None = None
    part: Callable[[ParameterRole, tuple[int, ...]], Part] | None = None
    options: Mapping[str, Option] = field(default_factory=dict)
    chosen: Options = field(default_factory=dict)
    build: Callable[[Options], Rule] | None = None

    @property
    def sees_model(self) -> bool:
        """Whether it sees all parameters of a model together."""
        return self.scope in ("model", "named")

    def choose(self, given: Options) -> Rule:
        """The rule with the given options, the others at their defaults.

        Raises:
            OptionError: for an unknown option or a wrong value.
        """
        chosen = complete(self.name, self.options, given)
        return self if self.build is None else self.build(chosen)

    def check_dtype(self, dtype: str) -> None:
        """Check that it runs in a precision.

        Raises:
            OptionError: where it does not.
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

    def complete(self, given: Mapping[str, float], tuned: Sequence[str] = ()) -> dict[str, float]:
        """The given hyperparameters checked and completed by the defaults, without those that are tuned.

        Raises:
            HyperparameterError: for an unknown name, a missing value or one outside its interval.
        """
        known = {name: one for name, one in self.hyperparameters.items() if name not in tuned}
        for name in given:
            if name in self.options and name not in self.hyperparameters:
                raise HyperparameterError(f"{self.name}: {name!r} is an option; give it with the options")
        found = completed(self.name, "hyperparameter", known, given, HyperparameterError)
        for name, value in found.items():
            if value is None:
                raise HyperparameterError(
                    f"{self.name} needs {name!r}, which has no default "
                    f"(valid: {', '.join(self.hyperparameters)})"
                )
        return found


Build = Callable[[Options], Rule]


def configured(name: str, options: Mapping[str, Option]) -> Callable[[Build], Build]:
    """Makes `build(options)` of a function that gives the rule of completed options.

    What is left out has its default. An unknown option or a wrong value is an OptionError.
    """

    def decorated(make: Build) -> Build:
        def build(given: Options) -> Rule:
            chosen = complete(name, options, given)
            return replace(make(chosen), options=options, chosen=chosen, build=build)

        return wraps(make)(build)

    return decorated
