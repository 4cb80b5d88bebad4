"""Decoding and crops: unusual files, and torchvision's crops on equal boxes."""

from __future__ import annotations

import importlib
from io import BytesIO
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from curvebench.benchmarks import peer_networks
from curvebench.workloads.images import decoding
from tests.workloads.images.photographs import damaged, encoded, photographs, piece, unusual

# If torch is built for another accelerator, torchvision can be imported only after `peer_networks`.
assert callable(peer_networks.torchvision_network)
theirs = importlib.import_module("torchvision.transforms.functional")
RandomResizedCrop = importlib.import_module("torchvision.transforms").RandomResizedCrop
BILINEAR = theirs.InterpolationMode.BILINEAR


# --- decoding ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", unusual())
def test_every_file_with_an_image_becomes_rgb(name: str):
    image = decoding.decode(unusual()[name])
    assert image.mode == "RGB"
    assert image.size == ((1, 1) if name == "one_pixel" else piece(0).size)
    if name not in ("one_pixel", "palette"):
        stored = np.asarray(piece(0).convert("L" if name == "grey" else "RGB").convert("RGB"), float)
        assert np.abs(np.asarray(image, float) - stored).mean() < 6, "the picture, to JPEG's losses"


@pytest.mark.parametrize("name", damaged())
def test_a_damaged_file_is_an_error(name: str):
    with pytest.raises((OSError, ValueError, SyntaxError)):
        decoding.decode(damaged()[name])


def test_pixels_are_those_that_pillow_decodes():
    content = encoded(piece(3))
    assert np.array_equal(np.asarray(decoding.decode(content)), np.asarray(Image.open(BytesIO(content))))


# --- crops ---------------------------------------------------------------------------------------


@given(
    box=st.tuples(st.integers(0, 300), st.integers(0, 500), st.integers(1, 127), st.integers(1, 140)),
    side=st.sampled_from([1, 32, 224]),
)
def test_a_resized_crop_is_torchvisions(box: tuple[int, int, int, int], side: int):
    image = photographs()[0]
    ours = decoding.resized_crop(image, decoding.Box(*box), side)
    assert np.array_equal(ours, np.asarray(theirs.resized_crop(image, *box, [side, side], BILINEAR)))


@given(
    height=st.integers(1, 400),
    width=st.integers(1, 400),
    sizes=st.sampled_from([(32, 28), (256, 224), (8, 8)]),
)
def test_crops_of_evaluation_are_torchvisions(height: int, width: int, sizes: tuple[int, int]):
    if max(height, width) > 20 * min(height, width):
        return  # thousands of pixels a side
    image, (shorter, side) = photographs()[1].crop((0, 0, width, height)), sizes
    resized = theirs.resize(image, shorter, BILINEAR)
    ten = [np.asarray(crop) for crop in theirs.ten_crop(resized, side)]
    five = decoding.five_crops(image, shorter, side)
    assert np.array_equal(five, ten[:5])
    mirrored = five[[1, 0, 3, 2, 4], :, ::-1]  # theirs are the crops of the mirrored image
    assert np.array_equal(mirrored[:4], ten[5:9])
    if (resized.width - side) % 2 == 0:  # otherwise their tenth crop is one pixel off the centre
        assert np.array_equal(mirrored[4], ten[9])
    assert np.array_equal(decoding.centre_crop(image, shorter, side), ten[4])


class Script:
    """Numbers drawn by torchvision, handed to ours as its generator's."""

    def __init__(self, seed: int) -> None:
        self.torch = torch.Generator().manual_seed(seed)

    def uniform(self, low: float, high: float) -> float:
        return torch.empty(1).uniform_(low, high, generator=self.torch).item()

    def integers(self, most: int) -> int:
        return int(torch.randint(0, most, size=(1,), generator=self.torch).item())


@given(height=st.integers(1, 700), width=st.integers(1, 700), seed=st.integers(0, 2**31))
def test_from_equal_numbers_the_box_is_torchvisions(height: int, width: int, seed: int):
    image = torch.empty(3, height, width)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        expected = RandomResizedCrop.get_params(image, [decoding.MIN_AREA, 1.0], list(decoding.ASPECTS))
    script: Any = Script(seed)
    assert decoding.random_box(height, width, script) == tuple(expected)


@given(height=st.integers(1, 700), width=st.integers(1, 700), seed=st.integers(0, 2**31))
def test_a_random_box_lies_in_the_image(height: int, width: int, seed: int):
    box = decoding.random_box(height, width, np.random.default_rng(seed))
    assert 0 <= box.top <= height - box.height
    assert 0 <= box.left <= width - box.width
    assert box.height > 0
    assert box.width > 0
