"""What a basis is: which parameters it rotates together, and the matrix that it rotates them with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from optimizers.options import Option, OptionError, Options, complete

Shapes = Mapping[str, tuple[int, ...]]
Groups = tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Sampling:
    """Where the parameters come from at which gradients are sampled.

    Args:
        kind: the distribution of the workload's initial parameters, or independent normal entries.
        scale: the standard deviation of `normal`; initialization does not use it.
    """

    kind: Literal["initialization", "normal"] = "initialization"
    scale: float = 1.0


def _no_gradients(gradients: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    raise OptionError("this basis has no parameters to rotate and takes no gradients")


@dataclass(frozen=True)
class Basis:
    """An orthonormal change of coordinates, theta = V theta~, for each group of parameters.

    The vector theta of a group is each parameter's row-major ravel, concatenated in the group's order;
    gradients change like parameters, g~ = V^T g.

    Args:
        name: the name in studies and tables.
        source: file and equation of the seed document.
        description: one line for `python -m harness list`.
        options: the choices that it takes, by name.
        needs_gradients: whether V is estimated from sampled gradients.
        groups: `groups(options, shapes, kinds) -> parameter names rotated together`; `kinds` gives the
            kind of each parameter's role, such as "weight" or "bias". Raises OptionError.
        samples: `samples(options, dimension) -> M`, the number of gradients; `dimension` counts all
            entries of all parameters.
        sampling: `sampling(options) -> Sampling`.
        eigenbasis: `eigenbasis(gradients) -> (V, eigenvalues)` from one group's gradients of shape
            (M, d): float64 of shapes (d, d), eigenvectors in columns, leading first, and (d,).
    """

    name: str
    source: str
    description: str
    options: Mapping[str, Option] = field(default_factory=dict)
    needs_gradients: bool = False
    groups: Callable[[Options, Shapes, Mapping[str, str]], Groups] = lambda options, shapes, kinds: ()
    samples: Callable[[Options, int], int] = lambda options, dimension: 0
    sampling: Callable[[Options], Sampling] = lambda options: Sampling()
    eigenbasis: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]] = _no_gradients

    def complete(self, given: Options) -> dict[str, Any]:
        """The given options checked, brought into one form and completed by the defaults.

        Raises:
            OptionError: for an unknown option or a wrong value.
        """
        return complete(self.name, self.options, given)
