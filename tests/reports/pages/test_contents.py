"""A report of local runs and published sets: the version of a study that it shows, and whether both versions
agree.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import shutil
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from curvebench.__main__ import main
from curvebench.reports.claims.verdict_list import ClaimVerdict
from curvebench.reports.pages.contents import checked_against
from curvebench.reports.rendering import text_of
from curvebench.results.archive import best_of, read_archive, shown_plans, with_figures
from curvebench.spec.errors import InputError
from curvebench.spec.plan import ReportPlan, read_plan
from tests.reports.changing import replace
from tests.reports.example_sets import write_set
from tests.reports.synthetic import Shape, write_plan

OWN = Shape(seeds=tuple(range(1000, 1006)))  # local runs, on fewer seeds than the published ones


@dataclass(frozen=True)
class Rendered:
    """A site, the plan that it shows, and what the command printed."""

    site: Path
    plan: ReportPlan
    said: str


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of two sets: a small one of a study, and a larger one of two with property checks."""
    folder = tmp_path_factory.mktemp("published")
    write_set(folder, "small.2026-10", [OWN], checks=False)
    write_set(folder, "large.2026-11")
    return folder


@pytest.fixture(scope="module")
def rendered(sets: Path, tmp_path_factory: pytest.TempPathFactory) -> Rendered:
    """Return the site of a study that was run here, with few seeds, and of the sets."""
    folder = tmp_path_factory.mktemp("here")
    plan = read_plan(write_plan(folder, [OWN]))
    archive = tuple(with_figures(one, folder / "drawn" / one.published) for one in read_archive(sets))
    plan = plan.model_copy(update={"archive": archive})
    file, summary = folder / "plan.json", folder / "summary.txt"
    file.write_text(plan.to_json())
    assert main(["figures", "--plan", str(file)]) == 0
    given = ["site", "--plan", str(file), "--out", str(folder / "site"), "--summary", str(summary)]
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        assert main(given) == 0
    assert not printed.getvalue(), "the summary goes to the file"
    return Rendered(folder / "site", plan, summary.read_text())


def test_the_archive_has_the_best_version_of_each_study_and_claim(sets: Path):
    (large,) = read_archive(sets)
    assert large.published == "large.2026-11"
    assert [study.name for study in large.studies] == ["digits_mlp", "convex"]
    assert large.checks
    assert large.origin
    assert "Toy CPU at 3 GHz, 2 cores" in large.origin.machines
    small = read_plan(sets / "small.2026-10/plan.json")
    kept, later = best_of((large, small))
    assert kept.studies == large.studies, "more seeds are better than a later day"
    assert later.studies == ()
    first, last = best_of((small, small))
    assert (first.studies, last.studies) == ((), small.studies), "of equals the last"


def test_the_best_version_of_a_property_claim_has_most_instances(sets: Path):
    (large,) = read_archive(sets)
    assert large.checks
    few = tuple(
        replace(claim, parts=tuple(replace(part, instances=1) for part in claim.parts))
        for claim in large.checks.claims
    )
    kept, left = best_of((large, replace(large, checks=replace(large.checks, claims=few))))
    assert kept.checks == large.checks
    assert left.checks is None


def test_figures_of_a_set_lie_in_the_folder_that_is_given(sets: Path, tmp_path: Path):
    (large,) = read_archive(sets)
    placed = with_figures(large, tmp_path)
    figures = [study.figures for study in placed.studies]
    assert figures == [tmp_path / "figures" / study.name for study in large.studies]
    assert placed.checks
    assert placed.checks.figures == tmp_path / "figures/claims"


def test_a_set_without_its_provenance_is_refused(sets: Path, tmp_path: Path):
    (tmp_path / "bad").mkdir()
    for name in ("plan.json", "SHA256SUMS"):
        shutil.copyfile(sets / "small.2026-10" / name, tmp_path / "bad" / name)
    with pytest.raises(InputError, match=r"bad/provenance\.json: not a set's provenance .* restore the set"):
        read_archive(tmp_path)


def test_what_ran_here_is_shown_where_no_set_has_more_of_it(rendered: Rendered):
    large, own = shown_plans(rendered.plan)
    assert [study.name for study in large.studies] == ["digits_mlp", "convex"]
    assert own.studies == ()
    (study,) = rendered.plan.studies
    runs_on = {name: replace(used, final_seeds=11) for name, used in study.runs_on.items()}
    *_, own = shown_plans(replace(rendered.plan, studies=(replace(study, runs_on=runs_on),)))
    assert [study.name for study in own.studies] == ["digits_mlp"]


