"""How a bundle of lanes is run: seeds x settings of one workload, rule and basis in one program."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, TypeVar

import numpy as np

from curvebench.arrays.numpy_ops import numpy_ops
from curvebench.arrays.ops import Ops, separate_copies
from curvebench.basis_estimation.reestimation import Renewal, RenewalPlan
from curvebench.engine.checkpoints import Checkpoint, Checkpoints
from curvebench.engine.tiles import Placement, Tile, cuts
from curvebench.optimizers.bases import Change
from curvebench.optimizers.needs import Need
from curvebench.optimizers.rule import Rule
from curvebench.optimizers.state_precision import with_parameters_in_half
from curvebench.precision import Policy
from curvebench.steps.derivatives import (
    DRAWS,
    OverLanes,
    StepEvaluation,
    lane_evaluation,
    model_of,
)
from curvebench.steps.engine import Engine, Segment
from curvebench.steps.examples import gathered, generators_of, placeholders, prefetched
from curvebench.steps.layout import Layout, layout
from curvebench.steps.program import Carry, Constants, Inputs, Loaded, Program, StepLosses
from curvebench.steps.torch_rule import TorchRule, closure_evaluations
from curvebench.steps.update import Update, Work
from curvebench.workloads.workload import (
    GRADIENT_NORM,
    MINIBATCH_LOSS,
    Problem,
    Random,
    Split,
    Workload,
    examples_in,
    placeholder_of,
)

Made = TypeVar("Made")
SENT_BYTES = 1 << 28  # of minibatches, orders and noise that are sent to the device at once
RETURNS = 1000  # to the host in a run, about, where a checkpoint can be written: in 12 hours every 43 s
# But after so many products of a parameter and an example of one lane at the earliest: a second or so of a
# layer that is dense on a CPU, minutes of convolutions. All runs that take less stay as they are.
PRODUCTS = 10**10
LEAST_PRODUCTS = (
    10**6
)  # of a step, which costs its calls besides: so a piece has 10,000 steps, or a thousandth
MOST_PADDED_PRODUCTS = 2 * 10**10  # of lanes that a tile computes for nothing: about what compiling takes
PIECE_SECONDS = 5.0  # about the most between two moments at which a SIGTERM is heeded
PHASES = ("import", "data", "compile", "step", "evaluation")
BESIDES, COLUMN = "besides", "metric "  # a name among metrics; how names of metrics begin in checkpoints
CHECKPOINT = "checkpoint"  # a phase that tables have among the others
WAITING, BASIS = "waiting", "basis"  # parts of phases: of data for the next inputs, of step for a basis anew


class Clock:
    """Seconds by phase, on the monotonic clock; `earlier` of them in other processes.

    `parts` are seconds that a phase has too.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = dict.fromkeys((*PHASES, CHECKPOINT), 0.0)
        self.parts: dict[str, float] = dict.fromkeys((WAITING, BASIS), 0.0)
        self.earlier = 0.0

    @property
    def named(self) -> dict[str, float]:
        """The seconds of phases and of parts, by name."""
        return self.seconds | self.parts

    def take_over(self, seconds: Mapping[str, float]) -> None:
        """Go on from the seconds of a process before this one."""
        for known in (self.seconds, self.parts):
            known |= {name: known[name] + seconds.get(name, 0.0) for name in known}
        self.earlier += sum(seconds.get(name, 0.0) for name in self.seconds)

    @contextmanager
    def phase(self, name: str, part: str | None = None) -> Iterator[None]:
        """Charge what runs inside to a phase, and to a part of it where one is named."""
        start = time.perf_counter()
        try:
            yield
        finally:
            taken = time.perf_counter() - start
            self.seconds[name] += taken
            if part is not None:
                self.parts[part] += taken


