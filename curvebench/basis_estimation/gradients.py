"""Sampling of gradients at random parameters, from which EGOP bases are estimated.

The EGOP is the expected outer product of the gradient with itself. The columns of the matrix V of a basis are
r eigenvectors of the estimated EGOP; V has the shape (n, r) for n entries of parameters. A group is a set of
parameters that share a V. Source 000 is the EGOP paper (docs/sources.md).
"""

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
from curvebench.workloads.arguments import Random
from curvebench.workloads.workload import Problem, Workload, examples_in

# A mapped call computes at most MAX_CHUNK gradients. On a CPU, it uses at most about CHUNK_BYTES bytes.
# Calls that do not fit into the caches are slower (1.6 times for full batches of digits).
# Calls with a single gradient are slower, too (12 times for the linear network).
# The values of gradients depend neither on MAX_CHUNK nor on CHUNK_BYTES.
MAX_CHUNK, CHUNK_BYTES = 256, 1 << 26


@dataclass(frozen=True)
class GradientSampling:
    """Distribution and number of the random parameters at which gradients are computed.

    Args:
        workload: workload whose training loss is differentiated.
        settings: settings of the workload. If they include a batch size, each gradient is computed on one
            minibatch (000 App. C.6). Otherwise each gradient is computed on all training data.
        count: number of samples.
        normal_scale: standard deviation of a normal distribution from which parameters are drawn; None to
            draw from the distribution of initial parameters.
        around_start: whether the distribution is centred at the problem's initial parameters. If
            `normal_scale` is given, normal numbers are added to the initial parameters. Otherwise the
            difference of two samples of initial parameters, divided by sqrt(2), is added; this difference has
            mean 0 and the covariance of one sample.
    """

    workload: Workload
    settings: Mapping[str, Any]
    count: int
    normal_scale: float | None = None
    around_start: bool = False


# Function `(problem, random)` that yields gradients in chunks: arrays (samples, *shape) by parameter name.
Sampler = Callable[[Problem, Random], Iterator[dict[str, np.ndarray]]]


def sampler(sampling: GradientSampling, engine: Engine, problem: Problem, random: Random) -> Sampler:
    """Compile a function that samples gradients for any seed of a problem.

    The function yields gradients of the training loss at independent random parameters (000 Alg. 2.1 lines
    2-3), as NumPy arrays (samples, *shape) by parameter name. Each yielded mapping is a chunk of samples; all
    chunks together have `sampling.count` samples.

    Args:
        sampling: distribution and number of samples.
        engine: engine that computes gradients.
        problem: the problem of one seed, for whose shapes the function is compiled.
        random: random generators of the seed.
    """
    per_sample = sampling.settings.get("batch_size") is not None
    unmapped = _unmapped(sampling, engine)
    gradients = sampled_gradients(engine, sampling.workload.loss, per_sample, unmapped)
    with engine.context():
        compiled = engine.compiled(gradients, *next(_chunks(sampling, engine, problem, random)))

    def sample(problem: Problem, random: Random) -> Iterator[dict[str, np.ndarray]]:
        missing = sampling.count
        with engine.context():
            for arguments in _chunks(sampling, engine, problem, random):
                grads = {name: engine.ops.to_numpy(grad) for name, grad in compiled(*arguments).items()}
                yield {name: grads[name][:missing] for name in problem.parameters}
                missing -= len(next(iter(grads.values())))

    return sample


def estimated(
    groups: Sequence[Group],
    estimator: Callable[[Group], Estimator],
    gradients: Iterator[Mapping[str, np.ndarray]],
) -> tuple[list[tuple[np.ndarray, np.ndarray]], int]:
    """Estimate the basis of each group of parameters from sampled gradients.

    Args:
        groups: groups of parameters that share a matrix V.
        estimator: function that creates the estimator of a group's V.
        gradients: chunks of gradients (samples, *shape) by parameter name, from a `Sampler`.

    Returns:
        For each group, V (n, r) and the eigenvalues (r,); and the number of gradients that were used.
    """
    estimators = [estimator(group) for group in groups]
    count = 0
    for chunk in gradients:
        samples = len(next(iter(chunk.values())))
        for group, group_estimator in zip(groups, estimators, strict=True):
            rows = np.concatenate([chunk[name].reshape(samples, -1) for name in group.names], axis=1)
            group_estimator.add(rows.reshape(-1, group.size))
        count += samples
    return [group_estimator.result() for group_estimator in estimators], count


