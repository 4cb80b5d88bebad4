"""Synthetic results in the format of asv: three or more commits on a machine, and a change."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from ruamel.yaml import YAML

LABELS = [
    "step.adam.one_large jax float32",
    "step.adam.one_large torch float32",
    "basis.rotation numpy float64",
]
ASV = YAML(typ="safe").load(Path(__file__).with_suffix(".yaml"))
# Milliseconds in a day.
DAY = 86_400_000
# Seconds by commit: the first case takes twice as long at the last commit, the second stays within its
# spread.
SECONDS: tuple[list[Any], ...] = (
    [1.0e-3, 2.0e-4, 5.0e-5],
    [1.01e-3, 2.1e-4, math.nan],
    [2.02e-3, 1.95e-4, None],
)


def history(commits: int, at: int) -> list[list[Any]]:
    """Return seconds by commit with 1 % of noise; from commit `at` on, the first case is 10 % slower."""
    noise = np.random.default_rng(0).lognormal(0, 0.01, (commits, len(LABELS)))
    noise[at:, 0] *= 1.1
    return (noise * SECONDS[0]).tolist()


def result(commit: str, number: int, values: list[Any], machine: str, spread: bool = True) -> dict[str, Any]:
    """Return one file of asv's: the values of a commit, with 5 % of spread on both sides."""
    usable = [value is not None and not math.isnan(value) for value in values]
    low, high = (
        [value * factor if fits and spread else None for value, fits in zip(values, usable, strict=True)]
        for factor in (0.95, 1.05)
    )
    common = [[[repr(label) for label in LABELS]], "1", 1000 + number, 1.0]
    columns = {"peakmem_call": [2.5e8, 2.6e8, 1.0e8], "track_error": [1e-7, 2e-7, 3e-16]}
    entries = {name: [column, *common] for name, column in columns.items()}
    entries["time_call"] = [values, *common, low, high, low, high]
    return ASV["result"] | {
        "commit_hash": commit,
        "date": (20_000 + number) * DAY,
        "params": ASV["machine"] | {"machine": machine, "python": "3.11"},
        "results": {f"asv_cases.Kernel.{name}": entry for name, entry in entries.items()},
    }


def write_stored(
    folder: Path,
    hashes: list[str],
    machine: str = "one",
    spread: bool = True,
    seconds: Sequence[list[Any]] = SECONDS,
) -> Path:
    """Write the results of commits on a machine in the layout of asv; return the folder."""
    into = folder / machine
    into.mkdir(parents=True)
    for number, (commit, values) in enumerate(zip(hashes, seconds, strict=True)):
        content = result(commit, number, values, machine, spread)
        (into / f"{commit[:8]}-existing-py.json").write_text(json.dumps(content))
    (into / "machine.json").write_text(json.dumps(ASV["machine"] | {"machine": machine, "version": 1}))
    return folder
