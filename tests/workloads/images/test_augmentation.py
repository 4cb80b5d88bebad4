"""Flips, MixUp and CutMix: shares, labels, partners, and the same on every backend."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curvebench.arrays.numpy_ops import numpy_ops
from curvebench.backends.engine import engine
from curvebench.workloads.images.augmentation import DEVIATIONS, MEANS, Augmentation, normalized, partners
from curvebench.workloads.images.classifier import ImageClassifier

BATCH, SIDE, CLASSES = 6, 12, 4
BOTH = Augmentation(mixup=0.2, cutmix=1.0)
KINDS = {
    "mixup": Augmentation(mixup=0.2),
    "cutmix": Augmentation(cutmix=1.0),
    "both": Augmentation(mixup=0.2, cutmix=1.0),
}
ops = numpy_ops()


def constant_images() -> np.ndarray:
    """Return images in which every pixel of example n is n."""
    return np.broadcast_to(np.arange(BATCH, dtype=float)[:, None, None, None], (BATCH, 3, SIDE, SIDE)).copy()


@given(seed=st.integers(0, 2**32), kind=st.sampled_from(sorted(KINDS)))
def test_the_share_of_each_image_is_that_of_its_label(seed: int, kind: str):
    noise = KINDS[kind].draw(np.random.default_rng(seed), BATCH, SIDE)
    images = constant_images()
    mixed = KINDS[kind].apply(ops, images, noise)
    own, other = np.arange(BATCH), np.array([1, 0, 3, 2, 5, 4])
    weights = np.stack([noise["weight"], 1 - noise["weight"]])
    assert weights.min() >= 0
    np.testing.assert_allclose(mixed.mean(axis=(1, 2, 3)), weights[0] * own + weights[1] * other, atol=1e-12)
    pasted = mixed[0, 0]  # images 0 and 1: the share of each pixel that comes from the other image
    if noise["box"].any() or kind == "cutmix":
        assert set(np.unique(pasted)) <= {0.0, 1.0}
        top, bottom, left, right = noise["box"][0]
        assert pasted[top:bottom, left:right].all()
        assert pasted.sum() == (bottom - top) * (right - left)
    else:
        assert np.ptp(pasted) == 0


def test_a_minibatch_has_one_of_the_two_as_often_as_the_other():
    draws = [BOTH.draw(np.random.default_rng(seed), 2, SIDE) for seed in range(400)]
    mixup = sum(bool(one["share"][0] < 1) for one in draws)
    assert 160 < mixup < 240
    assert all(np.ptp(one["weight"]) == 0 for one in draws)


def test_shares_of_cutmix_are_its_distributions():
    """Of a box whose area's share u is uniform and whose centre is too, what the edges leave.

    A side of r = sqrt(u) has r - r^2 / 4 on average, and the mean of (r - r^2 / 4)^2 is 1/2 - 1/5 + 1/48.
    """
    weights = [KINDS["cutmix"].draw(np.random.default_rng(seed), 2, 224)["weight"][0] for seed in range(2000)]
    assert np.mean(weights) == pytest.approx(1 - (1 / 2 - 1 / 5 + 1 / 48), abs=0.015)


def test_flips_mirror_every_other_image_at_random():
    images = np.random.default_rng(0).standard_normal((200, 3, 4, 4))
    noise = Augmentation().draw(np.random.default_rng(1), 200, 4)
    seen = Augmentation().apply(ops, images, noise)
    assert 70 < noise["flipped"].sum() < 130
    for image, found, flipped in zip(images, seen, noise["flipped"], strict=True):
        assert np.array_equal(found, image[:, :, ::-1] if flipped else image)


def test_parts_of_a_minibatch_are_mixed_as_the_whole():
    generator = np.random.default_rng(2)
    images, noise = generator.standard_normal((BATCH, 3, SIDE, SIDE)), BOTH.draw(generator, BATCH, SIDE)
    whole = BOTH.apply(ops, images, noise)
    for part in (slice(0, 2), slice(2, 6)):
        cut = {name: values[part] for name, values in noise.items()}
        assert np.array_equal(BOTH.apply(ops, images[part], cut), whole[part])


def test_an_odd_number_has_no_pairs():
    with pytest.raises(ValueError, match=r"pair the examples of a minibatch.*: 3 is odd"):
        partners(ops, np.zeros((3, 2)))


def test_pixels_are_normalized_by_channel():
    images = np.random.default_rng(0).integers(0, 256, (2, 5, 4, 3), dtype=np.uint8)
    found = normalized(ops, images)
    assert found.shape == (2, 3, 5, 4)
    for channel, (mean, deviation) in enumerate(zip(MEANS, DEVIATIONS, strict=True)):
        expected = (images[..., channel] / 255 - mean) / deviation
        np.testing.assert_allclose(found[:, channel], expected, atol=1e-12)


# --- the classifier ------------------------------------------------------------------------------


def _network(ops, params, state, split, training):
    return ops.mean(split["images"], axis=(2, 3)) @ params["weight"], state


PARAMS = {"weight": np.random.default_rng(5).standard_normal((3, CLASSES))}
CLASSIFIER = ImageClassifier(_network, BOTH)


def _batch(crops: tuple[int, ...] = ()) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(6)
    return {
        "images": generator.integers(0, 256, (BATCH, *crops, SIDE, SIDE, 3), dtype=np.uint8),
        "labels": generator.integers(0, CLASSES, BATCH),
    }


@pytest.mark.parametrize("seed", range(4))
def test_the_loss_is_the_cross_entropy_with_soft_labels(seed: int):
    batch, noise = _batch(), BOTH.draw(np.random.default_rng(seed), BATCH, SIDE)
    loss, _, _ = CLASSIFIER.loss(ops, PARAMS, {}, batch, noise)
    logits = CLASSIFIER.fields["likelihood"].outputs(ops, PARAMS, {}, batch, noise)
    targets = np.zeros((BATCH, CLASSES))
    for example, label in enumerate(batch["labels"]):
        targets[example, label] += noise["weight"][example]
        targets[example, batch["labels"][example ^ 1]] += 1 - noise["weight"][example]
    np.testing.assert_allclose(targets.sum(axis=1), 1)
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(loss, -np.mean(np.sum(targets * np.log(probabilities), axis=1)), rtol=1e-12)


def test_ten_crops_are_averaged_as_probabilities():
    def brighter_on_the_left(ops, params, state, split, training):
        return split["images"][:, :, :, 0].mean(axis=2) @ params["weight"], state

    split = _batch((5,))
    found = ImageClassifier(brighter_on_the_left, BOTH).evaluate(ops, PARAMS, {}, split)
    every = normalized(ops, np.concatenate([split["images"], split["images"][:, :, :, ::-1]], axis=1))
    logits = every[..., 0].mean(axis=3) @ PARAMS["weight"]
    probabilities = (np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)).mean(axis=1)
    of_labels = probabilities[np.arange(BATCH), split["labels"]]
    np.testing.assert_allclose(found["loss"], -np.log(of_labels).mean(), rtol=1e-12)
    assert found["accuracy"] == np.mean(probabilities.argmax(axis=1) == split["labels"])


@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_backends_see_the_same(backend: str):
    made = engine(backend, "float64")
    batch, noise = _batch(), BOTH.draw(np.random.default_rng(9), BATCH, SIDE)
    expected, _, _ = CLASSIFIER.loss(ops, PARAMS, {}, batch, noise)
    with made.context():
        sent = [
            {name: made.to_device(value) for name, value in one.items()} for one in (PARAMS, batch, noise)
        ]
        loss, _, _ = CLASSIFIER.loss(made.ops, sent[0], {}, sent[1], sent[2])
        crops = {name: made.to_device(value) for name, value in _batch((5,)).items()}
        metrics = CLASSIFIER.evaluate(made.ops, sent[0], {}, crops)
        np.testing.assert_allclose(made.ops.to_numpy(loss), expected, rtol=1e-12)
        np.testing.assert_allclose(
            made.ops.to_numpy(metrics["loss"]),
            CLASSIFIER.evaluate(ops, PARAMS, {}, _batch((5,)))["loss"],
            rtol=1e-12,
        )
