"""Options of update rules, bases and workloads, and the functions that check their values.

A basis is a change of coordinates of the parameters, in which an optimizer makes its steps. The functions
`number`, `whole` and `choice` return a reader, which is a function that checks one value of a study file.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from curvebench.spec.errors import unknown

# Names of the precisions in which runs can be computed; curvebench/precision.py defines them
Precision = Literal["float64", "float32", "tf32", "mixed", "bfloat16"]
# A reader: a function that checks a value and returns it, as described at `Option.read`
Read = Callable[[Any], Any]


@dataclass(frozen=True)
class Option:
    """A choice that a study may make about an update rule, a basis or a workload.

    Args:
        default: value of the option if a study leaves the option out. The default is not passed through
            `read`.
        description: meaning and effect of the option, in one line for `curvebench list`.
        read: function that checks a value and returns it as a type that JSON can store. For an invalid value
            it raises a ValueError whose message continues "<owner>: <name> = <value> ", such as "is not a
            number".
    """

    default: Any
    description: str
    read: Read


class Readable(Protocol):
    """Interface of options and hyperparameters: a default, and a function that checks a value."""

    @property
    def default(self) -> Any:
        """Value that is used if a study gives no value; the default is not passed through `read`."""

    @property
    def read(self) -> Read:
        """Function that checks a value and returns it as a type that JSON can store."""


def completed(
    owner: str, kind: str, options: Mapping[str, Readable], given: Mapping[str, Any], error: type[ValueError]
) -> dict[str, Any]:
    """Check the given values, and add the default of every option that is not given.

    Args:
        owner, kind: words for messages: the rule, basis or workload, such as `adam`, and `option` or
            `hyperparameter`.
        options: a mapping from the names of all valid options to their definitions.
        given: a mapping from names of options to values from a study.
        error: class of the error for an unknown name or an invalid value.
    """
    for name in given:
        if name not in options:
            raise error(unknown(owner, kind, name, options))
    values: dict[str, Any] = {}
    for name, option in options.items():
        try:
            values[name] = option.read(given[name]) if name in given else option.default
        except ValueError as problem:
            raise error(f"{owner}: {name} = {given[name]!r} {problem}") from problem
    return values


def is_number(value: Any) -> bool:
    """Return whether a value is an int or a float; a bool is neither."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def interval(low: float, high: float, low_open: bool = False, high_open: bool = False) -> str:
    """Format an interval, such as `(0, inf)` or `[0, 1)`."""
    opening = "(" if low_open or math.isinf(low) else "["
    closing = ")" if high_open or math.isinf(high) else "]"
    return f"{opening}{low:g}, {high:g}{closing}"


def number(
    low: float = -math.inf, high: float = math.inf, low_open: bool = False, high_open: bool = False
) -> Read:
    """Return a function that checks that a value is a finite number between `low` and `high`, and returns it.

    Args:
        low, high: ends of the interval of valid numbers.
        low_open: whether `low` itself is invalid.
        high_open: whether `high` itself is invalid.
    """

    def read(value: Any) -> Any:
        if not is_number(value):
            raise ValueError("is not a number")
        above = value > low if low_open else value >= low
        below = value < high if high_open else value <= high
        # An int may be too large for a float; such numbers are outside every interval.
        if not (abs(value) <= sys.float_info.max and above and below):
            raise ValueError(f"is outside {interval(low, high, low_open, high_open)}")
        return value

    return read


def whole(low: int = 1, none: str | None = None) -> Read:
    """Return a function that checks that a value is a whole number of at least `low`, and returns it.

    Args:
        low: smallest valid number.
        none: meaning of the value null, for messages; None if null is not a valid value.
    """

    def read(value: Any) -> int | None:
        if value is None and none is not None:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or value < low:
            or_null = f", or null ({none})" if none else ""
            raise ValueError(f"is not a whole number from {low} on{or_null}")
        return value

    return read


def choice(*values: Any) -> Read:
    """Return a function that checks that a value is one of `values`, and returns it."""

    def read(value: Any) -> Any:
        if value not in values:
            names = ("null" if valid is None else str(valid) for valid in values)
            raise ValueError(f"is not one of {', '.join(names)}")
        return value

    return read


def flag(value: Any) -> Any:
    """Check that a value is true or false, and return it."""
    if not isinstance(value, bool):
        raise ValueError("is neither true nor false")
    return value
