"""`curvebench site`, `failures`, `figures` and `score`: what runs have shown."""

from __future__ import annotations

import sys
import tempfile
from argparse import Namespace
from pathlib import Path

from curvebench.command import JSON, PLAN, argument, command
from documents.errors import InputError
from harness.paths import SITE


@command(
    "site",
    PLAN,
    argument("--out", type=Path, help=f"folder (default: {SITE} of a report; a set's must be named)"),
)
def site(given: Namespace) -> None:
    """Render the site, and print the path of its first page."""
    from documents.plan import read_plan
    from reports.pages.site import render_site
    from reports.sets.publish import drawn

    plan = read_plan(given.plan)
    if plan.published and given.out is None:
        raise InputError(f"{given.plan}: a published set; say with --out where its site should lie")
    with tempfile.TemporaryDirectory() as folder:
        if plan.published:  # a set has tables and no figures
            plan = drawn(plan, Path(folder), _say)
        print(f"The site: {render_site(plan, given.out or SITE, _say).resolve()}")


def _say(what: str) -> None:
    """Say what is done next, beside what is printed."""
    print(f"site: {what}", file=sys.stderr, flush=True)


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
    argument("--study", required=True, help="the study's name in the plan"),
    argument("--tables", type=Path, help="folder of the merged tables (default: what the plan says)"),
    argument("--out", type=Path, help="folder for the figures (default: what the plan says)"),
)
def figures(given: Namespace) -> None:
    """Draw the figures of one study."""
    from documents.plan import read_plan
    from reports.figures.all_figures import draw_figures
    from reports.tables import read_tables

    study = read_plan(given.plan).study(given.study)
    out = given.out or study.figures
    drawn = draw_figures(study, read_tables(given.tables or study.tables), out)
    print(f"{out}: {len(drawn)} figures")


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
