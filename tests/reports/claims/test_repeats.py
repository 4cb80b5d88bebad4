"""Claims that are repeated in other settings, and what runs a claim or a study again."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from curvebench.__main__ import main
from curvebench.paths import STUDY_FOLDER
from curvebench.planning.config import read_config
from curvebench.planning.plan import make_plan
from curvebench.reports.boards.leaderboard import leaderboards
from curvebench.reports.claims.comparison import comparisons
from curvebench.reports.claims.repeats import keeps_direction, repeated
from curvebench.reports.claims.rerun import claim_with_repeats, command_of, study_commands
from curvebench.reports.claims.verdict_list import as_json, as_text, listed, read_verdicts
from curvebench.reports.claims.wording import say
from curvebench.reports.pages.site import study_file
from curvebench.reports.tables import read_tables
from curvebench.spec.errors import InputError
from curvebench.spec.method import Method
from curvebench.spec.plan import ReportPlan, StudyPlan, read_plan
from tests.reports.changing import replace
from tests.reports.conftest import leave_figures_out
from tests.reports.pages.reading import Page
from tests.reports.synthetic import CONVEX, Shape, compared, write_plan

AGAIN = Shape(
    name="digits_again",
    bases=("identity", "egop", "second"),
    backends=("jax",),
    seeds=tuple(range(1000, 1005)),
    tuning_seeds=(0,),
)


@pytest.mark.parametrize(
    ("gains", "again", "kept"),
    [
        ([0.2, 0.3, 0.4], [0.01, 0.1, 0.1], True),
        ([0.2, 0.3, 0.4], [-0.3, -0.2, 0.1], False),
        ([0.01, 0.02, 0.03], [-0.04, -0.03, 0.0], True),
        ([0.01, 0.02, 0.03], [-0.09, -0.08, 0.0], False),
        ([np.inf, np.inf, 0.0], [0.1, 0.1, 0.1], True),
        ([0.0, 0.0, 0.0], [0.0, 0.01, 0.01], True),
        ([0.0, 0.0, 0.0], [0.2, 0.3, 0.3], False),
    ],
)
def test_a_direction_is_a_sign_or_too_small_to_matter(gains, again, kept):
    assert keeps_direction(np.array(gains), np.array(again), 0.05) is kept


def test_comparisons_are_paired_by_workload_and_place():
    """The second study has one of the two workloads, and calls the basis otherwise."""
    first = [
        compared(gains, workload=workload, control=control)
        for workload, control, gains in (
            ("a", "adam", [0.3] * 3),
            ("b", "adam", [0.3] * 3),
            ("a", "sgd", [0.2] * 3),
            ("a", "momentum", []),
        )
    ]
    again = [
        compared(gains, workload="a", control=control, treated="adam @ second")
        for control, gains in (("adam", [0.1] * 5), ("sgd", [-0.2] * 4), ("momentum", [0.1] * 5))
    ]
    found = list(repeated(first, again))
    assert found == [(again[0], True), (again[1], False)]
    control = first[0].condition.model_copy(update={"positive_control": "what 000 says in passing"})
    with_control = [[*own, replace(own[0], condition=control)] for own in (first, again)]
    assert list(repeated(*with_control)) == found
    without = [replace(one, gains=np.array([])) for one in again]
    assert list(repeated(first, without)) == []


def with_repeats(plan_file: Path) -> dict[str, Any]:
    """Return the plan of `AGAIN`, with two claims that repeat the first study's."""
    plan: dict[str, Any] = json.loads(plan_file.read_text())
    (claim,) = next(study["claims"] for study in plan["studies"] if study["name"] == "digits_mlp")
    (condition,) = claim["supported_if"]
    repeats = {"repeats": claim["id"]}
    for study in plan["studies"]:
        if study["name"] == AGAIN.name:
            second = {**condition, "better": [Method("adam", "second").label]}
            study["training"]["precision"] = "float64"
            study["claims"], study["rules"] = [], dict.fromkeys(("egop.in-float64", "egop.second"), "cd" * 8)
            study["repeated"] = [
                {**claim, **repeats, "id": "egop.in-float64", "changed": "in float64"},
                {
                    **claim,
                    **repeats,
                    "id": "egop.second",
                    "changed": "with a second basis",
                    "supported_if": [second],
                },
            ]
    return plan


