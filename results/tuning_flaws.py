"""What is wrong with the cells of a study: runs and tuning left out, and rates that it did not choose."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import polars as pl

from results.methods import IDENTITY, method_label, method_parts
from results.schema import TUNING
from results.set_plan import FIRST_FINAL_SEED, PlannedStudy
from results.tuning import chosen_setting, setting_of

CELL = ["backend", "workload", "method"]


def of_cells(study: PlannedStudy, runs: pl.DataFrame) -> Iterator[str]:
    """Final runs that were planned and are missing, or are there and were not planned."""
    final = runs.filter(pl.col("stage") == "final")
    found = {
        cell: set(seeds)
        for *cell_, seeds in final.group_by(CELL).agg("seed").iter_rows()
        for cell in [tuple(cell_)]
    }
    asked: dict[tuple[str, str, str], set[int]] = {}
    for name, backend in study.backends.items():
        seeds = set(range(FIRST_FINAL_SEED, FIRST_FINAL_SEED + backend.final_seeds))
        for each in study.methods:
            if study.only_backend(method_parts(each)[0]) in (None, name):
                asked |= {(name, workload.name, each): seeds for workload in study.workloads}
    for cell in sorted(asked.keys() | found.keys()):
        wanted, got = asked.get(cell, set()), found.get(cell, set())
        if wanted != got:
            backend, workload, each = cell
            kinds = (("missing", wanted - got), ("not planned", got - wanted))
            kinds_told = [f"{kind}: seeds {', '.join(map(str, sorted(own)))}" for kind, own in kinds if own]
            who = f"final runs of {each} on {workload}, {backend}"
            yield f"{study.name}/runs.parquet: {who}: {'; '.join(kinds_told)}"


def of_tuning(study: PlannedStudy, runs: pl.DataFrame) -> Iterator[str]:
    """Tuning runs that are not as many as planned, and final settings that they did not choose."""
    where = f"{study.name}/runs.parquet"
    tuning = runs.filter(pl.col("stage").is_in(TUNING))
    planned, tried = study.tuning.trials * study.seeds.tuning, {}
    cells = dict(tuning.group_by(CELL))
    for cell, own in cells.items():
        settings = own.select("learning_rate", "hyperparameters", "seed").iter_rows()
        tried[cell] = len(set(map(repr, settings)))
    final = runs.filter(pl.col("stage") == "final")
    tuners: set[tuple[str, ...]] = set()
    for (backend, workload, each, optimizer, basis), judged in final.sort(CELL).group_by(
        *CELL, "optimizer", "basis", maintain_order=True
    ):
        if backend not in study.backends:
            continue  # told by `of_cells`
        tuner = study.only_backend(optimizer) or study.backends[backend].tuned_on
        tuners.add((tuner, workload, each))
        chooser = IDENTITY if study.tuning.shared_across == "bases" else basis
        among = cells.get((tuner, workload, method_label(optimizer, chooser)), tuning.clear())
        used, rates = set(judged["learning_rate"]), set(among["learning_rate"])
        if len(used) != 1 or not rates.issuperset(used):
            yield (
                f"{where}: learning rates of {each} on {workload}, {backend}: "
                f"{', '.join(map(str, sorted(used)))}; one is wanted, of those that were tried on {tuner} "
                f"({', '.join(map(str, sorted(rates))) or 'none'})"
            )
            continue
        names = study.tuned_names(optimizer)
        right = _chosen(study, names, among)
        if wrong := {setting_of(row, names) for row in judged.iter_rows(named=True)} - right:
            criterion = f"median of the {study.tuning.which} {study.tuning.metric}"
            yield (
                f"{where}: final runs of {each} on {workload}, {backend}: {_settings(names, wrong)}, and "
                f"tuning on {tuner} chose {_settings(names, right)}: the best {criterion}, the least of "
                "those that tie"
            )
    yield from (
        f"{where}: tuning runs of {each} on {workload}, {tuner}: {count} settings and seeds, and {wanted} "
        "were planned"
        for tuner, workload, each in sorted(tuners | tried.keys())
        for wanted in [planned if study.tuning.tries(method_parts(each)[1]) else 0]
        for count in [tried.get((tuner, workload, each), 0)]
        if count != wanted
    )


def _chosen(study: PlannedStudy, names: Sequence[str], tried: pl.DataFrame) -> set[tuple[float, ...]]:
    """What tuning took: one setting, or one of each machine where several tried the same ones."""
    own = tried.with_columns(setting=pl.concat_str("learning_rate", pl.col("hyperparameters").hash(), "seed"))
    twice = own["setting"].is_duplicated().any()
    asked = study.tuning
    return {
        chosen_setting(part, names, asked.metric, asked.which, asked.direction)
        for part in (tried.partition_by("machine") if twice else [tried])
    }


def _settings(names: Sequence[str], found: Iterable[tuple[float, ...]]) -> str:
    return " or ".join(
        ", ".join(f"{name} {each!r}" for name, each in zip(names, setting, strict=True))
        for setting in sorted(found)
    )
