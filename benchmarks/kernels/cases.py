"""The list of kernel cases; a new kernel is a function of its group's module, named here."""

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
    """A case on a backend, in a precision."""

    case: KernelCase
    backend: str
    dtype: str

    @property
    def label(self) -> str:
        """Case, backend and precision, as in tables."""
        return f"{self.case.name} {self.backend} {self.dtype}"


@cache
def cases() -> dict[str, KernelCase]:
    """Every case by name."""
    groups = (step_cases(), basis_cases(), matrix_cases())
    return {case.name: case for group in groups for case in group}


def timed(pattern: str = "") -> dict[str, Timed]:
    """What is timed, by label: every case on each of its backends in its first precision.

    Args:
        pattern: a regular expression that the label must contain.
    """
    every = (Timed(case, backend, case.dtypes[0]) for case in cases().values() for backend in case.backends)
    return {each.label: each for each in every if re.search(pattern, each.label)}
