"""Reading the UCI digits: the right values, and damaged files by name and line."""

from __future__ import annotations

import gzip

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curvebench.workloads.data import DataDamaged, read_optdigits, read_reduced_digits
from curvebench.workloads.workload import DataMissing

GOOD = ",".join(["3"] * 64 + ["7"])


@given(st.integers(1, 5), st.integers(0, 100), st.booleans())
def test_what_is_written_is_read(tmp_path_factory, rows, seed, compressed):
    generator = np.random.default_rng(seed)
    pixels, labels = generator.integers(0, 17, (rows, 64)), generator.integers(0, 10, rows)
    text = "\n".join(",".join(map(str, [*p, y])) for p, y in zip(pixels, labels, strict=True)) + "\n"
    path = tmp_path_factory.mktemp("digits") / ("digits.csv.gz" if compressed else "digits.csv")
    path.write_bytes(gzip.compress(text.encode()) if compressed else text.encode())
    found_pixels, found_labels = read_optdigits(path, rows)
    assert np.array_equal(found_pixels, pixels)
    assert np.array_equal(found_labels, labels)
    assert found_pixels.dtype.name == "float64"
    assert found_labels.dtype.name == "int64"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (f"{GOOD}\n{GOOD[:-2]}\n{GOOD}\n", "the number of columns changed from 65 to 64"),
        (f"{GOOD},1\n" * 3, "66 numbers in 3 lines where 65 are due"),
        (f"{GOOD}\n\n{GOOD}\n", "65 numbers in 2 lines"),
        (f"{GOOD}\n" * 2, "2 lines where 3 are due"),
        ("", "0 lines where 3 are due"),
        (f"{GOOD}\n{GOOD.replace('7', 'seven')}\n{GOOD}\n", "'seven'"),
        (f"{GOOD}\n17{GOOD[1:]}\n{GOOD}\n", "line 2: pixels must lie in 0..16"),
        (f"{GOOD}\n-1{GOOD[1:]}\n{GOOD}\n", "line 2: pixels must lie in 0..16"),
        (f"{GOOD}\n{GOOD[:-1]}10\n{GOOD}\n", "the label in 0..9"),
    ],
)
def test_a_damaged_file_is_named(tmp_path, content, message):
    path = tmp_path / "optdigits.tra"
    path.write_text(content)
    with pytest.raises(DataDamaged) as caught:
        read_optdigits(path, 3)
    assert str(caught.value).startswith(str(path))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "content",
    [gzip.compress(GOOD.encode(), mtime=0)[:-9], b"no gzip", b""],
    ids=["truncated", "no archive", "empty"],
)
def test_a_damaged_archive_is_named(tmp_path, content):
    path = tmp_path / "digits.csv.gz"
    path.write_bytes(content)
    with pytest.raises(DataDamaged, match=r"digits\.csv\.gz: cannot be read"):
        read_optdigits(path, 1)


def test_bytes_that_are_no_text_are_named(tmp_path):
    path = tmp_path / "optdigits.tra"
    path.write_bytes(b"\xff\xfe1,2")
    with pytest.raises(DataDamaged, match=r"optdigits\.tra: cannot be read"):
        read_optdigits(path, 1)


def test_scikit_learns_copy_is_read_as_scikit_learn_reads_it():
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    found_pixels, found_labels = read_reduced_digits()
    assert np.array_equal(found_pixels, pixels)
    assert np.array_equal(found_labels, labels)


def test_without_scikit_learn_the_remedy_is_named(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(DataMissing, match="pip install scikit-learn"):
        read_reduced_digits()
