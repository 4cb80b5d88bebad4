"""The commands of published sets: `python -m reports publish`, `verify`, `reproduce` and `compare`."""

from __future__ import annotations

import argparse
import shlex
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from reports.plan import ReportPlan, read_plan
from results.set_names import FOLDER, WAIVERS

Say = Callable[[str], None]


def add_commands(commands: Any) -> None:
    """Add the commands to those of `python -m reports`."""
    publish = commands.add_parser("publish", help="write the tables of a report as a published set")
    publish.add_argument("--plan", type=Path, required=True, help="the plan JSON that Snakemake wrote")
    publish.add_argument("--name", required=True, help="the set's name, a new one")
    publish.add_argument("--folder", type=Path, default=FOLDER, help="where sets lie (default: %(default)s)")
    publish.add_argument(
        "--readme", type=Path, help="page whose leaderboard becomes the set's (default: none)"
    )
    publish.add_argument(
        "--waive",
        nargs="*",
        default=[],
        metavar="KIND",
        help="publish in spite of: " + "; ".join(f"{kind} ({what})" for kind, what in WAIVERS.items()),
    )

    verify = commands.add_parser("verify", help="compute verdicts and leaderboard of a published set anew")
    verify.add_argument("folder", type=Path, metavar="FOLDER", help="the set's folder")

    reproduce = commands.add_parser("reproduce", help="run one claim again beside a published set")
    reproduce.add_argument("claim", metavar="CLAIM", help="the claim's id")
    reproduce.add_argument(
        "--published", type=Path, metavar="SET", help=f"the set's folder (default: the newest in {FOLDER})"
    )
    reproduce.add_argument("--scale", help="take a set of this scale (default: any)")
    reproduce.add_argument(
        "--cores", type=cores, default="all", help="how many for Snakemake, or all (default: %(default)s)"
    )
    reproduce.add_argument(
        "--results", type=Path, metavar="DIR", help="where to run it (default: .cache/reproduced/CLAIM)"
    )

    compare = commands.add_parser("compare", help="set two published sets, or two checkouts, side by side")
    compare.add_argument("before", type=Path, metavar="A", help="a published set, or a checkout with a site")
    compare.add_argument("after", type=Path, metavar="B", help="another one")
    compare.add_argument("--out", type=Path, required=True, metavar="FILE", help="the page, FILE.html")


def cores(text: str) -> str:
    """How many cores Snakemake may take: a positive number, or all.

    Raises:
        argparse.ArgumentTypeError: for anything else.
    """
    if text != "all" and not (text.isascii() and text.isdigit() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is neither a number above 0 nor all")
    return text


def run_command(options: argparse.Namespace, say: Say) -> int:
    """Run one of the commands; returns the exit status.

    Args:
        say: takes what is to be printed, and prints it at once.

    Raises:
        ReportError, TableError, OSError: as what they call.
    """
    return COMMANDS[options.command](options, say)


def render_published(plan: ReportPlan, out: Path, tell: Say) -> Path:
    """Render the site of a published set, its figures drawn from its tables; returns the first page.

    Args:
        tell: is told what is done next.
    """
    from reports.publish import drawn
    from reports.site import render_site

    with tempfile.TemporaryDirectory() as folder:
        return render_site(drawn(plan, Path(folder), tell), out, tell)


def _publish(options: argparse.Namespace, say: Say) -> int:
    from reports.publish import publish

    plan = read_plan(options.plan)
    folder = publish(plan, options.name, options.folder, options.waive, options.readme)
    say(f"published: {folder}; check it with python -m results check {shlex.quote(str(folder))}")
    return 0


def _verify(options: argparse.Namespace, say: Say) -> int:
    from reports.publish import disagreements

    found = disagreements(options.folder)
    say(
        "\n".join(found)
        if found
        else f"{options.folder}: claims, findings and leaderboard follow from its tables"
    )
    return 1 if found else 0


def _reproduce(options: argparse.Namespace, say: Say) -> int:
    from reports.publish import read_set
    from reports.reproduce import (
        STATUS,
        announced,
        as_text,
        check_asked,
        choose_set,
        command,
        compared,
        configuration,
        planned,
        result_folder,
        run_again,
        summed_up,
    )

    chosen = options.published or choose_set(options.claim, FOLDER, options.scale, say)
    published = read_set(chosen)
    check_asked(options.claim, options.scale, published)
    results = options.results or result_folder(options.claim)
    config = configuration(options.claim, published, results)
    with tempfile.TemporaryDirectory() as folder:
        now, jobs = planned(config, Path(folder))
    for line in announced(options.claim, published, now, jobs):
        say(line)
    called = command(options.cores, config)
    say(shlex.join(called))
    again = run_again(called, results)
    lines = compared(options.claim, published, again)
    say(as_text(options.claim, published, lines))
    return STATUS[summed_up(lines)]


def _compare(options: argparse.Namespace, say: Say) -> int:
    from reports.regression import compare

    say(str(compare(options.before, options.after, options.out)))
    return 0


COMMANDS = {"publish": _publish, "verify": _verify, "reproduce": _reproduce, "compare": _compare}
