"""`curvebench claims check` and `verdicts`: whether claims hold."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from curvebench.commands.command import JSON, SCALE, argument, command, print_json
from curvebench.paths import SITE
from curvebench.spec.errors import InputError, by_reason, no_beginning, unknown

if TYPE_CHECKING:
    from curvebench.planning.studies.study import Study
    from curvebench.reports.claims.verdict_list import ClaimVerdict
    from curvebench.spec.claim import Claim


@command(
    "claims check",
    argument("claims", nargs="*", metavar="CLAIM", help="ids of property claims (default: all)"),
    SCALE,
    JSON,
)
def check(given: Namespace) -> None:
    """Check claims on random instances, and print their verdicts."""
    from curvebench.property_checks.checks import DEFAULT_SCALE, claims_by_id
    from curvebench.stages import check_jobs

    known = {name: claim for name, (_, claim) in claims_by_id().items()}
    for name in given.claims:
        if name not in known:
            home = [f"{claim}: {way}" for claim, (_, way) in _ways().items() if claim == name]
            raise InputError(*home or [unknown("benchmarks/claims", "property claim", name, known)])
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


def _is_of(claim: str, source: str, name: str) -> bool:
    """Whether a claim or its source begins with a name."""
    return claim.startswith(name) or source.startswith(name)


def _ways() -> dict[str, tuple[str, str]]:
    """By claim its source, and what decides it; none where studies or checks are broken."""
    from curvebench.planning.studies.reading import read_studies
    from curvebench.property_checks.checks import claims_by_id, file_of

    run = "snakemake --cores all reports --config studies="
    try:
        of_studies = {
            one.id: (one.source, f"runs of {study.path} decide it; run {run}{one.id}{_at_scale(study, one)}")
            for study in read_studies()
            for one in study.claims
        }
        of_checks = {
            name: (one.source, f"checks of {file_of(module)} decide it; run curvebench claims check {name}")
            for name, (module, one) in claims_by_id().items()
        }
    except InputError:
        return {}
    return {**of_studies, **of_checks}


def _at_scale(study: Study, claim: Claim) -> str:
    """What the command takes besides where a study has no quick scale, and its cost where that is known."""
    scale = study.scale_deciding(claim, "quick")
    cost = study.scales[scale].cost if scale in study.scales else ""
    return ("" if scale == "quick" else f" scale={scale}") + (f"; it costs {cost}" if cost else "")


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
        help=f"the report's plan, or the folder of a published set (default: {SITE / 'plan.json'}, and what "
        "it does not decide of the published sets)",
    ),
    JSON,
)
def verdicts(given: Namespace) -> None:
    """Tell the verdict on every claim: of a report, and what it does not decide of the published sets."""
    from curvebench.reports.claims.verdict_list import as_json, as_text

    listing, names = _listing(given.plan), given.claims or [""]
    found = [one for one in listing if any(_is_of(one.id, one.source, name) for name in names)]
    lacking = [name for name in given.claims if not any(_is_of(one.id, one.source, name) for one in found)]
    if found or given.json:
        print(as_json(found) if given.json else as_text(found, details=bool(given.claims)))
    ways, errors = _ways() if lacking else {}, []
    for name in lacking:
        undecided = [
            f"{claim}: {way}" for claim, (source, way) in ways.items() if _is_of(claim, source, name)
        ]
        if undecided:
            print("\n".join(undecided), file=sys.stderr)
        else:
            errors.append(no_beginning(name, [*(verdict.id for verdict in listing), *ways]))
    if errors:
        raise InputError("\n".join(errors))


def _listing(path: Path | None) -> list[ClaimVerdict]:
    """The verdicts of a plan, its own runs first; without a path of the site, and of the published sets
    those that it does not have.

    Raises:
        InputError: when a plan or a table is missing or damaged.
    """
    from curvebench.paths import PUBLISHED
    from curvebench.reports.claims.verdict_list import unrun, verdicts_of
    from curvebench.results.archive import read_archive, shown_plans
    from curvebench.spec.plan import read_plan
    from curvebench.spec.sets import PLAN

    listing: list[ClaimVerdict] = []
    if path or (SITE / PLAN).exists():
        plan = read_plan(path or SITE / PLAN)
        *sets, own = shown_plans(plan)
        listing = [*(verdict for one in (own, *sets) for verdict in verdicts_of(one)), *unrun(plan)]
    if path:
        return listing
    decided = {one.id for one in listing if one.verdict != "not run"}
    published = (verdict for one in read_archive(PUBLISHED) for verdict in verdicts_of(one))
    further = {one.id: one for one in published if one.id not in decided}
    return [*(one for one in listing if one.id not in further), *further.values()]
