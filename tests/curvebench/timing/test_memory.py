"""Peak resident memory: what a stretch needs is seen, what was before is not, and no guess elsewhere."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from curvebench.timing.memory import peak_resident_bytes, resident_bytes
from tests.curvebench.alone import alone

MEGABYTE = 10**6
linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux resets the peak")


def touch(megabytes: int) -> None:
    np.ones(megabytes * MEGABYTE, np.uint8)


def measured() -> tuple[int | None, ...]:
    """Resident memory, and the peaks of a small and of a large stretch after a larger one."""
    touch(200)
    # Below 32 MB the C library may keep what is freed (mallopt(3), M_MMAP_THRESHOLD).
    return resident_bytes(), *(peak_resident_bytes(partial(touch, size)) for size in (40, 120))


@linux
def test_the_peak_is_that_of_the_stretch_and_not_of_what_was_before() -> None:
    before, small, large = alone(measured)
    assert before is not None
    assert small is not None
    assert large is not None
    assert small - before == pytest.approx(40 * MEGABYTE, abs=5 * MEGABYTE)
    assert large - before == pytest.approx(120 * MEGABYTE, abs=5 * MEGABYTE)


def test_where_the_system_cannot_tell_the_work_is_done_and_nothing_is_guessed(tmp_path: Path) -> None:
    done: list[int] = []
    nowhere = tmp_path / "proc"
    assert peak_resident_bytes(lambda: done.append(1), nowhere) is None
    assert resident_bytes(nowhere) is None
    assert done == [1]
