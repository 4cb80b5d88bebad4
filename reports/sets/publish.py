"""Publishing a report's tables as a set: `curvebench sets publish`, and what a set says, computed anew."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from curvebench.reports.rendering import TEMPLATES, say
from curvebench.reports.sets.checking import flaws
from curvebench.reports.sets.contents import gather, provenance_of
from curvebench.reports.sets.derived import derived, page, read_set, readme_of, texts
from curvebench.reports.sets.files import LICENCE, as_json, new_folder, seal, write_text
from curvebench.reports.sets.objections import Revision, all_objections
from curvebench.results.archive import read_publication, without_submissions
from curvebench.results.provenance import PROJECT, commit
from curvebench.results.reading import read
from curvebench.results.schema import TABLES
from curvebench.results.verdicts import RULE_VERSION, rules
from curvebench.results.writing import write_table
from curvebench.spec import sets
from curvebench.spec.errors import InputError
from curvebench.spec.plan import Objection, ReportPlan


def publish(
    plan: ReportPlan,
    name: object,
    folder: Path,
    waive: Sequence[str] = (),
    readme: Path | None = None,
    code: Revision | None = None,
) -> Path:
    """Write the tables of a report, and what follows from them, as a new published set.

    Args:
        plan: what is published: the plan of a report, or of a set that gets another name.
        name: the set's; the folder of that name below `folder` must not be there.
        waive: kinds of objections that are let pass, and told in the set.
        readme: the page whose leaderboard becomes the set's; None to leave all pages alone.
        code: the commit of the code that computes verdicts and leaderboard, and whether files differ from
            it; None to ask git.

    Returns:
        The set's folder.

    Raises:
        InputError: for a name, a waiver, seeds or a page that will not do.
        InputError: when something stands in the way, or a table is missing or damaged.
    """
    name, waive = sets.check_name(name, folder), sets.check_waivers(waive)
    if readme is not None:
        sets.check_page(readme)
        if not (folder / name).resolve().is_relative_to(readme.resolve().parent):
            raise InputError(f"{readme}: cannot link to {folder / name}, which does not lie below its folder")
    with new_folder(folder / name) as stage:
        _write(stage, name, plan, waive, code, datetime.now(UTC).isoformat(timespec="seconds"))
    if readme is not None:
        link = (folder / name).resolve().relative_to(readme.resolve().parent).as_posix()
        board = read([folder / name / "leaderboard.parquet"], "leaderboard")
        shown = page("readme.md.jinja", read_set(folder / name), board, name=name, folder=link)
        write_text(readme, sets.between_markers(readme.read_text(), readme, [shown]))
    return folder / name


def renew(folder: Path, code: Revision) -> None:
    """Derive a published set anew from its own tables, such as after a change of the statistics.

    Its runs, its name, and the day it was published stay, and what was waived remains waived.

    Args:
        folder: the set's.
        code: as `publish` takes it.

    Raises:
        InputError: when the folder holds no set, something new stands in the way, or a table is damaged.
    """
    plan, published = read_set(folder), read_publication(folder).published
    with new_folder(folder) as stage:
        _write(stage, plan.published, plan, [one.kind for one in plan.waived], code, published)


def _write(
    stage: Path, name: str, plan: ReportPlan, waive: Sequence[str], code: Revision | None, published: str
) -> None:
    """Write all files of a set.

    Args:
        stage: the folder that they are written into.
        plan: what is published.
        published: when the set was published, in ISO 8601.

    Raises:
        InputError: when something that is not waived stands in the way, or whoever checks the set would
            refuse it.
    """
    sets.check_seeds(plan.folders.get("seeds_of"))
    code = commit(PROJECT) if code is None else code
    contents = gather(plan)
    for where, frames in contents.frames.items():
        for table, frame in frames.items():
            write_table(stage / where / f"{table}.parquet", frame, TABLES[table])
    plan = _moved(plan, name)
    write_text(stage / sets.PLAN, plan.to_json())
    tables = derived(read_set(stage))  # from the set as it lies there, as whoever checks it computes them
    found = all_objections(code, plan, contents.frames, tables["claims"])
    if refused := [each for each in found if each.kind not in waive]:
        raise InputError("\n".join(_refusal(name, refused)))
    for table, frame in tables.items():
        write_table(stage / f"{table}.parquet", frame, TABLES[table])
    provenance = {
        "name": plan.published,
        "scale": plan.scale,
        "published": published,
        **dict(zip(("commit", "dirty"), code, strict=True)),
        "licence": LICENCE,
        "rule_version": RULE_VERSION,
        "thinned_curves": list(contents.thinned),
        "whole_curves": list(contents.whole),
        **provenance_of(contents.jobs, contents.runs),
    }
    write_text(stage / sets.PLAN, plan.model_copy(update={"waived": tuple(found)}).to_json())
    write_text(stage / sets.PROVENANCE, as_json(provenance))
    write_text(stage / "LICENSE", (TEMPLATES / "licence.txt").read_text())
    write_text(stage / "README.md", readme_of(read_set(stage), provenance, tables["leaderboard"]))
    for file, text in texts(tables["leaderboard"]).items():
        write_text(stage / file, text)
    seal(stage)
    if reasons := flaws(stage):
        raise InputError("\n".join([f"{name}: not published; whoever checks it would refuse it:", *reasons]))


def _refusal(name: str, found: Sequence[Objection]) -> Iterator[str]:
    yield f"{name}: not published"
    for kind in sets.WAIVERS:
        own = [each for each in found if each.kind == kind]
        yield from (f"  {say('objections.jinja', 'sentence', each)}" for each in own)
        for words in dict.fromkeys(say("objections.jinja", "remedy", each) for each in own):
            yield f"    remedy: {words}; or publish with waive={kind}, which the set then says"


def _moved(plan: ReportPlan, name: str) -> ReportPlan:
    """The plan with its folders as the set calls them, and the hash of each rule as it stands today."""
    studies = (
        without_submissions(study).model_copy(
            update={"tables": Path(study.name), "figures": Path("figures", study.name), "rules": rules(study)}
        )
        for study in plan.studies
    )
    checks = {"tables": (Path("checks"),), "figures": Path("figures/claims")}
    return plan.model_copy(
        update={
            "studies": tuple(studies),
            "skipped": tuple(one.model_copy(update={"rules": rules(one)}) for one in plan.skipped),
            "parity": plan.parity and plan.parity.model_copy(update={"tables": (Path("parity"),)}),
            "checks": plan.checks and plan.checks.model_copy(update=checks),
            "kernels": None,
            "archive": (),
            "census": (),
            "folders": {},  # of the publisher's machine
            "published": name,
            "verdicts": Path(),
            "waived": (),
        }
    )
