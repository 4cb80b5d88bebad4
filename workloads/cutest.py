"""Unconstrained problems of the CUTEst collection with at most 1,000 variables; full batch, float64.

x (n,) is the parameter, and f the objective. Indices count from 1. Most problems are sums of squares of
residuals r_i, and many have a banded Hessian or one long curved valley. The standard starts are those of
CUTEst; a run starts near its problem's standard start, at a distance that depends on the seed. `srosenbr` has
the standard start of MGH, (-1.2, 1, ...), not that of CUTEst, (1.2, 1, ...), from which it is easy.

In citations, MGH is More, Garbow and Hillstrom, "Testing unconstrained optimization software", 1981, with the
number of the problem there. Other problems are of the collection CUTE (Bongartz, Conn, Gould and Toint,
"CUTE: constrained and unconstrained testing environment", 1995), with their author where known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from curvebench.spec.values import choice, number, whole
from curvebench.workloads.arguments import Array, Arrays, Ops, Random, Settings
from curvebench.workloads.workload import Metric, Problem, Role, Setting, Start, Workload, loss_of

VARIABLES = 100  # default number of variables of the problems that can have any number of variables


@dataclass(frozen=True)
class TestFunction:
    """An objective of the collection, with its standard start.

    Args:
        value: `value(ops, x)`, the objective at x (n,).
        start: the standard start, or a function from the number of variables n to the standard start.
        minimum: smallest value of the objective, or a function from n to the smallest value.
        multiple: number of which n must be a multiple, if `start` is a function.
    """

    value: Callable[[Ops, Array], Array]
    start: Sequence[float] | Callable[[int], np.ndarray]
    minimum: float | Callable[[int], float] = 0.0
    multiple: int = 1

    def start_of(self, n: int | None) -> np.ndarray:
        """Return the standard start in n variables; None for the default number of variables."""
        return np.array(self.start(n or VARIABLES) if callable(self.start) else self.start)

    def minimum_of(self, n: int) -> float:
        """Return the smallest value of the objective in n variables."""
        return self.minimum(n) if callable(self.minimum) else self.minimum


def _squares(ops: Ops, *residuals: Array) -> Array:
    """Return the sum of the squares of all entries of all residuals."""
    return sum(ops.sum(ops.square(residual)) for residual in residuals)


def _counts(ops: Ops, n: int) -> Array:
    """Return the numbers 1, 2, ..., n."""
    return ops.arange(n) + 1.0


# --- few variables -----------------------------------------------------------------------------------------


def _rosenbrock(ops: Ops, x: Array) -> Array:
    """Return f = 100 (x_2 - x_1^2)^2 + (1 - x_1)^2 for each pair of variables, summed (MGH 1 and 21)."""
    first, second = x[0::2], x[1::2]
    return _squares(ops, 10.0 * (second - ops.square(first)), 1.0 - first)


def _brown_badly_scaled(ops: Ops, x: Array) -> Array:
    """Return f = (x_1 - 10^6)^2 + (x_2 - 2 10^-6)^2 + (x_1 x_2 - 2)^2 (MGH 4)."""
    return _squares(ops, x[0] - 1e6, x[1] - 2e-6, x[0] * x[1] - 2.0)


def _beale(ops: Ops, x: Array) -> Array:
    """Return f with r_i = y_i - x_1 (1 - x_2^i) for three targets y_i (MGH 5)."""
    targets = ops.asarray(np.array([1.5, 2.25, 2.625]))
    return _squares(ops, targets - x[0] * (1.0 - ops.stack([x[1], x[1] ** 2, x[1] ** 3], 0)))


def _jennrich_sampson(ops: Ops, x: Array) -> Array:
    """Return f with r_i = 2 + 2 i - exp(i x_1) - exp(i x_2), i = 1, ..., 10 (MGH 6)."""
    i = _counts(ops, 10)
    return _squares(ops, 2.0 + 2.0 * i - ops.exp(i * x[0]) - ops.exp(i * x[1]))


def _helical_valley(ops: Ops, x: Array) -> Array:
    """Return f = 100 ((x_3 - 10 theta)^2 + (rho - 1)^2) + x_3^2 (MGH 7).

    rho and 2 pi theta are the polar coordinates of (x_1, x_2). Angles are between -pi/2 and 3 pi/2, as in the
    source, so that f is smooth at the start (-1, 0, 0).
    """
    theta = (ops.atan2(-x[0], x[1]) + math.pi / 2.0) / (2.0 * math.pi)
    radius = ops.sqrt(ops.square(x[0]) + ops.square(x[1]))
    return _squares(ops, 10.0 * (x[2] - 10.0 * theta), 10.0 * (radius - 1.0), x[2])


BARD = (0.14, 0.18, 0.22, 0.25, 0.29, 0.32, 0.35, 0.39, 0.37, 0.58, 0.73, 0.96, 1.34, 2.10, 4.39)


def _bard(ops: Ops, x: Array) -> Array:
    """Return f with r_i = y_i - x_1 - u_i / (v_i x_2 + w_i x_3) for 15 targets y_i (MGH 8).

    u_i = i, v_i = 16 - i and w_i = min(u_i, v_i).
    """
    u = _counts(ops, len(BARD))
    v = 16.0 - u
    return _squares(ops, ops.asarray(np.array(BARD)) - x[0] - u / (v * x[1] + ops.minimum(u, v) * x[2]))


def _box(ops: Ops, x: Array) -> Array:
    """Return f with r_i = e^(-t x_1) - e^(-t x_2) - x_3 (e^-t - e^-10t), t = i / 10, i <= 10 (MGH 12)."""
    t = _counts(ops, 10) / 10.0
    fitted = ops.exp(-t * x[0]) - ops.exp(-t * x[1])
    return _squares(ops, fitted - x[2] * (ops.exp(-t) - ops.exp(-10.0 * t)))


KOWALIK_OSBORNE = (
    *((0.1957, 4.0), (0.1947, 2.0), (0.1735, 1.0), (0.1600, 0.5), (0.0844, 0.25), (0.0627, 0.167)),
    *((0.0456, 0.125), (0.0342, 0.1), (0.0323, 0.0833), (0.0235, 0.0714), (0.0246, 0.0625)),
)


def _kowalik_osborne(ops: Ops, x: Array) -> Array:
    """Return f with r_i = y_i - x_1 (u^2 + u x_2) / (u^2 + u x_3 + x_4) for 11 pairs (y_i, u_i) (MGH 15)."""
    y, u = (ops.asarray(column) for column in np.array(KOWALIK_OSBORNE).T)
    return _squares(ops, y - x[0] * u * (u + x[1]) / (u * (u + x[2]) + x[3]))


def _brown_dennis(ops: Ops, x: Array) -> Array:
    """Return f with r_i = (x_1 + t x_2 - e^t)^2 + (x_3 + x_4 sin t - cos t)^2, t = i / 5 (MGH 16)."""
    t = _counts(ops, 20) / 5.0
    first, second = x[0] + t * x[1] - ops.exp(t), x[2] + ops.sin(t) * x[3] - ops.cos(t)
    return _squares(ops, ops.square(first) + ops.square(second))


OSBORNE = (
    *(0.844, 0.908, 0.932, 0.936, 0.925, 0.908, 0.881, 0.850, 0.818, 0.784, 0.751, 0.718, 0.685, 0.658),
    *(0.628, 0.603, 0.580, 0.558, 0.538, 0.522, 0.506, 0.490, 0.478, 0.467, 0.457, 0.448, 0.438, 0.431),
    *(0.424, 0.420, 0.414, 0.411, 0.406),
)


def _osborne(ops: Ops, x: Array) -> Array:
    """Return f with r_i = y_i - x_1 - x_2 e^(-t x_4) - x_3 e^(-t x_5), t = 10 (i - 1), i <= 33 (MGH 17)."""
    t = 10.0 * ops.arange(len(OSBORNE))
    fitted = x[0] + x[1] * ops.exp(-t * x[3]) + x[2] * ops.exp(-t * x[4])
    return _squares(ops, ops.asarray(np.array(OSBORNE)) - fitted)


def _biggs(ops: Ops, x: Array) -> Array:
    """Return f with r_i = x_3 e^(-t x_1) - x_4 e^(-t x_2) + x_6 e^(-t x_5) - y_i, t = i / 10 (MGH 18).

    The targets are y_i = e^-t - 5 e^-10t + 3 e^-4t, i <= 13.
    """
    t = _counts(ops, 13) / 10.0
    fitted = x[2] * ops.exp(-t * x[0]) - x[3] * ops.exp(-t * x[1]) + x[5] * ops.exp(-t * x[4])
    return _squares(ops, fitted - ops.exp(-t) + 5.0 * ops.exp(-10.0 * t) - 3.0 * ops.exp(-4.0 * t))


def _cube(ops: Ops, x: Array) -> Array:
    """Return f = (x_1 - 1)^2 + 100 (x_2 - x_1^3)^2 (Leon, CUTE)."""
    return _squares(ops, x[0] - 1.0, 10.0 * (x[1] - x[0] ** 3))


def _cliff(ops: Ops, x: Array) -> Array:
    """Return f = ((x_1 - 3) / 100)^2 - (x_1 - x_2) + exp(20 (x_1 - x_2)) (Wayne, CUTE)."""
    difference = x[0] - x[1]
    return ops.square((x[0] - 3.0) / 100.0) - difference + ops.exp(20.0 * difference)


def _engvall(ops: Ops, x: Array) -> Array:
    """Return f with five residuals of degree up to 3 in three variables (Engvall, CUTE, ENGVAL2)."""
    planar = ops.square(x[0]) + ops.square(x[1])
    return _squares(
        ops,
        planar + ops.square(x[2]) - 1.0,
        planar + ops.square(x[2] - 2.0) - 1.0,
        x[0] + x[1] + x[2] - 1.0,
        x[0] + x[1] - x[2] + 1.0,
        x[0] ** 3 + 3.0 * ops.square(x[1]) + ops.square(5.0 * x[2] - x[0] + 1.0) - 36.0,
    )


def _maratos(ops: Ops, x: Array) -> Array:
    """Return f = x_1 + 10^6 (x_1^2 + x_2^2 - 1)^2, a penalty on the unit circle (Maratos, CUTE)."""
    return x[0] + 1e6 * ops.square(ops.square(x[0]) + ops.square(x[1]) - 1.0)


# --- any number of variables -------------------------------------------------------------------------------


def _powell_singular(ops: Ops, x: Array) -> Array:
    """Return f of fours of variables, whose Hessian at the minimum is singular (MGH 13 and 22)."""
    first, second, third, fourth = (x[i::4] for i in range(4))
    return _squares(
        ops,
        first + 10.0 * second,
        math.sqrt(5.0) * (third - fourth),
        ops.square(second - 2.0 * third),
        math.sqrt(10.0) * ops.square(first - fourth),
    )


def _wood(ops: Ops, x: Array) -> Array:
    """Return f of fours of variables, two coupled valleys of Rosenbrock's function (MGH 14)."""
    first, second, third, fourth = (x[i::4] for i in range(4))
    return _squares(
        ops,
        10.0 * (second - ops.square(first)),
        1.0 - first,
        math.sqrt(90.0) * (fourth - ops.square(third)),
        1.0 - third,
        math.sqrt(10.0) * (second + fourth - 2.0),
        (second - fourth) / math.sqrt(10.0),
    )


