"""The guard of the code: it notices each change of what code does, and no change of prose and local names."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.guards.code_equality import compare, differing, main

SOURCE = '''
"""A module."""
import math

SCALE = 2.0  # of lengths

def area(radius: float, *sides, unit: str = "m") -> float:
    """The area."""
    total = 1.0
    for side in sides:
        total *= side
    largest = max(side for side in sides if side > total)
    def enlarge(by, /):
        nonlocal total
        total = total + by * largest
        return [total, by, SCALE]
    return math.pi * radius**2 * SCALE - total, enlarge

class Shape:
    """A shape."""
    corners = 3
    def name(self) -> str:
        return f"{self.corners} corners"
'''
HARMLESS = {
    "docstrings": [('"""The area."""', '"""Return the area.\n\n    In m^2."""'), ('"""A shape."""', "")],
    "comments": [("# of lengths", "# metres a unit\n\n# of all")],
    "a local variable": [("total", "product")],
    "a local variable that becomes the last in the alphabet": [("largest", "zenith"), ("total", "zebra")],
    "a variable of a comprehension": [
        ("max(side for side in sides if side >", "max(edge for edge in sides if edge >")
    ],
    "a nested function and its parameter": [
        ("enlarge(by,", "grow(amount,"),
        ("by", "amount"),
        ("enlarge", "grow"),
    ],
    "parameters that take the rest": [("sides", "edges")],
    "layout": [("    total = 1.0\n", "    total = (\n        1.0\n    )\n")],
}
CHANGES = {
    "a swapped local": ("total + by * largest", "largest + by * total", "area"),
    "another local": ("[total, by,", "[largest, by,", "area"),
    "a local instead of an outer name": ("by, SCALE]", "by, by]", "area"),
    "a local that hides an outer name": ("total = 1.0", "SCALE = total = 1.0", "area"),
    "a nonlocal that becomes local": ("nonlocal total", "total = 0.0", "area"),
    "a constant": ("SCALE = 2.0", "SCALE = 2", "SCALE = 2"),
    "a constant in a function": ("radius**2", "radius**3", "area"),
    "a parameter by keyword": ("unit: str", "units: str", "area"),
    "a parameter": ("radius", "r", "area"),
    "a default": ('"m"', '"cm"', "area"),
    "an annotation": ("unit: str", "unit: bytes", "area"),
    "a global": ("SCALE", "FACTOR", "area"),
    "an attribute": ("math.pi", "math.tau", "area"),
    "an operator": ("- total", "+ total", "area"),
    "a class variable": ("corners", "angles", "Shape"),
    "a text": (" corners", " angles", "Shape"),
    "the order": ("import math\n\nSCALE = 2.0", "SCALE = 2.0\nimport math", "order"),
}


@pytest.mark.parametrize("name", HARMLESS)
def test_prose_and_local_names_are_not_compared(name: str):
    text = SOURCE
    for old, new in HARMLESS[name]:
        assert old in text
        text = text.replace(old, new)
    assert differing(SOURCE, text) == []


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_noticed_and_named(name: str):
    old, new, where = CHANGES[name]
    assert old in SOURCE
    assert where in differing(SOURCE, SOURCE.replace(old, new))


def test_git_finds_the_files_that_changed(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch):
    def git(*arguments: str) -> None:
        settings = ("-c", "user.name=name", "-c", "user.email=name@example.org")
        subprocess.run(["git", *settings, *arguments], cwd=tmp_path, check=True, capture_output=True)

    git("init")
    for name in ("same", "prose", "moved", "changed", "gone"):
        (tmp_path / f"{name}.py").write_text(f"{SOURCE}\nNAME = {name!r}\n")
    git("add", ".")
    git("commit", "-m", "before")
    git("mv", "moved.py", "elsewhere.py")
    git("rm", "gone.py")
    (tmp_path / "prose.py").write_text(SOURCE.replace("The area", "Return the area") + "\nNAME = 'prose'\n")
    (tmp_path / "changed.py").write_text(SOURCE.replace("math.pi", "math.e") + "\nNAME = 'changed'\n")
    found = {"changed.py": ["area"], "elsewhere.py": [], "gone.py": ["removed"], "prose.py": []}
    assert compare("HEAD", folder=tmp_path) == found
    git("commit", "-a", "-m", "after")
    assert compare("HEAD~", "HEAD", tmp_path) == found

    monkeypatch.chdir(tmp_path)
    assert main(["HEAD~"]) == 1
    said = capsys.readouterr().out
    assert "changed.py: area\ngone.py: removed\n2 of 4 files differ" in said
    assert main(["HEAD"]) == 0
