"""Examples of a split by their indices: from arrays, or from a data source on several threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import TypeVar

import numpy as np

from curvebench.workloads.arguments import Random
from curvebench.workloads.workload import Split

Position = tuple[int, ...]  # index of an example in the array of examples that are loaded together
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
        threads: number of threads that load examples from a data source. Each takes the next example when it
            has finished one.
        generators: returns the random generator of the example at a position of `numbers`, for augmentation
            in training; None for examples as evaluation sees them.
    """
    if isinstance(split, Mapping):
        return {name: values[numbers] for name, values in split.items()}
    sample = split.placeholder(is_training=generators is not None)
    examples = {name: np.empty((*numbers.shape, *array.shape), array.dtype) for name, array in sample.items()}

    positions = iter(list(np.ndindex(numbers.shape)))  # Threads may share an iterator of a list.

    def fetch() -> None:
        try:
            for position in positions:
                generator = None if generators is None else generators(position)
                for name, value in split.fetch(int(numbers[position]), generator).items():
                    examples[name][position] = value
        finally:
            for _ in positions:  # If this thread fails, no positions remain, so that the other threads stop.
                pass

    with ThreadPoolExecutor(threads) as pool:
        for thread in [pool.submit(fetch) for _ in range(threads)]:
            thread.result()
    return examples


def placeholders(split: Split, count: int) -> dict[str, np.ndarray]:
    """Return arrays with the shapes and types of `count` evaluation examples. No data source is read."""
    if isinstance(split, Mapping):
        return {name: values[:count] for name, values in split.items()}
    sample = split.placeholder(is_training=False)
    return {name: np.broadcast_to(array, (count, *array.shape)) for name, array in sample.items()}


def generators_of(randoms: Sequence[Random], purpose: str, first: int = 0) -> Generators:
    """Return a function that makes an independent random generator for each position (row, seed, example).

    Args:
        randoms: the random streams of each seed.
        purpose: name of the stream of a row, to which the number of the row is appended, such as `examples of
            step`.
        first: the number of row 0.
    """
    # Philox is counter-based: starting one of the 2^64 streams of a key is faster than making a new seed.

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
    """Yield an iterator of `make(item)` for each item, in order.

    With `ahead`, a thread computes the next result while the caller uses the current one.
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
