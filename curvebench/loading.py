"""Results in Python: `curvebench.load` opens the tables of a published set or of local runs.

A published set is a folder with the results of a report; the folder is never changed. A study compares
methods (optimizers in a basis, that is a change of coordinates of the parameters) on workloads. Tuning runs
choose the hyperparameters of a method; final runs use the chosen hyperparameters on other seeds.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import polars as pl

from curvebench.paths import TABLES
from curvebench.reports.measures import complete_curves, curve_bands, run_values, sensitivity
from curvebench.reports.statistics.medians import medians
from curvebench.results.reading import named, newest, read, with_method
from curvebench.results.schema import TABLES as SCHEMAS
from curvebench.spec.document import Which
from curvebench.spec.errors import InputError, unknown
from curvebench.spec.method import Method
from curvebench.spec.plan import read_plan
from curvebench.spec.sets import PLAN, set_folders

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Folder of the published sets. The path is absolute because notebooks change their working folder.
SETS = Path(__file__).parent / "results" / "published"
FIGURE_INCHES = (6.0, 4.0)  # width and height of a figure in inches
# Columns of the table `runs`, without the list of hyperparameters.
# A column for each hyperparameter replaces this list.
UNNESTED = {name: dtype for name, dtype in SCHEMAS["runs"].items() if name != "hyperparameters"}
MARKER_DISTANCE = 0.1  # distance between two markers on a line divided by the length of the line


@dataclass(frozen=True)
class LoadedResults:
    """Tables of a published set or of local runs, as Polars frames; `load` returns one.

    A table is read when its attribute is first used. If the folder lacks a table, the frame has no rows: a
    set of property checks has no runs, and only published sets have claims. The columns are described in
    docs/reference/tables.md. The attribute `runs` has other columns for hyperparameters and settings, as its
    docstring says.

    Args:
        folder: folder of the set, or any folder that contains tables, directly or in its subfolders. If a
            study was changed, `results/tables` may contain tables of several versions of the study; only the
            tables of the version that was planned last are read.

    Example:
        >>> from curvebench import load
        >>> results = load("egop-digits.2026-11-25")
        >>> results.best("train_loss", backend="jax")["method"][0]
        'adam @ egop'
        >>> results.runs.filter(stage="final", method="adam @ egop", backend="jax").height
        50
        >>> figure = results.plot_curves("digits_mlp", "train_loss", backend="jax")
    """

    folder: Path

    @property
    def name(self) -> str:
        """Name of the published set. For local runs, it is the path of the folder."""
        return self.folder.name if self.folder.parent == SETS else str(self.folder)

    @cached_property
    def runs(self) -> pl.DataFrame:
        """Table with one row per run, including tuning runs.

        The column `method` joins the labels of optimizer and basis (`adam @ egop`). The learning rate is the
        column `learning_rate`. Every other hyperparameter has a column `hyperparameters.NAME`; these columns
        replace the list `hyperparameters`. If the plan of the study (`plan.json`) is next to the tables,
        every setting of the workload has a column `workload.NAME`, where a setting that is a list is JSON
        text, and the column `sweep` has the name of the sweep to which the workload belongs. A value is null
        in runs without the hyperparameter, setting or sweep.

        Raises:
            InputError: when a run occurs twice, as in a folder that contains the tables of a job and the
                tables of the job's study; or when a plan is damaged.
        """
        frames = [with_values(read([file], "runs"), file.parent) for file in self._files("runs")]
        runs = with_method(pl.concat([pl.DataFrame(schema=UNNESTED), *frames], how="diagonal_relaxed"))
        if runs["run"].is_duplicated().any():
            raise InputError(f"{self.name}: has runs twice; name a folder below it, such as {TABLES}")
        return runs

    @cached_property
    def curves(self) -> pl.DataFrame:
        """Table with one row per run, evaluation and metric."""
        return self._read("curves")

    @cached_property
    def jobs(self) -> pl.DataFrame:
        """Table with one row per job: its seconds, memory, machine and provenance."""
        return self._read("jobs")

    @cached_property
    def claims(self) -> pl.DataFrame:
        """Table with one row per claim and backend: its verdict, effect and interval."""
        return self._read("claims")

    def best(
        self,
        metric: str,
        workload: str | None = None,
        backend: str | None = None,
        study: str | None = None,
        *,
        which: str = "final",
        maximize: bool = False,
    ) -> pl.DataFrame:
        """Rank methods by the median of a metric over the seeds of their final runs.

        Args:
            metric: name of the metric, such as `train_loss`.
            workload: keep the runs on this workload (default: all).
            backend: keep the runs on this backend, `jax` or `torch` (default: both).
            study: keep the runs of this study (default: all).
            which: "final" to rank by the value at the end of a run, "best" to rank by the best value on the
                run's curve.
            maximize: whether larger values are better. Set it for accuracies.

        Returns:
            Frame with the columns study, workload, backend, method, median, low and high (the ends of the
            confidence interval of the median), level (coverage of the interval, 0.95 if there are enough
            seeds) and count (number of seeds). Within a study, workload and backend, the best method is the
            first row. The final value of a failed run counts as infinitely bad.

        Raises:
            InputError: when no final run has the study, workload, backend or metric; or when `which` is
                unknown.
        """
        final = self._select(metric, "final", which, study=study, workload=workload, backend=backend)
        values = run_values(final, metric, which, "maximize" if maximize else "minimize")
        cell = ["study", "workload", "backend"]
        descending = [False, False, False, maximize]
        return medians(values, [*cell, "method"], "value").sort(*cell, "median", descending=descending)

    def plot_curves(
        self,
        workload: str,
        metric: str,
        backend: str | None = None,
        study: str | None = None,
        *,
        maximize: bool = False,
    ) -> Figure:
        """Plot a metric over steps: for each method, the median over the seeds of the method's final runs.

        The band around a line reaches from the lower to the upper quartile over the seeds.

        Args:
            workload: name of the workload.
            metric: name of the metric, such as `train_loss`.
            backend: `jax` or `torch`; required if the tables contain both.
            study: name of the study; required if the tables contain several studies.
            maximize: whether larger values are better. Set it for accuracies.

        Returns:
            A matplotlib figure. A run that stopped early because it had reached its goal keeps its last
            value; a failed run counts as infinitely bad from the step at which it failed.

        Raises:
            InputError: when there are no runs with the given names and metric, or when a backend or study
                must be given.
        """
        final = self._select(metric, "final", one_cell=True, study=study, workload=workload, backend=backend)
        curves = complete_curves(final, self.curves, metric, "maximize" if maximize else "minimize")
        bands = curve_bands(curves).filter(pl.col("median").is_finite())
        return _drawn(bands, "step", "gradient steps", metric, f"{workload}: final runs")

    def plot_rates(
        self,
        workload: str,
        metric: str,
        backend: str | None = None,
        study: str | None = None,
        *,
        which: str = "final",
        maximize: bool = False,
    ) -> Figure:
        """Plot a metric of the tuning runs over the learning rate: median and quartiles over tuning seeds.

        Args:
            workload: name of the workload.
            metric: name of the metric, such as `train_loss`.
            backend: `jax` or `torch`; required if the tables contain both.
            study: name of the study; required if the tables contain several studies.
            which: "final" for the value at the end of a run, "best" for the best value on the run's curve.
            maximize: whether larger values are better. Set it for accuracies.

        Returns:
            A matplotlib figure. Learning rates at which most runs failed are left out. If successive halving
            dropped a learning rate early, the values at this learning rate come from its longest runs.

        Raises:
            InputError: when there are no runs with the given names and metric, when `which` is unknown, or
                when a backend or study must be given.
        """
        tuning = self._select(
            metric, "tuning", which, one_cell=True, study=study, workload=workload, backend=backend
        )
        values = run_values(tuning, metric, which, "maximize" if maximize else "minimize")
        finite = sensitivity(values).filter(pl.col("median").is_finite())
        again = tuning.select("method", "learning_rate", "seed").is_duplicated().any()
        title = f"{workload}: {'the last tuning runs of each rate' if again else 'tuning runs'}"
        return _drawn(finite, "learning_rate", "learning rate", metric, title, log_x=True)

    def _read(self, table: str) -> pl.DataFrame:
        """Read a table of the folder; if the folder lacks the table, return a frame without rows."""
        return read(self._files(table), table)

    def _files(self, table: str) -> list[Path]:
        """Return the files of a table in the folder, without the files of older versions of a study."""
        name = f"{table}.parquet"
        return [folder / name for folder in newest(file.parent for file in self.folder.rglob(name))]

    def _select(
        self, metric: str, stage: str, which: str = "final", *, one_cell: bool = False, **names: str | None
    ) -> pl.DataFrame:
        """Return the runs of a stage ("tuning" or "final") that have the given study, workload and backend.

        Args:
            metric: name of a metric; an error is raised if no run has the metric.
            stage: "tuning" or "final".
            which: "final" or "best". The value is only checked here, on behalf of the public methods.
            one_cell: whether to raise an error unless the runs belong to one study, one workload and one
                backend.
            names: for each of the columns study, workload and backend, the name that the runs must have; None
                for any name.

        Raises:
            InputError: when no run has one of the names or the metric; when `which` is unknown; when a study
                has runs at several scales; or when `one_cell` is set and the runs do not belong to one study,
                workload and backend.
        """
        if which not in get_args(Which):
            raise InputError(f"which: {unknown('a run', 'value', which, get_args(Which))}")
        runs = self.runs.filter(stage=stage)
        for column, name in names.items():
            available = sorted(runs[column].unique())
            if name is not None and name not in available:
                raise InputError(unknown(self.name, column, name, available))
            if one_cell and name is None and len(available) > 1:
                raise InputError(f"{self.name}: {column} is one of {', '.join(available)}; give {column}=")
            runs = runs if name is None else runs.filter(pl.col(column) == name)
        scales = runs.group_by("study").agg(pl.col("scale").unique().sort())
        for study, several in scales.filter(pl.col("scale").list.len() > 1).iter_rows():
            raise InputError(f"{self.name}: {study} has runs at scales {', '.join(several)}; load one")
        metrics = runs["final_metrics"].explode().struct.field("name").drop_nulls().unique().sort()
        if metric not in metrics:
            raise InputError(unknown(self.name, "metric", metric, metrics.to_list()))
        return runs


def with_values(runs: pl.DataFrame, folder: Path) -> pl.DataFrame:
    """Replace the list of hyperparameters by columns, and add columns for the settings of workloads.

    Args:
        runs: the table `runs` in a folder.
        folder: the folder. The plan is in the folder or, in a published set, in its parent folder. Without a
            plan, no columns for settings are added.
    """
    names = runs["hyperparameters"].explode().struct.field("name").drop_nulls().unique(maintain_order=True)
    columns = (named(name, "hyperparameters").alias(f"hyperparameters.{name}") for name in names)
    runs = runs.with_columns(columns).drop("hyperparameters")
    plan = next((path for path in (folder / PLAN, folder.parent / PLAN) if path.exists()), None)
    rows = [
        {"study": study.name, "workload": workload.name}
        | {"sweep": workload.sweep and workload.sweep.name}
        | {f"workload.{name}": _as_cell(value) for name, value in workload.settings.items()}
        for study in (read_plan(plan).studies if plan else ())
        for workload in study.workloads
        if study.name in runs["study"]
    ]
    if not rows:
        return runs
    types = {"sweep": pl.String}
    settings = pl.DataFrame(rows, schema_overrides=types, infer_schema_length=None, strict=False)
    return runs.join(settings, on=["study", "workload"], how="left", maintain_order="left")


def _as_cell(value: Any) -> Any:
    """Return the value of a setting as a column can contain it: lists and mappings as JSON text."""
    return json.dumps(value) if isinstance(value, list | dict) else value


def _drawn(
    bands: pl.DataFrame, x: str, x_name: str, metric: str, title: str, *, log_x: bool = False
) -> Figure:
    """Plot the median as a line with a band between the quartiles, for each method.

    Args:
        bands: frame with a row for each method and point. It has the columns method, lower_quartile, median,
            upper_quartile, and the column named by `x`; medians are finite.
        x: name of the column on the horizontal axis.
        x_name: label of the horizontal axis.
        metric: label of the vertical axis, which is logarithmic if all medians are positive.
        title: title of the figure.
        log_x: whether the horizontal axis is logarithmic.
    """
    from matplotlib.figure import Figure

    from curvebench.reports.figures.drawing import draw_line
    from curvebench.reports.figures.palette import dashes_of, looks_of

    figure = Figure(figsize=FIGURE_INCHES, layout="constrained")
    axes = figure.subplots()
    methods = sorted(bands["method"].unique())
    looks, dashes = looks_of(methods), dashes_of(methods)
    for name in methods:
        method, line = Method.of(name), bands.filter(method=name).sort(x)
        look, dash = looks[method.optimizer], dashes[method.basis]
        draw_line(axes, look, line, x, dash, markevery=MARKER_DISTANCE, label=name)
    if (bands["median"] > 0).all():
        axes.set_yscale("log")
    axes.set(xlabel=x_name, ylabel=metric, title=title, **({"xscale": "log"} if log_x else {}))
    if methods:
        axes.legend(frameon=False, handlelength=3.5)
    return figure


def load(place: str | Path) -> LoadedResults:
    """Open the tables of a published set or of local runs.

    Args:
        place: one of: a folder of a published set, of the tables of a study, or of the tables of all studies
            (`results/tables`); the name of a published set (`curvebench.published()` lists the names); the
            name of a study that was run in the working folder, as `STUDY`, or as `STUDY.SCALE` if it was run
            at several scales. If the study was changed between runs, the tables of its newest version are
            opened.

    Returns:
        The tables, which are read when they are first used.

    Raises:
        InputError: when no folder with tables, set or study has this name, or the study was run at several
            scales.

    Example:
        >>> from curvebench import load
        >>> load("symo-checks.2026-11-25").claims["verdict"].is_empty()
        False
    """
    local = {folder.stem: folder for folder in newest(file.parent for file in TABLES.glob("*/runs.parquet"))}
    scales = [name for name in local if str(place) in (name, name.partition(".")[0])]
    places = (Path(place), SETS / place, *(local[name] for name in scales))
    folders = [path for path in places if next(path.rglob("*.parquet"), None)]
    if not folders:
        names = [*published(), *local]
        hint = unknown("curvebench", "published set or study with results", str(place), names)
        reason = "holds no tables" if Path(place).is_dir() else "no such folder"
        raise InputError(f"{place}: {reason}. {hint}; your own tables lie below {TABLES} after a run")
    if len(folders) == len(scales) > 1:
        raise InputError(f"{place}: was run at several scales; name one: {', '.join(scales)}")
    return LoadedResults(folders[0])


def published() -> list[str]:
    """Return the names of the published sets that come with curvebench, in alphabetical order."""
    return [folder.name for folder in set_folders(SETS)]
