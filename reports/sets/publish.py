"""Publishing a report's tables as a set: `curvebench sets publish`, and what a set says, computed anew."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from curvebench.reports.claims.verdict_list import read_verdicts
from curvebench.reports.sets.checking import flaws
from curvebench.reports.sets.contents import Contents, gather_all, provenance_of
from curvebench.reports.sets.derived import derived, page, read_set, texts
from curvebench.reports.sets.files import LICENCE, as_json, new_set, seal, write_text
from curvebench.reports.sets.objections import Objection, Revision, all_objections, in_short
from curvebench.results.provenance import PROJECT, commit
from curvebench.results.reading import read
from curvebench.results.schema import TABLES
from curvebench.results.verdicts import RULE_VERSION, rules
from curvebench.results.writing import write_table
from curvebench.spec.archive import alone
from curvebench.spec.errors import InputError
from curvebench.spec.plan import ReportPlan, with_studies_of
from curvebench.spec.sets import (
    PLAN,
    PROVENANCE,
    VERDICTS,
    WAIVERS,
    between_markers,
    check_name,
    check_page,
    check_seeds,
    check_waivers,
)


def publish(
    plan: ReportPlan,
    name: object,
    folder: Path,
    waive: Sequence[str] = (),
    readme: Path | None = None,
    code: Revision | None = None,
    others: Sequence[ReportPlan] = (),
) -> Path:
    """Write the tables of reports and what follows from them as a published set.

    A set that is published already is computed anew from its own tables, under another name, such as after a
    change of the statistics, or with the studies of other sets.

    Args:
        plan: what is published.
        name: the set's; the folder of that name below `folder` must not be there.
        waive: kinds of objections that are let pass, and told in the set.
        readme: the page whose leaderboard becomes the set's; None to leave all pages alone.
        code: the commit of the code that computes verdicts and leaderboard, and whether files differ from
            it; None to ask git.
        others: plans, of the same scale, whose studies become part of the set.

    Returns:
        The set's folder.

    Raises:
        InputError: for a name, a waiver, seeds or a page that will not do.
        InputError: when something stands in the way, or a table is missing or damaged.
    """
    name, waive = check_name(name, folder), check_waivers(waive)
    code = commit(PROJECT) if code is None else code
    if readme is not None:
        check_page(readme)
        if not (folder / name).resolve().is_relative_to(readme.resolve().parent):
            raise InputError(f"{readme}: cannot link to {folder / name}, which does not lie below its folder")
    plan, parts = with_studies_of(plan, others), (plan, *others)
    for part in parts:
        check_seeds(part.folders.get("seeds_of"))
    contents = gather_all(parts)
    plan = plan.model_copy(update={"studies": tuple(map(alone, plan.studies))})
    renewed = _by_todays_rule(plan)
    found = all_objections(code, plan, contents.frames, read_verdicts(renewed).claims)
    if refused := [each for each in found if each.kind not in waive]:
        raise InputError("\n".join(_refusal(name, refused)))
    with new_set(folder, name) as stage:
        _write(stage, _moved(renewed, name, found), contents, _provenance(name, plan, contents, found, code))
        if reasons := flaws(stage):
            raise InputError(
                "\n".join([f"{name}: not published; whoever checks it would refuse it:", *reasons])
            )
    if readme is not None:
        link = (folder / name).resolve().relative_to(readme.resolve().parent).as_posix()
        board = read([folder / name / "leaderboard.parquet"], "leaderboard")
        shown = page("readme.md.jinja", read_set(folder / name), board, name=name, folder=link)
        write_text(readme, between_markers(readme.read_text(), readme, [shown]))
    return folder / name


def _refusal(name: str, found: Sequence[Objection]) -> Iterator[str]:
    yield f"{name}: not published"
    for kind in WAIVERS:
        own = [each for each in found if each.kind == kind]
        yield from (f"  {each.sentence}" for each in own)
        for remedy in dict.fromkeys(each.remedy for each in own):
            yield f"    remedy: {remedy}; or publish with waive={kind}, which the set then says"


def _write(stage: Path, plan: ReportPlan, contents: Contents, provenance: Mapping[str, Any]) -> None:
    """Write everything, the plan as it is to stand in the set."""
    for where, frames in contents.frames.items():
        for table, frame in frames.items():
            write_table(stage / where / f"{table}.parquet", frame, TABLES[table])
    write_text(stage / PLAN, plan.to_json())
    own = read_set(stage)
    tables, verdicts = derived(own)  # from the set as it lies there, as whoever checks it computes them
    for table, frame in tables.items():
        write_table(stage / f"{table}.parquet", frame, TABLES[table])
    write_text(stage / PROVENANCE, as_json(provenance))
    write_text(stage / VERDICTS, as_json(verdicts))
    for file, text in texts(own, provenance, tables["leaderboard"], verdicts).items():
        write_text(stage / file, text)
    seal(stage)


def _by_todays_rule(plan: ReportPlan) -> ReportPlan:
    """A plan with the hash of each claim of a study as the rule stands today; an older set's has another."""
    return plan.model_copy(
        update={
            kind: tuple(each.model_copy(update={"rules": rules(each)}) for each in getattr(plan, kind))
            for kind in ("studies", "skipped")
        }
    )


def _moved(plan: ReportPlan, name: str, found: Sequence[Objection]) -> ReportPlan:
    """The plan with its folders as they are called in the set."""
    studies = (
        study.model_copy(update={"tables": Path(study.name), "figures": Path("figures", study.name)})
        for study in plan.studies
    )
    checks = {"tables": (Path("checks"),), "figures": Path("figures/claims")}
    return plan.model_copy(
        update={
            "studies": tuple(studies),
            "parity": plan.parity and plan.parity.model_copy(update={"tables": (Path("parity"),)}),
            "checks": plan.checks and plan.checks.model_copy(update=checks),
            "kernels": None,
            "archive": (),
            "census": (),
            "folders": {},  # of the publisher's machine
            "published": name,
            "verdicts": Path(VERDICTS),
            "waived": tuple(in_short(found)),
        }
    )


def _provenance(
    name: str, plan: ReportPlan, contents: Contents, found: Sequence[Objection], code: Revision
) -> dict[str, Any]:
    revision, dirty = code
    return {
        "name": name,
        "scale": plan.scale,
        "published": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": revision,
        "dirty": dirty,
        "licence": LICENCE,
        "rule_version": RULE_VERSION,
        "waived": [each.record for each in found],
        "thinned_curves": list(contents.thinned),
        "whole_curves": list(contents.whole),
        **provenance_of(contents.jobs, contents.runs),
    }
