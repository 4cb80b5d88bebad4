"""Our steps beside the peers', in the printed table and in pytest-benchmark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.kernels.interleaving import Ratios
from benchmarks.kernels.ratios import Compared, Contest, contests, fastest, main
from reports.pages.kernel_ratios import read_ratios
from results.intervals import median_interval

ROOT = Path(__file__).resolve().parents[2]
(OURS,) = contests(r"sgd\.many_tiny torch")


def compared(contest: Contest, peer: str, ratio: float) -> Compared:
    return Compared(contest, peer, Ratios(median_interval([ratio]), median_interval([1.0]), (1.0, 1 / ratio)))


def test_the_fastest_peer_is_the_one_that_we_compare_worst_with():
    found = [compared(OURS, *each) for each in (("loop", 0.5), ("fused", 2.0), ("foreach", 1.0))]
    assert [each.peer for each in fastest(found)] == ["fused"]


def test_every_peer_gets_a_line_and_a_row_and_every_backend_a_mean(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    table = tmp_path / "ratios.csv"
    assert main(["--case", r"sgd\.many_tiny", "--repetitions", "2", "--out", str(table)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in lines[1:4]] == [
        *("step.sgd.many_tiny jax float32", *["step.sgd.many_tiny torch float32"] * 2),
    ]
    assert [line.split(":")[0] for line in lines[4:]] == ["jax", "torch"]
    written = read_ratios(table)
    assert written.schema == read_ratios().schema  # what is kept with the reports is written by this command
    assert written["backend"].to_list() == ["jax", "torch", "torch"]
    assert [f"{ratio:.3f}" in line for ratio, line in zip(written["ratio"], lines[1:4], strict=True)] == [
        True
    ] * 3


def test_amortized_work_is_compared_over_its_cadence():
    assert [(each.label, each.calls) for each in contests(r"soap\.one_large")] == [
        ("step.soap.one_large jax float32", 10),
        ("step.soap.one_large torch float32", 10),
    ]


def test_a_pattern_that_fits_nothing_is_an_error(capsys: pytest.CaptureFixture[str]):
    assert main(["--case", "nothing"]) == 2
    assert "--case 'nothing'" in capsys.readouterr().err


@pytest.mark.parametrize("number", ["0", "few"])
def test_a_number_of_repetitions_that_is_none_is_an_error(number: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit, match="2"):
        main(["--repetitions", number])
    assert f"{number!r} is not a whole number from 1 on" in capsys.readouterr().err


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
        assert each["extra_info"]["bytes"] == 12 * 5800
        assert each["extra_info"]["problem"] == "step.sgd.many_tiny"
        assert each["extra_info"]["size"] == {"leaves": 200, "parameters": 5800}
