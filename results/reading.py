"""Reading tables lazily, with the schema checked and damaged files named."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl
from polars.exceptions import PanicException, PolarsError

from curvebench.results.schema import OPTIONAL, TABLES
from curvebench.spec.errors import InputError
from curvebench.spec.method import IDENTITY
from curvebench.spec.sets import SUMS

DAMAGE = (PolarsError, PanicException)  # what polars raises on a damaged file; a panic is no PolarsError
SHOWN = 5  # how many candidates a message lists


def table_files(folder: Path, table: str) -> list[Path]:
    """The files of a table: the folder's own, or else those of the folders below it, in order of name.

    Raises:
        InputError: when there is no such folder or no such file.
    """
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; run snakemake, which writes it")
    own = folder / f"{table}.parquet"
    files = [own] if own.is_file() else sorted(folder.rglob(own.name))
    if not files:
        raise InputError(
            f"{folder}: holds no {own.name}, nor does a folder below; run snakemake, which writes it"
        )
    return files


def files_of(place: Path | Sequence[Path], table: str) -> list[Path]:
    """The files of a table: of a folder (as `table_files` finds them), or those that are given."""
    return table_files(place, table) if isinstance(place, Path) else list(place)


def scan(place: Path | Sequence[Path], table: str) -> pl.LazyFrame:
    """A table lazily, from a folder (as `table_files` finds it) or from the given files, in their order.

    Data pages are read when the frame is collected; collect inside `naming_damage`, or use `read`.

    Raises:
        InputError: for a file that cannot be read, is cut short or has another schema.
    """
    files = files_of(place, table)
    for file in files:
        _check_schema(file, table)
    return _scanned(files, table) if files else pl.LazyFrame(schema=TABLES[table])


def _scanned(files: list[Path], table: str, **options: Any) -> pl.LazyFrame:
    """A table from files whose schemas are known to be right; optional columns that a file lacks are null."""
    return pl.scan_parquet(files, glob=False, schema=TABLES[table], missing_columns="insert", **options)


def read(
    place: Path | Sequence[Path], table: str, query: Callable[[pl.LazyFrame], pl.LazyFrame] | None = None
) -> pl.DataFrame:
    """A table in memory, from what `scan` takes, or what a query finds in it.

    Args:
        query: from the table to the rows that are wanted; the table is streamed, however long it is.

    Raises:
        InputError: as `scan`, and for damage inside a file.
    """
    files = files_of(place, table)
    with naming_damage(files):
        whole = scan(files, table)
        return query(whole).collect(engine="streaming") if query else whole.collect()


@contextmanager
def naming_damage(files: Sequence[Path]) -> Iterator[None]:
    """Turn a reading error of polars, which names no file, into one that names the damaged file.

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
    """The row of a run and its curve, for `curvebench show RUN`.

    Args:
        results_folder: a folder of tables, or the results folder, whose `runs` holds the jobs' folders.
        run: the run's name, or a beginning that no other run has.

    Returns:
        The row of `runs`, and the run's rows of `curves`, by metric and step.

    Raises:
        InputError: when no run or more than one has that name, or a table cannot be read.
    """
    jobs = results_folder / "runs"
    files = table_files(jobs if jobs.is_dir() else results_folder, "runs")
    scan(files, "runs")  # checks every file before polars reads one
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
        name: name of the item, which also names the expression.
        column: a column whose entries are lists of structs.
        key: the field of an item that is its name.
        value: the field of an item to return.

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
    """Add the column `method` to a table with `optimizer` and `basis`."""
    label = (
        pl.when(pl.col("basis") == IDENTITY)
        .then(pl.col("optimizer"))
        .otherwise(pl.concat_str("optimizer", pl.lit(" @ "), "basis"))
    )
    return frame.with_columns(label.alias("method"))


def _check_schema(file: Path, table: str) -> None:
    """Raise InputError unless the file's footer declares the columns of the table, but for optional ones."""
    try:
        given = pl.scan_parquet(file, glob=False).collect_schema()
    except FileNotFoundError as error:
        raise InputError(f"{file}: no such file; {_remedy(file)}") from error
    except (OSError, *DAMAGE) as error:
        raise _damaged(file, error) from error
    absent = OPTIONAL.get(table, set()) - set(given)
    wanted = pl.Schema({name: dtype for name, dtype in TABLES[table].items() if name not in absent})
    if given == wanted:
        return
    remedy = f"another version wrote the file; {_remedy(file)}"
    for name, dtype in wanted.items():
        if given.get(name) != dtype:
            is_now = f"is {given[name]}" if name in given else "is missing"
            raise InputError(f"{file}: column {name} {is_now}, and should be {dtype}: {remedy}")
    extra = [name for name in given if name not in wanted]
    what = f"unknown columns {', '.join(extra)}" if extra else "columns in another order"
    raise InputError(f"{file}: {what}: {remedy}")


def _damaged(file: Path, error: BaseException) -> InputError:
    reason = str(error).partition("\n")[0]
    if isinstance(error, OSError):
        return InputError(f"{file}: cannot be read ({reason}); make it readable for you")
    return InputError(f"{file}: not a whole Parquet file ({reason}); {_remedy(file)}")


def _remedy(file: Path) -> str:
    """What to do about a file: those of a published set are fetched again, those of a run are made again."""
    if any((folder / SUMS).is_file() for folder in file.parents[:2]):
        return "get the set's folder again from where it comes from; if it is yours, publish it anew"
    return f"delete {file.parent} and run snakemake again"


def _choose(names: pl.DataFrame, run: str, folder: Path) -> tuple[str, str]:
    """The full name of a run and the file that holds it, from a name or the beginning of one."""
    exact = names.filter(run=run)
    found = exact if exact.height else names.filter(pl.col("run").str.starts_with(run))
    if found.height == 1:
        return found.row(0)
    if found.height:
        listed = ", ".join(f"{name} in {Path(file).parent}" for name, file in found.head(SHOWN).iter_rows())
        raise InputError(f"{folder}: {run!r} names {found.height} runs: {listed}; give more of the name")
    raise InputError(f"{folder}: no run {run!r}; its table runs.parquet and the site's runs have the names")
