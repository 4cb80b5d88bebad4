"""Runs of Snakemake by commands that run a study of their own, such as `curvebench try`."""

from __future__ import annotations

import shlex
import sys
import time
from typing import TYPE_CHECKING

from curvebench.paths import SNAKEMAKE
from curvebench.spec.errors import InputError

if TYPE_CHECKING:
    from curvebench.planning.config import Config
    from curvebench.spec.plan import ReportPlan


def run_to_plan(
    command: str, config: Config, cores: str, target: str = "site", *words: str
) -> tuple[int, ReportPlan]:
    """Run Snakemake, and read the plan of the site that it renders.

    Args:
        command: the command that calls this function, for messages.
        config: configuration of the run.
        cores: number of CPU cores to use, or `all`.
        target: target of Snakemake.
        words: further words of the configuration, `key=value`.

    Returns:
        The exit status of Snakemake, which is not 0 if runs have failed, and the plan.

    Raises:
        InputError: if Snakemake ends before it has rendered the site.
        SystemExit: with status 130, if the user interrupts it.
    """
    from curvebench.reports.sets.reproduce import run_snakemake
    from curvebench.spec.plan import read_plan

    settings = [f"{key}={_written(value)}" for key, value in config if key in config.model_fields_set]
    called = [*SNAKEMAKE, "--cores", cores, target, "--config", *settings, *words]
    start = time.time()
    try:
        status = run_snakemake([*called, "--quiet", "all"], output=sys.stderr)
    except KeyboardInterrupt:
        print("interrupted; the same command resumes the runs", file=sys.stderr)
        raise SystemExit(130) from None
    path = config.site / "plan.json"
    if status and not (path.exists() and path.stat().st_mtime >= start):
        raise InputError(
            "snakemake ended with an error; if it is not printed above, this command prints it:\n"
            f"  {shlex.join(called)}\nThe same {command} resumes the runs."
        )
    return status, read_plan(path)


def _written(value: object) -> str:
    """Return a value of the configuration as text for the command line of Snakemake."""
    return ",".join(value) if isinstance(value, tuple) else str(value)
