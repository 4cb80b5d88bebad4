"""Adam's family alone: scale invariance, the order of Fig. 1, bounds, and sizes in the long run."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from documents.errors import InputError
from harness import Online, replay
from harness.backends.numpy_ops import numpy_ops
from harness.engine.schedules import multipliers
from optimizers import rules

BACKENDS = ["numpy", "jax", "torch"]
OPS = numpy_ops("float64")
SCALE_FREE: dict[str, dict[str, float]] = {
    "adagrad": {"epsilon": 0.0},
    "rmsprop": {"epsilon": 0.0},
    "adam": {"epsilon": 0.0},
    "adamw": {"epsilon": 0.0},
    "adam_atan2": {},
}
MEMORYLESS = {"learning_rate": 1.0, "beta1": 0.0, "epsilon": 0.0}


def moves(
    optimizer: str, grads: Any, hyper: dict[str, float], backend: str = "numpy", **options: Any
) -> np.ndarray:
    """What each gradient moves a parameter by that starts at 0."""
    given = [{"w": np.asarray(gradient, np.float64)} for gradient in grads]
    start = np.zeros_like(given[0]["w"])
    path = replay(optimizer, {"w": start}, given, hyper, backend, options=options)
    return np.diff([start, *(arrays["w"] for arrays in path)], axis=0)


# --- scale invariance ----------------------------------------------------------------------------------


@given(
    seed=st.integers(0, 2**32 - 1),
    exponents=st.lists(st.integers(-300, 300), min_size=3, max_size=3),
    optimizer=st.sampled_from(sorted(SCALE_FREE)),
)
def test_each_coordinate_may_be_scaled_for_itself(seed: int, exponents: list[int], optimizer: str) -> None:
    """002 eq. 47, exact for powers of two."""
    grads = np.random.default_rng(seed).standard_normal((5, 3))
    hyper = {"learning_rate": 0.5, **SCALE_FREE[optimizer]}
    scaled = moves(optimizer, grads * 2.0 ** np.array(exponents), hyper)
    np.testing.assert_array_equal(scaled, moves(optimizer, grads, hyper))


# --- RMSProp and bias correction -----------------------------------------------------------------------


def test_rmsprop_lacks_the_correction_that_adam_has() -> None:
    """A constant gradient: (1 - beta1^t) / sqrt(1 - beta2^t) of its sign, and the sign (002 eqs. 45-46)."""
    grads, t = [[3.0, -2.0]] * 5, np.arange(1, 6)[:, None]
    hyper = {"learning_rate": 1.0, "beta1": 0.5, "beta2": 0.75, "epsilon": 0.0}
    uncorrected = -np.array([1.0, -1.0]) * (1 - 0.5**t) / np.sqrt(1 - 0.75**t)
    np.testing.assert_allclose(moves("rmsprop", grads, hyper), uncorrected, rtol=1e-13)
    np.testing.assert_allclose(moves("adam", grads, hyper), [[-1.0, 1.0]] * 5, rtol=1e-13)


# --- atan2 ---------------------------------------------------------------------------------------------


@given(
    grads=st.lists(st.floats(-1e150, 1e150), min_size=1, max_size=6),
    a=st.floats(0.1, 10.0),
    b=st.floats(0.1, 10.0),
)
def test_an_angle_never_moves_farther_than_a_quarter_turn(grads: list[float], a: float, b: float) -> None:
    """pi / 2 eta a, whatever the gradients: 0, too small to be squared, of unequal sizes (002 Sec. 4.1.2)."""
    moved = moves("adam_atan2", [[g] for g in grads], {"learning_rate": 0.5, "a": a, "b": b})
    assert np.abs(moved).max() <= math.pi / 2 * 0.5 * a * (1 + 1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_angle_where_squares_vanish(backend: str) -> None:
    """atan2(0, 0) = 0; a gradient whose square is 0 in float64 gives a quarter turn."""
    moved = moves("adam_atan2", [[0.0, 1e-200, -1e-200]], {"learning_rate": 1.0}, backend)
    np.testing.assert_allclose(moved, [[0.0, -math.pi / 2, math.pi / 2]], rtol=1e-15)


def test_the_two_knobs_keep_adams_step_in_their_regimes() -> None:
    """a = b where |m| is small beside b sqrt(v); a = 1 / atan(1 / b) where they are equal (002, note 4)."""
    grads = np.random.default_rng(1).standard_normal((6, 4))
    plain = moves("adam", grads, {"learning_rate": 0.5, "epsilon": 0.0})
    wide = moves("adam_atan2", grads, {"learning_rate": 0.5, "a": 1e4, "b": 1e4})
    np.testing.assert_allclose(wide, plain, rtol=1e-7)
    b = 0.7
    hyper = {"learning_rate": 0.5, "a": 1 / math.atan(1 / b), "b": b}
    np.testing.assert_allclose(moves("adam_atan2", [[3.0, -2.0]] * 4, hyper), [[-0.5, 0.5]] * 4, rtol=1e-13)


# --- AMSGrad -------------------------------------------------------------------------------------------


@given(seed=st.integers(0, 2**32 - 1))
def test_only_the_maximum_after_correction_never_lets_the_rate_rise(seed: int) -> None:
    """Without first moment the rate is the step over the gradient; PyTorch's order lets it rise at first."""
    rng = np.random.default_rng(seed)
    grads = rng.uniform(0.5, 2.0, (10, 1)) * rng.choice([-1, 1], (10, 1))
    grads[0] = 10.0  # in front, so that the correction of the largest moment still moves
    hyper = {**MEMORYLESS, "beta2": 0.9}
    rates = {
        amsgrad: -moves("adam", grads, hyper, amsgrad=amsgrad)[:, 0] / grads[:, 0]
        for amsgrad in (True, "before_correction")
    }
    assert (np.diff(rates[True]) <= 1e-12).all()
    assert rates["before_correction"][1] > 1.1 * rates["before_correction"][0]


