"""A workload whose runs are jobs of their own: the jobs, what they read and need, what they are called."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from curvebench.planning.config import Config
from curvebench.planning.plan import Plan, PlannedJob, make_plan, write_specs
from curvebench.planning.snakemake_inputs import OTHER_MB, SINGLE_RUN_MINUTES, TRAINING_MINUTES
from curvebench.spec.job import BasesSpec, RunsSpec, read_spec
from curvebench.stages import estimating
from tests.curvebench.runs_alone import write_alone
from tests.curvebench.stages.test_estimating import pretend_to_measure

ONE_SEED = ("seeds: {tuning: 2, final: 3}", "seeds: {tuning: 1, final: 3}")
ON_GPUS = ("      jax: {}", "      jax: {device: gpu}")
BOTH = (
    "workload: {long_squares.py: {n: 8, d: 4}}",
    "workloads: [{long_squares.py: {n: 8, d: 4}}, {logistic_regression: {n: 8, d: 4}}]",
)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    write_alone(tmp_path / "studies")
    return Config(
        results=tmp_path / "results",
        site=tmp_path / "site",
        study_folder=tmp_path / "studies",
        studies=("tiny",),
        parity=False,
    )


def spec_of(job: PlannedJob) -> RunsSpec:
    assert isinstance(job.spec, RunsSpec)
    return job.spec


def by_stage(plan: Plan, *stages: str) -> list[PlannedJob]:
    return [job for job in plan.jobs if job.spec.stage in stages]


def of_rounds(plan: Plan, *numbers: int) -> list[PlannedJob]:
    """Return the runs jobs whose first round is one of the given rounds."""
    return [job for job in by_stage(plan, "runs") if spec_of(job).rounds[0] in numbers]


def test_each_run_is_a_job(config: Config):
    plan = make_plan(config)
    others = [job for job in plan.jobs if job.spec.stage != "runs"]
    assert Counter((job.spec.stage, job.spec.backend) for job in others) == {
        ("bases", "host"): 2,
        ("timing", "jax"): 1,
        ("timing", "torch"): 1,
    }
    alone = by_stage(plan, "runs")
    assert Counter((spec_of(job).rounds, job.spec.backend) for job in alone) == {
        ((0,), "jax"): 2 * 2 * 2 * 2,  # optimizers, bases, rates, seeds
        ((1,), "jax"): 2 * 2 * 6 * 2,
        ((2,), "jax"): 2 * 2 * 3,
        ((2,), "torch"): 2 * 2 * 2,
    }
    assert all(job.lanes == 1 and spec_of(job).single_run for job in alone)
    assert len({job.spec.hash for job in alone}) == len(alone)
    together = write_alone(config.study_folder.with_name("others"), alone=False)
    before = make_plan(config.model_copy(update={"study_folder": together.parent}))
    assert sum(job.lanes for job in by_stage(before, "runs")) == len(alone)


def test_a_run_reads_the_runs_that_tune_it_alone(config: Config):
    """A run reads the tuning runs of its method in its tuning basis, and its own basis if it is estimated."""
    plan = make_plan(config)
    bases = {job.spec.hash for job in by_stage(plan, "bases")}
    for job in of_rounds(plan, 1, 2):
        spec = spec_of(job)
        tuning = [one.spec for one in job.upstream if isinstance(one.spec, RunsSpec)]
        assert all(one.optimizers == spec.optimizers for one in tuning)
        assert {one.bases[0].label for one in tuning} == {"identity"}, "which chooses for all bases"
        found = Counter(one.rounds for one in tuning)
        assert found == {(0,): 4, **({(1,): 12} if spec.rounds == (2,) else {})}
        read = bases.intersection(one.spec.hash for one in job.upstream)
        assert len(read) == (spec.bases[0].label == "egop")
        assert spec.upstream["runs"] == tuple(one.hash for one in tuning)
    write_alone(config.study_folder, ("shared_across: bases", "shared_across: none"))
    for job in of_rounds(make_plan(config), 1, 2):
        tuned = [one.spec.bases for one in job.upstream if one.spec.stage == "runs"]
        assert tuned == [job.spec.bases] * len(tuned) != []
    (timing, _) = by_stage(make_plan(config), "timing")
    assert {one.spec.seeds for one in timing.upstream if one.spec.stage == "runs"} == {timing.spec.seeds}


def test_settings_that_follow_from_tables_are_told_apart_by_their_number(config: Config):
    refined = [spec_of(job) for job in of_rounds(make_plan(config), 1)]
    for method in {(spec.optimizers[0].label, spec.bases[0].label) for spec in refined}:
        own = [spec for spec in refined if (spec.optimizers[0].label, spec.bases[0].label) == method]
        assert Counter((spec.setting_index, spec.tuning_seeds) for spec in own) == {
            (number, (seed,)): 1 for number in range(6) for seed in (0, 1)
        }


def test_names_say_method_setting_and_seed(config: Config):
    plan = make_plan(config)
    write_specs(plan)
    jobs = by_stage(plan, "runs")
    said = {job.spec.description for job in jobs}
    assert "adam @ egop on long_squares, tuning round 1, setting 2, seed 1" in said
    assert "sgd on long_squares, tuning round 2, setting 6, seed 0" in said
    final = next(spec_of(job) for job in jobs if spec_of(job).rounds == (2,))
    assert final.description == f"sgd on long_squares, seed {final.seeds[0]}"
    assert "adam-long_squares-egop-round1-setting1-seed1.jax" in {
        job.folder.name.rpartition(".")[0] for job in jobs
    }
    for job in jobs:
        who, backend, hash_ = job.folder.name.split(".")
        values = {"study": "tiny", "scale": "quick", "optimizer": who, "backend": backend, "hash": hash_}
        assert plan.snakemake.spec(job.spec.stage).format(**values) == str(job.spec_path)
        assert read_spec(job.spec_path) == job.spec
    assert plan.summary().endswith("each run of long_squares a job of its own")


class Asked:
    """The wildcards of a rule."""

    def __init__(self, hash_: str) -> None:
        self.hash = hash_


def test_many_runs_that_many_others_read_are_gathered_first(config: Config):
    plan = make_plan(config)
    inputs = plan.snakemake
    refined = next(job for job in of_rounds(plan, 1) if job.spec.bases[0].label == "egop")
    gathered, *bases = inputs.inputs(Asked(refined.spec.hash))
    (estimated,) = (job for job in refined.upstream if job.spec.stage == "bases")
    assert bases == [str(estimated.folder / "jobs.parquet")]
    hash_ = Path(gathered).name
    assert gathered == inputs.pattern("gathered").format(study="tiny", scale="quick", hash=hash_)
    tables = inputs.inputs(Asked(hash_))
    first = [job for job in refined.upstream if job.spec.stage == "runs"]
    assert [Path(name).parent for name in tables[2::3]] == [job.folder for job in first]
    assert inputs.description(Asked(hash_)).startswith("4 runs are there, the first of them sgd on long_")
    edges = sum(len(inputs.input_files[job.spec.hash]) for job in of_rounds(plan, 1, 2))
    assert edges < 3 * len(of_rounds(plan, 1, 2))


def test_what_is_merged_is_listed_in_a_file(config: Config):
    plan = make_plan(config)
    write_specs(plan)
    (study,) = plan.studies
    hash_ = study.plan.tables.name.rpartition(".")[2]
    listed = plan.snakemake.pattern("tables jobs").format(study="tiny", scale="quick", hash=hash_)
    assert Path(listed).read_text().splitlines() == [str(job.folder) for job in study.jobs]


def test_other_workloads_of_the_study_stay_together(config: Config):
    write_alone(config.study_folder, BOTH, ONE_SEED)
    plan = make_plan(config)
    jobs = by_stage(plan, "runs")
    assert Counter((spec_of(job).rounds, job.spec.workloads[0].name) for job in jobs) == {
        ((0,), "long_squares"): 2 * 2 * 2,
        ((1,), "long_squares"): 2 * 2 * 6,
        ((2,), "long_squares"): 2 * 2 * 5,
        ((0, 1, 2), "logistic_regression"): 2,
        ((2,), "logistic_regression"): 2,  # final runs on the backend that is tuned on the other one
    }
    for job in jobs:
        read = [one.spec for one in job.upstream if isinstance(one.spec, RunsSpec)]
        assert all(spec.workloads == job.spec.workloads for spec in read)


def test_needs_are_those_of_device_memory_and_runs(config: Config):
    write_alone(
        config.study_folder, ON_GPUS, ("bundle_memory_bytes: 1", "bundle_memory_bytes: 4_294_967_296")
    )
    plan = make_plan(config)
    found = {(job.spec.stage, job.spec.backend): plan.snakemake.jobs[job.spec.hash] for job in plan.jobs}
    assert {key for key, job in found.items() if job.gpu} == {
        (stage, "jax") for stage in ("bases", "runs", "timing")
    }
    assert {job.gpu for job in found.values()} == {0, 1}
    assert found["runs", "torch"].mem_mb == OTHER_MB + 3 * 1024, "three GiB above the default"
    assert found["runs", "jax"].mem_mb == 8000
    assert found["bases", "jax"].mem_mb == 8000
    assert found["runs", "jax"].minutes == SINGLE_RUN_MINUTES > TRAINING_MINUTES
    asked = Asked(by_stage(plan, "runs")[0].spec.hash)
    assert plan.snakemake.minutes(asked, attempt=2) == 2 * SINGLE_RUN_MINUTES
    alone = len(by_stage(plan, "bases")) + len(of_rounds(plan, 0, 1)) + 12 + 1
    assert f"a GPU each for {alone} jobs" in plan.summary()


def test_bases_of_runs_alone_on_a_gpu_are_estimated_there(config: Config):
    """The first backend of the scale estimates them in the precision of the runs; the host estimates the
    bases of other workloads.
    """
    write_alone(config.study_folder, BOTH, ON_GPUS, ("schedule:", "precision: mixed\nschedule:"))
    plan = make_plan(config)
    specs = [job.spec for job in plan.jobs if isinstance(job.spec, BasesSpec)]
    at = {spec.workloads[0].name: (spec.backend, spec.device, spec.precision) for spec in specs}
    assert at == {"long_squares": ("jax", "gpu", "mixed"), "logistic_regression": ("host", "cpu", "float32")}
    for job in by_stage(plan, "runs"):
        read = [one.spec.workloads for one in job.upstream if one.spec.stage == "bases"]
        seeds = len(spec_of(job).rounds) if job.spec.bases[-1].label == "egop" else 0
        assert read == [job.spec.workloads] * min(seeds, 2), "those of tuning seeds and of final seeds"


def test_the_longest_job_is_told(config: Config, monkeypatch: pytest.MonkeyPatch):
    pretend_to_measure(monkeypatch)
    plan = make_plan(config.model_copy(update={"backends": ("jax",)}))
    ((study, cost),) = estimating.estimates(plan.studies)
    assert cost.runs == len(by_stage(plan, "runs")) == 76
    each = 1.0 + 20 * 2.0 + 5 * 3.0
    assert cost.longest_seconds == 3.0 + each
    assert cost.process_seconds == 3.0 * len(study.jobs) + 76 * each
    assert estimating.line("tiny", cost).endswith(" 0:00:59")
