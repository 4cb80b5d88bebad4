"""Options: the named choices that a study makes about a rule or a basis, read into one plain form."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from optimizers.names import unknown

Options = Mapping[str, Any]


class OptionError(ValueError):
    """An option that is unknown or wrong; the message says what would be right."""


@dataclass(frozen=True)
class Option:
    """One choice.

    Args:
        default: the value when none is given, in the form that `read` returns.
        description: one line for `python -m harness list`.
        read: the given value in one plain form that JSON keeps; raises an OptionError whose message
            goes on from `<rule or basis>: <option> = <value> ` and says what would be right.
    """

    default: Any
    description: str
    read: Callable[[Any], Any]


def complete(owner: str, options: Mapping[str, Option], given: Options) -> dict[str, Any]:
    """The given options of a rule or basis checked, brought into one form and completed by the defaults.

    Raises:
        OptionError: for an unknown option or a wrong value.
    """
    for name in given:
        if name not in options:
            raise OptionError(unknown(owner, "option", name, options))
    values: dict[str, Any] = {}
    for name, option in options.items():
        try:
            values[name] = option.read(given[name]) if name in given else option.default
        except OptionError as error:
            raise OptionError(f"{owner}: {name} = {given[name]!r} {error}") from error
    return values


def choice(*values: str) -> Callable[[Any], Any]:
    """Reads one of several names."""

    def read(value: Any) -> Any:
        if value not in values:
            raise OptionError(f"is not one of {', '.join(values)}")
        return value

    return read


def flag(value: Any) -> Any:
    """Reads true or false."""
    if not isinstance(value, bool):
        raise OptionError("is neither true nor false")
    return value


def whole(low: int, none: str | None = None) -> Callable[[Any], Any]:
    """Reads a whole number from `low` on; with `none`, null too, which then means that."""

    def read(value: Any) -> Any:
        if value is None and none is not None:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or value < low:
            other = f", or null ({none})" if none else ""
            raise OptionError(f"is not a whole number from {low} on{other}")
        return value

    return read
