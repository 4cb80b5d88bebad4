"""A synthetic report, drawn and rendered once for all tests of this folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from curvebench.__main__ import main
from curvebench.reports.figures.drawing import list_figures
from curvebench.reports.pages.site import render_site
from curvebench.reports.rendering import macros
from curvebench.reports.tables import Tables, read_tables
from curvebench.spec.plan import ChecksPlan, ReportPlan, StudyPlan, read_plan
from tests.reports.stored_kernels import history, write_stored
from tests.reports.synthetic import CONVEX, Shape, write_plan

Studies = list[tuple[StudyPlan, Tables]]
Change = Callable[[dict[str, Any]], object]
SHAPES = (Shape(), replace(CONVEX, machines=("m1", "m2")))


def words_of(template: str, macro: str, *arguments: Any) -> str:
    """Return the text of a macro."""
    text = getattr(macros(template), macro)(*arguments)
    return " ".join(text.split())


@dataclass(frozen=True)
class Report:
    """Location of a rendered report."""

    folder: Path
    plan_file: Path
    plan: ReportPlan
    site: Path


@pytest.fixture(scope="session")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """Return the figures and the site of the synthetic studies, made by the command line."""
    folder = tmp_path_factory.mktemp("report")
    plan_file = write_plan(folder, SHAPES, checks=True)
    assert main(["figures", "--plan", str(plan_file)]) == 0
    return Report(folder, plan_file, read_plan(plan_file), site_of(plan_file, folder))


def site_of(plan: Path, folder: Path) -> Path:
    """Render the site of a plan's file in a folder."""
    assert main(["site", "--plan", str(plan), "--out", str(folder / "site")]) == 0
    return folder / "site"


def changed_plan(plan: Path, folder: Path, change: Change) -> Path:
    """Write a plan, changed in place as JSON, into a folder, and return the file."""
    raw = json.loads(plan.read_text())
    change(raw)
    (folder / "plan.json").write_text(json.dumps(raw))
    return folder / "plan.json"


def bare_site(folder: Path, *shapes: Shape, change: Change = lambda raw: None) -> Path:
    """Render the site of synthetic studies without figures, with a changed plan."""
    plan = changed_plan(write_plan(folder, shapes), folder, change)
    leave_figures_out(folder, *(shape.name for shape in shapes))
    return site_of(plan, folder)


@pytest.fixture(scope="session")
def many_methods(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Render a site whose board has 30 methods with long names on three problems."""
    names = tuple(f"an_optimizer_with_settings_{number}" for number in range(15))
    problems = ("least_squares", "logistic_regression", "log_sum_exp")
    seeds = tuple(range(1000, 1005))
    shape = Shape("field", problems, names, backends=("jax",), seeds=seeds, tuning_seeds=())
    return bare_site(tmp_path_factory.mktemp("many"), shape)


def leave_figures_out(folder: Path, *studies: str) -> None:
    """Write empty lists of figures for synthetic studies, since a site requires the lists."""
    for name in studies:
        (folder / "figures" / name).mkdir(parents=True)
        list_figures([], folder / "figures" / name)


def changed_site(report: Report, folder: Path, change: Change) -> Path:
    """Render the site of the synthetic studies with a changed plan."""
    return site_of(changed_plan(report.plan_file, folder, change), folder)


@pytest.fixture(scope="session")
def changed(report: Report, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Render the synthetic studies with runs that stop, a floor, shared rates and a basis that is estimated
    repeatedly.

    The second study has no claim.
    """

    def change(raw: dict[str, Any]) -> None:
        digits, convex = raw["studies"]
        digits["tuning"]["shared_across"] = "bases"
        digits["claims"][0]["supported_if"][0]["quantity"] = "steps_to_stop"
        digits["bases"][1]["options"]["every"] = "5 steps"
        digits["compare"]["floor"] = 1e-28
        convex["claims"] = []

    folder = tmp_path_factory.mktemp("changed")
    plan = read_plan(changed_plan(report.plan_file, folder, change))
    digits, convex = plan.studies
    # No study file may stop runs at such a loss.
    training = digits.training.model_copy(update={"stop": {"train_loss": 0.0005}})
    stopped = digits.model_copy(update={"training": training})
    plan = plan.model_copy(update={"studies": (stopped, convex)})
    render_site(plan, folder / "site", folder / "drawings", lambda said: None)
    return folder / "site"


@pytest.fixture(scope="session")
def empty_site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Render the site of a plan without studies, checks and parity."""
    folder = tmp_path_factory.mktemp("empty")
    return site_of(write_plan(folder, []), folder)


@pytest.fixture(scope="session")
def studies(report: Report) -> Studies:
    """Return the synthetic studies with their tables."""
    return [(study, read_tables(study.tables)) for study in report.plan.studies]


@pytest.fixture(scope="session")
def study(report: Report) -> StudyPlan:
    """Return the first synthetic study, with a basis, on two backends."""
    return report.plan.study("digits_mlp")


@pytest.fixture(scope="session")
def tables(studies: Studies) -> Tables:
    """Return the tables of the first synthetic study."""
    return studies[0][1]


@pytest.fixture(scope="session")
def checks(report: Report) -> ChecksPlan:
    """Return the synthetic property checks."""
    assert report.plan.checks is not None
    return report.plan.checks


@dataclass(frozen=True)
class KernelReport:
    """Rendered report with stored kernel results, and the commits of the results."""

    site: Path
    hashes: list[str]


@pytest.fixture(scope="session")
def kernel_report(tmp_path_factory: pytest.TempPathFactory) -> KernelReport:
    """Render a report without studies, with kernel results of two machines.

    The first machine has results of three commits. The second has twelve, with a step in the times.
    """
    folder = tmp_path_factory.mktemp("kernels")
    hashes = [f"{number:x}" * 40 for number in range(1, 13)]
    write_stored(folder / "stored", hashes[:3], "one")
    write_stored(folder / "stored", hashes, "two", spread=False, seconds=history(12, at=6))
    site = bare_site(folder, change=lambda raw: raw.update(kernels=str(folder / "stored")))
    return KernelReport(site, hashes)
