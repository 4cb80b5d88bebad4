"""Evaluation of a bundle on the way: its declared metrics, compiled, and the means of its step losses."""

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

Evaluate = Callable[..., dict[str, np.ndarray]]  # of carry and constants


@dataclass(frozen=True)
class Measurement:
    """The functions that give the declared metrics of lanes, which hold no arrays."""

    program: Program
    workload: Workload
    engine: Engine

    @cached_property
    def metrics(self) -> OverLanes:
        """The workload's metrics, of parameters, model state and a split."""
        return lane_evaluation(self.engine, self.workload.evaluate, per_seed=not self.workload.shared_data)

    @cached_property
    def gradient(self) -> StepEvaluation:
        """The gradient of the whole training split."""
        return StepEvaluation(self.engine, self.workload.loss, per_seed=not self.workload.shared_data)

    def values(self, carry: Carry, constants: Constants, splits: Mapping[str, Any]) -> dict[str, Any]:
        """The metrics of splits, (S, K) by full name."""
        params, workload = self.program.evaluation_point(carry, constants), self.workload
        with self.engine.products():
            return {
                f"{split}_{key}": value
                for split, arrays in splits.items()
                if split in workload.evaluated_splits
                for key, value in self.metrics(params, carry.model, arrays).items()
                if f"{split}_{key}" in workload.metrics
            }

    def whole(self, carry: Carry, constants: Constants, splits: Mapping[str, Any]) -> dict[str, Any]:
        """The metrics of splits, and the norm of the gradient where it is one."""
        found = self.values(carry, constants, splits)
        if GRADIENT_NORM in self.workload.metrics:
            params = self.program.evaluation_point(carry, constants)
            info = self.gradient(params, carry.model, constants.data, {}, observes=False)
            found[GRADIENT_NORM] = self.program.norm(info.gradient)
        return found


def evaluator(bundle: Bundle, engine: Engine, loaded: Loaded, programs: Programs | None = None) -> Evaluate:
    """The compiled function of carry and constants that gives declared metrics on the host, (S, K) float64.

    Where a workload says how many examples evaluation sees at once, splits are cut and sent in pieces, and
    values are means weighted by the examples of each piece. What is compiled is kept in `programs`; it holds
    no data, which is the bundle's own.
    """
    workload, size, programs = bundle.workload, bundle.workload.evaluation_batch, programs or Programs()
    ops, splits = engine.ops, bundle.problems[0].splits
    counts = {split: examples_in(splits[split]) for split in workload.evaluated_splits}
    measurement = programs.get("measurement", lambda: Measurement(loaded.program, workload, engine))

    def compiled(function: Callable[..., Any], splits: Mapping[str, Any]) -> Evaluate:
        """A function of evaluated splits, compiled; a single run's metrics, where they are worth the time."""
        given = (loaded.carry, loaded.constants, splits)

        def make() -> Evaluate:
            work = (
                float(bundle.evaluations) * sum(counts.values()) * math.prod(loaded.carry.coordinates.shape)
            )
            if bundle.shape == (1, 1):
                call = partial(measurement.values, *given)
                engine.compile_unbatched(measurement.metrics.single, work, call, "evaluation")
            return engine.compiled(function, *given, multiplications=work)

        return programs.get(("evaluation", shapes_of(engine, given)), make)

    def host(found: Mapping[str, Any]) -> dict[str, np.ndarray]:
        # A copy: a metric may be a view of parameters, which the next step overwrites.
        return {name: np.array(ops.to_numpy(value), np.float64) for name, value in found.items()}

    if size is None:
        at_once, held = compiled(measurement.whole, loaded.splits), loaded.splits
        return lambda carry, constants: host(at_once(carry, constants, held))

    def sent(split: str, examples: Callable[[Split], dict[str, np.ndarray]]) -> dict[str, Any]:
        with engine.context():
            arrays = stacked(bundle, split, examples)
            return {split: {name: ops.asarray(array) for name, array in arrays.items()}}

    def fetched(piece: tuple[str, int, int]) -> dict[str, Any]:
        split, start, stop = piece
        return sent(split, partial(gathered, numbers=np.arange(start, stop), threads=engine.threads))

    pieces = [
        (split, start, min(start + size, count))
        for split, count in counts.items()
        for start in range(0, count, size)
    ]
    functions = {
        (split, length): compiled(measurement.values, sent(split, partial(placeholders, count=length)))
        for split, length in dict.fromkeys((split, stop - start) for split, start, stop in pieces)
    }
    fetches = any(not isinstance(splits[split], Mapping) for split in counts)

    def evaluate(carry: Carry, constants: Constants) -> dict[str, np.ndarray]:
        sums: dict[str, np.ndarray] = {}
        with prefetched(fetched, pieces, fetches) as made:
            for (split, start, stop), arrays in zip(pieces, made, strict=True):
                found = host(functions[split, stop - start](carry, constants, arrays))
                for name, value in found.items():
                    sums[name] = sums.get(name, 0.0) + value * ((stop - start) / counts[split])
        return sums

    return evaluate


def mean_losses(ops: Ops, losses: StepLosses) -> tuple[np.ndarray, np.ndarray]:
    """The mean and the first loss of the steps since the last evaluation, (S, K); NaN of none."""
    total, count, first = (np.array(ops.to_numpy(each), np.float64) for each in losses)
    return np.divide(total, count, out=np.full_like(total, math.nan), where=count > 0), first
