"""The static site: renders the pages and copies figures, style and script into one folder."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import polars as pl

from curvebench.reports import formatting
from curvebench.reports.boards.leaderboard import by_source, leaderboards
from curvebench.reports.claims.page import claims_page
from curvebench.reports.claims.rerun import SNAKEMAKE, study_commands
from curvebench.reports.claims.verdict_list import unrun
from curvebench.reports.figures.anytime import anytime_of
from curvebench.reports.figures.study_figures import AXES
from curvebench.reports.pages.comparing import comparison_page
from curvebench.reports.pages.heat_map import folded, heat_map
from curvebench.reports.pages.kernel_ratios import ratio_tables, read_ratios
from curvebench.reports.pages.kernels import COMMITS_SHOWN, STEPS_SHOWN, kernels_page
from curvebench.reports.pages.overview import Answer, answers
from curvebench.reports.pages.parity import parity_page, parity_rows
from curvebench.reports.pages.study_pages import (
    Rows,
    final_seeds,
    machine_warnings,
    provenance_page,
    run_metrics,
    run_pages,
    study_page,
    when_and_where,
)
from curvebench.reports.pages.versions import (
    ShownStudy,
    checked_against,
    on_page,
    read_version,
    renamed_here,
)
from curvebench.reports.plan import BOARD_FIGURES, figure_folder
from curvebench.reports.rendering import templates, text_of
from curvebench.reports.sets.files import new_folder
from curvebench.reports.statistics.steps import LEAST as STEP_LEAST
from curvebench.results.seconds import CAUSES, seconds_by_cause
from curvebench.spec.archive import shown_plans
from curvebench.spec.errors import InputError
from curvebench.spec.plan import ReportPlan
from curvebench.spec.sources import sources

STATIC = Path(__file__).parent.parent / "static"
SHOWN = "plan.json"  # what the site shows; planning renders it anew where this is another plan
WRITTEN = "files.json"  # what the last rendering wrote; the next one takes over what is not among it


def render_site(plan: ReportPlan, out: Path, drawings: Path, log: Callable[[str], None]) -> list[str]:
    """Render every page into a folder and return a summary in lines.

    The folder takes the place of the old one when it is complete, and takes over files of others in it.

    Args:
        drawings: a folder for figures that are drawn on the way; is made where it is missing.
        log: is called with what is done next.

    Raises:
        InputError: when a study's tables or figures are missing or damaged.
    """
    versions = []
    for one in (*plan.archive, plan.model_copy(update={"archive": ()})):
        log(f"verdicts of {one.published or 'what was run'}")
        versions.append(read_version(one))
    *published, own = versions
    best = [version.best(one) for version, one in zip(versions, shown_plans(plan), strict=True)]
    place_of = {study.name: place for place, study in enumerate(plan.studies)}  # these first, in their order
    leading = sorted(
        (each for own_best, _ in best for each in own_best),
        key=lambda each: (place_of.get(each.study.name, len(place_of)), each.study.name),
    )
    there = {id(each) for each in leading}
    pages_of = [
        *leading,
        *(renamed_here(each) for each in own.studies if id(each) not in there and not each.study.joins),
    ]
    studies = [(each.study, each.tables) for each in leading]
    runs = {each.study.name: run_pages(each.study, each.tables.runs) for each in pages_of}
    found = answers(studies)
    log("leaderboard")
    first, others = by_source(leaderboards(studies))
    boards = [*filter(None, [first]), *(board for own in others.values() for board in own)]
    board_of = {
        id(column.study): board
        for board in boards
        for column in board.columns
        if board.backend == column.study.backends[0]
    }
    compared = next((one.parity for one in (plan, *reversed(plan.archive)) if one.parity), None)
    parity = parity_page(compared, parity_rows(compared)) if compared else None
    measured = [version.measures for version in versions if version.measures is not None]
    shown_claims = [*(claim for _, claims in best for claim in claims), *unrun(plan)]
    page_of = {each.planned.name: each.study.name for each in pages_of if each.plan is own.plan}
    own_claims = {claim.id: on_page(claim, page_of) for claim in own.claims}
    there_too = {claim.id for claim in shown_claims}
    shown_claims += [claim for name, claim in own_claims.items() if name not in there_too]
    claims = claims_page(shown_claims, {machine for rows in measured for machine in rows["machine"]})
    checked = checked_against(own.claims, (claim for version in published for claim in version.claims))
    run_here = {one.here.id: own_claims[one.here.id] for one in checked}
    kernels = kernels_page(plan.kernels)
    warnings = machine_warnings(studies)
    shown = plan.model_copy(update={"studies": tuple(each.study for each in pages_of), "parity": compared})
    plan_of = {each.study.name: each.plan for each in pages_of}
    claim_of = {one.plan.published: {claim.id: claim for claim in one.claims} for one in versions}

    environment = templates()
    environment.policies["json.dumps_kwargs"] = {"ensure_ascii": False, "separators": (",", ":")}
    environment.globals |= {
        "plan": shown,
        "plan_of": plan_of,
        "scales_of": lambda names: _scales(plan_of[name] for name in names),
        "scales": _scales(each.plan for each in leading) or _scales([plan]),
        "any_claims": bool(claims["claims"]),
        "study_file": study_file,
        "runs_file": runs_file,
        "runs_link": lambda study, method: runs_link(runs[study], study, method),
        "final_seeds": final_seeds,
        "causes": CAUSES,
        "axes": AXES,
    }
    pages: dict[str, str] = {}

    def render(template: str, name: str = "", **context: Any) -> None:
        name = name or f"{template}.html"
        pages[name] = environment.get_template(f"{template}.html.jinja").render(page=name, **context)

    log("overview")
    kept, more = folded(found)
    heat = heat_map(kept, first)
    on_map = {id(row.answer) for row in heat.leading.rows}
    render(
        "index",
        answers=sorted(kept, key=lambda answer: id(answer) not in on_map),
        more_answers=more,
        heat=heat,
        boards=boards,
        where=when_and_where(own.jobs),
        parity=parity,
        claims=claims,
        studies=[(each.study, each.tables) for each in pages_of],
        failures=own.failures,
        checked=checked,
        warnings=warnings,
    )
    for place, each in enumerate(pages_of, start=1):
        study, name = each.study, each.study.name
        log(f"{study_file(name)}, study {place} of {len(pages_of)}")
        render(
            "study",
            study_file(name),
            folder=figure_folder(name),
            commands=study_commands(each.planned, each.plan),
            versions=[
                other.study.name
                for other in pages_of
                if other is not each and other.planned.name == each.planned.name
            ],
            claim_of=claim_of[each.plan.published],
            run_here={} if each.study is each.planned else run_here,
            **study_page(study, each.tables, each.figures, _answers_of(each, found), board_of.get(id(study))),
        )
        for number, rows in enumerate(runs[name]):
            about = {"study": study, "total": len(runs[name]), "metrics": run_metrics(study)}
            render("runs", runs_file(name, number), rows=rows, number=number, **about)
    log("figures of the leaderboard")
    times = anytime_of(boards, studies, drawings)
    shown_times: dict[str, Any] = {"sources": others, "anytime_of": times, "board_figures": BOARD_FIGURES}
    render("leaderboard", boards=boards, warnings=warnings, **shown_times)
    log("compare.html")
    leaders = [row.method for row in boards[0].rows[:2]] if boards else []
    render("compare", **comparison_page(studies, leaders))
    stored = read_ratios()
    render(
        "kernels",
        kernels=kernels,
        columns=COMMITS_SHOWN,
        steps_shown=STEPS_SHOWN,
        step_least=STEP_LEAST,
        ratios=ratio_tables(stored),
        measured=stored.select("measured", "processor", "versions").unique(maintain_order=True).to_dicts(),
    )
    if parity:
        not_compared = [failure for failure in own.failures if failure["stage"] == "parity"]
        render("parity", not_compared=not_compared, **parity)
    render("methods", documents=sources())
    if environment.globals["any_claims"]:
        render("claims", studies_shown={*plan_of}, run_here=run_here, **claims)
    jobs = pl.concat([*(version.jobs for version in versions), *(each.tables.jobs for each in pages_of)])
    render("provenance", **provenance_page(jobs, warnings))
    folders = [(figure_folder(each.study.name), each.study.figures, each.figures) for each in pages_of]
    folders += [
        (version.check_folder, version.plan.checks.figures, version.check_figures)
        for version in versions
        if version.plan.checks
    ]
    drawn = [asdict(figure) for one in times if one for figure in one.figures]
    folders.append((BOARD_FIGURES, drawings, drawn))
    log(f"{len(pages)} files to {out}")
    _write(out, pages, plan, folders)
    verdicts = Counter(claim.verdict for claim in own.claims).most_common()
    about = {"own": own, "checked": checked, "site": (out / "index.html").resolve()}
    about |= {
        "snakemake": SNAKEMAKE,
        "verdicts": verdicts,
        "spent": seconds_by_cause(own.jobs).row(0, named=True),
    }
    return text_of("summary", **about).splitlines()


def _answers_of(each: ShownStudy, found: Sequence[Answer]) -> list[Answer]:
    """A study's answers: of those that lead the overview, or its own where another version is there."""
    own = [answer for answer in found if answer.study is each.study]
    return own or answers([(each.study, each.tables)])


