"""Mirror descent: the verdict of the claim, and that its checks notice wrong rules."""

import pytest

from benchmarks.claims.notes_mirror import NOTES_MIRROR
from tests.benchmarks.claim_mutations import failing, few, mutate, verdicts_of

POLICY = "the policy with the best expected reward"


def test_reproduced_but_for_the_misprinted_policy():
    claim = few(NOTES_MIRROR, 8)
    assert verdicts_of(claim) == {"as corrected": "reproduced", "as printed": "not reproduced"}
    assert failing(claim) == {(POLICY, "as printed")}


@pytest.mark.parametrize(
    ("optimizer", "factor", "part"),
    [
        ("exponentiated_gradient", 1.01, "eq. 91 solves the proximal step"),
        ("exponentiated_gradient", 1.01, "eq. 91 leaves no duality gap"),
        ("exponentiated_gradient", 1.01, POLICY),
        ("mirror_descent", 1.01, "gradient step and projection"),
        ("exponentiated_gradient", -1.0, "regret on the simplex"),
        ("mirror_descent", -1.0, "regret with projections"),
    ],
)
def test_a_wrong_rate_is_noticed(optimizer, factor, part, monkeypatch):
    mutate(monkeypatch, optimizer, learning_rate=lambda rate: factor * rate)
    assert part in {
        broken for broken, variant in failing(few(NOTES_MIRROR, 20, {part})) if variant != "as printed"
    }
