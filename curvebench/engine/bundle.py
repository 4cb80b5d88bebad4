"""Bundles of lanes, which advance together, and the trajectories of what they did."""

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
from curvebench.optimizers.needs import Need
from curvebench.optimizers.options import OptionError
from curvebench.optimizers.rule import Rule
from curvebench.steps.derivatives import DRAWS, model_of
from curvebench.steps.layout import Layout, layout
from curvebench.steps.program import PLAIN, StepProtocol
from curvebench.steps.update import Update, Work
from curvebench.workloads.workload import Problem, Random, Workload, examples_in, placeholder_of


def check_accumulation(owner: str, needs: Iterable[Need], protocol: StepProtocol) -> None:
    """Check that what a rule needs of the loss can be taken of a minibatch in parts.

    Args:
        owner: how the message calls the rule.

    Raises:
        OptionError: when gradients are accumulated, and a need is not the mean over parts.
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
        orders: indices of the minibatches, of shape (steps, S, batch_size); None for the full batch.
        hyperparameters: values of every hyperparameter of the rule by name, of shape (K,).
        schedule: multipliers of the learning rate, of shape (steps,). Its length is the number of steps.
        evaluations: number of evaluation intervals, into which the steps are divided equally. Metrics are
            evaluated before the first step and after each interval.
        matrices: by the names of the parameters that a basis changes together, its matrices V of shape (S, n,
            r).
        changes: by the same names, the change of coordinates; not given for groups that are rotated by V.
        protocol: parts of the training protocol that steps execute: gradient clipping and accumulation,
            stops.
        settings: settings of the workload, complete.
        randoms: one source of random generators per seed. It is required if the workload has noise or data
            sources, the rule draws random numbers, or bases are estimated again during the run.
        reestimation: when and how bases are estimated again during the run; None if they are not.
        tile: shape into which the lanes are padded, so that bundles of several sizes share one compiled
            program; None for no padding.

    Raises:
        ValueError: when `randoms` are missing, a streamed workload has no minibatches, or the accumulated
            parts do not divide the minibatch.

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
        parts = self.protocol.gradient_accumulation
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

    def subset(self, seeds: slice, settings: slice) -> Bundle:
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
        closure_gradients: (C,) gradients that a lane's optimizer has asked for besides that of each step.
        reestimation_seconds: (S, K) seconds of estimating bases anew.
    """

    steps: np.ndarray
    metrics: Mapping[str, np.ndarray]
    diverged_at: np.ndarray
    stopped_at: np.ndarray
    state_bytes: int
    closure_gradients: np.ndarray
    reestimation_seconds: np.ndarray
