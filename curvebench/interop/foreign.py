"""Optimizers of other libraries as rules: any `torch.optim.Optimizer`, any gradient transformation of Optax.

A study names such an optimizer by a *locator*, such as `torch:torch.optim.NAdam` or `optax:my.py:descent`.
The function `rule` returns the rule for a locator without importing the library, because planning must be
fast. An optimizer of PyTorch becomes a `TorchRule`, whose optimizer the engine of PyTorch calls itself. A
transformation of Optax becomes an ordinary rule of scope `named`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib import import_module
from importlib.metadata import packages_distributions
from importlib.util import find_spec
from inspect import signature
from pathlib import Path
from typing import Any

from curvebench.interop.files import FILE, as_errors_of_user, load_file
from curvebench.interop.needed_arguments import ADAMW, NEEDED
from curvebench.optimizers.arrays import Array, Ops
from curvebench.optimizers.hessian_diagonal import diagonal_need
from curvebench.optimizers.needs import LOSS
from curvebench.optimizers.options import Option, OptionError, Options, complete
from curvebench.optimizers.rule import (
    LEARNING_RATE,
    PRECISIONS,
    Hyperparameter,
    ParameterRole,
    Roles,
    Rule,
    Shapes,
)
from curvebench.spec.errors import InputError, check_known, nearest
from curvebench.spec.method import LIBRARIES
from curvebench.steps.layout import KINDS
from curvebench.steps.torch_rule import TorchRule, requires_closure

# Name of the argument for the learning rate, for each library.
RATE_NAMES = {"torch": "lr", "optax": "learning_rate"}
EXAMPLES = {"torch": "torch.optim.NAdam", "optax": "optax.contrib.muon"}  # examples of names, for messages
NUMBER = Hyperparameter("a number that the study tunes")
# Keys of the option `arguments` that curvebench does not pass to the constructor of an optimizer.
GROUPS, CLOSURE, CREATE_GRAPH, VALUE = "groups", "closure", "create_graph", "value"
REFUSES = "refuses its arguments"  # words in the message about a constructor that raises an error
# Need of an optimizer that differentiates the gradient. It is evaluated for the vectors that the optimizer
# draws, and counted then (`LaneOptimizers.evaluations`).
HESSIAN_PRODUCT = replace(diagonal_need("gaussian"), gradient_evaluations=lambda model: 0)
OTHERS = "others"  # name of the group of all parameters that belong to no other group


@dataclass(frozen=True)
class Location:
    """The module that defines an optimizer of another library or a model, and its name in the module.

    Args:
        library: library whose interface the optimizer or model has, such as `torch`.
        module: dotted name of the module, or path of a file.
        name: name of the class or function in the module.
        is_file: whether `module` is the path of a file.
    """

    library: str
    module: str
    name: str
    is_file: bool

    @property
    def package(self) -> str:
        """Top-level package of the module, or the library if the module is a file."""
        return self.library if self.is_file else self.module.split(".")[0]


def is_foreign(name: str) -> bool:
    """Return whether a name is a locator: `library:dotted.name` or `library:path.py:name`."""
    return name.partition(":")[0] in LIBRARIES and ":" in name


def location(locator: str) -> Location:
    """Parse a locator.

    Raises:
        InputError: when the text after `library:` is neither a dotted name nor a path of a file, a colon and
            a name.
    """
    library, _, rest = locator.partition(":")
    if match := FILE.fullmatch(rest):
        if match["item"] is None:
            raise InputError(f"{locator}: add the name of the optimizer in the file: {locator}:NAME")
        return Location(library, match["path"], match["item"], is_file=True)
    module, _, name = rest.rpartition(".")
    if not all(part.isidentifier() for part in rest.split(".")) or not module:
        raise InputError(f"{locator}: {rest!r} is no dotted name such as {EXAMPLES[library]}")
    return Location(library, module, name, is_file=False)


def label(locator: str) -> str:
    """Return the name by which tables show an optimizer of another library, such as `torch-nadam`."""
    at = location(locator)
    return f"{at.library}-{at.name}".lower().replace("_", "-")


def packages(locator: str) -> tuple[str, ...]:
    """Return the names of the installed distributions that contain an optimizer and its library.

    The versions of these distributions belong to the provenance of results.
    """
    at = location(locator)
    return distributions_of({at.library, at.package})


def named_in(value: Any) -> Iterator[str]:
    """Yield the locators of optimizers that the value of an option contains.

    For example, the argument `groups` may name the optimizer of a group of parameters by a locator.
    """
    if isinstance(value, str) and is_foreign(value):
        yield value
    elif isinstance(value, Mapping):
        yield from (locator for pair in value.items() for item in pair for locator in named_in(item))
    elif isinstance(value, list | tuple):
        yield from (locator for item in value for locator in named_in(item))


def distributions_of(packages: Iterable[str]) -> tuple[str, ...]:
    """Return the names of the installed distributions that provide the given top-level packages."""
    return tuple(sorted({name for package in packages for name in _distributions().get(package, ())}))


@cache
def _distributions() -> Mapping[str, list[str]]:
    """Return the distributions that provide each top-level package. The slow look-up is done only once."""
    return packages_distributions()


def rule(locator: str) -> Rule:
    """Return an optimizer of another library as a rule.

    The rule has two options: `arguments`, the arguments of the constructor, and `tuned`, the names of
    arguments that are hyperparameters of the rule, which a study tunes. The library is not imported. Errors
    that the library finds, such as wrong arguments, are raised by a trial (`curvebench.planning.trials`) and
    at the start of a job.

    Args:
        locator: name of the optimizer, such as `torch:torch.optim.NAdam` or `optax:my.py:descent`.

    Raises:
        InputError: when the package is not installed, or the file does not exist.
    """
    at = location(locator)
    if at.is_file and not Path(at.module).is_file():
        raise InputError(f"{locator}: there is no such file")
    if find_spec(at.package) is None:
        near = nearest(at.package, filter(str.isidentifier, _distributions()))
        remedy = f"; pip install {at.package}, or name a file by its path, {at.library}:PATH.py:{at.name}"
        raise InputError(f"{locator}: the package {at.package!r} is not installed{near or remedy}")
    defaults = dict(NEEDED.get(f"{at.module}.{at.name}", {}))
    options = {
        "arguments": Option(defaults, "arguments of its constructor, by name", _arguments(locator, defaults)),
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
    """Return the function that checks a value of the option `arguments`, and adds `defaults` to it."""

    def read(value: Any) -> Any:
        if not isinstance(value, Mapping):
            raise OptionError("is no mapping of arguments")
        for name, argument in value.items():
            _check(locator, name)
            try:
                json.dumps(argument)
            except TypeError as error:
                raise OptionError(f"has {name} = {argument!r}, no plain number, text or list") from error
        if location(locator).library == "torch" and GROUPS in value:
            _check_groups(value[GROUPS])
        return {**defaults, **value}

    return read


def _check_groups(groups: Any) -> None:
    """Check the argument `groups` of an optimizer of PyTorch.

    `groups` must be a mapping from kinds or names of parameters to the options of a parameter group.

    Raises:
        OptionError: when `groups` is another value, or a group has an invalid learning rate or optimizer.
    """
    if not isinstance(groups, Mapping) or not all(isinstance(group, Mapping) for group in groups.values()):
        raise OptionError(
            f"has groups = {groups!r}, no mapping of kinds of parameters ({', '.join((*KINDS, OTHERS))}) or "
            "their names to the options of a group"
        )
    for group in groups.values():
        if "lr" in group:
            raise OptionError("has a group with lr; a learning rate of its own is called learning_rate")
        optimizer = group.get("optimizer", ADAMW)
        if not isinstance(optimizer, str) or not optimizer.startswith("torch:"):
            raise OptionError(f"has a group whose optimizer is {optimizer!r}; name it as in {ADAMW}")


def _tuned(locator: str) -> Callable[[Any], Any]:
    """Return the function that checks the value of the option `tuned`, a list of names of arguments."""

    def read(value: Any) -> Any:
        for name in value:
            if name != "learning_rate":
                _check(locator, name)
        return list(value)

    return read


def _check(locator: str, name: str) -> None:
    """Check that an argument is not the learning rate, which is a hyperparameter of every rule.

    Raises:
        OptionError: when `name` is the learning rate.
    """
    if name in ("learning_rate", RATE_NAMES[locator.partition(":")[0]]):
        raise OptionError("gives the learning rate, which the study tunes")


# --- PyTorch --------------------------------------------------------------------------------------


def _torch(locator: str, arguments: Mapping[str, Any], **fields: Any) -> Rule:
    """Return the rule that calls an optimizer class of PyTorch.

    Args:
        locator: the optimizer.
        arguments: the option `arguments`, with defaults.
        fields: the other fields of the rule.
    """
    keys = (GROUPS, CLOSURE, CREATE_GRAPH)
    fixed = {name: value for name, value in arguments.items() if name not in keys}
    groups = arguments.get(GROUPS)
    in_groups = (group["optimizer"] for group in (groups or {}).values() if "optimizer" in group)

    def special_case(shapes: Shapes, roles: Roles) -> str | None:
        """Return the label of the optimizer that the groups give to all parameters, if it is another one."""
        keys = {_group_of(name, roles[name], groups or {}) for name in shapes}
        used = {(groups or {}).get(key, {}).get("optimizer") for key in keys}
        return label(optimizer) if len(used) == 1 and (optimizer := used.pop()) else None

    optimizers = [locator, *in_groups]

    def make(
        leaves: Mapping[str, Any], roles: Mapping[str, ParameterRole], values: Mapping[str, float]
    ) -> list[Any]:
        resolved = {name: _resolved(value) for name, value in fixed.items()}
        for name, value in values.items():
            _set(locator, resolved, "lr" if name == "learning_rate" else name, value)
        if groups is None:
            return [_constructed(locator, list(leaves.values()), resolved)]
        return _grouped(locator, resolved, groups, leaves, roles)

    return TorchRule(
        init=_nothing,
        update=_refused,
        evaluated_at=_at_their_point,
        make=make,
        closure=bool(arguments.get(CLOSURE)),
        needs=(HESSIAN_PRODUCT,) if arguments.get(CREATE_GRAPH) else (),
        needs_closure=lambda: any(map(_needs_closure, optimizers)),
        special_case=special_case,
        **fields,
    )


def _needs_closure(locator: str) -> bool:
    """Return whether the steps of an optimizer may need a closure.

    The signature of a class's method `step` shows whether a closure is required. If the locator names a
    function that makes an optimizer, the answer is unknown, and the result is True.
    """
    step = getattr(_load(locator), "step", None)
    return step is None or requires_closure(step)


def _set(locator: str, arguments: dict[str, Any], name: str, value: float) -> None:
    """Set an argument, or an item of a list argument, to a tuned number.

    The name `betas.1` means the second item of the argument `betas`.

    Args:
        locator: the optimizer.
        arguments: arguments of the optimizer's constructor, which are changed in place.
        name: name of the argument, or name and index of the item.
        value: the number.

    Raises:
        InputError: when the argument is no list, or has no item with the index.
    """
    argument, dot, index = name.partition(".")
    if not dot:
        arguments[name] = value
        return
    items = {**defaults_of(locator), **arguments}.get(argument)
    if not isinstance(items, list | tuple) or index not in map(str, range(len(items))):
        raise InputError(f"{locator}: {name} is tuned, and {argument} = {items!r} has no such item")
    arguments[argument] = tuple(value if index == str(number) else item for number, item in enumerate(items))


def defaults_of(locator: str) -> dict[str, Any]:
    """Return a mapping from each argument of an optimizer's constructor to its default."""
    parameters = signature(_load(locator)).parameters.items()
    return {name: parameter.default for name, parameter in parameters}


