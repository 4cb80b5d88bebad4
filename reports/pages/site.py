"""Static site: renders the pages, and copies figures, style and script into one folder."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from curvebench.paths import HOME, SITE
from curvebench.reports import formatting
from curvebench.reports.claims.page import paper_page
from curvebench.reports.claims.rerun import SNAKEMAKE, study_commands, where
from curvebench.reports.figures.all_figures import MOST_DRAWN
from curvebench.reports.figures.anytime import anytime_of
from curvebench.reports.figures.study_figures import AXES
from curvebench.reports.pages import study_pages
from curvebench.reports.pages.comparing import comparison_page
from curvebench.reports.pages.contents import ShownStudy, SiteContents, read_version
from curvebench.reports.pages.kernels import kernels_page
from curvebench.reports.pages.planted import read_planted
from curvebench.reports.pages.study_pages import Rows
from curvebench.reports.plan import BOARD_FIGURES, figure_folder
from curvebench.reports.rendering import templates, text_of
from curvebench.reports.sets.files import new_folder
from curvebench.results.schema import RUN_COLUMNS
from curvebench.results.seconds import CAUSES, seconds_by_cause
from curvebench.spec.errors import InputError
from curvebench.spec.plan import ReportPlan
from curvebench.spec.sources import papers, source_of, sources

if TYPE_CHECKING:
    from jinja2 import Environment

STATIC = Path(__file__).parent.parent / "static"
# Name of a file in the site's folder: a copy of the plan that the site shows.
# Snakemake renders the site again if the plan differs from the copy in `plan.json`.
SHOWN = "plan.json"
# Rendered documentation (`make docs`), relative to the default folder of the site.
# A site in another folder has no link to the documentation.
DOCUMENTATION = "../../docs/site/docs/index.html"
# Name of a file in the site's folder: a list of the files that the last rendering wrote.
# A rendering keeps the files in the folder of the site that are not in the list.
WRITTEN = "files.json"


def render_site(plan: ReportPlan, out: Path, drawings: Path, log: Callable[[str], None]) -> list[str]:
    """Render every page into a folder, and return the lines of a summary.

    The new folder replaces the old folder when it is complete. Files in the old folder that no rendering
    wrote are kept.

    Args:
        drawings: folder for figures that are drawn during rendering; it is created if necessary.
        log: function that is called with a description of each step before the step.

    Raises:
        InputError: when a study's tables or figures are missing or damaged.
    """
    versions = []
    for source in (*plan.archive, plan.model_copy(update={"archive": ()})):
        log(f"verdicts of {source.published or 'what was run'}")
        versions.append(read_version(source))
    contents = SiteContents(plan, versions)
    environment, texts = _environment(contents), dict[str, str]()
    is_default_place = out.resolve() == (HOME / SITE).resolve()
    environment.globals["documentation"] = DOCUMENTATION if is_default_place else ""

    def render(template: str, name: str = "", **context: Any) -> None:
        name = name or f"{template}.html"
        page = environment.get_template(f"{template}.html.jinja")
        texts[name] = page.render(page=name, **context)

    log("leaderboard")
    boards = contents.boards
    log("overview")
    render("index", **contents.overview())
    for position, page in enumerate(contents.with_pages, start=1):
        name = page.study.name
        log(f"{study_file(name)}, study {position} of {len(contents.with_pages)}")
        answers, own = contents.answers_of(page), contents.boards_of(page.study)
        content = study_pages.study_page(page.study, page.tables, page.figures, answers, own)
        render("study", study_file(name), study=page.study, version=page, **content)
        pages = contents.runs[name]
        common = {"study": page.study, "total": len(pages), "metrics": study_pages.run_metrics(page.study)}
        for number, rows in enumerate(pages):
            render("runs", runs_file(name, number), rows=rows, number=number, **common)
    log("figures of the leaderboard")
    times = anytime_of(boards, drawings)
    render("leaderboard", anytime_of=times, board_figures=BOARD_FIGURES)
    log("compare.html")
    leaders = [row.method for row in boards[0].rows[:2]] if boards else []
    render("compare", **comparison_page(contents.studies, leaders))
    render("kernels", **kernels_page(plan.kernels))
    if contents.parity:
        render("parity", **contents.parity)
    render("methods", documents=sources(), planted=read_planted())
    if contents.claims["claims"]:
        render("claims", **contents.claims)
        by_id = {claim.id: claim for claim in contents.claims["claims"]}
        for cited, paper in contents.papers.items():
            sentences = paper_page(paper, by_id)
            render("paper", paper_file(cited), number=cited, anchor=source_of(cited).anchor, **sentences)
    render("provenance", **study_pages.provenance_page(contents.jobs))
    board_figures = [asdict(figure) for drawing in times if drawing for figure in drawing.figures]
    log(f"{len(texts)} files to {out}")
    _write(out, texts, plan, [*_figures(contents), (BOARD_FIGURES, drawings, board_figures)])
    local = contents.own
    verdicts = Counter(claim.verdict for claim in local.claims).most_common()
    command = " ".join([SNAKEMAKE, *where(plan.folders)])
    content = {"site": (out / "index.html").resolve(), "snakemake": command, "verdicts": verdicts}
    seconds = seconds_by_cause(local.jobs).row(0, named=True)
    return text_of("summary", own=local, checked=contents.checked, spent=seconds, **content).splitlines()


def _environment(contents: SiteContents) -> Environment:
    """Return the environment of the templates, with the values and functions that all pages use."""
    environment = templates()
    environment.policies["json.dumps_kwargs"] = {"ensure_ascii": False, "separators": (",", ":")}
    studies = tuple(page.study for page in contents.with_pages)
    planned = {"studies": studies, "parity": contents.compared}
    environment.globals |= {
        "site": contents,
        "plan": contents.plan.model_copy(update=planned),
        "plan_of": contents.plan_of,
        "scales_of": lambda names: _scales(page for page in contents.with_pages if page.study.name in names),
        "scales": _scales(contents.leading) or [formatting.words(contents.plan.scale)],
        "run_here": lambda version: {} if version.study is version.planned else contents.run_here,
        "study_commands": study_commands,
        "figure_folder": figure_folder,
        "study_file": study_file,
        "runs_file": runs_file,
        "paper_file": paper_file,
        "papers": papers(),
        "runs_link": lambda study, method: runs_link(contents.runs[study], study, method),
        "final_seeds": study_pages.final_seeds,
        "causes": CAUSES,
        "run_columns": RUN_COLUMNS,
        "axes": AXES,
        "most_drawn": MOST_DRAWN,
    }
    return environment


def _figures(contents: SiteContents) -> list[tuple[str, Path, Rows]]:
    """Return a triple for each study with a page, and a triple for the property checks of each version.

    A version is the local runs or a published set. A triple consists of the folder for figures relative to
    the site, the folder that contains the drawn files, and the list of the figures.
    """
    return [
        *((figure_folder(page.study.name), page.study.figures, page.figures) for page in contents.with_pages),
        *(
            (version.check_folder, version.plan.checks.figures, version.check_figures)
            for version in contents.versions
            if version.plan.checks
        ),
    ]


def _scales(pages: Iterable[ShownStudy]) -> list[str]:
    """Return the scales of studies in words, each scale once; the scale of a stand-in is "stand-in"."""
    scales = ("stand-in" if page.study.stand_in else formatting.words(page.plan.scale) for page in pages)
    return list(dict.fromkeys(scales))


def study_file(name: str) -> str:
    """Return the file name of a study's page."""
    return f"study_{formatting.slug(name)}.html"


