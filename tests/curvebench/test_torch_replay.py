"""Evaluations replayed from a record, compared with direct evaluations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from curvebench.backends import torch_replay
from curvebench.backends.torch_replay import replayed
from curvebench.steps.derivatives import StepInfo

CONSTANT = torch.tensor([2.0, 3.0])
Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def evaluation(loss: Loss, calls: list[bool]) -> Any:
    """Return an evaluation: the gradient of a loss of w and x with respect to w, and its square if the step
    observes.

    Each call appends to `calls` whether it observes.
    """

    def evaluate(params: Any, model: Any, batch: Any, noise: Any, observes: bool) -> StepInfo:
        calls.append(observes)
        gradient, value = torch.func.grad_and_value(loss)(params["w"], batch["x"])
        return StepInfo(value, {"w": gradient}, model, {"of": {"square": gradient**2}} if observes else {})

    return evaluate


def given(seed: int, observes: bool = False, examples: int = 5) -> Any:
    generator = torch.Generator().manual_seed(seed)
    w, x = (torch.randn(size, generator=generator) for size in ((3, 2), (3, examples, 2)))
    return {"w": w}, {"sum": w.sum(-1)}, {"x": x}, {}, observes


def smooth(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Mapped over lanes, with a constant, several results of one operation, and one operation twice."""

    def one(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        first, second = torch.split(torch.tanh(x * (w * CONSTANT)), 1, -1)
        return (first * second).mean() + torch.tanh(x * (w * CONSTANT)).mean()

    return torch.func.vmap(one)(w, x).sum()


UNRECORDED: dict[str, Loss] = {
    "drawing": lambda w, x: (w[:, None] * x).sum() + 0 * torch.rand(2).sum(),
    "writing": lambda w, x: (w[:, None] * x).cos_().sum(),
    "asking": lambda w, x: (w[:, None] * x).sum() * (1.0 if x.sum() > 0 else -1.0),
    "comparing": lambda w, x: (w[:, None] * x).sum() * (1.0 if torch.equal(x, x.abs()) else -1.0),
    "masking": lambda w, x: (w[:, None] * x)[x > 0].sum() / len(x[x > 0]),
}


def assert_equal(one: StepInfo, other: StepInfo) -> None:
    torch.testing.assert_close(one._asdict(), other._asdict(), rtol=0, atol=0)


def test_a_record_gives_what_a_call_gives_for_other_values_too() -> None:
    calls: list[bool] = []
    plain, fast = evaluation(smooth, []), replayed(evaluation(smooth, calls))
    for seed in range(3):
        for observes in (True, False):
            assert_equal(fast(*given(seed, observes)), plain(*given(seed, observes)))
    assert calls == [True, False]


def test_arrays_of_other_shapes_have_a_record_of_their_own() -> None:
    calls: list[bool] = []
    plain, fast = evaluation(smooth, []), replayed(evaluation(smooth, calls))
    for examples in (5, 4, 5, 4):
        assert_equal(fast(*given(0, True, examples)), plain(*given(0, True, examples)))
    assert len(calls) == 2


@pytest.mark.parametrize("loss", UNRECORDED.values(), ids=UNRECORDED)
def test_what_a_record_cannot_hold_is_called_at_every_step(loss: Loss) -> None:
    calls: list[bool] = []
    plain, fast = evaluation(loss, []), replayed(evaluation(loss, calls))
    for seed in range(4):  # some of these seeds have sums above 0, and some below
        assert_equal(fast(*given(seed)), plain(*given(seed)))
    assert len(calls) == 5  # the first record was given up


def test_state_of_a_model_may_come_back_in_another_order() -> None:
    def evaluate(params: Any, model: Any, batch: Any, noise: Any, observes: bool) -> StepInfo:
        mean, power = model["mean"], model["power"]
        return StepInfo((mean - 2 * power).sum(), {}, {"power": power / 2, "mean": mean + 1}, {})

    fast, plain, by_record = replayed(evaluate), evaluate, {"mean": torch.ones(2), "power": torch.zeros(2)}
    by_call = by_record
    for _ in range(3):
        one, other = fast({}, by_record, {}, {}, False), plain({}, by_call, {}, {}, False)
        assert_equal(one, other)
        by_record, by_call = one.model, other.model


def test_an_index_by_numbers_is_recorded() -> None:
    calls: list[bool] = []
    rows = torch.tensor([2, 0])
    fast = replayed(evaluation(lambda w, x: (w[rows] * x[rows].sum(1)).sum(), calls))
    for seed in range(2):
        fast(*given(seed))
    assert len(calls) == 1


def test_large_evaluations_are_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_replay, "MAX_BYTES", 500)
    calls: list[bool] = []
    fast = replayed(evaluation(smooth, calls))
    for _ in range(2):
        fast(*given(0))
    assert len(calls) == 3


def test_one_array_in_two_places_is_not_taken_for_one() -> None:
    def evaluate(params: Any, model: Any, batch: Any, noise: Any, observes: bool) -> StepInfo:
        return StepInfo(params["w"] - batch["x"], {}, {}, {})

    fast, w = replayed(evaluate), torch.ones(2)
    assert fast({"w": w}, {}, {"x": w}, {}, False).loss.tolist() == [0, 0]
    assert fast({"w": w}, {}, {"x": 2 * w}, {}, False).loss.tolist() == [-1, -1]


def test_zeros_of_either_sign_are_not_taken_for_one() -> None:
    def evaluate(params: Any, model: Any, batch: Any, noise: Any, observes: bool) -> StepInfo:
        above, below = (torch.full_like(params["w"], zero) for zero in (0.0, -0.0))
        return StepInfo(torch.atan2(above, params["w"]) - torch.atan2(below, params["w"]), {}, {}, {})

    fast = replayed(evaluate)
    for _ in range(2):
        assert fast({"w": -torch.ones(2)}, {}, {}, {}, False).loss.tolist() == pytest.approx([6.283185] * 2)
