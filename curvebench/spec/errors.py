"""The error that a user's input causes, and what it says about a name that does not exist."""

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
        where: the beginning of each line, such as `digits.yaml: `.
    """

    def __init__(self, where: str = "") -> None:
        self.where = where
        self.lines: dict[str, None] = {}  # a problem that is met twice is one

    def __bool__(self) -> bool:
        return bool(self.lines)

    def add(self, line: str) -> None:
        """Report a problem: its key, and what is wrong there."""
        self.lines[f"{self.where}{line}"] = None

    @contextmanager
    def caught(self, before: str = "") -> Iterator[None]:
        """Report the error of the block, and go on after it.

        Args:
            before: what the line says before the error's message, such as its key.
        """
        try:
            yield
        except ValueError as error:
            self.add(f"{before}{error}")

    def known(self, key: str, owner: str, kind: str, names: Iterable[str], valid: Collection[str]) -> None:
        """Report each name that is not valid; the other arguments are those of `unknown`."""
        for name in names:
            if name not in valid:
                self.add(f"{key}: {unknown(owner, kind, name, valid)}")

    def once(
        self, key: str, names: Iterable[str], said: str = "{!r} stands here twice; name it once"
    ) -> None:
        """Report each name that is given more than once, in the words of `said`."""
        for name, count in Counter(names).items():
            if count > 1:
                self.add(f"{key}: {said.format(name)}")

    def check(self) -> None:
        """Check that nothing was reported.

        Raises:
            InputError: with all lines.
        """
        if self.lines:
            raise InputError("\n".join(self.lines))


MAX_LISTED = 40  # names that a message may list
MIN_PREFIX_LENGTH = 4  # letters of a beginning that a name may be meant by


def unknown(owner: str, kind: str, name: object, valid: Iterable[str]) -> str:
    """The message for an unknown name: the nearest valid one, and all where they are few or none is near."""
    names = list(valid)
    near = nearest(name, names)
    too_many = near and len(names) > MAX_LISTED
    listing = f"{len(names)} are valid" if too_many else f"valid: {', '.join(names) or 'none'}"
    return f"{owner} has no {kind} {name!r}{near} ({listing})"


def nearest(name: object, valid: Iterable[str]) -> str:
    """`; did you mean ...?` with the nearest valid name in any case, or else the first that begins so."""
    names, written = {one.lower(): one for one in valid}, str(name).lower()
    begun = [one for one in names if len(written) >= MIN_PREFIX_LENGTH and one.startswith(written)]
    close = difflib.get_close_matches(written, names, n=1) or begun
    return f"; did you mean {names[close[0]]!r}?" if close else ""


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
