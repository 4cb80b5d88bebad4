"""Final settings that tuning did not choose: ties, shared choices, spaces of one's own, two machines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from results.reading import with_method
from results.set_plan import PlannedStudy
from results.tuning_flaws import of_tuning
from tests.results.rows import STUDY, rows

PLAN: dict[str, Any] = STUDY | {"tuning": STUDY["tuning"] | {"trials": 3}}


def tried(rate: float, loss: float, beta: float = 0.9, **changes: Any) -> dict[str, Any]:
    return {
        "run": f"{rate}-{beta}-{changes}",
        "stage": "sweep",
        "learning_rate": rate,
        "hyperparameters": [{"name": "beta1", "value": beta}],
        "final_metrics": [{"name": "train_loss", "value": loss}],
        **changes,
    }


def final(rate: float, beta: float = 0.9, **changes: Any) -> dict[str, Any]:
    return tried(rate, 0.0, beta, stage="final", seed=1000, **changes)


def found(runs: Sequence[dict[str, Any]], **changes: Any) -> list[str]:
    study = PlannedStudy.model_validate(PLAN | changes)
    return list(of_tuning(study, with_method(rows("runs", *runs))))


SWEEP = [tried(0.1, 2.0), tried(1.0, 1.0), tried(10.0, 1.0)]


def test_of_those_that_tie_the_least_is_the_choice():
    assert found([*SWEEP, final(1.0)]) == []
    for other in (0.1, 10.0):
        (told,) = found([*SWEEP, final(other)])
        assert told == (
            f"toy/runs.parquet: final runs of adam on quadratic, jax: learning_rate {other}, and tuning on "
            "jax chose learning_rate 1.0: the best median of the final train_loss, the least of those that "
            "tie"
        )


def test_all_final_runs_of_a_method_have_one_rate():
    (told,) = found([*SWEEP, final(1.0), final(0.1) | {"seed": 1001}])
    assert (
        "learning rates of adam on quadratic, jax: 0.1, 1.0; one is wanted, of those that were tried" in told
    )
    (told,) = found([*SWEEP, final(0.1) | {"seed": 1001}, final(1.0)])
    assert "0.1, 1.0; one is wanted" in told


def test_a_run_that_did_not_finish_is_no_choice():
    failed = [tried(0.1, 0.0, outcome="diverged"), tried(1.0, 1.0), tried(10.0, 0.5, outcome="error")]
    assert found([*failed, final(1.0)]) == []
    assert len(found([*failed, final(0.1)])) == 1


def test_the_identity_chooses_for_all_bases_where_the_choice_is_shared():
    shared = PLAN["tuning"] | {"shared_across": "bases"}
    in_basis = [tried(rate, loss, basis="egop") for rate, loss in ((0.1, 1.0), (1.0, 2.0), (10.0, 3.0))]
    runs = [*SWEEP, *in_basis, final(1.0)]
    assert found([*runs, final(0.1, basis="egop")]) == []
    assert found([*runs, final(1.0, basis="egop")], tuning=shared) == []
    (told,) = found([*runs, final(0.1, basis="egop")], tuning=shared)
    assert (
        "adam @ egop on quadratic, jax: learning_rate 0.1, and tuning on jax chose learning_rate 1.0" in told
    )


def test_what_is_tried_in_the_identity_alone_is_tuned_there_alone():
    alone = PLAN["tuning"] | {"shared_across": "bases", "tried_in": ["identity"]}
    runs = [*SWEEP, final(1.0), final(1.0, basis="egop")]
    assert found(runs, tuning=alone) == []
    (told,) = found([*runs, tried(0.1, 1.0, basis="egop")], tuning=alone)
    assert "tuning runs of adam @ egop on quadratic, jax: 1 settings and seeds, and 0 were planned" in told


def test_all_tuned_hyperparameters_are_part_of_the_choice():
    space: dict[str, Any] = {"adam": {"space": {"beta1": {}, "learning_rate": {}}}}
    runs = [tried(1.0, 1.0, 0.5), tried(1.0, 0.5, 0.9), tried(2.0, 0.5, 0.1)]
    assert found([*runs, final(1.0, 0.9)], optimizers=space) == []
    (told,) = found([*runs, final(1.0, 0.5)], optimizers=space)
    assert "learning_rate 1.0, beta1 0.5, and tuning on jax chose learning_rate 1.0, beta1 0.9" in told


@pytest.mark.parametrize(("rate", "count"), [(1.0, 0), (10.0, 0), (0.1, 1)])
def test_machines_that_tuned_alike_choose_for_themselves(rate: float, count: int):
    other = [tried(0.1, 2.0, machine="m2"), tried(1.0, 1.0, machine="m2"), tried(10.0, 0.9, machine="m2")]
    assert len(found([*SWEEP, *other, final(rate)])) == count
