"""The static site: renders the pages and copies figures, style and script into one folder."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from curvebench.reports import formatting
from curvebench.reports.claims.rerun import SNAKEMAKE, study_commands
from curvebench.reports.figures.anytime import anytime_of
from curvebench.reports.figures.study_figures import AXES
from curvebench.reports.pages.comparing import comparison_page
from curvebench.reports.pages.contents import SiteContents
from curvebench.reports.pages.heat_map import folded, heat_map
from curvebench.reports.pages.kernel_ratios import ratio_tables, read_ratios
from curvebench.reports.pages.kernels import COMMITS_SHOWN, STEPS_SHOWN, kernels_page
from curvebench.reports.pages.study_pages import (
    Rows,
    final_seeds,
    provenance_page,
    run_metrics,
    study_page,
    when_and_where,
)
from curvebench.reports.pages.versions import ShownStudy, read_version
from curvebench.reports.plan import BOARD_FIGURES, figure_folder
from curvebench.reports.rendering import templates, text_of
from curvebench.reports.sets.files import new_folder
from curvebench.reports.statistics.steps import LEAST as STEP_LEAST
from curvebench.results.schema import RUN_COLUMNS
from curvebench.results.seconds import CAUSES, seconds_by_cause
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
    contents = SiteContents(plan, versions)
    log("leaderboard")
    boards, pages = contents.boards, _Pages(contents)
    log("overview")
    pages.overview()
    for place, each in enumerate(contents.with_pages, start=1):
        log(f"{study_file(each.study.name)}, study {place} of {len(contents.with_pages)}")
        pages.study(each)
    log("figures of the leaderboard")
    times = anytime_of(boards, contents.studies, drawings)
    pages.leaderboard(times)
    log("compare.html")
    pages.comparison()
    pages.kernels()
    pages.parity()
    pages.methods()
    pages.claims()
    pages.provenance()
    drawn = [asdict(figure) for one in times if one for figure in one.figures]
    log(f"{len(pages.texts)} files to {out}")
    _write(out, pages.texts, plan, [*_figures(contents), (BOARD_FIGURES, drawings, drawn)])
    own = contents.own
    verdicts = Counter(claim.verdict for claim in own.claims).most_common()
    about = {"site": (out / "index.html").resolve(), "snakemake": SNAKEMAKE, "verdicts": verdicts}
    spent = seconds_by_cause(own.jobs).row(0, named=True)
    return text_of("summary", own=own, checked=contents.checked, spent=spent, **about).splitlines()


class _Pages:
    """The pages of a site: each method renders one or several into `texts`, by the name of the file."""

    def __init__(self, contents: SiteContents) -> None:
        self.contents = contents
        self.texts: dict[str, str] = {}
        self.environment = templates()
        self.environment.policies["json.dumps_kwargs"] = {"ensure_ascii": False, "separators": (",", ":")}
        studies = tuple(each.study for each in contents.with_pages)
        shown = {"studies": studies, "parity": contents.compared}
        self.environment.globals |= {
            "plan": contents.plan.model_copy(update=shown),
            "plan_of": contents.plan_of,
            "scales_of": lambda names: _scales(contents.plan_of[name] for name in names),
            "scales": _scales(each.plan for each in contents.leading) or _scales([contents.plan]),
            "any_claims": bool(contents.claims["claims"]),
            "study_file": study_file,
            "runs_file": runs_file,
            "runs_link": lambda study, method: runs_link(contents.runs[study], study, method),
            "final_seeds": final_seeds,
            "causes": CAUSES,
            "axes": AXES,
        }

    def render(self, template: str, name: str = "", **context: Any) -> None:
        """Render a template as the page of a name, which is that of the template by default."""
        name = name or f"{template}.html"
        page = self.environment.get_template(f"{template}.html.jinja")
        self.texts[name] = page.render(page=name, **context)

    def overview(self) -> None:
        """Render the overview: on its map the methods of the first board, and what they answer first."""
        contents = self.contents
        kept, more = folded(contents.answers)
        heat = heat_map(kept, contents.first_board)
        on_map = {id(row.answer) for row in heat.leading.rows}
        self.render(
            "index",
            answers=sorted(kept, key=lambda answer: id(answer) not in on_map),
            more_answers=more,
            heat=heat,
            boards=contents.boards,
            where=when_and_where(contents.own.jobs),
            parity=contents.parity,
            claims=contents.claims,
            studies=[(each.study, each.tables) for each in contents.with_pages],
            failures=contents.own.failures,
            checked=contents.checked,
            warnings=contents.warnings,
        )

    def study(self, each: ShownStudy) -> None:
        """Render the page of a study, and those of its runs."""
        contents, study, name = self.contents, each.study, each.study.name
        versions = [one for one in contents.with_pages if one.planned.name == each.planned.name]
        answers, board = contents.answers_of(each), contents.board_of(study)
        self.render(
            "study",
            study_file(name),
            folder=figure_folder(name),
            commands=study_commands(each.planned, each.plan),
            versions=[version.study.name for version in versions if version is not each],
            claim_of=contents.claim_of[each.plan.published],
            run_here={} if each.study is each.planned else contents.run_here,
            **study_page(study, each.tables, each.figures, answers, board),
        )
        pages = contents.runs[name]
        for number, rows in enumerate(pages):
            about = {
                "study": study,
                "total": len(pages),
                "metrics": run_metrics(study),
                "columns": RUN_COLUMNS,
            }
            self.render("runs", runs_file(name, number), rows=rows, number=number, **about)

    def leaderboard(self, times: Sequence[Any]) -> None:
        """Render all boards, each with its figures of scores by budget."""
        self.render(
            "leaderboard",
            boards=self.contents.boards,
            warnings=self.contents.warnings,
            sources=self.contents.other_boards,
            anytime_of=times,
            board_figures=BOARD_FIGURES,
        )

    def comparison(self) -> None:
        """Render the comparison of any two methods, at first of the two that lead the first board."""
        boards = self.contents.boards
        leaders = [row.method for row in boards[0].rows[:2]] if boards else []
        self.render("compare", **comparison_page(self.contents.studies, leaders))

    def kernels(self) -> None:
        """Render the speed of kernels over commits, and beside other implementations."""
        stored = read_ratios()
        machines = stored.select("measured", "processor", "versions").unique(maintain_order=True)
        self.render(
            "kernels",
            kernels=kernels_page(self.contents.plan.kernels),
            columns=COMMITS_SHOWN,
            steps_shown=STEPS_SHOWN,
            step_least=STEP_LEAST,
            ratios=ratio_tables(stored),
            measured=machines.to_dicts(),
        )

    def parity(self) -> None:
        """Render the comparison of backends, where there is one."""
        if self.contents.parity:
            failures = [failure for failure in self.contents.own.failures if failure["stage"] == "parity"]
            self.render("parity", not_compared=failures, **self.contents.parity)

    def methods(self) -> None:
        """Render the methods of measurement, with the documents that they are from."""
        self.render("methods", documents=sources())

    def claims(self) -> None:
        """Render the claims, where there are any."""
        contents = self.contents
        if contents.claims["claims"]:
            shown, here = {*contents.plan_of}, contents.run_here
            self.render("claims", studies_shown=shown, run_here=here, **contents.claims)

    def provenance(self) -> None:
        """Render where and by what all jobs were computed, and how long they took."""
        self.render("provenance", **provenance_page(self.contents.jobs, self.contents.warnings))


def _figures(contents: SiteContents) -> list[tuple[str, Path, Rows]]:
    """The figures of studies and of property checks, as `_write` takes them."""
    return [
        *((figure_folder(each.study.name), each.study.figures, each.figures) for each in contents.with_pages),
        *(
            (version.check_folder, version.plan.checks.figures, version.check_figures)
            for version in contents.versions
            if version.plan.checks
        ),
    ]


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
