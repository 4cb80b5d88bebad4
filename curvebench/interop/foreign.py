"""Optimizers of other libraries as contestants: any torch.optim.Optimizer, any optax transformation."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from importlib.metadata import packages_distributions
from importlib.util import find_spec
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np

from curvebench.interop.files import FILE, error_at, load_file
from curvebench.interop.needed_arguments import ADAMW, NEEDED
from curvebench.optimizers.needs import Need
from curvebench.optimizers.options import Option, OptionError, Options, complete
from curvebench.optimizers.rule import (
    LEARNING_RATE,
    PRECISIONS,
    Array,
    Hyperparameter,
    Ops,
    ParameterRole,
    Rule,
)
from curvebench.spec.errors import InputError, nearest, unknown
from curvebench.spec.method import LIBRARIES
from curvebench.steps.layout import KINDS
from curvebench.steps.torch_rule import TorchRule, requires_closure

RATE_NAMES = {"torch": "lr", "optax": "learning_rate"}
EXAMPLES = {"torch": "torch.optim.NAdam", "optax": "optax.contrib.muon"}
NUMBER = Hyperparameter("a number that the study tunes")
GROUPS, CLOSURE, VALUE = "groups", "closure", "value"  # arguments of the engine, and of no constructor
REFUSES = "refuses its arguments"  # what a message says of a constructor that raises
OTHERS = "others"  # the group of all parameters that no other group has
LOSS = Need(
    name="loss",
    description="the value",
    evaluate=lambda at: at.loss(at.point),
    gradient_evaluations=lambda model: 0,  # it is known with the gradient
    entries=lambda model: 1,
    example=lambda model: np.zeros(()),
    change_basis=lambda ops, to_coordinates, values: values,
)


@dataclass(frozen=True)
class Place:
    """Where a contestant of another library is found.

    Args:
        library: whose optimizers it is like, `torch` or `optax`.
        module: a dotted name, or the path of a file.
        name: in the module.
        is_file: whether the module is a file.
    """

    library: str
    module: str
    name: str
    is_file: bool

    @property
    def package(self) -> str:
        """The top package of the dotted name, or the library of a file's class."""
        return self.library if self.is_file else self.module.split(".")[0]


def is_foreign(name: str) -> bool:
    """Whether a name says `library:dotted.name` or `library:path.py:name`."""
    return name.partition(":")[0] in LIBRARIES and ":" in name


def place(locator: str) -> Place:
    """What a locator says.

    Raises:
        InputError: for what is neither a dotted name nor a file and a name in it.
    """
    library, _, rest = locator.partition(":")
    if match := FILE.fullmatch(rest):
        if match["item"] is None:
            raise InputError(f"{locator}: name what is in the file after a colon: {locator}:NAME")
        return Place(library, match["path"], match["item"], is_file=True)
    module, _, name = rest.rpartition(".")
    if not all(part.isidentifier() for part in rest.split(".")) or not module:
        raise InputError(f"{locator}: {rest!r} is no dotted name such as {EXAMPLES[library]}")
    return Place(library, module, name, is_file=False)


def label(locator: str) -> str:
    """What tables call a contestant of another library: `torch-nadam`."""
    at = place(locator)
    return f"{at.library}-{at.name}".lower().replace("_", "-")


def packages(locator: str) -> tuple[str, ...]:
    """The distributions that decide what it computes."""
    at = place(locator)
    return tuple(sorted({name for top in (at.library, at.package) for name in _distributions().get(top, ())}))


def named_in(value: Any) -> Iterator[str]:
    """The locators that an option's value names, such as the optimizer of a group."""
    if isinstance(value, str) and is_foreign(value):
        yield value
    elif isinstance(value, Mapping):
        yield from (name for item in value.items() for one in item for name in named_in(one))
    elif isinstance(value, list | tuple):
        yield from (name for one in value for name in named_in(one))


@cache
def _distributions() -> Mapping[str, list[str]]:
    return packages_distributions()


