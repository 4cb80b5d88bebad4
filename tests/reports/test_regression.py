"""Two sets side by side: what got better, worse, undecided, unchanged, and the page that says so."""

from __future__ import annotations

import shutil
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from reports.__main__ import main
from reports.plan import ReportError
from reports.regression import (
    Side,
    changed_verdicts,
    compare,
    outcomes,
    ratio_of_medians,
    read_side,
    render,
    steps,
)
from results.provenance import machine
from tests.reports.sets import Change, scaled, write_report, write_set
from tests.reports.synthetic import HOSTILE, Shape

JAX = Shape(optimizers=("sgd", "adam", HOSTILE), backends=("jax",))


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A published set."""
    return write_set(tmp_path_factory.mktemp("before"), "before.quick", [JAX], checks=False)


def after(folder: Path, shape: Shape = JAX, **changes: Change) -> Side:
    """A published set with changed tables, read."""
    return read_side(write_set(folder, "after.quick", [shape], False, **changes))


def said(rows: list, method: str) -> str:
    (row,) = (row for row in rows if row.method == method)
    return row.change


# --- accuracy ------------------------------------------------------------------------------------


def test_a_set_beside_itself_is_unchanged(before: Path):
    side = read_side(before)
    assert {row.change for row in outcomes(side, side)} == {"unchanged"}
    assert {row.p_value for row in outcomes(side, side)} == {1.0}
    assert changed_verdicts(side, side) == []
    assert {row.change for row in steps(side, side)} <= {"unchanged", "undecided"}


@pytest.mark.parametrize(("factor", "change"), [(0.7, "better"), (1.3, "worse"), (1.0005, "unchanged")])
def test_what_all_seeds_agree_on_is_decided(before: Path, tmp_path: Path, factor: float, change: str):
    rows = outcomes(read_side(before), after(tmp_path, runs=scaled("adam", factor)))
    assert said(rows, "adam") == said(rows, "adam @ egop") == change
    assert said(rows, "sgd") == "unchanged"
    (row,) = (row for row in rows if row.method == "adam")
    assert row.paired.median == pytest.approx(factor)
    if change != "unchanged":
        assert row.p_value == pytest.approx(6 * 2 * 2**-10)  # six methods, two sides, ten seeds
        assert rows[0].change in ("worse", "better")


def test_few_seeds_decide_nothing(before: Path, tmp_path: Path):
    few = Shape(optimizers=JAX.optimizers, backends=("jax",), seeds=JAX.seeds[:5])
    rows = outcomes(read_side(before), after(tmp_path, few, runs=scaled("adam", 3.0)))
    assert said(rows, "adam") == "undecided"


def test_seeds_that_disagree_decide_nothing(before: Path, tmp_path: Path):
    def moved(runs: pl.DataFrame) -> pl.DataFrame:
        worse, better = scaled("adam", 1.2)(runs), scaled("adam", 0.8)(runs)
        even = pl.col("seed") % 2 == 0
        return runs.with_columns(
            final_metrics=pl.when(even).then(worse["final_metrics"]).otherwise(better["final_metrics"])
        )

    assert said(outcomes(read_side(before), after(tmp_path, runs=moved)), "adam") == "undecided"


# --- seconds -------------------------------------------------------------------------------------


def slower(factor: float, everything: float = 1.0) -> Change:
    """What slows the steps of adam in the identity basis, and everything that was timed."""
    own = (pl.col("optimizer") == "adam") & (pl.col("basis") == "identity") & (pl.col("phase") == "step")
    share = pl.when(own).then(factor * everything).otherwise(everything)
    return lambda timings: timings.with_columns(seconds=pl.col("seconds") * share)


def test_a_slower_step_is_told_and_a_slower_session_is_not(before: Path, tmp_path: Path):
    rows = steps(read_side(before), after(tmp_path, timings=slower(1.4, everything=2.0)))
    assert said(rows, "adam") == "worse"
    (row,) = (row for row in rows if row.method == "adam")
    assert row.ratio.median == pytest.approx(2.8)
    assert row.judged.median == pytest.approx(1.4)
    assert row.control == pytest.approx(2.0)
    assert said(rows, "adam @ egop") == "unchanged"
    faster = steps(read_side(before), after(tmp_path / "two", timings=slower(0.5)))
    assert said(faster, "adam") == "better"


def test_steps_of_other_machines_are_not_compared(before: Path, tmp_path: Path):
    def elsewhere(frame: pl.DataFrame) -> pl.DataFrame:
        named = frame.with_columns(machine=pl.lit(machine("Toy CPU at 3 GHz", 8, None)))
        return named.with_columns(cores=pl.lit(8, dtype=pl.Int64)) if "cores" in frame.columns else named

    other = after(tmp_path, runs=elsewhere, timings=elsewhere, memory=elsewhere, jobs=elsewhere)
    assert {row.change for row in steps(read_side(before), other)} == {"not comparable"}
    page = render(read_side(before), other)
    assert "seconds are not comparable" in page
    assert "(other machines)" in page


def test_the_interval_of_a_ratio_covers():
    random = np.random.default_rng(0)
    hits = [
        found.low <= 1.3 <= found.high
        for _ in range(2000)
        for found in [ratio_of_medians(1.3 * random.lognormal(0, 0.2, 9), random.lognormal(0, 0.2, 9))]
    ]
    assert np.mean(hits) >= 0.95


# --- the page ------------------------------------------------------------------------------------


def turned(runs: pl.DataFrame) -> pl.DataFrame:
    """The hostile optimizer in its basis made worse, so that its claim fails."""
    own = (pl.col("optimizer") == HOSTILE) & (pl.col("basis") == "egop")
    moved = scaled(HOSTILE, 1e6)(runs)
    return runs.with_columns(
        final_metrics=pl.when(own).then(moved["final_metrics"]).otherwise(pl.col("final_metrics"))
    )


class Page(HTMLParser):
    """Collects what a page would load, and checks that tags are closed."""

    def __init__(self, text: str):
        super().__init__()
        self.loads: list[str] = []
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.loads += [
            value or ""
            for name, value in attrs
            if name in ("src", "href") and not (value or "").startswith("#")
        ]
        if tag not in ("meta", "br", "link"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_whole_in_itself_and_names_what_changed(
    before: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    other = write_set(tmp_path, "after.quick", [JAX], False, runs=turned)
    out = tmp_path / "pages/changes.html"
    assert main(["compare", str(before), str(other), "--out", str(out)]) == 0
    assert capsys.readouterr().out.strip() == str(out)
    text = out.read_text()
    assert len(text) < 2_000_000
    page = Page(text)
    assert page.loads == []
    assert page.open == []
    assert "script" not in page.tags
    assert HOSTILE not in text
    assert "&lt;script&gt;" in text
    (verdict,) = changed_verdicts(read_side(before), read_side(other))
    assert (verdict["claim"], verdict["before"], verdict["after"]) == (
        "egop.digits_mlp",
        "reproduced",
        "not reproduced",
    )
    assert "1 verdict changed" in text
    assert "Other machines" not in text


def test_a_claim_of_one_side_alone_has_no_other_rule(before: Path, tmp_path: Path):
    other = write_set(tmp_path, "after.quick", [JAX, Shape("convex", backends=("jax",))], checks=False)
    (row,) = changed_verdicts(read_side(before), read_side(other))
    assert (row["claim"], row["before"], row["other_rule"]) == ("egop.convex", None, False)


def test_a_checkout_is_read_by_the_plan_of_its_site(before: Path, tmp_path: Path):
    checkout = tmp_path / "checkout"
    plan = write_report(checkout, [JAX], checks=False)
    site = checkout / "reports/site/plan.json"
    site.parent.mkdir(parents=True)
    site.write_text(plan.read_text().replace(f"{checkout}/", ""))  # relative, as Snakemake's are
    assert read_side(checkout).name == "checkout"
    assert {row.change for row in outcomes(read_side(before), read_side(checkout))} == {"unchanged"}


def test_what_is_no_side_is_named(before: Path, tmp_path: Path):
    with pytest.raises(ReportError, match="neither a published set"):
        compare(before, tmp_path, tmp_path / "page.html")
    other = write_set(tmp_path, "other.quick", [Shape("convex", backends=("jax",))], False)
    with pytest.raises(ReportError, match="no study in common"):
        compare(before, other, tmp_path / "page.html")


def test_methods_of_one_side_alone_are_told(before: Path, tmp_path: Path):
    fewer = Shape(optimizers=("sgd", "adam"), backends=("jax",))
    page = render(read_side(before), after(tmp_path, fewer))
    assert "before.quick alone has &lt;script&gt;" in page


def test_what_was_waived_is_told(before: Path, tmp_path: Path):
    copy = tmp_path / "set"
    shutil.copytree(before, copy)
    plan = copy / "plan.json"
    plan.write_text(plan.read_text().replace('"waived": []', '"waived": ["mixed <b>hardware</b>"]'))
    assert "mixed &lt;b&gt;hardware" in render(read_side(before), read_side(copy))
