"""Adam: the verdicts of the claims, and that their checks notice wrong rules."""

import pytest

from curvebench.benchmarks.claims import notes_adam
from tests.benchmarks.claim_mutations import assert_noticed, few, found_rows, mutate, wrap

AMSGRAD, SIZE, SCALE = (
    notes_adam.NOTES_AMSGRAD,
    notes_adam.NOTES_UPDATE_SIZE,
    notes_adam.NOTES_SCALE_INVARIANCE,
)
INVARIANT = "moves do not depend on the gradients' scale"


@pytest.mark.parametrize(
    ("amsgrad", "part"),
    [
        (True, "Adam's regret is linear"),
        (False, "AMSGrad converges, maximum after correction"),
        (False, "AMSGrad converges, maximum before correction"),
        (False, "the rate never rises, maximum after correction"),
        (True, "the rate can rise, maximum before correction"),
        (True, "the order matters early"),
    ],
)
def test_another_maximum_is_noticed(amsgrad, part, monkeypatch):
    mutate(monkeypatch, "adam", options={"amsgrad": amsgrad})
    assert_noticed(AMSGRAD, 1, part)


def test_an_order_whose_moves_stay_apart_is_noticed(monkeypatch):
    def wrong(right, optimizer, gradients, hyper, options):
        return (0.9 if options["amsgrad"] is True else 1.0) * right(optimizer, gradients, hyper, options)

    wrap(monkeypatch, notes_adam, "moves", wrong)
    assert_noticed(AMSGRAD, 1, "and little later, growing gradients")


@pytest.mark.parametrize(
    ("part", "wrong"),
    [
        ("the root mean square", {"beta1": lambda beta: 0.5 * beta + 0.4}),
        ("beta_2 is mild", {"beta2": lambda beta: 0.3 if beta == 0.9 else beta}),
    ],
    ids=["beta1", "beta2"],
)
def test_another_mean_is_noticed(part, wrong, monkeypatch):
    mutate(monkeypatch, "adam", **wrong)
    assert_noticed(SIZE, 2, part)


@pytest.mark.parametrize(
    ("optimizer", "part", "wrong"),
    [
        *((name, INVARIANT, {"epsilon": lambda given: 0.1}) for name in ("adam", "rmsprop", "adagrad")),
        ("adam", "a large epsilon breaks that", {"epsilon": lambda given: 0.0}),
        ("adam", "a small one hardly", {"epsilon": lambda given: 1.0}),
        ("adam_atan2", "atan2 bounds every move", {"a": lambda given: 3.0}),
        ("adam_atan2", "and clips a spike", {"a": lambda given: 3.0}),
    ],
    ids=["adam", "rmsprop", "adagrad", "no epsilon", "large epsilon", "large a", "large a, spike"],
)
def test_another_epsilon_or_factor_is_noticed(optimizer, part, wrong, monkeypatch):
    mutate(monkeypatch, optimizer, None, None, **wrong)
    assert_noticed(SCALE, 5, part)


def test_an_atan2_with_an_epsilon_is_noticed(monkeypatch):
    mutate(monkeypatch, "adam_atan2", instead="adam", epsilon=lambda epsilon: 0.1)
    assert_noticed(SCALE, 5, INVARIANT)


@pytest.mark.parametrize(("low", "holds"), [(1.02, True), (1.08, None), (0.88, None), (1.2, False)])
def test_a_change_whose_interval_holds_a_tenth_is_not_decided(low, holds, monkeypatch):
    sizes = {0.9: (low, 0.01), 0.998: (1.0, 0.0)}
    monkeypatch.setattr(notes_adam, "_root_mean_square", lambda random, beta1, beta2: sizes[beta2])
    (row,) = found_rows(few(notes_adam.NOTES_UPDATE_SIZE, 1, {"beta_2 is mild"}))
    assert row.measure.holds is holds
