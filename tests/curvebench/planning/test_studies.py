"""Study files become studies with every name looked up and every default filled in."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from curvebench.optimizers import rules
from curvebench.optimizers.bases import bases
from curvebench.paths import STUDY_FOLDER
from curvebench.planning import studies
from curvebench.planning.describing import describe
from curvebench.planning.studies import (
    FirstSeeds,
    Study,
    final_seeds,
    first_final_seed,
    missing_of,
    read_studies,
    read_study,
    tuning_seeds,
)
from curvebench.spec.errors import InputError
from curvebench.spec.job import training
from curvebench.spec.values import Option
from curvebench.stages.job import workload_of
from tests.curvebench.tiny import TINY, write_study

ROOT = Path(__file__).resolve().parents[3]


def test_names_are_resolved_and_defaults_filled_in(tmp_path):
    study = read_study(write_study(tmp_path))
    assert study.name == "tiny"
    settings = {"batch_size": None, "n": 8, "d": 4, "alpha": 2.0, "start_scale": 1.0}
    assert study.workloads["quick"][0].settings == settings
    assert study.optimizers[1].hyperparameters == {"beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8}
    assert study.bases[1].options == bases()["egop"].complete(
        {"samples": "2.0 d", "sampling": {"normal": 1.0}}
    )
    assert study.tuning.model_dump() == {
        "protocol": "two_stage_sweep",
        "of": "learning_rate",
        "coarse": (0.01, 0.1),
        "choose": {"statistic": "median", "which": "final", "metric": "train_loss"},
        "shared_across": "bases",
        "tried_in": None,
        "floor": None,
        "ties": None,
    }
    assert study.tuning.names == ("learning_rate",)
    assert study.schedule.model_dump() == {
        "name": "constant",
        "warmup": 0.0,
        "warmup_epochs": None,
        "cooldown": 0.0,
        "final": 0.0,
    }
    assert study.claims[0].conditions[0].smallest_effect == 0.05


@pytest.mark.parametrize(
    "name", ["", "_bases", "_fair", "_rates", "_optax_adagrad", "_other_widths", "_printed_adagrad"]
)
def test_rounding_ranks_nothing_on_the_linear_network(name: str):
    study = read_study(ROOT / f"benchmarks/studies/linear_network{name}.yaml")
    assert (study.precision, study.compare.floor) == ("float64", 1e-28)


def test_a_rule_comes_twice_with_other_options_and_labels(tmp_path):
    variants = "[adam, shampoo, {shampoo: {label: shampoo-ema, statistics: ema, beta2: 0.9}}]"
    study = read_study(write_study(tmp_path, ("[sgd, adam]", variants)))
    assert [one.label for one in study.optimizers] == ["adam", "shampoo", "shampoo-ema"]
    _, plain, averaged = study.optimizers
    assert plain.options == {name: option.default for name, option in rules()["shampoo"].options.items()}
    assert plain.hyperparameters == {"epsilon": 1e-6}
    assert averaged.options == {**plain.options, "statistics": "ema"}
    assert averaged.hyperparameters == {"epsilon": 1e-6, "beta2": 0.9}
    assert "shampoo-ema @ egop" in study.methods


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("{statistics: mean}", "shampoo: statistics = 'mean' is not one of sum, ema"),
        ("{beta2: 0.9}", "shampoo has no hyperparameter or option 'beta2'"),
    ],
)
def test_wrong_options_of_a_rule_are_said(tmp_path, options: str, said: str):
    with pytest.raises(InputError, match=said):
        read_study(write_study(tmp_path, ("[sgd, adam]", f"[adam, {{shampoo: {options}}}]")))


ON_LAYERS = (
    ("workload: {least_squares: {n: 8, d: 4}}", "precision: float64\nworkload: linear_network"),
    ("[sgd, adam]", "[sgd, adam, symo]"),
)


def test_a_rule_for_layers_is_held_against_workloads_bases_and_precision(tmp_path):
    vectors, bases_, network = tmp_path / "vectors", tmp_path / "bases", tmp_path / "network"
    with pytest.raises(InputError, match=r"optimizers.symo: least_squares: symo: takes .* a vector of shape"):
        read_study(write_study(vectors, ON_LAYERS[1]))
    with pytest.raises(InputError, match=r"optimizers.symo: linear_network: .* run it without a basis"):
        read_study(write_study(bases_, *ON_LAYERS))
    taken = ("{egop: {blocks: all,", "{egop: {optimizers: [sgd, adam], blocks: all,")
    assert read_study(write_study(network, *ON_LAYERS, taken)).optimizers[2].name == "symo"
    no_likelihood = (ON_LAYERS[0][0], "workload: errors_in_variables"), ("[sgd, adam]", "[sgd, adam, kfac]")
    with pytest.raises(InputError, match=r"optimizers.kfac: errors_in_variables: .* give its likelihood"):
        read_study(write_study(tmp_path / "targets", *no_likelihood, taken))
    single = ("precision: float64", "precision: float32")
    with pytest.raises(InputError, match=r"optimizers.symo: linear_network: symo: runs in float64, and this"):
        read_study(write_study(tmp_path / "single", *ON_LAYERS, taken, single))


def test_a_workload_comes_twice_with_other_settings_and_labels(tmp_path):
    labelled = (
        "workloads: [least_squares: {n: 8, d: 4}, least_squares: {n: 8, d: 4, alpha: 1.0, label: slow}]"
    )
    path = write_study(
        tmp_path,
        ("workload: {least_squares: {n: 8, d: 4}}", labelled),
        ("    steps: 20", "    settings: {slow: {d: 2}}\n    steps: 20"),
    )
    first, second = read_study(path).workloads["quick"]
    assert (first.name, first.locator, first.settings["d"]) == ("least_squares", "least_squares", 4)
    assert (second.name, second.locator, second.settings["d"]) == ("slow", "least_squares", 2)
    assert second.settings["alpha"] == 1.0
    assert workload_of(second).name == "slow"  # what tables and random streams know it by


def test_a_basis_names_optimizers_of_the_study_and_the_identity_none(tmp_path):
    empty = ("[identity, {egop: {blocks: all,", "[identity, {egop: {optimizers: [], blocks: all,")
    with pytest.raises(InputError, match=r"bases.egop.optimizers: is empty or too short; give at least 1"):
        read_study(write_study(tmp_path / "empty", empty))
    given = "[{identity: {optimizers: [adam, adam]}}, {egop: {optimizers: [adma]}}]"
    path = write_study(tmp_path, (TINY[TINY.index("bases: ") :].partition("\n")[0], f"bases: {given}"))
    with pytest.raises(InputError) as caught:
        read_study(path)
    assert "bases.identity.optimizers: all run in original coordinates; leave it out" in str(caught.value)
    assert "bases.identity.optimizers: 'adam' stands here twice; name it once" in str(caught.value)
    assert "bases.egop.optimizers: the study has no optimizer 'adma'" in str(caught.value)


def test_final_seeds_have_not_tuned(tmp_path):
    study = read_study(write_study(tmp_path))
    first = first_final_seed(study, "quick")
    assert tuning_seeds(study, "quick") == (0, 1)
    assert first >= 1000
    assert final_seeds(study, "quick", "jax") == (first, first + 1, first + 2)
    assert final_seeds(study, "quick", "torch") == (first, first + 1)
    assert first == 56023000, (
        "published sets were run on seeds of this rule; where it changes, theirs move too"
    )


def test_an_option_that_a_study_does_not_name_moves_no_final_seed(tmp_path, monkeypatch):
    path = write_study(tmp_path)
    first = first_final_seed(read_study(path), "quick")
    egop = bases()["egop"]
    newer = {**egop.options, "newer": Option(3, "a new choice", lambda value: value)}
    monkeypatch.setattr(studies, "bases", lambda: {**bases(), "egop": replace(egop, options=newer)})
    study = read_study(path)
    assert study.bases[1].options["newer"] == 3
    assert first_final_seed(study, "quick") == first


@pytest.mark.parametrize(
    "change",
    [
        ("5 %", "6 %"),
        ("steps: 20", "steps: 24"),
        ("1e-1]", "1]"),
        ("tuning: 2", "tuning: 3"),
        ("final: 3", "final: 4"),
        ("evaluations: 4", "evaluations: 5"),
        ("{name: constant}", "{name: constant, warmup_epochs: 1}"),
        ("stop: {", "clip_gradient_norm: 1.0\nstop: {"),
        ("evaluations: 4", "evaluations: 4\n    evaluated_splits: [train]"),
    ],
)
def test_a_changed_rule_or_setting_is_judged_on_fresh_seeds(tmp_path, change: tuple[str, str]):
    before = read_study(write_study(tmp_path / "before"))
    after = read_study(write_study(tmp_path / "after", change))
    assert not {*final_seeds(before, "quick", "jax")} & {*final_seeds(after, "quick", "jax")}


def test_tuning_runs_that_decide_a_claim_have_fresh_seeds_too(tmp_path):
    rates = ("metric: final train_loss, better", "metric: final train_loss, quantity: rates_won, better")
    before = read_study(write_study(tmp_path / "before", rates))
    after = read_study(write_study(tmp_path / "after", rates, ("5 %", "6 %")))
    first = first_final_seed(before, "quick")
    assert tuning_seeds(before, "quick") == (first - 2, first - 1)
    assert describe(before, "quick", ("jax",)).first_tuning_seed == first - 2
    assert not {*tuning_seeds(before, "quick")} & {*tuning_seeds(after, "quick")}


def test_seeds_of_a_set_that_tuned_on_fewer_hold_no_final_one(tmp_path):
    study = replace(read_study(write_study(tmp_path)), first_seeds=FirstSeeds(tuning=4999, final=5000))
    assert tuning_seeds(study, "quick") == (4998, 4999)
    assert final_seeds(study, "quick", "jax") == (5000, 5001, 5002)


def test_a_study_that_only_repeats_claims_keeps_its_seeds():
    study = read_study(STUDY_FOLDER / "digits_mlp_repeated.yaml")
    assert any(one.of_tuning for claim in study.claims for one in claim.conditions)
    assert tuning_seeds(study, "quick")[0] == 0


IN_MINIBATCHES = (
    ("{least_squares: {n: 8, d: 4}}", "{digits_mlp: {batch_size: 24}}"),
    (", {egop: {blocks: all, samples: 2.0 d, sampling: {normal: 1.0}}}", ""),
    ("adam @ egop", "sgd"),
)


def test_training_keys_are_read_and_move_the_final_seeds(tmp_path):
    plain = read_study(write_study(tmp_path / "plain", *IN_MINIBATCHES))
    accumulated = ("evaluations: 4", "evaluations: 4\n    gradient_accumulation: 3")
    study = read_study(write_study(tmp_path / "parts", *IN_MINIBATCHES, accumulated))
    assert study.scales["quick"].gradient_accumulation == 3
    assert not {*final_seeds(plain, "quick", "jax")} & {*final_seeds(study, "quick", "jax")}
    at_defaults = "evaluations: 4\n    gradient_accumulation: 1\n    evaluated_splits: null"
    said = read_study(write_study(tmp_path / "said", *IN_MINIBATCHES, ("evaluations: 4", at_defaults)))
    assert first_final_seed(said, "quick") == first_final_seed(plain, "quick")


def test_a_plan_has_all_that_decides_what_its_runs_train(tmp_path):
    """Published runs are computed anew from their plan, as a study's jobs were from the study."""
    keys = "gradient_accumulation: 3\n    evaluated_splits: [train]"
    changes = (
        *IN_MINIBATCHES,
        ("evaluations: 4", f"evaluations: 4\n    {keys}"),
        ("stop: {", "clip_gradient_norm: 0.5\nstop: {"),
        ("{name: constant}", "{name: cosine, warmup_epochs: 0.5}"),
    )
    study = read_study(write_study(tmp_path, *changes))
    plan = describe(study, "quick", ("jax",))
    found = training(plan, plan)
    assert found == training(study, study.scales["quick"])
    assert found["clip_gradient_norm"] == 0.5
    assert (found["gradient_accumulation"], found["evaluated_splits"]) == (3, ("train",))
    assert list(plan.workloads[0].metrics) == ["train_loss", "train_accuracy"]


