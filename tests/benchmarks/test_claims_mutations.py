"""Every part of every claim has a mutation that it catches, or a reason why it has none."""

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from curvebench.property_checks.checks import claims_of, modules

WITHOUT = {
    ("notes.amsgrad", "and little later, steady gradients"): "it misses as it is: nothing is left to break",
}


def _named(test: ast.FunctionDef, module: ModuleType) -> Iterator[str]:
    """The strings of a test and of its decorators, and those of the module's constants that it uses."""
    for node in ast.walk(test):
        if isinstance(node, ast.Constant):
            yield str(node.value)
        elif isinstance(node, ast.Name):
            value = getattr(module, node.id, "")
            yield from value if isinstance(value, set) else {str(value)}


@pytest.mark.parametrize("module", modules())
def test_parts_are_named_by_a_test_that_changes_what_they_measure(module):
    tests = importlib.import_module(f"tests.benchmarks.test_claims_{module}")
    assert tests.__file__ is not None
    named = {
        name
        for test in ast.parse(Path(tests.__file__).read_bytes()).body
        if isinstance(test, ast.FunctionDef) and "monkeypatch" in {given.arg for given in test.args.args}
        for name in _named(test, tests)
    }
    parts = {(claim.id, check.part) for claim in claims_of(module) for check in claim.checks}
    ids = {claim for claim, _ in parts}
    assert {(claim, part) for claim, part in parts if part not in named} == {
        (claim, part) for claim, part in WITHOUT if claim in ids
    }


def test_reasons_are_of_claims_that_are_there():
    assert {claim for claim, _ in WITHOUT} <= {one.id for module in modules() for one in claims_of(module)}
