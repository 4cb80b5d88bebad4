"""Bases that a run estimates anew around its iterate, while its parameters stay where they are."""

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
from curvebench.workloads.workload import Problem, Random


@dataclass(frozen=True)
class RenewalPlan:
    """When and how bases are estimated anew.

    Args:
        points: after how many steps.
        sampling: where gradients are taken, around a problem's first parameters, which are the iterate.
        groups: what is changed together, in the order of the bundle's matrices.
        estimator: `estimator(group, random, decompose)`: what makes V of a group's gradients.
    """

    points: tuple[int, ...]
    sampling: GradientSampling
    groups: tuple[Group, ...]
    estimator: Callable[[Group, np.random.Generator, Decomposition], Estimator]

    def evaluations(self, gradients: np.ndarray) -> np.ndarray:
        """The gradients that were sampled before a run has taken so many of its own."""
        return np.searchsorted(self.points, gradients, side="left") * self.sampling.count


@dataclass
class Renewal:
    """The change of basis in the middle of a bundle's run: one setting, and one lane a seed.

    Gradients are those of the run's own backend and precision, by a sampler that is compiled for the shapes
    of the first problem; it decomposes them in float64.
    """

    what: RenewalPlan
    engine: Engine
    program: Program
    problems: Sequence[Problem]
    randoms: Sequence[Random]

    def __post_init__(self) -> None:
        self.sample = sampler(self.what.sampling, self.engine, self.problems[0], self.randoms[0])
        self.decompose = decomposition_on(self.engine)

    def __call__(self, steps: int, carry: Carry, constants: Constants) -> tuple[Carry, Constants, np.ndarray]:
        """What a run goes on with after so many steps, and the seconds (S,) that each seed's estimate took.

        A lane that has diverged or stopped keeps its basis.
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
            here = replace(
                problem,
                parameters={name: host[name][seed, 0] for name in problem.parameters},
                state={name: value[seed, 0] for name, value in model.items()},
            )
            for matrix, v in zip(matrices, self._estimated(here, seed, steps), strict=False):
                matrix[seed] = v
            seconds[seed] = time.perf_counter() - start
        new = constants._replace(matrices=tuple(map(ops.bases, matrices)))
        flat = self.program.flat(carry.coordinates, constants.matrices)
        coordinates = self.program.in_basis(flat, new.matrices)
        state = self.program.change_basis(carry.state, constants.matrices, new.matrices)
        return carry._replace(coordinates=coordinates, state=state), new, seconds

    def _estimated(self, here: Problem, seed: int, steps: int) -> list[np.ndarray]:
        """V of each group; none, and a note, where a gradient is not finite and the basis before stays."""

        def random(purpose: str, shared: bool = False) -> np.random.Generator:
            return self.randoms[seed](f"{purpose} after step {steps}", shared)

        generator = random("egop basis")
        try:
            found, _ = estimated(
                self.what.groups,
                lambda group: self.what.estimator(group, generator, self.decompose),
                self.sample(here, random),
            )
        except OptionError as error:
            self.engine.note(f"after step {steps} a lane keeps its basis: {error}")
            return []
        return [matrix for matrix, _ in found]
