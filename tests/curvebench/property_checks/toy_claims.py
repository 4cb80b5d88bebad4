"""A module of claims that is as small as possible, in its own folder, and a function that changes it."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

import curvebench.benchmarks.claims
import curvebench.property_checks.checks
from tests.curvebench.user_files import user_file

TOY = user_file("toy.py")


class ToyClaims:
    """Folder of claim modules that replaces benchmarks/claims in this process."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.folder = root, root / "benchmarks" / "claims"
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "__init__.py").write_text('"""Claims of a test."""\n')
        (self.folder.parent / "__init__.py").write_text('"""Claims of a test."""\n')
        self._monkeypatch = monkeypatch
        # a file may be written again within the same second
        monkeypatch.setattr(sys, "dont_write_bytecode", True)
        monkeypatch.setattr(curvebench.benchmarks.claims, "__path__", [str(self.folder)])
        monkeypatch.setattr(curvebench.property_checks.checks, "FOLDER", self.folder)

    def write(self, *changes: tuple[str, str], name: str = "toy") -> Path:
        """Write the module with replacements; each old text must occur in it."""
        text = TOY
        for old, new in changes:
            assert old in text, f"{old!r} is not in the toy module"
            text = text.replace(old, new)
        path = self.folder / f"{name}.py"
        path.write_text(text)
        # set it first, so that the module is removed again after the test, if it was absent before
        self._monkeypatch.setitem(sys.modules, f"curvebench.benchmarks.claims.{name}", None)
        self._monkeypatch.delitem(sys.modules, f"curvebench.benchmarks.claims.{name}")
        importlib.invalidate_caches()
        return path
