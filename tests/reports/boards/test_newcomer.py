"""A newcomer whose learning rate is at an end of those tried is told so, and which way to go."""

from __future__ import annotations

import polars as pl
import pytest

from curvebench.reports.boards.newcomer import as_json, as_text, newcomers
from curvebench.results.archive import HERE
from tests.reports.changing import replace
from tests.reports.conftest import Studies, words_of
from tests.reports.synthetic import CHOSEN, RATES


@pytest.mark.parametrize(
    ("rate", "told"),
    [
        (RATES[0], "lowest that was tried on digits_mlp: a lower one may be better."),
        (RATES[-1], "highest that was tried on digits_mlp: a higher one may be better."),
        (CHOSEN, None),
    ],
)
def test_a_rate_at_the_edge_is_told_in_the_terminal_and_on_the_page(
    studies: Studies, rate: float, told: str | None
):
    [(study, tables)] = studies[:1]
    new = study.model_copy(update={"optimizers": study.optimizers[-1:], "bases": study.bases[:1]})
    field = study.model_copy(update={"joined": {HERE: (new,)}})
    final = (pl.col("method") == "adam") & (pl.col("stage") == "final")
    chosen = pl.when(final).then(rate).otherwise("learning_rate")
    (found,) = newcomers(field, replace(tables, runs=tables.runs.with_columns(learning_rate=chosen)))
    edge = told and told.split()[0]
    assert [one["edge"] for one in as_json(found)["problems"]] == [edge]
    page = words_of("macros.html.jinja", "at_edge", found.problems)
    for text in (as_text(found), page):
        assert (told is not None and told in text) or (told is None and "that was tried" not in text)
