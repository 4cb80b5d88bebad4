"""Images as a data source: what is fetched, damage that is named and counted, decoded images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from curvebench.workloads.data import DataDamaged
from curvebench.workloads.images.decoded import decoded_file, write_decoded
from curvebench.workloads.images.decoding import centre_crop, decode, five_crops, random_box, resized_crop
from curvebench.workloads.images.folders import IndexedImage, index_file, index_text, read_index
from curvebench.workloads.images.source import ImageSource, image_sources
from tests.workloads.images.photographs import damaged, index_of, write, write_set

SIDE, SHORTER = 16, 20
CLASSES = ("n00", "n01")


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def source(folder: Path, lines: list[IndexedImage], **changes: Any) -> ImageSource:
    """Return the training images of a folder."""
    chosen = [line for line in lines if line.split == "train"]
    given: dict[str, Any] = {"classes": CLASSES, "side": SIDE, "shorter": SHORTER, **changes}
    return ImageSource(folder, chosen, **given)


def same(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)


# --- what is fetched -----------------------------------------------------------------------------


def test_training_sees_a_random_crop_and_evaluation_the_whole(tmp_path: Path):
    lines = index_of(write_set(tmp_path))
    image = decode((tmp_path / "train/n01/2.JPEG").read_bytes())
    made = source(tmp_path, lines)
    assert len(made) == 12
    seen = made.fetch(8, generator())
    box = random_box(image.height, image.width, generator())
    assert np.array_equal(seen["images"], resized_crop(image, box, SIDE))
    assert seen["labels"] == 1
    assert np.array_equal(made.fetch(8, None)["images"], centre_crop(image, SHORTER, SIDE))
    five = source(tmp_path, lines, crops="five").fetch(8, None)["images"]
    assert np.array_equal(five, five_crops(image, SHORTER, SIDE))
    assert not made.notes


@pytest.mark.parametrize("crops", ["centre", "five"])
@pytest.mark.parametrize("is_training", [True, False])
def test_the_placeholder_has_the_shapes_of_what_is_fetched(crops: str, is_training: bool, tmp_path: Path):
    made = source(tmp_path, index_of(write_set(tmp_path)), crops=crops)
    like, seen = made.placeholder(is_training), made.fetch(0, generator() if is_training else None)
    assert {name: (np.shape(one), np.asarray(one).dtype) for name, one in seen.items()} == {
        name: (one.shape, one.dtype) for name, one in like.items()
    }


def test_labels_are_places_among_the_chosen_classes(tmp_path: Path):
    lines = index_of(write_set(tmp_path, classes=4))
    made = source(tmp_path, lines, classes=("n01", "n03"))
    assert [int(made.fetch(number, None)["labels"]) for number in range(len(made))] == [0] * 6 + [1] * 6


# --- damage --------------------------------------------------------------------------------------


def test_images_damaged_in_the_index_are_left_out_and_counted(tmp_path: Path):
    write(write_set(tmp_path), {f"train/n00/{name}.JPEG": content for name, content in damaged().items()})
    made = source(tmp_path, index_of(tmp_path), damaged_share=0.2)
    assert len(made) == 12
    (note,) = made.notes
    assert note.startswith("3 of 15 images are left out: train/n00/cut.JPEG (")
    assert "train/n00/empty.JPEG (is no image)" in note


def test_an_image_that_is_lost_is_named_and_the_next_takes_its_place(tmp_path: Path):
    lines = index_of(write_set(tmp_path))
    made = source(tmp_path, lines, damaged_share=0.2)
    (tmp_path / "train/n00/5.JPEG").unlink()
    (tmp_path / "train/n01/0.JPEG").write_bytes(b"no")
    assert same(made.fetch(5, generator()), made.fetch(7, generator())), "so is the one after it"
    assert made.fetch(5, None)["labels"] == 1, "its own label"
    lost, changed = made.notes
    assert lost.startswith("train/n00/5.JPEG (No such file or directory) could not be read")
    assert "train/n01/0.JPEG (2 bytes where the index has" in changed
    assert same(made.fetch(11, None), source(tmp_path, lines).fetch(11, None)), "others are what they were"


def test_more_damage_than_the_share_is_an_error_that_names_it(tmp_path: Path):
    made = source(tmp_path, index_of(write_set(tmp_path)), damaged_share=0.1)
    for number in (0, 1):
        (tmp_path / f"train/n00/{number}.JPEG").unlink()
    with pytest.raises(DataDamaged, match=r"2 of 12 images .*0.1: .*0.JPEG"):
        made.fetch(0, None)


def test_an_index_with_too_much_damage_is_refused_before_anything_is_fetched(tmp_path: Path):
    write(write_set(tmp_path), {"train/n00/cut.JPEG": damaged()["cut"]})
    with pytest.raises(DataDamaged, match=r"1 of 13 images cannot be read, more than a share of 0\.01"):
        source(tmp_path, index_of(tmp_path))


# --- a folder with its index -----------------------------------------------------------------------


@pytest.fixture
def indexed(tmp_path: Path) -> Path:
    """Return a folder with an index, and an image that is damaged."""
    folder = write(write_set(tmp_path / "set", classes=3), {"train/n00/cut.JPEG": damaged()["cut"]})
    index_file(folder).write_text(index_text(index_of(folder)))
    return folder


def decode_all(folder: Path) -> Path:
    path = decoded_file(folder)
    with path.open("wb") as file:
        write_decoded(file, folder, read_index(index_file(folder)))
    return path


def sources(folder: Path) -> dict[str, ImageSource]:
    return image_sources(folder, lambda names: names[:2], side=SIDE, shorter=SHORTER, damaged_share=0.1)


def test_a_folder_gives_a_source_a_split_with_the_chosen_classes(indexed: Path):
    assert {name: (len(one), one.classes) for name, one in sources(indexed).items()} == {
        "train": (12, list(CLASSES)),
        "validation": (6, list(CLASSES)),
    }


def test_classes_that_were_drawn_are_named_once(indexed: Path):
    drawn = image_sources(indexed, lambda names: names[1:], side=SIDE, shorter=SHORTER, damaged_share=0.5)
    found = {split: [note for note in one.notes if "classes" in note] for split, one in drawn.items()}
    assert found == {"train": ["2 of 3 classes: n01, n02"], "validation": []}
    whole = image_sources(indexed, side=SIDE, shorter=SHORTER, damaged_share=0.5)
    assert not [note for one in whole.values() for note in one.notes if "classes" in note]


def test_from_decoded_images_the_pixels_are_equal(indexed: Path):
    expected = [sources(indexed)["train"].fetch(number, generator(number)) for number in range(12)]
    assert decode_all(indexed).parent == indexed.parent
    for path in indexed.rglob("*.JPEG"):
        path.unlink()
    cached = sources(indexed)["train"]
    assert all(same(cached.fetch(number, generator(number)), one) for number, one in enumerate(expected))
    assert not [note for note in cached.notes if "could not be read" in note]


def test_decoded_images_of_another_index_are_not_taken(indexed: Path):
    before = decode_all(indexed)
    write(indexed, {"train/n00/0.JPEG": (indexed / "train/n01/0.JPEG").read_bytes()})
    index_file(indexed).write_text(index_text(index_of(indexed)))
    assert decoded_file(indexed) != before


def test_a_file_that_changed_is_not_decoded_into_the_cache(indexed: Path):
    write(indexed, {"train/n00/0.JPEG": (indexed / "train/n01/0.JPEG").read_bytes()})
    with pytest.raises(DataDamaged, match=r"n00/0\.JPEG: has changed since it was indexed"):
        decode_all(indexed)


def test_half_a_file_of_decoded_images_is_refused(indexed: Path):
    decoded_file(indexed).write_bytes(b"\0" * 1000)
    with pytest.raises(DataDamaged, match="has 1000 bytes where the index has"):
        sources(indexed)