def _group_of(name: str, role: ParameterRole, groups: Mapping[str, Any]) -> str | None:
    """Return the key of a parameter's group: its name, its kind or `others`; None if there is no group."""
    return next((key for key in (name, role.kind, OTHERS) if key in groups), None)


def _grouped(
    locator: str,
    arguments: Mapping[str, Any],
    groups: Mapping[str, Mapping[str, Any]],
    leaves: Mapping[str, Any],
    roles: Mapping[str, ParameterRole],
) -> list[Any]:
    """Construct an optimizer with parameter groups, and another optimizer for each group that names one.

    Args:
        locator: the optimizer of all groups without the option `optimizer`.
        arguments: arguments of the constructor of the optimizer `locator`, with the learning rate `lr`.
        groups: options of each group; the keys are names of parameters, kinds, or `others`.
        leaves: a mapping from the names of parameters to the parameters.
        roles: a mapping from the names of parameters to their roles.

    Raises:
        InputError: when a key of `groups` is unknown, or a parameter belongs to no group.
    """
    members: dict[str, list[Any]] = {key: [] for key in groups}
    keys = [key for key in groups if key not in leaves]
    check_known("groups", "parameter or kind", keys, (*KINDS, OTHERS), where=f"{locator}: ")
    for name, leaf in leaves.items():
        group = _group_of(name, roles[name], groups)
        if group is None:
            raise InputError(
                f"{locator}: groups: none has {name!r}, a {roles[name].kind}; add {OTHERS}: {{}}"
            )
        members[group].append(leaf)
    param_groups: list[dict[str, Any]] = []
    separate: list[Any] = []
    for key, params in members.items():
        options = {name: _resolved(value) for name, value in groups[key].items() if name != "optimizer"}
        if "learning_rate" in options:
            options["lr"] = options.pop("learning_rate")
        if params and "optimizer" in groups[key]:
            optimizer = groups[key]["optimizer"]
            separate.append(_constructed(optimizer, params, {"lr": arguments["lr"], **options}))
        elif params:
            param_groups.append({"params": params, **options})
    return [_constructed(locator, param_groups, arguments), *separate] if param_groups else separate


