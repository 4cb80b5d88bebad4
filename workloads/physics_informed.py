"""Differential equations that a tanh network solves: physics-informed networks, in float64.

The network u(x) is trained so that it satisfies a differential equation at random points x of a box, and
takes the values of a solution on the box's boundary. Its derivatives with respect to x are computed forward,
layer by layer, with array functions. Therefore a backend differentiates the loss with respect to the
parameters only. D is the number of coordinates of x. In an equation with time, the first coordinate is the
time t.

Source: Raissi, Perdikaris and Karniadakis 2019, "Physics-informed neural networks".
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from curvebench.spec.values import number, whole
from curvebench.workloads.arguments import Array, Arrays, Ops, Random, Settings
from curvebench.workloads.networks.perceptron import FullyConnected
from curvebench.workloads.workload import (
    Likelihood,
    Metric,
    Problem,
    Setting,
    Start,
    Workload,
    batch_size,
    loss_of,
    require_batch,
)

Solution = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Equation:
    """A differential equation on a box whose solution is known.

    Args:
        low, high: bounds of the box in each coordinate.
        faces: parts of the boundary on which the solution is prescribed: coordinate and its value. Boundary
            points are divided equally among them.
        left: `left(ops, u, first, second)`, the left side of the equation (examples,) from the values u
            (examples,), the first derivatives (examples, D), and the second derivatives in each coordinate of
            space (examples, space).
        right: right side of the equation (examples,) at points (examples, D).
        solution: solution (examples,) at points (examples, D).
        space: number of coordinates of space, which follow the coordinate of time, if there is one.
        boundary_weight: default value of the setting `boundary_weight`.
    """

    low: tuple[float, ...]
    high: tuple[float, ...]
    faces: tuple[tuple[int, float], ...]
    left: Callable[[Ops, Array, Array, Array], Array]
    right: Solution
    solution: Solution
    space: int
    boundary_weight: float

    def sample(self, count: int, generator: np.random.Generator) -> np.ndarray:
        """Draw points (count, D) of the box as a Latin hypercube.

        Each coordinate is uniform in each of `count` equal intervals once.
        """
        cells = generator.permuted(np.tile(np.arange(count), (len(self.low), 1)), axis=1).T
        low, high = np.array(self.low), np.array(self.high)
        return low + (high - low) * (cells + generator.uniform(size=cells.shape)) / count

    def sample_boundary(self, count: int, generator: np.random.Generator) -> np.ndarray:
        """Draw points (count, D) of the faces, equally many of each."""
        points = self.sample(count, generator)
        for face, (coordinate, value) in enumerate(self.faces):
            points[face :: len(self.faces), coordinate] = value
        return points


# --- the network -----------------------------------------------------------------------------------


def _network(equation: Equation, settings: Settings) -> FullyConnected:
    """Return the parameters of the network: Xavier normal weights, and biases of 0."""
    widths = len(equation.low), *[settings["width"]] * settings["depth"], 1
    return FullyConnected(widths)


def values_and_derivatives(
    ops: Ops, params: Arrays, points: Array, space: int = 0, derivatives: bool = True
) -> tuple[Array, Array, Array]:
    """Return the values of a tanh network, and its derivatives with respect to the coordinates.

    For z = W h + b, the derivatives are z' = W h' and z'' = W h''. For a = tanh(z), they are
    a' = (1 - a^2) z' and a'' = (1 - a^2) (z'' - 2 a z'^2). Values and derivatives pass through a layer in a
    single product, so that a rule that observes layers sees all of them. The product adds the bias to the
    derivatives too; it is subtracted again.

    Args:
        ops: array functions.
        params: weights and biases W1, b1, W2, b2, ...
        points: points (examples, D).
        space: number of coordinates of which second derivatives are computed, the last ones.
        derivatives: whether to compute derivatives; otherwise both are empty.

    Returns:
        Values (examples,), first derivatives (examples, D), second derivatives (examples, space).
    """
    count, coordinates = points.shape
    directions = coordinates if derivatives else 0
    unit = ops.broadcast_to(ops.eye(coordinates)[None, :directions], (count, directions, coordinates))
    streams = ops.concatenate([points[:, None], unit, 0.0 * unit[:, :space]], 1)
    layers = len(params) // 2
    for layer in range(1, layers + 1):
        bias = params[f"b{layer}"]
        streams = ops.linear(streams, params[f"W{layer}"], bias)
        value, first, second = (
            streams[:, :1],
            streams[:, 1 : directions + 1] - bias,
            streams[:, directions + 1 :] - bias,
        )
        if layer < layers:
            value = ops.tanh(value)
            slope = 1.0 - ops.square(value)
            bent = second - 2.0 * value * ops.square(first[:, directions - second.shape[1] :])
            streams = ops.concatenate([value, slope * first, slope * bent], 1)
    return value[:, 0, 0], first[..., 0], second[..., 0]


# --- the equations ---------------------------------------------------------------------------------


def _box(low: float, high: float, dimension: int) -> tuple[tuple[int, float], ...]:
    """Return all faces of a cube."""
    return tuple((coordinate, value) for coordinate in range(dimension) for value in (low, high))


def _sines(waves: tuple[float, ...]) -> Solution:
    """Return the product of sin(pi k x) over coordinates x, with the wave number k of each."""
    return lambda points: np.prod(np.sin(np.pi * np.array(waves) * points), axis=1)


def _negative_laplacian(ops: Ops, u: Array, first: Array, second: Array) -> Array:
    """Return -Laplace u."""
    return -ops.sum(second, axis=1)


def _waves(points: np.ndarray, power: int) -> np.ndarray:
    """Return sin(2 pi x) + sin(10 pi x) / 10 for power 0, and its negative second derivative for power 2."""
    frequencies = np.pi * np.array([2.0, 10.0])
    return np.sin(points * frequencies) @ (frequencies**power * np.array([1.0, 0.1]))


POISSON_1D = Equation(
    low=(0.0,),
    high=(1.0,),
    faces=_box(0.0, 1.0, 1),
    left=_negative_laplacian,
    right=lambda points: _waves(points, 2),
    solution=lambda points: _waves(points, 0),
    space=1,
    boundary_weight=100.0,
)
POISSON_2D = Equation(
    low=(0.0, 0.0),
    high=(1.0, 1.0),
    faces=_box(0.0, 1.0, 2),
    left=_negative_laplacian,
    right=lambda points: 2.0 * np.pi**2 * _sines((1.0, 1.0))(points),
    solution=_sines((1.0, 1.0)),
    space=2,
    boundary_weight=100.0,
)
# Laplace u + u = q, as in Wang, Teng and Perdikaris 2021, "Understanding and mitigating gradient flow
# pathologies in physics-informed neural networks", Sec. 4.1, whose solution has the wave numbers 1 and 4.
HELMHOLTZ = Equation(
    low=(-1.0, -1.0),
    high=(1.0, 1.0),
    faces=_box(-1.0, 1.0, 2),
    left=lambda ops, u, first, second: ops.sum(second, axis=1) + u,
    right=lambda points: (1.0 - 5.0 * np.pi**2) * _sines((1.0, 2.0))(points),
    solution=_sines((1.0, 2.0)),
    space=2,
    boundary_weight=100.0,
)
# Faces of an equation with time t from 0 and a coordinate from -1 to 1. Half of the points are at t = 0.
FACES_IN_TIME = ((0, 0.0), (1, -1.0), (0, 0.0), (1, 1.0))
VISCOSITY = 0.01 / np.pi


def burgers_solution(points: np.ndarray, viscosity: float = VISCOSITY, nodes: int = 2001) -> np.ndarray:
    """Return the solution u of Burgers' equation u_t + u u_x = nu u_xx with u(0, x) = -sin(pi x).

    By the Cole-Hopf transform, u(t, x) is the mean of -sin(pi (x - y)) over y with weights that are
    proportional to exp(-cos(pi (x - y)) / (2 pi nu) - y^2 / (4 nu t)) (Basdevant et al. 1986, "Spectral and
    finite difference solutions of the Burgers equation"). The integrals are sums over equidistant nodes
    (trapezoidal rule), whose error is exponentially small, because the integrands vanish at both ends.

    Args:
        points: t and x of each point, (examples, 2).
        viscosity: the viscosity nu.
        nodes: number of nodes.
    """
    time, x = points[:, :1], points[:, 1:]
    scaled = np.linspace(-15.0, 15.0, nodes)  # y divided by sqrt(4 nu t)
    angles = np.pi * (x - np.sqrt(4.0 * viscosity * time) * scaled)
    exponents = -np.cos(angles) / (2.0 * np.pi * viscosity) - scaled**2
    weights = np.exp(exponents - exponents.max(axis=1, keepdims=True))
    return -np.sum(weights * np.sin(angles), axis=1) / np.sum(weights, axis=1)


BURGERS = Equation(
    low=(0.0, -1.0),
    high=(1.0, 1.0),
    faces=FACES_IN_TIME,
    left=lambda ops, u, first, second: first[:, 0] + u * first[:, 1] - VISCOSITY * second[:, 0],
    right=lambda points: np.zeros(len(points)),
    solution=burgers_solution,
    space=1,
    boundary_weight=10.0,
)

WIDTH = 0.1  # width of the front of the solution of the Allen-Cahn equation


def front(points: np.ndarray) -> np.ndarray:
    """Return u = 1 / (1 + exp((x - c t) / (sqrt(2) w))), a front of width w with the speed c = 3 w / sqrt(2).

    It solves the Allen-Cahn equation u_t = w^2 u_xx + u - u^3.
    """
    time, x = points.T
    return 1.0 / (1.0 + np.exp((x - 3.0 * WIDTH / math.sqrt(2.0) * time) / (math.sqrt(2.0) * WIDTH)))


ALLEN_CAHN = Equation(
    low=(0.0, -1.0),
    high=(1.0, 1.0),
    faces=FACES_IN_TIME,
    left=lambda ops, u, first, second: first[:, 0] - WIDTH**2 * second[:, 0] - u + u * u * u,
    right=lambda points: np.zeros(len(points)),
    solution=front,
    space=1,
    boundary_weight=10.0,
)


# --- the workloads ---------------------------------------------------------------------------------


def _workload(name: str, description: str, equation: Equation, start: Start) -> Workload:
    """Return the workload of an equation."""

    def problem(settings: Settings, random: Random) -> Problem:
        """Draw points of the box and of its boundary, points for validation, and initial parameters.

        An example consists of a point of the box and a point of its boundary.
        """
        generator, count = random("data"), settings["train_examples"]
        points, boundary = equation.sample(count, generator), equation.sample_boundary(count, generator)
        held_out = equation.sample(settings["validation_examples"], generator)
        scale = np.full(count, math.sqrt(settings["boundary_weight"]))
        train = {
            "points": points,
            "right": equation.right(points),
            "boundary_points": boundary,
            "boundary_values": equation.solution(boundary),
            "boundary_scale": scale,
        }
        validation = {"points": held_out, "values": equation.solution(held_out)}
        parameters = _network(equation, settings).sample(random("parameters"))
        return Problem(parameters, {"train": train, "validation": validation})

    def outputs(ops: Ops, params: Arrays, state: Arrays, split: Arrays, noise: Arrays) -> Array:
        """Return the left side of the equation and the scaled value at the boundary, (examples, 2)."""
        inside = values_and_derivatives(ops, params, split["points"], equation.space)
        boundary, _, _ = values_and_derivatives(ops, params, split["boundary_points"], derivatives=False)
        return ops.stack([equation.left(ops, *inside), split["boundary_scale"] * boundary], 1)

    def targets(ops: Ops, split: Arrays) -> Array:
        """Return the right side of the equation and the scaled boundary value, (examples, 2)."""
        return ops.stack([split["right"], split["boundary_scale"] * split["boundary_values"]], 1)

    def loss(ops: Ops, params: Arrays, split: Arrays) -> Array:
        """Return the mean of (r^2 + w (u - g)^2) / 2, with the boundary weight w and the right value g.

        The residual r is the difference of the sides of the equation.
        """
        residuals = outputs(ops, params, {}, split, {}) - targets(ops, split)
        return 0.5 * ops.mean(ops.sum(ops.square(residuals), axis=1))

    def evaluate(ops: Ops, params: Arrays, state: Arrays, split: Arrays) -> dict[str, Array]:
        """Return the loss; for validation, the squared relative error and the relative error."""
        if "values" not in split:
            return {"loss": loss(ops, params, split)}
        value, _, _ = values_and_derivatives(ops, params, split["points"], derivatives=False)
        squares = ops.sum(ops.square(value - split["values"])) / ops.sum(ops.square(split["values"]))
        return {"loss": squares, "relative_error": ops.sqrt(squares)}

    return Workload(
        name=name,
        description=f"physics-informed tanh network for {description}",
        source="Raissi et al. 2019, J. Comput. Phys. 378, 686-707",
        metrics={
            "train_loss": Metric("half the squared residuals of equation and boundary", "minimize"),
            "validation_loss": Metric("square of the relative error", "minimize"),
            "validation_relative_error": Metric(
                "distance to the solution over its norm, both L2 at random points", "minimize"
            ),
        },
        settings={
            "batch_size": batch_size(),
            "width": Setting(20, "units of each hidden layer", whole()),
            "depth": Setting(3, "hidden layers", whole()),
            "boundary_weight": Setting(
                equation.boundary_weight, "weight of the squared error at the boundary", number(0.0)
            ),
            "train_examples": Setting(200, "points of the box, and as many of its boundary", whole()),
            "validation_examples": Setting(500, "points at which the error is measured", whole()),
        },
        dtype="float64",
        shared_data=False,
        roles=lambda settings: _network(equation, settings).roles,
        problem=problem,
        sample_parameters=lambda settings, generator: _network(equation, settings).sample(generator),
        loss=loss_of(loss),
        likelihood=Likelihood(outputs, "gaussian", targets=targets),
        evaluate=evaluate,
        start=start,
        check=lambda settings: require_batch(settings, settings["train_examples"]),
    )


WORKLOADS = (
    _workload(
        "poisson_1d",
        "-u'' = f, whose solution has two frequencies (d = 901)",
        POISSON_1D,
        Start(2824.9852627398413, 14.172763340108029),
    ),
    _workload(
        "poisson_2d",
        "Poisson's equation on a square (d = 921)",
        POISSON_2D,
        Start(50.52539841946642, 51.0737342913303),
    ),
    _workload(
        "helmholtz",
        "the Helmholtz equation on a square (d = 921)",
        HELMHOLTZ,
        Start(320.29495691114107, 177.02756231429098),
    ),
    _workload(
        "burgers",
        "Burgers' equation, with a shock (d = 921)",
        BURGERS,
        Start(1.9058500747364124, 10.039434090974943),
    ),
    _workload(
        "allen_cahn",
        "the Allen-Cahn equation, with a front (d = 921)",
        ALLEN_CAHN,
        Start(1.8087266559653954, 13.408322316711184),
    ),
)
