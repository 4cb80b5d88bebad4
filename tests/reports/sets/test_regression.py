"""Two sets side by side: what got better, worse, undecided, unchanged, and the page that says so."""

from __future__ import annotations

import shutil
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from curvebench.__main__ import main
from documents.errors import InputError
from reports.sets.regression import (
    SMALL_STEP,
    Side,
    changed_verdicts,
    compare,
    outcomes,
    read_side,
    render,
    step_change,
    steps,
)
from reports.statistics.shifts import Shift
from results.provenance import machine
from tests.reports.example_sets import Change, scaled, write_report, write_set
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
    assert {row.change for row in steps(side, side)} == {"unchanged"}
    assert {row.p_value for row in steps(side, side)} == {1.0}


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
    assert row.ratio.estimate == pytest.approx(2.8)
    assert row.judged.estimate == pytest.approx(1.4)
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


SPREAD = (0.05, -0.22, 0.12, -0.09, 0.22, 0.0, -0.15)  # of the logarithms of a method's repetitions


def noisy(factor: float, methods: tuple[str, ...] = JAX.optimizers, turn: int = 0) -> Change:
    """What spreads the steps of all methods, and slows those of some; `turn` gives a spread of its own."""
    logs = np.roll(SPREAD, turn) + 0.01 * turn
    wobble = pl.col("repetition").replace_strict(dict(enumerate(np.exp(logs).tolist())))
    slow = pl.when(pl.col("optimizer").is_in(methods)).then(factor).otherwise(1.0)
    seconds = pl.col("seconds") * wobble * slow
    own = pl.col("phase") == "step"
    return lambda timings: timings.with_columns(
        seconds=pl.when(own).then(seconds).otherwise(pl.col("seconds"))
    )


@pytest.fixture(scope="module")
def spread(tmp_path_factory: pytest.TempPathFactory) -> Side:
    """A published set whose repetitions differ by up to a half, while the gradient alone does not."""
    return after(tmp_path_factory.mktemp("spread"), timings=noisy(1.0))


def test_noisy_repetitions_beside_themselves_are_unchanged(spread: Side):
    rows = steps(spread, spread)
    assert {row.change for row in rows} == {"unchanged"}
    assert all(row.judged.estimate == 1 and row.judged.high > 1.1 for row in rows)


def test_other_repetitions_of_the_same_code_decide_nothing(spread: Side, tmp_path: Path):
    assert {row.change for row in steps(spread, after(tmp_path, timings=noisy(1.0, turn=3)))} == {"undecided"}


def test_one_slower_method_is_told_in_spite_of_noise(spread: Side, tmp_path: Path):
    rows = steps(spread, after(tmp_path, timings=noisy(1.5, ("adam",), turn=1)))
    assert said(rows, "adam") == said(rows, "adam @ egop") == "worse"
    assert {row.change for row in rows if not row.method.startswith("adam")} == {"undecided"}
    (row,) = (row for row in rows if row.method == "adam")
    assert 1.4 < row.judged.estimate < 1.6
    assert row.judged.low > 1


@pytest.mark.parametrize(("factor", "change"), [(2.0, "worse"), (0.5, "better")])
def test_methods_that_all_changed_are_all_told(spread: Side, tmp_path: Path, factor: float, change: str):
    rows = steps(spread, after(tmp_path, timings=noisy(factor, turn=1)))
    assert {row.change for row in rows} == {change}


@pytest.mark.parametrize(("more", "change"), [(0.99, "undecided"), (1.01, "worse")])
def test_the_least_ratio_that_is_told(spread: Side, tmp_path: Path, more: float, change: str):
    (row,) = (row for row in steps(spread, spread) if row.method == "adam")
    assert row.least is not None
    assert row.least > 1 + SMALL_STEP
    rows = steps(spread, after(tmp_path, timings=noisy(more * row.least, ("adam",))))
    assert said(rows, "adam") == change


def test_few_repetitions_decide_nothing_of_speed(before: Path, tmp_path: Path):
    def few(timings: pl.DataFrame) -> pl.DataFrame:
        return slower(3.0)(timings).filter(pl.col("repetition") < 2)

    other = after(tmp_path, timings=few)
    rows = steps(read_side(before), other)
    assert {row.change for row in rows} == {"undecided"}  # a range of so few is no 95 % interval
    assert {row.least for row in rows} == {None}
    assert '<td class="number">—</td>' in render(read_side(before), other)


@pytest.mark.parametrize(
    ("estimate", "low", "high", "p_value", "change"),
    [
        (1.02, 1.01, 1.04, 0.001, "unchanged"),
        (1.04, 1.01, 1.08, 0.001, "undecided"),
        (1.2, 1.1, 1.3, 0.001, "worse"),
        (0.8, 0.7, 0.9, 0.001, "better"),
        (1.2, 1.1, 1.3, 0.2, "undecided"),
    ],
)
def test_a_step_is_decided_by_interval_margin_and_p_value(
    estimate: float, low: float, high: float, p_value: float, change: str
):
    assert step_change(Shift(estimate, low, high, 0.96, (9, 9), p_value), p_value) == change


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
    assert main(["sets", "compare", str(before), str(other), "--out", str(out)]) == 0
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
    with pytest.raises(InputError, match="neither a published set"):
        compare(before, tmp_path, tmp_path / "page.html")
    other = write_set(tmp_path, "other.quick", [Shape("convex", backends=("jax",))], False)
    with pytest.raises(InputError, match="no study in common"):
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
