"""All kernel cases. A new kernel is a function in the module of its group, and is listed here."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from .bases import basis_cases
from .case import KernelCase
from .matrices import matrix_cases
from .steps import step_cases


@dataclass(frozen=True)
class Timed:
    """Kernel case on one backend in one precision."""

    case: KernelCase
    backend: str
    dtype: str

    @property
    def label(self) -> str:
        """Name of the case, backend and precision, as shown in tables."""
        return f"{self.case.name} {self.backend} {self.dtype}"


@cache
def cases() -> dict[str, KernelCase]:
    """Return every kernel case by name."""
    groups = (step_cases(), basis_cases(), matrix_cases())
    return {case.name: case for group in groups for case in group}


def timed(pattern: str = "") -> dict[str, Timed]:
    """Return the cases that are timed, by label: every case on each of its backends, in its first precision.

    Args:
        pattern: a regular expression that must occur in the label.
    """
    entries = (Timed(case, backend, case.dtypes[0]) for case in cases().values() for backend in case.backends)
    return {entry.label: entry for entry in entries if re.search(pattern, entry.label)}
