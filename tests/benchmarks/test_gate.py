"""The gate from end to end on a small repository, and what it refuses."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from curvebench.benchmarks import gate, gate_timing
from curvebench.benchmarks.gate import BAD_INPUT, WORSE, main
from curvebench.benchmarks.gate_timing import Sample
from curvebench.benchmarks.kernels.worktrees import git

ROOT = Path(__file__).resolve().parents[2]
CASES = '''"""Cases that sleep."""

import time
from contextlib import nullcontext
from types import SimpleNamespace

SECONDS = {seconds}


def prepare(backend, dtype):
    return SimpleNamespace(run=lambda: time.sleep(SECONDS), context=nullcontext)


def timed(pattern=""):
    case = SimpleNamespace(prepare=prepare, sizes={{"size": {size}}})
    labels = [label for label in ("sleep", "nap") if pattern in label]
    return {{label: SimpleNamespace(case=case, backend="jax", dtype="float32") for label in labels}}
'''
QUICK = ["--effect", "0.3", "--rounds", "5", "--case", "sleep"]


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
    kernels = folder / "benchmarks" / "kernels"
    kernels.mkdir(parents=True)
    for package in (kernels.parent, kernels):
        (package / "__init__.py").write_text('"""A package."""\n')
    shutil.copy(ROOT / "benchmarks" / "kernels" / "clock.py", kernels)
    (folder / ".gitignore").write_text("__pycache__/\n")
    start_repository(folder, monkeypatch)
    commit(folder, "fast", seconds=0.002, size=1)
    commit(folder, "slow", seconds=0.004, size=1)
    commit(folder, "other", seconds=0.002, size=2)
    monkeypatch.setattr(gate, "LEVEL", 0.9)
    monkeypatch.setattr(gate, "MOST_ROUNDS", 5)
    monkeypatch.setattr(gate_timing, "BLOCKS", 3)
    return folder


@pytest.mark.slow
def test_a_slower_commit_is_found_and_confirmed(repository: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["HEAD~2", "HEAD~1", *QUICK]) == WORSE
    printed = capsys.readouterr().out
    assert "once more with fresh processes" in printed
    assert "sleep: slower: +" in printed
    assert git(repository, "worktree", "list").count("\n") == 0, "both checkouts are gone"


def test_a_noisy_case_is_timed_for_more_rounds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    taken: list[tuple[list[str], int]] = []
    generator = np.random.default_rng(0)
    noises = {"calm": 0.005, "noisy": 0.06}

    def measured(places, labels, rounds) -> dict[str, Sample]:
        taken.append((list(labels), rounds))
        return {
            label: Sample(*generator.lognormal(0, noises[label], (2, rounds, 2, 1)).tolist())
            for label in labels
        }

    monkeypatch.setattr(gate, "measure", measured)
    monkeypatch.setattr(gate, "MOST_ROUNDS", 30)
    found = gate.timed({}, ["calm", "noisy"], 12, 0.05)
    assert {label: verdict.rounds for label, verdict in found.items()} == {"calm": 12, "noisy": 30}
    assert taken == [(["calm", "noisy"], 12), (["noisy"], 18)]
    assert "1 noisy cases: 18 more rounds" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["no-such-commit", "HEAD"], "git knows no commit 'no-such-commit'"),
        (["HEAD", "HEAD", "--case", "nothing"], "--case 'nothing': no label"),
        (["HEAD~1", "HEAD", *QUICK], "sizes are {'size': 1} at the base and {'size': 2} at the head"),
        (["HEAD", "HEAD", "--rounds", "3"], "--rounds 3: at least 5 is needed"),
        (["HEAD", "HEAD", "--effect", "0"], "--effect 0.0"),
    ],
)
def test_what_cannot_be_compared_is_refused_with_a_reason(
    repository: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
):
    assert main(arguments) == BAD_INPUT
    assert message in capsys.readouterr().err


def test_a_commit_without_cases_is_named(repository: Path, capsys: pytest.CaptureFixture[str]):
    (repository / "benchmarks" / "kernels" / "cases.py").unlink()
    record(repository, "none")
    assert main(["HEAD~1", "HEAD"]) == BAD_INPUT
    assert "the head commit has no kernel cases" in capsys.readouterr().err