def test_what_a_rule_needs_of_a_whole_minibatch_is_refused_in_parts(tmp_path):
    parts = ("evaluations: 4", "evaluations: 4\n    gradient_accumulation: 3")
    kfac = ("[sgd, adam]", "[sgd, adam, {kfac: {fisher: FISHER}}]")
    changes = (*IN_MINIBATCHES, parts, (kfac[0], kfac[1].replace("FISHER", "expected")))
    assert read_study(write_study(tmp_path, *changes)).scales["quick"].gradient_accumulation == 3
    changes = (*IN_MINIBATCHES, parts, (kfac[0], kfac[1].replace("FISHER", "empirical_of_mean")))
    with pytest.raises(InputError, match=r"scales.quick.gradient_accumulation: kfac: .* not the mean over"):
        read_study(write_study(tmp_path, *changes))


def test_all_problems_of_all_files_are_reported_together(tmp_path):
    write_study(tmp_path, ("[sgd, adam]", "[sdg, adma]"), name="first")
    write_study(tmp_path, ("tiny.claim", "other"), ("steps: 20", "steps: 0"), name="second")
    with pytest.raises(InputError) as caught:
        read_studies(tmp_path)
    lines = str(caught.value).splitlines()
    assert any("first.yaml" in line and "'sdg'" in line and "'sgd'" in line for line in lines)
    assert any("first.yaml" in line and "'adma'" in line and "'adam'" in line for line in lines)
    assert any("second.yaml" in line and "scales.quick.steps" in line for line in lines)


