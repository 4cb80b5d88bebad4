"""One study from a notebook: run what is missing of it, and take its tables and figures."""

from __future__ import annotations

import html
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from documents.errors import InputError
from harness.planning.plan import Config, PlannedStudy, make_plan, write_specs
from harness.sources import ROOT
from reports.figures.study_figures import MANIFEST
from results.reading import read

TABLES = ("runs", "curves", "timings", "memory", "jobs")


@dataclass(frozen=True)
class Picture:
    """A figure of a study; a notebook shows it, with its caption.

    Args:
        title, caption, alt: what it shows, in words.
        light, dark: its two SVG files.
    """

    title: str
    caption: str
    alt: str
    light: Path
    dark: Path

    def _repr_html_(self) -> str:
        return (
            f"<figure><figcaption><b>{html.escape(self.title)}</b></figcaption>{self.light.read_text()}"
            f"<figcaption>{html.escape(self.caption)}</figcaption></figure>"
        )


@dataclass(frozen=True, repr=False)
class StudyResult:
    """What a study came to.

    Args:
        name, scale: what was run.
        tables: `runs`, `curves`, `timings`, `memory` and `jobs` (docs/reference/tables.md).
        figures: by name.
    """

    name: str
    scale: str
    tables: Mapping[str, pl.DataFrame]
    figures: Mapping[str, Picture]

    def __repr__(self) -> str:
        rows = ", ".join(f"{name} ({len(table)} rows)" for name, table in self.tables.items())
        return f"StudyResult({self.name}, {self.scale}: tables {rows}; {len(self.figures)} figures)"


def run_study(
    study: str | Path,
    scale: str = "quick",
    backends: Sequence[str] = (),
    results: Path = ROOT / "results",
    cores: int | str = "all",
) -> StudyResult:
    """Run what is missing of one study, as `make reports` does, and read what it came to.

    Progress is printed; what is done is not done again, and is shared with `make reports` where the results
    folder is.

    Args:
        study: the name of a study of this project, or the path of a study file.
        scale: one of its scales.
        backends: names; none for all that it uses.
        results: the folder that specs, runs, tables and figures are written to.
        cores: how many processor cores are used.

    Raises:
        InputError: for a bad study, or one that cannot run here; for a job that failed, with what was said.
    """
    path = Path(study).resolve() if str(study).endswith(".yaml") else None
    folder = ROOT / "benchmarks/studies" if path is None else path.parent
    name = str(study) if path is None else path.stem
    results = Path(results).resolve()
    config = Config(scale, (name,), tuple(backends), results, results / "site", folder)
    plan = make_plan(config)
    if plan.skipped:
        raise InputError(f"{name}: {plan.skipped[0][1]}")
    if not plan.studies:
        raise InputError(f"{name}: is a claim that property checks decide: curvebench claims check {name}")
    (planned,) = plan.studies
    write_specs(plan)
    _snakemake(config, planned, cores)
    return StudyResult(
        planned.study.name,
        scale,
        {table: read(planned.tables, table) for table in TABLES},
        {one["name"]: _picture(planned.figures, one) for one in _manifest(planned.figures)},
    )


def _snakemake(config: Config, planned: PlannedStudy, cores: int | str) -> None:
    """Make a study's tables and figures."""
    given = {
        "scale": config.scale,
        "studies": planned.study.name,
        "backends": ",".join(config.backends),
        "results": config.results,
        "site": config.site,
        "study_folder": config.study_folder,
    }
    command = [sys.executable, "-m", "snakemake", "--cores", str(cores), "--config"]
    command += [f"{key}={value}" for key, value in given.items() if value]
    command += ["--", str(planned.figures)]
    said: list[str] = []
    # A notebook's kernel need not be in an activated environment, and the jobs say `python`.
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            sys.stdout.write(line)  # a notebook shows what this process writes, not its children
            said.append(line)
    if process.returncode:
        raise InputError(f"{planned.study.name}: a job failed; what was said last:\n{''.join(said[-30:])}")


def _manifest(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((folder / MANIFEST).read_text())
    return found


def _picture(folder: Path, one: Mapping[str, Any]) -> Picture:
    light, dark = (folder / f"{one['name']}.{theme}.svg" for theme in ("light", "dark"))
    return Picture(one["title"], one["caption"], one["alt"], light, dark)
