"""Loss and metrics of a workload once on NumPy: what would fail in every run shows before one."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from curvebench.arrays.numpy_ops import numpy_ops
from curvebench.seeding import WorkloadRandom
from curvebench.spec.errors import InputError
from curvebench.steps.examples import gathered, generators_of
from curvebench.workloads import workload as workloads

FEW = 8  # examples
ELSEWHERE = (Path(__file__).parents[1], Path(np.__file__).parent)  # whose lines are none of a workload


def check_evaluation(workload: workloads.Workload, settings: workloads.Settings) -> None:
    """Evaluate the loss, and the splits that metrics are of, at the initial parameters of one seed.

    Args:
        settings: completed; the data that they need are there.

    Raises:
        InputError: for a problem, a loss or an evaluation that fails, with file and line; for a loss that is
            not one number, and for metrics that evaluation does not give.
    """
    evaluated = set(workload.metrics) - {
        workloads.GRADIENT_NORM,
        workloads.MINIBATCH_LOSS,
    }  # the harness computes these
    judged = {workloads.split_of(metric) for metric in evaluated}
    ops, random = numpy_ops(), WorkloadRandom(workload.name, 0)
    problem = _evaluated("problem", lambda _: workload.problem(settings, random), None)

    def loss(examples: int | None) -> Any:
        batch = _first(problem.splits["train"], examples, random)
        count = min(map(len, batch.values()), default=0)
        noise = workload.noise(settings, random("noise"), count) if workload.noise else {}
        return workload.loss(ops, problem.parameters, problem.state, batch, noise)[0]

    def metrics(examples: int | None) -> list[str]:
        given = {
            split: workload.evaluate(ops, problem.parameters, problem.state, _first(own, examples))
            for split, own in problem.splits.items()
            if split in judged
        }
        return [f"{split}_{key}" for split, own in given.items() for key in own]

    if shape := np.shape(_evaluated("loss", loss, settings["batch_size"])):
        raise InputError(f"loss: has shape {shape}; give one number, such as the mean over examples")
    given = _evaluated("evaluate", metrics, workload.evaluation_batch)
    if lacking := sorted(evaluated.difference(given)):
        raise InputError(
            f"evaluate: gives no {', '.join(lacking)}, as metrics asks (it gives: {', '.join(given)})"
        )


def _first(
    split: workloads.Split, examples: int | None, random: workloads.Random | None = None
) -> dict[str, Any]:
    """The first examples of a split, or all; as training sees them where it is given what they draw from."""
    numbers = np.arange(workloads.examples_in(split))[None, None, :examples]
    generators = None if random is None else generators_of([random], "examples of step", 1)
    return {name: values[0, 0] for name, values in gathered(split, numbers, 1, generators).items()}


def _evaluated(name: str, call: Callable[[int | None], Any], in_runs: int | None) -> Any:
    """What a call gives on few examples or, where it takes no few, on as many as runs give it.

    Raises:
        InputError: where that fails, by the innermost line of it that is the workload's.
    """
    with np.errstate(all="ignore"):
        with suppress(Exception):
            return call(FEW)
        try:
            return call(in_runs)
        except Exception as error:  # whatever a workload of the user's raises
            lines = traceback.extract_tb(error.__traceback__)
            own = [f"{at.filename}:{at.lineno}: " for at in lines if not _is_elsewhere(at.filename)]
            said = error if isinstance(error, InputError) else f"fails ({type(error).__name__}: {error})"
            raise InputError(f"{(own or [''])[-1]}{name}: {said}") from error


def _is_elsewhere(file: str) -> bool:
    return any(Path(file).is_relative_to(folder) for folder in ELSEWHERE)