def test_claim_ids_are_unique_across_files(tmp_path):
    write_study(tmp_path, name="first")
    write_study(tmp_path, name="second")
    with pytest.raises(InputError, match=r"second.yaml: claims: the id 'tiny.claim' is also in .*first.yaml"):
        read_studies(tmp_path)


def test_the_projects_own_studies_are_as_the_papers_say():
    studies = {study.name: study for study in read_studies(ROOT / STUDY_FOLDER)}
    digits, convex, linear = studies["digits_mlp"], studies["convex"], studies["linear_network"]
    assert {claim.id for study in studies.values() for claim in study.claims} >= {
        "egop.digits-mlp",
        "egop.convex",
        "egop.linear-network",
    }
    assert digits.scales["paper"].epochs == 200
    assert digits.scales["paper"].seeds.model_dump() == {"tuning": 50, "final": 50}
    assert digits.workloads["paper"][0].settings["source"] == "full"
    asked = {"blocks": "weights", "samples": "1.0 d", "sampling": "initialization", "rank": None}
    assert asked.items() <= digits.bases[1].options.items()
    assert convex.scales["paper"].steps == 1000
    # the paper has 5 trials, which decide neither rates nor comparisons
    assert convex.scales["paper"].seeds.model_dump() == {"tuning": 160, "final": 80}
    assert convex.stop == {"gradient_norm": 1e-8}
    assert convex.bases[1].options["samples"] == "5.0 d"
    assert convex.tuning.shared_across == "none"
    assert {spec.name: spec.settings["alpha"] for spec in convex.workloads["paper"]} == {
        "log_sum_exp": 1.5,
        "least_squares": 2.0,
        "logistic_regression": 2.0,
    }
    assert linear.scales["paper"].epochs == 1000
    assert linear.schedule.name == "cosine"
    assert linear.bases[1].options["samples"] == "2.0 d"
    assert linear.workloads["paper"][0].settings["widths"] == [10, 50, 30, 10]
    for study in (digits, convex, linear):
        assert [one.name for one in study.optimizers] == ["sgd", "momentum", "adagrad", "adam"]
        assert missing_of(study.workloads["quick"]) is None


