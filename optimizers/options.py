"""Options: the named choices that a study makes about a rule or a basis."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from curvebench.spec.values import Option, completed

Options = Mapping[str, Any]


class OptionError(ValueError):
    """An option that is unknown or wrong; the message says what would be right."""


def complete(owner: str, options: Mapping[str, Option], given: Options) -> dict[str, Any]:
    """The given options of a rule or basis checked, brought into one form and completed by the defaults.

    Raises:
        OptionError: for an unknown option or a wrong value.
    """
    return completed(owner, "option", options, given, OptionError)
