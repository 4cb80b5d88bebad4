"""Access to results from Python: tables of published sets or of local runs, and plots of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import polars as pl

from curvebench.paths import TABLES
from curvebench.reports.measures import complete_curves, curve_bands, run_values, sensitivity
from curvebench.reports.statistics.medians import medians
from curvebench.results.reading import read, with_method
from curvebench.results.schema import TABLES as SCHEMAS
from curvebench.spec.document import Which
from curvebench.spec.errors import InputError, unknown
from curvebench.spec.method import Method
from curvebench.spec.sets import set_folders

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# An absolute path, because notebooks change their working directory.
SETS = Path(__file__).parent / "results" / "published"
SIZE = (6.0, 4.0)  # width and height of a figure in inches
MARKER_SPACING = 0.1  # distance between two markers of a line, as a share of its length


@dataclass(frozen=True)
class LoadedResults:
    """Tables of a published set, or of a folder with tables, as Polars data frames.

    docs/reference/tables.md explains the columns; `runs` has one more, `method`, which is an optimizer in a
    basis (`adam @ egop`). A table is read at its first use. If the folder does not contain it, it has no
    rows: a set of property checks has no runs, and only published sets have claims.

    Args:
        folder: folder of the set, or any folder that contains tables, at any depth.

    Example:
        >>> results = load("egop-convex.2026-11-28")
        >>> results.best("train_loss", workload="logistic_regression", backend="jax", study="convex")
        >>> results.plot_curves("logistic_regression", "train_loss", "jax", "convex").savefig("curves.svg")
    """

    folder: Path

    @property
    def name(self) -> str:
        """Name of the published set, or path of the folder."""
        return self.folder.name if self.folder.parent == SETS else str(self.folder)

    @cached_property
    def runs(self) -> pl.DataFrame:
        """Table with one row for each run, including tuning runs.

        Raises:
            InputError: if a run occurs twice, because the folder contains the tables of a study and of its
                jobs.
        """
        runs = with_method(self._read("runs"))
        if runs["run"].is_duplicated().any():
            raise InputError(f"{self.name}: has runs twice; name a folder below it, such as {TABLES}")
        return runs

    @cached_property
    def curves(self) -> pl.DataFrame:
        """Table with one row for each run, evaluation and metric."""
        return self._read("curves")

    @cached_property
    def jobs(self) -> pl.DataFrame:
        """Table with one row for each job, with its seconds, memory, machine and provenance."""
        return self._read("jobs")

    @cached_property
    def claims(self) -> pl.DataFrame:
        """Table with one row for each claim, with its verdict."""
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
            metric: a metric that the runs have, such as `train_loss`.
            workload: only compare runs of this problem; default: all problems, each with its own ranking.
            backend: only compare runs on this backend, `jax` or `torch`; default: both.
            study: only compare runs of this study; default: all.
            which: "final" for the value at the end of a run, or "best" for the best value during the run.
            maximize: whether larger values are better, as for an accuracy.

        Returns:
            One row per study, workload, backend and method, sorted with the best method of each group first.
            Columns: study, workload, backend, method, median, low and high (95 % confidence interval of the
            median), level (coverage of that interval; with few seeds it can differ from 95 %), count (number
            of seeds). A failed run counts as the worst possible value.

        Raises:
            InputError: for a study, workload, backend or metric that no final run has, or an unknown `which`.
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
        """Plot a metric during the final runs: for each method the median over seeds and quartiles.

        Args:
            workload: problem whose runs are plotted.
            metric: metric on the vertical axis.
            backend: as in `best`; required if the tables have several backends.
            study: as in `best`; required if the tables have several studies.
            maximize: as in `best`.

        Returns:
            A matplotlib figure. A run that stopped when it reached its goal keeps its last value. A failed
            run counts as the worst possible value from the step at which it failed.

        Raises:
            InputError: as in `best`, and if a backend or study is required.
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
            workload: problem whose runs are plotted.
            metric: metric on the vertical axis.
            backend: as in `best`; required if the tables have several backends.
            study: as in `best`; required if the tables have several studies.
            which: as in `best`.
            maximize: as in `best`.

        Returns:
            A matplotlib figure. Learning rates at which most runs failed are left out. A learning rate that
            successive halving ran for several lengths is represented by its longest runs.

        Raises:
            InputError: as in `plot_curves`.
        """
        tuning = self._select(
            metric, "tuning", which, one_cell=True, study=study, workload=workload, backend=backend
        )
        values = run_values(tuning, metric, which, "maximize" if maximize else "minimize")
        finite = sensitivity(values).filter(pl.col("median").is_finite())
        title = f"{workload}: tuning runs"
        return _drawn(finite, "learning_rate", "learning rate", metric, title, log_x=True)

    def _read(self, table: str) -> pl.DataFrame:
        """Read a table from all its files in the folder; if there are none, return a table without rows."""
        path = next(self.folder.rglob(f"{table}.parquet"), None)
        return pl.DataFrame(schema=SCHEMAS[table]) if path is None else read(self.folder, table)

    def _select(
        self, metric: str, stage: str, which: str = "final", *, one_cell: bool = False, **names: str | None
    ) -> pl.DataFrame:
        """Return the runs of a stage, restricted to the study, workload and backend that are given.

        Args:
            metric: metric that the runs must have.
            stage: "tuning" or "final".
            which: kind of value, which must be valid (`curvebench.spec.document.Which`).
            one_cell: whether the result must have a single study, workload and backend.
            names: study, workload and backend; None for all.
        """
        if which not in get_args(Which):
            raise InputError(f"which: {unknown('a run', 'value', which, get_args(Which))}")
        runs = self.runs.filter(stage=stage)
        for column, name in names.items():
            valid = sorted(runs[column].unique())
            if name is not None and name not in valid:
                raise InputError(unknown(self.name, column, name, valid))
            if one_cell and name is None and len(valid) > 1:
                raise InputError(f"{self.name}: {column} is one of {', '.join(valid)}; give {column}=")
            runs = runs if name is None else runs.filter(pl.col(column) == name)
        metrics = runs["final_metrics"].explode().struct.field("name").drop_nulls().unique().sort()
        if metric not in metrics:
            raise InputError(unknown(self.name, "metric", metric, metrics.to_list()))
        return runs


def _drawn(
    bands: pl.DataFrame, x: str, x_name: str, metric: str, title: str, *, log_x: bool = False
) -> Figure:
    """Plot a line with a band for each method.

    Args:
        bands: table with the columns method, `x`, lower_quartile, median, upper_quartile. Medians are finite.
        x: column on the horizontal axis.
        x_name: label of the horizontal axis.
        metric: label of the vertical axis.
        title: title of the figure.
        log_x: whether the horizontal axis is logarithmic. The vertical axis is if all medians are positive.
    """
    from matplotlib.figure import Figure

    from curvebench.reports.figures.drawing import draw_line
    from curvebench.reports.figures.palette import dashes_of, looks_of

    figure = Figure(figsize=SIZE, layout="constrained")
    axes = figure.subplots()
    methods = sorted(bands["method"].unique())
    looks, dashes = looks_of(methods), dashes_of(methods)
    for name in methods:
        method, line = Method.of(name), bands.filter(method=name).sort(x)
        look, dash = looks[method.optimizer], dashes[method.basis]
        draw_line(axes, look, line, x, dash, marks=MARKER_SPACING, label=name)
    if (bands["median"] > 0).all():
        axes.set_yscale("log")
    axes.set(xlabel=x_name, ylabel=metric, title=title, **({"xscale": "log"} if log_x else {}))
    if methods:
        axes.legend(frameon=False, handlelength=3.5)
    return figure


def load(place: str | Path) -> LoadedResults:
    """Open the tables of a published set or of local runs.

    Args:
        place: name of a published set (`curvebench.published()` lists them), or a folder: of a set, of a
            study (`results/tables/STUDY.SCALE.HASH`), or of several studies (`results/tables`).

    Raises:
        InputError: if there is neither such a set nor such a folder, or the folder contains no tables.
    """
    folder = next((path for path in (Path(place), SETS / place) if path.is_dir()), None)
    if folder is None:
        hint = unknown("curvebench", "published set", str(place), published())
        raise InputError(f"{place}: no such folder. {hint}; your own tables lie below {TABLES}")
    if next(folder.rglob("*.parquet"), None) is None:
        raise InputError(f"{folder}: holds no tables; your own lie below {TABLES} after a run")
    return LoadedResults(folder)


def published() -> list[str]:
    """Return the names of the published sets, in alphabetical order."""
    return [folder.name for folder in set_folders(SETS)]
