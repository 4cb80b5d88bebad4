"""Numbers and names as readers see them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curvebench.reports.formatting import (
    count,
    counts,
    json_value,
    metric_name,
    number,
    p_value,
    power_of_ten,
    rate,
    ratio,
    ratios,
    seconds,
    size,
    slug,
    words,
)
from curvebench.results.intervals import median_interval
from tests.reports.conftest import words_of

RANGE, NARROW = {"count": 3, "level": 0.75}, {"count": 10, "level": 0.9}
COVERED = [median_interval(range(10)), None, median_interval(range(6))]


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "—"), (float("nan"), "NaN"), (float("inf"), "∞"), (float("-inf"), "−∞"), (0, "0"),
     (0.012345, "0.0123"), (12345, "12,345"), (12345.6, "12,346"), (1.0, "1.00"), (-2.5, "−2.50"),
     (1.234e-8, "1.23×10⁻⁸"),
     (9.999e-5, "0.000100"), (1e9, "1.00×10⁹")],
)  # fmt: skip
def test_numbers_have_three_digits(value: float | None, text: str):
    assert number(value) == text


def test_small_formats():
    assert rate(0.31622776) == "0.316"
    assert (seconds(0.0123), seconds(4.5), seconds(200), seconds(2e-6), seconds(0)) == (
        "12.3 ms", "4.50 s", "3 min 20 s", "2.00 µs", "0 s",
    )  # fmt: skip
    assert (seconds(7199), seconds(7200), seconds(43_529)) == ("119 min 59 s", "2 h 00 min", "12 h 05 min")
    assert (seconds(0.99999), seconds(9.9999e-4), seconds(0.9994), seconds(float("inf"))) == (
        "1.00 s", "1.00 ms", "999 ms", "∞",
    )  # fmt: skip
    assert (size(512), size(3 * 2**20)) == ("512 B", "3 MiB")
    assert (size(1010 * 2**20), size(1023.9 * 2**20), size(1000)) == ("1010 MiB", "1.00 GiB", "1000 B")
    assert (p_value(1e-9), p_value(0.03125), p_value(0.5)) == ("< 0.0001", "0.031", "0.50")
    assert (count(125.0), count(7.5), count(float("inf")), count(12000)) == ("125", "7.50", "∞", "12,000")
    told = (0.5, 1.0, 1.0059, 1 - 3e-4, 1.0101, 1234.0, 2e-6, float("inf"), None)
    assert [ratio(value) for value in told] == [
        "0.500", "1.0000", "1.0059", "0.9997", "1.01", "1,234", "2.00×10⁻⁶", "∞", "—"]  # fmt: skip
    assert metric_name("train_loss") == "training loss"
    assert words("amsgrad") == "amsgrad"
    assert words("decoupled_weight_decay") == "weight decay decoupled from the learning rate"
    assert [power_of_ten(value) for value in (0.1, 1e-3, 2e-5)] == ["0.1", "10⁻³", "2×10⁻⁵"]
    assert [power_of_ten(value) for value in (1.605, 1.61)] == ["1.605", "1.61"], "neighbours differ"


@pytest.mark.parametrize(
    ("together", "texts"),
    [
        ((0.5, 0.25, 1.5), ["0.500", "0.250", "1.50"]),
        ((0.97, 0.9497, 0.9912), ["0.970", "0.950", "0.991"]),
        ((1.0, 0.604, 1.37), ["1.000", "0.604", "1.370"]),
        ((1.0059, 0.9987, 1.0012), ["1.0059", "0.9987", "1.0012"]),
        ((1.2, 1.0003, 1.4), ["1.2000", "1.0003", "1.4000"]),
        ((0.9991, 0.0, float("inf")), ["0.9991", "0", "∞"]),
        ((1.0, 2e-5, 3400.0), ["1.000", "2.00×10⁻⁵", "3,400"]),
        ((1.005, None, None), ["1.0050", "—", "—"]),
    ],
)
def test_ratios_that_stand_together_have_as_many_digits(together, texts):
    assert ratios(together) == texts


@pytest.mark.parametrize(
    ("together", "texts"),
    [
        ((62.5, 55.5, 70.0), ["62.5", "55.5", "70.0"]),
        ((82.0, 80.0, 83.0), ["82", "80", "83"]),
        ((707.5, 55.3, 1314.0), ["708", "55", "1,314"]),
        ((20.0, 7.5, float("inf")), ["20.0", "7.5", "∞"]),
        ((2.5e7, 1.5, None), ["2.50×10⁷", "2", "—"]),
    ],
)
def test_counts_that_stand_together_have_as_many_decimals(together, texts):
    assert counts(together) == texts


@pytest.mark.parametrize(
    ("given", "noun", "said"),
    [
        ([*COVERED, RANGE], "seeds", "3 seeds: the range covers the median with 75.0 %."),
        (COVERED, "seeds", ""),
        ([*COVERED, NARROW], "pairs", "10 pairs: intervals cover the median with 90.0 %."),
        ([median_interval([1.0])], "seeds", "1 seed: the range is the value itself."),
        ([None], "seeds", ""),
    ],
)
def test_a_table_says_what_its_intervals_cover_where_every_page_says_something_else(given, noun, said):
    assert words_of("macros.html.jinja", "levels", given, noun) == said


@given(st.text(), st.text())
def test_names_become_safe_and_different_parts_of_links(left: str, right: str):
    assert not set(slug(left)) & set("/\\<>\"'&# ?%")
    assert slug(left) not in ("", ".", "..")
    assert (slug(left) == slug(right)) == (left == right)


def test_json_has_no_infinite_numbers():
    value = {
        "a": [1.5, float("nan"), {"b": float("-inf")}],
        "c": float("inf"),
        "d": "NaN",
        "e": True,
        "f": None,
    }
    assert json_value(value) == {"a": [1.5, None, {"b": None}], "c": None, "d": "NaN", "e": True, "f": None}
