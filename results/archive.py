"""The archive: the best version of every study and checked claim that published sets hold."""

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
    """When a set was published, and the machines of its runs.

    Raises:
        InputError: when its provenance is missing or damaged.
    """
    path = folder / PROVENANCE
    try:
        provenance = json.loads(path.read_text())
        machines = {f"{one['cpu']}, {one['cores']} cores": None for one in provenance["machines"]}
        return Publication(published=provenance["published"], machines=tuple(machines))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: not a set's provenance ({error!r}); restore the set") from error


def read_archive(folder: Path, before: str = "") -> tuple[ReportPlan, ...]:
    """Read the published sets of a folder, each narrowed to its studies and claims that no better set has.

    Args:
        before: a time as provenance has it; only sets that were published earlier count. Empty for all.

    Raises:
        InputError: when a set's plan or provenance is missing or damaged.
    """
    found = [(read_publication(path), path / PLAN) for path in set_folders(folder)]
    best = best_of(
        [
            read_plan(path).model_copy(update={"origin": origin})
            for origin, path in sorted(found, key=lambda one: one[0].published)
            if not before or origin.published < before
        ]
    )
    return tuple(plan for plan in best if plan.studies or plan.checks)


def rank(study: StudyPlan) -> tuple[int, ...]:
    """How much a version of a study can say: what joins it, the length of its runs, its final seeds."""
    seeds = max(used.final_seeds for used in study.runs_on.values())
    return len(study.joining), max(study.training.budget.values()), seeds


def best_of(plans: Sequence[ReportPlan]) -> tuple[ReportPlan, ...]:
    """The plans, each with those studies and checked claims of which it has the best version.

    A study that only repeats claims stays with the study that decides them, where a plan has both; those
    that join another study all stay.

    Args:
        plans: the latest last; of versions of one rank the latest is the best.
    """
    alone = [[study for study in plan.studies if not study.joins] for plan in plans]
    studies = _best([[(study.name, rank(study)) for study in own] for own in alone])
    for place, own in enumerate(alone):
        decided = {claim.id for study in own if studies[study.name] == place for claim in study.claims}
        studies |= {
            study.name: place
            for study in own
            if study.only_repeats and decided.intersection(claim.repeats or "" for claim in study.repeated)
        }
    checked = [plan.checks.claims if plan.checks else () for plan in plans]
    claims = _best(
        [[(claim.id, (sum(part.instances for part in claim.parts),)) for claim in own] for own in checked]
    )
    return tuple(
        narrowed(
            plan,
            {name for name, at in studies.items() if at == place}
            | {study.name for study in plan.studies if study.joins},
            {claim for claim, at in claims.items() if at == place},
        )
        for place, plan in enumerate(plans)
    )


def _best(versions: Sequence[Sequence[tuple[str, tuple[Any, ...]]]]) -> dict[str, int]:
    """The place of the best version by name: of the highest rank, and of those the last."""
    found: dict[str, tuple[tuple[Any, ...], int]] = {}
    for place, named in enumerate(versions):
        for name, rank_ in named:
            found[name] = max(found.get(name, (rank_, place)), (rank_, place))
    return {name: place for name, (_, place) in found.items()}


SAME = ("bases", "seeds", "tuning", "compare")  # besides training, in a study that joins
HERE = "here"


def with_joined(archive: Sequence[ReportPlan], own: Sequence[StudyPlan]) -> tuple[ReportPlan, ...]:
    """The archive, with each study that joins another of its studies in that one's `joined`.

    Of methods of one name the first stays. A study of a set with another protocol stays by itself. Next to a
    study that is run here on fewer problems, the others stand on these alone.

    Args:
        own: the studies that are run here.

    Raises:
        InputError: for one of these whose study is not there, has another protocol, or has a method of that
            name.
    """
    published = {study.name: study for plan in archive for study in plan.studies if not study.joins}
    known = dict(published)
    handed_in = [(plan.published, study) for plan in archive for study in plan.studies if study.joins]
    for place, study in (*handed_in, *((HERE, study) for study in own if study.joins)):
        base = known.get(study.joins)
        whole = base and base.model_copy(update={"workloads": published[base.name].workloads})
        reason = _incompatibility(study, whole, whole=place != HERE)
        joined = _joined_by(base, place, study) if base and reason is None else None
        if joined and joined.workloads:
            known[joined.name] = joined
        elif place == HERE:
            reason = reason or f"no workload of {study.joins} is one of all studies that are run here"
            raise InputError(f"study {study.name}: joins: {reason}")
    return tuple(
        plan.model_copy(update={"studies": tuple(known.get(study.name, study) for study in plan.studies)})
        for plan in archive
    )


def joined_here(own: StudyPlan, archive: Sequence[ReportPlan]) -> StudyPlan:
    """A study that is run here, with what joins its published version as far as that can join it too."""
    published = [study for plan in archive for study in plan.studies if study.name == own.name]
    for place, joining in ((place, one) for study in published for place, one in study.joined.items()):
        for study in joining:
            if _incompatibility(study, own, whole=True) is None:
                own = _joined_by(own, place, study)
    return own


def unjoined(plan: ReportPlan, published: str, folders: Sequence[Path]) -> list[str]:
    """Why studies of a set cannot join those that they name, which older sets in some folders hold.

    Args:
        published: when the set was, as its provenance has it. Later ones change nothing.
    """
    joining = [study for study in plan.studies if study.joins]
    sets = {one.published: one for folder in folders for one in read_archive(folder, published) if joining}
    archive = with_joined(list(sets.values()), [])
    known = {study.name: study for one in archive for study in one.studies if not study.joins}
    reasons = {study.name: _incompatibility(study, known.get(study.joins), whole=True) for study in joining}
    return [f"{PLAN}: {name}: joins: {reason}" for name, reason in reasons.items() if reason]


