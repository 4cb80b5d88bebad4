"""Check of a workload before a run: its loss and metrics are evaluated once on NumPy.

Errors that every run would have are reported with the file and line of the workload. For a workload that
states its training loss and gradient norm at the start, both are compared with the values on this machine.
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from curvebench.arrays.numpy_ops import numpy_ops
from curvebench.backends.engine import engine
from curvebench.seeding import WorkloadRandom
from curvebench.spec.errors import InputError
from curvebench.steps.examples import gathered, generators_of
from curvebench.workloads import workload as workloads
from curvebench.workloads.arguments import Random, Settings

FEW_EXAMPLES = 8
# Largest relative difference between the stated and the computed loss and gradient norm at a start.
# Libraries and processors differ in the last digits of float64.
START_TOLERANCE = 1e-9
LIBRARIES = ("numpy", "jax", "optax", "torch")
STANDARD_LIBRARY = Path(traceback.__file__).parent
# Folders of curvebench and of the libraries that it calls. Code outside of these folders is a user's.
LIBRARY_FOLDERS = (
    Path(__file__).parents[1],
    *(Path(spec.origin).parent for name in LIBRARIES if (spec := find_spec(name)) and spec.origin),
)


def check_evaluation(workload: workloads.Workload, settings: Settings) -> None:
    """Evaluate the loss and the metrics of a workload at the initial parameters of one seed.

    Args:
        workload: the workload, whose data must be available.
        settings: a value for each setting of the workload.

    Raises:
        InputError: if the problem, the loss or the evaluation raises an exception (with file and line), if
            the loss is not a single number, or if the evaluation lacks a declared metric.
    """
    # Exclude the two metrics that are computed without calling `evaluate` of the workload.
    required = set(workload.metrics) - {workloads.GRADIENT_NORM, workloads.MINIBATCH_LOSS}
    required_splits = {workloads.split_of(metric) for metric in required}
    ops, random = numpy_ops(), WorkloadRandom(workload.name, 0)
    problem = _evaluated("problem", lambda _: workload.problem(settings, random), None)

    def loss(examples: int | None) -> Any:
        batch = _first(problem.splits["train"], examples, random)
        count = min(map(len, batch.values()), default=0)
        noise = workload.noise(settings, random("noise"), count) if workload.noise else {}
        return workload.loss(ops, problem.parameters, problem.state, batch, noise)[0]

    def metrics(examples: int | None) -> list[str]:
        values = {
            name: workload.evaluate(ops, problem.parameters, problem.state, _first(split, examples))
            for name, split in problem.splits.items()
            if name in required_splits
        }
        return [f"{name}_{key}" for name, by_key in values.items() for key in by_key]

    if shape := np.shape(_evaluated("loss", loss, settings["batch_size"])):
        raise InputError(f"loss: has shape {shape}; give one number, such as the mean over examples")
    names = _evaluated("evaluate", metrics, workload.evaluation_batch)
    if missing := sorted(required.difference(names)):
        raise InputError(
            f"evaluate: gives no {', '.join(missing)}, as metrics asks (it gives: {', '.join(names)})"
        )


def start_of(workload: workloads.Workload, backend: str = "torch") -> workloads.Start:
    """Return training loss and gradient norm at the start of the problem with default settings and seed 0.

    Both are of all training examples at once in float64, or of the first `evaluation_batch` examples if the
    workload has such a number. A workload with noise gets the noise of one draw.

    Args:
        workload: the workload, whose data must be available.
        backend: backend that differentiates the loss, `jax` or `torch`.
    """
    settings, random = workload.complete({}), WorkloadRandom(workload.name, 0)
    workload = workload.at(settings)
    problem, executor = workload.problem(settings, random), engine(backend, "float64")
    batch = _first(problem.splits["train"], workload.evaluation_batch, random)
    count = min(map(len, batch.values()))
    noise = workload.noise(settings, random("noise"), count) if workload.noise else {}

    def loss(params: Any, *arguments: Any) -> Any:
        return workload.loss(executor.model_ops, params, *arguments)[:2]

    with executor.context():
        arrays = (problem.parameters, problem.state, batch, noise)
        on_device = ({name: executor.ops.asarray(x) for name, x in each.items()} for each in arrays)
        (value, _), gradient = executor.value_and_grad(loss, single=False)(*on_device)
        norms = [float(executor.ops.norm(part)) for part in gradient.values()]
        return workloads.Start(float(value), math.hypot(*norms))


def check_start(workload: workloads.Workload) -> None:
    """Compare the start that a workload states with the start on this machine.

    Args:
        workload: the workload, whose data must be available with default settings.

    Raises:
        InputError: if the training loss or the gradient norm is different.
    """
    if workload.start is None:
        return
    computed = asdict(start_of(workload))
    for name, stated in asdict(workload.start).items():
        if not math.isclose(stated, computed[name], rel_tol=START_TOLERANCE):
            raise InputError(
                f"start: {name} is {computed[name]!r} on this machine, and the workload states {stated!r}; "
                "the definition of the problem or its data have changed"
            )


def _first(split: workloads.Split, examples: int | None, random: Random | None = None) -> dict[str, Any]:
    """Load the first examples of a split, as a mapping from fields to arrays.

    Args:
        split: a mapping from fields to arrays, or a data source.
        examples: number of examples; None for all examples.
        random: random streams of a seed, to load examples with the augmentation of training; None to load
            examples without augmentation, as for evaluations.
    """
    numbers = np.arange(workloads.examples_in(split))[None, None, :examples]
    generators = None if random is None else generators_of([random], "examples of step", 1)
    return {name: values[0, 0] for name, values in gathered(split, numbers, 1, generators).items()}


def _evaluated(name: str, call: Callable[[int | None], Any], in_runs: int | None) -> Any:
    """Call a function of a workload with few examples. If this call fails, call the function as in a run.

    Args:
        name: name of the function in the message.
        call: calls the function of the workload, given the number of examples.
        in_runs: number of examples that the function receives in runs; None for all examples.

    Raises:
        InputError: if both calls fail. The message names the innermost line that belongs to the workload.
    """
    with np.errstate(all="ignore"):
        with suppress(Exception):
            return call(FEW_EXAMPLES)
        try:
            return call(in_runs)
        except Exception as error:  # The workload of a user may raise any exception.
            place = line_of_user(error)
            reason = error if isinstance(error, InputError) else f"fails ({type(error).__name__}: {error})"
            raise InputError(f"{place and f'{place}: '}{name}: {reason}") from error


def line_of_user(error: BaseException) -> str:
    """Return the innermost line in a user's file at which an error was raised, `file:line`, or ""."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [f"{frame.filename}:{frame.lineno}" for frame in frames if not _is_library(Path(frame.filename))]
    return (lines or [""])[-1]


def _is_library(file: Path) -> bool:
    in_python = file.is_relative_to(STANDARD_LIBRARY) and "site-packages" not in file.parts
    return in_python or any(file.is_relative_to(folder) for folder in LIBRARY_FOLDERS)
