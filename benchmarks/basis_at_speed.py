"""`python -m benchmarks.basis_at_speed`: one estimate of a network's EGOP bases, and the host's beside it.

As in 000 C.3: passes at random parameters, here around the iterate; V shared by a layer's filters, or rows.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from benchmarks.gpu import machine
from benchmarks.kernels.clock import one_thread
from benchmarks.networks_at_speed import NETWORKS, TimedNetwork
from harness.backends import BACKENDS
from harness.backends.engine import Engine, engine
from harness.basis_estimation.gradients import GradientSampling
from harness.basis_estimation.reestimation import Renewal, RenewalPlan, renewal
from harness.engine.execution import Bundle, load
from harness.timing.memory import peak_resident_bytes, resident_bytes
from optimizers import rules
from optimizers.bases import Group, bases
from optimizers.bases.change import SHARED
from optimizers.bases.estimators import Decomposition, by_numpy

PASSES = 16  # 1,000 gradients of a layer of 64 filters
GAP = 0.01  # of the largest eigenvalue, between eigenspaces whose angle is told


@dataclass
class Decompositions:
    """A decomposition that is timed, and compared with the host's where that is asked for.

    Args:
        decompose: what is timed.
        compares: whether the host's is computed too.
        seconds, host_seconds: of all calls.
        sine: the largest of an angle between leading eigenspaces that a gap keeps apart.
        matrix_bytes: of all V in float32.
    """

    decompose: Decomposition
    compares: bool
    seconds: float = 0.0
    host_seconds: float = 0.0
    sine: float = 0.0
    matrix_bytes: int = 0

    def __call__(self, gradients: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """V and eigenvalues, as decomposed."""
        start = time.perf_counter()
        found = self.decompose(gradients)
        self.seconds += time.perf_counter() - start
        self.matrix_bytes += 4 * found[0].size
        if self.compares:
            start = time.perf_counter()
            host = by_numpy(gradients)
            self.host_seconds += time.perf_counter() - start
            self.sine = max(self.sine, largest_sine(found[0], *host))
        return found


def largest_sine(v: np.ndarray, host: np.ndarray, eigenvalues: np.ndarray) -> float:
    """The largest sine of a principal angle between leading eigenspaces of two bases, where a gap follows."""
    gaps = eigenvalues[:-1] - eigenvalues[1:]
    ranks = 1 + np.flatnonzero(gaps > GAP * eigenvalues[0])
    overlaps = host.T @ v[:, : max(ranks, default=0)]
    return max((float(np.linalg.norm(overlaps[rank:, :rank], 2)) for rank in ranks), default=0.0)


def reestimated(network: TimedNetwork, batch_size: int, passes: int) -> Bundle:
    """A run of AdamW in a basis that is estimated anew after its first step."""
    bundle = network.bundle(rules()["adamw"], batch_size, 2, in_basis=True)
    groups = tuple(Group(names, matrix.shape[1], SHARED) for names, matrix in bundle.matrices.items())
    egop = bases()["egop"]
    plan = RenewalPlan(
        points=(1,),
        carries_state=True,
        sampling=GradientSampling(network.workload, {"batch_size": batch_size}, passes, around_start=True),
        groups=groups,
        estimator=partial(egop.estimator, egop.complete({"samples": passes})),
    )
    return replace(bundle, reestimation=plan)


def measured(
    network: TimedNetwork, made: Engine, batch_size: int, passes: int, on_host: bool
) -> dict[str, Any]:
    """What one estimate takes in all and of it to decompose, and the peak of arrays or of the process.

    Args:
        network, made, batch_size, passes: what is estimated, and by what.
        on_host: whether the host's decomposition of the same gradients is timed and compared.
    """
    bundle = reestimated(network, batch_size, passes)
    assert bundle.reestimation is not None
    with made.context():
        loaded = load(bundle, made)
        renew = renewal(bundle.reestimation, made, loaded.program, bundle.problems, bundle.randoms)

        def once(compares: bool) -> tuple[float, Decompositions]:
            timed = Decompositions(renew.decompose, compares)
            call: Renewal = replace(renew, decompose=timed)
            start = time.perf_counter()
            carry, constants, _ = call(1, loaded.carry, loaded.constants)
            made.finish((carry, constants.matrices))
            return time.perf_counter() - start, timed

        once(False)  # what a process needs once
        found: list[tuple[float, Decompositions]] = []
        peak = _peak_bytes(made, lambda: found.append(once(False)))
        (seconds, timed), compared = found[0], once(True)[1] if on_host else None
    row = {
        "network": network.name,
        "backend": made.ops.backend,
        "batch_size": batch_size,
        "passes": passes,
        "measured": "one estimate of V",
        "seconds": round(seconds, 2),
        "decomposition_seconds": round(timed.seconds, 2),
        "matrix_bytes": timed.matrix_bytes,
        "peak_bytes": peak,
    }
    if compared is not None:
        row |= {"host_decomposition_seconds": round(compared.host_seconds, 2), "sine": compared.sine}
    return row


def _peak_bytes(made: Engine, run: Callable[[], None]) -> int | None:
    """The most of arrays on a GPU where PyTorch counts, and on a CPU by how much the process grew."""
    if made.device == "cpu":
        before = resident_bytes()
        peak = peak_resident_bytes(run)
        return None if before is None or peak is None else peak - before
    if made.ops.backend == "torch":
        return made.device_peak(run, run)
    run()
    return None


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line of JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.basis_at_speed", description=__doc__)
    parser.add_argument("network", choices=NETWORKS)
    parser.add_argument("--device", choices=("gpu", "cpu"), default="cpu")
    parser.add_argument("--backend", choices=BACKENDS, default="torch")
    parser.add_argument("--precision", default="mixed", help="of the run that takes the gradients")
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--passes", type=int, default=PASSES)
    parser.add_argument("--host", action="store_true", help="decompose on the host too, and compare")
    given = parser.parse_args(arguments)
    with one_thread() if given.device == "cpu" else nullcontext():
        made = engine(given.backend, given.precision, given.device)
        row = measured(NETWORKS[given.network], made, given.batch_size, given.passes, given.host)
        print(json.dumps({**row, "precision": given.precision, "machine": machine(given.device)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
