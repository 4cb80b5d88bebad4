"""`curvebench compare` and `more`: a user's own model, from its file to the table of optimizers."""

from __future__ import annotations

import importlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

import curvebench
from curvebench.__main__ import main
from curvebench.commands import comparing
from curvebench.interop.models import loaded, store
from curvebench.paths import STUDY_FOLDER
from curvebench.planning.model_comparison import (
    OPTIMIZERS,
    SCALE,
    SPACE,
    TRIALS,
    ComparisonPlan,
    add_seeds,
    config,
    locator_of,
)
from curvebench.planning.plan import make_plan
from curvebench.planning.studies import reading
from curvebench.planning.studies.reading import study_files
from curvebench.planning.studies.validation import read_study
from curvebench.spec.errors import InputError
from curvebench.stages import estimating
from tests.curvebench.user_files import user_file

GRAPHS = {"loss": "graph_loss", "train": "graphs(60)", "validation": "graphs(30, seed=5)", "batch_size": 10}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "torch_models.py"
    path.write_text(user_file("torch_models.py"))
    return path


def graph_plan(file: Path, *optimizers: str, label: str = "graphnetwork", **details: str) -> ComparisonPlan:
    locator = locator_of(str(file), "GraphNetwork")
    return comparing.plan_of(locator, GRAPHS, optimizers, label, steps=300, **details)


# --- the study -----------------------------------------------------------------------------------


def test_the_study_of_a_comparison_is_valid_and_fair(file: Path, tmp_path: Path):
    plan = graph_plan(file)
    study = read_study(plan.write(tmp_path / "results")).at(SCALE)
    assert [optimizer.label for optimizer in study.optimizers] == [*OPTIMIZERS]
    protocols = {spec.label: study.tuning.for_optimizer(spec) for spec in study.optimizers}
    half = TRIALS[0] // 2
    assert [protocols[name].rounds for name in ("adam", "adamw", "muon")] == [
        (half, half),
        (2 * half, 2 * half),
        (3 * half, 3 * half),
    ]
    assert set(protocols["adam"].names) == {"learning_rate"}
    assert set(protocols["adamw"].names) == {"learning_rate", "weight_decay"}
    assert set(protocols["muon"].names) == set(SPACE)
    assert study.compare.metric == "validation_loss"
    assert (study.seeds.tuning, study.seeds.final) == (3, 5)
    assert study.training.schedule.name == "cosine"
    assert study.backends == ("torch",)