def rule(locator: str) -> Rule:
    """The contestant of a name such as `torch:torch.optim.NAdam` or `optax:own.py:descent`.

    Its options are `arguments`, what its constructor is called with, and `tuned`, the names of arguments that
    arrive as hyperparameters. Nothing is imported: what the library refuses is said when it is tried
    (curvebench.interop.trial) and when a job starts.

    Raises:
        InputError: where the package is not installed, or the file is not there.
    """
    at = place(locator)
    if at.is_file and not Path(at.module).is_file():
        raise InputError(f"{locator}: there is no such file")
    if find_spec(at.package) is None:
        near = nearest(at.package, filter(str.isidentifier, _distributions()))
        get = f"; pip install {at.package}, or name a file by its path, {at.library}:PATH.py:{at.name}"
        raise InputError(f"{locator}: the package {at.package!r} is not installed{near or get}")
    defaults = dict(NEEDED.get(f"{at.module}.{at.name}", {}))
    options = {
        "arguments": Option(
            defaults, "what its constructor is given, by name", _arguments(locator, defaults)
        ),
        "tuned": Option(["learning_rate"], "arguments that the study tunes", _tuned(locator)),
    }

    def build(given: Options) -> Rule:
        chosen = complete(locator, options, given)
        numbers = dict.fromkeys(chosen["tuned"], NUMBER) | {"learning_rate": LEARNING_RATE}
        return MAKERS[at.library](
            locator,
            chosen["arguments"],
            name=label(locator),
            source=locator.partition(":")[2],
            hyperparameters=numbers,
            scope="named",
            backend=LIBRARIES[at.library],
            dtypes=PRECISIONS,
            options=options,
            chosen=chosen,
            build=build,
        )

    return build({})


def _arguments(locator: str, defaults: Mapping[str, Any]) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if not isinstance(value, Mapping):
            raise OptionError("is no mapping of arguments")
        for name, given in value.items():
            _check(locator, name)
            try:
                json.dumps(given)
            except TypeError as error:
                raise OptionError(f"has {name} = {given!r}, no plain number, text or list") from error
        if place(locator).library == "torch" and GROUPS in value:
            _check_groups(value[GROUPS])
        return {**defaults, **value}

    return read


def _check_groups(groups: Any) -> None:
    if not isinstance(groups, Mapping) or not all(isinstance(one, Mapping) for one in groups.values()):
        raise OptionError(
            f"has groups = {groups!r}, no mapping of kinds of parameters ({', '.join((*KINDS, OTHERS))}) or "
            "their names to what each group has"
        )
    for group in groups.values():
        if "lr" in group:
            raise OptionError("has a group with lr; a learning rate of its own is called learning_rate")
        other = group.get("optimizer", ADAMW)
        if not isinstance(other, str) or not other.startswith("torch:"):
            raise OptionError(f"has a group whose optimizer is {other!r}; name it as in {ADAMW}")


def _tuned(locator: str) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        for name in value:
            if name != "learning_rate":
                _check(locator, name)
        return list(value)

    return read


def _check(locator: str, name: str) -> None:
    if name in ("learning_rate", RATE_NAMES[locator.partition(":")[0]]):
        raise OptionError("gives the learning rate, which the study tunes")


# --- PyTorch --------------------------------------------------------------------------------------


def _torch(locator: str, arguments: Mapping[str, Any], **about: Any) -> Rule:
    own = {name: value for name, value in arguments.items() if name not in (GROUPS, CLOSURE)}
    groups = arguments.get(GROUPS)
    named = [locator, *(one["optimizer"] for one in (groups or {}).values() if "optimizer" in one)]

    def make(
        leaves: Mapping[str, Any], roles: Mapping[str, ParameterRole], values: Mapping[str, float]
    ) -> list[Any]:
        given = {name: _resolved(value) for name, value in own.items()}
        for name, value in values.items():
            _set(locator, given, "lr" if name == "learning_rate" else name, value)
        if groups is None:
            return [_constructed(locator, list(leaves.values()), given)]
        return _grouped(locator, given, groups, leaves, roles)

    return TorchRule(
        init=_nothing,
        update=_refused,
        evaluated_at=_at_their_point,
        make=make,
        closure=bool(arguments.get(CLOSURE)),
        needs_closure=lambda: any(map(_needs_closure, named)),
        **about,
    )


def _needs_closure(locator: str) -> bool:
    """Return whether steps may need a closure; a function that makes an optimizer does not say."""
    step = getattr(_load(locator), "step", None)
    return step is None or requires_closure(step)


