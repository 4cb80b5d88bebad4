"""The error that a user's input causes, and what it says about a name that does not exist."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping


class InputError(ValueError):
    """Bad input: the message names the file, the key and what would be right."""


FEW = 40  # names that a message may list


def unknown(owner: str, kind: str, name: object, valid: Iterable[str]) -> str:
    """The message for an unknown name: the nearest valid one, and all where they are few or none is near."""
    names = list(valid)
    near = nearest(name, names)
    others = (
        f"{len(names)} are valid" if near and len(names) > FEW else f"valid: {', '.join(names) or 'none'}"
    )
    return f"{owner} has no {kind} {name!r}{near} ({others})"


def nearest(name: object, valid: Iterable[str]) -> str:
    """`; did you mean ...?` with the nearest valid name, in any case; empty where none is near."""
    names = list(valid)
    others = {one.lower(): one for one in names}
    close = difflib.get_close_matches(str(name), names, n=1) or [
        others[one] for one in difflib.get_close_matches(str(name).lower(), others, n=1)
    ]
    return f"; did you mean {close[0]!r}?" if close else ""


def no_beginning(name: str, valid: Iterable[str]) -> str:
    """The message for what no valid name begins with: how one begins in another case, or the nearest one."""
    names = list(valid)
    alike = [one[: len(name)] for one in names if name and one.lower().startswith(name.lower())]
    return f"nothing begins with {name!r}{nearest(name, alike or names)}; curvebench list shows all names"


def by_reason(left_out: Mapping[str, str]) -> list[tuple[str, str]]:
    """What was left out, the names of one reason joined by commas, and that reason; an empty one is none."""
    names: dict[str, list[str]] = {}
    for name, reason in left_out.items():
        if reason:
            names.setdefault(reason, []).append(name)
    return [(", ".join(own), reason) for reason, own in names.items()]
