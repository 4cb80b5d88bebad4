"""Inputs of the Snakefile: the main process writes them, jobs read them, whatever was edited meanwhile."""

from __future__ import annotations

import shlex
from pathlib import Path
from unittest.mock import patch

import pytest

from curvebench.paths import WORKERS
from curvebench.planning.workflow import VARIABLE, snakemake_inputs
from curvebench.spec.errors import InputError
from curvebench.stages.supervision import main
from tests.curvebench.tiny import write_study


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    for variable in (VARIABLE, WORKERS):
        monkeypatch.setenv(variable, "")  # a plan sets it; pytest restores it after the test
    write_study(tmp_path / "studies")
    return {
        "results": str(tmp_path / "results"),
        "site": str(tmp_path / "site"),
        "study_folder": str(tmp_path / "studies"),
    }


def test_a_job_reads_the_plan_that_submitted_it(config):
    submitted = snakemake_inputs(config, is_main_process=True)
    write_study(Path(config["study_folder"]), ("steps: 20", "steps: 40"))
    assert snakemake_inputs(config, is_main_process=False) == submitted
    assert snakemake_inputs(config, is_main_process=True) != submitted


def test_a_job_without_a_written_plan_makes_its_own(config):
    assert snakemake_inputs(config, is_main_process=False).input_files


def test_a_lost_plan_is_named(config, monkeypatch, tmp_path):
    monkeypatch.setenv(VARIABLE, str(tmp_path / "gone.json"))
    with pytest.raises(InputError, match=r"gone\.json.*run snakemake again"):
        snakemake_inputs(config, is_main_process=False)


def test_the_time_between_checkpoints_is_in_the_command_and_in_no_hash(config):
    usual = snakemake_inputs(config, is_main_process=True)
    asked = snakemake_inputs({**config, "checkpoint_minutes": "2.5"}, is_main_process=True)
    assert asked.jobs == usual.jobs
    assert asked.input_files == usual.input_files
    assert "--checkpoint-minutes" not in usual.job_command
    words = shlex.split(asked.job_command.replace("{input.spec:q}", "SPEC"))
    rest = words[words.index("run") :]
    with patch("curvebench.stages.supervision.supervise", return_value=0) as supervised:
        main(rest)
    command = supervised.call_args.args[0]
    assert "--checkpoint-minutes 2.5" in " ".join(command)
