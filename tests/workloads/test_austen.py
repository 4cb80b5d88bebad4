"""The reader of Jane Austen's novels, on short texts and on the real files where they are installed."""

from __future__ import annotations

import pytest

from curvebench.workloads.austen import AUSTEN, NOVELS, read_austen
from curvebench.workloads.data import FOLDER_VARIABLE, DataDamaged
from curvebench.workloads.workload import DataMissing
from tests.conftest import RealImages
from tests.made_r_files import write_novels

TEXTS = [[f"A novel, {number}", "", "£5 and “7”"][: number % 4] for number in range(6)]


def test_lines_of_each_novel_are_read(novels_folder):
    write_novels(novels_folder, TEXTS)
    assert read_austen() == dict(zip(NOVELS, TEXTS, strict=True))
    assert AUSTEN.missing() is None


def test_a_file_without_a_novel_and_a_damaged_file_are_refused_with_the_path(novels_folder):
    path = write_novels(novels_folder, TEXTS[:5])
    with pytest.raises(DataDamaged, match=r"Rdata\.rdx: cannot be read .*sensesensibility"):
        read_austen()
    path = write_novels(novels_folder, TEXTS)
    path.write_bytes(path.read_bytes()[:-5] + b"12345")
    with pytest.raises(DataDamaged, match="install its package again") as error:
        read_austen()
    assert str(path) in str(error.value)


def test_missing_files_are_named_with_the_package(novels_folder):
    with pytest.raises(DataMissing, match=r"needs Rdata\.rdx, Rdata\.rdb .*install r-cran-janeaustenr"):
        read_austen()


def test_the_real_novels_have_four_million_characters(monkeypatch, real_images: RealImages):
    monkeypatch.setenv(FOLDER_VARIABLE, real_images.named_folder)
    if missing := AUSTEN.missing():
        pytest.skip(f"a fact about the real file: {missing}")
    lines = read_austen()
    assert {name: len(text) for name, text in lines.items()} == dict(
        zip(NOVELS, (16235, 15349, 7856, 8328, 13030, 12624), strict=True)
    )
    assert sum(len(line) for text in lines.values() for line in text) > 3.9e6
