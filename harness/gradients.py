"""Gradients at random parameters: the samples that an EGOP basis is estimated from."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from harness.backends.engine import Engine
from harness.seeding import WorkloadRandom, batch_order
from workloads.workload import Problem, Workload

CHUNK = 256  # gradients mapped at once; memory grows with it, the result does not depend on it


def sample_gradients(
    workload: Workload,
    settings: Mapping[str, Any],
    problem: Problem,
    random: WorkloadRandom,
    engine: Engine,
    count: int,
    normal_scale: float | None = None,
) -> dict[str, np.ndarray]:
    """Gradients of the training loss at `count` independent random parameters (000 Alg. 2.1 lines 2-3).

    Args:
        workload, settings, problem: what is differentiated; minibatches as in training (000 C.6).
        random: the generators of the problem's seed.
        engine: the backend, in float64.
        count: the number of samples M.
        normal_scale: the standard deviation of a normal sampling distribution, or None to sample the
            distribution of the initial parameters.

    Returns:
        (M, *shape) float64 by parameter name.
    """
    rng = random("egop sampling")

    def draw() -> dict[str, np.ndarray]:
        if normal_scale is None:
            return workload.sample_parameters(settings, rng)
        return {
            name: normal_scale * rng.standard_normal(value.shape)
            for name, value in problem.parameters.items()
        }

    train = problem.splits["train"]
    examples = len(next(iter(train.values())))
    batch_size = settings.get("batch_size")
    chunk = math.ceil(count / math.ceil(count / CHUNK))
    padded = chunk * math.ceil(count / chunk)
    order = (
        None
        if batch_size is None
        else batch_order(random, examples, batch_size, padded, purpose="egop batches")
    )
    pieces: list[dict[str, np.ndarray]] = []
    with engine.context():
        ops = engine.ops
        gradients = engine.gradients(workload.loss, per_sample=order is not None)
        data = {name: ops.asarray(array) for name, array in train.items()}
        model = {name: ops.asarray(array) for name, array in problem.state.items()}
        for start in range(0, padded, chunk):
            drawn = [draw() for _ in range(chunk)]
            params = {name: ops.asarray(np.stack([d[name] for d in drawn])) for name in problem.parameters}
            if order is None:
                batch = data
            else:
                picked = ops.asarray(order[start : start + chunk])
                batch = {name: values[picked] for name, values in data.items()}
            grads = gradients(params, model, batch)
            pieces.append({name: np.asarray(ops.to_numpy(grads[name]), np.float64) for name in params})
    return {name: np.concatenate([piece[name] for piece in pieces])[:count] for name in problem.parameters}
