"""`curvebench try`: a submission in a published field, as a class and as a rule, and handed in as a set."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

from curvebench.commands import trying
from curvebench.planning import plan
from curvebench.planning.config import Config
from curvebench.planning.studies.validation import read_study
from curvebench.planning.submission import located, write_submission
from curvebench.reports.boards.submission import hopeless
from curvebench.results.schema import JOBS
from curvebench.results.writing import write_table
from curvebench.spec.errors import InputError
from curvebench.spec.plan import read_plan
from tests.conftest import ROOT
from tests.curvebench.tiny import leave_tiny
from tests.curvebench.user_files import user_file
from tests.results.rows import rows

FIELD, RULE, BROKEN = map(user_file, ("field.yaml", "lion_rule.py", "broken.py"))
CLASS = re.search(r"```python\n(.*?)```", (ROOT / "docs/how-to/try-an-optimizer.md").read_text(), re.DOTALL)


@pytest.fixture
def run(project: Path, activated: dict[str, str]) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return a function that runs `curvebench` in a copy of the project, which has a field of two methods,
    Lion as a class and as a rule, and broken optimizers.
    """
    leave_tiny(project)
    (project / "benchmarks/studies/field.yaml").write_text(FIELD)
    for folder in (project / "results/published").glob("*.*"):
        if folder.is_dir():
            folder.rename(project / f"old-{folder.name}")
    assert CLASS
    (project / "my_lion.py").write_text(CLASS[1])
    (project / "lion_rule.py").write_text(RULE)
    (project / "broken.py").write_text(BROKEN)

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(words, cwd=project, env=activated, text=True, check=False, capture_output=True)

    return run


def published(run: Callable[..., subprocess.CompletedProcess[str]], *config: str) -> None:
    done = run(
        *("snakemake", "--cores", "2", "publish", "--config", "scale=standard", "parity=false"),
        *("waive=dirty", *config),
    )
    assert done.returncode == 0, done.stdout + done.stderr


def tried(run: Callable[..., subprocess.CompletedProcess[str]], *words: str) -> dict[str, Any]:
    done = run("python", "-m", "curvebench", "try", *words, "--json", "--cores", "2")
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def field_here(project: Path) -> plan.Plan:
    """Return the plan of the field itself, run in a copy of the project."""
    asked = Config(scale="standard", studies=("field",), backends=("jax",), results=project / "results")
    folder = project / "benchmarks/studies"
    with contextlib.chdir(project):  # below which the published sets are
        return plan.make_plan(asked.model_copy(update={"study_folder": folder}), project)


def test_the_cost_of_another_protocol_is_the_mean_of_its_methods():
    *_, published = sorted((ROOT / "results/published").glob("field.*/plan.json"))
    (study,) = read_plan(published).studies
    seconds = pl.read_parquet(study.tables / "jobs.parquet")["total_seconds"].sum()
    assert trying.minutes_of_a_method(study) == pytest.approx(seconds / 60 / len(study.methods))


LION = ("my_lion.py:Lion", "--author", "A. Author", "--paper", "arXiv:2302.06675")
AGAIN = "curvebench try my_lion.py:Lion --label torch-lion --problems least_squares,mild"


@pytest.mark.long
def test_a_rule_has_the_place_of_its_class_which_can_be_handed_in(
    run: Callable[..., subprocess.CompletedProcess[str]], project: Path
):
    published(run, "studies=field", "backends=jax", "name=field.set")
    first = tried(run, *LION)
    assert (first["method"], first["command"]) == ("torch-lion", AGAIN)
    (place,) = first["groups"]
    assert (place["group"], place["methods"], place["acts_as"]) == ("", 3, None)
    assert (first["backend"], first["field_backend"]) == ("torch", "jax")
    assert (first["runs"], first["failed"]) == (10, 0)
    assert place["rank"]["workloads"] == place["score"]["workloads"] == 2
    page = Path(first["page"]).read_text()
    assert "It ran on torch, the field's methods on jax" in page
    assert AGAIN in page
    assert "figures --plan results/submissions/field/torch-lion/site/plan.json" in page
    assert re.search(r"torch-lion\W.*joins</h2>", page)
    assert "A. Author; arXiv:2302.06675" in page
    assert not [*(project / "results/figures").glob("torch-lion.*")], "the field's figures show it"
    second = tried(run, "lion_rule.py")
    assert (second["method"], second["backend"]) == ("lion_rule", "jax")
    assert first["groups"] == second["groups"]
    for one, other in zip(first["problems"], second["problems"], strict=True):
        assert one["median"] == pytest.approx(other["median"], rel=1e-9)
        assert {**one, "median": 0, "ratio": 0} == {**other, "median": 0, "ratio": 0}
    folder = f"study_folder={project}/results/submissions/field/torch-lion"
    published(run, "studies=torch-lion", "backends=torch", folder, "name=lion.set")
    assert run("python", "-m", "curvebench", "sets", "check", "results/published/lion.set").returncode == 0
    readme = (project / "results/published/lion.set/README.md").read_text()
    assert "torch-lion joins the study field, and stands on its leaderboard" in readme
    assert "| method |" not in readme
    third = tried(run, "lion_rule.py")
    assert "--label torch-lion-again</code>" in Path(third["page"]).read_text()
    (place,) = third["groups"]
    assert place["methods"] == 4, "the field has the method that was handed in"
    assert place["standing"]["torch-lion"] == "cannot be told from"
    (study,) = field_here(project).studies
    assert [*study.plan.joined] == ["lion.set"], "the field that is run here has it too"
    (project / "results/published/lion.set/SHA256SUMS").write_text("others")
    assert field_here(project).studies[0].plan.figures != study.plan.figures
    words = ("try", "broken.py:Later", "--problems", "mild", "--cores", "2", "--json")
    lost = run("python", "-m", "curvebench", *words)
    assert lost.returncode == 1, "every run of every problem was lost"
    said = json.loads(lost.stdout)
    assert said["failed"] == 5
    (place,) = said["groups"]
    assert place["rank"] is place["score"] is place["mean_rank"] is None
    assert said["problems"][0]["learning_rate"] is None
    assert place["standing"] == {}
    line = lost.stderr.splitlines()[-1]
    assert line.startswith("broken.py:Later (torch-later): every run on mild failed (")
    assert "11 diverged and 2 error): " in line
    assert "ValueError: too fast" in line
    assert "Next:" not in lost.stdout + lost.stderr
    assert "Select jobs" not in lost.stderr
    assert "torch-later torch-later" not in lost.stderr
    taken = run("python", "-m", "curvebench", "try", "adam", "--cores", "2")
    assert taken.stderr.startswith(
        "error: study adam: joins: field has a method 'adam' already; give another --label"
    )