def _penalty(ops: Ops, x: Array) -> Array:
    """Return f = 10^-5 sum_i (x_i - 1)^2 + (||x||^2 - 1/4)^2 (MGH 23)."""
    return 1e-5 * _squares(ops, x - 1.0) + ops.square(_squares(ops, x) - 0.25)


def _variably_dimensioned(ops: Ops, x: Array) -> Array:
    """Return f = ||x - 1||^2 + s^2 + s^4 with s = sum_i i (x_i - 1) (MGH 25)."""
    total = ops.sum(_counts(ops, x.shape[0]) * (x - 1.0))
    return _squares(ops, x - 1.0, total, ops.square(total))


def _boundary_value(ops: Ops, x: Array) -> Array:
    """Return f with r_i = 2 x_i - x_{i-1} - x_{i+1} + h^2 (x_i + t_i + 1)^3 / 2 (MGH 28).

    h = 1 / (n + 1), t_i = i h, and x_0 = x_{n+1} = 0.
    """
    h = 1.0 / (x.shape[0] + 1)
    padded = ops.pad(x, ((1, 1),))
    cubes = (x + h * _counts(ops, x.shape[0]) + 1.0) ** 3
    return _squares(ops, 2.0 * x - padded[:-2] - padded[2:] + h**2 / 2.0 * cubes)


