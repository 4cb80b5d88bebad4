"""A workload on a folder of images, from its file to the tables of a job."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from curvebench.engine.first_evaluation import check_evaluation
from curvebench.registry import find_workload
from curvebench.results.reading import read
from curvebench.sources import SourceTree
from curvebench.spec.method import WorkloadSpec
from curvebench.workloads.data import FOLDER_VARIABLE
from curvebench.workloads.images.folders import index_file, index_text
from tests.curvebench.stages.test_jobs import SWEEP, run
from tests.workloads.images.photographs import damaged, index_of, write, write_set

WORKLOAD = '''
"""Two classes of images: a small residual network, with MixUp and CutMix, and ten crops in evaluation."""

from curvebench.workloads.classification import classification_metrics
from curvebench.workloads.images.augmentation import Augmentation
from curvebench.workloads.images.classifier import ImageClassifier
from curvebench.workloads.images.folders import drawn_classes, images_folder, index_files, missing_images
from curvebench.workloads.images.source import image_sources
from curvebench.workloads.networks.residual_network import ResidualNetwork, residual_logits
from curvebench.workloads.workload import MINIBATCH_LOSS, Metric, Problem, Workload, batch_size

NETWORK, SIDE, NAME = ResidualNetwork(3, (1, 1), 4, 2, stem=3), 16, "two"
AUGMENTATION = Augmentation(mixup=0.2, cutmix=1.0)


def _network(ops, params, state, split, training):
    return residual_logits(ops, params, state, split["images"], training)


def _problem(settings, random):
    choose = lambda names: drawn_classes(names, 2, random("classes", shared=True))
    crops = {"side": SIDE, "shorter": 18, "crops": "five", "damaged_share": 0.2}
    splits = image_sources(images_folder(NAME), choose, **crops)
    return Problem(NETWORK.sample(random("parameters")), splits, NETWORK.state)


CLASSIFIER = ImageClassifier(_network, AUGMENTATION)
WORKLOADS = (
    Workload(
        name="two_classes",
        description="two classes of images",
        source="none",
        metrics=classification_metrics(["train", "validation"])
        | {MINIBATCH_LOSS: Metric("of steps", "minimize")},
        settings={"batch_size": batch_size(4)},
        dtype="float32",
        shared_data=True,
        roles=lambda settings: NETWORK.roles,
        problem=_problem,
        sample_parameters=lambda settings, generator: NETWORK.sample(generator),
        **CLASSIFIER.fields,
        noise=lambda settings, generator, count: AUGMENTATION.draw(generator, count, SIDE),
        mapped=False,
        streamed=True,
        evaluation_batch=5,
        missing=lambda settings: missing_images(NAME, "fetch it"),
        files=lambda settings: index_files(NAME),
    ),
)
'''


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an indexed folder, where workloads look for it, with a damaged image; one image of each class
    was removed after indexing.
    """
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    made = write(write_set(tmp_path / "two", classes=3), {"val/n00/cut.JPEG": damaged()["cut"]})
    index_file(made).write_text(index_text(index_of(made)))
    for category in ("n00", "n01", "n02"):
        (made / "train" / category / "0.JPEG").unlink()
    return made


@pytest.fixture
def spec(tmp_path: Path) -> WorkloadSpec:
    """Return a workload that a file of a user defines."""
    path = tmp_path / "two_classes.py"
    path.write_text(WORKLOAD)
    return WorkloadSpec("two_classes", find_workload(str(path)).complete({}), str(path))


@pytest.mark.usefixtures("folder")
def test_check_evaluates_it_once(spec: WorkloadSpec):
    check_evaluation(find_workload(spec.locator), spec.settings)


def test_the_hash_of_a_job_covers_the_index(folder: Path, spec: WorkloadSpec):
    before = SourceTree().data_files([spec])
    assert list(before) == ["data:two.index.csv"]
    write(folder, {"train/n00/7.JPEG": (folder / "train/n00/1.JPEG").read_bytes()})
    assert SourceTree().data_files([spec]) == before, "until it is indexed again"
    index_file(folder).write_text(index_text(index_of(folder)))
    assert SourceTree().data_files([spec]) != before


@pytest.mark.slow
def test_both_backends_train_and_jobs_name_what_was_lost(folder: Path, spec: WorkloadSpec, tmp_path: Path):
    losses = {}
    for backend in ("torch", "jax"):
        job = SWEEP.changed(
            backend=backend,
            workloads=(spec,),
            bases=SWEEP.bases[:1],
            tuning_seeds=(0,),
            settings=({"learning_rate": 0.01},),
            budget={"epochs": 2},
            evaluations=2,
            targets={},
            precision="float64",
        )
        written = run(job, tmp_path / "results")
        (row,) = read(written, "runs").to_dicts()
        assert row["outcome"] == "budget", row["reason"]
        losses[backend] = read(written, "curves").sort("metric", "step")["value"].to_numpy()
        (notes,) = read(written, "jobs")["notes"].to_list()
        lost = {note.split(" (")[0] for note in notes if "could not be read: the next image took" in note}
        assert lost < {f"train: train/{category}/0.JPEG" for category in ("n00", "n01", "n02")}
        assert len(lost) == 2, "of the two classes that are drawn"
    np.testing.assert_allclose(losses["torch"], losses["jax"], rtol=1e-9)
