"""The real Fashion-MNIST, for tests of published facts about it, and a folder for the file of novels."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from curvebench.workloads import austen, fashion
from curvebench.workloads.data import FOLDER_VARIABLE
from tests.conftest import RealImages, skip


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
    """Return the folder in which the file of the novels is searched, where the test may write it."""
    monkeypatch.setattr(austen, "DEBIAN_FOLDER", tmp_path / "nowhere")
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    return tmp_path / austen.SUBFOLDER
