"""Commands that show results: `curvebench site`, `failures`, `figures`, `score` and `parity`."""

from __future__ import annotations

import sys
import tempfile
from argparse import Namespace
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from curvebench.commands.command import JSON, PLAN, argument, command, print_json
from curvebench.paths import SITE
from curvebench.spec.errors import InputError, check_known

if TYPE_CHECKING:
    from curvebench.stages.parity import Parity


@command(
    "site",
    PLAN,
    argument("--out", type=Path, metavar="FOLDER"),
    argument("--summary", type=Path, metavar="FILE"),
)
def site(args: Namespace) -> None:
    """Render the site of a report, and print a summary.

    Args:
        --out: folder of the site (default: reports/site; required for the plan of a published set)
        --summary: file to write the summary to (default: it is printed)
    """
    from curvebench.reports.figures.all_figures import draw_all
    from curvebench.reports.pages.site import render_site
    from curvebench.reports.plan import BOARD_FIGURES
    from curvebench.results.archive import with_figures
    from curvebench.results.temporary import write_texts
    from curvebench.spec.plan import read_plan

    plan, say = read_plan(args.plan), partial(print, "site:", file=sys.stderr, flush=True)
    if plan.published and args.out is None:
        raise InputError(
            f"{args.plan}: is the plan of a published set; name the folder of its site with --out"
        )
    with tempfile.TemporaryDirectory() as folder:
        if plan.published:
            plan = with_figures(plan, Path(folder))
            draw_all(plan, say)
        lines = render_site(plan, args.out or SITE, Path(folder) / BOARD_FIGURES, say)
    if args.summary:
        write_texts({args.summary: "\n".join(lines) + "\n"})
    else:
        print("\n".join(lines))


@command("failures", PLAN)
def failures(args: Namespace) -> int:
    """List the failed runs of a report with their reasons.

    The status is 1 if a run failed.
    """
    from curvebench.reports.failures import in_words, read_failures
    from curvebench.spec.plan import read_plan

    failed = read_failures(read_plan(args.plan))
    for failure in failed:
        print(f"failed: {in_words(failure)}")
    if failed:
        print("The site shows everything else. The same command tries them again, unless keep_failed=true.")
    return 1 if failed else 0


@command("figures", PLAN, argument("--pdf", type=Path, metavar="FOLDER"))
def figures(args: Namespace) -> None:
    """Draw all figures of a report.

    Args:
        --pdf: draw PDF files, into FOLDER/STUDY/pdf (default: SVG files, into the folders that the plan
            names)
    """
    from curvebench.reports.figures.all_figures import as_pdf, draw_all
    from curvebench.spec.plan import read_plan

    plan, say = read_plan(args.plan), partial(print, "figures:", file=sys.stderr, flush=True)
    count = draw_all(as_pdf(plan, args.pdf) if args.pdf else plan, say)
    print(f"{count} figures")


@command(
    "score",
    argument("runs", type=Path, metavar="RUNS"),
    argument("--rules", required=True, metavar="NAME"),
    JSON,
)
def score(args: Namespace) -> None:
    """Score submissions by their times to target.

    The score of a submission is the area below its performance profile; intervals of scores and ranks are
    printed next to it.

    Args:
        runs: table of runs, a CSV or Parquet file
        --rules: scoring rules: plain or algoperf-v05
    """
    from curvebench.reports.boards.scoring import as_json, as_text, score_file

    scores = score_file(args.runs, args.rules)
    print(as_json(scores) if args.json else as_text(scores))


@command("parity", argument("optimizers", nargs="*", metavar="OPTIMIZER"), JSON)
def parity(args: Namespace) -> None:
    """Compare the backends step by step, in float64.

    Each optimizer takes 20 steps on PyTorch, JAX and NumPy. The largest difference is printed, relative to
    the largest entry; the status is 2 if a difference is too large.

    Args:
        optimizers: names of optimizers, compared on eight problems (default: all, on two problems)
    """
    from dataclasses import asdict

    from curvebench.planning.parity_problems import CORE, PROBLEMS, TOLERANCE
    from curvebench.registry import RULES
    from curvebench.results.schema import COMPARISONS
    from curvebench.stages.parity import parities

    rules = RULES.own()
    check_known("curvebench", "optimizer", args.optimizers, rules)
    if not args.json:
        heads = [comparison.replace("against float64 ", "") for comparison in COMPARISONS]
        print(_parity_line("optimizer", "problem", heads))
    rows = []
    names, problems = (args.optimizers, PROBLEMS) if args.optimizers else (list(rules), CORE)
    for row in parities(names, problems):
        rows.append(row)
        if not args.json and row.comparison == COMPARISONS[-1]:
            values = [*map(_parity_value, rows[-len(COMPARISONS) :])]
            print(_parity_line(row.optimizer, row.problem, values), flush=True)
    if args.json:
        print_json([{**asdict(row), "holds": row.holds} for row in rows])
    failed = [row for row in rows if not row.holds]
    if failed:
        judged = sum(row.judged for row in rows)
        raise InputError(f"{len(failed)} of {judged} comparisons differ by more than {TOLERANCE:g}")


def _parity_line(optimizer: str, problem: str, values: Sequence[str]) -> str:
    """Return a line of the table that `curvebench parity` prints, with the values in columns."""
    return f"{optimizer:26} {problem:26}{''.join(f'{value:25}' for value in values)}".rstrip()


def _parity_value(row: Parity) -> str:
    """Return the result of a comparison of backends as text.

    Args:
        row: the comparison. The difference in it is either in units in the last place (ulps), or relative to
            the largest entry.
    """
    if row.unit == "ulps":
        return f"{row.first_step:.2g} to {row.difference:.2g} ulps"
    verdict = ("equal" if row.holds else "DIFFERENT") if row.judged else "as measured"
    return f"{row.difference:.1e} {verdict}"
