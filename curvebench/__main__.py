"""The command line, `curvebench` or `python -m curvebench`: the list of commands and the report of errors."""

from __future__ import annotations

import argparse
import gc
import os
import signal
import sys
from collections.abc import Mapping, Sequence

try:
    from curvebench import __version__
    from curvebench.commands import (
        catalogue,
        claims,
        comparing,
        images,
        runs,
        sets,
        site,
        studies,
        tables,
        trying,
    )
    from curvebench.commands.command import Command
    from curvebench.spec.errors import InputError
except KeyboardInterrupt:
    print("interrupted", file=sys.stderr)
    sys.exit(128 + signal.SIGINT)

COMMANDS: Mapping[str, tuple[Command, ...]] = {
    "explore": (catalogue.list_names, studies.check, runs.show),
    "run": (
        comparing.compare_model,
        comparing.more,
        trying.try_method,
        studies.plan,
        studies.estimate,
        runs.run,
    ),
    "compare backends and submissions": (site.parity, site.score),
    "claims": (claims.check, claims.verdicts),
    "pages": (site.site, site.figures, site.failures),
    "published sets": (sets.check, sets.reproduce, sets.compare, sets.publish, sets.renew),
    "images": (images.index, images.decode),
    "tables": (tables.clean, tables.export, tables.seconds, tables.merge),
}
EXAMPLES = """examples:
  curvebench list                          which workloads, optimizers, studies, claims are there?
  curvebench check convex                  is the study "convex" valid? (seconds)
  curvebench compare my_model.py --model GRU --train data   which optimizer trains my model best? (minutes)
  curvebench try my.py:Lion                how does my optimizer rank in the field? (minutes)
  curvebench plan scale=paper              which jobs would be run? (computes and writes nothing)
  curvebench estimate --scale paper        how long would all studies take? (measures for minutes)
  curvebench parity adam                   does adam take equal steps on torch, jax and numpy?
  curvebench claims check notes.regret     does this claim hold on random instances?
  curvebench sets reproduce egop.convex    does a new run agree with the published set?
  curvebench show 3f9a6c1e5b7d-0004        what are the settings, metrics and curves of this run?

`curvebench COMMAND --help` explains a command and its options. The main job runs studies and
renders the report: `snakemake --cores all reports`. `snakemake -n reports` prints its plan."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: the words after `curvebench` on the command line; None for the arguments of this process.

    Returns:
        The exit status of the command. For bad input it is 2, after one line per problem on standard error.
        For an interrupt by the user (Ctrl-C) it is 130, after one line on standard error.

    Raises:
        SystemExit: when `arguments` are not a valid command with valid arguments, or ask for help.
    """
    words = sys.argv[1:] if arguments is None else arguments
    is_job = runs.run.name in words[:1]
    # Tables are small, so that further threads would take processor time and save none.
    # Snakemake also runs several commands at once.
    os.environ.setdefault("POLARS_MAX_THREADS", "1")
    # Collect garbage less often, since each collection visits all objects, most of which belong to libraries.
    # Jobs (`curvebench run`) are the exception, because JAX frees memory in collections.
    if not is_job:
        gc.set_threshold(50_000, 20, 20)
    try:
        args = _parser().parse_args(words)
        status = args.run(args) or 0
        sys.stdout.flush()
    except BrokenPipeError:
        # Standard output is a pipe whose reader, such as `head`, has ended.
        # The redirection keeps the interpreter from failing again when it flushes the output at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt as error:
        # The supervisor of a job expects that the process of the job dies from a signal.
        if is_job:
            raise
        print(str(error) or "interrupted", file=sys.stderr)
        return 128 + signal.SIGINT
    # An OSError means that a folder is read-only or full, or that a file is missing.
    except (InputError, OSError) as error:
        for line in _message(error).splitlines():
            print(f"error: {line}", file=sys.stderr)
        return 2
    return status


def _message(error: Exception) -> str:
    """Return the message of an error. For an OSError, it consists of file, reason and remedy."""
    if isinstance(error, OSError):
        is_wrong_name = isinstance(error, FileNotFoundError | IsADirectoryError)
        remedy = "" if is_wrong_name else "; make room there, or name another folder"
        return f"{error.filename or 'a file'}: {error.strerror}{remedy}"
    return str(error)


def _parser() -> argparse.ArgumentParser:
    """Return the parser of all commands. The parsed arguments have the function of the command as `run`."""
    parser = argparse.ArgumentParser(
        prog="curvebench",
        usage="curvebench [-h] COMMAND ...",
        description=f"Benchmark optimizers, and check the claims of papers about them.\n\n{_overview()}",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"curvebench {__version__}")
    groups = {
        "": parser.add_subparsers(required=True, metavar="COMMAND", prog="curvebench", help=argparse.SUPPRESS)
    }
    for command in (command for commands in COMMANDS.values() for command in commands):
        group, _, name = command.name.rpartition(" ")
        if group not in groups:
            groups[group] = groups[""].add_parser(group).add_subparsers(required=True, metavar="COMMAND")
        subparser = groups[group].add_parser(name, help=command.about, description=command.help)
        for names, options in command.explained:
            subparser.add_argument(*names, **options)
        subparser.set_defaults(run=command.run)
    return parser


def _overview() -> str:
    """Return a list of all commands under the titles of COMMANDS, each with the first line of its help."""
    lines = []
    for title, commands in COMMANDS.items():
        lines += [f"{title}:", *(f"  {command.name:16} {command.about}" for command in commands)]
    return "\n".join(lines)


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # Exit without the shutdown of the interpreter, in which libraries spend up to 0.7 s.
    os._exit(status)