def paper_file(number: str) -> str:
    """Return the file name of the page of a paper, which is cited by its number."""
    return f"paper_{number}.html"


def runs_file(name: str, number: int = 0) -> str:
    """Return the file name of a page of a study's runs; the first page has number 0."""
    return f"runs_{formatting.slug(name)}{f'_{number + 1}' if number else ''}.html"


def runs_link(pages: list[Rows], study: str, method: str) -> str:
    """Return a link to the first run of a method on the pages of a study's runs.

    Args:
        pages: rows of each page of runs.
    """
    for number, rows in enumerate(pages):
        if any(row["method"] == method for row in rows):
            return f"{runs_file(study, number)}#{formatting.slug(method)}"
    return runs_file(study)


def _write(out: Path, pages: dict[str, str], plan: ReportPlan, figures: list[tuple[str, Path, Rows]]) -> None:
    """Write the pages and copy the figures and static files.

    Args:
        pages: text of each page, by file name.
        figures: triples of a folder relative to the site, the folder that contains the drawn figures, and the
            list of these figures.

    Raises:
        InputError: when a figure is missing, or the folder cannot be written.
    """
    copies = {asset.name: asset for asset in sorted(STATIC.iterdir()) if asset.is_file()}
    # A published plan is not copied, because its folders are relative to its own file.
    if not plan.published:
        copies[SHOWN] = plan.path
    for site_folder, drawn_in, listed in figures:
        for name in (f"{figure['name']}.svg" for figure in listed if not figure["empty"]):
            copies[f"{site_folder}/{name}"] = drawn_in / name
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
        for path in _others(out):  # Keep the files that no rendering wrote.
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(out / path, folder / path)


def _others(out: Path) -> list[Path]:
    """Return the files of the site's folder that no rendering wrote, relative to the folder."""
    try:
        written = set(json.loads((out / WRITTEN).read_text()))
    except (OSError, ValueError):
        written = set()
    files = (path.relative_to(out) for path in out.rglob("*") if path.is_file())
    return [path for path in files if path.as_posix() not in written]
