"""Checking a set: what is accepted, and what is refused with which reason."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from harness import foreign
from harness.study_file import MOST_TUNING_SEEDS
from reports.publish import disagreements
from results.__main__ import main
from results.check_flaws import of_checks
from results.checking import judged, unchecked, unfounded
from results.publishing import all_jobs, provenance_of, seal
from results.schema import CHECKS
from results.set_plan import (
    FIRST_FINAL_SEED,
    LIBRARIES,
    ChecksPart,
    Claim,
    PlannedStudy,
    Rule,
    SetPlan,
)
from results.verdicts import RULE_VERSION, rule_hash
from tests.reports.sets import Change, changed, scaled, with_metric, write_set

Frame = pl.DataFrame
FOLDERS = ("digits_mlp", "convex", "parity", "checks")


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A set that nothing is wrong with."""
    return write_set(tmp_path_factory.mktemp("good"), "good.quick")


@pytest.fixture
def copy(good: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    shutil.copytree(good, tmp_path / "set")
    return tmp_path / "set"


def test_a_good_set_is_accepted(good: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["check", str(good)]) == 0
    said = capsys.readouterr().out
    assert said.startswith(
        f"{good}: accepted\n  not checkable: digits_mlp/runs.parquet: metrics and steps to targets of "
    )
    assert "not checkable: parity/parity.parquet: first_step and difference of 24 comparisons" in said


def test_a_result_that_contradicts_a_record_is_accepted_like_any_other(good: Path, tmp_path: Path):
    contrary = write_set(tmp_path, "contrary.quick", runs=scaled("adam", 1e3))
    verdicts = [
        pl.read_parquet(folder / "claims.parquet").filter(claim="egop.digits_mlp", backend="jax")["verdict"][
            0
        ]
        for folder in (good, contrary)
    ]
    leaders = [pl.read_parquet(folder / "leaderboard.parquet")["method"][0] for folder in (good, contrary)]
    assert leaders[0] != leaders[1]
    assert verdicts[0] == "reproduced"
    assert unfounded(contrary) == []
    assert disagreements(contrary) == []


# --- files ---------------------------------------------------------------------------------------


def test_changed_missing_and_further_files_are_told_all_at_once(
    copy: Path, capsys: pytest.CaptureFixture[str]
):
    (copy / "LICENSE").write_text("mine")
    (copy / "convex/jobs.parquet").unlink()
    (copy / "notes.txt").write_text("see")
    (copy / "link.parquet").symlink_to("/etc/passwd")
    assert main(["check", str(copy)]) == 1
    said = capsys.readouterr().out
    assert "refused, 4 reasons" in said
    for told in (
        "LICENSE: is not the file",
        "jobs.parquet: is missing",
        "notes.txt: is not among",
        "link.parquet: a link",
    ):
        assert told in said


def test_checksums_do_not_excuse_a_file_that_no_set_has(copy: Path):
    (copy / "convex/sitecustomize.py").write_text("raise SystemExit")
    (copy / "convex/runs.parquet").unlink()
    seal(copy)
    found = "\n".join(unfounded(copy))
    assert "convex/sitecustomize.py: a set has no such file" in found
    assert "convex/runs.parquet: a set needs this file" in found


def test_nothing_of_a_set_is_executed(copy: Path, monkeypatch: pytest.MonkeyPatch):
    for name in ("reports", "polars", "sitecustomize"):
        (copy / f"{name}.py").write_text(f"open({str(copy / 'ran')!r}, 'w')")
    seal(copy)
    monkeypatch.chdir(copy)
    assert len(judged(copy)[1]) == 3
    for name in ("reports", "polars", "sitecustomize"):
        (copy / f"{name}.py").unlink()
    seal(copy)
    assert judged(copy) == ("accepted", [])
    assert not (copy / "ran").exists()


@pytest.mark.parametrize("text", ["", "nonsense\n", "0123  README.md\n"])
def test_checksums_that_are_none_are_refused(copy: Path, text: str):
    (copy / "SHA256SUMS").write_text(text)
    assert unfounded(copy)


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path):
    assert judged(tmp_path / "gone")[1] == [f"{tmp_path / 'gone'}: no such folder"]


