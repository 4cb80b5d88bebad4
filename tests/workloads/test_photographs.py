"""Photographs in folders: sizes, losses and gradients on both backends, crops, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from curvebench.arrays.numpy_ops import numpy_ops
from curvebench.seeding import WorkloadRandom
from curvebench.steps.examples import gathered, generators_of
from curvebench.workloads import workloads
from curvebench.workloads.data import FOLDER_VARIABLE, DataDamaged
from curvebench.workloads.images.folders import index_file, index_text
from curvebench.workloads.networks.residual_network import residual_logits
from curvebench.workloads.networks.vision_transformer import patches_of
from curvebench.workloads.photographs import patches
from curvebench.workloads.workload import DataMissing, Problem
from tests.workloads.cases import SMALL, agreed_gradient, loss_in_numpy, random_of
from tests.workloads.images.photographs import index_of, write_set

NAMES = ("image_resnet", "image_vit", "image_hiera")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an indexed folder of three classes, without test images."""
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    made = write_set(tmp_path / "three", classes=3, train=4, validation=2)
    index_file(made).write_text(index_text(index_of(made)))
    return made


def settings_of(name: str, **changes: Any) -> dict[str, Any]:
    return workloads()[name].complete({**SMALL[name], **changes})


def problem_of(name: str, **changes: Any) -> Problem:
    return workloads()[name].problem(settings_of(name, **changes), random_of(0))


def batch_of(name: str, problem: Problem, count: int = 4) -> dict[str, np.ndarray]:
    """Return the first training examples as a step sees them."""
    random = WorkloadRandom(name, 0)
    found = gathered(
        problem.splits["train"],
        np.arange(count)[None, None],
        1,
        generators_of([random], "examples of step", 1),
    )
    return {field: values[0, 0] for field, values in found.items()}


@pytest.mark.parametrize("name", NAMES)
def test_shapes_and_roles_are_those_of_the_problem(name: str):
    workload, settings, problem = workloads()[name], settings_of(name), problem_of(name)
    shapes = {key: value.shape for key, value in problem.parameters.items()}
    assert workload.shapes_at(settings) == shapes
    assert workload.roles(settings).keys() == shapes.keys()
    drawn = workload.sample_parameters(settings, np.random.default_rng(0))
    assert {key: value.shape for key, value in drawn.items()} == shapes


@pytest.mark.parametrize("name", NAMES)
def test_gradients_of_both_backends_agree_and_the_loss_is_numpys(name: str):
    workload, problem = workloads()[name], problem_of(name)
    batch = batch_of(name, problem)
    agreed_gradient(workload, problem, batch)
    found = loss_in_numpy(numpy_ops(), workload, problem, batch)(problem.parameters)
    assert 0 < found < 10


@pytest.mark.parametrize(("crops", "shape"), [("ten", (5, 32, 32, 3)), ("centre", (32, 32, 3))])
def test_evaluation_sees_ten_crops_or_the_centre(crops: str, shape: tuple[int, ...]):
    problem = problem_of("image_resnet", crops=crops)
    one = problem.splits["validation"].fetch(0, None)
    assert one["images"].shape == shape
    split = {field: value[None] for field, value in one.items()}
    found = workloads()["image_resnet"].evaluate(numpy_ops(), problem.parameters, problem.state, split)
    seen = one["images"] if crops == "ten" else one["images"][None]
    seen = np.concatenate([seen, seen[:, :, ::-1]]) if crops == "ten" else seen
    pixels = (seen / 255 - (0.485, 0.456, 0.406)) / (0.229, 0.224, 0.225)  # of ImageNet
    probabilities = []
    for image in np.moveaxis(pixels, -1, 1):
        logits = residual_logits(numpy_ops(), problem.parameters, problem.state, image[None], False)[0][0]
        probabilities.append(np.exp(logits) / np.exp(logits).sum())
    mean = np.mean(probabilities, axis=0)
    assert float(found["loss"]) == pytest.approx(-np.log(mean[one["labels"]]), rel=1e-12)
    assert float(found["accuracy"]) == float(mean.argmax() == one["labels"])


@pytest.mark.parametrize(("area", "alike"), [(1.0, True), (0.08, False)])
def test_training_sees_as_much_of_an_image_as_is_asked(area: float, alike: bool):
    source = problem_of("image_resnet", crop_area=area).splits["train"]
    drawn = [source.fetch(0, np.random.default_rng(seed))["images"] for seed in range(8)]
    assert all(np.array_equal(one, drawn[0]) for one in drawn) is alike


def test_classes_are_drawn_alike_for_all_seeds(folder: Path):
    workload, settings = workloads()["image_resnet"], settings_of("image_resnet", classes=2)
    chosen = {tuple(workload.problem(settings, random_of(seed)).splits["train"].classes) for seed in range(3)}
    assert len(chosen) == 1
    with pytest.raises(DataDamaged, match="4 classes are asked for, and there are 3"):
        problem_of("image_resnet", classes=4)


def test_patches_on_the_device_are_those_of_the_host():
    images = np.random.default_rng(0).normal(size=(2, 12, 12, 3))
    found = patches(numpy_ops(), np.moveaxis(images, -1, 1), 3 * 4**2)
    np.testing.assert_array_equal(found, patches_of(images, 4))


def test_without_images_the_remedy_is_told(folder: Path):
    workload = workloads()["image_vit"]
    settings = workload.complete({"folder": "imagewoof2", "classes": 10})
    assert "github.com/fastai/imagenette" in str(workload.missing(settings))
    with pytest.raises(DataMissing, match="imagewoof2 needs a folder"):
        workload.problem(settings, random_of(0))
    index_file(folder).unlink()
    assert "curvebench images index" in str(workload.missing(settings_of("image_vit")))


@pytest.mark.parametrize(
    ("name", "changes", "said"),
    [
        ("image_resnet", {"folder": "../there"}, "is not the name of a folder"),
        ("image_resnet", {"batch_size": None}, "batch_size: is null"),
        ("image_resnet", {"blocks": []}, "is not a list of whole numbers"),
        ("image_resnet", {"crop_area": 0.0}, "is outside"),
        ("image_vit", {"patch": 7}, "side = 32 is not a multiple of patch = 7"),
        ("image_vit", {"width": 96}, "width = 96 is not a multiple of 64"),
        ("image_vit", {"mixup": 0, "cutmix": 0}, "mixup and cutmix are both 0"),
        ("image_vit", {"batch_size": 5}, "batch_size = 5 is odd"),
        ("image_hiera", {"side": 40}, "is not a multiple of 8, mask_unit"),
    ],
)
def test_what_does_not_go_together_is_refused(name: str, changes: dict[str, Any], said: str):
    with pytest.raises(ValueError, match=said):
        settings_of(name, **changes)
