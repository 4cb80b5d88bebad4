"""The archive: the best version of every study and property claim among the published sets.

A published set may contain submissions: studies of a new method that join a published study, so that the
method is ranked with the methods of that study.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

from curvebench.paths import PUBLISHED
from curvebench.spec.errors import InputError
from curvebench.spec.plan import Publication, ReportPlan, StudyPlan, read_plan
from curvebench.spec.sets import PLAN, PROVENANCE, SUMS, set_folders


def read_publication(folder: Path) -> Publication:
    """Return when a set was published, and the machines of its runs.

    Raises:
        InputError: when its provenance is missing or damaged.
    """
    path = folder / PROVENANCE
    try:
        provenance = json.loads(path.read_text())
        machines = {f"{entry['cpu']}, {entry['cores']} cores": None for entry in provenance["machines"]}
        return Publication(published=provenance["published"], machines=tuple(machines))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: not a set's provenance ({error!r}); restore the set") from error


def read_archive(folder: Path, published_before: str = "") -> tuple[ReportPlan, ...]:
    """Read the published sets of a folder, each reduced to the studies and claims of which it has the best
    version.

    Args:
        published_before: a time as provenance has it; only sets that were published earlier are read. Empty
            for all sets.

    Raises:
        InputError: when a set's plan or provenance is missing or damaged.
    """
    sets = [(read_publication(path), path / PLAN) for path in set_folders(folder)]
    past = [entry for entry in sets if not published_before or entry[0].published < published_before]
    past.sort(key=lambda entry: entry[0].published)
    best = best_of([read_plan(path).model_copy(update={"origin": origin}) for origin, path in past])
    return tuple(plan for plan in best if plan.studies or plan.checks)


def rank(study: StudyPlan) -> tuple[int, ...]:
    """Return the sort key of a version of a study: its submissions, the length of its runs, its final
    seeds.
    """
    seeds = max(used.final_seeds for used in study.runs_on.values())
    return len(study.joining), max(study.training.budget.values()), seeds


def best_of(plans: Sequence[ReportPlan]) -> tuple[ReportPlan, ...]:
    """Return the plans, each with the studies and property claims of which it has the best version.

    A study that only repeats claims stays with the study that decides them if a plan has both. All
    submissions stay.

    Args:
        plans: plans with the latest last; of versions of equal rank the latest is the best.
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
    """Return the index of the best version by name: the version of the highest rank, and of these the last.

    Args:
        versions: names and ranks in each plan.
    """
    best: dict[str, tuple[tuple[Any, ...], int]] = {}
    for index, named in enumerate(versions):
        for name, rank_ in named:
            best[name] = max(best.get(name, (rank_, index)), (rank_, index))
    return {name: index for name, (_, index) in best.items()}


# Settings in which a submission must agree with the study that it joins, in addition to training.
SHARED_SETTINGS = ("bases", "seeds", "tuning", "compare")
LOCAL = "here"  # name of local runs among the sources of submissions, where others are names of sets


