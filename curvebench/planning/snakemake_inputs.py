"""Inputs of the Snakefile: path patterns, input functions and resources of its rules.

The main process of Snakemake writes these inputs to a file, and the processes that Snakemake starts for jobs
read the file. A stage is a kind of job, such as `bases` or `runs`. The marker of gathered runs is an empty
file that is written after many jobs with a single run each. Later jobs wait for this one file instead of
waiting for each of the jobs.
"""

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

# Names of the tables that a job writes, by stage, the kind of the job
TABLES: Mapping[str, tuple[str, ...]] = {
    "bases": ("jobs",),
    "runs": ("runs", "curves", "jobs"),
    "timing": ("timings", "memory", "jobs"),
    "parity": ("parity", "jobs"),
    "checks": ("checks", "series", "jobs"),
}
# Tables of a study, each merged from the tables of the study's jobs
MERGED = ("runs", "curves", "timings", "memory", "jobs")
JOB = "{optimizer}.{backend}.{hash}"  # name of a job (JobSpec.name) with Snakemake's wildcards
STUDY = "{study}.{scale}.{hash}"
# Path patterns in the results folder, by output. `tables` is the folder of a study's merged tables.
# `gathered` is the empty file that is written after many jobs with a single run each.
# `tables jobs` is the list of the folders whose tables are merged.
# `figures` is a folder of figures.
# `figures plan` is the report plan from which the figures in such a folder are drawn.
PATTERNS: Mapping[str, str] = {
    "tables": f"tables/{STUDY}",
    "gathered": "runs/{study}/{scale}/gathered/{hash}",
    "tables jobs": "specs/{study}.{scale}.tables.{hash}.txt",
    "figures": f"figures/{STUDY}",
    "figures plan": "specs/{study}.{scale}.figures.{hash}.json",
}


# Memory in MB that Snakemake reserves for a job. A bundle is the arrays of runs that are computed together.
PROCESS_MB = 1476  # host memory of a job in addition to its bundle: Python, a backend and compilation
OTHER_MB = 2500  # host memory of a job without bundles
GPU_MB = 8000  # host memory of a job whose bundle is on a GPU: CUDA libraries, and data before its transfer
# Time limits in minutes for the first attempt of a job: for a job with many runs, and for a job with one run
TRAINING_MINUTES, SINGLE_RUN_MINUTES = 240, 720


class SnakemakeJob(Document):
    """Description of a job for messages, and the resources that the job needs.

    A job on the device `gpu` uses one GPU. The Snakefile gives all processor cores to a timing job, so that
    no other job runs at the same time.

    Args:
        description: text for messages.
        mem_mb: host memory in MB.
        gpu: number of GPUs.
        minutes: time limit in minutes of the first attempt on a cluster.
    """

    description: str
    mem_mb: int = OTHER_MB
    gpu: int = 0
    minutes: int = TRAINING_MINUTES

    @classmethod
    def of(cls, spec: JobSpec) -> SnakemakeJob:
        """Return the description and the resources of a job."""
        gpu = int(spec.device != "cpu")
        if not isinstance(spec, TrainingSpec):
            return cls(description=spec.description, mem_mb=GPU_MB if gpu else OTHER_MB, gpu=gpu)
        memory = GPU_MB if gpu else PROCESS_MB + (spec.bundle_memory_bytes >> 20)
        minutes = SINGLE_RUN_MINUTES if isinstance(spec, RunsSpec) and spec.single_run else TRAINING_MINUTES
        return cls(description=spec.description, mem_mb=memory, gpu=gpu, minutes=minutes)


class Wildcards(Protocol):
    """Values of wildcards, which Snakemake passes to input functions."""

    hash: str


def tables_in(folders: Iterable[Path]) -> list[str]:
    """Return the paths of the tables that jobs write.

    Args:
        folders: folders of the jobs, `.../<stage>/<name of the job>`.
    """
    return [f"{folder}/{table}.parquet" for folder in folders for table in TABLES[folder.parent.name]]


