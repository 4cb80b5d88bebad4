"""Controls of all workloads: gradient descent is the same method in rotated coordinates."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from curvebench.backends.engine import engine
from curvebench.engine.bundle import Bundle
from curvebench.engine.execution import execute
from curvebench.optimizers.bases import bases
from curvebench.registry import find_rule
from curvebench.spec.method import BasisSpec
from curvebench.stages.job import LoadedBasis, estimate, instance
from tests.workloads.cases import NAMES, small

STEPS = 200
RATES = 10.0 ** np.arange(-6, 2)
LARGEST = 1_500  # a rotation of all parameters together has this number of rows at most


def _rotation(workload, problem):
    """Return a random rotation of all parameters together, or of the rows of weights if there are many."""
    size = sum(math.prod(shape) for shape in workload.shapes_at(problem.settings).values())
    options = {"blocks": "all"} if size <= LARGEST else {"blocks": "weights", "rows": "shared"}
    basis = bases()["random_orthogonal"]
    drawn = estimate(BasisSpec(basis.name, basis.name, basis.complete(options)), problem)
    return LoadedBasis.of([drawn], np.float64)


@pytest.mark.slow  # over all workloads
@pytest.mark.parametrize("name", NAMES)
def test_gradient_descent_does_not_change_under_a_rotation_of_the_parameters(name):
    workload, settings = small(name)
    workload = workload.at(settings)
    problem = instance(workload, settings, 0)
    rotation = _rotation(workload, problem)
    assert all(np.abs(matrix - np.eye(matrix.shape[-1])).max() > 0.1 for matrix in rotation.matrices.values())
    examples = len(next(iter(problem.problem.splits["train"].values())))
    size = settings["batch_size"]
    generator = np.random.default_rng(0)
    orders = None if size is None else generator.integers(examples, size=(STEPS, 1, size))
    identity = Bundle(
        workload=replace(workload, metrics={"train_loss": workload.metrics["train_loss"]}),
        rule=find_rule("sgd"),
        problems=[problem.problem],
        orders=orders,
        hyperparameters={"learning_rate": RATES},
        schedule=np.ones(STEPS),
        evaluations=20,
        settings=settings,
        randoms=[problem.random],
    )
    rotated = replace(identity, matrices=rotation.matrices, changes=rotation.changes)
    plain, turned = (
        execute(bundle, engine("jax", "float64")).metrics["train_loss"][:, 0]
        for bundle in (identity, rotated)
    )
    final = np.where(np.isfinite(plain).all(axis=0), plain[-1], math.inf)
    rate = int(np.argmin(final)) - 1  # at the best rate, rounding errors may grow from step to step
    assert np.isfinite(plain[:, rate]).all()
    assert abs(plain[-1, rate] - plain[0, rate]) > 1e-4 * abs(plain[0, rate])
    np.testing.assert_allclose(turned[:, rate], plain[:, rate], rtol=1e-9)
