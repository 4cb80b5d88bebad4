"""The error for wrong input of a user, and the wording of messages about unknown names."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager


class InputError(ValueError):
    """Raised for bad input. Each line of the message names the file, the key and the remedy.

    The command line prints the lines and ends with status 2.

    Example:
        >>> from curvebench import find_rule
        >>> find_rule("adamm")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        curvebench.spec.errors.InputError: curvebench has no optimizer 'adamm'; did you mean 'adam'? (...)
    """


class Problems:
    """Errors in an input, collected so that one message reports all of them.

    Args:
        where: beginning of each line, such as `digits.yaml: `.
    """

    def __init__(self, where: str = "") -> None:
        self.where = where
        # The keys of the dictionary are the lines of the message, in the order in which they were added.
        # A problem that is found twice is reported once.
        self.lines: dict[str, None] = {}

    def __bool__(self) -> bool:
        return bool(self.lines)

    def add(self, line: str) -> None:
        """Record a problem. `line` has the key and the reason."""
        self.lines[f"{self.where}{line}"] = None

    @contextmanager
    def caught(self, prefix: str = "") -> Iterator[None]:
        """Record a ValueError that the `with` block raises, and continue after the block.

        Args:
            prefix: text before the error's message, such as the key with a colon.
        """
        try:
            yield
        except ValueError as error:
            self.add(f"{prefix}{error}")

    def known(self, key: str, owner: str, kind: str, names: Iterable[str], valid: Collection[str]) -> None:
        """Record a problem for each name that is not valid.

        Args:
            key: key of the file under which the names are listed.
            owner, kind, valid: the arguments of the function `unknown` with these names.
        """
        for name in names:
            if name not in valid:
                self.add(f"{key}: {unknown(owner, kind, name, valid)}")

    def once(self, key: str, names: Iterable[str], text: str = "{!r} is listed twice; list it once") -> None:
        """Record a problem for each name that occurs more than once.

        Args:
            key: key of the file under which the names are listed.
            text: text of the problem, in which `{!r}` stands for the name.
        """
        for name, count in Counter(names).items():
            if count > 1:
                self.add(f"{key}: {text.format(name)}")

    def check(self) -> None:
        """Raise an error with all recorded problems; do nothing if there are none.

        Raises:
            InputError: with a line for each problem.
        """
        if self.lines:
            raise InputError("\n".join(self.lines))


@contextmanager
def put_aside(broken: dict[str, str] | None, name: str) -> Iterator[None]:
    """Record an InputError that the `with` block raises, and continue after the block.

    Args:
        broken: a dictionary to which the error's message is added; None to raise the error.
        name: key under which the message is added to `broken`, such as the name of a file.
    """
    try:
        yield
    except InputError as error:
        if broken is None:
            raise
        broken[name] = str(error)


# A message that suggests a name also lists all valid names if there are at most this many of them.
MAX_LISTED = 40
# `nearest` suggests a name that begins with the user's text only if the text has at least this many letters.
MIN_PREFIX_LENGTH = 4


def unknown(owner: str, kind: str, name: object, valid: Iterable[str]) -> str:
    """Return the message for an unknown name.

    The message suggests the most similar valid name. The message also lists all valid names if there are at
    most `MAX_LISTED` of them, or if no valid name is similar.

    Args:
        owner, kind: as in "<owner> has no <kind> 'name'".
    """
    names = list(valid)
    near = nearest(name, names)
    too_many = near and len(names) > MAX_LISTED
    listing = f"{len(names)} are valid" if too_many else f"valid: {', '.join(names) or 'none'}"
    return f"{owner} has no {kind} {name!r}{near} ({listing})"


def check_known(owner: str, kind: str, names: Iterable[str], valid: Collection[str], where: str = "") -> None:
    """Check that all names are valid.

    Args:
        owner, kind, valid: the arguments of the function `unknown` with these names.
        names: the names to check.
        where: beginning of the message, such as `--problems: `.

    Raises:
        InputError: for the first name that is not valid.
    """
    for name in names:
        if name not in valid:
            raise InputError(where + unknown(owner, kind, name, valid))


def nearest(name: object, valid: Iterable[str]) -> str:
    """Return the text `; did you mean ...?` with the most similar valid name; empty if no name is similar.

    Case is ignored. If no valid name as a whole is similar to `name`, the text has the first valid name that
    starts with `name`.

    Args:
        name: the unknown name.
        valid: all valid names.
    """
    names, written = {valid_name.lower(): valid_name for valid_name in valid}, str(name).lower()
    longer = [key for key in names if len(written) >= MIN_PREFIX_LENGTH and key.startswith(written)]
    close = difflib.get_close_matches(written, names, n=1) or longer
    return f"; did you mean {names[close[0]]!r}?" if close else ""


def no_beginning(name: str, valid: Iterable[str]) -> str:
    """Return the message for a text that is not the beginning of any valid name.

    If a valid name begins with the same letters in another case, the message suggests the text in that case.
    Otherwise the message suggests the most similar valid name.

    Args:
        name: the text, which a user gave as the beginning of a name.
        valid: all valid names.
    """
    names = list(valid)
    same_letters = [item[: len(name)] for item in names if name and item.lower().startswith(name.lower())]
    near = nearest(name, same_letters or names)
    return f"nothing begins with {name!r}{near}; curvebench list shows all names"


def by_reason(left_out: Mapping[str, str]) -> list[tuple[str, str]]:
    """Group names by the reason why they were left out.

    Args:
        left_out: a mapping from names to reasons. Names with an empty reason are ignored.

    Returns:
        A pair for each reason: the names that were left out for the reason, joined by commas, and the reason.
    """
    names: dict[str, list[str]] = {}
    for name, reason in left_out.items():
        if reason:
            names.setdefault(reason, []).append(name)
    return [(", ".join(group), reason) for reason, group in names.items()]
