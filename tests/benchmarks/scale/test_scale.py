"""Plans and tables of any size: valid, as large as asked for, and measured, at tiny sizes."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import polars as pl
import pytest

from benchmarks.scale.__main__ import main
from benchmarks.scale.measuring import Cost, as_text, cost_of, measure_report
from harness.plan import make_plan, read_config
from reports.plan import read_plan
from results import flaws
from results.publishing import STUDY_TABLES
from results.reading import read
from results.set_plan import PlannedStudy

ROWS = 4_000


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small report."""
    out = tmp_path_factory.mktemp("scale") / "report"
    assert main(["rows", "--rows", str(ROWS), "--out", str(out)]) == 0
    return out


def test_tables_are_as_large_as_asked_for_and_nothing_is_wrong_with_them(made: Path):
    (study,) = read_plan(made / "plan.json").studies
    frames = {table: read(study.tables, table) for table in STUDY_TABLES}
    assert len(frames["curves"]) >= ROWS
    (raw,) = json.loads((made / "plan.json").read_text())["studies"]
    assert list(flaws.of_folder(study.name, frames)) == []
    final = frames["runs"].filter(pl.col("stage") == "final").select("run")
    judged = {**frames, "curves": frames["curves"].join(final, on="run")}
    assert list(flaws.of_study(PlannedStudy.model_validate(raw), judged, thinned=False)) == []


@pytest.mark.slow
def test_figures_and_site_are_measured_in_processes_of_their_own(made: Path):
    figures, site = measure_report(made)
    assert (made / "site/index.html").is_file()
    assert (figures.what, site.what) == ("figures", "site")
    assert min(figures.processor, site.processor) > 0
    assert min(figures.peak, site.peak) > 50 * 2**20


def test_a_plan_has_as_many_jobs_as_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    out = tmp_path / "plan"
    assert main(["plan", "--jobs", "100", "--out", str(out)]) == 0
    said = capsys.readouterr().out
    plan = make_plan(read_config({"study_folder": str(out / "studies"), "results": str(out / "results")}))
    jobs = len(plan.jobs) + 2 * len(plan.studies)
    assert 100 <= jobs < 200
    runs = sum(job.lanes for job in plan.jobs if job.spec.stage in ("sweep", "refine", "final"))
    assert f"{len(plan.studies)} studies, {jobs} jobs, {runs} runs; floor: 101 jobs in plain rules" in said
    assert (out / "floor/Snakefile").read_text().count("rule ") == 5


def test_a_process_is_measured_and_its_failure_told(tmp_path: Path):
    busy = "import time; block = bytearray(100 * 2**20)\nwhile time.process_time() < 0.2: pass"
    cost = cost_of("busy", [sys.executable, "-c", busy], tmp_path)
    assert cost.processor >= 0.2
    assert cost.peak > 100 * 2**20
    with pytest.raises(RuntimeError, match=r"(?s)broken failed:.*no such luck"):
        cost_of("broken", [sys.executable, "-c", "raise SystemExit('no such luck')"], tmp_path)


def test_costs_are_a_table():
    text = as_text([Cost("figures", 1.25, 1.0, 2**30)])
    assert text.splitlines()[-1] == "| figures | 1.2 s | 1.0 s | 1.00 GiB |"


@pytest.mark.parametrize("count", ["0", "-1", "many", "1.5"])
def test_a_number_that_is_none_is_refused(tmp_path: Path, count: str):
    with pytest.raises(SystemExit):
        main(["rows", f"--rows={count}", "--out", str(tmp_path / "new")])


def test_a_folder_that_is_there_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["plan", "--jobs", "10", "--out", str(tmp_path)]) == 1
    assert str(tmp_path) in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
