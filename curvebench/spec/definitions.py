"""Modules that define rules, bases or workloads, in this project or in files of users.

A module lists its definitions in a constant that is a tuple, such as `WORKLOADS`.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from curvebench.spec.errors import InputError, Problems


@dataclass(frozen=True)
class Kind:
    """A kind of definition, which modules list in a constant of their own: optimizers, bases or workloads.

    Args:
        noun: name of the kind in messages.
        package: package of this project whose modules define objects of this kind.
        constant: name of the constant, a tuple or a list.
        type: class of the objects; it has an attribute `name`.
        otherwise: end of a message, on names that users can give without such a module.
    """

    noun: str
    package: str
    constant: str
    type: type
    otherwise: str = ""

    def own(self) -> dict[str, Any]:
        """Return the objects of this kind that the project defines, by name.

        Raises:
            InputError: with a line for each module that cannot be loaded, defines an object of another class,
                or uses a name that another module uses.
        """
        return {name: item for name, (item, _) in _found(self).items()}

    def module_of(self, name: str) -> str:
        """Return the module that defines an object of this project; the hash of a job needs its sources."""
        return _found(self)[name][1]

    def defined(self, load: Callable[[], Any], where: str, without: Any = None) -> dict[str, Any]:
        """Return the objects that a module defines, by name, in the order of the module.

        Args:
            load: imports and returns the module. Any exception that it raises is an error of the module's
                author.
            where: the module in messages.
            without: objects of a module that lacks the constant; None if the constant is required.

        Raises:
            InputError: when the module cannot be loaded, or its constant is missing or has other objects.
        """
        try:
            defined = getattr(load(), self.constant, without)
        except InputError:
            raise
        except Exception as error:
            raise InputError(
                f"{where}: cannot be loaded ({type(error).__name__}: {error}); fix it"
            ) from error
        if not isinstance(defined, (tuple, list)) or not all(isinstance(x, self.type) for x in defined):
            raise InputError(
                f"{where}: {self.constant} is missing, or is no tuple of {self.type.__name__}; define "
                f"{self.constant} = (...,) as the modules of curvebench do{self.otherwise}"
            )
        return {item.name: item for item in defined}


@cache
def _found(kind: Kind) -> Mapping[str, tuple[Any, str]]:
    """Return the objects of this project with the module of each, by name."""
    items: dict[str, tuple[Any, str]] = {}
    problems = Problems()
    path = importlib.import_module(kind.package).__path__
    for name in sorted(info.name for info in pkgutil.iter_modules(path, f"{kind.package}.")):
        with problems.caught():
            defined = kind.defined(partial(importlib.import_module, name), path_of(name), without=())
            for item in defined.keys() & items:
                problem = f"the name {item!r} is taken in {path_of(items[item][1])}"
                problems.add(f"{path_of(name)}: {problem}; rename the {kind.noun}")
            items |= {item: (value, name) for item, value in defined.items()}
    problems.check()
    return items


def path_of(module: str) -> str:
    """Return the path in a checkout of a module of this project, such as `optimizers/adam.py`."""
    return f"{module.removeprefix('curvebench.').replace('.', '/')}.py"
