"""Options: named choices about a rule or a basis that are not numbers to tune.

A study file sets an option by a line such as `nesterov: false`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from curvebench.spec.values import Option, completed

Options = Mapping[str, Any]


class OptionError(ValueError):
    """Raised for an unknown option or a wrong value; the message lists the valid options or values."""


def complete(owner: str, options: Mapping[str, Option], chosen: Options) -> dict[str, Any]:
    """Check options of a rule or basis, convert their values, and add the defaults of missing options.

    Raises:
        OptionError: for an unknown option or a wrong value.
    """
    return completed(owner, "option", options, chosen, OptionError)
