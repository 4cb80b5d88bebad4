"""Verdicts where a method was searched too narrowly or too coarsely, on runs of real studies."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from curvebench.planning.config import Config
from curvebench.planning.plan import make_plan, write_specs
from curvebench.planning.studies.cautions import better_known
from curvebench.planning.studies.validation import read_study
from curvebench.reports.claims.verdicts import Verdicts, claim_verdicts
from curvebench.reports.claims.wording import say
from curvebench.reports.tables import tables_of
from curvebench.results.merging import merge
from curvebench.results.tuning import Judge, MethodSearch, TuningOutcome, outside, tuning_outcome
from curvebench.spec.plan import ReportPlan
from curvebench.spec.tuning import Axis
from curvebench.stages.jobs import run_job
from tests.results.rows import rows, tuning_run

# Adam with a wide search, the same with a search that ends far below the best rate, and two more methods.
RIVALS = (
    "[adam, {adam: {label: slow, space: {learning_rate: {low: 1e-5, high: 1e-3, scale: log}}}}, "
    "sgd, {momentum: {label: heavy, momentum: 0.99}}]"
)
# The best setting of Adam, 0.001, is inside of what was tried, and far below the best rate.
COARSE = (
    "[{adam: {space: {learning_rate: {low: 1e-7, high: 1e3, scale: log}}, "
    "also_try: [{learning_rate: 1e-7}, {learning_rate: 1e-3}, {learning_rate: 1e4}]}}, "
    "{sgd: {space: {learning_rate: {low: 0.02, high: 0.02, scale: log}}}}]"
)
STUDY = """\
question: Which is better?
source: none
workload: {{least_squares: {{n: 32, d: 16}}}}
optimizers: {optimizers}
tuning:
  protocol: halton_search
  budget_per_dimension: {budget}
  space: {{learning_rate: {{low: 1e-3, high: 10, scale: log}}}}
  choose: median final train_loss
  shared_across: none
compare: {{metric: final train_loss}}
claims:
{claims}
scales:
  quick:
    {{steps: 40, evaluations: 4, seeds: {{tuning: 5, final: 8}}, backends: {{torch: {{}}}}, timing: false}}
"""
CLAIM = """\
  - id: {name}
    sentence: One is better.
    source: none
    supported_if:
      {{metric: final train_loss, better: [{better}], compared_to: [{worse}], smallest_effect: 5 %}}
