"""Trials of methods: mistakes of users that `curvebench check` finds before any run."""
# ruff: noqa: E501 (one case a line reads as the table that it is)

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
import torch

from curvebench.__main__ import main
from curvebench.planning.studies.validation import read_study
from curvebench.planning.trials import BASE, Trial, Trials
from tests.curvebench.tiny import write_study
from tests.curvebench.user_files import user_file

WORKLOAD = "{least_squares: {n: 8, d: 4}}"
COSINE = ("schedule: {name: constant}", "schedule: {name: cosine}")
ON_TORCH = ("      jax: {}\n      torch: {tuned_on: jax, seeds: {final: 2}}\n", "      torch: {}\n")
RULE = user_file("mistakes/rule.py").replace("np.square", "ops.square")
RETURNED = 'param - hyper["learning_rate"] * state.first / (ops.sqrt(second) + 1e-8), state'


def method(*entries: str) -> tuple[str, str]:
    """Change the optimizers of the tiny study."""
    return ("[sgd, adam]", f"[adam, {', '.join(entries)}]")


def write_files(folder: Path, *changes: tuple[str, str], rule: str | None = None) -> Path:
    """Write the tiny study with changes and all files with mistakes, and return the study's path."""
    path = write_study(folder / "studies", *changes)
    for file in (
        "no_step.py",
        "idle_argument.py",
        "rebound_groups.py",
        "rule.py",
        "recurrent.py",
        "spectral.py",
    ):
        (path.parent / file).write_text(user_file(f"mistakes/{file}"))
    if rule is not None:
        (path.parent / "rule.py").write_text(rule)
    return path


def checked(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *changes: tuple[str, str], rule: str | None = None
) -> int:
    """Return the status of `curvebench check` on the tiny study and the files."""
    write_files(folder, *changes, rule=rule)
    monkeypatch.chdir(folder)
    return main(["check", "--studies", "studies"])


def trials(folder: Path, *entries: str) -> list[list[Trial]]:
    """Return the trials of each method that is added to the tiny study."""
    study = read_study(write_files(folder, method(*entries), rule=RULE))
    return [list(Trials().trials(study, spec)) for spec in study.optimizers[1:]]


