"""The command line: list, check, plan, run and show."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys

import pytest

from curvebench.__main__ import main
from curvebench.commands import catalogue
from curvebench.engine import first_evaluation
from curvebench.engine.first_evaluation import check_start
from curvebench.optimizers.gradient_descent import SGD
from curvebench.reports.sets.reproduce import SNAKEMAKE_PROGRAM
from curvebench.workloads.workload import Start
from tests.conftest import ROOT
from tests.curvebench.tiny import TINY, write_study
from tests.curvebench.user_files import user_file
from tests.results.rows import rows, target, write

STUDIES = ["--studies", str(ROOT / "benchmarks/studies")]


def test_list_names_all_that_studies_can_name(capsys):
    assert main(["list", *STUDIES]) == 0
    said = capsys.readouterr().out
    for part in ("digits_mlp", "adamw", "egop", "jax, torch", "quick", "egop.linear-network"):
        assert part in said
    assert "beta1" not in said


@pytest.mark.parametrize(
    ("arguments", "status", "shown"),
    [
        (["adam"], 0, "learning_rate = must be given, in (0, inf): step size"),
        (["adam"], 0, "beta1 = 0.9, in [0, 1)"),
        (["adam", "egop.convex"], 0, "study: convex"),
        (["qui", "jax"], 0, "BACKENDS\n  jax\n\nSCALES\n  quick\n"),
        (["adamn"], 2, "nothing begins with 'adamn'; did you mean 'adam'?"),
        (["KFAC"], 2, "did you mean 'kfac'?"),
        (["KFAK"], 2, "did you mean 'kfac'?"),
        (["adam", "--markdown"], 2, "leave the names out"),
    ],
)
def test_list_tells_all_of_what_is_named(arguments, status, shown, capsys):
    assert main(["list", *arguments, *STUDIES]) == status
    said = "".join(capsys.readouterr())
    assert shown in said
    assert "digits_mlp" not in said


def test_list_tells_all_that_cites_a_source(capsys):
    assert main(["list", "004", "--json", *STUDIES]) == 0
    of_source = json.loads(capsys.readouterr().out)
    assert {*of_source} == {"workloads", "optimizers", "studies", "claims"}
    assert "symo" in of_source["optimizers"]
    assert {"symo.mean", "symo.train-tanh"} < of_source["claims"].keys()
    assert "notes.regret" not in of_source["claims"]


@pytest.mark.parametrize(
    ("command", "status", "times"),
    [
        (["list", "tiny"], 0, 1),
        (["check", "tiny"], 0, 0),
        (["check", "tiny.claim"], 0, 1),
        (["check"], 2, 1),
        (["check", "bad"], 2, 1),
        (["check", "bad.claim"], 2, 1),
    ],
)
def test_a_file_that_cannot_be_imported_stops_only_what_uses_it(tmp_path, capsys, command, status, times):
    write_study(tmp_path)
    write_study(tmp_path, ("[sgd, adam]", "[adam, broken.py]"), ("tiny.claim", "bad.claim"), name="bad")
    (tmp_path / "broken.py").write_text("import sys\nsys.exit('no licence')\n")
    assert main([*command, "--studies", str(tmp_path)]) == status
    said = "".join(capsys.readouterr())
    reason = f"optimizers.broken.py: {tmp_path}/broken.py: cannot be loaded (SystemExit: no licence); fix it"
    assert said.count(f"{tmp_path}/bad.yaml: {reason}") == times


def test_check_says_what_a_run_would_hold(tmp_path, capsys):
    write_study(tmp_path)
    assert main(["check", "--studies", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "1 study is valid: tiny" in said
    assert "runs 4 jobs, 84 runs" in said


def test_check_compares_the_starts_of_workloads_and_says_where_data_are_missing(
    tmp_path, capsys, monkeypatch
):
    two = (TINY.splitlines()[2], "workloads: [{least_squares: {n: 8, d: 4}}, fashion_small]")
    write_study(tmp_path, two, ("stop: {gradient_norm: 1e-8}\n", ""))
    monkeypatch.setattr(first_evaluation, "check_start", check_start)
    monkeypatch.setattr("curvebench.workloads.data.DataFiles.missing", lambda files: "get it")
    assert main(["check", "--studies", str(tmp_path)]) == 0
    assert "note: workload fashion_small: its start is not compared; get it\n" in capsys.readouterr().out
    monkeypatch.setattr(first_evaluation, "start_of", lambda workload: Start(1.0, 1.0))
    assert main(["check", "--studies", str(tmp_path)]) == 2
    assert (
        "workload least_squares: start: loss is 1.0 on this machine, and the workload states 1.6053"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    "workload",
    [
        "recurrent: {task: copy, label: least_squares}",
        "denoising_diffusion: {noise: fixed, batch_size: null, label: least_squares}",
    ],
)
def test_check_takes_losses_that_belong_to_settings(tmp_path, capsys, workload):
    """Copied symbols are no targets of adding, and L-BFGS needs a loss without noise."""
    two = (TINY.splitlines()[2], f"workloads: [{{{workload}}}]")
    optimizers = ("[sgd, adam]", "[sgd, adam, lbfgs]" if "fixed" in workload else "[sgd, adam]")
    write_study(tmp_path, two, optimizers, ("stop: {gradient_norm: 1e-8}\n", ""))
    assert main(["check", "--studies", str(tmp_path)]) == 0, capsys.readouterr().err


def test_check_takes_the_studies_that_are_named_and_leaves_broken_others_alone(tmp_path, capsys):
    write_study(tmp_path)
    (tmp_path / "broken.yaml").write_text("question: none\n")
    assert main(["check", "tiny", "--studies", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "1 study is valid: tiny" in said
    assert "broken" not in said
    assert main(["check", "tinny", "--studies", str(tmp_path)]) == 2
    (tmp_path / "broken.yaml").unlink()
    capsys.readouterr()
    assert main(["check", "tinny", "--studies", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "error: STUDY: " in said
    assert "did you mean 'tiny'? (studies: tiny; claims: curvebench list)" in said


def test_plan_tells_what_a_configuration_would_run_and_writes_nothing(tmp_path, capsys):
    write_study(tmp_path / "studies")
    folders = [f"study_folder={tmp_path / 'studies'}", f"results={tmp_path / 'results'}"]
    config = [*folders, "studies=tiny", "parity=false"]
    assert main(["plan", *config]) == 0
    said = capsys.readouterr().out
    assert said.startswith("curvebench, scale quick: ")
    assert "jobs\n  tiny on " in said
    assert not (tmp_path / "results").exists()
    assert main(["plan", "quick"]) == 2
    assert "'quick' is not KEY=VALUE, such as scale=paper; a study or a claim is studies=quick" in (
        capsys.readouterr().err
    )


def test_a_copied_study_whose_claims_have_the_same_ids_is_not_valid(tmp_path, capsys):
    write_study(tmp_path)
    write_study(tmp_path, name="copied")
    write_study(tmp_path, ("tiny.claim", "third.claim"), name="third")
    (tmp_path / "broken.yaml").write_text("claims: [{id: tiny.claim}\n")
    assert main(["check", "copied", "--studies", str(tmp_path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(f"claims: the id 'tiny.claim' is also in {tmp_path}/tiny.yaml; ids must differ")
    assert main(["check", "third", "--studies", str(tmp_path)]) == 0


def test_a_claim_that_a_study_decides_is_told_how_to_run(capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert main(["claims", "check", "egop.convex"]) == 2
    said = capsys.readouterr().err
    assert "egop.convex: runs of benchmarks/studies/convex.yaml decide it" in said
    assert "--config studies=egop.convex" in said


def test_show_prints_settings_metrics_and_curve(tmp_path, capsys):
    best = [{"name": "train_loss", "value": 0.125, "step": 3}]
    run = {"run": "abc-0001", "learning_rate": 0.02, "best_metrics": best, "targets": [target(steps=3)]}
    curve = [
        {"run": "abc-0001", "step": step, "value": value} for step, value in enumerate([4.0, 0.125, 0.25])
    ]
    write(tmp_path / "runs/job", runs=rows("runs", run), curves=rows("curves", *curve))
    assert main(["show", "abc", "--results", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    told = dict(line.split(maxsplit=1) for line in said.splitlines() if line[0].isalpha())
    assert told["learning_rate"] == "0.02"
    assert told["hyperparameters.beta1.value"] == "0.9"
    assert told["best_metrics.train_loss.step"] == told["targets.train_loss.steps"] == "3"
    assert "4.0" in said


@pytest.mark.parametrize("arguments", [[], ["lsit"], ["sets"], ["run"], ["run", "spec", "--threads", "0"]])
def test_a_wrong_command_is_answered_with_its_usage(arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "usage: curvebench" in capsys.readouterr().err


def test_an_interrupt_ends_a_command_with_one_line(monkeypatch, capsys):
    def interrupt(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(catalogue, "catalogue", interrupt)
    assert main(["list"]) == 130
    assert capsys.readouterr() == ("", "interrupted\n")


# Stands for Ctrl-C during the import of a module
INTERRUPTED_IMPORT = """
import sys
from importlib.abc import MetaPathFinder

