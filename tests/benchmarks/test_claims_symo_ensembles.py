"""Gradients and Hessians over initializations: networks, forms, tests, and what the checks notice."""

from __future__ import annotations

import dataclasses
from itertools import pairwise

import numpy as np
import pytest
import torch

from curvebench.benchmarks.claims import _invariants, symo_ensembles
from curvebench.benchmarks.claims._invariants import Structure, count_invariants
from curvebench.benchmarks.claims._randomization import (
    ALIKE,
    EnsembleMoments,
    Lesson,
    adjusted,
    ensemble,
    excluded_p_value,
    expected_mean,
    matrix_statistics,
    mean_statistics,
)
from curvebench.benchmarks.claims._symmetries import (
    GROUP_OF,
    GROUPS,
    Perceptron,
    SymmetryGroup,
    draw_maps,
    draw_matrix,
    generators,
    places,
    size_of,
)
from curvebench.benchmarks.claims.symo_ensembles import (
    COVARIANCE_RELU,
    COVARIANCE_TANH,
    HESSIAN,
    MEAN,
    RELU_3,
    SCALED,
    SHIFTED,
)
from tests.benchmarks.claim_mutations import assert_noticed, wrap

SAY_ALL = "the equations say all"
RELU_PARTS = {
    *("three layers", "five layers with biases", "three layers: a scaled unit is noticed"),
}
TANH_PARTS = {
    *("two layers", "two layers: a scaled unit is noticed"),
    *("three layers", "three layers: a scaled unit is noticed"),
}
HESSIAN_PARTS = {
    *("two tanh layers", "two tanh layers: a scaled unit is noticed"),
    *("three tanh layers", "three tanh layers: a scaled unit is noticed"),
    *("three ReLU layers", "three ReLU layers: a scaled unit is noticed"),
}
MEAN_PARTS = {
    *("two tanh layers", "two tanh layers: a changed unit is noticed"),
    *("three tanh layers", "three tanh layers: a changed unit is noticed"),
    *("three ReLU layers", "three ReLU layers: a changed unit is noticed"),
    *("three ReLU layers with biases", "three ReLU layers with biases: a changed unit is noticed"),
}


# --- networks ------------------------------------------------------------------------------------


def torch_loss(network: Perceptron, inputs, targets):
    """The loss of one parameter vector, layer by layer."""
    act = {"linear": lambda given: given, "tanh": torch.tanh, "relu": torch.relu}[network.activation]

    def loss(vector):
        hidden, start = torch.from_numpy(inputs).T, 0
        for layer, (before, after) in enumerate(pairwise(network.widths), start=1):
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


@pytest.mark.parametrize("activation", ["linear", "tanh", "relu"])
def test_maps_of_hidden_units_leave_the_loss_alone(activation):
    random = np.random.default_rng(0)
    network, group = Perceptron((2, 3, 4, 2), activation, True), GROUP_OF[activation]
    parameters = random.standard_normal((3, network.size))
    data = random.standard_normal((5, 2)), random.standard_normal((5, 2))
    turn = draw_matrix(random, network.widths, True, group)
    losses = network.losses(parameters, *data)
    np.testing.assert_allclose(network.losses(parameters @ turn.T, *data), losses, rtol=1e-11)
    if group != "orthogonal":
        maps = draw_maps(random, network.widths, True, group, 3)
        np.testing.assert_allclose(network.losses(maps.vectors(parameters), *data), losses, rtol=1e-11)
        moved = maps.matrices(network.hessians(parameters, *data))
        np.testing.assert_allclose(network.hessians(maps.vectors(parameters), *data), moved, atol=1e-11)


def test_maps_of_matrices_are_those_of_dense_ones():
    random = np.random.default_rng(0)
    maps = draw_maps(random, (2, 3, 3, 2), True, "signed", 2)
    size = maps.indices.shape[1]
    given = random.standard_normal((2, size, size, 2))
    for number in range(2):
        dense = maps.signs[number][:, None] * np.eye(size)[maps.indices[number]]
        expected = np.einsum("ij,jkn,lk->iln", dense, given[number], dense)
        np.testing.assert_allclose(maps.matrices(given)[number], expected, atol=1e-14)