def test_damaged_tables_and_texts_are_named(copy: Path):
    (copy / "convex/runs.parquet").write_bytes(b"PAR1")
    (copy / "digits_mlp/timings.parquet").write_bytes((copy / "digits_mlp/memory.parquet").read_bytes())
    (copy / "provenance.json").write_text("{")
    seal(copy)
    found = "\n".join(unfounded(copy))
    assert "convex/runs.parquet: not a whole Parquet file" in found
    assert "delete" not in found
    assert "get the set's folder again from where it comes from" in found
    assert "digits_mlp/timings.parquet: column phase is missing" in found
    assert "provenance.json: cannot be read as JSON" in found


@pytest.mark.parametrize(
    "text", ["{}", '{"published": "a", "studies": [3]}', '{"published": "a", "studies": 3}', "[]"]
)
def test_a_plan_that_is_none_is_refused(copy: Path, text: str):
    (copy / "plan.json").write_text(text)
    seal(copy)
    assert any(complaint.startswith(("plan.json", "convex")) for complaint in unfounded(copy))


# --- tables --------------------------------------------------------------------------------------


def first(frame: Frame, **values: Any) -> Frame:
    """The table with some values of its first final run replaced; of another table of its first row."""
    stage = pl.col("stage") == "final" if "outcome" in frame.columns else pl.lit(value=True)
    number = pl.int_range(pl.len())
    here = number == number.filter(stage).min()
    return frame.with_columns(
        pl.when(here).then(pl.lit(value, dtype=frame.schema[name])).otherwise(pl.col(name)).alias(name)
        for name, value in values.items()
    )


def infinite(runs: Frame) -> Frame:
    whole = pl.col("outcome") != "diverged"
    bad = with_metric(runs, "train_loss", pl.lit(float("inf")))
    return runs.with_columns(final_metrics=pl.when(whole).then(bad).otherwise(pl.col("final_metrics")))


def one(**values: Any) -> Change:
    """What replaces values of the first row."""
    return lambda frame: first(frame, **values)


def every(**values: Any) -> Change:
    """What replaces values of all rows."""
    return lambda frame: frame.with_columns(
        pl.lit(value, dtype=pl.String).cast(frame.schema[name]).alias(name)
        if isinstance(frame.schema[name], pl.Enum)
        else pl.lit(value, dtype=frame.schema[name]).alias(name)
        for name, value in values.items()
    )


def without(**values: Any) -> Change:
    """What leaves out the rows that have all these values."""
    return lambda frame: frame.filter(
        ~pl.all_horizontal(pl.col(name).cast(pl.String) == str(value) for name, value in values.items())
    )


def bests(factor: float) -> Change:
    """What multiplies the best training losses."""
    best = pl.element().struct
    value = pl.when(best.field("name") == "train_loss").then(factor).otherwise(1.0) * best.field("value")
    each = pl.struct(best.field("name"), value.alias("value"), best.field("step"))
    return lambda runs: runs.with_columns(pl.col("best_metrics").list.eval(each))


def timed(seconds: float | None, kind: str = "modelled") -> Change:
    """What says that reaching the target took every run that reached it so many seconds."""
    target = pl.element().struct
    was = target.field("seconds").is_not_null()
    said = pl.when(was).then(pl.lit(seconds, dtype=pl.Float64)).otherwise(target.field("seconds"))
    of = pl.when(was).then(pl.lit(kind if seconds is not None else None, dtype=pl.String))
    each = pl.struct(
        target.field("metric", "threshold", "steps"),
        said.alias("seconds"),
        of.otherwise(target.field("seconds_kind")).alias("seconds_kind"),
    )
    return lambda runs: runs.with_columns(pl.col("targets").list.eval(each))


def reached(steps: int, threshold: float = 0.9) -> Change:
    """What says that every target was met at a step."""
    said = {"metric": "validation_accuracy", "threshold": threshold, "steps": steps}
    target = [said | {"seconds": None, "seconds_kind": None}]
    return lambda runs: runs.with_columns(
        targets=pl.Series([target] * len(runs), dtype=runs.schema["targets"])
    )


def middle(curves: Frame) -> Frame:
    """Better values at a step that is not the last."""
    return curves.with_columns(
        value=pl.when(pl.col("step") == 20).then(pl.col("value") * 1e-6).otherwise("value")
    )