class Interrupt(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == {module!r}:
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupt())
"""


@pytest.mark.parametrize(
    ("module", "program", "said"),
    [
        ("curvebench.spec.definitions", "import curvebench.__main__", "interrupted\n"),
        ("snakemake.cli", SNAKEMAKE_PROGRAM, ""),  # the command that runs Snakemake prints a line
    ],
)
def test_an_interrupt_during_imports_prints_no_traceback(module, program, said):
    called = [sys.executable, "-c", INTERRUPTED_IMPORT.format(module=module) + program]
    done = subprocess.run(called, check=False, text=True, capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", said)


def test_help_teaches_by_examples(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    said = capsys.readouterr().out
    for command in ("curvebench list", "check convex", "sets reproduce egop.convex", "show ", "snakemake -n"):
        assert command in said


def test_a_rule_that_cannot_take_a_step_is_named_before_compute(monkeypatch, capsys):
    broken = dataclasses.replace(SGD, update=lambda ops, grad, state, param, hyper: (ops.sgn(grad), state))
    monkeypatch.setattr("curvebench.registry.known", lambda kind, reasons: {"sgd": broken})
    assert main(["check"]) == 2
    said = capsys.readouterr().err
    assert "optimizers/gradient_descent.py: sgd: a step fails (AttributeError" in said
    assert "sgn" in said


OF_ALL = "grad = grad / ops.sqrt(ops.sum(grad * grad))"
OF_ROWS = "grad = grad / ops.sqrt(ops.sum(grad * grad, axis=-1, keepdims=True))"
OF_LEAVES = "grad = grad / ops.sqrt(ops.sum(grad * grad, axis=(-2, -1), keepdims=True))"


@pytest.mark.parametrize(
    ("line", "scope", "said"),
    [
        (OF_ALL, "", "mixes lanes: "),
        (OF_ALL, ', scope="leaf"', "sum over the axes of a parameter alone, such as axis=-1"),
        (OF_ROWS, "", 'mixes parameters, which its scope "entry" does not allow; set scope="leaf"'),
        (OF_ROWS.replace("-1", "2"), ', scope="leaf"', 'mixes parameters, which its scope "leaf"'),
        ("grad = -grad if grad.sum() > 0 else grad", "", "no run on JAX can; use ops.where"),
        ("grad = grad * float(ops.norm(grad))", "", "makes a Python number of it"),
        (OF_ROWS, ', scope="leaf"', None),
        (OF_LEAVES, ', scope="leaf"', None),
        (OF_ROWS, ', scope="model"', None),
        ("grad = ops.where(grad > 0, grad, -grad)", "", None),
    ],
)
def test_a_rule_of_a_file_whose_lanes_are_no_runs_of_their_own_is_named(line, scope, said, tmp_path, capsys):
    text = user_file("own_rule.py").replace("grad = 1.0 * grad", line)
    (tmp_path / "own.py").write_text(text.replace("update=update", f"update=update{scope}"))
    write_study(tmp_path, ("[sgd, adam]", "[own.py, adam]"))
    assert main(["check", "--studies", str(tmp_path)]) == (0 if said is None else 2)
    if said is not None:
        (told,) = capsys.readouterr().err.splitlines()
        assert "own.py: own: mixes" in told or "own.py: own: branches" in told
        assert said in told


SQUARES = "BASE.loss(ops, params, {}, batch, {})[0]"
SCALARS = "BASE.evaluate(ops, params, state, split)"


COMPUTED = ", metrics={**BASE.metrics, 'minibatch_loss': BASE.metrics['train_loss']}"
MISSING = ", missing=lambda settings: 'get it'"


@pytest.mark.parametrize(
    ("value", "evaluated", "more", "said"),
    [
        ("ops.cross_entropy(params, batch)", SCALARS, "", "own.py:10: loss: fails (AttributeError: "),
        ("params['absent']", SCALARS, "", "own.py:10: loss: fails (KeyError: 'absent')"),
        ("batch['features'] @ params['theta'][None, :]", SCALARS, "", "own.py:10: loss: fails (ValueError"),
        ("batch['targets']", SCALARS, "", "own.py: loss: has shape (8,); give one number"),
        (SQUARES, "split['labels']", "", "own.py:14: evaluate: fails (KeyError: 'labels')"),
        (SQUARES, "{'loss': 0.0}", "", "evaluate: gives no train_suboptimality, as metrics asks (it gives: "),
        (SQUARES, SCALARS, "", None),
        (SQUARES, SCALARS, COMPUTED, None),  # the harness computes it
        ("ops.absent", SCALARS, MISSING, None),  # a workload is not evaluated without its data
    ],
)
def test_a_workload_whose_loss_fails_is_named_with_the_line(value, evaluated, more, said, tmp_path, capsys):
    text = user_file("own_workload.py").replace(SQUARES, value).replace(SCALARS, evaluated)
    (tmp_path / "own.py").write_text(text.replace("=evaluate)", f"=evaluate{more})"))
    write_study(tmp_path, ("{least_squares: {n: 8, d: 4}}", "{own.py: {n: 8, d: 4}}"))
    assert main(["check", "--studies", str(tmp_path)]) == (0 if said is None else 2)
    out, err = capsys.readouterr()
    assert ("get it" in out) == (more == MISSING)
    if said is not None:
        (told,) = err.splitlines()
        assert "tiny.yaml: workload " in told
        assert said in told
