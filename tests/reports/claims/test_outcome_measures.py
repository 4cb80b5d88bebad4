"""Conditions at equal cost, on curves and on learning rates: from made-up tables whose answers are known."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curvebench.reports.claims.censoring import with_bounds
from curvebench.reports.claims.comparison import ClaimComparison, comparisons
from curvebench.reports.claims.findings import decided
from curvebench.reports.claims.quantities import QUANTITIES, Quantity, seconds_to_nearly_best, share_of_gain
from curvebench.reports.claims.verdict_list import listed
from curvebench.reports.claims.verdicts import claim_verdicts
from curvebench.reports.claims.wording import say
from curvebench.reports.tables import Tables, read_tables
from curvebench.results.schema import TABLES
from curvebench.results.writing import write_table
from curvebench.spec.claim import Claim
from curvebench.spec.conditions.share_of_gain import ShareOfGain
from curvebench.spec.document import Judged
from curvebench.spec.plan import ReportPlan, StudyPlan
from tests.reports.changing import replace
from tests.reports.conftest import Report
from tests.reports.synthetic import BASIS_EVALUATIONS, RATES, STEPS


def asking(report: Report, **changes: Any) -> tuple[StudyPlan, Claim, Tables]:
    """Return the made-up study with its one condition changed, its claim, and its tables."""
    study = report.plan.study("digits_mlp")
    (claim,) = study.claims
    (condition,) = claim.conditions
    changed = replace(claim, conditions=(replace(condition, **changes),))
    return replace(study, claims=(changed,)), changed, read_tables(study.tables)


def quantity_of(study: StudyPlan, claim: Claim, tables: Tables) -> Quantity:
    """Return the quantity of the claim's first condition."""
    condition = claim.conditions[0]
    return QUANTITIES[type(condition)](condition, study, tables)


def final_of(tables: Tables, method: str) -> pl.DataFrame:
    """Return the final runs of a method on JAX, by seed."""
    return tables.runs.filter(stage="final", backend="jax", method=method).sort("seed")


def slowed(tables: Tables) -> Tables:
    """Return the tables with steps of a second, and of two seconds in the EGOP basis."""
    slower = pl.when(pl.col("method") == "adam @ egop").then(2.0).otherwise(1.0)
    return replace(tables, timings=tables.timings.with_columns(seconds=pl.col("steps") * slower))


def with_final_losses(runs: pl.DataFrame, loss: Callable[[dict[str, Any]], float]) -> pl.DataFrame:
    """Return the runs, each of which ends at the training loss `loss(run)`."""
    rows = [
        {**run, "final_metrics": [{"name": "train_loss", "value": loss(run)}]}
        for run in runs.iter_rows(named=True)
    ]
    return pl.DataFrame(rows, schema=runs.schema)


def value_at(tables: Tables, run: str, steps: int) -> float:
    """Return the training loss of a run at its last recorded step up to `steps`, by a loop."""
    curves = pl.read_parquet(list(tables.curves)).filter(run=run, metric="train_loss")
    kept = [value for step, value in sorted(curves.select("step", "value").iter_rows()) if step <= steps]
    return float(kept[-1])


def test_at_equal_gradients_the_basis_is_charged(report: Report):
    study, claim, tables = asking(report, at_equal="gradients")
    (one,) = comparisons(study, claim, tables, "jax")
    treated, control = final_of(tables, "adam @ egop"), final_of(tables, "adam")
    per_step = treated["gradient_evaluations"][0] // treated["steps"][0]
    afforded = (STEPS[-1] * per_step - BASIS_EVALUATIONS) // per_step
    assert 0 < afforded < STEPS[-1]
    expected = [
        np.log(value_at(tables, right, STEPS[-1])) - np.log(value_at(tables, left, afforded))
        for left, right in zip(treated["run"], control["run"], strict=True)
    ]
    assert one.gains == pytest.approx(expected)
    (at_equal_steps,) = comparisons(*asking(report), "jax")
    assert (one.gains < at_equal_steps.gains).all()
    assert decided([one])["at_equal"].item() == "gradients"