@dataclass(frozen=True)
class Bundle:
    """The lanes that advance together: S problems (one a seed) x K settings.

    Args:
        problems: one a seed.
        settings: the workload's settings.
        randoms: one a seed, for noise and data sources; may be left out where the workload has neither.
        orders: (steps, S, batch_size) indices of the minibatches, or None for the full batch.
        hyperparameters: (K,) values by name, complete.
        matrices: V by the names of the parameters that a basis changes together, (S, n, r).
        changes: how it changes them, where it does not rotate them.
        schedule: (steps,) multipliers of the learning rate.
        evaluations: how many stretches the steps are cut into; metrics are taken after each.
        stop_gradient_norm: the gradient norm below which a lane stops, or None.
        clip_gradient_norm: the norm to which a longer gradient is shortened for the rule, or None.
        gradient_accumulation: into how many equal parts minibatches are cut, one evaluated after the other.
        reestimation: when and how bases are estimated anew, or None.
        tile: the shape into which the lanes are padded where they are computed; None: S x K.
    """

    workload: Workload
    rule: Rule
    problems: Sequence[Problem]
    orders: np.ndarray | None
    hyperparameters: Mapping[str, np.ndarray]
    schedule: np.ndarray
    evaluations: int
    matrices: Mapping[tuple[str, ...], np.ndarray] = field(default_factory=dict)
    changes: Mapping[tuple[str, ...], Change] = field(default_factory=dict)
    stop_gradient_norm: float | None = None
    clip_gradient_norm: float | None = None
    gradient_accumulation: int = 1
    settings: Mapping[str, Any] = field(default_factory=dict)
    randoms: Sequence[Random] = ()
    reestimation: RenewalPlan | None = None
    tile: Tile | None = None

    def __post_init__(self) -> None:
        sources = [name for name, split in self.problems[0].splits.items() if not isinstance(split, Mapping)]
        if sources and not self.workload.streamed:
            raise ValueError(f"{self.workload.name}: {', '.join(sources)} is a data source: set streamed")
        draws = any(need.draw for need in self.rule.needs) or self.workload.noise is not None
        if (draws or sources or self.reestimation) and len(self.randoms) != len(self.problems):
            raise ValueError(
                f"{self.workload.name}: what draws in a run needs randoms, a generator a problem"
            )
        if self.workload.streamed and self.orders is None:
            raise ValueError(f"{self.workload.name} is streamed: it needs a batch_size")
        parts = self.gradient_accumulation
        if parts > 1 and (self.orders is None or self.batch_size % parts):
            raise ValueError(f"{self.workload.name}: gradient_accumulation: {parts} divides no batch_size")

    @property
    def layout(self) -> Layout:
        """The layout of its parameters."""
        shapes = {name: value.shape for name, value in self.problems[0].parameters.items()}
        roles = self.workload.roles(self.settings)
        changes = {
            group: (self.changes[group], matrix.shape[-1])
            for group, matrix in self.matrices.items()
            if group in self.changes
        }
        return layout(shapes, roles, tuple(self.matrices), changes)

    @cached_property
    def update(self) -> Update:
        """Its rule bound to its layout."""
        return Update(self.rule, self.layout)

    @cached_property
    def needs(self) -> tuple[Need, ...]:
        """What the rule needs of the loss besides its gradient."""
        return self.update.bound.needs

    def evaluations_of(self, steps: np.ndarray) -> np.ndarray:
        """Return the gradient evaluations of a run that has taken the gradients of so many steps.

        Those of the rule's needs count, and those of bases that the run estimates anew.
        """
        found, model = steps, model_of(self.layout)
        for need in self.needs:
            times = self.update.observations(steps) if need.amortized else steps
            found = found + times * need.gradient_evaluations(model)
        return found if self.reestimation is None else found + self.reestimation.evaluations(steps)

    @cached_property
    def output_shape(self) -> tuple[int, ...]:
        """The shape of the model's outputs for a minibatch, (examples, ..., C)."""
        likelihood, problem = self.workload.likelihood, self.problems[0]
        assert likelihood is not None, "a need draws only from a likelihood"
        one = {name: value[None] for name, value in placeholder_of(problem.splits["train"]).items()}
        draw = self.workload.noise
        noise = {} if draw is None else draw(self.settings, np.random.default_rng(0), 1)
        found = likelihood.outputs(numpy_ops(), problem.parameters, problem.state, one, noise)
        return (self.batch_size, *found.shape[1:])

    def draws(self, seed: int, step: int) -> dict[str, np.ndarray]:
        """What the loss and the needs of a step draw from for one seed: of each step its own generator.

        At a step that does not observe, what amortized needs would draw is 0.
        """
        found: dict[str, np.ndarray] = {}
        if self.workload.noise is not None:
            generator = self.randoms[seed](f"noise of step {step}")
            found |= self.workload.noise(self.settings, generator, self.batch_size)
        likelihood = self.workload.likelihood
        for need in self.needs:
            if need.draw is not None and likelihood is not None:
                generator = self.randoms[seed](f"{need.name} of step {step}")
                is_due = not need.amortized or self.update.work_of(step) & Work.OBSERVE
                shape = self.output_shape
                found[DRAWS] = need.draw(likelihood, generator, shape) if is_due else np.zeros(shape)
        return found

    @property
    def is_random(self) -> bool:
        """Whether steps draw anything."""
        return self.workload.noise is not None or any(need.draw for need in self.needs)

    @property
    def points(self) -> tuple[int, ...]:
        """After how many steps bases are estimated anew."""
        return () if self.reestimation is None else self.reestimation.points

    @property
    def lanes(self) -> tuple[int, int]:
        """Seeds and settings."""
        return len(self.problems), len(next(iter(self.hyperparameters.values())))

    @property
    def shape(self) -> tuple[int, int]:
        """Seeds and settings as they are computed: those of the tile where there is one."""
        return self.lanes if self.tile is None else (self.tile.slots, self.tile.width)

    @cached_property
    def placement(self) -> Placement:
        """Where each lane is computed."""
        return (self.tile or Tile(*self.lanes)).placement(*self.lanes)

    def by_slot(self, array: np.ndarray, axis: int = 0) -> np.ndarray:
        """An array with an axis of seeds, with one of computed seeds instead."""
        return array if self.tile is None else np.take(array, self.placement.seeds, axis)

    @property
    def batch_size(self) -> int:
        """Examples in a minibatch, all of the training split where there is none."""
        if self.orders is not None:
            return int(self.orders.shape[2])
        return examples_in(self.problems[0].splits["train"])

    def part(self, seeds: slice, settings: slice) -> Bundle:
        """Some of its lanes."""
        return replace(
            self,
            problems=self.problems[seeds],
            orders=None if self.orders is None else self.orders[:, seeds],
            hyperparameters={name: values[settings] for name, values in self.hyperparameters.items()},
            matrices={group: matrix[seeds] for group, matrix in self.matrices.items()},
            randoms=self.randoms[seeds],
        )


