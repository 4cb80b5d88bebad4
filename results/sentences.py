"""What a check says of rows: whose a row is in a reader's words, what it says, and what it should say."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import polars as pl

from results.methods import method_label

Row = Mapping[str, Any]
NAMED_BY = ("claim", "study", "workload", "machine", "environment_hash", "commit", "name")  # items of a list


def told(file: str, rows: pl.DataFrame, sentence: Callable[[Row], str]) -> Iterator[str]:
    """One complaint about rows with the same flaw: the sentence on the first, and how many more there are."""
    if len(rows):
        yield f"{file}: {sentence(rows.row(0, named=True))}{likewise(len(rows) - 1)}"


def of_rows(where: str, table: str, rows: pl.DataFrame, flaw: Callable[[Row], str]) -> Iterator[str]:
    """A complaint that names file and row: what is wrong with the first, and how many more there are."""
    yield from told(f"{where}/{table}.parquet", rows, lambda row: f"{row_of(table, row)}: {flaw(row)}")


def likewise(more: int) -> str:
    """How many more rows a sentence could be said of."""
    return f"; {more} more {'row' if more == 1 else 'rows'} likewise" if more else ""


def value(found: Any) -> str:
    """A value of a table for readers."""
    if found is None:
        return "missing"
    if isinstance(found, bool):
        return "true" if found else "false"
    if isinstance(found, float):
        return "NaN" if math.isnan(found) else f"{found:.10g}"
    if isinstance(found, list):
        return f"{len(found)} {'entry' if len(found) == 1 else 'entries'}"
    if isinstance(found, Mapping):
        return f"an entry with {', '.join(map(str, found))}"
    return str(found)


def when(steps: int | None) -> str:
    """After which step a target was reached."""
    return "not reached" if steps is None else f"reached at step {steps}"


def differences(
    found: Any, right: Any, alike: Callable[[Any, Any], bool], of: str = ""
) -> Iterator[tuple[str, str, str]]:
    """Where two values differ, inside them too: which part as words (empty: the whole), found, expected."""
    if isinstance(found, Mapping) and isinstance(right, Mapping) and found.keys() == right.keys():
        for key, each in right.items():
            yield from differences(found[key], each, alike, f"{key} of {of}" if of else str(key))
    elif isinstance(found, list) and isinstance(right, list) and len(found) == len(right):
        for number, (mine, other) in enumerate(zip(found, right, strict=True), start=1):
            yield from differences(mine, other, alike, _item(number, other, of))
    elif not alike(found, right):
        yield of, value(found), value(right)


def _item(number: int, item: Any, of: str) -> str:
    """What an item of a list is called: what names it, or else its number."""
    names = [str(item[key]) for key in NAMED_BY if isinstance(item, Mapping) and item.get(key)]
    which = " / ".join(names[:2]) if names else f"entry {number}"
    return f"{which} in {of}" if of else which


# --- whose row -----------------------------------------------------------------------------------


def row_of(table: str, row: Row) -> str:
    """Whose a row of a table is."""
    return WHOSE[table](row)


def _run(row: Row) -> str:
    return f"run {row['run']} ({_method(row)} on {row['workload']}, {row['backend']}, seed {row['seed']})"


def _method(row: Row) -> str:
    return method_label(row["optimizer"], row["basis"])


def _timing(row: Row) -> str:
    where = f"{_method(row)} on {row['workload']}, {row['backend']}"
    return f"{where}, phase {row['phase']}, repetition {row['repetition']}"


def _job(row: Row) -> str:
    who = " on ".join(str(row[name]) for name in ("optimizer", "backend") if row[name])
    return f"job {row['spec_hash']} ({', '.join(part for part in (row['stage'], who) if part)})"


def _check(row: Row) -> str:
    part = f"part {row['part']!r}" + (f" {row['variant']}" if row["variant"] else "")
    return f"claim {row['claim']}, {part}, instance {row['instance']}, {row['quantity']}"


WHOSE: Mapping[str, Callable[[Row], str]] = {
    "runs": _run,
    "curves": lambda row: f"run {row['run']}, step {row['step']}, {row['metric']}",
    "timings": _timing,
    "memory": lambda row: f"{_method(row)} on {row['workload']}, {row['backend']}",
    "jobs": _job,
    "parity": lambda row: f"{row['optimizer']} on {row['problem']}, {row['comparison']}",
    "checks": _check,
    "series": lambda row: (
        f"claim {row['claim']}, part {row['part']!r}, figure {row['figure']}, {row['label']}"
    ),
    "claims": lambda row: " ".join(
        [
            f"claim {row['claim']}",
            *([row["variant"]] if row["variant"] else []),
            *([f"on {row['backend']}"] if row["backend"] else []),
        ]
    ),
    "findings": lambda row: (
        f"claim {row['claim']}, {row['treated']} and {row['control']} on {row['workload']}, {row['backend']}"
    ),
    "leaderboard": lambda row: f"{row['method']} on {row['backend']}",
}
