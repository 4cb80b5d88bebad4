"""Functions of benchmarks/claims give what was calculated by hand in tests/benchmarks/by_hand.yaml."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import pytest
from ruamel.yaml import YAML

from curvebench.property_checks.checks import PACKAGE

TABLE = YAML(typ="safe").load(Path(__file__).with_name("by_hand.yaml"))


@pytest.mark.parametrize(
    ("function", "of", "expected"),
    [(function, str(row["of"]), str(row["is"])) for function, rows in TABLE.items() for row in rows],
)
def test_a_value_is_that_by_hand(function: str, of: str, expected: str):
    module, name = function.split(".")
    seen = {**vars(importlib.import_module(f"{PACKAGE}.{module}")), "np": np}
    np.testing.assert_allclose(eval(f"{name}({of})", seen), eval(expected, seen), rtol=1e-9, atol=1e-14)