def test_at_equal_gradients_values_beyond_the_floor_count_as_the_floor(report: Report):
    (free,) = comparisons(*asking(report, at_equal="gradients"), "jax")
    (one,) = comparisons(*asking(report, at_equal="gradients", floor=1e9), "jax")
    assert free.gains.any()
    assert not one.gain_bounds.low.any()
    assert not one.gain_bounds.high.any()


def charging(tables: Tables, basis: int | pl.Expr, of: str = "egop") -> Tables:
    """Return tables in which runs in the basis `of` are charged `basis` gradients, and other runs none."""
    charged = pl.when(pl.col("basis") == of).then(basis).otherwise(0).cast(pl.Int64)
    return replace(tables, runs=tables.runs.with_columns(basis_gradient_evaluations=charged))


@pytest.mark.parametrize(("basis", "stands"), [(10**9, 0), (0, STEPS[-1])])
def test_a_basis_that_costs_more_than_the_run_leaves_it_at_its_start(report: Report, basis: int, stands: int):
    study, claim, tables = asking(report, at_equal="gradients")
    tables = charging(tables, basis)
    (one,) = comparisons(study, claim, tables, "jax")
    left, right = (final_of(tables, name)["run"][0] for name in ("adam @ egop", "adam"))
    expected = np.log(value_at(tables, right, STEPS[-1])) - np.log(value_at(tables, left, stands))
    assert one.gains[0] == pytest.approx(expected)
    assert (one.treated_at_start, one.control_at_start) == (0 if stands else len(one.gains), 0)


def at_start_of(report: Report, seeds: int, of: str = "egop") -> tuple[ClaimComparison, str]:
    """Return a comparison and the claim's reason if, for `seeds` seeds, the basis costs more than a run."""
    study, claim, tables = asking(report, at_equal="gradients")
    tables = charging(tables, pl.when(pl.col("seed") < 1000 + seeds).then(10**9).otherwise(0), of)
    study = replace(study, backends=("jax",))
    plan = ReportPlan(scale="quick", studies=(study,))
    found = claim_verdicts(plan, {study.name: tables}, None)
    (told,) = listed(plan, found.claims, found.findings)
    (one,) = comparisons(study, claim, tables, "jax")
    return one, told.reason


@pytest.mark.parametrize(
    ("of", "method", "other"), [("egop", "adam @ egop", "adam"), ("identity", "adam", "adam @ egop")]
)
def test_a_reason_counts_pairs_where_a_method_took_no_step(report: Report, of: str, method: str, other: str):
    one, reason = at_start_of(report, 3, of)
    for said in (f"{method} on digits_mlp", "3 of 10 pairs", "more gradients", f"run of {other}"):
        assert said in reason
    assert (one.treated_at_start, one.control_at_start) == ((3, 0) if of == "egop" else (0, 3))
    assert "at its start" not in at_start_of(report, 0, of)[1]


def test_at_equal_seconds_a_slower_step_is_read_earlier(report: Report):
    study, claim, tables = asking(report, at_equal="seconds")
    tables = replace(slowed(tables), runs=tables.runs.with_columns(basis_seconds=pl.lit(0.0)))
    (one,) = comparisons(study, claim, tables, "jax")
    left, right = (final_of(tables, name)["run"][0] for name in ("adam @ egop", "adam"))
    expected = np.log(value_at(tables, right, 100)) - np.log(value_at(tables, left, 50))
    assert one.gains[0] == pytest.approx(expected)
    untimed = replace(tables, timings=tables.timings.filter(pl.col("method") != "adam"))
    (one,) = comparisons(study, claim, untimed, "jax")
    assert not len(one.gains), "without a timed step nothing can be said"
    assert (one.treated_at_start, one.control_at_start) == (0, 0)


