"""One made-up report, drawn and rendered once for all tests of this folder."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from reports.__main__ import main
from reports.kernels import draw_kernels
from reports.plan import ReportPlan, StudyPlan, read_plan
from reports.tables import Tables, read_tables
from tests.reports.stored_kernels import make_repository, write_stored
from tests.reports.synthetic import CONVEX, Shape, write_plan

SHAPES = (Shape(), replace(CONVEX, machines=("m1", "m2")))


@dataclass(frozen=True)
class Report:
    """Where a rendered report lies."""

    folder: Path
    plan_file: Path
    plan: ReportPlan
    site: Path


@pytest.fixture(scope="session")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """The figures and the site of the made-up studies, made by the command line."""
    folder = tmp_path_factory.mktemp("report")
    plan_file = write_plan(folder, SHAPES, checks=True)
    for shape in SHAPES:
        assert main(["figures", "--plan", str(plan_file), "--study", shape.name]) == 0
    assert main(["claims", "--plan", str(plan_file)]) == 0
    assert main(["site", "--plan", str(plan_file), "--out", str(folder / "site")]) == 0
    return Report(folder, plan_file, read_plan(plan_file), folder / "site")


@pytest.fixture(scope="session")
def study(report: Report) -> StudyPlan:
    """The first made-up study, with a basis, on two backends."""
    return report.plan.study("digits_mlp")


@pytest.fixture(scope="session")
def tables(study: StudyPlan) -> Tables:
    """Its tables."""
    return read_tables(study.tables)


@dataclass(frozen=True)
class KernelReport:
    """A rendered report with stored kernel results, and the commits that they are of."""

    site: Path
    hashes: list[str]


@pytest.fixture(scope="session")
def kernel_report(tmp_path_factory: pytest.TempPathFactory) -> KernelReport:
    """A report without studies, with results of two machines; the second stored no spread."""
    folder = tmp_path_factory.mktemp("kernels")
    hashes = make_repository(folder / "repository")
    write_stored(folder / "stored", hashes, "one")
    write_stored(folder / "stored", hashes, "two", spread=False)
    draw_kernels(folder / "stored", folder / "drawn", folder / "repository")
    plan = write_plan(folder, [])
    plan.write_text(json.dumps(json.loads(plan.read_text()) | {"kernels": str(folder / "drawn")}))
    assert main(["site", "--plan", str(plan), "--out", str(folder / "site")]) == 0
    return KernelReport(folder / "site", hashes)
