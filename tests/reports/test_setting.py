"""The setting of a study in words, whatever its options are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from reports.plan import StudyPlan
from reports.setting import options, setting_rows


def rows(study: StudyPlan, **settings: Any) -> dict[str, list[str]]:
    return dict(setting_rows(replace(study, settings={**study.settings, **settings})))


def test_options_of_any_shape_become_a_phrase():
    given = {"beta1": 0.9, "epsilon": 1e-8, "nesterov": True, "amsgrad": False, "warm_start": False}
    assert options(given) == "beta1 0.9, epsilon 10⁻⁸, with nesterov, without amsgrad or warm start"
    assert options({}) == "nothing else"
    assert options({"batch_size": None, "widths": [10, 50]}) == "widths 10 and 50, no batch size"
    assert options({"rule": "torch:torch.optim.N_A", "arguments": {"eps": 0.1}}) == (
        "rule torch:torch.optim.N_A, eps 0.1"
    )
    assert options({"factors": {"weight_decay": {"bias": 0.0}}}) == "factors (weight decay (bias 0))"


@pytest.mark.parametrize(
    ("basis", "said"),
    [
        ({"name": "identity"}, "the original coordinates"),
        (
            {"name": "egop", "blocks": "weights", "samples": "1.0 d", "sampling": "initialization"},
            "of each weight matrix, from d gradients at initial parameters drawn anew",
        ),
        (
            {"name": "egop", "blocks": "all", "samples": 1000, "sampling": {"normal": 2.0}, "rank": None},
            (
                "of all parameters together, from 1000 gradients at normal parameters around 0, standard "
                "deviation 2"
            ),
        ),
        (
            {"blocks": ["W1"], "samples": "0.5 d", "rank": "0.1 d", "complement": "auxiliary"},
            (
                "of W1, from 0.5 d gradients, its 0.1 d leading eigenvectors, as auxiliary variables beside "
                "the original coordinates"
            ),
        ),
        (
            {"blocks": "layers", "every": "2 epochs", "state": "restarted", "estimator": "streaming"},
            "of each layer, estimated anew every 2 epochs, the optimizer starting anew, estimator streaming",
        ),
        ({"name": "own", "sampling": {"a": 1, "b": 2}}, "sampling (a 1, b 2)"),
    ],
)
def test_bases_are_told_in_words(study: StudyPlan, basis: dict[str, Any], said: str):
    assert rows(study, bases={"this": basis})["Bases"] == [f"this: {said}"]


@pytest.mark.parametrize(
    ("schedule", "said"),
    [
        ({"name": "constant", "warmup": 0.0, "cooldown": 0.0, "final": 0.0}, "constant"),
        ({"name": "cosine", "final": 0.1}, "cosine, to 0.1 times its height"),
        (
            {"name": "constant", "warmup": 0.05, "cooldown": 0.2, "final": 0.0},
            (
                "constant, after a linear rise over 5 % of the steps, falling over the last 20 % of the "
                "steps, to 0"
            ),
        ),
        ({"name": "inverse_sqrt"}, "inverse sqrt"),
    ],
)
def test_schedules_are_told_in_words(study: StudyPlan, schedule: dict[str, Any], said: str):
    assert rows(study, schedule=schedule)["Learning rate over a run"] == [said]


def test_budgets_seeds_tuning_and_backends_are_told_in_words(study: StudyPlan):
    search = {
        "protocol": "halton_search",
        "names": ["learning_rate", "beta1"],
        "trials": 20,
        "space": {"beta1": {"low": 0.5, "high": 0.99, "scale": "linear"}},
        "statistic": "median",
        "which": "best",
        "metric": "validation_accuracy",
        "shared_across": "none",
    }
    found = dict(
        setting_rows(
            replace(
                study,
                tuning=search,
                stop={"gradient_norm": 1e-8},
                settings={
                    "budget": {"epochs": 1, "evaluations": 40},
                    "seeds": {"tuning": 2, "final": 8},
                    "backends": {
                        "jax": {"device": "cpu", "tuned_on": "jax", "final_seeds": 1},
                        "torch": {"device": "gpu", "tuned_on": "jax", "final_seeds": 3},
                    },
                },
            )
        )
    )
    assert found["Length of a run"] == ["1 epoch, evaluated 40 times"]
    assert found["Seeds"] == ["2 to tune, 8 to judge"]
    assert found["Runs stop"] == ["at a gradient norm of 10⁻⁸ or less"]
    assert found["Targets"] == ["validation accuracy of 0.9 or more"]
    assert found["Tuning"] == [
        "learning rate and beta1: Halton search, 20 settings a method",
        "beta1 from 0.5 to 0.99, linear scale",
        "chosen by the median of the best validation accuracy",
        "each method for itself",
    ]
    assert found["Backends"] == [
        "jax on cpu: 1 final seed",
        "torch on gpu: 3 final seeds, with the settings chosen on jax",
    ]
    assert "Optimizers" not in found


def test_what_a_study_does_not_say_has_no_row(study: StudyPlan):
    bare = replace(study, settings={}, tuning={}, targets={}, stop={})
    assert setting_rows(bare) == []
