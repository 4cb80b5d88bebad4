"""`curvebench site`, `failures`, `figures`, `score` and `parity`: what runs have shown."""

from __future__ import annotations

import sys
import tempfile
from argparse import Namespace
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from curvebench.commands.command import JSON, PLAN, argument, command, print_json
from curvebench.paths import SITE
from curvebench.spec.errors import InputError


@command(
    "site",
    PLAN,
    argument("--out", type=Path, help=f"folder (default: {SITE} of a report; a set's must be named)"),
    argument("--summary", type=Path, help="file for the lines that are printed at the end otherwise"),
)
def site(given: Namespace) -> None:
    """Render the site, and print in five lines what it says and where it is."""
    from curvebench.reports.figures.all_figures import draw_all
    from curvebench.reports.pages.site import render_site
    from curvebench.reports.plan import BOARD_FIGURES
    from curvebench.results.archive import with_figures
    from curvebench.results.temporary import write_texts
    from curvebench.spec.plan import read_plan

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
    from curvebench.reports.failures import in_words, read_failures
    from curvebench.spec.plan import read_plan

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
    from curvebench.reports.figures.all_figures import as_pdf, draw_all
    from curvebench.spec.plan import read_plan

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
    from curvebench.reports.boards.scoring import as_json, as_text, score_file

    scores = score_file(given.runs, given.rules)
    print(as_json(scores) if given.json else as_text(scores))


@command("parity", argument("optimizers", nargs="*", metavar="OPTIMIZER", help="names (default: all)"), JSON)
def parity(given: Namespace) -> None:
    """Compare the backends step by step, in float64."""
    from dataclasses import asdict

    from curvebench.planning.parity_problems import CORE, PROBLEMS, TOLERANCE
    from curvebench.registry import RULES
    from curvebench.results.schema import COMPARISONS
    from curvebench.spec.errors import unknown
    from curvebench.stages.parity import parities

    rules = RULES.own()
    for name in given.optimizers:
        if name not in rules:
            raise InputError(unknown("the suite", "optimizer", name, rules))
    if not given.json:
        heads = [comparison.replace("against float64 ", "") for comparison in COMPARISONS]
        print(_parity_line("optimizer", "problem", heads))
    rows = []
    names, problems = (given.optimizers, PROBLEMS) if given.optimizers else (list(rules), CORE)
    for row in parities(names, problems):
        rows.append(row)
        if not given.json and row.comparison == COMPARISONS[-1]:
            values = [_parity_value(asdict(one) | {"holds": one.holds}) for one in rows[-len(COMPARISONS) :]]
            print(_parity_line(row.optimizer, row.problem, values), flush=True)
    if given.json:
        print_json([{**asdict(row), "holds": row.holds} for row in rows])
    failed = [row for row in rows if not row.holds]
    if failed:
        judged = sum(row.judged for row in rows)
        raise InputError(f"{len(failed)} of {judged} comparisons differ by more than {TOLERANCE:g}")


def _parity_line(optimizer: str, problem: str, values: Sequence[str]) -> str:
    return f"{optimizer:26} {problem:26}{''.join(f'{value:25}' for value in values)}".rstrip()


def _parity_value(row: Mapping[str, Any]) -> str:
    if row["unit"] == "ulps":
        return f"{row['first_step']:.2g} to {row['difference']:.2g} ulps"
    verdict = ("equal" if row["holds"] else "DIFFERENT") if row["judged"] else "as measured"
    return f"{row['difference']:.1e} {verdict}"
