"""The real Fashion-MNIST and data of R packages, for tests of facts about them; a folder for novels."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from curvebench.workloads import fashion, r_files, tables
from curvebench.workloads.data import FOLDER_VARIABLE
from tests.conftest import RealImages, skip

REAL_TABLES = dict(tables.TABLES)


@pytest.fixture
def r_packages(real_images: RealImages, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a test read the real data of R packages, if they are installed."""
    monkeypatch.setenv(FOLDER_VARIABLE, real_images.named_folder)
    for name, table in REAL_TABLES.items():
        monkeypatch.setitem(tables.TABLES, name, table)


@pytest.fixture
def fashion_mnist(real_images: RealImages, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let a test read the real files, or skip it with the remedy if they are not installed."""
    monkeypatch.setattr(fashion, "DEBIAN_FOLDER", real_images.debian_folder)
    monkeypatch.setattr(fashion, "CONTENTS", real_images.checksums)
    monkeypatch.setenv(FOLDER_VARIABLE, real_images.named_folder)
    missing = fashion.FASHION.missing()
    if missing:
        skip(f"a fact about the real files: {missing}")
    fashion._examples.cache_clear()  # examples of the synthetic images may be cached
    yield
    fashion._examples.cache_clear()


@pytest.fixture
def novels_folder(tmp_path, monkeypatch):
    """Return the folder in which the files of the novels are searched, where the test may write them."""
    monkeypatch.setattr(r_files, "LIBRARY", tmp_path / "nowhere")
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    return tmp_path / "janeaustenr"
