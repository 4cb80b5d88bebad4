"""Settings that tie with the chosen ones, and those that other tuning seeds would choose: simulated."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from reports.claims.censoring import Interval
from reports.claims.comparison import Alternative, ClaimComparison, alternatives
from reports.claims.verdicts import choices_in_words, decided, finding_of, tuning_seeds_needed
from reports.statistics.decisions import Finding
from results.tuning import Setting, Tried
from tests.reports.statistics.simulated import SIZES, assert_rare
from tests.reports.synthetic import compared

MARGIN = 0.05
WORDS = (
    "2 of 2 settings that tie with the chosen one and 21% of the settings that other tuning seeds choose "
    "(5% may) say otherwise; 3 that were not run count so"
)
CLEAR = 10 * MARGIN


def at_settings(gains: np.ndarray, shares: np.ndarray, tied: bool) -> ClaimComparison:
    """A comparison with gains (settings, pairs), the chosen ones first, and the share of draws of each."""
    chosen = compared(gains[0], effect="difference", sign=1.0, smallest_effect=MARGIN)
    others = zip(gains[1:], shares[1:], strict=True)
    return replace(
        chosen,
        alternatives=tuple(Alternative((), share, tied, Interval(each, each)) for each, share in others),
    )


def findings(
    random: np.random.Generator, medians: np.ndarray, shares: np.ndarray, tied: bool, size: int
) -> list[Finding]:
    """What 300 studies find with these median gains by setting, spread by a margin; any may be chosen."""
    found: list[Finding] = []
    for _ in range(300):
        order = random.permutation(len(medians))
        gains = medians[order, None] + MARGIN * random.normal(size=(len(medians), size))
        one = at_settings(gains, shares[order], tied)
        found.append(finding_of(one, one.refuting_p_value, 1)[0])
    return found


@pytest.mark.parametrize("ties", [1, 3, 7])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    ("at_one", "at_others", "seldom"), [(0.0, CLEAR, "supported"), (MARGIN, -CLEAR, "refuted")]
)
def test_one_of_the_tied_settings_is_enough_to_leave_a_finding_open(
    at_one: float, at_others: float, seldom: Finding, size: int, ties: int
):
    random, shares = np.random.default_rng(size), np.full(ties, 1 / ties)
    medians = np.array([at_one, *[at_others] * (ties - 1)])
    assert_rare([found == seldom for found in findings(random, medians, shares, True, size)])


@pytest.mark.parametrize("share", [0.06, 0.5])
def test_a_gain_that_some_choices_lack_is_seldom_supported(share: float):
    random = np.random.default_rng(0)
    assert_rare(
        [
            found == "supported"
            for found in findings(random, np.array([CLEAR, 0.0]), np.array([1 - share, share]), False, 20)
        ]
    )


def tuned(gains: np.ndarray, costs: np.ndarray) -> ClaimComparison:
    """A comparison whose one side was tuned: gains (settings, pairs) and tuning costs (settings, seeds)."""
    tried = Tried(
        tuple((float(place),) for place in range(len(costs))),
        np.stack([costs, np.zeros_like(costs)]),
        -np.inf,
    )

    def interval(settings: tuple[Setting, ...]) -> Interval:
        own = gains[int(settings[0][0])]
        return Interval(own, own)

    chosen = compared(gains[int(tried.chosen[0])], effect="difference", sign=1.0, smallest_effect=MARGIN)
    return replace(chosen, alternatives=alternatives([("", tried)], interval), tried=(tried,))


@pytest.mark.parametrize("seeds", [5, 10, 20])
@pytest.mark.parametrize(("gain", "seldom"), [(CLEAR, "supported"), (-CLEAR, "refuted")])
def test_two_settings_that_tuning_can_hardly_tell_apart_seldom_decide_where_they_differ(
    gain: float, seldom: Finding, seeds: int
):
    """The better one by 0.05 standard deviations says the contrary: what is said must not hang on luck."""
    random = np.random.default_rng(seeds)
    said = []
    for _ in range(300):
        gains = np.array([-gain, gain])[:, None] + MARGIN * random.normal(size=(2, 20))
        costs = np.array([0.0, 0.05])[:, None] + random.normal(size=(2, seeds))
        one = tuned(gains, costs)
        said.append(finding_of(one, one.refuting_p_value, 1)[0] == seldom)
    assert_rare(said)


def test_how_many_tuning_seeds_would_do():
    gains = np.array([[CLEAR] * 8, [-CLEAR] * 8])
    costs = np.stack([np.linspace(0.0, 1.0, 10), np.linspace(0.15, 1.15, 10)[::-1]])
    one = tuned(gains, costs)
    findings = decided([one])
    (share,) = findings["choices_agree"]
    assert findings["finding"].item() == "inconclusive"
    assert 0.5 < share < 0.95
    (needed,) = tuning_seeds_needed([one], findings)
    assert needed is not None
    assert needed > 10
    drawn = one.tried[0].choices(needed)
    assert len(drawn) == len(one.tried[0].drawn), "as many draws, of more seeds"
    assert np.mean([setting == one.tried[0].chosen for setting in drawn]) >= 0.95

    tied = tuned(gains, np.zeros((2, 10)))
    assert list(tuning_seeds_needed([tied], decided([tied]))) == [None], "no number tells ties apart"
    clear = tuned(gains, np.stack([np.zeros(10), np.ones(10)]))
    assert list(tuning_seeds_needed([clear], decided([clear]))) == [None], "it is decided"


def test_how_many_pairs_would_decide_at_settings_that_are_open():
    gains = np.linspace(0.4, 0.6, 12)
    one = compared(gains, effect="difference", sign=1.0, smallest_effect=MARGIN)
    leans_to, leans_away = (np.concatenate([np.full(8, end), np.full(4, -end)]) for end in (0.5, -0.5))
    toward, away = (
        Alternative((), share, False, Interval(each, each))
        for share, each in ((0.1, leans_to), (0.04, leans_away))
    )

    def needed(*others: Alternative) -> int | None:
        (row,) = decided([replace(one, alternatives=others)]).to_dicts()
        assert row["finding"] == "inconclusive"
        return row["seeds_needed"]

    enough = needed(toward, away)
    assert enough is not None
    assert enough > 12
    assert needed(replace(toward, tied=True), away) == enough
    assert needed(toward, replace(away, share=0.06)) is None, "more pairs would say otherwise there"
    assert needed(toward, replace(away, tied=True)) is None
    assert needed(toward, Alternative((), 0.06, False, None)) is None, "it was not run"


def test_what_was_not_run_agrees_with_nothing_and_is_counted():
    gains = np.linspace(0.4, 0.6, 10)
    one = compared(gains, effect="difference", sign=1.0, smallest_effect=MARGIN)
    run = Alternative((), 0.01, False, Interval(gains, gains))
    rare = Alternative((), 0.04, False, None)
    for others in ((rare,), (rare, run)):
        (row,) = decided([replace(one, alternatives=others)]).to_dicts()
        assert (row["finding"], row["choices_agree"]) == ("supported", pytest.approx(0.96)), "enough draws"
    for unknown in (Alternative((), 0.06, False, None), Alternative((), 0.0, True, None)):
        (row,) = decided([replace(one, alternatives=(unknown,))]).to_dicts()
        assert (row["finding"], row["choices_agree"]) == ("supported", None), "of what nothing is known of"
        (row,) = decided([replace(one, alternatives=(unknown, run))]).to_dicts()
        assert row["finding"] == "inconclusive"


@pytest.mark.parametrize(
    ("agree", "choices", "not_run", "words"),
    [
        (2, 0.96, 1, ""),
        (1, 0.96, 0, "1 of 2 settings that tie with the chosen one say otherwise"),
        (2, 0.79, 0, "21% of the settings that other tuning seeds choose (5% may) say otherwise"),
        (
            0,
            0.79,
            3,
            WORDS,
        ),
    ],
)
def test_the_words_say_which_settings_say_otherwise(agree: int, choices: float, not_run: int, words: str):
    row = {"ties": 2, "ties_agree": agree, "choices_agree": choices, "settings_not_run": not_run}
    assert choices_in_words(row) == words


def test_refutations_are_corrected_at_the_chosen_settings_and_at_others():
    """Seven seeds against: 1 / 128 is below 5 % / 6, and not below 5 % / 7."""
    against = np.full(7, -0.5)
    losing = compared(against, effect="difference", sign=1.0, smallest_effect=MARGIN)
    winning = compared(-against, effect="difference", sign=1.0, smallest_effect=MARGIN)
    assert decided([losing, *[winning] * 5])["finding"].to_list() == ["refuted", *["supported"] * 5]
    assert decided([losing, *[winning] * 6])["finding"][0] == "inconclusive"
    for relations, agree in ((6, 1.0), (7, 0.9)):
        other = Alternative((), 0.1, False, Interval(against, against))
        one = replace(losing, alternatives=(other,))
        assert finding_of(one, 0.0, relations)[1]["choices_agree"] == pytest.approx(agree)


def test_a_positive_control_is_in_no_correction_of_the_claim():
    """With the control among them, seven seeds could not refute one of six."""
    losing = compared(np.full(7, -0.5), effect="difference", sign=1.0, smallest_effect=MARGIN)
    winning = compared(np.full(7, 0.5), effect="difference", sign=1.0, smallest_effect=MARGIN)
    condition = losing.condition.model_copy(update={"positive_control": "Adam stalls"})
    control = replace(winning, condition=condition)
    found = decided([losing, *[winning] * 5, control])
    assert found["finding"].to_list() == ["refuted", *["supported"] * 6]
    assert found["holm_p_value"][6] == pytest.approx(1 / 128)
