"""Tests of when limits of claims were registered: on repositories of the tests and on the project's own."""

import json
import subprocess
from dataclasses import asdict
from pathlib import Path

import polars as pl
import pytest

from curvebench.benchmarks.registration import as_text, registrations
from curvebench.reports.claims.registration import FILE

LIMIT = {"claim": "checked", "scale": "paper", "variant": "", "quantity": "error", "relation": "<="}
STUDY = """
targets: {{loss: {target}}}
tuning: {{floor: {floor}}}
workloads: [{workloads}]
claims:
  - id: lower
    sentence: "2 methods"
    {key}: [{{metric: {which} loss, {relation}: [adam, soap], compared_to: [{rivals}], pairs: {pairs},
      smallest_effect: {effect}}}]
  - id: sooner
    {key}: {{metric: best loss, quantity: steps_to_target, better: [adam], compared_to: [sgd]}}
"""
BEFORE = {
    "effect": "5 %", "target": "1e-3", "key": "supported_if", "rivals": "sgd, kfac", "floor": "1e-20",
    "workloads": "one, {two: {label: 2}}", "which": "final", "relation": "better", "pairs": "all",
}  # fmt: skip


class Repository:
    """A git repository with a study and published sets, whose commits are a day apart."""

    def __init__(self, root: Path) -> None:
        self.root, self.day = root, 0
        self.git("init", "--quiet", "--initial-branch=main")

    def git(self, *arguments: str) -> None:
        self.day += 1
        when = f"2026-01-{self.day:02}T12:00:00+00:00"
        names = {f"GIT_{who}_{key}": "a@b" for who in ("AUTHOR", "COMMITTER") for key in ("NAME", "EMAIL")}
        dates = {"GIT_AUTHOR_DATE": when, "GIT_COMMITTER_DATE": when}
        subprocess.run(["git", *arguments], cwd=self.root, check=True, env=names | dates, capture_output=True)

    def commit(self, path: str, content: str | pl.DataFrame) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, str):
            file.write_text(content)
        else:
            content.write_parquet(file)
        self.git("add", "--all")
        self.git("commit", "--quiet", "-m", "a change")

    def study(self, **changes: str) -> None:
        self.commit("benchmarks/studies/one.yaml", STUDY.format(**BEFORE | changes))

    def look(self, name: str, *claims: str, verdict: str = "reproduced") -> None:
        rows = pl.DataFrame({"claim": list(claims), "verdict": verdict})
        self.commit(f"results/published/{name}/claims.parquet", rows)

    def checks(self, name: str, *parts: tuple[str, float, bool]) -> None:
        rows = pl.DataFrame(
            [{**LIMIT, "part": part, "limit": limit, "holds": holds} for part, limit, holds in parts]
        )
        self.commit(f"results/published/{name}/checks/checks.parquet", rows)
        self.look(name, "checked")

    def earlier(self, claim: str) -> tuple[str, ...]:
        return registrations(self.root)[claim].earlier


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path)


def test_limits_that_were_committed_before_the_first_verdict_are_registered(repository: Repository):
    repository.study(key="holds_if")
    repository.look("first", "lower", "sooner")
    repository.look("not-run", "lower", verdict="not run")
    # The name of a key, and the way in which a number is written, are not the number.
    repository.study(key="supported_if", target="0.001")
    found = registrations(repository.root)["lower"]
    assert (found.date, found.looks, found.earlier) == ("2026-01-03", ("first",), ())


