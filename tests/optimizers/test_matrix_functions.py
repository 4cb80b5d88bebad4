"""Matrix functions: against closed forms and SciPy, on three backends, batched, degenerate and compiled."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import fractional_matrix_power, polar

from curvebench.arrays.numpy_ops import numpy_ops
from curvebench.backends.engine import engine
from curvebench.optimizers import matrix_functions as mf

BACKENDS = ("numpy", "jax", "torch")
ROUNDING = {"float64": 1e-12, "float32": 2e-5}
OPS = numpy_ops("float64")


@cache
def compiled(function: Callable[..., Any], dtype: str) -> Callable[..., Any]:
    """Return the function on JAX as one program: operation by operation it takes far longer to compile."""
    import jax

    return jax.jit(partial(function, engine("jax", dtype).ops))


def calculated(backend: str, dtype: str, function: Callable[..., Any], *arrays: np.ndarray) -> Any:
    """Return a function's results on a backend, on the host; integers stay integers."""
    made = None if backend == "numpy" else engine(backend, dtype)
    ops = numpy_ops(dtype) if made is None else made.ops
    with nullcontext() if made is None else made.context():
        call = compiled(function, dtype) if backend == "jax" else partial(function, ops)
        results = call(*map(ops.asarray, arrays))
        if isinstance(results, tuple):
            return tuple(np.array(ops.to_numpy(result)) for result in results)
        return np.array(ops.to_numpy(results))


def orthonormal(seed: int, rows: int, columns: int) -> np.ndarray:
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((rows, columns)))[0]


def with_singular_values(seed: int, rows: int, columns: int, values: Any) -> tuple[np.ndarray, ...]:
    """U, V and U diag(values) V^T."""
    u, v = orthonormal(seed, rows, len(values)), orthonormal(seed + 1, columns, len(values))
    return u, v, (u * np.asarray(values, float)) @ v.T


def symmetric(seed: int, values: Any) -> tuple[np.ndarray, np.ndarray]:
    """Q, and Q diag(values) Q^T."""
    q = orthonormal(seed, len(values), len(values))
    return q, (q * np.asarray(values, float)) @ q.T


def error(found: np.ndarray, wanted: np.ndarray) -> float:
    return float(np.max(np.abs(found - wanted)) / max(np.max(np.abs(wanted)), 1e-300))


# --- polynomials ---------------------------------------------------------------------------------


def odd(polynomial: tuple[float, ...]) -> np.polynomial.Polynomial:
    powers = np.zeros(2 * len(polynomial))
    powers[1::2] = polynomial
    return np.polynomial.Polynomial(powers)


def composed(coefficients: Any, values: np.ndarray, steps: int) -> Any:
    """Return the singular values after `steps` steps; the last polynomial is repeated."""
    result: Any = values
    for step in range(steps):
        result = odd(coefficients[min(step, len(coefficients) - 1)])(result)
    return result


def test_the_cubic_and_the_quintic_are_as_flat_at_1_as_their_degree_permits():
    for name, order in (("cubic", 1), ("quintic", 2)):
        (polynomial,) = mf.COEFFICIENTS[name]
        assert odd(polynomial)(1.0) == 1.0
        assert [odd(polynomial).deriv(k)(1.0) for k in range(1, order + 1)] == [0.0] * order


def test_jordans_quintic_brings_singular_values_from_0_02_on_near_1_in_5_steps():
    assert mf.COEFFICIENTS["jordan"] == ((3.4445, -4.7750, 2.0315),)
    x = composed(mf.COEFFICIENTS["jordan"], np.linspace(0.02, 1, 100_001), 5)
    assert 0.68 < x.min() < x.max() < 1.21


