"""Bases: the options that they take, and what the errors say."""

from __future__ import annotations

import json

import numpy as np
import pytest

from curvebench.optimizers.bases import CHANGES, Group, OptionError, Sampling, bases

SHAPES = {"weight0": (3, 2), "bias0": (2,), "weight1": (2, 1), "bias1": (1,)}
KINDS = {name: name.rstrip("01") for name in SHAPES}


def test_identity_rotates_nothing() -> None:
    identity = bases()["identity"]
    assert identity.complete({}) == {}
    assert identity.groups({}, SHAPES, KINDS) == ()
    assert not identity.stored
    assert identity.samples({}, 11) == 0
    with pytest.raises(OptionError, match="takes no gradients"):
        identity.estimator({}, Group(("x",), 2), np.random.default_rng(0))


@pytest.mark.parametrize(
    ("given", "completed"),
    [
        ({}, {}),
        (
            {"blocks": "weights", "samples": 30, "sampling": {"normal": 1}},
            {"blocks": "weights", "samples": 30, "sampling": {"normal": 1.0}},
        ),
        ({"sampling": {"normal_around_start": 2}}, {"sampling": {"normal_around_start": 2.0}}),
        ({"samples": "2d"}, {"samples": "2.0 d"}),
        ({"samples": " 1e-2 d "}, {"samples": "0.01 d"}),
        ({"blocks": ("weight1", "bias0")}, {"blocks": ["weight1", "bias0"]}),
        ({"rank": "0.5d", "complement": "auxiliary"}, {"rank": "0.5 d", "complement": "auxiliary"}),
    ],
)
def test_options_of_egop_have_one_form(given: dict[str, object], completed: dict[str, object]) -> None:
    defaults = {
        "blocks": "all",
        "filters": "shared",
        "rows": "joint",
        "applied_to": "parameters",
        "samples": "1.0 d",
        "sampling": "initialization",
        "rank": None,
        "complement": "random",
        "estimator": "whole",
        "every": None,
        "null_space": "lapack",
    }
    options = bases()["egop"].complete(given)
    assert options == {**defaults, **completed}
    assert json.loads(json.dumps(options)) == options


def test_groups_of_egop() -> None:
    egop = bases()["egop"]

    def groups(blocks: object) -> tuple[tuple[str, ...], ...]:
        found = egop.groups(egop.complete({"blocks": blocks}), SHAPES, KINDS)
        assert all(group.change == CHANGES["rotation"] for group in found)
        return tuple(group.names for group in found)

    assert groups("all") == (("weight0", "bias0", "weight1", "bias1"),)
    assert groups("weights") == (("weight0",), ("weight1",))
    assert groups(["bias1", "weight0"]) == (("bias1",), ("weight0",))
    with pytest.raises(OptionError, match=r"'weigth1'; did you mean 'weight1'\? \(valid: weight0, bias0"):
        groups(["weigth1"])
    with pytest.raises(OptionError, match="use blocks: all"):
        egop.groups(egop.complete({"blocks": "weights"}), {"x": (3,)}, {"x": "vector"})


def test_layers_of_a_convolutional_network() -> None:
    """Filters share a basis unless asked not to; a rank leaves what completes it to the option."""
    check_layers_of_a_convolutional_network("weight")


def test_a_head_is_a_weight_to_a_basis() -> None:
    check_layers_of_a_convolutional_network("head")
    groups = bases()["egop"].groups(
        bases()["egop"].complete({"blocks": "weights", "rows": "shared"}), {"W": (2, 3)}, {"W": "head"}
    )
    assert groups == (Group(("W",), 3, CHANGES["shared"]),)


def check_layers_of_a_convolutional_network(dense_kind: str) -> None:
    egop, shapes = bases()["egop"], {"conv": (8, 3, 5, 5), "bias": (8,), "dense": (10, 32)}
    kinds = {"conv": "convolution", "bias": "bias", "dense": dense_kind}

    def groups(**given: object) -> tuple[Group, ...]:
        return egop.groups(egop.complete(given), shapes, kinds)

    shared, rotation = CHANGES["shared"], CHANGES["rotation"]
    conv, dense = Group(("conv",), 75, shared), Group(("dense",), 320, rotation)
    assert groups(blocks="layers") == (conv, dense)
    assert groups(blocks="weights") == (dense,)
    assert groups(blocks=["conv"], filters="joint") == (Group(("conv",), 600, rotation),)
    assert groups(blocks="layers", rank=3) == (conv, dense)
    for complement, change in (("auxiliary", "auxiliary"), ("none", "reduced")):
        found = groups(blocks="weights", rank=3, complement=complement)
        assert found == (Group(("dense",), 320, CHANGES[change]),)
        with pytest.raises(OptionError, match="the filters of conv share a basis"):
            groups(blocks="layers", rank=3, complement=complement)


def test_samples_and_sampling_of_egop() -> None:
    egop = bases()["egop"]
    for given, count in ((7, 7), ("1.0 d", 2410), ("2 d", 4820), ("0.01 d", 24), ("1e-9 d", 1)):
        assert egop.samples(egop.complete({"samples": given}), 2410) == count
    assert egop.sampling(egop.complete({})) == Sampling("initialization")
    assert egop.sampling(egop.complete({"sampling": {"normal": 0.3}})) == Sampling("normal", 0.3)
    around = egop.complete({"sampling": {"normal_around_start": 0.3}})
    assert egop.sampling(around) == Sampling("normal", 0.3, around_start=True)


def test_a_random_orthogonal_basis_is_uniform_and_takes_no_gradients() -> None:
    basis, random = bases()["random_orthogonal"], np.random.default_rng(0)
    options = basis.complete({"blocks": "weights"})
    groups = basis.groups(options, SHAPES, KINDS)
    assert [group.names for group in groups] == [("weight0",), ("weight1",)]
    assert basis.samples(options, 11) == 0
    draws = [basis.estimator(options, groups[0], random).result() for _ in range(400)]
    matrices = np.stack([matrix for matrix, _ in draws])
    identity = np.broadcast_to(np.eye(6), matrices.shape)
    np.testing.assert_allclose(matrices @ matrices.swapaxes(1, 2), identity, atol=1e-12)
    assert np.isnan([values for _, values in draws]).all()
    # Entries of a uniform orthogonal matrix have mean 0 and variance 1 / n, in all columns alike.
    assert np.abs(matrices.mean(0)).max() < 4 / np.sqrt(400 * 6)
    assert np.abs((matrices**2).mean(0) - 1 / 6).max() < 4 * np.sqrt(2 / 36 / 400)


def test_random_orthonormal_columns_take_the_place_of_leading_ones() -> None:
    basis, random = bases()["random_orthogonal"], np.random.default_rng(0)
    for complement, change, columns in (("auxiliary", "auxiliary", 2), ("random", "rotation", 6)):
        options = basis.complete({"blocks": ["weight0"], "rank": 2, "complement": complement})
        (group,) = basis.groups(options, SHAPES, KINDS)
        matrix, values = basis.estimator(options, group, random).result()
        assert (group.change, matrix.shape, values.shape) == (CHANGES[change], (6, columns), (columns,))
        np.testing.assert_allclose(matrix.T @ matrix, np.eye(columns), atol=1e-12)
