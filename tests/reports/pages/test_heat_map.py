"""The map of the overview: which answer stands for a problem, and how far each method is from the best."""

from __future__ import annotations

import math
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from curvebench.reports.boards.leaderboard import leaderboard
from curvebench.reports.pages import heat_map as heat_map_module
from curvebench.reports.pages.heat_map import HeatCell, folded, heat_map
from curvebench.reports.pages.overview import Answer, answers
from curvebench.reports.pages.study_pages import study_page
from curvebench.results.archive import HERE
from curvebench.spec.method import OptimizerSpec
from tests.reports.changing import replace
from tests.reports.conftest import Report, Studies, words_of


@pytest.fixture(scope="module")
def found(studies: Studies) -> list[Answer]:
    return answers(studies)


def _of(answer: Answer, name: str, medians: dict[str, float], best: tuple[str, ...]) -> Answer:
    winner = replace(answer.use, best=replace(answer.use.best, methods=best), measure="target")
    workload = answer.workload.model_copy(update={"name": name})
    return replace(answer, workload=workload, use=winner, medians=medians)


def test_cells_are_ratios_to_the_best_and_misses(found: list[Answer]):
    one = _of(found[0], "one", {"adam": 10.0, "sgd": 10.9, "muon": math.inf, "alone": 400.0}, ("adam", "sgd"))
    two = _of(found[0], "two", {"adam": 33.0, "sgd": 3.0, "muon": 6.0}, ("sgd",))
    lonely = _of(found[0], "three", {"adam": 1.0, "other": 2.0}, ("adam",))
    heat = heat_map([one, two, lonely])
    assert [row.answer.workload.name for row in heat.rows] == ["one", "two"]
    assert heat.methods == ("adam", "sgd", "muon"), "a method on one problem of several has no column"
    assert heat_map([one]).methods == ("adam", "sgd", "muon", "alone")
    assert heat.rows[0].cells == (
        HeatCell(1.0, 0, True),
        HeatCell(1.09, 0, True),
        HeatCell(math.inf, 5, False),
    )
    assert [cell.level for cell in heat.rows[1].cells if cell] == [4, 0, 2]
    shown = words_of("heat.jinja", "heat_table", heat, lambda answer: "", "map")
    assert re.findall(r'<td class="heat-\d">([^<]*)<', shown)[:3] == ["1", "1.1", "∞"], "1 is the best alone"
    words = words_of("heat.jinja", "heat_words")
    assert "miss the target, or diverge" in words
    assert "a loss over the least, an accuracy (or else what is to be large) the other way round" in words


def test_those_that_join_come_first_and_the_best_of_the_first_board_lead(
    found: list[Answer], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(heat_map_module, "MOST_DRAWN", 3)
    new = found[0].study.model_copy(update={"optimizers": (OptimizerSpec("adam", {}, {}, "new"),)})
    joined = replace(found[0], study=found[0].study.model_copy(update={"joined": {HERE: (new,)}}))
    costs = {"adam": 4.0, "sgd": 3.0, "muon": 2.0, "lion": 1.0}
    one = _of(joined, "one", costs | {"new @ egop": 8.0}, ("lion",))
    two = _of(found[0], "two", costs, ("lion",))
    sparse = _of(found[0], "three", {"adam": 1.0, "sgd": 2.0, "muon": 1.0}, ("adam",))
    rows = [SimpleNamespace(method=method) for method in ("muon", "lion", "adam")]
    heat = heat_map([one, two, sparse], SimpleNamespace(rows=rows))  # type: ignore[arg-type]
    assert heat.methods == ("new @ egop", "muon", "lion", "adam", "sgd")
    assert (heat.leading.methods, heat.leading.joined) == (("new @ egop", "muon", "lion"), 1)
    assert [row.answer.workload.name for row in heat.leading.rows] == ["one", "two"]
    assert [cell and cell.ratio for cell in heat.leading.rows[1].cells] == [None, 2.0, 1.0]
    assert len(heat.rows) == 3
    monkeypatch.setattr(heat_map_module, "MOST_DRAWN", 1)
    assert heat.leading.methods == ("new @ egop", "muon"), "beside those that join at least one of the others"
    assert [row.answer.workload.name for row in heat.leading.rows] == ["one", "two", "three"], "half ran"


def test_of_what_is_to_be_large_the_inverse_counts_and_of_what_is_not_positive_nothing(found: list[Answer]):
    end = replace(found[0].use, measure="end")
    study = replace(found[0].study, metric="validation_accuracy")
    large = replace(found[0], study=study, use=end, medians={"adam": 0.9, "sgd": 0.3})
    other = _of(found[0], "other", {"adam": 0.0, "sgd": 1.0}, ("adam",))
    heat = heat_map([large, replace(large), other])
    assert [cell.ratio for cell in heat.rows[0].cells if cell] == [1.0, pytest.approx(3.0)]
    assert len(heat.rows) == 2, "the row of a loss of 0 is left out"


def test_a_problem_is_stood_for_by_the_study_whose_methods_others_have(found: list[Answer]):
    rare = _of(found[0], "net", {"adam @ block": 1.0, "sgd @ block": 1.0, "adam": 2.0}, ("adam",))
    usual = _of(found[0], "net", {"adam": 1.0, "sgd": 2.0}, ("adam",))
    other = _of(found[0], "lsq", {"adam": 1.0, "sgd": 2.0}, ("adam",))
    kept, more = folded([rare, usual, other])
    assert [id(one) for one in kept] == [id(usual), id(other)]
    assert [id(one) for one in more] == [id(rare)]


def test_a_study_of_several_problems_without_a_claim_is_answered_by_its_map(report: Report, changed: Path):
    text = (changed / "study_convex.html").read_text()
    answer, shown, curve = (
        text.index(part) for part in ("is first of", '<table class="heat fits">', "<figure>")
    )
    assert answer < shown < curve
    assert "basis included, on log_sum_exp</h4>" in text[curve:]
    one = (report.site / "study_digits_mlp.html").read_text()
    assert '<table class="heat' not in one
    assert "basis included</h4>" in one


def test_where_no_problem_has_a_row_answers_stand_in_place_of_the_map(studies: Studies):
    study, tables = studies[1][0].model_copy(update={"claims": ()}), studies[1][1]
    board, found = leaderboard([(study, tables)], "jax"), answers([(study, tables)])
    assert study_page(study, tables, [], found, board)["heat"]
    ended = [replace(answer, medians=dict.fromkeys(answer.medians, 0.0)) for answer in found]
    assert study_page(study, tables, [], ended, board)["heat"] is None
