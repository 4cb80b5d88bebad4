"""Entry point of the Snakefile: the main process makes a plan, and the processes of jobs read the plan."""

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
from curvebench.planning.snakemake_inputs import SnakemakeInputs
from curvebench.spec.errors import InputError

# Environment variable that contains the path of the file that the main process writes for job processes.
# Job processes inherit the variable.
VARIABLE = "CURVEBENCH_SNAKEMAKE_INPUTS"


def snakemake_inputs(raw: Mapping[str, Any], is_main_process: bool) -> SnakemakeInputs:
    """Return paths, inputs and resources of all rules, for the `config` of the Snakefile.

    The main process makes a plan, and writes the inputs of the Snakefile to a file. The process of a job
    reads this file, and makes no plan. Therefore a job that has waited in a queue still follows the plan that
    submitted the job, even if source files have been edited since.

    Args:
        raw: `config` of the Snakefile.
        is_main_process: true in the process that the user started, false in a process that Snakemake started
            for one job.

    Raises:
        InputError: for bad input of any kind.
    """
    path = os.environ.get(VARIABLE)
    if path and not is_main_process:
        try:
            return SnakemakeInputs.model_validate_json(Path(path).read_bytes())
        except (OSError, ValidationError) as error:
            message = f"not the plan that this job belongs to ({error}); run snakemake again"
            raise InputError(f"{path}: {message}") from error
    # This import is inside the function, because it loads libraries that processes of jobs do not need.
    from curvebench.planning.plan import prepare

    plan = prepare(raw)
    os.environ[VARIABLE] = str(plan.snakemake_path)
    os.environ[WORKERS] = tempfile.mkdtemp(prefix="curvebench-workers-")
    atexit.register(shutil.rmtree, os.environ[WORKERS], ignore_errors=True)
    return plan.snakemake
