"""Publishing a report's tables as a set (`curvebench sets publish`), and recomputing a set's verdicts.

A set is a folder with tables, their plan, and the verdicts, leaderboard and texts that are computed from the
tables. An objection is a reason against publishing, such as a failed job; objections can be waived.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from curvebench.reports.rendering import TEMPLATES, say
from curvebench.reports.sets.checking import flaws
from curvebench.reports.sets.contents import gather, provenance_of
from curvebench.reports.sets.derived import derived, leaderboard_texts, page, read_set, readme_of
from curvebench.reports.sets.files import LICENCE, as_json, new_folder, seal, write_text
from curvebench.reports.sets.objections import Revision, all_objections
from curvebench.results.archive import read_publication, without_submissions
from curvebench.results.reading import read
from curvebench.results.schema import TABLES
from curvebench.results.verdicts import RULE_VERSION, rules
from curvebench.results.writing import write_table
from curvebench.spec import sets
from curvebench.spec.claim import Cause
from curvebench.spec.errors import InputError
from curvebench.spec.plan import Objection, ReportPlan, StudyPlan


def publish(
    plan: ReportPlan,
    name: object,
    folder: Path,
    code: Revision,
    waive: Sequence[str] = (),
    readme: Path | None = None,
) -> Path:
    """Write the tables of a report, and the tables and texts computed from them, as a new published set.

    Args:
        plan: plan of the report, or of a published set that gets another name.
        name: name of the set; the folder of this name below `folder` must not exist.
        folder: folder of the published sets.
        code: commit of the code that computes verdicts and leaderboard, and whether files differ from the
            commit.
        waive: kinds of objections that do not prevent publication; the set lists them.
        readme: Markdown page whose leaderboard is replaced by the leaderboard of the set; None to change no
            page.

    Returns:
        The folder of the new set.

    Raises:
        InputError: when the name, a waiver, the page or the seeds are not suitable.
        InputError: when an objection is not waived, or a table is missing or damaged.
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
        text = page("readme.md.jinja", read_set(folder / name), board, name=name, folder=link)
        write_text(readme, sets.between_markers(readme.read_text(), readme, [text]))
    return folder / name


def redeclared(
    plan: ReportPlan, hardware: Mapping[str, str], causes: Mapping[str, Cause | None]
) -> ReportPlan:
    """Return the plan of a set with the declarations that the definitions of its claims have today.

    A declaration is the kind of machine that the source of a claim timed, or the cause of the verdict on a
    property claim. Decision rules are no declarations, and stay as they are in the set. A claim that is no
    longer defined keeps the declarations of the set.

    Args:
        hardware: kind of machine that the claims of today declare, by id of the claim.
        causes: causes that the property claims of today declare, by id of the claim.
    """

    def declared(study: StudyPlan) -> StudyPlan:
        kinds = ((claim, hardware.get(claim.id, claim.hardware)) for claim in study.claims)
        claims = tuple(claim.model_copy(update={"hardware": kind}) for claim, kind in kinds)
        return study.model_copy(update={"claims": claims})

    parts: dict[str, Any] = {"studies": tuple(map(declared, plan.studies))}
    if plan.checks:
        now = ((claim, causes.get(claim.id, claim.cause)) for claim in plan.checks.claims)
        claims = tuple(claim.model_copy(update={"cause": cause}) for claim, cause in now)
        parts["checks"] = plan.checks.model_copy(update={"claims": claims})
    return plan.model_copy(update=parts)


def renew(
    folder: Path, code: Revision, hardware: Mapping[str, str], causes: Mapping[str, Cause | None]
) -> None:
    """Recompute verdicts, leaderboard and texts of a published set, for example after a change of statistics.

    The runs, the name, the time of publication and the waived objections of the set stay the same.

    Args:
        folder: folder of the set.
        code: commit of the code that computes verdicts and leaderboard, and whether files differ from the
            commit.
        hardware, causes: declarations of today (`redeclared`), by id of the claim.

    Raises:
        InputError: when the folder contains no set, there is a new objection, or a table is damaged.
    """
    published, plan = read_publication(folder).published, redeclared(read_set(folder), hardware, causes)
    with new_folder(folder) as stage:
        _write(stage, plan.published, plan, [objection.kind for objection in plan.waived], code, published)


def _write(
    stage: Path, name: str, plan: ReportPlan, waive: Sequence[str], code: Revision, published: str
) -> None:
    """Write all files of a set.

    Args:
        stage: temporary folder to write into.
        name: name of the set.
        plan: plan of the report or set to publish.
        waive: kinds of objections that do not prevent publication.
        code: commit of the code that computes verdicts and leaderboard, and whether files differ from the
            commit.
        published: time of publication in ISO 8601.

    Raises:
        InputError: when an objection is not waived, or when a check of sets would refuse the new set.
    """
    sets.check_seeds(plan.folders.get("seeds_of"))
    contents = gather(plan)
    for subfolder, frames in contents.frames.items():
        for table, frame in frames.items():
            write_table(stage / subfolder / f"{table}.parquet", frame, TABLES[table])
    plan = _moved(plan, name)
    write_text(stage / sets.PLAN, plan.to_json())
    # Compute verdicts and leaderboard from the written files, as every later check of the set does.
    tables = derived(read_set(stage))
    raised = all_objections(code, plan, contents.frames, tables["claims"])
    if refused := [objection for objection in raised if objection.kind not in waive]:
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
    write_text(stage / sets.PLAN, plan.model_copy(update={"waived": tuple(raised)}).to_json())
    write_text(stage / sets.PROVENANCE, as_json(provenance))
    write_text(stage / "LICENSE", (TEMPLATES / "licence.txt").read_text())
    write_text(stage / "README.md", readme_of(read_set(stage), provenance, tables["leaderboard"]))
    for file, text in leaderboard_texts(tables["leaderboard"]).items():
        write_text(stage / file, text)
    seal(stage)
    if reasons := flaws(stage):
        raise InputError("\n".join([f"{name}: not published; whoever checks it would refuse it:", *reasons]))


def _refusal(name: str, refused: Sequence[Objection]) -> Iterator[str]:
    """Yield the lines of the message about objections that are not waived, grouped by kind."""
    yield f"{name}: not published"
    for kind in sets.WAIVERS:
        of_kind = [objection for objection in refused if objection.kind == kind]
        yield from (f"  {say('objections.jinja', 'sentence', objection)}" for objection in of_kind)
        for remedy in dict.fromkeys(say("objections.jinja", "remedy", objection) for objection in of_kind):
            yield f"    remedy: {remedy}; or publish with waive={kind}, which the set then says"


def _moved(plan: ReportPlan, name: str) -> ReportPlan:
    """Return the plan of the new set, with paths inside of the set and the current hash of each decision
    rule.
    """
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
            "skipped": tuple(item.model_copy(update={"rules": rules(item)}) for item in plan.skipped),
            "parity": plan.parity and plan.parity.model_copy(update={"tables": (Path("parity"),)}),
            "checks": plan.checks and plan.checks.model_copy(update=checks),
            "kernels": None,
            "archive": (),
            "census": (),
            "folders": {},  # remove folders of the configuration, which exist only on the publisher's machine
            "published": name,
            "verdicts": Path(),
            "waived": (),
        }
    )
