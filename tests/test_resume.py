"""Equal specs give bit-identical tables, also where a main job was killed at any moment and went on."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from curvebench.spec.job import JobSpec, job_folder, spec_file
from tests.conftest import ROOT
from tests.curvebench.stages.test_jobs import SWEEP
from tests.curvebench.tiny import leave_tiny
from tests.results.comparing import assert_same_results

WATCHED = ("results", "reports", ".snakemake")  # folders in which a killed process leaves half of its work
KILLED = -signal.SIGKILL
PATIENCE = 600.0  # seconds for one main job; it takes about 60

# Python imports this when it starts. It lists the changes that all processes make to files in WATCHED, and
# kills them all before they make a given one of those that match a pattern, or some seconds after.
WATCHER = """
import os
import re
import signal
import sys
import threading

CHANGES = {"open": 0, "os.mkdir": 0, "os.remove": 0, "os.rename": 1, "os.rmdir": 0}
FOLDERS = tuple(os.path.abspath(name) + os.sep for name in os.environ["WATCHED"].split(os.pathsep))
PATTERN = re.compile(os.environ["KILL_BEFORE"])


def watch(event, arguments):
    if event not in CHANGES or not isinstance(arguments[CHANGES[event]], (str, bytes, os.PathLike)):
        return
    if event == "open" and not arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
        return
    path = os.path.abspath(os.fsdecode(arguments[CHANGES[event]]))
    if path.startswith(FOLDERS):
        with open(os.environ["CHANGES"], "a+") as changes:
            changes.write(f"{event} {path}\\n")
            changes.flush()
            changes.seek(0)
            number = sum(bool(PATTERN.search(change)) for change in changes)
        if number >= int(os.environ["KILL_NUMBER"]) and PATTERN.search(f"{event} {path}"):
            if seconds := float(os.environ["KILL_SECONDS"]):
                threading.Timer(seconds, os.killpg, (0, signal.SIGKILL)).start()
            else:
                os.killpg(0, signal.SIGKILL)


