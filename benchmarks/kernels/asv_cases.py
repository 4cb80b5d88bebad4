"""The kernel cases for asv: seconds, peak memory, and the error against float64.

asv loads this folder as a package of its own name: imports among its modules are relative, and libraries
are imported when a case is set up, not when cases are listed.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import cache

from curvebench.timing.clocks import one_thread

from .case import ReadyCase, measured_error
from .cases import timed


@cache
def _prepared(label: str) -> ReadyCase:
    """A case, compiled once in a process: asv sets a benchmark up anew before each call."""
    each = timed()[label]
    prepared = each.case.prepare(each.backend, each.dtype)
    with prepared.context():
        prepared.run()
    return prepared


class Kernel:
    """Every case on each of its backends."""

    params = list(timed())  # noqa: RUF012 (asv reads a plain list)
    param_names = ["case"]  # noqa: RUF012
    version = "1"  # of what is measured; asv would take a hash of this file's text
    timeout = 600.0

    def setup(self, label: str) -> None:
        """Pin, import, compile, warm up."""
        self.stack = ExitStack()
        self.stack.enter_context(one_thread())
        prepared = _prepared(label)
        self.stack.enter_context(prepared.context())
        self.run = prepared.run

    def teardown(self, label: str) -> None:
        """Leave the case's settings."""
        self.stack.close()

    def time_call(self, label: str) -> None:
        """Seconds of a call."""
        self.run()

    def peakmem_call(self, label: str) -> None:
        """Peak memory of a process that makes a call, with its libraries."""
        self.run()

    def track_error(self, label: str) -> float:
        """The largest error over the largest entry of the float64 reference."""
        each = timed()[label]
        return measured_error(each.case, each.backend, each.dtype)

    track_error.unit = "relative"  # type: ignore[attr-defined]
