"""Results as asv stores them, made up: three commits of a small repository, two machines, a change."""

from __future__ import annotations

import json
import math
import subprocess
from pathlib import Path
from typing import Any

LABELS = [
    "step.adam.one_large jax float32",
    "step.adam.one_large torch float32",
    "basis.rotation numpy float64",
]
COLUMNS = [
    "result", "params", "version", "started_at", "duration", "stats_ci_99_a", "stats_ci_99_b", "stats_q_25",
    "stats_q_75", "stats_number", "stats_repeat", "samples", "profile",
]  # fmt: skip
NAMES = {"time_call": "time", "peakmem_call": "peakmemory", "track_error": "track"}
DAY = 86_400_000  # milliseconds
# seconds by commit: the first case becomes twice as slow at the last one, the second stays in its spread
SECONDS: tuple[list[Any], ...] = (
    [1.0e-3, 2.0e-4, 5.0e-5],
    [1.01e-3, 2.1e-4, math.nan],
    [2.02e-3, 1.95e-4, None],
)


def make_repository(folder: Path) -> list[str]:
    """A git repository of three commits; returns their hashes, the oldest first."""
    folder.mkdir(parents=True)
    name = ["-c", "user.name=name", "-c", "user.email=name@example.org"]
    subprocess.run(["git", "init", "--quiet"], cwd=folder, check=True)
    hashes = []
    for number in range(3):
        (folder / "code.py").write_text(f"NUMBER = {number}\n")
        for arguments in (["add", "--all"], [*name, "commit", "--quiet", "--message", f"change {number}"]):
            subprocess.run(["git", *arguments], cwd=folder, check=True)
        done = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=folder, check=True, capture_output=True, text=True
        )
        hashes.append(done.stdout.strip())
    return hashes


def result(commit: str, number: int, values: list[Any], machine: str, spread: bool = True) -> dict[str, Any]:
    """One file of asv's: the values of a commit, with 5 % of spread on both sides."""
    params = [[repr(label) for label in LABELS]]
    usable = [value is not None and not math.isnan(value) for value in values]
    low, high = (
        [value * factor if fits and spread else None for value, fits in zip(values, usable, strict=True)]
        for factor in (0.95, 1.05)
    )
    fixed = {"peakmem_call": [2.5e8, 2.6e8, 1.0e8], "track_error": [1e-7, 2e-7, 3e-16]}
    entries = {
        f"asv_cases.Kernel.{name}": [column, params, "1", 1000 + number, 1.0]
        for name, column in fixed.items()
    }
    entries["asv_cases.Kernel.time_call"] = [values, params, "1", 1000 + number, 1.0, low, high, low, high]
    facts = {
        "machine": machine,
        "cpu": "<b>EPYC</b>",
        "num_cpu": "2",
        "ram": "25276502016",
        "os": "Linux",
        "arch": "x",
    }
    return {
        "commit_hash": commit,
        "env_name": "existing-py",
        "date": (20_000 + number) * DAY,
        "params": facts | {"python": "3.11"},
        "python": "3.11",
        "requirements": {},
        "env_vars": {},
        "result_columns": COLUMNS,
        "results": entries,
        "durations": {},
        "version": 2,
    }


def write_stored(folder: Path, hashes: list[str], machine: str = "one", spread: bool = True) -> Path:
    """Write the results of commits on a machine, as asv lays them out; returns the folder."""
    place = folder / machine
    place.mkdir(parents=True)
    for number, (commit, values) in enumerate(zip(hashes, SECONDS, strict=True)):
        content = result(commit, number, values, machine, spread)
        (place / f"{commit[:8]}-existing-py.json").write_text(json.dumps(content))
        facts = {name: content["params"][name] for name in ("machine", "cpu", "num_cpu", "ram", "os", "arch")}
    (place / "machine.json").write_text(json.dumps(facts | {"version": 1}))
    benchmarks: dict[str, Any] = {
        f"asv_cases.Kernel.{name}": {
            "code": "",
            "name": f"asv_cases.Kernel.{name}",
            "param_names": ["case"],
            "params": [[repr(label) for label in LABELS]],
            "pretty_name": f"Kernel.{name}",
            "timeout": 120.0,
            "type": kind,
            "unit": {"time": "seconds", "peakmemory": "bytes", "track": "relative"}[kind],
            "version": "1",
        }
        for name, kind in NAMES.items()
    }
    (folder / "benchmarks.json").write_text(json.dumps(benchmarks | {"version": 2}))
    return folder
