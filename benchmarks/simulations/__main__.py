"""`python -m benchmarks.simulations`: check the statistics by simulation, and write down what comes out."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.progress import Progress

from .experiment import experiments, table

HEADING = "## What simulations say\n"  # what it replaces starts here and ends at the next such heading


def replaced(page: str, tables: Mapping[str, str], names: Sequence[str]) -> str:
    """The page with new tables under `HEADING`; those of other names stay, unknown ones go.

    Args:
        page: Markdown.
        tables: by the experiment's name.
        names: of all experiments, in order.

    Raises:
        ValueError: where the page has no such heading.
    """
    before, heading, rest = page.partition(HEADING)
    if not heading:
        raise ValueError(f"no line {HEADING.strip()!r} to write tables under")
    section, after, end = rest.partition("\n## ")
    introduction, *there = re.split(r"^### ", section, flags=re.MULTILINE)
    kept = {text.splitlines()[0]: f"### {text.rstrip()}\n" for text in there}
    kept.update(tables)
    body = "\n".join(kept[name] for name in names if name in kept)
    return before + heading + introduction.rstrip() + "\n\n" + body + after + end


def main(arguments: Sequence[str] | None = None) -> int:
    """Run experiments and print their tables; 0, or 2 where something cannot be done."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.simulations", description=__doc__)
    parser.add_argument("--only", default="", metavar="REGEX", help="experiments whose name has this")
    parser.add_argument("--trials", type=int, default=10_000, help="simulated studies for each number")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="replace the tables of this page")
    given = parser.parse_args(arguments)
    if given.trials < 1:
        parser.error("--trials must be at least 1")
    everything = experiments()
    chosen = [one for one in everything if re.search(given.only, one.name)]
    if not chosen:
        names = ", ".join(one.name for one in everything)
        parser.error(f"no experiment's name has {given.only!r}; there are: {names}")
    try:
        if given.write is not None:
            replaced(given.write.read_text(), {}, [])
    except (OSError, ValueError) as error:
        parser.error(f"{given.write}: {error}")
    tables = {}
    progress = Progress("simulations", len(chosen), even=False)
    outside = 0
    for one in chosen:
        results = one.results(given.trials)
        outside += sum(result.outside for result in results)
        tables[one.name] = table(one, results)
        print(tables[one.name], flush=True)
        progress.advance(1, one.name)
    print(f"{outside} outside what is asked", file=sys.stderr)
    if given.write is not None:
        page = given.write.read_text()
        given.write.write_text(replaced(page, tables, [one.name for one in everything]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
