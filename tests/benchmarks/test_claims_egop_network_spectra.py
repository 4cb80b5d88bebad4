"""EGOP spectra of networks: their numbers by closed forms, and that the checks notice other spectra."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curvebench.benchmarks.claims import egop_network_spectra
from curvebench.benchmarks.claims._matrices import orthonormal
from curvebench.benchmarks.claims._spectra import (
    densities,
    density,
    eigenvalues,
    exponential_fit,
    kronecker_residual,
    power_law_fit,
    stable_rank,
)
from curvebench.benchmarks.claims.egop_network_spectra import (
    DENSITY,
    INITIAL,
    LAYERS,
    SAMPLING,
    SPECTRUM,
    gradients,
)
from curvebench.property_checks.checks import PropertyClaim, Series, Trace, part_results
from curvebench.stages.job import instance
from curvebench.workloads.digits import DIGITS_MLP
from tests.benchmarks.claim_mutations import assert_noticed, failing, few, verdicts_of
from tests.curvebench.property_checks.claim_rows import rows

LAW = "the decay is roughly exponential"
STRONG = "the decay is more than a flat spectrum's"
SAMPLED = {
    "the decay under N(0, 0.01 I)",
    "the decay under N(0, 0.09 I)",
    "the decay under N(0, I)",
    "the decay under N(0, 9 I)",
    "the decay under N(0, 100 I)",
    "the decay under the initial parameters",
}
FIRST = {
    "the first layer on digits decays, more than the second",
    "the first layer on Fashion-MNIST decays, more than the second",
}
SECOND = {"the second layer on digits decays", "the second layer on Fashion-MNIST decays"}
DENSE = "the leading eigenvectors are dense"

Spectrum = Callable[[np.ndarray], np.ndarray]


def exponential(rate: float) -> Spectrum:
    return lambda k: np.exp(-rate * k)


def power_law(rate: float) -> Spectrum:
    return lambda k: k**-rate


def with_spectrum(values: np.ndarray, basis: np.ndarray, mixed: np.ndarray) -> np.ndarray:
    """d gradients (d, d), in random mixtures, whose EGOP has these eigenvalues and eigenvectors."""
    return mixed @ (np.sqrt(len(values) * values)[:, None] * basis.T)


def given_spectra(monkeypatch, spectra: dict[str, tuple[int, Spectrum]], dense: bool = True) -> None:
    """Let the network's gradients have these spectra by parameter, each of a size."""

    def fake(random, name, samples, normal_scale=None, batch_size=None, of=()):
        return {
            key: with_spectrum(
                spectrum(np.arange(1.0, size + 1)),
                orthonormal(random, size, size) if dense else np.eye(size),
                orthonormal(random, size, size),
            )
            for key, (size, spectrum) in spectra.items()
            if key in (of or spectra)
        }

    monkeypatch.setattr(egop_network_spectra, "gradients", fake)


# --- the numbers --------------------------------------------------------------------------------------------


@given(st.integers(0, 2**32 - 1), st.integers(1, 8), st.integers(1, 8))
def test_eigenvalues_are_those_of_the_mean_outer_product(seed, count, size):
    drawn = np.random.default_rng(seed).normal(size=(count, size))
    outer = sum(np.outer(one, one) for one in drawn) / count
    found = eigenvalues(drawn)
    assert found.shape == (size,)
    assert found.min() >= 0
    np.testing.assert_allclose(found, np.linalg.eigvalsh(outer)[::-1], atol=1e-12)


def test_the_stable_rank_by_hand():
    assert stable_rank(np.full(7, 3.0)) == pytest.approx(7)
    assert stable_rank(np.array([5.0, 0.0, 0.0])) == pytest.approx(1)
    assert stable_rank(np.array([4.0, 1.0, 0.25])) == pytest.approx(1.75)


def test_the_density_by_hand():
    assert density(np.eye(5)[2]) == pytest.approx(1 / 5)
    assert density(np.full(16, 0.25)) == pytest.approx(1)
    assert density(np.array([0.6, 0.8])) == pytest.approx(0.98)
    np.testing.assert_allclose(densities(np.array([[0.6, -0.8], [0.0, 1.0]])), [0.98, 0.5])


@pytest.mark.parametrize(
    ("own", "other"), [(exponential_fit, power_law_fit), (power_law_fit, exponential_fit)]
)
def test_a_law_is_found_and_told_from_the_other(own, other):
    spectrum = exponential(0.3) if own is exponential_fit else power_law(0.3)
    values = 5 * spectrum(np.arange(1.0, 41))
    found = own(values)
    assert (found.rate, found.r_squared) == (pytest.approx(0.3), pytest.approx(1))
    assert other(values).r_squared < 0.85


def test_the_kronecker_residual_by_hand():
    assert kronecker_residual(np.eye(4), 2, 2) == pytest.approx(0)
    assert kronecker_residual(np.diag([1.0, 0.0, 0.0, 1.0]), 2, 2) == pytest.approx(np.sqrt(0.5))
    drawn = np.random.default_rng(0).normal(size=(2, 3, 3))
    assert kronecker_residual(np.kron(drawn[0, :2, :2], drawn[1]), 2, 3) == pytest.approx(0, abs=1e-14)


# --- the gradients ------------------------------------------------------------------------------------------


