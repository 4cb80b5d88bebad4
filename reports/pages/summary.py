"""A report in five lines: what was run, what it says, what agrees, where it is, what comes next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from curvebench.reports.claims.rerun import SNAKEMAKE
from curvebench.reports.formatting import counted, listed, seconds
from curvebench.reports.pages.versions import ClaimAgreement, Version
from curvebench.spec.plan import ReportPlan

NAMED = 4  # studies by name


def summary(own: Version, checked: Sequence[ClaimAgreement], site: Path) -> list[str]:
    """What a terminal shows at the end.

    Args:
        own: what was run here.
        checked: its claims next to those of published sets, of which a site of one set says nothing.
        site: the first page.
    """
    published = own.plan.published
    return [
        f"{'The set: ' if published else 'Run here:'}  {_what(own)}",
        f"It says:   {_verdicts(own)}",
        *([] if published else [f"Published: {_agreement(checked)}"]),
        f"Site:      {site.resolve()}",
        *([] if published else [f"Next:      {_next(own.plan)}"]),
    ]


def _what(own: Version) -> str:
    plan, jobs = own.plan, own.jobs
    names = [each.study.name for each in own.studies]
    what = [f"{listed(names, NAMED)} at {plan.scale} scale"] if names else []
    what += ["parity of the backends"] if plan.parity else []
    what += [counted(len(plan.checks.claims), "property checks")] if plan.checks else []
    took = jobs["total_seconds"].sum()
    return f"{'; '.join(what) or 'nothing'} ({counted(len(jobs), 'jobs')} of {seconds(took)} in all)"


def _verdicts(own: Version) -> str:
    found = Counter(claim.verdict for claim in own.claims)
    said = [f"{count} {verdict}" for verdict, count in found.most_common()]
    return f"{counted(len(own.claims), 'claims')}: {', '.join(said)}" if said else "it decides no claim"


def _agreement(checked: Sequence[ClaimAgreement]) -> str:
    if not checked:
        return "no claim was decided both here and there"
    differ = [one.here.id for one in checked if one.agreement == "disagrees"]
    agree = sum(one.agreement == "agrees" for one in checked)
    agrees = "agrees" if len(checked) == 1 else "agree"
    said = f"{agree} of {counted(len(checked), 'claims')} {agrees} with the published sets"
    still = len(checked) - agree - len(differ)
    said += f", {still} inconclusive here or there" if still else ""
    return f"{listed(differ, NAMED)} DIFFER from the published sets; {said}" if differ else said


def _next(plan: ReportPlan) -> str:
    wider = "scale=paper" if len(plan.studies) > NAMED and plan.scale == "quick" else "studies=all"
    return f"source .venv/bin/activate; {SNAKEMAKE} {wider}; how long that takes says curvebench estimate"
