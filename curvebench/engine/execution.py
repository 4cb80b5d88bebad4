"""Execution of a bundle: segments of steps, with evaluations and checkpoints between them.

A bundle is a set of runs (lanes) that advance together, S seeds x K settings. A segment is a number of steps
that one call of a compiled function computes. The carry is the state that steps change: parameters, state of
the optimizer and of the model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from curvebench.basis_estimation.reestimation import Renewal
from curvebench.engine.bundle import Bundle, Trajectories
from curvebench.engine.checkpoints import Checkpoint, Checkpoints
from curvebench.engine.clock import BASIS, CHECKPOINT, WAITING, Clock
from curvebench.engine.evaluation import Evaluate, evaluator, mean_losses
from curvebench.engine.inputs import evaluation_steps, filled, prefetch_inputs, segment_lengths, source_notes
from curvebench.engine.loading import load
from curvebench.engine.programs import Programs, segment_of
from curvebench.steps.engine import Engine, Segment
from curvebench.steps.program import Carry, Constants, Inputs, Loaded, Program
from curvebench.steps.torch_rule import closure_gradients
from curvebench.workloads.workload import MINIBATCH_LOSS

# Key of `RunHistory.rows` for the number of gradients that closures have computed before an evaluation.
CLOSURE_GRADIENTS = "closure_gradients"
METRIC = "metric "  # prefix of the names of metrics in a checkpoint
# Approximate largest duration of a segment.
# The duration is limited because a run can write a checkpoint or react to SIGTERM only between segments.
SEGMENT_SECONDS = 5.0


@dataclass
class RunHistory:
    """Results of the run of a bundle up to now, for S seeds and K settings.

    Args:
        seconds: seconds spent on estimating bases during the run, (S, K).
        done: number of steps taken.
        rows: for each evaluation, the metrics (S, K) by full name, such as `train_loss`. The entry
            `CLOSURE_GRADIENTS` is a single number: how many gradients optimizers of PyTorch have computed in
            closures, in addition to one gradient per step.
    """

    seconds: np.ndarray
    done: int = 0
    rows: list[dict[str, Any]] = field(default_factory=list)

    @property
    def columns(self) -> dict[str, np.ndarray]:
        """Mapping from metric names to values, arrays whose first axis counts the evaluations."""
        return {name: np.stack([row[name] for row in self.rows]) for name in self.rows[0]}

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the fields `seconds` and `rows` for a checkpoint, as a mapping from names to arrays."""
        metrics = {f"{METRIC}{name}": values for name, values in self.columns.items()}
        return metrics | {"seconds": self.seconds}

    def restore(self, done: int, arrays: Mapping[str, np.ndarray]) -> None:
        """Restore the history from a checkpoint.

        Args:
            done: number of steps that were taken before the checkpoint.
            arrays: all arrays of the checkpoint. They include the arrays that the method `arrays` has
                returned.
        """
        names = [name for name in arrays if name.startswith(METRIC)]
        columns = {name.removeprefix(METRIC): arrays[name] for name in names}
        self.rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        self.seconds, self.done = arrays["seconds"], done


