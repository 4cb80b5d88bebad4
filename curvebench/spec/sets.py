"""Published sets: names of their files, valid names of sets, waivers, and pages that show a leaderboard.

A published set is a folder with the results of a report, which never changes again. A waiver lets a set be
published although it violates a requirement; the set and its pages then report the violation.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from curvebench.spec.errors import InputError

PLAN, PROVENANCE = "plan.json", "provenance.json"
# A folder with a file of this name is a published set.
SUMS = "SHA256SUMS"
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
    """Return the folders of the published sets in a folder, sorted by name."""
    return sorted(path.parent for path in folder.glob(f"*/{SUMS}"))


def check_name(name: object, folder: Path) -> str:
    """Check the name of a new set, and return it.

    Raises:
        InputError: when the name is missing, is not valid, or is taken.
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
    """Check that the name of a new or an existing set has valid characters, and return it.

    Raises:
        InputError: when the name is no text, has invalid characters, or is too long.
    """
    if not isinstance(name, str) or not NAME.fullmatch(name) or len(name) > LONGEST_NAME:
        raise InputError(
            f"name: {name!r} is not valid; it begins with a small letter, followed by small letters, digits, "
            f"and single dots or hyphens between them, at most {LONGEST_NAME} characters in all, {EXAMPLE}"
        )
    return name


def check_seeds(taken_from: Path | str | None) -> None:
    """Refuse to publish runs that used the seeds of a published set again.

    Claims must be judged on seeds whose results nobody knew when the study was written.

    Args:
        taken_from: the set whose seeds the runs used; None if the runs have seeds of their own.

    Raises:
        InputError: unless `taken_from` is None.
    """
    if taken_from is not None:
        raise InputError(
            f"seeds_of: these runs took the seeds of {taken_from}; publish runs without seeds_of"
        )


def check_waivers(kinds: Sequence[str]) -> tuple[str, ...]:
    """Check the kinds of objections that a user waives, and return the kinds in the order of `WAIVERS`.

    Args:
        kinds: keys of `WAIVERS`.

    Raises:
        InputError: for an unknown kind.
    """
    for kind in kinds:
        if kind not in WAIVERS:
            raise InputError(f"waive: {kind!r} cannot be waived (valid: {', '.join(WAIVERS)})")
    return tuple(kind for kind in WAIVERS if kind in kinds)


BEGIN, END = "<!-- leaderboard:begin -->", "<!-- leaderboard:end -->"


def check_page(file: Path) -> None:
    """Check that a page has the two markers between which a leaderboard can be written, `BEGIN` and `END`.

    Raises:
        InputError: when the page cannot be read, or does not have each marker exactly once with `BEGIN`
            first.
    """
    try:
        text = file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file}: cannot be read ({error}); name a page with the line {BEGIN}") from error
    between_markers(text, file, [])


def between_markers(text: str, file: Path, lines: Iterable[str]) -> str:
    """Return the text of a page with the lines between the markers of the leaderboard replaced.

    Args:
        text: the page.
        file: path of the page, for messages.
        lines: the new lines.

    Raises:
        InputError: unless the page has each of the markers `BEGIN` and `END` exactly once, with `BEGIN`
            first.
    """
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise InputError(f"{file}: needs the line {BEGIN} and below it {END}, each once; put them back")
    head, _, _ = text.partition(BEGIN)
    _, _, tail = text.partition(END)
    return "\n".join([head + BEGIN, *lines, END]) + tail