def test_what_cannot_be_handed_in_is_refused_before_anything_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    from curvebench.__main__ import main
    from curvebench.results import provenance

    def told(*more: str, method: str = "adam") -> str:
        assert main(["try", method, "--results", str(tmp_path), *more]) == 2
        return capsys.readouterr().err

    monkeypatch.setattr(provenance, "commit", lambda folder: ("0" * 40, True))
    assert "is not what a commit has (git status); commit it first\n" in told("--publish", "adam.set")
    assert "leave --problems out" in told("--publish", "adam.set", "--problems", "mild")
    assert "'Adam'" in told("--publish", "Adam")
    monkeypatch.setattr(provenance, "commit", lambda folder: ("0" * 40, False))
    (own := tmp_path.with_suffix(".py")).touch()
    for method in (f"{own}:Own", f"torch:{own}:Own"):
        assert f"{own}: no commit of" in told("--publish", "adam.set", method=method)
    assert "field.yaml: there is no such file; name" in told("--studies", str(tmp_path))
    assert told("--options", "{betas: [0.9") == (
        "error: --options: line 1: not valid YAML (expected ',' or ']', but got '<stream end>')\n"
    )
    assert not any(tmp_path.iterdir())

    def unfit(planned: object, folder: Path) -> None:
        raise InputError(f"{folder.name}: not committed; give another `label:`")

    monkeypatch.setattr(plan, "make_plan", lambda config: config)
    monkeypatch.setattr(trying, "check_runs", unfit)
    assert "own: not committed; give another --label" in told("--publish", "adam.set", "--label", "own")


def test_runs_of_code_that_was_not_committed_are_told_before_others_are_run(tmp_path: Path):
    frame = pl.DataFrame([{"dirty": dirty} for dirty in (True, None, False)], schema=JOBS)
    planned: Any = SimpleNamespace(jobs=[SimpleNamespace(folder=tmp_path)])
    trying.check_runs(planned, tmp_path)
    write_table(tmp_path / "jobs.parquet", frame, JOBS)
    with pytest.raises(InputError, match=r"2 of its jobs ran before .*; delete"):
        trying.check_runs(planned, tmp_path)


def test_names_and_problems_that_are_not_there_are_told(tmp_path: Path):
    field = tmp_path / "field.yaml"
    field.write_text(FIELD)
    (tmp_path / "own.py").write_text(
        "def descent(learning_rate):\n    return None\n\n\nclass Lion:\n    pass\n"
    )
    assert located(f"{tmp_path}/own.py:descent").startswith("optax:")
    assert located(f"{tmp_path}/own.py:Lion") == f"torch:{tmp_path}/own.py:Lion"
    assert located(f"torch:{os.path.relpath(tmp_path)}/own.py:Lion") == f"torch:{tmp_path}/own.py:Lion"
    assert located("adam") == "adam"
    with pytest.raises(InputError, match=r"optimizer 'Loin'.*Lion"):
        located(f"{tmp_path}/own.py:Loin")
    (tmp_path / "bad.py").write_text("import nothing_of_that_name\n")
    with pytest.raises(InputError, match=r"cannot be imported .*nothing_of_that_name', line 1\)"):
        located(f"{tmp_path}/bad.py:Lion")
    with pytest.raises(InputError, match=r"--problems: .*'mild'"):
        write_submission("adam", field, tmp_path, label="own", problems=("milt",))
    submission = write_submission("adam", field, tmp_path, label="own", problems=("mild",))
    assert (submission.name, submission.scale, submission.backend) == ("own", "standard", "jax")
    study = read_study(submission.path)
    assert [one.name for one in study.workloads["standard"]] == ["mild"]
    assert study.file.targets == {"train_loss": {"least_squares": 0.1, "mild": 0.2}}, (
        "those of the field, whole"
    )


def test_where_all_runs_of_a_problem_failed_each_problem_has_its_own_reason():
    big = {"workload": "big", "outcome": "out_of_memory", "outcome_step": None, "reason": "needs 80 GB"}
    runs = rows(
        "runs",
        *(
            {"workload": "mild", "outcome": "diverged", "outcome_step": step, "reason": None}
            for step in (6, 8)
        ),
        *(big, {"workload": "fine"}, {"workload": "fine"} | big | {"workload": "fine"}),
    )
    named = runs.with_columns(method=pl.lit("lion"))
    assert hopeless(named, "Lion", "lion") == (
        "Lion (lion): every run on mild failed (2 diverged): "
        "the loss is not finite (half of them by step 8)\n"
        "Lion (lion): every run on big failed (1 out of memory): needs 80 GB"
    )
    assert hopeless(named.filter(workload="fine"), "Lion", "lion") is None
