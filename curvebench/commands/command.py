"""The definition of a command, and the arguments that several commands share.

The modules of this package import nothing at the top that takes long, so that `curvebench --help` prints at
once. A command imports PyTorch, JAX and Polars in its function.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from argparse import ArgumentTypeError, Namespace
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from math import isfinite, nan
from pathlib import Path
from typing import Any

from curvebench.paths import RESULTS, SITE, STUDY_FOLDER

# Definition of a command's argument: positional and keyword arguments of `ArgumentParser.add_argument`
Argument = tuple[tuple[str, ...], dict[str, Any]]


@dataclass(frozen=True)
class Command:
    """A command of the terminal.

    Args:
        name: the words after `curvebench`: one word, as in `list`, or two words, as in `sets check`. The
            first of two words is the name of a group of commands.
        arguments: arguments of the command, as the function `argument` defines them.
        run: the function that executes the command. It takes the parsed arguments, and returns the exit
            status, or None for status 0. The docstring of the function is the help text of the command. The
            section `Args` of the docstring has the help text of each argument. If an argument has several
            names, the docstring uses the first.
    """

    name: str
    arguments: tuple[Argument, ...]
    run: Callable[[Namespace], int | None]

    @property
    def help(self) -> str:
        """The text that `curvebench NAME --help` prints above the arguments."""
        return (inspect.getdoc(self.run) or "").partition("\n\nArgs:\n")[0]

    @property
    def explained(self) -> list[Argument]:
        """The arguments of the command with their help texts.

        Raises:
            KeyError: when neither the definition of an argument nor the docstring of `run` has its help text.
        """
        text = inspect.getdoc(self.run) or ""
        texts = dict(re.findall(r"^    (\S+): (.*(?:\n {8}.*)*)", text, re.MULTILINE))
        return [
            (names, options if "help" in options else {**options, "help": texts[names[0]]})
            for names, options in self.arguments
        ]

    @property
    def about(self) -> str:
        """First line of the help, for lists of commands. It has a small first letter and no final dot."""
        line = self.help.partition("\n")[0].rstrip(".")
        return line[0].lower() + line[1:]


def argument(*names: str, **options: Any) -> Argument:
    """Define an argument of a command.

    Args:
        names, options: positional and keyword arguments of `ArgumentParser.add_argument`.
    """
    return names, options


def command(name: str, *arguments: Argument) -> Callable[[Callable[[Namespace], int | None]], Command]:
    """Return a decorator that turns a function of the parsed arguments into a command.

    Args:
        name: the words after `curvebench` that call the command.
        arguments: arguments of the command, as the function `argument` defines them.
    """
    return partial(Command, name, arguments)


def positive(text: str) -> int:
    """Parse an argument that is a whole number above 0.

    Raises:
        ArgumentTypeError: when the text is not such a number.
    """
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def positive_number(text: str) -> float:
    """Parse an argument that is a finite number above 0.

    Raises:
        ArgumentTypeError: when the text is not such a number.
    """
    try:
        number = float(text)
    except ValueError:
        number = nan
    if not (isfinite(number) and number > 0):
        raise ArgumentTypeError(f"{text!r} is not a finite number above 0")
    return number


def folder(name: str, default: Path, text: str) -> Argument:
    """Define an option whose value is the path of a folder.

    Args:
        name: name of the option, such as `--results`.
        default: default value of the option.
        text: help text of the option; the default value is added to the text.
    """
    return argument(name, type=Path, default=default, metavar="FOLDER", help=f"{text} (default: %(default)s)")


CORES = argument(
    "--cores", default="all", metavar="N", help="CPU cores to use, or all (default: %(default)s)"
)
OPEN = argument("--open", action="store_true", help="open the page of the comparison in a browser")
JSON = argument("--json", action="store_true", help="print JSON instead of text")
PLAN = argument(
    "--plan",
    type=Path,
    required=True,
    metavar="FILE",
    help=f"plan of the report: {SITE / 'plan.json'}, or plan.json of a published set",
)
RESULTS_FOLDER = folder("--results", RESULTS, "folder of specs, runs and tables")
OUTPUT = (CORES, OPEN, JSON, RESULTS_FOLDER)
SCALE = argument(
    "--scale",
    default="quick",
    metavar="NAME",
    help="scale, such as paper, which sets the numbers of runs, steps and instances (default: %(default)s)",
)
STUDIES = argument(
    "--studies",
    type=Path,
    default=STUDY_FOLDER,
    metavar="FOLDER",
    help="folder of study files (default: the studies of curvebench, and those in the folder studies)",
)
STUDY_NAMES = argument(
    "names", nargs="*", metavar="STUDY", help="study names or claim ids (default: all studies)"
)


def print_json(content: Any) -> None:
    """Print a value as JSON."""
    print(json.dumps(content, indent=1))


def print_left_out(broken: Mapping[str, str]) -> None:
    """Print on standard error why studies, packages or files cannot be used.

    Args:
        broken: the reasons, by name of the study, package or file.
    """
    print("".join(f"left out: {reason}\n" for reason in broken.values()), end="", file=sys.stderr)


def present(content: Mapping[str, Any], text: str, page: Path, args: Namespace) -> None:
    """Print the result of a command and the path of its page, and open the page if the user wants it.

    Args:
        content: the result in JSON types, which is printed with `--json`.
        text: the result for people, which is printed otherwise.
        page: the page.
        args: arguments of the command, with `json` and `open`.
    """
    if args.json:
        print_json({**content, "page": str(page)})
    else:
        print(f"{text}\n\nPage: {page}")
    if args.open:
        import webbrowser

        webbrowser.open(page.as_uri())
