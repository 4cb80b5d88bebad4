"""The comparison of any two methods: its numbers, its size, and names from data in it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from statistics import median

import numpy as np
import polars as pl
import pytest

from curvebench.reports.formatting import counts, number
from curvebench.reports.measures import problems_of, study_values
from curvebench.reports.pages.comparing import (
    MOST_PAIRS,
    Matchups,
    cells,
    comparison_page,
    head_to_head,
    matchups_of,
    median_texts,
)
from curvebench.reports.pages.study_pages import pair_rows
from curvebench.reports.statistics.shares import share_interval
from curvebench.reports.tables import Tables
from curvebench.spec.plan import StudyPlan
from tests.reports.changing import replace
from tests.reports.conftest import Report, Studies
from tests.reports.example_sets import with_metric
from tests.reports.synthetic import HOSTILE

LIMIT = 2_000_000  # bytes of a page


@pytest.fixture(scope="module")
def found(studies: Studies) -> list[Matchups]:
    return matchups_of(studies)


def stored(page: str) -> str:
    """Return the data of a page, as it stands in the file."""
    [text] = re.findall(r'<script type="application/json" id="comparisons">(.*?)</script>', page, re.DOTALL)
    return str(text)


def test_the_numbers_are_those_of_the_study_page(study: StudyPlan, tables: Tables, found: list[Matchups]):
    rows = pair_rows(*problems_of(study, tables))
    assert rows
    for row in rows:
        compared = found[0].pairings[row["method"], row["control"]].effect
        assert compared == row["found"]


def test_the_two_orders_of_a_pair_tell_the_same_story(found: list[Matchups]):
    for contest in found:
        assert contest.effect == "ratio"
        for (first, second), meeting in contest.pairings.items():
            other = contest.pairings[second, first]
            wins, pairs, ties = meeting.effect.wins, meeting.effect.count, meeting.effect.ties
            assert (wins, meeting.effect.losses) == (other.effect.losses, other.effect.wins)
            assert ties == other.effect.ties >= 0
            assert meeting.effect.open == other.effect.open >= 0
            assert meeting.lower.value == pytest.approx(1 - other.upper.value)
            assert meeting.lower.value == pytest.approx((wins + ties / 2) / pairs)
            assert meeting.upper.value == pytest.approx((wins + ties / 2 + meeting.effect.open) / pairs)
            for chance in (meeting.lower, meeting.upper):
                assert 0 <= chance.low <= chance.value <= chance.high <= 1
            if ties == 0:  # Clopper and Pearson's is exact where nothing is counted half
                exact = share_interval(wins, pairs)
                assert (meeting.lower.low, meeting.lower.high) == pytest.approx((exact.low, exact.high))


def test_rounding_is_no_improvement(study: StudyPlan, tables: Tables):
    final = tables.runs.filter((pl.col("stage") == "final") & (pl.col("backend") == "jax"))
    adam = final.filter(method="adam")
    nearly = with_metric(adam, "train_loss", pl.element().struct.field("value") * (1 - 1e-6))
    twin = adam.with_columns(nearly, method=pl.lit("adagrad"))
    runs = pl.concat([final.filter(pl.col("method") != "adagrad"), twin])
    [contest, _] = matchups_of([(study, replace(tables, runs=runs))])
    meeting = contest.pairings["adagrad", "adam"]
    assert (meeting.effect.wins, meeting.effect.losses, meeting.effect.ties) == (0, 0, 10)
    assert (meeting.lower.value, meeting.upper.value, meeting.effect.p_value) == (0.5, 0.5, 1.0)


def test_of_runs_that_stopped_the_page_has_the_bounds_of_the_study_page(study: StudyPlan, tables: Tables):
    stops = replace(study, stop={"train_loss": 0.00025})
    [contest, target, *_] = matchups_of([(stops, tables)])
    rows = pair_rows(*problems_of(stops, tables))
    told = {(row["method"], row["control"]): row["found"] for row in rows}
    assert any(not found.exact for found in told.values())
    for pair, found in told.items():
        assert cells(contest.pairings[pair])[:2] == list(found.words)
    assert target.stop is None
    middles = {name: median_texts(contest, value)[0] for name, value in contest.medians.items()}
    at = [name for name, value in contest.medians.items() if value.median == 0.00025]
    assert at
    assert all((middles[name] == "stopped at 0.00025") == (name in at) for name in middles)
    page = comparison_page([(stops, tables)], [])
    assert page["bounded"]


def test_of_two_runs_that_missed_the_target_nothing_is_known(study: StudyPlan, tables: Tables):
    late = pl.element().struct.with_fields(pl.lit(None, pl.Int64).alias("steps"))
    missed = (
        pl.when(pl.col("method") == "adam")
        .then(pl.col("targets"))
        .otherwise(pl.col("targets").list.eval(late))
    )
    runs = tables.runs.with_columns(targets=missed, outcome=pl.lit("budget"))
    [_, target, *_] = matchups_of([(study, replace(tables, runs=runs))])
    assert cells(target.pairings["adam @ egop", "adagrad"]) == [
        "both missed", "the target", "0 of 10", "0 worse, 10 open", "0 % to 100 %", "0 % to 100 %", "1.00",
    ]  # fmt: skip
    assert cells(target.pairings["adam", "adagrad"])[2:] == [
        "10 of 10", "0 worse", "100 %", "69 % to 100 %", "0.00098",
    ]  # fmt: skip
    shown, ends = cells(target.pairings["adam", "adagrad"])[:2]
    assert shown.startswith("≤ 0.")
    assert ends.startswith("[0, 0.")
    assert cells(target.pairings["adagrad", "adam"])[0].startswith("≥ ")
    dead = runs.with_columns(outcome=pl.lit("diverged"))
    [_, target, *_] = matchups_of([(study, replace(tables, runs=dead))])
    assert cells(target.pairings["adam @ egop", "adagrad"])[0] == "1.0000"  # neither ever gets there


def test_pairs_are_the_seeds_that_both_ran(study: StudyPlan, tables: Tables):
    gone = (pl.col("method") == "adam") & (pl.col("seed") < 1003) & (pl.col("stage") == "final")
    runs = tables.runs.filter((pl.col("backend") == "jax") & ~gone)
    first, *_ = matchups_of([(study, replace(tables, runs=runs))])
    assert first.pairings["adam", "sgd"].effect.count == 7
    assert first.pairings["adagrad", "sgd"].effect.count == 10
    values = study_values(study, runs.filter(pl.col("stage") == "final"))
    pairs = values.filter(pl.col("seed") >= 1003).pivot(on="method", index="seed", values="value")
    ratios = (pairs["adam"] / pairs["sgd"]).to_numpy()
    assert first.pairings["adam", "sgd"].effect.median == pytest.approx(float(np.median(ratios)))
    none = runs.filter(~((pl.col("method") == "adam") & (pl.col("stage") == "final")))
    first, *_ = matchups_of([(study, replace(tables, runs=none))])
    assert ("adam", "sgd") not in first.pairings


@pytest.mark.parametrize("pair", [("adam @ egop", "adam"), ("sgd", "adagrad")])
def test_a_pair_without_targets_is_compared_at_the_worse_of_its_medians(
    study: StudyPlan, tables: Tables, pair: tuple[str, str]
):
    untargeted, jax = replace(study, targets={}), pl.col("backend") == "jax"
    data = head_to_head(untargeted, tables, pair)["data"]
    assert (data["shown"], len(data["methods"])) == (list(pair), len(study.methods))
    values = study_values(study, tables.runs.filter(jax, stage="final"))
    goal = max(median(values.filter(method=name)["value"]) for name in pair)
    curves = pl.read_parquet(study.tables / "curves.parquet").filter(
        pl.col("value") <= goal, metric="train_loss"
    )
    first = values.join(curves.group_by("run").agg(met=pl.col("step").min()), on="run", how="left")
    gradients = (pl.col("met") + pl.col("basis_gradient_evaluations")).fill_null(np.inf)
    seeds = first.with_columns(met=gradients).pivot("method", index="seed", values="met")
    found = [item for item in data["contests"] if item["pairs"].get(0, {}).get(1)]
    _, cost, seconds, state, host, device = found
    assert cost["quantity"] == f"gradients to training loss {number(goal)}"
    for index, name in enumerate(pair):
        assert cost["medians"][index][0] == counts([median(seeds[name])])[0]
    # A run that missed it may have reached it one step after its 100 steps.
    won = int((seeds[pair[0]] < seeds[pair[1]].clip(upper_bound=101)).sum())
    assert cost["pairs"][0][1][2] == f"{won} of 10"
    assert seconds["quantity"].startswith("seconds to training loss")
    assert [item["pairs"][0][1][1] for item in (state, host, device)] == ["one measurement"] * 3


def test_the_data_is_text_that_ends_no_script(report: Report):
    page = (report.site / "compare.html").read_text()
    text = stored(page)
    assert "<" not in text
    data = json.loads(text)
    assert HOSTILE in data["methods"]
    assert data["shown"] == [HOSTILE, "adam"]  # the first two of the leaderboard
    first = data["contests"][0]
    one, two = (str(data["methods"].index(name)) for name in ("adam @ egop", "adam"))
    assert first["medians"][two] == ["0.000265", "[0.000228, 0.000304]"]
    assert first["pairs"][one][two][2:6] == ["10 of 10", "0 worse", "100 %", "69 % to 100 %"]
    assert first["pairs"][one][two][6] == "0.00098"
    assert one not in first["pairs"][one]


def test_a_page_of_30_methods_stays_small_and_so_does_the_largest(many_methods: Path):
    page = (many_methods / "compare.html").read_text()
    assert len(page.encode()) < LIMIT
    data = stored(page)
    contests = json.loads(data)["contests"]
    assert len(contests) == 6
    pairs = sum(len(own) for contest in contests for own in contest["pairs"].values())
    assert pairs == 6 * 30 * 29
    assert len(data.encode()) / pairs * MOST_PAIRS < LIMIT
