"""The overview: which method to use for what, uncertain where tables are, and the map of methods."""

from __future__ import annotations

import re
from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

from curvebench.reports.boards.leaderboard import leaderboard
from curvebench.reports.pages import overview
from curvebench.reports.pages.overview import Answer, HeatCell, answers, best_methods_of, folded, heat_map
from curvebench.reports.pages.study_pages import study_page
from curvebench.reports.statistics.shares import share_interval
from curvebench.reports.tables import Tables
from curvebench.results.archive import LOCAL
from curvebench.spec.method import OptimizerSpec
from curvebench.spec.plan import StudyPlan
from curvebench.spec.study import Sweep
from tests.reports.changing import replace
from tests.reports.conftest import Report, Studies, bare_site, words_of
from tests.reports.synthetic import BASIS_EVALUATIONS, Shape


def answer(study: StudyPlan, tables: Tables) -> Any:
    (found,) = answers([(study, tables)])
    return found


def sentence(answer: Answer) -> str:
    return words_of("answers.jinja", "sentences", answer)


def without(tables: Tables, keep: pl.Expr) -> Tables:
    return replace(tables, runs=tables.runs.filter(keep | (pl.col("stage") != "final")))


def copied(tables: Tables, method: str, onto: str) -> Tables:
    """Return the tables with one method's final runs in place of another's."""
    final = pl.col("stage") == "final"
    same = tables.runs.filter(final & (pl.col("method") == method)).with_columns(pl.lit(onto).alias("method"))
    return replace(tables, runs=pl.concat([tables.runs.filter(~final | (pl.col("method") != onto)), same]))


def unpaid(tables: Tables) -> Tables:
    """Return tables in which bases cost nothing."""
    free = pl.lit(0, pl.Int64).alias("basis_gradient_evaluations")
    return replace(tables, runs=tables.runs.with_columns(free))


def test_the_first_to_the_target_is_used_and_the_one_that_ends_best_stands_beside_it(study, tables):
    found = answer(study, tables)
    assert found.backend == "jax"
    assert not found.agree
    use, ends = found.winners
    assert (use.measure, ends.measure) == ("target", "end")
    assert use.best.method == "adam"
    assert (ends.best.methods, ends.best.beaten) == (("adam @ egop",), 5)
    assert ends.basis == BASIS_EVALUATIONS
    assert use.basis == 0
    assert use.evaluations.median < BASIS_EVALUATIONS < ends.evaluations.median
    assert use.seconds.median < ends.seconds.median
    assert use.reached == share_interval(10, 10)
    assert found.baseline == "sgd"
    assert ends.effect.exact
    assert ends.effect.floor.median < 0.01
    assert re.fullmatch(
        r"Lowest training loss after equal steps: adam @ egop \(gradients × [\d.,]+, seconds × [\d.,]+\); "
        r"first to the target, sampling charged: adam \(or adagrad\)\.",
        sentence(found),
    )


def test_where_both_measures_agree_there_is_one_row(study, tables):
    found = answer(study, without(unpaid(tables), pl.col("basis") == "identity"))
    assert found.agree
    assert found.winners == (found.use,)
    assert sentence(found) == (
        "adam (or adagrad) is first to the target and has the lowest training loss after equal steps."
    )


def test_of_equal_methods_the_one_that_the_study_names_first_leads(study, tables):
    found = answer(study, unpaid(copied(tables, "adam @ egop", "adam")))
    assert found.ends.best.methods == ("adam", "adam @ egop")
    assert found.agree
    assert sentence(found).endswith("has the lowest training loss after equal steps (or adam @ egop).")


def missed(tables: Tables, which: pl.Expr) -> Tables:
    """Return tables in which the runs of `which` miss the target."""
    none = pl.col("targets").list.eval(pl.element().struct.with_fields(pl.lit(None, pl.Int64).alias("steps")))
    return replace(tables, runs=tables.runs.with_columns(pl.when(which).then(none).otherwise("targets")))


def test_where_nobody_reaches_the_target_the_end_decides_and_it_is_said(study, tables):
    found = answer(study, missed(tables, pl.lit(value=True)))
    assert found.use is found.ends
    assert found.use.measure == "end"
    assert sentence(found) == (
        "Half of the runs of every method miss validation accuracy 0.9. "
        "Lowest training loss after equal steps: adam @ egop."
    )
    aimless = answer(replace(study, targets={}), tables)
    assert (aimless.target, aimless.use.evaluations, aimless.use.seconds) == (None, None, None)
    assert sentence(aimless) == "Lowest training loss after equal steps: adam @ egop."


def test_few_seeds_are_uncertain_and_say_that_they_cannot_do_better(study, tables):
    found = answer(study, without(tables, pl.col("seed") < 1003))
    assert not found.use.best.beaten
    assert len(found.use.best.methods) == 6
    told = sentence(found)
    assert told == (
        "Undecided: 3 seeds cannot tell one of 6 methods from another (least corrected p 0.625), "
        "and none is called first or best."
    )
    assert found.winners == ()