def execute(
    bundle: Bundle,
    engine: Engine,
    clock: Clock | None = None,
    progress: Callable[[int], None] = lambda steps: None,
    checkpoints: Checkpoints | None = None,
    programs: Programs | None = None,
) -> Trajectories:
    """Take all steps of a bundle, and evaluate its metrics in between.

    Args:
        bundle: the runs.
        engine: the engine of a backend, from `make_engine`.
        clock: clock to which the seconds of compilation, data, steps and evaluation are added.
        progress: function that is called after each evaluation interval with the number of steps taken so
            far.
        checkpoints: writer of checkpoints. The run resumes from the newest checkpoint, if there is one. From
            the first step on, SIGTERM is deferred (`Checkpoints.termination`); the caller must end the
            deferral when it has stored the result. None to write no checkpoints.
        programs: compiled programs that this bundle shares with other bundles. The lanes are padded to the
            tile of the programs. None to compile programs for this bundle only.

    Returns:
        The metrics of all lanes, of shape (evaluations + 1, seeds, settings), the steps at which they were
        evaluated, and the step at which each lane diverged or stopped.

    Raises:
        ValueError: when a basis is estimated again during the run, and the bundle has more than one setting.

    Example:
        >>> import numpy as np
        >>> from curvebench import Bundle, WorkloadRandom, execute, find_rule, find_workload, make_engine
        >>> workload = find_workload("least_squares")
        >>> settings = workload.complete({"n": 8, "d": 4})
        >>> bundle = Bundle(
        ...     workload=workload,
        ...     rule=find_rule("sgd"),
        ...     problems=[workload.problem(settings, WorkloadRandom(workload.name, seed=0))],
        ...     orders=None,
        ...     hyperparameters={"learning_rate": np.array([0.1, 0.2])},
        ...     schedule=np.ones(20),
        ...     evaluations=4,
        ...     settings=settings,
        ... )
        >>> result = execute(bundle, make_engine("jax", "float64"))
        >>> result.steps.tolist(), result.metrics["train_loss"].shape
        ([0, 5, 10, 15, 20], (5, 1, 2))
    """
    clock, programs = clock or Clock(), programs or Programs()
    bundle = replace(bundle, tile=programs.tile)
    if bundle.reestimation_steps and bundle.lanes[1] > 1:
        raise ValueError("a basis that is estimated anew belongs to one setting: cut the bundle (parts)")
    steps, ends, pace = len(bundle.schedule), evaluation_steps(bundle), Pace()
    segments = segment_lengths(bundle)
    programs.extend(steps, max(segments))
    with engine.context(), ExitStack() as stack:
        history, writer = RunHistory(np.zeros(bundle.shape)), None
        loaded = load(bundle, engine, clock, programs)
        with clock.phase("data"):
            engine.synchronize(loaded.carry)
        if checkpoints is not None:
            writer = CheckpointWriter(checkpoints, engine, clock, history)
            loaded = writer.resume(loaded)
            if history.done:
                progress(history.done)
        bounds = np.cumsum(segments)
        remaining = np.diff([history.done, *bounds[bounds > history.done]]).tolist()
        lengths = remaining if writer is None else pace.divide(remaining)
        queue = stack.enter_context(prefetch_inputs(bundle, engine, lengths, history.done, programs.room))
        with clock.phase("data", WAITING):
            inputs = next(queue)
        run = _Run.compiled(bundle, engine, clock, history, programs, loaded, inputs)
        del loaded  # The first carry must not stay in memory during the run.
        if writer is not None:
            writer.checkpoints.termination.begin()
        if not history.rows:
            run.measure()
        while history.done < steps:
            run.reestimate_basis()
            pace.step_seconds = run.step(inputs)
            if history.done in ends:
                run.measure()
                progress(history.done)
            engine.note(*sorted(source_notes(bundle)))
            if history.done < steps:
                if writer is not None:
                    writer.offer(run.carry, run.constants)
                with clock.phase("data", WAITING):
                    inputs = next(queue)
        return run.trajectories(ends)


@dataclass
class _Run:
    """A bundle during its run: its compiled functions, its current carry, and its results up to now."""

    bundle: Bundle
    engine: Engine
    clock: Clock
    history: RunHistory
    program: Program
    carry: Carry
    constants: Constants
    evaluate: Evaluate
    segment: Segment
    renewal: Renewal | None = None

    @classmethod
    def compiled(
        cls,
        bundle: Bundle,
        engine: Engine,
        clock: Clock,
        history: RunHistory,
        programs: Programs,
        loaded: Loaded,
        inputs: Inputs,
    ) -> _Run:
        """Compile the functions of the run, unless `programs` contains them, and return the run.

        Args:
            loaded: the bundle on its device, with the carry before the first step or the carry of a
                checkpoint.
            inputs: the inputs of the first segment.
        """
        with clock.phase("compile"):
            evaluate = evaluator(bundle, engine, loaded, programs)
            segment = segment_of(engine, loaded, filled(inputs, programs.room), programs)
            start = loaded.program, loaded.carry, loaded.constants
            run = cls(bundle, engine, clock, history, *start, evaluate, segment)
            if bundle.reestimation is not None and bundle.reestimation_steps:
                randoms = bundle.problems, bundle.randoms
                run.renewal = Renewal(bundle.reestimation, engine, loaded.program, *randoms)
            return run

    def reestimate_basis(self) -> None:
        """Estimate the basis again around the current parameters, if the plan contains the current step."""
        if self.renewal is None or self.history.done not in self.bundle.reestimation_steps:
            return
        with self.clock.phase("step", BASIS):
            renewed = self.renewal(self.history.done, self.carry, self.constants)
            self.carry, self.constants, seconds = renewed
            self.engine.synchronize(self.carry)
        self.history.seconds += seconds[:, None]

    def step(self, inputs: Inputs) -> float:
        """Take the steps of one segment, and return how many seconds a step took on average."""
        start = self.clock.seconds["step"]
        with self.clock.phase("step"):
            self.carry = self.segment(self.carry, self.constants, inputs)
            self.engine.synchronize(self.carry)
        self.history.done += len(inputs.step)
        return (self.clock.seconds["step"] - start) / len(inputs.step)

    def measure(self) -> None:
        """Evaluate the metrics of all lanes, and add the values to the history."""
        with self.clock.phase("evaluation"):
            rows = self.history.rows
            rows.append(self.evaluate(self.carry, self.constants))
            if self.carry.losses is not None:
                rows[-1][MINIBATCH_LOSS], first = mean_losses(self.engine.ops, self.carry.losses)
                # No losses precede the evaluation before the first step.
                # This evaluation gets the loss of the first minibatch.
                if len(rows) == 2:
                    rows[0][MINIBATCH_LOSS] = first
                self.carry = self.carry._replace(losses=self.program.no_losses(self.bundle.shape))
        rows[-1][CLOSURE_GRADIENTS] = closure_gradients(self.carry.state)

    def trajectories(self, ends: np.ndarray) -> Trajectories:
        """Return the results of the bundle's lanes, without the lanes that only pad the tile.

        Args:
            ends: number of steps before each evaluation.
        """
        metrics, lanes, carry = self.history.columns, self.bundle.placement.lanes, self.carry
        to_numpy = self.engine.ops.to_numpy
        return Trajectories(
            steps=ends,
            closure_gradients=metrics.pop(CLOSURE_GRADIENTS),
            metrics={name: values[:, *lanes] for name, values in metrics.items()},
            diverged_at=np.asarray(to_numpy(carry.diverged_at))[lanes].astype(np.int64),
            stopped_at=np.asarray(to_numpy(carry.stopped_at))[lanes].astype(np.int64),
            state_bytes=self.engine.state_bytes(carry.state) // math.prod(self.bundle.shape),
            reestimation_seconds=self.history.seconds[lanes],
        )


