"""What planning and reporting take: wall and processor seconds and peak memory of child processes."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.scale.plans import FLOOR, RESULTS, STUDIES
from benchmarks.scale.rows import PLAN, SITE, STUDY
from results.provenance import PROJECT

LAST = 20  # lines that are shown of a command that fails


@dataclass(frozen=True)
class Cost:
    """What a process took, its own children included.

    Args:
        what: the command in a few words.
        wall: seconds from its start to its end.
        processor: seconds of user and system.
        peak: the largest resident memory of one process, in bytes.
    """

    what: str
    wall: float
    processor: float
    peak: int


def cost_of(what: str, command: Sequence[str], folder: Path = PROJECT) -> Cost:
    """Run a command to its end.

    Args:
        folder: where it runs.

    Raises:
        RuntimeError: when it fails; holds the end of what it said.
    """
    environment = {
        **os.environ,
        "PYTHONPATH": str(PROJECT),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    with tempfile.TemporaryFile() as said:
        start = time.perf_counter()
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=said, stderr=subprocess.STDOUT
        )
        _, status, used = os.wait4(process.pid, 0)  # the resources of this child alone
        wall = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            said.seek(0)
            lines = said.read().decode(errors="replace").splitlines()[-LAST:]
            raise RuntimeError("\n".join([f"{what} failed:", *lines]))
    return Cost(what, wall, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024)


def measure_report(folder: Path) -> list[Cost]:
    """The figures and the site of what `benchmarks.scale.rows` wrote."""
    reports = [sys.executable, "-m", "reports"]
    plan = ["--plan", str((folder / PLAN).resolve())]
    out = ["--out", str((folder / SITE).resolve())]
    return [
        cost_of("figures", [*reports, "figures", *plan, "--study", STUDY]),
        cost_of("site", [*reports, "site", *plan, *out]),
    ]


def measure_plan(folder: Path) -> list[Cost]:
    """`snakemake -n` of what `benchmarks.scale.plans` wrote: first and again; and Snakemake's own floor."""
    there = folder.resolve()
    snakemake = [sys.executable, "-m", "snakemake", "-n"]
    config = [f"study_folder={there / STUDIES}", f"results={there / RESULTS}", f"site={there / SITE}"]
    main = [*snakemake, "reports", "--config", *config]
    return [
        cost_of("snakemake -n, first", main),
        cost_of("snakemake -n, again", main),
        cost_of("Snakemake's own floor", [*snakemake, "--cores", "1"], there / FLOOR),
    ]


def as_text(costs: Sequence[Cost]) -> str:
    """A Markdown table."""
    rows = [
        f"| {cost.what} | {cost.wall:.1f} s | {cost.processor:.1f} s | {cost.peak / 2**30:.2f} GiB |"
        for cost in costs
    ]
    return "\n".join(
        ["| what | wall time | processor time | peak memory |", "| --- | --- | --- | --- |", *rows]
    )


MEASURED: Mapping[str, Callable[[Path], list[Cost]]] = {"report": measure_report, "plan": measure_plan}
