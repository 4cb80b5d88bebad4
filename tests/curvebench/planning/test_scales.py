"""Keys of a study that a scale may override: settings to try, length of tuning runs, and optimizers."""

from __future__ import annotations

from pathlib import Path

from curvebench.planning.config import Config
from curvebench.planning.plan import make_plan
from curvebench.planning.studies.study import Study
from curvebench.planning.studies.validation import read_study
from curvebench.spec.job import RunsSpec
from tests.curvebench.tiny import write_study

SCALE = "  quick:\n    steps: 20\n    evaluations: 4\n"
OTHER = """\
  quick:
    epochs: 20
    evaluations: 4
    tuning: {length: 1/4}
"""
RATES = "space: {learning_rate: {low: 1e-2, high: 1, scale: log}}"
SEARCH = f"    tuning: {{protocol: random_search, budget_per_dimension: 3, {RATES}}}\n"


def planned(folder: Path, *changes: tuple[str, str]) -> list[RunsSpec]:
    """Return the jobs of runs of the tiny study on jax."""
    write_study(folder, *changes)
    plan = make_plan(Config(study_folder=folder, studies=("tiny",), backends=("jax",)))
    return [job.spec for study in plan.studies for job in study.jobs if isinstance(job.spec, RunsSpec)]


def read(folder: Path, *changes: tuple[str, str]) -> Study:
    return read_study(write_study(folder, *changes))


def test_runs_that_tune_may_be_shorter_with_as_many_evaluations_an_epoch(tmp_path: Path):
    for spec in planned(tmp_path, (SCALE, OTHER)):
        rounds = map(spec.in_round, spec.rounds)
        found = {own.rounds[0]: (own.hash, own.training.budget, own.training.evaluations) for own in rounds}
        short, whole = (spec.hash, {"epochs": 5}, 1), (spec.hash, {"epochs": 20}, 4)
        assert found == {0: short, 1: short, 2: whole}


def test_a_scale_may_try_other_settings_by_the_same_criterion(tmp_path: Path):
    specs = planned(tmp_path, (SCALE, SCALE + SEARCH))
    assert {(spec.rounds, spec.tuning.rounds) for spec in specs} == {((0, 1), (3,))}
    assert {spec.tuning.choose.metric for spec in specs} == {"train_loss"}
    fewer = planned(tmp_path, (SCALE, SCALE + "    tuning: {coarse: [1e-1, 1e-1]}\n"))
    assert {spec.tuning.rounds for spec in fewer} == {(1, 6)}


def test_a_scale_may_leave_optimizers_out_and_with_them_claims_on_them(tmp_path: Path):
    changes = (SCALE, SCALE + "    optimizers: [sgd]\n")
    assert {spec.optimizers[0].label for spec in planned(tmp_path, changes)} == {"sgd"}
    study = read(tmp_path, changes)
    assert study.claims
    assert not study.at("quick").claims
    assert [one.label for one in study.at("quick").optimizers] == ["sgd"]


def test_what_decides_at_a_scale_moves_its_final_seeds(tmp_path: Path):
    epochs = (SCALE, SCALE.replace("steps", "epochs"))
    seeds = [
        read(tmp_path, change).at("quick").first_final_seed
        for change in (epochs, (SCALE, OTHER), (SCALE, SCALE + SEARCH))
    ]
    assert len(set(seeds)) == 3


def test_a_study_joins_one_whose_scale_leaves_optimizers_out(tmp_path: Path):
    write_study(tmp_path, (SCALE, SCALE + "    optimizers: [sgd]\n"))
    (tmp_path / "mine.yaml").write_text("joins: tiny\nquestion: And momentum?\noptimizers: [momentum]\n")
    study = read_study(tmp_path / "mine.yaml").at("quick")
    assert [one.label for one in study.optimizers] == ["momentum"]
