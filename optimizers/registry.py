"""How rules and bases are found: by a constant of each module in a package."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from typing import Any


@cache
def found(package: str, constant: str) -> dict[str, tuple[Any, str]]:
    """Each item of `constant` in the package's modules, with its module, by the item's `name`.

    Raises:
        ValueError: when two items share a name.
    """
    path = importlib.import_module(package).__path__
    items: dict[str, tuple[Any, str]] = {}
    for info in sorted(pkgutil.iter_modules(path, f"{package}."), key=lambda info: info.name):
        for item in getattr(importlib.import_module(info.name), constant, ()):
            if item.name in items:
                raise ValueError(
                    f"{constant}: the name {item.name!r} is in both {items[item.name][1]} and {info.name}"
                )
            items[item.name] = (item, info.name)
    return items
