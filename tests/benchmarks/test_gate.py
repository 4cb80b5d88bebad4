"""The gate from end to end on a small repository, its files, its tables, and what it refuses."""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from benchmarks.gate import BAD_INPUT, GOOD, UNDECIDED, WORSE, main, measure_enough
from benchmarks.gate_tables import compare_tables
from benchmarks.gate_timing import GateError, Sample
from benchmarks.kernels.worktrees import git
from results.schema import RUNS
from results.writing import write_table
from tests.harness.tiny import SEARCH, TWO_STAGES, leave_tiny, write_study
from tests.results.rows import rows

ROOT = Path(__file__).resolve().parents[2]
CASES = '''"""Cases that sleep."""

import time
from contextlib import nullcontext
from types import SimpleNamespace

SECONDS = {seconds}


def prepare(backend, dtype):
    return SimpleNamespace(run=lambda: time.sleep(SECONDS), context=nullcontext)


def timed(pattern=""):
    case = SimpleNamespace(prepare=prepare, sizes={{"size": 1}}, flops={flops})
    labels = [label for label in ("sleep", "nap") if pattern in label]
    return {{label: SimpleNamespace(case=case, backend="jax", dtype="float32") for label in labels}}
'''
QUICK = ["--level", "0.9", "--effect", "0.3", "--rounds", "5", "--most-rounds", "5", "--blocks", "3"]
QUICK += ["--case", "sleep"]


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
    commit(folder, "fast", seconds=0.002, flops=1)
    commit(folder, "slow", seconds=0.004, flops=1)
    commit(folder, "other", seconds=0.002, flops=2)
    return folder


@pytest.mark.slow
def test_a_slower_commit_is_found_confirmed_and_kept(
    repository: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    kept = tmp_path / "timings.json"
    assert main(["HEAD~2", "HEAD~1", *QUICK, "--out", str(kept)]) == WORSE
    printed = capsys.readouterr().out
    assert "sleep: slower: +" in printed
    assert "minutes in all" in printed
    written = json.loads(kept.read_text())
    first, second = written["comparisons"]
    assert np.shape(first[0]["base"]) == np.shape(second[0]["head"]) == (5, 2, 3)
    assert written["base"] != written["head"]
    assert git(repository, "worktree", "list").count("\n") == 0, "both checkouts are gone"


def test_a_noisy_case_is_timed_for_more_rounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    taken: list[tuple[list[str], int]] = []
    generator = np.random.default_rng(0)
    noises = {"calm": 0.005, "noisy": 0.06}

    def measured(places, labels, rounds, blocks, progress) -> list[Sample]:
        taken.append((list(labels), rounds))
        return [
            Sample(label, *generator.lognormal(0, noises[label], (2, rounds, 2, blocks)).tolist())
            for label in labels
        ]

    monkeypatch.setattr("benchmarks.gate.measure", measured)
    given = argparse.Namespace(rounds=12, most_rounds=30, blocks=1, effect=0.05, level=0.995)
    samples = measure_enough({"base": tmp_path, "head": tmp_path}, ["calm", "noisy"], given)
    assert [np.shape(one.base) for one in samples] == [(12, 2, 1), (30, 2, 1)]
    assert taken == [(["calm", "noisy"], 12), (["noisy"], 18)]
    assert "1 noisy cases: 18 more rounds" in capsys.readouterr().out


@pytest.mark.slow
def test_a_commit_is_not_slower_than_itself(
    repository: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert main(["--aa", "1", *QUICK, "--out", str(tmp_path / "aa.json")]) == GOOD
    assert "0 false alarms in 1 x 1 comparisons" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["no-such-commit", "HEAD"], "git knows no commit 'no-such-commit'"),
        (["HEAD", "HEAD", "--case", "nothing"], "--case 'nothing': no label"),
        (["HEAD~1", "HEAD", *QUICK], "flops are 1 at the base and 2 at the head"),
        (["HEAD", "HEAD", "--rounds", "3"], "--rounds 3: at least 9 is needed"),
        (["HEAD", "HEAD", "--most-rounds", "9"], "--most-rounds 9: at least 12"),
        (["HEAD", "HEAD", "--effect", "0"], "--effect 0.0"),
        (["HEAD", "HEAD", "--level", "2"], "--level 2.0"),
        (["HEAD"], "name two commits"),
        (["HEAD", "HEAD", "--aa", "2"], "name two commits"),
        (["--tables", "absent", "absent"], "absent"),
        (["HEAD", "--study", "convex"], "name two commits"),
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


# --- accuracy ------------------------------------------------------------------------------------


def table(
    folder: Path, factor: float = 1.0, seeds: int = 10, optimizers: tuple[str, ...] = ("adam",)
) -> Path:
    generator = np.random.default_rng(0)
    changes = [
        {
            "run": f"{optimizer}-{seed}",
            "optimizer": optimizer,
            "seed": seed,
            "final_metrics": [{"name": "train_loss", "value": factor * generator.lognormal()}],
        }
        for optimizer in optimizers
        for seed in range(seeds)
    ]
    folder.mkdir()
    write_table(folder / "runs.parquet", rows("runs", *changes), RUNS)
    return folder


@pytest.mark.parametrize(("factor", "word", "expected"), [(1.0, "equal", GOOD), (1.2, "worse", WORSE)])
def test_final_losses_are_compared_by_seed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], factor: float, word: str, expected: int
):
    base, head = table(tmp_path / "base"), table(tmp_path / "head", factor)
    assert main(["--tables", str(base), str(head)]) == expected
    assert f"adam identity jax float64 train_loss: {word}" in capsys.readouterr().out


