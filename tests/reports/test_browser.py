"""The site in a real browser, opened from disk: links, sorting, filtering, comparing, themes, no network."""

from __future__ import annotations

import csv
import re
import shutil
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.image import imread

from curvebench.reports.figures.palette import INKS
from curvebench.reports.formatting import slug
from curvebench.reports.sets.comparing import render
from curvebench.reports.sets.sides import side_of
from tests.conftest import skip
from tests.reports.conftest import KernelReport, Report, bare_site, leave_figures_out, site_of
from tests.reports.synthetic import CLAIMS, HOSTILE, Shape
from tests.reports.test_wall_clock import LONG, write_long

NAMES = ("chromium", "chromium-browser", "google-chrome")
PAPER = "getComputedStyle(document.body).backgroundColor"
SWITCHES = (
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
    "--disable-sync",
)  # fmt: skip


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    path = next((found for name in NAMES if (found := shutil.which(name))), None)
    if path is None:
        skip(f"no browser ({', '.join(NAMES)}) on the path; apt-get install chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=path, args=list(SWITCHES))
        yield launched
        launched.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """Yield a page; fail afterwards if it logged an error, missed a file, made a request over the network or
    opened a dialog.
    """
    context = browser.new_context(color_scheme="light", viewport={"width": 1280, "height": 900})
    opened = context.new_page()
    troubles: list[str] = []

    def hear(message: Any) -> None:
        if message.type == "error":
            troubles.append(message.text)

    def check(request: Any) -> None:
        if not request.url.startswith(("file://", "blob:file://")):
            troubles.append(request.url)

    def fail(request: Any) -> None:
        if request.failure != "net::ERR_ABORTED":  # a picture still loading when the test went on
            troubles.append(f"{request.url}: {request.failure}")

    def dismiss(dialog: Any) -> None:
        troubles.append(dialog.message)
        dialog.dismiss()

    opened.set_default_timeout(10_000)
    opened.on("dialog", dismiss)
    opened.on("console", hear)
    opened.on("pageerror", lambda error: troubles.append(str(error)))
    opened.on("requestfailed", fail)
    opened.on("request", check)
    yield opened
    context.close()
    assert troubles == []


def figures_theme(page: Any) -> str:
    """Return the theme whose colours the first figure has."""
    image = page.locator("main > section > .figures img:visible").first
    image.scroll_into_view_if_needed()
    page.wait_for_function("image => image.complete && image.naturalWidth > 0", arg=image.element_handle())
    paper = tuple(int(part) for part in re.findall(r"\d+", page.evaluate(PAPER)))
    name, ground = inks_and_ground(image.screenshot())
    assert ground == paper, "figures are transparent"
    return name


def inks_and_ground(picture: bytes) -> tuple[str, tuple[int, ...]]:
    """Return the theme that has the colours of a picture's lines, and the colour behind them."""
    pixels = (255 * imread(BytesIO(picture))[..., :3]).round().astype(int).reshape(-1, 3)
    colours = pixels @ (256**2, 256, 1)
    inks = {name: [int(getattr(ink, name)[1:], 16) for ink in INKS] for name in ("light", "dark")}
    light, dark = (int(np.isin(colours, inks[name]).sum()) for name in ("light", "dark"))
    assert max(light, dark) > 20 * min(light, dark)  # an edge may have a colour of the other theme by chance
    return "light" if light > dark else "dark", tuple(np.median(pixels, axis=0))


def column(page: Any, place: int) -> list[str]:
    """Return the sort values of a column of the first table, in the order shown."""
    cells = page.locator("table").first.locator(f"tbody tr:visible > :nth-child({place})")
    return cells.evaluate_all("cells => cells.map(c => c.dataset.value ?? c.textContent.trim())")


def test_every_page_can_be_reached_by_clicking(page: Any, report: Report):
    page.goto((report.site / "index.html").as_uri())
    labels = page.locator("header nav a").all_text_contents()
    shown = ["Overview", "digits_mlp", "convex", "Leaderboard", "Compare", "Claims"]
    sources = ["EGOP paper", "EGOP paper v1", "Stratos 2026"]
    assert labels == [*shown, *sources, "Kernels", "Parity", "Provenance", "Methods"]
    for label in labels:
        if label in sources:
            page.locator("header summary", has_text="Papers").click()
        page.locator("header nav").get_by_role("link", name=label, exact=True).click()
        assert page.locator("header nav a[aria-current=page]").text_content() == label
        assert page.locator("h1").count() == 1
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    for study in ("digits_mlp", "convex"):
        page.goto((report.site / "index.html").as_uri())
        page.locator("main").get_by_role("link", name=study, exact=True).first.click()
        page.get_by_role("link", name="All final runs").click()
        assert page.locator("h1").text_content() == f"Runs of {study}"


def places(page: Any) -> dict[str, int]:
    """Return the number of each column of the first table, from 1 on, by its title."""
    titles = page.locator("table").first.locator("thead button").all_text_contents()
    return {title: place for place, title in reversed(list(enumerate(titles, start=1)))}


def test_the_leaderboard_sorts_filters_and_leads_to_runs(page: Any, report: Report):
    page.goto((report.site / "leaderboard.html").as_uri())
    table, place = page.locator("table").first, places(page)
    head = table.get_by_role("button", name="Diverged")
    head.click()
    ascending = [float(value) for value in column(page, place["Diverged"])]
    assert ascending == sorted(ascending)
    assert table.locator("th[aria-sort=ascending]").count() == 1
    head.press("Enter")
    assert [float(value) for value in column(page, place["Diverged"])] == sorted(ascending, reverse=True)
    page.get_by_text("Each workload").first.click()
    own = page.get_by_role("region", name="log_sum_exp of convex on jax")
    own.get_by_role("button", name="Final training loss").click()
    medians = own.locator("tbody tr > :nth-child(2)").evaluate_all(
        "cells => cells.map(c => +c.dataset.value)"
    )
    assert len(medians) == 6
    assert medians == sorted(medians)

    page.get_by_label("Filter").fill("@ egop")
    assert own.locator("tbody tr:visible").count() == 3
    assert len(column(page, 1)) == 3
    assert page.locator("#shown").text_content() == "9 of 18 rows"
    page.get_by_label("Filter").fill("adagrad")  # is on boards that were folded, and not on the first
    assert not table.is_visible()
    assert page.locator("details.board").first.get_by_role("row", name="adagrad @ egop").first.is_visible()
    page.get_by_label("Filter").fill("")
    table.get_by_role("row", name="adam @ egop").get_by_role("link").click()
    assert page.locator("tr:target td").first.text_content() == "adam @ egop"


def test_sorting_and_filters_are_in_the_address_and_come_back(page: Any, report: Report):
    address = (report.site / "leaderboard.html").as_uri()
    page.goto(address)
    table, place = page.locator("table").first, places(page)
    table.get_by_role("button", name="Wins").click()
    table.get_by_role("button", name="Diverged").click()
    table.get_by_role("button", name="Diverged").click()
    page.get_by_label("Filter").fill("ada egop")
    kept = f"{address}#sort=1.{place['Diverged']}.down&filter=ada+egop"
    page.wait_for_url(kept)
    seen = column(page, 1)
    assert seen == ["adam @ egop"]

    def same() -> None:
        assert column(page, 1) == seen
        assert page.get_by_label("Filter").input_value() == "ada egop"
        assert page.locator("th[aria-sort=descending]").first.text_content().startswith("Diverged")

    page.reload()
    same()
    page.goto("about:blank")
    page.goto(kept)
    same()
    page.get_by_label("Filter").fill("")
    assert page.url == f"{address}#sort=1.{place['Diverged']}.down"
    page.goto(f"{address}#sort=99.9.up")  # of another site
    assert len(column(page, 1)) == 6


def test_columns_are_explained_to_pointer_and_keyboard(page: Any, report: Report):
    page.goto((report.site / "leaderboard.html").as_uri())
    tip = page.locator(".tip")
    heads = page.locator("table").first.locator("thead button")
    assert not tip.is_visible()
    for head in heads.all():
        head.focus()
        about = page.locator(f"#{head.get_attribute('aria-describedby')}").text_content()
        assert tip.text_content() == about
        assert tip.is_visible()
        box = tip.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 1280
    page.keyboard.press("Escape")
    assert not tip.is_visible()
    heads.nth(2).hover()
    assert "performance profile" in tip.text_content()
    page.mouse.move(5, 5)
    tip.wait_for(state="hidden")
    heads.nth(2).hover()
    tip.get_by_role("link", name="More").click()
    page.wait_for_url("**/methods.html#score")


def row_texts(page: Any) -> list[list[str]]:
    """Return the cells of the comparison, each with its second line behind a bar."""
    told = (
        "cell => { cell.normalize(); return [...cell.childNodes].map(node => node.textContent).join(' | '); }"
    )
    page.locator("#chosen wbr").evaluate_all("breaks => breaks.forEach(one => one.remove())")
    rows = page.locator("#chosen tbody tr")
    return list(rows.evaluate_all(f"rows => rows.map(row => [...row.cells].map({told}))"))


def test_two_methods_are_compared_and_hostile_names_are_text(page: Any, report: Report):
    page.goto((report.site / "compare.html").as_uri())
    page.get_by_label("First").select_option("adam @ egop")
    page.get_by_label("Second").select_option("adam")
    assert page.locator("#chosen tbody th").first.inner_html().startswith("digits_<wbr>mlp<span")
    rows = row_texts(page)
    assert len(rows) == 6  # the loss and the gradients of three workloads
    assert page.locator("#met").text_content() == "Both ran on 3 workloads"
    assert page.locator("#first-head").text_content() == "adam @ egop"
    loss = rows[0]
    assert loss[:2] == ["digits_mlp | digits_mlp", "final training loss | less is better"]
    assert loss[-1] == "0.00098"
    page.get_by_label("First").select_option(f"{HOSTILE} @ egop")
    page.get_by_label("Second").select_option(HOSTILE)
    assert len(row_texts(page)) == 4
    for _ in range(2):
        assert page.locator("#second-head").text_content() == HOSTILE
        page.reload()
    assert page.locator("main script").count() == 1  # the data


def test_the_page_of_one_model_opens_with_its_sentence_and_the_leading_pair_needs_no_script(
    browser: Any, page: Any, tmp_path: Path
):
    def change(raw: dict[str, Any]) -> None:
        raw["studies"][0]["claims"] = []
        raw["studies"][0]["training"]["targets"] = {}

    site = bare_site(tmp_path, Shape(name="own_model", backends=("jax",)), change=change)
    address = (site / "study_own_model.html").as_uri()
    context = browser.new_context(java_script_enabled=False)
    unscripted = context.new_page()
    unscripted.goto(address)
    page.goto(address)
    sentence = page.locator("p.answer").first.text_content()
    assert sentence.startswith("On digits_mlp, adam @ egop has the best final training loss")
    assert page.locator("main table").first.locator("tbody tr").count() == 6
    assert page.locator("#second-head").text_content() == "adagrad @ egop"
    shown = page.locator("#chosen tbody").inner_text()
    assert "gradients to training loss 0.000149" in shown
    assert unscripted.locator("#chosen tbody").inner_text() == shown
    assert not unscripted.locator(".controls").is_visible()
    context.close()
    page.locator("#second").select_option("sgd")
    quantities = [row[1].partition(" ")[0] for row in row_texts(page)]
    assert quantities == ["final", "gradients", "seconds", "state", "peak", "peak"]
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_the_pair_is_in_the_address_and_can_be_swapped_by_keyboard(page: Any, report: Report):
    address = (report.site / "compare.html").as_uri()
    page.goto(f"{address}#first=sgd&second=adagrad")
    page.get_by_label("First").focus()
    page.keyboard.press("s")  # the next name that begins so
    page.wait_for_function("document.activeElement.selectedOptions[0].label === 'sgd @ egop'")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "second"
    before = row_texts(page)
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "swap"
    after = row_texts(page)
    assert [row[2:4] for row in after] == [row[3:1:-1] for row in before]
    kept = page.url
    assert "#first=adagrad&second=sgd+%40+egop" in kept
    page.goto("about:blank")
    page.goto(kept)
    assert row_texts(page) == after
    page.evaluate("location.hash = 'main'")  # another place of the page is no pair
    assert row_texts(page) == after
    page.goto(f"{address}#first=nobody&second=adam")
    assert page.locator("#second-head").text_content() == "adam"


def test_the_theme_is_the_systems_until_one_is_chosen_and_light_on_paper(page: Any, report: Report):
    page.emulate_media(color_scheme="dark")
    page.goto((report.site / "study_convex.html").as_uri())
    assert figures_theme(page) == "dark"
    dark = page.evaluate(PAPER)
    page.get_by_role("button", name="Light theme").click()
    assert figures_theme(page) == "light"
    assert page.evaluate(PAPER) != dark
    page.get_by_role("link", name="digits_mlp", exact=True).click()
    assert figures_theme(page) == "light", "it is remembered"
    page.get_by_role("button", name="Dark theme").click()
    assert (figures_theme(page), page.evaluate(PAPER)) == ("dark", dark)
    page.emulate_media(color_scheme="dark", media="print")
    assert figures_theme(page) == "light"


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_figure_opened_by_itself_has_the_theme_of_the_system(page: Any, report: Report, theme: str):
    page.emulate_media(color_scheme=theme)
    page.goto((report.site / "study_convex.html").as_uri())
    page.get_by_role("link", name="SVG", exact=True).first.click()
    page.wait_for_url("**/*.svg")
    name, ground = inks_and_ground(page.screenshot())
    assert name == theme
    assert (min(ground) > 240) if theme == "light" else (max(ground) < 30)


@pytest.mark.parametrize("width", [360, 1280])
def test_no_page_is_wider_than_its_window(page: Any, report: Report, many_methods: Path, width: int):
    page.set_viewport_size({"width": width, "height": 800})
    for path in sorted([*report.site.glob("*.html"), *many_methods.glob("*.html")]):
        page.goto(path.as_uri())
        page.evaluate("document.querySelectorAll('details').forEach(folded => { folded.open = true; })")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path.name


@pytest.fixture(scope="module")
def on_gpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("on_gpus")
    plan = write_long(folder)
    leave_figures_out(folder, LONG.name)
    return site_of(plan, folder)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_seconds_of_jobs_on_gpus_have_a_colour_for_each_phase(page: Any, on_gpus: Path, theme: Any):
    page.emulate_media(color_scheme=theme)
    page.goto((on_gpus / f"study_{LONG.name}.html").as_uri())
    table = page.get_by_label(re.compile("^Time by phase of")).locator("table")
    colours = "parts => parts.map(part => getComputedStyle(part).backgroundColor)"
    heads = table.locator("thead .swatch").evaluate_all(colours)
    assert len(set(heads)) == len(heads)
    for row in table.locator("tbody tr").all():
        parts = row.locator(".phases span")
        assert parts.evaluate_all(colours) == heads
        widths = [
            one["width"] for one in parts.evaluate_all("all => all.map(one => one.getBoundingClientRect())")
        ]
        assert sum(widths) == pytest.approx(row.locator(".phases").bounding_box()["width"], rel=0.02)
    table.get_by_role("button", name="Energy").click()
    assert set(table.locator("tbody tr td:last-child").all_text_contents()) == {"1.00"}


WIDE = "boxes => boxes.filter(b => b.scrollWidth > b.clientWidth + 1).map(b => b.ariaLabel)"


def saved(page: Any, take: Any, kind: str) -> tuple[str, str]:
    """Return the name and the text of a table that is saved by a button of `take`."""
    with page.expect_download() as download:
        take.get_by_role("button", name=kind).click()
    return download.value.suggested_filename, download.value.path().read_text()


def test_a_table_is_saved_as_csv_and_latex_as_it_is_shown(page: Any, report: Report, tmp_path: Path):
    page.goto((report.site / "leaderboard.html").as_uri())
    page.get_by_label("Filter").fill("@ egop")
    table = page.locator("table").first
    table.get_by_role("button", name="Diverged").click()
    shown = [" ".join(name.split()) for name in table.locator("tbody th:visible").all_text_contents()]
    take = page.locator(".take").first
    [(csv_name, as_csv), (tex_name, as_tex)] = (saved(page, take, kind) for kind in ("CSV", "LaTeX"))
    assert (csv_name, tex_name) == ("leaderboard.1.csv", "leaderboard.1.tex")
    rows = list(csv.DictReader(as_csv.splitlines()))
    assert [row["Method"] for row in rows] == shown
    assert [float(row["Score, in full"]) for row in rows] == [float(value) for value in column(page, 3)]
    assert re.fullmatch(r"[0-9.]+ \[[0-9.]+, [0-9.]+\]", rows[0]["Score"])
    lines = as_tex.splitlines()
    written = [line.partition(" & ")[0] for line in lines if " & " in line]
    assert written == ["Method", *(name.replace("<", "$<$").replace(">", "$>$") for name in shown)]
    assert {"\\toprule", "\\midrule", "\\bottomrule"} < set(lines)
    assert lines[1] == f"\\begin{{tabular}}{{l{'r' * (len(places(page)) - 1)}}}"

    page.goto((report.site / "index.html").as_uri())  # rows that span others
    page.locator(".answers td").first.evaluate(r"cell => { cell.textContent = '{a} $b_c \\ d % & # ~ ^'; }")
    take = page.locator(".answers ~ .take, .scroll:has(.answers) + .take").first
    lines = [line for line in saved(page, take, "LaTeX")[1].splitlines() if line.endswith("\\\\")]
    assert {line.count(" & ") for line in lines} == {4}
    signs = r"\{a\} \$b\_c \textbackslash{} d \% \& \# \textasciitilde{} \textasciicircum{}"
    assert lines[1].split(" & ")[1] == signs


def test_on_a_desk_the_tables_fit_their_boxes(page: Any, report: Report):
    studies = ("study_digits_mlp", "runs_digits_mlp")
    for name in ("index", "leaderboard", "claims", *studies, "kernels", "parity", "provenance"):
        page.goto((report.site / f"{name}.html").as_uri())
        assert page.locator(".scroll").evaluate_all(WIDE) == [], name


@pytest.mark.parametrize("width", [390, 1280])
def test_the_comparison_of_two_sets_fits_any_screen(page: Any, report: Report, tmp_path: Path, width: int):
    side = side_of(report.plan, "a-published-set.2026-11-22")
    (tmp_path / "changes.html").write_text(render(side, side))
    page.set_viewport_size({"width": width, "height": 844})
    page.goto((tmp_path / "changes.html").as_uri())
    assert page.locator(".scroll").count() == 4
    assert page.locator(".scroll").evaluate_all(WIDE) == []


def test_on_a_phone_the_method_stays_in_sight_and_answers_are_cards(page: Any, report: Report):
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto((report.site / "leaderboard.html").as_uri())
    box = page.locator(".scroll").first
    box.evaluate("box => { box.scrollLeft = 200; }")
    assert page.get_by_role("rowheader", name="adam", exact=True).first.bounding_box()["x"] < 30
    page.goto((report.site / "index.html").as_uri())
    sideways = "box => box.scrollWidth > box.clientWidth"
    for name in ("Which optimizer for what", "Studies"):
        box = page.get_by_role("region", name=name, exact=True)
        assert not box.evaluate(sideways), name
        for cell in box.locator("tbody :is(th, td)").all():
            place = cell.bounding_box()
            assert place["x"] >= 0
            assert place["x"] + place["width"] <= 390
    answers = page.locator("table.answers")
    assert answers.get_by_role("rowheader").count() == 3
    label = "cell => getComputedStyle(cell, '::before').content"
    third = answers.locator("tbody tr").first.get_by_role("cell").nth(1)
    assert third.evaluate(label).startswith('"At the end, relative to sgd"')
    page.set_viewport_size({"width": 1280, "height": 900})
    assert third.evaluate(label) == "none"


def test_tables_say_what_they_are_and_the_focus_is_shown_and_reaches_the_content(page: Any, report: Report):
    for path in sorted(report.site.glob("*.html")):
        page.goto(path.as_uri())
        unnamed = "tables => tables.filter(t => !t.caption && !t.closest('[role=region][aria-label]')).length"
        assert page.locator("table").evaluate_all(unnamed) == 0, path.name
        assert page.locator("thead th:not([scope=col]), tbody th:not([scope=row])").count() == 0, path.name
    page.goto((report.site / "leaderboard.html").as_uri())
    page.keyboard.press("Tab")
    for _ in range(25):
        page.keyboard.press("Tab")
        width = "getComputedStyle(document.activeElement).outlineWidth"
        assert page.evaluate(width) == "2px", page.evaluate("document.activeElement.outerHTML")
    page.goto((report.site / "index.html").as_uri())
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"


def test_kernels_are_filtered_and_their_changes_lead_to_commits(page: Any, kernel_report: KernelReport):
    page.goto((kernel_report.site / "kernels.html").as_uri())
    page.locator("main").get_by_role("link", name=kernel_report.hashes[6][:8]).first.click()
    assert page.locator("tr:target th").text_content() == kernel_report.hashes[6]
    page.get_by_label("Filter").fill("torch")
    shown = page.locator("table[data-filtered] tbody tr:visible > :nth-child(2)").all_text_contents()
    assert set(shown) == {"torch"}
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def claims_shown(page: Any) -> list[str]:
    """Return the claims whose rows are displayed, as places of the page."""
    return [each.get_attribute("id") for each in page.locator(".claim:visible > .evidence").all()]


def test_claims_are_filtered_by_paper_and_verdict_and_the_address_keeps_it(page: Any, report: Report):
    address = (report.site / "claims.html").as_uri()
    page.goto(address)
    page.locator("#paper").select_option("Stratos 2026")
    assert claims_shown(page) == [f"claim-{slug(name)}" for name in CLAIMS]
    assert page.locator("h2:visible").count() == 1
    assert page.locator(".counts strong").all_text_contents() == ["3", "2", "0", "0", "0", "1", "0", "0"]
    assert page.get_by_role("radio", name="0 not run").is_disabled()
    page.get_by_role("radio", name="1 not reproduced").check()
    assert claims_shown(page) == [f"claim-{slug(HOSTILE)}"]
    assert page.locator("#shown").text_content() == "1 of 6 claims"
    page.reload()
    assert claims_shown(page) == [f"claim-{slug(HOSTILE)}"]
    assert page.get_by_role("radio", name="1 not reproduced").is_checked()
    page.locator("#paper").select_option("")
    page.get_by_role("radio", name="4 reproduced").focus()
    page.keyboard.press("Space")
    page.get_by_label("Filter").fill("convex")
    assert claims_shown(page) == ["claim-egop.convex"]
    assert page.locator(".counts strong").all_text_contents() == ["1", "1", "0", "0", "0", "0", "0", "0"]
    assert page.url == f"{address}#verdict=reproduced&filter=convex"
    page.locator("main").get_by_role("link", name="Questions of ours").click()
    page.get_by_label("Decided by").select_option("training claims")
    assert claims_shown(page) == ["claim-egop.digits_mlp", "claim-egop.fashion"]
    assert page.url == f"{address}#asked_by=us&kind=training"


def test_a_claim_is_opened_by_the_keyboard_by_a_link_and_with_all_others(page: Any, report: Report):
    address = (report.site / "claims.html").as_uri()
    page.goto(address)
    assert page.evaluate("document.documentElement.scrollHeight") < 1900, "closed"
    assert page.locator(".claim[open]").count() == 0
    page.locator(".claim > summary").first.focus()
    page.keyboard.press("Enter")
    assert page.locator("#claim-egop\\.digits_mlp").is_visible()
    page.get_by_role("radio", name="1 not run").check()
    page.evaluate("location.hash = 'claim-notes.regret'")  # the filter hides this claim
    opened = page.locator(".evidence:target")
    opened.wait_for(state="visible")
    summary = page.locator(".claim:has(:target) > summary")
    assert 0 <= summary.bounding_box()["y"] < 900
    assert page.locator(".claim:visible").count() == 6
    page.goto((report.site / "study_digits_mlp.html").as_uri())
    page.get_by_role("link", name="What the verdict rests on").first.click()
    page.locator(".claim[open]").wait_for()
    assert page.locator(".claim[open]").count() == 1
    button = page.locator("#open-all")
    button.click()
    assert page.locator(".claim[open]").count() == 6
    assert button.text_content() == "Close all"
    button.click()
    assert page.locator(".claim[open]").count() == 0


def test_paper_has_all_claims(page: Any, report: Report):
    page.goto((report.site / "claims.html").as_uri())
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("main details:not([open])").count() == 0
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator("main details[open]").count() == 0


def test_readers_without_scripts_have_all_claims_and_what_columns_say(browser: Any, report: Report):
    context = browser.new_context(java_script_enabled=False)
    opened = context.new_page()
    opened.goto((report.site / "leaderboard.html").as_uri())
    opened.get_by_text("What the columns say").first.click()
    assert opened.get_by_text("area under the performance profile", exact=False).first.is_visible()
    opened.goto(f"{(report.site / 'claims.html').as_uri()}#claim-notes.regret")
    assert opened.get_by_role("region", name="Parts of notes.regret").is_visible()
    assert opened.get_by_text("4 ✓ reproduced").is_visible()
    assert not opened.get_by_role("radio").first.is_visible()
    opened.locator(".claim > summary").first.click()
    assert opened.get_by_role("region", name="Comparisons of egop.digits_mlp").is_visible()
    context.close()


def test_a_figure_that_is_wider_than_a_phone_says_so_and_scrolls_by_keyboard(page: Any, report: Report):
    page.goto((report.site / "study_digits_mlp.html").as_uri())
    frame = page.locator("figure .frame").first
    told = "frame => getComputedStyle(frame, '::before').content"
    assert frame.evaluate(told) == "none", "on a desk it fits"
    page.set_viewport_size({"width": 390, "height": 844})
    assert "scroll sideways" in frame.evaluate(told)
    assert "gradient" in frame.evaluate("frame => getComputedStyle(frame).backgroundImage")
    assert frame.evaluate("frame => frame.scrollWidth > frame.clientWidth")
    assert frame.get_attribute("aria-label").startswith("Figure: ")
    frame.focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_function("document.activeElement.scrollLeft > 0")
    frame.evaluate("frame => frame.classList.add('narrow')")
    assert frame.evaluate(told) == "none", "a figure of one panel fits"
    assert frame.evaluate("frame => frame.scrollWidth == frame.clientWidth")


def test_on_paper_pages_are_light_whole_and_without_navigation(page: Any, report: Report):
    page.emulate_media(color_scheme="dark", media="print")
    page.set_viewport_size({"width": 718, "height": 1000})  # A4 less its margins
    for name in ("index", "claims", "methods", "study_digits_mlp", "parity"):
        page.goto((report.site / f"{name}.html").as_uri())
        assert not page.locator("header nav").is_visible()
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        ends = "tables => Math.max(...tables.map(table => table.getBoundingClientRect().right))"
        assert page.locator("table, figure").evaluate_all(ends) <= 718, name
    page.goto((report.site / "claims.html").as_uri())
    assert page.get_by_text("one miss is enough for it not to hold").bounding_box()["height"] > 0


def test_pictures_are_there_when_a_page_is_loaded_however_far_down(page: Any, report: Report):
    page.goto((report.site / "study_digits_mlp.html").as_uri(), wait_until="load")
    there = page.locator("img").evaluate_all("all => all.map(one => one.complete && one.naturalWidth > 0)")
    assert len(there) > 3
    assert all(there), "printed, or pictured whole"


@pytest.mark.long  # the pages of 13 studies
def test_many_studies_share_a_menu(page: Any, tmp_path: Path):
    few = Shape(optimizers=("sgd",), bases=("identity",), backends=("jax",), seeds=(1,), tuning_seeds=())
    others = [f"another_{number}" for number in range(12)]

    def repeat(raw: dict[str, Any]) -> None:
        (first,) = raw["studies"]
        raw["studies"] = [first | {"name": name, "claims": [], "rules": {}} for name in (few.name, *others)]

    page.goto((bare_site(tmp_path, few, change=repeat) / "index.html").as_uri())
    header = page.locator("header")
    assert header.bounding_box()["height"] < 80
    header.get_by_text("Studies").focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == few.name
    header.get_by_role("link", name="another_11").click()
    assert page.locator("h1").text_content() == "another_11"
