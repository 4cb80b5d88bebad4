"""Shampoo and its idealized form alone: closed forms, roots, blocks, lengths."""

from __future__ import annotations

import itertools
from typing import Any
from unittest import mock

import numpy as np
import pytest
from scipy.linalg import fractional_matrix_power

from documents.errors import InputError
from harness import replay
from harness.backends.numpy_ops import numpy_ops
from harness.engine.layout import layout
from harness.engine.program import Update
from optimizers import rules
from optimizers.tensors import second_moment
from tests.optimizers.families.shampoo import shampoo
from tests.optimizers.loops import Leaf
from workloads.workload import Role

RATE = {"learning_rate": 0.5, "epsilon": 0.0}


def test_diagonal_gradients_give_adagrad() -> None:
    """L_t = R_t = diag(sum g^2), so that L^(-1/4) G R^(-1/4) = g / sqrt(sum g^2) (002 eqs. 44 and 53)."""
    rng = np.random.default_rng(0)
    diagonals = [np.diag(rng.uniform(0.5, 2.0, 4) * rng.choice([-1, 1], 4)) for _ in range(5)]
    grads = [{"w": diagonal} for diagonal in diagonals]
    start = {"w": rng.standard_normal((4, 4))}
    path = replay("shampoo", start, grads, RATE, "numpy")
    for found, expected in zip(path, replay("adagrad", start, grads, RATE, "numpy"), strict=True):
        np.testing.assert_allclose(found["w"], expected["w"], rtol=1e-13, atol=1e-13)


def test_the_first_step_is_the_polar_factor() -> None:
    """(G G^T)^(-1/4) G (G^T G)^(-1/4) = U V^T: Muon's direction."""
    rng = np.random.default_rng(1)
    for shape in ((3, 3), (5, 2), (2, 5)):
        grad = rng.standard_normal(shape)
        u, _, vh = np.linalg.svd(grad, full_matrices=False)
        (found,) = replay("shampoo", {"w": np.zeros(shape)}, [{"w": grad}], RATE, "numpy")
        np.testing.assert_allclose(found["w"], -0.5 * u @ vh, atol=1e-12)


def test_roots_stay_between_refreshes_while_statistics_go_on() -> None:
    """Scalars, k = 2: the roots are those of 1, 1, then 1 + 4 + 9, which holds the second gradient."""
    path = replay(
        "shampoo",
        {"w": np.zeros(())},
        [{"w": np.array(value)} for value in (1.0, 2.0, 3.0, 14.0)],
        {"learning_rate": 1.0, "epsilon": 0.0},
        "numpy",
        options={"refresh_every": 2},
    )
    steps = np.diff([0.0, *(float(arrays["w"]) for arrays in path)])
    np.testing.assert_allclose(steps, [-1, -2, -3 / np.sqrt(14), -14 / np.sqrt(14)], rtol=1e-14)


@pytest.mark.parametrize("backend", ["numpy", "torch"])
@pytest.mark.parametrize("shape", [(8, 3), (3, 8), (6, 2, 2)])
def test_singular_statistics_in_float32_keep_the_size_of_steps(shape: tuple[int, ...], backend: str) -> None:
    """Rounding in the null space is no curvature: without a cutoff its root is 50 times a true one."""
    rng = np.random.default_rng(5)
    grads = [rng.standard_normal(shape).astype(np.float32).astype(np.float64)] * 6
    path = replay("shampoo", {"w": np.zeros(shape)}, [{"w": g} for g in grads], RATE, backend, "float32")
    expected = shampoo(Leaf("weight", np.zeros(shape), grads), RATE, "sum", None, 1)
    for found, wanted in zip(path, expected, strict=True):
        np.testing.assert_allclose(found["w"], wanted, atol=2e-4)


# --- other ways to the root ---------------------------------------------------------------------------

ROOTS: list[dict[str, Any]] = [
    {"root": "eigendecomposition"},
    {"root": "coupled_newton", "steps": 20},
    {"root": "newton_schulz", "steps": 20},
    {"root": "tracked_basis"},
]