def test_where_seeds_are_too_few_no_page_calls_a_method_first_or_best(tmp_path: Path):
    few = Shape("few", ("one", "two"), ("sgd", "adam"), ("identity",), ("jax",), seeds=(1000,))
    site = bare_site(tmp_path, few, change=lambda raw: raw["studies"][0].update(claims=[]))
    names = ("index", "study_few", "leaderboard")
    index, study, board = ((site / f"{name}.html").read_text() for name in names)
    assert "Undecided: 1 seed cannot tell one of 2 methods from another (least corrected p 0.500)" in index
    assert "first to target" not in index
    assert '<span class="range block">ends best' not in index
    assert "None of 2 methods on 2 problems is called first: too few seeds." in study
    assert "is first of" not in study
    assert "lead-tag" not in study + board


def test_a_method_alone_and_runs_that_all_diverged_say_so(study, tables):
    alone = answer(study, without(tables, pl.col("method") == "sgd"))
    assert sentence(alone) == "No other method ran on it (10 seeds)."
    assert (alone.baseline, alone.ends.effect) == ("sgd", None)
    assert alone.winners == (alone.use,), "its numbers are shown"
    outcome = pl.lit("diverged").alias("outcome")
    lost = answer(study, replace(tables, runs=tables.runs.with_columns(outcome)))
    assert sentence(lost).startswith("Inconclusive: half of the runs of every method")


def test_of_a_ring_in_which_each_beats_the_next_all_may_be_the_best(study):
    rings = (("sgd", "adagrad", "adam"), ("adagrad", "adam", "sgd"), ("adam", "sgd", "adagrad"))
    rows = [
        {"seed": seed, "method": method, "value": 1.0 + place}
        for seed in range(60)
        for place, method in enumerate(rings[seed % 3])
    ]
    found = best_methods_of(pl.DataFrame(rows), "minimize", study.methods)
    assert set(found.methods) == {"sgd", "adagrad", "adam"}


def test_a_method_without_a_finished_run_is_never_among_the_best(study):
    rows = [
        {"seed": seed, "method": method, "value": value}
        for seed in range(5)  # too few to tell anything
        for method, value in (("sgd", 1.0), ("adam", 1.1), ("adagrad", inf))
    ]
    assert set(best_methods_of(pl.DataFrame(rows), "minimize", study.methods).methods) == {"sgd", "adam"}


def test_studies_of_one_workload_say_which_they_are(study, tables):
    other = replace(study, name="shared")
    assert [each.shared for each in answers([(study, tables), (other, tables)])] == [True, True]
    assert [each.shared for each in answers([(study, tables)])] == [False]


def test_who_leads_is_first_by_its_score_where_no_other_score_is_greater(studies: Studies):
    board = leaderboard(studies[1:], "jax")
    first, second, third, *others = board.rows

    def said(score: float, *tiers: int) -> str:
        assert first.score
        lead = replace(first, score=replace(first.score, value=score))
        rows = [replace(row, tier=tier) for row, tier in zip((lead, second, third), tiers, strict=True)]
        others_ = [replace(row, tier=9) for row in others]
        return words_of("answers.jinja", "standing", replace(board, rows=(*rows, *others_)))

    assert "by its" in said(1.0, 1, 1, 2)
    assert f"; {second.method} cannot be told apart from it" in said(1.0, 1, 1, 2)
    assert "by its" not in said(0.0, 1, 1, 2)
    assert f"; {third.method} cannot be told apart from it" in said(0.0, 2, 1, 2)


def test_a_study_is_answered_by_the_board_of_its_first_backend_which_names_its_studies(tmp_path: Path):
    both = Shape("both", ("one", "two"), ("sgd", "adam"), ("identity",))
    lonely, more = (
        replace(both, name=name, workloads=(f"{name} problem",), optimizers=methods, backends=("jax",))
        for name, methods in (("lonely", ("momentum",)), ("more", both.optimizers))
    )
    site = bare_site(tmp_path, lonely, both, more, change=lambda raw: raw["studies"][1].update(claims=[]))
    assert "is first of 2 methods on 3 problems of both and more" in (site / "study_both.html").read_text()
    shown = re.findall(r'<th scope="row"[^>]*><a href="study_(\w+)\.html#', (site / "index.html").read_text())
    assert shown[-4:] == ["both", "both", "more", "lonely"], "what is on the map comes first"


@pytest.fixture(scope="module")
def mapped(studies: Studies) -> list[Answer]:
    return answers(studies)


def _of(answer: Answer, name: str, medians: dict[str, float], best: tuple[str, ...]) -> Answer:
    winner = replace(answer.use, best=replace(answer.use.best, methods=best), measure="target")
    workload = answer.workload.model_copy(update={"name": name})
    return replace(answer, workload=workload, use=winner, medians=medians)