def _broyden_tridiagonal(ops: Ops, x: Array) -> Array:
    """Return f with r_i = (3 - 2 x_i) x_i - x_{i-1} - 2 x_{i+1} + 1, x_0 = x_{n+1} = 0 (MGH 30)."""
    padded = ops.pad(x, ((1, 1),))
    return _squares(ops, (3.0 - 2.0 * x) * x - padded[:-2] - 2.0 * padded[2:] + 1.0)


def _linear_full_rank(ops: Ops, x: Array) -> Array:
    """Return f with 2 n residuals: x_i - s - 1, i <= n, and -s - 1, where s = sum_i x_i / n (MGH 32)."""
    mean = ops.mean(x)
    return _squares(ops, x - mean - 1.0) + x.shape[0] * ops.square(mean + 1.0)


def _generalized_rosenbrock(ops: Ops, x: Array) -> Array:
    """Return f = 1 + sum_i 100 (x_i - x_{i-1}^2)^2 + (x_i - 1)^2, i = 2, ..., n (Nash, CUTE, GENROSE)."""
    return 1.0 + _squares(ops, 10.0 * (x[1:] - ops.square(x[:-1])), x[1:] - 1.0)


def _dixon(ops: Ops, x: Array) -> Array:
    """Return f = (x_1 - 1)^2 + sum_i (x_i - x_{i+1})^2 + (x_n - 1)^2 (Dixon, CUTE, DIXON3DQ)."""
    return _squares(ops, x[0] - 1.0, x[1:-1] - x[2:], x[-1] - 1.0)


