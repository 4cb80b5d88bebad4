"""`curvebench tables`: of jobs as one (merge), as CSV (export); where the seconds went."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from curvebench.commands.command import argument, command


@command(
    "tables merge",
    argument("--out", type=Path, required=True, metavar="DIR", help="folder for the merged tables"),
    argument(
        "--jobs",
        type=Path,
        required=True,
        nargs="+",
        metavar="DIR",
        help="folders of jobs, or files with a folder a line",
    ),
)
def merge(given: Namespace) -> None:
    """Merge the tables of jobs."""
    import polars as pl

    from curvebench.results import merging
    from curvebench.results.reading import scan

    merging.merge([folder for path in given.jobs for folder in _folders(path)], given.out)
    sizes = {table: scan(given.out, table).select(pl.len()).collect().item() for table in merging.KEYS}
    print(f"{given.out}: " + ", ".join(f"{size} {table}" for table, size in sizes.items()))


@command(
    "tables export",
    argument("folder", type=Path, metavar="FOLDER", help="a published set, or a folder of tables"),
    argument("--out", type=Path, required=True, metavar="DIR", help="folder for the CSV files"),
)
def export(given: Namespace) -> None:
    """Write tables as CSV."""
    from curvebench.results import exporting

    for path in exporting.export(given.folder, given.out):
        print(path)


@command(
    "tables seconds",
    argument("folders", type=Path, nargs="+", metavar="FOLDER", help="published sets, or folders of tables"),
)
def seconds(given: Namespace) -> None:
    """Say where the seconds of jobs went, by study, as a table in Markdown."""
    import polars as pl

    from curvebench.reports.formatting import percent
    from curvebench.results.reading import read
    from curvebench.results.seconds import CAUSES, seconds_by_cause

    jobs = pl.concat([read(folder, "jobs") for folder in given.folders])
    rows = seconds_by_cause(jobs, "study", "scale").to_dicts()
    rows.append({"study": "all", "scale": "", **seconds_by_cause(jobs).row(0, named=True)})
    head = ["study", "scale", "jobs", "seconds", "steps and evaluation", *CAUSES]
    lines = [head, ["---"] * len(head)]
    for row in rows:
        shares = [row[f"{cause}_seconds"] / row["total_seconds"] for cause in CAUSES]
        about = [row["study"], row["scale"], str(row["jobs"]), f"{row['total_seconds']:,.0f}"]
        lines.append([*about, *map(percent, (row["work_share"], *shares))])
    print("\n".join(f"| {' | '.join(line)} |" for line in lines))


def _folders(path: Path) -> list[Path]:
    """A folder of a job, or those that a file lists, a line each."""
    return list(map(Path, path.read_text().splitlines())) if path.is_file() else [path]
