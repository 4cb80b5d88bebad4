"""What the Snakefile asks of a plan: path patterns and input functions, in a file that job processes read."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from shlex import quote
from typing import Protocol

from documents.errors import InputError
from documents.sets import FOLDER, check_name, check_page
from results.provenance import PROJECT, commit

TABLES: Mapping[str, tuple[str, ...]] = {
    "bases": ("jobs",),
    "sweep": ("runs", "curves", "jobs"),
    "refine": ("runs", "curves", "jobs"),
    "final": ("runs", "curves", "jobs"),
    "timing": ("timings", "memory", "jobs"),
    "parity": ("parity", "jobs"),
    "checks": ("checks", "series", "jobs"),
}
MERGED = ("runs", "curves", "timings", "memory", "jobs")
JOB = "{optimizer}.{backend}.{hash}"  # the wildcards of a job's paths, as in JobSpec.name


class Wildcards(Protocol):
    """What Snakemake hands to an input function."""

    hash: str


@dataclass(frozen=True)
class Wiring:
    """The paths of a plan in plain JSON types; its methods are the input functions of the Snakefile.

    Args:
        summary: the plan for people.
        results: the results folder.
        site: the folder of the site.
        report_path: the file that tells the report what to show.
        shown: what the site shows: merged tables and figures of all studies, those of kernels, parity, and
            the checks of claims with their figures.
        checks: the tables of the checks of claims.
        stored_kernels: the folder of asv's results.
        inputs: the tables that a job reads, by the job's hash.
        seeds: the seeds of a job in words, by the job's hash.
        tables: the folder of merged tables, by the hash of the tables or of the figures that show them.
        merged_tables: the tables of jobs that are merged, by the hash of what they become.
        merged_folders: the folders that these are in, likewise.
        keep_failed: whether what failed before is left as it is.
        minutes: the most that a bundle of lanes may take; None for no limit.
        name: of the set that is to be published; None where none was given.
        waive: what is let pass when it is.
        readme: the page whose leaderboard becomes the set's; None to leave all pages alone.
    """

    summary: str
    results: str
    site: str
    report_path: str
    shown: list[str]
    checks: list[str]
    stored_kernels: str
    inputs: Mapping[str, list[str]]
    seeds: Mapping[str, str]
    tables: Mapping[str, str]
    merged_tables: Mapping[str, list[str]]
    merged_folders: Mapping[str, list[str]]
    keep_failed: bool
    minutes: float | None
    name: str | None
    waive: list[str]
    readme: str | None

    def to_json(self) -> str:
        """The text of the file."""
        return json.dumps(asdict(self), sort_keys=True, indent=1) + "\n"

    @property
    def job_command(self) -> str:
        """What a job's rule runs: the shell and tee outlast a SIGTERM, so that the job can record its end."""
        limit = "" if self.minutes is None else f" --minutes {self.minutes:g}"
        return (
            f"trap '' TERM; python -m harness.stages.supervision{limit} run {{input.spec:q}}"
            f" --results {quote(self.results)}{' --keep-failed' if self.keep_failed else ''}"
        )

    def spec(self, stage: str) -> str:
        """The pattern of a stage's spec files."""
        return f"{self.results}/specs/{{study}}.{{scale}}.{stage}.{{optimizer}}.{{backend}}.{{hash}}.json"

    def table(self, stage: str, name: str) -> str:
        """The pattern of a table that a stage's jobs write."""
        return f"{self.results}/runs/{{study}}/{{scale}}/{stage}/{JOB}/{name}.parquet"

    def log(self, rule: str) -> str:
        """The pattern of a rule's log files."""
        who = JOB if rule in TABLES else "{hash}"
        return f"{self.results}/logs/{{study}}.{{scale}}.{rule}.{who}.log"

    def merged(self, name: str) -> str:
        """The pattern of a study's merged table."""
        return f"{self.results}/tables/{{study}}.{{scale}}.{{hash}}/{name}.parquet"

    def figures(self) -> str:
        """The pattern of a study's folder of figures."""
        return f"{self.results}/figures/{{study}}.{{scale}}.{{hash}}"

    def kernels(self) -> str:
        """The pattern of the folder of what is shown of kernel speed."""
        return f"{self.results}/figures/kernels.{{hash}}"

    def claims(self) -> str:
        """The pattern of the folder of figures of the checks of claims."""
        return f"{self.results}/figures/claims.{{hash}}"

    def claims_plan(self) -> str:
        """The pattern of the file that tells these figures what to show."""
        return f"{self.results}/specs/claims.figures.{{hash}}.json"

    def figures_plan(self) -> str:
        """The pattern of the files that tell the figures what to show."""
        return f"{self.results}/specs/{{study}}.{{scale}}.figures.{{hash}}.json"

    def upstream(self, wildcards: Wildcards) -> list[str]:
        """The tables that a job reads."""
        return self.inputs[wildcards.hash]

    def seeds_of(self, wildcards: Wildcards) -> str:
        """The seeds of a job in words."""
        return self.seeds[wildcards.hash]

    def job_tables(self, wildcards: Wildcards) -> list[str]:
        """The tables of all jobs that a merged set of tables is made of."""
        return self.merged_tables[wildcards.hash]

    def job_folders(self, wildcards: Wildcards) -> list[str]:
        """The folders of all jobs that a merged set of tables is made of."""
        return self.merged_folders[wildcards.hash]

    def merged_of(self, wildcards: Wildcards) -> list[str]:
        """The merged tables that a set of figures shows."""
        return [f"{self.tables_of(wildcards)}/{name}.parquet" for name in MERGED]

    def to_publish(self, wildcards: Wildcards) -> str:
        """The plan of what is to be published, which is asked for before anything is computed.

        Raises:
            SystemExit: with the reason where it cannot be; of errors Snakemake would show a traceback.
        """
        try:
            self._check_publishable()
        except InputError as error:
            sys.exit(f"error: {error}")
        return self.report_path

    def _check_publishable(self) -> None:
        """Check what is published, under which name, and the page that is to show it.

        Raises:
            InputError: when the set's name is missing, has other letters than it may, or is taken, when the
                page has no place for a leaderboard, and when the files are not those of a commit.
        """
        try:
            check_name(self.name, Path(self.published))
            if self.readme is not None:
                check_page(Path(self.readme))
        except InputError as error:
            raise InputError(f"publish: {error}") from error
        if "dirty" not in self.waive:
            revision, dirty = commit(PROJECT)
            if revision is None or dirty:
                raise InputError(
                    "publish: the code that runs jobs and computes verdicts is not what a commit has; commit "
                    "it first, or add waive=dirty, which the set then says"
                )

    @property
    def published(self) -> str:
        """The folder of published sets."""
        return f"{self.results}/{FOLDER.name}"

    @property
    def readme_option(self) -> list[str]:
        """What tells `curvebench sets publish` of the page; nothing without one."""
        return ["--readme", self.readme] if self.readme else []

    def tables_of(self, wildcards: Wildcards) -> str:
        """The folder of the merged tables that a set of figures shows."""
        return self.tables[wildcards.hash]
