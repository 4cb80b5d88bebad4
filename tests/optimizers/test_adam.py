"""Adam's family alone: scale invariance, atan2 where squares vanish, and a decay that is refused."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curvebench import replay
from curvebench.spec.errors import InputError
from tests.optimizers.paths import path_of_one

BACKENDS = ["numpy", "jax", "torch"]
SCALE_FREE: dict[str, dict[str, float]] = {
    "adagrad": {"epsilon": 0.0},
    "rmsprop": {"epsilon": 0.0},
    "adam": {"epsilon": 0.0},
    "adamw": {"epsilon": 0.0},
    "adam_atan2": {},
}


def moves(optimizer: str, grads: Any, hyper: dict[str, float], backend: str = "numpy") -> np.ndarray:
    """Return the change of a parameter, which starts at 0, at each gradient."""
    start = np.zeros(np.shape(grads[0]))
    return np.diff([start, *path_of_one(optimizer, start, grads, hyper, backend=backend)], axis=0)


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


# --- atan2 ---------------------------------------------------------------------------------------------


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


# --- weight decay --------------------------------------------------------------------------------------


def test_a_decoupled_decay_is_below_one() -> None:
    hyper = {"learning_rate": 0.5, "weight_decay": 1.0}
    replay("adamw", {"w": np.zeros(2)}, [], hyper, "numpy")
    with pytest.raises(InputError, match=r"adamw: weight_decay = 1.0 is outside \[0, 1\)"):
        replay("adamw", {"w": np.zeros(2)}, [], hyper, "numpy", options={"decoupled_weight_decay": True})