LIKE = """\
like: tiny
question: Does it run with rates of its own?
tuning:
  protocol: two_stage_sweep
  of: learning_rate
  coarse: [1e-2, 1e-1]
  choose: median final train_loss
  shared_across: none
claims: []
"""


def test_what_tuning_does_not_try_can_be_asked_of_no_claim(tmp_path):
    alone = ("shared_across: bases", "shared_across: bases\n  tried_in: identity")
    study = read_study(write_study(tmp_path, alone))
    assert [basis.label for basis in study.tried_bases] == ["identity"]
    rates = ("holds_if: {metric: final", "holds_if: {quantity: best_learning_rate, metric: final")
    with pytest.raises(InputError, match="quantity: tuning does not try adam @ egop"):
        read_study(write_study(tmp_path, alone, rates))
    with pytest.raises(InputError, match="tried_in: each basis chooses for itself"):
        read_study(write_study(tmp_path, (alone[0], "shared_across: none\n  tried_in: identity")))


def test_settings_are_tried_in_bases_that_there_are_and_in_the_one_that_chooses(tmp_path):
    def tried_in(labels: str) -> Study:
        return read_study(
            write_study(tmp_path, ("shared_across: bases", f"shared_across: bases\n  tried_in: {labels}"))
        )

    assert [basis.label for basis in tried_in("[identity, egop]").tried_bases] == ["identity", "egop"]
    with pytest.raises(InputError, match=r"tuning.tried_in: the study has no basis 'egopp'.*egop"):
        tried_in("[identity, egopp]")
    with pytest.raises(InputError, match="tried_in: the identity basis chooses for all; add identity"):
        tried_in("egop")


