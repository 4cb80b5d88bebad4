"""The vision transformer: sizes, patches, positions, roles, data, comparison with timm."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from curvebench.benchmarks.peer_networks import timm_network
from curvebench.optimizers import rules
from curvebench.workloads.fashion import read_fashion
from curvebench.workloads.networks.vision_transformer import (
    PlainViT,
    fixed_positions,
    patches_of,
    positions,
    vit_logits,
)
from tests.workloads.cases import assert_near, outputs_state_and_gradients, random_of, small
from tests.workloads.networks import oracles

BASE = PlainViT(inputs=16 * 16 * 3, width=768, depth=12, classes=10)  # B/16
GRID, SIDE, CHANNELS, HEADS, COUNT = 3, 2, 3, 3, 4
TINY = PlainViT(inputs=SIDE**2 * CHANNELS, width=24, depth=2, classes=5)


def _size(model: PlainViT) -> int:
    return sum(math.prod(shape) for shape in model.shapes.values())


def test_the_base_model_has_as_many_parameters_as_the_papers():
    assert _size(BASE) == 85_654_282
    assert list(BASE.roles) == list(BASE.shapes)


def test_patches_are_squares_row_by_row():
    images = np.random.default_rng(0).normal(size=(2, 4, 6, 3))
    found = patches_of(images, 2)
    assert found.shape == (2, 6, 12)
    for token, (row, column) in enumerate((row, column) for row in (0, 2) for column in (0, 2, 4)):
        due = images[:, row : row + 2, column : column + 2].reshape(2, -1)
        np.testing.assert_array_equal(found[:, token], due)


def test_positions_are_sines_and_cosines_of_column_and_row():
    """posemb_sincos_2d of Beyer et al. 2022, term by term."""
    found = positions(GRID, 24)
    for row in range(GRID):
        for column in range(GRID):
            for k in range(6):
                wave = 1 / 10_000 ** (k / 5)
                due = [f(wave * place) for place in (column, row) for f in (math.sin, math.cos)]
                np.testing.assert_allclose(found[row * GRID + column, k::6], due, rtol=1e-13, atol=1e-15)


# --- timm ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("tiny", [TINY, replace(TINY, qkv_matrices=1)], ids=["three matrices", "one"])
def test_outputs_and_gradients_from_the_images_on_are_timms(tiny):
    """In training mode, in which ours is the same as in evaluation."""
    generator = np.random.default_rng(0)
    params = {name: generator.normal(size=shape) / shape[-1] ** 0.5 for name, shape in tiny.shapes.items()}
    images = generator.normal(size=(COUNT, GRID * SIDE, GRID * SIDE, CHANNELS))
    direction = generator.normal(size=(COUNT, tiny.classes))

    model = timm_network(tiny, GRID, SIDE, CHANNELS, HEADS).double()
    oracles.load(model, oracles.timm_values(tiny, params, SIDE))
    seen = images.transpose(0, 3, 1, 2)
    due, gradients = oracles.outputs_and_gradients(model, seen, direction)
    np.testing.assert_array_equal(due, oracles.outputs_and_gradients(model.eval(), seen, direction)[0])
    assert abs(due).max() > 0.1

    def network(ops, params):
        patches = ops.asarray(patches_of(images, SIDE))
        return vit_logits(ops, params, fixed_positions(GRID**2, tiny.width), patches, tiny.width // HEADS), {}

    for backend in ("torch", "jax"):
        logits, _, by_name = outputs_state_and_gradients(backend, network, params, direction)
        assert_near({"logits": logits}, {"logits": due}, 1e-10)
        assert_near(oracles.timm_values(tiny, by_name, SIDE), gradients, 1e-10)


# --- what rules of matrices take -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "options", "left"),
    [
        ("muon", {}, {"patch_weight", "head_weight"}),
        ("muon", {"heads": "muon"}, {"patch_weight"}),
        ("spectral", {}, {"patch_weight"}),
    ],
)
def test_rules_of_matrices_leave_the_embedding_to_the_other_rule_and_muon_the_head(rule, options, left):
    part = rules()[rule].choose(options).part
    assert part is not None
    roles, shapes = TINY.roles, TINY.shapes
    taken = {name for name in shapes if part(roles[name], shapes[name]).rule.name == rule}
    assert taken == {name for name in shapes if name.endswith("weight")} - left


# --- the data ------------------------------------------------------------------------------------


def test_splits_are_the_first_images_of_the_standard_parts():
    workload, settings = small("fashion_vit")
    splits = workload.problem(settings, random_of(0)).splits
    held_out, side = settings["held_out_examples"], settings["patch"]
    places = {"train": ("train", 0), "validation": ("test", 0), "test": ("test", held_out)}
    for name, (part, start) in places.items():
        count = settings["train_examples"] if name == "train" else held_out
        images, labels = (array[start : start + count] for array in read_fashion(part))
        assert np.array_equal(splits[name]["labels"], labels)
        due = patches_of(images[..., None], side)
        np.testing.assert_allclose(127.5 * (splits[name]["patches"] + 1), due, atol=1e-12)
