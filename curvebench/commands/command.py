"""What a command is, and the arguments that commands share; nothing heavy is imported here."""

from __future__ import annotations

import inspect
import json
from argparse import ArgumentTypeError, Namespace
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import isfinite, nan
from pathlib import Path
from typing import Any

from curvebench.paths import RESULTS, STUDY_FOLDER

Argument = tuple[tuple[str, ...], dict[str, Any]]  # what `ArgumentParser.add_argument` is called with


@dataclass(frozen=True)
class Command:
    """A command.

    Args:
        name: one word, or two, of which the first is a group's.
        run: does it; returns the exit status, where it is not always 0. It imports what it needs, and its
            docstring is the help.
    """

    name: str
    arguments: tuple[Argument, ...]
    run: Callable[[Namespace], int | None]

    @property
    def help(self) -> str:
        return inspect.getdoc(self.run) or ""

    @property
    def about(self) -> str:
        """A line of help, as it stands in lists."""
        line = self.help.partition("\n")[0].rstrip(".")
        return line[0].lower() + line[1:]


def argument(*names: str, **options: Any) -> Argument:
    """An argument of a command."""
    return names, options


def command(name: str, *arguments: Argument) -> Callable[[Callable[[Namespace], int | None]], Command]:
    """Make a function of the parsed arguments a command."""
    return partial(Command, name, arguments)


def positive(text: str) -> int:
    """The whole number above 0 that an argument is.

    Raises:
        ArgumentTypeError: for anything else.
    """
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def positive_number(text: str) -> float:
    """The finite number above 0 that an argument is.

    Raises:
        ArgumentTypeError: for anything else.
    """
    try:
        number = float(text)
    except ValueError:
        number = nan
    if not (isfinite(number) and number > 0):
        raise ArgumentTypeError(f"{text!r} is not a finite number above 0")
    return number


def folder(name: str, default: Path, about: str) -> Argument:
    """An option that names a folder."""
    return argument(
        name, type=Path, default=default, metavar="FOLDER", help=f"{about} (default: %(default)s)"
    )


JSON = argument("--json", action="store_true", help="print JSON for programs")
PLAN = argument("--plan", type=Path, required=True, help="the plan JSON that Snakemake wrote")
RESULTS_FOLDER = folder("--results", RESULTS, "results folder")
SCALE = argument("--scale", default="quick", metavar="NAME", help="default: %(default)s")
STUDIES = folder("--studies", STUDY_FOLDER, "study files")
STUDY_NAMES = argument(
    "names", nargs="*", metavar="STUDY", help="file stems or claim ids (default: all studies)"
)


def print_json(content: Any) -> None:
    """Print what a program reads."""
    print(json.dumps(content, indent=1))
