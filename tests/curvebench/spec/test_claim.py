"""Conditions of claims that can never hold, or ask what they cannot mean, are refused with what is right."""

from __future__ import annotations

from curvebench.spec.claim import Condition

SHARE = {
    "metric": "final train_loss",
    "quantity": "share_of_gain",
    "better": ["adam @ block"],
    "than": 0.5,
    "gain_from": ["adam"],
    "gain_to": ["adam @ egop"],
}


def test_a_gain_may_be_in_steps():
    one = Condition.model_validate({**SHARE, "metric": "best train_loss", "gain_in": "steps_to_target"})
    assert (one.counted, one.of_gain) == ("steps_to_target", True)
    assert Condition.model_validate(SHARE).counted == "value"