def test_a_study_like_another_takes_what_it_does_not_give(tmp_path):
    tiny = read_study(write_study(tmp_path))
    (tmp_path / "other.yaml").write_text(LIKE)
    other = read_study(tmp_path / "other.yaml")
    assert (other.name, other.question, other.claims) == ("other", "Does it run with rates of its own?", ())
    assert (tiny.tuning.shared_across, other.tuning.shared_across) == ("bases", "none")
    same = ("source", "optimizers", "bases", "schedule", "stop", "targets", "compare", "scales", "workloads")
    assert [getattr(other, name) for name in same] == [getattr(tiny, name) for name in same]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("other", "like: tyni", "like: .*has no other study 'tyni' .valid: tiny"),
        ("other", "like: other", "like: .*has no other study 'other' .valid: tiny"),
        ("tiny", "like: other", "like: tiny is like this one; one of them must be like none"),
    ],
)
def test_a_study_is_like_another_that_is_there(tmp_path, name, text, said):
    write_study(tmp_path)
    (tmp_path / "other.yaml").write_text(LIKE)
    path = tmp_path / f"{name}.yaml"
    path.write_text(LIKE.replace("like: tiny", text))
    with pytest.raises(InputError, match=said):
        read_study(path)


REPEATED = """\
like: tiny
bases:
  - identity
  - egop: {blocks: all, samples: 2.0 d, sampling: {normal: 1.0}, null_space: random, label: second}
precision: float32
claims:
  - {id: tiny.again, repeats: tiny.claim, changed: with a second basis, bases: {egop: second}}
"""


def test_a_claim_that_repeats_another_has_its_rule_in_other_bases(tmp_path):
    tiny = read_study(write_study(tmp_path))
    (tmp_path / "again.yaml").write_text(REPEATED)
    again = read_study(tmp_path / "again.yaml")
    (first,), (claim,) = tiny.claims, again.claims
    assert (claim.id, claim.repeats, claim.changed) == ("tiny.again", "tiny.claim", "with a second basis")
    assert (claim.sentence, claim.source) == (first.sentence, first.source)
    (before,), (condition,) = first.conditions, claim.conditions
    assert (condition.better, condition.than) == (("adam @ second",), ("adam",))
    assert condition.smallest_effect == before.smallest_effect
    assert (tiny.precision, again.precision) == (None, "float32")
    assert (tiny.only_repeats, again.only_repeats) == (False, True)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("repeats: tiny.claim", "repeats: tiny.clam", "again.repeats: .* no claim 'tiny.clam'; did you mean"),
        ("changed:", "sentence: Yes., changed:", "again.sentence: it is that of tiny.claim; leave it out"),
        ("{egop: second}", "{egpo: second}", "again.bases: tiny.claim has no basis 'egpo'; did you mean"),
        ("{egop: second}", "{egop: third}", "the study has no method 'adam @ third'"),
        (", changed: with a second basis", "", "a claim that repeats another says what is changed"),
        (
            "float32",
            "float16",
            "precision: 'float16' is not one of 'float64', 'float32', 'tf32', 'mixed' or 'bfloat16'",
        ),
    ],
)
def test_a_claim_that_cannot_be_repeated_is_refused(tmp_path, old, new, said):
    write_study(tmp_path)
    path = tmp_path / "again.yaml"
    assert old in REPEATED
    path.write_text(REPEATED.replace(old, new))
    with pytest.raises(InputError, match=said):
        read_study(path)