def _set(locator: str, arguments: dict[str, Any], name: str, value: float) -> None:
    """Set an argument to a number that is tuned, or one of its items: `betas.1` is the second of `betas`."""
    whole, dot, place_in_it = name.partition(".")
    if not dot:
        arguments[name] = value
        return
    made = _load(locator)
    known = {one: parameter.default for one, parameter in signature(made).parameters.items()}
    items = {**known, **arguments}.get(whole)
    if not isinstance(items, list | tuple) or place_in_it not in map(str, range(len(items))):
        raise InputError(f"{locator}: {name} is tuned, and {whole} = {items!r} has no such item")
    arguments[whole] = tuple(value if place_in_it == str(at) else item for at, item in enumerate(items))


def _grouped(
    locator: str,
    arguments: Mapping[str, Any],
    groups: Mapping[str, Mapping[str, Any]],
    leaves: Mapping[str, Any],
    roles: Mapping[str, ParameterRole],
) -> list[Any]:
    """An optimizer with a parameter group of each group's parameters, and those that groups name instead.

    A group is looked for by a parameter's name, then by its kind, then among the others.
    """
    members: dict[str, list[Any]] = {key: [] for key in groups}
    for key in groups:
        if key not in (*leaves, *KINDS, OTHERS):
            raise InputError(f"{locator}: {unknown('groups', 'parameter or kind', key, (*KINDS, OTHERS))}")
    for name, leaf in leaves.items():
        found = next((key for key in (name, roles[name].kind, OTHERS) if key in groups), None)
        if found is None:
            raise InputError(
                f"{locator}: groups: none has {name!r}, a {roles[name].kind}; add {OTHERS}: {{}}"
            )
        members[found].append(leaf)
    own: list[dict[str, Any]] = []
    others: list[Any] = []
    for key, params in members.items():
        options = {name: _resolved(value) for name, value in groups[key].items() if name != "optimizer"}
        if "learning_rate" in options:
            options["lr"] = options.pop("learning_rate")
        if params and "optimizer" in groups[key]:
            others.append(_constructed(groups[key]["optimizer"], params, {"lr": arguments["lr"], **options}))
        elif params:
            own.append({"params": params, **options})
    return [_constructed(locator, own, arguments), *others] if own else others


def _constructed(locator: str, params: Sequence[Any], arguments: Mapping[str, Any]) -> Any:
    """An optimizer of parameters, by name where what comes first is another optimizer that it goes around."""
    made = _load(locator)
    if not callable(made) or next(iter(signature(made).parameters), "params") not in arguments:
        return _called(locator, params, **arguments)
    return _called(locator, params=params, **arguments)


def _resolved(value: Any) -> Any:
    """What an argument names: a class or function of another library, or one with its own arguments."""
    if isinstance(value, str) and is_foreign(value):
        return _load(value)
    if isinstance(value, Mapping) and len(value) == 1 and is_foreign(next(iter(value))):
        ((name, arguments),) = value.items()
        return _called(name, **arguments)
    return value


def _nothing(ops: Ops, param: Any) -> list[Any]:
    return []  # the engine puts what steps there


def _refused(ops: Ops, grad: Any, state: Any, param: Any, hyper: Any) -> Any:
    raise InputError("an optimizer of torch.optim runs in the harness' PyTorch engine alone")


def _at_their_point(ops: Ops, state: Any, param: Mapping[str, Any]) -> Mapping[str, Any]:
    """Where optimizers with a mode of evaluation want to be judged."""
    if not any(contestant.has_modes for contestant in state):
        return param
    lanes = [contestant.evaluated() for contestant in state]
    return {
        name: ops.reshape(ops.stack(list(views)), value.shape)
        for (name, value), views in zip(param.items(), zip(*lanes, strict=True), strict=True)
    }


# --- optax ----------------------------------------------------------------------------------------