def minimax_quintic(low: float, high: float) -> np.ndarray:
    """Return the odd quintic nearest to 1 on an interval, by Remez: its error is E, -E, E and -E at four
    points.
    """
    points = np.array([low, (3 * low + high) / 4, (low + 3 * high) / 4, high])
    signs = np.array([1.0, -1.0, 1.0, -1.0])
    for _ in range(50):
        a, b, c, _ = np.linalg.solve(np.stack([points, points**3, points**5, signs], axis=1), np.ones(4))
        points[1:3] = np.sqrt((-3 * b + np.array([-1, 1]) * np.sqrt(9 * b**2 - 20 * a * c)) / (10 * c))
    return np.array([a, b, c])


def test_polar_express_is_the_best_composition_of_quintics():
    """Amsel et al. 2025, Implementation 1: each is minimax where the ones before it map [1e-3, 1].

    An interval that begins below 0.024 times its end is cut there, and the polynomial is scaled so that it
    maps the whole interval to one around 1. The seventh polynomial has an error of 1e-9, which is known to
    fewer digits, and so are its coefficients.
    """
    low, high = 1e-3, 1.0
    *quintics, last = mf.COEFFICIENTS["polar_express"]
    for number, coefficients in enumerate(quintics, start=1):
        wanted = minimax_quintic(max(low, 0.02407327424182761 * high), high)
        wanted *= 2 / (odd(tuple(wanted))(low) + odd(tuple(wanted))(high))
        np.testing.assert_allclose(coefficients, wanted, rtol=1e-12 if number < 7 else 1e-9)
        low = odd(tuple(wanted))(low)
        high = 2 - low
    assert (last,) == mf.COEFFICIENTS["quintic"]  # the limit for an interval that shrinks to 1


@pytest.mark.parametrize(("steps", "least", "most"), [(5, 0.1, 0.13), (6, 1e-3, 1.3e-3), (7, 1e-10, 2e-9)])
def test_polar_express_brings_singular_values_from_1e_3_on_near_1(steps: int, least: float, most: float):
    x = composed(mf.COEFFICIENTS["polar_express"], np.geomspace(1e-3, 1, 20_001), steps)
    assert least < np.max(np.abs(x - 1)) < most


# --- polar factors -------------------------------------------------------------------------------

SHAPES = [(3, 3), (2, 5), (5, 2), (1, 4), (4, 1), (1, 1)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", mf.COEFFICIENTS)
def test_newton_schulz_maps_singular_values_by_the_composed_polynomial(name: str, shape: tuple[int, int]):
    values = np.geomspace(1, 0.01, min(shape))
    u, v, matrix = with_singular_values(1, *shape, values)
    found = mf.newton_schulz(OPS, matrix, mf.COEFFICIENTS[name], 6)
    assert (
        error(found, (u * composed(mf.COEFFICIENTS[name], values / np.linalg.norm(values), 6)) @ v.T) < 1e-11
    )


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["jordan", "polar_express"])
def test_newton_schulz_in_float32_is_as_near_as_the_polynomial_is_steep(name: str, backend: str):
    """A rounded singular value of 1 moves as the composition's slope there says: up to 70,000."""
    values = np.array([1.0, 0.01, 0.001])
    u, v, matrix = with_singular_values(2, 4, 3, values)
    values = values / np.linalg.norm(values)
    wanted = composed(mf.COEFFICIENTS[name], values, 6)
    eps = float(np.finfo(np.float32).eps)
    shifted = [composed(mf.COEFFICIENTS[name], values * (1 + sign * 4 * eps), 6) for sign in (-1, 1)]
    slope = max(float(np.max(np.abs(each - wanted))) for each in shifted)
    found = calculated(
        backend, "float32", lambda ops, x: mf.newton_schulz(ops, x, mf.COEFFICIENTS[name], 6), matrix
    )
    assert found.dtype == "float32"
    assert error(found, (u * wanted) @ v.T) < slope + 50 * eps


@pytest.mark.parametrize("shape", SHAPES)
def test_newton_schulz_and_the_exact_factor_are_scipys_polar_factor(shape: tuple[int, int]):
    matrix = np.random.default_rng(5).standard_normal(shape)
    wanted = polar(matrix)[0]
    assert error(mf.orthogonal_factor(OPS, matrix), wanted) < 1e-13
    assert error(mf.newton_schulz(OPS, matrix, mf.COEFFICIENTS["quintic"], 25), wanted) < 1e-13
    assert error(mf.newton_schulz(OPS, matrix, mf.COEFFICIENTS["polar_express"]), wanted) < 1e-12


