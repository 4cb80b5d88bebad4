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

Position = tuple[int, ...]  # index of an example in an array `numbers` of examples that are loaded together
Generators = Callable[[Position], np.random.Generator]
Item = TypeVar("Item")
Result = TypeVar("Result")


def gathered(
    split: Split, numbers: np.ndarray, threads: int, generators: Generators | None = None
) -> dict[str, np.ndarray]:
    """Load examples, as arrays (*numbers.shape, ...) by field. The result does not depend on `threads`.

    Args:
        split: arrays by field, or a data source.
        numbers: indices of the examples in the split, in any shape.
        threads: number of threads that load examples from a data source. Each thread takes the next example
            as soon as it has loaded its last.
        generators: returns the random generator of the example at a position of `numbers`, for augmentation
            in training. None loads examples without augmentation, as for evaluations.
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

    They serve as examples of arguments for compilation.
    """
    if isinstance(split, Mapping):
        return {name: values[:count] for name, values in split.items()}
    sample = split.placeholder(is_training=False)
    return {name: np.broadcast_to(array, (count, *array.shape)) for name, array in sample.items()}


def generators_of(randoms: Sequence[Random], purpose: str, first: int = 0) -> Generators:
    """Return a function that makes an independent random generator for each position (row, seed, example).

    Args:
        randoms: the random streams of each seed.
        purpose: name of the random stream, such as `examples of step`. The number of the row is appended.
        first: number that is appended for row 0; for row r it is `first` + r.
    """
    # Philox is counter-based: to start one of the 2^64 streams of a key is faster than to draw a new seed.

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

    If `ahead`, a thread computes the next result while the caller uses the present result.
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
