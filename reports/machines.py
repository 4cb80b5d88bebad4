"""One machine for each backend of a study: what several machines measured twice is never pooled."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import polars as pl

KEYS = {
    "runs": ("workload", "backend", "stage", "round", "method", "seed"),
    "timings": ("workload", "backend", "method", "phase", "repetition"),
}


def machine_by_backend(runs: pl.DataFrame) -> dict[str, str]:
    """The machine with the most runs on each backend; of several, the first by name."""
    counts = runs.group_by("backend", _machine()).len().sort("len", "machine", descending=[True, False])
    return dict(
        counts.unique("backend", keep="first", maintain_order=True).select("backend", "machine").rows()
    )


def repeated_on(frame: pl.DataFrame, key: Sequence[str]) -> set[str]:
    """The backends on which something was measured by more than one machine.

    Args:
        frame: columns `key`, backend and machine.
        key: columns that name what was measured.
    """
    machines = frame.group_by(key).agg(_machine().n_unique().alias("machines"))
    return set(machines.filter(pl.col("machines") > 1)["backend"])


def one_machine(runs: pl.DataFrame, timings: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame, list[str]]:
    """Keep one machine on every backend where machines repeat each other.

    Where each run and each timing comes from one machine only (jobs spread over a cluster), all stay.

    Args:
        runs, timings: the tables of one study, with `method`.

    Returns:
        The rows that statistics use, and one sentence for every backend that lost some.
    """
    chosen = machine_by_backend(runs)
    repeated = repeated_on(runs, KEYS["runs"])
    timed = (repeated | repeated_on(timings.filter(phase="step"), KEYS["timings"])) & chosen.keys()
    sentences = [_sentence(backend, chosen[backend], runs, timings) for backend in sorted(timed)]
    return _kept(runs, chosen, repeated), _kept(timings, chosen, timed), sentences


def _machine() -> pl.Expr:
    return pl.col("machine").fill_null("unknown")


def _kept(frame: pl.DataFrame, chosen: Mapping[str, str], backends: Collection[str]) -> pl.DataFrame:
    """The rows of the chosen machine on some backends, and all rows on others."""
    own = pl.col("backend").replace_strict(chosen, default=None, return_dtype=pl.String)
    return frame.filter(~pl.col("backend").is_in(list(backends)) | (_machine() == own))


def _sentence(backend: str, chosen: str, runs: pl.DataFrame, timings: pl.DataFrame) -> str:
    own = (frame.filter(backend=backend).group_by(_machine()).len() for frame in (runs, timings))
    counts, seconds = (dict(frame.rows()) for frame in own)

    def counted(name: str) -> str:
        return f"{name} ({counts.get(name, 0)} runs, {seconds.get(name, 0)} timings)"

    others = ", ".join(counted(name) for name in sorted({*counts, *seconds} - {chosen}))
    return (
        f"{backend}: machines repeat each other, and their results are not pooled. "
        f"Shown is machine {counted(chosen)}; left out: {others}."
    )
