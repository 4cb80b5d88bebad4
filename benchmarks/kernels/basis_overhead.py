"""`python -m benchmarks.kernels.basis_overhead`: what a basis adds to a step, beside its products alone.

The engine's own step of Adam in each basis (of a quadratic, buffers donated) is timed in turn with the same
step in original coordinates, and with that step followed by the basis's matrix products alone: the bound.
Taken is the processor time of the one thread, which other work on the machine does not lengthen.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from harness.backends import BACKENDS
from harness.backends.engine import engine
from harness.engine.derivatives import StepInfo
from harness.engine.layout import layout, roles_of
from harness.engine.program import Constants, Inputs, Program, Update
from optimizers import rules
from optimizers.bases.change import AUXILIARY, REDUCED, ROTATION, SHARED, Change

from .case import ReadyCase, representable
from .clock import one_thread
from .command import nothing_fits, timing_parser
from .interleaving import Ratios, interleaved
from .shapes import Shapes
from .steps import LEARNING_RATE

OPTIMIZER, DTYPE = "adam", "float32"
LANES = ((1, 1), (2, 8))  # seeds and settings: a run alone, and two seeds of a sweep
Group = tuple[str, ...]


@dataclass(frozen=True)
class BasisCase:
    """A basis on parameters of given shapes.

    Args:
        shapes: shape by parameter name.
        blocks: by the names that it changes together, how, and the rows and columns of V.
    """

    shapes: Shapes
    blocks: Mapping[Group, tuple[Change, tuple[int, int]]]

    def flops(self, lanes: tuple[int, int]) -> int:
        """Operations of all matrix products of a step."""
        seeds, settings = lanes
        return sum(
            2 * products(change) * seeds * settings * self.vectors(group, change, rows) * rows * columns
            for group, (change, (rows, columns)) in self.blocks.items()
        )

    def vectors(self, group: Group, change: Change, rows: int) -> int:
        """How many vectors of a lane V multiplies at once: one, or one a filter."""
        return sum(int(np.prod(self.shapes[name])) for name in group) // rows if change is SHARED else 1


def products(change: Change) -> int:
    """Products with V or V^T in a step: to parameters and back, each taking two with auxiliary variables."""
    return 4 if change is AUXILIARY else 2


def variants(first: int = 50, second: int = 30, rank: int = 230) -> dict[str, BasisCase]:
    """Every variant by name, on a linear network 10-`first`-`second`-10 and on 32 filters of 16 x 5 x 5."""
    network = {"first": (first, 10), "second": (second, first), "third": (10, second)}
    sizes = {name: rows * columns for name, (rows, columns) in network.items()}
    everything, total = tuple(network), sum(sizes.values())
    filters, entries = {"filters": (32, 16, 5, 5)}, 16 * 5 * 5
    return {
        "global": BasisCase(network, {everything: (ROTATION, (total, total))}),
        "block": BasisCase(network, {(name,): (ROTATION, (size, size)) for name, size in sizes.items()}),
        "first layer": BasisCase(network, {("first",): (ROTATION, (sizes["first"],) * 2)}),
        "shared filters": BasisCase(filters, {("filters",): (SHARED, (entries, entries))}),
        "reduced": BasisCase(network, {everything: (REDUCED, (total, rank))}),
        "auxiliary": BasisCase(network, {everything: (AUXILIARY, (total, rank))}),
        "leading, completed": BasisCase(network, {everything: (ROTATION, (total, total))}),
    }


def orthonormal(shape: tuple[int, int], seeds: int) -> np.ndarray:
    """V of each seed, (S, n, r), always the same."""
    generator = np.random.default_rng(3)
    return np.stack([np.linalg.qr(generator.standard_normal(shape))[0] for _ in range(seeds)])


def _quadratic(params: Any, model: Any, batch: Any, noise: Any, *, loss: Any) -> StepInfo:
    """The gradient of half the squared distance to the batch: it needs the parameters, else none are made."""
    return StepInfo(loss, {name: value - batch[name] for name, value in params.items()}, model, {})


def step(
    backend: str,
    variant: BasisCase,
    lanes: tuple[int, int],
    matrices: Sequence[np.ndarray],
    steps: int | None = None,
) -> ReadyCase:
    """A step of Adam in a basis, or in original coordinates where there are no matrices.

    Args:
        backend: jax or torch.
        variant: the parameters, and how they are changed.
        lanes: seeds and settings.
        matrices: V of each of its blocks, (S, n, r), or none.
        steps: how many are planned, by which an engine decides whether compiling is worth its time; None:
            many, as where a step is timed.

    Returns:
        `run` takes a step; `result` gives all parameters, (S, K, d).
    """
    made, rule = engine(backend, DTYPE), rules()[OPTIMIZER]
    ops, blocks = made.ops, variant.blocks if matrices else {}
    changes = {group: (change, columns) for group, (change, (_, columns)) in blocks.items()}
    lay = layout(variant.shapes, roles_of(variant.shapes), tuple(blocks), changes=changes)
    generator = np.random.default_rng(0)
    with made.context():

        def drawn() -> dict[str, Any]:
            return {
                name: ops.asarray(representable(generator, (*lanes, *shape)))
                for name, shape in variant.shapes.items()
            }

        params, minimum = drawn(), drawn()
        program = Program(ops, Update(rule, lay), partial(_quadratic, loss=ops.zeros(lanes)), None)
        hyper = {
            name: ops.asarray(np.full((1, lanes[1], 1), value))
            for name, value in rule.complete({"learning_rate": LEARNING_RATE}).items()
        }
        constants = Constants(minimum, None, tuple(map(ops.bases, matrices)), hyper)
        inputs = Inputs(ops.asarray(np.ones(1)), ops.asarray(np.ones(1)))
        carry = program.start(params, {}, constants)
        segment = made.segment(program, carry, constants, inputs, steps)

    def run() -> None:
        nonlocal carry
        carry = segment(carry, constants, inputs)
        made.finish(carry)

    def result() -> np.ndarray:
        return np.array(ops.to_numpy(program.flat(carry.coordinates, constants.matrices)), np.float64)

    return ReadyCase(run, result, made.context)


def bare_products(
    backend: str, variant: BasisCase, lanes: tuple[int, int], matrices: Sequence[np.ndarray]
) -> ReadyCase:
    """The matrix products of a step in a basis and nothing else; `result` gives the first."""
    made, (seeds, settings) = engine(backend, DTYPE), lanes
    ops, generator = made.ops, np.random.default_rng(1)
    with made.context():
        bases = tuple(map(ops.bases, matrices))
        pairs = []
        for group, (change, (rows, columns)) in variant.blocks.items():
            count = settings * variant.vectors(group, change, rows)
            pairs.append(
                [
                    tuple(
                        ops.asarray(representable(generator, (seeds, count, size)))
                        for size in (columns, rows)
                    )
                    for _ in range(products(change) // 2)
                ]
            )

        def multiply(bases: Any, pairs: Any) -> Any:
            return [
                [(ops.from_basis(matrix, c), ops.to_basis(matrix, x)) for c, x in each]
                for matrix, each in zip(bases, pairs, strict=True)
            ]

        compiled = made.compiled(multiply, bases, pairs)
    results: list[Any] = []

    def run() -> None:
        results[:] = [compiled(bases, pairs)]
        made.finish(results)

    return ReadyCase(run, lambda: np.array(ops.to_numpy(results[0][0][0][0]), np.float64), made.context)


@dataclass(frozen=True)
class Overhead:
    """A step in a basis beside others.

    Args:
        name, backend, lanes: what was timed.
        original: over the step in original coordinates.
        bound: over that step followed by the products alone.
        gigaflops: billions of operations a second of the products alone.
    """

    name: str
    backend: str
    lanes: tuple[int, int]
    original: Ratios
    bound: Ratios
    gigaflops: float


def measure(
    chosen: Mapping[str, BasisCase],
    backends: Sequence[str],
    lanes: Sequence[tuple[int, int]],
    repetitions: int,
) -> Iterator[Overhead]:
    """Every variant on every backend with so many lanes; call inside `one_thread`."""
    for name, variant in chosen.items():
        for each in lanes:
            matrices = [orthonormal(shape, each[0]) for _, shape in variant.blocks.values()]
            for backend in backends:
                rotated, plain = step(backend, variant, each, matrices), step(backend, variant, each, ())
                bare = bare_products(backend, variant, each, matrices)

                def bound(*both: Callable[[], None]) -> None:
                    for run in both:
                        run()

                with ExitStack() as stack:
                    stack.enter_context(rotated.context())
                    timed = partial(interleaved, repetitions=repetitions, clock=time.process_time)
                    original = timed(rotated.run, plain.run)
                    both = timed(rotated.run, partial(bound, plain.run, bare.run))
                    alone = timed(bare.run, plain.run).seconds[0]
                yield Overhead(name, backend, each, original, both, variant.flops(each) / alone / 1e9)


def line(found: Overhead) -> str:
    """A row of the printed table."""
    original, bound = found.original.ratio, found.bound.ratio
    ours, plain = (1e3 * seconds for seconds in found.original.seconds)
    lanes = f"{found.lanes[0]} x {found.lanes[1]}"
    return (
        f"{found.name:20} {found.backend:6} {lanes:7} {ours:9.3f} {plain:9.3f}   "
        f"{original.median:7.2f} [{original.low:.2f}, {original.high:.2f}]   "
        f"{bound.median:5.2f} [{bound.low:.2f}, {bound.high:.2f}]   "
        f"[{found.bound.same.low:.2f}, {found.bound.same.high:.2f}]   {found.gigaflops:6.1f}"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    description = "Time a step of Adam in each basis in turn with one in original coordinates."
    parser = timing_parser("basis_overhead", description, 21, "case", "variants whose name contains this")
    given = parser.parse_args(arguments)
    chosen = {name: variant for name, variant in variants().items() if re.search(given.case, name)}
    if not chosen:
        return nothing_fits("case", given.case, "no variant has such a name")
    print("seeds x settings; milliseconds; ratios with 95 % intervals; GFLOP/s of the products alone")
    columns = f"{'basis ms':>9} {'plain ms':>9}   over plain   over the bound   A/A   GFLOP/s"
    print(f"{'basis':20} {'':6} {'lanes':7} {columns}")
    with one_thread():
        for found in measure(chosen, BACKENDS, LANES, given.repetitions):
            print(line(found), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
