"""What a kernel case is: a piece of work with its sizes and its float64 reference."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

from curvebench.backends import BACKENDS
from curvebench.backends.engine import engine

PRECISIONS = ("float32", "float64")
Arrays = tuple[np.ndarray, ...]


@dataclass(frozen=True)
class ReadyCase:
    """A case on a backend, compiled and warm.

    Args:
        run: one call; it returns when the result is computed.
        result: what the calls so far gave, on the host, any shape.
        context: the settings that `run` and `result` must be called in.
    """

    run: Callable[[], None]
    result: Callable[[], np.ndarray]
    context: Callable[[], AbstractContextManager[Any]] = nullcontext


@dataclass(frozen=True)
class KernelCase:
    """A piece of work that is timed, checked and compared over commits.

    A change of what is computed needs another name: results are compared by name.

    Args:
        name: the kind of work (`step`, `basis` or `matrix`), what, and sizes, with dots between.
        sizes: what the sizes are called, and the sizes.
        prepare: `prepare(backend, dtype) -> Prepared`.
        reference: the result in float64 after `calls` calls, by another way than `prepare`'s.
        tolerance: the largest error allowed, by precision; see `relative_error`.
        calls: how many calls lead to the reference.
        prepare_few: `prepare` for no more than `calls` calls, where that takes less time, as torch.compile
            takes some; None where it is the same.
        backends: where it runs; `numpy` for work that is done on the host.
        dtypes: the precisions that it runs in; the first is the one that is timed.
        optimizer: the name of the rule of a step, for its peers; empty elsewhere.
    """

    name: str
    sizes: Mapping[str, Any]
    prepare: Callable[[str, str], ReadyCase]
    reference: Callable[[], np.ndarray]
    tolerance: Mapping[str, float]
    calls: int = 1
    prepare_few: Callable[[str, str], ReadyCase] | None = None
    backends: tuple[str, ...] = BACKENDS
    dtypes: tuple[str, ...] = PRECISIONS
    optimizer: str = ""


def on_backend(backend: str, dtype: str, function: Callable[..., Any], arrays: Arrays) -> ReadyCase:
    """A function `function(ops, *arrays)` of given arrays in float64, compiled by a backend."""
    made = engine(backend, dtype)
    with made.context():
        arguments = tuple(map(made.ops.asarray, arrays))
        compiled = made.compiled(lambda *given: function(made.ops, *given), *arguments)
    results: list[Any] = []

    def run() -> None:
        results[:] = [compiled(*arguments)]
        made.synchronize(results)

    def result() -> np.ndarray:
        return np.array(made.ops.to_numpy(results[0]), np.float64)

    return ReadyCase(run, result, made.context)


def relative_error(result: np.ndarray, reference: np.ndarray) -> float:
    """The largest difference over the largest entry of the reference."""
    difference = np.abs(np.asarray(result, np.float64) - reference)
    return float(difference.max() / np.abs(reference).max())


def measured_error(case: KernelCase, backend: str, dtype: str, few: bool = False) -> float:
    """The error of a case's result against its float64 reference.

    Args:
        case, backend, dtype: what is measured.
        few: whether to prepare it for its few calls only, not as it is timed.
    """
    prepared = ((few and case.prepare_few) or case.prepare)(backend, dtype)
    with prepared.context():
        for _ in range(case.calls):
            prepared.run()
        result = prepared.result()
    return relative_error(result, case.reference())


def representable(generator: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Normal numbers in float64 that float32 holds exactly, so that errors are those of arithmetic."""
    return generator.standard_normal(shape).astype(np.float32).astype(np.float64)
