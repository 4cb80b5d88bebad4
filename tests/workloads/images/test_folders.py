"""Folders of images and their index: layouts, labels, sizes, checksums, damage."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from curvebench.workloads.data import FOLDER_VARIABLE, DataDamaged
from curvebench.workloads.images import folders
from tests.workloads.images.photographs import damaged, encoded, index_of, piece, unusual, write, write_set

CLASSES = ("n01440764", "n01443537")
FLAT = [f"ILSVRC2012_val_{number:08d}" for number in (1, 2, 3)]
OF_FLAT = [CLASSES[1], CLASSES[0], CLASSES[1]]


@pytest.fixture
def imagenet(tmp_path: Path) -> Path:
    """Return a set as ImageNet-1k's archives unpack: validation images lie in one folder."""
    content = encoded(piece(0))
    train = {f"train/{name}/{name}_{number}.JPEG": content for name in CLASSES for number in (18, 7)}
    return write(tmp_path / "imagenet", {**train, **{f"val/{name}.JPEG": content for name in FLAT}})


# --- layouts -------------------------------------------------------------------------------------


def test_the_usual_layout_is_listed_sorted_and_other_files_are_not(tmp_path: Path):
    folder = write_set(tmp_path / "woof", train=2, validation=1)
    write(
        folder,
        {"noisy.csv": b"", "train/.DS_Store": b"", "train/n00/._0.JPEG": b"", "train/n00/readme.txt": b""},
    )
    assert folders.listed(folder) == [
        ("train", "n00", "train/n00/0.JPEG"),
        ("train", "n00", "train/n00/1.JPEG"),
        ("train", "n01", "train/n01/0.JPEG"),
        ("train", "n01", "train/n01/1.JPEG"),
        ("validation", "n00", "val/n00/0.JPEG"),
        ("validation", "n01", "val/n01/0.JPEG"),
    ]


def test_validation_images_have_their_classes_from_kaggles_file(imagenet: Path):
    lines = [f"{name},{category} 1 2 3 4" for name, category in zip(FLAT, OF_FLAT, strict=True)]
    (imagenet / folders.KAGGLE).write_text("\n".join(["ImageId,PredictionString", *lines]))
    assert sorted(one for one in folders.listed(imagenet) if one[0] == "validation") == sorted(
        ("validation", category, f"val/{name}.JPEG") for name, category in zip(FLAT, OF_FLAT, strict=True)
    )


def test_validation_images_have_their_classes_from_imagenets_own_kit(imagenet: Path):
    """A number an image, and the class of each number, among which are others that have children."""
    data = imagenet / "ILSVRC2012_devkit_t12" / "data"
    write(data, {folders.TRUTH: b"2\n1\n2\n"})
    kinds = [("ILSVRC2012_ID", int), ("WNID", object), ("num_children", int)]
    rows = [(1, CLASSES[0], 0), (2, CLASSES[1], 0), (1001, "n00001740", 2)]
    savemat(data / folders.META, {"synsets": np.array(rows, kinds)})
    found = {path: category for split, category, path in folders.listed(imagenet) if split == "validation"}
    assert found == {f"val/{name}.JPEG": category for name, category in zip(FLAT, OF_FLAT, strict=True)}


def test_validation_images_without_classes_are_refused_with_the_remedy(imagenet: Path):
    with pytest.raises(DataDamaged, match=f"{FLAT[0]}.JPEG: has no class.*{folders.KAGGLE}"):
        folders.listed(imagenet)


def test_a_folder_without_training_images_is_refused(tmp_path: Path):
    (tmp_path / "train").mkdir()
    with pytest.raises(DataDamaged, match="has no images; they are looked for in train/CLASS"):
        folders.listed(tmp_path)


def test_a_class_that_is_never_trained_on_is_refused(tmp_path: Path):
    folder = write_set(tmp_path)
    shutil.rmtree(folder / "train" / "n01")
    with pytest.raises(DataDamaged, match=r"val/n01/0.JPEG: validation has the class n01, and train has not"):
        folders.listed(folder)


# --- the index -----------------------------------------------------------------------------------


def test_an_index_has_size_checksum_pixels_and_damage_of_each_image(tmp_path: Path):
    files = {**unusual(), **damaged()}
    folder = write(tmp_path, {f"train/n,0/{name}.JPEG": content for name, content in files.items()})
    lines = folders.examined(folder, folders.listed(folder), threads=2)
    assert [line.path for line in lines] == sorted(f"train/n,0/{name}.JPEG" for name in files)
    for line in lines:
        content = files[Path(line.path).stem]
        assert line.size == len(content)
        assert line.checksum == hashlib.sha256(content).hexdigest()[:16]
        assert bool(line.damage) == (Path(line.path).stem in damaged())
    shapes = {Path(line.path).stem: (line.height, line.width) for line in lines if not line.damage}
    assert shapes == {name: (1, 1) if name == "one_pixel" else (45, 60) for name in unusual()}
    reasons = {Path(line.path).stem: line.damage for line in lines if line.damage}
    assert reasons["empty"] == reasons["text"] == "is no image"
    assert "truncated" in reasons["cut"]
    again = tmp_path / "index.csv"
    again.write_text(folders.index_text(lines))
    assert folders.read_index(again) == lines
    assert index_of(folder) == lines


def test_an_index_changes_with_a_byte_and_not_with_where_the_folder_lies(tmp_path: Path):
    one, other = (write_set(tmp_path / name) for name in ("one", "other"))
    text = folders.index_text(index_of(one))
    assert folders.index_text(index_of(other)) == text
    path = other / "train" / "n00" / "0.JPEG"
    path.write_bytes(path.read_bytes() + b"\0")
    assert folders.index_text(index_of(other)) != text


@pytest.mark.parametrize(
    "content", ["", "a,b\n", "split,category,path,size,checksum,height,width,damage\ntrain,n,p,many,c,1,1,\n"]
)
def test_what_is_no_index_is_refused_with_the_remedy(content: str, tmp_path: Path):
    path = tmp_path / "woof.index.csv"
    path.write_text(content)
    with pytest.raises(DataDamaged, match=r"is no index of images .*`curvebench images index .*/woof`"):
        folders.read_index(path)


def test_missing_folder_and_missing_index_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv(FOLDER_VARIABLE, raising=False)
    assert "which is not set, with train/, validation/, test/ in it: fetch it" in str(
        folders.missing_images("woof", "fetch it")
    )
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    assert f"needs a folder woof in {tmp_path}" in str(folders.missing_images("woof", "fetch it"))
    folder = write_set(tmp_path / "woof")
    assert str(folders.missing_images("woof", "")).endswith(f"run `curvebench images index {folder}`")
    assert folders.index_files("woof") == ()
    folders.index_file(folder).write_text(folders.index_text(index_of(folder)))
    assert folders.missing_images("woof", "") is None
    assert folders.index_files("woof") == (tmp_path / "woof.index.csv",), "what a job's hash covers"


# --- classes -------------------------------------------------------------------------------------


def test_classes_are_drawn_by_the_generator_alone():
    names = [f"n{number:08d}" for number in range(1000)]
    drawn = folders.drawn_classes(names, 25, np.random.default_rng(3))
    assert drawn == folders.drawn_classes(names, 25, np.random.default_rng(3))
    assert list(drawn) == sorted(set(drawn))
    assert len(drawn) == 25
    assert drawn != folders.drawn_classes(names, 25, np.random.default_rng(4))
    with pytest.raises(DataDamaged, match="26 classes are asked for, and there are 25"):
        folders.drawn_classes(drawn, 26, np.random.default_rng(0))
