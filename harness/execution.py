"""How a bundle of lanes is run: seeds x settings of one workload, rule and basis in one program."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from harness.backends.engine import Engine
from harness.layout import Layout, layout
from harness.program import Carry, Constants, Inputs, Program, Update, pick
from optimizers.rule import Rule
from workloads.workload import Problem, Workload

PHASES = ("import", "data", "compile", "step", "evaluation")


class Clock:
    """Seconds by phase, on the monotonic clock."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = dict.fromkeys(PHASES, 0.0)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Charge what runs inside to a phase."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] += time.perf_counter() - start


@dataclass(frozen=True)
class Bundle:
    """The lanes that advance together: S problems (one a seed) x K settings.

    Args:
        problems: one a seed.
        orders: (steps, S, batch_size) indices of the minibatches, or None for the full batch.
        hyperparameters: (K,) values by name, complete.
        matrices: basis by the names of the parameters that it rotates together, (S, block, block).
        schedule: (steps,) multipliers of the learning rate.
        evaluations: how many stretches the steps are cut into; metrics are taken after each.
        stop_gradient_norm: the gradient norm below which a lane stops, or None.
    """

    workload: Workload
    rule: Rule
    problems: Sequence[Problem]
    orders: np.ndarray | None
    hyperparameters: Mapping[str, np.ndarray]
    schedule: np.ndarray
    evaluations: int
    matrices: Mapping[tuple[str, ...], np.ndarray] = field(default_factory=dict)
    stop_gradient_norm: float | None = None

    @property
    def layout(self) -> Layout:
        """The layout of its parameters."""
        shapes = {name: value.shape for name, value in self.problems[0].parameters.items()}
        return layout(shapes, tuple(self.matrices))


@dataclass(frozen=True)
class Trajectories:
    """What the lanes of a bundle did.

    Args:
        steps: (C,) the numbers of steps after which metrics were taken; the first is 0.
        metrics: (C, S, K) by full name.
        diverged_at, stopped_at: (S, K) step of the first loss that was not finite, and step whose
            gradient was below the threshold; 0 where there was none.
        state_bytes: bytes of optimizer state of one lane.
    """

    steps: np.ndarray
    metrics: Mapping[str, np.ndarray]
    diverged_at: np.ndarray
    stopped_at: np.ndarray
    state_bytes: int


