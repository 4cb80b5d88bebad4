"""`curvebench parity`: whether the backends take the same steps."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import Any

from curvebench.commands.command import JSON, argument, command, print_json
from curvebench.spec.errors import InputError


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
