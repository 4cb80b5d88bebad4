"""The command line, `curvebench` or `python -m curvebench`: all commands, and how bad input is answered."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence

from curvebench import __version__
from curvebench.commands import catalogue, claims, images, runs, sets, site, studies, tables, trying
from curvebench.commands.command import Command
from curvebench.spec.errors import InputError

COMMANDS: Mapping[str, tuple[Command, ...]] = {
    "look around": (catalogue.list_names, studies.check, studies.convert, runs.show),
    "run": (trying.try_method, studies.plan, studies.estimate, runs.run),
    "compare backends and submissions": (site.parity, site.score),
    "claims": (claims.check, claims.verdicts),
    "pages": (site.site, site.figures, site.failures),
    "published sets": (sets.check, sets.reproduce, sets.compare, sets.publish, sets.renew),
    "images": (images.index, images.decode),
    "tables": (tables.export, tables.seconds, tables.merge),
}
EXAMPLES = """examples:
  curvebench list                            workloads, optimizers, bases, studies, claims
  curvebench check convex                    is this study valid? takes two steps of each rule
  curvebench try my.py:Lion                  where does my optimizer stand in the field? minutes
  curvebench plan scale=paper                what would be run? computes and writes nothing
  curvebench estimate --scale paper          how long will it take? measures for minutes
  curvebench parity adam                     does it take the same steps on torch, jax and numpy?
  curvebench claims check notes.regret       does this claim hold on random instances?
  curvebench sets reproduce egop.convex      run one claim again beside a published set
  curvebench show 3f9a6c1e5b7d-0004          one run: its settings, metrics and curve

`curvebench COMMAND --help` explains one. The main job is `snakemake --cores all reports`;
`snakemake -n reports` shows what it would do."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit status, or 2 for bad input, said in a line for each problem."""
    given = _parser().parse_args(arguments)
    try:
        status = given.run(given) or 0
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of a pipe, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (InputError, OSError) as error:  # OSError: a read-only or full folder, a lost file
        for line in _message(error).splitlines():
            print(f"error: {line}", file=sys.stderr)
        return 2
    return status


def _message(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"{error.filename or 'a file'}: {error.strerror}; make room there, or name another folder"
    return str(error)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="curvebench",
        usage="curvebench [-h] COMMAND ...",
        description=f"Benchmark optimizers, and check what is claimed of them.\n\n{_overview()}",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"curvebench {__version__}")
    places = {
        "": parser.add_subparsers(required=True, metavar="COMMAND", prog="curvebench", help=argparse.SUPPRESS)
    }
    for command in (command for part in COMMANDS.values() for command in part):
        group, _, name = command.name.rpartition(" ")
        if group not in places:
            places[group] = places[""].add_parser(group).add_subparsers(required=True, metavar="COMMAND")
        one = places[group].add_parser(name, help=command.about, description=command.help)
        for names, options in command.arguments:
            one.add_argument(*names, **options)
        one.set_defaults(run=command.run)
    return parser


def _overview() -> str:
    """All commands, by what one wants."""
    parts = []
    for title, commands in COMMANDS.items():
        parts += [f"{title}:", *(f"  {command.name:16} {command.about}" for command in commands)]
    return "\n".join(parts)


if __name__ == "__main__":
    sys.exit(main())