def test_too_few_seeds_leave_it_undecided(tmp_path: Path):
    base, head = table(tmp_path / "base", seeds=5), table(tmp_path / "head", seeds=5)
    assert main(["--tables", str(base), str(head)]) == UNDECIDED


def test_a_cell_that_one_side_lacks_is_an_error(tmp_path: Path):
    base, head = table(tmp_path / "base", optimizers=("adam", "sgd")), table(tmp_path / "head")
    with pytest.raises(GateError, match=r"sgd.*cannot be paired"):
        compare_tables(base, head, "train_loss", 0.05, 0.95)


def test_two_runs_of_a_seed_are_an_error(tmp_path: Path):
    base = table(tmp_path / "base", optimizers=("adam", "adam"))
    with pytest.raises(GateError, match=r"several final runs are toy.*adam"):
        compare_tables(base, base, "train_loss", 0.05, 0.95)


def test_an_unknown_metric_is_named(tmp_path: Path):
    base = table(tmp_path / "base")
    with pytest.raises(GateError, match="has the metric 'none'"):
        compare_tables(base, base, "none", 0.05, 0.95)


def test_the_command_explains_itself(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    assert "BASE" in capsys.readouterr().out


# --- a study on two commits ------------------------------------------------------------------------

UNCHANGED = "direction, state = adam_direction(ops, grad, state, hyper, self.chosen)"
DECAYING = f"{UNCHANGED}\n        direction = direction / hyper['step'] ** 2"


@pytest.fixture
def studied(project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository of the project with one tiny study, and a commit whose Adam soon stands still."""
    leave_tiny(project)
    write_study(
        project / "benchmarks/studies",
        ("bases: [identity, {egop: {blocks: all, samples: 2.0 d, sampling: {normal: 1.0}}}]\n", ""),
        (TWO_STAGES, SEARCH),
        ("final: 3}", "final: 6}"),
        ("better: [adam @ egop], than: [adam]", "better: [adam], than: [sgd]"),
    )
    start_repository(project, monkeypatch)
    record(project, "before")
    file = project / "optimizers/adam.py"
    text = file.read_text()
    assert text.count(UNCHANGED) == 1
    file.write_text(text.replace(UNCHANGED, DECAYING))
    record(project, "Adam decays")
    return project


@pytest.mark.long
def test_a_commit_that_makes_a_rule_worse_is_found_by_a_study(
    studied: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    asked = ["HEAD~1", "HEAD", "--study", "tiny", "--level", "0.9", "--out", str(tmp_path / "kept")]
    assert main(asked) == WORSE
    printed = capsys.readouterr().out
    assert "adam identity jax float64 train_loss: worse: +" in printed
    assert "sgd identity jax float64 train_loss: equal within 5 %: +0.0 %" in printed
    stages = {path.name for path in (tmp_path / "kept").glob("*/results/runs/tiny/quick/*")}
    assert stages == {"sweep", "final"}, "timing takes a while and says nothing of accuracy"
    assert git(studied, "worktree", "list").count("\n") == 0, "both checkouts are gone"


def test_a_study_that_a_commit_lacks_is_named(studied: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["HEAD", "HEAD", "--study", "tinny"]) == BAD_INPUT
    assert "did you mean 'tiny'?" in capsys.readouterr().err
