"""Performance profiles: areas by hand and by brute force, each rule by itself, and intervals."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from curvebench.reports.statistics.profiles import LIMIT, POINTS, score_intervals, time_ratios

INFINITE = float("inf")
SCHEMA = {"submission": pl.String, "workload": pl.String, "study": pl.String, "seconds": pl.Float64}


def table(times: dict[str, list[float | None]]) -> pl.DataFrame:
    """Return a table of runs with one study for each submission and workload."""
    return pl.DataFrame(
        [
            (name, workload, "s", value)
            for name, row in times.items()
            for workload, value in zip("uvwxyz", row, strict=False)
        ],
        schema=SCHEMA,
        orient="row",
    )


def scores_of(times: pl.DataFrame, **options: object) -> dict[str, float]:
    found = score_intervals(times, paired=True, **options)  # type: ignore[arg-type]
    return dict(found.select("submission", "score").iter_rows())


def test_workloads_of_one_problem_have_its_weight_together_and_the_same_draws():
    def row(submission: str, workload: str, seconds: list[float]) -> list[tuple[str, str, str, float]]:
        return [(submission, workload, str(study), value) for study, value in enumerate(seconds)]

    slow = [1.5, 2.0, 3.0, 1.2, 2.5, 1.1]
    rows = [
        *row("a", "u", [1.0] * 6),
        *row("b", "u", slow),
        *row("a", "v", [9.0] * 6),
        *row("b", "v", [1.0] * 6),
    ]
    once = pl.DataFrame(rows, schema=SCHEMA, orient="row")
    again = once.filter(workload="u")
    twice = pl.concat([once, again.with_columns(workload=pl.lit("w"))])
    found = score_intervals(twice, problems={"u": "p", "w": "p"}, paired=True)
    assert_frame_equal(found, score_intervals(once, paired=True))
    assert scores_of(twice)["a"] > scores_of(once)["a"]


def scores_by_loops(times: dict[tuple[str, str], float], variants: dict[str, str]) -> dict[str, float]:
    """Return the score of each submission by loops over submissions, workloads and points."""
    submissions = sorted({name for name, _ in times})
    workloads = sorted({workload for _, workload in times})
    best = {w: min(times[s, w] for s in submissions) for w in workloads}
    kept = {key: INFINITE if value > LIMIT * best[key[1]] else value for key, value in times.items()}
    for name in submissions:
        for variant, base in variants.items():
            if kept[name, variant] == INFINITE:
                kept[name, base] = INFINITE
    scored = [w for w in workloads if w not in variants]
    found = {}
    for name in submissions:
        shares = []
        for point in range(POINTS):
            ratio = 1 + (LIMIT - 1) * point / (POINTS - 1)
            solved = 0
            for w in scored:
                fastest = min(kept[s, w] for s in submissions)
                if kept[name, w] < INFINITE and kept[name, w] / fastest <= ratio * (1 + 1e-12):
                    solved += 1
            shares.append(solved / len(scored))
        area = sum((left + right) / 2 for left, right in pairwise(shares)) / (POINTS - 1)
        found[name] = area
    return found


def test_a_score_by_hand():
    # within 2 times the fastest are 66.5 of the 99 steps between points, at 4 times it half a step
    times = table({"a": [1.0, 4.0], "b": [2.0, 2.0], "c": [None, 8.0]})
    expected = {"a": (1 + 66.5 / 99) / 2, "b": (1 + 66.5 / 99) / 2, "c": 0.5 / 99 / 2}
    assert scores_of(times) == pytest.approx(expected)


def test_a_time_at_the_limit_counts_and_one_above_it_does_not():
    times = table({"a": [0.1, 1.0], "b": [0.4, 4.0 + 1e-9]})
    assert time_ratios(times).filter(submission="b")["ratio"].to_list() == [4.0, None]
    assert scores_of(times)["b"] == pytest.approx(1 / 2 / 99 / 2)


def test_what_was_missed_is_null_infinite_or_no_row():
    whole = table({"a": [1.0, 1.0], "b": [2.0, None]})
    absent = whole.filter(pl.col("seconds").is_not_null())
    infinite = whole.with_columns(pl.col("seconds").fill_null(INFINITE))
    assert scores_of(whole) == scores_of(absent) == scores_of(infinite)


def test_a_base_counts_only_where_its_variant_is_reached_within_the_limit():
    # The variant v of u: a reaches it, b is too slow on it, c misses it.
    times = table({"a": [2.0, 1.0], "b": [1.0, 4.1], "c": [1.0, None], "d": [None, 1.0]})
    ratios = time_ratios(times, variants={"v": "u"})
    assert ratios.filter(workload="u")["ratio"].to_list() == [1.0, None, None, None]
    assert ratios.filter(workload="v")["ratio"].to_list() == [1.0, None, None, None]  # d has missed u
    assert scores_of(times, variants={"v": "u"}) == pytest.approx({"a": 1.0, "b": 0.0, "c": 0.0, "d": 0.0})


def test_what_is_too_slow_is_judged_before_variants_are():
    # a is void on u by its variant, and yet its time there was the fastest when the limit was applied.
    times = table({"a": [1.0, None], "b": [5.0, 1.0], "c": [4.0, 1.0]})
    assert scores_of(times, variants={"v": "u"}) == pytest.approx({"a": 0.0, "b": 0.0, "c": 1.0})


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        ([("a", "u", "s", 0.0)], {}, "a on u takes 0.0 seconds"),
        ([("a", "u", "s", -1.0)], {}, "above 0"),
        ([("a", "u", "s", float("nan"))], {}, "a missed target is null"),
        ([("a", "u", "s", 1.0), ("a", "u", "s", 2.0)], {}, "two rows of a / u / s"),
        ([], {}, "no rows"),
        ([("a", "u", "s", 1.0)], {"variants": {"v": "u"}}, "variant v of u"),
        ([("a", "u", "s", 1.0)], {"variants": {"u": "u"}}, "a variant itself"),
    ],
)
def test_what_is_refused(rows, options, message):
    times = pl.DataFrame(rows, schema=SCHEMA, orient="row")
    with pytest.raises(ValueError, match=message):
        score_intervals(times, paired=True, **options)


TIMES = st.lists(
    st.lists(st.none() | st.integers(1, 12).map(float), min_size=4, max_size=4), min_size=1, max_size=4
)


@settings(max_examples=30)
@given(TIMES, st.booleans())
def test_it_equals_loops_over_submissions_workloads_and_points(rows, held_out):
    variants = {"w": "u", "v": "u"} if held_out else {}
    times = table({f"s{number}": row for number, row in enumerate(rows)})
    filled = {(s, w): INFINITE if v is None else v for s, w, _, v in times.iter_rows()}
    found = scores_of(times, variants=variants)
    assert found == pytest.approx(scores_by_loops(filled, variants), abs=1e-12)


# --- studies -------------------------------------------------------------------------------------


def studies(values: dict[tuple[str, str], list[float | None]]) -> pl.DataFrame:
    rows = [(*key, f"seed {n}", value) for key, row in values.items() for n, value in enumerate(row)]
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def test_a_missed_study_is_infinitely_long_in_the_median():
    runs = studies(
        {
            ("a", "u"): [3.0, 1.0, None, 2.0, None],
            ("a", "v"): [None, 1.0, None, 1.0, None],
            ("b", "u"): [1.0, 3.0],  # three studies fewer than a
            ("b", "v"): [4.0, 2.0, 6.0, 8.0, 1.0],
        }
    )
    found = {(s, w): value for s, w, value, _ in time_ratios(runs).iter_rows()}
    assert found == {("a", "u"): 3.0, ("a", "v"): None, ("b", "u"): None, ("b", "v"): 4.0}
    even = studies({("a", "u"): [1.0, 2.0, None, None], ("b", "u"): [1.0, 3.0, 5.0, None]})
    assert time_ratios(even)["seconds"].to_list() == [None, 4.0]


def some_runs() -> pl.DataFrame:
    random = np.random.default_rng(3)
    base = {"a": 1.0, "b": 1.3, "c": 3.0}
    return studies(
        {
            (name, workload): list(base[name] * random.lognormal(0, 0.2, 5))
            for name, workload in product("abc", "uvwx")
        }
    )


@pytest.mark.parametrize("paired", [True, False])
def test_intervals_hold_the_scores_of_the_medians_and_are_the_same_each_time(paired: bool):
    runs = some_runs()
    found = score_intervals(runs, paired=paired)
    medians = time_ratios(runs).with_columns(study=pl.lit("median"))
    assert dict(found.select("submission", "score").iter_rows()) == scores_of(medians)
    assert (found["low"] <= found["score"]).all()
    assert (found["score"] <= found["high"]).all()
    assert found["rank"].to_list() == [1.0, 2.0, 3.0]
    assert (found["rank_low"] <= found["rank"]).all()
    assert (found["rank"] <= found["rank_high"]).all()
    assert found["studies"].to_list() == [5, 5, 5]
    assert found.equals(score_intervals(runs, paired=paired))
    assert found["submission"].to_list()[-1] == "c"
    assert found["rank_low"].to_list()[-1] == 3.0  # three times as long as a never ranks second


def test_paired_studies_are_drawn_together():
    # b is always a tenth slower than a on the same seed, while seeds differ by far more than that.
    instances = np.random.default_rng(5).lognormal(0, 2, 9)
    runs = studies({("a", "u"): list(instances), ("b", "u"): list(1.1 * instances)})
    together = score_intervals(runs, paired=True).filter(submission="b")
    apart = score_intervals(runs, paired=False).filter(submission="b")
    assert together.select("rank_low", "rank_high").row(0) == (2.0, 2.0)
    assert apart.select("rank_low", "rank_high").row(0) == (1.0, 2.0)
    assert together["high"].item() - together["low"].item() < 1e-9


def test_tiers_part_scores_that_are_told_apart_and_a_pair_that_never_changes_places():
    found = score_intervals(some_runs(), paired=True)
    assert found["tier"].to_list() == [1, 1, 2]
    instances = np.random.default_rng(5).lognormal(0, 2, 9)
    slower = studies(
        {(name, "u"): list(factor * instances) for name, factor in (("a", 1), ("b", 1.1), ("c", 1.1))}
    )
    assert score_intervals(slower, paired=True)["tier"].to_list() == [1, 2, 2]


def test_equal_scores_share_a_tier_though_one_of_them_is_surer():
    # c and d never come within four times of a, and so have no score; c came near it on some seeds
    seconds: dict[tuple[str, str], list[float | None]] = {
        ("a", "u"): [1.0] * 9,
        ("b", "u"): [3.5] * 9,
        ("c", "u"): [3.5, 3.5, 3.5, 3.5, 9.0, 9.0, 9.0, 9.0, 9.0],
        ("d", "u"): [9.0] * 9,
    }
    found = score_intervals(studies(seconds), paired=True)
    assert found["score"].to_list()[2:] == [0.0, 0.0]
    assert found["tier"].to_list() == [1, 2, 3, 3]


def test_one_study_gives_no_interval():
    found = score_intervals(studies({("a", "u"): [1.0], ("b", "u"): [None]}), paired=True)
    assert found["score"].to_list() == pytest.approx([1.0, 0.0])
    assert found.select("low", "high", "rank_low", "tier").null_count().row(0) == (2, 2, 2, 2)


def test_rounding_of_times_moves_no_score_and_no_interval() -> None:
    """Whole numbers of steps meet ties, points of the profile and its limit; processors round otherwise."""
    random = np.random.default_rng(0)
    frame = pl.DataFrame(
        [
            (name, workload, study, float(random.integers(5, 24)))
            for name, workload, study in product("abc", "uvw", range(6))
        ],
        schema=["submission", "workload", "study", "seconds"],
        orient="row",
    )
    noise = 1 + 4e-16 * random.integers(-2, 3, len(frame))
    moved = frame.with_columns(pl.col("seconds") * pl.Series(noise))
    found, other = (score_intervals(runs, paired=True) for runs in (frame, moved))
    assert_frame_equal(found, other, rel_tol=1e-12)
