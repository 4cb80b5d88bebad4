"""EGOP of layers whose filters, or rows, share V: against outer products of finite differences in float64."""

from __future__ import annotations

import dataclasses
from functools import cache, partial

import numpy as np
import pytest

from curvebench.backends.engine import engine
from curvebench.basis_estimation.gradients import (
    GradientSampling,
    chunk_of,
    decomposition_on,
    estimated,
    sampler,
)
from curvebench.basis_estimation.reestimation import RenewalPlan
from curvebench.engine.loading import load
from curvebench.optimizers import rules
from curvebench.optimizers.bases import Group, bases
from curvebench.optimizers.bases.estimators import by_numpy, egop_matrix
from curvebench.seeding import WorkloadRandom, batch_order
from curvebench.workloads.arguments import Random
from tests.curvebench.basis_estimation.test_reestimation import renewed
from tests.curvebench.networks import SMALL_CONVOLUTION
from tests.curvebench.test_executors import bundle_of
from tests.curvebench.toys import central_differences

PASSES, BATCH, SEED, STEPS = 4, 16, 3, 5
SETTINGS = {"batch_size": BATCH}
EGOP = bases()["egop"]
OPTIONS = EGOP.complete({"blocks": "layers", "rows": "shared", "samples": PASSES, "every": "5 steps"})
LAYERS = {"kernel": 9, "head": 64}  # how many entries a filter or a row has, of which there are 4 and 10
SAMPLING = GradientSampling(SMALL_CONVOLUTION, SETTINGS, PASSES)
RANDOM = WorkloadRandom(SMALL_CONVOLUTION.name, SEED)
PROBLEM = SMALL_CONVOLUTION.problem(SETTINGS, RANDOM)


def groups() -> tuple[Group, ...]:
    roles = SMALL_CONVOLUTION.roles(SETTINGS)
    shapes = {name: value.shape for name, value in PROBLEM.parameters.items()}
    return EGOP.groups(OPTIONS, shapes, {name: role.kind for name, role in roles.items()})


def brute_force(random: Random, around: dict[str, np.ndarray] | None = None) -> dict[str, np.ndarray]:
    """Return the EGOP of each layer: the mean over passes, and over filters or rows, of outer products."""
    parameters, noises = random("egop sampling"), random("egop noise")
    train = PROBLEM.splits["train"]
    orders = batch_order(random, len(train["labels"]), BATCH, PASSES, purpose="egop batches")
    egop = {name: np.zeros((size, size)) for name, size in LAYERS.items()}
    for order in orders:
        theta = SMALL_CONVOLUTION.sample_parameters(SETTINGS, parameters)
        if around is not None:
            other = SMALL_CONVOLUTION.sample_parameters(SETTINGS, parameters)
            theta = {name: around[name] + (theta[name] - other[name]) / np.sqrt(2) for name in theta}
        assert SMALL_CONVOLUTION.noise is not None
        noise = SMALL_CONVOLUTION.noise(SETTINGS, noises, BATCH)
        batch = {name: values[order] for name, values in train.items()}
        for name, size in LAYERS.items():
            gradient = central_differences(SMALL_CONVOLUTION, theta, PROBLEM.state, batch, noise, name)
            filters = gradient.reshape(-1, size)
            for one in filters:
                egop[name] += np.outer(one, one) / (PASSES * len(filters))
    return egop


@cache
def at_initializations() -> dict[str, np.ndarray]:
    return brute_force(RANDOM)


@cache
def around_the_start() -> dict[str, np.ndarray]:
    def random(purpose: str, shared: bool = False) -> np.random.Generator:
        return RANDOM(f"{purpose} after step {STEPS}", shared)

    return brute_force(random, PROBLEM.parameters)


def assert_eigenvectors(v: np.ndarray, egop: np.ndarray, error: float) -> None:
    """V is orthonormal, diagonalizes the EGOP, and its leading eigenspaces are near by their gaps."""
    values, vectors = np.linalg.eigh(egop)
    values, vectors = values[::-1], vectors[:, ::-1]
    np.testing.assert_allclose(v.T @ v, np.eye(len(v)), atol=10 * error)
    np.testing.assert_allclose(v.T @ egop @ v, np.diag(values), atol=error * values[0])
    gaps = values[:-1] - values[1:]
    judged = [rank for rank in range(1, len(v)) if gaps[rank - 1] > 0.003 * values[0]]
    assert len(judged) >= 3
    for rank in judged:
        sines = np.linalg.norm(v[:, :rank] - vectors[:, :rank] @ (vectors[:, :rank].T @ v[:, :rank]), 2)
        assert sines < 2 * error * values[0] / gaps[rank - 1]  # Davis and Kahan