class SnakemakeInputs(Document):
    """Data of a plan that the Snakefile needs.

    Some methods return path patterns. Methods with the argument `wildcards` are input functions, which
    Snakemake calls for each job with the job's values of the wildcards in the path patterns.

    Args:
        summary: text that is printed for the user.
        config: the configuration.
        report_path: path of the file with the plan for the report.
        site_inputs: files that the site shows: merged tables and figures of all studies, kernel times,
            parity, and property checks with their figures.
        jobs: a mapping from hashes to description and resources, for each job and each marker of gathered
            runs. The marker is an empty file that is written after all runs of a round, so that a job that
            reads the runs needs only one input.
        input_files: a mapping from the hash in the path of an output to the input files. An output is a job's
            table, a marker of gathered runs, a merged table, or a folder of figures.
    """

    summary: str
    config: Config
    report_path: str
    site_inputs: tuple[str, ...]
    jobs: dict[str, SnakemakeJob]
    input_files: dict[str, tuple[str, ...]]

    @property
    def results(self) -> Path:
        """Folder of job files, runs, tables and figures."""
        return self.config.results

    @property
    def job_command(self) -> str:
        """Shell command of a job's rule.

        The shell and `tee` ignore SIGTERM. On an interrupt, both therefore run until the job has recorded
        that it was interrupted.
        """
        minutes, between = self.config.minutes, self.config.checkpoint_minutes
        limit = "" if minutes is None else f" --minutes {minutes:g}"
        options = "" if between is None else f" --checkpoint-minutes {between:g}"
        options += " --keep-failed" if self.config.keep_failed else ""
        return (
            f"trap '' TERM; python -m curvebench.stages.supervision{limit} run {{input.spec:q}}"
            f" --results {quote(str(self.results))}{options}"
        )

    def spec(self, stage: str) -> str:
        """Return the pattern of the paths of the specifications of all jobs of a stage."""
        return f"{self.results}/specs/{{study}}.{{scale}}.{stage}.{{optimizer}}.{{backend}}.{{hash}}.json"

    def job_tables(self, stage: str) -> list[str]:
        """Return the patterns of the paths of the tables that jobs of a stage write."""
        return tables_in([Path(f"{self.results}/runs/{{study}}/{{scale}}/{stage}/{JOB}")])

    def log(self, rule: str) -> str:
        """Return the pattern of the paths of a rule's log files."""
        wildcards = JOB if rule in TABLES else "{hash}"
        return f"{self.results}/logs/{{study}}.{{scale}}.{rule}.{wildcards}.log"

    def pattern(self, output: str) -> str:
        """Return the pattern of the path of a file or folder in the results folder.

        Args:
            output: a key of `PATTERNS`.
        """
        return f"{self.results}/{PATTERNS[output]}"

    def inputs(self, wildcards: Wildcards) -> tuple[str, ...]:
        """Return the input files of a job, of a marker of gathered runs, of merged tables, or of figures."""
        return self.input_files[wildcards.hash]

    def description(self, wildcards: Wildcards) -> str:
        """Return the description of a job, or of a marker of gathered runs, for messages."""
        return self.jobs[wildcards.hash].description

    def mem_mb(self, wildcards: Wildcards) -> int:
        """Return the host memory that a job needs, in MB."""
        return self.jobs[wildcards.hash].mem_mb

    def gpu(self, wildcards: Wildcards) -> int:
        """Return the number of GPUs that a job needs."""
        return self.jobs[wildcards.hash].gpu

    def minutes(self, wildcards: Wildcards, attempt: int) -> int:
        """Return the time limit of a job on a cluster, in minutes.

        Args:
            wildcards: values of the wildcards of the job.
            attempt: number of the attempt, from 1. The limit is proportional to this number.
        """
        return self.jobs[wildcards.hash].minutes * attempt

    def merged(self) -> list[str]:
        """Return the patterns of the paths of merged tables."""
        return [f"{self.pattern('tables')}/{name}.parquet" for name in MERGED]

    def to_publish(self, wildcards: Wildcards) -> str:
        """Check the requirements for publication, and return the path of the plan to publish.

        The check comes before all jobs, so that nothing is computed in vain.

        Raises:
            SystemExit: if the name of the new set is missing, invalid or in use; if the runs use the seeds of
                another set; if the page that `readme` names has no place for a leaderboard; or if files of
                the project differ from the last commit. An InputError would make Snakemake print a traceback.
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
        """Path of the site's summary, which is the last file that rendering the site writes."""
        return f"{self.results}/logs/site.summary.txt"

    @property
    def readme_option(self) -> list[str]:
        """Option `--readme` of `curvebench sets publish`: the page to update; empty if no page is updated."""
        return ["--readme", str(self.config.readme)] if self.config.readme else []