def chunk_of(sampling: GradientSampling, engine: Engine, problem: Problem) -> int:
    """Return the number of gradients that one mapped call computes: the size of a chunk.

    The size is 1 if gradients cannot be mapped. Otherwise there are at most MAX_CHUNK gradients in a chunk,
    and all chunks have about the same size. On a CPU, a chunk fits into CHUNK_BYTES. The memory for one
    gradient is estimated as the parameters, the gradient, and twice the activations of a batch, with one
    activation for every example and row of a parameter.
    """
    if _unmapped(sampling, engine):
        return 1
    limit = MAX_CHUNK
    if engine.device == "cpu":
        examples = sampling.settings.get("batch_size") or examples_in(problem.splits["train"])
        parameters = problem.parameters.values()
        rows = sum(value.shape[0] if value.ndim else 1 for value in parameters)
        numbers = 2 * sum(value.size for value in parameters) + 2 * examples * rows
        limit = min(limit, max(1, CHUNK_BYTES // (np.dtype(engine.ops.dtype).itemsize * numbers)))
    return math.ceil(sampling.count / math.ceil(sampling.count / limit))


def _unmapped(sampling: GradientSampling, engine: Engine) -> bool:
    """Return whether gradients are computed one after another instead of by one mapped call.

    Computing one gradient after another is faster for convolutions, which become grouped convolutions if they
    are mapped. It is necessary for workloads with `separate_jobs`, of which a single run may fill the memory
    of a GPU. It is also necessary for models of PyTorch, because batch normalization cannot write a state
    that all samples share.
    """
    workload = sampling.workload
    fills_gpu = workload.separate_jobs and engine.device != "cpu"
    return not workload.mapped or fills_gpu or workload.backend == "torch"


def _chunks(
    sampling: GradientSampling, engine: Engine, problem: Problem, random: Random
) -> Iterator[tuple[Any, Any, Any, Any]]:
    """Yield, for each chunk of samples, the parameters, model state, batches and noise of its gradients.

    All chunks have the same size. The last chunk is padded with further samples.
    """
    ops, rng, noise_rng = engine.ops, random("egop sampling"), random("egop noise")
    train = problem.splits["train"]
    size = sampling.settings.get("batch_size") or examples_in(train)
    chunk = chunk_of(sampling, engine, problem)
    padded = chunk * math.ceil(sampling.count / chunk)
    order = None
    if sampling.settings.get("batch_size") is not None:
        order = batch_order(random, examples_in(train), size, padded, purpose="egop batches")
    data = {} if sampling.workload.streamed else {name: ops.asarray(array) for name, array in train.items()}
    model = {name: ops.asarray(array) for name, array in problem.state.items()}
    for start in range(0, padded, chunk):
        samples = [_draw(sampling, problem, rng) for _ in range(chunk)]
        params = {
            name: ops.asarray(np.stack([sample[name] for sample in samples])) for name in problem.parameters
        }
        batch = data
        if order is not None:
            indices = order[start : start + chunk]
            if sampling.workload.streamed:  # load only the examples of this chunk's batches
                generators = generators_of([random], "egop examples of sample", start)
                examples = gathered(train, indices[:, None], engine.threads, generators)
                batch = {name: ops.asarray(values[:, 0]) for name, values in examples.items()}
            else:
                batch = {name: values[ops.asarray(indices)] for name, values in data.items()}
        noise = {}
        if sampling.workload.noise is not None:
            draws = [sampling.workload.noise(sampling.settings, noise_rng, size) for _ in range(chunk)]
            noise = {name: ops.asarray(np.stack([sample[name] for sample in draws])) for name in draws[0]}
        yield params, model, batch, noise


def _draw(sampling: GradientSampling, problem: Problem, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Draw one sample of parameters from the distribution that `sampling` describes."""
    if sampling.normal_scale is None:
        point = sampling.workload.sample_parameters(sampling.settings, rng)
        if sampling.around_start:
            second = sampling.workload.sample_parameters(sampling.settings, rng)
            point = {name: (value - second[name]) / math.sqrt(2) for name, value in point.items()}
    else:
        point = {
            name: sampling.normal_scale * rng.standard_normal(value.shape)
            for name, value in problem.parameters.items()
        }
    if not sampling.around_start:
        return point
    return {name: problem.parameters[name] + value for name, value in point.items()}


def decomposition_on(engine: Engine) -> Decomposition:
    """Return a function that computes the eigenvalues and eigenvectors of an EGOP on a device, in float64.

    The function uses the library and the device of `engine`. It copies the gradients of one group to the
    device, and decomposes the mean of their outer products. If there are fewer gradients than coordinates,
    the eigenvectors of the null space are arbitrary, and differ between backends.
    """
    exact = engine_of(engine.ops.backend, "float64", engine.device)

    def decompose(gradients: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        ops = exact.ops
        with exact.context():
            g = ops.asarray(gradients)
            values, vectors = ops.eigh(ops.matrix_transpose(g) @ g / len(gradients))
            return leading_first(ops.to_numpy(values), ops.to_numpy(vectors))

    return decompose
