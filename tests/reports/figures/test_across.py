"""Figures across workloads, bases and ranks, and captions that name the source's figures."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from curvebench.reports.figures.across import draw_across, ranks, varied
from curvebench.reports.figures.all_figures import with_source_figures
from curvebench.reports.figures.drawing import Drawn
from curvebench.reports.figures.study_figures import (
    FigureCell,
    cells,
    draw_curves,
    draw_sensitivities,
    steps_an_epoch,
)
from curvebench.reports.tables import read_tables
from curvebench.spec.method import BasisSpec
from curvebench.spec.plan import MetricPlan, StudyPlan, WorkloadPlan, read_plan
from tests.reports.changing import replace, update
from tests.reports.conftest import changed_plan
from tests.reports.synthetic import Shape, write_plan

SHAPE = Shape(
    name="masks",
    workloads=("mask_100", "mask_000", "mask_030"),
    optimizers=("adagrad", "adam"),
    bases=("identity", "rank-8", "rank-2", "rank-4"),
    backends=("jax",),
    seeds=tuple(range(1000, 1005)),
)
SMALL = Shape(
    name="small", optimizers=("adagrad",), bases=("identity",), backends=("jax",), seeds=(1000, 1001)
)
RANKS = {"rank-2": "0.02 d", "rank-4": "0.04 d", "rank-8": "0.08 d"}


def made_up(folder: Path, shape: Shape, **changes: Any) -> StudyPlan:
    """Return a made-up study with some of what its plan says replaced."""
    plan = changed_plan(write_plan(folder, [shape]), folder, lambda raw: update(raw["studies"][0], **changes))
    return read_plan(plan).study(shape.name)


def drawn_by(study: StudyPlan, folder: Path, draw: Callable[[FigureCell], Iterable[Drawn]]) -> list[Drawn]:
    found = cells(study, read_tables(study.tables), folder / "drawn")
    return [figure for cell in found for figure in draw(cell)]


def words_of_figures(drawn: Iterable[Drawn]) -> str:
    return "".join(f"{one.name}: {one.title}\n{one.alt}\n" for one in drawn)


def rotated(bases: dict[str, Any]) -> tuple[BasisSpec, ...]:
    return tuple(BasisSpec(name, "egop", options) for name, options in bases.items())


def workload(name: str, **settings: Any) -> WorkloadPlan:
    return WorkloadPlan(
        name=name,
        description="made up",
        metrics={"train_loss": MetricPlan(direction="minimize", description="")},
        settings=settings,
    )


def test_workloads_that_differ_in_one_number_are_in_its_order():
    family = (workload("b", nu=1.0, m=10), workload("a", nu=0, m=10), workload("c", nu=0.3, m=10))
    assert varied(family) == ("nu", {"a": 0.0, "c": 0.3, "b": 1.0})


@pytest.mark.parametrize(
    "workloads",
    [
        (workload("a", nu=0.0),),
        (workload("a", nu=0.0), workload("b", nu=0.0)),
        (workload("a", nu=0.0, m=1), workload("b", nu=1.0, m=2)),
        (workload("a", start="1/2"), workload("b", start="-1/2")),
        (workload("a", rows=True), workload("b", rows=False)),
        (workload("a", alpha=1.5), replace(workload("b", alpha=2.0), source="another objective")),
        (workload("a", nu=0.0), workload("b")),
        (workload("a", nu=0.0), workload("b", nu=0.5), replace(workload("c", nu=1.0), metrics={})),
    ],
)
def test_other_workloads_are_no_family(workloads: tuple[WorkloadPlan, ...]):
    assert varied(workloads) is None


def test_ranks_are_shares_or_numbers_of_three_bases_or_more(tmp_path: Path):
    study = made_up(tmp_path, SMALL)
    of = lambda bases: ranks(replace(study, bases=rotated(bases)))  # noqa: E731
    assert of({}) is None
    given = {name: {"rank": rank} for name, rank in RANKS.items()} | {"whole": {"rank": None}}
    assert of(given) == (True, {"rank-2": 0.02, "rank-4": 0.04, "rank-8": 0.08})
    other = (*rotated(given), BasisSpec("random-2", "random_orthogonal", {"rank": "0.02 d"}))
    assert ranks(replace(study, bases=other)) == of(given), "a random basis has no leading eigenvectors"
    assert of({"a": {"rank": 30}, "b": {"rank": 2}, "c": {"rank": 7}}) == (False, {"b": 2, "c": 7, "a": 30})
    assert of({"a": {"rank": 30}, "b": {"rank": 2}}) is None
    assert of({"a": {"rank": 30}, "b": {"rank": 2}, "c": {"rank": "0.1 d"}}) is None, (
        "they have no common unit"
    )


def test_a_family_is_drawn_for_every_claimed_metric(tmp_path: Path, frozen: Callable[[Path, str], None]):
    study = made_up(tmp_path, SHAPE)
    settings = dict(zip(SHAPE.workloads, (1.0, 0.0, 0.3), strict=True))
    family = tuple(replace(one, settings={"nu": settings[one.name]}) for one in study.workloads)
    bases = {name: {"rank": rank} for name, rank in RANKS.items()}
    study = replace(study, workloads=family, bases=(*study.bases[:1], *rotated(bases)))
    drawn = drawn_by(study, tmp_path, draw_across)
    assert {one.kind for one in drawn} == {"across"}
    frozen(Path(__file__).with_name("across.txt"), words_of_figures(drawn))
    svg = (tmp_path / "drawn/mask_000.jax.bases.final.train_loss.svg").read_text()
    for text in ("rank-2 basis", "rank-4 basis", "rank-8 basis", "the panel's basis", "adagrad"):
        assert f">{text}</text>" in svg


def test_captions_name_the_figures_of_the_source_that_they_lie_beside(tmp_path: Path):
    named = {
        "000 Fig. 6a": "train_loss.epochs",
        "000 Fig. 6b": "mask_000.sensitivity",
        "000 Fig. 14": "sensitivity",
    }
    study = made_up(tmp_path, SMALL, source_figures=named)

    def caption(stem: str, workload: str) -> str:
        name = f"{workload}.jax.{stem}"
        drawn = Drawn(name, "curve", workload, "jax", "train_loss", "A title", 1, 1, "Median.", stem=stem)
        return with_source_figures(study, drawn).caption

    assert caption("train_loss.epochs", "mask_000") == "As EGOP paper Fig. 6a. Median."
    assert caption("sensitivity", "mask_000") == "As EGOP paper Fig. 6b, EGOP paper Fig. 14. Median."
    assert caption("sensitivity", "mask_030") == "As EGOP paper Fig. 14. Median."
    assert caption("train_loss.charged_evaluations", "mask_030") == "Median."
    study = replace(study, source_figures={})
    assert caption("sensitivity", "mask_000") == "Median."


def test_steps_an_epoch_are_known_of_runs_that_had_all_epochs(tmp_path: Path):
    study = made_up(tmp_path, SMALL, budget={"epochs": 20, "evaluations": 20})
    final = read_tables(study.tables).runs.filter(pl.col("stage") == "final")
    assert steps_an_epoch(study, final) == 5
    stopped = replace(study, stop={"gradient_norm": 1.0})
    assert steps_an_epoch(stopped, final.filter(outcome="reached")) is None
    assert steps_an_epoch(made_up(tmp_path, SMALL), final) is None


def test_a_study_has_curves_and_sensitivities(tmp_path: Path, frozen: Callable[[Path, str], None]):
    beside = {"000 Fig. 9": "validation_accuracy.epochs"}
    study = made_up(tmp_path, SMALL, budget={"epochs": 20, "evaluations": 20}, source_figures=beside)
    (claim,) = study.claims
    other = replace(claim.conditions[0], metric="validation_accuracy", which="best")
    study = replace(study, claims=(replace(claim, conditions=(*claim.conditions, other)),))
    drawn = [*drawn_by(study, tmp_path, draw_curves), *drawn_by(study, tmp_path, draw_sensitivities)]
    frozen(Path(__file__).with_name("small.txt"), words_of_figures(drawn))
    first, *_ = cells(study, read_tables(study.tables), tmp_path / "drawn")
    one_rate = first.runs.filter(pl.col("learning_rate") == first.runs["learning_rate"].min())
    alone = replace(first, tables=replace(first.tables, runs=one_rate))
    assert not list(draw_sensitivities(alone)), "one rate alone has no sensitivity"
    space = {"learning_rate": {"low": 1e-3, "high": 1.0, "scale": "log"}}
    halving = {"protocol": "successive_halving", "budget_per_dimension": 8, "halvings": 2, "space": space}
    halved = replace(study, tuning=study.tuning.sized(halving))
    longest = first.runs.with_columns(
        round=pl.when(pl.col("learning_rate") > 0.02).then(2).otherwise("round")
    )
    halved_cell = replace(first, study=halved, tables=replace(first.tables, runs=longest))
    figure, *_ = draw_sensitivities(halved_cell)
    assert "(from 0.003 to 0.3)" in figure.alt, "rates that stopped early too"
    assert figure.caption.endswith("halving stopped early is at the end of its last, shorter runs.")
    assert "halving" not in drawn[-1].caption