"""


@dataclass(frozen=True)
class Ran:
    """Plan and verdicts of studies that were run."""

    plan: ReportPlan
    verdicts: Verdicts

    def verdict(self, claim: str) -> str:
        return str(self.verdicts.claims.filter(claim=claim)["verdict"].item())

    def limits(self, claim: str) -> list[dict[str, Any]]:
        (edges,) = self.verdicts.findings.filter(claim=claim)["at_edge"].to_list()
        return list(edges)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    folder = tmp_path_factory.mktemp("searches")
    (folder / "studies").mkdir()

    def write(name: str, optimizers: str, budget: int, *claims: tuple[str, str, str]) -> None:
        sides = (dict(zip(("name", "better", "worse"), claim, strict=True)) for claim in claims)
        text = "".join(CLAIM.format(**each) for each in sides)
        study = STUDY.format(optimizers=optimizers, budget=budget, claims=text)
        (folder / f"studies/{name}.yaml").write_text(study)

    handicapped = ("handicapped", "adam", "slow"), ("reversed", "slow", "adam")
    write("rivals", RIVALS, 12, *handicapped, ("fair", "sgd", "heavy"))
    write("coarse", COARSE, 1, ("missed", "sgd", "adam"))
    plan = make_plan(Config(study_folder=folder / "studies", studies=("rivals", "coarse"), results=folder))
    write_specs(plan)
    for planned in plan.studies:
        jobs = [job for job in planned.jobs if job.spec.stage != "timing"]
        for job in jobs:
            run_job(job.spec_path, folder)
        merge([job.folder for job in jobs], planned.plan.tables)
    tables = {planned.plan.name: tables_of(planned.plan) for planned in plan.studies}
    report = plan.report.model_copy(update={"archive": (), "parity": None, "checks": None})
    return Ran(report, claim_verdicts(report, tables, None))


def test_a_handicapped_rival_reproduces_nothing(ran: Ran):
    """Adam with rates of 1e-3 to 10 is far better than Adam with rates of 1e-5 to 1e-3."""
    (finding,) = ran.verdicts.findings.filter(claim="handicapped").to_dicts()
    assert (finding["finding"], finding["p_value"] < 0.01) == ("supported", True)
    assert ran.verdict("handicapped") == "depends on search"
    limit, known = ran.limits("handicapped")
    assert (known["arm"], known["limit"], known["study"]) == ("control", "missed", "rivals")
    assert known["value"] > 1e-3
    assert (limit["arm"], limit["hyperparameter"], limit["limit"]) == ("control", "learning_rate", "highest")
    assert 3e-4 < limit["value"] <= 1e-3
    (row,) = ran.verdicts.claims.filter(claim="handicapped").to_dicts()
    assert {reason["code"]: (reason["count"], reason["of"]) for reason in row["reasons"]}["at_edge"] == (1, 1)
    end, better = say("search", finding).split("; ")
    assert end == f"slow has a learning rate at the upper end of its search, {limit['value']:.3g}"
    rate = f"with a learning rate of {known['value']:.3g}"
    assert better == f"rivals found a better setting of slow that was not tried, {rate}"


def test_nor_does_it_refute_anything(ran: Ran):
    assert ran.verdicts.findings.filter(claim="reversed")["finding"].item() == "refuted"
    assert ran.verdict("reversed") == "depends on search"


def test_methods_inside_of_their_searches_are_decided(ran: Ran):
    assert ran.limits("fair") == []
    assert ran.verdict("fair") == "reproduced"


def test_a_better_setting_of_another_study_inside_of_the_search_is_missed(ran: Ran):
    """The search of `coarse` contains that of `rivals`, whose Adam ends better on the same tuning seeds."""
    limits = [(each["arm"], each["limit"], each["study"]) for each in ran.limits("missed")]
    assert limits[-1] == ("control", "missed", "rivals")
    # SGD has a fixed learning rate, and the learning rate of Adam was searched.
    assert limits[:-1] == [("treated", "lowest", None), ("treated", "highest", None)]
    assert ran.verdict("missed") == "depends on search"


SPACE = {
    "learning_rate": Axis(low=0.1, high=1.0, scale="linear"),
    "momentum": Axis(low=0.0, high=0.9, scale="linear"),
    "rate_decay": Axis(low=0.9, high=1.0, scale="linear"),
    "damping": Axis(low=0.1, high=1.0, scale="log"),
    "power": Axis(low=1.0, high=5.0, scale="linear"),
    "epsilon": Axis(low=1e-8, high=1e-8, scale="log"),
}


def search_of(ran: Ran, chosen: dict[str, float], *others: dict[str, float]) -> MethodSearch:
    """Return a search that tried some settings, of which the first is the best."""
    study = ran.plan.study("rivals")
    study = study.model_copy(update={"tuning": study.tuning.model_copy(update={"space": SPACE})})
    settings = [{"epsilon": 1e-8, **setting} for setting in (chosen, *others)]
    runs = [
        tuning_run(
            f"{place}", float(place), setting["learning_rate"],
            hyperparameters=[{"name": name, "value": value} for name, value in setting.items()][:-1],
        )
        for place, setting in enumerate(settings)
    ]  # fmt: skip
    tried = rows("runs", *runs)
    judge = Judge(study.tuning, study.direction_of, {})
    outcome = tuning_outcome(tried, study.tuning.names, judge)
    assert outcome is not None
    adam = study.optimizer("adam")
    return MethodSearch(study, study.workloads[0], adam, study.bases[0], "torch", tried, outcome)


INSIDE = {"momentum": 0.5, "rate_decay": 0.95, "damping": 0.5, "power": 3.0, "learning_rate": 0.5}
LOW = {"momentum": 0.01, "rate_decay": 0.91, "damping": 0.11, "power": 1.1, "learning_rate": 0.11}
HIGH = {"momentum": 0.89, "rate_decay": 0.99, "damping": 0.99, "power": 4.9, "learning_rate": 0.99}
LOW_ENDS = ["learning_rate lowest", "rate_decay lowest", "damping lowest", "power lowest"]
HIGH_ENDS = ["learning_rate highest", "momentum highest", "damping highest", "power highest"]


@pytest.mark.parametrize(
    ("chosen", "others", "ends"),
    [
        (INSIDE, (LOW, HIGH), []),
        # No momentum and no decay of the rate are natural ends, which the search reaches; others are not.
        (LOW, (INSIDE, HIGH), LOW_ENDS),
        (HIGH, (INSIDE, LOW), HIGH_ENDS),
        # A setting of `also_try` outside of the intervals does not move the ends, unless it is chosen.
        (LOW, (INSIDE, HIGH, {**LOW, "damping": 1e-3, "learning_rate": 1e-3}), LOW_ENDS),
        (HIGH, (INSIDE, LOW, {**HIGH, "damping": 50.0, "learning_rate": 50.0}), HIGH_ENDS),
        ({**INSIDE, "learning_rate": 50.0}, (LOW, HIGH), ["learning_rate highest"]),
        ({**INSIDE, "momentum": 0.0, "rate_decay": 1.0}, (LOW, HIGH), []),
        # A rate close to an end counts even if rates beyond it were tried, with other values of the rest.
        ({**INSIDE, "learning_rate": 0.18}, (LOW, HIGH), ["learning_rate lowest"]),
        ({**INSIDE, "learning_rate": 0.92}, (LOW, HIGH), ["learning_rate highest"]),
        ({**INSIDE, "learning_rate": 0.88, "damping": 0.95}, (LOW, HIGH), []),
    ],
)
def test_ends_of_a_search_count_unless_they_are_natural(
    ran: Ran, chosen: dict[str, float], others: tuple[dict[str, float], ...], ends: list[str]
):
    found = [f"{each['hyperparameter']} {each['limit']}" for each in search_of(ran, chosen, *others).edges()]
    assert sorted(found) == sorted(ends)


def test_a_single_candidate_of_a_wide_search_is_at_both_ends(ran: Ran):
    found = {(each["hyperparameter"], each["limit"]) for each in search_of(ran, INSIDE).edges()}
    assert {("damping", "lowest"), ("damping", "highest")} <= found
    assert "epsilon" not in {name for name, _ in found}, "its interval is a single value"


def test_what_lies_outside_of_a_search_is_named(ran: Ran):
    study = ran.plan.study("coarse")
    adam = study.optimizer("adam")
    fixed = {"beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8, "rate_decay": 1.0}
    assert outside(study, adam, {**fixed, "learning_rate": 0.1}) == {}
    assert outside(study, adam, {**fixed, "learning_rate": 1e4}) == {}, "it is tried in addition"
    beyond = {"learning_rate": 1e5, "beta1": 0.5}
    assert outside(study, adam, {**fixed, **beyond}) == beyond


def test_check_names_a_better_setting_that_was_published(ran: Ran, tmp_path: Path):
    """Adam with rates of at most 1e-3 where a published study found a far better one."""
    text = STUDY.format(optimizers="[adam]", budget=4, claims="").replace("claims:\n", "")
    path = tmp_path / "narrow.yaml"
    path.write_text(text.replace("low: 1e-3, high: 10", "low: 1e-5, high: 1e-3"))
    published = ran.plan.model_copy(update={"published": "set.2026-11-29"})
    (note,) = better_known([read_study(path)], [published])
    assert (
        "adam on least_squares does not contain the best known setting, of rivals in set.2026-11-29" in note
    )
    rate = re.search(r"; add also_try: \[{learning_rate: (.*)}\]$", note)
    assert rate is not None
    assert float(rate[1]) > 1e-3
    listed = f"{{adam: {{also_try: [{{learning_rate: {rate[1]}}}]}}}}"
    assert path.write_text(path.read_text().replace("optimizers: [adam]", f"optimizers: [{listed}]"))
    assert not list(better_known([read_study(path)], [published])), "the line adds it"
    path.write_text(path.read_text().replace(listed, "adam"))
    path.write_text(path.read_text().replace("low: 1e-5, high: 1e-3", "low: 1e-3, high: 10"))
    assert not list(better_known([read_study(path)], [published])), "the search contains it"


def test_a_value_that_is_fixed_where_the_rival_was_searched_is_at_its_ends(ran: Ran):
    """Adam's beta1 is 0.9 in one search, and the other search tried several values of it."""
    free = search_of(ran, INSIDE, LOW, HIGH)
    wide = Axis(low=0.0, high=0.99, scale="linear")
    tuning = free.study.tuning.model_copy(update={"space": {"beta1": wide}})
    rival = replace(free, study=free.study.model_copy(update={"tuning": tuning}))
    assert [*free.edges()] == []
    limits = [(each["hyperparameter"], each["value"], each["limit"]) for each in free.edges(rival)]
    assert limits == [("beta1", 0.9, "lowest"), ("beta1", 0.9, "highest")]
    none = replace(free, optimizer=replace(free.optimizer, hyperparameters={"beta1": 0.0}))
    assert [each["limit"] for each in none.edges(rival)] == ["highest"], "no momentum is a natural end"


def test_a_setting_on_other_seeds_is_better_only_if_it_is_on_all(ran: Ran):
    """A few seeds differ more than settings do, so that medians over different seeds are not compared."""
    one = search_of(ran, INSIDE)

    def at(seed: int, *costs: float) -> MethodSearch:
        outcome = TuningOutcome(one.outcome.settings, np.array([[costs], [costs]]), -np.inf)
        return replace(one, outcome=outcome, tried=one.tried.with_columns(seed=pl.lit(seed)))

    own = at(0, 1.0, 2.0, 3.0)
    assert at(0, 1.0, 1.5, 3.0).is_better(own, 0.05)
    assert not at(1, 1.0, 1.5, 3.0).is_better(own, 0.05)
    assert at(1, 0.7, 0.8, 0.9).is_better(own, 0.05)
    assert not at(1, 0.7, 0.8, 0.9).is_better(at(0, 0.91, 0.91, 0.91), 0.5)
