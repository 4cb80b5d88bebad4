"""Fashion-MNIST: its files, and its two ReLU networks compared with layers of PyTorch."""

from __future__ import annotations

import gzip

import jax
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from curvebench.arrays.jax_ops import jax_ops
from curvebench.arrays.torch_ops import torch_ops
from curvebench.workloads import fashion
from curvebench.workloads.data import DataDamaged, read_content
from curvebench.workloads.fashion import (
    FASHION,
    FASHION_LARGE,
    FASHION_SMALL,
    max_pool,
    parse_idx,
    read_fashion,
)
from curvebench.workloads.workload import DataMissing
from tests.made_images import EXAMPLES, idx_bytes
from tests.workloads.cases import jax_gradient, minibatch, random_of, torch_gradient

FAMILIES = {"small": (FASHION_SMALL, (196, 20, 4)), "large": (FASHION_LARGE, (784, 100, 10))}
PUBLISHED = {
    "small": {"train": 24_000, "validation": 1_000, "test": 3_000},
    "large": {"train": 60_000, "validation": 2_500, "test": 7_500},
}


@pytest.fixture(params=FAMILIES, scope="module")
def family(request):
    workload, widths = FAMILIES[request.param]
    return workload, workload.problem(workload.complete({}), random_of(0)), widths


@pytest.mark.parametrize("name", FAMILIES)
def test_splits_of_the_real_files_have_the_papers_sizes_and_every_class_alike(name, fashion_mnist):
    workload, (inputs, _, classes) = FAMILIES[name]
    splits = workload.problem(workload.complete({}), random_of(0)).splits
    assert {split: fields["features"].shape for split, fields in splits.items()} == {
        split: (count, inputs) for split, count in PUBLISHED[name].items()
    }
    assert np.array_equal(np.bincount(splits["train"]["labels"]), [6_000] * classes)
    for split in ("validation", "test"):
        counts = np.bincount(splits[split]["labels"])
        assert len(counts) == classes
        assert np.all(np.abs(counts / counts.mean() - 1) < 0.2)


