"""Reading Fashion-MNIST: the idx format, where the files are looked for, and files of another content."""

from __future__ import annotations

import gzip

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curvebench.workloads import idx
from curvebench.workloads.data import DataDamaged, read_content
from curvebench.workloads.idx import FASHION, parse_idx, read_fashion
from curvebench.workloads.workload import DataMissing
from tests.made_images import idx_bytes


def images_of(count):
    return np.arange(count * 6, dtype=np.uint8).reshape(count, 2, 3)


@pytest.fixture
def nowhere(tmp_path, monkeypatch):
    """No files where Debian has them, and no folder named; gives where they would be."""
    monkeypatch.setattr(idx, "DEBIAN_FOLDER", tmp_path / "debian")
    monkeypatch.delenv("CURVEBENCH_DATA", raising=False)
    return tmp_path / "debian"


def fill(folder, names=FASHION.names):
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_bytes(gzip.compress(idx_bytes(images_of(2)), mtime=0))


@given(st.lists(st.integers(0, 5), min_size=1, max_size=4), st.booleans(), st.integers(0, 100))
def test_what_is_written_is_read(tmp_path_factory, shape, compressed, seed):
    array = np.random.default_rng(seed).integers(0, 256, shape, np.uint8)
    path = tmp_path_factory.mktemp("idx") / ("some-idx-ubyte.gz" if compressed else "some-idx-ubyte")
    path.write_bytes(gzip.compress(idx_bytes(array)) if compressed else idx_bytes(array))
    found = parse_idx(read_content(path))
    assert found.dtype == np.uint8
    assert np.array_equal(found, array)
    assert found.shape == tuple(shape)


def test_missing_files_name_the_folder_the_files_and_the_remedy(nowhere):
    said = FASHION.missing()
    assert said is not None
    for text in (
        *FASHION.names,
        f"looked in {nowhere})",
        "apt-get install dataset-fashion-mnist",
        "CURVEBENCH_DATA",
    ):
        assert text in said
    assert FASHION.paths() == ()
    with pytest.raises(DataMissing, match="dataset-fashion-mnist"):
        read_fashion("train")


def test_the_named_folder_counts_before_debians_and_its_subfolder_before_itself(
    nowhere, tmp_path, monkeypatch
):
    fill(nowhere)
    assert [path.parent for path in FASHION.paths()] == [nowhere] * 4
    monkeypatch.setenv("CURVEBENCH_DATA", str(tmp_path / "own"))
    assert [path.parent for path in FASHION.paths()] == [nowhere] * 4
    fill(tmp_path / "own")
    assert [path.parent for path in FASHION.paths()] == [tmp_path / "own"] * 4
    fill(tmp_path / "own" / "fashion-mnist")
    assert [path.parent for path in FASHION.paths()] == [tmp_path / "own" / "fashion-mnist"] * 4
    assert FASHION.missing() is None


def test_files_of_another_set_are_not_passed_off_as_fashion_mnist(nowhere):
    fill(nowhere)
    with pytest.raises(DataDamaged) as caught:
        read_fashion("test")
    assert f"{nowhere / 't10k-images-idx3-ubyte.gz'}: is not the file of Fashion-MNIST" in str(caught.value)


def test_the_real_files_hold_what_is_published_of_them(fashion_mnist):
    for part, count in {"train": 60_000, "test": 10_000}.items():
        images, labels = read_fashion(part)
        assert images.shape == (count, 28, 28)
        assert labels.shape == (count,)
        assert images.dtype == labels.dtype == np.uint8
        assert (images.min(), images.max()) == (0, 255)
        assert np.array_equal(np.bincount(labels), [count // 10] * 10)
    # The first test images: an ankle boot, a pullover, two trousers.
    assert list(labels[:4]) == [9, 2, 1, 1]
