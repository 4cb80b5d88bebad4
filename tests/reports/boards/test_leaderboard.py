"""Boards: scores, ranks, costs and tiers of methods, one that joins, and the table of all."""

from __future__ import annotations

import math
from statistics import mean, median
from typing import Any

import numpy as np
import polars as pl
import pytest

from curvebench.reports.boards.leaderboard import Board, by_source, leaderboard, leaderboards
from curvebench.reports.boards.submission import as_json, as_text, submissions
from curvebench.reports.measures import problems_of, study_values
from curvebench.reports.pages.study_pages import results_rows
from curvebench.reports.sets.derived import board_table
from curvebench.reports.statistics.anytime import SCORED, SHARES_LEFT
from curvebench.reports.statistics.profiles import score_intervals
from curvebench.reports.tables import Tables, read_tables
from curvebench.results.archive import LOCAL
from curvebench.results.schema import TABLES
from curvebench.spec.plan import StudyPlan, read_plan
from curvebench.spec.study import Sweep
from curvebench.spec.tuning import Criterion
from tests.conftest import ROOT
from tests.reports.changing import replace
from tests.reports.conftest import Studies, words_of
from tests.reports.synthetic import BASIS_EVALUATIONS, CHOSEN, HOSTILE, RATES


@pytest.fixture(scope="module")
def digits(studies: Studies) -> Board:
    return leaderboard(studies[:1], "jax")


def test_methods_that_met_every_workload_come_first_then_the_score_and_the_mean_rank_decide(studies: Studies):
    rows: Any = leaderboard(studies, "jax").rows
    order = [(-row.mean_rank.workloads, -row.score.value, row.mean_rank.value) for row in rows]
    assert order == sorted(order)
    assert len({row.mean_rank.workloads for row in rows}) > 1
    [new] = [row for row in rows if row.method == HOSTILE]
    assert [entry is None for entry in new.entries] == [True, False, False]


def test_the_score_is_the_area_under_the_profile_of_six_targets_with_the_basis(studies: Studies, digits: Any):
    """Computed from the times to targets, which `test_runtimes` recomputes from the curves."""
    assert [SHARES_LEFT[index] for index in SCORED] == pytest.approx([10 ** (-k / 2) for k in range(1, 7)])
    charged = pl.DataFrame(
        [
            (method, str(level), seed, time)
            for method, times in zip(digits.times.methods, digits.times.times[:, :, SCORED], strict=True)
            for seed, by_level in enumerate(times)
            for level, time in enumerate(by_level)
        ],
        schema=["submission", "workload", "study", "seconds"],
        orient="row",
    )
    table = score_intervals(charged, problems=dict.fromkeys("012345", "digits"), paired=True)
    wanted = dict(table.select("submission", "score").iter_rows())
    assert {row.method: row.score.value for row in digits.rows} == pytest.approx(wanted)
    assert all(row.score.low <= row.score.value <= row.score.high for row in digits.rows)
    for level in map(str, range(6)):
        alone = score_intervals(charged.filter(workload=level), paired=True)
        ranks = dict(alone.select("submission", "rank").iter_rows())
        assert {row.method: row.ranges.by_target[int(level)] for row in digits.rows} == pytest.approx(ranks)


def test_ranks_without_a_problem_and_on_a_new_one_are_those_of_boards_of_the_other_problems(studies: Studies):
    convex, of_convex = studies[1]
    whole: Any = leaderboard([(convex, of_convex)], "jax")
    parts: list[Any] = [
        leaderboard([(replace(convex, workloads=[plan]), of_convex)], "jax") for plan in convex.workloads
    ]
    ranks = [{row.method: row.rank.value for row in part.rows} for part in parts]
    for row in whole.rows:
        single = [of[row.method] for of in ranks]
        # with two problems, the board without one is that of the other
        assert row.ranges.new == row.ranges.without == (min(single), max(single))
        assert row.ranges.chance == pytest.approx(1 / 3)
    assert {row.ranges.without for row in parts[0].rows} == {None}


def test_each_group_of_problems_has_a_board(studies: Studies):
    convex, of_convex = studies[1]
    first, second = (plan.name for plan in convex.workloads)
    grouped = replace(convex, groups={"vectors": (second,), "networks": (first,)})
    boards: Any = leaderboards([(grouped, of_convex)])
    names = [(board.group, [column.workload for column in board.columns]) for board in boards]
    assert names == [("vectors", [second]), ("networks", [first])] * len(convex.backends)
    alone: Any = leaderboard([(replace(convex, workloads=convex.workloads[1:]), of_convex)], "jax")
    assert [(row.method, row.score, row.mean_rank) for row in boards[0].rows] == [
        (row.method, row.score, row.mean_rank) for row in alone.rows
    ]
    ours, others = by_source(boards)
    assert [board.group for board in ours] == ["vectors", "networks"]
    assert {board.backend for own in others.values() for board in own} == {*convex.backends[1:]}
    two: Any = leaderboards([(grouped, of_convex), (replace(grouped, name="decayed"), of_convex)])
    assert {board.studies for board in two} == {("convex",), ("decayed",)}, "protocols are ranked apart"