def test_a_repeat_on_fewer_workloads_leaves_out_what_is_about_the_others(tmp_path):
    both = ("workload: {least_squares: {n: 8, d: 4}}", "workloads: [least_squares, log_sum_exp]")
    write_study(
        tmp_path,
        both,
        ("{metric: final train_loss, better", "{workload: log_sum_exp, metric: final train_loss, better"),
    )
    path = tmp_path / "again.yaml"
    path.write_text(f"{REPEATED}workloads: [least_squares]\n")
    (claim,) = read_study(path).claims
    assert [condition.workload for condition in claim.conditions] == ["log_sum_exp"]


TWO_WORKLOADS = ("workload: {least_squares: {n: 8, d: 4}}", "workloads: [least_squares, log_sum_exp]")


METRIC = "metric: final train_loss, better: [adam @ egop], than: [adam]"


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        (
            f"{METRIC}, quantity: trend, at_equal: seconds",
            "at_equal: trend is no value that is read at a cost",
        ),
        (f"{METRIC}, quantity: best_learning_rate, effect: ratio", "effect: best_learning_rate has its own"),
        (f"{METRIC}, quantity: steps_to_stop", "quantity: runs do not stop at a train_loss; give it in stop"),
        (f"{METRIC}, quantity: gradients_to_stop", "quantity: runs do not stop at a train_loss"),
        (METRIC.replace("final", "best") + ", quantity: steps_to_stop", "is of runs to their end; say final"),
        (f"{METRIC}, quantity: seconds_to_nearly_best", "is of the best value; say best"),
        (
            METRIC.replace("final train_loss", "best gradient_norm") + ", quantity: steps_to_target",
            "there is no target of gradient_norm; give it here or in targets",
        ),
        (METRIC.replace("better", "same") + ", quantity: trend", "trend is of a gain; name the methods"),
        (
            METRIC.replace("[adam]", "adam"),
            r"than: 'adam' is neither a list of methods, such as \[adam\], nor",
        ),
        (METRIC.replace("[adam]", "[adam, sgd]"), "1 methods cannot be paired with the 2 of `than`"),
        (
            METRIC.replace("[adam]", "0.5, quantity: trend"),
            "than: a number is held against values, log_lin",
        ),
        (METRIC.replace("[adam]", "0.5, pairs: all"), "pairs: a number is held against each method as it is"),
        (METRIC.replace("[adam]", "0"), "than: a ratio to 0 says nothing; give a positive number, or effect"),
        (
            METRIC.replace("[adam]", "0.96, smallest_effect: 5 %, quantity: log_linearity, down_to: 1e-9"),
            "is no log-linearity to ask for; both are",
        ),
        (
            METRIC.replace("[adam]", "0.5, workload: least_squares, than_on: log_sum_exp"),
            "than_on: a number is of no workload",
        ),
        (f"{METRIC}, than_on: log_sum_exp", "than_on: name another one in workload"),
        (
            f"{METRIC}, workload: least_squares, than_on: log_sum_exp, quantity: trend",
            "than_on: trend compares methods on one workload; leave one out",
        ),
        (
            f"{METRIC}, workload: least_squares, than_on: log_sum",
            "than_on: the study has no workload 'log_sum'",
        ),
        (f"{METRIC}, quantity: log_linearity", "down_to: is missing; log_linearity is of curves down to"),
        (f"{METRIC}, target: 1e-9", "target: it is of quantity: steps_to_target alone; leave it out"),
        (f"{METRIC}, down_to: 1e-9", "down_to: it is of quantity: log_linearity alone; leave it out"),
    ],
)
def test_a_condition_that_cannot_be_decided_is_refused(tmp_path, condition, said):
    path = write_study(tmp_path, TWO_WORKLOADS, (f"{METRIC}, smallest_effect: 5 %", condition))
    with pytest.raises(InputError, match=said):
        read_study(path)


