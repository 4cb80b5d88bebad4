"""Gauss-Newton and relatives: residuals against PyTorch, steps in both spaces, and SciPy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import least_squares

from curvebench import Online, replay
from curvebench.arrays.numpy_ops import numpy_ops
from curvebench.arrays.torch_ops import torch_ops
from curvebench.backends.engine import engine
from curvebench.engine.bundle import Bundle
from curvebench.engine.inputs import segment_inputs
from curvebench.engine.loading import load
from curvebench.engine.memory import bytes_of
from curvebench.optimizers import rules
from curvebench.optimizers.gauss_newton import damped_solution
from curvebench.optimizers.options import OptionError
from curvebench.spec.errors import InputError
from curvebench.steps.program import step_of
from curvebench.steps.update import Work
from curvebench.workloads import workloads
from tests.curvebench.engine.test_execution import make_bundle, run

BACKENDS = ["jax", "torch"]
# Two workloads with several outputs per example and the factors 1 and 2 of the loss, one with fields of its
# own, and one with targets that are computed.
SMALL: dict[str, dict[str, Any]] = {
    "teacher_student_tanh": {"widths": [3, 4, 2], "train_examples": 20, "test_examples": 5},
    "linear_network": {},
    "autoencoder": {"data": "digits", "widths": [3, 2], "loss": "squared"},
    "poisson_1d": {"width": 3, "depth": 2, "train_examples": 5},
}


def bundle_of(rule: str, workload: str, batch: int | None = 5, steps: int = 1) -> Bundle:
    settings = workloads()[workload].complete({**SMALL[workload], "batch_size": batch})
    chosen = replace(workloads()[workload].at(settings), dtype="float64")
    made = make_bundle(
        *(chosen, rules()[rule], (0, 1), (1.0, 0.5), batch), basis=False, steps=steps, given=settings
    )
    return replace(made, evaluations=1, settings=settings)


def evaluated(bundle: Bundle, backend: str) -> tuple[Any, dict[str, np.ndarray]]:
    """Return loss and gradient (S, K, d), and residuals and Jacobian, of the first step."""
    made = engine(backend, "float64")
    with made.context():
        loaded = load(bundle, made)
        one = step_of(segment_inputs(bundle, made, 0, 1), 0)
        program, carry = loaded.program, loaded.carry
        point = program.point(carry, loaded.constants, one)
        info = program.evaluate(point, carry.model, loaded.constants, one, Work.NONE)
        values = program.needs_in_basis(info, loaded.constants.matrices)["residuals"]
        gradient = program.coordinates(info.gradient, loaded.constants.matrices)
        numbers = [np.array(made.ops.to_numpy(array)) for array in (info.loss, gradient)]
        return numbers, {name: np.array(made.ops.to_numpy(array)) for name, array in values.items()}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("workload", SMALL)
def test_residuals_and_jacobian_give_loss_and_gradient(workload: str, backend: str):
    """Those of PyTorch for the whole batch at once, and ours example by example."""
    bundle = bundle_of("gauss_newton", workload)
    (loss, gradient), found = evaluated(bundle, backend)
    likelihood = bundle.workload.likelihood
    assert likelihood is not None
    assert bundle.orders is not None
    for seed, problem in enumerate(bundle.problems):
        params = {name: torch.tensor(value) for name, value in problem.parameters.items()}
        rows = bundle.orders[0, seed]
        batch = {name: torch.tensor(value[rows]) for name, value in problem.splits["train"].items()}
        ops, scale = torch_ops("cpu", "float64"), np.sqrt(likelihood.scale / len(rows))

        def outputs(params: Any, batch: Any = batch, ops: Any = ops) -> Any:
            return likelihood.outputs(ops, params, {}, batch, {}) - likelihood.targets(ops, batch)

        expected = torch.func.jacrev(outputs)(params)
        whole = torch.cat(
            [expected[name].flatten(2).flatten(0, 1).flatten(1) for name in bundle.layout.parameters], -1
        )
        for setting in range(2):
            jacobian, residuals = found["jacobian"][seed, setting], found["residuals"][seed, setting]
            np.testing.assert_allclose(jacobian, scale * whole.numpy(), rtol=1e-9, atol=1e-11)
            np.testing.assert_allclose(0.5 * residuals @ residuals, loss[seed, setting], rtol=1e-11)
            np.testing.assert_allclose(jacobian.T @ residuals, gradient[seed, setting], rtol=1e-8, atol=1e-10)


def test_rows_of_the_jacobian_change_their_basis_like_gradients():
    bundle = bundle_of("gauss_newton", "poisson_1d")
    names, size = tuple(bundle.layout.parameters), bundle.layout.total
    rng = np.random.default_rng(0)
    matrices = np.stack([np.linalg.qr(rng.standard_normal((size, size)))[0] for _ in range(2)])
    (_, gradient), found = evaluated(replace(bundle, matrices={names: matrices}), "torch")
    inside = np.einsum("sknd,skn->skd", found["jacobian"], found["residuals"])
    np.testing.assert_allclose(inside, gradient, rtol=1e-9, atol=1e-11)
    one = evaluated(bundle, "torch")[1]["jacobian"]
    np.testing.assert_allclose(found["jacobian"], one @ matrices[:, None], rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("shape", [(3, 7), (7, 3), (4, 4)])
def test_the_damped_solution_is_the_same_in_both_spaces(shape: tuple[int, int]):
    rng = np.random.default_rng(1)
    jacobian, residuals = rng.standard_normal((2, 3, *shape)), rng.standard_normal((2, 3, shape[0]))
    damping = np.abs(rng.standard_normal((1, 3, 1)))
    found = damped_solution(numpy_ops(), jacobian, residuals, damping)
    for lane in np.ndindex(2, 3):
        matrix, shift = jacobian[lane], damping[0, lane[1], 0]
        primal = np.linalg.solve(matrix.T @ matrix + shift * np.eye(shape[1]), matrix.T @ residuals[lane])
        np.testing.assert_allclose(found[lane], primal, rtol=1e-10, atol=1e-12)


def test_a_likelihood_of_classes_has_no_residuals():
    need = rules()["gauss_newton"].needs[0]
    with pytest.raises(OptionError, match="no mean of squared residuals; its likelihood is categorical"):
        need.check_likelihood("gauss_newton", workloads()["digits_mlp"].likelihood)
    with pytest.raises(OptionError, match="give its likelihood"):
        need.check_likelihood("gauss_newton", None)


def test_a_step_costs_a_gradient_more_for_each_output_of_an_example():
    steps = np.array([0, 1, 10])
    for workload, outputs in (("teacher_student_tanh", 2), ("poisson_1d", 2), ("linear_network", 10)):
        bundle = bundle_of("gauss_newton", workload)
        assert bundle.evaluations_of(steps).tolist() == [0, 1 + outputs, 10 * (1 + outputs)]
        entries = 5 * outputs * (bundle.layout.total + 1)
        without = replace(bundle, rule=replace(bundle.rule, needs=()))
        assert bytes_of(bundle, 8)[1] - bytes_of(without, 8)[1] == 8 * entries


def test_any_number_of_residuals_is_accepted_and_no_other_number_of_columns():
    online = Online("gauss_newton", {"w": np.zeros(2)}, {"learning_rate": 1.0, "damping": 1e-12})
    matrix = np.array([[1.0, 2.0], [0.0, 1.0], [3.0, 0.0]])
    right = np.array([1.0, -1.0, 2.0])
    grad = {"w": -matrix.T @ right}
    found = online.step(grad, residuals={"residuals": -right, "jacobian": matrix})
    np.testing.assert_allclose(found["w"], np.linalg.lstsq(matrix, right)[0], rtol=1e-9)
    with pytest.raises(InputError, match="needs the residuals and their Jacobian of shape"):
        online.step(grad, residuals={"residuals": -right, "jacobian": np.ones((3, 3))})


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_network_finds_its_teacher(backend: str):
    bundle = bundle_of("levenberg_marquardt", "teacher_student_tanh", batch=None, steps=40)
    losses = run(bundle, backend).metrics["train_loss"]
    assert (losses[-1, :, 0] < 1e-6 * losses[0, :, 0]).all()


# --- Levenberg-Marquardt against SciPy -----------------------------------------------------------


def rosenbrock(w: np.ndarray) -> np.ndarray:
    return np.array([10 * (w[1] - w[0] ** 2), 1 - w[0]])


def exponential(w: np.ndarray) -> np.ndarray:
    """A sum of two exponentials, which has 12 residuals that are not 0 at the minimum."""
    times = np.linspace(0, 3, 12)
    data = np.exp(-times) + 0.5 * np.exp(-3 * times) + 0.01 * np.cos(7 * times)
    return w[0] * np.exp(-w[1] * times) + w[2] * np.exp(-w[3] * times) - data


@pytest.mark.parametrize(
    ("residuals", "start", "steps"),
    [(rosenbrock, [-1.2, 1.0], 60), (exponential, [1.0, 0.5, 1.0, 4.0], 100)],
)
def test_it_finds_the_minimum_that_scipy_finds(residuals: Any, start: list[float], steps: int):
    found = least_squares(residuals, start, method="lm", xtol=1e-15, ftol=1e-15, gtol=1e-15)
    online = Online("levenberg_marquardt", {"w": np.array(start)}, {"learning_rate": 1.0})
    losses = []
    for _ in range(steps):
        point = online.gradient_at()["w"]
        values = residuals(point)
        difference = 1e-6 * np.eye(len(point))
        columns = [(residuals(point + e) - residuals(point - e)) / 2e-6 for e in difference]
        jacobian = np.stack(columns, 1)
        need = {"residuals": values, "jacobian": jacobian}
        w = online.step({"w": jacobian.T @ values}, residuals=need)["w"]
        losses.append(np.sum(residuals(w) ** 2))
    assert np.diff(losses).max() <= 1e-15, "the loss at accepted points never rises"
    np.testing.assert_allclose(losses[-1] / 2, found.cost, rtol=1e-8, atol=1e-20)
    np.testing.assert_allclose(w, found.x, rtol=1e-4)


def test_spring_with_a_prior_of_zero_is_gauss_newton():
    rng = np.random.default_rng(2)
    grads = [{"w": rng.standard_normal(3)} for _ in range(4)]
    needs = [
        {"residuals": {"residuals": rng.standard_normal(3), "jacobian": rng.standard_normal((3, 3))}}
        for _ in grads
    ]
    paths = [
        replay(name, {"w": np.zeros(3)}, grads, {"learning_rate": 0.5, **more}, "numpy", needs=needs)
        for name, more in (("gauss_newton", {}), ("spring", {"momentum": 0.0}), ("spring", {}))
    ]
    np.testing.assert_array_equal(paths[0][-1]["w"], paths[1][-1]["w"])
    assert np.abs(paths[0][-1]["w"] - paths[2][-1]["w"]).max() > 1e-2


def test_a_comparison_of_losses_is_refused_with_minibatches():
    with pytest.raises(OptionError, match="levenberg_marquardt: compares the losses of"):
        evaluated(bundle_of("levenberg_marquardt", "poisson_1d"), "jax")