@pytest.mark.parametrize("options", ROOTS, ids=lambda options: options["root"])
def test_every_root_of_diagonal_statistics_is_that_of_the_entries(
    options: dict[str, Any],
) -> None:
    """G = diag(g): step t moves by g / (epsilon + sum g^2)^(2 power), 1/4 on each side by default."""
    rng = np.random.default_rng(6)
    diagonals = [rng.uniform(0.5, 2.0, 3) * rng.choice([-1, 1], 3) for _ in range(4)]
    grads = [{"w": np.diag(diagonal)} for diagonal in diagonals]
    for power, given in ((1 / 4, {}), (1 / 2, {"power": 0.5})):
        hyper = {"learning_rate": 0.5, "epsilon": 0.25}
        path = replay("shampoo", {"w": np.zeros((3, 3))}, grads, hyper, "numpy", options={**options, **given})
        w = np.zeros(3)
        for t, found in enumerate(path, start=1):
            w = w - 0.5 * diagonals[t - 1] * (0.25 + np.sum(np.square(diagonals[:t]), axis=0)) ** (-2 * power)
            np.testing.assert_allclose(found["w"], np.diag(w), rtol=1e-12, atol=1e-13)


def test_a_tracked_basis_comes_to_the_eigenvectors_of_statistics_that_settle() -> None:
    """One iteration a step on t G G^T: columns converge at the ratio of squared singular values (002 Q.2)."""
    rng = np.random.default_rng(9)
    u, v = (np.linalg.qr(rng.standard_normal((3, 3)))[0] for _ in range(2))
    grads = [{"w": (u * [4.0, 2.0, 1.0]) @ v}] * 30
    start, hyper = {"w": np.zeros((3, 3))}, {"learning_rate": 1.0, "epsilon": 0.1}
    exact = np.diff([arrays["w"] for arrays in replay("shampoo", start, grads, hyper, "numpy")], axis=0)
    path = replay("shampoo", start, grads, hyper, "numpy", options={"root": "tracked_basis"})
    apart = np.linalg.norm(np.diff([arrays["w"] for arrays in path], axis=0) - exact, axis=(1, 2))
    assert apart[0] > 1e-2
    assert apart[-1] < 1e-12
    rates = apart[5:15] / apart[4:14]
    assert (rates < 0.3).all(), "about 1/4, the ratio of neighbouring eigenvalues"


@pytest.mark.parametrize("options", ROOTS[1:], ids=lambda options: options["root"])
@pytest.mark.parametrize("backend", ["numpy", "torch"])
def test_singular_statistics_in_float32_stay_finite_by_every_root(
    backend: str, options: dict[str, Any]
) -> None:
    """Rounding can make an eigenvalue negative, from which an iteration would diverge."""
    grad = np.random.default_rng(10).standard_normal((8, 3)) * 100
    hyper = {"learning_rate": 0.5, "epsilon": 1e-6}
    path = replay(
        "shampoo", {"w": np.zeros((8, 3))}, [{"w": grad}] * 6, hyper, backend, "float32", options=options
    )
    expected = list(
        shampoo(Leaf("weight", np.zeros((8, 3)), [grad] * 6), hyper, "sum", None, 1, options["root"])
    )
    np.testing.assert_allclose(path[-1]["w"], expected[-1], atol=0.02)


