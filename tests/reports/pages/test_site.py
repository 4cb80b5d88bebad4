"""Pages: frozen as readers have them, links resolve, data is escaped, methods are told, numbers are there."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import curvebench.reports.statistics
from curvebench.__main__ import main
from curvebench.reports.claims.comparison import outcome_lookup
from curvebench.reports.measures import problems_of
from curvebench.reports.pages.parity import matrix, parity_page, parity_rows
from curvebench.reports.pages.site import DOCUMENTATION
from curvebench.reports.pages.study_pages import results_rows, run_pages, settings_rows
from curvebench.reports.tables import Tables, read_tables
from curvebench.results.archive import LOCAL
from curvebench.results.schema import COMPARISONS, RUN_COLUMNS
from curvebench.spec.plan import ParityPlan, StudyPlan
from tests.reports.changing import replace
from tests.reports.conftest import (
    KernelReport,
    Report,
    bare_site,
    changed_plan,
    changed_site,
    site_of,
    words_of,
)
from tests.reports.pages.reading import Page
from tests.reports.synthetic import DIFFERENT, HOSTILE, PROBLEMS, Shape, write_plan

LIMIT = 2_000_000  # bytes of a page


@pytest.fixture(scope="module")
def pages(report: Report) -> dict[str, Page]:
    return {path.name: Page(path) for path in sorted(report.site.glob("*.html"))}


def test_every_page_is_there_and_its_tags_are_closed(pages: dict[str, Page]):
    assert set(pages) == {
        "index.html", "leaderboard.html", "provenance.html", "study_digits_mlp.html", "study_convex.html",
        "runs_digits_mlp.html", "runs_convex.html", "kernels.html", "parity.html", "claims.html",
        "compare.html", "methods.html", "paper_000.html", "paper_001.html", "paper_002.html",
    }  # fmt: skip
    assert not [tag for page in pages.values() for tag in page.open]


def test_links_resolve_inside_the_site(report: Report, pages: dict[str, Page]):
    ids = {name: page.values("id") for name, page in pages.items()}
    for name, page in pages.items():
        assert len(ids[name]) == len(set(ids[name]))
        for link in page.values("href", "src"):
            assert not re.match(r"[a-z]+:|//", link)
            file, _, anchor = link.partition("#")
            assert (report.site / (file or name)).is_file()
            filtering = re.fullmatch(r"(\w+)=(\S+)", anchor)
            if filtering:  # the anchor chooses rows of a page with filters
                named = (f"data-{filtering[1]}", "data-filter", "value")
                assert {filtering[1], filtering[2]} <= set(pages[file].values(*named))
                continue
            assert not anchor or anchor in ids[file or name]


def test_pages_are_small(report: Report):
    assert max(path.stat().st_size for path in report.site.rglob("*") if path.is_file()) < LIMIT


def test_names_from_data_are_text(pages: dict[str, Page]):
    shown = ("index.html", "leaderboard.html", "study_convex.html", "runs_convex.html", "parity.html")
    for name in (*shown, "claims.html"):
        assert HOSTILE in pages[name].text
    assert "ends <i>lower</i> than" in pages["study_convex.html"].text
    assert "<b>yet</b>" in pages["index.html"].text
    for page in pages.values():
        scripts = [script for script in page.all("script") if script.get("type") != "application/json"]
        assert [script.get("src") for script in scripts] == ["script.js"]


def test_a_rate_that_tied_with_others_in_tuning_says_so(study: StudyPlan, tables: Tables):
    equal = (
        pl.when(pl.col("stage") == "final").then("final_metrics").otherwise(pl.col("final_metrics").first())
    )
    even = replace(tables, runs=tables.runs.with_columns(final_metrics=equal))
    said = words_of("macros.html.jinja", "chosen_among", 4, study)
    assert said == "rate chosen among 4 tied on final training loss"
    rows = settings_rows(problems_of(study, even)[0], outcome_lookup(study, even))
    (row,) = (row for row in rows if row["method"] == "adam")
    assert row["tied"] == [0.003, 0.01, 0.03, 0.1]
    assert not any(row["idle"] for row in rows), "some runs failed"
    finished = replace(even, runs=even.runs.with_columns(outcome=pl.lit("budget")))
    rows = settings_rows(problems_of(study, finished)[0], outcome_lookup(study, finished))
    assert {*map(str, (row["idle"] for row in rows))} == {"['learning_rate']"}


def test_methods_that_join_head_the_results(study: StudyPlan, tables: Tables):
    new = study.model_copy(update={"optimizers": study.optimizers[-1:]})
    joined = study.model_copy(update={"joined": {LOCAL: (new,)}})
    found = [row["method"] for row in results_rows(*problems_of(joined, tables))]
    assert found == [*new.methods, *(one for one in study.methods if one not in new.methods)]


def test_a_figure_of_one_panel_fits_a_phone():
    shape = dict.fromkeys(("title", "workload", "backend", "name", "height", "alt", "caption"), "loss")
    drawn = {
        width: words_of("macros.html.jinja", "drawing", {**shape, "width": width, "empty": False}, "")
        for width in (528, 883)
    }
    assert [width for width, words in drawn.items() if 'class="frame narrow"' in words] == [528]


def test_stopped_runs_and_shared_rates_are_told_wherever_they_count(changed: Path):
    names = ("index", "leaderboard", "study_digits_mlp")
    texts = {name: Page(changed / f"{name}.html").text for name in names}
    assert all("stopped at 0.0005" in texts[name] for name in ("leaderboard", "study_digits_mlp"))
    assert texts["leaderboard"].count("best stopped at 0.0005") > 1  # ties share the mark
    assert " ≤ 0.00474 [0, 0.00540]" in texts["index"]
    assert "× ≤" not in texts["index"]
    assert "× 0.00248 [" in texts["index"]
    assert "median of the final training loss in the identity basis" in texts["study_digits_mlp"]


def test_rendering_says_what_it_is_at_and_a_second_one_removes_stale_pages_and_nothing_else(
    report: Report, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    site = tmp_path / "site"
    site.mkdir()
    (site / "mine.txt").write_text("kept")
    plan = changed_plan(report.plan_file, tmp_path, lambda raw: None)
    site_of(plan, tmp_path)
    said = capsys.readouterr()
    told = dict(line.split(":", 1) for line in said.out.splitlines())
    assert list(told) == ["Run here", "It says", "Published", "Site", "Next"]
    assert "digits_mlp and convex at quick scale; parity of the backends; 3 " in told["Run here"]
    assert told["It says"].strip() == "6 claims: 4 reproduced, 1 not run, 1 not reproduced"
    assert told["Site"].strip() == str(site / "index.html")
    lines = said.err.splitlines()
    assert "site: study_convex.html, study 2 of 2" in lines
    assert all(line.startswith("site: ") for line in lines)
    assert (site / "study_convex.html").exists()
    monkeypatch.setattr("curvebench.reports.pages.site.SITE", site)
    own = changed_plan(plan, tmp_path, lambda raw: raw.update(folders={"study_folder": "my studies"}))
    site_of(changed_plan(own, tmp_path, lambda raw: raw["studies"].pop()), tmp_path)
    assert "--config 'study_folder=my studies' studies=all (" in capsys.readouterr().out
    assert not (site / "study_convex.html").exists()
    assert DOCUMENTATION in (site / "index.html").read_text(), "the site is in its default place now"
    assert (site / "mine.txt").read_text() == "kept"


def test_a_plan_without_studies_still_renders(empty_site: Path):
    index = Page(empty_site / "index.html")
    assert "No study has final runs yet" in index.text
    assert "No two methods have final runs" in Page(empty_site / "compare.html").text
    assert not (empty_site / "parity.html").exists(), "there is nothing to compare"
    assert "parity.html" not in {link["href"] for link in index.all("a")}


def test_a_study_whose_runs_all_failed_to_start_still_renders(tmp_path: Path):
    plan = write_plan(tmp_path, [Shape(seeds=(), tuning_seeds=(), optimizers=("sgd",), backends=("jax",))])
    assert main(["figures", "--plan", str(plan)]) == 0
    assert "0 final seeds" not in Page(site_of(plan, tmp_path) / "study_digits_mlp.html").text


def test_an_optimizer_that_runs_on_no_backend_of_a_study_is_listed_with_the_reason(tmp_path: Path):
    nadam = {"name": "torch-nadam", "locator": "torch:torch.optim.NAdam"}

    def change(raw: dict[str, Any]) -> None:
        raw["studies"][0]["optimizers"].append(nadam)

    said = Page(bare_site(tmp_path, Shape(backends=("jax",)), change=change) / "study_digits_mlp.html").text
    assert "torch-nadam was not run: it runs on torch only; the backends of this run: jax." in said


def test_what_is_missing_is_named_with_a_remedy(tmp_path: Path, capsys: pytest.CaptureFixture):
    plan = write_plan(
        tmp_path, [Shape(seeds=(1, 2), tuning_seeds=(0,), optimizers=("sgd",), backends=("jax",))]
    )
    assert main(["site", "--plan", str(plan), "--out", str(tmp_path / "site")]) == 2
    assert re.search(r"figures\.json: cannot be read .*snakemake", capsys.readouterr().err)
    runs = tmp_path / "tables/digits_mlp/runs.parquet"
    runs.write_bytes(runs.read_bytes()[:100])
    assert main(["figures", "--plan", str(plan)]) == 2
    assert "runs.parquet: not a whole Parquet file" in capsys.readouterr().err
    assert not (tmp_path / "site").exists()


def test_long_lists_of_runs_are_cut_into_pages(report: Report, monkeypatch: pytest.MonkeyPatch):
    study = report.plan.study("convex")
    monkeypatch.setattr("curvebench.reports.pages.study_pages.RUNS_A_PAGE", 50)
    parts = run_pages(study, read_tables(study.tables).runs)
    assert [len(part) for part in parts] == [50, 50, 20]


def test_a_labelled_column_is_on_pages(report: Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    declared = RUN_COLUMNS["basis_seconds"]._replace(label="Waiting", written="seconds", unit="for data")
    monkeypatch.setitem(RUN_COLUMNS, "basis_seconds", declared)
    before, after = (
        Page(site / "runs_convex.html").tables[0]
        for site in (report.site, site_of(report.plan.path, tmp_path))
    )
    place = next(number for number, head in enumerate(after[0]) if head.split() == ["Waiting", "for", "data"])
    assert [row[:place] + row[place + 1 :] for row in after] == before
    for _, method, *cells in after[1:]:
        assert (cells[place - 2].strip() == "0 s") == ("@ egop" not in method)


# --- frozen pages ---------------------------------------------------------------------------------


FROZEN = Path(__file__).parent / "frozen"


PAGES = ("claims", "index", "kernels", "leaderboard", "parity", "provenance", "study_digits_mlp")


@pytest.mark.parametrize("name", PAGES)
def test_a_page_says_and_links_what_it_did(name: str, report: Report, frozen: Callable[[Path, str], None]):
    frozen(FROZEN / f"{name}.txt", Page(report.site / f"{name}.html").outline)


def test_the_page_of_stored_kernels_is_kept(kernel_report: KernelReport, frozen: Callable[[Path, str], None]):
    frozen(FROZEN / "stored_kernels.txt", Page(kernel_report.site / "kernels.html").outline)


def change_claims(raw: dict[str, Any]) -> None:
    """Change a rule, limit what two claims can reach, and compare with a number and another workload."""
    digits, convex = raw["studies"]
    digits["at_most_partly"] = "the digits are few"
    digits["rules"]["egop.digits_mlp"] = "cd" * 8
    raw["checks"]["claims"][0]["at_most_partly"] = "the games are small"
    (claim,) = convex["claims"]
    asked = {**claim["supported_if"][0], "better": ["adam"], "workload": "least_squares"}
    claim["supported_if"] = [
        {**asked, "compared_to": 0.25},
        {**asked, "compared_to": ["adam @ egop"], "control_workload": "log_sum_exp"},
    ]


def test_changed_or_capped_claims_say_so(report: Report, tmp_path: Path, frozen: Callable[[Path, str], None]):
    site = changed_site(report, tmp_path, change_claims)
    frozen(FROZEN / "changed_claims.txt", Page(site / "claims.html").outline)
    pages = {name: (site / f"study_{name}.html").read_text() for name in ("digits_mlp", "convex")}
    changed = "the rule was changed after the runs were planned"
    assert [name for name, text in pages.items() if changed in text] == ["digits_mlp"]


# --- parity ---------------------------------------------------------------------------------------


@pytest.fixture
def plan(report: Report) -> ParityPlan:
    assert report.plan.parity is not None
    return report.plan.parity


def test_a_problem_that_an_optimizer_was_not_compared_on_has_an_empty_cell(plan: ParityPlan):
    rows = parity_rows(plan)
    fewer = rows.filter(~((rows["problem"] == "bowl") & (rows["optimizer"] == HOSTILE)))
    cells = {row["optimizer"]: row["cells"] for row in matrix(plan, fewer, COMPARISONS[0])["rows"]}
    assert [cell and cell["problem"] for cell in cells["adam"]] == list(PROBLEMS)
    assert [cell and cell["problem"] for cell in cells[HOSTILE]] == [None, list(PROBLEMS)[1]]


def test_what_is_judged_is_counted_and_what_fails_is_named(plan: ParityPlan):
    page = parity_page(plan, parity_rows(plan))
    assert (page["judged"], page["measured"]) == (6, 6)
    assert [(row["optimizer"], row["problem"]) for row in page["failed"]] == [(DIFFERENT, "bowl")]
    assert page["worst"] == 3e-5


# --- methods --------------------------------------------------------------------------------------


ROOT = Path(curvebench.reports.statistics.__file__).parent
MODULES = {
    name: importlib.import_module(f"curvebench.reports.statistics.{name}")
    for _, name, _ in pkgutil.iter_modules([str(ROOT)])
}
FUNCTIONS = {
    name
    for module in MODULES.values()
    for name, value in vars(module).items()
    if inspect.isfunction(value) and not name.startswith("_")
}


def called() -> set[str]:
    """Return the functions of `curvebench.reports.statistics` that modules of the report import."""
    found = set()
    for path in ROOT.parent.rglob("*.py"):
        if path.is_relative_to(ROOT):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(
                "curvebench.reports.statistics"
            ):
                found |= {alias.name for alias in node.names}
    return found & FUNCTIONS


@pytest.fixture(scope="module")
def page(report: Report) -> str:
    return (report.site / "methods.html").read_text()


def test_every_statistic_that_the_site_calls_is_explained(page: str):
    listed = re.findall(r"<dt>In the code</dt><dd>(.*?)</dd>", page)
    explained = {name for names in listed for name in re.findall("<code>(.*?)</code>", names)}
    assert called() - explained == set(), "add them to reports/templates/methods.html.jinja"
    assert explained <= FUNCTIONS
    assert {"holm", "best_set"} <= called()


def test_each_is_told_in_two_sentences_and_says_what_it_assumes(page: str):
    sections = re.findall(
        r'<h3 id="(.*?)">(.*?)</h3>\s*<p>(.*?)</p>.*?<dt>Assumes</dt><dd>(.*?)</dd>', page, flags=re.DOTALL
    )
    assert len(sections) == page.count('<h3 id="') >= 20
    contents = page.partition('<ul class="contents">')[2].partition("</ul>")[0]
    for anchor, name, says, assumes in sections:
        assert f'<a href="#{anchor}">{name}</a>' in contents
        assert len(re.findall(r"[.](?=\s[A-Z]|$)", says)) == 2, name
        assert assumes.endswith(".")
