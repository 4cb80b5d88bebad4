"""Loading of examples of a split by their indices, from arrays or from a data source on several threads.

A split is a set of examples, such as the training split. A data source is an object that loads examples one
by one, for example from files; arrays contain all examples in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import TypeVar

import numpy as np

from curvebench.workloads.arguments import Random
from curvebench.workloads.workload import Split

Position = tuple[int, ...]  # index into an array `numbers` of examples to load
Generators = Callable[[Position], np.random.Generator]
Item = TypeVar("Item")
Result = TypeVar("Result")


def gathered(
    split: Split, numbers: np.ndarray, threads: int, generators: Generators | None = None
) -> dict[str, np.ndarray]:
    """Load examples: for each field of the data, an array (*numbers.shape, ...).

    The result does not depend on `threads`.

    Args:
        split: a mapping from fields to arrays, or a data source.
        numbers: indices of the examples in the split, in any shape.
        threads: number of threads that load examples from a data source. Each thread takes the next example
            that no thread has taken yet.
        generators: function that returns, for a position in `numbers`, the random generator by which the
            example at this position is augmented in training. None loads examples without augmentation, as
            for evaluations.
    """
    if isinstance(split, Mapping):
        return {name: values[numbers] for name, values in split.items()}
    sample = split.placeholder(is_training=generators is not None)
    examples = {name: np.empty((*numbers.shape, *array.shape), array.dtype) for name, array in sample.items()}

    positions = iter(list(np.ndindex(numbers.shape)))  # several threads may safely share a list's iterator

    def fetch() -> None:
        try:
            for position in positions:
                generator = None if generators is None else generators(position)
                for name, value in split.fetch(int(numbers[position]), generator).items():
                    examples[name][position] = value
        finally:
            for _ in positions:  # if this thread fails, use up all positions, so that the other threads stop
                pass

    with ThreadPoolExecutor(threads) as pool:
        for thread in [pool.submit(fetch) for _ in range(threads)]:
            thread.result()
    return examples


def placeholders(split: Split, count: int) -> dict[str, np.ndarray]:
    """Return arrays with the shapes and types of `count` evaluation examples, without reading a data source.

    Functions of examples are compiled for the shapes and types of these arrays.
    """
    if isinstance(split, Mapping):
        return {name: values[:count] for name, values in split.items()}
    sample = split.placeholder(is_training=False)
    return {name: np.broadcast_to(array, (count, *array.shape)) for name, array in sample.items()}


def generators_of(randoms: Sequence[Random], purpose: str, first: int = 0) -> Generators:
    """Return a function that makes an independent random generator for each position (row, seed, example).

    Args:
        randoms: for each seed, its random streams.
        purpose: name of the random stream, such as `examples of step`, to which the number of the row is
            appended.
        first: the number of row 0. Row r has the number `first` + r.
    """
    # Philox is counter-based.
    # To start one of the 2^64 streams that share a key is faster than to seed a new generator.

    @cache
    def key(row: int, seed: int) -> np.ndarray:
        return randoms[seed](f"{purpose} {first + row}").integers(2**64, size=2, dtype=np.uint64)

    def generator(position: Position) -> np.random.Generator:
        row, seed, example = position
        return np.random.Generator(np.random.Philox(key=key(row, seed), counter=[0, 0, 0, example]))

    return generator


@contextmanager
def prefetched(
    make: Callable[[Item], Result], items: Iterable[Item], ahead: bool = True
) -> Iterator[Iterator[Result]]:
    """Return a context with an iterator over `make(item)` for all items in order.

    If `ahead`, another thread computes the next result while the caller uses the current one. Otherwise, each
    result is computed when the caller asks for it.
    """

    def results() -> Iterator[Result]:
        pending: list[Future[Result]] = []
        for item in items:
            pending.append(executor.submit(make, item))
            if len(pending) > 1:
                yield pending.pop(0).result()
        for last in pending:
            yield last.result()

    if not ahead:
        yield map(make, items)
        return
    with ThreadPoolExecutor(1) as executor:
        yield results()