def _extended_dennis_schnabel(ops: Ops, x: Array) -> Array:
    """Return f = 16 + sum_i (x_i - 2)^4 + (x_i x_{i+1} - 2 x_{i+1})^2 + (x_{i+1} + 1)^2 (Li, EDENSCH)."""
    left, right = x[:-1] - 2.0, x[1:]
    return 16.0 + _squares(ops, ops.square(left), left * right, right + 1.0)


def _engvall_chain(ops: Ops, x: Array) -> Array:
    """Return f = sum_i (x_i^2 + x_{i+1}^2)^2 - 4 x_i + 3, i < n (Engvall, CUTE, ENGVAL1)."""
    left, right = x[:-1], x[1:]
    return ops.sum(ops.square(ops.square(left) + ops.square(right)) - 4.0 * left + 3.0)


def _arrowhead(ops: Ops, x: Array) -> Array:
    """Return f = sum_i (x_i^2 + x_n^2)^2 - 4 x_i + 3, i < n (Conn, Gould and Toint, CUTE, ARWHEAD)."""
    left = x[:-1]
    return ops.sum(ops.square(ops.square(left) + ops.square(x[-1])) - 4.0 * left + 3.0)


def _liarwhd(ops: Ops, x: Array) -> Array:
    """Return f = sum_i 4 (x_i^2 - x_1)^2 + (x_i - 1)^2 (Li, CUTE, LIARWHD)."""
    return _squares(ops, 2.0 * (ops.square(x) - x[0]), x - 1.0)


def _nondiagonal_quartic(ops: Ops, x: Array) -> Array:
    """Return f = (x_1 - x_2)^2 + (x_{n-1} - x_n)^2 + sum_i (x_i + x_{i+1} + x_n)^4 (NONDQUAR)."""
    quartic = ops.square(x[:-2] + x[1:-1] + x[-1])
    return _squares(ops, x[0] - x[1], x[-2] - x[-1], quartic)


