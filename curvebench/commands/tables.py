"""`curvebench clean`, which removes outdated results, and the group of commands `curvebench tables`.

The commands of the group merge tables of jobs, export tables as CSV, and print how jobs spent their time.
"""

from __future__ import annotations

import shutil
from argparse import Namespace
from pathlib import Path

from curvebench.commands.command import RESULTS_FOLDER, argument, command


@command(
    "clean",
    RESULTS_FOLDER,
    argument("--runs", action="store_true"),
    argument("--remove", action="store_true"),
)
def clean(args: Namespace) -> None:
    """List the results of older definitions of studies with their sizes, or remove them.

    The newest definition of a study at a scale is the one that Snakemake planned last. Its results stay. The
    newest finished results of the study stay as well. Tables and figures of older definitions are listed;
    they can be made again from their runs, without computing a run.

    Args:
        --runs: include the runs of older definitions, which would be computed again if a change of a study
            were undone
        --remove: remove the folders (default: list them only)
    """
    total = 0
    for folder in older_results(args.results, args.runs):
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        print(f"{size / 1e6:10.2f} MB  {folder}")
        total += size
        if args.remove:
            shutil.rmtree(folder)
    then = "removed" if args.remove else "--remove removes them"
    print(f"{total / 1e6:10.2f} MB  of results of older definitions; {then}")


def older_results(results: Path, runs: bool) -> list[Path]:
    """Return the folders in the results folder that belong to older definitions of studies.

    The newest definition of a study at a scale is the definition that Snakemake planned last. Its folders are
    not returned, nor are the newest tables of the study that contain runs.

    Args:
        results: the results folder.
        runs: whether to include the folders of jobs, which contain the tables of single jobs.

    Raises:
        InputError: when the plan of a study is damaged.
        OSError: when `runs` is set and the list of the jobs of a study is missing.
    """
    from curvebench.results.reading import newest
    from curvebench.spec.plan import read_plan
    from curvebench.spec.sets import PLAN

    tables = [*(results / "tables").glob("*.*.*")]
    finished = [folder for folder in tables if (folder / "runs.parquet").exists()]
    kept = {*newest(tables), *newest(finished)}
    plans = {folder: read_plan(folder) for folder in kept if (folder / PLAN).exists()}
    used = {study.figures.name for plan in plans.values() for study in plan.studies}
    older = {*tables} - kept
    for folder in plans:
        found = [*(results / "figures").glob(f"{folder.stem}.*")]
        if runs:
            jobs = results / "specs" / f"{folder.stem}.tables{folder.suffix}.txt"
            used |= {Path(job).name for job in jobs.read_text().splitlines()}
            found += (results / "runs" / folder.stem.replace(".", "/")).glob("*/*.*.*")
        older |= {*found}
    return sorted(folder for folder in older if folder.name not in used)


@command(
    "tables merge",
    argument("--out", type=Path, required=True, metavar="DIR"),
    argument("--jobs", type=Path, required=True, nargs="+", metavar="DIR"),
)
def merge(args: Namespace) -> None:
    """Merge the tables of jobs into one set of tables.

    Args:
        --out: folder for the merged tables
        --jobs: folders with the tables of jobs, or files that list such folders, one per line
    """
    import polars as pl

    from curvebench.results import merging
    from curvebench.results.reading import scan

    merging.merge([folder for path in args.jobs for folder in _folders(path)], args.out)
    sizes = {table: scan(args.out, table).select(pl.len()).collect().item() for table in merging.KEYS}
    print(f"{args.out}: " + ", ".join(f"{size} {table}" for table, size in sizes.items()))


@command(
    "tables export",
    argument("folder", type=Path, metavar="FOLDER"),
    argument("--out", type=Path, required=True, metavar="DIR"),
)
def export(args: Namespace) -> None:
    """Write every table of a folder as a CSV file.

    A list of named values becomes one column for each name, such as final_metrics.train_loss.value.

    Args:
        folder: a published set, or a folder of tables
        --out: folder for the CSV files
    """
    from curvebench.results import exporting

    for path in exporting.export(args.folder, args.out):
        print(path)


@command("tables seconds", argument("folders", type=Path, nargs="+", metavar="FOLDER"))
def seconds(args: Namespace) -> None:
    """Print how jobs spent their seconds, as a Markdown table by study and scale.

    Args:
        folders: published sets, or folders of tables
    """
    import polars as pl

    from curvebench.reports.formatting import percent
    from curvebench.results.reading import read
    from curvebench.results.seconds import CAUSES, seconds_by_cause

    jobs = pl.concat([read(folder, "jobs") for folder in args.folders])
    rows = seconds_by_cause(jobs, "study", "scale").to_dicts()
    rows.append({"study": "all", "scale": "", **seconds_by_cause(jobs).row(0, named=True)})
    head = ["study", "scale", "jobs", "seconds", "steps and evaluation", *CAUSES]
    lines = [head, ["---"] * len(head)]
    for row in rows:
        shares = [row[f"{cause}_seconds"] / row["total_seconds"] for cause in CAUSES]
        totals = [row["study"], row["scale"], str(row["jobs"]), f"{row['total_seconds']:,.0f}"]
        lines.append([*totals, *map(percent, (row["work_share"], *shares))])
    print("\n".join(f"| {' | '.join(line)} |" for line in lines))


def _folders(path: Path) -> list[Path]:
    """Return the folders of jobs that a path stands for.

    Args:
        path: a folder, which stands for itself, or a file with the path of a folder in each line.
    """
    return list(map(Path, path.read_text().splitlines())) if path.is_file() else [path]
