"""`curvebench site`, `failures`, `figures` and `score`: what runs have shown."""

from __future__ import annotations

import sys
import tempfile
from argparse import Namespace
from functools import partial
from pathlib import Path

from curvebench.command import JSON, PLAN, argument, command
from documents.errors import InputError
from harness.paths import SITE


@command(
    "site",
    PLAN,
    argument("--out", type=Path, help=f"folder (default: {SITE} of a report; a set's must be named)"),
    argument("--summary", type=Path, help="file for the lines that are printed at the end otherwise"),
)
def site(given: Namespace) -> None:
    """Render the site, and print in five lines what it says and where it is."""
    from documents.archive import with_figures
    from documents.plan import read_plan
    from reports.figures.all_figures import draw_all
    from reports.pages.site import render_site
    from reports.plan import BOARD_FIGURES
    from results.temporary import write_texts

    plan, say = read_plan(given.plan), partial(_say, "site")
    if plan.published and given.out is None:
        raise InputError(f"{given.plan}: a published set; say with --out where its site should lie")
    with tempfile.TemporaryDirectory() as folder:
        if plan.published:
            plan = with_figures(plan, Path(folder))
            draw_all(plan, say)
        lines = render_site(plan, given.out or SITE, Path(folder) / BOARD_FIGURES, say)
    if given.summary:
        write_texts({given.summary: "\n".join(lines) + "\n"})
    else:
        print("\n".join(lines))


def _say(command: str, what: str) -> None:
    """Say what is done next, on standard error."""
    print(f"{command}: {what}", file=sys.stderr, flush=True)


@command("failures", PLAN)
def failures(given: Namespace) -> int:
    """List what failed of a report's runs, with status 1 where something did."""
    from documents.plan import read_plan
    from reports.failures import in_words, read_failures

    found = read_failures(read_plan(given.plan))
    for failure in found:
        print(f"failed: {in_words(failure)}")
    if found:
        print("The site has all else. The same command tries these again; keep_failed=true does not.")
    return 1 if found else 0


@command(
    "figures",
    PLAN,
    argument("--pdf", type=Path, metavar="DIR", help="draw them as PDF, those of STUDY into DIR/STUDY/pdf"),
)
def figures(given: Namespace) -> None:
    """Draw the figures of a report, each study's into the folder that the plan names."""
    from documents.plan import read_plan
    from reports.figures.all_figures import as_pdf, draw_all

    plan = read_plan(given.plan)
    count = draw_all(as_pdf(plan, given.pdf) if given.pdf else plan, partial(_say, "figures"))
    print(f"{count} figures")


@command(
    "score",
    argument("runs", type=Path, help="table of runs, CSV or Parquet"),
    argument("--rules", required=True, metavar="NAME", help="plain or algoperf-v05"),
    JSON,
)
def score(given: Namespace) -> None:
    """Score submissions by their times to target."""
    from reports.boards.scoring import as_json, as_text, score_file

    scores = score_file(given.runs, given.rules)
    print(as_json(scores) if given.json else as_text(scores))
