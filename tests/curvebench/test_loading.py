"""Results in Python: tables by folder and by a set's name, rankings and figures."""

from __future__ import annotations

import json
import math
import runpy
import shutil
from pathlib import Path

import pandas
import pytest

import curvebench
from curvebench import paths
from curvebench.__main__ import main
from curvebench.paths import PUBLISHED
from curvebench.planning.config import Config
from curvebench.planning.plan import make_plan, write_specs
from tests.curvebench.tiny import write_study
from tests.results.rows import rows, write

SET = "egop-logsumexp.2026-11-29"
LOSSES = {"adam": (0.1, 0.2, 0.3), "sgd": (0.5, 0.6, math.nan)}  # losses of three final seeds, by method


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """Tables of two methods with three final runs, of which the last of SGD diverged, and two tuning runs."""
    runs, curves = [], []
    for method, losses in LOSSES.items():
        for seed, loss in enumerate(losses):
            name = f"{method}-{seed}"
            failed = {"outcome": "diverged", "outcome_step": 4} if math.isnan(loss) else {}
            metrics = [{"name": "train_loss", "value": loss}]
            runs.append({"run": name, "optimizer": method, "seed": seed, "final_metrics": metrics, **failed})
            steps = (0, 4) if failed else (0, 5, 10)
            curves += [{"run": name, "step": step, "value": 1.0 if step == 0 else loss} for step in steps]
    runs += [
        {"run": f"t-{rate}", "stage": "tuning", "learning_rate": rate, "seed": 0} for rate in (0.01, 0.1)
    ]
    return write(tmp_path, runs=rows("runs", *runs), curves=rows("curves", *curves))


def test_a_published_set_is_opened_by_its_name():
    by_name, by_folder = curvebench.load(SET), curvebench.load(PUBLISHED / SET)
    assert SET in curvebench.published()
    assert by_name.runs.equals(by_folder.runs)
    assert set(by_name.runs["method"].unique()) >= {"adagrad", "adagrad @ egop"}
    assert "egop.logsumexp-2d" in by_name.claims["claim"]
    assert by_name.jobs.height
    assert set(by_name.curves["run"]) <= set(by_name.runs["run"])


def test_a_set_of_property_checks_has_claims_and_no_runs():
    results = curvebench.load("symo-checks.2026-11-25")
    assert results.runs.is_empty()
    assert results.claims.height


def test_methods_are_ranked_by_their_medians_and_failed_runs_are_worst(own: Path):
    best = curvebench.load(own).best("train_loss")
    assert best["method"].to_list() == ["adam", "sgd"]
    assert best["median"].to_list() == [0.2, 0.6]
    assert best["high"].to_list() == [0.3, math.inf]
    assert best["count"].to_list() == [3, 3]
    upside_down = curvebench.load(own).best("train_loss", maximize=True)
    assert upside_down["method"].to_list() == ["sgd", "adam"]


def test_the_best_value_on_the_way_is_another_quantity(own: Path):
    assert curvebench.load(own).best("train_loss", which="best")["median"].to_list() == [0.25, 0.25]


def test_curves_have_a_line_a_method_and_keep_runs_that_failed(own: Path):
    (axes,) = curvebench.load(own).plot_curves("quadratic", "train_loss").axes
    adam, sgd = axes.lines
    assert (adam.get_label(), sgd.get_label()) == ("adam", "sgd")
    assert list(adam.get_ydata()) == [1.0, 0.2, 0.2]
    assert list(sgd.get_ydata()) == [1.0, 0.6, 0.6]  # not 0.55, the median of the two that did not fail
    assert axes.get_yscale() == "log"


def test_rates_are_those_of_tuning_runs(own: Path):
    (axes,) = curvebench.load(own).plot_rates("quadratic", "train_loss").axes
    (line,) = axes.lines
    assert list(line.get_xdata()) == [0.01, 0.1]
    assert axes.get_xscale() == "log"
    assert axes.get_title() == "quadratic: tuning runs"


def test_a_rate_of_several_rounds_has_the_values_of_the_last(tmp_path: Path):
    """As under successive halving, whose later rounds have longer runs."""
    losses = {(0, 0.01): 0.5, (1, 0.1): 0.2, (0, 0.1): 0.4}
    runs = [
        {
            "run": f"t-{number}-{rate}",
            "stage": "tuning",
            "round": number,
            "learning_rate": rate,
            "final_metrics": [{"name": "train_loss", "value": loss}],
        }
        for (number, rate), loss in losses.items()
    ]
    (axes,) = (
        curvebench.load(write(tmp_path, runs=rows("runs", *runs))).plot_rates("quadratic", "train_loss").axes
    )
    assert list(axes.lines[0].get_ydata()) == [0.5, 0.2]
    assert axes.get_title() == "quadratic: the last tuning runs of each rate"