def seeds_per_bundle(bundle: Bundle, itemsize: int, memory_limit_bytes: int) -> int:
    """How many seeds fit into the memory limit: a fixed function of shapes, precision and the limit.

    Counted are the basis of a seed, six copies of each lane's parameters (two of them state), the
    seed's data, and twice the activations of the largest split, taken as one number for every example
    and row of a parameter.
    """
    settings = len(next(iter(bundle.hyperparameters.values())))
    basis = sum(matrix.shape[1] * matrix.shape[2] for matrix in bundle.matrices.values())
    splits = bundle.problems[0].splits
    examples = max(len(next(iter(split.values()))) for split in splits.values())
    rows = sum(value.shape[0] for value in bundle.problems[0].parameters.values())
    lane = 6 * bundle.layout.total + 2 * examples * rows
    data = sum(array.size for split in splits.values() for array in split.values())
    seed = itemsize * (basis + settings * lane + (0 if bundle.workload.shared_data else data))
    return max(1, min(len(bundle.problems), memory_limit_bytes // seed))


def parts(bundle: Bundle, seeds: int) -> Iterator[tuple[slice, Bundle]]:
    """The bundle cut into nearly equal bundles of at most so many seeds, with their place in it."""
    count = math.ceil(len(bundle.problems) / seeds)
    bounds = np.linspace(0, len(bundle.problems), count + 1).round().astype(int)
    for low, high in itertools.pairwise(bounds):
        place = slice(int(low), int(high))
        yield (
            place,
            Bundle(
                workload=bundle.workload,
                rule=bundle.rule,
                problems=bundle.problems[place],
                orders=None if bundle.orders is None else bundle.orders[:, place],
                hyperparameters=bundle.hyperparameters,
                schedule=bundle.schedule,
                evaluations=bundle.evaluations,
                matrices={group: matrix[place] for group, matrix in bundle.matrices.items()},
                stop_gradient_norm=bundle.stop_gradient_norm,
            ),
        )


@dataclass(frozen=True)
class Loaded:
    """A bundle on its device: the program, what it reads, and where it starts."""

    program: Program
    carry: Carry
    constants: Constants
    splits: Mapping[str, Mapping[str, Any]]

    @property
    def lanes(self) -> tuple[int, int]:
        """Seeds and settings."""
        seeds, settings = self.carry.diverged_at.shape
        return int(seeds), int(settings)


def _stacked(problems: Sequence[Problem], split: str, shared: bool) -> dict[str, np.ndarray]:
    first = problems[0].splits[split]
    if shared:
        return dict(first)
    return {name: np.stack([problem.splits[split][name] for problem in problems]) for name in first}


def load(bundle: Bundle, engine: Engine) -> Loaded:
    """Move a bundle to its device and build its program; call inside the engine's context."""
    ops, lay = engine.ops, bundle.layout
    seeds = len(bundle.problems)
    settings = len(next(iter(bundle.hyperparameters.values())))
    shared = bundle.workload.shared_data
    program = Program(
        ops=ops,
        update=Update(bundle.rule, lay),
        gradient=engine.lane_gradient(bundle.workload.loss, per_seed=bundle.orders is not None or not shared),
        stop_gradient_norm=bundle.stop_gradient_norm,
    )
    splits = {
        split: {name: ops.asarray(array) for name, array in _stacked(bundle.problems, split, shared).items()}
        for split in bundle.problems[0].splits
    }
    constants = Constants(
        data=splits["train"],
        rows=None if shared or bundle.orders is None else ops.asarray(np.arange(seeds)[:, None]),
        matrices=tuple(ops.asarray(matrix) for matrix in bundle.matrices.values()),
        hyper={
            name: ops.asarray(np.asarray(values, np.float64).reshape(1, -1, 1))
            for name, values in bundle.hyperparameters.items()
        },
    )

    def lanes(values: Sequence[np.ndarray]) -> Any:
        stacked = np.stack(values)[:, None]
        return ops.asarray(np.repeat(stacked, settings, axis=1))

    params = {name: lanes([p.parameters[name] for p in bundle.problems]) for name in lay.shapes}
    model = {name: lanes([p.state[name] for p in bundle.problems]) for name in bundle.problems[0].state}
    return Loaded(program, program.start(params, model, constants), constants, splits)


def evaluation(bundle: Bundle, engine: Engine, program: Program) -> Callable[..., dict[str, Any]]:
    """The function of (carry, constants, splits) that gives every declared metric, each (S, K)."""
    per_seed = not bundle.workload.shared_data
    mapped = engine.lane_evaluation(bundle.workload.evaluate, per_seed)
    declared = bundle.workload.metrics
    full_gradient = engine.lane_gradient(bundle.workload.loss, per_seed)

    def evaluate(carry: Carry, constants: Constants, splits: Mapping[str, Any]) -> dict[str, Any]:
        params = program.parameters(carry.coordinates, constants.matrices)
        values = {
            f"{split}_{key}": value
            for split, arrays in splits.items()
            for key, value in mapped(params, carry.model, arrays).items()
        }
        if "gradient_norm" in declared:
            _, grads, _ = full_gradient(params, carry.model, pick(constants, None))
            flat = program.update.layout.flatten(program.ops, grads, 2)
            values["gradient_norm"] = program.ops.sqrt(program.ops.sum(program.ops.square(flat), axis=-1))
        return {name: value for name, value in values.items() if name in declared}

    return evaluate


def stretches(steps: int, evaluations: int) -> list[int]:
    """Lengths of the stretches between evaluations: nearly equal, in at most two lengths."""
    bounds = np.linspace(0, steps, min(evaluations, steps) + 1).round().astype(int)
    return [int(length) for length in np.diff(bounds)]


def stretch_inputs(bundle: Bundle, engine: Engine, start: int, length: int) -> Inputs:
    """The inputs of steps start + 1 ... start + length."""
    ops = engine.ops
    order = None if bundle.orders is None else ops.asarray(bundle.orders[start : start + length])
    return Inputs(
        step=ops.asarray(np.arange(start + 1, start + length + 1, dtype=np.float64)),
        schedule=ops.asarray(bundle.schedule[start : start + length]),
        order=order,
    )


def execute(
    bundle: Bundle,
    engine: Engine,
    clock: Clock | None = None,
    progress: Callable[[int], None] = lambda steps: None,
) -> Trajectories:
    """Run every lane of a bundle to its budget.

    Args:
        bundle: what is run.
        engine: the backend.
        clock: takes the seconds by phase.
        progress: called with the number of steps done after each stretch.
    """
    clock = clock or Clock()
    steps = len(bundle.schedule)
    lengths = stretches(steps, bundle.evaluations)
    with engine.context():
        with clock.phase("data"):
            loaded = load(bundle, engine)
            engine.finish(loaded.carry)
        program, carry, constants = loaded.program, loaded.carry, loaded.constants
        state_bytes = engine.state_bytes(carry.state) // math.prod(loaded.lanes)
        with clock.phase("compile"):
            evaluate = engine.compiled(evaluation(bundle, engine, program), carry, constants, loaded.splits)
            advance = {
                length: engine.segment(program, carry, constants, stretch_inputs(bundle, engine, 0, length))
                for length in sorted(set(lengths))
            }
        rows: list[dict[str, np.ndarray]] = []
        done = 0

        def measure() -> None:
            with clock.phase("evaluation"):
                values = evaluate(carry, constants, loaded.splits)
                rows.append(
                    {name: np.asarray(engine.ops.to_numpy(v), np.float64) for name, v in values.items()}
                )

        measure()
        for length in lengths:
            with clock.phase("data"):
                inputs = stretch_inputs(bundle, engine, done, length)
            with clock.phase("step"):
                carry = advance[length](carry, constants, inputs)
                engine.finish(carry)
            done += length
            measure()
            progress(done)
        diverged_at = np.asarray(engine.ops.to_numpy(carry.diverged_at)).astype(np.int64)
        stopped_at = np.asarray(engine.ops.to_numpy(carry.stopped_at)).astype(np.int64)
    return Trajectories(
        steps=np.concatenate([[0], np.cumsum(lengths)]),
        metrics={name: np.stack([row[name] for row in rows]) for name in rows[0]},
        diverged_at=diverged_at,
        stopped_at=stopped_at,
        state_bytes=state_bytes,
    )


def joined(pieces: Sequence[Trajectories]) -> Trajectories:
    """The trajectories of bundles that were cut along their seeds, side by side again."""
    return Trajectories(
        steps=pieces[0].steps,
        metrics={
            name: np.concatenate([piece.metrics[name] for piece in pieces], axis=1)
            for name in pieces[0].metrics
        },
        diverged_at=np.concatenate([piece.diverged_at for piece in pieces]),
        stopped_at=np.concatenate([piece.stopped_at for piece in pieces]),
        state_bytes=pieces[0].state_bytes,
    )
