"""Our steps beside the peers', in the printed table, in the file and in pytest-benchmark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from curvebench.benchmarks.kernels.networks import STEPS_A_CALL, curvlinops_steps, kfac_steps
from curvebench.benchmarks.kernels.ratios import contests, main
from curvebench.reports.pages.kernels import read_ratios

ROOT = Path(__file__).resolve().parents[2]


def test_every_peer_gets_a_line_and_a_row_and_every_backend_a_mean(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    table = tmp_path / "ratios.csv"
    assert main(["--case", r"sgd\.many_tiny", "--repetitions", "2", "--out", str(table)]) == 0
    lines = capsys.readouterr().out.splitlines()
    written = read_ratios(table)
    assert written.schema == read_ratios().schema  # what is kept with the reports is written by this command
    assert written["backend"].to_list() == ["jax", "torch", "torch"]
    for row, line in zip(written.iter_rows(named=True), lines, strict=False):
        assert line.startswith(f"{row['step']} {row['backend']} float32, ours / {row['peer']}: ")
        assert f" ms = {row['ratio']} [{row['low']}, {row['high']}]" in line
    means = [line.split(": geometric mean of ours / fastest ") for line in lines[len(written) :]]
    assert [backend for backend, _ in means] == ["jax", "torch"]
    jax = written["ratio"][0]
    assert means[0][1] == f"{jax:.3f}, worst {jax}", "of one step"


def test_curvlinops_takes_the_same_steps_of_k_fac():
    ours, theirs = kfac_steps("float64", STEPS_A_CALL), curvlinops_steps("float64")
    before = ours.result()
    np.testing.assert_array_equal(before, theirs.result())
    with ours.context():
        ours.run()
        theirs.run()
    assert np.abs(ours.result() - before).max() > 1e-3
    np.testing.assert_allclose(ours.result(), theirs.result(), atol=1e-12)


def test_k_fac_stands_beside_curvlinops():
    label = "step.kfac.digits_mlp torch float32"
    assert [(each.label, each.peer) for each in contests("kfac")] == [(label, "curvlinops")]


def test_a_pattern_that_fits_nothing_is_an_error(capsys: pytest.CaptureFixture[str]):
    assert main(["--case", "nothing"]) == 2
    assert "--case 'nothing'" in capsys.readouterr().err


def test_a_number_of_repetitions_that_is_none_is_an_error(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit, match="2"):
        main(["--repetitions", "0"])
    assert "--repetitions 0: at least 1 is needed" in capsys.readouterr().err


@pytest.mark.long
def test_the_benchmarks_say_what_was_timed(tmp_path: Path):
    stored = tmp_path / "benchmarks.json"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "benchmarks/kernels/bench_peers.py", "--benchmark-only"),
            *("-k", "sgd.many_tiny and jax", f"--benchmark-json={stored}", f"--benchmark-storage={tmp_path}"),
        ],
        cwd=ROOT,
        # the plugin refuses where a variable of xdist says that tests run in parallel
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = {each["name"]: each for each in json.loads(stored.read_text())["benchmarks"]}
    assert set(found) == {"ours", "optax"}
    for each in found.values():
        assert each["group"] == "step.sgd.many_tiny jax float32"
        assert each["extra_info"]["problem"] == "step.sgd.many_tiny"
        assert each["extra_info"]["size"] == {"leaves": 200, "parameters": 5800}
