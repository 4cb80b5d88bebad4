"""Property checks: finding claims, measuring instances, and the job and the command that do it."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import pytest

from curvebench.__main__ import main
from curvebench.property_checks.check_rules import check_rule
from curvebench.property_checks.checks import (
    CORRECTED,
    PRINTED,
    Measure,
    PropertyClaim,
    Row,
    Series,
    Trace,
    claims_by_id,
    claims_of,
    modules,
    part_results,
    verdicts,
)
from curvebench.results.reading import read
from curvebench.spec.errors import InputError
from curvebench.spec.job import job_folder
from curvebench.spec.method import OptimizerSpec
from tests.curvebench.property_checks.claim_rows import claim_of, rows
from tests.curvebench.property_checks.toy_claims import ToyClaims
from tests.curvebench.stages.test_jobs import of_stage, run

WRITTEN = ["checks.parquet", "jobs.parquet", "series.parquet"]
SPEC = of_stage(
    "checks",
    study="claims",
    backend="host",
    optimizers=(OptimizerSpec("toy"),),
    workloads=(),
    bases=(),
    seeds=(0,),
)


def ruled(claim: PropertyClaim, scale: str) -> list[Row]:
    """Return the measures of a claim on the instances that follow from the hash of its rule."""
    return list(rows(claim, scale, check_rule(claim)))


# --- finding claims ------------------------------------------------------------------------------


def test_modules_are_found_by_name_and_claims_by_id(toys):
    toys.write()
    toys.write(("toy.", "late."), name="late")
    (toys.folder / "_shared.py").write_text("raise RuntimeError\n")
    assert modules() == modules(toys.folder) == ("late", "toy")
    found = claims_by_id()
    assert {name: module for name, (module, _) in found.items()} == {
        "late.mean": "late",
        "late.other": "late",
        "toy.mean": "toy",
        "toy.other": "toy",
    }
    assert found["toy.mean"][1].sentence == "The mean of uniform numbers is a half."


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("import numpy as np", "import numpyy as np", "cannot be imported (ModuleNotFoundError"),
        ("CLAIMS = ", "CLAIM = ", "CLAIMS is not there"),
        ("CLAIMS = (", "CLAIMS = (1, ", "is no tuple of PropertyClaim"),
        (", PRINTED)", ", 'printed')", "ValueError: it is as said: variant is 'printed'"),
        ('{"paper": 2}', '{"quick": 2}', "ValueError: they are below 1: instances are"),
        ('{"paper": 2}', '{"paper": 0}', "give a number above 0"),
        (
            '{"paper": 2})',
            '{"paper": 2}, by_scale={"quick": _printed})',
            "each scale with measures of its own",
        ),
        (", CORRECTED)", ", PRINTED)", "ValueError: toy.mean: give a check for each part"),
        ('id="toy.other"', 'id="toy.mean"', "the id 'toy.mean' is also in benchmarks/claims/toy.py"),
    ],
)
def test_a_broken_module_is_named_with_what_is_wrong(toys, old, new, said):
    toys.write((old, new))
    with pytest.raises(InputError) as caught:
        claims_by_id()
    assert str(caught.value).startswith("benchmarks/claims/toy.py: ")
    assert said in str(caught.value)
    if "id=" not in old:
        broken: dict[str, str] = {}
        assert claims_by_id(broken=broken) == {}
        assert broken == {"benchmarks/claims/toy.py": str(caught.value)}


# --- measuring -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "relation", "limit", "tolerance", "holds"),
    [
        (1.0, "<=", 1.0, 0.0, True),
        (1.1, "<=", 1.0, 0.05, False),
        (1.0, ">=", 1.0, 0.0, True),
        (0.9, ">=", 1.0, 0.05, False),
        (0.96, "==", 1.0, 0.05, True),
        (float("nan"), "<=", 1.0, 0.0, False),
        (float("-inf"), "<=", 1.0, 0.0, False),
        (float("inf"), ">=", 1.0, 0.0, False),
    ],
)
def test_a_measure_holds_within_its_tolerance(value, relation, limit, tolerance, holds):
    assert Measure("it", value, relation, limit, tolerance).holds is holds
    given: list[Any] = [np.array(value), np.float64(limit), np.array(tolerance)]
    numpy = Measure("it", given[0], relation, *given[1:])
    assert numpy.holds is holds
    assert {type(number) for number in (numpy.value, numpy.limit, numpy.tolerance)} == {float}


@pytest.mark.parametrize(
    ("value", "relation", "holds"),
    [
        (0.8, "<=", True),
        (0.95, "<=", None),
        (1.05, ">=", None),
        (1.2, "<=", False),
        (0.8, ">=", False),
        (1.05, "==", True),
        (float("nan"), "<=", False),
    ],
)
def test_an_estimate_whose_interval_holds_the_limit_decides_nothing(value, relation, holds):
    def drawn(random: np.random.Generator) -> list[Measure]:
        return [Measure("it", value, relation, 1.0, 0.1), Measure("sure", 0.0, "<=", 1.0)]

    claim = claim_of(drawn, sampled=True)
    found = list(rows(claim, "quick"))
    assert [row.measure.holds for row in found] == [holds, True]
    expected = {True: "reproduced", False: "not reproduced", None: "underpowered"}[holds]
    assert verdicts(claim, found) == {"": expected}


def test_instances_are_the_same_whatever_else_is_run_and_for_both_variants(toys):
    toys.write()
    (claim, _) = claims_of("toy")
    assert claim.checks[0].count("quick") == 3
    assert claim.checks[0].count("unheard of") == 5
    found = list(rows(claim, "quick"))
    assert [row.instance for row in found] == [0, 0, 1, 1, 2, 2, 0, 1, 0, 1]
    alone = dataclasses.replace(claim, checks=claim.checks[2:])
    assert list(rows(alone, "quick")) == found[8:]
    printed, corrected = ([row for row in found if row.variant == one] for one in (PRINTED, CORRECTED))
    assert [row.measure.value for row in printed] == [row.measure.value for row in corrected]
    assert len({row.measure.value for row in printed}) == 2
    assert all(row.seconds > 0 for row in found)


def test_a_scale_may_have_measures_of_its_own(toys):
    toys.write(('{"paper": 2})', '{"quick": 1, "paper": 2}, by_scale={"quick": _printed})'))
    _, claim = claims_of("toy")
    assert [(row.instance, row.measure.relation) for row in rows(claim, "quick")] == [(0, "==")]
    assert [row.measure.relation for row in rows(claim, "paper")] == ["<=", ">="] * 2


def test_verdicts_come_from_the_rows(toys):
    toys.write()
    (claim, other) = claims_of("toy")
    assert verdicts(claim, list(rows(claim, "quick"))) == {PRINTED: "not reproduced", CORRECTED: "reproduced"}
    assert verdicts(other, list(rows(other, "quick"))) == {"": "reproduced"}
    assert verdicts(other, []) == {"": "not reproduced"}, "what was not measured does not hold"
    capped = dataclasses.replace(other, at_most_partly="the data are reduced")
    assert verdicts(capped, list(rows(other, "quick"))) == {"": "partly reproduced"}


DECAY = Series("000 Fig. 3", "EGOP", np.arange(3.0), np.array([1.0, 0.5, np.nan]), ("k", "ratio"), log="y")


def test_what_cannot_miss_is_an_error():
    with pytest.raises(ValueError, match="instance 0 has no measures"):
        list(rows(claim_of(lambda random: [DECAY]), "quick"))


def test_series_come_beside_the_measures_and_are_none_of_them():
    claim = claim_of(lambda random: [DECAY, Measure("it", 1.0, "<=", 1.0)])
    measured, traced = part_results(claim.id, claim.checks[0], "quick")
    assert list(rows(claim, "quick")) == [measured]
    assert isinstance(traced, Trace)
    assert (traced.claim, traced.part, traced.instance, traced.series) == ("a.claim", "it is", 0, DECAY)
    assert verdicts(claim, [row for row in (measured,) if isinstance(row, Row)]) == {"": "reproduced"}


# --- the job -------------------------------------------------------------------------------------


def test_a_job_writes_every_measure(toys, tmp_path):
    toys.write()
    folder = run(SPEC, tmp_path / "results")
    assert folder.parent == tmp_path / "results/runs/claims/quick/checks"
    assert folder.name == f"toy.host.{SPEC.hash}"
    assert sorted(path.name for path in folder.iterdir()) == WRITTEN
    table = read(folder, "checks")
    assert table.group_by("claim", "part", "variant", maintain_order=True).len().rows() == [
        ("toy.mean", "it is between 0 and 1", "", 6),
        ("toy.mean", "it is as said", PRINTED, 2),
        ("toy.mean", "it is as said", CORRECTED, 2),
        ("toy.other", "they are below 1", "", 4),
    ]
    assert table.select("quantity", "relation", "limit", "tolerance", "holds", "source").row(7) == (
        *("mean", "==", 1.0, 1e-12, False),
        "none, line 3",
    )
    expected = [row.measure.value for claim in claims_of("toy") for row in ruled(claim, "quick")]
    assert table["value"].to_list() == expected
    assert set(table["spec_hash"]) == {SPEC.hash}
    job = read(folder, "jobs").row(0, named=True)
    assert (job["stage"], job["optimizer"]) == ("checks", "toy")
    assert (
        job["evaluation_seconds"] >= table.unique(["claim", "part", "variant", "instance"])["seconds"].sum()
    )


YIELDED = """\
    yield Series("000 Fig. 3", "EGOP", np.arange(3.0), np.array([1, 0.5, np.nan]), ("k", "ratio"), log="y")
