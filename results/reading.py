"""Functions that read tables lazily, check their columns, and name damaged files in errors."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl
from polars.exceptions import PanicException, PolarsError

from curvebench.paths import TABLES as TABLES_FOLDER
from curvebench.results.schema import OPTIONAL, TABLES
from curvebench.spec.errors import InputError
from curvebench.spec.method import IDENTITY
from curvebench.spec.sets import PLAN, SUMS

DAMAGE = (PolarsError, PanicException)  # exceptions that polars raises for a damaged file
MAX_LISTED = 5  # maximum number of runs that an error message about an ambiguous name lists


def table_files(folder: Path, table: str) -> list[Path]:
    """Return the files that contain a table.

    If the folder itself contains a file of the table, the result is this file. Otherwise the result is the
    files in all folders below, sorted by name. Folders with tables of an older definition of a study are left
    out (`newest`).

    Raises:
        InputError: when there is no such folder or no such file.
    """
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; run snakemake, which writes it")
    file = folder / f"{table}.parquet"
    below = () if file.is_file() else (path.parent for path in folder.rglob(file.name))
    files = [file] if file.is_file() else [path / file.name for path in newest(below)]
    if not files:
        raise InputError(
            f"{folder}: holds no {file.name}, nor does a folder below; run snakemake, which writes it"
        )
    return files


def newest(folders: Iterable[Path]) -> list[Path]:
    """Return the folders, sorted by name, except folders with tables of older definitions of a study.

    The merged tables of a study lie in `tables/STUDY.SCALE.HASH`, and the hash changes with everything that
    decides the tables. Planning a study writes the file `plan.json` in this folder, even if nothing has to be
    run. Of the folders with the same study and scale, only the folder with the latest plan is kept. Therefore
    the newest definition is the definition that the user planned last, even if the user has undone a change
    of the study. Folders that are not in `tables` are all kept.
    """
    latest = {}
    for folder in sorted(folders, key=time_of_planning):
        is_merged = folder.absolute().parent.name == TABLES_FOLDER.name
        latest[folder.with_suffix("") if is_merged else folder] = folder
    return sorted(latest.values())


def time_of_planning(folder: Path) -> float:
    """Return the time at which `plan.json` in a folder of tables was modified; without this file, the time at
    which the folder was modified.
    """
    plan = folder / PLAN
    return (plan if plan.exists() else folder).stat().st_mtime


def files_of(location: Path | Sequence[Path], table: str) -> list[Path]:
    """Return the files that contain a table.

    Args:
        location: a folder, in which `table_files` finds the files, or the files themselves.
        table: name of the table.
    """
    return table_files(location, table) if isinstance(location, Path) else list(location)


def scan(location: Path | Sequence[Path], table: str) -> pl.LazyFrame:
    """Return a table as a lazy frame.

    Only the columns of the files are checked in this call; data is read when the frame is collected. Collect
    the frame inside of `naming_damage`, or use `read`, so that an error names the damaged file.

    Args:
        location: a folder, in which `table_files` finds the files, or the files themselves.
        table: name of the table.

    Raises:
        InputError: for a file that cannot be read, is truncated or has another schema.
    """
    files = files_of(location, table)
    for file in files:
        _check_schema(file, table)
    return _scanned(files, table) if files else pl.LazyFrame(schema=TABLES[table])


def _scanned(files: list[Path], table: str, **options: Any) -> pl.LazyFrame:
    """Return a table as a lazy frame, from files whose columns have been checked.

    Args:
        files: the files. Optional columns that a file lacks become null.
        table: name of the table.
        options: further arguments of `polars.scan_parquet`.
    """
    schema = TABLES[table]
    written = pl.Schema({**schema, **pl.scan_parquet(files[0], glob=False).collect_schema()})
    frame = pl.scan_parquet(files, glob=False, schema=written, missing_columns="insert", **options)
    # A published table of verdicts may lack values that were added to an enumeration after its publication.
    return frame if written == schema else frame.cast(schema)


def read(
    location: Path | Sequence[Path], table: str, query: Callable[[pl.LazyFrame], pl.LazyFrame] | None = None
) -> pl.DataFrame:
    """Return a table as a frame in memory, or the result of a query on it.

    Args:
        location: a folder, in which `table_files` finds the files, or the files themselves.
        table: name of the table.
        query: function that takes the lazy frame and returns a lazy frame with the wanted rows. The query is
            executed in streaming mode, so that the table may be larger than the memory. None for all rows.

    Raises:
        InputError: for a file that cannot be read, is truncated, has another schema, or is damaged inside.
    """
    files = files_of(location, table)
    with naming_damage(files):
        lazy = scan(files, table)
        return query(lazy).collect(engine="streaming") if query else lazy.collect()


@contextmanager
def naming_damage(files: Sequence[Path]) -> Iterator[None]:
    """Replace a reading error that polars raises in the `with` block by an error that names the damaged file.

    Raises:
        InputError: when one of the files cannot be read to its end.
    """
    try:
        yield
    except DAMAGE:
        for file in files:
            try:
                pl.scan_parquet(file, glob=False).collect()
            except DAMAGE as error:
                raise _damaged(file, error) from error
        raise


def find_run(results_folder: Path, run: str) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return a run's row in the table `runs` and its rows in the table `curves`.

    Args:
        results_folder: a folder of tables, or the results folder, whose `runs` contains the folders of jobs.
        run: name of the run, or a beginning of the name with which no other run's name begins.

    Returns:
        The row of `runs`, and the run's rows of `curves`, sorted by metric and step.

    Raises:
        InputError: when no run or more than one run has this name, or a table cannot be read.
    """
    jobs = results_folder / "runs"
    files = table_files(jobs if jobs.is_dir() else results_folder, "runs")
    scan(files, "runs")  # this call checks the columns of all files before polars reads the first file
    table = _scanned(files, "runs", include_file_paths="file")
    with naming_damage(files):
        names = table.select("run", "file").collect()
        name, file = _choose(names, run, results_folder)
        row = table.filter(run=name, file=file).drop("file").collect()
    curves = Path(file).with_name("curves.parquet")
    return row, read([curves], "curves").filter(run=name).sort("metric", "step", maintain_order=True)