def drifting(tables: Tables) -> Tables:
    """Return the tables with three repetitions of timings: a step in the EGOP basis takes 1, 2 and 4 seconds
    where another step takes 1 second, each time on a machine that is slower than before.
    """
    steps = tables.timings.filter(phase="step").unique(["workload", "method", "backend", "machine"])
    seconds = pl.when(pl.col("method") == "adam @ egop").then(2.0 ** pl.col("repetition")).otherwise(1.0)
    repeated = pl.concat([steps.with_columns(repetition=pl.lit(number, pl.Int64)) for number in range(3)])
    slower = pl.col("steps") * seconds * (1 + pl.col("repetition"))
    return replace(tables, timings=repeated.with_columns(seconds=slower))


def test_at_equal_seconds_all_ratios_of_step_times_that_the_clock_allows_must_agree(report: Report):
    study, claim, tables = asking(report, at_equal="seconds")
    tables = replace(drifting(tables), runs=tables.runs.with_columns(basis_seconds=pl.lit(0.0)))
    (one,) = comparisons(study, claim, tables, "jax")
    left, right = (final_of(tables, name)["run"][0] for name in ("adam @ egop", "adam"))
    values = [value_at(tables, left, steps) for steps in (100, 50, 25)]
    bounds = np.log(value_at(tables, right, 100)) - np.log([max(values), min(values)])
    assert [end[0] for end in one.gain_bounds] == pytest.approx(bounds.tolist())
    assert one.gain_bounds.low[0] < one.gains[0] <= one.gain_bounds.high[0]
    exact = replace(slowed(tables), runs=tables.runs)
    (one,) = comparisons(study, claim, exact, "jax")
    assert one.gain_bounds.bounded == 0


def test_seconds_to_nearly_best_are_bounds_within_what_the_clock_tells(report: Report):
    study, claim, tables = asking(report, quantity="training_seconds_to_nearly_best", which="best")
    tables = drifting(tables)
    (one,) = comparisons(study, claim, tables, "jax")
    (right, left) = (final_of(tables, name).to_dicts()[0] for name in ("adam", "adam @ egop"))
    slow, fast = (
        np.log(seconds_by_hand(tables, right, other, False) / seconds_by_hand(tables, left, pace, False))
        for other, pace in ((1.0, 12.0), (3.0, 1.0))
    )
    assert (one.gain_bounds.low[0], one.gain_bounds.high[0]) == pytest.approx((slow, fast))


def seconds_by_hand(tables: Tables, run: dict[str, Any], pace: float, charged: bool) -> float:
    """Seconds to the first recorded step whose loss times 0.995 is at most the least one, by a loop."""
    curves = pl.read_parquet(list(tables.curves)).filter(run=run["run"], metric="train_loss")
    points = sorted(curves.select("step", "value").iter_rows())
    least = min(value for _, value in points)
    first = next(step for step, value in points if 0.995 * value <= least)
    return float(first * pace + (charged * (run["basis_seconds"] or 0.0)))


@pytest.mark.parametrize(
    ("quantity", "charged", "words"),
    [
        ("seconds_to_nearly_best", True, "seconds to 99.5 % of the best"),
        ("training_seconds_to_nearly_best", False, "seconds of training to 99.5 % of the best"),
    ],
)
def test_seconds_to_nearly_best_include_the_basis(quantity: str, charged: bool, words: str, report: Report):
    study, claim, tables = asking(report, quantity=quantity, which="best")
    tables = slowed(tables)
    (one,) = comparisons(study, claim, tables, "jax")
    treated, control = final_of(tables, "adam @ egop"), final_of(tables, "adam")
    expected = [
        np.log(seconds_by_hand(tables, right, 1.0, charged) / seconds_by_hand(tables, left, 2.0, charged))
        for left, right in zip(treated.to_dicts(), control.to_dicts(), strict=True)
    ]
    assert one.gains == pytest.approx(expected)
    assert max(expected) < 0 < treated["basis_seconds"].min()  # type: ignore[operator]
    assert say("reading", one.condition) == words
    untimed = replace(tables, timings=tables.timings.filter(pl.col("method") != "adam"))
    (one,) = comparisons(study, claim, untimed, "jax")
    assert not len(one.gains), "without a timed step nothing can be said"