def where(said: pl.Expr, **values: Any) -> Change:
    """What replaces values, or takes them from expressions, of the rows of which something is said."""

    def change(frame: Frame) -> Frame:
        new = {
            name: value if isinstance(value, pl.Expr) else pl.lit(value).cast(frame.schema[name])
            for name, value in values.items()
        }
        return frame.with_columns(
            pl.when(said).then(value).otherwise(pl.col(name)).alias(name) for name, value in new.items()
        )

    return change


FINAL, WHOLE = pl.col("stage") == "final", pl.col("outcome") != "diverged"
IN_BASIS, SECOND = pl.col("basis") != "identity", pl.col("optimizer") == "adagrad"


STRANGER = "without provenance: jobs.parquet has no job"
FLAWS: dict[str, tuple[str, Change, str]] = {
    "a run of no job": ("runs", one(spec_hash="f" * 16), STRANGER),
    "a run of another machine": ("runs", one(machine="m9"), STRANGER),
    "a timing of no job": ("timings", one(spec_hash="f" * 16), STRANGER),
    "a memory of no job": ("memory", one(spec_hash="f" * 16), STRANGER),
    "a stage of no job": (
        "runs",
        every(stage="refine"),
        "no job 0000000000000002 of stage refine on machine",
    ),
    "methods that changed names": (
        "runs",
        lambda frame: frame.with_columns(pl.col("optimizer").replace({"sgd": "adam", "adam": "sgd"})),
        ", optimizer adam, backend jax; ",
    ),
    "a timing of another backend": ("timings", one(backend="torch"), ", backend torch"),
    "a final run that did not finish": (
        "runs",
        where(FINAL, outcome="interrupted", steps=50),
        "outcome is interrupted; a job that fails leaves no runs",
    ),
    "a run in another precision": (
        "runs",
        one(dtype="float64"),
        "dtype is float64, and should be float32, as of other runs on digits_mlp",
    ),
    "a run twice": (
        "runs",
        lambda frame: pl.concat([frame, frame[:1]]),
        "run run-00000 (sgd on digits_mlp, jax, seed 0): has more than one row; one is wanted",
    ),
    "a seed twice": ("runs", one(seed=1001), "more than one final run of seed 1001"),
    "a tuning seed that judges": ("runs", one(seed=0), "a seed that tuned judges as well"),
    "an infinite loss": ("runs", infinite, "final train_loss is inf and outcome budget"),
    "no metrics": ("runs", every(final_metrics=[]), "outcome is budget, and there are no final metrics"),
    "diverged nowhere": (
        "runs",
        every(outcome_step=None),
        "outcome is diverged, and outcome_step is missing",
    ),
    "another study": ("runs", one(study="mnist"), "study is mnist, and should be digits_mlp"),
    "a curve of no run": ("curves", one(run="elsewhere"), "run elsewhere: runs.parquet does not have it"),
    "a final metric edited": ("runs", scaled("adam", 0.5), "and the curve ends at 0.0003791949389; 29 more"),
    "a best that is none": (
        "runs",
        bests(1e3),
        "best train_loss is 1504.172827, worse than the last, 1.504172827",
    ),
    "a best of no curve": (
        "runs",
        bests(1e-3),
        "and the curve has 1.782977602 there and at best 1.782977602",
    ),
    "a target forged": ("runs", reached(1), "is reached at step 1, and by the curve not reached"),
    "another target": (
        "runs",
        reached(1, 0.5),
        "target of validation_accuracy is 0.5, and plan.json has 0.9",
    ),
    "no curves": (
        "curves",
        lambda frame: frame[:0],
        "train_loss has no curve; it should go from step 0 to 40",
    ),
    "a curve edited": ("curves", middle, "at step 20, and the curve has 1.782977602e-06 there"),
    "a curve cut": ("curves", without(step=0), "goes from step 5 to 40, and should go from 0 to 40"),
    "a point twice": ("curves", lambda frame: pl.concat([frame, frame[:1]]), "has more than one row"),
    "free gradients": ("runs", one(gradient_evaluations=0), "is 0, fewer than the 40 steps"),
    "seconds forged": ("runs", timed(0.5), "are 0.5 (modelled), and steps times the median step in timings"),
    "seconds of no kind": ("runs", timed(0.5, kind="guessed"), "are 0.5 (guessed), and steps times"),
    "seconds left out": ("runs", timed(None), "are missing (of no kind), and steps times the median step"),
    "seconds never measured": ("runs", timed(0.5, kind="measured"), "the run was not timed alone"),
    "other seconds measured": (
        "runs",
        lambda frame: timed(0.5, kind="measured")(frame).with_columns(seconds=pl.lit(1.0)),
        "said to be measured, 0.5, and the curve has missing at step",
    ),
    "faster timings": (
        "timings",
        lambda frame: frame.with_columns(pl.col("seconds") / 2),
        "and steps times the median step in timings.parquet gives 0.04008224002 (modelled)",
    ),
    "said to have diverged": (
        "runs",
        where(FINAL & WHOLE, outcome="diverged", outcome_step=pl.col("steps")),
        "outcome is diverged, and train_loss ends at 0.1034577177; that of a run that diverged ends",
    ),
    "diverged elsewhere": (
        "runs",
        where(~WHOLE, outcome_step=20),
        "outcome is diverged with outcome_step 20, and should be with the run's last step, 40",
    ),
    "said to have failed": (
        "runs",
        where(FINAL & WHOLE, outcome="out_of_memory"),
        "outcome is out_of_memory; a job that fails leaves no runs",
    ),
    "a tuning run said to have failed": (
        "runs",
        where(~FINAL & WHOLE, outcome="error"),
        "outcome is error; a job that fails leaves no runs",
    ),
    "said to have reached nothing": (
        "runs",
        where(pl.col("outcome") == "reached", outcome="budget"),
        "outcome is budget with outcome_step 80, and the first target is reached at step 80; a run that",
    ),
    "reached elsewhere": (
        "runs",
        where(FINAL & (pl.col("outcome") == "reached"), outcome_step=5),
        "outcome is reached with outcome_step 5, and the first target is reached at step",
    ),
    "half of the budget": (
        "runs",
        where(FINAL & WHOLE & SECOND, steps=50, gradient_evaluations=50, examples=1500),
        "outcome is reached after 50 steps, and should be after 100, the planned steps",
    ),
    "more than the budget": ("runs", where(WHOLE, steps=200), "after 200 steps, and should be after 100"),
    "gradients times 1000": (
        "runs",
        where(WHOLE, gradient_evaluations=pl.col("gradient_evaluations") * 1000),
        "gradient_evaluations is 100000, and should be 100, 1 for each of 100 gradients",
    ),
    "gradients of a curve": (
        "curves",
        where(pl.col("step") == 20, gradient_evaluations=19),
        "gradient_evaluations is 19, and should be 20, 1 for each of 20 gradients",
    ),
    "gradients of all curves": (
        "curves",
        lambda frame: frame.with_columns(pl.col("gradient_evaluations") * 2, pl.col("examples") * 2),
        "gradient_evaluations is 40, and the curve ends with 80",
    ),
    "fewer examples": (
        "runs",
        where(WHOLE, examples=100),
        "examples is 100, and should be 3000: 100 gradients of 30 examples each",
    ),
    "a basis charged to none": (
        "runs",
        every(basis_gradient_evaluations=60),
        "is 60, and should be 0, as of every run in the basis identity on digits_mlp",
    ),
    "seconds of no basis": ("runs", where(~IN_BASIS, basis_seconds=1.0), "is 1, and should be 0: the basis"),
    "a cheaper basis for one": (
        "runs",
        where(IN_BASIS & SECOND, basis_gradient_evaluations=6),
        "basis_gradient_evaluations is 6, and should be 60, as of every run in the basis egop on digits_mlp",
    ),
    "a free basis": (
        "runs",
        where(IN_BASIS, basis_gradient_evaluations=0),
        "basis_gradient_evaluations is 0, and should be 1",
    ),
    "a rate not chosen": (
        "runs",
        where(FINAL & SECOND, learning_rate=0.03),
        "adagrad on digits_mlp, jax: learning_rate 0.03, and tuning on jax chose learning_rate 0.1: the best",
    ),
    "a seed left out": ("runs", without(seed=1003), "sgd on digits_mlp, jax: missing: seeds 1003"),
    "a method left out": ("runs", without(optimizer="adam"), "final runs of adam on digits_mlp"),
    "no tuning": ("runs", without(stage="sweep"), "0 settings and seeds, and 15 were planned"),
    "less tuning": ("runs", without(stage="sweep", seed=2), "10 settings and seeds, and 15 were planned"),
    "a rate not tried": ("runs", one(learning_rate=12.3), "one is wanted, of those that were tried on jax"),
    "another scale": ("timings", every(scale="paper"), "scale is paper, and the set's quick"),
    "another processor": ("jobs", every(cpu="Xeon"), "and Xeon with 2 cores and no GPU is called"),
    "a job twice": ("jobs", lambda frame: pl.concat([frame, frame[:1]]), "has more than one row"),
    "a timing twice": ("timings", lambda frame: pl.concat([frame, frame[:1]]), "has more than one row"),
    "a negative memory": ("memory", one(host_peak_bytes=-1), "host_peak_bytes is -1, and should be"),
    "a negative second": ("timings", one(seconds=-1.0), "seconds is -1, and should be a number"),
    "no processor": ("jobs", every(cpu=None), "and cpu missing; both must be there"),
    "no commit": ("jobs", every(commit="main"), "commit is 'main', and should be 40 hexadecimal digits"),
}


