"""Shell commands that rerun the claims and studies of a report, for pages and the terminal to show."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from curvebench import paths
from curvebench.paths import PUBLISHED
from curvebench.spec.plan import ReportPlan, StudyPlan

SNAKEMAKE = f"{shlex.join(paths.SNAKEMAKE)} --cores all reports --config"


def command_of(claim: str, plan: ReportPlan, scale: str = "") -> str:
    """Return the command that reruns a claim on all backends of its study.

    For a claim of a published set, the command compares the new runs with the set.

    Args:
        scale: scale at which the command runs the claim; empty for the plan's scale.
    """
    if plan.published:
        return f"curvebench sets reproduce {claim} --published {(PUBLISHED / plan.published).as_posix()}"
    return " ".join([f"{SNAKEMAKE} studies={claim} scale={scale or plan.scale}", *where(plan.folders)])


def where(folders: Mapping[str, str]) -> list[str]:
    """Return the arguments KEY=FOLDER of Snakemake's option --config that name the folders of a plan.

    Args:
        folders: folder by configuration key.
    """
    return [shlex.quote(f"{key}={folder}") for key, folder in folders.items()]


def repeats_study(repeating: StudyPlan, study: StudyPlan) -> bool:
    """Whether a study repeats a claim that another study decides."""
    decided = {claim.id for claim in study.claims}
    return repeating is not study and any(claim.repeats in decided for claim in repeating.repeated)


def claim_with_repeats(claim: str, plan: ReportPlan) -> str | None:
    """Return the command that reruns a claim and the studies that repeat it; None if no study repeats it."""
    deciding = [study for study in plan.studies if claim in {decided.id for decided in study.claims}]
    undecided = [study for study in plan.studies if study not in deciding]
    repeating = [study for study in undecided if claim in {item.repeats for item in study.repeated}]
    names = [claim, *(study.name for study in repeating)]
    return _command(names, [*deciding, *repeating], plan) if deciding and repeating else None


def study_commands(study: StudyPlan, plan: ReportPlan) -> tuple[str, str | None]:
    """Return the commands that rerun a study by itself, and together with studies that share claims with it.

    Two studies share a claim if one of them repeats a claim of the other. The second command is None if no
    other study shares a claim with `study`.
    """
    related = [peer for peer in plan.studies if repeats_study(peer, study) or repeats_study(study, peer)]
    together = [study, *related]
    alone = _command([study.name], [study], plan)
    return alone, _command([member.name for member in together], together, plan) if related else None


def _command(names: Sequence[str], studies: Sequence[StudyPlan], plan: ReportPlan) -> str:
    """Return the Snakemake command that runs `studies` on the backends that the plan has for them.

    A study that only repeats claims runs if the command names it. The configuration `repeats=true` is not
    used, because it would add studies that are not in the plan.

    Args:
        names: names that the command gives to Snakemake, such as claims or studies.
        studies: the studies to which these names belong.
    """
    backends = dict.fromkeys(backend for study in studies for backend in study.backends)
    settings = [f"studies={','.join(names)}", f"scale={plan.scale}", f"backends={','.join(backends)}"]
    if plan.parity is None:
        settings.append("parity=false")
    settings += where(plan.folders)
    return f"{SNAKEMAKE} {' '.join(settings)}"
