"""Planted claims: their truth table, the stored verdicts, the page, and a run at the small size."""

from __future__ import annotations

from pathlib import Path

import pytest

from curvebench.benchmarks.planted import BLOCK, SIZES, decide, planted_config, with_run
from curvebench.planning.plan import make_plan
from curvebench.reports.pages.planted import PlantedClaim, PlantedRun, PlantedRuns, read_planted
from curvebench.results.schema import VERDICTS
from tests.reports.conftest import SHAPES, bare_site
from tests.reports.pages.reading import Page

SMALL, OTHER = (PlantedRun("small", block, 1, {"a": "reproduced", "b": "underpowered"}) for block in (0, 1))
LARGE = PlantedRun("large", 0, 1, {"a": "not reproduced", "b": "not reproduced"})
CLAIMS = PlantedClaim("a", "One is better.", "false: they are equal"), PlantedClaim("b", "Equal.", "true: so")


def test_twenty_claims_are_false_and_ten_are_true_each_with_a_reason(tmp_path: Path):
    report = make_plan(planted_config("small", 0, tmp_path)).report
    claims = [claim for study in report.studies for claim in study.claims]
    truths = [claim.source.partition(": ") for claim in claims]
    assert sorted(truth for truth, _, why in truths if len(why) > 15) == ["false"] * 20 + ["true"] * 10
    assert {claim.id for claim in claims} == {claim.id for claim in read_planted().claims}


def test_no_stored_verdict_is_wrong():
    stored = read_planted()
    assert {run.size for run in stored.runs} == set(SIZES)
    *_, total = stored.rates
    assert (total.false_reproduced.successes, total.true_refuted.successes) == (0, 0)
    assert (total.false_reproduced.count, total.true_refuted.count) >= (60, 30)
    assert {word for run in stored.runs for word in run.verdicts.values()} <= set(VERDICTS)


def test_a_block_has_other_seeds_of_tuning_and_of_final_runs(tmp_path: Path):
    first, second = (make_plan(planted_config("small", block, tmp_path)).report for block in (0, 2))
    for one, other in zip(first.studies, second.studies, strict=True):
        assert other.first_tuning_seed - one.first_tuning_seed == 2 * BLOCK
        assert other.first_final_seed - one.first_final_seed == 2 * BLOCK


def test_rates_count_wrong_verdicts_by_size_and_together():
    runs = PlantedRuns(CLAIMS, (SMALL, OTHER, LARGE))
    small, large, total = runs.rates
    assert (small.false_reproduced.successes, small.false_reproduced.count) == (2, 2)
    assert (small.true_refuted.successes, large.true_refuted.successes) == (0, 1)
    assert (total.name, total.false_reproduced.successes, total.false_reproduced.count) == ("all", 2, 3)
    # Two of three: the exact interval is from 0.0943 to 0.9916.
    assert total.false_reproduced.low == pytest.approx(0.0943, abs=1e-4)
    assert total.false_reproduced.high == pytest.approx(0.9916, abs=1e-4)


def test_a_run_replaces_the_run_of_its_size_and_block_and_drops_runs_of_other_claims():
    stored = with_run(PlantedRuns(CLAIMS, (SMALL, LARGE)), CLAIMS, OTHER)
    assert stored.runs == (SMALL, OTHER, LARGE)
    again = PlantedRun("small", 1, 2, SMALL.verdicts)
    assert with_run(stored, CLAIMS, again).runs == (SMALL, again, LARGE)
    assert with_run(stored, CLAIMS[:1], again).runs == (again,)


def test_the_page_of_methods_shows_the_rates(tmp_path: Path):
    page = Page(bare_site(tmp_path, SHAPES[0]) / "methods.html")
    rates, verdicts = ([[cell.strip() for cell in row] for row in table] for table in page.tables[-2:])
    *_, total = read_planted().rates
    assert [row[0] for row in rates[1:]] == [*SIZES, "all"]
    assert rates[-1][1].startswith(f"0 of {total.false_reproduced.count}")
    assert f"to {100 * total.false_reproduced.high:.0f} %" in rates[-1][1]
    assert len(verdicts) == 31


@pytest.mark.long
def test_no_verdict_is_wrong_on_other_seeds(tmp_path: Path):
    claims, run = decide("small", 2, tmp_path)
    (rates,) = PlantedRuns(claims, (run,)).rates
    assert rates.false_reproduced.successes == 0, rates
    assert rates.true_refuted.successes == 0, rates
    assert rates.verdicts[True]["reproduced"] >= 7
