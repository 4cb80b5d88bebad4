"""`curvebench claims check` and `verdicts`: whether claims hold."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from curvebench.command import JSON, SCALE, argument, command, print_json
from documents.errors import InputError, by_reason, unknown
from harness.paths import SITE


@command(
    "claims check",
    argument("claims", nargs="*", metavar="CLAIM", help="ids of property claims (default: all)"),
    SCALE,
    JSON,
)
def check(given: Namespace) -> None:
    """Check claims on random instances, and print their verdicts."""
    from harness.checks import DEFAULT_SCALE, claims_by_id
    from harness.stages import check_jobs

    known = {name: claim for name, (_, claim) in claims_by_id().items()}
    for name in given.claims:
        if name not in known:
            raise InputError(
                _decided_by_a_study(name) or unknown("benchmarks/claims", "property claim", name, known)
            )
    claims = [known[name] for name in dict.fromkeys(given.claims)] or list(known.values())
    named = [scale for claim in known.values() for part in claim.checks for scale in part.instances]
    scales = sorted({"quick", DEFAULT_SCALE, *named})
    if given.scale not in scales:
        raise InputError(f"--scale: {unknown('benchmarks/claims', 'scale', given.scale, scales)}")
    claims, skipped = check_jobs.with_data(claims)
    reasons = [f"{names} cannot be checked: {reason}" for names, reason in by_reason(skipped)]
    if given.claims and reasons:
        raise InputError("\n".join(reasons))
    for reason in reasons:
        print(reason, file=sys.stderr)
    found = check_jobs.check(claims, given.scale, "property checks")
    summaries = [check_jobs.summary(claim, given.scale, found) for claim in claims]
    if given.json:
        print_json(summaries)
    else:
        print("\n".join(check_jobs.lines(summaries)))
    found.raise_errors()


def _is_of(verdict: Mapping[str, Any], name: str) -> bool:
    """Whether a claim or its source begins with a name."""
    return str(verdict["id"]).startswith(name) or str(verdict["source"]).startswith(name)


def _decided_by_a_study(claim: str) -> str:
    """What to do about a claim that runs decide; empty for an id that no study has."""
    from harness.planning.studies import read_studies

    try:
        homes = {one.id: study.path for study in read_studies() for one in study.claims}
    except InputError:
        return ""
    if claim not in homes:
        return ""
    run = f"snakemake --cores all reports --config studies={claim}"
    return f"{claim}: runs of {homes[claim]} decide it; run {run}"


@command(
    "verdicts",
    argument(
        "claims",
        nargs="*",
        metavar="CLAIM",
        help="how ids or sources begin: symo, 004 (default: all)",
    ),
    argument(
        "--plan",
        type=Path,
        help=f"the report's plan, or the folder of a published set (default: {SITE / 'plan.json'}, and where "
        "there is none the published sets)",
    ),
    JSON,
)
def verdicts(given: Namespace) -> None:
    """Tell the verdict on every claim of a report; a published set's where it is from a better scale."""
    from documents.archive import as_it_stands, read_archive, shown_plans
    from documents.plan import read_plan
    from documents.sets import FOLDER, PLAN
    from reports.claims.verdict_list import as_json, as_text, unrun, verdicts_of, with_replaced

    path = given.plan or SITE / PLAN
    if given.plan or path.exists():
        plan = as_it_stands(read_plan(path))
        plans = shown_plans(plan)
        listing = [verdict for one in plans for verdict in verdicts_of(one)]
        listing = with_replaced(plan, [*listing, *unrun(plan)])
    else:
        listing = [verdict for one in read_archive(FOLDER) for verdict in verdicts_of(one)]
    for name in given.claims:
        if not any(_is_of(verdict, name) for verdict in listing):
            known = unknown("the report", "claim", name, (verdict["id"] for verdict in listing))
            raise InputError(_decided_by_a_study(name) or known)
    names = given.claims or [""]
    listing = [one for one in listing if any(_is_of(one, name) for name in names)]
    print(as_json(listing) if given.json else as_text(listing, details=bool(given.claims)))
