"""Where optimizers and workloads are found: here, in installed packages, in files, in other libraries."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from curvebench import optimizers, workloads
from curvebench.engine.schedules import scheduled
from curvebench.interop import foreign
from curvebench.interop.files import FILE, load_file
from curvebench.optimizers.rule import Rule
from curvebench.spec.definitions import Kind
from curvebench.spec.errors import InputError, unknown
from curvebench.spec.method import LIBRARIES, OptimizerSpec, WorkloadSpec
from curvebench.workloads.workload import Workload

ALONE, IN_PACKAGE = "file:", "package:"


@dataclass(frozen=True)
class Origin:
    """What decides, besides the harness, what a contestant computes.

    Args:
        modules: of this project, by dotted name.
        files: others, by `file:` and the path of a single one, or `package:` and the path below its package.
        packages: distributions of other libraries, whose versions count.
    """

    modules: tuple[str, ...] = ()
    files: Mapping[str, Path] = field(default_factory=dict)
    packages: tuple[str, ...] = ()


RULES, WORKLOADS = optimizers.KIND, workloads.KIND


def canonical(name: str, folder: Path) -> str:
    """A name as a study file gives it, in the form in which it is found from the working folder.

    Args:
        name: `adam`, `torch:torch.optim.NAdam`, or the path of a file, relative to `folder`, which
            `torch:` or `optax:` may stand before.
        folder: of the study file.
    """
    if foreign.is_foreign(name):
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
    """An option's value, the optimizers of other libraries that it names in that form."""
    if isinstance(value, str) and foreign.is_foreign(value):
        return canonical(value, folder)
    if isinstance(value, Mapping):
        return {canonical_in(key, folder): canonical_in(one, folder) for key, one in value.items()}
    return [canonical_in(one, folder) for one in value] if isinstance(value, list) else value


def find_rule(locator: str) -> Rule:
    """Return an update rule by its name, from a file, or from another library.

    Args:
        locator: a name that `curvebench list` prints, such as `adam`; a Python file that defines rules, such
            as `my.py` or `my.py:lion`; or an optimizer of another library, such as `torch:torch.optim.NAdam`
            or `optax:optax.lion`.

    Returns:
        The rule, with the defaults of its options; `Rule.choose` gives other options.

    Raises:
        InputError: when no rule has the name, or a package or file cannot be imported or lacks the rule.

    Example:
        >>> from curvebench import find_rule
        >>> find_rule("adam").hyperparameters["beta1"].default
        0.9
    """
    return foreign.rule(locator) if foreign.is_foreign(locator) else _find(RULES, locator)


def find_workload(locator: str) -> Workload:
    """Return a workload by its name or from a file.

    Args:
        locator: a name that `curvebench list` prints, such as `least_squares`, or a Python file that defines
            workloads, such as `my.py` or `my.py:quadratic`.

    Raises:
        InputError: when no workload has the name, or a package or file cannot be imported or lacks the
            workload.

    Example:
        >>> from curvebench import find_workload
        >>> workload = find_workload("least_squares")
        >>> workload.shapes_at(workload.complete({"d": 4}))
        {'theta': (4,)}
    """
    return _find(WORKLOADS, locator)


def rule_of(spec: OptimizerSpec, schedule: str = "constant") -> Rule:
    """The rule that a spec names, with its options, as a study with a schedule of that name runs it."""
    return scheduled(find_rule(spec.locator).choose(spec.options), schedule)


def missing_of(workloads: Iterable[WorkloadSpec]) -> str | None:
    """What data of some workloads is missing and how to get it; None when all is there."""
    reasons = [find_workload(spec.locator).missing(spec.settings) for spec in workloads]
    known = "; ".join(dict.fromkeys(reason for reason in reasons if reason))
    return f"{known}; the folder of data is what `--config data=FOLDER` names" if known else None


def at_defaults(names: Iterable[str]) -> tuple[WorkloadSpec, ...]:
    """Workloads by name with the settings that they have where nobody chooses."""
    return tuple(WorkloadSpec(name, find_workload(name).complete({})) for name in dict.fromkeys(names))


def known(kind: Kind) -> dict[str, Any]:
    """Those of this project and of installed packages, by name.

    Raises:
        InputError: for a package that cannot be loaded, or that takes a name that is taken.
    """
    return {**kind.own(), **{name: item for name, (item, _) in _installed(kind).items()}}


def origin(kind: Kind, locator: str) -> Origin:
    """What decides what a contestant computes."""
    if foreign.is_foreign(locator):
        at, packages = foreign.place(locator), foreign.packages(locator)
        if at.is_file:
            return Origin(files={f"{ALONE}{at.module}": Path(at.module)}, packages=packages)
        own = {} if at.package in LIBRARIES else _package_files(at.package)
        return Origin(files=own, packages=packages)
    if locator in kind.own():
        return Origin(modules=(kind.module_of(locator),))
    match = FILE.fullmatch(locator)
    if match is not None:
        return Origin(files={f"{ALONE}{match['path']}": Path(match["path"])})
    _, entry = _installed(kind)[locator]
    packages = () if entry.dist is None else (entry.dist.name,)
    return Origin(files=_package_files(entry.module.split(".")[0]), packages=packages)


def located(key: str) -> Path | None:
    """The file of a key of `Origin.files` on this machine; None for another key."""
    if key.startswith(ALONE):
        return Path(key.removeprefix(ALONE))
    if key.startswith(IN_PACKAGE):
        package, _, inside = key.removeprefix(IN_PACKAGE).partition("/")
        files = _package_files(package.removesuffix(".py"), inside)
        return files.get(key, Path(key))
    return None


def _find(kind: Kind, locator: str) -> Any:
    match = FILE.fullmatch(locator)
    if locator in kind.own():
        return kind.own()[locator]  # packages are not loaded for what is ours
    if match is None:
        items = known(kind)
        if locator not in items:
            hint = ""
            if "." in locator:
                rest = locator.rpartition(":")[2]
                hint = f"; of another library: {' or '.join(f'{library}:{rest}' for library in LIBRARIES)}"
            raise InputError(unknown("the suite", kind.noun, locator, items) + hint)
        return items[locator]
    items = kind.defined(partial(load_file, Path(match["path"]).resolve()), match["path"])
    for name in items.keys() & kind.own():
        raise InputError(f"{match['path']}: the name {name!r} is taken; rename the {kind.noun}")
    if match["item"] is None and len(items) == 1:
        return next(iter(items.values()))
    if match["item"] not in items:
        wanted = match["item"] or f"of one name (name it after a colon: {match['path']}:NAME)"
        raise InputError(unknown(match["path"], kind.noun, wanted, items))
    return items[match["item"]]


@cache
def _installed(kind: Kind) -> dict[str, tuple[Any, EntryPoint]]:
    """What installed packages define, with its entry point, by name."""
    group = kind.package
    found: dict[str, tuple[Any, EntryPoint]] = {}
    for entry in entry_points(group=group):
        what = f"entry point {entry.name} = {entry.value} of {group}"
        for name, item in kind.defined(entry.load, what).items():
            if name in kind.own() or name in found:
                raise InputError(f"{what}: the name {name!r} is taken; rename the {kind.noun}")
            found[name] = (item, entry)
    return found


def _package_files(package: str, pattern: str = "**/*.py") -> dict[str, Path]:
    """The Python files of an installed package, by a key that is the same on every machine.

    Of files with one key the first counts, as in an import.

    Args:
        pattern: of paths inside the package, such as one of them.
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
