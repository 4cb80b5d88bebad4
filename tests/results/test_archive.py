"""Studies that join a published one: under the same protocol alone, each method once, in every figure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from curvebench.paths import PUBLISHED
from curvebench.reports.boards.leaderboard import board_ranks
from curvebench.reports.boards.submission import as_text, submissions
from curvebench.reports.figures import all_figures
from curvebench.reports.figures.all_figures import drawn_part
from curvebench.reports.pages.contents import ShownStudy, Version
from curvebench.reports.statistics.ranks import mean_ranks
from curvebench.reports.tables import read_tables, tables_of
from curvebench.results.archive import (
    LOCAL,
    best_of,
    checksums_of,
    joined_locally,
    shown_plans,
    submission_flaws,
    with_joined,
    without_submissions,
)
from curvebench.spec.document import Targets
from curvebench.spec.errors import InputError
from curvebench.spec.method import OptimizerSpec
from curvebench.spec.plan import ReportPlan, StudyPlan, read_plan
from curvebench.spec.training import TrainingProtocol
from tests.reports.changing import replace
from tests.reports.synthetic import DIVERGING, Shape, write_plan


@pytest.fixture(scope="module")
def field(tmp_path_factory: pytest.TempPathFactory) -> ReportPlan:
    """Return a published set of one study."""
    plan = read_plan(write_plan(tmp_path_factory.mktemp("set"), [Shape()]))
    return plan.model_copy(update={"published": "field.2026-11"})


def submission(field: ReportPlan, label: str = "lion", **changes: Any) -> StudyPlan:
    """Return a submission, a study of one method that joins the study of the field, with the tables of that
    study.
    """
    (study,) = field.studies
    own = (OptimizerSpec(study.optimizers[0].name, {}, {}, label),)
    first = study.backends[0]
    plain = {"name": label, "joins": study.name, "optimizers": own, "claims": ()}
    return replace(study, **{**plain, "runs_on": {first: study.runs_on[first]}, **changes})


def published(plan: ReportPlan, name: str, *studies: StudyPlan) -> ReportPlan:
    """Return the plan of a set with this name and these studies."""
    return plan.model_copy(update={"published": name, "studies": studies})


def test_a_study_that_joins_is_on_the_board_of_the_published_one_and_nowhere_else(field: ReportPlan):
    handed_in = published(field, "lion.2026-12", submission(field))
    here = submission(field, "tiger")
    archive = with_joined((field, handed_in), [here])
    (study,) = archive[0].studies
    assert [one.label for one in study.optimizers][-2:] == ["lion", "tiger"]
    assert {place: [one.name for one in own] for place, own in study.joined.items()} == {
        "lion.2026-12": ["lion"],
        LOCAL: ["tiger"],
    }
    own = published(field, "", here).model_copy(update={"archive": archive})
    assert [[one.name for one in plan.studies] for plan in shown_plans(own)] == [[study.name], [], []]


def test_a_submission_that_acts_as_another_method_does_so_among_the_others(field: ReportPlan):
    (study,) = field.studies
    new = submission(field, acts_as={"lion": {study.workloads[0].name: "sgd"}})
    (joined,) = with_joined([field], [new])[0].studies
    assert joined.acts_as == {**study.acts_as, **new.acts_as}
    assert without_submissions(joined) == study


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"joins": "other"}, "no published set has a study 'other'"),
        ({"evaluations": 7}, "evaluations is not that of the published"),
        ({"label": "adam"}, "has a method 'adam' already"),
        ({"runs_on": {}}, "must run on one backend, with the final seeds of"),
        ({"workloads": {"settings": {"batch_size": 7}}}, "is not among those of the published"),
    ],
)
def test_what_cannot_join_is_told_of_a_local_one(field: ReportPlan, changes: dict[str, Any], told: str):
    if "workloads" in changes:
        (workload,) = field.studies[0].workloads
        changes = {"workloads": (workload.model_copy(update=changes["workloads"]),)}
    with pytest.raises(InputError, match=told):
        with_joined([field], [submission(field, **changes)])


def test_next_to_fewer_problems_the_others_stand_on_these_alone(field: ReportPlan, tmp_path: Path):
    (study,) = field.studies
    both = (*study.workloads, study.workloads[0].model_copy(update={"name": "b"}))
    more = study.model_copy(update={"workloads": both})
    two = field.model_copy(update={"studies": (more,)})
    few = submission(two, workloads=study.workloads)
    (here,) = with_joined([two], [few])[0].studies
    assert (len(here.workloads), here.all_workloads) == (1, 2), "how many the field has is told"
    assert here.workloads == study.workloads
    handed_in = two.model_copy(update={"published": "few", "studies": (few,)})
    assert with_joined([two, handed_in], []) == (two, handed_in), "a set must have all problems"
    stored(tmp_path, two, "2026-12-01")
    assert (
        "it has 1 of the 2 workloads of digits_mlp"
        in submission_flaws(handed_in, "2026-12-02", [tmp_path])[0]
    )
    other = submission(two, "tiger", workloads=more.workloads[1:])
    (here,) = with_joined([two], [few, submission(two, "tiger")])[0].studies
    assert (here.workloads, len(here.joining)) == (study.workloads, 2), (
        "those of the first are what both have"
    )
    with pytest.raises(InputError, match="no workload of digits_mlp is one of all studies"):
        with_joined([two], [few, other])


def test_sets_with_methods_of_one_study_name_all_join(field: ReportPlan):
    first, second = (
        published(field, name, submission(field, name).model_copy(update={"name": "own"}))
        for name in ("a", "b")
    )
    kept = best_of((field, first, second))
    assert [len(plan.studies) for plan in kept] == [1, 1, 1]
    (study,) = with_joined(kept, [])[0].studies
    assert {place: [one.optimizers[0].label for one in own] for place, own in study.joined.items()} == {
        "a": ["a"],
        "b": ["b"],
    }


def test_a_set_with_another_protocol_stays_by_itself(field: ReportPlan):
    apart = field.model_copy(update={"published": "b", "studies": (submission(field, evaluations=7),)})
    archive = with_joined([field, apart], [])
    assert archive == (field, apart)


def stored(folder: Path, plan: ReportPlan, published: str) -> None:
    """Write the plan and the day of publication of a set to a folder of sets."""
    place = folder / plan.published
    place.mkdir(parents=True)
    (place / "plan.json").write_text(plan.at(lambda path: Path(path.name)).to_json())
    (place / "provenance.json").write_text(json.dumps({"published": published, "machines": []}))
    (place / "SHA256SUMS").touch()


def test_a_set_that_cannot_join_is_told_why_whatever_is_published_later(field: ReportPlan, tmp_path: Path):
    (study,) = field.studies
    handed_in = field.model_copy(update={"published": "lion", "studies": (submission(field),)})
    assert (
        "no published set has a study 'digits_mlp'"
        in submission_flaws(handed_in, "2026-12-02", [tmp_path])[0]
    )
    stored(tmp_path, field, "2026-12-01")
    stored(tmp_path, handed_in, "2026-12-02")
    (told,) = submission_flaws(handed_in, "2026-12-03", [tmp_path])
    assert "lion: joins: digits_mlp has a method 'lion' already" in told
    assert submission_flaws(field, "2026-12-03", [tmp_path]) == []
    other = replace(study, evaluations=7)
    stored(tmp_path, field.model_copy(update={"published": "later", "studies": (other,)}), "2026-12-04")
    assert "evaluations is not that" in submission_flaws(handed_in, "2026-12-05", [tmp_path])[0]
    assert submission_flaws(handed_in, "2026-12-02", [tmp_path]) == [], "it is in nobody's way, least its own"


def test_a_study_that_is_run_here_has_what_joins_the_published_one(field: ReportPlan):
    (study,) = field.studies
    handed_in = field.model_copy(update={"published": "lion", "studies": (submission(field),)})
    archive = with_joined((field, handed_in), [])
    both = joined_locally(study, archive)
    assert both.optimizers == archive[0].studies[0].optimizers
    assert without_submissions(both) == study
    own = field.model_copy(update={"published": "", "studies": (both,), "archive": archive})
    assert [[one.name for one in plan.studies] for plan in shown_plans(own)] == [[], [], [study.name]]
    apart = joined_locally(replace(study, evaluations=7), archive)
    assert not apart.joined
    more = (*study.workloads, study.workloads[0].model_copy(update={"name": "b"}))
    assert not joined_locally(study.model_copy(update={"workloads": more}), archive).joined, (
        "it has all problems"
    )
    own = own.model_copy(update={"studies": (apart,)})
    assert [len(plan.studies) for plan in shown_plans(own)] == [1, 0, 0], "the published one, with Lion"


def test_the_sums_of_sets_that_join_count(field: ReportPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    for name in (field.published, "lion"):
        (PUBLISHED / name).mkdir(parents=True)
        (PUBLISHED / name / "SHA256SUMS").write_text(f"{name} 1")
    handed_in = field.model_copy(update={"published": "lion", "studies": (submission(field),)})
    studies = with_joined((field, handed_in), [submission(field, "tiger")])[0].studies
    sums = checksums_of([field.published], studies)
    assert sums == [f"{field.published} 1", "lion 1"]


def test_the_runs_of_a_study_that_joins_count_on_the_first_backend_without_seconds(field: ReportPlan):
    (study,) = field.studies
    by_itself = read_tables(study.tables)
    (joined,) = with_joined([field], [submission(field)])[0].studies
    both = tables_of(joined)
    assert len(both.runs) == 2 * len(by_itself.runs)
    assert set(both.runs[len(by_itself.runs) :]["backend"]) == {study.backends[0]}
    assert len(both.curves) == 2 * len(by_itself.curves)
    assert both.timings.equals(by_itself.timings)
    assert both.memory.equals(by_itself.memory)
    plan = field.model_copy(update={"studies": (joined,), "parity": None})
    shown = Version(plan, (ShownStudy(joined, joined, both, [], plan),), [], "", [], None)
    assert shown.jobs.equals(by_itself.jobs), "what was run here is without what joins"


def test_what_failed_of_a_submission_and_what_it_ran_on_are_told(tmp_path: Path):
    field, own = (
        read_plan(write_plan(tmp_path / shape.name, [shape]))
        for shape in (
            Shape(optimizers=("adagrad", "adam")),
            Shape("own", optimizers=(DIVERGING,), backends=("jax",)),
        )
    )
    (new,) = own.studies
    new = new.model_copy(update={"joins": "digits_mlp", "runs_on": {"torch": new.runs_on["jax"]}})
    (study,) = with_joined([field], [new])[0].studies
    (placed,) = submissions(study, tables_of(study))
    assert [one.failed for one in placed.problems] == [1]
    assert "\nIt ran on torch, the field's methods on jax, whose steps are" in as_text(placed)
    assert "It ran on" not in as_text(replace(placed, backend="jax"))


def test_a_target_may_go_by_workload():
    targets: Targets = {"train_loss": {"digits": 0.1, "mesh": 0.2}, "test_loss": 0.5}
    training = TrainingProtocol(budget={"steps": 1}, evaluations=1, targets=targets)
    assert training.targets_on("digits") == {"train_loss": 0.1, "test_loss": 0.5}
    assert training.targets_on("other") == {"test_loss": 0.5}


def test_figures_show_the_best_and_those_that_join(field: ReportPlan, monkeypatch: pytest.MonkeyPatch):
    (study,) = with_joined([field], [submission(field)])[0].studies
    tables = read_tables(study.tables)
    assert drawn_part(study, tables) == (study, tables), "all where they are few"
    monkeypatch.setattr(all_figures, "MOST_DRAWN", 2)
    part, kept = drawn_part(study, tables)
    mean = mean_ranks(board_ranks([(study, tables)], study.backends[0]))["method"]
    assert [one.label for one in part.optimizers] == [mean[0].partition(" @ ")[0], "lion"]
    assert set(kept.runs["optimizer"]) == {part.optimizers[0].label}
    assert set(kept.timings["optimizer"]) == {part.optimizers[0].label}
