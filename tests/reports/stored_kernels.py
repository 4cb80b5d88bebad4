"""Results as asv stores them, made up: three commits or more on a machine, and a change."""

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
DAY = 86_400_000  # milliseconds
# seconds by commit: the first case becomes twice as slow at the last one, the second stays in its spread
SECONDS: tuple[list[Any], ...] = (
    [1.0e-3, 2.0e-4, 5.0e-5],
    [1.01e-3, 2.1e-4, math.nan],
    [2.02e-3, 1.95e-4, None],
)


def history(commits: int, at: int) -> list[list[Any]]:
    """Seconds by commit with 1 % of noise: the first case is 10 % slower from a commit on."""
    noise = np.random.default_rng(0).lognormal(0, 0.01, (commits, len(LABELS)))
    noise[at:, 0] *= 1.1
    return (noise * SECONDS[0]).tolist()


def result(commit: str, number: int, values: list[Any], machine: str, spread: bool = True) -> dict[str, Any]:
    """One file of asv's: the values of a commit, with 5 % of spread on both sides."""
    usable = [value is not None and not math.isnan(value) for value in values]
    low, high = (
        [value * factor if fits and spread else None for value, fits in zip(values, usable, strict=True)]
        for factor in (0.95, 1.05)
    )
    about = [[[repr(label) for label in LABELS]], "1", 1000 + number, 1.0]
    columns = {"peakmem_call": [2.5e8, 2.6e8, 1.0e8], "track_error": [1e-7, 2e-7, 3e-16]}
    entries = {name: [column, *about] for name, column in columns.items()}
    entries["time_call"] = [values, *about, low, high, low, high]
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
    """Write the results of commits on a machine, as asv lays them out; returns the folder."""
    place = folder / machine
    place.mkdir(parents=True)
    for number, (commit, values) in enumerate(zip(hashes, seconds, strict=True)):
        content = result(commit, number, values, machine, spread)
        (place / f"{commit[:8]}-existing-py.json").write_text(json.dumps(content))
    (place / "machine.json").write_text(json.dumps(ASV["machine"] | {"machine": machine, "version": 1}))
    return folder
