"""What the Snakefile asks of a plan: path patterns and input functions, in a file that job processes read."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from shlex import quote
from typing import Protocol

from curvebench.paths import NEW_SETS
from curvebench.planning.config import Config
from curvebench.results.provenance import check_committed
from curvebench.spec.document import Document
from curvebench.spec.errors import InputError
from curvebench.spec.job import JobSpec, RunsSpec, TrainingSpec
from curvebench.spec.sets import check_name, check_page, check_seeds

TABLES: Mapping[str, tuple[str, ...]] = {
    "bases": ("jobs",),
    "runs": ("runs", "curves", "jobs"),
    "timing": ("timings", "memory", "jobs"),
    "parity": ("parity", "jobs"),
    "checks": ("checks", "series", "jobs"),
}
MERGED = ("runs", "curves", "timings", "memory", "jobs")
JOB = "{optimizer}.{backend}.{hash}"  # the wildcards of a job's paths, as in JobSpec.name
STUDY = "{study}.{scale}.{hash}"
PATTERNS: Mapping[str, str] = {
    "tables": f"tables/{STUDY}",
    "gathered": "runs/{study}/{scale}/gathered/{hash}",
    "tables jobs": "specs/{study}.{scale}.tables.{hash}.txt",
    "figures": f"figures/{STUDY}",
    "figures plan": "specs/{study}.{scale}.figures.{hash}.json",
}


PROCESS_MB = 1476  # of a job besides its bundle: Python, a backend and what it compiles
OTHER_MB = 2500  # of a job without bundles
GPU_MB = 8000  # of the host where a bundle lies on a GPU: the libraries of CUDA, and data on their way
MINUTES, MINUTES_ALONE = 240, 720  # that a first attempt of a training job has


class WiredJob(Document):
    """The name of a job in messages, and its needs: host memory, GPUs and minutes.

    A job that times steps takes one GPU, but all processor cores, so that no other job runs meanwhile.
    """

    description: str
    mem_mb: int = OTHER_MB
    gpu: int = 0
    minutes: int = MINUTES

    @classmethod
    def of(cls, spec: JobSpec) -> WiredJob:
        """The needs of a job."""
        gpu = int(spec.device != "cpu")
        if not isinstance(spec, TrainingSpec):
            return cls(description=spec.description, mem_mb=GPU_MB if gpu else OTHER_MB, gpu=gpu)
        memory = GPU_MB if gpu else PROCESS_MB + (spec.bundle_memory_bytes >> 20)
        minutes = MINUTES_ALONE if isinstance(spec, RunsSpec) and spec.alone else MINUTES
        return cls(description=spec.description, mem_mb=memory, gpu=gpu, minutes=minutes)


class Wildcards(Protocol):
    """What Snakemake hands to an input function."""

    hash: str


def tables_in(folders: Iterable[Path]) -> list[str]:
    """The tables that jobs write to their folders, `.../<stage>/<name of the job>`."""
    return [f"{folder}/{table}.parquet" for folder in folders for table in TABLES[folder.parent.name]]


class Wiring(Document):
    """The folders of a plan; its methods are the paths and input functions of the Snakefile.

    Args:
        summary: the plan for people.
        report_path: the file that tells the report what to show.
        shown: what the site shows: merged tables and figures of all studies, those of kernels, parity, and
            the checks of claims with their figures.
        jobs: all jobs, and runs that are gathered, by their hash.
        made_of: the files that a job reads, that are gathered or merged, or that figures show, by the hash of
            what they become; a job may read what is gathered.
    """

    summary: str
    config: Config
    report_path: str
    shown: tuple[str, ...]
    jobs: dict[str, WiredJob]
    made_of: dict[str, tuple[str, ...]]

    def to_json(self) -> str:
        """The text of the file."""
        return self.model_dump_json(indent=1) + "\n"

    @property
    def results(self) -> Path:
        """The results folder."""
        return self.config.results

    @property
    def job_command(self) -> str:
        """What a job's rule runs: the shell and tee outlast a SIGTERM, so that the job can record its end."""
        minutes, between = self.config.minutes, self.config.checkpoint_minutes
        limit = "" if minutes is None else f" --minutes {minutes:g}"
        options = "" if between is None else f" --checkpoint-minutes {between:g}"
        options += " --keep-failed" if self.config.keep_failed else ""
        return (
            f"trap '' TERM; python -m curvebench.stages.supervision{limit} run {{input.spec:q}}"
            f" --results {quote(str(self.results))}{options}"
        )

    def spec(self, stage: str) -> str:
        """The pattern of a stage's spec files."""
        return f"{self.results}/specs/{{study}}.{{scale}}.{stage}.{{optimizer}}.{{backend}}.{{hash}}.json"

    def job_tables(self, stage: str) -> list[str]:
        """The patterns of the tables that a stage's jobs write."""
        return tables_in([Path(f"{self.results}/runs/{{study}}/{{scale}}/{stage}/{JOB}")])

    def log(self, rule: str) -> str:
        """The pattern of a rule's log files."""
        who = JOB if rule in TABLES else "{hash}"
        return f"{self.results}/logs/{{study}}.{{scale}}.{rule}.{who}.log"

    def pattern(self, what: str) -> str:
        """The pattern of what is made of jobs, or of the file that tells it what to show (`PATTERNS`)."""
        return f"{self.results}/{PATTERNS[what]}"

    def inputs(self, wildcards: Wildcards) -> tuple[str, ...]:
        """The files that a job reads, that are gathered or merged, or that figures show."""
        return self.made_of[wildcards.hash]

    def description(self, wildcards: Wildcards) -> str:
        """What messages call a job, or say of runs that are there when others begin."""
        return self.jobs[wildcards.hash].description

    def mem_mb(self, wildcards: Wildcards) -> int:
        """The memory of the host that a job needs, in MB."""
        return self.jobs[wildcards.hash].mem_mb

    def gpu(self, wildcards: Wildcards) -> int:
        """How many GPUs a job needs."""
        return self.jobs[wildcards.hash].gpu

    def minutes(self, wildcards: Wildcards, attempt: int) -> int:
        """How long a training job may take on a cluster, in its attempt of a number."""
        return self.jobs[wildcards.hash].minutes * attempt

    def merged(self) -> list[str]:
        """The patterns of merged tables."""
        return [f"{self.pattern('tables')}/{name}.parquet" for name in MERGED]

    def to_publish(self, wildcards: Wildcards) -> str:
        """The plan of what is to be published, which is asked for before anything is computed.

        Raises:
            SystemExit: with the reason where it cannot be published: the set's name is missing, has other
                letters than it may, or is taken; its seeds are those of another set; the page has no place
                for a leaderboard; the files are not those of a commit. Snakemake would show a traceback of
                an InputError.
        """
        try:
            check_name(self.config.name, NEW_SETS)
            check_seeds(self.config.seeds_of)
            if self.config.readme is not None:
                check_page(self.config.readme)
            if "dirty" not in self.config.waive:
                check_committed(otherwise=", or add waive=dirty, which the set then says")
        except InputError as error:
            sys.exit(f"error: publish: {error}")
        return self.report_path

    @property
    def site_summary(self) -> str:
        """The file with which the site is complete: its summary."""
        return f"{self.results}/logs/site.summary.txt"

    @property
    def readme_option(self) -> list[str]:
        """What tells `curvebench sets publish` of the page; nothing without one."""
        return ["--readme", str(self.config.readme)] if self.config.readme else []