@pytest.mark.parametrize("flaw", FLAWS)
def test_a_flaw_in_a_table_is_refused(good: Path, tmp_path: Path, flaw: str):
    table, change, told = FLAWS[flaw]
    found = unfounded(changed(good, tmp_path / "set", f"digits_mlp/{table}.parquet", change))
    assert any(told in complaint for complaint in found), found
    assert all("digits_mlp" in complaint for complaint in found if "provenance.json" not in complaint)


def test_constants_are_those_of_the_harness():
    assert FIRST_FINAL_SEED == MOST_TUNING_SEEDS
    assert LIBRARIES == foreign.LIBRARIES


def test_a_contestant_of_one_backend_is_asked_for_there_alone():
    study = PlannedStudy.model_construct(optimizers={"nadam": Rule(rule="torch:torch.optim.NAdam")})
    assert study.only_backend("nadam") == "torch"
    assert study.only_backend("optax:optax.lion") == "jax"
    assert study.only_backend("adam") is None


CHECK_FLAWS: dict[str, tuple[str, Change, str]] = {
    "holds": ("checks", every(holds=True), "holds is true, and should be false: NaN >= 4"),
    "holds not": ("checks", every(holds=False), "holds is false, and should be true: 0.5732655186 <= 1"),
    "instances": ("checks", lambda frame: frame.filter("holds"), "all that were drawn belong in a set"),
    "a part": (
        "checks",
        without(part="full AdaGrad"),
        "notes.regret, full AdaGrad: 0 instances, and plan.json asks for 200",
    ),
    "a part that was not planned": (
        "checks",
        where(pl.col("part") == "full AdaGrad", part="diagonal AdaGrad"),
        "part 'diagonal AdaGrad', instance 0, regret over its bound: plan.json has no such part of the claim",
    ),
    "all but some instances": (
        "checks",
        lambda frame: frame.filter((pl.col("part") != "full AdaGrad") | (pl.col("instance") < 9)),
        "notes.regret, full AdaGrad: 9 instances, and plan.json asks for 200",
    ),
    "a quantity": (
        "checks",
        without(quantity="least eigenvalue", instance=7),
        "instance 7 has no measure of least eigenvalue, and plan.json asks for it in each; 1 of 200",
    ),
    "another quantity": (
        "checks",
        where(pl.col("quantity") == "least eigenvalue", quantity="an eigenvalue"),
        "an eigenvalue: is held against >= 0 with tolerance 1e-12, and plan.json asks for regret over",
    ),
    "a limit": (
        "checks",
        where(pl.col("quantity") == "a trace", limit=0.0, holds=pl.col("value").is_not_nan()),
        "a trace: is held against >= 0 with tolerance 0, and plan.json asks for a trace >= 4 with",
    ),
    "a limit that is open": (
        "checks",
        where(pl.col("quantity") == "least eigenvalue", limit=-1.0, relation="<=", holds=False),
        "<= -1 with tolerance 1e-12, and plan.json asks for least eigenvalue >= any limit with",
    ),
    "a tolerance of a check": (
        "checks",
        where(pl.col("quantity") == "a trace", tolerance=9.0, holds=pl.col("value").is_not_nan()),
        ">= 4 with tolerance 9, and plan.json asks for a trace >= 4 with tolerance 0",
    ),
    "a source": ("checks", every(source="002 eq. 1"), "source is 002 eq. 1, and should be 002 eq. 24"),
    "a claim": ("checks", without(claim="notes.regret"), "no measure of the claim notes.regret"),
    "parity": (
        "parity",
        every(difference=1.0, holds=True),
        "adam on bowl, torch against jax: holds is true, and should be false (difference 1, tolerance 1e-10)",
    ),
    "a tolerance": ("parity", one(tolerance=1.0), "tolerance is 1, and should be 1e-10"),
    "a unit": ("parity", every(unit="ulps"), "unit is ulps, and should be relative"),
    "steps": ("parity", one(steps=1), "steps is 1, and should be 20"),
    "not judged": (
        "parity",
        one(judged=False, tolerance=None, holds=True),
        "adam on bowl, torch against jax: is not judged, and should be judged",
    ),
    "a first step": ("parity", one(first_step=2.0), "the largest of all is at least the first"),
    "a difference below 0": ("parity", one(difference=-1.0), "neither is below 0"),
    "an unknown problem": ("parity", one(problem="hill"), "plan.json has no such problem (it has: bowl"),
    "a comparison left out": (
        "parity",
        without(optimizer="adam", problem="bowl", comparison="torch against jax"),
        "adam on bowl: the comparison torch against jax is missing",
    ),
}


