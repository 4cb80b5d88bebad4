"""Gradients clipped by their norm: a closed form in NumPy, torch's own function, and paths by hand."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from curvebench import optimizers
from curvebench.backends.engine import engine
from curvebench.engine.loading import load
from curvebench.registry import find_rule
from curvebench.steps.derivatives import StepInfo
from curvebench.steps.program import Program
from tests.curvebench.engine.test_execution import changed, make_bundle, run, same
from tests.curvebench.toys import loss_and_gradient, steps_by_hand

BACKENDS = ("jax", "torch")
SGD = optimizers.rules()["sgd"]


def clipped(gradient: dict[str, np.ndarray], norm: float, backend: str, dtype: str = "float64") -> Any:
    """Gradients (S, K, ...) of the tanh network as a rule sees them, on the host."""
    made = engine(backend, dtype)
    with made.context():
        bundle = make_bundle(rule=SGD, basis=False, clip_gradient_norm=norm)
        program: Program = load(bundle, made).program
        given = {name: made.ops.asarray(value) for name, value in gradient.items()}
        found = program.clipped(StepInfo(made.ops.zeros((1, 1)), given, {}, {})).gradient
        return {name: np.array(made.ops.to_numpy(value)) for name, value in found.items()}


def drawn(rng: np.random.Generator, lengths: np.ndarray) -> dict[str, np.ndarray]:
    """Gradients of lanes (S, K) of these lengths, roughly."""
    shapes = {"bias": (4,), "first": (4, 3), "second": (2, 4)}
    lanes = lengths.shape
    return {
        name: rng.standard_normal((*lanes, *shape)) * lengths.reshape(*lanes, *(1,) * len(shape))
        for name, shape in shapes.items()
    }


@given(
    arrays.arrays(np.float64, (2, 3), elements=st.floats(-250, 250)),
    st.floats(1e-3, 1e3),
    st.integers(0, 2**32 - 1),
)
def test_each_lane_has_the_closed_form(exponents: np.ndarray, norm: float, seed: int) -> None:
    """g min(1, c / |g|), whatever other lanes have, where squares overflow or vanish too."""
    gradient = drawn(np.random.default_rng(seed), 10.0**exponents)
    found = clipped(gradient, norm, "torch")
    for s, k in np.ndindex(2, 3):
        whole = np.concatenate([value[s, k].ravel() for value in gradient.values()])
        largest = np.abs(whole).max()
        length = largest * np.linalg.norm(whole / largest)
        for name, value in gradient.items():
            expected = value[s, k] * min(1.0, norm / length)
            np.testing.assert_allclose(found[name][s, k], expected, rtol=1e-12)
            if length < norm * (1 - 1e-12):
                assert np.array_equal(found[name][s, k], value[s, k])


@pytest.mark.parametrize(
    ("bad", "dtype", "backend"),
    [
        *itertools.product([np.nan, np.inf, -np.inf], ["float32", "float64"], ["torch"]),
        (np.nan, "float64", "jax"),
        (np.inf, "float32", "jax"),
    ],
)
def test_what_is_not_finite_stays_so_in_its_lane(bad: float, dtype: str, backend: str) -> None:
    gradient = drawn(np.random.default_rng(1), np.full((1, 2), 10.0))
    gradient["first"][0, 0, 1, 2] = bad
    found = clipped(gradient, 1.0, backend, dtype)
    assert not np.isfinite(found["first"][0, 0, 1, 2])
    length = np.sqrt(sum(np.sum(value[0, 1] ** 2) for value in found.values()))
    assert length == pytest.approx(1.0, rel=1e-5)


def test_a_gradient_of_zero_stays() -> None:
    gradient = drawn(np.random.default_rng(0), np.zeros((1, 1)))
    assert not any(value.any() for value in clipped(gradient, 1.0, "torch").values())


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_path_by_hand(backend: str) -> None:
    """Momentum on clipped gradients of minibatches, written out in NumPy."""
    bundle = make_bundle(rates=(0.2,), seeds=(5,), basis=False, clip_gradient_norm=3.0)
    steps, end = steps_by_hand(bundle, 0, 0.2, momentum=0.9, longest=3.0)
    assert min(step.norm for step in steps) < 3.0 < max(step.norm for step in steps)
    found = run(bundle, backend).metrics["train_loss"][-1, 0, 0]
    assert found == pytest.approx(loss_and_gradient(end, bundle.problems[0].splits["train"])[0], rel=1e-11)


def test_the_norm_is_that_of_the_original_coordinates() -> None:
    """A rotation keeps it: descent takes the same path in any basis; in parts too."""
    bundle = make_bundle(rule=SGD, clip_gradient_norm=0.2)
    plain = run(make_bundle(rule=SGD, basis=False, clip_gradient_norm=0.2), "torch")
    same(plain, run(bundle, "torch"), 1e-10)
    same(plain, run(changed(bundle, gradient_accumulation=5), "torch"), 1e-10)


@pytest.mark.parametrize("locator", ["momentum", "torch:torch.optim.SGD"])
def test_kernels_and_other_libraries_see_what_is_clipped(locator: str) -> None:
    """PyTorch's fused kernel of single runs, and its optimizer as a contestant, against lanes."""
    rule, foreign = find_rule(locator), {"arguments": {"momentum": 0.9}, "tuned": ["learning_rate"]}
    rule = rule if locator == "momentum" else rule.choose(foreign)
    alone, lanes = (
        run(make_bundle(rule=one, seeds=(0,), rates=rates, basis=False, clip_gradient_norm=0.2), "torch")
        for one, rates in ((rule, (0.2,)), (find_rule("momentum"), (0.2, 0.1)))
    )
    for name, values in alone.metrics.items():
        np.testing.assert_allclose(values[:, 0, 0], lanes.metrics[name][:, 0, 0], rtol=1e-11)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_run_stops_by_its_gradient_as_it_was(backend: str) -> None:
    """The threshold is compared with the gradient before clipping: no run stops, although every clipped
    gradient is shorter than the threshold.
    """
    bundle = make_bundle(batch_size=None, clip_gradient_norm=1e-4, stop_gradient_norm=1e-3, basis=False)
    assert (run(bundle, backend).stopped_at == 0).all()