def test_of_more_the_first_value_within_half_a_percent_counts_and_divergence_never(report: Report):
    """Of a metric that is maximized the first value that is at least 99.5 % of the most."""
    study, _, tables = asking(report)
    final = final_of(tables, "adam").head(3)
    outcomes = pl.Series("outcome", ["budget", "diverged", "error"])
    timings = tables.timings.with_columns(seconds=pl.col("steps") * 0.5)
    tables = replace(tables, timings=timings)
    metric = "validation_accuracy"
    found = seconds_to_nearly_best(study, tables, final.with_columns(outcomes), metric)
    curves = pl.read_parquet(list(tables.curves)).filter(run=final["run"][0], metric=metric)
    points = sorted(curves.select("step", "value").iter_rows())
    most = max(value for _, value in points)
    first = next(step for step, value in points if value >= 0.995 * most)
    assert 0 < first < points[-1][0]
    assert found["value"].to_list() == [first * 0.5, float("inf"), float("inf")]


def with_curves(report: Report, folder: Path, losses: Callable[[np.ndarray, int], np.ndarray]) -> Tables:
    """Return tables whose final runs have the training losses `losses(steps, seed)`, stored in a folder."""
    tables = asking(report)[2]
    steps = np.arange(0, 101, 5)
    rows = [
        {"run": run, "step": int(step), "metric": "train_loss", "value": float(value)}
        for run, seed in tables.runs.filter(stage="final", backend="jax").select("run", "seed").iter_rows()
        for step, value in zip(steps, losses(steps, seed), strict=True)
    ]
    write_table(folder / "curves.parquet", pl.DataFrame(rows, schema=TABLES["curves"]), TABLES["curves"])
    return replace(tables, curves=(folder / "curves.parquet",))


def test_steps_to_targets_of_conditions_are_read_from_curves(report: Report, tmp_path: Path):
    """The first evaluation at or below the target; who never comes there would have taken longer."""

    def losses(steps: np.ndarray, seed: int) -> np.ndarray:
        falling = np.exp(-0.1 * (1 + seed % 2) * steps)
        return np.where(steps > 60, 1.0, np.maximum(falling, 1e-3))  # and back

    asked = {"quantity": "steps_to_target", "judged": Judged(which="best", metric="train_loss")}
    for target, words in ((0.01, "0.01"), (1e-4, "0.0001")):
        study, claim, _ = asking(report, **asked, target=target)
        tables = with_curves(report, tmp_path, losses)
        final = final_of(tables, "adam")
        found = quantity_of(study, claim, tables).of_runs(final)
        steps = [25.0 if seed % 2 else 50.0 for seed in final["seed"]]
        if target == 0.01:
            assert found["value"].to_list() == found["most"].to_list() == steps
        else:
            assert found["value"].to_list() == [final["steps"][0] + 1.0] * len(final)
            assert set(found["most"]) == {float("inf")}
        (one,) = comparisons(study, claim, tables, "jax")
        assert one.stop == target
        assert say("reading", one.condition) == f"steps until {words} is reached by the best"


def test_a_straight_line_on_a_logarithmic_axis_is_linear_convergence(report: Report, tmp_path: Path):
    """Down to a value, not below it; noise leaves what the line explains, by numpy's correlation."""
    noise = np.random.default_rng(0).normal(size=21)

    def losses(steps: np.ndarray, seed: int) -> np.ndarray:
        falling = np.exp(-0.9 * steps + (noise if seed % 2 else 0))
        return np.where(steps < 80, falling, 1e-32 * (1 + steps % 2))

    study, claim, _ = asking(
        report, quantity="log_linearity", until=1e-20, compared_to=0.5, smallest_effect=0.1
    )
    tables = with_curves(report, tmp_path, losses)
    (one,) = comparisons(study, claim, tables, "jax")
    steps = np.arange(0, 101, 5)
    noisy = losses(steps, 101)
    end = next(place for place, loss in enumerate(noisy) if loss <= 1e-20) + 1
    assert 10 < end < 16, "the floor is not counted"
    expected = np.corrcoef(steps[:end], np.log(noisy[:end]))[0, 1] ** 2
    assert one.gains[1::2] == pytest.approx([expected - 0.5] * 5)
    assert (one.gains[::2] > one.gains[1::2]).all()
    (row,) = decided([one]).to_dicts()
    assert (row["control"], one.control, row["finding"]) == (None, "0.5", "supported")
    assert row["quantity"] == "log_linearity"
    assert "10⁻²⁰" in say("reading", one.condition)


