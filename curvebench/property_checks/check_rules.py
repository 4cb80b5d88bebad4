"""Hashes of the decision rules of property claims.

A property claim is tested on random instances. The decision rule of a claim is the source code of the
functions that draw and measure an instance.
"""

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
# Former names of packages and modules, which are hashed instead of the current names.
# The random instances of a claim depend on the hash of its rule.
# Therefore moving a file must not change the hash.
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
    """Return the first 16 hexadecimal digits of the SHA-256 of a claim's decision rule.

    The hash covers the subclaims, the functions that measure them, and the functions and constants in
    benchmarks/claims that the measuring functions use, without comments and docstrings. The hash covers
    neither the number of instances nor code outside benchmarks/claims, such as the optimizers that a claim is
    about. The seed of the random instances depends on the hash. Therefore corrected code of an optimizer is
    tested on the same instances as before, and a changed decision rule on new instances.
    """
    texts: dict[str, str] = {}
    parts = [_part(check, texts) for check in claim.checks]
    rule = [claim.id, bool(claim.at_most_partly), sorted(parts), sorted(texts.items())]
    return hashlib.sha256(repr(rule).encode()).hexdigest()[:16]


def _part(check: Check, texts: dict[str, str]) -> tuple[str, ...]:
    """Return the fields of a check that are hashed.

    Args:
        check: the check.
        texts: a mapping from the name of a function or class to its source, to which the functions and
            classes that the check uses are added.
    """
    scales = sorted(check.by_scale)
    measured = [_written(fn, texts) for fn in (check.measures, *(check.by_scale[name] for name in scales))]
    where = [f"where {check.where}"] if check.where else []
    return check.part, check.variant, str(check.sampled), str(check.bound), *where, *scales, *measured


def _written(value: Any, texts: dict[str, str]) -> str:
    """Return a value as text that is the same in every process.

    Args:
        value: a constant, function, class or container.
        texts: a mapping from the name of a function or class to its source, to which functions and classes in
            `value` are added.
    """
    if isinstance(value, PLAIN):
        return repr(value)
    if isinstance(value, np.ndarray):
        return repr(value.tolist())
    if isinstance(value, partial):
        return f"{_written(value.func, texts)} with {_written((value.args, value.keywords), texts)}"
    if isinstance(value, Mapping):
        return repr([(str(key), _written(item, texts)) for key, item in value.items()])
    if isinstance(value, tuple | list):
        return repr([_written(item, texts) for item in value])
    if inspect.isfunction(value) or inspect.isclass(value):
        return _defined(value, texts)
    return type(value).__name__


def _defined(thing: Any, texts: dict[str, str]) -> str:
    """Return the name of a function or class, or the source of a lambda, which has no name.

    Args:
        thing: the function or class.
        texts: a mapping from the name of a function or class to its source, to which `thing` and everything
            that it uses are added.
    """
    name = f"{_module_name(thing.__module__)}.{thing.__qualname__}"
    if name.endswith("<lambda>"):
        lambdas = _lambdas(inspect.getsource(sys.modules[thing.__module__]))
        name = "; ".join(text for line, text in lambdas if line == thing.__code__.co_firstlineno)
    elif thing.__module__.startswith(f"{PACKAGE}.") and name not in texts:
        texts[name], names = _text(thing)
        values = {NAMES.get(key, key): value for key, value in vars(sys.modules[thing.__module__]).items()}
        texts[name] += repr([(key, _written(values[key], texts)) for key in names if key in values])
    return name


def _module_name(module: str) -> str:
    """Return the former name of a module if it has one in `NAMES`, otherwise its current name."""
    package = next((package for package in NAMES if f"{module}.".startswith(f"{package}.")), None)
    return module if package is None else NAMES[package] + module.removeprefix(package)


@cache
def _lambdas(source: str) -> list[tuple[int, str]]:
    """Return the line number and the source of each lambda in the source code of a module."""
    nodes = ast.walk(ast.parse(source))
    return [(node.lineno, ast.unparse(node)) for node in nodes if isinstance(node, ast.Lambda)]


@cache
def _text(thing: Any) -> tuple[str, list[str]]:
    """Return the source of a function or class without docstrings, and the sorted names in it."""
    tree = ast.parse(dedent(inspect.getsource(thing)))
    names = {node for node in ast.walk(tree) if isinstance(node, ast.Name)}
    for name in names:
        name.id = NAMES.get(name.id, name.id)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            node.module = _module_name(node.module)
    return code_of(tree), sorted({name.id for name in names})
