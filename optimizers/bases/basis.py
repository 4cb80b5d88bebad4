"""What a basis is: which parameters it changes together, how, and the matrix that it changes them with."""

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
    size: int  # n, the rows of V: entries of the group, or of one filter where filters share V
    change: Change = ROTATION


@dataclass(frozen=True)
class Sampling:
    """Where the parameters come from at which gradients are sampled.

    Args:
        kind: the distribution of the workload's initial parameters, or independent normal entries.
        scale: the standard deviation of `normal`; initialization does not use it.
        around_start: whether normal entries are added to the run's first parameters, not to 0.
    """

    kind: Literal["initialization", "normal"] = "initialization"
    scale: float = 1.0
    around_start: bool = False


@dataclass(frozen=True)
class Reestimation:
    """How often a run estimates its basis anew, around its iterate (000 Sec. 5).

    The optimizer's state goes on: its first moments are turned into the new coordinates, the rest stays.

    Args:
        count, unit: how many epochs or steps lie between two estimates.
    """

    count: int
    unit: Literal["epochs", "steps"]


class Estimator(Protocol):
    """Takes gradients piece by piece, and gives a group's matrix."""

    def add(self, gradients: np.ndarray) -> None:
        """Take more gradients, (M, n), one a row."""

    def result(self) -> tuple[np.ndarray, np.ndarray]:
        """V (n, r), float64, eigenvectors in columns, leading first, and eigenvalues (r,); NaN: unknown.

        Raises:
            OptionError: when there is no gradient, or one is not finite.
        """


def _no_gradients(options: Options, group: Group, random: np.random.Generator) -> Estimator:
    raise OptionError("this basis has no parameters to change and takes no gradients")


@dataclass(frozen=True)
class Basis:
    """A linear change of coordinates, theta = J theta~, for each group of parameters.

    J is the orthonormal V itself, or another form of `curvebench.optimizers.bases.change`; gradients change
    by J^T.

    Args:
        name: the name in studies and tables.
        source: file and equation of the seed document.
        description: one line for `curvebench list`.
        options: the choices that it takes, by name.
        groups: `groups(options, shapes, kinds)`: what is changed together; `kinds` gives the kind of each
            parameter's role, such as "weight" or "bias". Raises OptionError.
        samples: `samples(options, dimension) -> M`, the number of gradients; `dimension` counts all
            entries of all parameters.
        sampling: `sampling(options) -> Sampling`.
        estimator: `estimator(options, group, random, decompose)`: what makes V of a group's gradients,
            which `decompose` (`curvebench.optimizers.bases.estimators.Decomposition`) decomposes.
        reestimation: `reestimation(options) -> Reestimation`, or None where V stays.
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
        """Whether a job of its own makes V and stores it for all that need it; identity has no V."""
        return self.estimator is not _no_gradients

    def complete(self, given: Options) -> dict[str, Any]:
        """The given options checked, brought into one form and completed by the defaults.

        Raises:
            OptionError: for an unknown option or a wrong value.
        """
        return complete(self.name, self.options, given)