def _constructed(locator: str, params: Sequence[Any], arguments: Mapping[str, Any]) -> Any:
    """Construct an optimizer of the given parameters or parameter groups.

    The parameters are passed as the first argument. The exception is a constructor whose first argument is in
    `arguments`, as for an optimizer that wraps another optimizer; the parameters are then passed by the name
    `params`.
    """
    constructor = _load(locator)
    if not callable(constructor) or next(iter(signature(constructor).parameters), "params") not in arguments:
        return _called(locator, params, **arguments)
    return _called(locator, params=params, **arguments)


def _resolved(value: Any) -> Any:
    """Replace a locator in the value of an argument by the object that it names.

    A locator becomes the class or function that it names. A mapping with a single locator as key and
    arguments as value becomes the result of calling the class or function with these arguments. Other values
    are returned unchanged.
    """
    if isinstance(value, str) and is_foreign(value):
        return _load(value)
    if isinstance(value, Mapping) and len(value) == 1 and is_foreign(next(iter(value))):
        ((name, arguments),) = value.items()
        return _called(name, **arguments)
    return value


def _nothing(ops: Ops, param: Any) -> list[Any]:
    """Return an empty list as the state; the engine of PyTorch appends the optimizers of all lanes to it."""
    return []


def _refused(ops: Ops, grad: Any, state: Any, param: Any, hyper: Any) -> Any:
    raise InputError("an optimizer of torch.optim runs only in the PyTorch engine of curvebench")