@pytest.mark.parametrize("flaw", CHECK_FLAWS)
def test_a_flaw_in_the_checks_is_refused(good: Path, tmp_path: Path, flaw: str):
    table, change, told = CHECK_FLAWS[flaw]
    found = unfounded(changed(good, tmp_path / "set", f"{table}/{table}.parquet", change))
    assert any(told in complaint for complaint in found), found


def test_a_claim_whose_data_were_missing_needs_no_measure():
    claims = [Claim(id="a.claim"), Claim(id="other.claim", missing="it needs clothes")]
    plan = SetPlan.model_construct(checks=ChecksPart(tables=[], claims=claims))
    (told,) = of_checks(plan, pl.DataFrame(schema=CHECKS))
    assert told.endswith("no measure of the claim a.claim")


def test_a_plan_that_was_written_before_it_named_parts_is_accepted_and_says_so(copy: Path):
    plan = json.loads((copy / "plan.json").read_text())
    for claim in plan["checks"]["claims"]:
        del claim["parts"]
    for study in plan["studies"]:
        del study["needs_hessian"], study["looks_ahead"]
    edited(copy, "plan.json", **plan)
    assert unfounded(copy) == []
    found = unchecked(copy)
    assert any(told.endswith("plan.json does not have the parts of its claims") for told in found)
    assert any(told.endswith("plan.json does not say which optimizers need a Hessian") for told in found)


