"""What modules define in a constant that is a tuple: rules, bases, workloads; here and in files of others."""

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
    """Optimizers, bases or workloads: what is found alike.

    Args:
        noun: in messages.
        package: of this project, whose modules define them.
        constant: what a module calls those that it defines.
        type: what each must be; it has a `name`.
        otherwise: how users name what modules need not define, as messages end.
    """

    noun: str
    package: str
    constant: str
    type: type
    otherwise: str = ""

    def own(self) -> dict[str, Any]:
        """Those of this project by name.

        Raises:
            InputError: with a line for each module that cannot be loaded, defines something else, or takes
                a name that is taken.
        """
        return {name: item for name, (item, _) in _found(self).items()}

    def module_of(self, name: str) -> str:
        """The module that defines one of this project, for the hash of its sources."""
        return _found(self)[name][1]

    def defined(self, load: Callable[[], Any], where: str, without: Any = None) -> dict[str, Any]:
        """What a module defines by name, in its order.

        Args:
            load: gives the module; its every failure is the user's to mend.
            where: what messages call it.
            without: what a module without the constant is taken to define.

        Raises:
            InputError: where it cannot be loaded, or defines something else.
        """
        try:
            given = getattr(load(), self.constant, without)
        except InputError:
            raise
        except Exception as error:
            raise InputError(
                f"{where}: cannot be loaded ({type(error).__name__}: {error}); mend it"
            ) from error
        if not isinstance(given, (tuple, list)) or not all(isinstance(item, self.type) for item in given):
            raise InputError(
                f"{where}: {self.constant} is not there, or is no tuple of {self.type.__name__}; define "
                f"{self.constant} = (...,) as the modules of curvebench do{self.otherwise}"
            )
        return {item.name: item for item in given}


@cache
def _found(kind: Kind) -> Mapping[str, tuple[Any, str]]:
    """Those of this project with their modules, by name."""
    items: dict[str, tuple[Any, str]] = {}
    problems = Problems()
    path = importlib.import_module(kind.package).__path__
    for name in sorted(info.name for info in pkgutil.iter_modules(path, f"{kind.package}.")):
        with problems.caught():
            own = kind.defined(partial(importlib.import_module, name), path_of(name), without=())
            for item in own.keys() & items:
                taken = f"the name {item!r} is taken in {path_of(items[item][1])}"
                problems.add(f"{path_of(name)}: {taken}; rename the {kind.noun}")
            items |= {item: (value, name) for item, value in own.items()}
    problems.check()
    return items


def path_of(module: str) -> str:
    """Return the path of a module of this project in a checkout: `optimizers/adam.py`."""
    return f"{module.removeprefix('curvebench.').replace('.', '/')}.py"
