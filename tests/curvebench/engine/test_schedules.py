"""Learning-rate schedules against torch's and against closed forms."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from curvebench.arrays.numpy_ops import numpy_ops
from curvebench.backends.engine import engine
from curvebench.engine.execution import execute
from curvebench.engine.schedules import multipliers, scheduled
from curvebench.optimizers import Rule, rules
from curvebench.steps.layout import layout
from curvebench.steps.update import Update
from curvebench.workloads.workload import Role
from tests.curvebench.engine.test_execution import make_bundle


def test_cosine_equals_torch():
    """torch.optim.lr_scheduler.CosineAnnealingLR with T_max = steps, which 000 C.6 names."""
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=1.0)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=50)
    rates = []
    for _ in range(50):
        rates.append(scheduler.get_last_lr()[0])
        optimizer.step()
        scheduler.step()
    np.testing.assert_allclose(multipliers({"name": "cosine"}, 50), rates, rtol=1e-12)


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ({"name": "constant"}, [1] * 7),
        ({"name": "linear", "final": 0.25}, [1, 0.8125, 0.625, 0.4375]),
        ({"warmup": 0.2, "cooldown": 0.4, "final": 0.2}, [0.5, 1, 1, 1, 1, 1, 1, 0.8, 0.6, 0.4]),
        ({"warmup_epochs": 0.5, "cooldown": 0.4}, [0.5, 1, 1, 1, 1, 1, 1, 0.75, 0.5, 0.25]),
        ({"name": "exponential", "warmup": 0.2}, [0.5] + [1] * 9),
    ],
)
def test_multipliers_by_hand(schedule: dict[str, Any], expected: list[float]):
    np.testing.assert_allclose(multipliers(schedule, len(expected), 4), expected)


def test_inverse_root_counts_from_the_end_of_warm_up():
    """eta_t = 1 / sqrt(t) (002 eq. 24), with t = 1 where warm-up has reached 1."""
    steps = np.arange(1, 101)
    np.testing.assert_allclose(multipliers({"name": "inverse_sqrt"}, 100), 1 / np.sqrt(steps), rtol=1e-15)
    values = multipliers({"name": "inverse_sqrt", "warmup": 0.2}, 100)
    np.testing.assert_allclose(values[:20], np.arange(1, 21) / 20)
    np.testing.assert_allclose(values[20:], 1 / np.sqrt(steps[:80]), rtol=1e-15)


@given(steps=st.integers(1, 60), warmup=st.floats(0, 0.9), share=st.floats(0, 1), final=st.floats(0, 1))
def test_a_cool_down_is_between_constant_and_linear(steps: int, warmup: float, share: float, final: float):
    """Without a stable phase it is the linear schedule, and it never rises after warm-up."""
    whole = 1 - warmup
    values = multipliers({"warmup": warmup, "cooldown": share * whole, "final": final}, steps)
    linear = multipliers({"name": "linear", "warmup": warmup, "final": final}, steps)
    warm = round(warmup * steps)
    assert (values >= linear - 1e-12).all()
    assert (values <= 1).all()
    assert (np.diff(values[warm:]) <= 1e-12).all()
    if steps > warm:
        assert values[warm] == 1
    full = multipliers({"warmup": warmup, "cooldown": 1.0, "final": final}, steps)
    np.testing.assert_array_equal(full, linear)


@given(st.integers(1, 9), st.integers(1, 20), st.integers(0, 9), st.sampled_from(["cosine", "constant"]))
def test_a_warm_up_in_epochs_is_that_share_of_the_steps(epochs: int, epoch: int, warm: int, name: str):
    steps = epochs * epoch
    if warm > epochs:
        with pytest.raises(ValueError, match=f"warmup_epochs: {warm} are .* has {steps};"):
            multipliers({"name": name, "warmup_epochs": warm}, steps, epoch)
        return
    values = multipliers({"name": name, "warmup_epochs": float(warm)}, steps, epoch)
    np.testing.assert_array_equal(values, multipliers({"name": name, "warmup": warm / epochs}, steps))


# --- a factor of each method's own --------------------------------------------------------------------------

SHAPES = {"W1": (4, 3), "b1": (4,), "W2": (2, 4)}
ROLES = {"W1": Role("weight", 0), "b1": Role("bias", 0), "W2": Role("weight", 1)}
WITH_PARTS = {"muon": {}, "shampoo": {"refresh_every": 2, "grafting": "adam"}, "adamw": {}, "nesterov": {}}


def stepped(rule: Rule, rates: list[float], schedules: list[float], **fixed: float) -> np.ndarray:
    """Return the parameters (1, 1, d) of a rule after steps with these learning rates and multipliers."""
    ops, random = numpy_ops(), np.random.default_rng(0)
    update = Update(rule, layout(SHAPES, ROLES))
    flat = random.normal(size=(1, 1, update.layout.total))
    state = update.init(ops, flat)
    for number, (rate, schedule) in enumerate(zip(rates, schedules, strict=True), start=1):
        hyper = rule.complete({"learning_rate": rate, **fixed}) | {"schedule": schedule, "step": number}
        values = {name: np.full((1, 1, 1), float(value)) for name, value in hyper.items()}
        grad = random.normal(size=flat.shape) + update.point(ops, state, flat, values)
        flat, state = update.apply(ops, grad, state, flat, values, update.work_of(number))
    return flat


@pytest.mark.parametrize("name", sorted(WITH_PARTS))
def test_a_rate_that_decays_is_that_of_a_schedule_that_falls(name: str):
    """Decoupled decay, parts, amortized work and gradients elsewhere see the rate of the step too."""
    rule = rules()[name].choose(WITH_PARTS[name])
    falling = [0.9**step for step in range(6)]
    wanted = stepped(rule, [0.1] * 6, falling)
    found = stepped(scheduled(rule, "exponential"), [0.1] * 6, [1.0] * 6, rate_decay=0.9)
    np.testing.assert_allclose(found, wanted, rtol=1e-12)
    assert np.abs(stepped(rule, [0.1] * 6, [1.0] * 6) - wanted).max() > 1e-3
    alone = stepped(scheduled(rule, "exponential"), [0.1] * 6, [1.0] * 6)
    np.testing.assert_allclose(alone, stepped(rule, [0.1] * 6, [1.0] * 6), rtol=1e-12)


def test_a_rule_of_a_model_decays_too():
    rule = rules()["symo"]
    weights = {name: shape for name, shape in SHAPES.items() if name != "b1"}
    made = scheduled(rule, "exponential").for_model
    assert made is not None
    assert rule.for_model is not None
    grad = {name: np.ones((1, 1, *shape)) for name, shape in weights.items()}
    steps = []
    for bound, decay in ((made(weights, ROLES), 0.5), (rule.for_model(weights, ROLES), None)):
        given = {"learning_rate": 1.0} | ({} if decay is None else {"rate_decay": decay})
        hyper = bound.complete(given) | {"schedule": 1.0, "step": 3.0}
        values = {name: np.full((1, 1, 1), value) for name, value in hyper.items()}
        moved, _ = bound.update(numpy_ops(), grad, bound.init(numpy_ops(), grad), grad, values)
        steps.append({name: moved[name] - grad[name] for name in grad})
    for name in grad:
        np.testing.assert_allclose(steps[0][name], steps[1][name] / 4, rtol=1e-12)


def test_other_schedules_leave_a_rule_as_it_is():
    assert scheduled(rules()["adam"], "cosine") is rules()["adam"]


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_lanes_have_factors_of_their_own(backend: str):
    """Each lane is the run of its own factor under a schedule that falls by it."""
    factors = np.array([1.0, 0.7])
    rule = scheduled(rules()["adam"], "exponential")
    bundle = make_bundle(rule=rule, rates=(0.1, 0.1), basis=False)
    steps = len(bundle.schedule)
    bundle = replace(
        bundle, schedule=np.ones(steps), hyperparameters={**bundle.hyperparameters, "rate_decay": factors}
    )
    found = execute(bundle, engine(backend, "float64")).metrics["train_loss"]
    for lane, factor in enumerate(factors):
        plain = make_bundle(
            rule=rules()["adam"], rates=(0.1,), basis=False, schedule=factor ** np.arange(steps)
        )
        wanted = execute(plain, engine(backend, "float64")).metrics["train_loss"]
        np.testing.assert_allclose(found[..., lane], wanted[..., 0], rtol=1e-11)