def _quartic(ops: Ops, x: Array) -> Array:
    """Return f = (x_1 - 1)^2 + sum_i (x_1^2 - x_i^2)^2, i = 2, ..., n (Nash, CUTE, TQUARTIC)."""
    return _squares(ops, x[0] - 1.0, ops.square(x[0]) - ops.square(x[1:]))


def _toint(ops: Ops, x: Array) -> Array:
    """Return f = sum_i (10 / (n - 2) + s) (2 - exp(-(x_i - x_{i+1})^2 / (0.1 + s))), s = x_{i+2}^2.

    The sum has i <= n - 2 (Toint, CUTE, TOINTGSS).
    """
    s = ops.square(x[2:])
    fitted = 2.0 - ops.exp(-ops.square(x[:-2] - x[1:-1]) / (0.1 + s))
    return ops.sum((10.0 / (x.shape[0] - 2) + s) * fitted)


def _schmidt_vetters(ops: Ops, x: Array) -> Array:
    """Return f of triples of neighbours, a sum of bounded terms (Schmidt and Vetters, CUTE, SCHMVETT)."""
    left, middle, right = x[:-2], x[1:-1], x[2:]
    ratio = (left + right) / middle - 2.0
    terms = -1.0 / (1.0 + ops.square(left - middle)) - ops.exp(-ops.square(ratio))
    return ops.sum(terms - ops.sin((math.pi * middle + right) / 2.0))


