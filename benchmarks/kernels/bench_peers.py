"""pytest-benchmark: every case, and beside each step the same step of torch.optim and Optax."""

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
    """All that is timed here runs in one pinned thread."""
    with one_thread():
        yield


def contestants() -> Iterator[tuple[str, str]]:
    """Labels of cases, each with us and with those that have the same step."""
    for label, each in timed().items():
        yield label, "ours"
        yield from ((label, name) for name in peers(each.case.optimizer, each.backend))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """List the contestants when tests are collected: asv imports this module too, without libraries."""
    metafunc.parametrize(("label", "contestant"), list(contestants()))


def prepared(label: str, contestant: str) -> ReadyCase:
    """A contestant, compiled."""
    each = timed()[label]
    if contestant == "ours":
        return each.case.prepare(each.backend, each.dtype)
    shapes = SHAPE_SETS[each.case.name.rsplit(".", 1)[1]]
    return peers(each.case.optimizer, each.backend)[contestant](shapes, each.dtype)


def test_kernel(benchmark: Any, label: str, contestant: str) -> None:
    """Time a contestant; the table is grouped by case."""
    ready = prepared(label, contestant)
    each = timed()[label]
    benchmark.group = label
    benchmark.name = contestant
    benchmark.extra_info.update(
        problem=each.case.name,
        contestant=contestant,
        backend=each.backend,
        dtype=each.dtype,
        size=dict(each.case.sizes),
    )
    with ready.context():
        benchmark.pedantic(ready.run, rounds=ROUNDS, warmup_rounds=3)
