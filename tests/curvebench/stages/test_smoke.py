"""The smoke scales of studies on photographs: the first run of each network and backend, on stand-ins."""

from __future__ import annotations

from pathlib import Path

import pytest

from curvebench.planning.config import Config
from curvebench.planning.plan import make_plan, write_specs
from curvebench.results.outcomes import FINISHED
from curvebench.results.reading import read
from curvebench.spec.job import BasesSpec, JobSpec
from curvebench.workloads.images.folders import index_file, index_text
from tests.curvebench.stages.test_jobs import run
from tests.workloads.images.photographs import index_of, write_set

STUDIES = (
    *(
        pytest.param(name, marks=pytest.mark.long)
        for name in ("imagenet_resnet34", "imagenet_wallclock", "imagewoof_vit", "stamps_vit")
    ),
    "stamps_resnet",
)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with replacements of the images: as many classes, and one minibatch an epoch."""
    folder = tmp_path_factory.mktemp("data")
    made = write_set(folder / "stamps", classes=25, train=28, validation=2)
    (made / "test").symlink_to(made / "val")
    index_file(made).write_text(index_text(index_of(made)))
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", STUDIES)
def test_first_runs_of_networks_end(name: str, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CURVEBENCH_DATA", str(data))
    plan = make_plan(Config(studies=(name,), scale="smoke", results=tmp_path, parity=False))
    write_specs(plan)
    (study,) = plan.studies
    for job in study.jobs:
        if isinstance(job.spec, BasesSpec):
            run(job.spec, tmp_path)
    first: dict[tuple[str, str], JobSpec] = {}
    for job in study.jobs:
        if job.spec.stage == "runs":
            first.setdefault((job.spec.workloads[0].name, job.spec.backend), job.spec)
    assert {backend for _, backend in first} == set(study.plan.backends)
    for spec in first.values():
        runs = read(run(spec, tmp_path), "runs")
        assert set(runs["outcome"]) <= set(FINISHED), runs["reason"].to_list()