PROBLEMS = {
    "rosenbr": TestFunction(_rosenbrock, (-1.2, 1.0)),
    "brownbs": TestFunction(_brown_badly_scaled, (1.0, 1.0)),
    "beale": TestFunction(_beale, (1.0, 1.0)),
    "jensmp": TestFunction(_jennrich_sampson, (0.3, 0.4), 124.362182355615),
    "helix": TestFunction(_helical_valley, (-1.0, 0.0, 0.0)),
    "bard": TestFunction(_bard, (1.0, 1.0, 1.0), 8.21487730657898e-3),
    "box3": TestFunction(_box, (0.0, 10.0, 1.0)),
    "kowosb": TestFunction(_kowalik_osborne, (0.25, 0.39, 0.415, 0.39), 3.07505603849237e-4),
    "brownden": TestFunction(_brown_dennis, (25.0, 5.0, -5.0, -1.0), 85822.2016263563),
    "osbornea": TestFunction(_osborne, (0.5, 1.5, -1.0, 0.01, 0.02), 5.46489469748268e-5),
    "biggs6": TestFunction(_biggs, (1.0, 2.0, 1.0, 1.0, 1.0, 1.0)),
    "cube": TestFunction(_cube, (-1.2, 1.0)),
    "cliff": TestFunction(_cliff, (0.0, -1.0), 0.199786613677700),
    "engval2": TestFunction(_engvall, (1.0, 2.0, 0.0)),
    "maratosb": TestFunction(_maratos, (1.1, 0.1), -1.0000000625),
    "srosenbr": TestFunction(_rosenbrock, lambda n: np.tile([-1.2, 1.0], n // 2), multiple=2),
    "powellsg": TestFunction(_powell_singular, lambda n: np.tile([3.0, -1.0, 0.0, 1.0], n // 4), multiple=4),
    "woods": TestFunction(_wood, lambda n: np.tile([-3.0, -1.0], n // 2), multiple=4),
    "penalty1": TestFunction(_penalty, np.arange(1.0, VARIABLES + 1).tolist(), 9.02490976804296e-4),
    "vardim": TestFunction(_variably_dimensioned, lambda n: 1.0 - np.arange(1, n + 1) / n),
    "morebv": TestFunction(_boundary_value, lambda n: (t := np.arange(1, n + 1) / (n + 1)) * (t - 1.0)),
    "broydn3dls": TestFunction(_broyden_tridiagonal, lambda n: -np.ones(n)),
    "arglina": TestFunction(_linear_full_rank, np.ones, float),
    "genrose": TestFunction(_generalized_rosenbrock, lambda n: np.arange(1, n + 1) / (n + 1), 1.0),
    "dixon3dq": TestFunction(_dixon, lambda n: -np.ones(n)),
    "edensch": TestFunction(_extended_dennis_schnabel, np.full(VARIABLES, 8.0).tolist(), 603.284592020765),
    "engval1": TestFunction(_engvall_chain, np.full(VARIABLES, 2.0).tolist(), 109.088136143092),
    "arwhead": TestFunction(_arrowhead, np.ones),
    "liarwhd": TestFunction(_liarwhd, lambda n: np.full(n, 4.0)),
    "nondquar": TestFunction(_nondiagonal_quartic, lambda n: np.tile([1.0, -1.0], n // 2), multiple=2),
    "tquartic": TestFunction(_quartic, lambda n: np.full(n, 0.1)),
    "tointgss": TestFunction(_toint, lambda n: np.full(n, 3.0), 10.0),
    "schmvett": TestFunction(_schmidt_vetters, lambda n: np.full(n, 0.5), lambda n: -3.0 * (n - 2)),
}


def _check(settings: Settings) -> None:
    """Check that the problem can have the number of variables in the settings."""
    problem, n = PROBLEMS[settings["problem"]], settings["n"]
    if n is not None and not callable(problem.start):
        raise ValueError(f"n = {n}: {settings['problem']} has {len(problem.start)} variables (n: null)")
    if n is not None and (n % problem.multiple or n < 4):
        raise ValueError(f"n = {n}: {settings['problem']} needs a multiple of {problem.multiple} from 4 on")


def _sample_parameters(settings: Settings, generator: np.random.Generator) -> dict[str, np.ndarray]:
    """Draw x_i ~ N(s_i, (c s_i)^2) around the standard start s; c is the setting `spread`.

    The deviation of a variable whose standard start is 0 is c.
    """
    start = PROBLEMS[settings["problem"]].start_of(settings["n"])
    deviations = settings["spread"] * np.where(start == 0.0, 1.0, np.abs(start))
    return {"x": start + deviations * generator.normal(size=start.shape)}


def _problem(settings: Settings, random: Random) -> Problem:
    """Return a start; the objectives have no data, so that the training split has one empty example."""
    parameters = _sample_parameters(settings, random("parameters"))
    minimum = PROBLEMS[settings["problem"]].minimum_of(len(parameters["x"]))
    return Problem(parameters, {"train": {"minimum": np.array([minimum])}}, facts={"minimum": minimum})


def _functions(problem: str) -> dict[str, Any]:
    """Return the fields `loss` and `evaluate` of the workload with one objective."""

    def value(ops: Ops, params: Arrays, split: Arrays) -> Array:
        return PROBLEMS[problem].value(ops, ops.astype_float(params["x"]))

    def evaluate(ops: Ops, params: Arrays, state: Arrays, split: Arrays) -> dict[str, Array]:
        objective = value(ops, params, split)
        return {"loss": objective, "suboptimality": objective - split["minimum"][0]}

    return {"loss": loss_of(value), "evaluate": evaluate}


CUTEST: Workload = Workload(
    name="cutest",
    description=f"{len(PROBLEMS)} unconstrained problems of the CUTEst collection, chosen by name",
    source="Bongartz, Conn, Gould and Toint 1995; More, Garbow and Hillstrom 1981",
    metrics={
        "train_loss": Metric("value of the objective", "minimize"),
        "gradient_norm": Metric("Euclidean norm of the gradient", "minimize"),
        "train_suboptimality": Metric("objective minus its smallest known value", "minimize"),
    },
    settings={
        "batch_size": Setting(None, "full batch, the only choice", read=choice(None)),
        "problem": Setting("rosenbr", "name of the problem in the collection", choice(*PROBLEMS)),
        "n": Setting(None, f"variables, where the number is free; null: {VARIABLES}", whole(1, "default")),
        "spread": Setting(0.1, "deviation of starts from the standard start, over its entries", number(0.0)),
    },
    dtype="float64",
    shared_data=True,
    roles=lambda settings: {"x": Role("vector")},
    problem=_problem,
    sample_parameters=_sample_parameters,
    **_functions("rosenbr"),
    start=Start(loss=31.152575719296564, gradient_norm=276.07405076586616),
    check=_check,
    bind=lambda settings: replace(CUTEST, **_functions(settings["problem"])),
)

WORKLOADS = (CUTEST,)
