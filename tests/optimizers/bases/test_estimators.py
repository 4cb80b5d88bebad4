"""Estimators of leading eigenvectors: against the decomposition of the whole, piece by piece, completed."""

from __future__ import annotations

import numpy as np
import pytest

from curvebench.optimizers.bases import Group, OptionError, bases
from curvebench.optimizers.bases.estimators import Whole, completed, egop_matrix, with_random_null_space
from curvebench.timing.step_times import peak_resident_bytes, resident_bytes
from tests.curvebench.alone import alone

SIZE, RANK = 60, 5


def decaying(seed: int, samples: int, rate: float = 0.4) -> np.ndarray:
    """Gradients whose EGOP has eigenvalues rate^(2 k) in a random basis."""
    rng = np.random.default_rng(seed)
    rotation, _ = np.linalg.qr(rng.standard_normal((SIZE, SIZE)))
    return np.asarray(rng.standard_normal((samples, SIZE)) * rate ** np.arange(SIZE) @ rotation.T)


def estimate(gradients: np.ndarray, pieces: int = 1, **given: object) -> tuple[np.ndarray, np.ndarray]:
    egop = bases()["egop"]
    options = egop.complete({"rank": RANK, "complement": "none", **given})
    (group,) = egop.groups(options, {"w": (SIZE,)}, {"w": "vector"})
    estimator = egop.estimator(options, group, np.random.default_rng(7))
    for piece in np.array_split(gradients, pieces):
        estimator.add(piece)
    return estimator.result()


@pytest.mark.parametrize("samples", [30, 400])
@pytest.mark.parametrize("estimator", ["whole", "randomized", "streaming"])
def test_leading_eigenvectors_are_those_of_the_matrix(estimator: str, samples: int) -> None:
    gradients = decaying(0, samples)
    values, vectors = np.linalg.eigh(egop_matrix(gradients))
    basis, eigenvalues = estimate(gradients, estimator=estimator)
    assert basis.shape == (SIZE, RANK)
    np.testing.assert_allclose(basis.T @ basis, np.eye(RANK), atol=1e-12)
    np.testing.assert_allclose(eigenvalues, values[::-1][:RANK], rtol=1e-4)
    overlaps = np.abs(np.sum(basis * vectors[:, ::-1][:, :RANK], axis=0))
    np.testing.assert_allclose(overlaps, 1, atol=1e-5)
    largest = np.argmax(np.abs(basis), axis=0)
    assert (basis[largest, np.arange(RANK)] > 0).all()


@pytest.mark.parametrize(("estimator", "found", "off"), [("randomized", 0.91, 0.1), ("streaming", 0.86, 0.3)])
def test_of_a_spectrum_that_falls_slowly_most_is_found(estimator: str, found: float, off: float) -> None:
    """Eigenvalues 1/k, as slow as networks': the share of 20 leading directions, errors of eigenvalues."""
    size, rank = 500, 20
    rng = np.random.default_rng(11)
    gradients = rng.standard_normal((400, size)) * np.arange(1, size + 1) ** -0.5
    egop = bases()["egop"]
    options = egop.complete({"rank": rank, "complement": "none", "estimator": estimator})
    shares, errors = [], []
    values, vectors = np.linalg.eigh(egop_matrix(gradients))
    for seed in range(5):
        (group,) = egop.groups(options, {"w": (size,)}, {"w": "vector"})
        one = egop.estimator(options, group, np.random.default_rng(seed))
        one.add(gradients)
        basis, eigenvalues = one.result()
        shares.append(np.linalg.norm(vectors[:, -rank:].T @ basis) ** 2 / rank)
        errors.append(np.abs(eigenvalues / values[: -rank - 1 : -1] - 1).max())
    assert min(shares) > found
    assert max(errors) < off


@pytest.mark.parametrize("estimator", ["whole", "randomized", "streaming"])
def test_pieces_do_not_matter(estimator: str) -> None:
    gradients = decaying(1, 90)
    one, other = (estimate(gradients, pieces, estimator=estimator) for pieces in (1, 7))
    np.testing.assert_allclose(one[0], other[0], atol=1e-10)
    np.testing.assert_allclose(one[1], other[1], rtol=1e-10)


@pytest.mark.parametrize("estimator", ["randomized", "streaming"])
def test_gradients_of_less_rank_than_asked_for(estimator: str) -> None:
    """Three independent gradients: what is left of the five directions is orthonormal and has no share."""
    gradients = np.tile(decaying(2, 3), (4, 1))
    basis, eigenvalues = estimate(gradients, estimator=estimator)
    np.testing.assert_allclose(basis.T @ basis, np.eye(RANK), atol=1e-10)
    values = np.linalg.eigvalsh(egop_matrix(gradients))[::-1]
    np.testing.assert_allclose(eigenvalues, values[:RANK], atol=1e-10 * values[0])
    np.testing.assert_allclose(basis[:, :3] @ (basis[:, :3].T @ gradients.T), gradients.T, atol=1e-6)


