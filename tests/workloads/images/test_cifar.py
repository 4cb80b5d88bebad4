"""CIFAR-10 as its binary version has it: read, checked, shifted; the workload on it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from curvebench.arrays.numpy_ops import numpy_ops
from curvebench.backends.engine import engine
from curvebench.basis_estimation.gradients import sampler
from curvebench.engine.execution import execute
from curvebench.optimizers import rules
from curvebench.planning.parity_problems import ParityProblem
from curvebench.stages.job import sampling_of
from curvebench.stages.parity import bundle_of, prepare
from curvebench.workloads import photographs
from curvebench.workloads.data import FOLDER_VARIABLE, DataDamaged
from curvebench.workloads.images import cifar
from curvebench.workloads.images.augmentation import drawn_positions, shifted
from curvebench.workloads.images.cifar import CIFAR, TEST, TRAIN, read_cifar
from curvebench.workloads.workload import DataMissing
from tests.workloads.cases import (
    agreed_gradient,
    assert_near,
    loss_in_numpy,
    minibatch,
    noise_of,
    problem_of,
    random_of,
    small,
)

IMAGES = 20  # number of images in a file of these tests


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield the six files with few images, in the folder that the archive unpacks to."""
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    monkeypatch.setattr(cifar, "IMAGES", IMAGES)
    monkeypatch.setattr(photographs, "VALIDATION", 10)
    read_cifar.cache_clear()
    made = tmp_path / "cifar-10-batches-bin"
    made.mkdir()
    draws = np.random.default_rng(0)
    for name in (*TRAIN, *TEST):
        pixels = draws.integers(0, 256, (IMAGES, 3 * 32 * 32), dtype=np.uint8)
        labels = draws.permutation(np.arange(IMAGES, dtype=np.uint8) % 10)
        (made / name).write_bytes(np.column_stack([labels, pixels]).tobytes())
    yield made
    read_cifar.cache_clear()


def test_pixels_are_channel_by_channel_in_the_file(folder: Path):
    images, labels = read_cifar(TRAIN)
    assert images.shape == (5 * IMAGES, 32, 32, 3)
    record = (folder / TRAIN[1]).read_bytes()[:3073]
    assert labels[IMAGES] == record[0]
    assert images[IMAGES, 2, 5, 1] == record[1 + 1024 + 2 * 32 + 5]


def test_what_is_missing_or_damaged_is_told(folder: Path):
    (folder / TRAIN[0]).write_bytes((folder / TRAIN[0]).read_bytes()[:-1])
    with pytest.raises(DataDamaged, match=r"data_batch_1\.bin: has"):
        read_cifar(TRAIN)
    (folder / TEST[0]).write_bytes(bytes(IMAGES * 3073))
    with pytest.raises(DataDamaged, match="the classes are not those of CIFAR-10"):
        read_cifar(TEST)
    (folder / TEST[0]).unlink()
    assert "cifar-10-binary.tar.gz" in str(CIFAR.missing())
    with pytest.raises(DataMissing, match=r"test_batch\.bin"):
        read_cifar(TEST)


def test_shifts_are_those_of_an_image_with_reflected_edges():
    images = np.random.default_rng(1).normal(size=(50, 3, 8, 8))
    noise = drawn_positions(np.random.default_rng(2), 50, 2, side=8)
    found = shifted(numpy_ops(), images, noise)
    wide = np.pad(images, ((0, 0), (0, 0), (2, 2), (2, 2)), "reflect")
    starts = set()
    for number, image in enumerate(found):
        windows = {
            (top, left): wide[number, :, top : top + 8, left : left + 8]
            for top, left in itertools.product(range(5), range(5))
        }
        (start,) = (place for place, window in windows.items() if np.array_equal(window, image))
        starts.add(start)
    assert {row for row, _ in starts} == {column for _, column in starts} == set(range(5))


def test_gradients_of_both_backends_agree_and_the_loss_is_numpys():
    workload, settings = small("cifar10_resnet")
    problem = workload.problem(settings, random_of(0))
    batch = {name: values[:6] for name, values in problem.splits["train"].items()}
    assert {split: len(part["labels"]) for split, part in problem.splits.items()} == {
        "train": 5 * IMAGES - 10,
        "validation": 10,
        "test": IMAGES,
    }
    agreed_gradient(workload, problem, batch)
    assert 0 < loss_in_numpy(numpy_ops(), workload, problem, batch)(problem.parameters) < 10
    found = workload.evaluate(numpy_ops(), problem.parameters, problem.state, problem.splits["test"])
    assert 0 < float(found["loss"]) < 10


def test_training_normalizes_by_the_batch_and_evaluation_by_what_ran_before():
    """Loss and likelihood do not read the statistics, which move on; evaluation is by them."""
    workload, problem = problem_of("cifar10_resnet")
    ops, batch = numpy_ops(), minibatch(problem)
    noise = noise_of(workload, batch)
    assert workload.likelihood is not None
    likely = workload.likelihood.outputs
    moved = {name: value + 0.5 for name, value in problem.state.items()}

    def found(state, batch):
        loss, new, _ = workload.loss(ops, problem.parameters, state, batch, noise)
        outputs = likely(ops, problem.parameters, state, batch, noise)
        return loss, outputs, new, workload.evaluate(ops, problem.parameters, state, batch)["loss"]

    loss, outputs, new, evaluated = found(problem.state, batch)
    loss_of_moved, outputs_of_moved, new_of_moved, evaluated_of_moved = found(moved, batch)
    assert loss == loss_of_moved
    assert np.array_equal(outputs, outputs_of_moved)
    logs = outputs - np.log(np.exp(outputs).sum(-1, keepdims=True))
    assert loss == pytest.approx(-logs[np.arange(len(logs)), batch["labels"]].mean(), rel=1e-12)
    assert evaluated != evaluated_of_moved
    for name, value in new.items():  # batch norm keeps nine tenths of the old statistics
        np.testing.assert_allclose(new_of_moved[name] - value, 0.9 * 0.5, rtol=1e-9)


def test_sampled_gradients_and_runs_in_their_basis_are_equal_on_both_backends():
    """EGOP's gradients at fresh starts, a basis of them, and metrics by running statistics of Adam in it."""
    _, settings = small("cifar10_resnet")
    problem = ParityProblem("", "", "cifar10_resnet", {**settings, "batch_size": 5}, {"samples": "0.02 d"})
    engines = {backend: engine(backend, "float64") for backend in ("torch", "jax")}
    prepared = prepare(problem, engines["torch"])
    one = prepared.instance
    gradients, runs = {}, {}
    for backend, made in engines.items():
        sample = sampler(sampling_of(problem.basis_spec, one), made, one.problem, one.random)
        pieces = list(sample(one.problem, one.random))
        gradients[backend] = {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}
        runs[backend] = execute(bundle_of(rules()["adam"], prepared), made).metrics
    assert_near(gradients["jax"], gradients["torch"], 1e-10)
    assert_near(runs["jax"], runs["torch"], 1e-10)
    losses = runs["torch"]["train_loss"].ravel()
    assert losses[-1] < losses[0]
