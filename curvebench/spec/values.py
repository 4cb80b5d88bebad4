"""Values given to rules, bases and workloads: read into one plain form, or refused with what is right."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from curvebench.spec.errors import unknown

# of a run; curvebench/precision.py says what each computes in
Precision = Literal["float64", "float32", "tf32", "mixed", "bfloat16"]
Read = Callable[[Any], Any]  # raises a ValueError that goes on from `<owner>: <name> = <value> `


@dataclass(frozen=True)
class Option:
    """One choice that a study may make about a rule, a basis or a workload.

    Args:
        default: the value when none is given, in the form that `read` returns.
        description: what it means, in a line for `curvebench list`.
        read: a given value, checked, in one plain form that JSON keeps.
    """

    default: Any
    description: str
    read: Read


class Readable(Protocol):
    """A value that may be given: its default, and how it is read."""

    @property
    def default(self) -> Any:
        """The value when none is given, in the form that `read` returns."""

    @property
    def read(self) -> Read:
        """The given value in one plain form that JSON keeps."""


def completed(
    owner: str, kind: str, known: Mapping[str, Readable], given: Mapping[str, Any], error: type[ValueError]
) -> dict[str, Any]:
    """The given values read, and completed by the defaults.

    Args:
        owner, kind: in messages, such as `adam` and `option`.
        known: what may be given.
        given: by name.
        error: what is raised for an unknown name or a wrong value.
    """
    for name in given:
        if name not in known:
            raise error(unknown(owner, kind, name, known))
    values: dict[str, Any] = {}
    for name, one in known.items():
        try:
            values[name] = one.read(given[name]) if name in given else one.default
        except ValueError as problem:
            raise error(f"{owner}: {name} = {given[name]!r} {problem}") from problem
    return values


def is_number(value: Any) -> bool:
    """Whether it is a number, a truth value not being one."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def interval(low: float, high: float, low_open: bool = False, high_open: bool = False) -> str:
    """An interval as text, such as `(0, inf)` or `[0, 1)`."""
    left = "(" if low_open or math.isinf(low) else "["
    right = ")" if high_open or math.isinf(high) else "]"
    return f"{left}{low:g}, {high:g}{right}"


def number(
    low: float = -math.inf, high: float = math.inf, low_open: bool = False, high_open: bool = False
) -> Read:
    """Reads a finite number inside an interval, whose ends may be excluded."""

    def read(value: Any) -> Any:
        if not is_number(value):
            raise ValueError("is not a number")
        above = value > low if low_open else value >= low
        below = value < high if high_open else value <= high
        # Whole numbers have no bound in Python; those beyond all floats are outside too.
        if not (abs(value) <= sys.float_info.max and above and below):
            raise ValueError(f"is outside {interval(low, high, low_open, high_open)}")
        return value

    return read


def whole(low: int = 1, none: str | None = None) -> Read:
    """Reads a whole number from `low` on; with `none`, null too, which then means that."""

    def read(value: Any) -> int | None:
        if value is None and none is not None:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or value < low:
            other = f", or null ({none})" if none else ""
            raise ValueError(f"is not a whole number from {low} on{other}")
        return value

    return read


def choice(*values: Any) -> Read:
    """Reads one of several values."""

    def read(value: Any) -> Any:
        if value not in values:
            names = ("null" if one is None else str(one) for one in values)
            raise ValueError(f"is not one of {', '.join(names)}")
        return value

    return read


def flag(value: Any) -> Any:
    """Reads true or false."""
    if not isinstance(value, bool):
        raise ValueError("is neither true nor false")
    return value
