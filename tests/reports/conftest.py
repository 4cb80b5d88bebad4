"""One made-up report, drawn and rendered once for all tests of this folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from reports.__main__ import main
from reports.plan import ReportPlan, read_plan
from tests.reports.synthetic import HOSTILE, Shape, write_plan

SHAPES = (
    Shape(),
    Shape(
        name="convex",
        workloads=("log_sum_exp", "least_squares"),
        optimizers=("sgd", "adam", HOSTILE),
        backends=("jax",),
        machines=("m1", "m2"),
    ),
)


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
    plan_file = write_plan(folder, SHAPES)
    for shape in SHAPES:
        assert main(["figures", "--plan", str(plan_file), "--study", shape.name]) == 0
    assert main(["site", "--plan", str(plan_file), "--out", str(folder / "site")]) == 0
    return Report(folder, plan_file, read_plan(plan_file), folder / "site")