@pytest.mark.parametrize(
    "asked",
    [
        "best train_loss, quantity: steps_to_target",
        "final gradient_norm, quantity: steps_to_stop",
        "final gradient_norm, quantity: gradients_to_stop",
    ],
)
def test_steps_are_counted_to_a_target_or_to_the_stop(tmp_path, asked):
    path = write_study(tmp_path, ("final train_loss, better", f"{asked}, better"))
    assert f"quantity: {read_study(path).claims[0].conditions[0].quantity}" in asked


def test_a_condition_may_be_about_a_number_or_another_workload(tmp_path):
    number = (
        read_study(write_study(tmp_path, ("than: [adam]", "than: 1, at_equal: steps")))
        .claims[0]
        .conditions[0]
    )
    assert (number.than, number.controls, len(number.contests)) == (1.0, (), 1)
    elsewhere = "than: [adam], workload: least_squares, than_on: log_sum_exp"
    path = write_study(tmp_path, TWO_WORKLOADS, ("than: [adam]", elsewhere))
    assert read_study(path).claims[0].conditions[0].than_on == "log_sum_exp"


def test_runs_must_not_stop_before_they_are_where_log_linearity_ends(tmp_path):
    before = "metric: final train_loss, better"
    condition = "metric: final gradient_norm, quantity: log_linearity, down_to: DOWN_TO, better"
    path = write_study(tmp_path, (before, condition.replace("DOWN_TO", "1e-9")))
    with pytest.raises(InputError, match="down_to: runs stop at 1e-08 before they get there; give more"):
        read_study(path)
    path = write_study(tmp_path, (before, condition.replace("DOWN_TO", "1e-7")))
    assert read_study(path).claims[0].conditions[0].down_to == 1e-7


def test_log_linearity_is_of_what_falls_to_zero(tmp_path):
    rising = "claims: [{id: egop.up, sentence: Up., source: none, holds_if: {metric: final test_accuracy, "
    path = Path("benchmarks/studies/digits_mlp.yaml").read_text()
    head, tail = path.split("claims:\n")[0], "scales:" + path.split("scales:")[1]
    (tmp_path / "rising.yaml").write_text(
        f"{head}{rising}quantity: log_linearity, down_to: 1e-9, better: [adam], than: 0.5}}}}]\n{tail}"
    )
    with pytest.raises(InputError, match="test_accuracy does not fall to 0; take one that is minimized"):
        read_study(tmp_path / "rising.yaml")


def test_state_in_half_precision_cannot_be_carried_to_another_basis(tmp_path):
    changes = (
        ("samples: 2.0 d, sampling: {normal: 1.0}", "samples: 8, every: 5 steps"),
        ("targets: {train_loss: 1e-3}\n", "precision: bfloat16\n"),
    )
    with pytest.raises(InputError, match="adam: its state cannot go on in other coordinates"):
        read_study(write_study(tmp_path, *changes))


@pytest.mark.parametrize("targets", [True, False])
def test_a_basis_estimated_during_a_run_has_no_cost_to_a_target(tmp_path, targets):
    path = write_study(tmp_path, ("samples: 2.0 d, sampling: {normal: 1.0}", "samples: 8, every: 5 steps"))
    if targets:
        with pytest.raises(
            InputError, match="its gradients during a run are not charged to times to targets"
        ):
            read_study(path)
        return
    path.write_text(path.read_text().replace("targets: {train_loss: 1e-3}\n", ""))
    assert read_study(path).bases[1].options["every"] == "5 steps"
    charged = "best train_loss, quantity: seconds_to_nearly_best, better"
    path.write_text(path.read_text().replace("final train_loss, better", charged))
    with pytest.raises(InputError, match="at_equal and seconds_to_nearly_best; leave out every, or these"):
        read_study(path)
