"""Two methods compared by the clock: without results, with an A/A ratio, and bad input before compute."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from curvebench.__main__ import main
from harness.timing import comparing
from harness.timing.comparing import AGAIN
from harness.timing.step_times import Measured, Timing
from tests.harness.tiny import write_study

COMPARE = ["compare", "tiny", "adam", "adam @ egop"]


def answer(capsys: pytest.CaptureFixture[str], folder: Path, *arguments: str) -> Any:
    assert main([*COMPARE, "--studies", str(folder), "--json", *arguments]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_two_methods_are_compared_without_results(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_study(tmp_path / "studies")
    monkeypatch.chdir(tmp_path)
    [found] = answer(capsys, tmp_path / "studies", "--backend", backend, "--repetitions", "6")
    assert (found["workload"], found["backend"], found["device"]) == ("least_squares", backend, "cpu")
    assert found["setting"] == {"learning_rate": 0.01}
    for name in ("first", "second", "gradient", "ratio", "same"):
        assert 0 < found[name]["low"] <= found[name]["median"] <= found[name]["high"]
        assert found[name]["count"] == 6
        assert found[name]["level"] == pytest.approx(0.95)
    assert [path.name for path in tmp_path.iterdir()] == ["studies"], "nothing is left behind"


def test_ratios_are_taken_repetition_by_repetition(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that becomes slower and slower: the steps differ by a factor of 10, their ratios do not."""
    paces = {"null": 1.0, "sgd": 2.0, "adam": 3.0, f"sgd{AGAIN}": 2.0}

    def measured(bundles: Any, *arguments: Any) -> Measured:
        assert list(bundles) == ["sgd", "adam", f"sgd{AGAIN}"]
        timings = [
            Timing(name, "null_step" if name == "null" else "step", repetition, 10, 10 * pace * slower)
            for repetition, slower in enumerate((1, 2, 4, 6, 8, 10))
            for name, pace in paces.items()
        ]
        return Measured([*timings, Timing("sgd", "evaluation", 0, 0, 9.0)], [])

    monkeypatch.setattr(comparing, "measure_methods", measured)
    write_study(tmp_path)
    arguments = ["compare", "tiny", "sgd", "adam", "--backend", "jax", "--studies", str(tmp_path)]
    assert main([*arguments, "--rate", "0.5", "--json"]) == 0
    [found] = json.loads(capsys.readouterr().out)
    assert found["setting"] == {"learning_rate": 0.5}
    assert [found["ratio"][key] for key in ("low", "median", "high")] == [1.5, 1.5, 1.5]
    assert [found["same"][key] for key in ("low", "median", "high")] == [1.0, 1.0, 1.0]
    inward = 5 / 14  # from the range, covering with 31/32, to the inner values with 25/32
    ends = (2.0 + inward * 2.0, 20.0 - inward * 4.0)
    assert (found["first"]["low"], found["first"]["high"]) == pytest.approx(ends)
    assert main(arguments) == 0
    said = capsys.readouterr().out
    assert "adam / sgd" in said
    assert "1.5 [1.5, 1.5]" in said
    assert "sgd / sgd (A/A)" in said
    assert "95.0 %" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["tniy", "sgd", "adam"], "has no study 'tniy'; did you mean 'tiny'?"),
        (["tiny", "sgd", "adan"], "tiny.yaml has no method 'adan'; did you mean 'adam'?"),
        (["tiny", "sgd", "adam @ soap"], "(valid: sgd, adam, sgd @ egop, adam @ egop)"),
        (["tiny", "sgd", "sgd"], "'sgd' is named twice"),
        (["tiny", "sgd", "adam", "--backend", "tensorflow"], "--backend: "),
        (["tiny", "sgd", "adam", "--scale", "huge"], "--scale: "),
        (["tiny", "sgd", "adam", "--workload", "digits"], "--workload: "),
        (["tiny", "sgd", "adam", "--rate", "-1"], "--rate: "),
        (["tiny", "sgd", "adam", "--rate", "nan"], "--rate: "),
    ],
)
def test_bad_input_is_named_before_anything_is_computed(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    said: str,
) -> None:
    monkeypatch.setattr(comparing, "measure_methods", None)
    monkeypatch.setattr(comparing, "estimate_bases", None)
    write_study(tmp_path)
    assert main(["compare", "--backend", "jax", "--studies", str(tmp_path), *arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert said in error


def test_missing_data_is_named_with_its_remedy(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CURVEBENCH_DATA", raising=False)
    arguments = ["compare", "digits_mlp", "sgd", "adam", "--backend", "jax", "--scale", "paper"]
    assert main(arguments) == 2
    assert "CURVEBENCH_DATA" in capsys.readouterr().err
