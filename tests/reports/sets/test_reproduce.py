"""Running a claim of a published set again: which set, what runs, and what is said of the two."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from curvebench.__main__ import main
from curvebench.reports.sets.reproduce import SNAKEMAKE_PROGRAM, choose_set
from curvebench.spec.errors import InputError
from tests.reports.example_sets import scaled, write_report, write_set
from tests.reports.synthetic import Shape

CLAIM = "egop.digits_mlp"
SHAPE = Shape()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with one published set."""
    folder = tmp_path_factory.mktemp("published")
    write_set(folder, "old.quick", [SHAPE])
    return folder


@pytest.fixture
def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Replace the run of Snakemake, and return the list of its commands. Each writes a report with equal
    tables, in which the values of adam are multiplied by `FACTOR`.
    """
    called: list[list[str]] = []
    monkeypatch.chdir(tmp_path)

    def run(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        called.append(command)
        first, _, rest = options["env"]["PATH"].partition(os.pathsep)
        assert Path(first) == Path(sys.executable).parent  # Snakemake starts its jobs by the name python
        assert rest == os.environ["PATH"]
        (site,) = (part.removeprefix("site=") for part in command if part.startswith("site="))
        Path(site).mkdir(parents=True)
        factor = float(os.environ.get("FACTOR", "1"))
        made = write_report(tmp_path / "again", [SHAPE], runs=scaled("adam", factor))
        (Path(site) / "plan.json").write_text(made.read_text())
        return subprocess.CompletedProcess(command, int(factor == 0))

    monkeypatch.setattr(subprocess, "run", run)
    return called


@pytest.mark.parametrize(
    ("factor", "status", "said"), [("1", 0, "agrees with old.quick"), ("1.5", 1, "differs from old.quick")]
)
def test_the_command_is_printed_and_run(
    folder: Path,
    ran: list[list[str]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    factor: str,
    status: int,
    said: str,
):
    monkeypatch.setenv("FACTOR", factor)
    asked = ["sets", "reproduce", CLAIM, "--published", str(folder / "old.quick"), "--cores", "1"]
    assert main(asked) == status
    results = f".cache/reproduced/{CLAIM}"
    config = (
        f"studies={CLAIM} scale=quick backends=jax,torch seeds_of={folder / 'old.quick'} parity=false "
        f"results={results} site={results}/site"
    )
    expected = f"snakemake --cores 1 reports --config {config}"
    first, printed, answer, *_ = capsys.readouterr().out.splitlines()
    assert first == f"{CLAIM}: set {folder / 'old.quick'}, scale quick"
    assert printed == " ".join(ran[0][3:]) == expected
    assert ran[0][1:3] == ["-c", SNAKEMAKE_PROGRAM]
    assert answer == f"{CLAIM}: {said} (scale quick)"


def test_snakemake_that_fails_is_told(
    folder: Path, ran: list[list[str]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("FACTOR", "0")
    assert main(["sets", "reproduce", CLAIM, "--published", str(folder / "old.quick")]) == 2
    assert "snakemake ended with an error" in capsys.readouterr().err
    assert len(ran) == 1


def test_a_claim_that_a_set_does_not_have_is_told_before_anything_runs(
    folder: Path, ran: list[list[str]], capsys: pytest.CaptureFixture[str]
):
    assert main(["sets", "reproduce", "egop", "--published", str(folder / "old.quick")]) == 2
    assert "does not decide the claim 'egop'" in capsys.readouterr().err
    assert ran == []


def test_the_newest_set_that_has_the_claim_is_taken(folder: Path, tmp_path: Path):
    for number, name in enumerate(("one", "two", "three", ".half")):
        (tmp_path / name).mkdir()
        for file in ("plan.json", "provenance.json"):
            (tmp_path / name / file).write_text((folder / "old.quick" / file).read_text())
        about = json.loads((tmp_path / name / "provenance.json").read_text())
        about["published"] = f"2030-01-0{1 + number % 2}T00:00:00+00:00"
        (tmp_path / name / "provenance.json").write_text(json.dumps(about))
    assert choose_set(CLAIM, tmp_path) == tmp_path / "two"
    assert choose_set("notes.regret", tmp_path) == tmp_path / "two"
    with pytest.raises(InputError, match=f"no published claim 'egop.digits'; did you mean '{CLAIM}'"):
        choose_set("egop.digits", tmp_path)