@pytest.fixture(scope="module")
def plan_file(tmp_path_factory) -> Path:
    """Return a made-up report of three studies, one of which only repeats, with the figures of that one
    drawn.
    """
    folder = tmp_path_factory.mktemp("repeats")
    path = write_plan(folder, (Shape(), CONVEX, AGAIN))
    path.write_text(json.dumps(with_repeats(path)))
    leave_figures_out(folder, Shape().name, CONVEX.name)
    assert main(["figures", "--plan", str(path)]) == 0
    return path


@pytest.fixture
def plan(plan_file) -> ReportPlan:
    return read_plan(plan_file)


def test_a_repeat_is_told_with_the_verdict_and_is_no_claim_of_its_own(plan):
    found = read_verdicts(plan)
    told = {one.id: one for one in listed(plan, found.claims, found.findings)}
    assert list(told) == ["egop.digits_mlp", "egop.convex", "egop.fashion"]
    again = found.findings.filter(pl.col("claim").is_in(["egop.in-float64", "egop.second"]))
    assert again.select("same_direction", "finding").unique().rows() == [(True, None)]
    one = told["egop.digits_mlp"]
    effect = r"1 of 1 comparison \(5 seeds\): 0\.\d+ \[0\.\d+, 0\.\d+\]"
    words = "; ".join(say("repeat", again) for again in one.repeats)
    assert re.fullmatch(f"in float64: .* {effect}; with a second basis: .* {effect}", words)
    assert [repeat["claim"] for repeat in one.repeats] == ["egop.in-float64", "egop.second"]
    first = json.loads(as_json([one]))[0]["repeats"][0]
    assert first.pop("effect") in words
    assert first == {
        "claim": "egop.in-float64",
        "changed": "in float64",
        "study": "digits_again",
        "comparisons": 1,
        "reversed": [],
        "seeds": 5,
    }
    assert told["egop.convex"].repeats == []
    assert [each.command_with_repeats is None for each in told.values()] == [False, True, True]
    assert "in float64: same direction" in " ".join(as_text([one]).split())


def test_a_claim_may_be_repeated_on_some_of_its_workloads(plan):
    study = plan.study(AGAIN.name)
    claim = study.repeated[0]
    (condition,) = claim.conditions
    more = replace(claim, conditions=(condition, replace(condition, workload="elsewhere")))
    tables = read_tables(study.tables)
    assert len(list(comparisons(study, more, tables, "jax"))) == 1
    with pytest.raises(InputError, match="the plan does not have; give the plan with all workloads"):
        list(comparisons(study, replace(more, repeats=""), tables, "jax"))


def test_what_only_repeats_has_no_leaderboard(plan):
    boards = leaderboards([(study, read_tables(study.tables)) for study in plan.studies])
    assert AGAIN.name not in {column.study.name for board in boards for column in board.columns}


def test_the_pages_tell_of_repeats(plan_file, tmp_path, frozen):
    assert main(["site", "--plan", str(plan_file), "--out", str(tmp_path)]) == 0
    text = "".join(Page(tmp_path / page).outline for page in ("claims.html", study_file("digits_again")))
    told = re.compile("repeat|float64|same direction|claims|config studies", re.IGNORECASE)
    lines = (line for line in text.splitlines() if told.search(line))
    frozen(Path(__file__).with_name("repeats.txt"), "\n".join(lines) + "\n")


@pytest.fixture
def three(report, study: StudyPlan) -> ReportPlan:
    """Return a plan of the first synthetic study, a study that repeats its claim, and an unrelated study."""
    (claim,) = study.claims
    again = replace(claim, id="again", repeats=claim.id, changed="in float64")
    repeating = replace(study, name="repeated", claims=(), repeated=(again,), backends=("jax",))
    other = replace(study, name="other", claims=(replace(claim, id="other"),))
    return replace(report.plan, studies=(study, repeating, other))


