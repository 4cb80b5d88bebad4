"""Weight decay: that the checks of the claim notice wrong rules."""

import numpy as np
import pytest

from curvebench.benchmarks.claims import notes_weight_decay
from tests.benchmarks.claim_mutations import assert_noticed, few, found_rows, mutate, wrap

CLAIM = notes_weight_decay.NOTES_WEIGHT_DECAY
SENSITIVITY = "sensitivity to the learning rate"


@pytest.mark.parametrize(("spread", "holds"), [(0.1, True), (3.0, False), (1.0, None)])
def test_sensitivity_is_the_spread_of_losses(spread, holds, monkeypatch):
    def losses(seeds, rates, decays, options):
        distances = np.abs(np.log10(rates / 0.1))
        noise = 1 + 0.01 * np.resize([1.0, -1.0], len(seeds)) * (1 if options else -1)
        return 10 ** (-2 + noise[:, None] * (spread if options else 1) * distances)

    monkeypatch.setattr(notes_weight_decay, "_digits", losses)
    found = found_rows(few(CLAIM, 1, {SENSITIVITY}))
    assert [row.measure.holds for row in found] == [holds]


def test_sensitivity_by_hand():
    losses = np.array([[0.1, 0.01, 1.0], [1.0, 1.0, 1.0]])
    assert notes_weight_decay._sensitivities(losses) == pytest.approx([1.0, 0.0])


@pytest.mark.parametrize(
    ("decoupled", "part"),
    [
        (True, "a step with coupled decay"),
        (False, "a step with decoupled decay"),
        (False, "the size with decoupled decay"),
        (True, "the size with coupled decay"),
        (False, "scaling both"),
    ],
)
def test_the_other_decay_is_noticed(decoupled, part, monkeypatch):
    mutate(monkeypatch, "adamw", options={"decoupled_weight_decay": decoupled})
    assert_noticed(CLAIM, 2, part)


@pytest.mark.parametrize(
    "part", ["the size with decoupled decay", "its approximation", "the size with coupled decay"]
)
def test_another_decay_is_noticed(part, monkeypatch):
    mutate(monkeypatch, "adamw", weight_decay=lambda decay: 0.7 * decay)
    assert_noticed(CLAIM, 2, part)


def test_a_decay_that_is_the_penalty_is_noticed(monkeypatch):
    def wrong(right, optimizer, weights, gradients, hyper, *rest):
        decay, rate = hyper.get("weight_decay", 0.0), {"learning_rate": hyper["learning_rate"]}
        return right("adam", weights, [one + decay * weights for one in gradients], rate, *rest)

    wrap(monkeypatch, notes_weight_decay, "stepped", wrong)
    assert_noticed(CLAIM, 2, "in Adam it is not")


def test_a_rate_that_the_penalty_does_not_share_is_noticed(monkeypatch):
    mutate(monkeypatch, "sgd", learning_rate=lambda rate: 1.01 * rate)
    assert_noticed(CLAIM, 3, "in SGD decay is an l2 penalty")