@pytest.mark.parametrize("coefficients", [(), ((),), ((1.5, -0.5), ())])
def test_no_polynomial_is_refused(coefficients: Any):
    with pytest.raises(ValueError, match="one polynomial or more"):
        mf.newton_schulz(OPS, np.eye(2), coefficients)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_polar_factors_do_not_depend_on_scale_in_float32(scale: float, backend: str):
    _, _, matrix = with_singular_values(7, 4, 3, [1.0, 0.5, 0.2])
    wanted = polar(matrix)[0]

    def both(ops: Any, x: Any) -> Any:
        return mf.newton_schulz(ops, x, mf.COEFFICIENTS["polar_express"]), mf.orthogonal_factor(ops, x)

    for found in calculated(backend, "float32", both, scale * matrix):
        assert error(found, wanted) < 5e-6


@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(1, 6), st.integers(0, 6))
def test_the_exact_factor_is_a_partial_isometry_on_the_range(seed: int, rows: int, columns: int, rank: int):
    rank = min(rank, rows, columns)
    values = np.geomspace(1, 1e-3, rank) if rank else np.zeros(0)
    u, v, matrix = with_singular_values(seed, rows, columns, values)
    factor = mf.orthogonal_factor(OPS, matrix)
    np.testing.assert_allclose(factor.T @ factor, v @ v.T, atol=1e-11)
    np.testing.assert_allclose(factor @ factor.T, u @ u.T, atol=1e-11)
    np.testing.assert_allclose(u @ u.T @ matrix, factor @ (v * values) @ v.T, atol=1e-11)


# --- inverse roots -------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("exponent", [1 / 4, 1 / 2, 1.0])
def test_the_inverse_root_is_scipys(exponent: float, dtype: str):
    _, matrix = symmetric(8, [4.0, 1.0, 0.5, 0.1])
    damped = 0.05
    found = calculated("numpy", dtype, lambda ops, x: mf.inverse_root(ops, x, exponent, damped), matrix)
    assert found.dtype == dtype
    assert error(found, fractional_matrix_power(matrix + damped * np.eye(4), -exponent)) < ROUNDING[dtype]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_without_damping_the_inverse_root_of_a_singular_matrix_is_that_of_its_range(backend: str, dtype: str):
    q, matrix = symmetric(9, [4.0, 1.0, 0.0, 0.0])

    def pseudo(ops: Any, x: Any) -> Any:
        return mf.inverse_root(ops, x, 0.5, cutoff=mf.rank_cutoff(ops, 4))

    wanted = (q * [0.5, 1.0, 0.0, 0.0]) @ q.T
    assert error(calculated(backend, dtype, pseudo, matrix), wanted) < 10 * ROUNDING[dtype]


def test_eigenvalues_below_0_count_as_0_and_damping_comes_after():
    found = mf.inverse_root(OPS, np.diag([1.0, 0.0, -0.5]), 0.5, 0.25)
    np.testing.assert_allclose(found, np.diag([1.25**-0.5, 2.0, 2.0]), rtol=1e-15)
    np.testing.assert_array_equal(mf.inverse_root(OPS, np.diag([4.0, 0.0, -1.0]), 0.5), np.diag([0.5, 0, 0]))


@pytest.mark.parametrize("columns", [1, 4, 7])
def test_the_product_with_an_inverse_root_leaves_out_what_is_below_the_cutoff(columns: int):
    q, matrix = symmetric(27, [4.0, 1.0, 0.5, 0.001])
    other = np.random.default_rng(27).standard_normal((3, 4, columns))
    values = np.array([4.0, 1.0, 0.5, np.inf]) ** -0.5
    found = mf.inverse_root_product(OPS, np.stack([matrix] * 3), other, 0.5, np.full((1, 1, 1), 1e-3))
    np.testing.assert_allclose(found, (q * values) @ q.T @ other, atol=1e-13)


