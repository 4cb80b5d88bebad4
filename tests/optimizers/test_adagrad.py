"""Adagrad alone: closed forms, inequalities of its analysis, and where its three preconditioners agree."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from harness import replay
from harness.backends.numpy_ops import numpy_ops
from harness.engine.layout import layout, roles_of
from harness.engine.program import Update
from optimizers import rules

RATE = {"learning_rate": 0.5, "epsilon": 0.0}
seeds = st.integers(0, 2**32 - 1)


def moves(optimizer: str, grads: np.ndarray) -> np.ndarray:
    """What each gradient moves a vector by at rate 1/2 without epsilon, (steps, d)."""
    start = np.zeros(grads.shape[1])
    path = replay(optimizer, {"w": start}, [{"w": g} for g in grads], RATE, "numpy")
    return np.diff([start, *(arrays["w"] for arrays in path)], axis=0)


def root(matrix: np.ndarray) -> np.ndarray:
    """The symmetric square root."""
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray((vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T)


@given(seed=seeds, steps=st.integers(1, 8), dimension=st.integers(1, 5))
def test_steps_begin_with_the_sign_and_never_exceed_the_rate(seed: int, steps: int, dimension: int) -> None:
    """002 Sec. 3.3."""
    grads = np.random.default_rng(seed).standard_normal((steps, dimension))
    moved = moves("adagrad", grads)
    np.testing.assert_allclose(moved[0], -0.5 * np.sign(grads[0]), rtol=1e-13)
    assert np.abs(moved).max() <= 0.5 * (1 + 1e-12)


@given(seed=seeds, steps=st.integers(1, 12), dimension=st.integers(1, 5))
def test_sums_of_steps_stay_below_their_bounds(seed: int, steps: int, dimension: int) -> None:
    """sum g^T A_t^-1 g <= 2 tr(A_T) (002 Fact 2.1), and tr(O^(1/2)) <= sum sqrt(diag O) (Lemma S.1)."""
    grads = np.random.default_rng(seed).standard_normal((steps, dimension))
    second_moment = grads.T @ grads
    traces = {
        "adagrad": np.sqrt(np.diag(second_moment)).sum(),
        "adagrad_norm": np.sqrt(np.trace(second_moment)),
        "adagrad_full": np.trace(root(second_moment)),
    }
    for optimizer, trace in traces.items():
        assert -(grads * moves(optimizer, grads)).sum() <= 0.5 * 2 * trace * (1 + 1e-9)
    assert traces["adagrad_full"] <= traces["adagrad"] * (1 + 1e-9)


def test_a_singular_second_moment_moves_within_the_span_of_gradients() -> None:
    """The pseudo-inverse, to rounding: 3 of 8 dimensions, at every scale."""
    rng = np.random.default_rng(2)
    span = np.linalg.qr(rng.standard_normal((8, 3)))[0]
    for scale in (1e-100, 1.0, 1e100):
        moved = moves("adagrad_full", scale * rng.standard_normal((20, 3)) @ span.T)
        assert np.abs(moved - moved @ span @ span.T).max() < 1e-12
        assert 0.01 < np.abs(moved).max() <= 0.5 * (1 + 1e-12)


def test_states_hold_d_entries_one_or_d_squared() -> None:
    shapes = {"matrix": (3, 2), "bias": (2,)}
    for optimizer, entries in (("adagrad", 8), ("adagrad_norm", 1), ("adagrad_full", 64)):
        update = Update(rules()[optimizer], layout(shapes, roles_of(shapes)))
        states = update.init(numpy_ops("float64"), np.zeros((1, 1, 8)))
        assert sum(array.size for state in states for array in state) == entries
