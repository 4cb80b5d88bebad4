"""What the Snakefile starts with: the main process makes a plan, the processes of jobs read it."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from curvebench.paths import WORKERS
from curvebench.planning.wiring import Wiring
from curvebench.spec.errors import InputError

VARIABLE = "CURVEBENCH_WIRING"  # set by the main process, inherited by the processes of jobs: the file


def read_wiring(path: Path) -> Wiring:
    """Read what the main process wrote.

    Raises:
        InputError: when the file is missing or damaged.
    """
    try:
        return Wiring.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise InputError(
            f"{path}: not the plan that this job belongs to ({error}); run snakemake again"
        ) from error


def wiring(raw: Mapping[str, Any], is_main_process: bool) -> Wiring:
    """The wiring for a Snakefile's `config`: planned, with its files in place, or read in a job's process.

    A job that waited in a queue so belongs to the plan that submitted it, whatever was edited since.

    Args:
        raw: the Snakefile's `config`.
        is_main_process: false in a process that Snakemake started to run one job.

    Raises:
        InputError: for bad input of any kind.
    """
    written = os.environ.get(VARIABLE)
    if written and not is_main_process:
        return read_wiring(Path(written))
    from curvebench.planning.plan import prepare  # needs libraries that processes of jobs do without here

    plan = prepare(raw)
    os.environ[VARIABLE] = str(plan.wiring_path)
    os.environ[WORKERS] = tempfile.mkdtemp(prefix="curvebench-workers-")
    atexit.register(shutil.rmtree, os.environ[WORKERS], ignore_errors=True)
    return plan.wiring
