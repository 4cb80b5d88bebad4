"""L-BFGS against PyTorch and SciPy, on quadratics, in lanes, and with losses that are not finite."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import minimize, rosen, rosen_der

from curvebench import Online
from curvebench.engine.bundle import Bundle
from curvebench.optimizers import rules
from curvebench.optimizers.options import OptionError
from curvebench.workloads import workloads
from tests.curvebench.engine.test_execution import make_bundle, run
from tests.optimizers.families.lbfgs import lbfgs
from tests.optimizers.loops import Leaf

Function = Callable[[np.ndarray], Any]
BACKENDS = ["jax", "torch"]
START = np.random.default_rng(0).standard_normal(20)


def descended(
    loss: Function, gradient: Function, start: Any, steps: int, backend: str = "numpy", **hyper: Any
) -> tuple[list[float], list[np.ndarray]]:
    """Return the loss and the parameters after each step, which evaluates one point."""
    options = hyper.pop("options", None)
    online = Online(
        "lbfgs", {"w": np.array(start)}, {"learning_rate": 1.0, **hyper}, backend, options=options
    )
    losses, path = [], []
    for _ in range(steps):
        point = online.gradient_at()["w"]
        path.append(online.step({"w": gradient(point)}, loss=loss(point))["w"])
        losses.append(float(loss(path[-1])))
    return losses, path


def first_below(losses: Any, target: float) -> int:
    return next(number for number, loss in enumerate(losses) if loss < target)


@pytest.mark.parametrize("backend", BACKENDS)
def test_it_needs_about_as_many_gradients_as_pytorch_and_scipy(backend: str):
    """Rosenbrock's function in 20 dimensions, to 1e-8, with the same memory and conditions."""
    leaf, seen = torch.tensor(START, requires_grad=True), []

    def closure() -> torch.Tensor:
        leaf.grad = None
        loss = torch.sum(100 * (leaf[1:] - leaf[:-1] ** 2) ** 2 + (1 - leaf[:-1]) ** 2)
        loss.backward()
        seen.append(loss.item())
        return loss

    torch.optim.LBFGS(
        [leaf],
        max_iter=500,
        max_eval=500,
        history_size=10,
        tolerance_grad=0.0,
        tolerance_change=0.0,
        line_search_fn="strong_wolfe",
    ).step(closure)
    theirs: list[float] = []

    def recorded(point: np.ndarray) -> float:
        theirs.append(float(rosen(point)))
        return theirs[-1]

    minimize(recorded, START, jac=rosen_der, method="L-BFGS-B", options={"maxcor": 10, "ftol": 0, "gtol": 0})
    losses, _ = descended(rosen, rosen_der, START, 200, backend)
    ours = first_below(losses, 1e-8)
    for other in (seen, theirs):
        assert ours < 1.15 * first_below(other, 1e-8)
    assert np.diff(losses).max() <= 0, "parameters are accepted points only"
    assert losses[-1] < 1e-16


def test_exact_searches_of_a_quadratic_are_conjugate_gradients():
    """A cubic finds the minimum along a line at the second trial, and d directions find that of all."""
    matrix = np.diag(np.geomspace(1, 100, 6))
    losses, path = descended(
        lambda w: 0.5 * w @ matrix @ w, lambda w: matrix @ w, np.ones(6), 13, curvature=1e-3
    )
    w, residual = np.ones(6), -matrix @ np.ones(6)
    direction = residual
    for iteration in range(6):
        length = residual @ residual / (direction @ matrix @ direction)
        w, new = w + length * direction, residual - length * matrix @ direction
        direction, residual = new + (new @ new) / (residual @ residual) * direction, new
        np.testing.assert_allclose(path[2 + 2 * iteration], w, rtol=1e-5, atol=1e-10)
        assert iteration == 5 or (path[1 + 2 * iteration] == path[2 * iteration]).all()
    assert losses[-1] < 1e-20


def test_an_accepted_point_meets_both_conditions():
    decrease, curvature = 0.1, 0.3
    _, path = descended(*(rosen, rosen_der, START, 120), sufficient_decrease=decrease, curvature=curvature)
    accepted = [path[0], *(b for a, b in pairwise(path) if (a != b).any())]
    for before, after in pairwise(accepted):
        slopes = [rosen_der(point) @ (after - before) for point in (before, after)]
        assert rosen(after) <= rosen(before) + decrease * slopes[0] + 1e-12
        assert abs(slopes[1]) <= -curvature * slopes[0] + 1e-12
    assert len(accepted) > 30


