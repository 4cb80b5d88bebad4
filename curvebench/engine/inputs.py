"""Inputs of steps: the segments of a run, and the minibatches, noise and schedule of each segment.

A segment is a number of steps that are computed in one call of the device. A segment ends at each evaluation,
and at each step after which the basis is estimated again. Long intervals between such steps are divided into
several segments. S is the number of seeds of a bundle. The lanes of a bundle are its runs, one for each seed
and setting.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from curvebench.engine.bundle import Bundle
from curvebench.steps.engine import Engine
from curvebench.steps.examples import gathered, generators_of, prefetched
from curvebench.steps.program import Inputs
from curvebench.workloads.workload import Split, placeholder_of

MAX_INPUT_BYTES = 1 << 28  # largest size in bytes of the inputs of one segment
# Number of segments into which a long run is divided, so that checkpoints can be written between segments.
# Each segment of a 12-hour run then takes 43 s.
MIN_SEGMENTS = 1000
# Number of multiplications (steps x examples x parameters) below which a segment is not divided.
# This number of multiplications takes about a second on a CPU with dense layers, minutes with convolutions.
MIN_SEGMENT_PRODUCTS = 10**10
# A step counts as at least this number of multiplications, because each step has an overhead.
# A segment therefore has at most 10,000 steps or, in a longer run, about a thousandth of the run's steps.
MIN_STEP_PRODUCTS = 10**6


def equal_lengths(steps: int, count: int) -> list[int]:
    """Divide a number of steps into `count` nearly equal lengths, with at most two different values.

    If `count` is larger than `steps`, the result has `steps` lengths, so that no length is 0.
    """
    bounds = np.linspace(0, steps, min(count, steps) + 1).round().astype(int)
    return [int(length) for length in np.diff(bounds)]


def split_interval(bundle: Bundle, length: int) -> list[int]:
    """Divide an interval of `length` steps into nearly equal segments.

    The inputs of a segment fit into MAX_INPUT_BYTES. The number of multiplications in a segment is limited,
    so that a long run has about MIN_SEGMENTS segments. The lengths depend on the bundle and not on the
    machine, since programs are compiled for these lengths.
    """
    step_bytes = 0
    if bundle.orders is not None:
        order = bundle.by_slot(bundle.orders[:1], 1)
        step_bytes = order.nbytes
        if bundle.workload.streamed:
            example = placeholder_of(bundle.problems[0].splits["train"])
            step_bytes += order.size * sum(array.nbytes for array in example.values())
    if bundle.is_random:
        step_bytes += sum(array.nbytes for array in bundle.draws(0, 1).values()) * bundle.shape[0]
    products = max(bundle.batch_size * bundle.layout.total, MIN_STEP_PRODUCTS)
    longest = max(math.ceil(len(bundle.schedule) / MIN_SEGMENTS), MIN_SEGMENT_PRODUCTS // products, 1)
    count = max(math.ceil(length * step_bytes / MAX_INPUT_BYTES), math.ceil(length / longest))
    return equal_lengths(length, count)


def evaluation_steps(bundle: Bundle) -> np.ndarray:
    """Return the number of steps before each evaluation; 0 for the first evaluation."""
    return np.cumsum([0, *equal_lengths(len(bundle.schedule), bundle.evaluations)])


def segment_lengths(bundle: Bundle) -> list[int]:
    """Return the number of steps of each segment of a run."""
    bounds = sorted({*evaluation_steps(bundle).tolist(), *bundle.reestimation_steps})
    return [segment for length in np.diff(bounds).tolist() for segment in split_interval(bundle, length)]


def segment_inputs(bundle: Bundle, engine: Engine, start: int, length: int, room: int = 0) -> Inputs:
    """Return the inputs of the steps start + 1, ..., start + length. Call it in the engine's context.

    The fields `step` and `schedule` stay on the host, where the engine reads them.

    Args:
        bundle: the bundle.
        engine: the engine of the run.
        start: number of steps that precede the segment.
        length: number of steps of the segment.
        room: number of steps for which the segment was compiled. Arrays on the device are padded with zeros
            to this length; 0 for no padding.
    """
    dtype, missing = engine.ops.dtype, (room or length) - length

    def on_device(array: np.ndarray) -> Any:
        by_slot = bundle.by_slot(array, 1)
        widths = ((0, missing), *((0, 0),) * (array.ndim - 1))
        return engine.to_device(np.pad(by_slot, widths) if missing else by_slot)

    order = None if bundle.orders is None else bundle.orders[start : start + length]
    batch = None
    if bundle.workload.streamed:
        assert order is not None, "__post_init__ asks for minibatches"
        minibatches = _minibatches(bundle, order, start, engine.threads)
        batch = {name: on_device(array) for name, array in minibatches.items()}
    noise = _noise(bundle, start, length)
    return Inputs(
        step=np.arange(start + 1, start + length + 1, dtype=dtype),
        schedule=np.asarray(bundle.schedule[start : start + length], dtype),
        order=None if order is None or batch is not None else on_device(order),
        batch=batch,
        noise=None if noise is None else {name: on_device(array) for name, array in noise.items()},
    )


def filled(inputs: Inputs, length: int) -> Inputs:
    """Pad the fields `step` and `schedule` to `length` by repeating the last value of each.

    A segment is compiled for the shapes of the result.
    """
    missing = length - len(inputs.step)
    step, schedule = (np.pad(values, (0, missing), "edge") for values in (inputs.step, inputs.schedule))
    return inputs._replace(step=step, schedule=schedule)


def _minibatches(bundle: Bundle, order: np.ndarray, start: int, threads: int) -> dict[str, np.ndarray]:
    """Load the minibatches of some steps: for each field, an array (steps, S, batch_size, ...).

    The first of the steps is `start` + 1.
    """

    def load(seeds: slice, split: Split) -> dict[str, np.ndarray]:
        generators = generators_of(bundle.randoms[seeds], "examples of step", start + 1)
        return gathered(split, order[:, seeds], threads, generators)

    if bundle.workload.shared_data:
        return load(slice(None), bundle.problems[0].splits["train"])
    by_seed = [
        load(slice(seed, seed + 1), problem.splits["train"]) for seed, problem in enumerate(bundle.problems)
    ]
    return {name: np.concatenate([arrays[name] for arrays in by_seed], axis=1) for name in by_seed[0]}


def source_notes(bundle: Bundle) -> list[str]:
    """Return the notes of data sources on examples that they have loaded, for example on unreadable files."""
    splits = [split for problem in bundle.problems for split in problem.splits.items()]
    sources = [(name, split) for name, split in splits if not isinstance(split, Mapping)]
    return [f"{name}: {note}" for name, source in sources for note in source.notes]


def _noise(bundle: Bundle, start: int, length: int) -> dict[str, np.ndarray] | None:
    """Draw the random numbers of a segment, a mapping from names to arrays (steps, S, ...), or None.

    The result is None if steps draw no random numbers.
    """
    if not bundle.is_random:
        return None
    seeds = range(len(bundle.problems))
    steps = [[bundle.draws(seed, step) for seed in seeds] for step in range(start + 1, start + length + 1)]
    return {key: np.stack([np.stack([seed[key] for seed in step]) for step in steps]) for key in steps[0][0]}


def prefetch_inputs(
    bundle: Bundle, engine: Engine, lengths: Iterable[int], start: int = 0, room: int = 0
) -> AbstractContextManager[Iterator[Inputs]]:
    """Return a context with an iterator over the inputs of successive segments.

    If examples are loaded or random numbers are drawn, a thread makes the inputs of the next segment while
    the current segment is computed.

    Args:
        bundle: the bundle.
        engine: the engine of the run.
        lengths: number of steps of each segment. A length is read only when the inputs of its segment are
            made, so that it can depend on the duration of earlier segments (`execution.Pace`).
        start: number of steps before the first segment.
        room: number of steps to which the arrays of each segment are padded; 0 for no padding.
    """

    def make(segment: tuple[int, int]) -> Inputs:
        first, length = segment
        with engine.context():
            return segment_inputs(bundle, engine, first, length, room)

    def segments() -> Iterator[tuple[int, int]]:
        first = start
        for length in lengths:
            yield first, length
            first += length

    return prefetched(make, segments(), ahead=bundle.workload.streamed or bundle.is_random)
