"""The commands that run what a report shows once more, with the studies that repeat its claims."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from curvebench.paths import PUBLISHED
from curvebench.spec.plan import ReportPlan, StudyPlan

SNAKEMAKE = "snakemake --cores all reports --config"


def command_of(claim: str, plan: ReportPlan, scale: str = "") -> str:
    """What reruns a claim of a plan, on all backends of its study; of a published set beside that set.

    Args:
        scale: another one than the plan's.
    """
    if plan.published:
        return f"curvebench sets reproduce {claim} --published {(PUBLISHED / plan.published).as_posix()}"
    return " ".join([f"{SNAKEMAKE} studies={claim} scale={scale or plan.scale}", *_where(plan.folders)])


def _where(folders: Mapping[str, str]) -> list[str]:
    return [shlex.quote(f"{key}={folder}") for key, folder in folders.items()]


def repeats_of_study(repeating: StudyPlan, study: StudyPlan) -> bool:
    """Whether a study repeats a claim that another one decides."""
    decided = {claim.id for claim in study.claims}
    return repeating is not study and any(claim.repeats in decided for claim in repeating.repeated)


def claim_with_repeats(claim: str, plan: ReportPlan) -> str | None:
    """What reruns a claim and the other studies of a plan that repeat it; None where there is none."""
    own = [study for study in plan.studies if claim in {each.id for each in study.claims}]
    others = [
        study
        for study in plan.studies
        if study not in own and claim in {each.repeats for each in study.repeated}
    ]
    names = [claim, *(study.name for study in others)]
    return _command(names, [*own, *others], plan) if own and others else None


def study_commands(study: StudyPlan, plan: ReportPlan) -> tuple[str, str | None]:
    """What reruns a study alone, and with those that repeat its claims or whose claims it repeats, if any."""
    others = [
        other for other in plan.studies if repeats_of_study(other, study) or repeats_of_study(study, other)
    ]
    together = [study, *others]
    alone = _command([study.name], [study], plan)
    return alone, _command([each.name for each in together], together, plan) if others else None


def _command(names: Sequence[str], studies: Sequence[StudyPlan], plan: ReportPlan) -> str:
    """Snakemake's command for studies on the backends on which a plan has them.

    Studies that only repeat claims run where they are named; `repeats=true` would add those that the plan
    does not have.
    """
    backends = dict.fromkeys(backend for study in studies for backend in study.backends)
    settings = [f"studies={','.join(names)}", f"scale={plan.scale}", f"backends={','.join(backends)}"]
    if plan.parity is None:
        settings.append("parity=false")
    settings += _where(plan.folders)
    return f"{SNAKEMAKE} {' '.join(settings)}"
