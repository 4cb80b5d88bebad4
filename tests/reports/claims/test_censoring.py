"""Effects of runs that stopped at a threshold: bounds, and nothing where both stopped."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from curvebench.reports.claims import censoring
from curvebench.reports.statistics.ranks import NEGLIGIBLE

STOP = 1e-8


def compared(treated, control, direction, effect, stop, negligible=0.0) -> censoring.PairedEffect:
    left, right = (
        censoring.censored_at(np.asarray(values, dtype=float), direction, stop)
        for values in (treated, control)
    )
    return censoring.paired_effect(left, right, direction, effect, censoring.unknown_words(stop), negligible)


def ratios(treated: list[float], control: list[float], stop: float | None = STOP) -> censoring.PairedEffect:
    return compared(treated, control, "minimize", "ratio", stop)


@pytest.mark.parametrize(
    ("treated", "control", "stop", "words", "exact"),
    [
        ([1.0, 2.0, 3.0], [2.0, 4.0, 6.0], STOP, ("0.500", "[0.500, 0.500]"), True),
        # Without a threshold, values are no bounds.
        ([STOP] * 3, [STOP] * 3, None, ("1.0000", "[1.0000, 1.0000]"), True),
        ([STOP] * 3, [1e-6] * 3, STOP, ("≤ 0.0100", "[0, 0.0100]"), False),
        ([1e-6] * 3, [STOP] * 3, STOP, ("≥ 100", "[100, ∞]"), False),
        ([STOP] * 3, [STOP] * 3, STOP, ("both stopped", "at 10⁻⁸"), False),
        ([STOP, *[1e-6] * 4], [1e-5] * 5, STOP, ("0.100", "[0, 0.100]"), False),
        ([1.0] * 3, [inf] * 3, STOP, ("0", "[0, 0]"), True),  # a diverged control is no bound
    ],
)
def test_a_stopped_run_bounds_the_ratio(treated, control, stop, words: tuple[str, str], exact: bool):
    found = ratios(treated, control, stop)
    assert (found.words, found.exact) == (words, exact)


def test_where_more_is_better_the_treated_would_have_got_higher():
    high, low = [0.9] * 3, [0.5] * 3
    assert compared(high, low, "maximize", "difference", 0.9).words == ("≥ +0.400", "[+0.400, +∞]")
    assert compared(low, high, "maximize", "difference", 0.9).words == ("≤ −0.400", "[−∞, −0.400]")


def test_of_two_that_stopped_nothing_is_known_and_the_test_counts_them_against_the_treated():
    found = ratios([STOP] * 3, [STOP] * 3)
    assert found.p_value == 1.0
    assert (found.wins, found.losses, found.ties, found.open) == (0, 0, 0, 3)
    one = ratios([STOP] * 6, [1e-6] * 5 + [STOP])
    assert (one.wins, one.open) == (5, 1)
    assert one.p_value == 7 / 64


def test_ties_count_against_the_treated():
    """A test that leaves them out would take five pairs for the whole: 1 of 32."""
    found = compared([1.0] * 5 + [0.5] * 5, [1.0005] * 5 + [1.0] * 5, "minimize", "ratio", None, 1e-3)
    assert (found.wins, found.losses, found.ties, found.open) == (5, 0, 5, 0)
    assert found.p_value == pytest.approx(638 / 1024)


def test_steps_of_runs_that_ended_without_their_stop_are_bounds():
    """Treated: 50 steps, more than 100, never; the control 100 steps, more than 100, more than 100."""
    treated = censoring.Bounds(np.array([50.0, 101.0, inf]), np.array([50.0, inf, inf]))
    control = censoring.Bounds(np.array([100.0, 101.0, 101.0]), np.array([100.0, inf, inf]))
    found = censoring.paired_effects(treated, control, "ratio")
    assert np.exp(found.low).tolist() == pytest.approx([0.5, 0.0, 1.0])
    assert np.exp(found.high).tolist() == pytest.approx([0.5, inf, inf])
    assert (found.unknown, found.bounded) == (1, 2)
    assert found.negated.negated.low.tolist() == found.low.tolist()


def test_the_median_of_bounds_is_known_where_the_bounds_do_not_matter():
    effects = censoring.Bounds(np.array([-inf, 0.1, 0.2, 0.3, 0.4]), np.array([0.0, 0.1, 0.2, 0.3, inf]))
    found = censoring.bounds_of(effects, "difference", float, ("both stopped", "somewhere"))
    assert (found.median, found.low, found.high) == (0.2, -inf, inf)
    assert (found.words[0], found.exact, found.is_unknown) == ("+0.200", False, False)


losses = st.lists(st.sampled_from([STOP, 2e-8, 1e-6, 1.0, inf]), min_size=6, max_size=6)


@given(losses, losses)
def test_what_the_values_say_lies_between_floor_and_ceiling(treated: list[float], control: list[float]):
    found = ratios(treated, control)
    for end in ("median", "low", "high"):
        floor, ceiling = getattr(found.floor, end), getattr(found.ceiling, end)
        assert floor <= ceiling
    if STOP not in treated and STOP not in control:
        assert found.exact


@pytest.mark.parametrize("further", [1e-10, 1e-12])
def test_the_bounds_hold_however_far_the_stopped_runs_would_have_got(further: float):
    random = np.random.default_rng(3)
    treated = np.exp(random.normal(np.log(STOP), 2, 15))
    control = np.exp(random.normal(np.log(1e-7), 2, 15))
    treated, control = np.maximum(treated, STOP), np.maximum(control, STOP)
    found = compared(treated, control, "minimize", "ratio", STOP)
    treated, control = (np.where(values == STOP, further, values) for values in (treated, control))
    true = compared(treated, control, "minimize", "ratio", None)
    assert found.floor.median <= true.floor.median <= found.ceiling.median
    assert found.floor.low <= true.low
    assert true.high <= found.ceiling.high


# Bounds of both values of a pair, and two values within the bounds.
WON = ((1.0, 1.0), (2.0, 2.0), 1.0, 2.0)
WON_BY_A_BOUND = ((0.5, 1.0), (2.0, inf), 0.6, 9.0)
TIED = ((1.0, 1.0), (1.0005, 1.0005), 1.0, 1.0005)
LOST = ((2.0, 2.0), (1.0, 1.0), 2.0, 1.0)
CUT_OFF = ((9.0, 9.0), (8.0, inf), 9.0, 20.0)  # the control's budget ended before the treated arrived
CUT_OFF_AND_WORSE = ((9.0, 9.0), (8.0, inf), 9.0, 8.5)
MISSED = ((8.0, inf), (8.0, inf), 10.0, 30.0)
NEVER = ((8.0, inf), (inf, inf), inf, inf)
KINDS = (WON, WON, WON_BY_A_BOUND, WON_BY_A_BOUND, TIED, LOST, CUT_OFF, CUT_OFF_AND_WORSE, MISSED, NEVER)


def within(treated: censoring.Bounds, control: censoring.Bounds) -> censoring.PairedEffect:
    return censoring.paired_effect(treated, control, "minimize", "ratio", ("both missed", ""), NEGLIGIBLE)


@given(
    # For these numbers of pairs, a one-sided p-value of 5 % agrees with an interval of 95 %.
    st.sampled_from([5, 6, 7, 9, 10]).flatmap(
        lambda size: st.lists(st.sampled_from(KINDS), min_size=size, max_size=size)
    )
)
@example([CUT_OFF] * 10)
@example([WON] * 9 + [MISSED])
@example([WON] * 8 + [CUT_OFF] * 2)
def test_no_small_p_value_stands_beside_an_interval_that_unknown_pairs_leave_open(pairs: list[tuple]):
    treated, control = (censoring.Bounds(*np.array([pair[side] for pair in pairs]).T) for side in (0, 1))
    left, right = (np.array([pair[side] for pair in pairs]) for side in (2, 3))
    found = within(treated, control)
    true = within(censoring.Bounds(left, left), censoring.Bounds(right, right))
    if found.p_value <= 0.05:
        assert found.high < 1
    assert found.p_value >= true.p_value
    assert found.wins <= true.wins
    assert found.losses <= true.losses
    assert found.ties <= true.ties
    assert found.open >= true.open == 0
    back = within(control, treated)
    assert (back.wins, back.losses) == (found.losses, found.wins)
    assert (back.ties, back.open) == (found.ties, found.open)
