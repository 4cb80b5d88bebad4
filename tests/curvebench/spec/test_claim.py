"""Conditions of claims that can never hold, or ask what they cannot mean, are refused with what is right."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from curvebench.spec.claim import Claim, Condition
from curvebench.spec.document import explained
from curvebench.spec.tuning import TwoStageSweep

SHARE = {
    "metric": "final train_loss",
    "quantity": "share_of_gain",
    "better": ["adam @ block"],
    "than": 0.5,
    "gain_from": ["adam"],
    "gain_to": ["adam @ egop"],
}
VALUE = {"metric": "final train_loss", "better": ["adam @ egop"], "than": ["adam"]}
TUNING = {
    "protocol": "two_stage_sweep",
    "of": "learning_rate",
    "coarse": [0.01, 1.0],
    "choose": "median final train_loss",
    "shared_across": "none",
}


def test_a_gain_may_be_in_steps():
    one = Condition.model_validate({**SHARE, "metric": "best train_loss", "gain_in": "steps_to_target"})
    assert (one.counted, one.of_gain) == ("steps_to_target", True)
    assert Condition.model_validate(SHARE).counted == "value"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({**SHARE, "gain_in": "steps_to_target"}, "steps_to_target is of the best value; say best"),
        ({**SHARE, "gain_to": ["adam"]}, "gain_to: a method gains nothing over itself"),
        ({**SHARE, "than": -0.75}, "than: a share of a gain is held against a number above 0"),
        (
            {**SHARE, "better": ["a", "a"], "gain_from": ["b", "b"], "gain_to": ["c", "d"]},
            "better: a method stands here twice, of two gains",
        ),
        ({**VALUE, "gain_in": "steps_to_target"}, "gain_in: it is of quantity: share_of_gain alone"),
        ({**VALUE, "floor": 0.0}, "greater than 0"),
        ({**VALUE, "floor": float("inf")}, "finite"),
        ({**VALUE, "than": 1e-10, "floor": 1e-9}, "than: 1e-10 is beyond the floor, 1e-09"),
        ({**VALUE, "quantity": "steps_to_stop", "floor": 1e-9}, "floor: it bounds values alone"),
        ({**VALUE, "positive_control": ""}, "at least 1 character"),
    ],
)
def test_conditions_that_cannot_hold_are_refused(given: dict[str, Any], said: str):
    with pytest.raises(ValidationError, match=said):
        Condition.model_validate(given)


def test_a_claim_is_more_than_its_positive_controls():
    given = {"id": "a", "sentence": "b", "source": "c", "holds_if": {**VALUE, "positive_control": "stalls"}}
    with pytest.raises(ValidationError, match="holds_if: all conditions are positive controls"):
        Claim.model_validate(given)


def test_a_misspelt_key_of_a_condition_is_told_with_those_of_conditions():
    given = {"id": "a", "sentence": "b", "source": "c", "holds_if": [{**VALUE, "flor": 1e-9}]}
    with pytest.raises(ValidationError) as caught:
        Claim.model_validate(given)
    (line,) = explained(caught.value, Claim, "a claim")
    assert line.startswith("holds_if[0].flor: ")
    assert "did you mean 'floor'" in line
    assert "conditions" not in line


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"floor": 1e-13}, "ties: is missing; say what decides between settings that tie at the floor"),
        ({"ties": "median final train_loss"}, "ties: is what settings tie by; give another criterion"),
        ({"floor": float("inf"), "ties": "median best train_loss"}, "finite"),
    ],
)
def test_a_criterion_with_a_floor_needs_another(given: dict[str, Any], said: str):
    with pytest.raises(ValidationError, match=said):
        TwoStageSweep.model_validate({**TUNING, **given})