def test_units_have_the_weights_that_enter_and_leave_them():
    marked = Perceptron((2, 3, 2), "tanh", True).units(1, 0)
    assert np.flatnonzero(marked).tolist() == [0, 3, 6, 9, 10]


# --- forms ---------------------------------------------------------------------------------------


def commutation(rows: int, columns: int) -> np.ndarray:
    """K with vec(A^T) = K vec(A), for A (rows, columns)."""
    found = np.zeros((rows * columns, rows * columns))
    for row in range(rows):
        for column in range(columns):
            found[row * columns + column, column * rows + row] = 1
    return found


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape)


def equation(number: str, d: tuple[int, ...]) -> list[np.ndarray]:
    """Forms of an equation as they are printed (as corrected, where it is misprinted), for random factors."""
    random, eye, kron = np.random.default_rng(1), np.eye, np.kron
    free = random.standard_normal
    last = len(d) - 1
    inner = commutation(d[2], d[1])  # of W_2, between layers of d_1 and d_2 units
    return {
        "29": lambda: [kron(free((d[0], d[0])), eye(d[1]))],
        "30": lambda: [kron(eye(d[1]), eye(d[2]))],
        "31": lambda: [kron(eye(d[last - 1]), free((d[last], d[last])))],
        "32": lambda: [kron(free((d[0], d[2])), eye(d[1])) @ inner],
        "35": lambda: [kron(free((1, d[0])), eye(d[1]))],
        "36": lambda: [kron(eye(d[last - 1]), free((1, d[last])))],
        "118": lambda: [eye(d[1]), ones(d[1], d[1]) / d[1]],
        "119": lambda: [ones(d[1], d[2]) / np.sqrt(d[1] * d[2])],
        "120": lambda: [ones(d[1], 1) @ free((1, d[last])) / np.sqrt(d[1])],
        "122": lambda: [
            kron(eye(d[1]), eye(d[2])),
            kron(eye(d[1]), ones(d[2], d[2])) / d[2],
            kron(ones(d[1], d[1]), eye(d[2])) / d[1],
            kron(ones(d[1], d[1]), ones(d[2], d[2])) / (d[1] * d[2]),
        ],
        "125": lambda: [
            kron(free((d[0], d[0])), eye(d[1])),
            kron(free((d[0], d[0])), ones(d[1], d[1])) / d[1],
        ],
        "126": lambda: [
            kron(free((d[0], 1)) @ ones(1, d[2]), eye(d[1])) @ inner / np.sqrt(d[2]),
            kron(free((d[0], 1)) @ ones(1, d[2]), ones(d[1], d[1])) @ inner / (d[1] * np.sqrt(d[2])),
        ],
        "128": lambda: [
            kron(free((d[0], 1)) @ ones(1, d[last - 1]), ones(d[1], 1) @ ones(1, d[last]))
            / np.sqrt(d[last - 1] * d[1] * d[last]),
            kron(ones(d[0], d[last - 1]), ones(d[1], 1) @ free((1, d[last])))
            / np.sqrt(d[0] * d[last - 1] * d[1]),
        ],
        "131": lambda: [
            kron(eye(d[last - 1]), free((d[last], d[last]))),
            kron(ones(d[last - 1], d[last - 1]), free((d[last], d[last]))) / d[last - 1],
        ],
        "132": lambda: [
            kron(free((d[0], d[2])), eye(d[1])) @ inner,
            kron(free((d[0], d[2])), ones(d[1], d[1])) @ inner / d[1],
        ],
        "134": lambda: [
            kron(eye(d[1]), ones(1, d[2])) / np.sqrt(d[2]),
            kron(ones(d[1], d[1]), ones(1, d[2])) / (d[1] * np.sqrt(d[2])),
        ],
        "136": lambda: [
            kron(free((1, d[0])), eye(d[1])),
            kron(free((1, d[0])), ones(d[1], d[1])) / d[1],
        ],
        "138": lambda: [kron(free((d[last], d[0])), ones(1, d[1])) / np.sqrt(d[1])],
        "139": lambda: [kron(free((d[last], 1)) @ ones(1, d[1]), ones(1, d[2])) / np.sqrt(d[1] * d[2])],
        "140": lambda: [kron(ones(1, d[last - 1]), free((d[last], d[last]))) / np.sqrt(d[last - 1])],
        "141": lambda: [
            kron(eye(d[last - 1]), free((1, d[last]))),
            kron(ones(d[last - 1], d[last - 1]), free((1, d[last]))) / d[last - 1],
        ],
        "142": lambda: [
            kron(ones(d[1], d[last - 1]), free((1, d[last]))) / np.sqrt(d[last - 1] * d[1]),
        ],
    }[number]()


