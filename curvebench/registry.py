"""Lookup of optimizers and workloads: in this project, installed packages, files, and other libraries.

A locator is the text by which an optimizer or a workload is found, such as `adam`, `my.py:mine` or
`torch:torch.optim.NAdam`. A kind is one of optimizers, bases and workloads (`curvebench.spec.definitions`).
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from curvebench import optimizers, workloads
from curvebench.engine.schedules import scheduled
from curvebench.interop import foreign, models
from curvebench.interop.files import FILE, load_file, with_neighbours
from curvebench.optimizers import wrappers
from curvebench.optimizers.rule import Rule
from curvebench.optimizers.wrappers import WRAPPERS, Wrapper
from curvebench.spec.definitions import Kind
from curvebench.spec.errors import InputError, check_known, put_aside, unknown
from curvebench.spec.method import LIBRARIES, OptimizerSpec, WorkloadSpec
from curvebench.workloads.workload import Workload

# Prefixes of the keys in `Origin.files`.
# `file:` is for a file that a user names, and for the modules in its folder that it imports.
# `package:` is for a file in an installed package.
SINGLE_FILE, IN_PACKAGE = "file:", "package:"


@dataclass(frozen=True)
class Origin:
    """Source code that decides the results of an optimizer or a workload, except the engine that executes it.

    Args:
        modules: dotted names of modules of this project.
        files: a mapping from keys to the paths of other files. The key of a user's file, or of a neighbour
            that it imports, is `file:` followed by the path. The key of a file in an installed package is
            `package:` followed by the path inside the package, which is the same on every machine.
        packages: names of distributions of other libraries whose versions decide the results, too.
    """

    modules: tuple[str, ...] = ()
    files: Mapping[str, Path] = field(default_factory=dict)
    packages: tuple[str, ...] = ()


RULES, WORKLOADS = optimizers.KIND, workloads.KIND


def canonical(name: str, folder: Path) -> str:
    """Return the locator for a name in a study file.

    If the name contains the path of a file, the locator has the path relative to the working directory, or
    the absolute path if the file is outside of the working directory.

    Args:
        name: `adam`, `torch:torch.optim.NAdam`, or the path of a file, relative to `folder`. `torch:` or
            `optax:` may precede the path.
        folder: folder of the study file.
    """
    inner, wrapper = unwrapped(name)
    if wrapper is not None:
        return f"{canonical(inner, folder)}+{wrapper.name}"
    if foreign.is_foreign(name) or models.is_model(name):
        library, _, rest = name.partition(":")
        return f"{library}:{canonical(rest, folder)}"
    match = FILE.fullmatch(name)
    if match is None:
        return name
    path = (folder / match["path"]).resolve()
    inside = path.is_relative_to(Path.cwd())
    text = Path(os.path.relpath(path)).as_posix() if inside else path.as_posix()
    return text if match["item"] is None else f"{text}:{match['item']}"


def canonical_in(value: Any, folder: Path) -> Any:
    """Return the value of an option, with the names of optimizers of other libraries as locators.

    Args:
        value: value of an option in a study file, which may be a mapping or a list.
        folder: folder of the study file.
    """
    if isinstance(value, str) and foreign.is_foreign(value):
        return canonical(value, folder)
    if isinstance(value, Mapping):
        return {canonical_in(key, folder): canonical_in(item, folder) for key, item in value.items()}
    return [canonical_in(item, folder) for item in value] if isinstance(value, list) else value


def find_rule(locator: str) -> Rule:
    """Return an update rule by its name, from a file, or from another library.

    Args:
        locator: a name that `curvebench list` prints, such as `adam`; a Python file that defines rules, such
            as `my.py` or `my.py:mine`; or an optimizer of another library, such as `torch:torch.optim.NAdam`
            or `optax:optax.lion`. `+` and the name of a wrapper may follow, as in `adam+cautious`.

    Returns:
        The rule, with the defaults of its options; `Rule.choose` gives other options.

    Raises:
        InputError: when no rule has the name, or a package or file cannot be imported or lacks the rule.
        OptionError: when the wrapper cannot wrap the rule.

    Example:
        >>> from curvebench import find_rule
        >>> find_rule("adam").hyperparameters["beta1"].default
        0.9
    """
    inner, wrapper = unwrapped(locator)
    if wrapper is not None:
        return wrapper(find_rule(inner))
    return foreign.rule(locator) if foreign.is_foreign(locator) else _find(RULES, locator)


def unwrapped(locator: str) -> tuple[str, Wrapper | None]:
    """Split the locator of a wrapped rule, such as `adam+cautious`, into the rule's locator and the wrapper.

    If the locator names no wrapper, the result is the locator and None.

    Raises:
        InputError: when no wrapper has the name.
    """
    inner, plus, name = locator.rpartition("+")
    if not plus or not name.isidentifier():
        return locator, None
    check_known("curvebench", "wrapper", [name], WRAPPERS)
    return inner, WRAPPERS[name]


def find_workload(locator: str) -> Workload:
    """Return a workload by its name or from a file.

    Args:
        locator: a name that `curvebench list` prints, such as `least_squares`; a Python file that defines
            workloads, such as `my.py` or `my.py:quadratic`; or a model in a file, such as
            `torch:my_gru.py:GRU` or `jax:my_rnn.py`.

    Raises:
        InputError: when no workload has the name, or a package or file cannot be imported or lacks the
            workload.

    Example:
        >>> from curvebench import find_workload
        >>> workload = find_workload("least_squares")
        >>> workload.shapes_at(workload.complete({"d": 4}))
        {'theta': (4,)}
    """
    return models.model_workload(locator) if models.is_model(locator) else _find(WORKLOADS, locator)


def rule_of(spec: OptimizerSpec, schedule: str = "constant") -> Rule:
    """Return the update rule of an optimizer, with the options and the schedule that the study gives.

    Args:
        spec: the optimizer.
        schedule: name of the learning-rate schedule of the study.
    """
    return scheduled(find_rule(spec.locator).choose(spec.options), schedule)


def missing_of(workloads: Iterable[WorkloadSpec]) -> str | None:
    """Return a text that says which data of the workloads is missing.

    The text also says how to get the data. If no data is missing, the result is None.
    """
    reasons = [find_workload(spec.locator).missing(spec.settings) for spec in workloads]
    text = "; ".join(dict.fromkeys(reason for reason in reasons if reason))
    return f"{text}; the folder of data is what `--config data=FOLDER` names" if text else None


def at_defaults(names: Iterable[str]) -> tuple[WorkloadSpec, ...]:
    """Return the workloads with the given names, with default settings. A repeated name counts once."""
    return tuple(WorkloadSpec(name, find_workload(name).complete({})) for name in dict.fromkeys(names))


def known(kind: Kind, broken: dict[str, str]) -> dict[str, Any]:
    """Return a mapping from names to optimizers, bases or workloads of this project and installed packages.

    Args:
        kind: optimizers, bases or workloads.
        broken: a dictionary to which a reason is added for each entry point that is left out. An entry point
            is left out if its module cannot be imported, or defines a name that is already in use.
    """
    items, reasons = _installed(kind)
    broken.update(reasons)
    return {**kind.own(), **{name: item for name, (item, _) in items.items()}}


def origin(kind: Kind, locator: str) -> Origin:
    """Return the source files and packages that decide the results of an optimizer or a workload."""
    inner, wrapper = unwrapped(locator)
    if kind is RULES and wrapper is not None:
        found = origin(kind, inner)
        return replace(found, modules=(*found.modules, wrappers.__name__))
    if kind is WORKLOADS and models.is_model(locator):
        return Origin(files=_neighbours(models.location(locator).module), packages=models.packages(locator))
    if foreign.is_foreign(locator):
        source, packages = foreign.location(locator), foreign.packages(locator)
        if source.is_file:
            return Origin(files=_neighbours(source.module), packages=packages)
        files = {} if source.package in LIBRARIES else _package_files(source.package)
        return Origin(files=files, packages=packages)
    if locator in kind.own():
        return Origin(modules=(kind.module_of(locator),))
    match = FILE.fullmatch(locator)
    if match is not None:
        return Origin(files=_neighbours(match["path"]))
    _, entry = _installed(kind)[0][locator]
    packages = () if entry.dist is None else (entry.dist.name,)
    return Origin(files=_package_files(entry.module.split(".")[0]), packages=packages)


def located(key: str) -> Path | None:
    """Return the path on this machine of the file that has the key `key` in `Origin.files`.

    The result is None for any text that is not such a key.
    """
    if key.startswith(SINGLE_FILE):
        return Path(key.removeprefix(SINGLE_FILE))
    if key.startswith(IN_PACKAGE):
        package, _, path = key.removeprefix(IN_PACKAGE).partition("/")
        files = _package_files(package.removesuffix(".py"), path)
        return files.get(key, Path(key))
    return None


def _find(kind: Kind, locator: str) -> Any:
    """Return the optimizer or workload that a locator means.

    Raises:
        InputError: if the optimizer or workload does not exist, if a file defines a name that this project
            uses, or if a file defines several optimizers or workloads and the locator does not name one of
            them.
    """
    match = FILE.fullmatch(locator)
    if locator in kind.own():
        return kind.own()[locator]  # checked first, because loading all installed packages takes time
    if match is None:
        broken: dict[str, str] = {}
        items = known(kind, broken)
        if locator not in items:
            hint = ""
            if "." in locator:
                rest = locator.rpartition(":")[2]
                hint = f"; of another library: {' or '.join(f'{library}:{rest}' for library in LIBRARIES)}"
            raise InputError(
                "\n".join([unknown("curvebench", kind.noun, locator, items) + hint, *broken.values()])
            )
        return items[locator]
    items = kind.defined(partial(load_file, Path(match["path"]).resolve()), match["path"])
    for name in items.keys() & kind.own():
        raise InputError(f"{match['path']}: the name {name!r} is taken; rename the {kind.noun}")
    if match["item"] is None and len(items) == 1:
        return next(iter(items.values()))
    if match["item"] not in items:
        requested = match["item"] or f"of one name (name it after a colon: {match['path']}:NAME)"
        raise InputError(unknown(match["path"], kind.noun, requested, items))
    return items[match["item"]]


@cache
def _installed(kind: Kind) -> tuple[dict[str, tuple[Any, EntryPoint]], dict[str, str]]:
    """Return the optimizers, bases or workloads that installed packages define by entry points.

    Returns:
        Two mappings: from the names of optimizers, bases or workloads to the objects with their entry points;
        and from the entry points that are left out to reasons.
    """
    items: dict[str, tuple[Any, EntryPoint]] = {}
    broken: dict[str, str] = {}
    for entry in entry_points(group=kind.package):
        source = f"entry point {entry.name} = {entry.value} of {kind.package}"
        with put_aside(broken, source):
            defined = kind.defined(entry.load, source)
            for name in defined.keys() & {*kind.own(), *items}:
                raise InputError(f"{source}: the name {name!r} is taken; rename the {kind.noun}")
            items |= {name: (item, entry) for name, item in defined.items()}
    return items, broken


def _neighbours(path: str) -> dict[str, Path]:
    """Return a user's file and the neighbours that it imports, by keys of `Origin.files`.

    Imports by imported neighbours are followed as well.
    """
    return {f"{SINGLE_FILE}{file.as_posix()}": file for file in with_neighbours(Path(path))}


def _package_files(package: str, pattern: str = "**/*.py") -> dict[str, Path]:
    """Return the paths of an installed package's Python files, by keys that are equal on all machines.

    A namespace package has several folders. If two folders contain the same path, the file in the first
    folder is used, as in an import.

    Args:
        package: name of the package.
        pattern: glob pattern of paths in the package.
    """
    spec = importlib.util.find_spec(package)
    if spec is None:
        return {}
    if spec.submodule_search_locations is None:
        return {f"{IN_PACKAGE}{package}.py": Path(spec.origin)} if spec.origin else {}
    return {
        f"{IN_PACKAGE}{package}/{path.relative_to(folder).as_posix()}": path
        for folder in map(Path, reversed([*spec.submodule_search_locations]))
        for path in sorted(folder.glob(pattern))
    }