def test_a_path_on_rosenbrocks_function_is_that_of_the_plain_loop():
    """Unlike the random losses of the battery, the losses belong to the gradients."""
    points: list[np.ndarray] = []
    hyper = {"learning_rate": 1.0, "sufficient_decrease": 0.45, "curvature": 0.5}

    def gradient(point: np.ndarray) -> Any:
        points.append(point)
        return rosen_der(point)

    _, path = descended(rosen, gradient, START, 30, options={"memory": 3}, **hyper)
    leaf = Leaf("vector", START, [rosen_der(point) for point in points])
    expected = [*lbfgs(leaf, hyper, [{"loss": rosen(point)} for point in points], 3, 20)]
    np.testing.assert_allclose(path, expected, rtol=1e-7)


def test_a_search_ends_after_its_largest_number_of_trials():
    """With a single trial, the point is accepted only if it is lower; else the next search is shorter."""
    losses, _ = descended(rosen, rosen_der, START, 60, options={"search_evaluations": 1}, curvature=1e-6)
    assert np.diff(losses).max() <= 0
    losses, _ = descended(rosen, rosen_der, START, 200, options={"search_evaluations": 3}, curvature=1e-6)
    assert losses[-1] < 1e-3 * losses[0]


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_a_trial_whose_loss_is_not_finite_is_rejected(wrong: float):
    def loss(w: np.ndarray) -> float:
        return float(np.sum(w - np.log(w))) if (w > 0).all() else wrong

    def gradient(w: np.ndarray) -> np.ndarray:
        return 1 - 1 / w if (w > 0).all() else np.full_like(w, wrong)

    losses, path = descended(loss, gradient, np.array([0.01, 3.0]), 40, learning_rate=5.0)
    assert np.isfinite(losses).all()
    np.testing.assert_allclose(path[-1], 1.0, rtol=1e-6)


# --- runs ----------------------------------------------------------------------------------------


def bundle_of(batch: int | None = None) -> Bundle:
    workload = replace(workloads()["teacher_student_tanh"], dtype="float64")
    given = {"widths": [3, 4, 2], "train_examples": 20, "test_examples": 5, "batch_size": batch}
    settings = workload.complete(given)
    made = make_bundle(
        *(workload, rules()["lbfgs"], (0, 1), (1.0, 0.01), batch), basis=False, steps=60, given=settings
    )
    return replace(made, evaluations=12, settings=settings, schedule=np.ones(60))


@pytest.mark.parametrize("backend", BACKENDS)
def test_lanes_with_searches_of_different_lengths_are_runs_alone(backend: str):
    bundle = bundle_of()
    together = run(bundle, backend).metrics["train_loss"]
    assert (together[-1] < 1e-2 * together[0]).all()
    assert (np.diff(together, axis=0) <= 0).all()
    for seed, setting in np.ndindex(2, 2):
        part = slice(seed, seed + 1), slice(setting, setting + 1)
        alone = run(bundle.subset(*part), backend).metrics["train_loss"][:, 0, 0]
        np.testing.assert_allclose(together[:6, seed, setting], alone[:6], rtol=1e-6)
    assert bundle.evaluations_of(np.array([0, 60])).tolist() == [0, 60]


@pytest.mark.parametrize("backend", BACKENDS)
def test_trials_without_a_finite_loss_are_no_divergence(backend: str):
    bundle = bundle_of()
    far = {**bundle.hyperparameters, "learning_rate": np.array([1.0, 1e200])}
    linear = replace(workloads()["least_squares"], dtype="float64")
    settings = linear.complete({"n": 20, "d": 5})
    bundle = make_bundle(
        *(linear, rules()["lbfgs"], (0, 1), (1.0, 1.0), None), basis=False, steps=30, given=settings
    )
    found = run(replace(bundle, settings=settings, hyperparameters=far), backend)
    assert (found.diverged_at == 0).all()
    assert np.isfinite(found.metrics["train_loss"]).all()


def test_minibatches_are_refused():
    with pytest.raises(OptionError, match="lbfgs: compares the losses of different steps"):
        run(bundle_of(5), "jax")
