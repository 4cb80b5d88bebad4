"""The site: links resolve, nothing comes from elsewhere, data is escaped, numbers carry intervals."""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl
import pytest

from curvebench.__main__ import main
from curvebench.reports.claims.comparison import tried_in
from curvebench.reports.measures import problems_of
from curvebench.reports.pages.study_pages import results_rows, run_pages, settings_rows
from curvebench.reports.tables import Tables, read_tables
from curvebench.results.archive import HERE
from curvebench.results.schema import RUN_COLUMNS
from curvebench.spec.plan import StudyPlan
from tests.reports.changing import replace
from tests.reports.conftest import Report, changed_plan, site_of, words_of
from tests.reports.pages.reading import Page
from tests.reports.synthetic import HOSTILE, Shape, write_plan

LIMIT = 2_000_000  # bytes of a page


@pytest.fixture(scope="module")
def pages(report: Report) -> dict[str, Page]:
    return {path.name: Page(path) for path in sorted(report.site.glob("*.html"))}


def test_every_page_is_there_and_its_tags_are_closed(pages: dict[str, Page]):
    assert set(pages) == {
        "index.html", "leaderboard.html", "provenance.html", "study_digits_mlp.html", "study_convex.html",
        "runs_digits_mlp.html", "runs_convex.html", "kernels.html", "parity.html", "claims.html",
        "compare.html", "methods.html",
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
    rows = settings_rows(problems_of(study, even)[0], tried_in(study, even))
    (row,) = (row for row in rows if row["method"] == "adam")
    assert row["tied"] == [0.003, 0.01, 0.03, 0.1]


def test_methods_that_join_head_the_results(study: StudyPlan, tables: Tables):
    new = study.model_copy(update={"optimizers": study.optimizers[-1:]})
    joined = study.model_copy(update={"joined": {HERE: (new,)}})
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
    report: Report, tmp_path: Path, capsys: pytest.CaptureFixture
):
    site = tmp_path / "site"
    site.mkdir()
    (site / "mine.txt").write_text("kept")
    plan = changed_plan(report.plan_file, tmp_path, lambda raw: None)
    site_of(plan, tmp_path)
    said = capsys.readouterr()
    told = dict(line.split(":", 1) for line in said.out.splitlines())
    assert list(told) == ["Run here", "It says", "Published", "Site", "Next"]
    ran = "digits_mlp and convex at quick scale; parity of the backends; 3 "
    assert told["Run here"].strip().startswith(ran)
    assert told["It says"].strip() == "6 claims: 4 reproduced, 1 not run, 1 not reproduced"
    assert told["Site"].strip() == str(site / "index.html")
    lines = said.err.splitlines()
    assert "site: study_convex.html, study 2 of 2" in lines
    assert all(line.startswith("site: ") for line in lines)
    assert (site / "study_convex.html").exists()
    site_of(changed_plan(plan, tmp_path, lambda raw: raw["studies"].pop()), tmp_path)
    assert not (site / "study_convex.html").exists()
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


def test_a_column_of_runs_with_a_label_is_on_their_pages(
    report: Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
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