@pytest.mark.parametrize(
    ("losses", "straight"),
    [
        (lambda steps: np.exp(-0.3 * steps), 1.0),
        (lambda steps: np.where(steps < 50, np.exp(-0.3 * steps), 0.0), 0.99),  # 0 is the end
        (lambda steps: np.exp(0.3 * steps), 0.0),  # never there
        (lambda steps: 1e-4 + np.exp(-0.3 * steps), 0.0),  # straight, and stalls above
        (lambda steps: np.where(steps == 50, 1e-9, 1.0), 0.0),  # there, and back
        (lambda steps: np.where(steps == 10, np.inf, np.exp(-0.3 * steps)), 0.0),
        (lambda steps: np.exp(-5.0 * steps), None),  # there at once
    ],
)
def test_how_straight_curves_of_known_shape_are(report: Report, tmp_path: Path, losses: Any, straight: Any):
    tables = with_curves(report, tmp_path, lambda steps, seed: losses(steps))
    final = final_of(tables, "adam")
    outcomes = pl.Series("outcome", ["budget"] * (len(final) - 2) + ["diverged", "interrupted"])
    study, claim, _ = asking(report, quantity="log_linearity", until=1e-6)
    straightness = quantity_of(study, claim, tables)
    found = straightness.of_runs(final.with_columns(outcomes))["value"].to_list()
    assert len(found) == len(final) - 1, "a run that is missing says nothing"
    assert found[-1] == 0, "one that diverged does not converge"
    wanted = [straight] * (len(final) - 2)
    assert found[:-1] == (wanted if straight is None else pytest.approx(wanted, abs=0.01))


def tuned(report: Report, losses: dict[str, Any]) -> Tables:
    """Return the tables whose sweeps of a method have the loss `losses[method](rate, seed)`."""
    tables = asking(report)[2]
    runs = tables.runs.filter(pl.col("stage") != "final", pl.col("method").is_in(list(losses)))
    ended = with_final_losses(runs, lambda run: losses[run["method"]](run["learning_rate"], run["seed"]))
    return replace(tables, runs=ended)


def test_the_best_learning_rates_of_sweeps_are_compared_seed_by_seed(report: Report):
    tables = tuned(
        report,
        {
            "adam": lambda rate, seed: abs(np.log(rate / 0.01)) + 1,
            "adam @ egop": lambda rate, seed: abs(np.log(rate / (0.1 if seed else 0.01))) + 1,
        },
    )
    study, claim, _ = asking(report, quantity="best_learning_rate", relation="no_worse")
    (one,) = comparisons(study, claim, tables, "jax")
    assert np.exp(one.gains) == pytest.approx([1.0, *[10.0] * 4])
    (row,) = decided([one]).to_dicts()
    assert (row["estimate"], row["seeds"]) == (pytest.approx(10.0), 5)
    assert row["quantity"] == "best_learning_rate"
    assert (row["margin"], row["effect"]) == (pytest.approx(0.95), "ratio")


