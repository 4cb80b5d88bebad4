"""Kernel cases for asv: seconds, peak memory, and the error relative to float64.

asv loads this folder as a package of its own name. The imports between its modules are therefore relative,
and libraries are imported when a case is set up and not when cases are listed.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import cache

from curvebench.timing.clocks import one_thread

from .case import ReadyCase, measured_error
from .cases import timed


@cache
def _prepared(label: str) -> ReadyCase:
    """Compile a case and return it; the result is cached, since asv sets up a benchmark before each call."""
    timed_case = timed()[label]
    prepared = timed_case.case.prepare(timed_case.backend, timed_case.dtype)
    with prepared.context():
        prepared.run()
    return prepared


class Kernel:
    """Benchmark that asv runs for every case on each of its backends."""

    params = list(timed())  # noqa: RUF012 (asv reads a plain list)
    param_names = ["case"]  # noqa: RUF012
    # Change this version when the computation of a kernel case changes. asv's default is a hash of this file.
    version = "1"
    timeout = 600.0

    def setup(self, label: str) -> None:
        """Restrict the process to one thread, then import, compile and run the case once."""
        self.stack = ExitStack()
        self.stack.enter_context(one_thread())
        prepared = _prepared(label)
        self.stack.enter_context(prepared.context())
        self.run = prepared.run

    def teardown(self, label: str) -> None:
        """Restore the settings that `setup` changed."""
        self.stack.close()

    def time_call(self, label: str) -> None:
        """Call the kernel once; asv measures the seconds."""
        self.run()

    def peakmem_call(self, label: str) -> None:
        """Call the kernel once; asv measures the peak memory of the process, including its libraries."""
        self.run()

    def track_error(self, label: str) -> float:
        """Return the maximum absolute error divided by the reference's maximum absolute entry.

        The reference is computed in float64.
        """
        timed_case = timed()[label]
        return measured_error(timed_case.case, timed_case.backend, timed_case.dtype)

    track_error.unit = "relative"  # type: ignore[attr-defined]
