"""The setting of a study in words, whatever its options are."""

from __future__ import annotations

import re
from typing import Any

import pytest

from curvebench.reports.rendering import templates
from curvebench.spec.plan import BackendPlan, StudyPlan
from curvebench.spec.study import Schedule, Seeds
from curvebench.spec.tuning import Search
from tests.reports.changing import replace
from tests.reports.conftest import words_of


def options(given: dict[str, Any]) -> str:
    """A phrase of a study's setting."""
    return words_of("setting.jinja", "options", given)


def rows(study: StudyPlan) -> dict[str, str]:
    """What a study's page says of its setting, by term."""
    said = words_of("setting.jinja", "rows", study)
    return {term: words.strip() for term, words in re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", said)}


def test_options_of_any_shape_become_a_phrase():
    given = {"beta1": 0.9, "epsilon": 1e-8, "nesterov": True, "amsgrad": False, "warm_start": False}
    assert options(given) == "beta1 0.9, epsilon 10⁻⁸, with nesterov, without amsgrad or warm start"
    assert options({}) == "nothing else"
    assert options({"batch_size": None, "widths": [10, 50]}) == "widths 10 and 50, no batch size"
    assert options({"rule": "torch:torch.optim.N_A", "arguments": {"eps": 0.1}}) == (
        "rule torch:torch.optim.N_A, eps 0.1"
    )


def test_options_are_escaped_once_on_a_page():
    page: Any = templates().get_template("setting.jinja").module
    given = {"a": ["x & y", "<b>"], "b": ["<i>", "2", "3"], "c": [], "d": {"e": ["&"]}}
    said = " ".join(str(page.options(given)).split())
    assert said == "a x &amp; y and &lt;b&gt;, b &lt;i&gt;, 2 and 3, c none, d (e &amp;)"


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
                "of W1, from 0.5 d gradients, its 0.1 d leading eigenvectors, as auxiliary variables next to "
                "the original coordinates"
            ),
        ),
        (
            {"blocks": "layers", "every": "2 epochs", "estimator": "streaming"},
            "of each layer, estimated anew every 2 epochs, estimator streaming",
        ),
    ],
)
def test_bases_are_told_in_words(basis: dict[str, Any], said: str):
    assert words_of("setting.jinja", "basis", basis) == said


@pytest.mark.parametrize(
    ("schedule", "said"),
    [
        ({"name": "constant", "warmup": 0.0, "cooldown": 0.0}, "constant"),
        ({"name": "cosine", "final": 0.1}, "cosine, to 0.1 times its height"),
        ({"name": "linear", "warmup_epochs": 5.0}, "linear, after a linear rise over 5 epochs, to 0"),
        ({"name": "linear", "warmup_epochs": 1.0}, "linear, after a linear rise over 1 epoch, to 0"),
        (
            {"name": "constant", "warmup": 0.05, "cooldown": 0.2, "final": 0.0},
            (
                "constant, after a linear rise over 5 % of the steps, falling over the last 20 % of the "
                "steps, to 0"
            ),
        ),
    ],
)
def test_schedules_are_told_in_words(schedule: dict[str, Any], said: str):
    assert words_of("setting.jinja", "schedule", Schedule.model_validate(schedule)) == said


def test_budgets_seeds_tuning_and_backends_are_told_in_words(study: StudyPlan):
    axes = {"beta1": (0.5, 0.99, "linear"), "learning_rate": (1e-3, 1.0, "log")}
    search = Search.model_validate(
        {
            "protocol": "halton_search",
            "budget": 20,
            "space": {
                name: dict(zip(("low", "high", "scale"), axis, strict=True)) for name, axis in axes.items()
            },
            "choose": "median best validation_accuracy",
            "shared_across": "none",
        }
    )
    uses = {"jax": ("cpu", 1), "torch": ("gpu", 3)}
    found = rows(
        replace(
            study,
            tuning=search,
            stop={"gradient_norm": 1e-8},
            budget={"epochs": 1},
            evaluations=40,
            seeds=Seeds(tuning=2, final=8),
            runs_on={
                name: BackendPlan(device=device, tuned_on="jax", final_seeds=seeds)
                for name, (device, seeds) in uses.items()
            },
        )
    )
    assert (
        found.items()
        >= {
            "Length of a run": "1 epoch, evaluated 40 times",
            "Seeds": "2 to tune, 8 to judge",
            "Runs stop": "at a gradient norm of 10⁻⁸ or less",
            "Targets": "validation accuracy of 0.9 or more",
            "Tuning": "learning rate and beta1: Halton search, 20 settings a method"
            "<br>beta1 from 0.5 to 0.99, linear scale<br>learning rate from 0.001 to 1, log scale"
            "<br>chosen by the median of the best validation accuracy"
            "<br>each method for itself",
            "Backends": "jax on cpu: 1 final seed"
            "<br>torch on gpu: 3 final seeds, with the settings chosen on jax",
        }.items()
    )


def test_where_there_is_one_setting_nothing_is_tuned(study: StudyPlan):
    fixed = {
        "protocol": "random_search",
        "budget": 1,
        "space": {"learning_rate": {"low": 30.0, "high": 30.0, "scale": "linear"}},
        "choose": "median final train_loss",
        "shared_across": "bases",
    }
    seeds = Seeds(tuning=1, final=8)
    found = rows(replace(study, tuning=Search.model_validate(fixed), seeds=seeds))
    assert found["Seeds"] == "nothing is tuned, 8 to judge"


def test_what_a_study_of_hours_adds_is_told_in_words(study: StudyPlan):
    plain = rows(study)
    assert not {"Gradients", "Minibatches"} & plain.keys()
    found = rows(
        replace(
            study,
            budget={"epochs": 90},
            evaluations=45,
            evaluated_splits=("validation", "test"),
            clip_gradient_norm=0.5,
            gradient_accumulation=4,
        )
    )
    assert found["Length of a run"] == "90 epochs, evaluated 45 times on validation and test alone"
    assert found["Gradients"] == "clipped to a norm of 0.5 over all parameters"
    assert found["Minibatches"] == "in 4 equal parts, whose gradients are averaged"