def test_what_is_left_open_for_each_instance_is_said(good: Path):
    found = unchecked(good)
    assert "checks/checks.parquet: the limit of 1 of 8 quantities: it is computed for each instance" in found
    assert not any("the tolerance of" in told for told in found)
    assert any("how many gradients the bases of" in told for told in found)


def test_what_was_not_run_or_not_timed_apart_is_said(copy: Path):
    plan = json.loads((copy / "plan.json").read_text())
    plan["checks"]["claims"][0]["missing"] = "it needs clothes"
    plan["skipped"] = [{"name": "clothes", "reason": "none are here", "claims": []}]
    (copy / "plan.json").write_text(json.dumps(plan))
    found = unchecked(copy)
    name = plan["checks"]["claims"][0]["id"]
    assert f"plan.json: that {name} could not be checked: it needs clothes" in found
    assert "plan.json: that clothes could not be run: none are here" in found
    assert any(
        told.startswith("digits_mlp/timings.parquet: whose times and bytes are whose") for told in found
    )
    assert any("digits_mlp/runs.parquet: which precision runs should have" in told for told in found)


@pytest.mark.parametrize(
    "file", ["leaderboard.csv", "leaderboard.json", "leaderboard.schema.json", "LICENSE", "README.md"]
)
def test_a_page_that_does_not_follow_from_the_tables_is_refused(copy: Path, file: str):
    (copy / file).write_text("sgd wins")
    seal(copy)
    (told,) = disagreements(copy)
    assert told.startswith(
        f"{file}: is not what is written from the set's tables: line 1 has 'sgd wins', for "
    )


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("kernels", "convex"), ("parity", {"tables": ["convex"]}), ("scale", 3), ("published", "Not A Name"),
        ("studies", None), ("waived", [{}]),
    ],
)  # fmt: skip
def test_a_plan_that_points_elsewhere_is_refused(copy: Path, key: str, value: object):
    edited(copy, "plan.json", **{key: value})
    assert any(told.startswith("plan.json") for told in unfounded(copy))


