"""A learning-rate x seed sweep in lanes against the same runs one at a time with torch.optim.

`python -m benchmarks.sweep --workload least_squares --steps 1000`.

Both sides run Adam from the same starts on the same data, on one thread. Ours is timed twice: as a whole
process with imports and compilation, and once compiled; the peer's loop is timed on a few runs and scaled,
since every run takes the same time.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

SEEDS, RATES, PEER_RUNS = 10, 20, 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure one workload and print a line for each way of running it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sweep", description=__doc__)
    parser.add_argument("--workload", default="least_squares")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    os.environ["OMP_NUM_THREADS"] = os.environ["NPROC"] = "1"
    if given.child:
        print(_ours(given.workload, given.steps))
        return 0
    start = time.perf_counter()
    command = [sys.executable, "-m", "benchmarks.sweep", "--child"]
    command += ["--workload", given.workload, "--steps", str(given.steps)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    whole, compiled = time.perf_counter() - start, float(done.stdout)
    single = _peer(given.workload, given.steps)
    peer = single * SEEDS * RATES
    print(f"{given.workload}: {SEEDS * RATES} runs of {given.steps} steps of Adam, one thread")
    print(f"  torch.optim, one at a time   {peer:9.2f} s ({single:.3f} s a run, from {PEER_RUNS} runs)")
    print(f"  lanes, whole process         {whole:9.2f} s   {peer / whole:8.1f} times faster")
    print(f"  lanes, once compiled         {compiled:9.3f} s   {peer / compiled:8.1f} times faster")
    return 0


def _instances(workload: str, seeds: int) -> tuple[Any, Mapping[str, Any], list[Any]]:
    from harness.stages.job import instance
    from workloads import workloads

    found = workloads()[workload]
    settings = found.complete({})
    return found, settings, [instance(found, settings, seed) for seed in range(seeds)]


def _ours(workload: str, steps: int) -> float:
    """Seconds of all lanes on JAX once compiled, the minimum of three."""
    import numpy as np

    from harness.backends.engine import engine
    from harness.engine.execution import Bundle, load, stretch_inputs
    from harness.stages.job import orders_of
    from optimizers import rules

    found, settings, instances = _instances(workload, SEEDS)
    rates = np.geomspace(1e-3, 1e-1, RATES)
    values = rules()["adam"].complete({"learning_rate": 1.0})
    bundle = Bundle(
        workload=found,
        rule=rules()["adam"],
        problems=[one.problem for one in instances],
        orders=orders_of(instances, settings, steps),
        hyperparameters={
            **{name: np.full(RATES, value) for name, value in values.items()},
            "learning_rate": rates,
        },
        schedule=np.ones(steps),
        evaluations=1,
    )
    made = engine("jax", found.dtype)
    seconds = []
    with made.context():
        loaded = load(bundle, made)
        inputs = stretch_inputs(bundle, made, 0, steps)
        advance = made.segment(loaded.program, loaded.carry, loaded.constants, inputs)
        carry = loaded.carry
        for _ in range(3):
            start = time.perf_counter()
            carry = advance(carry, loaded.constants, inputs)
            made.finish(carry)
            seconds.append(time.perf_counter() - start)
    return min(seconds)


def _peer(workload: str, steps: int) -> float:
    """Seconds of one run with torch.optim.Adam and plain autograd, the minimum of a few after a warm-up."""
    import torch

    from harness.backends.torch_ops import torch_ops
    from harness.seeding import batch_order

    torch.set_num_threads(1)
    found, settings, (one,) = _instances(workload, 1)
    ops = torch_ops("cpu", found.dtype)
    data = {name: ops.asarray(array) for name, array in one.problem.splits["train"].items()}
    batch_size = settings.get("batch_size")
    order = None if batch_size is None else batch_order(one.random, one.examples, batch_size, steps)
    seconds = []
    for _ in range(1 + PEER_RUNS):
        params = {name: ops.asarray(value).requires_grad_() for name, value in one.problem.parameters.items()}
        optimizer = torch.optim.Adam(params.values(), lr=1e-2, fused=True)
        start = time.perf_counter()
        for step in range(steps):
            batch = data
            if order is not None:
                batch = {name: values[order[step]] for name, values in data.items()}
            optimizer.zero_grad()
            loss, _, _ = found.loss(ops, params, {}, batch, {})
            loss.backward()
            optimizer.step()
        seconds.append(time.perf_counter() - start)
    return min(seconds[1:])


if __name__ == "__main__":
    sys.exit(main())
