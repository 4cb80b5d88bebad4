"""SymO and its isotypic blocks against dense averages over the whole group, closed forms, and refusals."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch

from curvebench import Online, as_torch, replay
from curvebench.arrays.numpy_ops import numpy_ops
from curvebench.optimizers import rules
from curvebench.optimizers.isotypic import IsotypicBlock, isotypic_blocks, parameters_of
from curvebench.optimizers.options import OptionError
from curvebench.optimizers.symo import preconditioned
from curvebench.spec.errors import InputError
from curvebench.steps.layout import roles_of
from curvebench.workloads.workload import Role
from tests.optimizers.families.symo import (
    average,
    by_name,
    elements,
    factors_of_dense,
    kinds_of,
    network_layers,
    network_shapes,
    symo,
    vector,
)
from tests.optimizers.oracles import Arrays
from tests.optimizers.paths import assert_paths_close, instance

OPS = numpy_ops("float64")
GROUPS = ("signed", "permutations")
# L = 2, 3, 4; a layer of one unit, whose standard representation is empty
WIDTHS = ((3, 3, 2), (2, 2, 3, 2), (2, 2, 2, 2, 1), (2, 1, 2), (2, 1, 2, 2))
NETWORKS = [
    pytest.param(widths, biases, group, id=f"{'-'.join(map(str, widths))} {'b' * biases} {group}")
    for widths in WIDTHS
    for biases in (False, True)
    for group in GROUPS
]
HYPER = {"learning_rate": 0.3, "factor_decay": 0.9}
ALL = {"learning_rate": 0.3, "factor_decay": 0.9, "cutoff": 1e-10}


def blocks_of(widths: Any, biases: Any, group: str, cross_layers: bool = True) -> tuple[IsotypicBlock, ...]:
    return isotypic_blocks(network_layers(widths, biases), group, cross_layers)


def drawn(shapes: Mapping[str, tuple[int, ...]], seed: int = 0) -> Arrays:
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal(shape) for name, shape in shapes.items()}


def moved(
    params: Arrays,
    grads: list[Arrays],
    options: Mapping[str, Any],
    backend: str = "numpy",
    dtype: str = "float64",
) -> list[Arrays]:
    shapes = {name: value.shape for name, value in params.items()}
    return replay("symo", params, grads, HYPER, backend, dtype, options=options, kinds=kinds_of(shapes))


# --- blocks -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("widths", "biases", "group"), NETWORKS)
def test_blocks_are_coordinates_of_all_parameters(widths: Any, biases: bool, group: str):
    """There and back again, and lengths are kept."""
    shapes = network_shapes(widths, biases)
    arrays = {name: value[None] for name, value in drawn(shapes).items()}
    blocks = blocks_of(widths, biases, group)
    matrices = [block.coordinates(OPS, arrays) for block in blocks]
    for name, array in parameters_of(OPS, blocks, matrices).items():
        np.testing.assert_allclose(array, arrays[name], rtol=0, atol=1e-14)
    assert sum(block.copies * block.multiplicity for block in blocks) == sum(map(math.prod, shapes.values()))
    squares = [np.sum(array**2) for array in arrays.values()]
    np.testing.assert_allclose(sum(np.sum(matrix**2) for matrix in matrices), sum(squares))


def test_copies_and_multiplicities_are_those_of_the_theorems():
    def sizes(widths: Any, group: str) -> dict[tuple[int, ...], tuple[int, int]]:
        return {block.layers: (block.copies, block.multiplicity) for block in blocks_of(widths, True, group)}

    assert sizes((5, 4, 3), "signed") == {(1,): (5 + 1 + 3, 4), (): (3, 1)}
    # b_2 with W_3, and W_2 alone
    assert sizes((6, 5, 4, 3), "signed") == {(1,): (7, 5), (1, 2): (1, 20), (2,): (4, 4), (): (3, 1)}
    four = sizes((7, 6, 5, 4, 3), "signed")
    assert four == {(1,): (8, 6), (1, 2): (1, 30), (2,): (1, 5), (2, 3): (1, 20), (3,): (4, 4), (): (3, 1)}
    trivial = 6 + 2 * 3 + 2 * 3 - 3  # d_0 + 2 d_L + 2 L - 3
    assert sizes((6, 5, 4, 3), "permutations") == {
        (): (trivial, 1),
        (1,): (6 + 1 + 1, 4),
        (2,): (1 + 1 + 3, 3),
        (1, 2): (1, 12),
    }
    assert sizes((5, 1, 3), "permutations") == {(): (5 + 2 * 3 + 4 - 3, 1)}


@pytest.mark.parametrize(("widths", "biases", "group"), NETWORKS)
def test_second_moments_are_averages_over_the_group(widths: Any, biases: bool, group: str):
    """The eigenvalues of the average of g g^T are those of the C's, each as often as its multiplicity."""
    shapes = network_shapes(widths, biases)
    arrays = drawn(shapes, 1)
    g = vector(arrays, shapes)
    sigma = average(elements(shapes, group), np.outer(g, g))
    blocks = blocks_of(widths, biases, group)
    factors = [block.second_moment(OPS, block.coordinates(OPS, arrays)) for block in blocks]
    for block, factor in zip(blocks, factors, strict=True):
        for dense in (sigma, np.outer(g, g)):  # averaged or not
            np.testing.assert_allclose(factors_of_dense(OPS, block, dense, shapes), factor, atol=1e-13)
    values = [
        np.repeat(np.linalg.eigvalsh(factor), block.multiplicity)
        for block, factor in zip(blocks, factors, strict=True)
    ]
    np.testing.assert_allclose(
        np.sort(np.concatenate(values)), np.linalg.eigvalsh(sigma), rtol=0, atol=1e-12 * (g @ g)
    )


