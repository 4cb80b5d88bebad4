"""What all tests share: order, hypothesis profile, made images, a copy of the project, frozen files."""

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
# Workers side by side: threads of theirs would wait for each other. Read by libraries when they are imported.
for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NPROC"):
    os.environ.setdefault(variable, "1")
# XLA compiles for tests three times as fast where it hardly optimizes; `make test-all` lets it, as in runs,
# and so do the tests with `all_passes`
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
    " --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1",
)
# what a run, a build or a tool writes, by path from the root or by name
WRITTEN_PATHS = {
    "results/specs",
    "results/runs",
    "results/tables",
    "results/figures",
    "results/logs",
    "results/kernels",
    "results/checkpoints",
    "results/newcomers",
    "reports/site",
}
WRITTEN_NAMES = {"__pycache__", "build"}

# compilation makes the first example slow; a fixed order of examples makes a failure come back
settings.register_profile("curvebench", deadline=None, derandomize=True)
settings.load_profile("curvebench")


MOST_SHOWN = 60  # differing lines of a frozen file in a message


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update", action="store_true", help="rewrite the frozen files that tests compare with")


@pytest.fixture
def frozen(request: pytest.FixtureRequest) -> Callable[[Path, str], None]:
    """Compare a text with its frozen file line by line; with `--update` write the file instead."""

    def compare(file: Path, text: str) -> None:
        if request.config.getoption("--update"):
            file.write_text(text)
        before = file.read_text().splitlines() if file.exists() else []
        changed = difflib.unified_diff(before, text.splitlines(), "frozen", "now", lineterm="", n=0)
        if shown := [*islice(changed, MOST_SHOWN)]:
            remedy = f"if this change is meant: python -m pytest --update -m '' {request.node.nodeid}"
            pytest.fail("\n".join([f"{file.relative_to(ROOT)} has changed; {remedy}", *shown]), pytrace=False)

    return compare


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """On a worker: files with slow tests first, so that none of them is begun when the others are done."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        slow = {item.path for item in items if item.get_closest_marker("slow")}
        slow |= {item.path for item in items if item.get_closest_marker("long")}
        sizes = Counter(item.path for item in items)
        items.sort(key=lambda item: (item.path not in slow, -sizes[item.path], item.path))


@pytest.fixture(scope="module", autouse=True)
def imported() -> None:
    """What is there by now mostly stays: the garbage collector need not go through it again and again."""
    gc.collect()
    gc.freeze()


@dataclass(frozen=True)
class RealImages:
    """Where this machine has Fashion-MNIST, if it does, and the checksums of the real files.

    Args:
        debian_folder: where the Debian package puts the files.
        named_folder: the user's `CURVEBENCH_DATA`; empty where it is not set.
        checksums: the SHA-256 of each file's content, by part and name.
    """

    debian_folder: Path
    named_folder: str
    checksums: Mapping[str, Mapping[str, str]]


@pytest.fixture(scope="session", autouse=True)
def real_images(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealImages]:
    """Put made images in the place of Fashion-MNIST, hide the machine's own files, and give where those are.

    So the tests do the same on every machine, whether Fashion-MNIST is installed or not. The made images are
    in the folder that `CURVEBENCH_DATA` names. Child processes find them there too and refuse them, because
    only in the tests' own process are the accepted checksums those of the made images.
    """
    from curvebench.workloads import data, fashion
    from tests.made_images import write_images

    folder = tmp_path_factory.mktemp("data")
    real = RealImages(fashion.DEBIAN_FOLDER, os.environ.get(data.FOLDER_VARIABLE, ""), fashion.CONTENTS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fashion, "DEBIAN_FOLDER", folder / "nowhere")
        patch.setattr(fashion, "CONTENTS", write_images(folder / fashion.SUBFOLDER, real.checksums))
        patch.setenv(data.FOLDER_VARIABLE, str(folder))
        yield real


@pytest.fixture(scope="session", autouse=True)
def rules_checked_once() -> Iterator[None]:
    """Have `curvebench check` take the steps of each rule of the project once in the tests' process."""
    from curvebench.engine import lanes

    check, checked = lanes.check_lanes, dict[int, Any]()

    def once(rule: Any) -> None:
        if checked.get(id(rule)) is not rule:
            check(rule)
            checked[id(rule)] = rule

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lanes, "check_lanes", once)
        yield


def skip(reason: str) -> NoReturn:
    """Skip a test of something that a machine need not have, or fail it where `.ci/run` has installed it.

    Args:
        reason: names what is absent and how to install it.
    """
    (pytest.fail if os.environ.get("ALL_INSTALLED") else pytest.skip)(reason)


def ignored(folder: str, names: list[str]) -> set[str]:
    at = Path(folder).relative_to(ROOT)
    return {
        name
        for name in names
        if name in WRITTEN_NAMES
        or (at / name).as_posix() in WRITTEN_PATHS
        or (name.startswith(".") and name not in {".ci", ".gitignore"})
        or name.endswith(".egg-info")
    }


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of the project's sources, without its environment, its history and what runs wrote."""
    copy = tmp_path / "curvebench"
    shutil.copytree(ROOT, copy, ignore=ignored, symlinks=True)
    return copy


@pytest.fixture
def activated() -> dict[str, str]:
    """The variables of a shell in which the environment is activated and modules come from the folder.

    Of the project's own variables it has the folder of data alone, which is that of the made images.
    """
    kept = {name for name in os.environ if not name.startswith("CURVEBENCH_")} | {"CURVEBENCH_DATA"}
    activated = {name: os.environ[name] for name in kept}
    activated["PATH"] = f"{Path(sys.executable).parent}:{activated['PATH']}"
    activated["PYTHONPATH"] = "."
    return activated


@pytest.fixture
def all_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """XLA optimizes as in runs, in the processes that the test starts."""
    monkeypatch.setenv("XLA_FLAGS", "")
