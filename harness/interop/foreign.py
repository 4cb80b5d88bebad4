"""Optimizers of other libraries as contestants: any torch.optim.Optimizer, any optax transformation."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import packages_distributions
from importlib.util import find_spec
from typing import Any

from documents.errors import InputError
from documents.method import LIBRARIES
from optimizers.options import Option, OptionError, Options, complete
from optimizers.rule import LEARNING_RATE, Array, Hyperparameter, Ops, Rule

RATE_NAMES = {"torch": "lr", "optax": "learning_rate"}
EXAMPLES = {"torch": "torch.optim.NAdam", "optax": "optax.contrib.muon"}
NUMBER = Hyperparameter("a number that the study tunes")


def is_foreign(name: str) -> bool:
    """Whether a name says `library:dotted.name`."""
    return name.partition(":")[0] in LIBRARIES and ":" in name


def label(locator: str) -> str:
    """What tables call a contestant of another library: `torch-nadam`."""
    library, _, path = locator.partition(":")
    return f"{library}-{path.rpartition('.')[2]}".lower().replace("_", "-")


def package(locator: str) -> str:
    """The top package of the dotted name."""
    return locator.partition(":")[2].split(".")[0]


def packages(locator: str) -> tuple[str, ...]:
    """The distributions that decide what it computes.

    Raises:
        InputError: when its package is not installed.
    """
    tops = {locator.partition(":")[0], package(locator)}
    return tuple(sorted({name for top in tops for name in _distributions().get(top, ())}))


@cache
def _distributions() -> Mapping[str, list[str]]:
    return packages_distributions()


@dataclass(frozen=True)
class TorchRule(Rule):
    """A torch.optim.Optimizer, which steps leaves of a single run in place, its state inside it.

    Args:
        make: `make(tensors, values) -> torch.optim.Optimizer` for leaf tensors and numbers by our names.
    """

    make: Callable[[Sequence[Any], Mapping[str, float]], Any] = lambda tensors, values: None


def rule(locator: str) -> Rule:
    """The contestant of a name such as `torch:torch.optim.NAdam` or `optax:optax.contrib.muon`.

    Its options are `arguments`, what its constructor is called with, and `tuned`, the names of arguments that
    arrive as hyperparameters. Nothing is imported: what the library refuses is said when a job starts.

    Raises:
        InputError: where the package is not installed.
    """
    library, _, path = locator.partition(":")
    if not all(part.isidentifier() for part in path.split(".")) or "." not in path:
        raise InputError(f"{locator}: {path!r} is no dotted name such as {EXAMPLES[library]}")
    if find_spec(package(locator)) is None:
        raise InputError(f"{locator}: the package {package(locator)!r} is not installed")
    options = {
        "arguments": Option({}, "what its constructor is given, by name", _arguments(locator)),
        "tuned": Option(["learning_rate"], "arguments that the study tunes", _tuned(locator)),
    }

    def build(given: Options) -> Rule:
        chosen = complete(locator, options, given)
        numbers = dict.fromkeys(chosen["tuned"], NUMBER) | {"learning_rate": LEARNING_RATE}
        return MAKERS[library](
            locator,
            chosen["arguments"],
            name=label(locator),
            source=path,
            hyperparameters=numbers,
            scope="named",
            backend=LIBRARIES[library],
            options=options,
            chosen=chosen,
            build=build,
        )

    return build({})


def _arguments(locator: str) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if not isinstance(value, Mapping):
            raise OptionError("is no mapping of arguments")
        for name, given in value.items():
            _check(locator, name)
            try:
                json.dumps(given)
            except TypeError as error:
                raise OptionError(f"has {name} = {given!r}, no plain number, text or list") from error
        return dict(value)

    return read


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
    def make(tensors: Sequence[Any], values: Mapping[str, float]) -> Any:
        given = {"lr" if name == "learning_rate" else name: value for name, value in values.items()}
        return _called(locator, _load(locator), list(tensors), **arguments, **given)

    return TorchRule(init=_nothing, update=_refused, make=make, **about)


def _nothing(ops: Ops, param: Any) -> list[Any]:
    return []  # the engine puts the state of the optimizer there


def _refused(ops: Ops, grad: Any, state: Any, param: Any, hyper: Any) -> Any:
    raise InputError("an optimizer of torch.optim runs in the harness' PyTorch engine alone")


# --- optax ----------------------------------------------------------------------------------------


def _optax(locator: str, arguments: Mapping[str, Any], **about: Any) -> Rule:
    numbers = about["hyperparameters"]

    def transformation(values: Mapping[str, Any]) -> Any:
        made = _called(locator, _load(locator), **arguments, **values)
        if not (hasattr(made, "init") and hasattr(made, "update")):
            raise InputError(f"{locator}: gives a {type(made).__name__}, no optax.GradientTransformation")
        return made

    def init(ops: Ops, param: Mapping[str, Array]) -> Any:
        import jax

        # A state has no learning rate: any number will do.
        one = transformation(dict.fromkeys(numbers, 0.5)).init
        state = jax.vmap(jax.vmap(one))({name: ops.asarray(value) for name, value in param.items()})
        return jax.tree.map(jax.numpy.copy, state)  # it may begin with the parameters themselves

    def update(
        ops: Ops,
        grad: Mapping[str, Array],
        state: Any,
        param: Mapping[str, Array],
        hyper: Mapping[str, Array],
    ) -> tuple[Any, Any]:
        import jax
        import optax

        def one(grad: Any, state: Any, param: Any, values: Any) -> Any:
            try:
                updates, new = transformation(values).update(grad, state, param)
            except InputError:
                raise
            except Exception as error:  # whatever another library raises
                raise InputError(
                    f"{locator}: takes no step by one gradient ({type(error).__name__}: {error}); "
                    "what needs the loss cannot be a contestant, and what is tuned must be a number"
                ) from error
            return optax.apply_updates(param, updates), new

        lanes = next(iter(param.values())).shape[:2]
        values = {name: ops.broadcast_to(hyper[name][..., 0], lanes) for name in numbers}
        return jax.vmap(jax.vmap(one))(grad, state, param, values)

    return Rule(init=init, update=update, **about)


MAKERS: Mapping[str, Callable[..., Rule]] = {"torch": _torch, "optax": _optax}


def _load(locator: str) -> Any:
    module, _, name = locator.partition(":")[2].rpartition(".")
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise InputError(f"{locator}: cannot be imported ({error})") from error


def _called(locator: str, function: Any, *given: Any, **named: Any) -> Any:
    try:
        return function(*given, **named)
    except Exception as error:  # whatever another library raises
        raise InputError(
            f"{locator}: refuses its arguments {named} ({type(error).__name__}: {error})"
        ) from error
