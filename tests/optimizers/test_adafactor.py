"""Adafactor alone: every combination of its changes, the optimal factors, bounds, memory."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from harness import replay
from harness.backends.numpy_ops import numpy_ops
from optimizers import rules
from tests.optimizers.test_rules import leaves
from workloads.workload import Role

OPS = numpy_ops("float64")
NUMBERS = {
    "learning_rate": 0.3,
    "epsilon": 0.02,
    "beta1": 0.7,
    "beta2": 0.9,
    "beta2_exponent": 0.7,
    "clipping_threshold": 0.8,
    "parameter_scale_floor": 0.1,
}
SHAPES = {"matrix": (3, 4), "convolution": (2, 3, 2, 2), "vector": (5,), "scalar": ()}


def draws(seed: int, count: int) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(seed)
    return [
        {name: np.asarray(rng.standard_normal(shape)) for name, shape in SHAPES.items()} for _ in range(count)
    ]


def divergence(target: np.ndarray, estimate: np.ndarray) -> float:
    """IDiv (002 eq. 119) of positive matrices."""
    return float((target * np.log(target / estimate) - target + estimate).sum())


@pytest.mark.parametrize("beta2_schedule", [True, False])
def test_of_one_squared_gradient_the_factors_are_the_best_of_rank_one(beta2_schedule: bool) -> None:
    """002 Sec. 4.7: at every step, against a numerical minimum of IDiv(G^2, a b^T)."""
    rng = np.random.default_rng(3)
    grad, moved = rng.uniform(0.5, 2.0, (3, 4)), []
    options = {"clipping": False, "parameter_scaling": False, "beta2_schedule": beta2_schedule}
    hyper = {"learning_rate": 1.0, "epsilon": 0.0}
    signs = (rng.choice([-1.0, 1.0], grad.shape) for _ in range(4))
    before = np.zeros_like(grad)
    for after in replay(
        "adafactor", {"w": before}, [{"w": grad * sign} for sign in signs], hyper, "numpy", options=options
    ):
        moved.append(np.abs(before - after["w"]))
        before = after["w"]
    best = minimize(
        lambda logs: divergence(grad**2, np.outer(np.exp(logs[:3]), np.exp(logs[3:]))),
        np.zeros(7),
        tol=1e-12,
    )
    optimum = np.outer(np.exp(best.x[:3]), np.exp(best.x[3:]))
    for size in moved:
        estimate = (grad / size) ** 2
        np.testing.assert_allclose(estimate, optimum, rtol=1e-4)
        assert divergence(grad**2, estimate) <= best.fun + 1e-12


@given(
    seed=st.integers(0, 2**31),
    scale=st.sampled_from([0.0, 1e-5, 1.0, 1e3]),
    rate=st.sampled_from([1e-3, 0.1, 1.0]),
    kind=st.sampled_from(list(SHAPES)),
)
@settings(max_examples=60)
def test_weights_change_by_no_more_than_the_rate_times_their_size(
    seed: int, scale: float, rate: float, kind: str
) -> None:
    """002 Sec. 4.7.1, change 4: RMS of the change <= eta RMS(W), or eta times the floor where W is less."""
    rng = np.random.default_rng(seed)
    before = scale * rng.standard_normal(SHAPES[kind])
    # some gradients are much larger than what came before
    grads = [{"w": np.asarray(10.0 ** rng.integers(-3, 4) * g[kind])} for g in draws(seed, 5)]
    for after in replay("adafactor", {"w": before}, grads, {"learning_rate": rate}, "numpy"):
        change = np.sqrt(np.mean((after["w"] - before) ** 2))
        size = np.sqrt(np.mean(before**2))
        assert change <= rate * max(size, 1e-3) * (1 + 1e-9) + 1e-15 * size
        before = after["w"]


@pytest.mark.parametrize(
    ("shape", "options", "entries"),
    [
        ((300, 200), {}, 500),
        ((8, 3, 5, 5), {}, 8 + 75),
        ((300,), {}, 300),
        ((), {}, 1),
        ((300, 200), {"factored": False}, 60_000),
        ((300, 200), {"first_moment": True}, 60_500),
        ((300,), {"first_moment": True}, 600),
    ],
)
def test_the_memory_of_a_matrix_is_a_row_and_a_column(
    shape: tuple[int, ...], options: dict[str, bool], entries: int
) -> None:
    """002 Sec. 4.7: O(m + n) instead of O(mn)."""
    part = rules()["adafactor"].choose(options).part
    assert part is not None
    rule, lanes = part(Role("weight"), shape).rule, (2, 3, 1)
    param = np.ones((*lanes, *shape))
    state = rule.init(OPS, param)
    hyper = {name: np.full((1,) * param.ndim, NUMBERS[name]) for name in rule.hyperparameters}
    _, after = rule.update(OPS, param, state, param, {**hyper, "step": np.ones((1,) * param.ndim)})
    for held in (state, after):
        assert sum(leaf.size for leaf in leaves(held)) == 6 * entries
