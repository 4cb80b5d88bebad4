"""Shampoo alone: singular statistics in float32, blocks, and work that is done once."""

from __future__ import annotations

import itertools
from typing import Any
from unittest import mock

import numpy as np
import pytest

from curvebench import replay
from curvebench.optimizers.tensors import second_moment
from tests.optimizers.families.shampoo import shampoo
from tests.optimizers.loops import Leaf
from tests.optimizers.paths import path_of_one

RATE = {"learning_rate": 0.5, "epsilon": 0.0}


@pytest.mark.parametrize("backend", ["numpy", "torch"])
@pytest.mark.parametrize("shape", [(8, 3), (3, 8), (6, 2, 2)])
def test_singular_statistics_in_float32_keep_the_size_of_steps(shape: tuple[int, ...], backend: str):
    """Rounding in the null space is no curvature: its root would be 50 times a true one."""
    grad = np.random.default_rng(5).standard_normal(shape).astype(np.float32).astype(np.float64)
    start = np.zeros(shape)
    path = path_of_one("shampoo", start, [grad] * 6, RATE, {}, backend, "float32")
    expected = list(shampoo(Leaf("weight", start, [grad] * 6), RATE, "sum", None, 1))
    np.testing.assert_allclose(path[-1], expected[-1], atol=2e-4)


# --- blocks and lengths ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "size", "cuts"),
    [
        ((4, 6), 6, [[(0, 4)], [(0, 6)]]),
        ((5, 3), 4, [[(0, 3), (3, 5)], [(0, 3)]]),  # two blocks, the second filled up
        ((7,), 3, [[(0, 3), (3, 6), (6, 7)]]),
        ((3, 2, 2, 2), 2, [[(0, 2), (2, 3)], [(0, 2)], [(0, 2)], [(0, 2)]]),
    ],
)
def test_blocks_are_parameters(shape: tuple[int, ...], size: int, cuts: list[list[tuple[int, int]]]):
    rng = np.random.default_rng(11)
    start, grads = rng.standard_normal(shape), [rng.standard_normal(shape) for _ in range(4)]
    hyper = {"learning_rate": 0.5, "epsilon": 0.1}

    def final(block: tuple[slice, ...], **more: int) -> np.ndarray:
        some = [g[block] for g in grads]
        return path_of_one("shampoo", start[block], some, hyper, {"power": 0.25, **more})[-1]

    whole = final((), block_size=size)
    for ranges in itertools.product(*cuts):
        block = tuple(itertools.starmap(slice, ranges))
        np.testing.assert_allclose(whole[block], final(block), rtol=1e-9, atol=1e-10)


def test_a_step_with_new_roots_adds_its_outer_products_once():
    """2 m n (m + n) + m^2 + n^2 operations less than twice: counted, with a root that costs nothing."""
    calls = 0

    def counted(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        return second_moment(*arguments)

    with mock.patch("curvebench.optimizers.shampoo.second_moment", counted):
        replay("shampoo", {"w": np.zeros((3, 2))}, [{"w": np.ones((3, 2))}] * 4, RATE, "numpy")
    assert calls == 4 * 2
