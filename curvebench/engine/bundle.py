"""The bundle, a set of runs (lanes) that advance together in one program, and the results of its lanes.

S is the number of seeds and K the number of settings of a bundle, which has S x K lanes. A basis is a change
of coordinates in which the optimizer works, computed from a matrix V with n rows and r columns. The needs of
an update rule are values that it uses in addition to the gradient. Amortized needs are evaluated only at some
steps, which are said to observe.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from curvebench.arrays.numpy_ops import numpy_ops
from curvebench.basis_estimation.reestimation import RenewalPlan
from curvebench.engine.tiles import Placement, Tile
from curvebench.optimizers.bases import Change
from curvebench.optimizers.needs import Model, Need
from curvebench.optimizers.options import OptionError
from curvebench.optimizers.rule import Rule
from curvebench.steps.derivatives import DRAWS, model_of
from curvebench.steps.layout import Layout, layout
from curvebench.steps.program import PLAIN, StepProtocol
from curvebench.steps.update import Update, Work
from curvebench.workloads.arguments import Random
from curvebench.workloads.workload import Problem, Workload, examples_in, placeholder_of


def check_accumulation(owner: str, needs: Iterable[Need], protocol: StepProtocol) -> None:
    """Check that the needs of a rule can be computed from microbatches, if gradients are accumulated.

    The needs of a rule are values that it uses in addition to the gradient, such as a Hessian.

    Args:
        owner: name of the rule in the message.
        needs: the needs of the rule.
        protocol: the protocol, which says whether gradients are accumulated over microbatches.

    Raises:
        OptionError: if a need of the whole minibatch is not the mean of the needs of its microbatches.
    """
    for need in needs:
        if protocol.accumulates and not need.is_mean:
            raise OptionError(
                f"{owner}: needs {need.description} of the whole minibatch, which is not the mean over its "
                "parts; leave gradient_accumulation out"
            )


@dataclass(frozen=True)
class Bundle:
    """Runs that advance together in one program: one lane for each of S seeds and K settings.

    Args:
        workload: the workload that all lanes train on.
        rule: the update rule, with its options.
        problems: one problem per seed; their number is S.
        orders: indices of the examples in each minibatch, of shape (steps, S, batch_size); None for the full
            batch.
        hyperparameters: a mapping from the name of each hyperparameter of the rule to its values, of shape
            (K,).
        schedule: multipliers of the learning rate at each step, of shape (steps,). The number of steps of a
            run is the length of this array.
        evaluations: number of evaluation intervals. The steps are divided into intervals of nearly equal
            length. Metrics are evaluated before the first step and after each interval.
        matrices: matrices V of a basis, of shape (S, n, r), by the names of the parameters that each matrix
            transforms together. Empty without a basis.
        changes: form of the change of coordinates for each V, by the same names as in `matrices`. If a V has
            no entry here, it rotates its parameters.
        protocol: keys of the training protocol that steps execute: gradient clipping and accumulation, and
            stopping.
        settings: values of all settings of the workload.
        randoms: one source of random generators per seed. The sources are required if the workload has noise
            or data sources, if the rule draws random numbers, or if bases are estimated again during the run.
        reestimation: plan of the estimation of bases during the run; None if bases are not estimated again.
        tile: shape into which the lanes are padded, so that bundles of several sizes share one compiled
            program; None for no padding.

    Raises:
        ValueError: when `randoms` are missing, a streamed workload has no minibatches, or the minibatch
            cannot be divided into microbatches of equal size.

    Example:
        >>> import numpy as np
        >>> from curvebench import Bundle, WorkloadRandom, find_rule, find_workload
        >>> workload = find_workload("least_squares")
        >>> settings = workload.complete({"n": 8, "d": 4})
        >>> randoms = [WorkloadRandom(workload.name, seed) for seed in range(3)]
        >>> bundle = Bundle(
        ...     workload=workload,
        ...     rule=find_rule("sgd"),
        ...     problems=[workload.problem(settings, random) for random in randoms],
        ...     orders=None,
        ...     hyperparameters={"learning_rate": np.array([0.1, 0.2])},
        ...     schedule=np.ones(20),
        ...     evaluations=4,
        ...     settings=settings,
        ... )
        >>> bundle.lanes
        (3, 2)
    """

    workload: Workload
    rule: Rule
    problems: Sequence[Problem]
    orders: np.ndarray | None
    hyperparameters: Mapping[str, np.ndarray]
    schedule: np.ndarray
    evaluations: int = 1
    matrices: Mapping[tuple[str, ...], np.ndarray] = field(default_factory=dict)
    changes: Mapping[tuple[str, ...], Change] = field(default_factory=dict)
    protocol: StepProtocol = PLAIN
    settings: Mapping[str, Any] = field(default_factory=dict)
    randoms: Sequence[Random] = ()
    reestimation: RenewalPlan | None = None
    tile: Tile | None = None

    def __post_init__(self) -> None:
        owner = self.workload.name
        sources = [name for name, split in self.problems[0].splits.items() if not isinstance(split, Mapping)]
        if sources and not self.workload.streamed:
            raise ValueError(f"{owner}: {', '.join(sources)} is a data source: set streamed")
        draws = any(need.draw for need in self.rule.needs) or self.workload.noise is not None
        if (draws or sources or self.reestimation) and len(self.randoms) != len(self.problems):
            raise ValueError(f"{owner}: what draws in a run needs randoms, a generator a problem")
        if self.workload.streamed and self.orders is None:
            raise ValueError(f"{owner} is streamed: it needs a batch_size")
        parts = self.protocol.gradient_accumulation
        if parts > 1 and (self.orders is None or self.batch_size % parts):
            raise ValueError(f"{owner}: gradient_accumulation: {parts} divides no batch_size")

    @property
    def layout(self) -> Layout:
        """Layout of the parameters in one flat buffer."""
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
        """The update rule, bound to the layout of the parameters."""
        return Update(self.rule, self.layout)

    @cached_property
    def needs(self) -> tuple[Need, ...]:
        """Values that the rule needs in addition to the gradient, such as a Hessian."""
        return self.update.bound.needs

    def evaluations_of(self, steps: np.ndarray) -> np.ndarray:
        """Return the number of gradient evaluations of a run after the given numbers of steps.

        A need of the rule counts as the number of gradients that cost as much to compute
        (`Need.gradient_evaluations`). Gradients that were sampled to estimate bases during the run are
        counted, too.

        Args:
            steps: numbers of steps, an integer array.
        """
        count = steps
        for need in self.needs:
            times = self.update.observations(steps) if need.amortized else steps
            count = count + times * need.gradient_evaluations(self.model)
        return count if self.reestimation is None else count + self.reestimation.evaluations(steps)

    @cached_property
    def model(self) -> Model:
        """Shapes and roles of the parameters, and the shape of the outputs if the likelihood is Gaussian."""
        likelihood = self.workload.likelihood
        is_gaussian = likelihood is not None and likelihood.family == "gaussian"
        return replace(model_of(self.update.layout), outputs=self.output_shape if is_gaussian else None)

    @cached_property
    def output_shape(self) -> tuple[int, ...]:
        """Shape of the model's outputs for one minibatch: (examples, ..., outputs)."""
        likelihood, problem = self.workload.likelihood, self.problems[0]
        assert likelihood is not None, "a need draws only from a likelihood"
        batch = {name: value[None] for name, value in placeholder_of(problem.splits["train"]).items()}
        draw = self.workload.noise
        noise = {} if draw is None else draw(self.settings, np.random.default_rng(0), 1)
        outputs = likelihood.outputs(numpy_ops(), problem.parameters, problem.state, batch, noise)
        return (self.batch_size, *outputs.shape[1:])

    def draws(self, seed: int, step: int) -> dict[str, np.ndarray]:
        """Draw the random numbers that the loss and the needs of the rule use at one step of one seed.

        The result is a mapping from names to arrays of random numbers. Each step has its own generator, so
        that a resumed run draws the same numbers as an uninterrupted run. Amortized needs are evaluated only
        at some steps. At all other steps, 0 replaces the random numbers of these needs.
        """
        noise: dict[str, np.ndarray] = {}
        if self.workload.noise is not None:
            generator = self.randoms[seed](f"noise of step {step}")
            noise |= self.workload.noise(self.settings, generator, self.batch_size)
        likelihood = self.workload.likelihood
        for need in self.needs:
            if need.draw is not None and (need.is_probe or likelihood is not None):
                generator = self.randoms[seed](f"{need.name} of step {step}")
                is_due = not need.amortized or self.update.work_of(step) & Work.OBSERVE
                # The first axis of a probe has length 1, so that a probe is not divided into microbatches.
                shape = (1, self.model.dimension) if need.is_probe else self.output_shape
                noise[DRAWS] = need.draw(likelihood, generator, shape) if is_due else np.zeros(shape)
        return noise

    @property
    def is_random(self) -> bool:
        """Whether the loss, or a value that the rule uses besides the gradient, draws random numbers."""
        return self.workload.noise is not None or any(need.draw for need in self.needs)

    @property
    def reestimation_steps(self) -> tuple[int, ...]:
        """Numbers of steps after which the basis is estimated again."""
        return () if self.reestimation is None else self.reestimation.points

    @property
    def lanes(self) -> tuple[int, int]:
        """Number of seeds S and number of settings K."""
        return len(self.problems), len(next(iter(self.hyperparameters.values())))

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the lanes as they are computed: (slots, width) with a tile, else (seeds, settings)."""
        return self.lanes if self.tile is None else (self.tile.slots, self.tile.width)

    @cached_property
    def placement(self) -> Placement:
        """Position of each lane in the tile to which lanes are padded.

        Without a tile, the position of a lane is its index (seed, setting).
        """
        return (self.tile or Tile(*self.lanes)).placement(*self.lanes)

    def by_slot(self, array: np.ndarray, axis: int = 0) -> np.ndarray:
        """Return an array with an entry for each slot of the tile, given an entry for each seed.

        Slots of the same seed get copies of the seed's entry. Without a tile, the array is returned
        unchanged.
        """
        return array if self.tile is None else np.take(array, self.placement.seeds, axis)

    @property
    def batch_size(self) -> int:
        """Number of examples in a minibatch; number of all training examples if steps use the full batch."""
        if self.orders is not None:
            return int(self.orders.shape[2])
        return examples_in(self.problems[0].splits["train"])

    def subset(self, seeds: slice, settings: slice) -> Bundle:
        """Return a bundle with the lanes of a range of seeds and a range of settings."""
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
    """Results of the lanes of a bundle, with C evaluations.

    Args:
        steps: number of steps before each evaluation, (C,); 0 for the first evaluation.
        metrics: values by full name of the metric, such as `train_loss`, (C, S, K).
        diverged_at: number of the first step whose loss was not finite, (S, K); 0 if all losses were finite.
        stopped_at: number of the step at which a lane stopped, because the norm of its gradient was below the
            threshold, (S, K); 0 if the lane did not stop.
        state_bytes: bytes of the optimizer's state for one lane.
        closure_gradients: number of gradients that optimizers of PyTorch have computed in closures before
            each evaluation, in addition to one gradient per step, (C,).
        reestimation_seconds: seconds spent on estimating bases during the run, (S, K).
    """

    steps: np.ndarray
    metrics: Mapping[str, np.ndarray]
    diverged_at: np.ndarray
    stopped_at: np.ndarray
    state_bytes: int
    closure_gradients: np.ndarray
    reestimation_seconds: np.ndarray