@pytest.mark.parametrize(("widths", "biases", "group"), NETWORKS)
def test_any_symmetric_matrix_of_the_form_is_its_blocks(widths: Any, biases: bool, group: str):
    """Sigma^(-1/2) g by the C's of a dense Sigma of full rank."""
    shapes = network_shapes(widths, biases)
    arrays, size = drawn(shapes, 2), sum(map(math.prod, shapes.values()))
    factor = np.random.default_rng(3).standard_normal((size, 2 * size))
    sigma = average(elements(shapes, group), factor @ factor.T)
    blocks = blocks_of(widths, biases, group)
    factors = [factors_of_dense(OPS, block, sigma, shapes) for block in blocks]
    matrices = [block.coordinates(OPS, arrays) for block in blocks]
    found = parameters_of(OPS, blocks, preconditioned(OPS, blocks, factors, matrices, 1e-10))
    values, vectors = np.linalg.eigh(sigma)
    expected = vectors @ ((vectors.T @ vector(arrays, shapes)) / np.sqrt(values))
    np.testing.assert_allclose(vector(found, shapes), expected, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("group", GROUPS)
def test_an_ensemble_has_the_covariance_of_its_images_under_the_group(group: str):
    """004 eq. 3: centred, which changes what transforms trivially alone (AMBIGUITIES 24)."""
    widths, models = (2, 2, 2, 2), 5
    shapes = network_shapes(widths)
    rng, every = np.random.default_rng(4), elements(shapes, group)
    gradients = 1 + rng.standard_normal((models, sum(map(math.prod, shapes.values()))))
    images = np.concatenate([gradients @ element.T for element in every])
    sigma = np.cov(images.T, bias=True)
    arrays: dict[str, list[np.ndarray]] = {name: [] for name in shapes}
    for gradient in gradients:
        for name, array in by_name(gradient, shapes).items():
            arrays[name].append(array)
    stacked = {name: np.array(each) for name, each in arrays.items()}
    for block in blocks_of(widths, True, group):
        found = block.covariance(OPS, block.coordinates(OPS, stacked))
        np.testing.assert_allclose(found, factors_of_dense(OPS, block, sigma, shapes), atol=1e-13)


def test_units_that_are_equal_have_no_standard_part():
    """A rounded mean would leave a remainder, which the inverse root would make as large as any step."""
    shapes = network_shapes((2, 3, 2))
    grads = {
        "W1": np.full((3, 2), 0.1) * np.array([1.0, 3.0]),
        "b1": np.full(3, 0.7),
        "W2": np.full((2, 3), 1 / 3),
        "b2": np.ones(2),
    }
    start = {name: np.zeros(shape) for name, shape in shapes.items()}
    (found,) = moved(start, [grads], {"group": "permutations"})
    for name, axis in (("W1", 0), ("b1", 0), ("W2", 1)):
        assert np.ptp(found[name], axis=axis).max() < 1e-14
    # the rate for the trivial block, of rank 1 after a step, and nothing for the standard one
    np.testing.assert_allclose(np.linalg.norm(vector(found, shapes)), HYPER["learning_rate"], rtol=1e-12)


# --- the rule -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cross_layers", [True, False], ids=["", "psi0"])
@pytest.mark.parametrize(("widths", "biases", "group"), NETWORKS)
def test_steps_are_those_of_the_dense_covariance(widths: Any, biases: bool, group: str, cross_layers: bool):
    """Three steps with momentum, by the average of g g^T over every element of the group."""
    params, grads = instance(network_shapes(widths, biases), seed=5, steps=3)
    expected = list(symo(params, grads, ALL, group, cross_layers, "float64"))
    found = moved(params, grads, {"group": group, "cross_layers": cross_layers})
    assert_paths_close(found, expected, 1e-10)


@pytest.mark.parametrize("backend", ["jax", "torch"])
@pytest.mark.parametrize(("widths", "group"), [((4, 3, 3), "signed"), ((3, 3, 2, 2), "permutations")])
def test_backends_agree(widths: Any, group: str, backend: str):
    params, grads = instance(network_shapes(widths), seed=6, steps=12)
    expected = moved(params, grads, {"group": group})
    assert_paths_close(moved(params, grads, {"group": group}, backend), expected, 1e-10)


@pytest.mark.parametrize("widths", [(4, 3, 5), (2, 6, 3)])
def test_the_first_step_is_a_polar_factor(widths: tuple[int, int, int]):
    """L = 2 without biases: sqrt(d_1) times the polar factor of (G_1 | G_2^T)."""
    params, grads = instance(network_shapes(widths, biases=False), seed=7, steps=1)
    (found,) = moved(params, grads, {})
    left, _, right = np.linalg.svd(np.hstack([grads[0]["W1"], grads[0]["W2"].T]), full_matrices=False)
    step = 0.3 * math.sqrt(widths[1]) * left @ right
    np.testing.assert_allclose(found["W1"], params["W1"] - step[:, : widths[0]], atol=1e-10)
    np.testing.assert_allclose(found["W2"], params["W2"] - step[:, widths[0] :].T, atol=1e-10)


@pytest.mark.parametrize(("dtype", "scale"), [("float64", 1e140), ("float64", 1e-140), ("float32", 1e-15)])
@pytest.mark.parametrize("backend", ["numpy", "torch"])
def test_the_scale_of_gradients_does_not_matter(dtype: str, scale: float, backend: str):
    params, grads = instance(network_shapes((3, 4, 2)), seed=10, steps=3)
    larger = [{name: scale * value for name, value in grad.items()} for grad in grads]
    expected = moved(params, grads, {"precision": "any"})
    found = moved(params, larger, {"precision": "any"}, backend, dtype)
    assert_paths_close(found, expected, 1e-10 if dtype == "float64" else 1e-3)


def test_a_cutoff_below_rounding_is_that_of_rounding():
    """At rank 1, all else of C is rounding, of 1e-16 of its eigenvalue."""
    widths = (6, 5, 4)
    shapes = network_shapes(widths, biases=False)
    rng = np.random.default_rng(11)
    units = rng.standard_normal(5)
    grads = {"W1": np.outer(units, rng.standard_normal(6)), "W2": np.outer(rng.standard_normal(4), units)}
    start = {name: np.zeros(shape) for name, shape in shapes.items()}
    (found,) = replay("symo", start, [grads], {"learning_rate": 1.0, "cutoff": 0.0}, "numpy")
    np.testing.assert_allclose(np.linalg.norm(vector(found, shapes)), math.sqrt(5), rtol=1e-12)


# --- layers -------------------------------------------------------------------------------------------------


def test_layers_are_numbered_by_the_order_of_weights():
    def layers(order: str, kinds: Mapping[str, Any] | None = None) -> list[int]:
        known = {"W1": (3, 2), "b1": (3,), "W2": (3, 3), "b2": (3,), "W3": (1, 3), "n": (3,)}
        shapes = {name: known[name] for name in order.split()}
        given = {**{name: "bias" for name in shapes if name[0] == "b"}, **(kinds or {})}
        return [role.layer for role in roles_of(shapes, given).values()]

    assert layers("W1 b1 W2 b2") == [0, 0, 1, 1]
    assert layers("W1 W2 b1 b2") == [0, 1, 0, 1]  # Optax sorts names in this order
    assert layers("b1 W1 b2 W2") == [0, 0, 1, 1]
    assert layers("W1 W2 b2 W3 n") == [0, 1, 1, 2, 2]
    assert layers("n W1 b1") == [0, 0, 0]
    assert layers("W2 W1", {"W2": Role("weight", 1), "W1": Role("weight", 0)}) == [1, 0]


def test_roles_count_and_not_the_order_of_parameters():
    shapes = network_shapes((3, 2, 2, 2))
    params, grads = instance(shapes, seed=13, steps=2)
    kinds = {name: Role(kind, int(name[1:]) - 1) for name, kind in kinds_of(shapes).items()}
    kinds["W3"] = Role("head", 2)  # a head is a layer like any other
    names = list(reversed(shapes))
    backwards = [{name: arrays[name] for name in names} for arrays in (params, *grads)]
    found = replay("symo", backwards[0], backwards[1:], HYPER, "numpy", kinds=kinds)
    assert_paths_close(found, moved(params, grads, {}), 1e-14)


CHAIN = {"W1": (3, 2), "W2": (2, 3)}


def test_no_basis_is_taken():
    params = {name: np.ones(shape) for name, shape in CHAIN.items()}
    with pytest.raises(InputError, match="run it without a basis"):
        Online("symo", params, HYPER, basis=np.eye(12))


def test_float32_is_refused_by_name_and_taken_where_asked_for():
    params, grads = instance(CHAIN, steps=1)
    with pytest.raises(InputError, match=r"symo: runs in float64, .*give it float64, .*any"):
        replay("symo", params, grads, HYPER, "numpy", "float32")
    assert moved(params, grads, {"precision": "any"}, dtype="float32")[0]["W1"].dtype == np.float32
    single = [torch.nn.Parameter(torch.ones(shape)) for shape in CHAIN.values()]
    with pytest.raises(InputError, match="runs in float64, and this is float32"):
        as_torch("symo", single, **HYPER)


def test_without_a_network_it_has_no_update():
    with pytest.raises(OptionError, match="for_model"):
        rules()["symo"].init(OPS, np.ones(3))


# --- exports ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("group", GROUPS)
def test_a_torch_model_is_updated_as_by_the_engine(group: str):
    """`model.parameters()` gives the parameters in the order of the layers."""
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2)).double()
    named = dict(model.named_parameters())
    kinds = {name: "bias" if name.endswith("bias") else "weight" for name in named}
    optimizer = as_torch("symo", named.items(), {"group": group}, kinds, **HYPER)
    start = {name: value.detach().numpy().copy() for name, value in named.items()}
    _, grads = instance({name: value.shape for name, value in start.items()}, seed=16, steps=4)
    for grad in grads:
        for name, value in named.items():
            value.grad = torch.tensor(grad[name])
        optimizer.step()
    expected = replay("symo", start, grads, HYPER, "torch", options={"group": group}, kinds=kinds)[-1]
    for name, value in named.items():
        np.testing.assert_allclose(value.detach().numpy(), expected[name], rtol=1e-12, atol=1e-14)