def with_joined(archive: Sequence[ReportPlan], local: Sequence[StudyPlan]) -> tuple[ReportPlan, ...]:
    """Return the archive with each submission added to the `joined` studies of the study that it joins.

    Of several methods with one name the first one is added. A published submission with another protocol
    stays a study of its own. If a local submission ran on fewer problems, all other methods are reduced to
    these problems.

    Args:
        local: local studies.

    Raises:
        InputError: for a local submission whose study is not published, has another protocol, or already has
            a method of that name.
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
    """Return a local study with the submissions to its published version that are compatible with it."""
    published = [study for plan in archive for study in plan.studies if study.name == local.name]
    for origin, joining in (item for study in published for item in study.joined.items()):
        for study in joining:
            if _incompatibility(study, local, fully=True) is None:
                local = _joined_by(local, origin, study)
    return local


def submission_flaws(plan: ReportPlan, published: str, folders: Sequence[Path]) -> list[str]:
    """Return why submissions of a set cannot join the studies that they name.

    Args:
        plan: plan of the set.
        published: time of publication of the set, as its provenance has it; later sets are ignored.
        folders: folders with published sets.
    """
    joining = [study for study in plan.studies if study.joins]
    past_sets = [past for folder in folders if joining for past in read_archive(folder, published)]
    archive = with_joined(list({past.published: past for past in past_sets}.values()), [])
    bases = {study.name: study for past in archive for study in past.studies if not study.joins}
    reasons = {study.name: _incompatibility(study, bases.get(study.joins), fully=True) for study in joining}
    return [f"{PLAN}: {name}: joins: {reason}" for name, reason in reasons.items() if reason]


def _joined_by(base: StudyPlan, origin: str, study: StudyPlan) -> StudyPlan:
    """Return a study with the methods of a submission, on the problems that both have.

    Args:
        base: the study.
        origin: name of the set that contains the submission, or `LOCAL`.
    """
    problems = {workload.name for workload in study.workloads}
    shared = tuple(workload for workload in base.workloads if workload.name in problems)
    total = base.all_workloads or len(base.workloads)
    return base.model_copy(
        update={
            "workloads": shared,
            "all_workloads": total if len(shared) < total else None,
            "optimizers": (*base.optimizers, *study.optimizers),
            "joined": {**base.joined, origin: (*base.joined.get(origin, ()), study)},
        }
    )


def without_submissions(study: StudyPlan) -> StudyPlan:
    """Return a study without the methods of its submissions."""
    submitted = {optimizer.label for joining in study.joining for optimizer in joining.optimizers}
    optimizers = tuple(optimizer for optimizer in study.optimizers if optimizer.label not in submitted)
    return study.model_copy(update={"optimizers": optimizers, "joined": {}})


def _shared_settings(study: StudyPlan) -> dict[str, Any]:
    """Return the settings in which a submission must agree with the study that it joins, by name."""
    return {name: getattr(study, name) for name in SHARED_SETTINGS} | dict(study.training)


def _incompatibility(study: StudyPlan, base: StudyPlan | None, fully: bool) -> str | None:
    """Return why a submission cannot join a study; None where it can.

    Args:
        base: the study that it joins; None if no published set has it.
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
    """Return the plan with only these studies and property claims, with its parity, and without skipped
    studies.
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
    """Return the plan of a set with its figures placed in another folder, since a set contains no figures.

    The figures have the same paths in this folder as they would have in the set.
    """

    def placed(figures: Path) -> Path:
        return folder / figures.relative_to(plan.path.parent)

    studies = (study.model_copy(update={"figures": placed(study.figures)}) for study in plan.studies)
    checks = plan.checks and plan.checks.model_copy(update={"figures": placed(plan.checks.figures)})
    return plan.model_copy(update={"studies": tuple(studies), "checks": checks})


def shown_plans(plan: ReportPlan) -> tuple[ReportPlan, ...]:
    """Return the archive and, last, the plan itself, each with the items of which it has the best version.

    A study that the plan skipped is not listed as skipped if a published set has it.
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
    """Return the plan with only the named studies and claims; the whole plan without names."""
    if not names:
        return plan
    studies = {
        study.name
        for study in plan.studies
        if not {study.name, *(claim.id for claim in study.claims)}.isdisjoint(names)
    }
    return narrowed(plan, studies, names).model_copy(update={"parity": None})


def checksums_of(names: Iterable[str], studies: Iterable[StudyPlan]) -> list[str]:
    """Return the SHA256SUMS of these sets and of the sets whose submissions join the studies.

    They serve as a cache key: figures are redrawn when a set changes.
    """
    submission_sets = (name for study in studies for name in study.joined if name != LOCAL)
    sets = dict.fromkeys((*names, *submission_sets))
    return [(PUBLISHED / name / SUMS).read_text() for name in sets]
