"""Examples of a split by their numbers: cut out of arrays, or fetched from a data source on threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import TypeVar

import numpy as np

from curvebench.workloads.workload import Random, Split

Place = tuple[int, ...]  # of an example among those that are gathered
Generators = Callable[[Place], np.random.Generator]
Wanted = TypeVar("Wanted")
Made = TypeVar("Made")


def gathered(
    split: Split, numbers: np.ndarray, threads: int, generators: Generators | None = None
) -> dict[str, np.ndarray]:
    """Examples by field, (*numbers.shape, ...), equal for any number of threads.

    Args:
        split: where they are.
        numbers: of the examples, in any shape.
        threads: that fetch from a data source; each takes the next example when it is done with one.
        generators: what the example at a place draws from in training; None for examples as evaluation sees
            them.
    """
    if isinstance(split, Mapping):
        return {name: values[numbers] for name, values in split.items()}
    like = split.placeholder(is_training=generators is not None)
    found = {name: np.empty((*numbers.shape, *one.shape), one.dtype) for name, one in like.items()}

    left = iter(list(np.ndindex(numbers.shape)))  # of a list: threads may share it

    def fetch() -> None:
        try:
            for place in left:
                drawn = None if generators is None else generators(place)
                for name, value in split.fetch(int(numbers[place]), drawn).items():
                    found[name][place] = value
        finally:
            for _ in left:  # where this thread fails, the others stop
                pass

    with ThreadPoolExecutor(threads) as pool:
        for thread in [pool.submit(fetch) for _ in range(threads)]:
            thread.result()
    return found


def placeholders(split: Split, count: int) -> dict[str, np.ndarray]:
    """As many examples as evaluation sees at once, by shape and type; read from arrays alone."""
    if isinstance(split, Mapping):
        return {name: values[:count] for name, values in split.items()}
    like = split.placeholder(is_training=False)
    return {name: np.broadcast_to(one, (count, *one.shape)) for name, one in like.items()}


def generators_of(randoms: Sequence[Random], purpose: str, first: int = 0) -> Generators:
    """What the example at each place (row, seed, example) draws from: of each place its own generator.

    Args:
        randoms: one a seed.
        purpose: of the rows, such as `examples of step`, which the number of each follows.
        first: the number of row 0.
    """
    # Counter-based: 2^64 streams to a key, each made in a fraction of the time that a seed's takes.

    @cache
    def key(row: int, seed: int) -> np.ndarray:
        return randoms[seed](f"{purpose} {first + row}").integers(2**64, size=2, dtype=np.uint64)

    def generator(place: Place) -> np.random.Generator:
        row, seed, example = place
        return np.random.Generator(np.random.Philox(key=key(row, seed), counter=[0, 0, 0, example]))

    return generator


@contextmanager
def prefetched(
    make: Callable[[Wanted], Made], wanted: Iterable[Wanted], ahead: bool = True
) -> Iterator[Iterator[Made]]:
    """Yield an iterator of `make(item)` for the items of `wanted`, in their order.

    With `ahead`, a thread makes the next result while the caller uses the one before.
    """

    def made() -> Iterator[Made]:
        waiting: list[Future[Made]] = []
        for one in wanted:
            waiting.append(executor.submit(make, one))
            if len(waiting) > 1:
                yield waiting.pop(0).result()
        for last in waiting:
            yield last.result()

    if not ahead:
        yield map(make, wanted)
        return
    with ThreadPoolExecutor(1) as executor:
        yield made()
