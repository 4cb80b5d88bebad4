"""Recomputed runs of a published set: agreement, differences, and how much a sample detects."""

from __future__ import annotations

import math
import random
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from curvebench.__main__ import main
from curvebench.commands.rerun import checks as rerun_checks
from curvebench.commands.rerun import runs as rerun
from curvebench.commands.rerun import sample as rerun_sample
from curvebench.engine.bundle import Bundle, Trajectories
from curvebench.engine.execution import execute
from curvebench.paths import PUBLISHED
from curvebench.planning.plan import prepare
from curvebench.property_checks.checks import claims_by_id
from curvebench.reports.sets.derived import read_set
from curvebench.reports.sets.publish import publish, renew
from curvebench.results.merging import merge
from curvebench.spec.errors import InputError
from curvebench.spec.plan import ReportPlan, read_plan
from curvebench.spec.sets import set_folders
from curvebench.stages.basis_jobs import estimate_bases
from curvebench.stages.job import Job
from curvebench.stages.jobs import run_job
from tests.curvebench.tiny import SEARCH, TWO_STAGES, write_study
from tests.reports.example_sets import CODE, changed, with_metric

SMALL = (
    ("      torch: {tuned_on: jax, seeds: {final: 2}}\n", ""),
    ("{tuning: 2, final: 3}", "{tuning: 1, final: 2}"),
)