def test_the_site_has_both_versions_and_every_study(rendered: Rendered):
    published = (rendered.site / "study_digits_mlp.html").read_text()
    assert "Published set <code>large.2026-11</code>, quick scale" in published
    assert "Toy CPU at 3 GHz, 2 cores" in published
    (here,) = rendered.site.glob("study_digits_mlp-here-*.html")
    assert f'href="{here.name}">What was run here</a>' in published
    assert "Run here at quick scale." in here.read_text()
    assert 'href="study_digits_mlp.html">The published version</a>' in here.read_text()
    assert "studies=digits_mlp scale=quick" in here.read_text(), "as its file is called"
    assert (rendered.site / "study_convex.html").is_file()
    claims = (rendered.site / "claims.html").read_text()
    assert claims.count("<dt>Published</dt><dd>Set <code>large.2026-11</code> decides it since 20") == 5
    (own,) = re.findall(r'<details class="here" id="here-egop\.digits_mlp">.*?</details>', claims, re.DOTALL)
    assert f'<a href="{here.name}">Its study' in own
    assert 'src="figures/digits_mlp-here-' in own
    assert f'href="runs_{here.stem.removeprefix("study_")}.html#adam-egop' in own
    assert here.read_text().count('href="claims.html#here-egop.digits_mlp"') == 2
    assert published.count('href="claims.html#claim-egop.digits_mlp"') == 2
    files = json.loads((rendered.site / "files.json").read_text())
    assert any(name.startswith("claim_figures/large.2026-11/") for name in files)


def test_a_claim_of_what_ran_here_that_no_set_has_is_on_the_page(rendered: Rendered, tmp_path: Path):
    (study,) = rendered.plan.studies
    more = study.claims[0].model_copy(update={"id": "egop.new"})
    rules = {**study.rules, more.id: "ab" * 8}
    study = study.model_copy(update={"claims": (*study.claims, more), "rules": rules})
    (tmp_path / "plan.json").write_text(rendered.plan.model_copy(update={"studies": (study,)}).to_json())
    assert main(["site", "--plan", str(tmp_path / "plan.json"), "--out", str(tmp_path / "site")]) == 0
    (here,) = (tmp_path / "site").glob("study_digits_mlp-here-*.html")
    assert 'href="claims.html#claim-egop.new"' in here.read_text()
    claims = (tmp_path / "site/claims.html").read_text()
    evidence = claims.partition('id="claim-egop.new"')[2]
    assert f'<dt>Study</dt><dd><a href="{here.name}">' in evidence.partition("</dl>")[0]


def test_the_overview_and_the_summary_say_whether_both_agree(rendered: Rendered):
    overview = (rendered.site / "index.html").read_text()
    assert "1 of 1 claim that was run here came out as published" in overview
    assert "<summary>1 claim that agrees, or is inconclusive here or there</summary>" in overview
    assert "Published: 1 of 1 claim agrees with the published sets\n" in rendered.said


def test_what_disagrees_comes_first_and_what_is_inconclusive_next():
    here = [("a", "reproduced"), ("b", "underpowered"), ("c", "not reproduced"), ("d", "not run")]
    nothing: dict[str, Any] = dict.fromkeys(("sentence", "source", "study", "scale", "command", "reason"), "")
    claim = partial(ClaimVerdict, **nothing)
    found = checked_against(
        (claim(id=name, verdict=verdict) for name, verdict in [*here, ("e", "reproduced")]),
        (claim(id=name, verdict="partly reproduced") for name in "abcd"),
    )
    told = [(one.local.id, one.agreement) for one in found]
    assert told == [("c", "disagrees"), ("b", "open"), ("a", "agrees")]
    plan = ReportPlan(scale="quick", studies=())
    own, spent = SimpleNamespace(plan=plan, studies=[], claims=[]), {"jobs": 0, "total_seconds": 0.0}
    summary = text_of("summary", own=own, checked=found, spent=spent, verdicts=[], site="", snakemake="")
    agreement = (
        "c DIFFER from the published sets; 1 of 3 claims agree with the published sets, 1 inconclusive"
    )
    assert f"Published: {agreement} here or there" in summary


def test_an_interruption_leaves_the_old_site_whole(rendered: Rendered, monkeypatch: pytest.MonkeyPatch):
    def content() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in rendered.site.rglob("*") if path.is_file()}

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    before = content()
    monkeypatch.setattr("curvebench.reports.pages.site.shutil.copyfile", killed)
    command = ["site", "--plan", str(rendered.site.parent / "plan.json"), "--out", str(rendered.site)]
    assert main(command) == 130
    assert content() == before
    assert not list(rendered.site.parent.glob(".site.*"))
