"""What other libraries offer, tried: which of their optimizers take steps here, and why the others do not."""

from __future__ import annotations

import contextlib
import inspect
import io
import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import packages_distributions, version
from importlib.util import find_spec
from typing import Any

import numpy as np

from curvebench.interop import foreign
from curvebench.interop.needed_arguments import NEEDED, Needed
from curvebench.interop.trial import try_on, workload_of
from curvebench.spec.errors import InputError
from curvebench.workloads.workload import Problem, Role

MODULES = {  # the library whose kind they are
    "torch.optim": "torch",
    "pytorch_optimizer": "torch",
    "schedulefree": "torch",
    "heavyball": "torch",
    "optax": "optax",
    "optax.contrib": "optax",
}
STEPS, RATE = 20, 1e-3
ADDRESS = re.compile(r" at 0x[0-9a-f]+")  # differs from call to call


@dataclass(frozen=True)
class Offered:
    """An optimizer of another library.

    Args:
        name: in its module.
        refused: why it takes no finite steps, in one line; None where it does.
        needed: what it is given unless a study says otherwise, and why.
    """

    name: str
    refused: str | None
    needed: Needed | None


def installed() -> dict[str, str]:
    """Those of the modules that are installed, with the version of each."""
    found = packages_distributions()
    return {
        module: version(found[package][0]).split("+")[0]
        for module in MODULES
        if find_spec(package := module.split(".")[0]) is not None and package in found
    }


def names(module: str) -> list[str]:
    """What a module offers: classes of optimizers, or functions that give transformations."""
    is_offered = _is_optimizer if MODULES[module] == "torch" else _gives_transformation
    return [name for name, item in sorted(vars(import_module(module)).items()) if is_offered(name, item)]


def tried(module: str, name: str) -> Offered:
    """An optimizer of a module after steps on a small ReLU network, by the way of all studies."""
    locator = f"{MODULES[module]}:{module}.{name}"
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        try:
            try_on(locator, foreign.rule(locator), _network(), _problem(), {"learning_rate": RATE}, STEPS)
        except InputError as error:
            said = ADDRESS.sub("", str(error)).removeprefix(f"{locator}: ")
            return Offered(name, said, NEEDED.get(f"{module}.{name}"))
    return Offered(name, None, NEEDED.get(f"{module}.{name}"))


def tables() -> Iterator[tuple[str, str, list[Offered]]]:
    """Each installed module with its version and all that it offers, tried; takes minutes."""
    for module, number in installed().items():
        yield module, number, [tried(module, name) for name in names(module)]


def _is_optimizer(name: str, item: Any) -> bool:
    from torch.optim import Optimizer

    return inspect.isclass(item) and issubclass(item, Optimizer) and item is not Optimizer


def _gives_transformation(name: str, item: Any) -> bool:
    if not inspect.isfunction(item) or name.startswith("_"):
        return False
    signature = inspect.signature(item)
    return "learning_rate" in signature.parameters or "GradientTransformation" in str(
        signature.return_annotation
    )


ROLES = {"first": Role("weight", 0), "bias": Role("bias", 0), "second": Role("weight", 1)}


def _network() -> Any:
    def objective(ops: Any, params: Mapping[str, Any], batch: Mapping[str, Any]) -> Any:
        hidden = ops.relu(batch["inputs"] @ ops.swapaxes(params["first"], 0, 1) + params["bias"])
        return ops.mean(ops.square(hidden @ ops.swapaxes(params["second"], 0, 1) - batch["targets"]))

    return workload_of(objective, ROLES, "float32")


def _problem() -> Problem:
    random = np.random.default_rng(0)
    parameters = {
        "first": random.normal(size=(16, 8)) / 3,
        "bias": random.normal(size=16),
        "second": random.normal(size=(4, 16)) / 4,
    }
    train = {"inputs": random.normal(size=(32, 8)), "targets": random.normal(size=(32, 4))}
    return Problem(parameters, {"train": train})