@pytest.mark.parametrize(("power", "tau"), [(1.0, 1.0), (0.0, 0.0), (-1.0, -1.0)])
def test_a_trend_is_the_rank_correlation_of_rate_and_gain(report: Report, power: float, tau: float):
    gaining = {"adam @ egop": lambda rate, seed: (1 + seed) * 0.5 * rate**-power}
    tables = tuned(report, {"adam": lambda rate, seed: 1.0 + seed, **gaining})
    study, claim, _ = asking(report, quantity="trend")
    (one,) = comparisons(study, claim, tables, "jax")
    assert one.gains == pytest.approx([tau] * 5)
    assert one.as_effect(0.5) == 0.5


def test_rates_won_less_lost_are_counted_within_a_factor_of_ten_of_the_controls_best(report: Report):
    """The control is best at 0.01; 0.3 is too far. Won at 0.01 and 0.03, lost at 0.003, near equal at 0.1."""
    egop = {0.003: 3.0, 0.01: 0.5, 0.03: 1.0, 0.1: 5.0 * (1 - 1e-9), 0.3: 0.1}
    adam = {0.003: 2.0, 0.01: 1.0, 0.03: 2.0, 0.1: 5.0, 0.3: 9.0}
    tables = tuned(
        report, {"adam": lambda rate, seed: adam[rate], "adam @ egop": lambda rate, seed: egop[rate]}
    )
    study, claim, _ = asking(report, quantity="rates_won", smallest_effect=0.2)
    (one,) = comparisons(study, claim, tables, "jax")
    assert one.gains == pytest.approx([(2 - 1) / 4] * 5)
    (row,) = decided([one]).to_dicts()
    assert (row["quantity"], row["effect"]) == ("rates_won", "difference")


def over_rates(report: Report, quantity: str, losses: dict[str, Any], floor: float | None) -> np.ndarray:
    """Return gains over learning rates of EGOP-Adam, whose sweeps have the loss `losses[method][rate]`."""
    tables = tuned(report, {name: lambda rate, seed, own=own: own[rate] for name, own in losses.items()})
    study, claim, _ = asking(report, quantity=quantity, floor=floor)
    (one,) = comparisons(study, claim, tables, "jax")
    return one.gains


@pytest.mark.parametrize(
    ("quantity", "gain", "by_rounding"),
    [
        ("best_learning_rate", np.log(0.03 / 0.01), np.log(0.1 / 0.01)),
        ("rates_won", (1 - 1) / 4, (1 - 3) / 4),
        ("trend", (2 - 3) / np.sqrt(6 * 5), (3 - 3) / 6),
    ],
)
def test_rates_at_the_rounding_floor_tie(report: Report, quantity: str, gain: float, by_rounding: float):
    """At 0.03 and 0.1 both are beyond 1e-28, at 0.01 one is; 0.3 is too far from the control's best."""
    losses = {
        "adam @ egop": {0.003: 1e-5, 0.01: 1e-20, 0.03: 5e-30, 0.1: 4e-30, 0.3: 1.0},
        "adam": {0.003: 1e-4, 0.01: 1e-33, 0.03: 1e-32, 0.1: 2e-32, 0.3: 1.0},
    }
    assert over_rates(report, quantity, losses, 1e-28) == pytest.approx([gain] * 5)
    assert over_rates(report, quantity, losses, None) == pytest.approx([by_rounding] * 5)


ENDS = st.lists(st.floats(1e-34, 1e-22), min_size=len(RATES), max_size=len(RATES))


@given(st.sampled_from(["best_learning_rate", "rates_won", "trend"]), ENDS, ENDS)
@settings(max_examples=30, deadline=None)
def test_below_the_floor_rates_tie(report: Report, quantity: str, left: list[float], right: list[float]):
    both = {"adam @ egop": left, "adam": right}
    ended = {name: dict(zip(RATES, own, strict=True)) for name, own in both.items()}
    held = {name: {rate: max(end, 1e-28) for rate, end in own.items()} for name, own in ended.items()}
    found = over_rates(report, quantity, ended, 1e-28)
    np.testing.assert_array_equal(found, over_rates(report, quantity, held, None))


