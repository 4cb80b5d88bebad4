"""Inputs of steps: the segments of a run, and the minibatches, noise and schedule that each is sent."""

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

SENT_BYTES = 1 << 28  # of minibatches, orders and noise that are sent to the device at once
RETURNS = 1000  # to the host in a run, about, where a checkpoint can be written: in 12 hours every 43 s
# But after so many products of a parameter and an example of one lane at the earliest: a second or so of a
# layer that is dense on a CPU, minutes of convolutions. All runs that take less stay as they are.
PRODUCTS = 10**10
# of a step, which costs its calls besides: so a piece has 10,000 steps, or a thousandth
LEAST_PRODUCTS = 10**6


def equal_lengths(steps: int, evaluations: int) -> list[int]:
    """Lengths of the stretches between evaluations: nearly equal, in at most two lengths."""
    bounds = np.linspace(0, steps, min(evaluations, steps) + 1).round().astype(int)
    return [int(length) for length in np.diff(bounds)]


def split_interval(bundle: Bundle, length: int) -> list[int]:
    """A stretch cut into nearly equal pieces, by the bundle alone.

    The inputs of each fit what is sent at once, and of a long run no piece takes long.
    """
    one = 0
    if bundle.orders is not None:
        order = bundle.by_slot(bundle.orders[:1], 1)
        one = order.nbytes
        if bundle.workload.streamed:
            example = placeholder_of(bundle.problems[0].splits["train"])
            one += order.size * sum(array.nbytes for array in example.values())
    if bundle.is_random:
        one += sum(array.nbytes for array in bundle.draws(0, 1).values()) * bundle.shape[0]
    products = max(bundle.batch_size * bundle.layout.total, LEAST_PRODUCTS)
    most = max(math.ceil(len(bundle.schedule) / RETURNS), PRODUCTS // products, 1)
    return equal_lengths(length, max(math.ceil(length * one / SENT_BYTES), math.ceil(length / most)))


def evaluation_steps(bundle: Bundle) -> np.ndarray:
    """After how many steps metrics are taken; the first is 0."""
    return np.cumsum([0, *equal_lengths(len(bundle.schedule), bundle.evaluations)])


def segment_lengths(bundle: Bundle) -> list[int]:
    """The steps of a run cut into what is sent at once, between evaluations and estimates of bases."""
    bounds = sorted({*evaluation_steps(bundle).tolist(), *bundle.points})
    return [piece for length in np.diff(bounds).tolist() for piece in split_interval(bundle, length)]


def segment_inputs(
    bundle: Bundle, engine: Engine, start: int, length: int, room: int | None = None
) -> Inputs:
    """The inputs of steps start + 1 ... start + length; call inside the engine's context.

    Numbers of steps and the schedule stay on the host, where the engine reads them.

    Args:
        room: as many steps as are sent, zeros after the last; None for no more than there are.
    """
    kind, missing = engine.ops.dtype, (room or length) - length

    def sent(array: np.ndarray) -> Any:
        return engine.to_device(
            np.pad(array, ((0, missing), *((0, 0),) * (array.ndim - 1))) if missing else array
        )

    order = None if bundle.orders is None else bundle.orders[start : start + length]
    batch = None
    if bundle.workload.streamed:
        assert order is not None, "__post_init__ asks for minibatches"
        minibatches = _minibatches(bundle, order, start, engine.threads)
        batch = {name: sent(bundle.by_slot(array, 1)) for name, array in minibatches.items()}
    drawn = _noise(bundle, start, length)
    return Inputs(
        step=np.arange(start + 1, start + length + 1, dtype=kind),
        schedule=np.asarray(bundle.schedule[start : start + length], kind),
        order=None if order is None or batch is not None else sent(bundle.by_slot(order, 1)),
        batch=batch,
        noise=None
        if drawn is None
        else {name: sent(bundle.by_slot(array, 1)) for name, array in drawn.items()},
    )


def filled(inputs: Inputs, length: int) -> Inputs:
    """Inputs with the number and the schedule of their last step repeated to a length."""
    missing = length - len(inputs.step)
    step, schedule = (np.pad(values, (0, missing), "edge") for values in (inputs.step, inputs.schedule))
    return inputs._replace(step=step, schedule=schedule)


def _minibatches(bundle: Bundle, order: np.ndarray, start: int, threads: int) -> dict[str, np.ndarray]:
    """The minibatches of the steps after `start`, (steps, S, batch_size, ...) by field, on the host."""

    def drawn(seeds: slice, split: Split) -> dict[str, np.ndarray]:
        generators = generators_of(bundle.randoms[seeds], "examples of step", start + 1)
        return gathered(split, order[:, seeds], threads, generators)

    if bundle.workload.shared_data:
        return drawn(slice(None), bundle.problems[0].splits["train"])
    found = [
        drawn(slice(seed, seed + 1), problem.splits["train"]) for seed, problem in enumerate(bundle.problems)
    ]
    return {name: np.concatenate([one[name] for one in found], axis=1) for name in found[0]}


def source_notes(bundle: Bundle) -> list[str]:
    """What data sources say of what has been fetched."""
    splits = [split for problem in bundle.problems for split in problem.splits.items()]
    sources = [(name, split) for name, split in splits if not isinstance(split, Mapping)]
    return [f"{name}: {note}" for name, source in sources for note in source.notes]


def _noise(bundle: Bundle, start: int, length: int) -> dict[str, np.ndarray] | None:
    """What a stretch draws from, (steps, S, ...) by name."""
    if not bundle.is_random:
        return None
    seeds = range(len(bundle.problems))
    drawn = [[bundle.draws(seed, step) for seed in seeds] for step in range(start + 1, start + length + 1)]
    return {name: np.stack([np.stack([one[name] for one in each]) for each in drawn]) for name in drawn[0][0]}


def prefetch_inputs(
    bundle: Bundle, engine: Engine, lengths: Iterable[int], start: int = 0, room: int | None = None
) -> AbstractContextManager[Iterator[Inputs]]:
    """The inputs of successive pieces after `start` steps, each sent as so many as `room`.

    Where they are much work, they are made while the piece before is run. A length is asked for when its
    inputs are made.
    """

    def make(piece: tuple[int, int]) -> Inputs:
        begin, length = piece
        with engine.context():
            return segment_inputs(bundle, engine, begin, length, room)

    def places() -> Iterator[tuple[int, int]]:
        begin = start
        for length in lengths:
            yield begin, length
            begin += length

    return prefetched(make, places(), ahead=bundle.workload.streamed or bundle.is_random)
