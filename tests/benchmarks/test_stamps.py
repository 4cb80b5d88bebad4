"""The set of objects on photographs, from stand-ins for what the packages bring."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw

from curvebench.benchmarks import stamps
from curvebench.benchmarks.stamps import (
    CLASSES,
    MIN_PHOTOGRAPHS,
    PACKAGES,
    PHOTOGRAPHS,
    STAMPS,
    Packages,
    main,
    split_photographs,
)
from curvebench.workloads.images.folders import index_file, read_index

COUNTS = ("--train", "30", "--held-out", "26", "--side", "24")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Round objects of many colours, drawings, and photographs each of a red of its own."""
    folder = tmp_path_factory.mktemp("root")
    (folder / STAMPS / "animals" / "cartoon").mkdir(parents=True)
    (folder / PHOTOGRAPHS[1]).mkdir(parents=True)
    mask = Image.new("L", (110, 70))
    ImageDraw.Draw(mask).ellipse((0, 0, 109, 69), fill=255)
    for number in range(28):
        colours = np.random.default_rng(number).integers(60, 256, (70, 110, 3), dtype=np.uint8)
        stamp = Image.fromarray(colours)
        stamp.putalpha(mask)
        stamp.save(folder / STAMPS / "animals" / f"animal{number:02d}.png")
    stamp.save(folder / STAMPS / "animals" / "cartoon" / "drawn.png")
    Image.new("RGBA", (120, 120), "red").save(folder / STAMPS / "animals" / "flat.png")
    for number in range(10):
        ground = Image.new("RGB", (160, 120), (20 * number, 0, 0))
        ground.save(folder / PHOTOGRAPHS[number % 2] / f"photograph{number}.jpg", quality=100)
    return folder


@pytest.fixture(scope="module")
def made(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a set of stamp images."""
    folder = tmp_path_factory.mktemp("data") / "stamps"
    assert main([str(folder), *COUNTS, "--root", str(root)]) == 0
    return folder


def test_drawings_are_no_objects(root: Path):
    assert sorted(Packages(root).objects) == [f"animal{number:02d}" for number in range(28)]


def test_the_set_has_its_classes_in_the_folder_layout(made: Path):
    lines = read_index(index_file(made))
    counts = {split: sum(line.split == split for line in lines) for split in ("train", "validation", "test")}
    assert counts == {"train": 30, "validation": 26, "test": 26}
    assert len({line.category for line in lines if line.split == "train"}) == CLASSES
    assert {(line.height, line.width, line.damage) for line in lines} == {(24, 24, "")}


def test_held_out_images_have_other_photographs(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Corners are mostly of the photograph, which the stand-ins' red tells where it is not tinted."""
    monkeypatch.setattr(stamps, "TINT_FACTORS", (1.0, 1.0))
    made = tmp_path / "stamps"
    assert main([str(made), *COUNTS, "--root", str(root)]) == 0
    reds: dict[str, set[int]] = {}
    for path in made.rglob("*.JPEG"):
        pixels = np.asarray(Image.open(path), int)
        corners = pixels[[0, 0, -1, -1], [0, -1, 0, -1]]
        # Corners without green and blue do not belong to the object.
        whole = corners[(corners[:, 1:] < 12).all(axis=1), 0]
        values, often = np.unique(np.round(whole / 20).astype(int), return_counts=True)
        if often.size and often.max() >= 2:
            reds.setdefault(path.parts[-3], set()).add(int(values[often.argmax()]))
    assert min(map(len, reds.values())) >= 2
    assert not reds["train"] & (reds["val"] | reds["test"])
    assert not reds["val"] & reds["test"]


def test_photographs_are_split_whole_by_the_seed():
    names = [f"p{number}" for number in range(27)]
    found = split_photographs(names, 0)
    assert sorted(name for own in found.values() for name in own) == sorted(names)
    assert [len(own) for own in found.values()] == [16, 5, 6]
    assert found == split_photographs(names[::-1], 0)
    assert found != split_photographs(names, 1)
    for count in range(MIN_PHOTOGRAPHS, 27):
        assert all(map(len, split_photographs(names[:count], 0).values()))


def test_an_image_depends_on_seed_split_and_number_alone(made: Path, root: Path, tmp_path: Path):
    more = tmp_path / "more"
    assert main([str(more), "--train", "60", "--held-out", "1", "--side", "24", "--root", str(root)]) == 0
    for path in (made / "train").rglob("*.JPEG"):
        assert path.read_bytes() == (more / path.relative_to(made)).read_bytes()
    other = tmp_path / "other"
    assert main([str(other), *COUNTS, "--seed", "1", "--root", str(root)]) == 0
    assert index_file(other).read_text() != index_file(made).read_text()


def test_missing_packages_are_told_with_the_remedy(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main([str(tmp_path / "set"), "--root", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert f"has nothing of {PACKAGES[0]}; run `apt-get install {' '.join(PACKAGES)}`" in said
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_there_is_left_alone(made: Path, root: Path, capsys: pytest.CaptureFixture[str]):
    before = index_file(made).read_bytes()
    assert main([str(made), *COUNTS, "--root", str(root)]) == 2
    assert "is there already" in capsys.readouterr().err
    assert index_file(made).read_bytes() == before
