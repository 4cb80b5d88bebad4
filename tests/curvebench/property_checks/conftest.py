"""The toy claims, for all tests of this folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.curvebench.property_checks.toy_claims import ToyClaims


@pytest.fixture
def toys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ToyClaims:
    return ToyClaims(tmp_path, monkeypatch)