def test_a_method_that_acts_as_another_is_not_ranked_and_ranks_nobody(studies: Studies):
    convex, of_convex = studies[1]
    workload = convex.workloads[0].name
    acting = replace(convex, acts_as={"adam": {workload: "sgd"}})
    board: Any = leaderboard([(acting, of_convex)], "jax")
    rows = {row.method: row for row in board.rows}
    adam = rows.pop("adam")
    assert [entry and entry.acts_as for entry in adam.entries] == ["sgd", None]
    assert (adam.score, adam.rank, adam.ranges, adam.tier, adam.mean_rank) == (None,) * 5
    without = replace(convex, methods=[name for name in convex.methods if name != "adam"])
    runs = of_convex.runs.filter(pl.col("method") != "adam")
    alone: Any = leaderboard([(without, replace(of_convex, runs=runs))], "jax")
    assert {name: (row.score, row.mean_rank) for name, row in rows.items()} == {
        row.method: (row.score, row.mean_rank) for row in alone.rows
    }
    assert board.rows[-1] is adam


def test_numbers_of_a_board_are_those_by_hand(studies: Studies, digits: Any):
    """Counted in the made-up runs; the page's own numbers are frozen, which `--update` would change."""
    board: Any = leaderboard(studies, "jax")
    rows = {row.method: row for row in board.rows}
    counted = {
        name: [(share.successes, share.count) for share in (row.wins, row.reached, row.diverged)]
        for name, row in rows.items()
    }
    assert counted["sgd"] == [(0, 30), (27, 30), (3, 30)]
    assert counted["adam"] == [(0, 30), (30, 30), (0, 30)]
    assert counted["adam @ egop"][0] == (10, 30)
    assert counted[f"{HOSTILE} @ egop"][0] == (20, 20)
    # over workloads whose chances may differ there is no exact interval, over one there is
    assert math.isnan(rows["sgd"].diverged.low)
    [alone] = [row.diverged for row in digits.rows if row.method == "sgd"]
    assert alone.low < alone.value == 0.1 < alone.high
    best = [
        [row.method for row in board.rows if row.entries[place] and row.entries[place].best]
        for place in range(3)
    ]
    assert best == [["adam @ egop"], [f"{HOSTILE} @ egop"], [f"{HOSTILE} @ egop"]]
    assert (board.reference, rows["sgd"].step, rows["adam"].step.count) == ("sgd", None, 7)
    # 28 ms over 20 ms of digits_mlp; 24 ms over 20 ms of both workloads of convex, where adam is the second
    assert rows["adam"].step.median == pytest.approx((1.4 * 1.2 * 1.2) ** (1 / 3), rel=0.01)
    longer = pl.when(workload="digits_mlp", method="adam").then(10.0).otherwise(1.0)
    timed = [
        (one, replace(own, timings=own.timings.with_columns(pl.col("seconds") * longer)))
        for one, own in studies
    ]
    slower: Any = next(row for row in leaderboard(timed, "jax").rows if row.method == "adam")
    assert slower.step.median == pytest.approx(rows["adam"].step.median * 10 ** (1 / 3)), "a geometric mean"
    assert rows["adam"].tuning.runs == sum(entry.tuning.runs for entry in rows["adam"].entries)
    assert (board.memory, rows["adam"].memory) == ("device", 3 * 2**20)


def test_a_sweep_counts_as_one_problem_in_ranks_and_scores(studies: Studies):
    (digits, of_digits), (convex, of_convex) = studies
    sweep = Sweep(name="convex", setting="d")
    swept = replace(convex, workloads=[replace(plan, sweep=sweep) for plan in convex.workloads])
    board: Any = leaderboard([(digits, of_digits), (swept, of_convex)], "jax")
    assert (board.problems, len(board.columns)) == (("digits_mlp/digits_mlp", "convex/convex"), 3)
    parts: list[dict[str, Any]] = [
        {row.method: row for row in leaderboard([(one, own)], "jax").rows}
        for one, own in [
            (digits, of_digits),
            *((replace(convex, workloads=[plan]), of_convex) for plan in convex.workloads),
        ]
    ]
    for row in board.rows:
        ranks = [part[row.method].mean_rank.value for part in parts if row.method in part]
        problems = [mean(ranks[-2:]), *ranks[:-2]]
        assert row.mean_rank.value == pytest.approx(mean(problems)), "values first, then problems"
        assert row.mean_rank.workloads == len(problems) == row.gradients.workloads
        assert row.mean_rank.seeds == 10, "the instances of a sweep are its seeds"
        ratios = [part[row.method].gradients.value for part in parts if row.method in part]
        assert row.gradients.value == pytest.approx(median([median(ratios[-2:]), *ratios[:-2]]))
    scores = {row.method: row.score for row in board.rows}
    assert {score.workloads for score in scores.values()} == {2}
    for method in parts[0].keys() & parts[1].keys():
        first, *values = (part[method].score.value for part in parts)
        assert scores[method].value == pytest.approx((first + mean(values)) / 2)
    assert {*board.times.counted} == {0, 1}
    alone: Any = leaderboard([(swept, of_convex)], "jax")
    assert {row.score.workloads for row in alone.rows} == {1}