"""
CORRECT = 'float(random.random(8).mean()), "==", 0.5, 0.5)\n'


def test_a_job_writes_every_point_of_its_series(toys, tmp_path):
    toys.write((CORRECT, CORRECT + YIELDED), ("PropertyClaim\n", "PropertyClaim, Series\n"))
    table = read(run(SPEC, tmp_path / "results"), "series")
    assert table.group_by("claim", "part", "variant", "instance", maintain_order=True).len().rows() == [
        ("toy.mean", "it is as said", CORRECTED, 0, 3),
        ("toy.mean", "it is as said", CORRECTED, 1, 3),
    ]
    columns = ("figure", "label", "kind", "x_name", "log", "x", "y")
    assert table.select(columns).row(1) == ("000 Fig. 3", "EGOP", "line", "k", "y", 1.0, 0.5)
    assert np.isnan(table["y"][2])


BREAKS = ('random.random(8).mean()), "==", 1.0', 'random.random(8).mn()), "==", 1.0')


def test_a_claim_whose_check_raises_has_failed_and_the_others_are_kept(toys, tmp_path):
    results = tmp_path / "results"
    toys.write(BREAKS)
    run(SPEC, results)
    folder = job_folder(results, SPEC)
    ((failure,),) = read(folder, "jobs")["failures"].to_list()
    assert (failure["what"], failure["outcome"]) == ("toy.mean", "error")
    assert failure["reason"].startswith("it is as said (as printed): AttributeError")
    kept = read(folder, "checks").group_by("claim", "variant").len().rows()
    assert kept == [("toy.other", "", 4)], "a claim is not decided by some of its parts"
    assert set(read(folder, "series")["claim"]) <= {"toy.other"}
    toys.write()
    run(SPEC, results)
    assert sorted(path.name for path in folder.iterdir()) == WRITTEN


@pytest.fixture
def no_clothing(toys: ToyClaims, monkeypatch: pytest.MonkeyPatch) -> ToyClaims:
    """Let the claim toy.other read Fashion-MNIST, which is missing."""
    toys.write(('_below_one, {"paper": 2}),)', '_below_one, {"paper": 2}),), workloads=("fashion_small",)'))
    monkeypatch.delenv("CURVEBENCH_DATA")
    return toys


def test_a_claim_without_its_data_is_left_out_of_the_job_which_says_so(no_clothing, tmp_path):
    folder = run(SPEC, tmp_path / "results")
    assert set(read(folder, "checks")["claim"]) == {"toy.mean"}
    (note,) = read(folder, "jobs").row(0, named=True)["notes"]
    assert note.startswith("not checked: toy.other (Fashion-MNIST needs ")
    assert "apt-get install dataset-fashion-mnist" in note


def test_the_command_leaves_it_out_and_is_bad_input_where_it_is_asked_for(no_clothing, capsys):
    assert main(["claims", "check"]) == 0
    printed = capsys.readouterr()
    assert "toy.other" not in printed.out
    assert "toy.other cannot be checked: Fashion-MNIST needs " in printed.err
    assert main(["claims", "check", "toy.other"]) == 2
    printed = capsys.readouterr()
    assert not printed.out
    assert "error: toy.other cannot be checked: Fashion-MNIST needs " in printed.err


# --- the command ---------------------------------------------------------------------------------


def test_the_command_prints_parts_and_verdicts_and_ends_well_whatever_they_are(toys, capsys):
    toys.write()
    assert main(["claims", "check", "toy.mean"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert [line.partition(" (worst")[0] for line in said] == [
        "toy.mean: it is between 0 and 1: holds",
        "toy.mean: it is as said (as printed): misses",
        "toy.mean: it is as said (as corrected): holds",
        "toy.mean: all parts (as printed): not reproduced",
        "toy.mean: all parts (as corrected): reproduced",
    ]
    assert "worst of 2 instances: mean: " in said[1]
    assert said[1].endswith(" == 1 ± 1e-12)")


def test_the_command_as_json_says_the_worst_measure_of_every_part(toys, capsys):
    toys.write()
    assert main(["claims", "check", "--json", "--scale", "paper"]) == 0
    mean, other = json.loads(capsys.readouterr().out)
    assert mean["verdicts"] == {PRINTED: "not reproduced", CORRECTED: "reproduced"}
    assert other["verdicts"] == {"": "reproduced"}
    assert [part["instances"] for part in mean["subclaims"]] == [5, 5, 5]
    claim, _ = claims_of("toy")
    means: list[Row] = [row for row in ruled(claim, "paper") if row.variant == PRINTED]
    assert mean["subclaims"][1]["worst"]["value"] == min(row.measure.value for row in means)
    assert mean["subclaims"][1]["holds"] is False


def test_a_part_that_raises_is_no_verdict_and_does_not_end_well(toys, capsys):
    toys.write(BREAKS)
    with pytest.raises(ExceptionGroup, match=r"toy\.mean: it is as said"):
        main(["claims", "check"])
    said = capsys.readouterr().out
    assert "not measured" in said
    assert "not reproduced" not in said
    assert [line.split(":")[0] for line in said.splitlines() if "all parts" in line] == ["toy.other"]
