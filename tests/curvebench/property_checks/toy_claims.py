"""A module of claims that is as small as one can be, in a folder of its own, and ways to change it."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

import curvebench.benchmarks.claims
import curvebench.property_checks.checks

TOY = '''\
"""Claims about the mean of uniform numbers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from curvebench.property_checks.checks import CORRECTED, PRINTED, Check, Measure, PropertyClaim


def _below_one(random: np.random.Generator) -> Iterator[Measure]:
    yield Measure("mean", float(random.random(8).mean()), "<=", 1.0)
    yield Measure("least", float(random.random(8).min()), ">=", 0.0)


def _printed(random: np.random.Generator) -> Iterator[Measure]:
    yield Measure("mean", float(random.random(8).mean()), "==", 1.0, 1e-12)


def _corrected(random: np.random.Generator) -> Iterator[Measure]:
    yield Measure("mean", float(random.random(8).mean()), "==", 0.5, 0.5)


CLAIMS = (
    PropertyClaim(
        id="toy.mean",
        sentence="The mean of uniform numbers is a half.",
        source="none, line 1",
        setting="8 numbers",
        checks=(
            Check("it is between 0 and 1", "none, line 2", _below_one, {"quick": 3, "paper": 5}),
            Check("it is as said", "none, line 3", _printed, {"quick": 2, "paper": 5}, PRINTED),
            Check("it is as said", "none, line 3", _corrected, {"quick": 2, "paper": 5}, CORRECTED),
        ),
    ),
    PropertyClaim(
        id="toy.other",
        sentence="Uniform numbers are below 1.",
        source="none, line 4",
        setting="8 numbers",
        checks=(Check("they are below 1", "none, line 5", _below_one, {"paper": 2}),),
    ),
)
'''


class ToyClaims:
    """A folder of modules of claims that stands for benchmarks/claims in this process."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.folder = root, root / "benchmarks" / "claims"
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "__init__.py").write_text('"""Claims of a test."""\n')
        (self.folder.parent / "__init__.py").write_text('"""Claims of a test."""\n')
        self._monkeypatch = monkeypatch
        monkeypatch.setattr(sys, "dont_write_bytecode", True)  # a file is written again within its second
        monkeypatch.setattr(curvebench.benchmarks.claims, "__path__", [str(self.folder)])
        monkeypatch.setattr(curvebench.property_checks.checks, "FOLDER", self.folder)

    def write(self, *changes: tuple[str, str], name: str = "toy") -> Path:
        """Write the module with some of its text replaced; each old text must be there."""
        text = TOY
        for old, new in changes:
            assert old in text, f"{old!r} is not in the toy module"
            text = text.replace(old, new)
        path = self.folder / f"{name}.py"
        path.write_text(text)
        self._monkeypatch.delitem(sys.modules, f"curvebench.benchmarks.claims.{name}", raising=False)
        importlib.invalidate_caches()
        return path
