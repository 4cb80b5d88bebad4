"""Our steps beside the peers', in the printed table and in pytest-benchmark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.kernels.cases import timed
from benchmarks.kernels.interleaving import Ratios
from benchmarks.kernels.ratios import Compared, fastest, geometric_mean, main
from reports.statistics.medians import median_interval

ROOT = Path(__file__).resolve().parents[2]
OURS = timed(r"sgd\.many_tiny torch")["step.sgd.many_tiny torch float32"]


def test_the_fastest_peer_is_the_one_that_we_compare_worst_with():
    even = median_interval([1.0])
    compared = [
        Compared(OURS, peer, Ratios(median_interval([ratio]), even, (1.0, 1 / ratio)))
        for peer, ratio in (("loop", 0.5), ("fused", 2.0), ("foreach", 1.0))
    ]
    assert [each.peer for each in fastest(compared)] == ["fused"]
    assert geometric_mean([0.5, 2.0, 8.0]) == pytest.approx(2.0)


def test_every_peer_gets_a_line_and_every_backend_a_mean(capsys: pytest.CaptureFixture[str]):
    assert main(["--case", r"sgd\.many_tiny", "--repetitions", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in lines[1:4]] == [
        *("step.sgd.many_tiny jax float32", *["step.sgd.many_tiny torch float32"] * 2),
    ]
    assert [line.split(":")[0] for line in lines[4:]] == ["jax", "torch"]


def test_a_pattern_that_fits_nothing_is_an_error(capsys: pytest.CaptureFixture[str]):
    assert main(["--case", "nothing"]) == 2
    assert "--case 'nothing'" in capsys.readouterr().err


@pytest.mark.slow
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
        assert each["extra_info"]["flops"] == 2 * 5800
        assert each["extra_info"]["bytes"] == 12 * 5800
        assert each["extra_info"]["problem"] == "step.sgd.many_tiny"
        assert each["extra_info"]["size"] == {"leaves": 200, "parameters": 5800}