def test_commands_on_studies_know_the_comparisons_of_the_working_folder(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    written = graph_plan(file, "adam").write(tmp_path)
    monkeypatch.setattr(reading, "RESULTS", tmp_path)
    assert {*study_files(STUDY_FOLDER, ["graphnetwork"])} - {*study_files(STUDY_FOLDER)} == {written}
    for words in (["check", "graphnetwork"], ["plan", "studies=graphnetwork"], ["list", "graphnet"]):
        assert main(words) == 0
        assert "graphnetwork" in capsys.readouterr().out
    assert main(["check", "graphnetwrk"]) == 2
    assert "did you mean 'graphnetwork'?" in capsys.readouterr().err


def test_a_comparison_has_a_name_that_no_study_has(file: Path):
    with pytest.raises(
        InputError, match=r"--label: convex is the name of the study .*convex\.yaml; give ano"
    ):
        graph_plan(file, "adam", label="convex")


@pytest.mark.parametrize(
    ("precision", "backend", "message"),
    [
        (
            "tf32",
            "torch",
            "precision: graphnetwork is a model of torch, which computes in float32 or float64",
        ),
        ("mixed", "torch", "computes in float32 or float64"),
        ("bfloat16", "torch", "computes in float32 or float64"),
        ("float64", "jax", "graphnetwork is a model of torch, which does not run on jax"),
    ],
)
def test_a_model_runs_on_its_library_in_full_precision(
    precision: str, backend: str, message: str, file: Path, tmp_path: Path
):
    study = graph_plan(file, "adam").study | {"precision": precision}
    study["scales"][SCALE]["backends"] = {backend: {}}
    path = tmp_path / "own.yaml"
    path.write_text(json.dumps(study))
    with pytest.raises(InputError, match=message):
        read_study(path)


def test_methods_that_cannot_run_on_the_model_are_listed_with_the_reason(file: Path):
    plan, refused = comparing.runnable(graph_plan(file, "kfac", "adam", "optax:optax.adam", "adam"))
    assert plan.optimizers == ("adam",)
    assert refused.keys() == {"kfac", "optax-adam", "adam"}
    assert "give its likelihood" in refused["kfac"]
    assert refused["optax-adam"] == "it runs on jax only, and the model on torch"
    assert refused["adam"] == "another method has this name"


def test_a_comparison_without_any_method_that_runs_is_refused(file: Path):
    with pytest.raises(InputError, match=r"\Agraphnetwork: kfac: .*give its likelihood"):
        comparing.runnable(graph_plan(file, "kfac"))
    with pytest.raises(InputError, match=r"has no metric 'validation_f1'"):
        comparing.runnable(graph_plan(file, "adam", "sgd", judged_by="validation_f1"))


def test_a_folder_that_cannot_be_written_is_refused_before_anything_is_computed(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    results = tmp_path / "results"
    with pytest.raises(InputError, match=r"_models\.py: File exists; name another folder with --results"):
        comparing.run_plan(graph_plan(file, "adam"), file, "1", None)
    (tmp_path / ".snakemake").touch()
    with pytest.raises(InputError, match=r"/\.snakemake: File exists; Snakemake .* change to another folder"):
        comparing.run_plan(graph_plan(file, "adam"), results, "1", None)
    assert not [*results.iterdir()]


def test_settings_may_be_zero(file: Path):
    given = {"loss": "label_loss", "train": "labelled(60)", "metrics": "", "maximize": (), "rate": 0.0}
    locator = locator_of(str(file), "Normalized")
    plan = comparing.plan_of(locator, given, ("adam",), "normalized", steps=9)
    assert plan.settings == {"loss": "label_loss", "train": "labelled(60)", "rate": 0.0}


def test_optimizers_of_users_and_other_libraries_are_entries(file: Path, tmp_path: Path):
    (tmp_path / "lion.py").write_text(user_file("lion.py"))
    plan = graph_plan(
        file, "adam", "torch:torch.optim.NAdam", f"{tmp_path}/lion.py:panther", schedule="constant"
    )
    study = read_study(plan.write(tmp_path / "results")).at(SCALE)
    assert [spec.label for spec in study.optimizers] == ["adam", "torch-nadam", "panther"]
    assert study.training.schedule.name == "constant"


def test_the_judged_metric_is_the_training_loss_without_validation_data(file: Path):
    settings = {"loss": "graph_loss", "train": "graphs(60)", "batch_size": 10}
    locator = locator_of(str(file), "GraphNetwork")
    plan = comparing.plan_of(locator, settings, ("adam",), "graphs", steps=9)
    assert plan.metric == "train_loss"
    further = {**GRAPHS, "metrics": "graph_metrics", "maximize": ("accuracy",)}
    details: dict[str, Any] = {"steps": 9, "judged_by": "validation_accuracy"}
    judged = comparing.plan_of(locator, further, ("adam",), "graphs", **details)
    assert judged.study["compare"] == {"metric": "final validation_accuracy"}


@pytest.mark.parametrize(
    ("text", "prefix"),
    [
        ("import torch.nn as nn\n", "torch:"),
        ("from jax import numpy\n", "jax:"),
        ("import flax\nimport jax\n", "jax:"),
    ],
)
def test_the_library_is_the_one_that_a_file_imports(text: str, prefix: str, tmp_path: Path):
    path = tmp_path / "model.py"
    path.write_text(text)
    assert locator_of(str(path), "Net") == f"{prefix}{path}:Net"
    assert locator_of(f"{path}:Net", "") == f"{prefix}{path}:Net"
    assert locator_of(f"jax:{path}", "") == f"jax:{path}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "there is no such file"),
        ("import numpy\n", "imports neither torch nor jax"),
        ("def", "line 1: not"),
    ],
)
def test_a_file_without_a_model_is_refused(text: str | None, message: str, tmp_path: Path):
    path = tmp_path / "model.py"
    if text is not None:
        path.write_text(text)
    with pytest.raises(InputError, match=message):
        locator_of(str(path), "Net")


def test_the_data_are_part_of_the_hash_of_each_job(file: Path, tmp_path: Path):
    plan = graph_plan(file, "adam")
    plan.write(tmp_path)
    (planned,) = make_plan(config(plan.label, tmp_path)).studies
    for job in planned.jobs:
        assert {"data:graphnetwork: train", "data:graphnetwork: validation"} <= job.spec.sources.keys()


# --- the budget ----------------------------------------------------------------------------------


