"""The plan: which jobs there are, what they depend on, and what a change of the sources changes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from curvebench.optimizers import rules
from curvebench.planning.config import Config, read_config
from curvebench.planning.parity_problems import CORE, PROBLEMS
from curvebench.planning.plan import PlannedJob, make_plan, prepare, write_specs
from curvebench.planning.snakemake_inputs import tables_in
from curvebench.spec.errors import InputError
from curvebench.spec.job import JOB_SPECS, RunsSpec, job_folder, read_spec, spec_file
from curvebench.spec.plan import BackendPlan, PartPlan, ReportPlan
from curvebench.spec.sources import papers
from tests.curvebench.property_checks.toy_claims import ToyClaims
from tests.curvebench.tiny import TINY, write_study
from tests.curvebench.user_files import user_file

ROOT = Path(__file__).resolve().parents[3]
SPACE = "space: {learning_rate: {low: 1e-3, high: 1, scale: log}}"
SEARCH = (
    "protocol: two_stage_sweep\n  of: learning_rate\n  coarse: [1e-2, 1e-1]",
    f"protocol: halton_search\n  budget_per_dimension: 5\n  {SPACE}",
)


@pytest.fixture
def config(tmp_path):
    write_study(tmp_path / "studies")
    return Config(results=tmp_path / "results", site=tmp_path / "site", study_folder=tmp_path / "studies")


def changed(config, **changes):
    return config.model_copy(update=changes)


def stages(plan):
    jobs = [job for planned in plan.studies for job in planned.jobs]
    return Counter((job.spec.stage, job.spec.backend) for job in jobs)


def by_name(plan, stage, optimizer=None, backend=None):
    return [
        job
        for job in plan.jobs
        if job.spec.stage == stage
        and (optimizer is None or job.spec.optimizers[0].name == optimizer)
        and (backend is None or job.spec.backend == backend)
    ]


def test_a_changed_study_draws_the_seeds_of_a_set_that_is_named(config, tmp_path):
    """Otherwise a claim that is run again would pair no run with those of the set."""
    before = make_plan(config)
    (tmp_path / "plan.json").write_text(before.report.to_json())
    write_study(tmp_path / "studies", ("5 %", "6 %"), ("tuning: 2", "tuning: 3"))

    def firsts(plan):
        [planned] = plan.studies
        return planned.plan.first_tuning_seed, planned.plan.first_final_seed

    def final_seeds(plan):
        return [job.spec.seeds for job in by_name(plan, "runs")]

    own, again = make_plan(config), make_plan(changed(config, seeds_of=tmp_path / "plan.json"))
    assert firsts(own) != firsts(before) == firsts(again)
    assert final_seeds(own) != final_seeds(before) == final_seeds(again)
    assert again.report.folders["seeds_of"] == str(tmp_path / "plan.json")  # commands that it shows name it


def bases_of(job, number):
    """Return the labels of the bases of a round."""
    return [basis.label for basis in job.spec.in_round(number).bases]


def test_settings_may_be_tried_in_the_identity_basis_alone(config):
    before = {job.spec.hash for job in by_name(make_plan(config), "runs")}
    shared = ("shared_across: bases", "shared_across: bases\n  tuned_bases: identity")
    write_study(config.study_folder, shared)
    plan = make_plan(config)
    assert [job.spec.seeds for job in by_name(plan, "bases")] == [by_name(plan, "runs")[0].spec.seeds]
    identity, both = ["identity"], ["identity", "egop"]
    found = [[bases_of(job, number) for number in job.spec.rounds] for job in by_name(plan, "runs")]
    assert found == [[identity, identity, both]] * 2 + [[both]] * 2
    assert not before & {job.spec.hash for job in by_name(plan, "runs")}
    write_specs(plan)
    assert json.loads(plan.report_path.read_text())["studies"][0]["tuning"]["tuned_bases"] == ["identity"]


def test_a_study_becomes_jobs_by_stage_and_backend(config):
    assert stages(make_plan(config)) == {
        ("bases", "host"): 2,
        ("runs", "jax"): 2,
        ("runs", "torch"): 2,
        ("timing", "jax"): 1,
        ("timing", "torch"): 1,
    }


def test_jobs_depend_on_what_they_read(config):
    plan = make_plan(config)
    tuning_bases, final_bases = by_name(plan, "bases")
    (runs,), (final,) = by_name(plan, "runs", "adam", "jax"), by_name(plan, "runs", "adam", "torch")
    assert tuning_bases.spec.seeds == runs.spec.tuning_seeds == (0, 1)
    first, *others = final_bases.spec.seeds
    assert others == [first + 1, first + 2]
    assert runs.spec.upstream == {"bases": (tuning_bases.spec.hash, final_bases.spec.hash)}
    assert final.spec.upstream == {"runs": (runs.spec.hash,), "bases": (final_bases.spec.hash,)}
    assert (runs.spec.rounds, runs.spec.seeds) == ((0, 1, 2), final_bases.spec.seeds)
    assert (final.spec.rounds, final.spec.seeds) == ((2,), (first, first + 1))
    assert runs.spec.lanes == (2 * 2 * 2, 2 * 2 * 6, 2 * 3)  # bases, seeds, settings
    (timing,) = by_name(plan, "timing", backend="torch")
    assert timing.spec.upstream["runs"] == tuple(
        job.spec.hash for job in by_name(plan, "runs", backend="torch")
    )
    assert final.upstream == (runs, final_bases)


def test_tuning_runs_that_a_claim_compares_are_planned_just_below_the_final_seeds(config):
    rates = ("metric: final train_loss, better", "metric: final train_loss, quantity: rates_won, better")
    write_study(config.study_folder, rates)
    plan = make_plan(config)
    tuning_bases, _ = by_name(plan, "bases")
    for job in by_name(plan, "runs", backend="jax"):
        first = job.spec.seeds[0]
        assert job.spec.tuning_seeds == tuning_bases.spec.seeds == (first - 2, first - 1)


def test_a_basis_is_run_by_the_optimizers_that_take_it(config):
    given = ("sampling: {normal: 1.0}}}", "sampling: {normal: 1.0}, optimizers: [adam]}}")
    write_study(config.study_folder, given, ("shared_across: bases", "shared_across: none"))
    plan = make_plan(config)
    for job in by_name(plan, "runs", backend="jax"):
        bases = {"sgd": ["identity"], "adam": ["identity", "egop"]}[job.spec.optimizers[0].name]
        assert [bases_of(job, number) for number in job.spec.rounds] == [bases] * 3
    assert [job.lanes for job in by_name(plan, "timing")] == [3, 3]
    (study,) = plan.report.studies
    assert study.methods == ("sgd", "adam", "adam @ egop")


def test_a_search_has_one_round_of_tuning(config):
    write_study(config.study_folder, SEARCH)
    sgd, adam = by_name(make_plan(config), "runs", backend="jax")
    assert sgd.spec.rounds == adam.spec.rounds == (0, 1)
    assert sgd.spec.tuning.rounds == adam.spec.tuning.rounds == (5,)


def test_identity_needs_no_basis_job(config):
    egop = "bases: [identity, {egop: {blocks: all, samples: 2.0 d, sampling: {normal: 1.0}}}]"
    write_study(config.study_folder, (egop, "bases: [identity]"), ("adam @ egop", "sgd"))
    plan = make_plan(config)
    assert not by_name(plan, "bases")
    assert all("bases" not in job.spec.upstream for job in plan.jobs)


def test_one_backend_still_gets_the_tuning_it_takes_from_another(config):
    plan = make_plan(changed(config, backends=("torch",)))
    jobs = [(job.spec.backend, job.spec.rounds) for job in by_name(plan, "runs")]
    assert sorted(jobs) == [("jax", (0, 1))] * 2 + [("torch", (2,))] * 2
    for job in by_name(plan, "runs", backend="torch"):
        (tuner,) = (one for one in job.upstream if one.spec.stage == "runs")
        assert (tuner.spec.backend, tuner.spec.optimizers) == ("jax", job.spec.optimizers)


def test_what_cannot_run_is_skipped_with_the_reason(config):
    write_study(config.study_folder, ("  quick:", "  huge:"), ("tiny.claim", "other.claim"), name="other")
    plan = make_plan(config)
    (left_out,) = plan.report.skipped
    assert (left_out.name, left_out.reason) == ("other", "it has no scale 'quick' (it has: huge)")
    assert "skipped other: it has no scale 'quick'" in plan.summary()
    with pytest.raises(InputError, match=r"^--config scale: other has no scale 'quik' \(valid: huge\)"):
        make_plan(changed(config, studies=("other.claim",), scale="quik"))


def test_a_workload_without_data_is_left_out_of_a_study_without_claims(config, monkeypatch):
    claims = TINY[TINY.index("claims:") : TINY.index("scales:")]
    two = "workloads: [{least_squares: {n: 8, d: 4}}, {digits_mlp: {source: full}}]"
    changes = [(TINY.splitlines()[2], two), ("stop: {gradient_norm: 1e-8}\n", "")]
    write_study(config.study_folder, *changes)
    (skipped,) = make_plan(config).report.skipped  # a claim may be about all workloads
    assert "optdigits.tra" in skipped.reason
    write_study(config.study_folder, *changes, (claims, ""))
    plan = make_plan(config)
    (planned,) = plan.studies
    assert [spec.name for spec in planned.plan.workloads] == ["least_squares"]
    assert {spec.name for job in planned.jobs for spec in job.spec.workloads} == {"least_squares"}
    assert "skipped digits_mlp in tiny: the full set of UCI digits needs optdigits.tra" in plan.summary()
    assert planned.plan.notes[0].startswith("digits_mlp is left out: the full set of UCI digits needs")
    monkeypatch.setattr("curvebench.workloads.data.DataFiles.missing", lambda files: None)
    (planned,) = make_plan(config).studies
    assert [spec.name for spec in planned.plan.workloads] == ["least_squares", "digits_mlp"]


def test_a_run_of_which_everything_is_skipped_is_an_error(config, monkeypatch):
    monkeypatch.setattr("curvebench.planning.plan.missing_of", lambda workloads: "no data")
    raw = {key: value for key, value in config if key in config.model_fields_set}
    with pytest.raises(InputError, match=r"^nothing to run: skipped tiny: no data$"):
        prepare({**raw, "studies": "tiny"})


def test_missing_data_skips_a_study_and_says_how_to_get_it():
    plan = make_plan(Config(scale="paper", study_folder=ROOT / "benchmarks/studies"))
    skipped = {study.name: study.reason for study in plan.report.skipped}
    assert skipped["field"] == "it has no scale 'paper' (it has: standard)"
    assert skipped["imagenet25_vit"].endswith("takes minutes to hours; name the study to run it")
    assert "cifar-10-binary.tar.gz" in skipped["cifar10_speed"]
    assert "optdigits.tra" in skipped["digits_mlp"]
    assert "CURVEBENCH_DATA" in skipped["digits_mlp"]
    folder = "; the folder of data is what `--config data=FOLDER` names"
    for reason in skipped.values():
        assert reason.startswith("it has no scale 'paper'") or reason.endswith(
            (folder, "name the study to run it")
        )


REPEATED = user_file("again.yaml")


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({}, ["tiny"]),
        ({"repeats": "true"}, ["again", "tiny"]),
        ({"studies": "tiny", "repeats": "false"}, ["tiny"]),
        ({"studies": "tiny.claim", "repeats": True}, ["again", "tiny"]),
        ({"studies": "again"}, ["again"]),
    ],
)
def test_what_only_repeats_claims_is_run_where_it_is_asked_for(config, asked, found):
    (config.study_folder / "again.yaml").write_text(REPEATED)
    plan = make_plan(read_config({**asked, "study_folder": str(config.study_folder)}))
    assert [planned.study.name for planned in plan.studies] == found


def test_parity_is_left_out_where_it_is_not_asked_for(config):
    assert make_plan(config).report.parity
    assert not make_plan(changed(config, parity=False)).report.parity
    assert read_config({"parity": "false"}).parity is False


def test_a_precision_is_part_of_what_runs_and_of_the_bases_for_it(config):
    (config.study_folder / "again.yaml").write_text(REPEATED)
    plan = make_plan(changed(config, repeats=True))
    again, tiny = ({job.spec.stage: job.spec for job in planned.jobs} for planned in plan.studies)
    precisions = {getattr(spec, "precision", None) for spec in again.values()}
    assert precisions == {"float32"}, "bases are stored in it"
    for stage in ("bases", "runs", "timing"):
        assert '"precision": "float32"' in again[stage].to_json()
        assert '"precision": null' in tiny[stage].to_json()
        assert JOB_SPECS.validate_json(again[stage].to_json()) == again[stage]
        assert tiny[stage].changed(precision="float32").hash != tiny[stage].hash
    shown, _ = plan.report.studies
    assert (shown.training.precision, shown.repeated[0].repeats) == ("float32", "tiny.claim")


def test_paths_are_those_of_the_harness_and_match_the_rules(config):
    plan = make_plan(config)
    for job in plan.jobs:
        assert job.spec_path == spec_file(config.results, job.spec)
        assert job.folder == job_folder(config.results, job.spec)
        who, backend, hash_ = job.folder.name.split(".")
        study, scale = {"parity": ("parity", "all"), "checks": ("claims", "quick")}.get(
            job.spec.stage, ("tiny", "quick")
        )
        values = {"study": study, "scale": scale, "optimizer": who, "backend": backend, "hash": hash_}
        assert plan.snakemake.spec(job.spec.stage).format(**values) == str(job.spec_path)
        tables = plan.snakemake.job_tables(job.spec.stage)[-1]
        assert str(job.folder / "jobs.parquet") == tables.format(**values)


def test_specs_are_written_once_and_can_be_read_back(config):
    plan = make_plan(config)
    write_specs(plan)
    for job in plan.jobs:
        assert read_spec(job.spec_path).hash == job.spec.hash
        os.utime(job.spec_path, (1, 1))
    write_specs(plan)
    assert all(job.spec_path.stat().st_mtime == 1 for job in plan.jobs)
    assert json.loads(plan.report_path.read_text())["studies"][0]["name"] == "tiny"


def test_each_workload_has_a_job_of_its_own_where_the_scale_says_so(config):
    """With all of its rounds; one that is tuned on another backend reads the job of its workload there."""
    path = config.study_folder / "tiny.yaml"
    two = "workloads: [{least_squares: {n: 8, d: 4}}, {logistic_regression: {n: 8, d: 4}}]"
    text = path.read_text().replace("workload: {least_squares: {n: 8, d: 4}}", two)
    path.write_text(text.replace("evaluations: 4", "evaluations: 4\n    jobs: workload"))
    for job in by_name(make_plan(config), "runs", "adam"):
        assert len(job.spec.workloads) == 1
        assert job.spec.rounds == ((0, 1, 2) if job.spec.backend == "jax" else (2,))
        read = [one.spec for one in job.upstream if one.spec.stage == "runs"]
        assert [one.workloads for one in read] == [job.spec.workloads] * (job.spec.backend == "torch")


@pytest.mark.parametrize("cut_by", ["basis", "seed"])
def test_each_basis_or_seed_has_a_final_job_of_its_own_where_the_scale_says_so(config, cut_by):
    def finals() -> list[PlannedJob]:
        return [job for job in make_plan(config).jobs if job.spec.stage == "runs" and job.spec.seeds]

    def cells(jobs: list[PlannedJob]) -> list[tuple[str, str, str, int]]:
        specs = [job.spec for job in jobs]
        return [
            (spec.backend, spec.optimizers[0].label, basis.label, seed)
            for spec in specs
            for basis in spec.bases
            for seed in spec.seeds
        ]

    def compared(jobs: list[PlannedJob]) -> set[str]:
        return {label for job in jobs if isinstance(job.spec, RunsSpec) for label in job.spec.compared_bases}

    whole = finals()
    path = config.study_folder / "tiny.yaml"
    path.write_text(path.read_text().replace("evaluations: 4", f"evaluations: 4\n    jobs: {cut_by}"))
    cut = finals()
    assert all(len(job.spec.bases) == 1 for job in cut)
    assert all((len(job.spec.seeds) == 1) == (cut_by == "seed") for job in cut)
    assert len(cut) > len(whole)
    assert cells(cut) == cells(whole)
    assert compared(cut) == compared(whole)
    assert {job.spec.rounds for job in cut if isinstance(job.spec, RunsSpec)} == {(2,)}
    tuned = [job for job in make_plan(config).jobs if job.spec.stage == "runs" and not job.spec.seeds]
    assert sum(job.lanes for job in (*tuned, *cut)) == sum(job.lanes for job in whole)
    for job in cut:
        read = [one.spec for one in job.upstream if one.spec.stage == "bases"]
        stored = job.spec.bases[0].name != "identity"
        assert [one.bases for one in read] == ([job.spec.bases] if stored else [])
        assert all(set(job.spec.seeds) <= set(one.seeds) for one in read)
        assert all((len(one.seeds) == 1) == (cut_by == "seed") for one in read)


def test_the_report_is_told_what_it_shows(config):
    (study,) = make_plan(config).report.studies
    assert study.methods == ("sgd", "adam", "sgd @ egop", "adam @ egop")
    assert study.runs_on["torch"] == BackendPlan(device="cpu", tuned_on="jax", final_seeds=2)
    assert str(study.compare) == "final train_loss"
    assert study.workloads[0].metrics["train_loss"].direction == "minimize"
    assert study.workloads[0].dtype == "float64"
    assert study.tuning.trials == 8
    assert (study.training.budget, study.training.evaluations) == ({"steps": 20}, 4)


def test_a_floor_of_the_headline_is_in_the_plan_and_changes_no_job_and_no_seed(config, tmp_path):
    file, planned = tmp_path / "studies/tiny.yaml", make_plan(config)
    written = file.read_text()
    file.write_text(
        written.replace("{metric: final train_loss}", "{metric: final train_loss, floor: 1e-28}", 1)
    )
    held = make_plan(config)
    (before,), (study,) = planned.report.studies, held.report.studies
    assert (study.compare.floor, study.metric, before.compare.floor) == (1e-28, "train_loss", None)
    assert [job.spec.hash for job in held.jobs] == [job.spec.hash for job in planned.jobs]
    assert study.first_final_seed == before.first_final_seed
    assert study.tables == before.tables
    assert study.figures != before.figures
    assert ReportPlan.model_validate_json(held.report.to_json()).studies == (study,)


def test_the_plan_is_read_back_as_it_was_written(config):
    report = make_plan(changed(config, study_folder=ROOT / "benchmarks/studies")).report
    assert report.studies
    # The path of a set, from which it was read, is not written.
    unplaced = tuple(one.model_copy(update={"path": Path()}) for one in report.archive)
    assert ReportPlan.model_validate_json(report.to_json()) == report.model_copy(update={"archive": unplaced})


def test_published_sets_are_read_wherever_results_go(config, monkeypatch, tmp_path):
    sets = {path.parent.name for path in (ROOT / "results/published").glob("*/SHA256SUMS")}
    report = make_plan(config).report
    shown = {one.published for one in report.archive}
    assert shown
    assert shown <= sets
    monkeypatch.chdir(tmp_path)  # of another project
    assert not make_plan(config).report.archive


def test_backends_are_compared_on_every_optimizer_or_those_of_the_studies_asked_for(config):
    def compared(**changes):
        plan = make_plan(changed(config, **changes))
        jobs = [job for job in plan.jobs if job.spec.stage == "parity"]
        assert bool(plan.report.parity) == bool(jobs)
        shown = tables_in(job.folder for job in jobs)
        assert set(shown) == {path for path in plan.snakemake.site_inputs if "/runs/parity/" in path}
        return {optimizer.name: len(job.spec.workloads) for job in jobs for optimizer in job.spec.optimizers}

    on_all, on_few = len(PROBLEMS), len(CORE)
    assert compared() == {name: on_all if name in ("sgd", "adam") else on_few for name in rules()}
    assert compared(studies=("tiny",)) == {"adam": on_all, "sgd": on_all}
    assert compared(backends=("jax",)) == {}  # nothing to compare with


@pytest.fixture
def toys(tmp_path, monkeypatch):
    """Return a root with the project's sources and two modules of claims, `late` and `toy`, in place of its
    own.
    """
    root = tmp_path / "root"
    for folder in ("curvebench", "optimizers", "reports", "results", "workloads"):
        ignored = shutil.ignore_patterns("__pycache__", "published")
        shutil.copytree(ROOT / folder, root / folder, ignore=ignored, symlinks=True)
    made = ToyClaims(root, monkeypatch)
    made.write()
    made.write(('"toy.', '"late.'), name="late")
    return made


def checks(config, toys, **changes):
    plan = make_plan(changed(config, **changes), toys.root)
    jobs = {job.spec.optimizers[0].name: job for job in plan.jobs if job.spec.stage == "checks"}
    assert bool(plan.report.checks) == bool(jobs)
    shown = tables_in(job.folder for job in jobs.values())
    assert set(shown) == {path for path in plan.snakemake.site_inputs if "/runs/claims/" in path}
    return plan, jobs


def test_every_module_of_claims_is_a_job_unless_studies_are_asked_for(config, toys):
    plan, jobs = checks(config, toys)
    part = plan.report.checks.claims[2].parts[0]
    assert part == PartPlan(part="it is between 0 and 1", variant="", instances=3)
    assert {name: (job.spec.study, job.spec.scale, job.lanes) for name, job in jobs.items()} == {
        "late": ("claims", "quick", 2),
        "toy": ("claims", "quick", 2),
    }
    assert jobs["toy"].folder.name.startswith("toy.host.")
    assert {"torch", "jax", "scipy", "numpy"} < set(jobs["toy"].spec.versions)
    assert [claim.id for claim in plan.report.checks.claims] == [
        *("late.mean", "late.other", "toy.mean", "toy.other")
    ]
    assert "property checks: 2 jobs, 4 claims" in plan.summary()
    assert str(plan.report.checks.figures) in plan.snakemake.site_inputs
    assert set(checks(config, toys, backends=("jax",))[1]) == {"late", "toy"}
    assert not checks(config, toys, studies=("tiny",))[1]


def test_a_property_claim_asks_for_the_job_of_its_module(config, toys):
    plan, jobs = checks(config, toys, studies=("toy.other",))
    assert set(jobs) == {"toy"}
    assert not plan.studies
    plan, jobs = checks(config, toys, studies=("toy.mean", "toy.other", "tiny.claim"))
    assert set(jobs) == {"toy"}
    assert [planned.study.name for planned in plan.studies] == ["tiny"]
    said = r"has no study or claim 'toy\.men'; did you mean 'toy\.mean'.*curvebench list"
    with pytest.raises(InputError, match=said):
        checks(config, toys, studies=("toy.men",))


def test_claims_that_were_neither_run_nor_published_are_told_with_what_they_cost(config, toys, tmp_path):
    assert not make_plan(config, toys.root).report.census
    assert make_plan(changed(config, studies=("tiny",)), toys.root).report.census == ()
    (tmp_path / "tour.yaml").write_text("studies: [toy.mean]")
    path = config.study_folder / "tiny.yaml"
    path.write_text(path.read_text().replace("    steps: 20", "    steps: 20\n    cost: an hour of a GPU"))
    census = make_plan(config, toys.root).report.census
    found = {claim.id: (claim.reason, claim.study, claim.cost) for claim in census}
    cost = "at scale quick an hour of a GPU"
    assert found["tiny.claim"] == ("neither run here nor published", "tiny", cost)
    assert "toy.mean" not in found


def test_a_paper_that_names_what_nothing_decides_is_refused(config, toys, tmp_path, monkeypatch):
    paper = "key: mine\nname: Mine\ntitle: Mine\nsentences:\n  - {place: 1, quote: 0, tested: 0, claim: %s}\n"
    for number, name in (("005", "tiny.claim"), ("006", "tiny.clam")):
        (tmp_path / number).mkdir()
        file = paper.replace(": 1", ": '1'").replace(": 0", ": '0'") % name
        (tmp_path / number / f"{number}.yaml").write_text(file)
    monkeypatch.setattr("curvebench.planning.plan.STUDY_FOLDER", config.study_folder)
    monkeypatch.setattr("curvebench.planning.plan.papers", lambda: papers(tmp_path / "005"))
    make_plan(config, toys.root)
    monkeypatch.setattr("curvebench.planning.plan.papers", lambda: papers(tmp_path / "006"))
    with pytest.raises(InputError, match=r"006\.yaml: .* has no claim 'tiny\.clam'; .* 'tiny\.claim'\?"):
        make_plan(config, toys.root)
    (config.study_folder / "bad.yaml").write_text("question: Why?\n")
    (tmp_path / "tour.yaml").write_text("studies: [tiny.claim]")
    assert {*make_plan(config, toys.root).broken} == {"bad"}, "the claim may be of the broken study"


def test_a_broken_study_stops_a_plan_only_if_it_is_chosen(config, toys, tmp_path):
    (config.study_folder / "bad.yaml").write_text("question: Why?\n")
    toys.write(("import numpy as np", "import numpyy as np"), name="late")
    (tmp_path / "tour.yaml").write_text("studies: [tiny.claim]")
    for chosen in (config, changed(config, studies=("tiny.claim", "toy.mean"))):
        plan = make_plan(chosen, toys.root)
        assert [study.study.name for study in plan.studies] == ["tiny"]
        assert {*plan.broken} == {"bad", "benchmarks/claims/late.py"}
        assert all(f"skipped {name}: {reason}" in plan.summary() for name, reason in plan.broken.items())
    for names in (("tiny.claim", "bad"), ("bad.claim",), ("late.mean",), ("all",)):
        with pytest.raises(InputError, match=r"bad.yaml: \w+: "):
            make_plan(changed(config, studies=names), toys.root)


def test_every_claim_of_the_sources_is_shown():
    names = {sentence.claim for paper in papers().values() for sentence in paper.sentences} - {""}
    assert Counter(name.partition(".")[0] for name in names) == {
        "egop": 43, "notes": 21, "spectral": 15, "symo": 14, "grokking": 1,
    }  # fmt: skip
    report = make_plan(read_config({})).report
    shown = {claim.id for plan in (report, *report.archive) for claim in claims_in(plan)}
    assert shown >= names


def claims_in(plan):
    checked = plan.checks.claims if plan.checks else ()
    return (*(claim for study in plan.studies for claim in study.claims), *checked, *plan.census)


def test_the_data_of_a_claim_are_part_of_its_job_and_without_them_it_is_skipped(config, toys, monkeypatch):
    toys.write(('_below_one, {"paper": 2}),)', '_below_one, {"paper": 2}),), workloads=("fashion_small",)'))
    there, jobs = checks(config, toys)
    spec = jobs["toy"].spec
    assert [workload.name for workload in spec.workloads] == ["fashion_small"]
    assert len([name for name in spec.sources if name.startswith("data:")]) == 4
    assert not any(claim.missing for claim in there.report.checks.claims)
    monkeypatch.delenv("CURVEBENCH_DATA")
    plan, jobs = checks(config, toys)
    assert jobs["toy"].spec.hash != spec.hash
    assert jobs["toy"].lanes == 1
    missing = {claim.id: claim.missing for claim in plan.report.checks.claims}
    assert "apt-get install dataset-fashion-mnist" in missing.pop("toy.other")
    assert not any(missing.values())
    assert plan.summary().count("Fashion-MNIST needs ") == 1
    assert "skipped toy.other: Fashion-MNIST needs " in plan.summary()


def test_the_plan_of_the_figures_of_claims_is_written(config, toys):
    plan, _ = checks(config, toys)
    write_specs(plan)
    figures = plan.report.checks.figures
    named = {"study": "claims", "scale": "quick", "hash": figures.suffix.removeprefix(".")}
    assert plan.snakemake.pattern("figures").format(**named) == str(figures)
    written = Path(plan.snakemake.pattern("figures plan").format(**named)).read_bytes()
    assert ReportPlan.model_validate_json(written).checks == plan.report.checks


def hashes(config, root):
    """Return the hashes of all jobs, tables and figures, by kind and name."""
    plan = make_plan(config, root)
    assert plan.report.checks is not None
    found = {"report": plan.report_path.name, "figures of claims": plan.report.checks.figures.name}
    for job in plan.jobs:
        who = job.spec.optimizers[0].name if len(job.spec.optimizers) == 1 else "several"
        found[f"{job.spec.stage} {who} {job.spec.backend}"] = job.spec.hash
    for planned in plan.studies:
        found["tables"], found["figures"] = planned.plan.tables.name, planned.plan.figures.name
    return found


ADAM = {"runs adam jax", "runs adam torch"}
TIMING = {"timing several jax", "timing several torch"}
PARITY = {"parity sgd all", "parity adam all"}
OF_OTHERS = {"parity several all"}  # compares all that no study has
CHECKS = {"checks late host", "checks toy host", "figures of claims", "report"}
FIGURES = {"figures", "figures of claims", "report"}
ALL = {"runs sgd jax", "runs sgd torch", "bases several host"}
ALL |= {*ADAM, *TIMING, *PARITY, *OF_OTHERS, *CHECKS, *FIGURES, "tables"}


DEPENDENT = {
    "optimizers/adam.py": ADAM | TIMING | {"parity adam all", "tables"} | OF_OTHERS | CHECKS | FIGURES,
    "workloads/digits.py": PARITY | CHECKS,  # whatever claims may find by name
    "curvebench/arrays/torch_ops.py": PARITY | OF_OTHERS | CHECKS,
    "workloads/convex.py": ALL,
    "optimizers/bases/egop.py": ALL - OF_OTHERS,  # parity problems of other rules are in no EGOP basis
    "reports/plan.py": FIGURES,
    "curvebench/spec/values.py": ALL,
    "curvebench/spec/plan.py": FIGURES | {"tables"},
    "benchmarks/claims/toy.py": CHECKS - {"checks late host"},
    "curvebench/property_checks/checks.py": CHECKS,
}


def test_code_changes_the_hashes_of_what_depends_on_it_and_prose_changes_none(config, toys):
    before = hashes(config, toys.root)
    assert before.keys() == ALL
    for path in (toys.root / file for file in DEPENDENT):
        assert path.read_text().startswith('"""')
        path.write_text(path.read_text().replace('"""', '"""In better words: ', 1) + "\n# a remark\n")
    assert hashes(config, toys.root) == before
    changed = {}
    for file in DEPENDENT:
        original = (toys.root / file).read_text()
        (toys.root / file).write_text(original + "\nADDED = 1\n")
        after = hashes(config, toys.root)
        changed[file] = {name for name in before if before[name] != after[name]}
        (toys.root / file).write_text(original)
    assert changed == DEPENDENT


