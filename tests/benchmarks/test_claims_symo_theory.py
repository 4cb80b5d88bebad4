"""What SymO rests on: what the checks of surrogates, widths, initial laws and a quadratic loss notice."""

from __future__ import annotations

import numpy as np
import pytest

from curvebench.benchmarks.claims import symo_theory
from curvebench.benchmarks.claims._invariants import Structure
from curvebench.benchmarks.claims._matrices import power
from curvebench.benchmarks.claims.symo_theory import (
    INIT,
    QUADRATIC,
    SURROGATE,
    WIDTH_FREE,
    apart,
    draw_initial,
    follow,
    two_sample_p_value,
)
from tests.benchmarks.claim_mutations import assert_noticed, wrap

SURROGATE_PARTS = {
    *("eigenvalues, two tanh layers", "the inverse root, two tanh layers"),
    *("eigenvalues, three tanh layers", "the inverse root, three tanh layers"),
    *("eigenvalues, two ReLU layers", "the inverse root, two ReLU layers"),
    *("eigenvalues, three ReLU layers", "the inverse root, three ReLU layers"),
    *("eigenvalues, three ReLU layers with biases", "the inverse root, three ReLU layers with biases"),
}
ROOTS = {part for part in SURROGATE_PARTS if part.startswith("the inverse root")}
WIDTH_PARTS = {
    *("two tanh layers", "four tanh layers", "two ReLU layers", "two ReLU layers with biases"),
    "three ReLU layers with biases",
}
LEAST_TANH, LEAST_RELU = "tanh: a width of one is enough", "ReLU: a width of two is the least"
INVARIANT = {
    *("normal, all groups", "orthogonal, all groups"),
    *("uniform, (signed) permutations", "sparse, (signed) permutations"),
}
NOT_INVARIANT = {
    *("uniform, not under rotations", "sparse, not under rotations"),
    "uniform, not under signs if not around 0",
}
STRAIGHT = "the mean moves on a straight line"
LAWS = {
    *("the discrete law", "the flow with a decaying rate", "the flow with a constant rate"),
    *("discrete steps with a constant rate", "discrete steps follow closely"),
}


def test_a_term_that_grows_with_the_width_is_noticed(monkeypatch):
    def wrong(right, own, factors, widths):
        first = next(iter(factors))
        return right(own, {**factors, first: (1 + 0.01 * widths[1]) * factors[first]}, widths)

    wrap(monkeypatch, Structure, "built", wrong)
    assert_noticed(SURROGATE, 2, *SURROGATE_PARTS)
    assert_noticed(WIDTH_FREE, 2, *WIDTH_PARTS)


def test_another_root_is_noticed(monkeypatch):
    roots = []

    def wrong(right, matrix, exponent):
        roots.append(exponent)
        return right(matrix, exponent - 0.01 * (len(roots) % 2))  # the surrogate's alone

    wrap(monkeypatch, symo_theory, "power", wrong)
    assert_noticed(SURROGATE, 2, *ROOTS)


def test_forms_that_depend_on_each_other_are_noticed(monkeypatch):
    def wrong(right, *given):
        forms = right(*given)
        return np.concatenate([forms, forms[:1]])

    wrap(monkeypatch, Structure, "forms", wrong)
    assert_noticed(WIDTH_FREE, 2, LEAST_TANH, LEAST_RELU)


def test_a_surrogate_that_is_too_narrow_is_noticed(monkeypatch):
    monkeypatch.setitem(symo_theory.LEAST_WIDTH, "permutations", 1)
    assert_noticed(WIDTH_FREE, 2, LEAST_RELU)


def test_sets_of_eigenvalues_are_compared_both_ways():
    assert apart(np.array([1.0, 2.0, 2.0]), np.array([2.0, 1.0])) == 0.0
    assert apart(np.array([1.0, 2.0]), np.array([2.0])) == 0.5
    assert apart(np.array([2.0]), np.array([1.0, 2.0])) == 0.5


# --- initial laws --------------------------------------------------------------------------------


def test_a_parameter_of_another_law_is_noticed(monkeypatch):
    def wrong(right, *given):
        drawn = right(*given)
        drawn[:, 0] *= 3  # a weight into the first hidden unit
        return drawn

    wrap(monkeypatch, symo_theory, "draw_initial", wrong)
    assert_noticed(INIT, 1, *INVARIANT)


def test_maps_that_change_nothing_are_missed(monkeypatch):
    wrap(monkeypatch, symo_theory, "draw_matrix", lambda right, *given: np.eye(len(right(*given))))
    assert_noticed(INIT, 1, *NOT_INVARIANT)


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


# --- a quadratic loss ----------------------------------------------------------------------------


def test_another_power_of_the_covariance_is_noticed(monkeypatch):
    def wrong(right, hessian, covariance):
        return right(hessian, covariance) @ power(hessian, 0.1)

    wrap(monkeypatch, symo_theory, "update", wrong)
    assert_noticed(QUADRATIC, 3, STRAIGHT, *LAWS)


def test_another_coefficient_is_noticed(monkeypatch):
    wrap(monkeypatch, symo_theory, "update", lambda right, *given: 1.01 * right(*given))
    assert_noticed(QUADRATIC, 3, *LAWS)


@pytest.mark.parametrize(("steps", "expected"), [(20, 0.9537), (40, 0.8246), (60, 0.4644)])
def test_discrete_steps_leave_equation_55(steps, expected):
    root = 0.05 / np.log(1 / 0.95)
    _, roots = follow(np.diag([1.0, 0.1]), np.ones(2), root, 0.05 * 0.95 ** np.arange(60))
    assert roots[steps] / (root * 0.95**steps) == pytest.approx(expected, abs=1e-4)
