"""pytest-benchmark: time every case, and the same optimizer steps of torch.optim and Optax.

A case is one computation on one backend in one precision. A peer is an optimizer of another library that
computes the same step.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from curvebench.timing.clocks import one_thread

from .case import ReadyCase
from .cases import timed
from .peers import peers
from .steps import SHAPE_SETS

ROUNDS = 20


@pytest.fixture(scope="module", autouse=True)
def pinned() -> Iterator[None]:
    """Run all benchmarks of the module in one pinned thread."""
    with one_thread():
        yield


def contestants() -> Iterator[tuple[str, str]]:
    """Yield the label of each case, together with the name of each program that computes the case.

    The programs (contestants) are this project, named "ours", and the peers that compute the same step.
    """
    for label, timed_case in timed().items():
        yield label, "ours"
        yield from ((label, name) for name in peers(timed_case.case.optimizer, timed_case.backend))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """List the cases and the programs that compute them when tests are collected.

    A list at import would be too early, because asv imports this module where no libraries are imported yet.
    """
    metafunc.parametrize(("label", "contestant"), list(contestants()))


def prepared(label: str, contestant: str) -> ReadyCase:
    """Compile a case for the program that computes it: this project ("ours"), or the peer of that name."""
    timed_case = timed()[label]
    if contestant == "ours":
        return timed_case.case.prepare(timed_case.backend, timed_case.dtype)
    shapes = SHAPE_SETS[timed_case.case.name.rsplit(".", 1)[1]]
    return peers(timed_case.case.optimizer, timed_case.backend)[contestant](shapes, timed_case.dtype)


def test_kernel(benchmark: Any, label: str, contestant: str) -> None:
    """Time one case, computed by this project or by a peer. pytest-benchmark groups its table by case."""
    ready = prepared(label, contestant)
    timed_case = timed()[label]
    benchmark.group = label
    benchmark.name = contestant
    benchmark.extra_info.update(
        problem=timed_case.case.name,
        contestant=contestant,
        backend=timed_case.backend,
        dtype=timed_case.dtype,
        size=dict(timed_case.case.sizes),
    )
    with ready.context():
        benchmark.pedantic(ready.run, rounds=ROUNDS, warmup_rounds=3)