def _scales(plans: Iterable[ReportPlan]) -> list[str]:
    """The scales of plans in words, each once."""
    return list(dict.fromkeys(formatting.words(plan.scale) for plan in plans))


def study_file(name: str) -> str:
    """The page of a study."""
    return f"study_{formatting.slug(name)}.html"


def runs_file(name: str, number: int = 0) -> str:
    """A page of a study's runs, counted from 0."""
    return f"runs_{formatting.slug(name)}{f'_{number + 1}' if number else ''}.html"


def runs_link(pages: list[Rows], study: str, method: str) -> str:
    """The first run of a method."""
    for number, rows in enumerate(pages):
        if any(row["method"] == method for row in rows):
            return f"{runs_file(study, number)}#{formatting.slug(method)}"
    return runs_file(study)


def _write(
    out: Path, pages: Mapping[str, str], plan: ReportPlan, figures: Sequence[tuple[str, Path, Rows]]
) -> None:
    """Write pages and drawings (texts by path) and copies.

    Args:
        figures: the site's folder, the folder they come from, and their list.

    Raises:
        InputError: when one of them is missing, or the folder cannot be written.
    """
    copies = {asset.name: asset for asset in sorted(STATIC.iterdir()) if asset.is_file()}
    if not plan.published:  # whose folders are beside its own plan, not beside this site
        copies[SHOWN] = plan.path
    for place, drawn_in, drawn in figures:
        for name in (f"{figure['name']}.svg" for figure in drawn if not figure["empty"]):
            copies[f"{place}/{name}"] = drawn_in / name
    for missing in (source for source in copies.values() if not source.exists()):
        raise InputError(f"{missing}: is missing; run snakemake, or curvebench figures, which draws it")
    out = out.resolve()
    with new_folder(out) as folder:
        for name, source in copies.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, folder / name)
        for name, text in pages.items():
            (folder / name).write_text(text)
        (folder / WRITTEN).write_text(json.dumps(sorted([*pages, *copies, WRITTEN]), indent=1) + "\n")
        for path in _others(out):  # the files of others
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(out / path, folder / path)


def _others(out: Path) -> list[Path]:
    """The files of a folder that no rendering wrote."""
    try:
        written = set(json.loads((out / WRITTEN).read_text()))
    except (OSError, ValueError):
        written = set()
    files = (path.relative_to(out) for path in out.rglob("*") if path.is_file())
    return [path for path in files if path.as_posix() not in written]
