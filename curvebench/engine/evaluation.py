"""Evaluation of a bundle during its run: the metrics of its workload, and mean losses of minibatches.

A bundle is a set of runs (lanes) that are computed together, S seeds x K settings. The carry of a bundle is
the state that steps change (parameters, optimizer and model). The constants of a bundle are the arrays that
steps only read. The full name of a metric consists of a split and a quantity, such as `validation_loss`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from curvebench.arrays.ops import Ops
from curvebench.engine.bundle import Bundle
from curvebench.engine.loading import stacked
from curvebench.engine.programs import Programs, shapes_of
from curvebench.steps.derivatives import OverLanes, StepEvaluation, lane_evaluation
from curvebench.steps.engine import Engine
from curvebench.steps.examples import gathered, placeholders, prefetched
from curvebench.steps.program import Carry, Constants, Loaded, Program, StepLosses
from curvebench.workloads.workload import GRADIENT_NORM, Split, Workload, examples_in

# Function `(carry, constants) -> metrics` that returns the values of metrics, by full name of the metric.
Evaluate = Callable[..., dict[str, np.ndarray]]


@dataclass(frozen=True)
class Measurement:
    """Functions that compute the metrics that a workload declares, for all lanes.

    The functions refer to no arrays of data or parameters, so that several bundles can share the functions.
    """

    program: Program
    workload: Workload
    engine: Engine

    @cached_property
    def metrics(self) -> OverLanes:
        """The workload's metrics as a function of parameters, model state and the data of a split."""
        return lane_evaluation(self.engine, self.workload.evaluate, per_seed=not self.workload.shared_data)

    @cached_property
    def gradient(self) -> StepEvaluation:
        """The gradient of the loss on the whole training split, as a function."""
        return StepEvaluation(self.engine, self.workload.loss, per_seed=not self.workload.shared_data)

    def values(self, carry: Carry, constants: Constants, splits: Mapping[str, Any]) -> dict[str, Any]:
        """Compute the metrics of given splits, (seeds, settings), by full names such as `validation_loss`."""
        params, workload = self.program.evaluation_point(carry, constants), self.workload
        with self.engine.products():
            return {
                f"{split}_{key}": value
                for split, arrays in splits.items()
                if split in workload.evaluated_splits
                for key, value in self.metrics(params, carry.model, arrays).items()
                if f"{split}_{key}" in workload.metrics
            }

    def all_values(self, carry: Carry, constants: Constants, splits: Mapping[str, Any]) -> dict[str, Any]:
        """Compute the metrics of the given splits, and the norm of the full gradient if it is a metric."""
        values = self.values(carry, constants, splits)
        if GRADIENT_NORM in self.workload.metrics:
            params = self.program.evaluation_point(carry, constants)
            info = self.gradient(params, carry.model, constants.data, {}, observes=False)
            values[GRADIENT_NORM] = self.program.norm(info.gradient)
        return values


def evaluator(bundle: Bundle, engine: Engine, loaded: Loaded, programs: Programs | None = None) -> Evaluate:
    """Compile the function of carry and constants that returns the declared metrics as NumPy arrays.

    If the workload limits the number of examples in an evaluation (`evaluation_batch`), each split is divided
    into batches, which are sent to the device one after another. A metric is then the mean over batches,
    weighted by the numbers of examples in the batches. Otherwise the splits are already on the device.

    Args:
        loaded: the bundle on its device.
        programs: store of the compiled functions, which contain no data, for other bundles of the same method
            on the same workload, such as bundles of other rounds. None to compile for this bundle only.

    Returns:
        A function whose result has float64 arrays (seeds, settings) by full name of the metric.
    """
    workload, size, programs = bundle.workload, bundle.workload.evaluation_batch, programs or Programs()
    ops, splits = engine.ops, bundle.problems[0].splits
    counts = {split: examples_in(splits[split]) for split in workload.evaluated_splits}
    measurement = programs.get("measurement", lambda: Measurement(loaded.program, workload, engine))

    def compiled(function: Callable[..., Any], splits: Mapping[str, Any]) -> Evaluate:
        """Compile a method of `Measurement` for the shapes of the given splits.

        The metrics of a bundle with a single run are first compiled separately, if their computation takes
        long enough to repay the compilation.
        """
        arguments = (loaded.carry, loaded.constants, splits)

        def make() -> Evaluate:
            evaluations = max(bundle.evaluations, programs.evaluations)
            work = float(evaluations) * sum(counts.values()) * math.prod(loaded.carry.coordinates.shape)
            if bundle.shape == (1, 1):
                call = partial(measurement.values, *arguments)
                engine.compile_unbatched(measurement.metrics.single, work, call, "evaluation")
            return engine.compiled(function, *arguments, multiplications=work)

        return programs.get(("evaluation", shapes_of(engine, arguments)), make)

    def to_host(values: Mapping[str, Any]) -> dict[str, np.ndarray]:
        # Copy with np.array, because a metric may be a view of parameters, which the next step overwrites.
        return {name: np.array(ops.to_numpy(value), np.float64) for name, value in values.items()}

    if size is None:
        evaluate_all, resident = compiled(measurement.all_values, loaded.splits), loaded.splits
        return lambda carry, constants: to_host(evaluate_all(carry, constants, resident))

    def on_device(split: str, examples: Callable[[Split], dict[str, np.ndarray]]) -> dict[str, Any]:
        with engine.context():
            arrays = stacked(bundle, split, examples)
            return {split: {name: ops.asarray(array) for name, array in arrays.items()}}

    def fetched(batch: tuple[str, int, int]) -> dict[str, Any]:
        split, start, stop = batch
        return on_device(split, partial(gathered, numbers=np.arange(start, stop), threads=engine.threads))

    batches = [
        (split, start, min(start + size, count))
        for split, count in counts.items()
        for start in range(0, count, size)
    ]
    functions = {
        (split, length): compiled(measurement.values, on_device(split, partial(placeholders, count=length)))
        for split, length in dict.fromkeys((split, stop - start) for split, start, stop in batches)
    }
    reads_sources = any(not isinstance(splits[split], Mapping) for split in counts)

    def evaluate(carry: Carry, constants: Constants) -> dict[str, np.ndarray]:
        sums: dict[str, np.ndarray] = {}
        with prefetched(fetched, batches, reads_sources) as queue:
            for (split, start, stop), arrays in zip(batches, queue, strict=True):
                values = to_host(functions[split, stop - start](carry, constants, arrays))
                for name, value in values.items():
                    sums[name] = sums.get(name, 0.0) + value * ((stop - start) / counts[split])
        return sums

    return evaluate


def mean_losses(ops: Ops, losses: StepLosses) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean loss over the steps since the last evaluation, and the loss of the first such step.

    Both arrays have the shape (seeds, settings). The mean is NaN for a lane that has taken no step since the
    last evaluation.
    """
    total, count, first = (np.array(ops.to_numpy(array), np.float64) for array in losses)
    return np.divide(total, count, out=np.full_like(total, math.nan), where=count > 0), first