@pytest.mark.parametrize(("over", "cost"), [("gradients", "evaluations"), ("seconds", "seconds")])
def test_gradients_and_seconds_are_over_the_fewest_of_each_workload(studies: Studies, over: str, cost: str):
    board: Any = leaderboard(studies, "jax")
    spent = [
        {row.method: getattr(row.entries[place], cost).median for row in board.rows if row.entries[place]}
        for place in range(len(board.columns))
    ]
    for row in board.rows:
        own = [of[row.method] / min(of.values()) for of in spent if row.method in of]
        ratios = getattr(row, over)
        assert (ratios.value, ratios.low, ratios.high) == pytest.approx((median(own), min(own), max(own)))
        assert ratios.workloads == len(own)


def test_with_few_seeds_there_is_a_score_and_no_interval(study: StudyPlan, tables: Tables):
    few = replace(tables, runs=tables.runs.filter((pl.col("stage") != "final") | (pl.col("seed") < 1004)))
    for row in leaderboard([(study, few)], "jax").rows:
        assert row.score
        assert row.score.seeds == 4
        assert (row.score.low, row.score.high) == (None, None)
        assert row.rank
        assert (row.rank.low, row.rank.high) == (None, None)


def test_tuning_is_charged_wherever_it_was_done(study: StudyPlan, tables: Tables, digits: Any):
    rows = {row.method: row for row in digits.rows}
    runs = len(RATES) * 5
    assert {row.tuning.runs for row in digits.rows} == {runs}
    assert digits.tuned_equally
    paid = rows["adam @ egop"].tuning.evaluations - rows["adam"].tuning.evaluations
    assert paid == runs * BASIS_EVALUATIONS
    sharing = replace(study, shared_across="bases", tuned_on={"jax": "jax", "torch": "jax"})
    own = tables.runs.filter((pl.col("stage") == "final") | (pl.col("backend") == "jax"))
    shared = leaderboard([(sharing, replace(tables, runs=own))], "torch")
    by_method = {row.method: row.tuning for row in shared.rows}
    assert by_method["adam @ egop"] == by_method["adam"] == rows["adam"].tuning
    assert all(row.decades is not None for row in shared.rows)  # swept too, though nothing was chosen by it


def test_learning_rates_do_nearly_as_well_by_the_metric_that_is_compared(study: StudyPlan, tables: Tables):
    other = Criterion(statistic="median", which="final", metric="train_loss")
    criteria = [other, Criterion(statistic="median", which=study.which, metric=study.metric)]
    losses, own = (
        leaderboard([(replace(study, choose=choose, stop={}), tables)], "jax") for choose in criteria
    )
    assert [row.decades for row in losses.rows] == [row.decades for row in own.rows]


def test_one_more_study_of_other_methods_leaves_the_ranks_of_the_others(studies: Studies):
    (first, tables), *_ = studies
    few = replace(first, name="mine", methods=first.methods[:2])
    before, after = leaderboards(studies), leaderboards([*studies, (few, tables)])
    assert [board for board in after if "mine" not in board.studies] == before
    mine = [board for board in after if "mine" in board.studies]
    assert mine
    assert all({row.method for row in board.rows} <= set(few.methods) for board in mine)


def test_the_board_with_most_results_comes_first_and_the_others_by_the_source_they_cite(studies: Studies):
    cited = {"digits_mlp": "000 Fig. 1", "convex": "002 eq. 1"}
    citing = [(replace(study, source=cited[study.name]), tables) for study, tables in studies]
    first, others = by_source(leaderboards(citing))
    assert [board.studies for board in first] == [("convex",)]  # two problems
    [(source, own)] = others.items()
    assert (source.numbers, [board.studies for board in own]) == (("000", "001"), [("digits_mlp",)] * 2)
    assert by_source([]) == ([], {})


