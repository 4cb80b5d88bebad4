"""Command line of the report: `python -m reports` figures, kernels, claims, site, verdicts, score."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from reports import scoring, set_commands
from reports.plan import ReportError, read_plan
from results.errors import TableError

SITE = Path("reports/site")


def parser() -> argparse.ArgumentParser:
    """The options of the commands."""
    main = argparse.ArgumentParser(
        prog="python -m reports", description="Draw and render what runs have shown."
    )
    commands = main.add_subparsers(dest="command", required=True)
    plan: dict[str, Any] = {"type": Path, "required": True, "help": "the plan JSON that Snakemake wrote"}

    figures = commands.add_parser("figures", help="draw the figures of one study")
    figures.add_argument("--plan", **plan)
    figures.add_argument("--study", required=True, help="the study's name in the plan")
    figures.add_argument(
        "--tables", type=Path, help="folder of the merged tables (default: what the plan says)"
    )
    figures.add_argument("--out", type=Path, help="folder for the figures (default: what the plan says)")

    kernels = commands.add_parser(
        "kernels", help="draw what asv has stored, and make its pages; measures nothing"
    )
    kernels.add_argument("--stored", type=Path, required=True, help="asv's results, such as results/kernels")
    kernels.add_argument("--out", type=Path, required=True, help="folder for what is made; replaced")

    claims = commands.add_parser("claims", help="draw the checks of claims")
    claims.add_argument("--plan", **plan)
    claims.add_argument("--out", type=Path, help="folder for the figures (default: what the plan says)")

    site = commands.add_parser("site", help="render the site; prints the path of its first page")
    site.add_argument("--plan", **plan)
    site.add_argument("--out", type=Path, help=f"folder (default: {SITE} of a report; a set's must be named)")

    verdicts = commands.add_parser("verdicts", help="tell the verdict on every claim of a report")
    verdicts.add_argument(
        "--plan",
        type=Path,
        default=SITE / "plan.json",
        help="the plan of the report (default: %(default)s)",
    )
    verdicts.add_argument("--json", action="store_true", help="print JSON for programs")

    score = commands.add_parser("score", help="score submissions by their times to target")
    score.add_argument("runs", type=Path, help="table of runs, CSV or Parquet")
    score.add_argument(
        "--rules",
        choices=scoring.RULES,
        required=True,
        help="; ".join(f"{name}: {rules.about}" for name, rules in scoring.RULES.items()),
    )
    score.add_argument("--json", action="store_true", help="print JSON for programs")
    set_commands.add_commands(commands)
    return main


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; bad input ends it with a message and status 1."""
    options = parser().parse_args(arguments)
    try:
        if options.command == "kernels":
            from reports.kernels import draw_kernels

            made = draw_kernels(options.stored, options.out, Path.cwd())
            print(f"{options.out}: kernels of {len(made['machines'])} machines")
            return 0
        if options.command in set_commands.COMMANDS:
            return set_commands.run_command(options, partial(print, flush=True))
        if options.command == "score":
            scores = scoring.score_file(options.runs, options.rules)
            print(scoring.as_json(scores) if options.json else scoring.as_text(scores))
            return 0
        plan = read_plan(options.plan)
        if options.command == "verdicts":
            from reports.verdict_list import as_json, as_text, listed, read_verdicts

            told = listed(plan, read_verdicts(plan))
            print(as_json(told) if options.json else as_text(told))
            return 0
        if options.command == "figures":
            from reports.drawing import draw_figures
            from reports.tables import read_tables

            study = plan.study(options.study)
            out = options.out or study.figures
            drawn = draw_figures(study, read_tables(options.tables or study.tables), out)
            print(f"{out}: {len(drawn)} figures, each in a light and a dark variant")
        elif options.command == "claims":
            from reports.claim_figures import draw_claims
            from reports.claims import check_rows
            from reports.series import series_rows

            if plan.checks is None:
                raise ReportError(f"{options.plan}: no claims are checked in it")
            out = options.out or plan.checks.figures
            drawn = draw_claims(plan.checks, check_rows(plan.checks), series_rows(plan.checks), out)
            print(f"{out}: {len(drawn)} figures, each in a light and a dark variant")
        else:
            from reports.site import render_site

            if plan.published and options.out is None:
                raise ReportError(
                    f"{options.plan}: a published set; say with --out where its site should lie"
                )
            render = set_commands.render_published if plan.published else render_site
            print(f"The site: {render(plan, options.out or SITE, _tell).resolve()}")
    except (ReportError, TableError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _tell(what: str) -> None:
    """Say what is done next, beside what is printed."""
    print(f"site: {what}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