def test_a_run_that_is_there_twice_is_refused(own: Path, tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("results")
    for place in ("runs", "tables"):
        shutil.copytree(own, folder / place)
    with pytest.raises(curvebench.InputError, match="twice; name a folder below it"):
        curvebench.load(folder).best("train_loss")


def test_a_folder_without_tables_is_refused(tmp_path: Path):
    with pytest.raises(curvebench.InputError, match="holds no tables"):
        curvebench.load(tmp_path)


@pytest.fixture
def edited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Results of a study that was run at two scales, edited at one of them, run again, and edited again."""
    monkeypatch.chdir(tmp_path)
    write_study(tmp_path / "studies")
    config = Config(studies=("tiny",), backends=("jax",), study_folder=Path("studies"), parity=False)

    def define(steps: int, scale: str = "quick", *, run: bool = True) -> None:
        write_study(tmp_path / "studies", ("steps: 20", f"steps: {steps}"), ("  quick:", f"  {scale}:"))
        plan = make_plan(config.model_copy(update={"scale": scale}))
        write_specs(plan)
        ((study, jobs),) = ((planned.plan, planned.jobs) for planned in plan.studies)
        if run and not (study.tables / "runs.parquet").exists():
            study.figures.mkdir(parents=True)
            for job in jobs:
                job.folder.mkdir(parents=True, exist_ok=True)
            run_of = {"study": "tiny", "scale": scale, "workload": "least_squares", "steps": steps}
            write(study.tables, runs=rows("runs", {**run_of, "run": f"{scale}-{steps}"}))

    for steps, scale in ((20, "quick"), (20, "paper"), (40, "quick"), (20, "quick")):
        define(steps, scale)
    define(80, run=False)
    return tmp_path


def test_the_newest_definition_of_a_study_is_loaded(edited: Path):
    """It is the definition planned last, although the tables of a change that was undone are newer."""
    assert curvebench.load("tiny.quick").runs["run"].to_list() == ["quick-20"]
    assert curvebench.load("results/tables").runs["run"].sort().to_list() == ["paper-20", "quick-20"]
    with pytest.raises(curvebench.InputError, match="tiny has runs at scales paper, quick; load one"):
        curvebench.load("results/tables").best("train_loss")
    with pytest.raises(curvebench.InputError, match=r"several scales; name one: tiny\.paper, tiny\.quick"):
        curvebench.load("tiny")
    with pytest.raises(curvebench.InputError, match=r"or study with results 'tiny\.quik'; did you mean"):
        curvebench.load("tiny.quik")


def test_results_of_older_definitions_are_listed_and_removed(
    edited: Path, capsys: pytest.CaptureFixture[str]
):
    def cleaned(*options: str) -> list[Path]:
        assert main(["clean", *options]) == 0
        *folders, total = capsys.readouterr().out.splitlines()
        assert ("removed" if "--remove" in options else "--remove removes") in total
        return [edited / folder.split()[-1] for folder in folders]

    kept = [curvebench.load(f"tiny.{scale}").folder.absolute() for scale in ("quick", "paper")]
    derived, with_runs = cleaned(), cleaned("--runs")
    assert [path.parent.name for path in derived] == ["figures", "tables"]
    of_runs = {path.name.split(".")[0] for path in {*with_runs} - {*derived}}
    assert of_runs == {"sgd", "adam", "all"}, "but no bases, which do not depend on the steps"
    assert all(path.exists() for path in with_runs)
    assert cleaned("--runs", "--remove") == with_runs
    assert not any(path.exists() for path in with_runs)
    assert all((path / "runs.parquet").exists() for path in kept)
    assert cleaned("--runs") == []


def test_hyperparameters_and_settings_are_columns(edited: Path):
    runs = curvebench.load("tiny.quick").runs
    assert runs["hyperparameters.beta1"].to_list() == [0.9]
    assert runs["workload.d"].to_list() == [4]
    assert runs["sweep"].to_list() == [None]
    assert "hyperparameters" not in runs.columns
    digits = curvebench.load("field.2026-11-27").runs.filter(workload="digits_small_batch")
    assert digits["workload.source"].unique().to_list() == ["reduced"]
    assert digits["workload.widths"].null_count() == digits.height


def test_runs_say_to_which_sweep_they_belong(edited: Path):
    folder = curvebench.load("tiny.quick").folder
    plan = json.loads((folder / "plan.json").read_text())
    plan["studies"][0]["workloads"][0]["sweep"] = {"name": "least_squares", "setting": "d"}
    (folder / "plan.json").write_text(json.dumps(plan))
    assert curvebench.load("tiny.quick").runs.filter(sweep="least_squares")["workload.d"].to_list() == [4]


def test_a_frame_of_pandas_needs_no_further_package(own: Path):
    frame = pandas.DataFrame(curvebench.load(own).runs.to_dict(as_series=False))
    assert frame["hyperparameters.beta1"].dtype == float


def test_a_folder_with_another_snakefile_is_no_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Such as a pipeline of a user's own, which has a checkout or results in `curvebench`."""
    (tmp_path / "Snakefile").touch()
    (tmp_path / "curvebench").mkdir()
    assert runpy.run_path(paths.__file__)["HOME"] == Path()
    monkeypatch.chdir(tmp_path)
    assert runpy.run_path(paths.__file__)["HOME"] == Path(paths.__file__).parent
