"""The overview: which method to use for what, by the tables, and uncertain where they are."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest

from reports.overview import Answer, _leading, answers, listed, sentence
from reports.plan import StudyPlan
from reports.tables import Tables
from tests.reports.conftest import Report
from tests.reports.synthetic import BASIS_EVALUATIONS, STEPS


def answer(study: StudyPlan, tables: Tables) -> Answer:
    (found,) = answers([(study, tables)])
    return found


def without(tables: Tables, keep: pl.Expr) -> Tables:
    return replace(tables, runs=tables.runs.filter(keep | (pl.col("stage") != "final")))


def copied(tables: Tables, method: str, onto: str) -> Tables:
    """The tables with one method's final runs in place of another's."""
    final = pl.col("stage") == "final"
    same = tables.runs.filter(final & (pl.col("method") == method)).with_columns(pl.lit(onto).alias("method"))
    return replace(tables, runs=pl.concat([tables.runs.filter(~final | (pl.col("method") != onto)), same]))


def test_the_best_method_is_named_with_what_it_costs_beside_the_plain_choice(study, tables):
    found = answer(study, tables)
    assert (found.best, found.beaten, found.backend) == (("adam @ egop",), 5, "jax")
    assert sentence(found) == "Each of the 5 others is beaten, seed by seed on 10 seeds."
    assert found.plain == "adam"
    assert found.effect is not None
    assert found.effect.median < 0.01
    assert found.effect.low <= found.effect.median <= found.effect.high
    assert found.cost.step is not None
    # 20 steps take 0.02 + 0.004 * 2 * 2 seconds in the basis, 0.02 + 0.004 * 2 without
    assert found.cost.step.median == pytest.approx(0.036 / 0.028)
    assert found.cost.gradients == f"{BASIS_EVALUATIONS} + {STEPS[-1]}"
    assert found.cost.more_memory == "+0 B"  # on the device, where both were measured


def test_equal_methods_cannot_be_told_apart_and_work_decides(study, tables):
    found = answer(study, copied(tables, "adam @ egop", "adam"))
    assert found.best == ("adam", "adam @ egop"), "of equals the one that the study names first"
    assert found.others == "adam @ egop"
    told = sentence(found)
    assert told.startswith(
        "On 10 seeds 1 other cannot be told from it; 4 are beaten. Of these, adam gets to "
    )
    assert "validation accuracy of 0.9 with the fewest gradients" in told
    assert found.plain == "sgd"


def test_a_basis_is_charged_in_the_race(study, tables):
    runs = copied(tables, "adam @ egop", "adam").runs
    charged = pl.when(pl.col("method") == "adam").then(0).otherwise("basis_gradient_evaluations")
    free = replace(tables, runs=runs.with_columns(charged.alias("basis_gradient_evaluations")))
    found = answer(study, free)
    assert found.fastest == ("adam",)
    assert found.evaluations is not None
    assert found.evaluations.median in STEPS


def test_few_seeds_are_uncertain_and_say_that_they_cannot_do_better(study, tables):
    found = answer(study, without(tables, pl.col("seed") < 103))
    assert not found.certain
    assert len(found.best) == 6
    told = sentence(found)
    assert told.startswith("Uncertain: 3 seeds do not tell any of 6 methods from another, and so few cannot")
    assert "0.625" in told


def test_a_method_alone_and_runs_that_all_diverged_say_so(study, tables):
    alone = answer(study, without(tables, pl.col("method") == "sgd"))
    assert sentence(alone) == "No other method ran on it (10 seeds)."
    assert (alone.plain, alone.effect, alone.cost.step) == (None, None, None)
    outcome = pl.lit("diverged").alias("outcome")
    lost = answer(study, replace(tables, runs=tables.runs.with_columns(outcome)))
    assert sentence(lost).startswith("Nothing can be told: half of the runs of every method")


def test_of_a_ring_in_which_each_beats_the_next_all_may_be_the_best(study):
    rings = (("sgd", "adagrad", "adam"), ("adagrad", "adam", "sgd"), ("adam", "sgd", "adagrad"))
    rows = [
        {"workload": "digits_mlp", "seed": seed, "method": method, "value": 1.0 + place}
        for seed in range(60)
        for place, method in enumerate(rings[seed % 3])
    ]
    order, _ = _leading(study, pl.DataFrame(rows), "minimize")
    assert set(order) == {"sgd", "adagrad", "adam"}


def test_a_workload_without_final_runs_has_no_answer(study, tables):
    assert answers([(study, without(tables, pl.lit(value=False)))]) == []


def test_long_lists_are_cut():
    assert listed(["a"]) == "a"
    assert listed(["a", "b"]) == "a and b"
    assert listed(list("abcde")) == "a, b, c and 2 more"


def test_the_page_shows_the_answer_with_intervals_and_its_words(report: Report):
    text = (report.site / "index.html").read_text()
    table = text.partition('<table class="answers">')[2].partition("</table>")[0]
    rows = table.partition("<tbody>")[2].split("<tr>")[1:]
    assert len(rows) == 3
    assert "Each of the 5 others is beaten, seed by seed on 10 seeds." in rows[0]
    assert 'href="study_digits_mlp.html#digits_mlp.jax"' in rows[0]
    assert "that of adam" in rows[0]
    assert rows[0].count('class="range">[') == 2
    assert "methods.html#best-set" in text
