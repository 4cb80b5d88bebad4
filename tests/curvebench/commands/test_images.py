"""`curvebench images`: index and decoded images of a folder, and what is wrong told with its remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from curvebench.__main__ import main
from curvebench.workloads.images.decoded import decoded_file
from curvebench.workloads.images.folders import index_file, read_index
from tests.workloads.images.photographs import damaged, index_of, write, write_set


def test_a_folder_is_indexed_and_damage_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    folder = write(write_set(tmp_path / "woof"), {"train/n00/cut.JPEG": damaged()["cut"]})
    assert main(["images", "index", str(folder), "--threads", "2"]) == 0
    named, summary = capsys.readouterr().out.splitlines()
    assert named.startswith(f"damaged: {folder}/train/n00/cut.JPEG: ")
    assert summary == f"{tmp_path}/woof.index.csv: 19 images of 2 classes, 1 of them damaged"
    assert read_index(index_file(folder)) == index_of(folder)


def test_the_index_of_a_link_lies_beside_the_link(tmp_path: Path):
    """So that a folder that may not be written to can have one."""
    write_set(tmp_path / "shared" / "woof")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "woof").symlink_to(tmp_path / "shared" / "woof")
    assert main(["images", "index", str(tmp_path / "mine" / "woof")]) == 0
    assert [path.name for path in (tmp_path / "shared").iterdir()] == ["woof"]
    assert (tmp_path / "mine" / "woof.index.csv").is_file()


def test_images_are_decoded_whole_or_not_at_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    folder = write_set(tmp_path / "woof")
    main(["images", "index", str(folder)])
    path = folder / "train" / "n01" / "3.JPEG"
    content = path.read_bytes()
    path.write_bytes(content + b"\0")
    assert main(["images", "decode", str(folder)]) == 2
    assert f"{path}: has changed since it was indexed" in capsys.readouterr().err
    assert sorted(one.name for one in tmp_path.iterdir()) == ["woof", "woof.index.csv"]
    path.write_bytes(content)
    assert main(["images", "decode", str(folder)]) == 0
    pixels = sum(line.height * line.width for line in index_of(folder))
    assert decoded_file(folder).stat().st_size == 3 * pixels


def test_a_folder_without_an_index_names_the_remedy(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    folder = write_set(tmp_path / "woof")
    assert main(["images", "decode", str(folder)]) == 2
    assert f"run `curvebench images index {folder}`" in capsys.readouterr().err
