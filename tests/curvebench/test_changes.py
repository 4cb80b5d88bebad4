"""Runs in changed coordinates: the gradient of f(J c) and Adam on c written out in NumPy."""

from __future__ import annotations

import dataclasses
from functools import cache

import numpy as np
import pytest

from curvebench.backends.engine import engine
from curvebench.engine.bundle import Bundle
from curvebench.engine.execution import execute
from curvebench.optimizers import rules
from curvebench.optimizers.bases import CHANGES
from curvebench.steps.layout import layout, leading_name, roles_of
from curvebench.workloads.workload import Problem
from tests.curvebench.engine.test_execution import make_bundle
from tests.curvebench.toys import TANH, loss_and_gradient
from tests.optimizers.bases.test_change import jacobian as shared_of

NAME, SHAPE = "first", (4, 3)
STEPS = 12


def matrix_of(change: str) -> np.ndarray:
    """V for the 4 x 3 matrix, whose four rows are its filters."""
    size = 3 if change == "shared" else 12
    v = np.linalg.qr(np.random.default_rng(3).normal(size=(size, size)))[0]
    return v[:, :5] if CHANGES[change].leading else v


def bundle_of(change: str, rule: str = "adam", rates: tuple[float, ...] = (0.05,)) -> Bundle:
    return make_bundle(
        TANH,
        rules()[rule],
        seeds=(5,),
        rates=rates,
        batch_size=None,
        basis=False,
        steps=STEPS,
        schedule=np.ones(STEPS),
        matrices={(NAME,): matrix_of(change)[None]},
        changes={(NAME,): CHANGES[change]},
    )


def by_hand(problem: Problem, change: str, rate: float) -> list[float]:
    """Losses before each step and after the last: f(J c) has the gradient J^T g; Adam is written out."""
    v = matrix_of(change)
    j = np.kron(np.eye(4), v) if change == "shared" else shared_of(change, v)
    c = {**problem.parameters, NAME: j.T @ problem.parameters[NAME].ravel()}

    def at(c: dict[str, np.ndarray]) -> tuple[float, dict[str, np.ndarray]]:
        loss, grads = loss_and_gradient({**c, NAME: (j @ c[NAME]).reshape(SHAPE)}, problem.splits["train"])
        return loss, {**grads, NAME: j.T @ grads[NAME].ravel()}

    first, second = ({name: np.zeros(value.shape) for name, value in c.items()} for _ in range(2))
    losses = []
    for t in range(1, STEPS + 1):
        loss, grads = at(c)
        losses.append(loss)
        for name, g in grads.items():
            first[name] = 0.9 * first[name] + 0.1 * g
            second[name] = 0.999 * second[name] + 0.001 * g**2
            mean, square = first[name] / (1 - 0.9**t), second[name] / (1 - 0.999**t)
            c[name] = c[name] - rate * mean / (np.sqrt(square) + 1e-8)
    return [*losses, at(c)[0]]


@pytest.mark.parametrize("backend", ["jax", "torch"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_run_is_adam_on_the_coordinates(change: str, backend: str) -> None:
    bundle = bundle_of(change)
    wanted = by_hand(bundle.problems[0], change, 0.05)
    found = execute(bundle, engine(backend, "float64")).metrics["train_loss"][:, 0, 0]
    np.testing.assert_allclose(found, wanted[:: STEPS // 4], rtol=1e-10)
    if change != "reduced":  # equivalent initialization
        plain = execute(bundle_of("rotation"), engine(backend, "float64")).metrics["train_loss"]
        np.testing.assert_allclose(found[0], plain[0, 0, 0], rtol=1e-13)


@cache
def plain_losses(rule: str) -> np.ndarray:
    """Without a change of coordinates."""
    plain = dataclasses.replace(bundle_of("rotation", rule), matrices={}, changes={})
    return execute(plain, engine("torch", "float64")).metrics["train_loss"]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("rule", ["sgd", "momentum"])
def test_descent_is_the_same_in_every_orthogonal_basis(rule: str, change: str) -> None:
    """000 Sec. 6: J J^T = I makes w <- w - eta J J^T g the same; the span of V_r alone is another problem."""
    found = execute(bundle_of(change, rule), engine("torch", "float64")).metrics["train_loss"]
    wanted = plain_losses(rule)
    if change == "reduced":
        assert np.abs(found[-1] - wanted[-1]).max() > 1e-3
    else:
        np.testing.assert_allclose(found, wanted, rtol=1e-12)


@pytest.mark.parametrize(
    ("rule", "change"), [("adafactor", "auxiliary"), ("muon", "auxiliary"), ("newton", "shared")]
)
def test_rules_that_see_leaves_or_a_hessian_run_on_the_coordinates(rule: str, change: str) -> None:
    """The leading coordinates are a vector in addition to the matrix."""
    bundle = bundle_of(change, rule, rates=(0.01,))
    if change == "auxiliary":
        assert bundle.layout.shapes[leading_name((NAME,))] == (5,)
        assert bundle.layout.total == bundle.layout.entries + 5
    on_jax, on_torch = (execute(bundle, engine(backend, "float64")) for backend in ("jax", "torch"))
    assert np.isfinite(on_jax.metrics["train_loss"]).all()
    for name, values in on_jax.metrics.items():
        np.testing.assert_allclose(on_torch.metrics[name], values, rtol=1e-8, atol=1e-12)


def test_the_layout_of_mixed_blocks() -> None:
    shapes = {"a": (2, 3), "b": (4,), "c": (2, 2), "d": ()}
    changes = {("c",): (CHANGES["auxiliary"], 2), ("a", "b"): (CHANGES["reduced"], 3)}
    lay = layout(shapes, roles_of(shapes), (("c",), ("a", "b")), changes)
    assert dict(lay.shapes) == {"leading c": (2,), "c": (2, 2), "leading a + b": (3,), "d": ()}
    assert list(lay.parameters) == ["c", "a", "b", "d"]
    assert lay.roles["leading c"].kind == "vector"
    assert [(block.start, block.stop, block.first, block.last) for block in lay.blocks] == [
        (0, 4, 0, 6),
        (4, 14, 6, 9),
    ]
