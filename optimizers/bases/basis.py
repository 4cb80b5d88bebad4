"""Definition of a basis: which parameters it transforms together, in which way, and by which matrix.

A basis is a linear change of coordinates, theta = J c: the optimizer runs on the coordinates c, and the loss
is computed at the parameters theta. J is made from one matrix V, usually with orthonormal columns, such as
the eigenvectors of the expected gradient outer product (EGOP).

In citations, 000 is the EGOP paper, "Faster Adaptive Optimization via Expected Gradient Outer Product
Reparameterization" (docs/sources.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

from curvebench.optimizers.bases.change import ROTATION, Change
from curvebench.optimizers.options import Option, OptionError, Options, complete

Shapes = Mapping[str, tuple[int, ...]]
# Name of the option by which several random bases of a study draw different matrices.
ROTATION_NUMBER = "rotation"


class Group(NamedTuple):
    """Parameters that a basis transforms together, as one vector.

    The vector theta of a group is each parameter's row-major ravel, concatenated in the group's order.
    """

    names: tuple[str, ...]
    # Number n of rows of V, which is usually the number of entries of the group.
    # If the filters of a convolution or the rows of a weight share V, n is the size of one filter or row.
    size: int
    change: Change = ROTATION


@dataclass(frozen=True)
class Sampling:
    """Distribution of the parameters at which gradients are sampled.

    Args:
        kind: "initialization" for the workload's initial parameters, "normal" for independent normal entries.
        scale: standard deviation of `normal`; not used by `initialization`.
        around_start: whether the normal entries are added to the run's initial parameters; otherwise the
            normal entries themselves are the parameters.
    """

    kind: Literal["initialization", "normal"] = "initialization"
    scale: float = 1.0
    around_start: bool = False


@dataclass(frozen=True)
class Reestimation:
    """How often a run estimates its basis again, from gradients around its current parameters (000 Sec. 5).

    The optimizer keeps its state: first moments are transformed to the new coordinates, and all other state
    stays as it is.

    Args:
        count, unit: number of epochs or steps between two estimates.
    """

    count: int
    unit: Literal["epochs", "steps"]


class Estimator(Protocol):
    """Object that receives the sampled gradients of a group, in several calls, and estimates V from them."""

    def add(self, gradients: np.ndarray) -> None:
        """Add `gradients` (any number, entries of the group), one per row."""

    def result(self) -> tuple[np.ndarray, np.ndarray]:
        """Return V (n, r) and the eigenvalues (r,), both float64, with the largest eigenvalue first.

        V has the eigenvectors in columns. n is the number of entries of the group, and r the number of
        columns.

        An eigenvalue that the estimator does not compute is NaN.

        Raises:
            OptionError: if no gradient was added, or a gradient is not finite.
        """


def _no_gradients(options: Options, group: Group, random: np.random.Generator) -> Estimator:
    raise OptionError("this basis has no parameters to change and takes no gradients")


@dataclass(frozen=True)
class Basis:
    """A linear change of coordinates, theta = J c, for each group of parameters.

    J is the orthogonal matrix V itself, or another matrix made from V (`curvebench.optimizers.bases.change`).
    A gradient g becomes J^T g.

    Args:
        name: name in studies and tables.
        source: source document and equation, such as "000 Alg. 2.1".
        description: one line for `curvebench list`.
        options: options of the basis, by name.
        groups: `groups(options, shapes, kinds)`, which returns the groups of parameters that are transformed
            together; `kinds` has the kind of each parameter's role, such as "weight" or "bias". Raises
            OptionError.
        samples: `samples(options, dimension) -> M`, the number of gradients to sample; `dimension` is the
            number of entries of all parameters together.
        sampling: `sampling(options) -> Sampling`.
        estimator: `estimator(options, group, random, decompose)`, which returns the estimator of V for a
            group. It decomposes gradients by the function `decompose`
            (`curvebench.optimizers.bases.estimators.Decomposition`).
        reestimation: `reestimation(options) -> Reestimation`, or None if a run keeps the V of its start.
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
        """Whether a basis-estimation job computes V and stores it for the runs. The identity has no V."""
        return self.estimator is not _no_gradients

    def complete(self, options: Options) -> dict[str, Any]:
        """Check options, convert their values to a standard form, and add the defaults of missing options.

        Raises:
            OptionError: for an unknown option or a wrong value.
        """
        return complete(self.name, self.options, options)
