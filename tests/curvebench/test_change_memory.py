"""Memory of auxiliary coordinates at the size of a large layer: V of r columns, and no d x d matrix."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from curvebench.backends.engine import engine
from curvebench.engine.bundle import Trajectories
from curvebench.engine.execution import execute
from curvebench.optimizers import rules
from curvebench.optimizers.bases import CHANGES, Group, bases
from curvebench.timing.step_times import peak_resident_bytes, resident_bytes
from curvebench.workloads.workload import Problem
from tests.curvebench.alone import alone
from tests.curvebench.engine.test_execution import make_bundle
from tests.curvebench.toys import TANH

SIZE, RANK, SAMPLES = 39_200, 20, 200  # 392 x 100 weights; d x d in float64 would be 12 GB


def pieces() -> Iterator[np.ndarray]:
    rng = np.random.default_rng(0)
    directions = rng.standard_normal((RANK, SIZE)) * 0.5 ** np.arange(RANK)[:, None]
    for _ in range(SAMPLES // 20):
        yield rng.standard_normal((20, RANK)) @ directions + 1e-3 * rng.standard_normal((20, SIZE))


@pytest.mark.parametrize(
    ("estimator", "numbers"),
    [("streaming", 10 * SIZE * (4 * RANK + 10)), ("randomized", 3.1 * SIZE * SAMPLES)],
)
def test_estimation_holds_no_square_matrix(estimator: str, numbers: float) -> None:
    """Some copies of a sketch in one pass, or of all gradients; limits a tenth above what was measured."""
    shape, growth = alone(estimated, estimator)
    assert shape == (SIZE, RANK)
    assert growth < 8 * numbers < 8 * SIZE**2 / 30


def growth(run: Callable[[], object]) -> int:
    """By how much a function raises the peak of resident memory, in bytes."""
    baseline, peak = resident_bytes(), peak_resident_bytes(run)
    assert baseline is not None
    assert peak is not None
    return peak - baseline


def estimated(estimator: str) -> tuple[tuple[int, ...], int]:
    """Return the shape of a basis, and by how much its estimation raised the peak, in bytes."""
    egop = bases()["egop"]
    options = egop.complete({"rank": RANK, "complement": "auxiliary", "estimator": estimator})
    group = Group(("w",), SIZE, CHANGES["auxiliary"])
    found = []

    def run() -> None:
        made = egop.estimator(options, group, np.random.default_rng(1))
        for piece in pieces():
            made.add(piece)
        found.append(made.result()[0])

    raised = growth(run)
    return found[0].shape, raised


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_a_run_holds_no_square_matrix(backend: str) -> None:
    """Adam on theta_r and theta_d of a 392 x 100 layer: V, and some copies of the parameters."""
    losses, growth = alone(run_in_a_basis, backend)
    assert losses[-1] < losses[0]
    assert growth < 8 * 20 * SIZE * (RANK + 10) < 8 * SIZE**2 / 30


def run_in_a_basis(backend: str) -> tuple[np.ndarray, int]:
    """Return the losses of a run, and by how much it raised the peak, in bytes."""
    rng = np.random.default_rng(2)
    plain = make_bundle(TANH, rules()["adam"], seeds=(5,), rates=(0.01,), batch_size=None, basis=False)
    (problem,) = plain.problems
    parameters = {
        "bias": np.zeros(100),
        "first": 0.05 * rng.standard_normal((100, 392)),
        "second": 0.1 * rng.standard_normal((2, 100)),
    }
    splits = {
        name: {"features": rng.standard_normal((10, 392)), "targets": split["targets"][:10]}
        for name, split in problem.splits.items()
    }
    basis = np.linalg.qr(rng.standard_normal((SIZE, RANK)))[0]

    whole = Problem(parameters=parameters, splits=splits, state=problem.state)
    plain = dataclasses.replace(plain, problems=[whole])
    made = engine(backend, "float64")
    execute(plain, made)  # allocates what the process needs only once
    group = ("first",)
    rotated = dataclasses.replace(plain, matrices={group: basis[None]}, changes={group: CHANGES["auxiliary"]})
    results = list[Trajectories]()
    raised = growth(lambda: results.append(execute(rotated, made)))
    return results[0].metrics["train_loss"][:, 0, 0], raised
