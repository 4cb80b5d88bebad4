"""The site in a real browser, opened from disk: links, sorting, filtering, themes, a phone, no network."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from tests.reports.conftest import KernelReport, Report

NAMES = ("chromium", "chromium-browser", "google-chrome")
SWITCHES = (
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
    "--disable-sync",
)  # fmt: skip


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    path = next((found for name in NAMES if (found := shutil.which(name))), None)
    if path is None:
        message = f"no browser ({', '.join(NAMES)}) on the path; apt-get install chromium"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=path, args=list(SWITCHES))
        yield launched
        launched.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A page that must not complain, miss a file or ask for anything that is not one."""
    context = browser.new_context(color_scheme="light", viewport={"width": 1280, "height": 900})
    opened = context.new_page()
    troubles: list[str] = []

    def hear(message: Any) -> None:
        if message.type == "error":
            troubles.append(message.text)

    def check(request: Any) -> None:
        if not request.url.startswith("file://"):
            troubles.append(request.url)

    def fail(request: Any) -> None:
        if request.failure != "net::ERR_ABORTED":  # a picture still loading when the test went on
            troubles.append(f"{request.url}: {request.failure}")

    opened.set_default_timeout(10_000)
    opened.on("console", hear)
    opened.on("pageerror", lambda error: troubles.append(str(error)))
    opened.on("requestfailed", fail)
    opened.on("request", check)
    yield opened
    context.close()
    assert troubles == []


def shown_figures(page: Any) -> list[str]:
    """The sources of the figures that are displayed, once loaded."""
    for image in page.locator("main > section > .figures img:visible").all():
        image.scroll_into_view_if_needed()
    loaded = "images => images.filter(i => i.offsetParent).every(i => i.naturalWidth > 0)"
    page.wait_for_function(f"({loaded})([...document.querySelectorAll('.figures img')])")
    return [image.get_attribute("src") for image in page.locator(".figures img:visible").all()]


def column(page: Any, place: int) -> list[str]:
    """The sort values of a column of the first table, in the order shown."""
    cells = page.locator("table").first.locator(f"tbody tr:visible > :nth-child({place})")
    return cells.evaluate_all("cells => cells.map(c => c.dataset.value ?? c.textContent.trim())")


def test_every_page_can_be_reached_by_clicking(page: Any, report: Report):
    page.goto((report.site / "index.html").as_uri())
    labels = page.locator("header nav a").all_text_contents()
    shown = ("Overview", "digits_mlp", "convex", "Leaderboard", "Claims", "Kernels", "Parity", "Provenance")
    assert labels == list(shown)
    for label in labels:
        page.locator("header nav").get_by_role("link", name=label, exact=True).click()
        assert page.locator("header nav a[aria-current=page]").text_content() == label
        assert page.locator("h1").count() == 1
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    for study in ("digits_mlp", "convex"):
        page.goto((report.site / "index.html").as_uri())
        page.locator("main").get_by_role("link", name=study, exact=True).first.click()
        page.get_by_role("link", name="All final runs").click()
        assert page.locator("h1").text_content() == f"Runs of {study}"


def test_the_leaderboard_sorts_filters_and_leads_to_runs(page: Any, report: Report):
    page.goto((report.site / "leaderboard.html").as_uri())
    table = page.locator("table").first
    head = table.get_by_role("button", name="Diverged")
    head.click()
    ascending = [float(value) for value in column(page, 5)]
    assert ascending == sorted(ascending)
    assert table.locator("th[aria-sort=ascending]").count() == 1
    head.press("Enter")
    assert [float(value) for value in column(page, 5)] == sorted(ascending, reverse=True)
    table.get_by_role("button", name="digits_mlp").click()
    medians = [float(value) for value in column(page, 6)]
    assert medians == sorted(medians)

    total = len(column(page, 1))
    page.get_by_label("Filter").fill("adagrad")
    assert column(page, 1) == ["adagrad", "adagrad @ egop"] or column(page, 1) == [
        "adagrad @ egop",
        "adagrad",
    ]
    page.get_by_label("Filter").fill("")
    page.get_by_label("Basis").select_option("egop")
    assert len(column(page, 1)) == total // 2
    assert page.locator("#shown").text_content() == "9 of 18 rows"
    table.get_by_role("row", name="adam @ egop").get_by_role("link", name="digits_mlp").click()
    assert page.locator("tr:target td").first.text_content() == "adam @ egop"


