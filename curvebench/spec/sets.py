"""Published sets: their folder, what they may be called, what may be waived, and pages that show one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from curvebench.spec.errors import InputError

PLAN, PROVENANCE = "plan.json", "provenance.json"
SUMS = "SHA256SUMS"  # the file by which a folder is known as a set
NAME = re.compile(r"[a-z][a-z0-9]*([.-][a-z0-9]+)*")
LONGEST_NAME = 60
EXAMPLE = "such as digits-quick.2026-11"

WAIVERS = {
    "dirty": "jobs of unknown or uncommitted code",
    "hardware": "mixed hardware",
    "tuning": "unequal tuning budgets",
    "failures": "runs and other parts of jobs that failed",
    "rules": "rules of claims that changed after the runs were planned",
}


def set_folders(folder: Path) -> list[Path]:
    """Return the folders of the published sets in a folder, in order of name."""
    return sorted(path.parent for path in folder.glob(f"*/{SUMS}"))


def check_name(name: object, folder: Path) -> str:
    """The name of a new set.

    Raises:
        InputError: when it is missing, has other letters than it may, or is taken.
    """
    if name is None:
        raise InputError(f"a set needs a name, {EXAMPLE}: add --config name=NAME")
    checked = check_letters(name)
    if (folder / checked).exists():
        raise InputError(
            f"{folder / checked}: is there already, and a published set is never changed; choose another name"
        )
    return checked


def check_letters(name: object) -> str:
    """A name of a set, new or old.

    Raises:
        InputError: when it has other letters than it may.
    """
    if not isinstance(name, str) or not NAME.fullmatch(name) or len(name) > LONGEST_NAME:
        raise InputError(
            f"name: {name!r} will not do; it begins with a small letter, and goes on with small letters, "
            f"digits, and single dots or hyphens between them, {LONGEST_NAME} in all at most, {EXAMPLE}"
        )
    return name


def check_seeds(taken_from: Path | str | None) -> None:
    """Check that studies drew seeds of their own, since claims are judged on seeds that nobody has seen.

    Raises:
        InputError: where they drew those of a published set.
    """
    if taken_from is not None:
        raise InputError(
            f"seeds_of: these runs are on the seeds of {taken_from}; run them without, and publish those"
        )


def check_waivers(kinds: Sequence[str]) -> tuple[str, ...]:
    """The kinds of objections that are waived.

    Raises:
        InputError: for one that is not known.
    """
    for kind in kinds:
        if kind not in WAIVERS:
            raise InputError(f"waive: {kind!r} is nothing that can be waived (valid: {', '.join(WAIVERS)})")
    return tuple(kind for kind in WAIVERS if kind in kinds)


BEGIN, END = "<!-- leaderboard:begin -->", "<!-- leaderboard:end -->"


def check_page(file: Path) -> None:
    """Check that a page has a place for a leaderboard.

    Raises:
        InputError: when it cannot be read, or has not both markers once and in order.
    """
    try:
        text = file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file}: cannot be read ({error}); name a page with the line {BEGIN}") from error
    between_markers(text, file, [])


def between_markers(text: str, file: Path, lines: Iterable[str]) -> str:
    """A page with what stands between the markers of the leaderboard replaced.

    Args:
        file: where the text comes from, for messages.

    Raises:
        InputError: unless the page has both markers once and in order.
    """
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise InputError(f"{file}: needs the line {BEGIN} and below it {END}, each once; put them back")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return "\n".join([before + BEGIN, *lines, END]) + after
