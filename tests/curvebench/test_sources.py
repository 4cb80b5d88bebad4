"""First-party sources are found by syntax tree, without importing."""

from __future__ import annotations

import pytest

from curvebench.sources import SourceTree, files_hash
from curvebench.spec.errors import InputError


@pytest.fixture
def packages(tmp_path):
    files = {
        "optimizers/__init__.py": "raise RuntimeError('must not be imported')\n",
        "optimizers/one.py": "import numpy\nfrom optimizers.shared import helper\n",
        "optimizers/two.py": "from . import shared\n",
        "optimizers/alone.py": "import curvebench.planning.plan\n",
        "optimizers/shared.py": "def helper():\n    import optimizers.late\n",
        "optimizers/late.py": "from optimizers import one\n",
        "optimizers/bases/__init__.py": "",
        "optimizers/bases/deep.py": "from ..alone import thing\n",
        "curvebench/planning/plan.py": "",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        ("optimizers.one", ["__init__", "late", "one", "shared"]),
        ("optimizers.two", ["__init__", "late", "one", "shared", "two"]),
        ("optimizers.alone", ["__init__", "alone"]),
        ("curvebench.optimizers.bases.deep", ["__init__", "alone", "bases/__init__", "bases/deep"]),
    ],
)
def test_imports_are_followed_to_their_end(packages, module, expected):
    assert list(SourceTree(packages).sources([module])) == [f"optimizers/{name}.py" for name in expected]


def test_a_missing_module_and_a_broken_file_are_named(packages):
    with pytest.raises(InputError, match=r"optimizers\.none: no such module"):
        SourceTree(packages).sources(["optimizers.none"])
    (packages / "optimizers/broken.py").write_text("x = 1\ndef (:\n")
    with pytest.raises(InputError, match=r"broken\.py: line 2: not valid Python"):
        SourceTree(packages).sources(["optimizers.broken"])


def test_the_hash_of_files_sees_names_and_bytes(tmp_path):
    first, second = tmp_path / "a.py", tmp_path / "b.py"
    first.write_text("x")
    before = files_hash([first], tmp_path)
    assert files_hash([first], tmp_path) == before
    first.rename(second)
    assert files_hash([second], tmp_path) != before
    second.write_text("y")
    renamed = files_hash([second], tmp_path)
    second.write_text("x")
    assert files_hash([second], tmp_path) != renamed
