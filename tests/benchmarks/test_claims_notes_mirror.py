"""Mirror descent: the verdict of the claim, and that its checks notice wrong rules."""

import pytest

from curvebench.benchmarks.claims.notes_mirror import NOTES_MIRROR
from tests.benchmarks.claim_mutations import assert_noticed, mutate

POLICY = "the policy with the best expected reward"


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
    assert_noticed(NOTES_MIRROR, 20, part)