MISTAKES = {
    "no step": (["torch-descent: ", "takes no step: all parameters are unchanged after 3"], method("torch:no_step.py:Descent")),
    "groups rebound to copies": (["torch-copied: ", "does not follow the schedule"], method("torch:rebound_groups.py:Copied"), COSINE),
    "groups rebound to other tensors": (["torch-replaced: ", "param_groups must keep the parameters"], method("torch:rebound_groups.py:Replaced")),
    "NumPy in a rule": (["mine: ", "calls NumPy on an array of a step", "use the array functions `ops`", "rule.py:22)"], method("rule.py")),
    "a model whose runs cannot be mapped": (["workload gated: ", "for several runs at once: give it mapped=False", "aten::gru"], (WORKLOAD, "recurrent.py"), ON_TORCH),
    "an optimizer for matrices": (["torch-spectral: ", "is an optimizer for matrices, and no parameter is a matrix"], method("torch:spectral.py:Spectral")),
    "an optimizer for matrices that changes no vector": (["torch-timid: ", "is an optimizer for matrices"], method("torch:spectral.py:Timid")),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:__array_wrap__")
@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_reported_before_a_run(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    parts, *changes = MISTAKES[name]
    assert checked(tmp_path, monkeypatch, *changes) == 2
    (line,) = capsys.readouterr().err.splitlines()
    for part in parts:
        assert part in line


@pytest.mark.parametrize(
    ("returned", "answer"),
    [
        (RETURNED.removesuffix(", state"), "update returns Traced; it must return (param, state)"),
        ("state", "update returns Traced, Traced, Traced; it must return (param, state)"),
        ("state, param", "update returns State, Traced; it must return (param, state)"),
        ("param[..., :1], state", "fails"),
        (RETURNED.replace(", state", ", state.first"), "has no attribute 'second'"),
        (f"{RETURNED}._replace(total=ops.zeros(()))", "update must return (param, state) with a state like that of init"),
    ],
)  # fmt: skip
def test_a_rule_must_return_parameters_and_a_state(
    returned: str,
    answer: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = RULE.replace(RETURNED, returned)
    assert text != RULE
    assert checked(tmp_path, monkeypatch, method("rule.py"), rule=text) == 2
    assert answer in capsys.readouterr().err


NOTES = {
    "{torch:idle_argument.py:Descent: {weight_decay: 0.1}}": "weight_decay changes nothing in 3 steps",
    "{torch:idle_argument.py:Descent: {weight_decay: 0.0}}": "",
    "{torch:torch.optim.SGD: {weight_decay: 0.1}}": "",
    "{optax:optax.lion: {b2: 0.95}}": "",
    "{torch:torch.optim.SGD: {groups: {theta: {}}}}": "",
    "{torch:torch.optim.Adam: {betas: [0.9, 0.999], foreach: true}}": "foreach changes nothing",
    "{adafactor: {factored: false}}": "factored changes nothing in 12 steps",
    "{adamw: {weight_decay: 0.0, decoupled_weight_decay: true}}": "decoupled_weight_decay changes nothing",
    "{regularized_update_descent: {gradient: polyak}}": "",
    "{newton: {damping: 0.1}}": "",
    "torch:torch.optim.Muon": "acts as torch-adamw on ",
    "rule.py": "",
}  # fmt: skip


@pytest.mark.parametrize("entry", NOTES)
def test_a_caution_is_printed_with_the_plan(
    entry: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert checked(tmp_path, monkeypatch, method(entry), rule=RULE) == 0
    notes = [line for line in capsys.readouterr().out.splitlines() if "optimizers." in line]
    assert len(notes) == bool(NOTES[entry])
    assert NOTES[entry] in "".join(notes)


def test_findings_are_reported_together_with_their_problems(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    workloads = (f"workload: {WORKLOAD}", f"workloads: [{WORKLOAD}, linear_network]")
    entries = method("torch:no_step.py:Descent", "torch:spectral.py:Spectral", "torch:no_step.py:Partial")
    assert (
        checked(
            tmp_path,
            monkeypatch,
            entries,
            workloads,
            ("train_loss: 1e-3", "train_loss: {least_squares: 1e-3, linear_network: 1e-3}"),
        )
        == 2
    )
    first, second = capsys.readouterr().err.splitlines()
    assert "torch-descent" in first
    assert not first.endswith(")"), "it is so on both problems"
    assert "torch-spectral" in second
    assert second.endswith("(on least_squares)")


def test_parameters_that_a_method_leaves_unchanged_are_named(tmp_path: Path) -> None:
    (trial,) = trials(tmp_path, "torch:no_step.py:Partial")[0]
    _, unchanged = trial.of_matrix().checked()
    assert not unchanged
    two = {"first": np.ones(2), "second": np.ones(3)}
    _, unchanged = trial.at_distance({name: trial.workload.roles({})["theta"] for name in two}, two).checked()
    assert unchanged == {"second"}


def test_leaves_of_a_state_may_be_one_array(tmp_path: Path) -> None:
    """The steps are those of a state whose leaves are separate arrays."""
    separate = RULE.replace("State(zeros, zeros, zeros)", "State(*(0.0 * param for _ in range(3)))")
    assert separate != RULE
    (tmp_path / "separate.py").write_text(separate)
    shared, other = trials(tmp_path, "rule.py", "{../separate.py: {label: separate}}")
    assert [trial.backend for trial in shared] == ["jax", "torch"]
    for one, two in zip(shared, other, strict=True):
        steps = one.steps()
        assert not steps.same("learning_rate", steps)
        np.testing.assert_allclose(steps.ends[BASE]["theta"], two.steps().ends[BASE]["theta"], rtol=1e-12)


def test_a_trial_neither_reads_nor_changes_global_random_generators(tmp_path: Path) -> None:
    (trial,) = trials(tmp_path, "torch:no_step.py:Noisy")[0]
    steps = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        before = torch.get_rng_state().tolist(), random.getstate(), np.random.get_state()[1].tolist()  # type: ignore[index]  # noqa: NPY002
        steps.append(trial.steps())
        after = torch.get_rng_state().tolist(), random.getstate(), np.random.get_state()[1].tolist()  # type: ignore[index]  # noqa: NPY002
        assert after == before
    assert steps[0].same(BASE, steps[1])
