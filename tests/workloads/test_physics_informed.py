"""Physics-informed networks: derivatives, solutions of the equations, loss and error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from curvebench.arrays.numpy_ops import numpy_ops
from curvebench.workloads import physics_informed, workloads
from curvebench.workloads.physics_informed import burgers_solution, values_and_derivatives
from curvebench.workloads.workload import Problem
from tests.workloads.cases import random_of, small

EQUATIONS = {
    "poisson_1d": physics_informed.POISSON_1D,
    "poisson_2d": physics_informed.POISSON_2D,
    "helmholtz": physics_informed.HELMHOLTZ,
    "burgers": physics_informed.BURGERS,
    "allen_cahn": physics_informed.ALLEN_CAHN,
}
STEP = 2e-4  # of finite differences, whose error is of fourth order


@pytest.fixture(params=EQUATIONS)
def name(request):
    return request.param


def instance(name: str, **settings: Any) -> Problem:
    workload, values = small(name)
    return workload.problem(workload.complete({**values, **settings}), random_of(0))


def module(parameters: dict[str, np.ndarray]) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return the network for one point as a function of PyTorch, which differentiates it."""
    values = {key: torch.tensor(value) for key, value in parameters.items()}

    def network(point: torch.Tensor) -> torch.Tensor:
        for layer in range(1, len(values) // 2 + 1):
            point = values[f"W{layer}"] @ point + values[f"b{layer}"]
            point = torch.tanh(point) if layer < len(values) // 2 else point
        return point[0]

    return network


def differentiated(function: Callable[[Any], Any], points: np.ndarray, coordinate: int) -> list[np.ndarray]:
    """Return the first and second derivative of a function of points in a coordinate."""
    at = {k: function(points + k * STEP * np.eye(points.shape[1])[coordinate]) for k in range(-2, 3)}
    first = (at[-2] - 8 * at[-1] + 8 * at[1] - at[2]) / (12 * STEP)
    second = (-at[-2] + 16 * at[-1] - 30 * at[0] + 16 * at[1] - at[2]) / (12 * STEP**2)
    return [first, second]


def test_derivatives_are_those_of_automatic_differentiation(name):
    parameters = {
        key: value + 0.3 * np.random.default_rng(1).normal(size=value.shape)  # biases too
        for key, value in instance(name).parameters.items()
    }
    points, space = instance(name).splits["train"]["points"], EQUATIONS[name].space
    value, first, second = values_and_derivatives(numpy_ops(), parameters, points, space)
    network = module(parameters)
    for at, point in enumerate(map(torch.tensor, points)):
        assert value[at] == pytest.approx(float(network(point)), rel=1e-12)
        np.testing.assert_allclose(first[at], torch.func.jacrev(network)(point), rtol=1e-10, atol=1e-12)
        curvature = torch.diagonal(torch.func.hessian(network)(point))[-space:]
        np.testing.assert_allclose(second[at], curvature, rtol=1e-9, atol=1e-12)
    only, none, nothing = values_and_derivatives(numpy_ops(), parameters, points, derivatives=False)
    np.testing.assert_allclose(only, value, rtol=1e-14)
    assert (none.size, nothing.size) == (0, 0)


def test_the_solution_satisfies_the_equation(name):
    equation = EQUATIONS[name]
    low, high = np.array(equation.low), np.array(equation.high)
    points = low + (high - low) * np.random.default_rng(0).uniform(0.01, 0.99, size=(300, len(low)))
    each = [differentiated(equation.solution, points, coordinate) for coordinate in range(len(low))]
    first = np.stack([pair[0] for pair in each], 1)
    second = np.stack([pair[1] for pair in each][-equation.space :], 1)
    left = equation.left(numpy_ops(), equation.solution(points), first, second)
    scale = np.abs(second).max() * (physics_informed.VISCOSITY if name == "burgers" else 1.0)
    np.testing.assert_allclose(left, equation.right(points), rtol=0, atol=1e-6 * scale)


@pytest.mark.parametrize("viscosity", [0.02, 0.1])
def test_the_solution_of_burgers_equation_is_that_of_the_method_of_lines(viscosity):
    from scipy.integrate import solve_ivp

    x = np.linspace(-1.0, 1.0, 801)
    width = x[1] - x[0]

    def change(time, u):
        slope, curvature = np.zeros_like(u), np.zeros_like(u)
        slope[1:-1] = (u[2:] - u[:-2]) / (2 * width)
        curvature[1:-1] = (u[2:] - 2 * u[1:-1] + u[:-2]) / width**2
        return -u * slope + viscosity * curvature

    found = solve_ivp(change, (0.0, 0.6), -np.sin(np.pi * x), "LSODA", rtol=1e-8, atol=1e-10).y[:, -1]
    due = burgers_solution(np.stack([np.full_like(x, 0.6), x], 1), viscosity)
    np.testing.assert_allclose(found, due, atol=2e-3)
    start = burgers_solution(np.stack([np.zeros_like(x), x], 1), viscosity)
    np.testing.assert_allclose(start, -np.sin(np.pi * x), atol=1e-13)


def test_points_fill_the_box_and_boundary_points_its_faces(name):
    equation = EQUATIONS[name]
    train = instance(name, train_examples=40).splits["train"]
    low, high = np.array(equation.low), np.array(equation.high)
    cells = np.floor(40 * (train["points"] - low) / (high - low)).astype(int)
    for column in cells.T:
        assert sorted(column) == [*range(40)]
    assert len(low) == 1 or not np.array_equal(cells[:, 0], cells[:, 1])
    faces = [
        (train["boundary_points"][:, coordinate] == value).sum()
        for coordinate, value in dict.fromkeys(equation.faces)
    ]
    shares = {"poisson_1d": [20, 20], "burgers": [20, 10, 10], "allen_cahn": [20, 10, 10]}
    assert faces == shares.get(name, [10, 10, 10, 10])
    assert np.all((train["boundary_points"] >= low) & (train["boundary_points"] <= high))


def test_the_loss_is_its_formula(name):
    problem, equation = instance(name, boundary_weight=7.0), EQUATIONS[name]
    train, network = problem.splits["train"], module(problem.parameters)
    total = 0.0
    for inside, edge in zip(train["points"], train["boundary_points"], strict=True):
        point = torch.tensor(inside)
        value, first = network(point).numpy(), torch.func.jacrev(network)(point).numpy()
        second = torch.diagonal(torch.func.hessian(network)(point)).numpy()[-equation.space :]
        left = equation.left(numpy_ops(), value[None], first[None], second[None])[0]
        residual = left - equation.right(inside[None])[0]
        error = float(network(torch.tensor(edge))) - equation.solution(edge[None])[0]
        total += (residual**2 + 7.0 * error**2) / 2
    loss = workloads()[name].loss(numpy_ops(), problem.parameters, {}, train, {})[0]
    assert float(loss) == pytest.approx(total / len(train["points"]), rel=1e-11)


def test_the_error_is_relative_to_the_solution(name):
    problem = instance(name)
    split, network = problem.splits["validation"], module(problem.parameters)
    values = np.array([float(network(torch.tensor(point))) for point in split["points"]])
    due = EQUATIONS[name].solution(split["points"])
    found = workloads()[name].evaluate(numpy_ops(), problem.parameters, {}, split)
    relative = np.linalg.norm(values - due) / np.linalg.norm(due)
    assert float(found["relative_error"]) == pytest.approx(relative, rel=1e-12)
    assert float(found["loss"]) == pytest.approx(relative**2, rel=1e-12)


def test_settings_give_the_sizes(name):
    workload = workloads()[name]
    problem = workload.problem(workload.complete({}), random_of(0))
    assert [len(problem.splits[split]["points"]) for split in problem.splits] == [200, 500]
    assert f"d = {sum(value.size for value in problem.parameters.values())}" in workload.description
    other = instance(name, width=6, depth=2, train_examples=30, validation_examples=9)
    assert [other.parameters[f"W{layer}"].shape[0] for layer in (1, 2, 3)] == [6, 6, 1]
    assert [len(other.splits[split]["points"]) for split in other.splits] == [30, 9]
    with pytest.raises(ValueError, match="batch_size = 31 is larger than the 30 training examples"):
        workload.complete({"train_examples": 30, "batch_size": 31})
