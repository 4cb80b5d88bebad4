"""`curvebench claims check`, which decides property claims, and `verdicts`, which prints the verdicts.

A property claim is a sentence of a paper that is tested on random instances, without runs of optimizers.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from curvebench.commands.command import JSON, SCALE, argument, command, print_json, print_left_out
from curvebench.paths import PUBLISHED, SITE, TABLES
from curvebench.spec.errors import InputError, by_reason, no_beginning, unknown
from curvebench.spec.sets import PLAN

if TYPE_CHECKING:
    from curvebench.planning.studies.study import Study
    from curvebench.reports.claims.verdict_list import ClaimVerdict
    from curvebench.spec.claim import Claim
    from curvebench.spec.plan import ReportPlan

# Kinds of claims to which the option `--only` of `curvebench verdicts` restricts the output.
ONLY = ("source", "us", "stand-in", "training", "derivation")


@command("claims check", argument("claims", nargs="*", metavar="CLAIM"), SCALE, JSON)
def check(args: Namespace) -> None:
    """Check property claims on random instances, and print their verdicts.

    No run of an optimizer is needed and nothing is written.

    Args:
        claims: ids of property claims (default: all)
    """
    from curvebench.property_checks.checks import DEFAULT_SCALE, claims_by_id
    from curvebench.stages import check_jobs

    broken: dict[str, str] = {}
    valid = {name: claim for name, (_, claim) in claims_by_id(broken=broken if args.claims else None).items()}
    print_left_out(broken)
    for name in args.claims:
        if name not in valid:
            advice = [text for claim, (_, text) in _how_decided({}).items() if claim == name]
            raise InputError(*advice or [unknown("benchmarks/claims", "property claim", name, valid)])
    claims = [valid[name] for name in dict.fromkeys(args.claims)] or list(valid.values())
    checked_at = [scale for claim in valid.values() for check in claim.checks for scale in check.instances]
    scales = sorted({"quick", DEFAULT_SCALE, *checked_at})
    if args.scale not in scales:
        raise InputError(f"--scale: {unknown('benchmarks/claims', 'scale', args.scale, scales)}")
    claims, skipped = check_jobs.with_data(claims)
    reasons = [f"{names} cannot be checked: {reason}" for names, reason in by_reason(skipped)]
    if args.claims and reasons:
        raise InputError("\n".join(reasons))
    for reason in reasons:
        print(reason, file=sys.stderr)
    outcome = check_jobs.check(claims, args.scale, "property checks")
    summaries = [check_jobs.summary(claim, args.scale, outcome) for claim in claims]
    if args.json:
        print_json(summaries)
    else:
        print("\n".join(check_jobs.lines(summaries)))
    outcome.raise_errors()


def _matches(name: str, claim: str, source: str) -> bool:
    """Return whether the id of a claim, or the citation of its source, starts with `name`."""
    return claim.startswith(name) or source.startswith(name)


def _how_decided(broken: dict[str, str]) -> dict[str, tuple[str, str]]:
    """Return advice for each claim: a sentence with the command that decides the claim.

    Args:
        broken: a dictionary to which an entry is added for each study or file of property claims that cannot
            be used: its name, and the reason.

    Returns:
        A mapping from the id of a claim to a pair: the source of the claim, and the sentence. If two claims
        have the same id, the mapping is empty. This is no error, because verdicts can be printed without
        advice.
    """
    from curvebench.planning.studies.reading import read_studies
    from curvebench.property_checks.checks import claims_by_id, file_of
    from curvebench.reports.claims.rerun import SNAKEMAKE

    runs, checks = f"run {SNAKEMAKE} studies=", "run curvebench claims check "
    try:
        by_runs = {
            claim.id: (
                claim.source,
                f"{claim.id}: runs of {study.path} decide it; {runs}{claim.id}{_at_scale(study, claim)}",
            )
            for study in read_studies(broken=broken)
            for claim in study.claims
        }
        by_checks = {
            name: (claim.source, f"{name}: checks of {file_of(module)} decide it; {checks}{name}")
            for name, (module, claim) in claims_by_id(broken=broken).items()
        }
    except InputError:
        return {}
    return {**by_runs, **by_checks}


def _at_scale(study: Study, claim: Claim) -> str:
    """Return the end of the advice on a claim: the scale in the command, and the cost of the study.

    The returned text follows the id of the claim in the command. It begins with `scale=SCALE`, unless the
    scale is `quick`. It ends with the cost, if the study file gives a cost.
    """
    scale = study.scale_deciding(claim, "quick")
    cost = study.scales[scale].cost if scale in study.scales else ""
    return ("" if scale == "quick" else f" scale={scale}") + (f"; it costs {cost}" if cost else "")


@command(
    "verdicts",
    argument("claims", nargs="*", metavar="CLAIM"),
    argument("--plan", type=Path),
    argument("--only", action="append", default=[], choices=ONLY),
    JSON,
)
def verdicts(args: Namespace) -> None:
    """Print the verdict on every claim.

    Verdicts come from the local report; for claims that it does not decide, from the newest other runs on
    this machine, or else from the published sets. For a claim without a verdict, the command prints what
    would decide it.

    Args:
        claims: claims whose id or source starts with CLAIM, such as symo or 004, with details (default: all)
        --only: only claims of the sources (source), questions of curvebench itself (us), stand-ins for a
            larger problem of a source (stand-in), claims that runs decide (training), or claims that property
            checks decide (derivation); may be given several times (default: all claims)
        --plan: plan of a report, or folder of a published set (default: reports/site/plan.json, and the
            published sets for claims that it does not decide)
    """
    from curvebench.reports.claims.rerun import SNAKEMAKE
    from curvebench.reports.claims.verdict_list import as_json, as_text

    listing = [claim for claim in _listing(args.plan) if {claim.asked_by, claim.kind}.issuperset(args.only)]
    names = args.claims or [""]
    found = {
        name: {claim.id for claim in listing if _matches(name, claim.id, claim.source)} for name in names
    }
    selected = [claim for claim in listing if any(claim.id in ids for ids in found.values())]
    undecided = [name for name in args.claims if not found[name]]
    if selected or args.json:
        print(as_json(selected) if args.json else as_text(selected, details=bool(args.claims)))
    elif not args.claims:
        if not (args.plan or (SITE / PLAN).exists()):
            raise InputError(
                f"no verdicts: there is neither a published set in {PUBLISHED} nor {SITE / PLAN}, which "
                f"{SNAKEMAKE} studies=STUDY writes; name a plan or a set with --plan"
            )
        print("The report has no claim.")
    broken: dict[str, str] = {}
    how_decided, errors = _how_decided(broken) if undecided else {}, []
    for name in undecided:
        advice = [text for claim, (source, text) in how_decided.items() if _matches(name, claim, source)]
        if advice:
            print("\n".join(advice), file=sys.stderr)
        else:
            errors.append(no_beginning(name, [*(verdict.id for verdict in listing), *how_decided]))
    print_left_out(broken)
    if errors:
        raise InputError("\n".join(errors))


def _listing(path: Path | None) -> list[ClaimVerdict]:
    """Return the verdicts of a report, and verdicts on other claims from local runs and from published sets.

    Args:
        path: file of the report plan. None for the plan of the local site; then verdicts on claims that it
            does not decide are added, from the newest runs of all studies on this machine, or else from the
            published sets in this checkout.

    Raises:
        InputError: when a plan or a table is missing or damaged.
    """
    from curvebench.reports.claims.verdict_list import unrun, verdicts_of
    from curvebench.results.archive import best_of, local_plans, read_archive, shown_plans
    from curvebench.results.reading import newest
    from curvebench.spec.plan import read_plan

    shown: list[ReportPlan] = []
    undecided: list[ClaimVerdict] = []
    if path or (SITE / PLAN).exists():
        plan = read_plan(path or SITE / PLAN)
        *sets, local = shown_plans(plan)
        shown, undecided = [local, *sets], unrun(plan)
    if not path:
        runs = local_plans(newest(file.parent for file in TABLES.glob("*/runs.parquet")))
        shown = [*shown[:1], *best_of(runs), *shown[1:], *read_archive(PUBLISHED)]
    listing: dict[str, ClaimVerdict] = {}
    for verdict in (*(verdict for plan in shown for verdict in verdicts_of(plan)), *undecided):
        if listing.setdefault(verdict.id, verdict).verdict == "not run":
            listing[verdict.id] = verdict
    return [*listing.values()]
