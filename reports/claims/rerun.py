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
        claim: id of the claim.
        scale: scale at which the command runs the claim; empty for the plan's scale.
    """
    if plan.published:
        return f"curvebench sets reproduce {claim} --published {(PUBLISHED / plan.published).as_posix()}"
    return " ".join([f"{SNAKEMAKE} studies={claim} scale={scale or plan.scale}", *where(plan.folders)])


def where(folders: Mapping[str, str]) -> list[str]:
    """Return arguments KEY=FOLDER for Snakemake's option --config, which name the folders of a plan.

    Args:
        folders: folder by the key of Snakemake's configuration.
    """
    return [shlex.quote(f"{key}={folder}") for key, folder in folders.items()]


def repeats_study(repeating: StudyPlan, study: StudyPlan) -> bool:
    """Return whether the study `repeating` repeats a claim that the study `study` decides."""
    decided = {claim.id for claim in study.claims}
    return repeating is not study and any(claim.repeats in decided for claim in repeating.repeated)


def claim_with_repeats(claim: str, plan: ReportPlan) -> str | None:
    """Return the command that reruns a claim and all studies that repeat the claim.

    The result is None if no study of the plan repeats the claim.
    """
    deciding = [study for study in plan.studies if claim in {decided.id for decided in study.claims}]
    undecided = [study for study in plan.studies if study not in deciding]
    repeating = [study for study in undecided if claim in {item.repeats for item in study.repeated}]
    names = [claim, *(study.name for study in repeating)]
    return _command(names, [*deciding, *repeating], plan) if deciding and repeating else None


def study_commands(study: StudyPlan, plan: ReportPlan) -> tuple[str, str | None]:
    """Return two commands: to rerun a study by itself, and together with the studies that share its claims.

    Two studies share a claim if one study repeats a claim that the other decides. The second command is None
    if no other study shares a claim with `study`.
    """
    related = [peer for peer in plan.studies if repeats_study(peer, study) or repeats_study(study, peer)]
    together = [study, *related]
    alone = _command([study.name], [study], plan)
    return alone, _command([member.name for member in together], together, plan) if related else None


def _command(names: Sequence[str], studies: Sequence[StudyPlan], plan: ReportPlan) -> str:
    """Return the Snakemake command that runs `studies` on the backends that the plan has for them.

    The command names also the studies that only repeat claims. Snakemake's configuration `repeats=true` would
    add such studies, but also studies that are not in the plan.

    Args:
        names: names of claims or studies that the command gives to Snakemake.
        studies: the studies to which `names` belong.
    """
    backends = dict.fromkeys(backend for study in studies for backend in study.backends)
    settings = [f"studies={','.join(names)}", f"scale={plan.scale}", f"backends={','.join(backends)}"]
    if plan.parity is None:
        settings.append("parity=false")
    settings += where(plan.folders)
    return f"{SNAKEMAKE} {' '.join(settings)}"
