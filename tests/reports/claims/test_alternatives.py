"""Simulated claims at settings that tie with the chosen ones, or that other tuning seeds would choose."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from curvebench.reports.claims import verdicts
from curvebench.reports.claims.censoring import Bounds
from curvebench.reports.claims.comparison import Alternative, ClaimComparison, alternatives
from curvebench.reports.claims.findings import decided, finding_of
from curvebench.reports.claims.verdict_list import listed
from curvebench.reports.claims.verdicts import claim_verdicts
from curvebench.reports.statistics.decisions import ClaimRelation, Finding
from curvebench.reports.tables import Tables
from curvebench.results.tuning import Setting, TuningOutcome, shares_of_choices
from curvebench.spec.plan import ReportPlan, StudyPlan
from tests.reports.changing import replace
from tests.reports.statistics.simulated import SIZES, assert_rare
from tests.reports.synthetic import compared

MARGIN = 0.05
CLEAR = 10 * MARGIN
gaining = partial(compared, effect="difference", sign=1.0, smallest_effect=MARGIN)


def at_settings(gains: np.ndarray, shares: np.ndarray, tied: bool) -> ClaimComparison:
    """Return a comparison with gains (settings, pairs), the chosen ones first, and the share of draws of
    each.
    """
    chosen = gaining(gains[0])
    others = zip(gains[1:], shares[1:], strict=True)
    return replace(
        chosen, alternatives=tuple(Alternative((), share, tied, Bounds(each, each)) for each, share in others)
    )


def findings(
    random: np.random.Generator, medians: np.ndarray, shares: np.ndarray, tied: bool, size: int
) -> list[Finding]:
    """Return the findings of 300 simulated studies.

    Args:
        medians: median gain at each setting; the gains of pairs spread by MARGIN around it.
        shares: shares of the draws of tuning seeds that choose the settings, in random order.
    """
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
    """Return a comparison whose one side was tuned: gains (settings, pairs) and tuning costs (settings,
    seeds).
    """
    tried = TuningOutcome(
        tuple((float(place),) for place in range(len(costs))),
        np.stack([costs, np.zeros_like(costs)]),
        -np.inf,
    )

    def interval(settings: tuple[Setting, ...]) -> Bounds:
        own = gains[int(settings[0][0])]
        return Bounds(own, own)

    chosen = gaining(gains[int(tried.chosen[0])])
    return replace(chosen, alternatives=alternatives([("", tried)], interval), tuning_outcomes=(tried,))


@pytest.mark.parametrize("seeds", [5, 8, 20])
@pytest.mark.parametrize(("gain", "seldom"), [(CLEAR, "supported"), (-CLEAR, "refuted")])
def test_tied_settings_that_differ_seldom_decide(gain: float, seldom: Finding, seeds: int):
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
    (needed,) = findings["tuning_seeds_needed"]
    assert needed is not None
    assert needed > 10
    assert shares_of_choices(one.tuning_outcomes, needed)[(one.tuning_outcomes[0].chosen,)] >= 0.95

    tied = tuned(gains, np.zeros((2, 10)))
    assert decided([tied])["tuning_seeds_needed"].to_list() == [None], "no number tells ties apart"
    clear = tuned(gains, np.stack([np.zeros(10), np.ones(10)]))
    assert decided([clear])["tuning_seeds_needed"].to_list() == [None], "it is decided"


def at_other(gains: np.ndarray, share: float = 0.1, tied: bool = False) -> Alternative:
    return Alternative((), share, tied, Bounds(gains, gains))


def leaning(against: int, order: int = 0) -> np.ndarray:
    """Return clear gains of 12 pairs, of which `against` have the opposite sign."""
    return np.where(np.random.default_rng(order).permutation(12) < against, -CLEAR, CLEAR)


def needed(one: ClaimComparison, *others: Alternative, relations: int = 1) -> float:
    """Return the number of pairs that would decide an inconclusive comparison; infinite if no number would.

    Args:
        one: the comparison at the chosen setting.
        others: the comparison at other settings that tuning may choose.
        relations: number of comparisons of the claim; those after the first have a clear gain.
    """
    clear = gaining(np.full(12, CLEAR))
    rows = decided([replace(one, alternatives=others), *[clear] * (relations - 1)])
    assert rows["finding"][0] == "inconclusive"
    found = rows["seeds_needed"][0]
    return np.inf if found is None else int(found)


@pytest.mark.parametrize("ties", [1, 4])
def test_so_many_pairs_decide_nine_times_of_ten_at_all_settings_together(ties: int):
    chosen = gaining(leaning(1))
    others = tuple(at_other(leaning(3, place), tied=True) for place in range(ties))
    enough = int(needed(chosen, *others))
    random, one = np.random.default_rng(1), replace(chosen, alternatives=others)
    found = [
        finding_of(drawn, drawn.refuting_p_value, 1)[0]
        for drawn in (one.at_pairs(random.choice(12, enough)) for _ in range(300))
    ]
    assert np.mean([each != "inconclusive" for each in found]) > 0.85
    assert "refuted" not in found


@pytest.mark.parametrize("relation", ["better", "same", "no_worse"])
def test_how_many_pairs_would_decide_where_other_settings_are_open(relation: ClaimRelation):
    """At some settings more pairs would say the same, at others something else."""
    same, other = (0.0, CLEAR) if relation == "same" else (CLEAR, -CLEAR)
    chosen = gaining(np.full(12, same), relation=relation)
    toward, away = (
        np.concatenate([np.full(8, most), np.full(4, least)])
        for most, least in ((same, other), (other, same))
    )
    assert 12 < needed(chosen, at_other(toward), at_other(away, 0.04)) < np.inf
    not_run = Alternative((), 0.06, False, None)
    for unlike in (at_other(away, 0.06), at_other(away, 0.0, tied=True), not_run):
        assert needed(chosen, at_other(toward), unlike) == np.inf
    assert needed(chosen, at_other(toward[4:])) == np.inf, "other pairs"


def test_where_the_chosen_setting_is_open_others_count_too():
    """A tied setting with the contrary finding, or a weaker one, increases the number of pairs needed."""
    chosen = gaining(leaning(3))
    alone = needed(chosen)
    alike = needed(chosen, at_other(leaning(3), 0.0, tied=True))
    assert alike == pytest.approx(alone, abs=10), "other draws of the same gains"
    assert alone < needed(chosen, at_other(leaning(4, 1), 0.0, tied=True)) < np.inf
    assert needed(chosen, at_other(np.full(12, -CLEAR), 0.0, tied=True)) == np.inf
    assert needed(chosen, at_other(np.full(12, -CLEAR), 0.06)) == np.inf
    not_run = Alternative((), 0.06, False, None)
    assert needed(chosen, not_run, at_other(leaning(3))) == np.inf
    open_ended = gaining(np.full(12, -CLEAR), most=np.full(12, CLEAR))
    assert needed(open_ended, at_other(np.full(12, CLEAR))) == np.inf, "no number of such pairs would do"


def test_of_an_open_comparison_it_is_counted_how_often_other_settings_leave_it_open():
    others = (
        at_other(leaning(4), 0.2, tied=True),
        at_other(np.full(12, -CLEAR), 0.3, tied=True),
        at_other(np.full(12, CLEAR), 0.1),
    )
    one = replace(gaining(leaning(3)), alternatives=others)
    (row,) = decided([one]).to_dicts()
    assert (row["finding"], row["ties"], row["ties_agree"]) == ("inconclusive", 2, 1)
    assert row["choices_agree"] == pytest.approx(0.6)
    (alone,) = decided([replace(one, alternatives=())]).to_dicts()
    probabilities = ("p_value", "holm_p_value", "refuting_p_value", "estimate", "low", "high")
    assert [row[name] for name in probabilities] == [alone[name] for name in probabilities]


def test_no_number_of_tuning_seeds_decides_what_the_chosen_setting_leaves_open():
    costs = np.stack([np.linspace(0.0, 1.0, 10), np.linspace(0.15, 1.15, 10)[::-1]])
    one = tuned(np.stack([leaning(3), np.full(12, CLEAR)]), costs)
    findings = decided([one])
    assert findings["finding"].item() == "inconclusive"
    assert findings["choices_agree"].item() < 0.95
    assert findings["tuning_seeds_needed"].to_list() == [None]


Reason = Callable[..., str]


@pytest.fixture
def reason(study: StudyPlan, tables: Tables, monkeypatch: pytest.MonkeyPatch) -> Reason:
    """`f(*comparisons)`, why a claim with these comparisons has its verdict, in words."""

    def of(*given: ClaimComparison) -> str:
        (claim,) = study.claims
        conditions = tuple(one.condition for one in given)
        own = [
            replace(one, key=one.key._replace(claim=claim.id, condition=place))
            for place, one in enumerate(given)
        ]
        monkeypatch.setattr(verdicts, "comparisons", lambda *_: own)
        alone = replace(study, backends=("jax",), claims=(replace(claim, conditions=conditions),))
        plan = ReportPlan(scale="quick", studies=(alone,))
        found = claim_verdicts(plan, {study.name: tables}, None)
        (one,) = listed(plan, found.claims, found.findings)
        return one.reason

    return of


def test_reasons_name_the_metric_where_methods_and_workload_are_the_same(reason: Reason):
    one = replace(gaining(np.full(12, CLEAR)), alternatives=(at_other(leaning(4), 0.06),))
    condition = replace(one.condition, metric="validation_loss")
    both = reason(one, replace(one, condition=condition))
    for metric in ("training", "validation"):
        assert re.search(rf"adam on digits_mlp \(final {metric} loss\): in 6\.0 %", both)
    assert "digits_mlp: in 6.0 %" in reason(one)
    stopped = gaining(np.full(12, -np.inf), most=np.full(12, np.inf))
    why = reason(stopped, replace(stopped, condition=condition))
    assert "adam @ egop and adam on digits_mlp (final validation loss): " in why


def test_ties_at_which_an_open_effect_has_another_direction_are_counted(reason: Reason):
    """One of several equal settings may owe its median to chance."""
    losing, equal = leaning(8), np.zeros(12)
    ties = (at_other(equal, 0.0, True), at_other(losing, 0.0, True), Alternative((), 0.0, True, None))
    unknown = Alternative((), 0.0, True, Bounds(np.full(12, -1.0), np.full(12, 1.0)))
    one = replace(gaining(losing), alternatives=(*ties, unknown))
    alike = replace(one, alternatives=(at_other(losing, 0.0, True),))
    assert decided([one])["turned"].to_list() == [1]
    assert decided([alike])["turned"].to_list() == [0]
    assert "at 1 of 4 settings" in reason(one)
    assert "direction" not in reason(alike)


def test_a_refutation_that_other_settings_leave_open_needs_more_pairs_with_more_relations():
    refuted = gaining(np.full(12, -CLEAR))
    few, many = (needed(refuted, at_other(-leaning(3)), relations=number) for number in (1, 30))
    assert few < many < np.inf


def test_what_was_not_run_agrees_with_nothing_and_is_counted():
    gains = np.linspace(0.4, 0.6, 10)
    one = gaining(gains)
    run = Alternative((), 0.01, False, Bounds(gains, gains))
    rare = Alternative((), 0.04, False, None)
    for others in ((rare,), (rare, run)):
        (row,) = decided([replace(one, alternatives=others)]).to_dicts()
        assert (row["finding"], row["choices_agree"]) == ("supported", pytest.approx(0.96)), "enough draws"
    for unknown in (Alternative((), 0.06, False, None), Alternative((), 0.0, True, None)):
        (row,) = decided([replace(one, alternatives=(unknown,))]).to_dicts()
        assert (row["finding"], row["choices_agree"]) == ("supported", None), "of what nothing is known of"
        (row,) = decided([replace(one, alternatives=(unknown, run))]).to_dicts()
        assert row["finding"] == "inconclusive"


def test_refutations_are_corrected_at_the_chosen_settings_and_at_others():
    """Seven seeds against: 1 / 128 is below 5 % / 6, and not below 5 % / 7."""
    against = np.full(7, -0.5)
    losing = gaining(against)
    winning = gaining(-against)
    assert decided([losing, *[winning] * 5])["finding"].to_list() == ["refuted", *["supported"] * 5]
    assert decided([losing, *[winning] * 6])["finding"][0] == "inconclusive"
    for relations, agree in ((6, 1.0), (7, 0.9)):
        other = Alternative((), 0.1, False, Bounds(against, against))
        one = replace(losing, alternatives=(other,))
        assert finding_of(one, 0.0, relations)[1]["choices_agree"] == pytest.approx(agree)


def test_a_positive_control_is_in_no_correction_of_the_claim():
    """With the control among them, seven seeds could not refute one of six."""
    losing = gaining(np.full(7, -0.5))
    winning = gaining(np.full(7, 0.5))
    condition = losing.condition.model_copy(update={"positive_control": "Adam stalls"})
    control = replace(winning, condition=condition)
    found = decided([losing, *[winning] * 5, control])
    assert found["finding"].to_list() == ["refuted", *["supported"] * 6]
    assert found["holm_p_value"][6] == pytest.approx(1 / 128)
