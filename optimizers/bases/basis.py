"""Definition of a basis: the parameters that it changes together, how, and by which matrix."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

from curvebench.optimizers.bases.change import ROTATION, Change
from curvebench.optimizers.options import Option, OptionError, Options, complete

Shapes = Mapping[str, tuple[int, ...]]


class Group(NamedTuple):
    """Parameters that a basis changes together.

    The vector theta of a group is each parameter's row-major ravel, concatenated in the group's order.
    """

    names: tuple[str, ...]
    size: int  # n, the number of rows of V: entries of the group, or of one filter if filters share V.
    change: Change = ROTATION


@dataclass(frozen=True)
class Sampling:
    """Distribution of the parameters at which gradients are sampled.

    Args:
        kind: "initialization" for the workload's initial parameters, "normal" for independent normal entries.
        scale: standard deviation of `normal`; initialization does not use it.
        around_start: whether normal entries are added to the run's first parameters instead of 0.
    """

    kind: Literal["initialization", "normal"] = "initialization"
    scale: float = 1.0
    around_start: bool = False


@dataclass(frozen=True)
class Reestimation:
    """How often a run estimates its basis again, around its current parameters (000 Sec. 5).

    The optimizer keeps its state: first moments are transformed to the new coordinates, and the rest stays.

    Args:
        count, unit: number of epochs or steps between two estimates.
    """

    count: int
    unit: Literal["epochs", "steps"]


class Estimator(Protocol):
    """Object that receives gradients in several pieces and returns the matrix of a group."""

    def add(self, gradients: np.ndarray) -> None:
        """Add gradients, (M, n), one per row."""

    def result(self) -> tuple[np.ndarray, np.ndarray]:
        """Return V (n, r), float64, with eigenvectors in columns, leading first, and the eigenvalues (r,).

        An eigenvalue is NaN if it is not known.

        Raises:
            OptionError: if there is no gradient, or one is not finite.
        """


def _no_gradients(options: Options, group: Group, random: np.random.Generator) -> Estimator:
    raise OptionError("this basis has no parameters to change and takes no gradients")


@dataclass(frozen=True)
class Basis:
    """A linear change of coordinates, theta = J theta~, for each group of parameters.

    J is the orthonormal V itself, or another form of `curvebench.optimizers.bases.change`; gradients change
    by J^T.

    Args:
        name: name in studies and tables.
        source: file and equation of the seed document.
        description: one line for `curvebench list`.
        options: options of the basis, by name.
        groups: `groups(options, shapes, kinds)`, which returns the groups of parameters that are changed
            together; `kinds` has the kind of each parameter's role, such as "weight" or "bias". Raises
            OptionError.
        samples: `samples(options, dimension) -> M`, the number of gradients; `dimension` counts all entries
            of all parameters.
        sampling: `sampling(options) -> Sampling`.
        estimator: `estimator(options, group, random, decompose)`, which returns the estimator of V. It
            decomposes gradients by `decompose` (`curvebench.optimizers.bases.estimators.Decomposition`).
        reestimation: `reestimation(options) -> Reestimation`, or None if V stays.
    """

    name: str
    source: str
    description: str
    options: Mapping[str, Option] = field(default_factory=dict)
    groups: Callable[[Options, Shapes, Mapping[str, str]], tuple[Group, ...]] = (
        lambda options, shapes, kinds: ()
    )
    samples: Callable[[Options, int], int] = lambda options, dimension: 0
    sampling: Callable[[Options], Sampling] = lambda options: Sampling()
    estimator: Callable[..., Estimator] = _no_gradients
    reestimation: Callable[[Options], Reestimation | None] = lambda options: None

    @property
    def stored(self) -> bool:
        """Whether a job of its own makes V and stores it for other jobs; the identity has no V."""
        return self.estimator is not _no_gradients

    def complete(self, options: Options) -> dict[str, Any]:
        """Check the given options, convert them to one form, and add the defaults.

        Raises:
            OptionError: for an unknown option or a wrong value.
        """
        return complete(self.name, self.options, options)
