"""`snakemake publish`: refused before anything is computed, or a set that is accepted and a leaderboard."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from curvebench.__main__ import main
from curvebench.planning.config import read_config
from curvebench.planning.plan import make_plan
from curvebench.spec.errors import InputError
from curvebench.spec.sets import BEGIN, END
from tests.conftest import ROOT
from tests.curvebench.property_checks.toy_claims import TOY
from tests.curvebench.tiny import leave_tiny, write_study

ASKED = "studies=toy.mean"  # a property check: one job, no study


@pytest.fixture
def publish(project: Path, activated: dict[str, str]) -> Callable[..., subprocess.CompletedProcess[str]]:
    """`snakemake publish` in a copy of the project, which no commit has; returns the finished process."""
    leave_tiny(project)
    (project / "benchmarks/claims/toy.py").write_text(TOY)

    def run(*config: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["snakemake", "--cores", "1", "publish", "--config", ASKED, *config],
            cwd=project, env=activated, text=True, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    return run


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"name": "Toy_Set"}, "--config name: 'Toy_Set' is not valid; it begins with a small letter"),
        ({"name": 2026}, "--config name: 2026 is not valid"),
        ({"waive": "dirty,durty"}, "--config waive: 'durty' cannot be waived (valid: dirty,"),
    ],
    ids=["letters", "number", "waiver"],
)
def test_a_bad_name_and_a_bad_waiver_are_no_configuration(config: dict[str, object], told: str):
    with pytest.raises(InputError, match=re.escape(told)):
        read_config(config)


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({}, "add --config name=NAME"),
        ({"name": "there"}, "published/there: is there already"),
        ({"name": "toy", "seeds_of": "plan.json"}, "these runs took the seeds of plan.json"),
        ({"name": "toy", "readme": str(ROOT / "CITATION.cff")}, "CITATION.cff: needs the line"),
    ],
    ids=["no name", "taken", "known seeds", "no place"],
)
def test_refusals_say_why(config: dict[str, str], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    write_study(tmp_path / "studies")
    (tmp_path / "results/published/there").mkdir(parents=True)
    folders = {"study_folder": str(tmp_path / "studies"), "results": str(tmp_path / "elsewhere")}
    (tmp_path / "plan.json").write_text('{"scale": "quick", "studies": []}')
    plan = make_plan(read_config({"waive": "dirty", **folders, **config}))
    with pytest.raises(SystemExit, match=re.escape(told)):
        plan.snakemake.to_publish(SimpleNamespace())


@pytest.mark.slow
def test_it_refuses_before_computing(publish: Callable[..., subprocess.CompletedProcess[str]], project: Path):
    before = (project / "README.md").read_text()
    done = publish("name=toy")
    assert done.returncode != 0
    assert "the code that runs jobs and computes verdicts is not what a commit has" in done.stdout
    assert "Traceback" not in done.stdout
    assert not list((project / "results/runs").rglob("jobs.parquet"))
    assert (project / "README.md").read_text() == before


@pytest.mark.slow
def test_a_report_becomes_a_set_and_a_page_that_is_named_shows_its_leaderboard(
    publish: Callable[..., subprocess.CompletedProcess[str]], project: Path
):
    readme = project / "README.md"
    before = readme.read_text()
    done = publish(
        "name=toy.quick", "waive=dirty", "readme=README.md", "results=elsewhere", "site=elsewhere/site"
    )
    assert done.returncode == 0, done.stdout
    assert (project / "elsewhere/site/index.html").is_file()
    after = readme.read_text()
    assert before.partition(BEGIN)[0] == after.partition(BEGIN)[0]
    assert before.partition(END)[2] == after.partition(END)[2]
    assert "[toy.quick](results/published/toy.quick/README.md)" in after
    assert "do not know the commit" in after
    for folder, status in (("results/published/toy.quick", 0), ("elsewhere/tables", 1)):
        assert main(["sets", "check", str(project / folder)]) == status
