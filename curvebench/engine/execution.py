"""The run of a bundle to its budget: segments of steps, evaluations between them, and checkpoints."""

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

# Name, among the metrics of an evaluation, of the number of gradients that closures have computed so far.
CLOSURE_GRADIENTS = "closure_gradients"
COLUMN = "metric "  # prefix of the names of metrics in a checkpoint
PIECE_SECONDS = 5.0  # about the most between two moments at which a SIGTERM is heeded


@dataclass
class RunHistory:
    """The results of a bundle's run so far, for S seeds and K settings.

    Args:
        seconds: (S, K), spent on estimating bases during the run.
        done: the number of steps taken.
        rows: for each evaluation the metrics (S, K) by full name, and under `CLOSURE_GRADIENTS` the
            number () of gradients that the optimizer of a lane has asked for in addition to one a step.
    """

    seconds: np.ndarray
    done: int = 0
    rows: list[dict[str, Any]] = field(default_factory=list)

    @property
    def columns(self) -> dict[str, np.ndarray]:
        """The values of all rows by name, with a first axis of evaluations."""
        return {name: np.stack([row[name] for row in self.rows]) for name in self.rows[0]}

    def arrays(self) -> dict[str, np.ndarray]:
        """Return everything except `done` as arrays by name, for a checkpoint."""
        return {f"{COLUMN}{name}": values for name, values in self.columns.items()} | {
            "seconds": self.seconds
        }

    def restore(self, done: int, arrays: Mapping[str, np.ndarray]) -> None:
        """Go on from what `arrays` gave after so many steps."""
        names = [name for name in arrays if name.startswith(COLUMN)]
        columns = {name.removeprefix(COLUMN): arrays[name] for name in names}
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
        clock: receives the seconds of compilation, data, steps and evaluation.
        progress: called with the number of steps taken, after each evaluation interval.
        checkpoints: where checkpoints are written, and from which the run resumes; None to write none. While
            the run writes checkpoints, SIGTERM is deferred; the caller must end the deferral when it has
            stored the result.
        programs: compiled programs that several bundles share; the lanes are then padded to the tile of these
            programs. None to compile for this bundle.

    Returns:
        The metrics of all lanes, of shape (evaluations + 1, S, K), the steps at which they were evaluated,
        and the step at which each lane diverged or stopped.

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
    if bundle.points and bundle.lanes[1] > 1:
        raise ValueError("a basis that is estimated anew belongs to one setting: cut the bundle (parts)")
    steps, ends, pace = len(bundle.schedule), evaluation_steps(bundle), Pace()
    pieces = segment_lengths(bundle)
    programs.extend(steps, max(pieces))
    with engine.context(), ExitStack() as stack:
        record, keeper = RunHistory(np.zeros(bundle.shape)), None
        loaded = load(bundle, engine, clock, programs)
        with clock.phase("data"):
            engine.synchronize(loaded.carry)
        if checkpoints is not None:
            keeper = _CheckpointWriter(checkpoints, engine, clock, record)
            loaded = keeper.newest(loaded)
            if record.done:
                progress(record.done)
        bounds = np.cumsum(pieces)
        left = np.diff([record.done, *bounds[bounds > record.done]]).tolist()
        cut = left if keeper is None else pace.cut(left)
        inputs = stack.enter_context(prefetch_inputs(bundle, engine, cut, record.done, programs.room))
        with clock.phase("data", WAITING):
            given = next(inputs)
        run = _Run.compiled(bundle, engine, clock, record, programs, loaded, given)
        del loaded  # with the first carry, of which nothing is to stay
        if keeper is not None:
            keeper.checkpoints.termination.begin()
        if not record.rows:
            run.measure()
        while record.done < steps:
            run.renew_basis()
            pace.a_step = run.step(given)
            if record.done in ends:
                run.measure()
                progress(record.done)
            engine.note(*sorted(source_notes(bundle)))
            if record.done < steps:
                if keeper is not None:
                    keeper.offer(run.carry, run.constants)
                with clock.phase("data", WAITING):
                    given = next(inputs)
        return run.trajectories(ends)


