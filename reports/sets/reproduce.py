"""Rerunning one claim of a published set, and comparing the new runs: `curvebench sets reproduce CLAIM`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from curvebench.paths import SNAKEMAKE
from curvebench.reports import formatting
from curvebench.reports.claims import rerun
from curvebench.reports.rendering import text_of
from curvebench.reports.sets.checking import read_provenance
from curvebench.reports.sets.comparing import ANSWERS, ComparedRow, RowAnswer, answer_of
from curvebench.reports.sets.derived import read_set
from curvebench.reports.sets.sides import Side, narrowed_to_claim, side_of
from curvebench.results.archive import without_submissions
from curvebench.spec.errors import InputError, unknown
from curvebench.spec.plan import ReportPlan, read_plan
from curvebench.spec.sets import PLAN

STATUS: dict[RowAnswer, int] = {"agrees": 0, "differs": 1, "inconclusive": 3}
FOLDER = Path(".cache/reproduced")
# Program in Python that runs the command `snakemake ...`, which is given by the arguments of the program.
# If the user interrupts it (Ctrl-C) while Snakemake is imported, the program ends without a traceback.
SNAKEMAKE_PROGRAM = """
import sys
sys.argv.pop(0)
try:
    from snakemake.cli import main
    main()
except KeyboardInterrupt:
    raise SystemExit(130) from None
"""


def choose_set(claim: str, folder: Path) -> Path:
    """Return the folder of the newest published set that decides a claim.

    Sets that cannot be read are reported on standard error and skipped.

    Args:
        claim: id of the claim.
        folder: folder of the published sets.

    Raises:
        InputError: when no set decides the claim.
    """
    candidates, claims = [], set()
    for path in sorted(folder.glob(f"[!.]*/{PLAN}")):
        try:
            decided, provenance = claims_of(read_set(path.parent)), read_provenance(path.parent)
        except InputError as error:
            sys.stderr.write(f"passed over: {path.parent}: {error}\n")
            continue
        claims |= decided
        if claim in decided:
            candidates.append((provenance.published, path.parent))
    if not candidates:
        raise InputError(
            f"{unknown(str(folder), 'published claim', claim, sorted(claims))}\n"
            f"  one that no set has yet is run by {rerun.SNAKEMAKE} studies=CLAIM; "
            "name somebody else's set with --published FOLDER; all claims: curvebench list"
        )
    return max(candidates)[1]


def claims_of(plan: ReportPlan) -> set[str]:
    """Return the ids of the claims that a plan decides."""
    decided = {claim.id for study in plan.studies for claim in study.claims}
    return decided | {claim.id for claim in (plan.checks.claims if plan.checks else ())}


def side_of_claim(claim: str, plan: ReportPlan, name: str) -> Side:
    """Return one side of a comparison: the part of a plan that decides a claim, with its tables and verdicts.

    Args:
        name: name of the side that readers see.

    Raises:
        InputError: when the plan does not decide the claim, or a table is missing or damaged.
    """
    if claim not in claims_of(plan):
        left_out = "; ".join(f"{study.name} is left out: {study.reason}" for study in plan.skipped)
        raise InputError(f"{plan.path}: does not decide the claim {claim!r}; {left_out or 'check its name'}")
    return side_of(narrowed_to_claim(claim, plan), name)


def command(claim: str, plan: ReportPlan, cores: str) -> list[str]:
    """Return the arguments of the Snakemake command that runs a claim as it was run for a published set.

    The command uses the scale, backends and seeds of the set, and writes the results to a folder for this
    claim below `.cache/reproduced`.

    Args:
        plan: plan of the set.
        cores: number of processor cores for Snakemake.
    """
    results = FOLDER / formatting.slug(claim)
    studies = narrowed_to_claim(claim, plan).studies
    backends = [backend for study in studies for backend in study.backends]
    return [
        *SNAKEMAKE,
        *("--cores", cores, "reports", "--config", f"studies={claim}", f"scale={plan.scale}"),
        *([f"backends={','.join(backends)}"] if backends else []),
        # Only studies need the seeds of the set, because property checks have fixed seeds.
        *([f"seeds_of={plan.path.parent}"] if studies else []),
        *("parity=false", f"results={results}", f"site={results / 'site'}"),
    ]


def run_snakemake(called: Sequence[str], output: TextIO | None = None) -> int:
    """Run Snakemake in the environment of this Python interpreter, and return Snakemake's exit status.

    Args:
        called: `snakemake` and its arguments.
        output: file to which Snakemake's standard output is written; None for this process' standard output.
    """
    # Jobs call `python` by name, so that the folder of this Python interpreter must come first in PATH.
    # Links in the path of the interpreter are not resolved, because they would lead to another environment.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    command, variables = [sys.executable, "-c", SNAKEMAKE_PROGRAM, *called], {**os.environ, "PATH": path}
    return subprocess.run(command, check=False, stdout=output, env=variables).returncode


def run(called: Sequence[str]) -> ReportPlan:
    """Run Snakemake for a claim, and return the plan of the results, without published submissions.

    Args:
        called: `snakemake` and its arguments, as `command` returns them.

    Raises:
        InputError: when Snakemake ends with an error.
    """
    if run_snakemake(called):
        raise InputError("snakemake ended with an error, which stands above; mend it and try again")
    site = next(part.removeprefix("site=") for part in called if part.startswith("site="))
    plan = read_plan(Path(site) / "plan.json")
    return plan.model_copy(update={"studies": tuple(map(without_submissions, plan.studies))})


def as_text(claim: str, published: Side, rows: Sequence[ComparedRow]) -> str:
    """Format the comparison of new runs with a set: the overall answer, rows that do not agree, other rows.

    Rows that depend on the clock come last, below a heading, because they do not count for the answer.

    Args:
        claim: id of the claim.
        published: the set.
        rows: result of the comparison.
    """
    ordered = sorted(rows, key=lambda row: ANSWERS.index(row.answer))
    return text_of("reproduced", claim=claim, answer=answer_of(rows), published=published, rows=ordered)
