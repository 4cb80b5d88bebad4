"""Published sets: their folder, what they may be called, and what may be waived; needs no library."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from results.errors import TableError

FOLDER = Path("results/published")
SUMS = "SHA256SUMS"  # the file by which a folder is known as a set
NAME = re.compile(r"[a-z][a-z0-9]*([.-][a-z0-9]+)*")
LONGEST_NAME = 60
EXAMPLE = "such as digits-quick.2026-11"

WAIVERS = {
    "dirty": "jobs of unknown or uncommitted code",
    "hardware": "mixed hardware",
    "tuning": "unequal tuning budgets",
    "rules": "rules of claims that changed after the runs were planned",
}


def check_name(name: object, folder: Path) -> str:
    """The name of a new set.

    Raises:
        TableError: when it is missing, has other letters than it may, or is taken.
    """
    if name is None:
        raise TableError(f"a set needs a name, {EXAMPLE}: add --config name=NAME")
    checked = check_letters(name)
    if (folder / checked).exists():
        raise TableError(
            f"{folder / checked}: is there already, and a published set is never changed; choose another name"
        )
    return checked


def check_letters(name: object) -> str:
    """A name of a set, new or old.

    Raises:
        TableError: when it has other letters than it may.
    """
    if not isinstance(name, str) or not NAME.fullmatch(name) or len(name) > LONGEST_NAME:
        raise TableError(
            f"name: {name!r} will not do; it begins with a small letter, and goes on with small letters, "
            f"digits, and single dots or hyphens between them, {LONGEST_NAME} in all at most, {EXAMPLE}"
        )
    return name


def check_waivers(kinds: Sequence[str]) -> tuple[str, ...]:
    """The kinds of objections that are waived.

    Raises:
        TableError: for one that is not known.
    """
    for kind in kinds:
        if kind not in WAIVERS:
            raise TableError(f"waive: {kind!r} is nothing that can be waived (valid: {', '.join(WAIVERS)})")
    return tuple(kind for kind in WAIVERS if kind in kinds)