@dataclass
class _Run:
    """Lanes on their way to their budget: their compiled functions, what they carry, and their results."""

    bundle: Bundle
    engine: Engine
    clock: Clock
    record: RunHistory
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
        record: RunHistory,
        programs: Programs,
        loaded: Loaded,
        inputs: Inputs,
    ) -> _Run:
        """Compile what the cell has not compiled before; `inputs` are the first."""
        with clock.phase("compile"):
            evaluate = evaluator(bundle, engine, loaded, programs)
            segment = segment_of(engine, loaded, filled(inputs, programs.room), programs)
            start = loaded.program, loaded.carry, loaded.constants
            run = cls(bundle, engine, clock, record, *start, evaluate, segment)
            if bundle.reestimation is not None and bundle.points:
                randoms = bundle.problems, bundle.randoms
                run.renewal = Renewal(bundle.reestimation, engine, loaded.program, *randoms)
            return run

    def renew_basis(self) -> None:
        """Estimate bases anew, where this is a step for it."""
        if self.renewal is None or self.record.done not in self.bundle.points:
            return
        with self.clock.phase("step", BASIS):
            renewed = self.renewal(self.record.done, self.carry, self.constants)
            self.carry, self.constants, seconds = renewed
            self.engine.synchronize(self.carry)
        self.record.seconds += seconds[:, None]

    def step(self, inputs: Inputs) -> float:
        """Take the steps of some inputs, and return the seconds that one took."""
        before = self.clock.seconds["step"]
        with self.clock.phase("step"):
            self.carry = self.segment(self.carry, self.constants, inputs)
            self.engine.synchronize(self.carry)
        self.record.done += len(inputs.step)
        return (self.clock.seconds["step"] - before) / len(inputs.step)

    def measure(self) -> None:
        """Add a row of metrics to the record."""
        with self.clock.phase("evaluation"):
            rows = self.record.rows
            rows.append(self.evaluate(self.carry, self.constants))
            if self.carry.losses is not None:
                rows[-1][MINIBATCH_LOSS], first = mean_losses(self.engine.ops, self.carry.losses)
                if len(rows) == 2:
                    rows[0][MINIBATCH_LOSS] = first
                self.carry = self.carry._replace(losses=self.program.no_losses(self.bundle.shape))
        rows[-1][CLOSURE_GRADIENTS] = closure_gradients(self.carry.state)

    def trajectories(self, ends: np.ndarray) -> Trajectories:
        """Return the results of the bundle's own lanes (S, K), which were computed in its tile."""
        metrics, lanes, carry = self.record.columns, self.bundle.placement.lanes, self.carry
        to_numpy = self.engine.ops.to_numpy
        return Trajectories(
            steps=ends,
            closure_gradients=metrics.pop(CLOSURE_GRADIENTS),
            metrics={name: values[:, *lanes] for name, values in metrics.items()},
            diverged_at=np.asarray(to_numpy(carry.diverged_at))[lanes].astype(np.int64),
            stopped_at=np.asarray(to_numpy(carry.stopped_at))[lanes].astype(np.int64),
            state_bytes=self.engine.state_bytes(carry.state) // math.prod(self.bundle.shape),
            reestimation_seconds=self.record.seconds[lanes],
        )


@dataclass
class Pace:
    """Cuts pieces again where steps turn out slow, so that a run can be kept soon; no result depends on it.

    Args:
        a_step: seconds that one took last; infinite before the first, which is then run alone.
    """

    a_step: float = math.inf

    def cut(self, pieces: Iterable[int]) -> Iterator[int]:
        """The lengths of what is run at once."""
        for piece in pieces:
            while piece:
                length = min(piece, max(int(PIECE_SECONDS / self.a_step), 1))
                yield length
                piece -= length


class _CheckpointWriter:
    """Keeps a run between its pieces, and has it go on from there."""

    def __init__(self, checkpoints: Checkpoints, engine: Engine, clock: Clock, record: RunHistory) -> None:
        self.checkpoints, self.engine, self.clock, self.record = checkpoints, engine, clock, record
        self.begun = clock.named
        checkpoints.notes = engine.notes  # for the provenance, in later processes too

    def newest(self, loaded: Loaded) -> Loaded:
        """What the run goes on from; as it is loaded where there is no checkpoint."""
        engine, record, ops = self.engine, self.record, self.engine.ops

        def restored(checkpoint: Checkpoint) -> Loaded:
            arrays = checkpoint.arrays
            carry = engine.carry_from_host(loaded.carry, arrays)
            matrices = tuple(ops.bases(arrays[f"matrix {n}"]) for n in range(len(loaded.constants.matrices)))
            record.restore(checkpoint.done, arrays)
            self.clock.take_over(checkpoint.seconds)
            return replace(loaded, carry=carry, constants=loaded.constants._replace(matrices=matrices))

        with self.clock.phase(CHECKPOINT):
            found = self.checkpoints.newest(restored)
        return found or loaded

    def offer(self, carry: Carry, constants: Constants) -> None:
        """Have the run kept where it is time, and end it here where it is asked to end."""
        termination = self.checkpoints.termination
        if self.checkpoints.is_due(termination.came):
            with self.clock.phase(CHECKPOINT):
                self.checkpoints.save(self._checkpoint(carry, constants))
        if termination.came:
            termination.pass_on()

    def _checkpoint(self, carry: Carry, constants: Constants) -> Checkpoint:
        matrices = [np.asarray(self.engine.ops.to_numpy(one)) for one in constants.matrices]
        arrays = {f"matrix {number}": matrix for number, matrix in enumerate(matrices)}
        arrays |= self.record.arrays() | self.engine.carry_to_host(carry)
        seconds = {name: taken - self.begun[name] for name, taken in self.clock.named.items()}
        return Checkpoint(self.record.done, arrays, seconds, self.engine.notes)