def test_gradients_of_the_digits_network():
    found = gradients(np.random.default_rng(0), "digits_mlp", 0.003, normal_scale=1.0)
    assert {key: value.shape for key, value in found.items()} == {
        "W1": (7, 2048),
        "b1": (7, 32),
        "W2": (7, 320),
        "b2": (7, 10),
    }
    pixels = instance(DIGITS_MLP, DIGITS_MLP.complete({}), 0).problem.splits["train"]["features"]
    silent = ~found["W1"].reshape(7, 32, 64).any(axis=(0, 1))
    np.testing.assert_array_equal(silent, pixels.max(0) == 0, "pixels that are blank on all digits")
    assert np.abs(found["W2"].reshape(7, 10, 32).sum(1)).max() < 1e-12, "scores count up to a constant"
    assert len(np.unique(found["b2"][:, 0])) == 7
    again = gradients(np.random.default_rng(0), "digits_mlp", 0.003, normal_scale=1.0, of=("W2",))
    assert list(again) == ["W2"]
    np.testing.assert_array_equal(again["W2"], found["W2"])
    initial = gradients(np.random.default_rng(0), "digits_mlp", 0.003, of=("b2",))
    assert np.abs(initial["b2"]).max() < np.abs(found["b2"]).max(), "small parameters, less certain scores"


# --- the checks ---------------------------------------------------------------------------------------------


def test_what_decays_and_is_dense_is_reproduced_in_part_for_the_data_are_reduced(monkeypatch):
    given_spectra(monkeypatch, {"W1": (100, exponential(0.55))})
    assert not failing(few(SPECTRUM, 1))
    assert verdicts_of(few(SPECTRUM, 1)) == {"": "partly reproduced"}
    assert not failing(few(SAMPLING, 1))
    given_spectra(monkeypatch, {"W1": (100, exponential(0.6)), "W2": (40, exponential(0.26))})
    assert not failing(few(LAYERS, 1))
    given_spectra(monkeypatch, {"W1": (150, exponential(0.1))})
    assert not failing(few(DENSITY, 1))


def drawn_by(claim: PropertyClaim) -> list[Series]:
    """The series of one instance of each part."""
    found = [each for check in claim.checks for each in part_results(claim.id, check, "quick")]
    return [each.series for each in found if isinstance(each, Trace)]


def test_what_the_figures_show_is_what_was_measured(monkeypatch):
    given_spectra(monkeypatch, {"W1": (150, exponential(0.1))})
    measured, law = drawn_by(few(SPECTRUM, 1))
    assert (measured.figure, measured.axes[0], measured.log) == ("000 Fig. 3", "eigenvalue index k", "y")
    np.testing.assert_allclose(measured.x, np.arange(1, 151))
    np.testing.assert_allclose(measured.y, np.exp(-0.1 * (measured.x - 1)), atol=1e-12)
    assert (law.kind, len(law.x)) == ("fit", 37)
    np.testing.assert_allclose(law.y, measured.y[:37], rtol=1e-6, err_msg="the law fits exactly")
    assert [one.label for one in drawn_by(few(SAMPLING, 1))] == [*egop_network_spectra.SCALES, INITIAL]
    vectors, least, random = drawn_by(few(DENSITY, 1))
    assert (vectors.y.shape, vectors.y.max() <= 1) == ((100,), True)
    assert (set(least.y), set(random.y)) == ({1 / 150}, {2 / np.pi})
    given_spectra(monkeypatch, {"W1": (100, exponential(0.6)), "W2": (40, exponential(0.26))})
    layers = drawn_by(few(LAYERS, 1))
    assert [(one.panel, len(one.x)) for one in layers] == [
        *(("digits, first layer", 100), ("digits, second layer", 40)),
        *(("Fashion-MNIST, first layer", 100), ("Fashion-MNIST, second layer", 40)),
    ]


def test_a_power_law_is_noticed(monkeypatch):
    given_spectra(monkeypatch, {"W1": (100, power_law(3.0))})
    assert failing(few(SPECTRUM, 1, {LAW, STRONG})) == {(LAW, "")}
    assert_noticed(SAMPLING, 1, *SAMPLED)


def test_a_flat_spectrum_is_noticed(monkeypatch):
    given_spectra(monkeypatch, {"W1": (100, exponential(0.005))})
    assert failing(few(SPECTRUM, 1, {LAW, STRONG})) == {(STRONG, "")}
    assert_noticed(SAMPLING, 1, *SAMPLED)


def test_layers_that_change_places_are_noticed(monkeypatch):
    given_spectra(monkeypatch, {"W2": (100, exponential(0.6)), "W1": (40, exponential(0.26))})
    assert failing(few(LAYERS, 1, FIRST | SECOND)) == {(part, "") for part in FIRST}


def test_a_second_layer_that_hardly_decays_is_noticed(monkeypatch):
    given_spectra(monkeypatch, {"W1": (100, exponential(0.6)), "W2": (40, exponential(0.01))})
    assert failing(few(LAYERS, 1, FIRST | SECOND)) == {(part, "") for part in SECOND}


def test_sparse_eigenvectors_are_noticed(monkeypatch):
    given_spectra(monkeypatch, {"W1": (150, exponential(0.1))}, dense=False)
    assert_noticed(DENSITY, 1, DENSE)
    least = [
        row.measure for row in rows(few(DENSITY, 1, {DENSE}), "quick") if "least" in row.measure.quantity
    ]
    assert least[0].value == pytest.approx(1)
