"""Definition of a kernel case: a computation, its sizes and its float64 reference."""

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
    """Kernel case on one backend, compiled and run once.

    Args:
        run: function that does the computation once, and returns when the result is computed.
        result: function that returns, as a NumPy array of any shape, what all calls of `run` so far have
            computed. For optimizer steps, it is the parameters after all these steps.
        context: function that returns a context manager. `run` and `result` must be called inside it.
    """

    run: Callable[[], None]
    result: Callable[[], np.ndarray]
    context: Callable[[], AbstractContextManager[Any]] = nullcontext


@dataclass(frozen=True)
class KernelCase:
    """Computation that is timed, checked, and compared over commits.

    Results of commits are matched by name. A case whose computation changes therefore needs a new name.

    Args:
        name: the kind (`step`, `basis` or `matrix`), the function and its sizes, separated by dots.
        sizes: sizes of the computation by name, such as `rows`.
        prepare: `prepare(backend, dtype) -> ReadyCase`.
        reference: function that computes the result of `calls` calls in float64, by another method than
            `prepare`.
        tolerance: maximum `relative_error` by precision.
        calls: number of calls after which the result is compared with the reference.
        prepare_few: like `prepare`, but for at most `calls` calls: compilation may be skipped, because it
            would take longer than it saves. None if `prepare` is used for few calls, too.
        backends: backends on which the case runs; `numpy` stands for NumPy on the host.
        dtypes: precisions in which the case runs; the first precision is timed.
        optimizer: for a step, the name of the rule, by which peers are chosen; otherwise empty.
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
    """Compile `function(ops, *arrays)` on a backend; the float64 arrays are first cast to `dtype`."""
    runtime = engine(backend, dtype)
    with runtime.context():
        arguments = tuple(map(runtime.ops.asarray, arrays))
        compiled = runtime.compiled(lambda *arguments: function(runtime.ops, *arguments), *arguments)
    results: list[Any] = []

    def run() -> None:
        results[:] = [compiled(*arguments)]
        runtime.synchronize(results)

    def result() -> np.ndarray:
        return np.array(runtime.ops.to_numpy(results[0]), np.float64)

    return ReadyCase(run, result, runtime.context)


def relative_error(result: np.ndarray, reference: np.ndarray) -> float:
    """Return the maximum absolute difference, divided by the maximum absolute entry of the reference."""
    difference = np.abs(np.asarray(result, np.float64) - reference)
    return float(difference.max() / np.abs(reference).max())


def measured_error(case: KernelCase, backend: str, dtype: str, few: bool = False) -> float:
    """Return the error of a case's result relative to its float64 reference.

    Args:
        case: the case.
        backend: jax, torch or numpy.
        dtype: float32 or float64.
        few: whether to prepare the case for few calls (`prepare_few`) and not as it is timed.
    """
    prepared = ((few and case.prepare_few) or case.prepare)(backend, dtype)
    with prepared.context():
        for _ in range(case.calls):
            prepared.run()
        result = prepared.result()
    return relative_error(result, case.reference())


def representable(generator: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Draw normal numbers in float64 that float32 represents exactly.

    A kernel's error then comes from its arithmetic alone, and not from rounding its input.
    """
    return generator.standard_normal(shape).astype(np.float32).astype(np.float64)