def test_a_broken_module_of_claims_is_in_the_way_of_those_who_ask_for_all_claims(config, toys):
    toys.write(("CLAIMS = ", "CLAIM = "))
    for studies in (("tiny",), ("tiny.claim",)):
        assert not checks(config, toys, studies=studies)[1]
    with pytest.raises(InputError, match=r"benchmarks/claims/toy\.py: CLAIMS is not there"):
        checks(config, toys)


def test_a_name_means_one_thing_only(config, toys):
    toys.write(("toy.mean", "tiny.claim"))
    with pytest.raises(InputError, match=r"claims/toy\.py: the id 'tiny\.claim' is also in .*tiny\.yaml"):
        checks(config, toys)


def test_parsing_imports_neither_torch_nor_jax_nor_other_heavy_packages():
    heavy = ("torch", "jax", "scipy", "sklearn", "seaborn", "matplotlib", "pandas", "polars")
    code = (
        "import sys\nimport curvebench.planning.workflow\n"
        "from curvebench.planning.plan import make_plan, read_config\nmake_plan(read_config({}))\n"
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_data_folder_of_the_configuration_reaches_the_workloads(config, tmp_path, monkeypatch):
    monkeypatch.setenv("CURVEBENCH_DATA", "elsewhere")
    folders = {key: str(getattr(config, key)) for key in ("results", "site", "study_folder")}
    prepare({**folders, "data": str(tmp_path / "data")})
    assert os.environ["CURVEBENCH_DATA"] == str(tmp_path / "data")


def test_the_content_of_data_files_is_part_of_the_hash(tmp_path, monkeypatch):
    """Two folders of data give two sets of jobs, and no result of one is served for the other."""
    for number, folder in enumerate(("one", "other")):
        (tmp_path / folder).mkdir()
        for name in ("optdigits.tra", "optdigits.tes"):
            (tmp_path / folder / name).write_text(f"{number}\n")
    seen = []
    for folder in ("one", "other", "one"):
        monkeypatch.setenv("CURVEBENCH_DATA", str(tmp_path / folder))
        plan = make_plan(
            Config(scale="paper", studies=("digits_mlp",), study_folder=ROOT / "benchmarks/studies")
        )
        assert {"data:optdigits.tra", "data:optdigits.tes"} < set(plan.jobs[0].spec.sources)
        seen.append({job.spec.hash for planned in plan.studies for job in planned.jobs})
    assert seen[0] == seen[2]
    assert not seen[0] & seen[1]


def test_a_broken_study_is_in_the_way_of_those_who_ask_for_it_alone(config):
    (config.study_folder / "broken.yaml").write_text("question: ?\n")
    alone = changed(config, studies=("tiny",))
    assert [planned.study.name for planned in make_plan(alone).studies] == ["tiny"]
    for studies in ((), ("broken",)):
        with pytest.raises(InputError, match=r"broken\.yaml"):
            make_plan(changed(config, studies=studies))


def test_stored_kernel_results_are_part_of_what_is_shown(config):
    assert make_plan(config).report.kernels is None
    stored = config.results / "kernels" / "machine"
    stored.mkdir(parents=True)
    (stored / "machine.json").write_text("{}")
    assert make_plan(config).report.kernels is None, "no commit is measured yet"
    for name in ("aaaaaaaa-existing.json", "bbbbbbbb-existing.json"):
        (stored / name).write_text("{}")
    plan = make_plan(config)
    assert plan.report.kernels == config.results / "kernels"
    files = {str(path) for path in stored.iterdir()}
    assert len(files) == 3
    assert files <= {*plan.snakemake.site_inputs}, "the site is rendered anew when one of them changes"