def test_a_study_whose_tables_are_said_to_lie_elsewhere_is_refused(copy: Path):
    studies = json.loads((copy / "plan.json").read_text())["studies"]
    edited(copy, "plan.json", studies=[studies[0] | {"tables": "."}, *studies[1:]])
    assert "the tables of digits_mlp lie in ., and should lie in digits_mlp" in unfounded(copy)[0]


def test_what_is_no_file_ends_no_check(copy: Path):
    (copy / "plan.json").write_text("[" * 100_000)
    (copy / "provenance.json").write_text("{}")
    seal(copy)
    assert len(unfounded(copy)) == 2
    os.mkfifo(copy / "pipe")
    (copy / "\x1b[31m").write_text("red")
    told = judged(copy)[1]
    assert told == [
        "\\x1b[31m: is not among the checksums; remove it",
        "pipe: neither a file nor a folder; remove it",
    ]
    for make in (lambda path: path.symlink_to(copy / "LICENSE"), os.mkfifo):
        (copy / "SHA256SUMS").unlink()
        make(copy / "SHA256SUMS")
        assert judged(copy)[1] == ["SHA256SUMS: a link, or no file; a set holds files"]


def dirty(jobs: Frame) -> Frame:
    return jobs.with_columns(dirty=pl.lit(value=True))


def edited(folder: Path, file: str, **values: Any) -> None:
    """Replace values of a JSON file of a set, and make the checksums anew."""
    path = folder / file
    path.write_text(json.dumps(json.loads(path.read_text()) | values))
    seal(folder)


def test_what_is_not_waived_is_refused_and_what_is_waived_is_not(good: Path, tmp_path: Path):
    flawed = changed(good, tmp_path / "set", "convex/jobs.parquet", dirty)
    jobs = all_jobs(pl.read_parquet(flawed / name / "jobs.parquet") for name in FOLDERS)
    edited(flawed, "provenance.json", commits=provenance_of(jobs, 0)["commits"])
    found = "\n".join(unfounded(flawed))
    assert "convex: 8 of 8 jobs ran code that differs from its commit" in found
    assert "waive=dirty" in found
    sentence = "convex: 8 of 8 jobs ran code that differs from its commit (0123456789ab)"
    told = {"kind": "dirty", "sentence": sentence}
    edited(flawed, "provenance.json", waived=[told])
    assert unfounded(flawed) == [
        f"plan.json: waived is not the list of what stands in the way of publishing: {sentence}"
    ]
    edited(flawed, "plan.json", waived=[sentence])
    assert unfounded(flawed) == []
    for other in ([told, {"kind": "tuning", "sentence": "none"}], [{"kind": ["dirty"]}], "all", [told] * 2):
        edited(flawed, "provenance.json", waived=other)
        assert "provenance.json: waived is not the list" in unfounded(flawed)[-1]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("runs", 3), ("jobs", 3), ("licence", "none"), ("name", "other"), ("scale", "paper"),
        ("published", "9999"), ("commit", "main"), ("dirty", "no"), ("thinned_curves", ["x"]),
        ("machines", []), ("commits", []), ("environments", "none"), ("first_started", "1970"),
    ],
)  # fmt: skip
def test_provenance_tells_of_the_set_as_it_is(copy: Path, key: str, value: object):
    edited(copy, "provenance.json", **{key: value})
    assert any(told.startswith("provenance.json") and key in told for told in unfounded(copy))


def test_a_set_that_code_of_no_commit_computed_is_refused(copy: Path):
    edited(copy, "provenance.json", dirty=True)
    assert "the code that computes verdicts and leaderboard differs from its commit" in unfounded(copy)[0]
    edited(copy, "provenance.json", commit=None)
    assert "is of no known commit" in unfounded(copy)[0]


