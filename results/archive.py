"""The archive: the best version of every study and property claim among the published sets.

A published set is a folder with the results of a report, which never changes again. A study may be in several
sets; the version with more submissions, longer runs and more seeds is the best. A submission is a study of a
new method that joins a published study, so that the method is ranked with the methods of that study. A
property claim is a claim of a paper that is tested on random instances instead of runs.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from curvebench.paths import PUBLISHED
from curvebench.spec.errors import InputError
from curvebench.spec.plan import Publication, ReportPlan, StudyPlan, read_plan
from curvebench.spec.sets import PLAN, PROVENANCE, SUMS, set_folders


def read_publication(folder: Path) -> Publication:
    """Return the date of publication of a set, and the machines of its runs.

    Raises:
        InputError: when the provenance of the set is missing or damaged.
    """
    path = folder / PROVENANCE
    try:
        provenance = json.loads(path.read_text())
        machines = {f"{entry['cpu']}, {entry['cores']} cores": None for entry in provenance["machines"]}
        return Publication(published=provenance["published"], machines=tuple(machines))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: not a set's provenance ({error!r}); restore the set") from error


def read_archive(folder: Path, published_before: str = "") -> tuple[ReportPlan, ...]:
    """Return the plans of the published sets in a folder, each reduced to the studies and claims whose best
    version is in this set.

    Args:
        folder: folder of published sets.
        published_before: a time such as `2026-11-22T09:44:11+00:00`; only sets that were published earlier
            are read. Empty to read all sets.

    Raises:
        InputError: when a set's plan or provenance is missing or damaged.
    """
    sets = [(read_publication(path), path / PLAN) for path in set_folders(folder)]
    past = [entry for entry in sets if not published_before or entry[0].published < published_before]
    past.sort(key=lambda entry: entry[0].published)
    best = best_of([read_plan(path).model_copy(update={"origin": origin}) for origin, path in past])
    return tuple(plan for plan in best if plan.studies or plan.checks)


def local_plans(folders: Iterable[Path]) -> list[ReportPlan]:
    """Return the plans of studies with local runs, one for each folder of merged tables.

    Folders without a plan, and with a plan of an earlier version of this project, are left out.

    Args:
        folders: folders in `curvebench.paths.TABLES`.
    """
    plans = []
    for folder in folders:
        with suppress(InputError):
            plans.append(read_plan(folder / PLAN))
    return plans


def rank(study: StudyPlan) -> tuple[int, ...]:
    """Return the key by which the versions of a study in different sets are compared; the best has the
    largest key.

    The key consists of the number of submissions to the study, the length of the runs (in steps or epochs)
    and the number of final seeds. These numbers are compared in this order.
    """
    seeds = max(used.final_seeds for used in study.runs_on.values())
    return len(study.joining), max(study.training.budget.values()), seeds


def best_of(plans: Sequence[ReportPlan]) -> tuple[ReportPlan, ...]:
    """Return the plans, each reduced to the studies and property claims whose best version is in this plan.

    A study that only repeats claims of another study (tests them once more under changed circumstances) is
    kept in the plan that has the best version of the other study, if that plan has both. All submissions are
    kept.

    Args:
        plans: plans in the order of publication. Of versions with equal ranks the latest is the best.
    """
    base_studies = [[study for study in plan.studies if not study.joins] for plan in plans]
    studies = _best([[(study.name, rank(study)) for study in group] for group in base_studies])
    for index, group in enumerate(base_studies):
        decided = {claim.id for study in group if studies[study.name] == index for claim in study.claims}
        studies |= {
            study.name: index
            for study in group
            if study.only_repeats and decided.intersection(claim.repeats or "" for claim in study.repeated)
        }
    checked = [plan.checks.claims if plan.checks else () for plan in plans]
    claims = _best(
        [[(item.id, (sum(part.instances for part in item.parts),)) for item in group] for group in checked]
    )
    return tuple(
        narrowed(
            plan,
            {name for name, at in studies.items() if at == index}
            | {study.name for study in plan.studies if study.joins},
            {claim for claim, at in claims.items() if at == index},
        )
        for index, plan in enumerate(plans)
    )


def _best(versions: Sequence[Sequence[tuple[str, tuple[Any, ...]]]]) -> dict[str, int]:
    """Return, for the name of each study or claim, the index of the plan that contains its best version.

    The best version has the highest rank. Of several versions with this rank, the last is the best.

    Args:
        versions: for each plan, a pair of name and rank for each study or claim of the plan.
    """
    best: dict[str, tuple[tuple[Any, ...], int]] = {}
    for index, named in enumerate(versions):
        for name, rank_ in named:
            best[name] = max(best.get(name, (rank_, index)), (rank_, index))
    return {name: index for name, (_, index) in best.items()}


# Fields of a study plan that must be equal for a submission and for the study that it joins.
# The field `training` of the two plans must be equal, too.
SHARED_SETTINGS = ("bases", "seeds", "tuning", "compare")
# Key of `StudyPlan.joined` for submissions with local runs. The other keys are names of published sets.
LOCAL = "here"


def with_joined(archive: Sequence[ReportPlan], local: Sequence[StudyPlan]) -> tuple[ReportPlan, ...]:
    """Return the archive with each submission added to the field `joined` of the study that it joins.

    A submission is a study of a new method that joins a published study. Of several methods with the same
    name, only the first one is added. A published submission with another protocol than the study is not
    added and stays a study of its own. If a local submission ran on fewer workloads than the study, the
    published study is restricted to the workloads of the submission.

    Args:
        archive: plans of published sets.
        local: local studies, some of which may be submissions.

    Raises:
        InputError: for a local submission whose study is not published, has another protocol, or already has
            a method with the name of the submitted method.
    """
    published = {study.name: study for plan in archive for study in plan.studies if not study.joins}
    current = dict(published)
    submissions = [(plan.published, study) for plan in archive for study in plan.studies if study.joins]
    for origin, study in (*submissions, *((LOCAL, study) for study in local if study.joins)):
        base = current.get(study.joins)
        full = base and base.model_copy(update={"workloads": published[base.name].workloads})
        reason = _incompatibility(study, full, fully=origin != LOCAL)
        joined = _joined_by(base, origin, study) if base and reason is None else None
        if joined and joined.workloads:
            current[joined.name] = joined
        elif origin == LOCAL:
            reason = reason or f"no workload of {study.joins} is one of all studies that are run here"
            raise InputError(f"study {study.name}: joins: {reason}")
    return tuple(
        plan.model_copy(update={"studies": tuple(current.get(study.name, study) for study in plan.studies)})
        for plan in archive
    )


def joined_locally(local: StudyPlan, archive: Sequence[ReportPlan]) -> StudyPlan:
    """Return a local study with the submissions to the published study of the same name added.

    Submissions with another protocol than the local study are left out.

    Args:
        local: the local study.
        archive: plans of published sets, to whose studies submissions have been added.
    """
    published = [study for plan in archive for study in plan.studies if study.name == local.name]
    for origin, joining in (item for study in published for item in study.joined.items()):
        for study in joining:
            if _incompatibility(study, local, fully=True) is None:
                local = _joined_by(local, origin, study)
    return local


def submission_flaws(plan: ReportPlan, published: str, folders: Sequence[Path]) -> list[str]:
    """Return a sentence for each submission of a set that cannot join the study that it names.

    Args:
        plan: plan of the set.
        published: time at which the set was published; sets that were published later are ignored.
        folders: folders with published sets.
    """
    joining = [study for study in plan.studies if study.joins]
    past_sets = [past for folder in folders if joining for past in read_archive(folder, published)]
    archive = with_joined(list({past.published: past for past in past_sets}.values()), [])
    bases = {study.name: study for past in archive for study in past.studies if not study.joins}
    reasons = {study.name: _incompatibility(study, bases.get(study.joins), fully=True) for study in joining}
    return [f"{PLAN}: {name}: joins: {reason}" for name, reason in reasons.items() if reason]


def _joined_by(base: StudyPlan, origin: str, study: StudyPlan) -> StudyPlan:
    """Return a study to which the method of a submission is added, on the workloads that both studies have.

    Args:
        base: the study.
        origin: name of the set that contains the submission, or `LOCAL`.
        study: the submission.
    """
    problems = {workload.name for workload in study.workloads}
    shared = tuple(workload for workload in base.workloads if workload.name in problems)
    total = base.all_workloads or len(base.workloads)
    return base.model_copy(
        update={
            "workloads": shared,
            "all_workloads": total if len(shared) < total else None,
            "optimizers": (*base.optimizers, *study.optimizers),
            "acts_as": {**base.acts_as, **study.acts_as},
            "joined": {**base.joined, origin: (*base.joined.get(origin, ()), study)},
        }
    )


def without_submissions(study: StudyPlan) -> StudyPlan:
    """Return a study without the methods of its submissions."""
    submitted = {optimizer.label for joining in study.joining for optimizer in joining.optimizers}
    optimizers = tuple(optimizer for optimizer in study.optimizers if optimizer.label not in submitted)
    acts_as = {name: by_workload for name, by_workload in study.acts_as.items() if name not in submitted}
    return study.model_copy(update={"optimizers": optimizers, "joined": {}, "acts_as": acts_as})


def _shared_settings(study: StudyPlan) -> dict[str, Any]:
    """Return the settings in which a submission must agree with the study that it joins, by name."""
    return {name: getattr(study, name) for name in SHARED_SETTINGS} | dict(study.training)


def _incompatibility(study: StudyPlan, base: StudyPlan | None, fully: bool) -> str | None:
    """Return the reason why a submission cannot join a study; None if it can.

    Args:
        study: the submission.
        base: the study that the submission names; None if no published set has this study.
        fully: whether the submission must have all workloads of the study.
    """
    if base is None:
        return f"no published set has a study {study.joins!r}; publish it first"
    offered, required = _shared_settings(study), _shared_settings(base)
    for name, value in required.items():
        if offered[name] != value:
            return f"{name} is not that of the published {base.name}, {value!r}"
    seeds = {used.final_seeds for used in study.runs_on.values()}
    if len(study.runs_on) > 1 or seeds != {base.runs_on[base.backends[0]].final_seeds}:
        return f"its methods must run on one backend, with the final seeds of {base.name}; give backends=NAME"
    settings = {workload.name: (workload.locator, workload.settings) for workload in base.workloads}
    for workload in study.workloads:
        if settings.get(workload.name) != (workload.locator, workload.settings):
            return f"the workload {workload.name} is not among those of the published {base.name}"
    if fully and len(study.workloads) < len(base.workloads):
        return f"it has {len(study.workloads)} of the {len(base.workloads)} workloads of {base.name}; run all"
    labels = {optimizer.label for optimizer in base.optimizers}
    for optimizer in study.optimizers:
        if optimizer.label in labels:
            return f"{base.name} has a method {optimizer.label!r} already; give another `label:`"
    return None


def narrowed(plan: ReportPlan, studies: Collection[str], claims: Collection[str]) -> ReportPlan:
    """Return the plan of a report with only the given studies and property claims, and no skipped studies.

    Args:
        plan: the plan. The plan's entry on parity (the comparison of backends) is kept.
        studies: names of the studies to keep.
        claims: ids of the property claims to keep.
    """
    checks = tuple(claim for claim in plan.checks.claims if claim.id in claims) if plan.checks else ()
    return plan.model_copy(
        update={
            "studies": tuple(study for study in plan.studies if study.name in studies),
            "skipped": (),
            "checks": plan.checks.model_copy(update={"claims": checks}) if plan.checks and checks else None,
        }
    )


def with_figures(plan: ReportPlan, folder: Path) -> ReportPlan:
    """Return the plan of a published set, in which all paths of figures are moved to another folder.

    Figures are drawn in the other folder, because a published set contains no figures and never changes.

    Args:
        plan: the plan.
        folder: folder that replaces the folder of the set in paths of figures.
    """

    def placed(figures: Path) -> Path:
        return folder / figures.relative_to(plan.path.parent)

    studies = (study.model_copy(update={"figures": placed(study.figures)}) for study in plan.studies)
    checks = plan.checks and plan.checks.model_copy(update={"figures": placed(plan.checks.figures)})
    return plan.model_copy(update={"studies": tuple(studies), "checks": checks})


def shown_plans(plan: ReportPlan) -> tuple[ReportPlan, ...]:
    """Return the plans whose results a report shows: the published sets in its plan, then the plan itself.

    Each plan is reduced to the studies and claims whose best version is in this plan. A study that the plan
    skipped is not listed as skipped if a published set has it.
    """
    best = best_of((*plan.archive, plan.model_copy(update={"archive": ()})))
    joined = [submission for part in best for study in part.studies for submission in study.joining]
    *sets, local = (
        part.model_copy(update={"studies": tuple(study for study in part.studies if study not in joined)})
        for part in best
    )
    published = {study.name for part in sets for study in part.studies}
    skipped = tuple(study for study in plan.skipped if study.name not in published)
    return (*sets, local.model_copy(update={"skipped": skipped}))


# --- published sets in a report --------------------------------------------------------------------


def archive_of(names: Collection[str], local: Sequence[StudyPlan]) -> tuple[ReportPlan, ...]:
    """Return the plans of the published sets that a report shows next to its own results.

    Args:
        names: studies and claims to show; empty for all.
        local: local studies.

    Raises:
        InputError: when a set is damaged, or a local submission cannot join the study that it names.
    """
    published = with_joined(read_archive(PUBLISHED), local)
    plans = (_narrowed(plan, names) for plan in published)
    return tuple(plan for plan in plans if plan.studies or plan.checks)


def _narrowed(plan: ReportPlan, names: Collection[str]) -> ReportPlan:
    """Return the plan with only the studies and claims in `names`; the whole plan if `names` is empty."""
    if not names:
        return plan
    studies = {
        study.name
        for study in plan.studies
        if not {study.name, *(claim.id for claim in study.claims)}.isdisjoint(names)
    }
    return narrowed(plan, studies, names).model_copy(update={"parity": None})


def checksums_of(names: Iterable[str], studies: Iterable[StudyPlan]) -> list[str]:
    """Return the text of the file SHA256SUMS of each published set in `names`, and of sets with submissions.

    The texts are used as a cache key: figures are drawn again when a set changes.

    Args:
        names: names of sets.
        studies: studies; the sets that contain submissions to these studies are added.
    """
    submission_sets = (name for study in studies for name in study.joined if name != LOCAL)
    sets = dict.fromkeys((*names, *submission_sets))
    return [(PUBLISHED / name / SUMS).read_text() for name in sets]
