"""The wheel, built and installed into a folder of its own, works where there is no checkout."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import ROOT, ignored

Outside = Callable[..., str]
PIP = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder into which pip installed the wheel that it built from a copy of the sources."""
    folder = tmp_path_factory.mktemp("wheel")
    shutil.copytree(ROOT, folder / "sources", ignore=ignored, symlinks=True)
    build = [*PIP, "install", "--no-deps", "--no-build-isolation", "--target", str(folder / "site"), "."]
    subprocess.run(build, cwd=folder / "sources", check=True)
    return folder / "site"


@pytest.fixture
def outside(installed: Path, tmp_path: Path) -> Outside:
    """Run Python with the installed wheel in an empty folder; returns what it prints."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CURVEBENCH_")}
    environment |= {"PYTHONPATH": str(installed), "XLA_FLAGS": ""}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"

    def run(*arguments: str) -> str:
        command = [sys.executable, *arguments]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_it_brings_one_name(installed: Path):
    packages = [path.name for path in installed.iterdir() if path.is_dir() and "-" not in path.name]
    assert sorted(packages) == ["bin", "curvebench"]


def test_import_version_names_sets_verdicts_and_studies(installed: Path, outside: Outside, tmp_path: Path):
    program = "import curvebench as c; print(c.__file__, c.__version__, len([*map(c.load, c.published())]))"
    file, version, sets = outside("-c", program).split()
    assert Path(file).is_relative_to(installed)
    assert int(sets) > 10
    assert outside("-m", "curvebench", "--version").split() == ["curvebench", version]
    assert "digits_mlp" in outside("-m", "curvebench", "list")
    decided = outside("-m", "curvebench", "verdicts", "egop.convex", "--only", "source")
    assert "egop.convex" in decided, "papers are in the wheel"
    (tmp_path / "studies").mkdir()
    (tmp_path / "studies/mine.yaml").write_text("like: convex\nclaims: []\n")
    assert "\n  mine on jax: " in outside("-m", "curvebench", "plan", "studies=mine")


@pytest.mark.long
def test_a_file_of_ones_own_is_tried_in_the_field(outside: Outside, tmp_path: Path):
    page = (ROOT / "docs/how-to/try-an-optimizer.md").read_text()
    (program, *_) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (tmp_path / "mine.py").write_text(program)
    said = outside("-m", "curvebench", "try", "mine.py:Lion", "--problems", "least_squares", "--cores", "2")
    assert "on 1 of its 8 problems" in said
    assert (tmp_path / "results/submissions/field/torch-lion/site/study_field.html").is_file()