PLACES: dict[str, tuple[str, str, bool, float]] = {  # backend, precision, where it is decomposed, the error
    "host": ("jax", "float64", False, 1e-7),  # that of differences
    "jax": ("jax", "float64", True, 1e-7),
    "torch": ("torch", "float64", True, 1e-7),
    "jax in float32": ("jax", "float32", True, 3e-6),
    "torch in float32": ("torch", "float32", True, 3e-6),
}


@pytest.mark.parametrize("place", PLACES)
def test_filters_and_rows_are_samples(place: str) -> None:
    backend, precision, on_device, error = PLACES[place]
    made = engine(backend, precision)
    decompose = decomposition_on(made) if on_device else by_numpy
    sample = sampler(SAMPLING, made, PROBLEM, RANDOM)
    generator = np.random.default_rng(0)
    found, count = estimated(
        groups(), lambda group: EGOP.estimator(OPTIONS, group, generator, decompose), sample(PROBLEM, RANDOM)
    )
    assert count == PASSES
    for (name, egop), (v, eigenvalues) in zip(at_initializations().items(), found, strict=True):
        assert v.dtype == np.float64
        assert_eigenvectors(v, egop, error)
        largest = eigenvalues[0]
        np.testing.assert_allclose(
            eigenvalues, np.linalg.eigvalsh(egop)[::-1], atol=error * largest, err_msg=name
        )


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_a_run_estimates_them_around_its_iterate(backend: str) -> None:
    made = engine(backend, "float32")
    matrices = {group.names: np.eye(group.size)[None] for group in groups()}
    bundle = dataclasses.replace(
        bundle_of(SMALL_CONVOLUTION, rules()["adam"], seeds=(SEED,), rates=1, steps=STEPS),
        settings=SETTINGS,
        matrices=matrices,
        changes={group.names: group.change for group in groups()},
        reestimation=RenewalPlan(
            (STEPS,),
            dataclasses.replace(SAMPLING, around_start=True),
            groups(),
            partial(EGOP.estimator, OPTIONS),
        ),
    )
    with made.context():
        loaded = load(bundle, made)
        kept, found, _ = renewed(bundle, made, loaded, loaded.carry, STEPS)
    for (name, egop), (v,) in zip(around_the_start().items(), found, strict=True):
        assert v.dtype == np.float32
        assert_eigenvectors(v.astype(np.float64), egop, 3e-6)
        np.testing.assert_allclose(kept[name][0, 0], PROBLEM.parameters[name], atol=1e-5)


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_one_at_a_time_is_what_is_mapped(backend: str) -> None:
    made = engine(backend, "float64")
    mapped = dataclasses.replace(SAMPLING, workload=dataclasses.replace(SMALL_CONVOLUTION, mapped=True))
    assert (chunk_of(SAMPLING, made, PROBLEM), chunk_of(mapped, made, PROBLEM)) == (1, PASSES)
    alone = list(sampler(SAMPLING, made, PROBLEM, RANDOM)(PROBLEM, RANDOM))
    (together,) = sampler(mapped, made, PROBLEM, RANDOM)(PROBLEM, RANDOM)
    assert len(alone) == PASSES
    for name, expected in together.items():
        gradients = np.concatenate([piece[name] for piece in alone])
        np.testing.assert_allclose(gradients, expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize("backend", ["jax", "torch"])
@pytest.mark.parametrize("samples", [300, 20])
def test_a_device_decomposes_as_the_host_does(backend: str, samples: int) -> None:
    """It decomposes in float64 although runs are in float32, also with fewer gradients than coordinates."""
    rng = np.random.default_rng(1)
    gradients = rng.standard_normal((samples, 40)) * 0.8 ** np.arange(40)
    decompose = decomposition_on(engine(backend, "float32"))
    (v, values), (_, expected) = decompose(gradients), by_numpy(gradients)
    np.testing.assert_allclose(values, expected, rtol=0, atol=1e-14 * expected[0])
    np.testing.assert_allclose(v.T @ v, np.eye(40), rtol=0, atol=1e-13)
    np.testing.assert_allclose((v * values) @ v.T, egop_matrix(gradients), rtol=0, atol=1e-13)