SNAKEMAKE = "snakemake --cores all reports --config"


def test_a_claim_is_run_with_the_studies_that_repeat_it(three: ReportPlan, study: StudyPlan):
    (claim,) = study.claims
    asked = f"studies={claim.id},repeated scale=quick backends=jax,torch"
    assert claim_with_repeats(claim.id, three) == f"{SNAKEMAKE} {asked}"
    assert claim_with_repeats("other", three) is None
    assert claim_with_repeats("notes.regret", three) is None
    without = replace(three, parity=None)
    assert claim_with_repeats(claim.id, without) == f"{SNAKEMAKE} {asked} parity=false"


def test_a_claim_that_its_own_study_repeats_needs_no_other_command(three: ReportPlan, study: StudyPlan):
    _, repeating, _ = three.studies
    both = replace(study, repeated=repeating.repeated)
    assert claim_with_repeats(study.claims[0].id, replace(three, studies=(both,))) is None
    assert study_commands(both, replace(three, studies=(both,)))[1] is None


def test_a_study_is_run_alone_or_with_those_that_it_goes_with(three: ReportPlan):
    study, repeating, other = three.studies
    names = f"studies={study.name},repeated scale=quick backends=jax,torch"
    assert study_commands(study, three) == (
        f"{SNAKEMAKE} studies={study.name} scale=quick backends=jax,torch",
        f"{SNAKEMAKE} {names}",
    )
    assert study_commands(repeating, three) == (
        f"{SNAKEMAKE} studies=repeated scale=quick backends=jax",
        f"{SNAKEMAKE} studies=repeated,{study.name} scale=quick backends=jax,torch",
    )
    assert study_commands(other, three)[1] is None


def test_studies_that_repeat_run_where_they_are_named(three: ReportPlan):
    study, repeating, _ = three.studies
    named = replace(study, name="convex"), replace(repeating, name="convex_repeated")
    command = study_commands(named[0], replace(three, studies=named))[1]
    assert command is not None
    asked = dict(item.split("=") for item in command.removeprefix(SNAKEMAKE).split())
    planned = make_plan(read_config(asked))
    assert [one.study.name for one in planned.studies] == ["convex", "convex_repeated"]
    assert not planned.report.skipped


def test_what_reruns_a_study_of_ones_own_names_its_folders(three: ReportPlan, study: StudyPlan):
    folders = {"study_folder": "my studies", "results": "elsewhere"}
    alone, together = study_commands(study, replace(three, folders=folders))
    assert together is not None
    assert all(
        command.endswith(" 'study_folder=my studies' results=elsewhere") for command in (alone, together)
    )
    told = command_of("mine.claim", replace(three, folders=folders))
    assert told == f"{SNAKEMAKE} studies=mine.claim scale=quick 'study_folder=my studies' results=elsewhere"


def test_a_plan_says_which_folders_are_not_the_usual_ones():
    assert make_plan(read_config({"studies": "logsumexp_2d"})).report.folders == {}
    raw = {"studies": "logsumexp_2d", "results": "elsewhere", "site": "pages"}
    assert make_plan(read_config(raw)).report.folders == {"results": "elsewhere", "site": "pages"}


def test_what_reruns_a_study_reads_the_same_data_as_it_is_printed():
    """Of what was run here and of a published set alike, the latter from the checkout's studies."""
    raw = {"studies": "logsumexp_2d", "data": "my data", "study_folder": str(STUDY_FOLDER.absolute())}
    report = make_plan(read_config(raw)).report
    published = [one for one in report.archive if one.studies]
    assert published
    for plan, folder in [(report, raw["study_folder"]), *((one, str(STUDY_FOLDER)) for one in published)]:
        command = study_commands(plan.studies[0], plan)[0].removeprefix(SNAKEMAKE)
        asked = read_config(dict(item.split("=") for item in shlex.split(command)))
        assert asked.data == Path("my data")
        assert str(asked.study_folder) == folder
