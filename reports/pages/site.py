"""The static site: renders the pages and copies figures, style and script into one folder."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from documents.plan import ReportPlan
from documents.sources import sources
from reports import formatting
from reports.boards.leaderboard import leaderboards
from reports.claims.page import check_rows, claims_page
from reports.claims.rerun import study_commands
from reports.claims.verdict_list import listed
from reports.claims.verdicts import claim_verdicts
from reports.failures import failures_of
from reports.figures.study_figures import AXES
from reports.pages.comparing import comparison_page
from reports.pages.kernel_ratios import ratio_tables, read_ratios
from reports.pages.kernels import COMMITS_SHOWN, STEPS_SHOWN, kernels_page
from reports.pages.overview import answers
from reports.pages.parity import jobs_of, parity_page, parity_rows
from reports.pages.study_pages import (
    CAUSES,
    Rows,
    final_seeds,
    machine_warnings,
    provenance_page,
    read_figures,
    run_metrics,
    run_pages,
    study_page,
    when_and_where,
)
from reports.plan import CLAIM_FIGURES, figure_folder
from reports.rendering import templates
from reports.statistics.steps import LEAST as STEP_LEAST
from reports.tables import read_tables

STATIC = Path(__file__).parent.parent / "static"
SHOWN = "plan.json"  # what the site shows; planning renders it anew where this is another plan
WRITTEN = "files.json"  # what the last rendering wrote, so that the next one leaves no stale page


def render_site(plan: ReportPlan, out: Path, tell: Callable[[str], None]) -> Path:
    """Render every page into a folder and return the path of the first one.

    Files of an earlier rendering that are no longer part of the site are removed; others are left alone.

    Args:
        tell: is told what is done next.

    Raises:
        InputError: when a study's tables or figures are missing or damaged.
    """
    tell(f"tables of {formatting.counted(len(plan.studies), 'studies')}")
    studies = [(study, read_tables(study.tables)) for study in plan.studies]
    figures = {study.name: read_figures(study.figures) for study in plan.studies}
    runs = {study.name: run_pages(study, tables.runs) for study, tables in studies}
    tell("leaderboard")
    boards = leaderboards(studies)
    parity = parity_page(plan.parity, parity_rows(plan.parity)) if plan.parity else None
    checks = check_rows(plan.checks) if plan.checks else None
    tell("verdicts")
    verdicts = claim_verdicts(plan, {study.name: tables for study, tables in studies}, checks)
    claim_figures = read_figures(plan.checks.figures) if plan.checks else []
    drawn = [*claim_figures, *(figure for own in figures.values() for figure in own)]
    claims = claims_page(plan, checks, listed(plan, verdicts), drawn)
    jobs = pl.concat([*(tables.jobs for _, tables in studies), jobs_of(plan.parity), jobs_of(plan.checks)])
    failures = failures_of(jobs)

    kernels = kernels_page(plan.kernels)
    warnings = machine_warnings(studies)

    environment = templates()
    environment.policies["json.dumps_kwargs"] = {"ensure_ascii": False, "separators": (",", ":")}
    environment.globals |= {
        "plan": plan,
        "any_claims": bool(claims["claims"]),
        "study_file": study_file,
        "runs_file": runs_file,
        "runs_link": lambda study, method: runs_link(runs[study], study, method),
        "final_seeds": final_seeds,
        "causes": CAUSES,
        "axes": AXES,
        "verdict_of": {claim["id"]: claim["verdict"] for claim in claims["claims"]},
    }
    pages: dict[str, str] = {}

    def render(name: str, template: str, **context: Any) -> None:
        pages[name] = environment.get_template(f"{template}.html.jinja").render(page=name, **context)

    tell("overview")
    render(
        "index.html",
        "index",
        answers=answers(studies),
        boards=boards,
        where=when_and_where(jobs),
        parity=parity,
        claims=claims,
        studies=studies,
        failures=failures,
        warnings=warnings,
    )
    for place, (study, tables) in enumerate(studies, start=1):
        tell(f"{study_file(study.name)}, study {place} of {len(studies)}")
        context = study_page(study, tables, figures[study.name])
        render(
            study_file(study.name),
            "study",
            folder=figure_folder(study.name),
            commands=study_commands(study, plan),
            **context,
        )
        for number, rows in enumerate(runs[study.name]):
            render(
                runs_file(study.name, number),
                "runs",
                study=study,
                rows=rows,
                number=number,
                total=len(runs[study.name]),
                metrics=run_metrics(study),
            )
    render("leaderboard.html", "leaderboard", boards=boards, warnings=warnings)
    tell("compare.html")
    leaders = [row.method for row in boards[0].rows[:2]] if boards else []
    render("compare.html", "compare", **comparison_page(studies, leaders))
    stored = read_ratios()
    render(
        "kernels.html",
        "kernels",
        kernels=kernels,
        columns=COMMITS_SHOWN,
        steps_shown=STEPS_SHOWN,
        step_least=STEP_LEAST,
        beside=ratio_tables(stored),
        measured=stored.select("measured", "processor", "versions").unique(maintain_order=True).to_dicts(),
    )
    if parity:
        not_compared = [failure for failure in failures if failure["stage"] == "parity"]
        render("parity.html", "parity", not_compared=not_compared, **parity)
    render("methods.html", "methods", documents=sources())
    if environment.globals["any_claims"]:
        folders_of = {study.name: figure_folder(study.name) for study in plan.studies}
        render("claims.html", "claims", figure_folders=folders_of, claim_figures=CLAIM_FIGURES, **claims)
    render("provenance.html", "provenance", **provenance_page(jobs, warnings))
    folders = [(figure_folder(study.name), study.figures, figures[study.name]) for study in plan.studies]
    if plan.checks:
        folders.append((CLAIM_FIGURES, plan.checks.figures, claim_figures))
    tell(f"{len(pages)} files to {out}")
    _write(out, pages, plan, folders)
    return out / "index.html"


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
    """
    copies = {asset.name: asset for asset in sorted(STATIC.iterdir()) if asset.is_file()}
    if not plan.published:  # whose folders are beside its own plan, not beside this site
        copies[SHOWN] = plan.path
    for folder, source, drawn in figures:
        for figure in drawn:
            name = f"{figure['name']}.svg"
            copies[f"{folder}/{name}"] = source / name
    out.mkdir(parents=True, exist_ok=True)
    written = sorted([*pages, *copies])
    _remove_stale(out, set(written))
    for name, source in copies.items():
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, out / name)
    for name, text in pages.items():
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_text(text)
    (out / WRITTEN).write_text(json.dumps(written, indent=1) + "\n")


def _remove_stale(out: Path, kept: set[str]) -> None:
    try:
        before = json.loads((out / WRITTEN).read_text())
    except (OSError, ValueError):
        return
    inside = out.resolve()
    for name in set(before) - kept:
        path = (out / name).resolve()
        if path.is_relative_to(inside):
            path.unlink(missing_ok=True)
