"""AdamNMF alone: the round of EM, and first factors."""

from __future__ import annotations

import numpy as np
import pytest

from curvebench import replay
from curvebench.arrays.numpy_ops import numpy_ops
from curvebench.optimizers import rules
from curvebench.optimizers.adam_nmf import MultiplicativeFactors, multiplicative_round
from curvebench.workloads.workload import Role
from tests.optimizers.paths import leaves

OPS = numpy_ops("float64")
RATE = {"learning_rate": 0.5}


def drawn(seed: int, rows: int, columns: int, rank: int) -> tuple[np.ndarray, MultiplicativeFactors]:
    rng = np.random.default_rng(seed)
    target = rng.standard_normal((rows, columns)) ** 2
    return target, MultiplicativeFactors(
        rng.uniform(0.1, 1, (rows, rank)), rng.uniform(0.1, 1, (rank, columns))
    )


@pytest.mark.parametrize("rank", [1, 2, 4])
def test_alternating_rounds_are_those_of_scikit_learn(rank: int) -> None:
    """Its multiplicative solver for that divergence updates the left factor first, as here."""
    from sklearn.decomposition import non_negative_factorization

    target, factors = drawn(0, 5, 3, rank)
    for rounds in (1, 2, 7):
        left, right, _ = non_negative_factorization(
            target,
            W=factors.left.copy(),
            H=factors.right.copy(),
            n_components=rank,
            init="custom",
            solver="mu",
            beta_loss="kullback-leibler",
            tol=0.0,
            max_iter=rounds,
        )
        found = factors
        for _ in range(rounds):
            found = multiplicative_round(OPS, target, found, alternating=True)
        np.testing.assert_allclose(found.left, left, rtol=1e-10)
        np.testing.assert_allclose(found.right, right, rtol=1e-10)


# --- the first factors ---------------------------------------------------------------------------


def test_the_first_factors_are_the_same_for_every_lane_and_positive() -> None:
    part = rules()["adam_nmf"].choose({"rank": 3}).part
    assert part is not None
    state = part(Role("weight"), (4, 5)).rule.init(OPS, np.zeros((2, 3, 2, 4, 5)))
    for leaf in leaves(state):
        np.testing.assert_array_equal(leaf, np.broadcast_to(leaf[0, 0, 0], leaf.shape))
        assert leaf.min() > 0
        assert leaf.max() < 1
        assert len(np.unique(leaf[0, 0, 0])) == leaf[0, 0, 0].size


def test_a_row_that_met_a_zero_gradient_needs_an_epsilon() -> None:
    """As printed, with epsilon 0, its factor stays 0 for ever; with one it goes on."""
    first, then = np.array([[1.0, 2.0], [0.0, 0.0]]), np.array([[1.0, 2.0], [3.0, -1.0]])
    for epsilon, goes_on in ((0.0, False), (1e-30, True)):
        path = replay(
            "adam_nmf",
            {"w": np.zeros((2, 2))},
            [{"w": first}, {"w": then}, {"w": then}],
            {**RATE, "epsilon": epsilon},
            "numpy",
        )
        np.testing.assert_array_equal(path[0]["w"][1], 0.0)
        assert (path[2]["w"][1] != 0).all() == goes_on
        assert np.isfinite(path[2]["w"]).all()
        assert (path[2]["w"][0] < path[1]["w"][0]).all()