def test_adam_fails_where_amsgrad_converges() -> None:
    """Reddi et al. 2019 (002 Sec. 4.2): on [-1, 1], gradients C, -1, -1 in turn with C > 2; best is -1.

    beta1 = 0, beta2 = 1 / (1 + C^2), and the rate falls as 1 / sqrt(t).
    """
    largest, steps = 3.0, 3000
    schedule = multipliers({"name": "inverse_sqrt"}, steps)
    ends = {}
    for amsgrad in (False, True):
        rule = rules()["adam"].choose({"amsgrad": amsgrad})
        numbers = {**MEMORYLESS, "learning_rate": 0.5, "beta2": 1 / (1 + largest**2)}
        hyper = {name: np.array([value]) for name, value in numbers.items()}
        x = np.zeros(1)
        state = rule.init(OPS, x)
        for t in range(1, steps + 1):
            gradient = np.array([largest if t % 3 == 1 else -1.0])
            now = {**hyper, "step": np.array([float(t)]), "learning_rate": 0.5 * schedule[t - 1 : t]}
            x, state = rule.update(OPS, gradient, state, x, now)
            x = np.clip(x, -1.0, 1.0)
        ends[amsgrad] = float(x[0])
    assert ends[False] > 0.9
    assert ends[True] < -0.9


# --- weight decay --------------------------------------------------------------------------------------


def test_decoupled_decay_follows_the_schedule_and_not_the_rate() -> None:
    """Without gradients w is multiplied by 1 - s lambda, or by 1 - s eta lambda (002 Sec. 4.4)."""
    schedule = [1.0, 0.5, 0.25]
    hyper = {"learning_rate": 0.125, "weight_decay": 0.5}
    for decoupled, factors in ((True, [0.5, 0.75, 0.875]), (False, [0.9375, 0.96875, 0.984375])):
        options = {"decoupled_weight_decay": decoupled}
        online = Online("adamw", {"w": np.array([4.0])}, hyper, options=options)
        path = [float(online.step({"w": np.zeros(1)}, multiplier)["w"][0]) for multiplier in schedule]
        np.testing.assert_array_equal(path, 4.0 * np.cumprod(factors))


@pytest.mark.parametrize("decoupled", [True, False])
def test_decay_and_rate_set_the_size_of_weights(decoupled: bool) -> None:
    """Of random signs: eta / sqrt(lambda (2 - lambda)); coupled, eta lambda for lambda (002 eqs. 48-49)."""
    rate, decay, count = 0.5, 0.2, 20_000
    hyper = {**MEMORYLESS, "learning_rate": rate, "beta2": 0.0, "weight_decay": decay}
    online = Online("adamw", {"w": np.zeros(count)}, hyper, options={"decoupled_weight_decay": decoupled})
    rng = np.random.default_rng(4)
    for _ in range(60):
        w = online.step({"w": rng.choice([-1.0, 1.0], count)})["w"]
    share = decay if decoupled else rate * decay
    np.testing.assert_allclose(np.sqrt(np.mean(w**2)), rate / math.sqrt(share * (2 - share)), rtol=0.02)


def test_a_decoupled_decay_is_below_one() -> None:
    hyper = {"learning_rate": 0.5, "weight_decay": 1.0}
    replay("adamw", {"w": np.zeros(2)}, [], hyper, "numpy")
    with pytest.raises(InputError, match=r"adamw: weight_decay = 1.0 is outside \[0, 1\)"):
        replay("adamw", {"w": np.zeros(2)}, [], hyper, "numpy", options={"decoupled_weight_decay": True})


# --- sizes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("beta1", [0.5, 0.9])
def test_the_long_run_size_of_a_step(beta1: float) -> None:
    """sqrt((1 - beta1) / (1 + beta1)) for centred gradients and beta2 near 1 (002 eq. 51)."""
    rng, count = np.random.default_rng(5), 5_000
    hyper = {"learning_rate": 1.0, "beta1": beta1, "beta2": 0.995, "epsilon": 0.0}
    grads = rng.normal(0.0, math.sqrt(42.0), (300, count))
    size = np.sqrt(np.mean(moves("adam", grads, hyper)[-1] ** 2))
    np.testing.assert_allclose(size, math.sqrt((1 - beta1) / (1 + beta1)), rtol=0.03)
