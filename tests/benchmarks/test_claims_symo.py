"""Oracles of the property claims of 004 that no mutation covers: networks, forms and tests."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
import torch

from curvebench.benchmarks.claims import symo_factors, symo_theory
from curvebench.benchmarks.claims._invariants import Structure
from curvebench.benchmarks.claims._randomization import (
    EnsembleMoments,
    Lesson,
    adjusted,
    ensemble,
    excluded_p_value,
    expected_mean,
    matrix_statistics,
    mean_statistics,
)
from curvebench.benchmarks.claims._symmetries import Perceptron, draw_matrix
from curvebench.benchmarks.claims.symo_ensembles import RELU_3
from curvebench.benchmarks.claims.symo_factors import (
    BETAS,
    MOMENTUM,
    Amount,
    Data,
    correlation,
    correlations,
    data_of,
    factors,
    gradients,
    pairwise,
    training,
    without_noise,
)
from curvebench.benchmarks.claims.symo_rule import arrays_of, second_moment, vector_of
from curvebench.benchmarks.claims.symo_theory import draw_initial, follow, two_sample_p_value
from curvebench.property_checks.checks import Series, Trace, part_results
from tests.benchmarks.claim_mutations import replaced

# --- ensembles ---


def torch_loss(network: Perceptron, inputs, targets):
    """Return the loss of one parameter vector, layer by layer."""
    act = {"linear": lambda given: given, "tanh": torch.tanh, "relu": torch.relu}[network.activation]

    def loss(vector):
        hidden, start = torch.from_numpy(inputs).T, 0
        for layer, (before, after) in enumerate(itertools.pairwise(network.widths), start=1):
            weight = vector[start : start + before * after].reshape(before, after).T
            start += before * after
            inner = weight @ hidden
            if network.bias:
                inner = inner + vector[start : start + after][:, None]
                start += after
            hidden = act(inner) if layer < network.depth else inner
        return ((hidden.T - torch.from_numpy(targets)) ** 2).sum(1).mean() / 2

    return loss


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("activation", ["linear", "tanh", "relu"])
@pytest.mark.parametrize("widths", [(3, 4, 2), (2, 3, 4, 3, 2)])
def test_losses_gradients_and_hessians_are_those_of_automatic_differentiation(widths, activation, bias):
    random = np.random.default_rng(0)
    network = Perceptron(widths, activation, bias)
    parameters = random.standard_normal((4, network.size))
    data = random.standard_normal((7, widths[0])), random.standard_normal((7, widths[-1]))
    loss, given = torch_loss(network, *data), torch.from_numpy(parameters)
    for found, expected in (
        (network.losses(parameters, *data), torch.func.vmap(loss)(given)),
        (network.gradients(parameters, *data), torch.func.vmap(torch.func.grad(loss))(given)),
        (network.hessians(parameters, *data), torch.func.vmap(torch.func.hessian(loss))(given)),
    ):
        np.testing.assert_allclose(found, expected.numpy(), rtol=1e-11, atol=1e-11)


def test_units_have_the_weights_that_enter_and_leave_them():
    marked = Perceptron((2, 3, 2), "tanh", True).units(1, 0)
    assert np.flatnonzero(marked).tolist() == [0, 3, 6, 9, 10]


def test_means_are_of_the_form_of_the_equations():
    random, network = np.random.default_rng(0), Perceptron((2, 3, 3, 2), "relu", True)
    found = expected_mean(network, "permutations", random.standard_normal(network.size))
    for _ in range(3):
        turn = draw_matrix(random, network.widths, True, "permutations")
        np.testing.assert_allclose(turn @ found, found, atol=1e-12)
    nonzero = np.flatnonzero(expected_mean(network, "signed", np.ones(network.size)))
    np.testing.assert_array_equal(nonzero, np.arange(network.size)[network.places["b3"]])


SMALL = Lesson(Perceptron((2, 2, 2), "relu", True), (0.0, -1.0), 0.5, 0.5, 0.05, 2, 6)


def test_what_holds_is_rarely_rejected():
    random, values = np.random.default_rng(0), []
    for seed in range(60):
        moments = ensemble(SMALL, seed, 6, 8, "gradients")
        statistics = matrix_statistics(random, SMALL, moments, "gradients", 19)
        means = mean_statistics(random, SMALL, moments, 19)
        values.append([min(adjusted([one]).values()) for one in (statistics, means)])
    assert ((np.array(values) <= 0.2).mean(0) <= 0.35).all()  # 0.2 but for 3 standard errors
    assert ((np.array(values) <= 0.5).mean(0) >= 0.3).all()


def test_p_values_of_all_blocks_are_adjusted_together():
    random = np.random.default_rng(0)
    noise = {name: random.standard_normal((200, 2)) for name in "abc"}
    noise["c"][0, 1] = 2.0
    found = adjusted([noise])
    alone = (noise["c"][:, 1] >= 2.0).mean()
    assert alone < found["c"] <= 6 * alone + 0.02
    noise["c"][0, 1] = 30.0
    assert adjusted([noise, {"a": random.standard_normal((200, 2))}])["c"] == 1 / 200


def test_what_printed_equations_exclude_is_seen():
    network = dataclasses.replace(RELU_3.network, widths=(2, 2, 2, 2))
    lesson = dataclasses.replace(RELU_3, network=network)
    random, size = np.random.default_rng(0), network.size
    noise = random.standard_normal((2, 20, size, size)) / 10
    moments = EnsembleMoments(np.zeros((2, 20, size)), noise)
    printed = Structure(3, False, "permutations", frozenset({"128"}))
    assert excluded_p_value(lesson, moments, "hessians", printed) > 0.05
    block = np.kron(np.outer([1.0, -1.0], [1.0, 1.0]), np.outer([1.0, 1.0], [1.0, -1.0]))
    noise[1, :, network.places["W1"], network.places["W3"]] += 0.1 * block
    assert excluded_p_value(lesson, moments, "hessians", printed) < 1e-3
    whole = Structure(3, False, "permutations")
    assert excluded_p_value(lesson, moments, "hessians", whole) == 1.0


# --- factors ---


def network(seed: int, *lead: int, d0: int = 5, d1: int = 4, d2: int = 3) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    return random.normal(size=(*lead, d1, d0)), random.normal(size=(*lead, d2, d1))


def data(seed: int, points: int = 7) -> Data:
    random = np.random.default_rng(seed)
    return Data(random.normal(size=(points, 5)), random.normal(size=(points, 3)))


def loss(given: Data, w1: np.ndarray, w2: np.ndarray) -> float:
    residuals = np.tanh(given.inputs @ w1.T) @ w2.T - given.targets
    return float(np.mean(np.sum(residuals**2, 1)) / 2)


@pytest.mark.parametrize("entries", [1, 1 << 22])
def test_gradients_are_central_differences_of_the_loss(monkeypatch, entries):
    monkeypatch.setattr(symo_factors, "ENTRIES", entries)  # point after point, or all at once
    given, weights = data(0), network(1)
    found = gradients(given, *weights)
    for place, weight in enumerate(weights):
        for index in np.ndindex(weight.shape):
            sides = []
            for step in (1e-6, -1e-6):
                moved = [one.copy() for one in weights]
                moved[place][index] += step
                sides.append(loss(given, *moved))
            assert found[place][index] == pytest.approx((sides[0] - sides[1]) / 2e-6, rel=1e-6, abs=1e-9)


def test_several_networks_have_their_own_gradients():
    given, (w1, w2) = data(0), network(1, 6)
    together = gradients(given, w1, w2)
    for number in range(6):
        for both, alone in zip(together, gradients(given, w1[number], w2[number]), strict=True):
            np.testing.assert_allclose(both[number], alone, rtol=1e-12)


def test_factors_are_the_sums_over_hidden_units_of_equations_37_to_39():
    first, second = network(2)
    phi1, psi1, phi2 = np.zeros((5, 5)), np.zeros((5, 3)), np.zeros((3, 3))
    for i in range(4):
        phi1 += np.outer(first[i], first[i]) / 4
        psi1 += np.outer(first[i], second[:, i]) / 4
        phi2 += np.outer(second[:, i], second[:, i]) / 4
    for found, wanted in zip(factors(first, second), (phi1, psi1, phi2), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-12)


def test_the_data_are_those_of_the_workload():
    given = data_of(np.random.default_rng(0), (8, 6, 3), 4000)
    assert (given.inputs.shape, given.targets.shape) == ((4000, 8), (4000, 3))
    values = np.linalg.eigvalsh(given.inputs.T.astype(float) @ given.inputs / 4000)[::-1]
    np.testing.assert_allclose(values, np.geomspace(1, 1e-5, 8), rtol=0.1)


def test_the_noise_of_a_mean_of_vectors_is_taken_out():
    """Vectors that are a common one plus noise, of which the mean of four is taken."""
    random = np.random.default_rng(0)
    common, noise = random.normal(size=20_000), random.normal(size=(5, 20_000))
    one, mean = common + 1.5 * noise[0], common + 1.5 * noise[1:].mean(0)
    found = float(without_noise(np.array(correlation(one, mean)), 4))
    assert found == pytest.approx(1 / np.sqrt(1 + 1.5**2), abs=0.02)


def test_more_reference_networks_leave_the_correlation_where_it_is():
    few_networks, many = (
        correlations(np.random.default_rng(seed), 10, Amount(500, count, 60)).mean(0)
        for seed, count in ((0, 10), (0, 300))
    )
    np.testing.assert_allclose(few_networks, many, atol=0.08)


def test_training_is_gradient_descent_and_momentum_a_running_mean():
    random = np.random.default_rng(0)
    found = training(random, 50, 3, (0.0, 0.5))
    random = np.random.default_rng(0)
    given = data_of(random, symo_factors.WIDTHS, 50)
    students = [symo_factors._weights(random, symo_factors.WIDTHS) for _ in range(10)]
    means = [np.zeros(15_600) for _ in students]
    for step in range(3):
        vectors = []
        for student in students:
            first, second = gradients(given, student["W1"], student["W2"])
            parts = [first.T @ first, first.T @ second.T, second @ second.T]
            vectors.append(np.concatenate([part.ravel() for part in parts]))
            student["W1"], student["W2"] = student["W1"] - 0.8 * first, student["W2"] - 0.8 * second
        means = [(mean + vector) / 2 for mean, vector in zip(means, vectors, strict=True)]
        for row, seen in ((0, vectors), (1, means)):
            assert found[row, step] == pytest.approx(pairwise(np.array(seen)), rel=1e-4)


def test_the_figure_has_a_line_for_each_momentum():
    with replaced({"symo_factors.training": "drop(steps, betas, 0.5, 0.7, 10)"}):
        found = [*part_results(MOMENTUM.id, MOMENTUM.checks[-1], "quick")]
    drawn = [each.series for each in found if isinstance(each, Trace)]
    assert [one.label for one in drawn] == [f"β_h = {beta:g}" for beta in BETAS]
    assert {type(one) for one in drawn} == {Series}
    assert {len(one.x) for one in drawn} == {220}


# --- rule ---


def test_vectors_are_columns_of_weights_and_biases_in_order():
    arrays = arrays_of(np.arange(13.0), (2, 3, 1), True)
    assert arrays["W1"].tolist() == [[0, 3], [1, 4], [2, 5]]
    assert arrays["b1"].tolist() == [6, 7, 8]
    assert arrays["W2"].tolist() == [[9, 10, 11]]
    np.testing.assert_array_equal(vector_of(arrays), np.arange(13.0))


def test_networks_read_the_same_arrays():
    network = Perceptron((2, 3, 1), "linear", True)
    arrays, inputs = arrays_of(np.arange(13.0), (2, 3, 1), True), np.array([[1.0, -1.0]])
    hidden = arrays["W1"] @ inputs[0] + arrays["b1"]
    expected = arrays["W2"] @ hidden + arrays["b2"]
    np.testing.assert_allclose(network.outputs(np.arange(13.0)[None], inputs)[0, 0], expected)


def test_the_moment_of_two_layers_has_the_factors_of_equations_37_to_39():
    random, widths = np.random.default_rng(0), (2, 3, 2)
    gradient = random.standard_normal(12)
    given = arrays_of(gradient, widths, False)
    found = second_moment([gradient], widths, False, "signed", 0.0)
    first = given["W1"].T @ given["W1"] / 3
    np.testing.assert_allclose(found[:6, :6], np.kron(first, np.eye(3)), atol=1e-12)
    last = given["W2"] @ given["W2"].T / 3
    np.testing.assert_allclose(found[6:, 6:], np.kron(np.eye(3), last), atol=1e-12)
    both = given["W1"].T @ given["W2"].T / 3  # Psi_jk, of W1_ij and W2_ki
    expected = np.einsum("jk,il->jilk", both, np.eye(3)).reshape(6, 6)
    np.testing.assert_allclose(found[:6, 6:], expected, atol=1e-12)


# --- theory ---


def test_initial_laws_are_what_they_are_called():
    random = np.random.default_rng(0)
    rows = {law: draw_initial(random, law, False, 4, 0.0) for law in symo_theory._LAWS}
    second = rows["orthogonal"][:, 16:32].reshape(4, 4, 4)  # W_2
    np.testing.assert_allclose(second @ second.swapaxes(1, 2), np.tile(np.eye(4), (4, 1, 1)), atol=1e-12)
    assert (np.count_nonzero(rows["sparse"][:, 16:32].reshape(4, 4, 4), axis=2) == 2).all()
    assert np.abs(rows["uniform"]).max() <= 1
    assert np.abs(draw_initial(random, "uniform", True, 9)[:, :12]).max() <= 1 / np.sqrt(3)


def test_two_samples_of_one_law_are_rarely_told_apart_and_others_are():
    random = np.random.default_rng(0)
    values = [
        two_sample_p_value(random, one, other, 49) for one, other in random.standard_normal((100, 2, 20, 3))
    ]
    assert 0.03 <= (np.array(values) <= 0.2).mean() <= 0.35
    ties = [
        two_sample_p_value(random, one, other, 49)
        for one, other in np.round(random.standard_normal((100, 2, 20, 3)))
    ]
    assert (np.array(ties) <= 0.2).mean() <= 0.35
    wide = 3 * random.standard_normal((40, 3))
    assert two_sample_p_value(random, random.standard_normal((40, 3)), wide, 199) == 1 / 200


@pytest.mark.parametrize(("steps", "expected"), [(20, 0.9537), (40, 0.8246), (60, 0.4644)])
def test_discrete_steps_leave_equation_55(steps, expected):
    root = 0.05 / np.log(1 / 0.95)
    _, roots = follow(np.diag([1.0, 0.1]), np.ones(2), root, 0.05 * 0.95 ** np.arange(60))
    assert roots[steps] / (root * 0.95**steps) == pytest.approx(expected, abs=1e-4)
