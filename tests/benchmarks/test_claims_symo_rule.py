"""SymO as a rule: what the checks of its update, and of what commutes with maps of hidden units, notice."""

from __future__ import annotations

import numpy as np
import pytest

from curvebench.benchmarks.claims import symo_rule
from curvebench.benchmarks.claims._matrices import orthonormal
from curvebench.benchmarks.claims._symmetries import Perceptron
from curvebench.benchmarks.claims.symo_rule import GENERAL, INVARIANCE, arrays_of, second_moment, vector_of
from tests.benchmarks.claim_mutations import assert_noticed, mutate, wrap

GENERAL_PARTS = {
    *("two layers, signed permutations", "two layers, permutations"),
    *("three layers, signed permutations", "three layers, permutations"),
    *("four layers, signed permutations", "four layers, permutations"),
}
POLAR = "the first step of two layers is a polar factor"
FUNCTION_PARTS = {
    *("functions of Sigma, signed permutations", "functions of Sigma, orthogonal maps"),
    "functions of Sigma, permutations",
}
COMMUTING = {
    *("gradient descent commutes: linear, orthogonal maps", "momentum commutes: linear, orthogonal maps"),
    *("gradient descent commutes: tanh, signed permutations", "momentum commutes: tanh, signed permutations"),
    *("gradient descent commutes: ReLU, permutations", "momentum commutes: ReLU, permutations"),
    *("SymO commutes: linear, orthogonal maps", "SymO commutes: tanh, signed permutations"),
    *("SymO commutes: ReLU, permutations", "Adam commutes: linear, signed permutations"),
    *("Adam commutes: tanh, signed permutations", "Adam commutes: ReLU, permutations"),
}
ROTATED = {
    *("gradient descent commutes: linear, orthogonal maps", "momentum commutes: linear, orthogonal maps"),
    "SymO commutes: linear, orthogonal maps",
}
BROKEN = "Adam does not commute: linear, orthogonal maps"


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


def test_an_update_without_correlations_of_layers_is_noticed(monkeypatch):
    mutate(monkeypatch, "symo", options={"cross_layers": False})
    assert_noticed(GENERAL, 1, *GENERAL_PARTS, POLAR)


def test_an_update_of_another_group_is_noticed(monkeypatch):
    mutate(monkeypatch, "symo", options={"group": "signed"})
    assert_noticed(GENERAL, 1, *(part for part in GENERAL_PARTS if ", permutations" in part))


@pytest.mark.parametrize("decay", [0.85, 0.3])
def test_another_running_mean_is_noticed(decay, monkeypatch):
    mutate(monkeypatch, "symo", factor_decay=lambda value: decay if value else 0.0)
    assert_noticed(GENERAL, 1, *GENERAL_PARTS)


def test_maps_that_are_no_symmetries_are_noticed(monkeypatch):
    def wrong(right, random, *given):
        size = len(right(random, *given))
        return orthonormal(random, size, size)

    wrap(monkeypatch, symo_rule, "draw_matrix", wrong)
    assert_noticed(INVARIANCE, 1, *FUNCTION_PARTS, *COMMUTING)


def test_a_rule_that_rotations_change_is_noticed(monkeypatch):
    for rule in ("sgd", "momentum", "symo"):
        monkeypatch.setitem(symo_rule.HYPER, rule, {"learning_rate": 0.02})
    wrap(monkeypatch, symo_rule, "online", lambda right, optimizer, *rest: right("adam", *rest))
    assert_noticed(INVARIANCE, 1, *ROTATED)


def test_a_rule_that_rotations_leave_alone_is_noticed(monkeypatch):
    mutate(monkeypatch, "adam", "sgd")
    assert_noticed(INVARIANCE, 1, BROKEN)
