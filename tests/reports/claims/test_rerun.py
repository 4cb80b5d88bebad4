"""The commands that run a claim or a study again, with the studies that repeat its claims."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from curvebench.paths import STUDY_FOLDER
from curvebench.planning.config import read_config
from curvebench.planning.plan import make_plan
from curvebench.reports.claims.rerun import claim_with_repeats, command_of, study_commands
from curvebench.spec.plan import ReportPlan, StudyPlan
from tests.reports.changing import replace


@pytest.fixture
def plan(report, study: StudyPlan) -> ReportPlan:
    """A plan of the first made-up study, one that repeats its claim, and one that stands apart."""
    (claim,) = study.claims
    again = replace(claim, id="again", repeats=claim.id, changed="in float64")
    repeating = replace(study, name="repeated", claims=(), repeated=(again,), backends=("jax",))
    other = replace(study, name="other", claims=(replace(claim, id="other"),))
    return replace(report.plan, studies=(study, repeating, other))


SNAKEMAKE = "snakemake --cores all reports --config"


def test_a_claim_is_run_with_the_studies_that_repeat_it(plan: ReportPlan, study: StudyPlan):
    (claim,) = study.claims
    asked = f"studies={claim.id},repeated scale=quick backends=jax,torch"
    assert claim_with_repeats(claim.id, plan) == f"{SNAKEMAKE} {asked}"
    assert claim_with_repeats("other", plan) is None
    assert claim_with_repeats("notes.regret", plan) is None
    without = replace(plan, parity=None)
    assert claim_with_repeats(claim.id, without) == f"{SNAKEMAKE} {asked} parity=false"


def test_a_claim_that_its_own_study_repeats_needs_no_other_command(plan: ReportPlan, study: StudyPlan):
    _, repeating, _ = plan.studies
    both = replace(study, repeated=repeating.repeated)
    assert claim_with_repeats(study.claims[0].id, replace(plan, studies=(both,))) is None
    assert study_commands(both, replace(plan, studies=(both,)))[1] is None


def test_a_study_is_run_alone_or_with_those_that_it_goes_with(plan: ReportPlan):
    study, repeating, other = plan.studies
    names = f"studies={study.name},repeated scale=quick backends=jax,torch"
    assert study_commands(study, plan) == (
        f"{SNAKEMAKE} studies={study.name} scale=quick backends=jax,torch",
        f"{SNAKEMAKE} {names}",
    )
    assert study_commands(repeating, plan) == (
        f"{SNAKEMAKE} studies=repeated scale=quick backends=jax",
        f"{SNAKEMAKE} studies=repeated,{study.name} scale=quick backends=jax,torch",
    )
    assert study_commands(other, plan)[1] is None


def test_studies_that_repeat_run_where_they_are_named(plan: ReportPlan):
    study, repeating, _ = plan.studies
    named = replace(study, name="convex"), replace(repeating, name="convex_repeated")
    command = study_commands(named[0], replace(plan, studies=named))[1]
    assert command is not None
    asked = dict(item.split("=") for item in command.removeprefix(SNAKEMAKE).split())
    planned = make_plan(read_config(asked))
    assert [one.study.name for one in planned.studies] == ["convex", "convex_repeated"]
    assert not planned.report.skipped


def test_what_reruns_a_study_of_ones_own_names_its_folders(plan: ReportPlan, study: StudyPlan):
    folders = {"study_folder": "my studies", "results": "elsewhere"}
    alone, together = study_commands(study, replace(plan, folders=folders))
    assert together is not None
    assert all(
        command.endswith(" 'study_folder=my studies' results=elsewhere") for command in (alone, together)
    )
    told = command_of("mine.claim", replace(plan, folders=folders))
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
