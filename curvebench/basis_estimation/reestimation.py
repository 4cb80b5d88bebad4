"""Bases that are estimated again during a run, from gradients around its current parameters."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from curvebench.basis_estimation.gradients import GradientSampling, decomposition_on, estimated, sampler
from curvebench.optimizers.bases import Estimator, Group, OptionError
from curvebench.optimizers.bases.estimators import Decomposition
from curvebench.steps.engine import Engine
from curvebench.steps.program import Carry, Constants, Program
from curvebench.workloads.arguments import Random
from curvebench.workloads.workload import Problem


@dataclass(frozen=True)
class RenewalPlan:
    """The steps after which bases are estimated again, and how.

    Args:
        points: numbers of steps after which a run estimates its bases.
        sampling: distribution of the sampled parameters, centred at the parameters of the problem. Here these
            are the current parameters of a run.
        groups: groups of parameters, in the order of the bundle's matrices.
        estimator: `estimator(group, random, decompose)` creates the estimator of a group's V.
    """

    points: tuple[int, ...]
    sampling: GradientSampling
    groups: tuple[Group, ...]
    estimator: Callable[[Group, np.random.Generator, Decomposition], Estimator]

    def evaluations(self, gradients: np.ndarray) -> np.ndarray:
        """Return the number of gradients that a run has sampled for bases by some points of its course.

        Args:
            gradients: numbers of gradients for steps that the run has computed at these points.
        """
        return np.searchsorted(self.points, gradients, side="left") * self.sampling.count


@dataclass
class Renewal:
    """Estimates bases again in the middle of the run of a bundle with one setting and a lane per seed.

    The gradients have the backend and precision of the run. Their decomposition is computed in float64. The
    sampler is compiled once, for the shapes of the first problem.

    Args:
        plan: when and how bases are estimated.
        engine: engine of the run.
        program: program of the run, which changes coordinates and optimizer states to the new bases.
        problems: problem of each seed.
        randoms: random generators of each seed.
    """

    plan: RenewalPlan
    engine: Engine
    program: Program
    problems: Sequence[Problem]
    randoms: Sequence[Random]

    def __post_init__(self) -> None:
        self.sample = sampler(self.plan.sampling, self.engine, self.problems[0], self.randoms[0])
        self.decompose = decomposition_on(self.engine)

    def __call__(self, steps: int, carry: Carry, constants: Constants) -> tuple[Carry, Constants, np.ndarray]:
        """Return state and constants in new bases, and the seconds (S,) that each seed's estimate took.

        The parameters do not change, only their coordinates. A lane that has diverged or stopped keeps its
        basis.

        Args:
            steps: number of steps taken so far.
            carry: state of the run.
            constants: constants of the run's program, including the matrices of the bases.
        """
        ops = self.engine.ops
        params = self.program.parameters(carry.coordinates, constants.matrices)
        host = {name: np.array(ops.to_numpy(value), np.float64) for name, value in params.items()}
        model = {name: np.array(ops.to_numpy(value)) for name, value in carry.model.items()}
        ended = np.asarray(ops.to_numpy((carry.diverged_at > 0) | (carry.stopped_at > 0)))[:, 0]
        matrices = [np.array(ops.to_numpy(matrix)) for matrix in constants.matrices]
        seconds = np.zeros(len(self.problems))
        for seed, problem in enumerate(self.problems):
            if ended[seed]:
                continue
            start = time.perf_counter()
            iterate = replace(
                problem,
                parameters={name: host[name][seed, 0] for name in problem.parameters},
                state={name: value[seed, 0] for name, value in model.items()},
            )
            for matrix, v in zip(matrices, self._estimated(iterate, seed, steps), strict=False):
                matrix[seed] = v
            seconds[seed] = time.perf_counter() - start
        after = constants._replace(matrices=tuple(map(ops.bases, matrices)))
        flat = self.program.flat(carry.coordinates, constants.matrices)
        coordinates = self.program.in_basis(flat, after.matrices)
        state = self.program.change_basis(carry.state, constants.matrices, after.matrices)
        return carry._replace(coordinates=coordinates, state=state), after, seconds

    def _estimated(self, iterate: Problem, seed: int, steps: int) -> list[np.ndarray]:
        """Return V of each group.

        If a gradient is not finite, return nothing, and note that the lane keeps its basis.
        """

        def random(purpose: str, shared: bool = False) -> np.random.Generator:
            return self.randoms[seed](f"{purpose} after step {steps}", shared)

        generator = random("egop basis")
        try:
            estimates, _ = estimated(
                self.plan.groups,
                lambda group: self.plan.estimator(group, generator, self.decompose),
                self.sample(iterate, random),
            )
        except OptionError as error:
            self.engine.note(f"after step {steps} a lane keeps its basis: {error}")
            return []
        return [matrix for matrix, _ in estimates]
