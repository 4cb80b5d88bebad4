"""The rule behind a property claim, as its checks are written, and the hash of it."""

from __future__ import annotations

import ast
import hashlib
import inspect
import sys
from collections.abc import Mapping
from functools import cache, partial
from textwrap import dedent
from typing import Any

import numpy as np

from curvebench.property_checks.checks import PACKAGE, Check, PropertyClaim
from curvebench.sources import code_of

PLAIN = (str, int, float, bool, type(None))
# Names of packages in the hashes. A hash seeds the instances of its claim: moving a file must not change it.
NAMES = {
    "curvebench.arrays": "harness.backends",
    "curvebench.steps.engine": "harness.backends.engine",
    "curvebench.steps.update": "harness.engine.program",
    "curvebench.steps": "harness.engine",
    "curvebench.interop.replaying": "harness.engine.replaying",
    "curvebench.engine.bundle": "harness.engine.execution",
    "curvebench.engine.memory": "harness.engine.execution",
    "curvebench.timing.clocks": "benchmarks.kernels.clock",
    "curvebench.timing.interleaving": "benchmarks.kernels.interleaving",
    "curvebench.benchmarks": "benchmarks",
    "curvebench.optimizers": "optimizers",
    "curvebench.results": "results",
    "curvebench.workloads": "workloads",
    "curvebench.property_checks": "harness",
    "curvebench": "harness",
}


@cache
def check_rule(claim: PropertyClaim) -> str:
    """The first 16 hexadecimal digits of the SHA-256 of all that decides a claim but the project's own code.

    These are the parts, with the functions that measure them and whatever functions and constants of
    benchmarks/claims they use, without comments and docstrings. Numbers of instances are none of it.
    """
    seen: dict[str, str] = {}
    parts = [_part(check, seen) for check in claim.checks]
    rule = [claim.id, bool(claim.at_most_partly), sorted(parts), sorted(seen.items())]
    return hashlib.sha256(repr(rule).encode()).hexdigest()[:16]


def _part(check: Check, seen: dict[str, str]) -> tuple[str, ...]:
    scales = sorted(check.by_scale)
    measured = [_written(one, seen) for one in (check.measures, *(check.by_scale[name] for name in scales))]
    return check.part, check.variant, str(check.sampled), str(check.bound), *scales, *measured


def _written(value: Any, seen: dict[str, str]) -> str:
    """A value in words that are the same in every process; functions and classes are added to `seen`."""
    if isinstance(value, PLAIN):
        return repr(value)
    if isinstance(value, np.ndarray):
        return repr(value.tolist())
    if isinstance(value, partial):
        return f"{_written(value.func, seen)} with {_written((value.args, value.keywords), seen)}"
    if isinstance(value, Mapping):
        return repr([(str(key), _written(one, seen)) for key, one in value.items()])
    if isinstance(value, tuple | list):
        return repr([_written(one, seen) for one in value])
    if inspect.isfunction(value) or inspect.isclass(value):
        return _defined(value, seen)
    return type(value).__name__


def _defined(thing: Any, seen: dict[str, str]) -> str:
    """The name of a function or class; its text and that of what it uses are added to `seen`."""
    name = f"{_module_name(thing.__module__)}.{thing.__qualname__}"
    if name.endswith("<lambda>"):
        lambdas = _lambdas(inspect.getsource(sys.modules[thing.__module__]))
        name = "; ".join(text for line, text in lambdas if line == thing.__code__.co_firstlineno)
    elif thing.__module__.startswith(f"{PACKAGE}.") and name not in seen:
        seen[name], names = _text(thing)
        own = {NAMES.get(key, key): value for key, value in vars(sys.modules[thing.__module__]).items()}
        seen[name] += repr([(one, _written(own[one], seen)) for one in names if one in own])
    return name


def _module_name(module: str) -> str:
    """Return the name of a module in the hashes of rules."""
    package = next((package for package in NAMES if f"{module}.".startswith(f"{package}.")), None)
    return module if package is None else NAMES[package] + module.removeprefix(package)


@cache
def _lambdas(source: str) -> list[tuple[int, str]]:
    """The lines and texts of the lambdas of a module."""
    nodes = ast.walk(ast.parse(source))
    return [(node.lineno, ast.unparse(node)) for node in nodes if isinstance(node, ast.Lambda)]


@cache
def _text(thing: Any) -> tuple[str, list[str]]:
    """The text of a function or class without docstrings, and the names in it."""
    tree = ast.parse(dedent(inspect.getsource(thing)))
    names = {node for node in ast.walk(tree) if isinstance(node, ast.Name)}
    for name in names:
        name.id = NAMES.get(name.id, name.id)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            node.module = _module_name(node.module)
    return code_of(tree), sorted({name.id for name in names})
