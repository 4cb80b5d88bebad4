"""Half precision and the truncated Cayley map: what their checks notice, and what is drawn of drift."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curvebench.backends.numpy_ops import numpy_ops
from curvebench.benchmarks.claims import spectral_precision
from curvebench.benchmarks.claims._trained_lanes import (
    SHAPES,
    Training,
    defect,
    draw_lanes,
    loss_and_gradient,
    ops_of,
    rounded,
    train,
)
from curvebench.benchmarks.claims.spectral_precision import (
    CAYLEY_TRUNCATED,
    FORMS,
    HALF_PRECISION,
    drifting,
    exact_product,
    exact_sum,
    truncated_product,
)
from curvebench.benchmarks.kernels import interleaving
from curvebench.benchmarks.kernels.interleaving import Ratios
from curvebench.optimizers.matrix_functions.spectral_steps import CAYLEYS, EXPONENTIALS
from curvebench.results.intervals import MedianInterval
from tests.benchmarks.claim_mutations import assert_noticed, few, found_rows, wrap
from tests.benchmarks.claim_mutations import failing as failing_parts

STABLE = {
    *("p = 1, weights in float32", "p = 2, weights in float32", "p = 4, weights in float32"),
    *("p = 1, weights in bfloat16", "p = 2, weights in bfloat16", "p = 4, weights in bfloat16"),
}
DRIFT = {
    *("drift in float64, exact Cayley map", "drift in float64, truncated Cayley map"),
    *("drift in float32, exact Cayley map", "drift in float32, truncated Cayley map"),
    *("drift in bfloat16, exact Cayley map", "drift in bfloat16, truncated Cayley map"),
}
NEAR = "the product is near the Cayley map"
LOSSES = {"losses, bar beta_2 = 0.05", "losses, bar beta_2 = 0.5", "losses, bar beta_2 = 1.5"}
CURVATURES = {
    *("curvature, bar beta_2 = 0.05", "curvature, bar beta_2 = 0.5", "curvature, bar beta_2 = 1.5"),
}
TIMES = {"a step on a CPU, 64 x 64", "a step on a CPU, 256 x 256"}
OPS = numpy_ops("float64")


def skew_of(size: int, norm: float) -> np.ndarray:
    drawn = np.random.default_rng(1).standard_normal((size, size))
    return norm * (drawn - drawn.T) / np.linalg.norm(drawn - drawn.T)


# --- what is trained -----------------------------------------------------------------------------


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_numbers_are_rounded_as_bfloat16_is(number: float):
    expected = np.float32(number).astype(ml_dtypes.bfloat16).astype(np.float32)
    np.testing.assert_array_equal(rounded(number), expected)


def test_the_gradient_is_that_of_the_loss():
    lanes = draw_lanes(np.random.default_rng(0), 2, 1)
    weights, inputs = lanes.start.astype(float), lanes.inputs.astype(float)
    _, gradient = loss_and_gradient(weights, inputs, lanes.labels)
    way = np.random.default_rng(1).standard_normal(weights.shape)
    up, down = (loss_and_gradient(weights + sign * way, inputs, lanes.labels)[0] for sign in (1e-6, -1e-6))
    np.testing.assert_allclose((up - down) / 2e-6, (gradient * way).sum((1, 2, 3)), rtol=1e-6)


def test_a_rule_in_bfloat16_learns_and_differs_from_float32():
    lanes = draw_lanes(np.random.default_rng(0), 2, 20)
    options = {"power": 2.0, "cayley": "truncated"}
    full, half, weights = (
        train(lanes, options, {"learning_rate": 0.03}, *given)
        for given in ((), ("bfloat16",), ("bfloat16", "bfloat16"))
    )
    assert (full.losses[-1] < 0.9 * full.losses[0]).all()
    np.testing.assert_array_equal(full.losses[0], half.losses[0])
    gaps = [np.abs(one.losses[-1] / full.losses[-1] - 1).max() for one in (half, weights)]
    assert gaps[0] != gaps[1]
    assert 1e-4 < min(gaps) < max(gaps) < 0.2
    assert full.defects.max() < 1e-5 < 1e-3 < half.defects.max()
    assert np.isfinite(full.values).all()
    assert sum(np.prod(shape) for shape in SHAPES.values()) == lanes.start[0].size


def ending(ratio: float = 1.0, values: float = 1.0):
    """Instead of training: runs but for the one that they are held against end so."""

    def trained(lanes, options, hyper, precision="float32", weights_in="float32"):
        seeds = len(lanes.start)
        plain = precision == "float32" and (options["cayley"] == "exact" or "rotation_rate" not in hyper)
        spread = 1 + 1e-3 * np.arange(seeds)
        losses = np.ones((21, seeds)) * (1.0 if plain else ratio * spread)
        return Training(np.arange(21), losses, np.zeros(21), np.full(21, values))

    return trained


@pytest.mark.parametrize("wrong", [{"ratio": 1.2}, {"ratio": np.nan}, {"values": -1e-3}, {"values": np.nan}])
def test_training_that_is_not_stable_is_noticed(wrong, monkeypatch):
    monkeypatch.setattr(spectral_precision, "train", ending(**wrong))
    assert_noticed(HALF_PRECISION, 1, *STABLE)


def test_training_that_ends_as_well_is_stable(monkeypatch):
    monkeypatch.setattr(spectral_precision, "train", ending())
    assert not failing_parts(few(HALF_PRECISION, 1, STABLE))


@pytest.mark.parametrize("ratio", [1.2, 1 / 1.2, np.inf])
def test_losses_that_differ_are_noticed(ratio, monkeypatch):
    monkeypatch.setattr(spectral_precision, "train", ending(ratio))
    assert_noticed(CAYLEY_TRUNCATED, 1, *LOSSES)


# --- drift ---------------------------------------------------------------------------------------


def test_forms_are_the_maps():
    basis, skew = np.linalg.qr(np.random.default_rng(2).standard_normal((5, 5)))[0], skew_of(5, 0.4)
    exact, truncated = (CAYLEYS[name](OPS, basis, skew) for name in ("exact", "truncated"))
    for form in (exact_product, exact_sum):
        np.testing.assert_allclose(form(OPS, basis, skew), exact, atol=1e-14)
    np.testing.assert_allclose(truncated_product(OPS, basis, skew), truncated, atol=1e-14)
    assert defect(exact) < 1e-14
    half = ops_of("bfloat16")
    found = exact_sum(half, half.asarray(basis), half.asarray(skew))
    np.testing.assert_allclose(half.to_numpy(half.cast(found, "float64")), exact, atol=0.02)
    assert str(found.dtype) == "torch.bfloat16"


def test_a_correction_brings_bases_back():
    form = FORMS["truncated"]["sum B + B E"]
    drifted, corrected = (
        drifting(np.random.default_rng(0), form, "bfloat16", corrects, 1, 100)[1]
        for corrects in (False, True)
    )
    assert corrected[-1] < drifted[-1]


def test_values_that_are_not_positive_are_noticed(monkeypatch):
    monkeypatch.setitem(EXPONENTIALS, "first_order", lambda ops, gained, lost: 0 * gained)
    with np.errstate(all="ignore"):
        assert_noticed(HALF_PRECISION, 1, *DRIFT)


def test_values_that_are_nan_after_a_while_are_noticed(monkeypatch):
    calls = iter(range(10**6))
    first_order = EXPONENTIALS["first_order"]
    late = lambda ops, *given: first_order(ops, *given) * (np.nan if next(calls) > 100 else 1.0)  # noqa: E731
    monkeypatch.setitem(EXPONENTIALS, "first_order", late)
    with np.errstate(all="ignore"):
        *_, least = drifting(np.random.default_rng(0), exact_sum, "float64", False, 1, 200)
    assert np.isnan(least)


# --- the truncated map ---------------------------------------------------------------------------


def test_another_product_is_noticed(monkeypatch):
    wrap(monkeypatch, spectral_precision, "truncated_product", lambda right, *given: 1.01 * right(*given))
    assert_noticed(CAYLEY_TRUNCATED, 2, NEAR)


def test_inverses_in_the_product_are_noticed():
    rows = [row for row in found_rows(few(CAYLEY_TRUNCATED, 2, {NEAR})) if row.variant == "as printed"]
    assert rows
    assert not any(row.measure.holds for row in rows)


def test_a_truncated_map_that_turns_otherwise_is_noticed(monkeypatch):
    monkeypatch.setitem(CAYLEYS, "truncated", lambda ops, basis, skew: basis)
    assert_noticed(CAYLEY_TRUNCATED, 1, *CURVATURES)


@pytest.mark.parametrize(("ratio", "half", "holds"), [(1.1, 0.1, False), (1.5, 0.1, None), (2.0, 0.1, True)])
def test_a_ratio_of_times_is_held_against_its_interval(ratio, half, holds, monkeypatch):
    around = MedianInterval(ratio, ratio - half, ratio + half, 0.95, 6)
    monkeypatch.setattr(interleaving, "interleaved", lambda *given: Ratios(around, around, (1.0, 1.0)))
    rows = found_rows(few(CAYLEY_TRUNCATED, 1, TIMES))
    assert {row.part for row in rows} == TIMES
    assert {row.measure.holds for row in rows} == {holds}
