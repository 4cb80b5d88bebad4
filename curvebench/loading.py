"""Results in Python: `curvebench.load` opens the tables of a published set or of own runs, and draws them."""

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

SETS = Path(__file__).parent / "results" / "published"  # absolute, since notebooks change their folder
SIZE = (6.0, 4.0)  # of a figure, inches
MARKS_APART = 0.1  # between two marks of a line, as a share of its length


@dataclass(frozen=True)
class LoadedResults:
    """The tables of a published set, or of a folder of tables, as Polars frames.

    The columns are those of docs/reference/tables.md, with `method`, the optimizer in its basis
    (`adam @ egop`), in `runs`. A table is read when it is first asked for, and has no rows where the folder
    lacks it: a set of property checks has no runs, and only published sets have claims.

    Args:
        folder: the set's folder, or a folder with tables in it or below.

    Example:
        >>> results = load("egop-convex.2026-11-28")
        >>> results.best("train_loss", workload="logistic_regression", backend="jax", study="convex")
        >>> results.plot_curves("logistic_regression", "train_loss", "jax", "convex").savefig("curves.svg")
    """

    folder: Path

    @property
    def name(self) -> str:
        """The name of a published set, or the folder's path."""
        return self.folder.name if self.folder.parent == SETS else str(self.folder)

    @cached_property
    def runs(self) -> pl.DataFrame:
        """Table with one row for each run, tuning runs included.

        Raises:
            InputError: where a run is there twice, in the tables of its job and in those of its study.
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
            metric: such as `train_loss`.
            workload: keep the runs of this problem; by default those of all.
            backend: keep the runs on `jax` or on `torch`; by default both.
            study: keep the runs of this study; by default those of all.
            which: "final", the value at the end of a run, or "best", the best one on its way.
            maximize: whether greater values are better, as of an accuracy.

        Returns:
            Columns study, workload, backend, method, median, low, high (the 95 % interval of the median),
            level (the coverage that the interval has), count (seeds); the best method of each study,
            workload and backend first. A run that failed counts as the worst possible value.

        Raises:
            InputError: for a study, workload, backend or metric that no final run has, and another `which`.
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
        """Draw a metric along the final runs: the median over seeds of each method, and the quartiles.

        Args:
            workload, metric, backend, study, maximize: as in `best`. Where the tables have several backends
                or studies, one must be named.

        Returns:
            A matplotlib figure. A run that stopped at its goal keeps its last value; one that failed counts
            as the worst from that step on.

        Raises:
            InputError: as in `best`, and where a backend or study must be named.
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
        """Draw a metric of tuning runs against the learning rate: medians and quartiles over tuning seeds.

        Args:
            workload, metric, backend, study, which, maximize: as in `best`. Where the tables have several
                backends or studies, one must be named.

        Returns:
            A matplotlib figure. Learning rates at which most runs failed are left out. A rate that successive
            halving stopped early has the values of its last and longest runs.

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
        there = next(self.folder.rglob(f"{table}.parquet"), None)
        return pl.DataFrame(schema=SCHEMAS[table]) if there is None else read(self.folder, table)

    def _select(
        self, metric: str, stage: str, which: str = "final", *, one_cell: bool = False, **names: str | None
    ) -> pl.DataFrame:
        """The runs of a stage, and of the study, workload and backend that are named.

        Args:
            metric: one that the runs must have.
            which: the value of it that is asked for, which must be one that runs have.
            one_cell: whether all three must be settled, by a name or because there is one alone.
        """
        if which not in get_args(Which):
            raise InputError(f"which: {unknown('a run', 'value', which, get_args(Which))}")
        runs = self.runs.filter(stage=stage)
        for column, name in names.items():
            there = sorted(runs[column].unique())
            if name is not None and name not in there:
                raise InputError(unknown(self.name, column, name, there))
            if one_cell and name is None and len(there) > 1:
                raise InputError(f"{self.name}: {column} is one of {', '.join(there)}; give {column}=")
            runs = runs if name is None else runs.filter(pl.col(column) == name)
        metrics = runs["final_metrics"].explode().struct.field("name").drop_nulls().unique().sort()
        if metric not in metrics:
            raise InputError(unknown(self.name, "metric", metric, metrics.to_list()))
        return runs


def _drawn(
    bands: pl.DataFrame, x: str, x_name: str, metric: str, title: str, *, log_x: bool = False
) -> Figure:
    """Draw a line and a band for each method.

    Args:
        bands: columns method, `x`, lower_quartile, median, upper_quartile, with finite medians.
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
        draw_line(axes, look, line, x, dash, marks=MARKS_APART, label=name)
    if (bands["median"] > 0).all():
        axes.set_yscale("log")
    axes.set(xlabel=x_name, ylabel=metric, title=title, **({"xscale": "log"} if log_x else {}))
    if methods:
        axes.legend(frameon=False, handlelength=3.5)
    return figure


def load(place: str | Path) -> LoadedResults:
    """Open the tables of a published set or of own runs.

    Args:
        place: the name of a published set (`curvebench.published()` lists them), or a folder: of a set, of a
            study (`results/tables/STUDY.SCALE.HASH`), or of several studies (`results/tables`).

    Raises:
        InputError: where there is neither, or the folder holds no tables.
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