BLOCKS: dict[
    str, tuple[int, SymmetryGroup, str, str]
] = {  # equation: depth, group, the rows' tensor and the columns'
    "29": (3, "signed", "W1", "W1"),
    "30": (3, "signed", "W2", "W2"),
    "31": (3, "signed", "W3", "W3"),
    "32": (2, "signed", "W1", "W2"),
    "35": (2, "signed", "b1", "W1"),
    "36": (3, "signed", "b2", "W3"),
    "118": (3, "permutations", "b1", "b1"),
    "119": (3, "permutations", "b1", "b2"),
    "120": (3, "permutations", "b1", "b3"),
    "122": (3, "permutations", "W2", "W2"),
    "125": (3, "permutations", "W1", "W1"),
    "126": (3, "permutations", "W1", "W2"),
    "131": (3, "permutations", "W3", "W3"),
    "132": (2, "permutations", "W1", "W2"),
    "134": (3, "permutations", "b1", "W2"),
    "136": (2, "permutations", "b1", "W1"),
    "138": (3, "permutations", "b3", "W1"),
    "139": (3, "permutations", "b3", "W2"),
    "140": (3, "permutations", "b3", "W3"),
    "141": (3, "permutations", "b2", "W3"),
    "142": (3, "permutations", "b1", "W3"),
}
WIDTHS = {2: (2, 3, 4), 3: (2, 3, 4, 5)}


@pytest.mark.parametrize("number", BLOCKS)
def test_blocks_are_those_of_the_equations(number):
    depth, group, rows, columns = BLOCKS[number]
    structure, widths = Structure(depth, True, group), WIDTHS[depth]
    by_name = {tensor.name: tensor for tensor in structure.tensors}
    transposed = (by_name[rows], by_name[columns]) not in structure.pairs
    first, second = (columns, rows) if transposed else (rows, columns)
    forms = structure.forms(by_name[first], by_name[second], widths)
    forms = forms.swapaxes(1, 2) if transposed else forms
    given = equation(number, widths)
    flat = forms.reshape(len(forms), -1)
    scale = len(flat) // len(given)  # coefficients of each term, in its order
    for place, expected in enumerate(given):
        own = flat[place * scale : (place + 1) * scale]
        found, rest = np.linalg.lstsq(own.T, expected.ravel(), rcond=None)[:2]
        np.testing.assert_allclose(own.T @ found, expected.ravel(), atol=1e-12)
        assert np.isclose(np.abs(found).max(), np.abs(_coefficients(expected, own)).max()), rest


def _coefficients(expected, own):
    """Those by inner products: forms of one term are orthogonal."""
    return own @ expected.ravel() / (own**2).sum(1)


def test_equation_128_is_printed_narrower_than_what_permutations_leave_alone():
    printed = Structure(3, False, "permutations", frozenset({"128"}))
    whole = Structure(3, False, "permutations")
    first, _, last = whole.tensors
    widths = WIDTHS[3]
    own = printed.forms(first, last, widths)
    assert len(own) == 2 + 5
    assert len(whole.forms(first, last, widths)) == 2 * 5
    for expected in equation("128", widths):
        found = np.linalg.lstsq(own.reshape(7, -1).T, expected.ravel(), rcond=None)[0]
        np.testing.assert_allclose(own.reshape(7, -1).T @ found, expected.ravel(), atol=1e-12)


