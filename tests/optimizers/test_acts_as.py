"""Models on which a rule is a known method: equal steps, and no such claim on other models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import curvebench
from curvebench.registry import find_rule
from curvebench.steps.layout import roles_of

VECTORS = {"first": (5,), "second": (3,), "third": ()}
MATRIX = {"weight": (4, 3), "bias": (4,)}
KINDS: Mapping[str, Mapping[str, Any]] = {"vectors": {}, "biases": dict.fromkeys(VECTORS, "bias")}
EPSILON = {"epsilon": 1e-3}
ADAM = {"beta1": 0.8, "beta2": 0.9, "epsilon": 1e-3}
DECAYED = {**ADAM, "weight_decay": 0.1}
OTHERS = {"others_ratio": 0.5, **{f"others_{name}": value for name, value in DECAYED.items()}}
AS_ADAM = {"first_moment": True, "clipping": False, "parameter_scaling": False, "beta2_schedule": False}
# Name of the rule, its options, its hyperparameters, kinds of the vectors; then the known method, its options
# and its hyperparameters (with a learning rate of 1 or, for fallback rules, of the ratio).
Case = tuple[str, dict[str, Any], dict[str, float], str, str, dict[str, Any], dict[str, float]]
CASES: Mapping[str, Case] = {
    **{
        f"{name}, {kinds}": (name, {}, OTHERS, kinds, "adamw", {}, DECAYED)
        for name, kinds in [
            *(("muon", "vectors"), ("spectral", "vectors"), ("manifold_muon", "vectors")),
            *(("pin_to_sphere", "biases"), ("weight_normalization", "biases")),
        ]
    },
    "muon, momentum": (
        *("muon", {"others": "momentum"}, {"others_ratio": 0.5, "others_momentum": 0.7}, "vectors"),
        *("momentum", {}, {"momentum": 0.7}),
    ),
    "shampoo": ("shampoo", {}, EPSILON, "vectors", "adagrad_full", {}, EPSILON),
    "soap": (
        *("soap", {"skip_first_step": False}, {**ADAM, "weight_decay": 0.0}, "vectors"),
        *("adam", {}, ADAM),
    ),
    "adafactor": ("adafactor", AS_ADAM, ADAM, "vectors", "adam", {"epsilon_inside_root": True}, ADAM),
    "spectral norm": ("steepest_descent", {"norm": "spectral"}, {}, "vectors", "steepest_descent", {}, {}),
    "spectral norm, majorization": (
        *("steepest_descent", {"norm": "spectral", "principle": "majorization"}, {}, "vectors"),
        *("sgd", {}, {}),
    ),
}  # fmt: skip


def acts_as(name: str, options: Mapping[str, Any], shapes: Any, kinds: Any = None) -> str | None:
    return find_rule(name).choose(options).acts_as(shapes, roles_of(shapes, kinds))


def drawn(shapes: Mapping[str, tuple[int, ...]], steps: int) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(3)
    return [{name: rng.standard_normal(shape) for name, shape in shapes.items()} for _ in range(steps + 1)]


@pytest.mark.parametrize("case", CASES)
def test_steps_are_those_of_the_known_method(case: str) -> None:
    """Each vector apart, since a rule of the whole model would see all vectors as one."""
    name, options, hyper, kinds, known, known_options, known_hyper = CASES[case]
    assert acts_as(name, options, VECTORS, KINDS[kinds]) == known
    start, *grads = drawn(VECTORS, 20)
    rate = 0.1 * hyper.get("others_ratio", 1.0)
    found = curvebench.replay(
        name, start, grads, {**hyper, "learning_rate": 0.1}, "numpy", options=options, kinds=KINDS[kinds]
    )
    for vector in VECTORS:
        expected = curvebench.replay(
            *(known, {vector: start[vector]}, [{vector: grad[vector]} for grad in grads]),
            *({**known_hyper, "learning_rate": rate}, "numpy"),
            options=known_options,
        )
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one[vector], other[vector], rtol=1e-12, atol=1e-12)


def test_soap_skips_the_first_gradient_of_adam() -> None:
    start, *grads = drawn(VECTORS, 20)
    hyper = {**ADAM, "learning_rate": 0.1}
    found = curvebench.replay("soap", start, grads, {**hyper, "weight_decay": 0.0}, "numpy")
    expected = curvebench.replay("adam", start, grads[1:], hyper, "numpy")
    np.testing.assert_array_equal(found[0]["first"], start["first"])
    for one, other in zip(found[1:], expected, strict=True):
        for name in VECTORS:
            np.testing.assert_allclose(one[name], other[name], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("case", CASES)
def test_a_rule_is_itself_on_a_model_with_a_matrix(case: str) -> None:
    name, options, *_ = CASES[case]
    assert acts_as(name, options, MATRIX) is None


@pytest.mark.parametrize(
    ("name", "options"),
    [
        *(("shampoo", {"statistics": "ema"}), ("shampoo", {"grafting": "adam"})),
        *(("shampoo", {"power": 0.25}), ("shampoo", {"block_size": 4}), ("shampoo", {"refresh_every": 2})),
        *(("adafactor", {}), ("adafactor", {**AS_ADAM, "first_moment": False})),
        *(("adafactor", {**AS_ADAM, change: True}) for change in ("clipping", "parameter_scaling")),
        *(("adafactor", {**AS_ADAM, "beta2_schedule": True}), ("steepest_descent", {}), ("adam", {})),
    ],
)  # fmt: skip
def test_a_rule_is_itself_on_vectors(name: str, options: Mapping[str, Any]) -> None:
    assert acts_as(name, options, VECTORS) is None


def test_a_row_and_a_long_axis_are_vectors_to_soap() -> None:
    assert acts_as("soap", {}, {"row": (1, 6), "column": (3, 1)}) == "adam"
    assert acts_as("soap", {}, {"long": (20_000, 1)}) == "adam"
    assert acts_as("soap", {}, {"one_side": (20_000, 2)}) is None


def test_groups_of_an_optimizer_of_pytorch() -> None:
    rule = find_rule("torch:torch.optim.Muon")
    assert rule.acts_as(VECTORS, roles_of(VECTORS)) == "torch-adamw"
    assert rule.acts_as(MATRIX, roles_of(MATRIX)) is None
    assert find_rule("torch:torch.optim.SGD").acts_as(VECTORS, roles_of(VECTORS)) is None
