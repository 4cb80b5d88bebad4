"""Study files become studies with every name looked up and every default filled in."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from curvebench.optimizers import rules
from curvebench.optimizers.bases import bases
from curvebench.paths import OWN_STUDIES, STUDY_FOLDER
from curvebench.planning.studies.reading import read_studies
from curvebench.planning.studies.seeds import FirstSeeds
from curvebench.planning.studies.study import Study
from curvebench.planning.studies.validation import read_study
from curvebench.planning.submission import _written, located
from curvebench.registry import missing_of
from curvebench.seeding import WorkloadRandom
from curvebench.spec.errors import InputError
from curvebench.spec.study import NamedWorkload, Sweep
from curvebench.spec.training import Schedule
from curvebench.spec.values import Option
from curvebench.stages.job import estimate, instance, workload_of
from tests.curvebench.tiny import SEARCH, TWO_STAGES, write_study
from tests.curvebench.user_files import user_file

ROOT = Path(__file__).resolve().parents[3]


def first_seeds(study: Study) -> FirstSeeds:
    plan = study.at("quick")
    return FirstSeeds(plan.first_tuning_seed, plan.first_final_seed)


def test_names_are_resolved_and_defaults_filled_in(tmp_path):
    study = read_study(write_study(tmp_path))
    assert study.name == "tiny"
    settings = {"batch_size": None, "n": 8, "d": 4, "alpha": 2.0, "start_scale": 1.0}
    assert study.workloads["quick"][0].settings == settings
    assert study.optimizers[1].hyperparameters == {"beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8}
    assert study.bases[1].options == bases()["egop"].complete(
        {"samples": "2.0 d", "sampling": {"normal": 1.0}}
    )
    choose = {"statistic": "median", "which": "final", "metric": "train_loss"}
    assert study.file.tuning.choose.model_dump() == choose
    assert study.file.tuning.names == ("learning_rate",)
    assert study.file.tuning.model_dump(exclude_none=True).keys() == {
        *("protocol", "of", "coarse", "choose", "shared_across", "length")
    }
    assert study.file.schedule == Schedule(name="constant", warmup=0.0, cooldown=0.0, final=0.0)
    assert study.claims[0].conditions[0].smallest_effect == 0.05


@pytest.mark.parametrize(
    "name", ["", "_bases", "_fair", "_rates", "_optax_adagrad", "_other_widths", "_printed_adagrad"]
)
def test_rounding_ranks_nothing_on_the_linear_network(name: str):
    study = read_study(ROOT / f"benchmarks/studies/linear_network{name}.yaml")
    assert (study.file.precision, study.file.compare.floor) == ("float64", 1e-28)


def test_a_rule_comes_twice_with_other_options_and_labels(tmp_path):
    variants = "[adam, shampoo, {shampoo: {label: shampoo-ema, statistics: ema, beta2: 0.9}}]"
    study = read_study(write_study(tmp_path, ("[sgd, adam]", variants)))
    assert [one.label for one in study.optimizers] == ["adam", "shampoo", "shampoo-ema"]
    _, plain, averaged = study.optimizers
    assert plain.options == {name: option.default for name, option in rules()["shampoo"].options.items()}
    assert plain.hyperparameters == {"epsilon": 1e-6}
    assert averaged.options == {**plain.options, "statistics": "ema"}
    assert averaged.hyperparameters == {"epsilon": 1e-6, "beta2": 0.9}
    assert "shampoo-ema @ egop" in study.at("quick").methods


WRAPPERS = (
    "[sgd, adam]",
    "[adam, {momentum: {label: m}}, {adam: {wrap: schedule_free}}, newton]\nwrap: AXIS",
)


def test_an_axis_of_wrappers_combines_optimizers_with_each(tmp_path):
    axis = "[none, cautious, hyperball, {ema: {ema_decay: 0.5, label: fast}}]"
    study = read_study(write_study(tmp_path, WRAPPERS, ("AXIS", axis)))
    assert {one.label: one.locator for one in study.optimizers} == {
        "adam": "adam",
        "adam-cautious": "adam+cautious",
        "adam-hyperball": "adam+hyperball",
        "adam-fast": "adam+ema",
        "m": "momentum",
        "m-cautious": "momentum+cautious",
        "m-hyperball": "momentum+hyperball",
        "m-fast": "momentum+ema",
        "adam-schedule_free": "adam+schedule_free",
        "newton": "newton",
        "newton-cautious": "newton+cautious",
        "newton-fast": "newton+ema",
    }
    by_label = {one.label: one for one in study.optimizers}
    assert by_label["m-fast"].hyperparameters == {"momentum": 0.9, "ema_decay": 0.5}
    assert by_label["adam-schedule_free"].hyperparameters["beta1"] == 0.0
    assert by_label["m-cautious"].chosen["rule"] == "momentum+cautious"
    note = "hyperball cannot wrap newton, which gets all parameters as one vector."
    assert note in study.at("quick").notes


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("newton: {wrap: hyperball}", "hyperball cannot wrap newton"),
        ("adam: {wrap: cautios}", "curvebench has no wrapper 'cautios'; did you mean 'cautious'?"),
        ("adam: {wrap: ema, ema_decay: 1.0}", r"ema_decay = 1.0 is outside \[0, 1\)"),
        ("adam: {ema_decay: 0.5}", "adam has no hyperparameter or option 'ema_decay'"),
    ],
)
def test_a_wrapper_of_an_entry_that_cannot_be_is_an_error(tmp_path, entry: str, message: str):
    with pytest.raises(InputError, match=message):
        read_study(write_study(tmp_path, ("[sgd, adam]", f"[sgd, adam, {{{entry}}}]")))


def test_a_rule_of_a_file_is_wrapped(tmp_path):
    (tmp_path / "mine.py").write_text(user_file("lion.py"))
    entry = ("[sgd, adam]", "[sgd, adam, {mine.py: {wrap: ema}}]")
    (_, _, mine) = read_study(write_study(tmp_path, entry)).optimizers
    assert mine.locator == f"{tmp_path / 'mine.py'}+ema"
    assert located(f"{tmp_path / 'mine.py'}+ema") == mine.locator


def test_a_submission_is_not_combined_with_the_wrappers_of_its_study(tmp_path):
    write_study(tmp_path, ("[sgd, adam]", "[sgd, adam]\nwrap: [none, cautious]"), name="joined")
    path = tmp_path / "mine.yaml"
    path.write_text("joins: joined\noptimizers: [momentum]\n")
    assert [one.label for one in read_study(path).optimizers] == ["momentum"]


def test_a_hyperparameter_of_a_wrapper_is_tuned(tmp_path):
    axes = (
        "learning_rate: {low: 1e-2, high: 1e-1, scale: log}",
        "ema_decay: {low: 0.5, high: 0.9, scale: log}",
    )
    space = f"{{{', '.join(axes)}}}"
    entry = ("[sgd, adam]", f"[adam, {{sgd: {{wrap: ema, space: {space}}}}}]")
    study = read_study(write_study(tmp_path, (TWO_STAGES, SEARCH), entry))
    assert study.optimizers[1].space.keys() == {"learning_rate", "ema_decay"}


ON_LAYERS = (
    ("workload: {least_squares: {n: 8, d: 4}}", "precision: float64\nworkload: linear_network"),
    ("[sgd, adam]", "[sgd, adam, symo]"),
)


def test_a_rule_for_layers_runs_where_its_basis_is_of_others(tmp_path):
    taken = ("{egop: {blocks: all,", "{egop: {optimizers: [sgd, adam], blocks: all,")
    assert read_study(write_study(tmp_path, *ON_LAYERS, taken)).optimizers[2].name == "symo"


def test_random_bases_of_a_study_are_different_rotations(tmp_path):
    """The first is the rotation of a study with a single random basis, as in published sets."""
    random = "random_orthogonal"
    entries = f"{random}, {{{random}: {{label: second}}}}, {{{random}: {{label: again, rotation: 0}}}}"
    study = read_study(write_study(tmp_path, ("bases: [identity, ", f"bases: [identity, {entries}, ")))
    first, second, again = (spec for spec in study.bases if spec.name == random)
    (workload,) = study.workloads["quick"]
    problem = instance(workload_of(workload), workload.settings, 3)
    published = replace(first, options={"blocks": "all"} | {"rank": None, "complement": "random"})
    matrices = [estimate(spec, problem)["matrix0"] for spec in (published, first, second, again)]
    np.testing.assert_array_equal(matrices[0], matrices[1])
    np.testing.assert_array_equal(matrices[0], matrices[3])
    assert np.abs(matrices[0] - matrices[2]).max() > 0.1


def test_a_random_basis_has_no_number_that_one_before_it_was_given(tmp_path):
    given, random = {"label": "given", "rotation": 1}, "random_orthogonal"
    entries = json.dumps([{random: options} for options in (given, {"label": "a"}, {"label": "b"})])[1:-1]
    study = read_study(write_study(tmp_path, ("bases: [identity, ", f"bases: [identity, {entries}, ")))
    numbers = [spec.options["rotation"] for spec in study.bases if spec.name == random]
    assert numbers == [1, 0, 2]


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
    assert workload_of(second).name == "slow"  # the name that tables use


def test_labels_of_a_workload_have_the_same_data_and_other_workloads_have_not(tmp_path):
    labelled = (
        "workloads: [least_squares: {alpha: 1.0, label: slow}, least_squares: {alpha: 2.0}, log_sum_exp]"
    )
    path = write_study(tmp_path, ("workload: {least_squares: {n: 8, d: 4}}", labelled))
    specs = read_study(path).workloads["quick"]
    slow, fast, other = (
        instance(workload_of(spec), {**spec.settings, "n": 8, "d": 4}, 5).problem for spec in specs
    )
    for name, value in slow.parameters.items():
        np.testing.assert_array_equal(value, fast.parameters[name])
    assert slow.parameters.keys() == other.parameters.keys()
    assert all((value != other.parameters[name]).all() for name, value in slow.parameters.items())


def test_a_sweep_stands_for_a_workload_for_each_value(tmp_path):
    swept = "workload: {least_squares: {n: 8, sweep: {d: [4, 2]}}}"
    study = read_study(write_study(tmp_path, ("workload: {least_squares: {n: 8, d: 4}}", swept)))
    workloads = study.at("quick").workloads
    assert [(plan.name, plan.settings["d"]) for plan in workloads] == [
        ("least_squares-4", 4),
        ("least_squares-2", 2),
    ]
    assert all(plan.sweep == Sweep(name="least_squares", setting="d") for plan in workloads)
    assert {plan.problem for plan in workloads} == {"least_squares"}
    # Below planning they are ordinary workloads.
    labels = "workloads: [{least_squares: {n: 8, d: 4, label: least_squares-4}}, "
    labels += "{least_squares: {n: 8, d: 2, label: least_squares-2}}]"
    written = read_study(write_study(tmp_path, ("workload: {least_squares: {n: 8, d: 4}}", labels)))
    assert study.workloads == written.workloads
    assert not written.sweeps


def test_workloads_of_a_sweep_have_the_same_problem_where_the_setting_leaves_it(tmp_path):
    swept = "{n: 8, sweep: {start_scale: [1.0, 2.0]}}"
    specs = read_study(write_study(tmp_path, ("{n: 8, d: 4}", swept))).workloads["quick"]
    first, second = (
        workload.problem(spec.settings, WorkloadRandom(workload.streams, 0))
        for workload, spec in zip(map(workload_of, specs), specs, strict=True)
    )
    assert first.splits["train"].keys() == second.splits["train"].keys()
    for name, value in first.splits["train"].items():
        np.testing.assert_array_equal(value, second.splits["train"][name])
    for name, value in first.parameters.items():
        np.testing.assert_allclose(2 * value, second.parameters[name])


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        ([32, 1e-3, -1, None, True], ["w-32", "w-0-001", "w--1", "w-none", "w-true"]),
        (["Adding(9)", "Adding(20, 9)"], ["w-adding-9", "w-adding-20-9"]),
        (["a+b", "a b"], ["w-1", "w-2"]),
        (["Adding(20, length=5)", "Adding(9)"], ["w-1", "w-2"]),
    ],
)
def test_labels_of_swept_values_are_in_the_letters_of_labels(values: list[object], labels: list[str]):
    entry = NamedWorkload.model_validate({"gru": {"label": "w", "sweep": {"train": values}}})
    assert [part.label for part, _ in entry.entries("gru")] == labels
    assert [part.options for part, _ in entry.entries("gru")] == [{"train": value} for value in values]


def test_a_submission_keeps_the_sweep_of_a_problem():
    written = {"digits_mlp": {"label": "w", "source": "full", "sweep": {"batch_size": [16, 32]}}}
    assert _written(NamedWorkload.model_validate(written)) == written
    assert _written(NamedWorkload.model_validate("digits_mlp")) == {"digits_mlp": {}}


def test_final_seeds_have_not_tuned(tmp_path):
    study = read_study(write_study(tmp_path))
    assert first_seeds(study) == (0, 56023000), (
        "published sets were run on seeds of this rule; where it changes, theirs move too"
    )


def test_an_option_that_a_study_does_not_name_moves_no_final_seed(tmp_path, monkeypatch):
    path = write_study(tmp_path)
    first = first_seeds(read_study(path))
    egop = bases()["egop"]
    newer = {**egop.options, "newer": Option(3, "a new choice", lambda value: value)}
    for module in ("seeds", "validation"):
        there = f"curvebench.planning.studies.{module}.bases"
        monkeypatch.setattr(there, lambda: {**bases(), "egop": replace(egop, options=newer)})
    study = read_study(path)
    assert study.bases[1].options["newer"] == 3
    assert first_seeds(study) == first


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
    assert first_seeds(before).final != first_seeds(after).final


def test_tuning_runs_that_decide_a_claim_have_fresh_seeds_too(tmp_path):
    rates = ("metric: final train_loss, better", "metric: final train_loss, quantity: rates_won, better")
    before = read_study(write_study(tmp_path / "before", rates))
    after = read_study(write_study(tmp_path / "after", rates, ("5 %", "6 %")))
    first = first_seeds(before)
    assert first.tuning == first.final - 2 == before.at("quick", ("jax",)).first_tuning_seed
    assert first.tuning != first_seeds(after).tuning


def test_seeds_of_a_set_that_tuned_on_fewer_hold_no_final_one(tmp_path):
    own = {"first_seeds": FirstSeeds(tuning=4999, final=5000)}
    study = read_study(write_study(tmp_path)).model_copy(update=own)
    assert first_seeds(study) == (4998, 5000)


def test_a_study_that_only_repeats_claims_keeps_its_seeds():
    study = read_study(STUDY_FOLDER / "digits_mlp_repeated.yaml")
    assert any(one.of_tuning for claim in study.claims for one in claim.conditions)
    assert first_seeds(study).tuning == 0


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
    assert first_seeds(plain).final != first_seeds(study).final
    at_defaults = "evaluations: 4\n    gradient_accumulation: 1\n    evaluated_splits: null"
    said = read_study(write_study(tmp_path / "said", *IN_MINIBATCHES, ("evaluations: 4", at_defaults)))
    assert first_seeds(said) == first_seeds(plain)


def test_a_plan_has_all_that_decides_what_its_runs_train(tmp_path):
    """Published runs are computed again from their plan, with the training keys of the jobs of the study."""
    keys = "gradient_accumulation: 3\n    evaluated_splits: [train]"
    changes = (
        *IN_MINIBATCHES,
        ("evaluations: 4", f"evaluations: 4\n    {keys}"),
        ("stop: {", "clip_gradient_norm: 0.5\nstop: {"),
    )
    plan = read_study(write_study(tmp_path, *changes)).at("quick", ("jax",))
    training = plan.training
    assert (training.clip_gradient_norm, training.stop) == (0.5, {"gradient_norm": 1e-8})
    assert (training.gradient_accumulation, training.evaluated_splits) == (3, ("train",))
    assert list(plan.workloads[0].metrics) == ["train_loss", "train_accuracy"]


def test_a_rule_that_needs_no_whole_minibatch_takes_parts(tmp_path):
    parts = ("evaluations: 4", "evaluations: 4\n    gradient_accumulation: 3")
    kfac = ("[sgd, adam]", "[sgd, adam, {kfac: {fisher: expected}}]")
    study = read_study(write_study(tmp_path, *IN_MINIBATCHES, parts, kfac))
    assert study.scales["quick"].gradient_accumulation == 3


def test_all_problems_of_all_files_are_reported_together(tmp_path):
    write_study(tmp_path, ("[sgd, adam]", "[sdg, adma]"), name="first")
    write_study(tmp_path, ("tiny.claim", "other"), ("steps: 20", "steps: 0"), name="second")
    with pytest.raises(InputError) as caught:
        read_studies(tmp_path)
    lines = str(caught.value).splitlines()
    assert any("first.yaml" in line and "'sdg'" in line and "'sgd'" in line for line in lines)
    assert any("first.yaml" in line and "'adma'" in line and "'adam'" in line for line in lines)
    assert any("second.yaml" in line and "scales.quick.steps" in line for line in lines)


def test_the_projects_own_studies_are_as_the_papers_say():
    studies = {study.name: study for study in read_studies(ROOT / STUDY_FOLDER)}
    digits, convex, linear = studies["digits_mlp"], studies["convex"], studies["linear_network"]
    assert {claim.id for study in studies.values() for claim in study.claims} >= {
        "egop.digits-mlp",
        "egop.convex",
        "egop.linear-network",
    }
    assert digits.scales["paper"].epochs == 200
    assert digits.scales["paper"].seeds.model_dump(exclude_defaults=True) == {"tuning": 50, "final": 50}
    assert digits.workloads["paper"][0].settings["source"] == "full"
    asked = {"blocks": "weights", "samples": "1.0 d", "sampling": "initialization", "rank": None}
    assert asked.items() <= digits.bases[1].options.items()
    assert convex.scales["paper"].steps == 1000
    # the paper has 5 trials, which decide neither rates nor comparisons
    assert convex.scales["paper"].seeds.model_dump(exclude_defaults=True) == {"tuning": 160, "final": 80}
    assert convex.file.stop == {"gradient_norm": 1e-8}
    assert convex.bases[1].options["samples"] == "5.0 d"
    assert convex.file.tuning.shared_across == "none"
    assert {spec.name: spec.settings["alpha"] for spec in convex.workloads["paper"]} == {
        "log_sum_exp": 1.5,
        "least_squares": 2.0,
        "logistic_regression": 2.0,
    }
    assert linear.scales["paper"].epochs == 1000
    assert linear.file.schedule.name == "cosine"
    assert linear.bases[1].options["samples"] == "2.0 d"
    assert linear.workloads["paper"][0].settings["widths"] == [10, 50, 30, 10]
    for study in (digits, convex, linear):
        assert [one.name for one in study.optimizers] == ["sgd", "momentum", "adagrad", "adam"]
        assert missing_of(study.workloads["quick"]) is None


LIKE, REPEATED = map(user_file, ("like.yaml", "repeated.yaml"))


def test_a_study_like_another_takes_what_it_does_not_give(tmp_path):
    tiny = read_study(write_study(tmp_path))
    (tmp_path / "other.yaml").write_text(LIKE)
    other = read_study(tmp_path / "other.yaml")
    assert (other.name, other.file.question, other.claims) == (
        "other",
        "Does it run with rates of its own?",
        (),
    )
    assert (tiny.file.tuning.shared_across, other.file.tuning.shared_across) == ("bases", "none")
    same = ("source", "optimizers", "bases", "schedule", "stop", "targets", "compare", "scales", "workloads")
    assert [getattr(other.file, name) for name in same] == [getattr(tiny.file, name) for name in same]


def test_a_claim_that_repeats_another_has_its_rule_in_other_bases(tmp_path):
    tiny = read_study(write_study(tmp_path))
    (tmp_path / "again.yaml").write_text(REPEATED)
    again = read_study(tmp_path / "again.yaml")
    (first,), (claim,) = tiny.claims, again.claims
    assert (claim.id, claim.repeats, claim.changed) == ("tiny.again", "tiny.claim", "with a second basis")
    assert (claim.sentence, claim.source) == (first.sentence, first.source)
    (before,), (condition,) = first.conditions, claim.conditions
    assert (condition.better, condition.compared_to) == (("adam @ second",), ("adam",))
    assert condition.smallest_effect == before.smallest_effect
    assert (tiny.file.precision, again.file.precision) == (None, "float32")
    assert (tiny.only_repeats, again.only_repeats) == (False, True)


TWO_WORKLOADS = ("workload: {least_squares: {n: 8, d: 4}}", "workloads: [least_squares, log_sum_exp]")


def test_a_repeat_on_fewer_workloads_leaves_out_what_is_about_the_others(tmp_path):
    about = ("{metric: final train_loss, better", "{workload: log_sum_exp, metric: final train_loss, better")
    write_study(tmp_path, TWO_WORKLOADS, about)
    path = tmp_path / "again.yaml"
    path.write_text(f"{REPEATED}workloads: [least_squares]\n")
    (claim,) = read_study(path).claims
    assert [condition.workload for condition in claim.conditions] == ["log_sum_exp"]


CONDITION = "metric: final train_loss, better: [adam @ egop], compared_to: [adam]"
METHODS = "better: [adam @ egop], compared_to: [adam]"


@pytest.mark.parametrize(
    ("condition", "found"),
    [
        (f"metric: best train_loss, quantity: steps_to_target, {METHODS}", {"quantity": "steps_to_target"}),
        (f"metric: final gradient_norm, quantity: steps_to_stop, {METHODS}", {"quantity": "steps_to_stop"}),
        (f"metric: final gradient_norm, quantity: gradients_to_stop, {METHODS}", {"which": "final"}),
        (f"metric: final gradient_norm, quantity: log_linearity, until: 1e-7, {METHODS}", {"until": 1e-7}),
        (f"{CONDITION[:-6]}1, at_equal: steps", {"number": 1.0, "controls": ()}),
        (
            f"{CONDITION}, workload: least_squares, control_workload: log_sum_exp",
            {"control_workload": "log_sum_exp"},
        ),
    ],
)
def test_conditions_may_be_about_steps_numbers_and_other_workloads(tmp_path, condition, found):
    study = read_study(write_study(tmp_path, TWO_WORKLOADS, (CONDITION, condition)))
    (read,) = study.claims[0].conditions
    assert {name: getattr(read, name) for name in found} == found
    assert len(read.compared_pairs) == 1


def test_a_basis_may_be_estimated_during_a_run_where_nothing_is_timed(tmp_path):
    during = ("samples: 2.0 d, sampling: {normal: 1.0}", "samples: 8, every: 5 steps")
    study = read_study(write_study(tmp_path, during, ("targets: {train_loss: 1e-3}\n", "")))
    assert study.bases[1].options["every"] == "5 steps"


def test_studies_of_a_user_are_found_beside_those_of_the_project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_study(STUDY_FOLDER)
    OWN_STUDIES.mkdir()
    (OWN_STUDIES / "mine.yaml").write_text("like: tiny\nclaims: []\n")
    assert [study.name for study in read_studies()] == ["mine", "tiny"]
    assert [study.name for study in read_studies(OWN_STUDIES)] == ["mine"]
    write_study(OWN_STUDIES, ("tiny.claim", "other.claim"))
    assert [study.name for study in read_studies(names=["mine"])] == ["mine"]
    with pytest.raises(InputError, match=r"^studies/tiny\.yaml: .*/studies/tiny\.yaml has the same name"):
        read_studies()