@pytest.mark.parametrize("group", ["signed", "permutations"])
def test_invariants_are_counted_as_by_linear_algebra(group):
    widths = (2, 3, 2)
    maps, where = generators(widths, True, group), places(widths, True)
    size = size_of(widths, True)
    for (first, second), count in count_invariants(Structure(2, True, group), widths).items():
        rows, columns = where[first], where[second]
        conditions = []
        for order, signs in zip(maps.indices, maps.signs, strict=True):
            dense = signs[:, None] * np.eye(size)[order]
            whole = np.kron(dense[rows, rows], dense[columns, columns])
            conditions.append(whole - np.eye(len(whole)))
        stacked = np.concatenate(conditions)
        assert count == stacked.shape[1] - np.linalg.matrix_rank(stacked), (first, second)


@pytest.mark.parametrize("group", GROUPS)
def test_factors_come_back_from_the_matrix(group):
    random, structure, widths = np.random.default_rng(0), Structure(3, True, group), (2, 3, 3, 2)
    drawn = random.standard_normal((structure.size(widths),) * 2)
    factors = structure.factors(drawn + drawn.T, widths)
    again = structure.factors(structure.built(factors, widths), widths)
    for pair, expected in factors.items():
        np.testing.assert_allclose(again[pair], expected, atol=1e-12)


def test_means_are_of_the_form_of_the_equations():
    random, network = np.random.default_rng(0), Perceptron((2, 3, 3, 2), "relu", True)
    found = expected_mean(network, "permutations", random.standard_normal(network.size))
    for _ in range(3):
        turn = draw_matrix(random, network.widths, True, "permutations")
        np.testing.assert_allclose(turn @ found, found, atol=1e-12)
    nonzero = np.flatnonzero(expected_mean(network, "signed", np.ones(network.size)))
    np.testing.assert_array_equal(nonzero, np.arange(network.size)[network.places["b3"]])


# --- the test ------------------------------------------------------------------------------------

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


# --- what the checks notice ------------------------------------------------------------------------


def exchange(monkeypatch, change):
    """Let ensembles that start alike be changed, and those that are changed start alike."""
    wrap(
        monkeypatch,
        symo_ensembles,
        "ensemble",
        lambda right, *given: right(*given[:5], change if len(given) < 6 or given[5] == ALIKE else ALIKE),
    )


@pytest.mark.slow
def test_a_unit_that_starts_in_another_way_is_noticed_and_one_that_does_not_is_missed(monkeypatch):
    exchange(monkeypatch, SCALED)
    assert_noticed(COVARIANCE_TANH, 1, *TANH_PARTS)
    assert_noticed(COVARIANCE_RELU, 1, *(RELU_PARTS - {"five layers with biases"}))
    assert_noticed(HESSIAN, 1, *HESSIAN_PARTS)


@pytest.mark.slow
def test_a_unit_that_starts_elsewhere_is_noticed_and_one_that_does_not_is_missed(monkeypatch):
    exchange(monkeypatch, SHIFTED)
    assert_noticed(MEAN, 1, *MEAN_PARTS)
    assert_noticed(COVARIANCE_RELU, 1, "five layers with biases")


@pytest.mark.parametrize("claim", [COVARIANCE_TANH, COVARIANCE_RELU], ids=lambda claim: claim.id)
def test_a_form_that_is_missing_is_noticed(claim, monkeypatch):
    wrap(monkeypatch, _invariants, "_terms", lambda right, *given: list(right(*given))[:1])
    wrap(monkeypatch, Structure, "forms", lambda right, *given: right(*given)[:-1])
    assert_noticed(claim, 3, SAY_ALL)


def test_a_form_of_another_shape_is_noticed(monkeypatch):
    def wrong(right, own, first, second, widths):
        forms = right(own, first, second, widths).copy()
        forms[..., 0] *= 2
        return forms

    wrap(monkeypatch, Structure, "forms", wrong)
    assert_noticed(COVARIANCE_TANH, 3, SAY_ALL)
    assert_noticed(COVARIANCE_RELU, 3, SAY_ALL)