@dataclass
class Pace:
    """Pace of a run: if steps are slow, segments are divided, so that checkpoints can be written in between.

    The results of a run do not depend on how its segments are divided.

    Args:
        step_seconds: seconds per step in the last segment. Before the first segment the value is infinite, so
            that the first segment consists of one step.
    """

    step_seconds: float = math.inf

    def divide(self, segments: Iterable[int]) -> Iterator[int]:
        """Divide segments, so that each takes at most about SEGMENT_SECONDS; yield the new lengths in steps.

        Args:
            segments: lengths of the undivided segments in steps.
        """
        for segment in segments:
            while segment:
                length = min(segment, max(int(SEGMENT_SECONDS / self.step_seconds), 1))
                yield length
                segment -= length


class CheckpointWriter:
    """Writer of the checkpoints of a run, which also resumes the run from its newest checkpoint.

    Checkpoints are written between segments.
    """

    def __init__(self, checkpoints: Checkpoints, engine: Engine, clock: Clock, history: RunHistory) -> None:
        self.checkpoints, self.engine, self.clock, self.history = checkpoints, engine, clock, history
        self.seconds_before = clock.named
        checkpoints.notes = engine.notes  # one shared list: notes of checkpoints become notes of the engine

    def resume(self, loaded: Loaded) -> Loaded:
        """Restore the carry, the matrices of bases, the history and the clock from the newest checkpoint.

        Returns:
            The bundle with the state of the checkpoint; `loaded` itself if there is no checkpoint.
        """
        engine, history, ops = self.engine, self.history, self.engine.ops

        def restored(checkpoint: Checkpoint) -> Loaded:
            arrays = checkpoint.arrays
            carry = engine.carry_from_host(loaded.carry, arrays)
            matrices = tuple(ops.bases(arrays[f"matrix {n}"]) for n in range(len(loaded.constants.matrices)))
            history.restore(checkpoint.done, arrays)
            self.clock.take_over(checkpoint.seconds)
            return replace(loaded, carry=carry, constants=loaded.constants._replace(matrices=matrices))

        with self.clock.phase(CHECKPOINT):
            resumed = self.checkpoints.newest(restored)
        return resumed or loaded

    def offer(self, carry: Carry, constants: Constants) -> None:
        """Write a checkpoint if one is due.

        If SIGTERM has arrived, call its handler, which ends the process.
        """
        termination = self.checkpoints.termination
        if self.checkpoints.is_due(termination.came):
            with self.clock.phase(CHECKPOINT):
                self.checkpoints.save(self._checkpoint(carry, constants))
        if termination.came:
            termination.pass_on()

    def _checkpoint(self, carry: Carry, constants: Constants) -> Checkpoint:
        matrices = [np.asarray(self.engine.ops.to_numpy(matrix)) for matrix in constants.matrices]
        arrays = {f"matrix {number}": matrix for number, matrix in enumerate(matrices)}
        arrays |= self.history.arrays() | self.engine.carry_to_host(carry)
        seconds = {name: total - self.seconds_before[name] for name, total in self.clock.named.items()}
        return Checkpoint(self.history.done, arrays, seconds, self.engine.notes)
