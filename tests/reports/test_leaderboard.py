"""The leaderboard: who is ranked where, on what, and what is marked."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from reports.leaderboard import Board, leaderboard, leaderboards
from reports.tables import read_tables
from tests.reports.conftest import Report
from tests.reports.synthetic import BASIS_EVALUATIONS, HOSTILE


@pytest.fixture(scope="module")
def board(report: Report) -> Board:
    return leaderboard([(study, read_tables(study.tables)) for study in report.plan.studies], "jax")


def test_methods_that_met_every_workload_come_first_and_better_ones_before_worse(board: Any):
    ranks = [row.rank for row in board.rows]
    assert [rank.workloads for rank in ranks] == sorted([rank.workloads for rank in ranks], reverse=True)
    assert board.rows[0].method == "adam @ egop"
    everywhere = [rank.mean for rank in ranks if rank.workloads == 3]
    assert everywhere == sorted(everywhere)
    assert {row.method for row in board.rows} == {
        *("sgd", "adagrad", "adam", HOSTILE),
        *("sgd @ egop", "adagrad @ egop", "adam @ egop", f"{HOSTILE} @ egop"),
    }


def test_every_rank_has_an_interval_and_its_instances(board: Any):
    for row in board.rows:
        assert row.rank.low <= row.rank.mean <= row.rank.high
        assert row.rank.instances == 10 * row.rank.workloads


def test_a_method_has_entries_where_it_took_part_and_one_is_best(board: Any):
    [row] = [row for row in board.rows if row.method == HOSTILE]
    assert [entry is None for entry in row.entries] == [True, False, False]
    for place in range(len(board.columns)):
        assert sum(row.entries[place] is not None and row.entries[place].best for row in board.rows) == 1


def test_the_diverged_run_is_counted_and_targets_include_the_basis(board: Any):
    rows = {row.method: row for row in board.rows}
    assert (rows["sgd"].diverged.successes, rows["sgd"].diverged.count) == (3, 30)
    assert rows["sgd"].reached.successes == 27
    assert (rows["adam"].diverged.successes, rows["adam"].reached.successes) == (0, 30)
    assert rows["adam @ egop"].entries[0].evaluations.low > BASIS_EVALUATIONS


def test_steps_are_relative_to_the_first_method_and_memory_is_that_of_the_hungriest_workload(board: Any):
    rows = {row.method: row for row in board.rows}
    assert board.reference == "sgd"
    assert rows["sgd"].step is None
    assert rows["adam"].step.low <= rows["adam"].step.median <= rows["adam"].step.high
    assert rows["adam"].step.count == 7
    # 28 ms over 20 ms of digits_mlp; 24 ms over 20 ms of both workloads of convex, where adam is the second
    assert rows["adam"].step.median == pytest.approx((1.4 * 1.2 * 1.2) ** (1 / 3), rel=0.01)
    assert board.memory == "device"
    assert rows["adam"].memory == 3 * 2**20


def test_memory_is_the_hosts_where_the_device_is_not_counted(report: Report):
    studies = [(study, read_tables(study.tables)) for study in report.plan.studies]
    torch = leaderboard(studies, "torch")
    assert torch.memory == "host"
    assert {row.method: row.memory for row in torch.rows}["adam @ egop"] == (2 + 2 + 17) * 2**20


def test_a_backend_without_runs_has_no_columns(report: Report):
    study = report.plan.study("convex")
    assert leaderboard([(study, read_tables(study.tables))], "torch").columns == ()


def test_one_more_study_of_other_methods_leaves_the_ranks_of_the_others(report: Report):
    studies = [(study, read_tables(study.tables)) for study in report.plan.studies]
    (first, tables), *_ = studies
    few = dataclasses.replace(first, name="mine", methods=first.methods[:2])
    before, after = leaderboards(studies), leaderboards([*studies, (few, tables)])
    assert [board for board in after if "mine" not in board.studies] == before
    mine = [board for board in after if "mine" in board.studies]
    assert mine
    assert all({row.method for row in board.rows} <= set(few.methods) for board in mine)