def test_streaming_keeps_no_gradients() -> None:
    egop = bases()["egop"]
    options = egop.complete({"rank": RANK, "complement": "none", "estimator": "streaming"})
    estimator = egop.estimator(options, Group(("w",), SIZE), np.random.default_rng(0))
    for seed in range(50):
        estimator.add(decaying(seed, 20))
    held = sum(value.size for value in vars(estimator).values() if isinstance(value, np.ndarray))
    assert held <= 2 * SIZE * (4 * RANK + 10)


@pytest.mark.parametrize("estimator", ["whole", "randomized", "streaming"])
def test_no_gradient_and_spoilt_ones_are_refused(estimator: str) -> None:
    with pytest.raises(OptionError, match="samples, dimension"):
        estimate(np.zeros((0, SIZE)), estimator=estimator)
    spoilt = decaying(3, 20)
    spoilt[4, 2] = np.nan
    with pytest.raises(OptionError, match="1 of 20 sampled gradients are not finite"):
        estimate(spoilt, estimator=estimator)


def test_a_random_complement_is_orthonormal_uniform_and_of_unknown_eigenvalues() -> None:
    gradients = decaying(4, 100)
    basis, eigenvalues = estimate(gradients, complement="random")
    leading, _ = estimate(gradients)
    np.testing.assert_array_equal(basis[:, :RANK], leading)
    np.testing.assert_allclose(basis.T @ basis, np.eye(SIZE), atol=1e-13)
    assert np.isnan(eigenvalues[RANK:]).all()
    # uniform: each column's projection on a fixed direction of the complement has mean square 1 / (d - r)
    rng = np.random.default_rng(5)
    fixed = np.linalg.qr(np.column_stack([leading, rng.standard_normal(SIZE)]))[0][:, -1]
    squares = [(completed(leading, np.ones(RANK), rng)[0][:, RANK:].T @ fixed) ** 2 for _ in range(200)]
    means = np.mean(squares, axis=0) * (SIZE - RANK)
    assert 0.5 < means.min() < means.max() < 1.6


def whole(gradients: np.ndarray, null_space: str) -> tuple[np.ndarray, np.ndarray]:
    return estimate(gradients, rank=None, complement="random", null_space=null_space)


def test_a_second_basis_of_the_null_space_is_valid_and_leaves_the_others() -> None:
    gradients = decaying(6, 25, rate=0.9)
    (first, eigenvalues), (second, again) = (whole(gradients, one) for one in ("lapack", "random"))
    np.testing.assert_array_equal(second[:, :25], first[:, :25])
    np.testing.assert_array_equal(again, eigenvalues)
    np.testing.assert_allclose(second.T @ second, np.eye(SIZE), atol=1e-13)
    np.testing.assert_allclose((second * again) @ second.T, egop_matrix(gradients), atol=1e-13)
    assert np.linalg.norm(second[:, 25:] - first[:, 25:]) > 1.0


def test_a_null_space_of_dead_coordinates_mixes_these_alone() -> None:
    gradients = decaying(7, 400, rate=0.9)
    gradients[:, [3, 8, 20]] = 0.0
    basis, _ = whole(gradients, "random")
    np.testing.assert_array_equal(np.delete(basis[:, -3:], [3, 8, 20], axis=0), 0.0)
    mixed = basis[[3, 8, 20], -3:]
    np.testing.assert_allclose(mixed @ mixed.T, np.eye(3), atol=1e-14)
    assert (np.abs(mixed) < 0.999).all()


def test_a_random_null_space_is_uniform() -> None:
    """Uniform: entries have mean 0 and mean square 1 / n; without the signs of R the diagonal would not."""
    rng = np.random.default_rng(10)
    drawn = [with_random_null_space(np.eye(4), np.zeros(4), rng)[0] for _ in range(2000)]
    np.testing.assert_allclose(np.mean(drawn, axis=0), 0.0, atol=0.06)
    np.testing.assert_allclose(np.mean(np.square(drawn), axis=0), 0.25, atol=0.03)


def taken_over_held() -> float:
    """Return by how much memory grows while gradients are stacked to a matrix, as a share of their bytes."""
    gradients: list[np.ndarray] = []
    one = Whole(50_000, 1, np.random.default_rng(0))
    np.ones(3_750_000)  # 30 MB: once freed, what is smaller comes from the heap
    for _ in range(20):
        one.add(np.ones((50, 50_000)))
    baseline = resident_bytes()
    peak = peak_resident_bytes(lambda: gradients.append(one.taken()))
    assert baseline is not None
    assert peak is not None
    assert gradients[0].shape == (1_000, 50_000)
    return (peak - baseline) / gradients[0].nbytes


def test_sampled_gradients_are_held_once():
    """Pieces are freed from the end of the heap on, which the allocator gives back as the matrix fills.

    In a process of its own: what earlier tests left on a heap keeps its end from being given back.
    """
    assert alone(taken_over_held) < 0.3