def test_a_rule_that_was_changed_in_the_plan_is_refused(copy: Path):
    path = copy / "plan.json"
    plan = json.loads(path.read_text())
    plan["studies"][0]["claims"][0]["holds_if"][0]["smallest_effect"] = 0.5
    path.write_text(json.dumps(plan))
    seal(copy)
    (told,) = unfounded(copy)
    assert told.startswith(
        "plan.json: claim egop.digits_mlp: its rule is not the one whose hash stands beside it: "
    )


# --- what follows from the tables ----------------------------------------------------------------


def test_a_verdict_that_the_tables_do_not_give_is_refused(good: Path, tmp_path: Path):
    found = judged(changed(good, tmp_path / "set", "claims.parquet", every(verdict="not run")))[1]
    assert found[0].startswith(
        "claims.parquet: claim egop.digits_mlp on jax: verdict is not run, and the tables give reproduced; "
    )


@pytest.mark.parametrize(("table", "column"), [("leaderboard", "mean_rank"), ("findings", "estimate")])
def test_a_number_that_the_tables_do_not_give_is_refused(good: Path, tmp_path: Path, table: str, column: str):
    moved = changed(
        good, tmp_path / "set", f"{table}.parquet", lambda frame: frame.with_columns(pl.col(column) * 1.001)
    )
    (told,) = disagreements(moved)
    assert told.startswith(f"{table}.parquet: ")
    assert f": {column} is " in told
    assert " more rows likewise" in told
    rounded = changed(
        good,
        tmp_path / "two",
        f"{table}.parquet",
        lambda frame: frame.with_columns(pl.col(column) * (1 + 1e-9)),
    )
    assert not [told for told in disagreements(rounded) if ".parquet" in told]


def test_a_row_too_few_is_refused(good: Path, tmp_path: Path):
    short = changed(good, tmp_path / "set", "leaderboard.parquet", lambda frame: frame[1:])
    assert "rows, and the tables give" in disagreements(short)[0]


def test_another_version_of_the_rules_is_told(copy: Path):
    path = copy / "provenance.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"rule_version": 0}))
    (found,) = disagreements(copy)
    assert "version 0 of the rules" in found
    assert f"publish --plan {copy / 'plan.json'}" in found
    assert os.sep not in found.split(":")[0]


def test_a_set_by_older_rules_is_not_refused_but_says_how_to_check_it(
    good: Path, copy: Path, capsys: pytest.CaptureFixture[str]
):
    def older(folder: Path, **keys: object) -> None:
        edited(folder, "provenance.json", rule_version=RULE_VERSION - 1, **keys)
        plan = json.loads((folder / "plan.json").read_text())
        for study in [*plan["studies"], *plan["skipped"]]:
            for claim in study["claims"]:
                capped = study.get("at_most_partly", "")
                claim["rule"] = rule_hash(claim, study["claims"], capped, RULE_VERSION - 1)
        edited(folder, "plan.json", **plan)

    revision = json.loads((copy / "provenance.json").read_text())["commit"]
    older(copy)
    assert main(["check", str(copy)]) == 3
    first, right, rest, _, worktree, check = capsys.readouterr().out.splitlines()
    assert first.startswith(
        f"{copy}: not wholly checkable here: verdicts by version {RULE_VERSION - 1} of the"
    )
    assert "found right: checksums, tables, provenance" in right
    assert "not checked: claims" in rest
    place = f"../curvebench-at-{revision[:12]}"
    assert worktree.split() == ["git", "worktree", "add", place, revision]
    assert check.strip() == f"cd {place} && python -m results check {copy.resolve()}"
    edited(copy, "provenance.json", runs=1)
    assert main(["check", str(copy)]) == 1


def test_the_rules_of_an_older_set_are_hashed_by_its_own_version(copy: Path):
    edited(copy, "provenance.json", rule_version=RULE_VERSION - 1)
    assert all("its rule is not the one whose hash" in told for told in unfounded(copy))
    plan = json.loads((copy / "plan.json").read_text())
    for study in [*plan["studies"], *plan["skipped"]]:
        claims, capped = study["claims"], study.get("at_most_partly", "")
        for claim in claims:
            claim["rule"] = rule_hash(claim, claims, capped, RULE_VERSION - 1)
    edited(copy, "plan.json", **plan)
    assert not [told for told in unfounded(copy) if "its rule" in told]
