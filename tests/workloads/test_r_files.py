"""Reading of R's data files: numbers, strings, factors and tables, in all compressions."""

from __future__ import annotations

import bz2
from typing import Any

import numpy as np
import pytest

from curvebench.workloads.data import DataDamaged
from curvebench.workloads.r_files import named, read_rda, read_rdb
from tests.made_r_files import Writer, header, write_rda, write_rdb

TABLE: dict[str, Any] = {
    "real": np.array([1.5, -2.0, np.nan]),
    "whole": np.array([3, -1, 2**30], np.int32),
    "kind": (np.array([1, 2, 1]), ["a", "ü"]),
    "other": (np.array([2, 2, 1]), ["b", "c"]),
}


def check(value):
    columns = named(value)
    assert list(columns) == list(TABLE)
    np.testing.assert_array_equal(columns["real"].values, TABLE["real"])
    np.testing.assert_array_equal(columns["whole"].values, TABLE["whole"])
    for name in ("kind", "other"):
        codes, levels = TABLE[name]
        np.testing.assert_array_equal(columns[name].values, codes)
        assert columns[name].attributes["levels"].values == levels
    assert columns["real"].values.dtype == np.float64


@pytest.mark.parametrize("version", [2, 3])
def test_a_table_is_read_from_a_file_of_its_own(version, tmp_path):
    write_rda(tmp_path / "x.rda", {"first": ["one", ""], "table": TABLE}, version)
    check(read_rda(tmp_path / "x.rda", "table"))
    assert read_rda(tmp_path / "x.rda", "first").values == ["one", ""]


def test_files_may_be_compressed_by_bzip2_or_not_at_all(tmp_path):
    content = b"RDX2\n" + header(2) + Writer().pairs({"table": TABLE})
    for packed in (content, bz2.compress(content)):
        (tmp_path / "x.rda").write_bytes(packed)
        check(read_rda(tmp_path / "x.rda", "table"))


@pytest.mark.parametrize("raw_lzma", [True, False])
def test_a_table_is_read_from_the_objects_of_a_package(raw_lzma, tmp_path):
    write_rdb(tmp_path, {"lines": ["It is a truth", "universally"], "table": TABLE}, raw_lzma)
    paths = tmp_path / "Rdata.rdx", tmp_path / "Rdata.rdb"
    check(read_rdb(*paths, "table"))
    assert read_rdb(*paths, "lines").values == ["It is a truth", "universally"]
    with pytest.raises(DataDamaged, match="KeyError"):
        read_rdb(*paths, "none")


@pytest.mark.parametrize("content", [b"", b"RDX3\nX\n", b"text", b"RDX2\n" + header(2) + b"\0\0\0\x63"])
def test_a_damaged_file_is_named(content, tmp_path):
    (tmp_path / "x.rda").write_bytes(content)
    with pytest.raises(DataDamaged, match=r"x\.rda: cannot be read .*; install its package again"):
        read_rda(tmp_path / "x.rda", "table")