def _at_their_point(ops: Ops, state: Any, param: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the point at which metrics are evaluated: a mapping from parameter names to arrays.

    The point differs from the parameters for optimizers with an evaluation mode, such as schedule-free
    optimizers.
    """
    if not any(lane.has_modes for lane in state):
        return param
    lanes = [lane.evaluated() for lane in state]
    return {
        name: ops.reshape(ops.stack(list(views)), value.shape)
        for (name, value), views in zip(param.items(), zip(*lanes, strict=True), strict=True)
    }


# --- optax ----------------------------------------------------------------------------------------


def _optax(locator: str, arguments: Mapping[str, Any], **fields: Any) -> Rule:
    """Return the rule that calls a gradient transformation of Optax.

    The transformation is created again whenever a step is traced, because its hyperparameters are traced
    values. A transformation updates a single run. It is mapped over the seeds and settings of a bundle, which
    is a set of runs that are computed together.

    Args:
        locator: the function that creates the transformation.
        arguments: the option `arguments`, with defaults.
        fields: the other fields of the rule.
    """
    tuned = fields["hyperparameters"]
    fixed = {name: value for name, value in arguments.items() if name != VALUE}
    needs = (LOSS,) if arguments.get(VALUE) else ()

    def transformation(values: Mapping[str, Any]) -> Any:
        resolved = {name: _resolved(value) for name, value in fixed.items()}
        result = _called(locator, **resolved, **values)
        if not (hasattr(result, "init") and hasattr(result, "update")):
            raise InputError(f"{locator}: gives a {type(result).__name__}, no optax.GradientTransformation")
        return result

    def init(ops: Ops, param: Mapping[str, Array]) -> Any:
        import jax

        # The hyperparameters may have any values here, because the initial state does not depend on them.
        init_of_run = transformation(dict.fromkeys(tuned, 0.5)).init

        init_of_lanes = jax.vmap(jax.vmap(init_of_run))
        # Compile the function as a whole; otherwise JAX would compile each of its operations for each shape.
        # Only trace the function with NumPy, since only the shapes of the state are then used.
        traced = partial(jax.eval_shape, init_of_lanes) if ops.backend == "numpy" else jax.jit(init_of_lanes)
        try:
            return traced({name: ops.asarray(value) for name, value in param.items()})
        except Exception as error:  # another library may raise any exception
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

        def update_of_run(grad: Any, state: Any, param: Any, values: Any, extra: Any) -> Any:
            try:
                updates, new = transformation(values).update(grad, state, param, **extra)
                new_param = optax.apply_updates(param, updates)
                for name, value in param.items():
                    if new_param[name].shape != value.shape:
                        raise InputError(
                            f"{locator}: changes the shape of a parameter from {value.shape} to "
                            f"{new_param[name].shape}"
                        )
            except InputError:
                raise
            except Exception as error:  # another library may raise any exception
                raise InputError(
                    f"{locator}: takes no step by one gradient ({type(error).__name__}: {error}); if it "
                    "needs the value of the loss, give value: true; tuned arguments must be numbers"
                ) from error
            return new_param, new

        lanes = next(iter(param.values())).shape[:2]
        values = {name: ops.broadcast_to(hyper[name][..., 0], lanes) for name in tuned}
        extra = {VALUE: hyper[LOSS.name]} if needs else {}
        return jax.vmap(jax.vmap(update_of_run))(grad, state, param, values, extra)

    return Rule(init=init, update=update, evaluated_at=_at_the_average, needs=needs, **fields)


def _at_the_average(ops: Ops, state: Any, param: Mapping[str, Array]) -> Mapping[str, Array]:
    """Return the point at which metrics are evaluated.

    For schedule-free transformations, the point is the average of iterates that the state contains. For all
    other transformations, the point is `param`.
    """
    import jax
    from optax.contrib import ScheduleFreeState, schedule_free_eval_params

    def is_average(node: Any) -> bool:
        return isinstance(node, ScheduleFreeState)

    states = [node for node in jax.tree.leaves(state, is_leaf=is_average) if is_average(node)]
    if not states:
        return param
    return jax.vmap(jax.vmap(schedule_free_eval_params))(states[0], dict(param))


MAKERS: Mapping[str, Callable[..., Rule]] = {"torch": _torch, "optax": _optax}


def _load(locator: str) -> Any:
    """Import the class or function that a locator, such as `torch:torch.optim.NAdam`, names.

    Raises:
        InputError: when the module cannot be imported, or lacks the name.
    """
    at = location(locator)
    path = Path(at.module).resolve()
    with as_errors_of_user(f"{locator}: {at.module} cannot be imported", path):
        module = load_file(path) if at.is_file else import_module(at.module)
    if not hasattr(module, at.name):
        raise InputError(f"{locator}: {at.module} has no {at.name!r}{nearest(at.name, dir(module))}")
    return getattr(module, at.name)


def _called(locator: str, *params: Any, **arguments: Any) -> Any:
    """Call the class or function that a locator, such as `torch:torch.optim.NAdam`, names.

    Raises:
        InputError: when the call raises an error. The message shows the arguments that the study gives.
    """
    function = _load(locator)
    try:
        return function(*params, **arguments)
    except Exception as error:  # another library may raise any exception
        added = ("params", "lr", "learning_rate")
        from_study = {name: value for name, value in arguments.items() if name not in added}
        shown = f" {from_study}" if from_study else ""
        rate = "lr" if "lr" in arguments else "learning_rate"
        hint = f"; it is called with {rate}" if isinstance(error, TypeError) else ""
        raise InputError(f"{locator}: {REFUSES}{shown} ({type(error).__name__}: {error}){hint}") from error