sys.addaudithook(watch)
"""
NEVER = "(?!)"  # matches nothing


class Watched:
    """Commands in a folder whose changes of files are listed, and which are killed at one of them if need be.

    Args:
        folder: where they run.
        variables: their environment.
    """

    def __init__(self, folder: Path, variables: Mapping[str, str]) -> None:
        beside = folder.parent / f"{folder.name}.watcher"
        beside.mkdir()
        (beside / "sitecustomize.py").write_text(WATCHER)
        self.folder = folder
        self.results = folder / "results"
        self.changes = beside / "changes"
        self.said = beside / "said"
        self.variables = {
            **variables,
            "PYTHONPATH": f"{beside}:{variables['PYTHONPATH']}",
            "WATCHED": os.pathsep.join(str(folder / name) for name in WATCHED),
            "CHANGES": str(self.changes),
        }

    def run(self, *command: str, kill_before: str = NEVER, number: int = 1, seconds: float = 0) -> int:
        """Run a command to its end, or kill all its processes on the way; returns its exit status.

        Args:
            kill_before: a pattern of changes, such as "rename .*/runs.parquet".
            number: which of the changes that match is not made any more, from 1.
            seconds: let it be made and kill so much later; 0 kills before.
        """
        self.changes.write_text("")
        kill = {"KILL_BEFORE": kill_before, "KILL_NUMBER": str(number), "KILL_SECONDS": str(seconds)}
        with self.said.open("w") as said:
            process = subprocess.Popen(
                command,
                cwd=self.folder,
                env=self.variables | kill,
                stdout=said,
                stderr=said,
                start_new_session=True,
            )
        with suppress(subprocess.TimeoutExpired):
            process.wait(PATIENCE)
        _kill_group(process)
        return process.returncode

    def complete(self, *command: str) -> None:
        """Run a command to its end, which must be a success."""
        assert self.run(*command) == 0, self.said.read_text()


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """End the process and all that it started, and wait until none of them is left to write."""
    members = [one for one in psutil.process_iter() if _group(one.pid) == process.pid]
    for one in members:
        one.kill()
    psutil.wait_procs(members, 20)
    process.wait()  # sets the status of the process


def _group(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None


# --- one job -------------------------------------------------------------------------------------

JOB = SWEEP.changed(bases=SWEEP.bases[:1], budget={"steps": 20})


def written(spec: JobSpec, project: Path) -> str:
    """Return the path of a spec's file, written below a project's results."""
    path = spec_file(project / "results", spec)
    path.parent.mkdir(parents=True)
    path.write_text(spec.to_json())
    return str(path.relative_to(project))


@pytest.mark.slow
def test_a_job_killed_while_it_writes_gives_the_same_tables_again(tmp_path: Path, activated: dict[str, str]):
    undisturbed, killed = (tmp_path / name for name in ("undisturbed", "killed"))
    jobs = {}
    for folder in (undisturbed, killed):
        folder.mkdir()
        jobs[folder] = Watched(folder, activated | {"PYTHONPATH": str(ROOT)})
        command = ("python", "-m", "curvebench", "run", written(JOB, folder), "--results", "results")
    jobs[undisturbed].complete(*command)

    for table in ("runs", "jobs"):  # the first and the last that it writes
        assert jobs[killed].run(*command, kill_before=rf"rename .*/{table}\.parquet") == KILLED
        (left,) = job_folder(killed / "results", JOB).glob(f".*.{table}.parquet")
        assert left.stat().st_size
        assert not left.with_name("jobs.parquet").exists()
    jobs[killed].complete(*command)
    assert_same_results(undisturbed / "results", killed / "results")


# --- the main job --------------------------------------------------------------------------------

MAIN_JOB = ("snakemake", "--cores", "2", "reports", "--config", "studies=tiny")
# Changes at which the main job is killed, in the order of its work; among how many of them chance chooses;
# and within how many seconds after.
MOMENTS = (
    (r"rename .*/results/specs/", 12, 0),  # while it plans
    (r"rename .*/results/runs/.*/bases/", 4, 0),
    (r"open .*/\.snakemake/metadata/", 4, 0),  # while it notes what is done
    (r"mkdir .*/results/runs/.*/runs/", 1, 4),  # while jobs compute
    (r"rename .*/results/runs/.*/runs/", 4, 0),
    (r"mkdir .*/results/runs/.*/runs/", 1, 8),
    (r"rename .*/results/runs/.*/runs/", 6, 0),
    (r"remove .*/\.snakemake/incomplete/", 3, 0),
    (r"mkdir .*/results/runs/.*/timing/", 1, 4),
    (r"rename .*/results/runs/.*/timing/", 2, 0),
    (r"rename .*/results/tables/", 4, 0),
    (r"open .*/results/figures/", 4, 0),
    (r"open .*/reports/\.site\.", 10, 0),
)


@pytest.fixture
def projects(project: Path, activated: dict[str, str]) -> list[Watched]:
    """Three copies of the project whose only study is tiny, in folders of different names."""
    leave_tiny(project)
    copies = [project.with_name(name) for name in ("first", "second", "third-one")]
    for copy in copies:
        shutil.copytree(project, copy)
    return [Watched(copy, activated) for copy in copies]


@pytest.mark.long
def test_a_main_job_killed_at_any_moment_goes_on_to_the_same_tables(projects: list[Watched]):
    first, second, killed = projects
    for one in (first, second):
        one.complete(*MAIN_JOB)
    assert_same_results(first.results, second.results)

    chance = random.Random(0)
    for pattern, count, seconds in MOMENTS:
        number, later = chance.randint(1, count), chance.uniform(0, seconds)
        status = killed.run(*MAIN_JOB, kill_before=pattern, number=number, seconds=later)
        assert status == KILLED, f"{pattern}:\n{killed.said.read_text()}"
    killed.complete(*MAIN_JOB)
    assert_same_results(first.results, killed.results)

    before = times(killed.results)
    killed.complete(*MAIN_JOB)
    assert "Nothing to be done" in killed.said.read_text()
    assert times(killed.results) == before


def times(folder: Path) -> dict[Path, int]:
    """Return the time of the last change of each file and folder below a folder, in nanoseconds."""
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
