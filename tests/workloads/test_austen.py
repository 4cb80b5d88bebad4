"""The reader of Jane Austen's novels, on short texts and on the real file where it is installed."""

from __future__ import annotations

import pytest

from curvebench.workloads.austen import AUSTEN, NOVELS, read_austen
from curvebench.workloads.data import FOLDER_VARIABLE, DataDamaged
from curvebench.workloads.workload import DataMissing
from tests.conftest import RealImages, skip
from tests.workloads.novels import as_object, write_objects

TEXTS = [[f"A novel, {number}", "", "£5 and “7”"][: number % 4] for number in range(6)]


def test_lines_of_each_novel_are_read(novels_folder):
    write_objects(novels_folder, map(as_object, TEXTS))
    assert read_austen() == dict(zip(NOVELS, TEXTS, strict=True))
    assert AUSTEN.missing() is None


@pytest.mark.parametrize(
    ("objects", "said"),
    [
        ([as_object(text) for text in TEXTS[:5]], "shorter"),
        ([as_object(text, kind=13) for text in TEXTS], "not a vector of strings"),
        ([as_object(text)[:-30] for text in TEXTS], "Rdata.rdb"),
        (
            [as_object(text).replace(b"\x00\x04\x00\x09", b"\x00\x04\x00\x0a") for text in TEXTS],
            "not a string",
        ),
    ],
)
def test_another_file_is_refused_with_its_path(novels_folder, objects, said):
    path = write_objects(novels_folder, objects)
    with pytest.raises(DataDamaged, match=said) as error:
        read_austen()
    assert str(path) in str(error.value)


def test_a_damaged_file_is_refused(novels_folder):
    path = write_objects(novels_folder, map(as_object, TEXTS))
    path.write_bytes(path.read_bytes()[:-5] + b"12345")
    with pytest.raises(DataDamaged, match="fetch it again"):
        read_austen()


def test_a_missing_file_is_named_with_the_package(novels_folder):
    with pytest.raises(DataMissing, match=r"needs Rdata\.rdb .*apt-get install r-cran-janeaustenr"):
        read_austen()


def test_the_real_novels_have_four_million_characters(monkeypatch, real_images: RealImages):
    monkeypatch.setenv(FOLDER_VARIABLE, real_images.named_folder)
    if missing := AUSTEN.missing():
        skip(f"a fact about the real file: {missing}")
    lines = read_austen()
    assert {name: len(text) for name, text in lines.items()} == dict(
        zip(NOVELS, (16235, 15349, 7856, 8328, 13030, 12624), strict=True)
    )
    text = "\n".join(line for novel in lines.values() for line in novel)
    assert (len(text), len(set(text))) == (4_025_027, 81)
    assert "It is a truth universally acknowledged, that a single man in possession" in text
