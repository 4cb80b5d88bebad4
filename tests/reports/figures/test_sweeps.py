"""Sweeps of a setting: quantities and slopes by hand, the figure and the page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from curvebench.__main__ import main
from curvebench.reports.boards.sweeps import EXAMPLES, RATE, STEPS, VALUE, StudySweep, sweeps_of
from curvebench.reports.figures.drawing import Drawn
from curvebench.reports.figures.sweeps import draw_sweeps
from curvebench.reports.tables import Tables, read_tables
from curvebench.results.reading import with_method
from curvebench.spec.plan import StudyPlan
from curvebench.spec.study import Sweep
from tests.reports.changing import replace
from tests.reports.conftest import changed_plan, site_of
from tests.reports.figures.test_across import made_up
from tests.reports.synthetic import Shape, write_plan
from tests.results.rows import rows, target

SIZES = (64, 16, 32)
SEEDS = range(1000, 1006)
SHAPE = Shape(
    name="sizes",
    workloads=tuple(f"net-{size}" for size in SIZES),
    optimizers=("sgd", "adam", "adagrad"),
    bases=("identity",),
    backends=("jax",),
)
# Steps to the target at batch size 16, and the exponent with which they fall
STEPS_AT_16 = {"sgd": (240, 1.0), "adam": (50, 0.0), "adagrad": (240, 1.0)}


def runs_of(size: int, optimizer: str) -> list[dict[str, Any]]:
    """Return final and tuning runs whose rate grows as the batch size, and whose loss falls with it."""
    at_16, power = STEPS_AT_16[optimizer]
    steps, rate = round(at_16 * (16 / size) ** power), 0.1 * size / 16
    common: dict[str, Any] = {
        "workload": f"net-{size}",
        "optimizer": optimizer,
        "basis": "identity",
        "backend": "jax",
    }
    common |= {"study": "sizes", "steps": 1000, "examples": 1000 * size, "outcome": "budget"}
    loss = [{"name": "train_loss", "value": 16 / size}]
    final = []
    for seed in SEEDS:
        missed = optimizer == "adagrad" and size == 64 and seed == 1003
        reached = target(metric="validation_accuracy", threshold=0.9, steps=None if missed else steps)
        own = {"run": f"{optimizer}-{size}-{seed}", "seed": seed, "stage": "final", "round": 2}
        final.append(common | own | {"learning_rate": rate, "final_metrics": loss, "targets": [reached]})
    tuning = []
    for seed in (0, 1):
        for factor in (1, 2):
            # With the second seed alone, tuning of adam would choose the doubled rate at size 64.
            best = 2 if optimizer == "adam" and size == 64 and seed == 1 else 1
            value = [{"name": "train_loss", "value": 1.0 if factor == best else 3.0 - seed}]
            own = {"run": f"{optimizer}-{size}-{seed}-{factor}", "seed": seed, "stage": "tuning", "round": 0}
            tuning.append(common | own | {"learning_rate": factor * rate, "final_metrics": value})
    return final + tuning


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> tuple[StudyPlan, Tables]:
    study = made_up(tmp_path_factory.mktemp("sizes"), SHAPE)
    sweep = Sweep(name="net", setting="batch_size")
    workloads = tuple(
        replace(plan, settings={"batch_size": size}, sweep=sweep)
        for plan, size in zip(study.workloads, SIZES, strict=True)
    )
    runs = [run for size in SIZES for optimizer in SHAPE.optimizers for run in runs_of(size, optimizer)]
    table = with_method(rows("runs", *runs)).with_columns(step_evaluations=pl.lit(1))
    tables = replace(read_tables(study.tables), runs=table)
    return replace(study, workloads=workloads), tables


def medians(sweep: StudySweep, quantity: str, method: str) -> list[float]:
    (found,) = [row for row in sweep.rows if (row["quantity"], row["method"]) == (quantity, method)]
    return list(found["medians"])


def test_a_sweep_has_its_values_in_order_and_the_medians_of_each_quantity(swept: tuple[StudyPlan, Tables]):
    (sweep,) = sweeps_of(*swept)
    assert (sweep.name, sweep.setting, sweep.values) == ("net", "batch_size", (16, 32, 64))
    assert sweep.quantities == [STEPS, EXAMPLES, VALUE, RATE]
    assert len(sweep.rows) == 12
    assert medians(sweep, STEPS, "sgd") == [240, 120, 60]
    assert medians(sweep, EXAMPLES, "sgd") == [3840, 3840, 3840]
    assert medians(sweep, EXAMPLES, "adam") == [800, 1600, 3200]
    assert medians(sweep, VALUE, "adam") == [1, 0.5, 0.25]
    assert medians(sweep, RATE, "sgd") == [0.1, 0.2, 0.4]


def test_slopes_are_exponents_with_intervals(swept: tuple[StudyPlan, Tables]):
    (sweep,) = sweeps_of(*swept)
    found: Any = {key: slope and (slope.median, slope.low, slope.high) for key, slope in sweep.slopes.items()}
    assert found[STEPS, "sgd"] == (-1, -1, -1)
    assert found[EXAMPLES, "sgd"] == (0, 0, 0)
    assert (found[STEPS, "adam"], found[EXAMPLES, "adam"]) == ((0, 0, 0), (1, 1, 1))
    assert found[VALUE, "adagrad"] == (-1, -1, -1)
    assert found[STEPS, "adagrad"] is None, "on one seed the target was missed"
    assert found[RATE, "sgd"] == (1, 1, 1), "both tuning seeds choose the same rate"
    middle, low, high = found[RATE, "adam"]
    assert (middle, low) == (1, 1)
    assert high == pytest.approx(1.5), "a quarter of the resamples choose twice the rate at size 64"


def test_values_that_are_no_numbers_have_positions_and_no_slopes(swept: tuple[StudyPlan, Tables]):
    study, tables = swept
    texts = ("Data(9)", "Data(1)", "Data(4)")
    plans = zip(study.workloads, texts, strict=True)
    named = tuple(replace(plan, settings={"batch_size": text}) for plan, text in plans)
    (sweep,) = sweeps_of(replace(study, workloads=named), tables)
    assert (sweep.labels, sweep.slopes) == ([(1, "Data(9)"), (2, "Data(1)"), (3, "Data(4)")], {})
    assert medians(sweep, STEPS, "sgd") == [60, 240, 120]


def test_without_a_target_a_sweep_has_values_and_rates(swept: tuple[StudyPlan, Tables]):
    study, tables = swept
    (sweep,) = sweeps_of(replace(study, targets={}), tables)
    assert sweep.quantities == [VALUE, RATE]


def drawn(study: StudyPlan, tables: Tables, out: Path) -> Drawn:
    (figure,) = draw_sweeps(study, tables, out)
    return figure


def test_a_figure_has_a_panel_for_each_quantity(swept: tuple[StudyPlan, Tables], tmp_path: Path):
    figure = drawn(*swept, tmp_path)
    assert (figure.kind, figure.workload) == ("sweep", "net")
    assert figure.title == (
        "Steps to target, examples to target, final training loss and learning rate against batch size"
    )
    assert "sgd 240 at batch_size = 16, 120 at batch_size = 32" in figure.alt
    svg = (tmp_path / f"{figure.name}.svg").read_text()
    for text in ("steps to target", "examples to target", "final training loss", "learning rate", "16", "64"):
        assert f">{text}</text>" in svg


def test_a_page_has_the_sweep_with_its_figure_and_slopes(tmp_path: Path):
    def change(raw: dict[str, Any]) -> None:
        for workload, size in zip(raw["studies"][0]["workloads"], SIZES, strict=True):
            workload |= {"settings": {"width": size}, "sweep": {"name": "net", "setting": "width"}}

    plan = write_plan(tmp_path, [SHAPE])
    plan.write_text(changed_plan(plan, tmp_path, change).read_text())
    assert main(["figures", "--plan", str(plan)]) == 0
    page = (site_of(plan, tmp_path) / "study_sizes.html").read_text()
    assert '<h2 id="sweep-net">net by width</h2>' in page
    assert 'src="figures/sizes/sizes.jax.sweep.net.svg"' in page
    assert "proportional to the width to the power p" in page
    assert page.count("<td>Examples to target</td>") == len(SHAPE.optimizers)
