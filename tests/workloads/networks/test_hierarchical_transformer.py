"""The hierarchical vision transformer: sizes, roles, order of tokens, comparison with timm."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from curvebench.arrays.numpy_ops import numpy_ops
from curvebench.benchmarks.peer_networks import timm_hiera
from curvebench.optimizers.layers import layers_of
from curvebench.steps.layout import layout
from curvebench.workloads.networks.hierarchical_transformer import (
    HieraViT,
    MaskUnitAttention,
    by_mask_units,
    hiera_logits,
)
from curvebench.workloads.workload import Role
from tests.workloads.cases import assert_near, outputs_state_and_gradients
from tests.workloads.networks import oracles

BASE = HieraViT(classes=10)
SMALL = HieraViT(
    side=16,
    channels=2,
    width=8,
    classes=5,
    stages=(1, 2, 1),
    kernel=3,
    stride=2,
    attention=MaskUnitAttention(head_width=4, mask_unit=4, masked_stages=2, pooled_stages=2),
)
NETWORKS = {
    "base": BASE,
    "small": SMALL,
    "one matrix, three mask units": replace(SMALL, qkv_matrices=1, side=24),
    "one pooling, all masked, narrow MLP": replace(
        SMALL, mlp_ratio=3, attention=MaskUnitAttention(8, 4, masked_stages=3, pooled_stages=1)
    ),
    "no pooling, global, patches apart": replace(
        SMALL,
        stages=(1, 1),
        kernel=4,
        stride=4,
        attention=MaskUnitAttention(2, 2, masked_stages=0, pooled_stages=0),
    ),
}


def _size(model: HieraViT) -> int:
    return sum(math.prod(shape) for shape in model.shapes.values())


def test_the_base_model_has_as_many_parameters_as_the_papers():
    assert _size(BASE) == 50_763_658
    assert _size(replace(BASE, qkv_matrices=1)) == 50_763_658
    assert list(BASE.roles) == list(BASE.shapes)


def test_roles_tell_embeddings_matrices_and_the_head_apart():
    roles = SMALL.roles
    assert roles["positions"] == roles["patch_weight"] == Role("embedding", 0)
    assert roles["block2_projection_weight"] == roles["block2_query_weight"] == Role("weight", 3)
    assert roles["block2_wide_weight"] == Role("weight", 4)
    assert roles["block2_before_mlp_scale"] == Role("norm", 4)
    assert (roles["head_weight"], roles["head_bias"]) == (Role("head", 9), Role("bias", 9))
    assert "block3_projection_weight" not in roles


@pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)
def test_each_layer_of_a_run_has_its_own_bias(network):
    """Weights of one layer, which a run has side by side where their shapes are equal."""
    laid = layout(network.shapes, network.roles)
    for layer in layers_of(laid.shapes, laid.roles):
        assert layer.bias == layer.weight.replace("weight", "bias")


def test_one_matrix_of_query_key_and_value_starts_as_three_do():
    three = SMALL.sample(np.random.default_rng(0))
    one = replace(SMALL, qkv_matrices=1).sample(np.random.default_rng(0))
    for block in range(1, 5):
        for kind in ("weight", "bias"):
            parts = [three.pop(f"block{block}_{part}_{kind}") for part in ("query", "key", "value")]
            np.testing.assert_array_equal(
                one.pop(f"block{block}_query_key_value_{kind}"), np.concatenate(parts)
            )
    assert one.keys() == three.keys()
    for name, value in three.items():
        np.testing.assert_array_equal(one[name], value)


def test_windows_are_mask_units_and_the_first_quarters_two_by_two_tokens():
    """Twice halved of 3 times 3 mask units of 12 x 12 tokens."""
    side, unit = 36, 12
    rows, columns = np.divmod(np.arange(side**2), side)
    places = np.stack([rows, columns], axis=-1)[None]
    found = by_mask_units(numpy_ops(), places, unit, 2)[0]
    units = found.reshape(unit**2, -1, 2) // unit  # (places, mask units)
    assert (units == units[0]).all()
    assert np.unique(units[0], axis=0).tolist() == [[row, column] for row in range(3) for column in range(3)]
    for square in (2, 4):
        quarters = found.reshape(4, -1, 2)
        assert (quarters // square == quarters[0] // square).all()
        found = quarters[0]  # one token is left of four


# --- timm ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "backend"),
    [
        pytest.param(
            name,
            backend,
            marks=[pytest.mark.long] * (name == "base" or (backend == "jax" and name != "small")),
        )
        for name in NETWORKS
        for backend in ("torch", "jax")
    ],
)
def test_outputs_and_gradients_from_the_images_on_are_timms(name, backend):
    """In training and evaluation, in which ours is the same; of Hiera-B, as timm names it."""
    network = NETWORKS[name]
    generator = np.random.default_rng(0)
    params = {key: generator.normal(size=shape) / shape[-1] ** 0.5 for key, shape in network.shapes.items()}
    count = 1 if name == "base" else 3
    images = generator.normal(size=(count, network.channels, network.side, network.side))
    direction = generator.normal(size=(count, network.classes))

    if name == "base":
        import timm

        model = timm.create_model("hiera_base_224", num_classes=10).double()
    else:
        model = timm_hiera(network).double()
    oracles.load(model, oracles.timm_values(network, params))

    def outputs(ops, params):
        return hiera_logits(ops, params, ops.asarray(images), network.attention), {}

    logits, _, by_name = outputs_state_and_gradients(backend, outputs, params, direction)
    for training in (True, False):
        due, gradients = oracles.outputs_and_gradients(model.train(training), images, direction)
        assert abs(due).max() > 0.1
        assert_near({"logits": logits}, {"logits": due}, 1e-10)
        assert_near(oracles.timm_values(network, by_name), gradients, 1e-10)
