"""What the commands that time kernels share: arguments, and the error where nothing fits a pattern."""

from __future__ import annotations

import argparse
import sys


def timing_parser(
    name: str, description: str, repetitions: int, pattern: str = "", of: str = ""
) -> argparse.ArgumentParser:
    """The parser of `python -m benchmarks.kernels.NAME`.

    Args:
        name, description: of the command.
        repetitions: how many samples are taken of each contestant unless `--repetitions` says otherwise.
        pattern: the option that chooses among contestants by a regular expression; empty for none.
        of: what it chooses, such as `rules whose name contains this`.
    """
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.kernels.{name}", description=description)
    if pattern:
        parser.add_argument(f"--{pattern}", default="", metavar="REGEX", help=f"only {of}")
    words = f"samples of each ({repetitions}); 6 give intervals of 95 %%"
    parser.add_argument("--repetitions", type=_positive, default=repetitions, help=words)
    return parser


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return int(text)


def nothing_fits(option: str, pattern: str, reason: str) -> int:
    """Say that a pattern chose nothing; returns the exit status."""
    print(f"error: --{option} {pattern!r}: {reason}", file=sys.stderr)
    return 2
