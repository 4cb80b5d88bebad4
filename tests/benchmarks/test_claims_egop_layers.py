"""The basis of a layer: that the checks of the claims notice wrong forms of bases, rules and products."""

import dataclasses

import numpy as np
import pytest

from curvebench.benchmarks.claims import egop_layers
from curvebench.benchmarks.claims._matrices import orthonormal
from curvebench.benchmarks.claims.egop_layers import (
    AUXILIARY_EXACT,
    FIRST_LAYER_DATA,
    SHARED_FILTERS,
    TwoLayers,
)
from curvebench.optimizers.bases import CHANGES
from tests.benchmarks.claim_mutations import assert_noticed, mutate, wrap

FIRST_LAYER = "the first layer's basis is a rotation of the data"
EXACT = "exact for every r"
REDUCED = "the reduced form is not exact"
DESCENDS = "SGD moves as on theta, and theta_d stays in the complement"
SHARED = "one V for all filters is I (x) V"
EACH = "a V for each filter is another basis"
ALIKE = "the covariances of filters agree"


def test_data_that_are_turned_the_other_way_are_noticed(monkeypatch):
    wrap(monkeypatch, TwoLayers, "rotated", lambda right, own, rotation: right(own, rotation.T))
    assert_noticed(FIRST_LAYER_DATA, 3, FIRST_LAYER)


def test_a_rule_that_does_not_see_the_basis_is_noticed(monkeypatch):
    wrap(monkeypatch, egop_layers, "_trained", lambda right, network, start, _: right(network, start, None))
    assert_noticed(FIRST_LAYER_DATA, 3, FIRST_LAYER)


def test_the_nearest_rotation_of_a_product_is_its_factor():
    rotation = orthonormal(np.random.default_rng(0), 3, 3)
    np.testing.assert_allclose(
        egop_layers.nearest_rotation(np.kron(rotation, np.eye(4)), 3, 4), rotation, atol=1e-12
    )


def change(monkeypatch, name, **wrong):
    """Let a form of the project's bases be another one."""
    monkeypatch.setitem(CHANGES, name, dataclasses.replace(CHANGES[name], **wrong))


def test_parts_that_are_not_projected_are_noticed(monkeypatch):
    def unprojected(ops, matrix, flat):
        leading, rest = flat[..., : matrix.shape[-1]], flat[..., matrix.shape[-1] :]
        return ops.from_basis(matrix, leading) + rest

    change(monkeypatch, "auxiliary", to_parameters=unprojected)
    assert_noticed(AUXILIARY_EXACT, 3, EXACT)


def test_gradients_that_are_not_parted_are_noticed(monkeypatch):
    def unparted(ops, matrix, flat):
        return ops.concatenate([ops.to_basis(matrix, flat), flat], -1)

    change(monkeypatch, "auxiliary", to_coordinates=unparted)
    assert_noticed(AUXILIARY_EXACT, 3, DESCENDS)


def test_a_reduced_form_that_keeps_the_rest_is_noticed(monkeypatch):
    change(monkeypatch, "reduced", to_parameters=lambda ops, matrix, flat: flat)
    change(monkeypatch, "reduced", to_coordinates=lambda ops, matrix, flat: flat)
    assert_noticed(AUXILIARY_EXACT, 3, REDUCED)


@pytest.mark.parametrize("way", ["to_parameters", "to_coordinates"])
def test_filters_that_are_turned_the_other_way_are_noticed(way, monkeypatch):
    right = getattr(CHANGES["shared"], way)
    change(monkeypatch, "shared", **{way: lambda ops, matrix, flat: right(ops, matrix.swapaxes(1, 2), flat)})
    assert_noticed(SHARED_FILTERS, 1, SHARED)


def test_another_rule_on_the_filters_is_noticed(monkeypatch):
    wrap(
        monkeypatch,
        egop_layers,
        "stepped",
        lambda right, rule, *rest, basis=None: right(rule if basis is None else "sgd", *rest, basis=basis),
    )
    assert_noticed(SHARED_FILTERS, 1, SHARED)


def test_a_reduced_form_that_loses_nothing_or_all_is_noticed(monkeypatch):
    def wrong(right, *given, **named):
        layer, _, basis = right(*given, **named)
        return layer, basis[:, 0], basis

    wrap(monkeypatch, egop_layers, "_draw_layer", wrong)
    assert_noticed(AUXILIARY_EXACT, 3, REDUCED)


def test_a_basis_that_is_not_orthonormal_is_noticed(monkeypatch):
    def wrong(right, *given, **named):
        layer, start, basis = right(*given, **named)
        return layer, start, 1.001 * basis

    wrap(monkeypatch, egop_layers, "_draw_layer", wrong)
    assert_noticed(AUXILIARY_EXACT, 3, REDUCED, DESCENDS)


def test_another_rule_than_sgd_is_noticed(monkeypatch):
    mutate(monkeypatch, "sgd", "adam")
    assert_noticed(AUXILIARY_EXACT, 3, DESCENDS)


@pytest.mark.parametrize(
    "product",
    [lambda right, a, b: right(a, b.T), lambda right, a, b: right(b, a)],
    ids=["transposed", "of the filters"],
)
def test_another_product_is_noticed(product, monkeypatch):
    wrap(monkeypatch, np, "kron", product)
    assert_noticed(SHARED_FILTERS, 1, SHARED)


def test_bases_that_are_all_the_shared_one_are_noticed(monkeypatch):
    wrap(monkeypatch, egop_layers, "whole_basis", lambda right, bases: right([bases[0]] * len(bases)))
    monkeypatch.setattr(egop_layers, "_at_once", lambda gradients, matrix: np.ones(len(matrix)))
    assert_noticed(SHARED_FILTERS, 1, EACH)


def test_filters_that_begin_unlike_are_noticed(monkeypatch):
    def wrong(right, *given):
        drawn = right(*given)
        drawn["last"][:, :, 0] *= 4  # what the gradients of the first filter below are proportional to
        return drawn

    wrap(monkeypatch, egop_layers.Convolutions, "initial", wrong)
    assert_noticed(SHARED_FILTERS, 2, ALIKE)


def test_the_gradients_of_a_linear_layer_by_differences():
    random = np.random.default_rng(0)
    layer, start, _ = egop_layers._draw_layer(random)

    def loss(entries):
        return np.sum((layer.outputs(entries) - layer.targets) ** 2) / 2

    steps = 1e-5 * np.eye(len(start))
    found = [(loss(start + step) - loss(start - step)) / 2e-5 for step in steps]
    np.testing.assert_allclose(layer.gradients(start), found, rtol=1e-5, atol=1e-6)
