"""Times of a board's methods to targets that its curves set, what they take, and their figures."""

from __future__ import annotations

from pathlib import Path
from shutil import copytree

import numpy as np
import polars as pl
import pytest

from curvebench.reports.boards.leaderboard import leaderboard
from curvebench.reports.boards.runtimes import Runtimes
from curvebench.reports.figures.anytime import COLOURED, draw_board, spaced
from curvebench.reports.figures.palette import GHOST
from curvebench.reports.statistics.anytime import SHARES_LEFT, expected_running_time, share_reached
from curvebench.reports.tables import Tables, read_tables
from curvebench.results.reading import read
from tests.reports.changing import replace
from tests.reports.conftest import Studies
from tests.reports.synthetic import BASIS_EVALUATIONS, DIVERGING, STEPS


def times_of(studies: Studies) -> Runtimes:
    """Return the times to targets of the first study, which must exist."""
    found = leaderboard(studies[:1], "jax").times
    assert found is not None
    return found


@pytest.fixture(scope="module")
def found(studies: Studies) -> Runtimes:
    return times_of(studies)


def curves_of(tables: Tables, metric: str) -> pl.DataFrame:
    """Return the final curves of a metric on jax, with method and seed."""
    runs = tables.runs.filter(stage="final", backend="jax").select("run", "method", "seed", "outcome")
    return read(tables.curves, "curves").filter(metric=metric).join(runs, on="run").sort("step")


def test_no_target_lies_beyond_the_floor(studies: Studies, found: Runtimes):
    [(study, tables)] = studies[:1]
    last = curves_of(tables, study.metric).filter(pl.col("value").is_finite(), step=STEPS[-1])
    floor = last["value"].to_numpy().max()
    held = times_of([(replace(study, compare=study.compare.model_copy(update={"floor": floor})), tables)])
    reached, before = (np.isfinite(one.times).sum() for one in (held, found))
    assert reached > before


@pytest.mark.parametrize(("metric", "sign"), [("train_loss", 1), ("validation_accuracy", -1)])
def test_a_time_is_the_first_one_at_the_target_with_the_basis(studies: Studies, metric: str, sign: int):
    [(study, tables)] = studies[:1]
    found = times_of([(replace(study, metric=metric), tables)])
    curves = curves_of(tables, metric)
    seeds = sorted(curves["seed"].unique())
    assert found.times.shape == (6, len(seeds), len(SHARES_LEFT))
    for at, seed in enumerate(seeds):
        here = curves.filter(pl.col("value").is_finite(), seed=seed)
        values = sign * here["value"].to_numpy()
        start, least = (sign * here.filter(step=0)["value"]).max(), values.min()
        for method, own in zip(found.methods, found.times[:, at], strict=True):
            basis = BASIS_EVALUATIONS if method.endswith("@ egop") else 0
            line = here.filter(method=method).rows(named=True)
            for left, time in zip(SHARES_LEFT, own, strict=True):
                target = least + left * (start - least)
                hits = [row["gradient_evaluations"] + basis for row in line if sign * row["value"] <= target]
                assert time == (min(hits) if hits else np.inf)


def test_methods_come_by_the_area_under_their_lines(found: Runtimes):
    areas = [share_reached(own, found.at).mean() for own in found.times]
    assert areas == sorted(areas, reverse=True)
    assert found.bands.share[:, -1] == pytest.approx(np.isfinite(found.times).mean(axis=(1, 2)))


def test_a_run_that_diverged_counts_with_what_it_took(found: Runtimes, tables: Tables):
    first = found.lengths[:, 0]
    took = dict(zip(found.methods, first, strict=True))
    [ended] = tables.runs.filter(stage="final", backend="jax", method=DIVERGING, outcome="diverged")[
        "gradient_evaluations"
    ]
    assert took[DIVERGING] == ended < STEPS[-1]
    assert took["adam @ egop"] == STEPS[-1] + BASIS_EVALUATIONS


def test_expected_times_are_of_each_target_problem_and_method(found: Runtimes):
    for place, (left, rows) in zip((9, 19, 29), found.expected, strict=True):
        assert SHARES_LEFT[place] == pytest.approx(left)
        assert [method for method, _ in rows] == list(found.methods)
        for at, (_, [one]) in enumerate(rows):
            assert one.evaluations == expected_running_time(found.times[at, :, place], found.lengths[at])
            assert one.reached.successes == np.isfinite(found.times[at, :, place]).sum()


def test_no_value_counts_as_better_than_where_runs_stop(studies: Studies):
    [(study, tables)] = studies[:1]
    stop = float(np.median(curves_of(tables, "train_loss")["value"].drop_nans()))
    stopped = times_of([(replace(study, stop={"train_loss": stop}), tables)])
    first = {method: times[:, 0] for method, times in zip(stopped.methods, stopped.times, strict=True)}
    last = {method: times[:, -1] for method, times in zip(stopped.methods, stopped.times, strict=True)}
    assert sum(np.isfinite(times).sum() for times in last.values()) > len(last["adam"])
    assert all((last[method] >= first[method]).all() for method in first)


def test_an_instance_on_which_nobody_improves_has_no_targets(studies: Studies, tmp_path: Path):
    study = studies[0][0]
    folder = tmp_path / "tables"
    copytree(study.tables, folder)
    flat = read(folder, "curves").with_columns(value=pl.lit(2.0))
    flat.write_parquet(folder / "curves.parquet")
    board = leaderboard([(study, read_tables(folder))], "jax")
    assert board.times is None
    assert [(row.score, row.rank, row.ranges, row.tier) for row in board.rows] == [(None,) * 4] * 6
    means = [row.mean_rank.value for row in board.rows if row.mean_rank]
    assert means == sorted(means)


# --- figures -------------------------------------------------------------------------------------


def test_of_many_methods_a_few_are_named_and_the_others_grey(found: Runtimes, tmp_path: Path):
    many = 22
    places = np.arange(many) % len(found.methods)
    slower = 1.1 ** np.arange(many)[:, None, None]
    lengths = found.lengths[places] * slower[:, 0]
    names = tuple(f"m{place}" for place in range(many))
    field = replace(found, methods=names, times=found.times[places] * slower, lengths=lengths)
    reached, profiles = draw_board(field, "jax", "field", tmp_path)
    svg = (tmp_path / f"{reached.name}.svg").read_text()
    assert all(f">{method}: " in svg for method in field.methods)
    grey = svg.count(f"stroke: {GHOST.light}; stroke-width: 0.9")
    assert grey == many - COLOURED
    assert all(f"{method} " in reached.alt for method in field.methods)
    assert "log-ratio" in (tmp_path / f"{profiles.name}.svg").read_text()


def test_a_board_of_one_method_has_no_profiles(found: Runtimes, tmp_path: Path):
    alone = replace(found, methods=found.methods[:1], times=found.times[:1], lengths=found.lengths[:1])
    assert [figure.name for figure in draw_board(alone, "jax", "alone", tmp_path)] == ["alone.reached"]


def test_names_of_lines_that_end_together_are_set_apart():
    np.testing.assert_allclose(spaced(np.array([0.5, 0.5, 0.51, 0.9]), 0.1), [0.5, 0.6, 0.7, 0.9])
    np.testing.assert_allclose(spaced(np.array([0.2, 0.98, 1.0]), 0.1), [0.2, 0.9, 1.0])
