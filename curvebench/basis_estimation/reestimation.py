"""Estimation of bases during a run, from gradients around the current parameters.

A basis is a change of coordinates given by a matrix V for each group of parameters. The carry is the state
that steps change: coordinates, state of the optimizer and of the model. The constants of a run include V.
"""

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
    """Plan of a run that estimates its bases again: after which steps, and from which gradients.

    Args:
        points: numbers of steps after which the run estimates its bases.
        sampling: distribution of the parameters at which gradients are computed. The distribution is centred
            at the current parameters of the run.
        groups: groups of parameters that share a V, in the order of the bundle's matrices.
        estimator: `estimator(group, random, decompose)` creates the estimator of a group's V.
    """

    points: tuple[int, ...]
    sampling: GradientSampling
    groups: tuple[Group, ...]
    estimator: Callable[[Group, np.random.Generator, Decomposition], Estimator]

    def evaluations(self, gradients: np.ndarray) -> np.ndarray:
        """Return how many gradients a run has sampled to estimate its bases again during the run.

        Args:
            gradients: numbers of gradients that the run has computed in its steps, an integer array.

        Returns:
            The number of sampled gradients for each number in `gradients`. If a basis is estimated after step
            p, the gradients that are sampled for it are not counted before the gradient of step p + 1.
        """
        return np.searchsorted(self.points, gradients, side="left") * self.sampling.count


@dataclass
class Renewal:
    """New estimation of the bases of several runs while they run, one run per seed.

    Gradients are computed with the backend and precision of the runs. The mean of their outer products is
    decomposed in float64. The sampler is compiled once, for the shapes of the first problem.

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
        """Estimate new bases, and express the state of the runs in the coordinates of the new bases.

        The parameters do not change, only their coordinates. A run that has diverged or stopped keeps its
        basis.

        Args:
            steps: number of steps taken so far.
            carry: state of the runs.
            constants: constants of the runs, which include the matrices of the bases.

        Returns:
            The carry and the constants in the new bases, and the seconds (seeds,) that the estimation took
            for each seed.
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
        """Estimate the matrix V of each group of parameters around the parameters of a run.

        If a gradient is not finite, return an empty list, and add a note that the run keeps its basis.
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