def test_the_share_of_a_gain_is_that_of_logarithms_and_bounded_where_runs_stopped():
    def side(*values: float, stop: float | None = None) -> pl.DataFrame:
        frame = pl.DataFrame(
            {"seed": range(len(values)), "value": values}, schema_overrides={"value": pl.Float64}
        )
        return with_bounds(frame, "minimize", stop)

    start = side(1.0, 1.0, 1.0, 1.0)
    whole = side(1e-4, 1e-4, 1e-8, 2.0, stop=1e-8)
    method = side(1e-4, 1e-1, 1e-4, 1e-3, stop=1e-8)
    found = share_of_gain(method, start, whole)
    np.testing.assert_allclose(found["value"][:2], [1.0, 0.25])
    np.testing.assert_allclose(found["least"][:2], [1.0, 0.25])
    assert found["least"][2] == 0, "the whole gain is at least what is known"
    assert found["most"][2] == pytest.approx(0.5)
    assert (found["least"][3], found["most"][3]) == (-np.inf, np.inf), "there is no gain to keep"
    reached = share_of_gain(side(1e-8, stop=1e-8), side(1.0), side(1e-8, stop=1e-8))
    assert reached["most"][0] == np.inf, "both ended at the floor"


def test_two_runs_at_what_rounding_leaves_tie_and_one_bounds_the_effect(report: Report):
    study, claim, tables = asking(report)
    (own,) = claim.conditions
    losses = {"adam": [1e-30, 1e-30, 1e-30, 1e-27, 1e-10], "adam @ egop": [1e-35, 1e-29, 1e-20, 1e-30, 1e-11]}
    final = pl.concat([final_of(tables, method).head(5) for method in losses])
    seeds = sorted(final["seed"].unique())
    runs = with_final_losses(final, lambda run: losses[run["method"]][seeds.index(run["seed"])])
    ended = replace(tables, runs=runs)
    for floor, certain, possible in (
        (1e-28, [0.0, 0.0, -np.inf, np.log(10), np.log(10)], [0.0, 0.0, -np.log(1e8), np.inf, np.log(10)]),
        (None, *[[np.log(1e5), -np.log(10), -np.log(1e10), np.log(1e3), np.log(10)]] * 2),
    ):
        condition = own.model_copy(update={"floor": floor})
        asked = claim.model_copy(update={"conditions": (condition,)})
        (one,) = comparisons(study, asked, ended, "jax")
        assert one.gain_bounds.low == pytest.approx(certain)
        assert one.gain_bounds.high == pytest.approx(possible)


def test_the_share_of_a_gain_in_steps_to_a_target(report: Report):
    """100 steps in original coordinates, 25 in the whole basis, 50 in a part of it: half of the gain."""
    study, claim, tables = asking(report)
    (own,) = claim.conditions
    given = {
        "metric": f"best {own.metric}",
        "quantity": "share_of_gain",
        "gain_metric": "steps_to_target",
        "better": ["adam @ egop"],
        "compared_to": 0.25,
        "baseline": ["sgd"],
        "reference": ["adam"],
    }
    condition = ShareOfGain.model_validate(given)
    steps = {"sgd": 100, "adam": 25, "adam @ egop": 50}
    reached = [
        [{"metric": own.metric, "threshold": 1.0, "steps": steps.get(method, 1)}]
        for method in tables.runs["method"]
    ]
    runs = tables.runs.with_columns(targets=pl.Series(reached, dtype=tables.runs.schema["targets"]))
    study = replace(study, targets={own.metric: 1.0})
    asked = replace(claim, conditions=(condition,))
    (one,) = comparisons(study, asked, replace(tables, runs=runs), "jax")
    assert one.gains == pytest.approx([0.5 - 0.25] * len(one.gains))
    assert (len(one.gains), one.effect) == (10, "difference")
    missed = replace(
        tables, runs=runs.with_columns(targets=pl.Series([[]] * len(runs), dtype=runs.schema["targets"]))
    )
    (one,) = comparisons(study, asked, missed, "jax")
    assert one.beyond_seeds, "nobody reached it: there is no gain to keep"
