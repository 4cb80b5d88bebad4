"""Gradients at random parameters, the samples that an EGOP basis is estimated from, and its eigenvectors."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from curvebench.backends.engine import engine as engine_of
from curvebench.optimizers.bases import Estimator, Group
from curvebench.optimizers.bases.estimators import Decomposition, leading_first
from curvebench.seeding import batch_order
from curvebench.steps.derivatives import sampled_gradients
from curvebench.steps.engine import Engine
from curvebench.steps.examples import gathered, generators_of
from curvebench.workloads.workload import Problem, Random, Workload, examples_in

# Gradients mapped at once, at most, and their bytes on a CPU: full batches of digits take 1.6 times as long
# out of its caches, and single gradients of the linear network 12 times.
# The result does not depend on either.
CHUNK, CHUNK_BYTES = 256, 1 << 26


@dataclass(frozen=True)
class GradientSampling:
    """What is sampled.

    Args:
        workload, settings: what is differentiated; minibatches as in training (000 C.6).
        count: the number of samples M.
        normal_scale: the standard deviation of a normal sampling distribution, or None to sample the
            distribution of the initial parameters.
        around_start: whether the distribution is moved to the problem's first parameters: normal entries are
            added to them, or the difference of two draws of initial parameters divided by sqrt(2), which has
            mean 0 and the covariance of one.
    """

    workload: Workload
    settings: Mapping[str, Any]
    count: int
    normal_scale: float | None = None
    around_start: bool = False


Sampler = Callable[[Problem, Random], Iterator[dict[str, np.ndarray]]]


def sampler(what: GradientSampling, engine: Engine, problem: Problem, random: Random) -> Sampler:
    """A function that samples gradients for any seed, compiled for the shapes of one problem.

    The function gives gradients of the training loss at independent random parameters (000 Alg. 2.1 lines
    2-3) on the host, piece by piece: (samples, *shape) by parameter name, `count` samples in all.
    """
    per_sample = what.settings.get("batch_size") is not None
    alone = _one_by_one(what, engine)
    gradients = sampled_gradients(engine, what.workload.loss, per_sample, alone)
    with engine.context():
        compiled = engine.compiled(gradients, *next(_chunks(what, engine, problem, random)))

    def sample(problem: Problem, random: Random) -> Iterator[dict[str, np.ndarray]]:
        left = what.count
        with engine.context():
            for arguments in _chunks(what, engine, problem, random):
                grads = {name: engine.ops.to_numpy(grad) for name, grad in compiled(*arguments).items()}
                yield {name: grads[name][:left] for name in problem.parameters}
                left -= len(next(iter(grads.values())))

    return sample


def estimated(
    groups: Sequence[Group],
    estimator: Callable[[Group], Estimator],
    gradients: Iterator[Mapping[str, np.ndarray]],
) -> tuple[list[tuple[np.ndarray, np.ndarray]], int]:
    """V (n, r) and eigenvalues (r,) of each group from sampled gradients, and how many they were.

    Args:
        groups: what is changed together.
        estimator: what makes V of a group's gradients.
        gradients: pieces (samples, *shape) by parameter name, as a sampler gives them.
    """
    estimators = [estimator(group) for group in groups]
    count = 0
    for piece in gradients:
        samples = len(next(iter(piece.values())))
        for group, one in zip(groups, estimators, strict=True):
            rows = np.concatenate([piece[name].reshape(samples, -1) for name in group.names], axis=1)
            one.add(rows.reshape(-1, group.size))
        count += samples
    return [one.result() for one in estimators], count


def chunk_of(what: GradientSampling, engine: Engine, problem: Problem) -> int:
    """How many gradients are mapped at once: on a CPU as many as fit CHUNK_BYTES, each piece equally many.

    One, where none are mapped. Counted are of each the parameters and the gradient, and twice the
    activations of its batch, taken as one number for every example and row of a parameter.
    """
    if _one_by_one(what, engine):
        return 1
    most = CHUNK
    if engine.device == "cpu":
        examples = what.settings.get("batch_size") or examples_in(problem.splits["train"])
        parameters = problem.parameters.values()
        rows = sum(value.shape[0] if value.ndim else 1 for value in parameters)
        numbers = 2 * sum(value.size for value in parameters) + 2 * examples * rows
        most = min(most, max(1, CHUNK_BYTES // (np.dtype(engine.ops.dtype).itemsize * numbers)))
    return math.ceil(what.count / math.ceil(what.count / most))


def _one_by_one(what: GradientSampling, engine: Engine) -> bool:
    """Whether none are mapped: a mapped convolution is a grouped one, and one run of hours may fill a GPU."""
    return not what.workload.mapped or (what.workload.separate_jobs and engine.device != "cpu")


def _chunks(
    what: GradientSampling, engine: Engine, problem: Problem, random: Random
) -> Iterator[tuple[Any, Any, Any, Any]]:
    """Parameters, model state, batches and noise of equally many samples at a time; the last are padded."""
    ops, rng, noise_rng = engine.ops, random("egop sampling"), random("egop noise")
    train = problem.splits["train"]
    size = what.settings.get("batch_size") or examples_in(train)
    chunk = chunk_of(what, engine, problem)
    padded = chunk * math.ceil(what.count / chunk)
    order = None
    if what.settings.get("batch_size") is not None:
        order = batch_order(random, examples_in(train), size, padded, purpose="egop batches")
    data = {} if what.workload.streamed else {name: ops.asarray(array) for name, array in train.items()}
    model = {name: ops.asarray(array) for name, array in problem.state.items()}
    for start in range(0, padded, chunk):
        drawn = [_draw(what, problem, rng) for _ in range(chunk)]
        params = {name: ops.asarray(np.stack([one[name] for one in drawn])) for name in problem.parameters}
        batch = data
        if order is not None:
            picked = order[start : start + chunk]
            if what.workload.streamed:  # cut where they lie
                generators = generators_of([random], "egop examples of sample", start)
                found = gathered(train, picked[:, None], engine.threads, generators)
                batch = {name: ops.asarray(values[:, 0]) for name, values in found.items()}
            else:
                batch = {name: values[ops.asarray(picked)] for name, values in data.items()}
        noise = {}
        if what.workload.noise is not None:
            drawn_noise = [what.workload.noise(what.settings, noise_rng, size) for _ in range(chunk)]
            noise = {
                name: ops.asarray(np.stack([one[name] for one in drawn_noise])) for name in drawn_noise[0]
            }
        yield params, model, batch, noise


def _draw(what: GradientSampling, problem: Problem, rng: np.random.Generator) -> dict[str, np.ndarray]:
    if what.normal_scale is None:
        drawn = what.workload.sample_parameters(what.settings, rng)
        if what.around_start:
            other = what.workload.sample_parameters(what.settings, rng)
            drawn = {name: (value - other[name]) / math.sqrt(2) for name, value in drawn.items()}
    else:
        drawn = {
            name: what.normal_scale * rng.standard_normal(value.shape)
            for name, value in problem.parameters.items()
        }
    if not what.around_start:
        return drawn
    return {name: problem.parameters[name] + value for name, value in drawn.items()}


def decomposition_on(engine: Engine) -> Decomposition:
    """The decomposition by an engine's backend and device, in float64 whatever its runs compute in.

    It holds one group's gradients there, and never less than all eigenvectors of the matrix: where gradients
    are fewer than coordinates too, whose null space is then that of the backend.
    """
    exact = engine_of(engine.ops.backend, "float64", engine.device)

    def decompose(gradients: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        ops = exact.ops
        with exact.context():
            g = ops.asarray(gradients)
            values, vectors = ops.eigh(ops.matrix_transpose(g) @ g / len(gradients))
            return leading_first(ops.to_numpy(values), ops.to_numpy(vectors))

    return decompose