def _joined_by(base: StudyPlan, place: str, study: StudyPlan) -> StudyPlan:
    """A study on the problems of one that joins it, with that one's methods."""
    problems = {workload.name for workload in study.workloads}
    shared = tuple(one for one in base.workloads if one.name in problems)
    whole = base.all_workloads or len(base.workloads)
    return base.model_copy(
        update={
            "workloads": shared,
            "all_workloads": whole if len(shared) < whole else None,
            "optimizers": (*base.optimizers, *study.optimizers),
            "joined": {**base.joined, place: (*base.joined.get(place, ()), study)},
        }
    )


def alone(study: StudyPlan) -> StudyPlan:
    """A study without those that join it."""
    others = {one.label for joining in study.joining for one in joining.optimizers}
    own = tuple(one for one in study.optimizers if one.label not in others)
    return study.model_copy(update={"optimizers": own, "joined": {}})


def _incompatibility(study: StudyPlan, base: StudyPlan | None, whole: bool) -> str | None:
    """Why a study cannot join another, on all of its problems where that must be; None where it can."""
    if base is None:
        return f"no published set has a study {study.joins!r}; publish it first"
    own, its = ({name: getattr(one, name) for name in SAME} | dict(one.training) for one in (study, base))
    for name, value in its.items():
        if own[name] != value:
            return f"{name} is not that of the published {base.name}, {value!r}"
    seeds = {used.final_seeds for used in study.runs_on.values()}
    if len(study.runs_on) > 1 or seeds != {base.runs_on[base.backends[0]].final_seeds}:
        return f"its methods must run on one backend, with the final seeds of {base.name}; give backends=NAME"
    settings = {workload.name: (workload.locator, workload.settings) for workload in base.workloads}
    for workload in study.workloads:
        if settings.get(workload.name) != (workload.locator, workload.settings):
            return f"the workload {workload.name} is not among those of the published {base.name}"
    if whole and len(study.workloads) < len(base.workloads):
        return f"it has {len(study.workloads)} of the {len(base.workloads)} workloads of {base.name}; run all"
    taken = {one.label for one in base.optimizers}
    for one in study.optimizers:
        if one.label in taken:
            return f"{base.name} has a method {one.label!r} already; give another `label:`"
    return None


def narrowed(plan: ReportPlan, studies: Collection[str], claims: Collection[str]) -> ReportPlan:
    """The plan with those studies and property claims, its parity, and nothing of what it left out."""
    checked = tuple(claim for claim in plan.checks.claims if claim.id in claims) if plan.checks else ()
    return plan.model_copy(
        update={
            "studies": tuple(study for study in plan.studies if study.name in studies),
            "skipped": (),
            "checks": plan.checks.model_copy(update={"claims": checked}) if plan.checks and checked else None,
        }
    )


def with_figures(plan: ReportPlan, folder: Path) -> ReportPlan:
    """A set's plan with its figures, which a set does not hold, in another folder as they would lie in it."""

    def place(figures: Path) -> Path:
        return folder / figures.relative_to(plan.path.parent)

    studies = (study.model_copy(update={"figures": place(study.figures)}) for study in plan.studies)
    checks = plan.checks and plan.checks.model_copy(update={"figures": place(plan.checks.figures)})
    return plan.model_copy(update={"studies": tuple(studies), "checks": checks})


def shown_plans(plan: ReportPlan) -> tuple[ReportPlan, ...]:
    """The archive and, last, the plan, each with what it has the best version of.

    What the plan left out is not listed where a published set has it.
    """
    best = best_of((*plan.archive, plan.model_copy(update={"archive": ()})))
    joined = [one for each in best for study in each.studies for own in study.joined.values() for one in own]
    *sets, own = (
        each.model_copy(update={"studies": tuple(one for one in each.studies if one not in joined)})
        for each in best
    )
    there = {study.name for one in sets for study in one.studies}
    skipped = tuple(study for study in plan.skipped if study.name not in there)
    return (*sets, own.model_copy(update={"skipped": skipped}))


# --- what a report shows of the published sets -----------------------------------------------------


def archive_of(names: Collection[str], own: Sequence[StudyPlan]) -> tuple[ReportPlan, ...]:
    """What is shown of the published sets beside the results.

    Args:
        names: the studies and claims that are asked for; empty for all.
        own: the studies that are run here.

    Raises:
        InputError: when a set is damaged, or a study that is run here cannot join the one that it names.
    """
    whole = with_joined(read_archive(PUBLISHED), own)
    found = (_narrowed(plan, names) for plan in whole)
    return tuple(plan for plan in found if plan.studies or plan.checks)


def _narrowed(plan: ReportPlan, names: Collection[str]) -> ReportPlan:
    """What of a set is named, by study or claim; all of it without names."""
    if not names:
        return plan
    studies = {
        study.name
        for study in plan.studies
        if not {study.name, *(claim.id for claim in study.claims)}.isdisjoint(names)
    }
    return narrowed(plan, studies, names).model_copy(update={"parity": None})


def sums_of(names: Iterable[str], studies: Iterable[StudyPlan]) -> list[str]:
    """The checksums of sets, and of those that join studies, which tell whether one of them is another."""
    joined = (place for study in studies for place in study.joined if place != HERE)
    places = dict.fromkeys((*names, *joined))
    return [(PUBLISHED / place / SUMS).read_text() for place in places]