@pytest.mark.parametrize(("metric", "worst"), [("train_loss", "max"), ("validation_accuracy", "min")])
def test_all_runs_beyond_the_floor_tie(study: StudyPlan, tables: Tables, metric: str, worst: str):
    measured = replace(study, metric=metric, targets={})
    values = problems_of(measured, tables)[0].values["value"]
    floor = getattr(values.filter(values.is_finite()), worst)()
    held = replace(measured, compare=measured.compare.model_copy(update={"floor": floor}))
    rows = {row.method: row for row in leaderboard([(held, tables)], "jax").rows}
    finished = [row for row in rows.values() if not row.diverged.successes]
    assert len(finished) > 3
    ranks = set()
    for row in finished:
        (entry,) = row.entries
        assert entry is not None
        assert (entry.value.median, entry.best) == (floor, True)
        assert row.wins is not None
        assert row.wins.successes == row.wins.count
        assert row.mean_rank is not None
        ranks.add(row.mean_rank.value)
    assert len(ranks) == 1
    shown = results_rows(*problems_of(held, tables))
    assert {row["method"] for row in shown if row["best"]} >= {row.method for row in finished}
    before = leaderboard([(measured, tables)], "jax")
    assert len({row.wins and row.wins.successes for row in before.rows}) > 1


def test_the_floor_is_of_the_headline_alone(study: StudyPlan, tables: Tables):
    runs = problems_of(study, tables)[0].final
    held = replace(study, compare=study.compare.model_copy(update={"floor": 1e9}))
    assert study_values(held, runs)["value"].min() == 1e9
    # A claim names its metric, and has a floor of its own: the floor of the headline does not apply.
    named = study_values(held, runs, held.metric, held.which)
    assert named.equals(study_values(study, runs))


# --- the table -----------------------------------------------------------------------------------


def test_the_table_has_a_row_for_every_method_of_every_board(studies: Studies):
    boards = leaderboards(studies)
    table = board_table(boards, "quick")
    assert table.schema == TABLES["leaderboard"]
    assert len(table) == sum(len(board.rows) for board in boards)
    for board in boards:
        own = table.filter(backend=board.backend, studies=", ".join(board.studies))
        assert own["place"].to_list() == list(range(1, len(board.rows) + 1))
        for row, told in zip(board.rows, own.iter_rows(named=True), strict=True):
            assert row.score
            assert row.mean_rank
            assert (told["method"], told["score"], told["score_high"], told["mean_rank"]) == (
                row.method,
                row.score.value,
                row.score.high,
                row.mean_rank.value,
            )
            assert (told["diverged"], told["runs"]) == (row.diverged.successes, row.diverged.count)
            assert [item["workload"] for item in told["workloads"]] == [
                column.workload for column, entry in zip(board.columns, row.entries, strict=True) if entry
            ]
    flat = [name for name, data_type in table.schema.items() if data_type.is_nested()]
    assert flat == ["rank_by_target", "workloads"]


def test_a_study_that_joins_another_has_no_board_of_its_own(study: StudyPlan, tables: Tables):
    new = replace(study, name="new", joins=study.name)
    assert {board.studies for board in leaderboards([(study, tables), (new, tables)])} == {(study.name,)}


def test_the_edge_of_the_field_s_first_tier_does_not_hang_on_the_draws(monkeypatch: pytest.MonkeyPatch):
    *_, plan = sorted((ROOT / "results/published").glob("field.*/plan.json"))
    (study,) = read_plan(plan).studies
    tables, draws = read_tables(study.tables), np.random.default_rng
    found = []
    for seed in (0, 1):
        monkeypatch.setattr(np.random, "default_rng", lambda _, seed=seed: draws(seed))
        found.append({row.method: row.tier for row in leaderboard([(study, tables)], "jax").rows})
    assert found[0] == found[1]


# --- a submission ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rate", "told"),
    [
        (RATES[0], "lowest that was tried on digits_mlp: a lower one may be better."),
        (RATES[-1], "highest that was tried on digits_mlp: a higher one may be better."),
        (CHOSEN, None),
    ],
)
def test_a_rate_at_the_edge_is_reported(studies: Studies, rate: float, told: str | None):
    [(study, tables)] = studies[:1]
    new = study.model_copy(update={"optimizers": study.optimizers[-1:], "bases": study.bases[:1]})
    field = study.model_copy(update={"joined": {LOCAL: (new,)}})
    final = (pl.col("method") == "adam") & (pl.col("stage") == "final")
    chosen = pl.when(final).then(rate).otherwise("learning_rate")
    (found,) = submissions(field, replace(tables, runs=tables.runs.with_columns(learning_rate=chosen)))
    edge = told and told.split()[0]
    assert [one["edge"] for one in as_json(found)["problems"]] == [edge]
    page = words_of("macros.html.jinja", "at_edge", found.problems)
    for text in (as_text(found), page):
        assert (told is not None and told in text) or (told is None and "that was tried" not in text)
