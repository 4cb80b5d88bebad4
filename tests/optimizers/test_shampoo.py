"""Shampoo and its idealized form alone: closed forms, roots, blocks, lengths."""

from __future__ import annotations

import itertools
from typing import Any
from unittest import mock

import numpy as np
import pytest

from curvebench import replay
from curvebench.optimizers.tensors import second_moment
from curvebench.spec.errors import InputError
from tests.optimizers.families.shampoo import shampoo
from tests.optimizers.loops import Leaf
from tests.optimizers.paths import path_of_one

RATE = {"learning_rate": 0.5, "epsilon": 0.0}


def test_the_first_step_is_the_polar_factor() -> None:
    """(G G^T)^(-1/4) G (G^T G)^(-1/4) = U V^T: Muon's direction."""
    rng = np.random.default_rng(1)
    for shape in ((3, 3), (5, 2), (2, 5)):
        grad = rng.standard_normal(shape)
        u, _, vh = np.linalg.svd(grad, full_matrices=False)
        (found,) = path_of_one("shampoo", np.zeros(shape), [grad], RATE)
        np.testing.assert_allclose(found, -0.5 * u @ vh, atol=1e-12)


@pytest.mark.parametrize("backend", ["numpy", "torch"])
@pytest.mark.parametrize(
    ("root", "shape", "size", "epsilon", "tolerance"),
    [
        *(("eigendecomposition", shape, 1, 0.0, 2e-4) for shape in ((8, 3), (3, 8), (6, 2, 2))),
        *((root, (8, 3), 100, 1e-6, 0.02) for root in ("coupled_newton", "newton_schulz", "tracked_basis")),
    ],
)
def test_singular_statistics_in_float32_keep_the_size_of_steps(
    root: str, shape: tuple[int, ...], size: float, epsilon: float, tolerance: float, backend: str
) -> None:
    """Rounding in the null space is no curvature: its root would be 50 times a true one, or diverge."""
    grad = size * np.random.default_rng(5).standard_normal(shape).astype(np.float32).astype(np.float64)
    start, hyper = np.zeros(shape), {"learning_rate": 0.5, "epsilon": epsilon}
    path = path_of_one("shampoo", start, [grad] * 6, hyper, {"root": root}, backend, "float32")
    expected = list(shampoo(Leaf("weight", start, [grad] * 6), hyper, "sum", None, 1, root))
    np.testing.assert_allclose(path[-1], expected[-1], atol=tolerance)


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
    """G = diag(g): Adagrad's g / (epsilon + sum g^2)^(2 power), 1/4 on each side (002 eqs. 44 and 53)."""
    rng = np.random.default_rng(6)
    diagonals = [rng.uniform(0.5, 2.0, 3) * rng.choice([-1, 1], 3) for _ in range(4)]
    grads = [np.diag(diagonal) for diagonal in diagonals]
    for power, given in ((1 / 4, {}), (1 / 2, {"power": 0.5})):
        hyper = {"learning_rate": 0.5, "epsilon": 0.25}
        path = path_of_one("shampoo", np.zeros((3, 3)), grads, hyper, {**options, **given})
        w = np.zeros(3)
        for t, found in enumerate(path, start=1):
            w = w - 0.5 * diagonals[t - 1] * (0.25 + np.sum(np.square(diagonals[:t]), axis=0)) ** (-2 * power)
            np.testing.assert_allclose(found, np.diag(w), rtol=1e-12, atol=1e-13)


def test_a_tracked_basis_comes_to_the_eigenvectors_of_statistics_that_settle() -> None:
    """One iteration a step on t G G^T: columns converge at the ratio of squared singular values (002 Q.2)."""
    rng = np.random.default_rng(9)
    u, v = (np.linalg.qr(rng.standard_normal((3, 3)))[0] for _ in range(2))
    grads = [(u * [4.0, 2.0, 1.0]) @ v] * 30
    start, hyper = np.zeros((3, 3)), {"learning_rate": 1.0, "epsilon": 0.1}
    exact = np.diff(path_of_one("shampoo", start, grads, hyper), axis=0)
    path = path_of_one("shampoo", start, grads, hyper, {"root": "tracked_basis"})
    apart = np.linalg.norm(np.diff(path, axis=0) - exact, axis=(1, 2))
    assert apart[0] > 1e-2
    assert apart[-1] < 1e-12
    rates = apart[5:15] / apart[4:14]
    assert (rates < 0.3).all(), "about 1/4, the ratio of neighbouring eigenvalues"


# --- blocks and lengths ------------------------------------------------------------------------------------


@pytest.mark.parametrize("root", ROOTS, ids=lambda options: options["root"])
@pytest.mark.parametrize(
    ("shape", "size", "cuts"),
    [
        ((4, 6), 6, [[(0, 4)], [(0, 6)]]),
        ((5, 3), 4, [[(0, 3), (3, 5)], [(0, 3)]]),  # two blocks, the second filled up
        ((7,), 3, [[(0, 3), (3, 6), (6, 7)]]),
        ((3, 2, 2, 2), 2, [[(0, 2), (2, 3)], [(0, 2)], [(0, 2)], [(0, 2)]]),
    ],
)
def test_blocks_are_parameters_of_their_own(
    shape: tuple[int, ...], size: int, cuts: list[list[tuple[int, int]]], root: dict[str, Any]
) -> None:
    rng = np.random.default_rng(11)
    start, grads = rng.standard_normal(shape), [rng.standard_normal(shape) for _ in range(4)]
    hyper, given = {"learning_rate": 0.5, "epsilon": 0.1}, {**root, "power": 0.25}

    def final(block: tuple[slice, ...], **more: int) -> np.ndarray:
        some = [g[block] for g in grads]
        return path_of_one("shampoo", start[block], some, hyper, {**given, **more})[-1]

    whole = final((), block_size=size)
    for ranges in itertools.product(*cuts):
        block = tuple(itertools.starmap(slice, ranges))
        np.testing.assert_allclose(whole[block], final(block), rtol=1e-9, atol=1e-10)


def test_a_step_with_new_roots_adds_its_outer_products_once() -> None:
    """2 m n (m + n) + m^2 + n^2 operations less than twice: counted, with a root that costs nothing."""
    calls = 0

    def counted(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        return second_moment(*arguments)

    with mock.patch("curvebench.optimizers.shampoo.second_moment", counted):
        replay("shampoo", {"w": np.zeros((3, 2))}, [{"w": np.ones((3, 2))}] * 4, RATE, "numpy")
    assert calls == 4 * 2


# --- wrong input --------------------------------------------------------------------------------------------


def test_newton_schulz_needs_a_power_that_it_has_for_every_parameter() -> None:
    with pytest.raises(
        InputError, match="newton_schulz' needs a power of 1/2, 1/4, 1/8 or 1/16, and the power is 0"
    ):
        replay("shampoo", {"w": np.zeros((2, 2, 2))}, [], RATE, "numpy", options={"root": "newton_schulz"})
