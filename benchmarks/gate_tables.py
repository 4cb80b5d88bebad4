"""The gate's accuracy: final metrics of a study's runs on two commits, paired by seed."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from benchmarks.gate_statistics import Verdict, decide
from benchmarks.gate_timing import GateError
from results.reading import read

CELL = ["study", "scale", "workload", "optimizer", "basis", "backend", "dtype"]


def final_values(folder: Path, metric: str) -> pl.DataFrame:
    """Columns of CELL, `seed` and `value`: the final metric of the runs of stage `final`.

    Raises:
        GateError: where no run has the metric, or a cell has two runs of a seed.
        InputError: for a folder that is none or a damaged file.
    """
    finals = (
        read(folder, "runs")
        .filter(pl.col("stage") == "final")
        .explode("final_metrics")
        .unnest("final_metrics")
        .filter(pl.col("name") == metric)
        .select(*CELL, "seed", "value")
    )
    if finals.is_empty():
        raise GateError(f"{folder}: no run of stage final has the metric {metric!r}; name one by --metric")
    twice = finals.filter(finals.select(*CELL, "seed").is_duplicated())
    if not twice.is_empty():
        cell = ", ".join(str(value) for value in twice.select(*CELL, "seed").row(0))
        raise GateError(f"{folder}: several final runs are {cell}; one of each is compared")
    return finals


def compare_tables(
    base: Path, head: Path, metric: str, effect: float, level: float
) -> list[tuple[str, Verdict]]:
    """A verdict for each cell that both folders have, over the seeds that both have.

    Equal code gives equal losses, and a noise of 0; rounding that trajectories amplify makes it larger. A
    cell of which nothing is paired is an error: it would pass unseen.

    Args:
        base, head: folders of tables.
        metric: a metric of which less is better and none is negative, such as train_loss.
        effect, level: as in `decide`.

    Raises:
        GateError: for a cell that only one side has, or a negative metric.
    """
    sides = [final_values(folder, metric) for folder in (base, head)]
    for frame, folder in zip(sides, (base, head), strict=True):
        if (frame["value"] < 0).any():
            raise GateError(f"{folder}: {metric} is negative in places; ratios need a metric from 0 on")
    joined = sides[0].join(sides[1], on=[*CELL, "seed"], how="inner", suffix="_head")
    for frame, folder, other in ((sides[0], base, head), (sides[1], head, base)):
        alone = frame.join(joined, on=CELL, how="anti")
        if not alone.is_empty():
            cell = ", ".join(str(value) for value in alone.select(CELL).row(0))
            raise GateError(f"{cell}: {folder} has runs that {other} cannot be paired with")
    verdicts = []
    for names, pairs in joined.sort([*CELL, "seed"]).group_by(CELL, maintain_order=True):
        verdict = decide(pairs["value"].to_numpy(), pairs["value_head"].to_numpy(), effect, level)
        verdicts.append((" ".join(str(value) for value in names), verdict))
    return verdicts