# --- blocks and lengths ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "size", "cuts"),
    [
        ((4, 6), 2, [[(0, 2), (2, 4)], [(0, 2), (2, 4), (4, 6)]]),
        ((5, 3), 4, [[(0, 3), (3, 5)], [(0, 3)]]),  # two blocks, the second filled up
        ((7,), 3, [[(0, 3), (3, 6), (6, 7)]]),
        ((3, 2, 2, 2), 2, [[(0, 2), (2, 3)], [(0, 2)], [(0, 2)], [(0, 2)]]),
    ],
)
def test_blocks_are_parameters_of_their_own(
    shape: tuple[int, ...],
    size: int,
    cuts: list[list[tuple[int, int]]],
) -> None:
    rng = np.random.default_rng(11)
    start, grads = rng.standard_normal(shape), [rng.standard_normal(shape) for _ in range(4)]
    hyper = {"learning_rate": 0.5, "epsilon": 0.1}
    path = replay(
        "shampoo", {"w": start}, [{"w": g} for g in grads], hyper, "numpy", options={"block_size": size}
    )
    for ranges in itertools.product(*cuts):
        block = tuple(itertools.starmap(slice, ranges))
        alone = replay("shampoo", {"w": start[block]}, [{"w": g[block]} for g in grads], hyper, "numpy")
        for found, wanted in zip(path, alone, strict=True):
            np.testing.assert_allclose(found["w"][block], wanted["w"], rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("options", ROOTS, ids=lambda options: options["root"])
def test_blocks_have_every_root(options: dict[str, Any]) -> None:
    rng = np.random.default_rng(12)
    start, grads = rng.standard_normal((5, 4)), [rng.standard_normal((5, 4)) for _ in range(4)]
    hyper, given = {"learning_rate": 0.5, "epsilon": 0.1, "beta2": 0.9}, {"statistics": "ema", **options}
    path = replay(
        "shampoo", {"w": start}, [{"w": g} for g in grads], hyper, "numpy", options={**given, "block_size": 3}
    )
    for block in itertools.product((slice(0, 3), slice(3, 5)), (slice(0, 2), slice(2, 4))):
        alone = replay(
            "shampoo", {"w": start[block]}, [{"w": g[block]} for g in grads], hyper, "numpy", options=given
        )
        np.testing.assert_allclose(path[-1]["w"][block], alone[-1]["w"], rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("size", [6, 7])
def test_blocks_that_hold_the_parameter_change_nothing(size: int) -> None:
    rng = np.random.default_rng(13)
    grads = [{"w": rng.standard_normal((6, 4))} for _ in range(3)]
    start = {"w": rng.standard_normal((6, 4))}
    path = replay("shampoo", start, grads, RATE, "numpy", options={"block_size": size})
    for found, wanted in zip(path, replay("shampoo", start, grads, RATE, "numpy"), strict=True):
        np.testing.assert_array_equal(found["w"], wanted["w"])


@pytest.mark.parametrize(
    ("grafting", "hyper"),
    [
        ("sgd", {}),
        ("adagrad", {"epsilon": 0.1, "initial_accumulator": 0.5}),
        ("adam", {"beta1": 0.5, "beta2": 0.75, "epsilon": 0.1}),
    ],
)
@pytest.mark.parametrize("shape", [(), (3,), (3, 2), (3, 2, 2, 2)])
def test_a_step_has_shampoos_direction_and_the_other_rules_length(
    shape: tuple[int, ...], grafting: str, hyper: dict[str, float]
) -> None:
    rng = np.random.default_rng(14)
    grads = [{"w": np.asarray(rng.standard_normal(shape))} for _ in range(4)]
    start = {"w": np.zeros(shape)}
    plain = replay("shampoo", start, grads, RATE, "numpy")
    other = replay(grafting, start, grads, {"learning_rate": 0.5, **hyper}, "numpy")
    given = {**RATE, **{f"grafting_{name}": value for name, value in hyper.items()}}
    found = replay("shampoo", start, grads, given, "numpy", options={"grafting": grafting})

    def steps(path: list[dict[str, np.ndarray]]) -> np.ndarray:
        places = np.array([np.zeros(shape), *(arrays["w"] for arrays in path)])
        return np.diff(places, axis=0).reshape(len(path), -1)

    lengths = np.linalg.norm(steps(other), axis=1, keepdims=True)
    directions = steps(plain) / np.linalg.norm(steps(plain), axis=1, keepdims=True)
    np.testing.assert_allclose(steps(found), lengths * directions, rtol=1e-11, atol=1e-13)


def test_the_default_of_each_grafting_number_is_the_other_rules() -> None:
    for name in ("adagrad", "adam"):
        values = rules()["shampoo"].choose({"grafting": name}).complete({"learning_rate": 0.1})
        theirs = rules()[name].complete({"learning_rate": 0.1})
        del theirs["learning_rate"]
        assert {other: values[f"grafting_{other}"] for other in theirs} == theirs


@pytest.mark.parametrize(
    ("options", "numbers"),
    [
        ({}, 2 * 36 + 2 * 16),
        ({"root": "tracked_basis"}, 3 * 36 + 3 * 16),
        ({"block_size": 2}, 6 * (2 * 4 + 2 * 4)),  # 6 blocks of 2 x 2: 2 m n (b / n + b / m)
        ({"grafting": "adam"}, 2 * 36 + 2 * 16 + 2 * 24),
    ],
)
def test_state_sizes(options: dict[str, Any], numbers: int) -> None:
    update = Update(rules()["shampoo"].choose(options), layout({"w": (6, 4)}, {"w": Role("weight")}))
    (state,) = update.init(numpy_ops("float64"), np.zeros((1, 1, 24)))
    held = (*state.statistics, *state.roots, *state.bases, *state.grafting)
    assert sum(leaf.size for leaf in held) == numbers


def test_a_step_with_new_roots_adds_its_outer_products_once() -> None:
    """2 m n (m + n) + m^2 + n^2 operations less than twice: counted, with a root that costs nothing."""
    calls = 0

    def counted(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        return second_moment(*arguments)

    with mock.patch("optimizers.shampoo.second_moment", counted):
        replay("shampoo", {"w": np.zeros((3, 2))}, [{"w": np.ones((3, 2))}] * 4, RATE, "numpy")
    assert calls == 4 * 2


# --- the idealized iteration -------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(2, 2), (3, 2), (2, 3)])
def test_the_idealized_step_is_newtons_where_the_fisher_matrix_is_a_kronecker_product(
    shape: tuple[int, int],
) -> None:
    """002 Lemma 6.1: E[g g^T] = A x B has a rearrangement of rank 1, and w <- w - eta E[g g^T]^(-1/2) g."""
    rng = np.random.default_rng(15)
    rows, columns = shape
    roots = []
    for size in shape:
        factor = rng.standard_normal((size, size))
        roots.append(fractional_matrix_power(factor @ factor.T + 0.1 * np.eye(size), 0.5))
    left, right = roots
    count, kept = rows * columns, 0.5
    shares = (1 - kept) * kept ** np.arange(count - 1, -1, -1) / (1 - kept**count)
    # g g^T of A^(1/2) U B^(1/2) sum to A x B over orthonormal U, whatever share each is given
    turn = np.linalg.qr(rng.standard_normal((count, count)))[0]
    grads = [
        left @ column.reshape(shape) @ right / np.sqrt(share)
        for column, share in zip(turn.T, shares, strict=True)
    ]
    fisher = sum(share * np.outer(g.ravel(), g.ravel()) for share, g in zip(shares, grads, strict=True))
    np.testing.assert_allclose(fisher, np.kron(left @ left, right @ right), atol=1e-12)
    path = replay(
        "idealized_shampoo",
        {"w": np.zeros(shape)},
        [{"w": g} for g in grads],
        {"learning_rate": 0.5, "beta2": kept},
        "numpy",
    )
    step = path[-1]["w"] - path[-2]["w"]
    newton = -0.5 * fractional_matrix_power(fisher, -0.5) @ grads[-1].ravel()
    np.testing.assert_allclose(step.ravel(), newton, rtol=1e-9)


def test_the_idealized_first_step_of_a_matrix_of_rank_one_is_its_sign() -> None:
    """sqrt(|G|^2) G / |G|^2: the pseudo-inverses leave the direction, with length 1 at any scale."""
    grad = 7.0 * np.outer([2.0, -1.0, 2.0], [3.0, 4.0])
    (found,) = replay(
        "idealized_shampoo", {"w": np.zeros((3, 2))}, [{"w": grad}], {"learning_rate": 0.5}, "numpy"
    )
    np.testing.assert_allclose(found["w"], -0.5 * grad / np.linalg.norm(grad), rtol=1e-12)


# --- wrong input --------------------------------------------------------------------------------------------


def test_newton_schulz_needs_a_power_that_it_has_for_every_parameter() -> None:
    with pytest.raises(
        InputError, match="newton_schulz' needs a power of 1/2, 1/4, 1/8 or 1/16, and the power is 0"
    ):
        replay("shampoo", {"w": np.zeros((2, 2, 2))}, [], RATE, "numpy", options={"root": "newton_schulz"})
