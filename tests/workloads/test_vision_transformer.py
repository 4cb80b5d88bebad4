"""The vision transformer: sizes, patches, positions, roles, data, and PyTorch's encoder layers beside it."""

from __future__ import annotations

import math

import jax
import numpy as np
import pytest
import torch

from harness.backends.jax_ops import jax_ops
from harness.backends.numpy_ops import numpy_ops
from harness.backends.torch_ops import torch_ops
from optimizers import rules
from tests.workloads.cases import random_of, small
from workloads.fashion import FASHION_VIT
from workloads.idx import read_fashion
from workloads.vision_transformer import EPSILON, PlainViT, patches_of, positions, vit_logits

BASE = PlainViT(inputs=16 * 16 * 3, width=768, depth=12, classes=10)  # B/16
TINY = PlainViT(inputs=12, width=24, depth=2, classes=5)
GRID, HEADS, COUNT = 3, 3, 4


def _size(model: PlainViT) -> int:
    return sum(math.prod(shape) for shape in model.shapes.values())


def test_the_base_model_has_as_many_parameters_as_the_papers():
    assert _size(BASE) == 85_654_282
    assert list(BASE.roles) == list(BASE.shapes)


def test_the_workloads_own_sizes_are_those_of_its_description():
    settings = FASHION_VIT.complete({})
    parameters = FASHION_VIT.sample_parameters(settings, np.random.default_rng(0))
    assert f"d = {sum(value.size for value in parameters.values())}" in FASHION_VIT.description


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


# --- PyTorch's own layers ------------------------------------------------------------------------


class _Reference(torch.nn.Module):  # type: ignore[misc]  # torch has no types here
    """The network in PyTorch's layers, at given parameters in float64."""

    def __init__(self, params: dict[str, np.ndarray]) -> None:
        super().__init__()
        width = TINY.width
        self.patch = torch.nn.Linear(TINY.inputs, width)
        self.blocks = torch.nn.ModuleList(
            torch.nn.TransformerEncoderLayer(
                width, HEADS, 4 * width, 0.0, "gelu", EPSILON, batch_first=True, norm_first=True
            )
            for _ in range(TINY.depth)
        )
        self.last = torch.nn.LayerNorm(width, EPSILON)
        self.head = torch.nn.Linear(width, TINY.classes)
        self.double()
        self.load_state_dict({name: torch.tensor(value) for name, value in _as_torch(params).items()})

    def forward(self, patches: torch.Tensor) -> torch.Tensor:
        x = self.patch(patches) + torch.tensor(positions(GRID, TINY.width))
        for block in self.blocks:
            x = block(x)
        return self.head(self.last(x).mean(1))


def _as_torch(params: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Values by PyTorch's names, which has query, key and value in one matrix."""
    found = {
        f"{name}.{kind}": params[f"{name}_{kind}"]
        for name in ("patch", "head")
        for kind in ("weight", "bias")
    }
    names = {"last": "last"}
    for block in range(TINY.depth):
        ours, theirs = f"block{block + 1}", f"blocks.{block}"
        names |= {f"{ours}_before_attention": f"{theirs}.norm1", f"{ours}_before_mlp": f"{theirs}.norm2"}
        for kind in ("weight", "bias"):
            parts = [params[f"{ours}_{part}_{kind}"] for part in ("query", "key", "value")]
            found[f"{theirs}.self_attn.in_proj_{kind}"] = np.concatenate(parts)
            found[f"{theirs}.self_attn.out_proj.{kind}"] = params[f"{ours}_mixed_{kind}"]
            found[f"{theirs}.linear1.{kind}"] = params[f"{ours}_wide_{kind}"]
            found[f"{theirs}.linear2.{kind}"] = params[f"{ours}_narrow_{kind}"]
    for ours, theirs in names.items():
        found |= {f"{theirs}.weight": params[f"{ours}_scale"], f"{theirs}.bias": params[f"{ours}_shift"]}
    return found


def test_outputs_and_gradients_are_those_of_torchs_encoder_layers():
    generator = np.random.default_rng(0)
    params = {name: generator.normal(size=shape) / shape[-1] ** 0.5 for name, shape in TINY.shapes.items()}
    patches = generator.normal(size=(COUNT, GRID**2, TINY.inputs))
    chosen = generator.normal(size=(COUNT, TINY.classes))  # a direction of the outputs

    reference = _Reference(params)
    due = reference(torch.tensor(patches))
    (due * torch.tensor(chosen)).sum().backward()
    gradients = {name: value.grad.numpy() for name, value in reference.named_parameters()}
    assert abs(due.detach().numpy()).max() > 0.1

    def outputs(ops, values):
        return vit_logits(ops, values, ops.asarray(patches), TINY.width // HEADS)

    by_numpy = outputs(numpy_ops(), params)
    ops = torch_ops("cpu", "float64")
    leaves = {name: torch.tensor(value, requires_grad=True) for name, value in params.items()}
    by_torch = outputs(ops, leaves)
    (by_torch * torch.tensor(chosen)).sum().backward()
    found = {"torch": {name: leaf.grad.numpy() for name, leaf in leaves.items()}}
    with jax.enable_x64(True):

        @jax.jit
        @jax.grad
        def gradient(values):
            found = outputs(jax_ops("float64"), values)
            return (found * chosen).sum()

        found["jax"] = {name: np.asarray(value) for name, value in gradient(params).items()}
    for logits in (by_numpy, by_torch.detach().numpy()):
        np.testing.assert_allclose(logits, due.detach().numpy(), rtol=1e-10, atol=1e-12)
    for by_name in found.values():
        named = _as_torch(by_name)
        assert named.keys() == gradients.keys()
        for name, value in gradients.items():
            np.testing.assert_allclose(named[name], value, rtol=1e-10, atol=1e-12)


# --- what rules of matrices take -----------------------------------------------------------------


@pytest.mark.parametrize("rule", ["muon", "spectral"])
def test_rules_of_matrices_leave_the_embedding_to_the_other_rule_and_take_the_head(rule):
    part = rules()[rule].part
    assert part is not None
    roles, shapes = TINY.roles, TINY.shapes
    taken = {name for name in shapes if part(roles[name], shapes[name]).rule.name == rule}
    assert taken == {name for name in shapes if name.endswith("weight")} - {"patch_weight"}


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


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"width": 40}, "width = 40 is not a multiple of 16, the units of an attention head"),
        ({"patch": 5}, "patch = 5 is not one of 1, 2, 4, 7, 14"),
        (
            {"held_out_examples": 5_001},
            "held_out_examples = 5001 is larger than the 5000 images of the test part",
        ),
        ({"train_examples": 60_001}, "train_examples = 60001 is larger than the 60000 images"),
        ({"train_examples": 100}, "batch_size = 128 is larger than the 100 training examples"),
    ],
)
def test_a_wrong_setting_is_named(settings, message):
    with pytest.raises(ValueError) as caught:  # noqa: PT011, the message is compared below
        FASHION_VIT.complete(settings)
    assert message in str(caught.value)
