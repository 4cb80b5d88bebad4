"""Steps of a spectral factorization: against plain NumPy, on three backends, and at the ends of the range."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curvebench.arrays.numpy_ops import numpy_ops
from curvebench.optimizers import matrix_functions as mf
from curvebench.optimizers.matrix_functions import KroneckerSpectrum, SpectralMaps, Spectrum
from curvebench.optimizers.tensors import multiplied, second_moment
from tests.optimizers.spectral_reference import Kronecker, Ways, cayley, full_step, generator
from tests.optimizers.test_matrix_functions import BACKENDS, calculated, orthonormal

OPS = numpy_ops("float64")
MAPS = [
    SpectralMaps(exponential, cayley, normalized, tie_tolerance)
    for exponential in ("exact", "first_order")
    for cayley in ("exact", "truncated")
    for normalized in (False, True)
    for tie_tolerance in (0.0, 0.2)
]
seeds = st.integers(0, 10**6)
sizes = st.integers(1, 6)


def name_of(maps: SpectralMaps) -> str:
    rotation = "normalized" if maps.normalized else "plain"
    return f"{maps.exponential}-{maps.cayley}-{rotation}-{maps.tie_tolerance}"


def ways(maps: SpectralMaps, rate: float = 0.1, gamma: float = 1.0, damping: float = 0.02) -> Ways:
    return Ways(rate, gamma, damping, 0.3, maps.exponential, maps.cayley, maps.normalized, maps.tie_tolerance)


def numbers(given: Ways) -> dict[str, Any]:
    return {
        "rate": given.rate,
        "gamma": given.gamma,
        "damping": given.damping,
        "rotation_rate": given.rotation_rate,
    }


def spectrum(seed: int, size: int) -> Spectrum:
    """Return a spectrum of distinct values, neighbours of which differ by 15 %."""
    rng = np.random.default_rng(seed)
    return Spectrum(orthonormal(seed, size, size), rng.permutation(1.15 ** np.arange(size)))


def curvature(seed: int, size: int) -> np.ndarray:
    """Return a symmetric matrix with eigenvalues of both signs."""
    drawn = np.random.default_rng([seed, 2]).standard_normal((size, size))
    return np.asarray(drawn + drawn.T) / 4


def outer_product(seed: int, size: int) -> np.ndarray:
    gradient = np.random.default_rng([seed, 3]).standard_normal(size)
    return np.outer(gradient, gradient)


def matrix(given: Spectrum) -> np.ndarray:
    return np.asarray((given.basis * given.values) @ given.basis.T)


# --- one matrix ----------------------------------------------------------------------------------


@pytest.mark.parametrize("maps", MAPS, ids=name_of)
def test_a_step_is_that_of_a_plain_loop(maps: SpectralMaps):
    for gamma in (0.0, 1.0):
        begun, chosen = spectrum(1, 5), ways(maps, gamma=gamma)
        found = mf.spectral_step(OPS, begun, curvature(1, 5), maps=maps, **numbers(chosen))
        basis, values = full_step(begun.basis, begun.values, curvature(1, 5), chosen)
        np.testing.assert_allclose(found.values, values, rtol=1e-14)
        np.testing.assert_allclose(found.basis, basis, atol=1e-14)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_lanes_with_rates_of_their_own_on_every_backend(backend: str, dtype: str):
    rates, begun = np.array([[0.05], [0.1]]), spectrum(2, 4)
    maps = SpectralMaps("first_order", "truncated", True, 0.01)
    lanes = [np.stack([array] * 2) for array in (begun.basis, begun.values, outer_product(2, 4))]

    def stepped(ops: Any, basis: Any, values: Any, curved: Any, rate: Any) -> Any:
        return mf.spectral_step(ops, Spectrum(basis, values), curved, rate, rate * 5, maps, rate, rate * 2)

    basis, values = calculated(backend, dtype, stepped, *lanes, rates)
    assert basis.dtype == values.dtype == dtype
    for lane, (rate,) in enumerate(rates):
        chosen = Ways(rate, 5 * rate, rate, 2 * rate, "first_order", "truncated", True, 0.01)
        wanted = full_step(begun.basis, begun.values, outer_product(2, 4), chosen)
        tolerance = 1e-13 if dtype == "float64" else 2e-5
        np.testing.assert_allclose(basis[lane], wanted[0], atol=tolerance)
        np.testing.assert_allclose(values[lane], wanted[1], rtol=tolerance)


@given(seeds, sizes, st.floats(0.01, 0.99))
def test_the_truncated_map_errs_by_the_eighth_power(seed: int, size: int, length: float):
    drawn = np.random.default_rng(seed).standard_normal((size, size))
    skew = drawn - drawn.T
    skew *= length / (np.linalg.norm(skew) or 1.0)
    basis, norm = orthonormal(seed, size, size), np.linalg.norm(skew, 2)
    exact, truncated = (mf.CAYLEYS[kind](OPS, basis, skew) for kind in ("exact", "truncated"))
    np.testing.assert_allclose(exact, basis @ cayley(skew, "exact"), atol=1e-13)
    np.testing.assert_allclose(truncated, basis @ cayley(skew, "truncated"), atol=1e-13)
    # Cayley(X) is I + 2 (X + X^2 + ...), and the truncated map ends in 2 X^7 + X^8
    assert np.linalg.norm(truncated - exact, 2) <= norm**8 * (1 + 2 * norm) + 1e-14


def test_products_on_the_small_part_round_less_than_the_product_of_maps():
    """In float32: B + B E keeps B to the rounding of E, which is the smaller the smaller X is."""
    size, ops = 64, numpy_ops("float32")
    drawn = np.random.default_rng(4).standard_normal((size, size))
    skew = ((drawn - drawn.T) * (1e-3 / np.linalg.norm(drawn - drawn.T))).astype("float32")
    basis = orthonormal(4, size, size).astype("float32")
    exact = basis.astype(float) @ cayley(skew.astype(float), "truncated")
    plain = (basis @ cayley(skew, "truncated").astype("float32")).astype(float)
    found = mf.CAYLEYS["truncated"](ops, basis, skew).astype(float)
    assert np.linalg.norm(found - exact) < 0.3 * np.linalg.norm(plain - exact)


def test_ties_are_not_rotated_and_their_width_is_relative_to_the_larger():
    values = np.array([1.0, 1.0, 2.0, 2.1])
    inside = np.ones((4, 4))
    for tolerance, tied in ((0.0, [(0, 1)]), (0.04, [(0, 1)]), (0.05, [(0, 1), (2, 3)])):
        for scale in (1e-30, 1.0, 1e30):
            skew = mf.rotation_generator(OPS, scale * values, scale * inside, tolerance)
            np.testing.assert_array_equal(skew, -skew.T)
            assert [(i, j) for i in range(4) for j in range(i + 1, 4) if skew[i, j] == 0] == tied
            np.testing.assert_allclose(skew, generator(values, inside, tolerance), rtol=1e-14)


def test_equal_values_leave_the_basis_and_a_normalized_rotation_finite():
    begun = Spectrum(orthonormal(5, 4, 4), np.ones(4))
    for maps in MAPS:
        found = mf.spectral_step(OPS, begun, curvature(5, 4), maps=maps, **numbers(ways(maps, damping=2.0)))
        np.testing.assert_allclose(found.basis, begun.basis, atol=1e-15)


def test_a_normalized_rotation_has_the_length_that_is_asked_for():
    begun = spectrum(6, 5)
    maps = SpectralMaps(normalized=True)
    turned = mf.spectral_step(OPS, begun, curvature(6, 5), 0.1, 1.0, maps, 0.0, 1e-4)
    assert np.linalg.norm(turned.basis - begun.basis) == pytest.approx(1e-4, rel=1e-6)
    with pytest.raises(ValueError, match="needs its rotation_rate"):
        mf.spectral_step(OPS, begun, curvature(6, 5), 0.1, 1.0, maps)


def test_an_overflow_or_a_value_that_is_not_positive_shows():
    begun = Spectrum(np.eye(2), np.array([1.0, 2.0]))
    with np.errstate(all="ignore"):
        grown = mf.spectral_step(OPS, begun, 1e4 * np.ones((2, 2)), 0.5)
        assert np.isinf(grown.values).all()
        assert np.isnan(mf.spectral_power(OPS, grown.values, 2)).all()
        fallen = mf.spectral_step(OPS, begun, -10 * np.eye(2), 0.5, 1.0, SpectralMaps("first_order"))
        assert np.isnan(mf.spectral_power(OPS, fallen.values, 2)).all()


def test_what_is_left_of_a_value_that_decays_whole_is_its_damping():
    """However far below the value: 1 + x would be 0."""
    maps = SpectralMaps("first_order")
    begun = Spectrum(np.eye(2), np.array([1e12, 1e10]))
    fallen = mf.spectral_step(OPS, begun, np.diag([1.0, 0.0]), 1.0, 1.0, maps, 1e-8)
    np.testing.assert_allclose(fallen.values, [1 + 1e-8, 1e-8], rtol=1e-12)
    factors = (Spectrum(np.eye(2), np.array([1e12, 1e-12])), Spectrum(np.eye(1), np.ones(1)))
    inside = (np.diag([1.0, 0.0]), np.zeros((1, 1)))
    begun_of_axes = KroneckerSpectrum(np.ones(1), factors)
    fallen_of_axes = mf.kronecker_spectral_step(OPS, begun_of_axes, inside, 1.0, 1.0, maps, 1e-8)
    np.testing.assert_allclose(fallen_of_axes.factors[0].values, [1e4, 1e-4], rtol=1e-7)


def test_a_correction_squares_the_error_of_orthogonality():
    basis = orthonormal(7, 5, 5) + 1e-3 * np.random.default_rng(7).standard_normal((5, 5))
    before, corrected = basis.T @ basis - np.eye(5), mf.nearer_orthogonal(OPS, basis)
    after = corrected.T @ corrected - np.eye(5)
    np.testing.assert_allclose(after, (before @ before @ before - 3 * before @ before) / 4, atol=1e-15)


# --- Kronecker products --------------------------------------------------------------------------

SHAPES = [(3, 4), (4, 3), (1, 3), (3, 1), (2, 3, 4), (2, 3, 2, 2)]


def kronecker(seed: int, shape: tuple[int, ...]) -> Kronecker:
    """Factors of determinant 1 with distinct values."""
    factors = [spectrum(seed + axis, size) for axis, size in enumerate(shape)]
    values = [factor.values / np.exp(np.log(factor.values).mean()) for factor in factors]
    return Kronecker(0.7, [factor.basis for factor in factors], values)


def stepped(begun: Kronecker, tensor: np.ndarray, maps: SpectralMaps, chosen: Ways) -> Kronecker:
    """By products with one axis after the other, as the rule does it."""
    given = KroneckerSpectrum(
        np.array([begun.scale]),
        tuple(Spectrum(*pair) for pair in zip(begun.bases, begun.values, strict=True)),
    )
    inside = multiplied(OPS, [basis.T for basis in begun.bases], tensor)
    curvatures = []
    for axis in range(tensor.ndim):
        scales = [
            np.eye(len(values)) if other == axis else np.diag(values**-0.5)
            for other, values in enumerate(begun.values)
        ]
        count = tensor.size // tensor.shape[axis]
        moment = second_moment(OPS, multiplied(OPS, scales, inside), tensor.ndim, axis)
        curvatures.append(moment / (begun.scale * count))
    found = mf.kronecker_spectral_step(OPS, given, tuple(curvatures), maps=maps, **numbers(chosen))
    return Kronecker(
        float(found.scale[0]),
        [factor.basis for factor in found.factors],
        [factor.values for factor in found.factors],
    )


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("maps", MAPS, ids=name_of)
def test_a_kronecker_step_is_that_of_a_plain_loop(maps: SpectralMaps, shape: tuple[int, ...]):
    tensor = np.random.default_rng(8).standard_normal(shape)
    for gamma in (0.0, 1.0):
        begun, chosen = kronecker(8, shape), ways(maps, gamma=gamma)
        found, wanted = stepped(begun, tensor, maps, chosen), begun.stepped(tensor, chosen)
        assert found.scale == pytest.approx(wanted.scale, rel=1e-13)
        for axis in range(tensor.ndim):
            np.testing.assert_allclose(found.values[axis], wanted.values[axis], rtol=1e-13)
            np.testing.assert_allclose(found.bases[axis], wanted.bases[axis], atol=1e-13)


@given(seeds, st.sampled_from(SHAPES), st.sampled_from(MAPS))
def test_the_factors_keep_determinant_1(seed: int, shape: tuple[int, ...], maps: SpectralMaps):
    """003 Claim 5, also from factors that rounding took away from it."""
    tensor = np.random.default_rng(seed).standard_normal(shape)
    begun = kronecker(seed, shape)
    begun = Kronecker(begun.scale, begun.bases, [values * (1 + 1e-6) for values in begun.values])
    for values in stepped(begun, tensor, maps, ways(maps)).values:
        assert np.prod(values) == pytest.approx(1, rel=1e-13)