def named(name: str, column: str, key: str = "name", value: str = "value") -> pl.Expr:
    """Return an expression for one value of a column that lists named items, such as `final_metrics`.

    The value is the field `value` of the first item whose field `key` is `name`. NaN stays NaN; the value is
    null for a row without such an item.

    Args:
        name: name of the item; the expression gets this name too.
        column: name of a column whose entries are lists of structs.
        key: field of the structs that contains the name of an item.
        value: field of the structs to return.

    Example:
        >>> import polars as pl
        >>> from curvebench import named
        >>> runs = pl.DataFrame({"final_metrics": [[{"name": "train_loss", "value": 0.5}], []]})
        >>> runs.select(named("train_loss", "final_metrics"))["train_loss"].to_list()
        [0.5, None]

        The steps to a target are `named("train_loss", "targets", key="metric", value="steps")`.
    """
    element = pl.element()
    values = element.filter(element.struct.field(key) == name).struct.field(value)
    return pl.col(column).list.eval(values).list.first().alias(name)


def with_method(frame: pl.DataFrame) -> pl.DataFrame:
    """Add the column `method` to a table with the columns `optimizer` and `basis`.

    The values of this column are labels of methods, such as "adam" in the identity basis and "adam @ egop" in
    the basis "egop". A basis is a change of coordinates of the parameters.
    """
    in_basis = pl.concat_str("optimizer", pl.lit(" @ "), "basis")
    label = pl.when(pl.col("basis") == IDENTITY).then("optimizer").otherwise(in_basis)
    return frame.with_columns(label.alias("method"))


def _check_schema(file: Path, table: str) -> None:
    """Check that a file has the columns of its table. Optional columns and values of enumerations may be
    absent.

    Raises:
        InputError: when a column is missing, unknown, or has another type or order.
    """
    try:
        declared = pl.scan_parquet(file, glob=False).collect_schema()
    except FileNotFoundError as error:
        raise InputError(f"{file}: no such file; {_remedy(file)}") from error
    except (OSError, *DAMAGE) as error:
        raise _damaged(file, error) from error
    absent = OPTIONAL.get(table, set()) - set(declared)
    expected = pl.Schema({name: dtype for name, dtype in TABLES[table].items() if name not in absent})
    kinds = [[(name, _kind(dtype)) for name, dtype in schema.items()] for schema in (declared, expected)]
    if kinds[0] == kinds[1]:
        return
    remedy = f"another version wrote the file; {_remedy(file)}"
    for name, dtype in expected.items():
        if _kind(declared.get(name)) != _kind(dtype):
            is_now = f"is {declared[name]}" if name in declared else "is missing"
            raise InputError(f"{file}: column {name} {is_now}, and should be {dtype}: {remedy}")
    unknown = [name for name in declared if name not in expected]
    problem = f"unknown columns {', '.join(unknown)}" if unknown else "columns in another order"
    raise InputError(f"{file}: {problem}: {remedy}")


def _kind(dtype: Any) -> str:
    """Return the name of a data type, without the values of enumerations in it."""
    return re.sub(r"Enum\(categories=\[[^]]*\]\)", "Enum", str(dtype))


def _damaged(file: Path, error: BaseException) -> InputError:
    """Return the error for a file that polars cannot read."""
    reason = str(error).partition("\n")[0]
    if isinstance(error, OSError):
        return InputError(f"{file}: cannot be read ({reason}); make it readable for you")
    return InputError(f"{file}: not a whole Parquet file ({reason}); {_remedy(file)}")


def _remedy(file: Path) -> str:
    """Return advice for the user of a damaged file: fetch the published set again, or recompute the run."""
    if any((folder / SUMS).is_file() for folder in file.parents[:2]):
        return "get the set's folder again from where it comes from; if it is yours, publish it anew"
    return f"delete {file.parent} and run snakemake again"


def _choose(names: pl.DataFrame, run: str, folder: Path) -> tuple[str, str]:
    """Return the name of a run and the file that contains the run.

    Args:
        names: frame with the name of each run and its file.
        run: beginning of the name.
        folder: folder of the tables, for messages.
    """
    exact = names.filter(run=run)
    found_runs = exact if exact.height else names.filter(pl.col("run").str.starts_with(run))
    if found_runs.height == 1:
        return found_runs.row(0)
    if found_runs.height:
        first = found_runs.head(MAX_LISTED).iter_rows()
        listed = ", ".join(f"{name} in {Path(file).parent}" for name, file in first)
        raise InputError(f"{folder}: {run!r} names {found_runs.height} runs: {listed}; give more of the name")
    raise InputError(f"{folder}: no run {run!r}; its table runs.parquet and the site's runs have the names")
