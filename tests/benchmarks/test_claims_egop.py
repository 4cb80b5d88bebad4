"""Oracles of the property claims of 000 and 001 that no mutation covers, and what their figures show."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ortho_group

from curvebench.arrays.numpy_ops import numpy_ops
from curvebench.benchmarks.claims import egop_layers, egop_network_spectra
from curvebench.benchmarks.claims._smooth_objectives import (
    Ball,
    Quadratic,
    draw_logistic_ball,
    least_sum,
    sphere_rule,
)
from curvebench.benchmarks.claims._spectra import eigenvalues, exponential_fit, power_law_fit
from curvebench.benchmarks.claims.egop_bounds import ADAGRAD_BOUND, SMOOTHNESS_BOUND, projected
from curvebench.benchmarks.claims.egop_hessians import HESSIAN_SANDWICH
from curvebench.benchmarks.claims.egop_landscape import AXIS_ALIGNED, LogSumExp, draw_problem
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
from curvebench.workloads.convex import LOG_SUM_EXP
from curvebench.workloads.digits import DIGITS_MLP
from tests.benchmarks.claim_mutations import few, replaced, verdicts_of

# --- bounds ---


def test_the_projection_is_the_nearest_point():
    random = np.random.default_rng(0)
    for _ in range(20):
        size = int(random.integers(1, 6))
        point, weights = 3 * random.standard_normal(size), 10.0 ** random.uniform(-3, 3, size)
        found = projected(point, weights, 1.0)
        assert np.linalg.norm(found) <= 1 + 1e-9
        rivals = random.standard_normal((200, size))
        rivals /= np.maximum(1, np.linalg.norm(rivals, axis=1))[:, None]
        distances = ((rivals - point) ** 2) @ weights
        assert ((found - point) ** 2) @ weights <= distances.min() * (1 + 1e-9)


# --- hessians ---


def test_the_least_sum_is_not_below_that_of_any_signs():
    random = np.random.default_rng(0)
    for _ in range(10):
        root = random.standard_normal((5, 3))
        hessian = root @ root.T
        signs = np.array(list(itertools.product([-1.0, 1.0], repeat=5)))
        lower, upper = least_sum(hessian)
        assert np.einsum("si,ij,sj->s", signs, hessian, signs).max() <= upper
        assert lower <= 5 * np.linalg.norm(hessian, 2) * (1 + 1e-9)
        assert upper == pytest.approx(lower, rel=2e-9)


@pytest.mark.parametrize("dimension", [2, 3])
def test_the_rule_of_the_sphere_integrates_polynomials(dimension):
    points, weights = sphere_rule(dimension, 8)
    np.testing.assert_allclose(np.linalg.norm(points, axis=1), 1)
    np.testing.assert_allclose((points.T * weights) @ points, np.eye(dimension) / dimension, atol=1e-14)
    assert weights @ points[:, 0] ** 4 == pytest.approx(3 / (dimension * (dimension + 2)))


def test_no_hessian_in_a_ball_exceeds_the_greatest():
    random = np.random.default_rng(2)
    ball = draw_logistic_ball(random, (0, 0.5))
    greatest = ball.objective.greatest_hessian(ball.centre, ball.radius)
    for direction in random.standard_normal((50, ball.dimension)):
        point = ball.centre + ball.radius * random.random() * direction / np.linalg.norm(direction)
        assert np.linalg.eigvalsh(greatest - ball.objective.hessian(point))[0] > -1e-12


def test_the_outer_product_of_a_quadratic():
    curvature, away = np.diag([3.0, 1.0]), np.array([0.5, 0.0])
    ball = Ball(Quadratic(curvature, np.zeros(2)), away, 2.0)
    expected = curvature @ (4 * np.eye(2) + np.outer(away, away)) @ curvature
    np.testing.assert_allclose(ball.egop, expected, atol=1e-14)
    assert ball.gamma == 0


# --- landscape ---


@pytest.fixture
def problem() -> LogSumExp:
    return draw_problem(np.random.default_rng(0))


def test_losses_are_the_workload_s_and_gradients_their_slopes(problem):
    points = np.random.default_rng(1).normal(size=(5, 2)) * 20
    ops = numpy_ops("float64")
    split = {"features": problem.features, "targets": problem.targets}
    for point, loss, gradient in zip(points, problem.losses(points), problem.gradients(points), strict=True):
        assert loss == pytest.approx(float(LOG_SUM_EXP.evaluate(ops, {"theta": point}, {}, split)["loss"]))
        steps = 1e-5 * np.eye(2)
        slopes = (problem.losses(point + steps) - problem.losses(point - steps)) / 2e-5
        np.testing.assert_allclose(gradient, slopes, rtol=1e-6, atol=1e-7)
    assert np.abs(problem.gradients(problem.minimizer)).max() < 1e-10
    assert problem.losses(problem.minimizer) == pytest.approx(np.log(100))


def test_a_level_set_lies_on_its_level(problem):
    turns = np.linspace(0, 2 * np.pi, 9)
    points = problem.level_set(3.0, np.column_stack([np.cos(turns), np.sin(turns)]))
    np.testing.assert_allclose(problem.losses(points), np.log(100) + 3)


def test_what_is_drawn_is_the_landscape_and_the_paths_in_both_coordinates():
    _, check = AXIS_ALIGNED.checks
    found = part_results(AXIS_ALIGNED.id, check, "quick")
    drawn: list[Series] = [each.series for each in found if isinstance(each, Trace)]
    original, egop = ([one for one in drawn if one.panel.startswith(name)] for name in ("original", "EGOP"))
    assert [one.kind for one in original] == [one.kind for one in egop] == ["contour"] * 4 + ["path"]
    assert [one.label for one in (original[-1], egop[-1])] == ["adagrad", "adagrad @ egop"]
    assert len(egop[-1].x) == 1001
    for one, turned in zip(original[:-1], egop[:-1], strict=True):
        assert one.label == turned.label
        lengths = [np.linalg.norm(np.diff([each.x, each.y]), axis=0) for each in (one, turned)]
        np.testing.assert_allclose(lengths[0], lengths[1], err_msg="an orthogonal basis keeps lengths")
    ends = [np.array([one.x[0], one.y[0]]) for one in (original[-1], egop[-1])]
    assert np.linalg.norm(ends[0]) == pytest.approx(np.linalg.norm(ends[1])), "the same start, turned"


# --- layers ---


def test_the_gradients_of_a_linear_layer_by_differences():
    random = np.random.default_rng(0)
    layer, start, _ = egop_layers._draw_layer(random)

    def loss(entries):
        return np.sum((layer.outputs(entries) - layer.targets) ** 2) / 2

    steps = 1e-5 * np.eye(len(start))
    found = [(loss(start + step) - loss(start - step)) / 2e-5 for step in steps]
    np.testing.assert_allclose(layer.gradients(start), found, rtol=1e-5, atol=1e-6)


# --- network spectra ---


@given(st.integers(0, 2**32 - 1), st.integers(1, 8), st.integers(1, 8))
def test_eigenvalues_are_those_of_the_mean_outer_product(seed, count, size):
    drawn = np.random.default_rng(seed).normal(size=(count, size))
    outer = sum(np.outer(one, one) for one in drawn) / count
    found = eigenvalues(drawn)
    assert found.shape == (size,)
    assert found.min() >= 0
    np.testing.assert_allclose(found, np.linalg.eigvalsh(outer)[::-1], atol=1e-12)


@pytest.mark.parametrize(
    ("own", "other"), [(exponential_fit, power_law_fit), (power_law_fit, exponential_fit)]
)
def test_a_law_is_found_and_told_from_the_other(own, other):
    k = np.arange(1.0, 41)
    values = 5 * (np.exp(-0.3 * k) if own is exponential_fit else k**-0.3)
    found = own(values)
    assert (found.rate, found.r_squared) == (pytest.approx(0.3), pytest.approx(1))
    assert other(values).r_squared < 0.85


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


def drawn_by(claim: PropertyClaim) -> list[Series]:
    """Return the series of one instance of each subclaim of a claim."""
    found = [each for check in claim.checks for each in part_results(claim.id, check, "quick")]
    return [each.series for each in found if isinstance(each, Trace)]


def test_what_the_figures_show_is_what_was_measured():
    one = "with_spectra(random, of, W1=np.exp(-0.1 * np.arange(1, 151)))"
    with replaced({"egop_network_spectra.gradients": one}):
        measured, law = drawn_by(few(SPECTRUM, 1))
        sampled = drawn_by(few(SAMPLING, 1))
        vectors, least, random = drawn_by(few(DENSITY, 1))
    assert (measured.figure, measured.axes[0], measured.log) == ("000 Fig. 3", "eigenvalue index k", "y")
    np.testing.assert_allclose(measured.x, np.arange(1, 151))
    np.testing.assert_allclose(measured.y, np.exp(-0.1 * (measured.x - 1)), atol=1e-12)
    assert (law.kind, len(law.x)) == ("fit", 37)
    np.testing.assert_allclose(law.y, measured.y[:37], rtol=1e-6, err_msg="the law fits exactly")
    assert [one.label for one in sampled] == [*egop_network_spectra.SCALES, INITIAL]
    assert (vectors.y.shape, vectors.y.max() <= 1) == ((100,), True)
    assert (set(least.y), set(random.y)) == ({1 / 150}, {2 / np.pi})
    both = (
        "with_spectra(random, of, W1=np.exp(-0.6 * np.arange(1, 101)), W2=np.exp(-0.26 * np.arange(1, 41)))"
    )
    with replaced({"egop_network_spectra.gradients": both}):
        layers = [(one.panel, len(one.x)) for one in drawn_by(few(LAYERS, 1))]
    assert layers == [
        *(("digits, first layer", 100), ("digits, second layer", 40)),
        *(("Fashion-MNIST, first layer", 100), ("Fashion-MNIST, second layer", 40)),
    ]


# --- null space ---


NULL = 1e-12  # eigenvalues below this share of the greatest one count as 0


@pytest.mark.parametrize(
    ("claim", "instances"), [(SMOOTHNESS_BOUND, 20), (ADAGRAD_BOUND, 8), (HESSIAN_SANDWICH, 8)]
)
def test_with_another_basis_of_the_null_space(claim, instances, monkeypatch):
    right, turned = vars(Ball)["spectrum"].func, []

    def another(ball):
        values, vectors = right(ball)
        null = int(np.sum(values <= NULL * values[0]))
        if null < 2:
            return values, vectors
        turned.append(null)
        rotation = ortho_group.rvs(null, random_state=len(turned))
        return values, np.concatenate([vectors[:, :-null], vectors[:, -null:] @ rotation], axis=1)

    before = verdicts_of(few(claim, instances))
    monkeypatch.setattr(Ball, "spectrum", property(another))
    assert verdicts_of(few(claim, instances)) == before
    assert len(turned) >= 5