def test_splits_are_the_standard_parts_and_disjoint(family):
    """Train is the standard training part in its order; each test image is in one of the other two, once."""
    _, problem, (inputs, _, classes) = family
    side = round(inputs**0.5)

    def rows(images, labels):
        return [pixels.tobytes() + bytes([label]) for pixels, label in zip(images, labels, strict=True)]

    due = {}
    for part in ("train", "test"):
        images, labels = read_fashion(part)
        chosen = labels < classes
        assert np.array_equal(np.bincount(labels[chosen]), [EXAMPLES[part] // 10] * classes)
        pooled = torch.nn.functional.max_pool2d(torch.tensor(images[chosen]).float(), 28 // side)
        due[part] = rows(pooled.to(torch.uint8).numpy(), labels[chosen])
    found = {
        name: rows(np.rint(255 * fields["features"]).astype(np.uint8), fields["labels"].tolist())
        for name, fields in problem.splits.items()
    }
    assert found["train"] == due["train"]
    assert len(found["test"]) == 3 * len(found["validation"])
    assert found["validation"] + found["test"] != due["test"]
    assert sorted(found["validation"] + found["test"]) == sorted(due["test"])


def test_pixels_are_divided_by_the_chosen_scale():
    raw = FASHION_SMALL.problem(FASHION_SMALL.complete({"pixel_scale": 1}), random_of(0))
    scaled = FASHION_SMALL.problem(FASHION_SMALL.complete({}), random_of(0))
    assert scaled.splits["train"]["features"].max() == 1.0
    assert np.array_equal(raw.splits["train"]["features"] / 255, scaled.splits["train"]["features"])


@pytest.mark.parametrize("window", [1, 2, 3])
def test_pooling_keeps_the_greatest_pixel_of_each_square(window):
    images = np.random.default_rng(window).integers(0, 256, (3, 6, 12), np.uint8)
    due = [
        [
            [
                max(image[i][j] for i in range(r, r + window) for j in range(c, c + window))
                for c in range(0, 12, window)
            ]
            for r in range(0, 6, window)
        ]
        for image in images.tolist()
    ]
    assert max_pool(images, window).tolist() == due


def _torch_model(workload, parameters, window):
    """Return the network in PyTorch's own layers, pooling first, at given parameters in float64."""
    (hidden, inputs), (classes, _) = parameters["W1"].shape, parameters["W2"].shape
    model = torch.nn.Sequential(
        torch.nn.MaxPool2d(window),
        torch.nn.Flatten(),
        torch.nn.Linear(inputs, hidden),
        torch.nn.ReLU(),
        torch.nn.Linear(hidden, classes),
    ).double()
    with torch.no_grad():
        for value, name in zip(model.parameters(), ("W1", "b1", "W2", "b2"), strict=True):
            value.copy_(torch.tensor(parameters[name]))
    return model


def test_loss_accuracy_and_gradient_are_those_of_a_torch_model_from_the_images_on(family):
    workload, problem, (_, _, classes) = family
    window = workload.complete({})["pooling"]
    images, labels = (values[:800] for values in read_fashion("train"))
    images, labels = images[labels < classes][:50], labels[labels < classes][:50]
    model = _torch_model(workload, problem.parameters, window)
    scores = model(torch.tensor(images)[:, None].double() / 255)
    entropy = torch.nn.functional.cross_entropy(scores, torch.tensor(labels).long())
    entropy.backward()
    due = entropy.item()
    gradients = {
        name: value.grad.numpy()
        for name, value in zip(problem.parameters, model.parameters(), strict=True)
        if value.grad is not None
    }
    accuracy = float((scores.argmax(1).numpy() == labels).mean())
    batch = minibatch(problem, 50)
    with jax.enable_x64(True):
        for ops, gradient in (
            (torch_ops("cpu", "float64"), torch_gradient),
            (jax_ops("float64"), jax_gradient),
        ):
            loaded = [
                {k: ops.asarray(v) for k, v in arrays.items()} for arrays in (problem.parameters, batch)
            ]
            loss = workload.loss(ops, loaded[0], {}, loaded[1], {})[0]
            found = workload.evaluate(ops, loaded[0], {}, loaded[1])
            assert float(loss) == pytest.approx(due, rel=1e-12)
            assert float(found["loss"]) == pytest.approx(due, rel=1e-12)
            assert float(found["accuracy"]) == accuracy
            by_name = gradient(workload, problem, batch)(problem.parameters)
            assert by_name.keys() == gradients.keys()
            for name, value in gradients.items():
                np.testing.assert_allclose(by_name[name], value, rtol=1e-10, atol=1e-14)


def test_missing_data_stop_both_before_any_compute(monkeypatch):
    assert [workload.missing({}) for workload in (FASHION_SMALL, FASHION_LARGE)] == [None, None]
    assert len(FASHION_SMALL.files({})) == 4
    monkeypatch.delenv("CURVEBENCH_DATA")
    for workload in (FASHION_SMALL, FASHION_LARGE):
        settings = workload.complete({"pooling": 14})
        said = workload.missing(settings)
        assert said is not None
        assert "apt-get install dataset-fashion-mnist" in said
        with pytest.raises(DataMissing, match="train-images-idx3-ubyte"):
            workload.problem(settings, random_of(0))


def images_of(count):
    return np.arange(count * 6, dtype=np.uint8).reshape(count, 2, 3)


@pytest.fixture
def nowhere(tmp_path, monkeypatch):
    """Return the folder in which Debian has the files, which does not exist here; no other folder is
    configured.
    """
    monkeypatch.setattr(fashion, "DEBIAN_FOLDER", tmp_path / "debian")
    monkeypatch.delenv("CURVEBENCH_DATA", raising=False)
    return tmp_path / "debian"


def fill(folder, names=FASHION.names):
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_bytes(gzip.compress(idx_bytes(images_of(2)), mtime=0))


@given(st.lists(st.integers(0, 5), min_size=1, max_size=4), st.booleans(), st.integers(0, 100))
def test_what_is_written_is_read(tmp_path_factory, shape, compressed, seed):
    array = np.random.default_rng(seed).integers(0, 256, shape, np.uint8)
    path = tmp_path_factory.mktemp("idx") / ("some-idx-ubyte.gz" if compressed else "some-idx-ubyte")
    path.write_bytes(gzip.compress(idx_bytes(array)) if compressed else idx_bytes(array))
    found = parse_idx(read_content(path))
    assert found.dtype == np.uint8
    assert np.array_equal(found, array)
    assert found.shape == tuple(shape)


def test_missing_files_name_the_folder_the_files_and_the_remedy(nowhere):
    said = FASHION.missing()
    assert said is not None
    for text in (
        *FASHION.names,
        f"looked in {nowhere})",
        "apt-get install dataset-fashion-mnist",
        "CURVEBENCH_DATA",
    ):
        assert text in said
    assert FASHION.paths() == ()
    with pytest.raises(DataMissing, match="dataset-fashion-mnist"):
        read_fashion("train")


def test_the_named_folder_counts_before_debians_after_its_subfolder(nowhere, tmp_path, monkeypatch):
    fill(nowhere)
    assert [path.parent for path in FASHION.paths()] == [nowhere] * 4
    monkeypatch.setenv("CURVEBENCH_DATA", str(tmp_path / "own"))
    assert [path.parent for path in FASHION.paths()] == [nowhere] * 4
    fill(tmp_path / "own")
    assert [path.parent for path in FASHION.paths()] == [tmp_path / "own"] * 4
    fill(tmp_path / "own" / "fashion-mnist")
    assert [path.parent for path in FASHION.paths()] == [tmp_path / "own" / "fashion-mnist"] * 4
    assert FASHION.missing() is None


def test_files_of_another_set_are_not_passed_off_as_fashion_mnist(nowhere):
    fill(nowhere)
    with pytest.raises(DataDamaged) as caught:
        read_fashion("test")
    assert f"{nowhere / 't10k-images-idx3-ubyte.gz'}: is not the file of Fashion-MNIST" in str(caught.value)


def test_the_real_files_hold_what_is_published_of_them(fashion_mnist):
    for part, count in {"train": 60_000, "test": 10_000}.items():
        images, labels = read_fashion(part)
        assert images.shape == (count, 28, 28)
        assert labels.shape == (count,)
        assert images.dtype == labels.dtype == np.uint8
        assert (images.min(), images.max()) == (0, 255)
        assert np.array_equal(np.bincount(labels), [count // 10] * 10)
    # The first test images: an ankle boot, a pullover, two trousers.
    assert list(labels[:4]) == [9, 2, 1, 1]
