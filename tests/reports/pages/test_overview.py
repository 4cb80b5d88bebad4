"""The overview: which method to use for what, by the tables, and uncertain where they are."""

from __future__ import annotations

import re
from math import inf
from pathlib import Path
from typing import Any

import polars as pl

from curvebench.reports.boards.leaderboard import leaderboard
from curvebench.reports.pages.overview import Answer, answers, best_methods_of
from curvebench.reports.statistics.shares import share_interval
from curvebench.reports.tables import Tables
from curvebench.spec.plan import StudyPlan
from tests.reports.changing import replace
from tests.reports.conftest import Studies, bare_site, words_of
from tests.reports.synthetic import BASIS_EVALUATIONS, Shape


def answer(study: StudyPlan, tables: Tables) -> Any:
    (found,) = answers([(study, tables)])
    return found


def sentence(answer: Answer) -> str:
    return words_of("answers.jinja", "sentences", answer)


def without(tables: Tables, keep: pl.Expr) -> Tables:
    return replace(tables, runs=tables.runs.filter(keep | (pl.col("stage") != "final")))


def copied(tables: Tables, method: str, onto: str) -> Tables:
    """The tables with one method's final runs in place of another's."""
    final = pl.col("stage") == "final"
    same = tables.runs.filter(final & (pl.col("method") == method)).with_columns(pl.lit(onto).alias("method"))
    return replace(tables, runs=pl.concat([tables.runs.filter(~final | (pl.col("method") != onto)), same]))


def unpaid(tables: Tables) -> Tables:
    """The tables with bases that cost nothing."""
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
    assert found.ends.best.others == ("adam @ egop",)
    assert found.agree
    assert sentence(found).endswith("has the lowest training loss after equal steps (or adam @ egop).")


def missed(tables: Tables, which: pl.Expr) -> Tables:
    """The tables with the target missed by some runs."""
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