# --- bases that follow a matrix ------------------------------------------------------------------


@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(1, 12))
def test_power_iteration_is_the_normalized_power(seed: int, size: int, steps: int):
    generator = np.random.default_rng(seed)
    _, matrix = symmetric(seed, generator.uniform(0.5, 2.0, size))
    start = generator.standard_normal(size)
    wanted = np.linalg.matrix_power(matrix, steps) @ start
    found = mf.power_iteration(OPS, matrix, start, steps)
    np.testing.assert_allclose(found, wanted / np.linalg.norm(wanted), atol=1e-12)


@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(1, 6))
def test_an_orthogonal_iteration_is_an_orthonormal_basis_of_the_product(seed: int, rows: int, columns: int):
    columns = min(rows, columns)
    generator = np.random.default_rng(seed)
    _, matrix = symmetric(seed, generator.uniform(0.5, 2.0, rows))
    basis = orthonormal(seed + 1, rows, columns)
    found = mf.orthogonal_iteration(OPS, matrix, basis)
    np.testing.assert_allclose(found.T @ found, np.eye(columns), atol=1e-13)
    product = matrix @ basis
    np.testing.assert_allclose(found @ (found.T @ product), product, atol=1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_order_descends_and_keeps_equal_values(backend: str):
    values = np.array([[1.0, 3.0, 2.0, 3.0], [0.0, 0.0, -1.0, 5.0]])
    found = calculated(backend, "float64", mf.descending_order, values)
    np.testing.assert_array_equal(found, [[1, 3, 2, 0], [3, 0, 1, 2]])


def test_signs_follow_the_previous_basis_and_no_column_vanishes():
    previous = np.eye(3)
    basis = np.array([[-0.8, 0.0, 0.6], [0.6, 0.0, 0.8], [0.0, 1.0, 0.0]])
    found = mf.align_signs(OPS, basis, previous)
    np.testing.assert_array_equal(found, basis * [-1.0, 1.0, 1.0])


@given(st.integers(0, 10**6), st.integers(1, 6))
def test_the_labelled_iteration_is_qr_of_the_product_with_its_columns_sorted(seed: int, size: int):
    _, matrix = symmetric(seed, np.random.default_rng(seed).uniform(0.5, 2.0, size))
    basis = orthonormal(seed + 1, size, size)
    found = mf.labelled_orthogonal_iteration(OPS, matrix, basis)
    order = np.argsort(-np.diagonal(basis.T @ matrix @ basis), kind="stable")
    wanted = np.linalg.qr(matrix @ basis[:, order])[0]
    np.testing.assert_allclose(np.abs(np.sum(found[:, order] * wanted, axis=0)), 1, rtol=1e-10)
    assert np.sum(found * basis, axis=0).min() >= 0


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_labelled_iteration_leaves_eigenvectors_where_they_are(backend: str):
    q, matrix = symmetric(17, [4.0, 3.0, 2.0, 1.0])
    shuffled = (q * [1, -1, 1, -1])[:, [2, 0, 3, 1]]
    basis = calculated(backend, "float64", mf.labelled_orthogonal_iteration, matrix, shuffled)
    np.testing.assert_allclose(basis, shuffled, atol=1e-13)


# --- every function ------------------------------------------------------------------------------

GENERATOR = np.random.default_rng(25)
GENERAL = GENERATOR.standard_normal((3, 4, 6))
ROOTS = np.stack([symmetric(seed, [3.0, 1.5, 0.7, 0.2])[1] for seed in range(3)])
ORTHOGONAL = np.stack([orthonormal(seed, 4, 4) for seed in range(3)])
VECTORS = GENERATOR.standard_normal((3, 4))


# function without free signs, and its arguments with a leading axis of three
EVERY: dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...]]] = {
    "newton_schulz": (lambda ops, x: mf.newton_schulz(ops, x, mf.COEFFICIENTS["jordan"], 5), (GENERAL,)),
    "newton_schulz_tall": (
        lambda ops, x: mf.newton_schulz(ops, x, mf.COEFFICIENTS["polar_express"]),
        (GENERAL.mT.copy(),),
    ),
    "orthogonal_factor": (mf.orthogonal_factor, (GENERAL,)),
    "inverse_root": (lambda ops, x: mf.inverse_root(ops, x, 0.25, 1e-3), (ROOTS,)),
    "power_iteration": (lambda ops, x, v: mf.power_iteration(ops, x, v, 6), (ROOTS, VECTORS)),
    "orthogonal_iteration": (
        lambda ops, x, v: mf.align_signs(ops, mf.orthogonal_iteration(ops, x, v), v),
        (ROOTS, ORTHOGONAL),
    ),
    "online_orthogonal_iteration": (mf.online_orthogonal_iteration, (ROOTS, ORTHOGONAL)),
    "labelled_orthogonal_iteration": (mf.labelled_orthogonal_iteration, (ROOTS, ORTHOGONAL)),
}


