"""What tuning takes, from a table: scores, settings that tie, and the choice among them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from documents.document import Direction
from results.tuning import chosen_setting, setting_of, tied_settings, tuning_scores
from tests.results.rows import rows


def tried(run: str, final: float, rate: float = 0.1, **changes: Any) -> dict[str, Any]:
    metrics = [{"name": "train_loss", "value": final}]
    return {"run": run, "stage": "sweep", "learning_rate": rate, "final_metrics": metrics, **changes}


def test_tuning_judges_what_did_not_finish_as_the_worst():
    table = rows(
        "runs",
        tried("a", 1.0),
        tried("b", 0.5, outcome="diverged"),
        tried("c", 0.5, outcome="error"),
        tried("d", math.nan),
    )
    scores = tuning_scores(table, "train_loss", "final", "minimize")
    assert scores["value"].to_list() == [1.0, math.inf, math.inf, math.inf]
    assert tuning_scores(table, "train_loss", "final", "maximize")["value"][1] == -math.inf


def test_settings_that_tie_are_found_and_the_least_is_taken():
    table = rows(
        "runs",
        tried("a", 1.0 + 1e-14, 0.2),
        tried("b", 1.0, 0.3),
        tried("c", 1.1, 0.1),
        tried("d", 0.5, 0.4, outcome="diverged"),
        tried("e", math.nan, 0.05),
    )
    unfinished = table.filter(pl.col("run").is_in(["d", "e"]))
    for among, direction, count, rate in (
        (table, "minimize", 2, 0.2),
        (table, "maximize", 1, 0.1),
        (unfinished, "minimize", 2, 0.05),
    ):
        way: Direction = "minimize" if direction == "minimize" else "maximize"
        assert len(tied_settings(among, "train_loss", "final", way)) == count
        assert chosen_setting(among, ["learning_rate"], "train_loss", "final", way) == (rate,)
    assert not len(tied_settings(table.clear(), "train_loss", "final", "minimize"))


def test_a_setting_that_lacks_a_hyperparameter_is_no_other_one():
    setting = setting_of({"learning_rate": 0.1, "hyperparameters": None}, ["learning_rate", "beta1"])
    assert setting[0] == 0.1
    assert math.isnan(setting[1])


@given(
    st.lists(
        st.tuples(
            st.sampled_from([0.01, 0.1, 1.0]),
            st.sampled_from([0.5, 0.9]),
            st.sampled_from([1.0, 1.0 + 1e-14, 2.0, math.nan]),
            st.sampled_from(["reached", "budget", "diverged", "error"]),
        ),
        min_size=1,
        max_size=12,
    ),
    st.sampled_from(["minimize", "maximize"]),
)
def test_of_all_settings_the_least_of_the_best_medians_is_taken(
    found: list[tuple[float, float, float, str]], direction: Direction
):
    table = rows(
        "runs",
        *(
            tried(
                str(number), final, rate, outcome=outcome, hyperparameters=[{"name": "beta1", "value": beta}]
            )
            for number, (rate, beta, final, outcome) in enumerate(found)
        ),
    )
    sign = 1 if direction == "minimize" else -1
    costs: dict[tuple[float, float], list[float]] = {}
    for rate, beta, final, outcome in found:
        finished = outcome in ("reached", "budget") and not math.isnan(final)
        costs.setdefault((rate, beta), []).append(sign * final if finished else math.inf)
    medians = {setting: float(np.median(values)) for setting, values in costs.items()}
    best = min(medians.values())
    right = min(setting for setting, cost in medians.items() if cost == best or cost - best < 1e-13)
    assert chosen_setting(table, ["learning_rate", "beta1"], "train_loss", "final", direction) == right
