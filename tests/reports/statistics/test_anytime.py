"""Times to targets, their ECDF with bands, expected running time and profiles, beside what other tools say.

`anytime_reference.json` has what cocopp 2.9.1 and OptiProfiler 1.3.5 made of the runs and the work that stand
beside it; null is a target missed. They are no dependencies: cocopp imports six and does not say so, and
OptiProfiler brings h5py, pypdf and a library of problems.

cocopp: `data = object.__new__(cocopp.pproc.DataSet)`, after `load_current_testbed("bbob", TargetValues)`. Its
`_evals` has a row for each value that was a best one so far, falling, with the evaluation at which each run
had it, and `_maxevals` the runs' last. `times` is `data.detEvals(targets)`, `ert` is `data.detERT(targets)`,
and `ecdf` the points of `cocopp.pprldistr.plotECDF(times that reached, n=number of all)[0]`.

OptiProfiler: `_get_extended_performances_data_profile_axes(work, dimensions, {ProfileOption.SEMILOGX: False},
curves)` of `optiprofiler.plotting`, where `perf` and `data` are the curves over all runs, and
`_get_log_ratio_profile_axes(work[:, :2], curves)`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from curvebench.reports.statistics import anytime
from tests.reports.statistics.simulated import assert_between

REFERENCE = json.loads((Path(__file__).parent / "anytime_reference.json").read_text())
COCOPP, OPTIPROFILER = REFERENCE["cocopp"], REFERENCE["optiprofiler"]
TIMES = arrays(np.float64, (3, 6, 4), elements=st.sampled_from([1.0, 2.0, 5.0, 30.0, np.inf]))
AT = np.array([0.5, 1.0, 2.0, 10.0, 40.0])
PROBLEMS = np.array([0, 0, 1, 1, 1, 1])


def assert_near(found: Any, expected: Any) -> None:
    """Check that numbers are equal to a relative and absolute error of 1e-12."""
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def missed(values: Any) -> np.ndarray:
    """Numbers of the reference, infinite where a target was missed."""
    found = np.array(values, dtype=np.float64)
    return np.where(np.isnan(found), np.inf, found)


# --- cocopp --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def times() -> np.ndarray:
    """Return the times of each run of the reference data to each target."""
    runs = [(np.array(run["evaluations"], float), np.array(run["values"])) for run in COCOPP["runs"]]
    start, least = np.array([100.0]), np.array([min(values.min() for _, values in runs)])
    targets = anytime.target_values(start, least, np.logspace(0, -4, 51)[1:])[0]
    assert_near(targets, COCOPP["targets"])
    return np.stack([anytime.first_times(*run, np.array(COCOPP["targets"])) for run in runs])


def test_times_to_targets_are_those_of_cocopp(times: np.ndarray):
    expected = missed(COCOPP["times"]).T
    assert 0 < np.isinf(expected).sum() < expected.size
    np.testing.assert_array_equal(times, expected)


def test_expected_running_times_are_those_of_cocopp(times: np.ndarray):
    lengths = np.array([run["evaluations"][-1] for run in COCOPP["runs"]], dtype=float)
    assert_near(anytime.expected_running_time(times, lengths), missed(COCOPP["ert"]))


def test_the_share_reached_is_the_ecdf_of_cocopp(times: np.ndarray):
    x, below = (np.array(COCOPP["ecdf"][name]) for name in ("evaluations", "share"))
    jumps = np.unique(x)  # below holds the share before each of several equal times
    after = [below[np.searchsorted(x, at, side="right")] if at < x[-1] else below[-1] for at in jumps]
    assert_near(anytime.share_reached(times, jumps), after)


# --- OptiProfiler --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["perf", "data"])
def test_profiles_are_those_of_optiprofiler(kind: str):
    work = missed(OPTIPROFILER["work"])  # problems, solvers, runs
    units = np.array(OPTIPROFILER["dimensions"])[:, None, None] + 1
    flat = np.moveaxis(work, 1, 0).reshape(work.shape[1], -1)
    costs = {
        "perf": anytime.performance_ratios(flat),
        "data": np.moveaxis(work / units, 1, 0).reshape(flat.shape),
    }[kind]
    for own, curve in zip(costs, OPTIPROFILER[kind], strict=True):
        x, share = np.array(curve["x"]), np.array(curve["share"])
        at = np.unique(x)
        highest = [share[x == place].max() for place in at]
        found = anytime.share_reached(
            own[:, None], at * (1 + 1e-14)
        )  # a ratio and a grid point may differ by rounding
        assert_near(found, highest)


def test_the_log_ratio_profile_is_that_of_optiprofiler():
    first, second = (np.array(missed(OPTIPROFILER["work"]))[:, place].ravel() for place in (0, 1))
    assert (np.isinf(first) & np.isinf(second)).sum() == OPTIPROFILER["both_failed"] > 0
    assert_near(anytime.log_ratio_profile(first, second), OPTIPROFILER["log_ratio"])


# --- definitions ---------------------------------------------------------------------------------


def test_targets_are_fifty_from_the_start_to_the_least_value():
    assert len(anytime.SHARES_LEFT) == 50
    assert anytime.SHARES_LEFT.max() < 1
    assert np.allclose([anytime.SHARES_LEFT[9], anytime.SHARES_LEFT[-1]], [0.1, 1e-5])
    found = anytime.target_values(np.array([10.0, -3.0]), np.array([0.0, -5.0]), np.array([0.5, 0.1]))
    np.testing.assert_allclose(found, [[5.0, 1.0], [-4.0, -4.8]])


def test_a_value_that_is_lost_again_counts_and_one_that_is_no_number_does_not():
    evaluations, values = np.array([0.0, 3.0, 6.0, 9.0]), np.array([5.0, 1.0, np.nan, 0.5])
    np.testing.assert_array_equal(
        anytime.first_times(evaluations, values, np.array([5.0, 2.0, 0.5, 0.1])), [0.0, 3.0, 9.0, np.inf]
    )


@given(TIMES)
def test_shares_rise_within_bands_and_are_what_their_definition_says(times: np.ndarray):
    bands = anytime.ecdf_bands(times, PROBLEMS, AT)
    for method, own in enumerate(times):
        each = [[(own[place == PROBLEMS] <= at).mean() for at in AT] for place in (0, 1)]
        assert_near(bands.share[method], np.mean(each, axis=0))
        assert_near(anytime.share_reached(own, AT), [(own <= at).mean() for at in AT])
    assert (np.diff(bands.share, axis=1) >= -1e-15).all()
    assert ((bands.low >= 0) & (bands.low <= bands.share) & (bands.share <= bands.high)).all()
    assert (bands.high <= 1).all()


@given(TIMES, st.permutations(range(3)))
def test_nothing_depends_on_the_order_of_methods(times: np.ndarray, order: list[int]):
    here, there = anytime.ecdf_bands(times, PROBLEMS, AT), anytime.ecdf_bands(times[order], PROBLEMS, AT)
    for name in ("share", "low", "high"):
        assert_near(getattr(here, name)[order], getattr(there, name))
    np.testing.assert_array_equal(
        anytime.performance_ratios(times[:, :, 0])[order], anytime.performance_ratios(times[order, :, 0])
    )


@given(TIMES)
def test_a_log_ratio_profile_of_the_same_methods_turned_round_is_its_mirror(times: np.ndarray):
    first, second = times[0].ravel(), times[1].ravel()
    np.testing.assert_array_equal(
        anytime.log_ratio_profile(first, second), -anytime.log_ratio_profile(second, first)[::-1]
    )


def test_runs_that_missed_count_with_their_whole_length():
    times = np.array([[4.0, np.inf], [np.inf, np.inf]])
    np.testing.assert_array_equal(anytime.expected_running_time(times, np.array([10.0, 7.0])), [11.0, np.inf])


@pytest.mark.parametrize(("problems", "seeds"), [(1, 5), (1, 10), (3, 5), (8, 10)])
def test_a_band_holds_the_share_of_further_seeds(problems: int, seeds: int):
    truth = anytime.share_reached(drawn(np.random.default_rng(1), problems, 4000), POINTS)[0]
    random, problem = np.random.default_rng(2), np.repeat(np.arange(problems), seeds)
    held = []
    for _ in range(250):
        bands = anytime.ecdf_bands(drawn(random, problems, seeds), problem, POINTS)
        held.append((bands.low[0] <= truth) & (truth <= bands.high[0]))
    for at_point in np.array(held).T:
        assert_between(0.91, at_point.tolist(), 1.0)


POINTS = np.geomspace(60, 1000, 4)


def drawn(random: np.random.Generator, problems: int, seeds: int) -> np.ndarray:
    """Draw a method's times to 50 targets: each seed has a random speed, problems differ in hardness, and
    times above the budget are infinite.
    """
    pace = np.repeat(np.linspace(-1, 1, problems), seeds) + 0.6 * random.normal(size=problems * seeds)
    times = np.exp(np.linspace(3, 9, 50) + pace[None, :, None])
    return np.where(times > 2000, np.inf, times)
