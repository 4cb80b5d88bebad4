"""Fixtures and hooks of all tests: order, hypothesis profile, synthetic images, a copy of the project, frozen
files.
"""

from __future__ import annotations

import difflib
import gc
import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NoReturn

import pytest
from hypothesis import settings

ROOT = Path(__file__).resolve().parent.parent
# Workers run in parallel, so that more than one thread each would slow them down. Libraries read these
# variables when they are imported.
for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NPROC"):
    os.environ.setdefault(variable, "1")
# With few optimizations, XLA compiles the tests' programs three times as fast. `make test-all` and tests with
# the fixture `all_passes` use XLA's defaults, as runs do.
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
    " --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1",
)
# Outputs of runs, builds and tools, by path from the root or by name.
WRITTEN_PATHS = {
    "results/specs",
    "results/runs",
    "results/tables",
    "results/figures",
    "results/logs",
    "results/kernels",
    "results/checkpoints",
    "results/submissions",
    "reports/site",
}
WRITTEN_NAMES = {"__pycache__", "build"}

# Compilation makes the first example slow, so that there is no deadline. A fixed order of examples makes
# failures reproducible.
settings.register_profile("curvebench", deadline=None, derandomize=True)
settings.load_profile("curvebench")


# Maximum number of differing lines of a frozen file in a message.
MOST_SHOWN = 60


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update", action="store_true", help="rewrite the frozen files that tests compare with")


@pytest.fixture
def frozen(request: pytest.FixtureRequest) -> Callable[[Path, str], None]:
    """Compare a text with its frozen file line by line; with `--update` write the file instead."""

    def compare(file: Path, text: str) -> None:
        if request.config.getoption("--update"):
            file.write_text(text)
        old = file.read_text().splitlines() if file.exists() else []
        difference = difflib.unified_diff(old, text.splitlines(), "frozen", "now", lineterm="", n=0)
        if lines := [*islice(difference, MOST_SHOWN)]:
            remedy = f"if this change is meant: python -m pytest --update -m '' {request.node.nodeid}"
            pytest.fail("\n".join([f"{file.relative_to(ROOT)} has changed; {remedy}", *lines]), pytrace=False)

    return compare


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start files with slow tests first, so that no slow test begins on a worker when all others are done."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        slow = {item.path for item in items if item.get_closest_marker("slow")}
        slow |= {item.path for item in items if item.get_closest_marker("long")}
        sizes = Counter(item.path for item in items)
        items.sort(key=lambda item: (item.path not in slow, -sizes[item.path], item.path))


@pytest.fixture(scope="module", autouse=True)
def imported() -> None:
    """Exclude all objects that exist by now from garbage collection, since most of them stay."""
    gc.collect()
    gc.freeze()


@dataclass(frozen=True)
class RealImages:
    """Location of Fashion-MNIST on this machine, and checksums of the real files.

    Args:
        debian_folder: folder in which the Debian package installs the files.
        named_folder: the user's `CURVEBENCH_DATA`; empty if it is not set.
        checksums: SHA-256 of each file's content, by part and name.
    """

    debian_folder: Path
    named_folder: str
    checksums: Mapping[str, Mapping[str, str]]


@pytest.fixture(scope="session", autouse=True)
def real_images(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealImages]:
    """Replace Fashion-MNIST by synthetic images, and return where the real files are.

    Tests then do the same on every machine, whether Fashion-MNIST is installed or not. The synthetic images
    are in the folder that `CURVEBENCH_DATA` names. Child processes find them there and reject them, because
    only the tests' own process accepts the checksums of the synthetic images.
    """
    from curvebench.engine import first_evaluation
    from curvebench.workloads import data, fashion
    from tests.made_images import write_images

    folder = tmp_path_factory.mktemp("data")
    real = RealImages(fashion.DEBIAN_FOLDER, os.environ.get(data.FOLDER_VARIABLE, ""), fashion.CONTENTS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fashion, "DEBIAN_FOLDER", folder / "nowhere")
        patch.setattr(fashion, "CONTENTS", write_images(folder / fashion.SUBFOLDER, real.checksums))
        patch.setenv(data.FOLDER_VARIABLE, str(folder))
        # `curvebench check` would report that problems with synthetic images start elsewhere.
        patch.setattr(first_evaluation, "check_start", lambda workload: None)
        yield real


@pytest.fixture(scope="session", autouse=True)
def made_r_packages(real_images: RealImages) -> Iterator[None]:
    """Write small files in place of the data of R packages to the folder that `CURVEBENCH_DATA` names."""
    from curvebench.workloads import data, tables
    from tests.made_r_files import LINES, write_novels, write_tables

    folder = Path(os.environ[data.FOLDER_VARIABLE])
    write_novels(folder / "janeaustenr", [LINES] * 6)
    with pytest.MonkeyPatch.context() as patch:
        for name, table in write_tables(folder).items():
            patch.setitem(tables.TABLES, name, table)
        yield


@pytest.fixture(scope="session", autouse=True)
def rules_checked_once() -> Iterator[None]:
    """Make `curvebench check` take the steps of each built-in rule only once in the tests' process."""
    from curvebench.engine import lanes

    check, done = lanes.check_lanes, dict[int, Any]()

    def once(rule: Any) -> None:
        if done.get(id(rule)) is not rule:
            check(rule)
            done[id(rule)] = rule

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lanes, "check_lanes", once)
        yield


def skip(reason: str) -> NoReturn:
    """Skip a test that needs optional software, or fail it where `.ci/run` has installed everything.

    Args:
        reason: the missing software, and how to install it.
    """
    (pytest.fail if os.environ.get("ALL_INSTALLED") else pytest.skip)(reason)


def ignored(folder: str, names: list[str]) -> set[str]:
    relative = Path(folder).relative_to(ROOT)
    return {
        name
        for name in names
        if name in WRITTEN_NAMES
        or (relative / name).as_posix() in WRITTEN_PATHS
        or (name.startswith(".") and name not in {".ci", ".gitignore"})
        or name.endswith(".egg-info")
    }


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a copy of the project's sources, without environment, history and results."""
    copy = tmp_path / "curvebench"
    shutil.copytree(ROOT, copy, ignore=ignored, symlinks=True)
    return copy


@pytest.fixture
def activated() -> dict[str, str]:
    """Return the environment variables of a shell with the activated environment, importing from the working
    folder.

    `CURVEBENCH_DATA`, the folder of the synthetic images, is the only variable of the project.
    """
    names = {name for name in os.environ if not name.startswith("CURVEBENCH_")} | {"CURVEBENCH_DATA"}
    activated = {name: os.environ[name] for name in names}
    activated["PATH"] = f"{Path(sys.executable).parent}:{activated['PATH']}"
    activated["PYTHONPATH"] = "."
    return activated


@pytest.fixture
def all_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let XLA optimize as in runs, in processes that the test starts."""
    monkeypatch.setenv("XLA_FLAGS", "")