@dataclass(frozen=True)
class Trajectories:
    """What the lanes of a bundle did.

    Args:
        steps: (C,) the numbers of steps after which metrics were taken; the first is 0.
        metrics: (C, S, K) by full name.
        diverged_at, stopped_at: (S, K) step of the first loss that was not finite, and step whose
            gradient was below the threshold; 0 where there was none.
        state_bytes: bytes of optimizer state of one lane.
        closure_evaluations: (C,) gradients that a lane's optimizer has asked for besides that of each step.
        reestimation_seconds: (S, K) seconds of estimating bases anew.
    """

    steps: np.ndarray
    metrics: Mapping[str, np.ndarray]
    diverged_at: np.ndarray
    stopped_at: np.ndarray
    state_bytes: int
    closure_evaluations: np.ndarray
    reestimation_seconds: np.ndarray


def lanes_per_bundle(bundle: Bundle, itemsize: int, memory_limit_bytes: int) -> tuple[int, int]:
    """Seeds and settings that fit into the memory limit: a function of shapes, precision and the limit alone.

    An upper bound where lanes are evaluated in turn (`bytes_of`).
    """
    seeds, settings = bundle.lanes
    settings = 1 if bundle.points else settings
    if runs_singly(bundle):
        return 1, 1
    seed, lane = bytes_of(bundle, itemsize)
    fitting = max(1, min(settings, (memory_limit_bytes - seed) // lane))
    if fitting < settings:
        return 1, fitting
    return max(1, min(seeds, memory_limit_bytes // (seed + settings * lane))), settings


def runs_singly(bundle: Bundle) -> bool:
    """Whether each lane of a bundle is a program of its own."""
    workload = bundle.workload
    return workload.alone or not workload.mapped or isinstance(bundle.rule, TorchRule)


def bytes_of(bundle: Bundle, itemsize: int) -> tuple[int, int]:
    """Bytes on the device of what the lanes of a seed share, and of each lane.

    Counted are the basis of a seed, twice where V may be
    held with V^T; of each lane four copies of its parameters, two of its state, what the rule needs besides
    the gradient, and twice the activations of the part of a minibatch, or of the largest split, that is
    evaluated at once, taken as one number for every example and row of a parameter; and a seed's data where
    it is held on the device. Accumulation holds the gradient and the needs of a part beside their sums, and
    clipping the gradient as it was. Settings do not share a basis that is estimated anew around each one's
    iterate.
    """
    problem, workload = bundle.problems[0], bundle.workload
    shapes = [matrix.shape[1:] for matrix in bundle.matrices.values()]
    basis = sum(math.prod(shape) * max(1, separate_copies(*shape)) for shape in shapes)
    held = [arrays_of(split) for name, split in problem.splits.items() if is_held(workload, name)]
    evaluated = [problem.splits[name] for name in workload.evaluated_splits]
    examples = max(map(examples_in, evaluated), default=0)
    parts = bundle.gradient_accumulation
    at_once = max(bundle.batch_size // parts, min(examples, workload.evaluation_batch or examples))
    rows = sum(value.shape[0] if value.ndim else 1 for value in problem.parameters.values())
    total = bundle.layout.total
    copies = 4 + (parts > 1) + (bundle.clip_gradient_norm is not None)
    lane = copies * total + 2 * state_entries(bundle.rule, bundle.layout) + 2 * at_once * rows
    lane += (1 + (parts > 1)) * sum(need.entries(model_of(bundle.layout)) for need in bundle.needs)
    data = 0 if workload.shared_data else sum(array.size for split in held for array in split.values())
    return itemsize * (basis + data), itemsize * lane


def tile_of(
    bundle: Bundle, rounds: Sequence[tuple[int, int]], engine: Engine, memory_limit_bytes: int
) -> Tile | None:
    """The tile for all rounds of a cell, by shapes alone; None where rounds keep their own shapes.

    It is the one that computes the fewest lanes, of those the widest: settings of a seed share its minibatch
    and its basis. Rounds keep their shapes where there is one round, where bases are estimated anew (each
    belongs to one setting), where the backend runs several lanes without compiling, and where lanes that are
    computed for nothing would be more work than compiling.

    Args:
        bundle: lanes of the cell with the schedule of its longest round.
        rounds: seeds and settings of each round.
        engine: the backend.
        memory_limit_bytes: as of `lanes_per_bundle`.
    """
    if len(set(rounds)) < 2 or bundle.points:
        return None
    if runs_singly(bundle):
        return Tile(1, 1)
    if not engine.compiles_lanes:
        return None
    seed, lane = bytes_of(bundle, engine.itemsize)
    widest = max(1, min(max(settings for _, settings in rounds), (memory_limit_bytes - seed) // lane))

    def slots(width: int) -> int:
        return max(seeds * math.ceil(settings / width) for seeds, settings in rounds)

    width = min(range(1, widest + 1), key=lambda width: (slots(width) * width, -width))
    fitting = max(1, memory_limit_bytes // (seed + width * lane))
    tile = Tile(math.ceil(slots(width) / math.ceil(slots(width) / fitting)), width)
    computed = sum(len(tile.parts(*lanes)) for lanes in rounds) * tile.slots * tile.width
    padded = computed - sum(math.prod(lanes) for lanes in rounds)
    products = len(bundle.schedule) * bundle.batch_size * bundle.layout.total
    return tile if padded * products <= MOST_PADDED_PRODUCTS else None


def state_entries(rule: Rule, lay: Layout) -> int:
    """The numbers that a rule remembers of one lane."""
    param = np.broadcast_to(np.float32(0), (1, 1, lay.total))
    return sum(leaf.size for leaf in leaves(Update(rule, lay).init(numpy_ops("float32"), param)))


def leaves(state: Any) -> list[np.ndarray]:
    """The arrays of a state, which is made of tuples, lists and mappings."""
    if not isinstance(state, tuple | list | Mapping):
        return [state]
    return [
        leaf for child in (state.values() if isinstance(state, Mapping) else state) for leaf in leaves(child)
    ]


def is_held(workload: Workload, split: str) -> bool:
    """Whether a split is held on the device, and not sent in pieces."""
    if split == "train" and not workload.streamed:
        return True
    return workload.evaluation_batch is None and split in workload.evaluated_splits


def arrays_of(split: Split) -> dict[str, np.ndarray]:
    """The fields of a split that is held on the device."""
    assert isinstance(split, Mapping), "data sources are streamed"
    return dict(split)


def _stacked(
    bundle: Bundle, split: str, examples: Callable[[Split], dict[str, np.ndarray]]
) -> dict[str, np.ndarray]:
    """Some examples of a split: (examples, ...) where seeds share it, else (S, examples, ...)."""
    if bundle.workload.shared_data:
        return examples(bundle.problems[0].splits[split])
    found = [examples(problem.splits[split]) for problem in bundle.problems]
    slots = bundle.placement.seeds
    return {name: np.stack([found[seed][name] for seed in slots]) for name in found[0]}


def rule_held(rule: Rule, policy: Policy) -> Rule:
    """A rule for parameters as a policy holds them; an optimizer of torch takes any as they are.

    Raises:
        OptionError: for a precision of parameters that the rule does not run in.
    """
    rule.check_dtype(policy.parameters)
    as_computed = policy.parameters == policy.computed or isinstance(rule, TorchRule)
    return rule if as_computed else with_parameters_in_half(rule)


@dataclass
class Programs:
    """The compiled programs of a cell, which all of its rounds use.

    A cell is one workload, rule and basis, trained in one way; rounds may differ in lanes and in steps. What
    is compiled is looked up by the shapes that it was compiled for.

    Args:
        tile: the shape into which the lanes of every round are padded; None: each has its own.
        room: the most steps that one call of the compiled segment takes. It grows with longer rounds, which
            compile again: give the one of the longest round.
        steps: of the longest round, by which compiling may be worth its time.
    """

    tile: Tile | None = None
    room: int = 0
    steps: int = 0
    made: dict[Any, Any] = field(default_factory=dict)

    @classmethod
    def of_rounds(
        cls, bundle: Bundle, rounds: Sequence[tuple[int, int]], engine: Engine, memory_limit_bytes: int
    ) -> Programs:
        """Those of a cell whose rounds are known (`tile_of`)."""
        tile = tile_of(bundle, rounds, engine, memory_limit_bytes)
        return cls(tile, max(segments_of(replace(bundle, tile=tile))), len(bundle.schedule))

    def parts(self, bundle: Bundle, engine: Engine, memory_limit_bytes: int) -> list[tuple[slice, slice]]:
        """The seeds and the settings of a round that are run together, one after the other."""
        if self.tile is not None:
            return self.tile.parts(*bundle.lanes)
        size = lanes_per_bundle(bundle, engine.itemsize, memory_limit_bytes)
        seeds, settings = map(cuts, bundle.lanes, size)
        return list(itertools.product(seeds, settings))

    def get(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """What was made for a key before, else what is made now."""
        if key not in self.made:
            self.made[key] = make()
        made: Made = self.made[key]
        return made


def shapes_of(engine: Engine, arguments: Any) -> Hashable:
    """The form of arguments, and shapes and types of their arrays: what a function is compiled for."""
    leaves, form = engine.tree.tree_flatten(arguments)
    arrays = [(getattr(leaf, "shape", None), str(getattr(leaf, "dtype", ""))) for leaf in leaves]
    return str(form), tuple(arrays)


def program_of(bundle: Bundle, engine: Engine) -> Program:
    """The functions of a bundle's steps, which hold no arrays.

    Raises:
        OptionError: for a precision of parameters that the rule does not run in, and for a need that cannot
            be taken part by part where gradients are accumulated.
    """
    workload, lay = bundle.workload, bundle.layout
    for need in bundle.needs:
        need.check_accumulation(bundle.rule.name, bundle.gradient_accumulation)
    per_seed = bundle.orders is not None or not workload.shared_data
    return Program(
        ops=engine.ops,
        update=Update(rule_held(bundle.rule, engine.policy), lay),
        evaluation=StepEvaluation(engine, workload.loss, per_seed, workload.likelihood, lay, bundle.needs),
        stop_gradient_norm=bundle.stop_gradient_norm,
        held=engine.policy.parameters,
        clip_gradient_norm=bundle.clip_gradient_norm,
        parts=bundle.gradient_accumulation,
        accumulate=engine.accumulate,
        averages_losses=MINIBATCH_LOSS in workload.metrics,
    )


def load(
    bundle: Bundle, engine: Engine, clock: Clock | None = None, programs: Programs | None = None
) -> Loaded:
    """Move a bundle to its device and build its program; call inside the engine's context.

    Args:
        bundle: what is moved.
        engine: the backend.
        clock: takes the seconds: of moving, data; of the first state, compile, since it takes what
            tracing and compiling its operations does.
        programs: of the cell, where it has other bundles too.

    Raises:
        OptionError: as `program_of`.
    """
    ops, workload = engine.ops, bundle.workload
    programs = programs or Programs()
    program = programs.get("program", partial(program_of, bundle, engine))
    slots, width = bundle.shape

    def lanes(values: Sequence[np.ndarray]) -> Any:
        stacked = bundle.by_slot(np.stack(values))[:, None]
        return ops.asarray(np.repeat(stacked, width, axis=1))

    def hyperparameter(values: np.ndarray) -> Any:
        values = np.asarray(values, np.float64)
        return ops.asarray(
            values[None, :, None] if bundle.tile is None else values[bundle.placement.settings][..., None]
        )

    clock = clock or Clock()
    with clock.phase("data"):
        splits = {
            split: {name: ops.asarray(array) for name, array in _stacked(bundle, split, arrays_of).items()}
            for split in bundle.problems[0].splits
            if is_held(workload, split)
        }
        constants = Constants(
            data={} if workload.streamed else splits["train"],
            rows=None
            if workload.shared_data or bundle.orders is None
            else ops.asarray(np.arange(slots)[:, None]),
            matrices=tuple(ops.bases(bundle.by_slot(matrix)) for matrix in bundle.matrices.values()),
            hyper={name: hyperparameter(values) for name, values in bundle.hyperparameters.items()},
        )
        params = {
            name: lanes([p.parameters[name] for p in bundle.problems]) for name in bundle.layout.parameters
        }
        model = {name: lanes([p.state[name] for p in bundle.problems]) for name in bundle.problems[0].state}
    with clock.phase("compile"):
        given = (params, model, constants)
        key = ("start", shapes_of(engine, given))
        carry = programs.get(key, lambda: engine.compiled(program.start, *given))(*given)
    return Loaded(program, carry, constants, splits)


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
        params, workload = self.program.evaluated(carry, constants), self.workload
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
            params = self.program.evaluated(carry, constants)
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
            work = float(bundle.evaluations) * sum(counts.values()) * bundle.layout.total
            if bundle.shape == (1, 1):
                call = partial(measurement.values, *given)
                engine.compile_unbatched(measurement.metrics.single, work, call, "evaluation")
            return engine.compiled(function, *given)

        return programs.get(("evaluation", shapes_of(engine, given)), make)

    def host(found: Mapping[str, Any]) -> dict[str, np.ndarray]:
        # A copy: a metric may be a view of parameters, which the next step overwrites.
        return {name: np.array(ops.to_numpy(value), np.float64) for name, value in found.items()}

    if size is None:
        at_once, held = compiled(measurement.whole, loaded.splits), loaded.splits
        return lambda carry, constants: host(at_once(carry, constants, held))

    def sent(split: str, examples: Callable[[Split], dict[str, np.ndarray]]) -> dict[str, Any]:
        with engine.context():
            arrays = _stacked(bundle, split, examples)
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


def stretches(steps: int, evaluations: int) -> list[int]:
    """Lengths of the stretches between evaluations: nearly equal, in at most two lengths."""
    bounds = np.linspace(0, steps, min(evaluations, steps) + 1).round().astype(int)
    return [int(length) for length in np.diff(bounds)]


def stretch_inputs(
    bundle: Bundle, engine: Engine, start: int, length: int, room: int | None = None
) -> Inputs:
    """The inputs of steps start + 1 ... start + length; call inside the engine's context.

    Numbers of steps and the schedule stay on the host, where the engine reads them.

    Args:
        room: as many steps as are sent, zeros after the last; None for no more than there are.
    """
    kind, missing = engine.ops.dtype, (room or length) - length

    def sent(array: np.ndarray) -> Any:
        return engine.to_device(
            np.pad(array, ((0, missing), *((0, 0),) * (array.ndim - 1))) if missing else array
        )

    order = None if bundle.orders is None else bundle.orders[start : start + length]
    batch = None
    if bundle.workload.streamed:
        assert order is not None, "__post_init__ asks for minibatches"
        minibatches = _minibatches(bundle, order, start, engine.threads)
        batch = {name: sent(bundle.by_slot(array, 1)) for name, array in minibatches.items()}
    drawn = _noise(bundle, start, length)
    return Inputs(
        step=np.arange(start + 1, start + length + 1, dtype=kind),
        schedule=np.asarray(bundle.schedule[start : start + length], kind),
        order=None if order is None or batch is not None else sent(bundle.by_slot(order, 1)),
        batch=batch,
        noise=None
        if drawn is None
        else {name: sent(bundle.by_slot(array, 1)) for name, array in drawn.items()},
    )


def _filled(inputs: Inputs, length: int) -> Inputs:
    """Inputs with the number and the schedule of their last step repeated to a length."""
    missing = length - len(inputs.step)
    step, schedule = (np.pad(values, (0, missing), "edge") for values in (inputs.step, inputs.schedule))
    return inputs._replace(step=step, schedule=schedule)


def _minibatches(bundle: Bundle, order: np.ndarray, start: int, threads: int) -> dict[str, np.ndarray]:
    """The minibatches of the steps after `start`, (steps, S, batch_size, ...) by field, on the host."""

    def drawn(seeds: slice, split: Split) -> dict[str, np.ndarray]:
        generators = generators_of(bundle.randoms[seeds], "examples of step", start + 1)
        return gathered(split, order[:, seeds], threads, generators)

    if bundle.workload.shared_data:
        return drawn(slice(None), bundle.problems[0].splits["train"])
    found = [
        drawn(slice(seed, seed + 1), problem.splits["train"]) for seed, problem in enumerate(bundle.problems)
    ]
    return {name: np.concatenate([one[name] for one in found], axis=1) for name in found[0]}


def _notes(bundle: Bundle) -> list[str]:
    """What data sources say of what has been fetched."""
    splits = [split for problem in bundle.problems for split in problem.splits.items()]
    sources = [(name, split) for name, split in splits if not isinstance(split, Mapping)]
    return [f"{name}: {note}" for name, source in sources for note in source.notes]


def _noise(bundle: Bundle, start: int, length: int) -> dict[str, np.ndarray] | None:
    """What a stretch draws from, (steps, S, ...) by name."""
    if not bundle.is_random:
        return None
    seeds = range(len(bundle.problems))
    drawn = [[bundle.draws(seed, step) for seed in seeds] for step in range(start + 1, start + length + 1)]
    return {name: np.stack([np.stack([one[name] for one in each]) for each in drawn]) for name in drawn[0][0]}


def pieces_of(bundle: Bundle, length: int) -> list[int]:
    """A stretch cut into nearly equal pieces, by the bundle alone.

    The inputs of each fit what is sent at once, and of a long run no piece takes long.
    """
    one = 0
    if bundle.orders is not None:
        order = bundle.by_slot(bundle.orders[:1], 1)
        one = order.nbytes
        if bundle.workload.streamed:
            example = placeholder_of(bundle.problems[0].splits["train"])
            one += order.size * sum(array.nbytes for array in example.values())
    if bundle.is_random:
        one += sum(array.nbytes for array in bundle.draws(0, 1).values()) * bundle.shape[0]
    products = max(bundle.batch_size * bundle.layout.total, LEAST_PRODUCTS)
    most = max(math.ceil(len(bundle.schedule) / RETURNS), PRODUCTS // products, 1)
    return stretches(length, max(math.ceil(length * one / SENT_BYTES), math.ceil(length / most)))


def ends_of(bundle: Bundle) -> np.ndarray:
    """After how many steps metrics are taken; the first is 0."""
    return np.cumsum([0, *stretches(len(bundle.schedule), bundle.evaluations)])


def segments_of(bundle: Bundle) -> list[int]:
    """The steps of a run cut into what is sent at once, between evaluations and estimates of bases."""
    bounds = sorted({*ends_of(bundle).tolist(), *bundle.points})
    return [piece for length in np.diff(bounds).tolist() for piece in pieces_of(bundle, length)]


@dataclass
class Record:
    """The results of a bundle's run so far, for S seeds and K settings.

    Args:
        seconds: (S, K), spent on estimating bases during the run.
        done: the number of steps taken.
        rows: for each evaluation the metrics (S, K) by full name, and under `BESIDES` the number () of
            gradients that the optimizer of a lane has asked for in addition to one a step.
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
    """Run every lane of a bundle to its budget.

    Args:
        bundle: what is run.
        engine: the backend.
        clock: takes the seconds by phase.
        progress: called with the number of steps done after each stretch.
        checkpoints: where the run is kept on the way, and what it goes on from; None to keep nothing.
            Whoever gives them ends their deferral of SIGTERM, when what is returned is safe.
        programs: of the cell, where it has other bundles too; the lanes are padded to their tile.
    """
    clock, programs = clock or Clock(), programs or Programs()
    bundle = replace(bundle, tile=programs.tile)
    steps, ops = len(bundle.schedule), engine.ops
    if bundle.points and bundle.lanes[1] > 1:
        raise ValueError("a basis that is estimated anew belongs to one setting: cut the bundle (parts)")
    ends, pieces = ends_of(bundle), segments_of(bundle)
    room = programs.room = max(programs.room, *pieces)
    programs.steps = max(programs.steps, steps)
    with engine.context(), ExitStack() as stack:
        record, keeper = Record(np.zeros(bundle.shape)), None
        loaded = load(bundle, engine, clock, programs)
        with clock.phase("data"):
            engine.synchronize(loaded.carry)
        if checkpoints is not None:
            keeper = _Keeper(checkpoints, engine, clock, record)
            loaded = keeper.newest(loaded)
            if record.done:
                progress(record.done)
        program, carry, constants = loaded.program, loaded.carry, loaded.constants
        bounds, pace = np.cumsum(pieces), Pace()
        left = np.diff([record.done, *bounds[bounds > record.done]]).tolist()
        cut = left if keeper is None else pace.cut(left)
        inputs = stack.enter_context(prefetch_inputs(bundle, engine, cut, record.done, room))
        with clock.phase("data", WAITING):
            given = next(inputs)
        with clock.phase("compile"):
            evaluate = evaluator(bundle, engine, loaded, programs)
            advance = segment_of(engine, loaded, _filled(given, room), programs)
            del loaded  # with the first carry, of which nothing is to stay
            renew = None
            if bundle.reestimation is not None and bundle.points:
                renew = Renewal(bundle.reestimation, engine, program, bundle.problems, bundle.randoms)
        if keeper is not None:
            keeper.checkpoints.termination.begin()

        def measure() -> None:
            nonlocal carry
            with clock.phase("evaluation"):
                rows = record.rows
                rows.append(evaluate(carry, constants))
                if carry.losses is not None:
                    rows[-1][MINIBATCH_LOSS], first = mean_losses(ops, carry.losses)
                    if len(rows) == 2:
                        rows[0][MINIBATCH_LOSS] = first
                    carry = carry._replace(losses=program.no_losses(bundle.shape))
            rows[-1][BESIDES] = closure_evaluations(carry.state)

        if not record.rows:
            measure()
        while record.done < steps:
            if renew is not None and record.done in bundle.points:
                with clock.phase("step", BASIS):
                    carry, constants, taken = renew(record.done, carry, constants)
                    engine.synchronize(carry)
                record.seconds += taken[:, None]
            before = clock.seconds["step"]
            with clock.phase("step"):
                carry = advance(carry, constants, given)
                engine.synchronize(carry)
            record.done += len(given.step)
            pace.a_step = (clock.seconds["step"] - before) / len(given.step)
            if record.done in ends:
                measure()
                progress(record.done)
            engine.note(*sorted(_notes(bundle)))
            if record.done < steps:
                if keeper is not None:
                    keeper.offer(carry, constants)
                with clock.phase("data", WAITING):
                    given = next(inputs)
        state_bytes = engine.state_bytes(carry.state) // math.prod(bundle.shape)
        diverged, stopped = (ops.to_numpy(one) for one in (carry.diverged_at, carry.stopped_at))
    metrics, lanes = record.columns, bundle.placement.lanes
    return Trajectories(
        steps=ends,
        closure_evaluations=metrics.pop(BESIDES),
        metrics={name: values[:, *lanes] for name, values in metrics.items()},
        diverged_at=np.asarray(diverged)[lanes].astype(np.int64),
        stopped_at=np.asarray(stopped)[lanes].astype(np.int64),
        state_bytes=state_bytes,
        reestimation_seconds=record.seconds[lanes],
    )


def segment_of(engine: Engine, loaded: Loaded, inputs: Inputs, programs: Programs) -> Segment:
    """The compiled steps for a run, of its cell's programs; a copy, which holds on to this run's arrays."""
    shapes = shapes_of(engine, (loaded.carry, loaded.constants, inputs))
    key = ("segment", shapes, engine.values_in_segment(loaded))
    return copy(programs.get(key, lambda: engine.segment(loaded, inputs, programs.steps)))


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


class _Keeper:
    """Keeps a run between its pieces, and has it go on from there."""

    def __init__(self, checkpoints: Checkpoints, engine: Engine, clock: Clock, record: Record) -> None:
        self.checkpoints, self.engine, self.clock, self.record = checkpoints, engine, clock, record
        self.begun = clock.named
        checkpoints.notes = engine.notes  # for the provenance, in later processes too

    def newest(self, loaded: Loaded) -> Loaded:
        """What the run goes on from; as it is loaded where there is no checkpoint."""
        engine, record, ops = self.engine, self.record, self.engine.ops

        def restored(checkpoint: Checkpoint) -> Loaded:
            arrays = checkpoint.arrays
            carry = engine.restored(loaded.carry, arrays)
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
        arrays |= self.record.arrays() | self.engine.kept(carry)
        seconds = {name: taken - self.begun[name] for name, taken in self.clock.named.items()}
        return Checkpoint(self.record.done, arrays, seconds, self.engine.notes)


def mean_losses(ops: Ops, losses: StepLosses) -> tuple[np.ndarray, np.ndarray]:
    """The mean and the first loss of the steps since the last evaluation, (S, K); NaN of none."""
    total, count, first = (np.array(ops.to_numpy(each), np.float64) for each in losses)
    return np.divide(total, count, out=np.full_like(total, math.nan), where=count > 0), first


def prefetch_inputs(
    bundle: Bundle, engine: Engine, lengths: Iterable[int], start: int = 0, room: int | None = None
) -> AbstractContextManager[Iterator[Inputs]]:
    """The inputs of successive pieces after `start` steps, each sent as so many as `room`.

    Where they are much work, they are made while the piece before is run. A length is asked for when its
    inputs are made.
    """

    def make(piece: tuple[int, int]) -> Inputs:
        begin, length = piece
        with engine.context():
            return stretch_inputs(bundle, engine, begin, length, room)

    def places() -> Iterator[tuple[int, int]]:
        begin = start
        for length in lengths:
            yield begin, length
            begin += length

    return prefetched(make, places(), ahead=bundle.workload.streamed or bundle.is_random)
