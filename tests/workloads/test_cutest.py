"""The CUTEst problems: values and gradients of another library, residuals one by one, and known minima.

`cutest.csv` has numbers of sif2jax 0.0.8 (Apache-2.0), computed in float64 on JAX 0.10.2: the value, the
gradient's norm and three of its entries (first, middle, last), at the start of curvebench and displaced from
it by 0.01 sin(i) in variable i. Four problems differ there: `kowosb` ends with u = 0.0624 in place of 0.0625
(More, Garbow and Hillstrom 1981), `tquartic` has x_1 + 1 in place of x_1 - 1, and `powellsg` and `penalty1`,
which its list of checked problems leaves out, are other functions. Here, their residuals are written out.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy.optimize import minimize

from curvebench.arrays.jax_ops import jax_ops
from curvebench.arrays.numpy_ops import numpy_ops
from curvebench.workloads.cutest import CUTEST, KOWALIK_OSBORNE, PROBLEMS
from tests.workloads.cases import jax_gradient, random_of, torch_gradient

ORACLE = pl.read_csv(Path(__file__).parent / "cutest.csv", infer_schema_length=None)
RESIDUALS = {
    "kowosb": lambda x: [y - x[0] * (u**2 + u * x[1]) / (u**2 + u * x[2] + x[3]) for y, u in KOWALIK_OSBORNE],
    "powellsg": lambda x: [
        residual
        for a, b, c, d in x.reshape(-1, 4)
        for residual in (a + 10 * b, 5**0.5 * (c - d), (b - 2 * c) ** 2, 10**0.5 * (a - d) ** 2)
    ],
    "penalty1": lambda x: [*(1e-5**0.5 * (value - 1) for value in x), math.fsum(x**2) - 0.25],
    "tquartic": lambda x: [x[0] - 1, *(x[0] ** 2 - value**2 for value in x[1:])],
}


def _at(problem, **settings):
    complete = CUTEST.complete({"problem": problem, "spread": 0.0, **settings})
    workload = CUTEST.at(complete)
    return workload, workload.problem(complete, random_of(0))


def _gradient(workload, problem, x):
    """Return torch's gradient at x, after a comparison with jax's."""
    import jax

    batch = problem.splits["train"]
    by_torch = torch_gradient(workload, problem, batch)({"x": x})["x"]
    with jax.enable_x64(True):
        by_jax = jax_gradient(workload, problem, batch)({"x": x})["x"]
    np.testing.assert_allclose(by_jax, by_torch, rtol=1e-11, atol=1e-13 * float(np.linalg.norm(by_torch)))
    return by_torch


def _value(workload, x):
    return float(workload.loss(numpy_ops(), {"x": x}, {}, {}, {})[0])


@pytest.mark.parametrize("name", sorted(PROBLEMS.keys() - RESIDUALS.keys()))
def test_values_and_gradients_are_those_of_another_library(name):
    rows = ORACLE.filter(problem=name).rows(named=True)
    assert len(rows) == 2
    for row in rows:
        workload, problem = _at(name, n=row["n"] if name == "arglina" else None)
        start = problem.parameters["x"]
        assert start.shape == (row["n"],)
        x = start + row["displaced"] * 0.01 * np.sin(np.arange(1, len(start) + 1))
        gradient = _gradient(workload, problem, x)
        assert _value(workload, x) == pytest.approx(row["value"], rel=1e-13)
        assert np.linalg.norm(gradient) == pytest.approx(row["gradient_norm"], rel=1e-13)
        due = [row["first"], row["middle"], row["last"]]
        np.testing.assert_allclose(
            gradient[[0, len(x) // 2, -1]], due, rtol=1e-12, atol=1e-14 * row["gradient_norm"]
        )


@pytest.mark.parametrize("name", RESIDUALS)
def test_values_are_sums_of_squares_and_gradients_their_differences(name):
    workload, problem = _at(name)
    start = problem.parameters["x"]
    x = start + 0.01 * np.sin(np.arange(1, len(start) + 1))
    for point in (start, x):
        assert _value(workload, point) == pytest.approx(math.fsum(r * r for r in RESIDUALS[name](point)))
    gradient = _gradient(workload, problem, x)
    direction = np.cos(np.arange(len(x)))
    ahead, behind = (_value(workload, x + step * direction) for step in (1e-6, -1e-6))
    assert (ahead - behind) / 2e-6 == pytest.approx(gradient @ direction, rel=1e-6)


# Values at the start that the literature prints
@pytest.mark.parametrize(
    ("name", "n", "value"),
    [("powellsg", 4, 215.0), ("woods", 4, 19192.0), ("tquartic", None, 0.81), ("nondquar", 5000, 5006.0)],
)
def test_values_at_the_start_are_those_of_the_literature(name, n, value):
    workload, problem = _at(name, n=n)
    assert _value(workload, problem.parameters["x"]) == pytest.approx(value, rel=1e-14)


PRINTED = {
    "jensmp": 124.362,
    "bard": 8.21487e-3,
    "kowosb": 3.07505e-4,
    "brownden": 85822.2,
    "osbornea": 5.46489e-5,
    "cliff": 0.199786613,
    "maratosb": -1.00000006,
}


@pytest.mark.parametrize(
    "name", [*PRINTED, "penalty1", "arglina", "genrose", "edensch", "engval1", "schmvett"]
)
def test_the_minimum_is_what_newtons_method_finds(name):
    import jax

    workload, problem = _at(name)
    start, minimum = problem.parameters["x"], problem.facts["minimum"]
    with jax.enable_x64(True), np.errstate(over="ignore"):
        ops = jax_ops("float64")
        value = jax.jit(lambda x: workload.loss(ops, {"x": x}, {}, {}, {})[0])
        found = minimize(
            value,
            start,
            jac=jax.jit(jax.grad(value)),
            hess=jax.jit(jax.hessian(value)),
            method="trust-exact",
            options={"gtol": 1e-12, "maxiter": 3000},
        )
    assert found.fun == pytest.approx(minimum, rel=1e-9)
    assert minimum == pytest.approx(PRINTED.get(name, minimum), rel=3e-6)
    metrics = workload.evaluate(numpy_ops(), {"x": start}, {}, problem.splits["train"])
    assert metrics["suboptimality"] == metrics["loss"] - minimum > 0.0


def test_starts_differ_from_the_standard_start_by_their_spread():
    starts = np.stack(
        [
            CUTEST.sample_parameters(CUTEST.complete({"problem": "morebv"}), np.random.default_rng(seed))["x"]
            for seed in range(40)
        ]
    )
    standard = PROBLEMS["morebv"].start_of(None)
    assert np.std(starts / standard - 1.0) == pytest.approx(0.1, rel=0.05)
    zeros = CUTEST.sample_parameters(CUTEST.complete({"problem": "helix"}), np.random.default_rng(0))["x"][1:]
    assert np.all((zeros != 0.0) & (np.abs(zeros) < 0.5))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"problem": "bard", "n": 5}, "bard has 3 variables"),
        ({"problem": "woods", "n": 6}, "needs a multiple of 4 from 4 on"),
        ({"problem": "rosenbrock"}, "is not one of rosenbr"),
    ],
)
def test_what_a_problem_cannot_be_is_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        CUTEST.complete(settings)