def test_cells_are_ratios_to_the_best_and_misses(mapped: list[Answer]):
    one = _of(mapped[0], "one", {"adam": 10.0, "sgd": 10.9, "muon": inf, "alone": 400.0}, ("adam", "sgd"))
    two = _of(mapped[0], "two", {"adam": 33.0, "sgd": 3.0, "muon": 6.0}, ("sgd",))
    lonely = _of(mapped[0], "three", {"adam": 1.0, "other": 2.0}, ("adam",))
    heat = heat_map([one, two, lonely])
    assert [row.answer.workload.name for row in heat.rows] == ["one", "two"]
    assert heat.methods == ("adam", "sgd", "muon"), "a method on one problem of several has no column"
    assert heat_map([one]).methods == ("adam", "sgd", "muon", "alone")
    assert heat.rows[0].cells == (HeatCell(1.0, 0, True), HeatCell(1.09, 0, True), HeatCell(inf, 5, False))
    assert [cell.level for cell in heat.rows[1].cells if cell] == [4, 0, 2]
    shown = words_of("heat.jinja", "heat_table", heat, lambda answer: "", "map")
    assert re.findall(r'<td class="heat-\d">([^<]*)<', shown)[:3] == ["1", "1.1", "∞"], "1 is the best alone"
    words = words_of("heat.jinja", "heat_words", heat)
    assert "sweep" not in shown + words
    assert "miss the target, or diverge" in words
    assert "a loss over the least, an accuracy (or else what is to be large) the other way round" in words


def test_rows_of_a_sweep_are_labelled(mapped: list[Answer]):
    one = _of(mapped[0], "one", {"adam": 10.0, "sgd": 11.0}, ("adam",))
    sweep = Sweep(name="sizes", setting="batch_size")
    heat = heat_map([replace(one, workload=one.workload.model_copy(update={"sweep": sweep}))])
    assert "sweep of batch size" in words_of("heat.jinja", "heat_table", heat, lambda answer: "", "map")
    assert "count together as one problem" in words_of("heat.jinja", "heat_words", heat)


def test_submissions_lead_then_the_best_of_a_board(mapped: list[Answer], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(overview, "MOST_DRAWN", 3)
    new = mapped[0].study.model_copy(update={"optimizers": (OptimizerSpec("adam", {}, {}, "new"),)})
    joined = replace(mapped[0], study=mapped[0].study.model_copy(update={"joined": {LOCAL: (new,)}}))
    costs = {"adam": 4.0, "sgd": 3.0, "muon": 2.0, "lion": 1.0}
    one = _of(joined, "one", costs | {"new @ egop": 8.0}, ("lion",))
    two = _of(mapped[0], "two", costs, ("lion",))
    sparse = _of(mapped[0], "three", {"adam": 1.0, "sgd": 2.0, "muon": 1.0}, ("adam",))
    rows = [SimpleNamespace(method=method) for method in ("muon", "lion", "adam")]
    heat = heat_map([one, two, sparse], SimpleNamespace(rows=rows))  # type: ignore[arg-type]
    assert heat.methods == ("new @ egop", "muon", "lion", "adam", "sgd")
    assert (heat.leading.methods, heat.leading.joined) == (("new @ egop", "muon", "lion"), 1)
    assert [row.answer.workload.name for row in heat.leading.rows] == ["one", "two"]
    assert [cell and cell.ratio for cell in heat.leading.rows[1].cells] == [None, 2.0, 1.0]
    assert len(heat.rows) == 3
    monkeypatch.setattr(overview, "MOST_DRAWN", 1)
    assert heat.leading.methods == ("new @ egop", "muon"), "beside those that join at least one of the others"
    assert [row.answer.workload.name for row in heat.leading.rows] == ["one", "two", "three"], "half ran"


def test_of_what_is_to_be_large_the_inverse_counts_and_of_what_is_not_positive_nothing(mapped: list[Answer]):
    end = replace(mapped[0].use, measure="end")
    study = replace(mapped[0].study, metric="validation_accuracy")
    large = replace(mapped[0], study=study, use=end, medians={"adam": 0.9, "sgd": 0.3})
    other = _of(mapped[0], "other", {"adam": 0.0, "sgd": 1.0}, ("adam",))
    heat = heat_map([large, replace(large), other])
    assert [cell.ratio for cell in heat.rows[0].cells if cell] == [1.0, pytest.approx(3.0)]
    assert len(heat.rows) == 2, "the row of a loss of 0 is left out"


def test_a_problem_is_stood_for_by_the_study_whose_methods_others_have(mapped: list[Answer]):
    rare = _of(mapped[0], "net", {"adam @ block": 1.0, "sgd @ block": 1.0, "adam": 2.0}, ("adam",))
    usual = _of(mapped[0], "net", {"adam": 1.0, "sgd": 2.0}, ("adam",))
    other = _of(mapped[0], "lsq", {"adam": 1.0, "sgd": 2.0}, ("adam",))
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
    boards, found = [leaderboard([(study, tables)], "jax")], answers([(study, tables)])
    assert study_page(study, tables, [], found, boards)["heat"]
    ended = [replace(answer, medians=dict.fromkeys(answer.medians, 0.0)) for answer in found]
    assert study_page(study, tables, [], ended, boards)["heat"] is None
