"""Changes of coordinates against their matrices J, on every backend."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from curvebench.arrays.numpy_ops import numpy_ops
from curvebench.backends.engine import engine
from curvebench.optimizers.bases import CHANGES

SEEDS, SETTINGS, FILTERS, SIZE, RANK = 2, 3, 4, 6, 2
ENTRIES = FILTERS * SIZE


def matrices(change: str) -> np.ndarray:
    """V of two seeds: of all entries, of one filter, or its leading columns."""
    rows = SIZE if change == "shared" else ENTRIES
    columns = RANK if CHANGES[change].leading else rows
    rng = np.random.default_rng(0)
    drawn = [np.linalg.qr(rng.standard_normal((rows, rows)))[0][:, :columns] for _ in range(SEEDS)]
    return np.stack(drawn)


def jacobian(change: str, matrix: np.ndarray) -> np.ndarray:
    """J by the formula of the paper."""
    if change == "shared":
        return np.kron(np.eye(FILTERS), matrix)
    if change == "auxiliary":
        return np.concatenate([matrix, np.eye(len(matrix)) - matrix @ matrix.T], axis=1)
    return matrix


@pytest.mark.parametrize("backend", ["numpy", "jax", "torch"])
@pytest.mark.parametrize("name", CHANGES)
def test_both_ways_are_products_with_the_matrix(name: str, backend: str) -> None:
    change, drawn = CHANGES[name], matrices(name)
    made = None if backend == "numpy" else engine(backend, "float64")
    ops: Any = numpy_ops("float64") if made is None else made.ops
    rng = np.random.default_rng(1)
    coordinates = change.coordinates(ENTRIES, drawn.shape[-1])
    given = rng.standard_normal((SEEDS, SETTINGS, coordinates))
    theta = rng.standard_normal((SEEDS, SETTINGS, ENTRIES))

    def applied() -> list[np.ndarray]:
        matrix = ops.asarray(drawn)
        pairs = ((change.to_parameters, given), (change.to_coordinates, theta))
        return [np.array(ops.to_numpy(apply(ops, matrix, ops.asarray(flat)))) for apply, flat in pairs]

    if made is None:
        found = applied()
    else:
        with made.context():
            found = applied()
    for seed in range(SEEDS):
        j = jacobian(name, drawn[seed])
        assert j.shape == (ENTRIES, coordinates)
        np.testing.assert_allclose(found[0][seed], given[seed] @ j.T, atol=1e-13)
        np.testing.assert_allclose(found[1][seed], theta[seed] @ j, atol=1e-13)


@pytest.mark.parametrize("name", CHANGES)
def test_all_but_the_reduced_one_reconstruct_the_start(name: str) -> None:
    """J J^T theta_0 = theta_0; in the span of V_r alone it is the projection (000 D.1.1)."""
    change, drawn, ops = CHANGES[name], matrices(name), numpy_ops("float64")
    theta = np.random.default_rng(2).standard_normal((SEEDS, SETTINGS, ENTRIES))
    back = change.to_parameters(ops, drawn, change.to_coordinates(ops, drawn, theta))
    if name == "reduced":
        wanted = np.einsum("sir,sjr,skj->ski", drawn, drawn, theta)
        np.testing.assert_allclose(back, wanted, atol=1e-13)
        assert np.abs(back - theta).max() > 0.1
    else:
        np.testing.assert_allclose(back, theta, atol=1e-13)
