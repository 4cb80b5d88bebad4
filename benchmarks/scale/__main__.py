"""Plans and tables of any size, and what they take: `python -m benchmarks.scale rows|plan|measure`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.scale.measuring import MEASURED, as_text
from benchmarks.scale.plans import write_studies
from benchmarks.scale.rows import write_report


def main(arguments: Sequence[str] | None = None) -> int:
    """Write what is asked for, or measure it; bad input ends it with a message and status 1."""
    given = _parser().parse_args(arguments)
    try:
        if given.command == "rows":
            print(write_report(given.out, given.rows))
        elif given.command == "plan":
            print(write_studies(given.out, given.jobs))
        else:
            print(as_text(MEASURED[given.what](given.folder)))
    except (OSError, ValueError, RuntimeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    rows = commands.add_parser("rows", help="write a report's plan and made-up tables of a study")
    rows.add_argument("--rows", type=_count, required=True, help="of curves, at least")
    plan = commands.add_parser("plan", help="write studies for the main job")
    plan.add_argument("--jobs", type=_count, required=True, help="at least")
    for writing in (rows, plan):
        writing.add_argument(
            "--out", type=Path, required=True, metavar="DIR", help="a folder that is not there"
        )
    measure = commands.add_parser(
        "measure", help="run what reads them in child processes: seconds and memory"
    )
    measure.add_argument(
        "what", choices=MEASURED, help="report: of `rows`, figures and site; plan: of `plan`, snakemake -n"
    )
    measure.add_argument("folder", type=Path, metavar="DIR", help="what `rows` or `plan` wrote")
    return parser


def _count(text: str) -> int:
    """A number from 1 on.

    Raises:
        argparse.ArgumentTypeError: for anything else.
    """
    if not (text.isascii() and text.replace("_", "").isdigit() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is no number above 0")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
