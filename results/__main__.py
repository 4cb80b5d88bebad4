"""The command line of the tables: `python -m results merge`, `combine`, `check` and `export`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from results.checking import Judgement, judged, unchecked
from results.errors import TableError
from results.exporting import export
from results.merging import KEYS, combine, machines, merge, mixed_hardware
from results.reading import read, scan

STATUS: dict[Judgement, int] = {"accepted": 0, "refused": 1, "not wholly checkable here": 3}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status: 0 or 1, 3 of `STATUS` (argparse ends with 2)."""
    given = _parser().parse_args(arguments)
    try:
        if given.command == "check":
            return _check(given.folder)
        if given.command == "export":
            for path in export(given.folder, given.out, given.tables):
                print(path)
            return 0
        if given.command == "merge":
            merge(given.jobs, given.out)
        else:
            combine([given.first, given.second, *given.more], given.out)
        print(_summary(given.out))
    except TableError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m results", description="Put tables together.", fromfile_prefix_chars="@"
    )
    commands = parser.add_subparsers(dest="command", required=True)
    merging = commands.add_parser(
        "merge",
        help="merge the tables of jobs",
        description="Write the tables of all the given jobs as one set; @FILE reads arguments from FILE.",
        fromfile_prefix_chars="@",
    )
    merging.add_argument(
        "--out", type=Path, required=True, metavar="DIR", help="folder for the merged tables"
    )
    merging.add_argument("--jobs", type=Path, required=True, nargs="+", metavar="DIR", help="folders of jobs")
    combining = commands.add_parser(
        "combine",
        help="combine merged tables of several machines",
        description="Keep every row under its machine; a run is then called <run>@<machine>.",
    )
    combining.add_argument("out", type=Path, metavar="OUT", help="folder for the combined tables")
    combining.add_argument("first", type=Path, metavar="A", help="folder of merged tables")
    combining.add_argument(
        "second", type=Path, metavar="B", help="folder of merged tables of another machine"
    )
    combining.add_argument("more", type=Path, nargs="*", metavar="MORE", help="further folders")
    checking = commands.add_parser(
        "check",
        help="accept or refuse a published set",
        description="Say why a published set is refused, all reasons at once; the status is then 1. "
        "It is 3 of a set by another version of the rules in which all that can be checked here is right.",
    )
    checking.add_argument("folder", type=Path, metavar="FOLDER", help="the set's folder")
    exporting = commands.add_parser(
        "export",
        help="write tables as CSV",
        description="Write every table below a folder as CSV, nested columns flattened.",
    )
    exporting.add_argument(
        "folder", type=Path, metavar="FOLDER", help="a published set, or a folder of tables"
    )
    exporting.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder for the CSV files")
    exporting.add_argument(
        "--tables", nargs="+", default=[], metavar="TABLE", help="only these, such as runs timings"
    )
    return parser


def _check(folder: Path) -> int:
    judgement, reasons = judged(folder)
    if judgement == "accepted":
        print("\n".join([f"{folder}: accepted", *(f"  not checkable: {told}" for told in unchecked(folder))]))
    elif judgement == "refused":
        print(f"{folder}: refused, {len(reasons)} {'reason' if len(reasons) == 1 else 'reasons'}:")
        print("\n".join(f"  {reason}" for reason in reasons))
    else:
        print(f"{folder}: {judgement}: {reasons[0]}")
        print("\n".join(f"  {told}" for told in reasons[1:]))
    return STATUS[judgement]


def _summary(folder: Path) -> str:
    """What the tables hold: rows, machines, and cells whose runs come from several machines."""
    sizes = {table: scan(folder, table).select(pl.len()).collect().item() for table in KEYS}
    lines = [f"{folder}: " + ", ".join(f"{size} {table}" for table, size in sizes.items())]
    for row in machines(read(folder, "jobs")).iter_rows(named=True):
        gpu = f", {row['gpu']} (driver {row['driver']})" if row["gpu"] else ""
        lines.append(
            f"machine {row['machine']}: {row['cpu']}, cores {row['cores']}, threads {row['threads']}{gpu}, "
            f"{row['system']}: {row['jobs']} jobs"
        )
    lines += [f"several machines: {cell}" for cell in mixed_hardware(read(folder, "runs"))]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