def both(results: Any) -> list[np.ndarray]:
    return list(results) if isinstance(results, tuple) else [results]


@pytest.mark.parametrize("backend", ["numpy", "torch"])  # jax maps single matrices further below
@pytest.mark.parametrize("name", EVERY)
def test_a_batch_is_its_matrices_one_by_one(name: str, backend: str):
    function, arrays = EVERY[name]
    batched = both(calculated(backend, "float64", function, *arrays))
    deeper = both(calculated(backend, "float64", function, *(array[:, None] for array in arrays)))
    for lane in range(3):
        alone = both(calculated(backend, "float64", function, *(array[lane] for array in arrays)))
        for stacked, deep, single in zip(batched, deeper, alone, strict=True):
            np.testing.assert_allclose(stacked[lane], single, rtol=1e-12, atol=1e-13)
            np.testing.assert_allclose(deep[lane, 0], single, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("backend", ["jax", "torch"])
@pytest.mark.parametrize("name", EVERY)
def test_backends_agree_with_numpy_and_keep_the_precision(name: str, backend: str, dtype: str):
    function, arrays = EVERY[name]
    wanted = both(calculated("numpy", "float64", function, *arrays))
    for found, expected in zip(both(calculated(backend, dtype, function, *arrays)), wanted, strict=True):
        assert found.dtype == dtype or found.dtype.kind == "i"
        assert error(found, expected) < 10 * ROUNDING[dtype]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", EVERY)
def test_a_zero_matrix_gives_finite_values(name: str, backend: str):
    function, (matrix, *others) = EVERY[name]
    results = both(calculated(backend, "float64", function, np.zeros_like(matrix), *others))
    assert all(np.all(np.isfinite(found)) for found in results)
    if name in ("newton_schulz", "newton_schulz_tall", "orthogonal_factor"):
        assert not any(found.any() for found in results)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", EVERY)
def test_a_lane_that_is_not_finite_stays_so_and_spoils_no_other(name: str, backend: str):
    function, (matrix, *others) = EVERY[name]
    spoiled = matrix.copy()
    spoiled[1, 0, 0] = np.nan
    wanted = both(calculated(backend, "float64", function, matrix, *others))
    found = both(calculated(backend, "float64", function, spoiled, *others))
    assert not np.isfinite(found[0][1]).all()
    for after, before in zip(found, wanted, strict=True):
        np.testing.assert_allclose(after[[0, 2]], before[[0, 2]], rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", EVERY)
def test_torch_captures_each_function_in_one_graph(name: str):
    import torch

    function, arrays = EVERY[name]
    made = engine("torch", "float64")
    torch.compiler.reset()
    compiled = torch.compile(lambda *given: function(made.ops, *given), backend="eager", fullgraph=True)
    with made.context():
        found = both(compiled(*map(made.ops.asarray, arrays)))
    for result, expected in zip(found, both(calculated("torch", "float64", function, *arrays)), strict=True):
        np.testing.assert_allclose(np.asarray(result), expected, rtol=1e-12, atol=1e-13)
