"""First-party sources are found by syntax tree, without importing."""

from __future__ import annotations

import hashlib

import pytest

from curvebench.interop.files import with_neighbours
from curvebench.sources import SourceTree, content_hash, files_hash
from curvebench.spec.errors import InputError


@pytest.fixture
def packages(tmp_path):
    files = {
        "curvebench/optimizers/__init__.py": "raise RuntimeError('must not be imported')\n",
        "curvebench/optimizers/one.py": "import numpy\nfrom curvebench.optimizers.shared import helper\n",
        "curvebench/optimizers/two.py": "from . import shared\n",
        "curvebench/optimizers/alone.py": "import curvebench.planning.plan\n",
        "curvebench/optimizers/shared.py": "def helper():\n    import curvebench.optimizers.late\n",
        "curvebench/optimizers/late.py": "from curvebench.optimizers import one\n",
        "curvebench/optimizers/bases/__init__.py": "",
        "curvebench/optimizers/bases/deep.py": "from ..alone import thing\n",
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
        ("curvebench.optimizers.one", ["__init__", "late", "one", "shared"]),
        ("curvebench.optimizers.two", ["__init__", "late", "one", "shared", "two"]),
        ("curvebench.optimizers.alone", ["__init__", "alone"]),
        ("curvebench.optimizers.bases.deep", ["__init__", "alone", "bases/__init__", "bases/deep"]),
    ],
)
def test_imports_are_followed_to_their_end(packages, module, expected):
    assert list(SourceTree(packages).sources([module])) == [
        f"curvebench/optimizers/{name}.py" for name in expected
    ]


@pytest.mark.parametrize(
    "imports",
    [
        "from curvebench import LEARNING_RATE, Rule, as_torch",
        "from curvebench import *",
        "import curvebench",
        "import curvebench as cb",
    ],
)
def test_public_names_stand_for_the_modules_that_define_them(packages, imports):
    (packages / "curvebench/optimizers/rule.py").write_text("import curvebench.optimizers.late\n")
    mine = packages / "mine.py"
    mine.write_text(f"{imports}\n")
    followed = [name for name in SourceTree(packages).outside({"file:mine.py": mine}) if "/" in name]
    expected = ["__init__", "late", "one", "rule", "shared"]
    assert followed == [f"curvebench/optimizers/{name}.py" for name in expected]


def test_neighbours_of_a_file_are_found_without_importing_them(tmp_path):
    files = {
        "mine.py": "import numpy, near\nfrom curvebench import Rule\nfrom parts.layers import *\n",
        "near.py": "import parts.deep.down as down\n",
        "parts/__init__.py": "raise RuntimeError('must not be imported')\n",
        "parts/layers.py": "from . import norms\nfrom .norms import norm\n",
        "parts/norms.py": "import near, mine\n",
        "parts/deep/down.py": "from ..late import thing\n",
        "parts/late.py": "",
        "parts/unused.py": "",
        "norms.py": "",
        "curvebench/__init__.py": "",
    }
    unused = ("parts/unused.py", "norms.py", "curvebench/__init__.py")
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    found = with_neighbours(tmp_path / "mine.py")
    assert found[0] == tmp_path / "mine.py"
    assert {*found} == {tmp_path / name for name in files if name not in unused}


def test_a_missing_module_and_a_broken_file_are_named(packages):
    with pytest.raises(InputError, match=r"curvebench\.optimizers\.none: no such module"):
        SourceTree(packages).sources(["curvebench.optimizers.none"])
    (packages / "curvebench/optimizers/broken.py").write_text("x = 1\ndef (:\n")
    with pytest.raises(InputError, match=r"broken\.py: line 2: not valid Python"):
        SourceTree(packages).sources(["curvebench.optimizers.broken"])


@pytest.mark.parametrize(
    ("change", "same"),
    [
        (('"""Read."""', '"""Return the rows."""'), True),
        (('    """Of a class."""\n', ""), True),
        (("1e-3", "0.001  # as in the paper"), True),
        (("1e-3", "1e-4"), False),
        (("local", "other"), False),
        (('"text"', '"another text"'), False),
    ],
)
def test_docstrings_and_comments_are_not_hashed(tmp_path, change, same):
    source = """
class A:
    \"""Of a class.\"""
    rate = 1e-3

    async def read(self):
        \"""Read.\"""
        local = "text"
        return local
"""
    hashes = set()
    for text in (source, source.replace(*change)):
        for name in ("code.py", "data.csv"):
            (tmp_path / name).write_text(text)
        hashes.add(content_hash(tmp_path / "code.py"))
        assert content_hash(tmp_path / "data.csv") == hashlib.sha256(text.encode()).hexdigest()
    assert source != source.replace(*change)
    assert (len(hashes) == 1) is same


def test_the_hash_of_files_sees_names_and_contents(tmp_path):
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
