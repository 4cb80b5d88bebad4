"""The provenance of a job, on machines with and without git and GPU."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from importlib import metadata
from pathlib import Path

import polars as pl
import pytest

import curvebench.results.provenance
from curvebench.results.provenance import (
    check_committed,
    commit,
    cpu_model,
    distributions,
    environment_hash,
    gpu_and_driver,
    machine,
    provenance,
)
from curvebench.results.schema import JOBS
from curvebench.spec.errors import InputError


def git(folder: Path, *arguments: str) -> str:
    call = ["git", "-C", str(folder), "-c", "user.name=toy", "-c", "user.email=toy@toy", *arguments]
    return subprocess.run(call, check=True, capture_output=True, text=True).stdout.strip()


def program(folder: Path, name: str, script: str) -> None:
    """Put an executable into a folder."""
    file = folder / name
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)


def test_the_keys_are_columns_of_jobs():
    row = provenance(3)
    assert set(row) <= set(JOBS)
    assert set(row) >= {"commit", "dirty", "packages", "cpu", "gpu", "driver", "threads", "environment_hash"}
    frame = pl.DataFrame([row], schema={name: JOBS[name] for name in row})
    assert frame.row(0, named=True) == row
    assert row["threads"] == 3
    assert row["cores"] >= 1
    assert row["python"].startswith(f"{sys.version_info.major}.{sys.version_info.minor}.")
    age = datetime.now(UTC) - datetime.fromisoformat(row["started"])
    assert timedelta(0) <= age < timedelta(minutes=1)
    versions = {item["name"]: item["version"] for item in row["packages"]}
    for name in ("torch", "jax", "polars", "scikit-learn"):
        assert versions[name] == metadata.version(name)


def test_machine_names_hardware_and_not_threads():
    assert provenance(1)["machine"] == provenance(2)["machine"]
    assert machine("A", 2, None) == hashlib.sha256(b"A\n2\nNone").hexdigest()[:12]
    assert (
        len({machine("A", 2, None), machine("B", 2, None), machine("A", 4, None), machine("A", 2, "G")}) == 4
    )


def test_commit_inside_git(tmp_path, monkeypatch):
    monkeypatch.setattr(curvebench.results.provenance, "PROJECT", tmp_path)
    git(tmp_path, "init", "--quiet")
    assert commit(tmp_path) == (None, False)
    (tmp_path / "file").write_text("1")
    assert commit(tmp_path) == (None, True)
    git(tmp_path, "add", "file")
    git(tmp_path, "commit", "--quiet", "--message", "first")
    first = git(tmp_path, "rev-parse", "HEAD")
    assert commit(tmp_path) == (first, False)
    check_committed([tmp_path / "file"])
    (tmp_path / ".git/info/exclude").write_text("ignored")
    (tmp_path / "ignored").touch()
    with pytest.raises(InputError, match=r"ignored: no commit of .* has this file"):
        check_committed([tmp_path / "ignored"])
    (tmp_path / "mine.py").touch()
    assert commit(tmp_path) == (first, False)  # the file is in the folder, but in no commit
    with pytest.raises(InputError, match=r"mine.py: no commit of .* has this file"):
        check_committed([tmp_path / "mine.py"])
    git(tmp_path, "add", "mine.py")
    assert commit(tmp_path) == (first, True)
    git(tmp_path, "commit", "--quiet", "--message", "second")
    check_committed([tmp_path / "mine.py"])
    (tmp_path / "mine.py").write_text("changed = True")
    with pytest.raises(InputError, match="commit it first"):
        check_committed([tmp_path / "mine.py"])
    git(tmp_path, "reset", "--quiet", "--hard", first)
    (tmp_path / "file").write_text("2")
    with pytest.raises(InputError, match=r"commit it first; or not$"):
        check_committed([tmp_path / "file"], "; or not")
    assert commit(tmp_path) == (first, True)


def test_a_hook_s_variables_do_not_lead_elsewhere(tmp_path, monkeypatch):
    git(tmp_path, "init", "--quiet")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / ".git"))
    assert commit(tmp_path / "elsewhere") == (None, None)
    assert commit(tmp_path) == (None, False)


def test_no_commit_outside_git_nor_of_a_repository_around_it(tmp_path):
    assert commit(tmp_path) == (None, None)
    git(tmp_path, "init", "--quiet")
    (tmp_path / "installed").mkdir()
    assert commit(tmp_path / "installed") == (None, None)


@pytest.mark.parametrize("script", [None, "exit 9", "echo 'NVIDIA-SMI has failed'"])
def test_without_git_and_gpu_nothing_crashes(tmp_path, monkeypatch, script):
    if script:
        program(tmp_path, "nvidia-smi", script)
        program(tmp_path, "git", "exit 1")
    monkeypatch.setenv("PATH", str(tmp_path))
    row = provenance(1)
    assert [row[name] for name in ("gpu", "driver", "commit", "dirty")] == [None] * 4


def test_gpus_and_driver(tmp_path, monkeypatch):
    program(tmp_path, "nvidia-smi", "echo 'NVIDIA H200, 570.1'; echo 'NVIDIA L4, 570.1'")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gpu_and_driver() == ("NVIDIA H200; NVIDIA L4", "570.1")
    assert provenance(1)["machine"] == machine(cpu_model(), provenance(1)["cores"], "NVIDIA H200; NVIDIA L4")


def test_cpu_model(tmp_path):
    file = tmp_path / "cpuinfo"
    file.write_text("processor\t: 0\nmodel name\t: Toy CPU @ 1 GHz\n\nmodel name\t: Other\n")
    assert cpu_model(file) == "Toy CPU @ 1 GHz"
    file.write_text("processor\t: 0\nFeatures\t: fp\n")
    assert cpu_model(file)
    assert cpu_model(tmp_path / "missing") == cpu_model(file)


def test_environment_hash_covers_names_and_versions(monkeypatch):
    versions = {"b": "2", "a": "1"}
    assert environment_hash(versions) == hashlib.sha256(b"a==1\nb==2").hexdigest()
    assert environment_hash(dict(reversed(versions.items()))) == environment_hash(versions)
    assert environment_hash({"a": "1", "b": "3"}) != environment_hash(versions)
    assert distributions()["scikit-learn"] == metadata.version("scikit-learn")
    monkeypatch.setattr(curvebench.results.provenance, "distributions", lambda: versions)
    assert provenance(1)["environment_hash"] == environment_hash(versions)
