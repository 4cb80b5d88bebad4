"""Muon alone: singular values of the update, every choice, which leaves are matrices, bfloat16 in PyTorch."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness import replay
from optimizers import rules
from optimizers.matrix_functions import COEFFICIENTS
from tests.optimizers.families.muon import muon, torch_muon
from tests.optimizers.loops import Leaf
from tests.optimizers.oracles import Oracle, pytorch_path
from tests.optimizers.references import BATTERY

EXACT = {"orthogonalization": "svd", "scale": "none"}
RATE = {"learning_rate": 0.5, "others_learning_rate": 0.25}


def moved(
    grad: np.ndarray, options: dict[str, Any], backend: str = "numpy", kind: str = "weight", **hyper: float
) -> np.ndarray:
    """The first update of a parameter that begins at 0."""
    zero = {"w": np.zeros_like(grad)}
    (after,) = replay(
        "muon", zero, [{"w": grad}], {**RATE, **hyper}, backend, options=options, kinds={"w": kind}
    )
    return after["w"]


@given(seed=st.integers(0, 2**31), rows=st.integers(1, 6), columns=st.integers(1, 6))
@settings(max_examples=50)
def test_the_exact_update_has_singular_values_1(seed: int, rows: int, columns: int) -> None:
    """At every step; 002 eq. 69 for the spectral norm."""
    rng = np.random.default_rng(seed)
    grads = [{"w": rng.standard_normal((rows, columns))} for _ in range(4)]
    path = replay("muon", {"w": np.zeros((rows, columns))}, grads, RATE, "numpy", options=EXACT)
    before = np.zeros((rows, columns))
    for arrays in path:
        values = np.linalg.svd((before - arrays["w"]) / 0.5, compute_uv=False)
        np.testing.assert_allclose(values, 1, rtol=1e-10)
        before = arrays["w"]


def test_jordans_iteration_brings_singular_values_near_1() -> None:
    """002 Q.3.1: 1 +- 0.3 after five steps, where they begin above 0.02."""
    rng = np.random.default_rng(0)
    u, v = (np.linalg.qr(rng.standard_normal((5, 5)))[0] for _ in range(2))
    values = np.linalg.svd(moved((u * [1, 0.7, 0.4, 0.2, 0.1]) @ v, {"scale": "none"}), compute_uv=False)
    assert np.abs(values / 0.5 - 1).max() < 0.33


@pytest.mark.parametrize(
    ("scale", "shape", "factor"),
    [
        ("none", (8, 2), 1.0),
        ("spectral", (8, 2), 2.0),
        ("spectral", (2, 8), 1.0),
        ("adam", (25, 4), 1.0),
        ("adam", (4, 25), 1.0),
        ("spectral", (8, 1, 2, 1), 2.0),  # a convolution as outputs x the rest
        ("adam", (4, 5, 5, 1), 1.0),
    ],
)
def test_scales(scale: str, shape: tuple[int, ...], factor: float) -> None:
    update = moved(np.random.default_rng(1).standard_normal(shape), {**EXACT, "scale": scale})
    values = np.linalg.svd(update.reshape(shape[0], -1), compute_uv=False)
    np.testing.assert_allclose(values, 0.5 * factor, rtol=1e-12)


@pytest.mark.parametrize("others", ["adamw", "adam", "momentum", "sgd"])
def test_every_choice_with_every_other_is_the_plain_loop(others: str) -> None:
    rng = np.random.default_rng(2)
    draws = [{"matrix": rng.standard_normal((3, 5)), "vector": rng.standard_normal(4)} for _ in range(4)]
    ways = [("svd", "jordan"), *(("newton_schulz", name) for name in COEFFICIENTS)]
    for (way, coefficients), nesterov, scale in itertools.product(
        ways, (True, False), ("none", "spectral", "adam")
    ):
        options = {
            "orthogonalization": way,
            "coefficients": coefficients,
            "nesterov": nesterov,
            "scale": scale,
            "others": others,
        }
        rule = rules()["muon"].choose(options)
        hyper = rule.complete({**RATE, "momentum": 0.7, "weight_decay": 0.1})
        path = replay("muon", draws[0], draws[1:], hyper, "numpy", options=options)
        for name, kind in (("matrix", "weight"), ("vector", "vector")):
            leaf = Leaf(kind, draws[0][name], [draw[name] for draw in draws[1:]])
            *_, expected = muon(leaf, hyper, **rule.chosen)
            np.testing.assert_allclose(path[-1][name], expected, rtol=1e-11, atol=1e-12, err_msg=str(options))


@pytest.mark.parametrize(
    ("kind", "shape", "is_matrix"),
    [
        ("weight", (3, 2), True),
        ("convolution", (3, 2, 1, 1), True),
        ("embedding", (3, 2), False),
        ("norm", (3,), False),
        ("bias", (3,), False),
        ("weight", (3,), False),
    ],
)
def test_weights_and_convolutions_alone_are_matrices(
    kind: str, shape: tuple[int, ...], is_matrix: bool
) -> None:
    grad = np.random.default_rng(3).standard_normal(shape)
    found = moved(grad, {**EXACT, "others": "sgd"}, kind=kind)
    if is_matrix:
        values = np.linalg.svd(found.reshape(shape[0], -1), compute_uv=False)
        np.testing.assert_allclose(values, 0.5, rtol=1e-12)
    else:
        np.testing.assert_array_equal(found, -0.25 * grad)


def test_the_others_need_no_learning_rate() -> None:
    values = rules()["muon"].complete({"learning_rate": 0.1})
    assert (values["learning_rate"], values["others_learning_rate"]) == (0.1, 1e-3)
    ours = rules()["adamw"].complete({"learning_rate": 1e-3})
    assert {name: values[f"others_{name}"] for name in ours} == ours


def test_pytorch_in_bfloat16_is_near() -> None:
    """With its own rounding, which `references.py` takes away: 3 digits at each step, of steps of size 1."""
    entry, rng = BATTERY["muon"], np.random.default_rng(4)
    draws = [{"w": rng.standard_normal((16, 8))} for _ in range(5)]
    theirs = pytorch_path(Oracle(torch_muon("original")), draws[0], draws[1:], entry.hyper)
    ours = replay("muon", draws[0], draws[1:], entry.hyper, "torch", "float32")
    difference = np.abs(ours[-1]["w"] - theirs[-1]["w"]).max()
    assert 1e-6 < difference / np.abs(ours[-1]["w"] - draws[0]["w"]).max() < 0.02