def _optax(locator: str, arguments: Mapping[str, Any], **about: Any) -> Rule:
    numbers = about["hyperparameters"]
    own = {name: value for name, value in arguments.items() if name != VALUE}
    needs = (LOSS,) if arguments.get(VALUE) else ()

    def transformation(values: Mapping[str, Any]) -> Any:
        given = {name: _resolved(value) for name, value in own.items()}
        made = _called(locator, **given, **values)
        if not (hasattr(made, "init") and hasattr(made, "update")):
            raise InputError(f"{locator}: gives a {type(made).__name__}, no optax.GradientTransformation")
        return made

    def init(ops: Ops, param: Mapping[str, Array]) -> Any:
        import jax

        # A state has no learning rate: any number will do.
        one = transformation(dict.fromkeys(numbers, 0.5)).init

        def begin(param: Mapping[str, Array]) -> Any:
            # A copy, since a state may begin with the parameters themselves.
            return jax.tree.map(jax.numpy.copy, jax.vmap(jax.vmap(one))(param))

        # Compiled as a whole: JAX would compile each of its operations, once for each shape. On NumPy nothing
        # but the number of entries is asked for, which tracing gives.
        made = partial(jax.eval_shape, begin) if ops.backend == "numpy" else jax.jit(begin)
        try:
            return made({name: ops.asarray(value) for name, value in param.items()})
        except Exception as error:  # whatever another library raises
            raise InputError(f"{locator}: cannot begin ({type(error).__name__}: {error})") from error

    def update(
        ops: Ops,
        grad: Mapping[str, Array],
        state: Any,
        param: Mapping[str, Array],
        hyper: Mapping[str, Array],
    ) -> tuple[Any, Any]:
        import jax
        import optax

        def one(grad: Any, state: Any, param: Any, values: Any, known: Any) -> Any:
            try:
                updates, new = transformation(values).update(grad, state, param, **known)
                moved = optax.apply_updates(param, updates)
                for name, value in param.items():
                    if moved[name].shape != value.shape:
                        raise InputError(
                            f"{locator}: changes the shape of a parameter from {value.shape} to "
                            f"{moved[name].shape}"
                        )
            except InputError:
                raise
            except Exception as error:  # whatever another library raises
                raise InputError(
                    f"{locator}: takes no step by one gradient ({type(error).__name__}: {error}); "
                    "what needs the value of the loss wants value: true, and what is tuned must be a number"
                ) from error
            return moved, new

        lanes = next(iter(param.values())).shape[:2]
        values = {name: ops.broadcast_to(hyper[name][..., 0], lanes) for name in numbers}
        known = {VALUE: hyper[LOSS.name]} if needs else {}
        return jax.vmap(jax.vmap(one))(grad, state, param, values, known)

    return Rule(init=init, update=update, evaluated_at=_at_the_average, needs=needs, **about)


def _at_the_average(ops: Ops, state: Any, param: Mapping[str, Array]) -> Mapping[str, Array]:
    """Where schedule-free transformations want to be judged; the parameters themselves for others."""
    import jax
    from optax.contrib import ScheduleFreeState, schedule_free_eval_params

    def is_average(node: Any) -> bool:
        return isinstance(node, ScheduleFreeState)

    found = [node for node in jax.tree.leaves(state, is_leaf=is_average) if is_average(node)]
    if not found:
        return param
    averaged: Mapping[str, Array] = jax.vmap(jax.vmap(schedule_free_eval_params))(found[0], dict(param))
    return averaged


MAKERS: Mapping[str, Callable[..., Rule]] = {"torch": _torch, "optax": _optax}


def _load(locator: str) -> Any:
    at = place(locator)
    path = Path(at.module).resolve()
    try:
        module = load_file(path) if at.is_file else import_module(at.module)
    except InputError:
        raise
    except Exception as error:  # whatever a module raises
        raise InputError(f"{locator}: {at.module} cannot be imported ({error_at(error, path)})") from error
    if not hasattr(module, at.name):
        raise InputError(f"{locator}: {at.module} has no {at.name!r}{nearest(at.name, dir(module))}")
    return getattr(module, at.name)


def _called(locator: str, *params: Any, **arguments: Any) -> Any:
    function = _load(locator)
    try:
        return function(*params, **arguments)
    except Exception as error:  # whatever another library raises
        ours = ("params", "lr", "learning_rate")
        given = {name: value for name, value in arguments.items() if name not in ours}
        shown = f" {given}" if given else ""
        rate = "lr" if "lr" in arguments else "learning_rate"
        hint = f"; it is called with {rate}" if isinstance(error, TypeError) else ""
        raise InputError(f"{locator}: {REFUSES}{shown} ({type(error).__name__}: {error}){hint}") from error
