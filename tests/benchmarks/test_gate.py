"""The gate: verdicts, error rates on simulated machines, a small repository from end to end, refusals."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from curvebench.benchmarks import gate
from curvebench.benchmarks.gate import (
    BAD_INPUT,
    FEWEST_ROUNDS,
    GOOD,
    ROUNDS,
    SAMPLES,
    UNDECIDED,
    WORSE,
    decide,
    main,
)
from curvebench.benchmarks.kernels.worktrees import git

ROOT = Path(__file__).resolve().parents[2]
CASES = '''"""Cases that sleep."""

import time
from contextlib import nullcontext
from types import SimpleNamespace

SECONDS = {seconds}


def prepare(backend, dtype):
    return SimpleNamespace(run=lambda: time.sleep(SECONDS), context=nullcontext)


def timed(pattern):
    case = SimpleNamespace(prepare=prepare, sizes={{"size": {size}}})
    return {{"sleep": SimpleNamespace(case=case, backend="jax", dtype="float32")}} if pattern else {{}}
'''
QUICK = ["--effect", "0.3", "--rounds", str(FEWEST_ROUNDS), "--case", "sleep"]


# --- verdicts ------------------------------------------------------------------------------------


def log_ratios(generator: np.random.Generator, noise: float, slowdown: float = 0.0) -> np.ndarray:
    """Rounds of two processes under load: drifts, noise of processes, disturbed samples."""
    shape = (ROUNDS, SAMPLES, 2)
    drift = np.cumsum(generator.normal(0, 0.02, (ROUNDS, SAMPLES, 1)), axis=1)
    process = generator.normal((0, np.log1p(slowdown)), noise / np.sqrt(2), (ROUNDS, 1, 2))
    disturbed = np.where(generator.random(shape) < 0.05, 0.5, 0.0)
    logs = drift + process + disturbed + generator.normal(0, 0.03, shape)
    return np.median(logs[..., 1] - logs[..., 0], axis=1)


def shares(noise: float, slowdown: float, comparisons: int) -> dict[str, float]:
    generator = np.random.default_rng(0)
    outcomes = [decide(log_ratios(generator, noise, slowdown), 0.05)[0] for _ in range(comparisons)]
    return {name: outcomes.count(name) / comparisons for name in ("slower", "faster", "equal", "undecided")}


@pytest.mark.parametrize(
    ("shift", "spread", "outcome"),
    [
        (0.0, 0.01, "equal"),
        (0.03, 0.01, "equal"),  # certain, and smaller than the effect
        (0.10, 0.01, "slower"),
        (-0.10, 0.01, "faster"),
        (0.10, 0.30, "undecided"),
        (0.0, 0.30, "undecided"),
    ],
)
def test_a_verdict_says_where_the_interval_lies(shift: float, spread: float, outcome: str):
    found, words = decide(shift + np.linspace(-spread, spread, ROUNDS), 0.05)
    assert found == outcome
    assert words.startswith(f"{100 * np.expm1(shift):+.1f} % [")


@pytest.mark.parametrize("noise", [0.01, 0.1])
def test_false_alarms_stay_below_one_in_a_hundred(noise: float):
    found = shares(noise, slowdown=0.0, comparisons=2000)
    assert found["slower"] + found["faster"] <= 0.01


def test_a_slowdown_of_a_tenth_is_found_nine_times_of_ten():
    assert shares(0.04, slowdown=0.10, comparisons=500)["slower"] >= 0.9


def test_unconfirmed_changes_are_open(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    near = np.linspace(-0.001, 0.001, ROUNDS)
    answers = iter([{"a.b": near + 1, "ab": near + 1, "c": near}, {"a.b": near, "ab": near + 1}])
    patterns = []

    def measured(checkouts, pattern, rounds):
        patterns.append(pattern)
        return next(answers)

    monkeypatch.setattr(gate, "measure", measured)
    assert gate.compare({}, "", ROUNDS, 0.05) == WORSE
    assert patterns == ["", r"^(a\.b|ab)$"]
    assert [line.split(":")[:2] for line in capsys.readouterr().out.splitlines()] == [
        ["a.b", " undecided"],
        ["ab", " slower"],
        ["c", " equal"],
    ]


@pytest.mark.parametrize(
    ("log_ratios", "status"),
    [(np.full(ROUNDS, 0.0), GOOD), (np.full(ROUNDS, -1.0), GOOD), (np.linspace(-1, 1, ROUNDS), UNDECIDED)],
)
def test_no_slowdown_is_good_or_open(log_ratios: np.ndarray, status: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(gate, "measure", lambda *given: {"a": log_ratios})
    assert gate.compare({}, "", ROUNDS, 0.05) == status


# --- commits -------------------------------------------------------------------------------------


def commit(repository: Path, message: str, **values: float) -> None:
    (repository / "benchmarks" / "kernels" / "cases.py").write_text(CASES.format(**values))
    record(repository, message)


def record(repository: Path, message: str) -> None:
    """Commit all that is there."""
    git(repository, "add", "--all")
    git(repository, "commit", "--quiet", "--message", message)


def start_repository(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a folder a repository that can be committed to, and go there."""
    for key, value in (("GIT_AUTHOR", "author"), ("GIT_COMMITTER", "committer")):
        monkeypatch.setenv(f"{key}_NAME", value)
        monkeypatch.setenv(f"{key}_EMAIL", f"{value}@example.org")
    git(folder, "init", "--quiet", "--initial-branch=main")
    monkeypatch.chdir(folder)


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three commits: of 2 ms, of 4 ms, and of other work."""
    folder = tmp_path / "repository"
    for package in ("benchmarks/kernels", "curvebench/timing"):
        (folder / package).mkdir(parents=True)
        for place in (folder / package, (folder / package).parent):
            (place / "__init__.py").write_text('"""A package."""\n')
    (folder / "curvebench" / "benchmarks").symlink_to("../benchmarks")
    shutil.copy(ROOT / "curvebench" / "timing" / "clocks.py", folder / "curvebench" / "timing")
    (folder / ".gitignore").write_text("__pycache__/\n")
    start_repository(folder, monkeypatch)
    commit(folder, "fast", seconds=0.002, size=1)
    commit(folder, "slow", seconds=0.004, size=1)
    commit(folder, "other", seconds=0.002, size=2)
    monkeypatch.setattr(gate, "SAMPLES", 3)
    return folder


@pytest.mark.slow
def test_a_slower_commit_is_found_and_confirmed(repository: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["HEAD~2", "HEAD~1", *QUICK]) == WORSE
    printed = capsys.readouterr().out
    assert "sleep: slower: +" in printed
    assert "with fresh processes slower: +" in printed
    assert git(repository, "worktree", "list").count("\n") == 0, "both checkouts are gone"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["no-such-commit", "HEAD"], "git knows no commit 'no-such-commit'"),
        (["HEAD", "HEAD"], "--case '': no label"),
        (["HEAD~1", "HEAD", *QUICK], "sizes are {'size': 1} at the base and {'size': 2} at the head"),
        (["HEAD", "HEAD", "--rounds", "3"], "--rounds 3: at least 9 is needed"),
        (["HEAD", "HEAD", "--effect", "0"], "--effect 0.0"),
    ],
)
def test_what_cannot_be_compared_is_refused_with_a_reason(
    repository: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
):
    assert main(arguments) == BAD_INPUT
    assert message in capsys.readouterr().err


def test_a_commit_without_cases_is_named(repository: Path, capfd: pytest.CaptureFixture[str]):
    (repository / "benchmarks" / "kernels" / "cases.py").unlink()
    record(repository, "none")
    assert main(["HEAD~1", "HEAD"]) == BAD_INPUT
    said = capfd.readouterr().err
    assert "ImportError: cannot import name 'cases'" in said
    assert "error: the head commit cannot be timed" in said