@pytest.fixture
def costs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each method of a comparison take 100 s of processor time, besides the start of its process."""

    def job_costs(studies: Any) -> Iterator[tuple[Any, estimating.Cost]]:
        for (study,) in [studies]:
            for job in study.jobs:
                runs = 53 if job.spec.stage == "runs" else 0
                yield job, estimating.Cost(1, runs, 100.0, 100.0)

    monkeypatch.setattr(estimating, "job_costs", job_costs)
    monkeypatch.setattr(estimating, "START_SECONDS", 0.0)


@pytest.mark.usefixtures("costs")
@pytest.mark.parametrize(
    ("budget", "trials", "methods"),
    [(None, 8, 4), (210.0, 8, 4), (199.0, 6, 4), (110.0, 4, 4), (90.0, 4, 3), (60.0, 4, 2)],
)
def test_a_budget_reduces_trials_then_methods(
    budget: float | None,
    trials: int,
    methods: int,
    file: Path,
    capsys: pytest.CaptureFixture[str],
):
    plan = graph_plan(file, "adamw", "muon", "soap", "adam")
    kept = comparing.affordable(plan, budget, "2")
    assert (kept.trials, len(kept.optimizers), kept.steps) == (trials, methods, 300)
    said = capsys.readouterr().err
    assert ("left out: " in said) == (methods < 4)
    assert ("trials a hyperparameter" in said) == (trials < TRIALS[0])


@pytest.mark.usefixtures("costs")
def test_a_budget_for_less_than_two_methods_is_refused(file: Path):
    plan = graph_plan(file, "adamw", "muon", "soap")
    with pytest.raises(InputError, match="--budget: two methods alone take about 55 s"):
        comparing.affordable(plan, 10.0, "2")


# --- data and Python -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"x": np.ones((3, 2)), "y": np.arange(3)}, {"x": np.ones((3, 2)), "y": np.arange(3)}),
        ((np.ones((3, 2)), np.arange(3)), (np.ones((3, 2)), np.arange(3))),
        (torch.arange(3), np.arange(3)),
        (torch.utils.data.TensorDataset(torch.ones(3, 2)), (np.ones((3, 2)),)),
        ([{"x": np.ones(2)}] * 3, {"x": np.ones((3, 2))}),
    ],
)
def test_stored_data_keep_their_form(data: Any, expected: Any, tmp_path: Path):
    class Items:  # a data set without arrays of all examples
        def __len__(self) -> int:
            return len(data)

        def __getitem__(self, number: int) -> Any:
            return data[number]

    path = tmp_path / "data.npz"
    store(Items() if isinstance(data, list) else data, path)
    torch.testing.assert_close(loaded(path), expected, check_dtype=False)


def test_a_model_that_no_file_defines_is_refused():
    made = type("Made", (torch.nn.Module,), {"__module__": "__main__", "__qualname__": "outer.<locals>.Made"})
    with pytest.raises(InputError, match="is not defined at the top of a file"):
        curvebench.compare(made, "loss", "data")


def test_objects_are_refused_with_a_remedy_that_works(file: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(file.parent)
    users, plans = importlib.import_module(file.stem), list[ComparisonPlan]()
    monkeypatch.setattr(comparing, "run_plan", lambda plan, *_: plans.append(plan))
    remedy = (
        r"model: an object of class GRU; give the class, GRU, and its arguments as settings={'NAME': VALUE}"
    )
    with pytest.raises(InputError, match=re.escape(remedy)):
        curvebench.compare(users.GRU(hidden=7), users.sum_loss, "Adding(20)")
    with pytest.raises(InputError, match=r"loss: an object of class MSELoss; give a function .model, batch."):
        curvebench.compare(users.GRU, torch.nn.MSELoss(), "Adding(20)")
    curvebench.compare(users.GRU, users.sum_loss, "Adding(40)", settings={"hidden": 7})
    assert plans[0].settings["hidden"] == 7


def test_data_without_equal_shapes_are_refused(file: Path, tmp_path: Path):
    data = [(np.ones(2), 1), (np.ones(3), 0)]
    with pytest.raises(InputError, match=r"train: fails .*same shape"):
        curvebench.compare(f"{file}:Normalized", "label_loss", data, results=tmp_path)


def test_a_loss_of_another_file_is_refused(file: Path):
    with pytest.raises(InputError, match=r"graph_plan: is defined in .*test_compare\.py, not in the file of"):
        curvebench.compare(f"{file}:GraphNetwork", graph_plan, "graphs(60)")


def test_compare_in_a_file_that_is_imported_is_refused():
    model = SimpleNamespace(__qualname__="Net", __module__="curvebench_file_12")
    with pytest.raises(InputError, match="below `if __name__"):
        curvebench.compare(model, "loss", "data")


def test_seeds_are_added_to_a_comparison_that_exists(file: Path, tmp_path: Path):
    with pytest.raises(InputError, match="there is no such comparison"):
        add_seeds("graphnetwork", tmp_path, 8)
    path = graph_plan(file, "adam").write(tmp_path)
    for count, batches in ((8, (5, 3)), (8, (5, 3)), (10, (5, 3, 2))):
        add_seeds("graphnetwork", tmp_path, count)
        seeds = read_study(path).scales[SCALE].seeds
        assert (seeds.final, seeds.batches) == (count, batches)
    with pytest.raises(InputError, match="has 10 final seeds already"):
        add_seeds("graphnetwork", tmp_path, 9)


# --- as a user -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_model_is_compared_and_gets_more_seeds(file: Path, tmp_path: Path, activated: dict[str, str]):
    def run(*words: str) -> dict[str, Any]:
        called = [sys.executable, "-m", "curvebench", *words, "--json", "--cores", "2"]
        done = subprocess.run(
            called, cwd=tmp_path, env=activated, text=True, check=False, capture_output=True
        )
        assert done.returncode == 0, done.stderr
        assert "layers.0.weight  weight" in done.stderr or words[0] == "more"
        return dict(json.loads(done.stdout))

    first = run(
        *("compare", file.name, "--model", "GraphNetwork", "--loss", "graph_loss", "--train", "graphs(60)"),
        *("--validation", "graphs(30, seed=5)", "--metrics", "graph_metrics", "--maximize", "accuracy"),
        *("--optimizers", "adamw,torch:torch.optim.SGD", "--steps", "6", "--batch-size", "10"),
    )
    assert {method["method"] for method in first["methods"]} == {"adamw", "torch-sgd"}
    assert {method["seeds"] for method in first["methods"]} == {5}
    assert Path(first["page"]).is_file()
    before = {path: path.read_bytes() for path in tmp_path.glob("results/runs/**/runs.parquet")}
    runs = pl.concat([pl.read_parquet(path) for path in before])
    assert dict(runs.group_by("stage").len().rows()) == {"final": 10, "tuning": 72}
    second = run("more", "graphnetwork", "--seeds", "8")
    assert {method["seeds"] for method in second["methods"]} == {8}
    after = {path: path.read_bytes() for path in tmp_path.glob("results/runs/**/runs.parquet")}
    assert before.items() <= after.items(), "no earlier run is repeated"
    added = pl.concat([pl.read_parquet(path) for path in after.keys() - before.keys()])
    assert added["stage"].unique().to_list() == ["final"]
    assert added.height == 6
    settings = (
        runs.filter(stage="final").vstack(added).group_by("optimizer").agg(pl.col("learning_rate").n_unique())
    )
    assert settings["learning_rate"].to_list() == [1, 1]


@pytest.mark.slow
def test_an_interrupted_command_repeats_no_finished_run(
    file: Path, tmp_path: Path, activated: dict[str, str]
):
    def started(*words: str) -> subprocess.Popen[bytes]:
        called = [sys.executable, "-m", "curvebench", *words, "--cores", "2"]
        return subprocess.Popen(called, cwd=tmp_path, env=activated, start_new_session=True)

    first = started(
        *("compare", file.name, "--model", "Normalized", "--loss", "label_loss", "--train", "labelled(60)"),
        *("--optimizers", "adamw,adam", "--steps", "40", "--batch-size", "10"),
    )
    assert first.wait() == 0
    more = "more", "normalized", "--seeds", "40"
    interrupted = started(*more)
    while not [*tmp_path.glob("results/runs/**/parts/*/*.runs.parquet")]:
        assert interrupted.poll() is None
        time.sleep(0.01)
    os.killpg(interrupted.pid, signal.SIGINT)
    assert interrupted.wait() == 130
    stored = [*tmp_path.glob("results/runs/**/parts/*/*.runs.parquet")]
    for path in stored:
        pl.read_parquet(path).with_columns(machine=pl.lit("marked")).write_parquet(path)
    assert started(*more).wait() == 0
    runs = pl.concat(
        [pl.read_parquet(path) for path in tmp_path.glob("results/runs/*/*/runs/*/runs.parquet")]
    )
    assert runs.filter(stage="final").height == 2 * 40
    assert runs.filter(machine="marked").height == len(stored) < 70