def report(folder: Path, *changes: tuple[str, str]) -> ReportPlan:
    """Run the tiny study in a folder, and return its plan."""
    write_study(folder, (TWO_STAGES, SEARCH), *SMALL, *changes)
    places = {"results": str(folder / "results"), "site": str(folder / "site")}
    plan = prepare({"studies": "tiny", "study_folder": str(folder), **places})
    done = [run_job(job.spec_path, folder / "results") for job in plan.jobs if job.spec.stage != "timing"]
    shown = read_plan(plan.report_path)
    merge(done, shown.studies[0].tables)
    return shown


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run the tiny study, publish it, and return the folder of the set."""
    folder = tmp_path_factory.mktemp("tiny")
    return publish(report(folder, ("[sgd, adam]", "[adam]")), "tiny.quick", folder, CODE, ["dirty"])


@pytest.fixture(scope="module")
def plan(published: Path) -> ReportPlan:
    return read_set(published)


def sample_of(plan: ReportPlan, count: int | None, seed: int) -> rerun_sample.Sample:
    """Draw runs of a set as the command does."""
    tables = rerun_sample.drawable(plan)
    comparisons = rerun_sample.deciding(plan, tables)
    return rerun_sample.draw(comparisons, rerun_sample.places(tables), count, seed)


def row(plan: ReportPlan, **named: Any) -> dict[str, Any]:
    """Return the row of the first final run that has the given values."""
    runs = pl.read_parquet(plan.studies[0].tables / "runs.parquet")
    return runs.filter(pl.col("stage") == "final").filter(**named).row(0, named=True)


def scaled(items: list[dict[str, Any]], factor: float) -> list[dict[str, Any]]:
    return [{**item, "value": item["value"] * factor} for item in items]


def test_runs_as_they_were_agree_with_or_without_a_basis(plan: ReportPlan):
    for named in ({"basis": "egop"}, {"basis": "identity"}):
        cell = rerun.compute(plan.studies[0], plan.scale, row(plan, **named))
        assert (cell.differences, cell.missing) == ((), "")
        assert cell.largest is not None
        assert cell.largest <= 1.0
        assert "tiny: " in cell.name


def test_a_basis_has_its_runs_precision(plan: ReportPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    asked = []

    def estimated(job: Job) -> None:
        asked.append(vars(job.spec)["precision"])
        estimate_bases(job)

    monkeypatch.setattr("curvebench.commands.rerun.runs.estimate_bases", estimated)
    own = {**row(plan, basis="egop"), "dtype": "float32"}  # the precision differs from that of the workload
    rerun.run_cell(plan.studies[0], plan.scale, own, tmp_path, (0,))
    assert asked == ["float32"]


@pytest.fixture(scope="module")
def anew(plan: ReportPlan, tmp_path_factory: pytest.TempPathFactory) -> list[rerun.RunRecord]:
    """Recompute a run of Adam in the EGOP basis, and return its record with those of its twins."""
    own = row(plan, optimizer="adam", basis="egop")
    return rerun.run_cell(
        plan.studies[0], plan.scale, own, tmp_path_factory.mktemp("cell"), (0, *rerun.TWIN_ULPS)
    )


@pytest.mark.parametrize(
    ("column", "change", "told"),
    [
        ("final_metrics", lambda items: scaled(items, 1 + 1e-6), "final gradient_norm is"),
        ("best_metrics", lambda items: scaled(items, 0.5), "best gradient_norm is"),
        ("hyperparameters", lambda items: scaled(items, 0.9), "hyperparameters is"),
        ("outcome", lambda _: "diverged", "outcome is diverged, and recomputed"),
        ("steps", lambda steps: steps - 1, "steps is 19, and recomputed 20"),
        ("gradient_evaluations", lambda count: count // 2, "gradient_evaluations is 10"),
        ("basis_gradient_evaluations", lambda _: 0, "basis_gradient_evaluations is 0"),
    ],
)
def test_changed_runs_are_found(
    plan: ReportPlan, anew: list[rerun.RunRecord], column: str, change: Any, told: str
):
    own = row(plan, optimizer="adam", basis="egop")
    curve = pl.read_parquet(plan.studies[0].tables / "curves.parquet").filter(run=own["run"])
    found, _ = rerun.differences(rerun.record({**own, column: change(own[column])}, curve), anew)
    assert any(each.startswith(told) for each in found), found


@pytest.mark.parametrize(
    ("column", "change", "told"),
    [
        ("learning_rate", lambda rate: rate * 1.001, "train_loss at step 5 is"),
        ("seed", lambda seed: seed + 1, "train_loss at step 0 is"),
    ],
)
def test_a_run_at_another_setting_is_found(plan: ReportPlan, column: str, change: Any, told: str):
    own = row(plan, optimizer="adam", basis="egop")
    cell = rerun.compute(plan.studies[0], plan.scale, {**own, column: change(own[column])})
    assert any(each.startswith(told) for each in cell.differences), cell.differences


def test_a_final_run_at_another_setting_is_found(published: Path, plan: ReportPlan, tmp_path: Path):
    def moved_finals(runs: pl.DataFrame) -> pl.DataFrame:
        final = pl.col("stage") == "final"
        return runs.with_columns(
            learning_rate=pl.col("learning_rate") * pl.when(final).then(2.0).otherwise(1.0)
        )

    other = read_set(changed(published, tmp_path / "set", "tiny/runs.parquet", moved_finals))
    for named in ({"basis": "egop"}, {"basis": "identity"}):
        assert rerun.not_chosen(plan.studies[0], row(plan, **named)) == []
        (found,) = rerun.not_chosen(other.studies[0], row(other, **named))
        assert found.startswith("learning_rate are (")
    tuned = rerun_sample.drawable(other)[0].filter(stage="tuning").row(0, named=True)
    assert rerun.not_chosen(other.studies[0], tuned) == []


def test_what_differs_is_told_with_the_options_that_the_plan_does_not_name(
    plan: ReportPlan, anew: list[rerun.RunRecord], monkeypatch: pytest.MonkeyPatch
):
    """If the runs differ, options are named that a rule, a basis or a workload lacks in the plan."""
    monkeypatch.setattr("curvebench.commands.rerun.runs.run_cell", lambda *_: anew)
    (study,), own = plan.studies, row(plan, basis="egop")
    adam, *others = study.optimizers
    options = {name: value for name, value in adam.options.items() if name != "nesterov"}
    older = study.model_copy(update={"optimizers": (replace(adam, options=options), *others)})
    said = "the plan names no nesterov, option of adam: recomputed with its present default, False"
    assert rerun.compute(older, plan.scale, own).differences == ()
    assert rerun.compute(older, plan.scale, {**own, "steps": 19}).differences[1:] == (said,)
    assert len(rerun.compute(study, plan.scale, {**own, "steps": 19}).differences) == 1


def test_what_cannot_be_computed_is_told_and_is_no_difference(plan: ReportPlan):
    study = plan.studies[0]
    named = (replace(study.optimizers[0], locator="elsewhere:nothing"),)
    lost = study.model_copy(update={"optimizers": named})
    cell = rerun.compute(lost, plan.scale, row(plan, optimizer="adam"))
    assert cell.differences == ()
    assert "elsewhere" in cell.missing


@pytest.mark.parametrize(
    ("stage", "function", "error"),
    [("run_jobs", "execute", MemoryError("40 GiB")), ("job", "estimate", ImportError("no libgomp"))],
)
def test_a_machine_that_cannot_compute_accuses_nobody(
    published: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    stage: str,
    function: str,
    error: Exception,
):
    def fails(*_: object) -> None:
        raise error

    monkeypatch.setattr(f"curvebench.stages.{stage}.{function}", fails)
    plan = read_set(published)
    cell = rerun.compute(plan.studies[0], plan.scale, row(plan, basis="egop"))
    assert cell.differences == ()
    assert str(error) in cell.missing
    if function == "execute":
        assert main(["sets", "check", str(published), "--rerun", "1"]) == 3
        said = capsys.readouterr().out
        assert "0 of 0 agree, 0 differ, 1 cannot be computed" in said
        assert "invented" not in said


def test_a_method_that_always_fails_is_never_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def broken(bundle: Bundle, *rest: Any) -> Trajectories:
        if bundle.rule.name == "sgd":
            raise MemoryError("40 GiB")
        return execute(bundle, *rest)

    monkeypatch.setattr("curvebench.stages.run_jobs.execute", broken)
    egop = ", {egop: {blocks: all, samples: 2.0 d, sampling: {normal: 1.0}}}"
    shown = report(tmp_path, (egop, ""), ("[adam @ egop], compared_to: [adam]", "[adam], compared_to: [sgd]"))
    with pytest.raises(InputError, match=r"(?s)1 of \d jobs failed, such as sgd .*waive=failures"):
        publish(shown, "tiny.quick", tmp_path, CODE, ["dirty"])
    made = publish(shown, "tiny.quick", tmp_path, CODE, ["dirty", "failures"])
    assert main(["sets", "check", str(made)]) == 0
    assert "1 of 2 jobs failed" in (made / "README.md").read_text()
    assert set(rerun_sample.drawable(read_set(made))[0]["optimizer"]) == {"adam"}


def test_the_same_seed_draws_the_same_runs_and_none_twice(plan: ReportPlan):
    drawn = [sample_of(plan, 5, seed).places for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    every = sample_of(plan, 10**6, 0).places
    assert sorted(every) == sorted(set(every)) == rerun_sample.places(rerun_sample.drawable(plan))


def test_a_rerun_finds_invented_tuning(published: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """A set has no curves of tuning runs, so that only a rerun finds invented values."""

    def invented(runs: pl.DataFrame) -> pl.DataFrame:
        better = with_metric(runs, "gradient_norm", pl.element().struct.field("value") * 0.9)
        tuned = pl.col("stage") != "final"
        return runs.with_columns(final_metrics=pl.when(tuned).then(better).otherwise(pl.col("final_metrics")))

    false = changed(published, tmp_path / "false", "tiny/runs.parquet", invented)
    assert main(["sets", "check", str(false)]) == 0
    assert main(["sets", "check", str(false), "--rerun", "3", "--seed", "0"]) == 1
    said = capsys.readouterr().out
    assert "recomputing 3 runs and 0 subclaims, sampled with --seed 0" in said
    assert "final gradient_norm is" in said
    assert main(["sets", "check", str(published), "--rerun", "1"]) == 0
    assert "1 of 1 agree, 0 differ, 0 cannot be computed" in capsys.readouterr().out


def published_sets() -> list[Path]:
    """Return published sets with comparisons that decide claims, and few enough runs to be read quickly."""
    folders = [
        folder for folder in set_folders(PUBLISHED) if pl.read_parquet(folder / "findings.parquet").height
    ]
    return [folder for folder in folders if folder.name.startswith(("egop-linear", "egop-fashion", "symo"))]


@pytest.mark.parametrize("folder", published_sets(), ids=lambda folder: folder.name)
def test_sixty_runs_contain_one_of_each_arm_of_each_deciding_comparison(folder: Path):
    plan = read_set(folder)
    tables = rerun_sample.drawable(plan)
    comparisons, runs = rerun_sample.deciding(plan, tables), rerun_sample.places(tables)
    verdicts = pl.read_parquet(folder / "claims.parquet").filter(pl.col("verdict") != "not run")
    assert len(comparisons) >= len(verdicts)
    for seed in range(20):
        sample = rerun_sample.draw(comparisons, runs, 60, seed)
        assert len(sample.places) == min(60, len(runs))
        assert all(arm & {*sample.places} for comparison in comparisons for arm in comparison.arms)
        for comparison in comparisons:
            available = comparison.compared.union(*comparison.tuning)
            assert len(available & {*sample.places}) >= min(rerun_sample.CELLS, len(available))


def test_a_sample_says_of_how_many_comparisons_and_methods_it_has_runs():
    generator, runs = random.Random(0), [(0, number) for number in range(400)]
    arms = [frozenset(generator.sample(runs, 8)) for _ in range(8)]
    comparisons = [rerun_sample.Deciding((arms[n], arms[(n + 1) % 8]), ()) for n in range(8)]
    for seed in range(20):
        sample = rerun_sample.draw(comparisons, runs, 30, seed)
        whole, single = sample.enough
        assert whole <= 4 < single <= 8, "a run of an arm counts for both comparisons of the arm"
        for number, covered in ((whole, 8), (single, 8)):
            drawn = {*sample.places[:number]}
            assert sum(bool(each.compared & drawn) for each in comparisons) == covered
        first, *more = sample.power(sample.places[:single])
        assert "runs of 8 of 8 comparisons that decide claims, and of 8 of 8 methods in them" in first
        assert more == []
        _, hint, *_ = sample.power(sample.places[:1])
        assert (
            hint == f"--rerun {whole} has a run of each comparison, and --rerun {single} a run of each method"
        )


@pytest.mark.parametrize(("count", "drawn"), [(2, 2), (60, 6)])
def test_only_runs_of_a_claim_are_drawn_for_it(count: int, drawn: int):
    arms = [frozenset((0, 10 * arm + number) for number in range(10)) for arm in range(4)]
    comparisons = [rerun_sample.Deciding((one,), (other,)) for one, other in (arms[:2], arms[2:])]
    sample = rerun_sample.draw(comparisons, [], count, 0)
    assert len(sample.places) == drawn
    assert {*sample.places} <= frozenset().union(*arms)
    assert not any("all runs of the set" in line for line in sample.power(sample.places))


def test_a_claim_that_is_not_reproduced_rests_on_a_refuted_comparison_of_each_condition():
    findings = pl.DataFrame(
        {
            "condition": [0, 0, 1, 2, 0],
            "positive_control": [False] * 5,
            "finding": ["refuted", "refuted", "refuted", "supported", "refuted"],
            "refuting_p_value": [0.04, 0.01, 0.03, 1.0, 0.001],
            "p_value": [1.0, 0.9, 0.8, 0.01, 1.0],
            "seeds": [9, 9, 9, 0, 0],
            "deciding": [False, True, False, False, False],
            "at_edge": [[], [], None, [], [{"limit": "highest"}]],  # the last one refutes nothing
        }
    )
    refuted = rerun_sample._deciding(findings, "not reproduced")
    assert refuted["refuting_p_value"].to_list() == [0.01, 0.03]
    assert rerun_sample._deciding(findings, "depends on search")["seeds"].to_list() == [9, 9, 9]


@pytest.mark.parametrize(
    ("seeds", "found", "deciding"),
    [
        (7, ["supported", "inconclusive", "inconclusive", "supported"], [0, 1, 2]),
        (5, ["supported", "inconclusive", "inconclusive", "supported"], []),
        (5, ["supported", "inconclusive", "supported", "supported"], [1]),
        (5, ["supported", "supported", "supported", "refuted"], [3]),
    ],
)
def test_an_underpowered_claim_rests_on_what_can_be_refuted_or_is_last(
    seeds: int, found: list[str], deciding: list[int]
):
    """With three comparisons, 5 pairs cannot refute: 3 / 32 is above 5 %. The fourth one is a control."""
    keys = {"condition": range(4), "positive_control": [False] * 3 + [True], "finding": found}
    rows = rerun_sample._deciding(pl.DataFrame({**keys, "seeds": seeds}), "underpowered")
    assert rows["condition"].to_list() == deciding


def test_a_run_that_many_comparisons_share_is_drawn_first():
    shared, own = frozenset({(0, 0)}), [frozenset({(0, number)}) for number in range(1, 9)]
    comparisons = [rerun_sample.Deciding((shared, arm), ()) for arm in own]
    for seed in range(20):
        sample = rerun_sample.draw(comparisons, [], 1, seed)
        assert sample.places == ((0, 0),)
        assert sample.enough == (1, 9)


CLAIM = "egop.natural-data"  # a claim that is not reproduced, and whose instances are cheap


@pytest.fixture(scope="module")
def checked() -> ReportPlan:
    """Return the plan of the published set that has the claim `CLAIM`."""
    plans = [read_set(folder) for folder in set_folders(PUBLISHED) if (folder / "checks").exists()]
    (plan,) = [plan for plan in plans if plan.checks and CLAIM in {claim.id for claim in plan.checks.claims}]
    return plan


def compute(subclaim: rerun_checks.Subclaim, measures: pl.DataFrame, *numbers: int) -> rerun.Reexecution:
    claim = claims_by_id()[subclaim[0]][1]
    return rerun_checks.compute(claim, subclaim, measures, list(numbers) or None)


def test_instances_are_recomputed_from_their_seeds(checked: ReportPlan):
    subclaims = rerun_checks.read_subclaims(checked, CLAIM)
    assert {subclaim[0] for subclaim in subclaims} == {CLAIM}
    violated = 0
    for subclaim, measures in subclaims.items():
        result = compute(subclaim, measures, 0, 7)
        assert (result.differences, result.missing) == ((), "")
        violating = measures.filter(~pl.col("holds"))
        if len(violating):
            violated += 1
            at = violating["instance"][0]
            satisfied = measures.with_columns(value=pl.col("limit"), holds=pl.lit(value=True))
            (difference,) = compute(subclaim, satisfied, at).differences[:1]
            assert f"of instance {at}: " in difference
            loose = measures.with_columns(limit=pl.col("value"), holds=pl.lit(value=True))
            assert compute(subclaim, loose, at).differences
        elsewhere = measures.with_columns(value=pl.col("value") * 1.5)  # decides the same
        assert not compute(subclaim, elsewhere, 0).differences
        assert compute(subclaim, measures.with_columns(quantity=pl.lit("other")), 0).differences
        other = measures.with_columns(rule_of_runs=pl.lit("0123456789abcdef"))
        assert "decision rule" in compute(subclaim, other, 0).missing
    assert violated


def test_every_subclaim_is_drawn_and_violated_ones_by_their_worst_instance(checked: ReportPlan):
    subclaims = rerun_checks.read_subclaims(checked, None)
    drawn, enough = rerun_checks.draw(checked, subclaims, 60, 1)
    assert drawn.keys() == subclaims.keys()
    assert 0 < enough <= 60
    few, _ = rerun_checks.draw(checked, subclaims, 2, 1)
    assert len(few) == len(subclaims) - enough + 2
    assert rerun_checks.draw(checked, subclaims, None, 1)[0] == dict.fromkeys(subclaims)
    for subclaim, numbers in drawn.items():
        violating = subclaims[subclaim].filter(~pl.col("holds"))
        if numbers is not None and len(violating):
            assert violating.filter(instance=numbers[0])["share"].max() == violating["share"].max()


def test_a_claim_is_recomputed_by_itself(
    checked: ReportPlan, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    copy = shutil.copytree(checked.path.parent, tmp_path / checked.path.parent.name)
    renew(copy, CODE, {}, {})  # to the rules of this checkout
    folder = str(copy)
    assert main(["sets", "check", folder, "--claim", CLAIM]) == 0
    assert "0 differ, 0 cannot be computed" in capsys.readouterr().out
    assert main(["sets", "check", folder, "--claim", "egop.nothing"]) == 2
    assert "has no run to recompute that decides egop.nothing" in capsys.readouterr().err


@pytest.mark.parametrize(("count", "share"), [(0, 1.0), (1, 0.95), (29, 0.098)])
def test_the_share_of_invented_runs_that_a_sample_finds(count: int, share: float):
    assert rerun_sample.detectable_share(count) == pytest.approx(share, rel=0.01)
    assert (1 - rerun_sample.detectable_share(count)) ** count <= 0.05 + 1e-12 or count == 0


@pytest.mark.parametrize(
    ("said", "values", "growth", "dtype", "right"),
    [
        (1.0 + 1e-12, [1.0, 1.0], 0.0, "float64", True),  # another machine's rounding
        (1.0 + 1e-6, [1.0, 1.0], 0.0, "float64", False),
        (1.0 + 1e-5, [1.0, 1.0], 0.0, "float32", True),
        (1.0 + 1e-2, [1.0, 1.0], 0.0, "float32", False),
        (1.45, [1.0, 0.9], 0.0, "float32", True),  # rounding moved a twin as far: the run is chaotic
        (1.6, [1.0, 0.9], 0.0, "float32", False),
        (1.01, [1.0, 1.0], 0.01, "float32", True),  # it was so before
        (1e-17, [-1e-17, 1e-17], 0.0, "float64", True),
        (math.nan, [1.0, math.nan], 0.0, "float64", True),
        (math.nan, [1.0, 2.0], 0.0, "float64", False),
        (math.inf, [math.nan, 1.0], 0.0, "float64", False),
        (1.0, [math.nan, math.inf], 0.0, "float64", False),
        (0.5, [math.nan, 0.5], 0.0, "float64", True),
    ],
)
def test_what_rounding_may_change(said: float, values: list[float], growth: float, dtype: str, right: bool):
    assert (rerun.excess(said, values, 1.0, growth, dtype) <= 1.0) is right


def test_a_stop_may_differ_by_five_times_the_distance_of_a_twin():
    def lane(steps: int) -> rerun.RunRecord:
        row = {"outcome": "reached", "outcome_step": steps, "steps": steps, "dtype": "float64", "targets": []}
        row |= {"gradient_evaluations": 9, "examples": 9, "basis_gradient_evaluations": 0}
        return rerun.RunRecord(row | {"hyperparameters": [], "final_metrics": [], "best_metrics": []}, {})

    assert rerun.differences(lane(108), [lane(100), lane(102)]) == ([], 0.0)
    found, _ = rerun.differences(lane(111), [lane(100), lane(102)])
    assert found[0] == "outcome_step is 111, and recomputed 100"
    found, _ = rerun.differences(lane(101), [lane(100), lane(100)])
    assert found[0] == "outcome_step is 101, and recomputed 100"


def test_steps_to_targets_are_those_of_the_repetition(anew: list[rerun.RunRecord]):
    first, *twins = anew

    def found(targets: list[dict[str, Any]]) -> list[str]:
        row = {**first.row, "targets": targets}
        lanes = [rerun.RunRecord({**lane.row, "targets": [reached]}, lane.values) for lane in (first, *twins)]
        return rerun.differences(rerun.RunRecord(row, first.values), lanes)[0]

    reached = {"metric": "train_loss", "threshold": 0.1, "steps": 7}
    assert found([reached]) == []
    assert found([{**reached, "steps": 8}]) == ["steps to the target of train_loss are 8, and recomputed 7"]
    assert found([{**reached, "steps": None}])[0].endswith("are None, and recomputed 7")
    assert found([]) == ["targets are [], and recomputed [('train_loss', 0.1)]"]
    assert found([{**reached, "threshold": 0.2}])[0].startswith("targets are [('train_loss', 0.2)]")


def test_twins_differ_by_units_in_the_last_place():
    assert rerun.moved(0.1, 0, "float64") == 0.1
    assert 0 < rerun.moved(0.1, 1, "float64") - 0.1 < 1e-16
    assert rerun.moved(0.1, -4, "float32") == pytest.approx(0.1, rel=1e-6)