def test_the_theme_changes_the_figures_too_and_is_remembered(page: Any, report: Report):
    page.goto((report.site / "study_convex.html").as_uri())
    assert all(source.endswith(".light.svg") for source in shown_figures(page))
    paper = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(paper)
    page.get_by_role("button", name="Dark theme").click()
    figures = shown_figures(page)
    assert figures
    assert all(source.endswith(".dark.svg") for source in figures)
    assert page.evaluate(paper) != light
    page.get_by_role("link", name="digits_mlp", exact=True).click()
    assert all(source.endswith(".dark.svg") for source in shown_figures(page))
    page.get_by_role("button", name="Light theme").click()
    assert page.evaluate(paper) == light


def test_the_system_theme_holds_until_one_is_chosen_and_paper_is_light(page: Any, report: Report):
    page.emulate_media(color_scheme="dark")
    page.goto((report.site / "study_convex.html").as_uri())
    assert all(source.endswith(".dark.svg") for source in shown_figures(page))
    page.emulate_media(color_scheme="dark", media="print")
    assert all(source.endswith(".light.svg") for source in shown_figures(page))


def test_a_name_from_data_runs_nothing(page: Any, report: Report):
    dialogs: list[str] = []

    def dismiss(dialog: Any) -> None:
        dialogs.append(dialog.message)
        dialog.dismiss()

    page.on("dialog", dismiss)
    for name in ("index", "leaderboard", "study_convex", "runs_convex", "claims", "provenance"):
        page.goto((report.site / f"{name}.html").as_uri())
    assert dialogs == []


def test_a_phone_scrolls_tables_and_not_pages(page: Any, report: Report):
    page.set_viewport_size({"width": 360, "height": 780})
    for path in sorted(report.site.glob("*.html")):
        page.goto(path.as_uri())
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_the_keyboard_reaches_the_content(page: Any, report: Report):
    page.goto((report.site / "index.html").as_uri())
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"


def test_kernels_are_filtered_and_their_changes_lead_to_commits(page: Any, kernel_report: KernelReport):
    page.goto((kernel_report.site / "kernels.html").as_uri())
    page.locator("main").get_by_role("link", name=kernel_report.hashes[2][:8]).first.click()
    assert page.locator("tr:target th").text_content() == kernel_report.hashes[2]
    page.get_by_label("Filter").fill("torch")
    assert set(column(page, 2)) == {"torch"}
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_asvs_own_pages_draw_from_disk(page: Any, kernel_report: KernelReport):
    page.goto((kernel_report.site / "kernels.html").as_uri())
    page.get_by_role("link", name="asv's own pages").click()
    page.get_by_role("link", name="Benchmark list").click()
    page.locator("#summarylist-body a", has_text="step.adam.one_large jax").nth(1).click()
    # the first line's colour, #247AAD
    drawn = """() => {
      const canvas = document.querySelector("#main-graph canvas.flot-base");
      if (!canvas) return false;
      const bytes = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
      for (let at = 0; at < bytes.length; at += 4)
        if (bytes[at] === 36 && bytes[at + 1] === 122 && bytes[at + 2] === 173) return true;
      return false;
    }"""
    page.wait_for_function(drawn)
    page.get_by_role("link", name="Regressions").click()
    page.locator("#regressions-body table").first.wait_for()
    assert page.locator("#project-name").get_attribute("href") == "../kernels.html"
