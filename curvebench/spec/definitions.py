"""Modules that define update rules, bases or workloads, in this project or in files of users.

Each such module lists its objects in a constant, which is a tuple, such as `WORKLOADS`.
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
    """One of the kinds of objects that users can add: optimizers, bases and workloads.

    Args:
        noun: name of the kind in messages, such as "workload".
        package: package of this project whose modules define objects of this kind.
        constant: name of the tuple or list in which a module lists its objects of this kind.
        type: class of the objects; it has an attribute `name`.
        otherwise: end of the error message about a module that lacks the constant. The text says which other
            names users can give; empty if there are no other names.
    """

    noun: str
    package: str
    constant: str
    type: type
    otherwise: str = ""

    def own(self) -> dict[str, Any]:
        """Return a mapping from names to the objects of this kind that this project defines.

        Raises:
            InputError: with a line for each module that cannot be loaded, defines an object of another class,
                or uses a name that another module uses.
        """
        return {name: item for name, (item, _) in _found(self).items()}

    def module_of(self, name: str) -> str:
        """Return the dotted name of the module of this project that defines the object `name`."""
        return _found(self)[name][1]

    def defined(self, load: Callable[[], Any], where: str, without: Any = None) -> dict[str, Any]:
        """Return the objects in the constant `self.constant` of a module: a mapping from names to objects.

        The mapping has the order of the constant.

        Args:
            load: function that imports and returns the module. An exception that the function raises is
                reported as an error in the module.
            where: name of the module in messages.
            without: list of objects that is assumed for a module that lacks the constant, such as an empty
                tuple; None to raise an error for such a module.

        Raises:
            InputError: when the module cannot be loaded, when the constant is missing, or when the constant
                contains objects of another class.
        """
        try:
            defined = getattr(load(), self.constant, without)
        except InputError:
            raise
        except (Exception, SystemExit) as error:
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
    """Return a mapping from the names of all objects of a kind that this project defines.

    Each value is a pair: the object, and the dotted name of the module that defines the object.
    """
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
    """Return the path of a module's file in a checkout of this project, such as `optimizers/adam.py`."""
    return f"{module.removeprefix('curvebench.').replace('.', '/')}.py"