@pytest.mark.parametrize(
    ("changes", "claims"),
    [
        ({"effect": "4 %"}, {"lower"}),
        ({"target": "1e-4"}, {"sooner"}),
        ({"rivals": "sgd"}, {"lower"}),
        ({"rivals": "sgd, kfac, shampoo"}, set()),
        ({"relation": "same"}, {"lower"}),
        ({"which": "best"}, {"lower"}),
        ({"pairs": "matched"}, {"lower"}),
        ({"workloads": "one"}, {"lower", "sooner"}),
        ({"workloads": "one, {two: {label: 2}}, three"}, set()),
        ({"floor": "1e-10"}, {"lower", "sooner"}),
        ({}, set()),
    ],
)
def test_a_limit_that_changed_after_a_verdict_is_found(
    repository: Repository, changes: dict[str, str], claims: set[str]
):
    repository.study()
    repository.look("first", "lower", "sooner")
    repository.study(**changes, key="holds_if")
    repository.look("second", "lower", "sooner")
    found = registrations(repository.root)
    assert {claim for claim, item in found.items() if item.earlier == ("first",)} == claims
    assert all(item.looks == ("first", "second") for item in found.values())


def test_a_workload_that_the_study_named_by_like_drops_is_found(repository: Repository):
    claims = STUDY[STUDY.index("claims") :].format(**BEFORE)
    repository.commit("benchmarks/studies/two.yaml", "like: parent\n" + claims)
    repository.commit("benchmarks/studies/parent.yaml", "workloads: [one, two]\ntargets: {loss: 1}")
    repository.look("first", "lower")
    repository.commit("benchmarks/studies/parent.yaml", "workloads: [two]\ntargets: {loss: 1}")
    assert repository.earlier("lower") == ("first",)


def test_words_of_a_setting_about_runs_before_the_first_set_are_found(repository: Repository):
    setting = "Here 0.5 is asked (|x| < 1 was asked until runs reached 1.06). More follows."
    plan = {"checks": {"claims": [{"id": "checked", "setting": setting}]}}
    repository.commit("results/published/first/plan.json", json.dumps(plan))
    repository.checks("first", ("a", 1.0, True))
    found = registrations(repository.root)["checked"]
    assert (found.earlier, found.note) == ((), "|x| < 1 was asked until runs reached 1.06")


def test_a_limit_that_returned_to_a_former_value_counts_from_its_return(repository: Repository):
    repository.study()
    repository.look("first", "lower")
    repository.study(effect="4 %")
    repository.look("second", "lower")
    repository.study()
    assert repository.earlier("lower") == ("first", "second")


def test_a_merge_does_not_bring_limits_of_its_own(repository: Repository):
    repository.study()
    repository.look("first", "lower", "sooner")
    repository.git("checkout", "--quiet", "-b", "other")
    repository.look("second", "lower")
    repository.git("checkout", "--quiet", "main")
    repository.study(effect="4 %")
    repository.git("merge", "--quiet", "-m", "both", "other")
    found = registrations(repository.root)["lower"]
    assert (found.date, found.earlier) == ("2026-01-11", ("first", "second"))


@pytest.mark.parametrize(
    ("now", "changed"),
    [
        ([("a", 1.0, True), ("b", 2.0, True)], False),
        ([("a", 1.5, True), ("b", 2.0, True)], True),
        ([("a", 1.0, True), ("b", 2.0, True), ("new", 3.0, True)], False),
        ([("a", 1.0, True)], True),
        ([("b", 2.0, False)], False),
    ],
    ids=["same", "limit", "added", "violated one dropped", "satisfied one dropped"],
)
def test_limits_of_property_checks_are_those_of_the_sets(
    repository: Repository, now: list[tuple[str, float, bool]], changed: bool
):
    repository.checks("first", ("a", 1.0, True), ("b", 2.0, False))
    repository.checks("second", *now)
    assert repository.earlier("checked") == (("first",) if changed else ())


def test_the_file_of_the_project_is_that_of_its_history():
    shallow = ["git", "rev-parse", "--is-shallow-repository"]
    answer = subprocess.run(shallow, capture_output=True, text=True, check=False)
    if answer.stdout.strip() != "false":
        pytest.skip("needs the whole history: git fetch --unshallow")
    found = registrations(Path.cwd())
    assert FILE.read_text() == as_text(found), "run python -m benchmarks.registration, and commit the file"
    assert all(asdict(item) for item in found.values())
