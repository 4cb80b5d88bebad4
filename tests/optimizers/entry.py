"""Entry of the battery: a rule with hyperparameters, its plain loop, its oracles and its traits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import numpy as np

from curvebench.arrays.numpy_ops import numpy_ops
from curvebench.optimizers import rules
from curvebench.optimizers.arrays import map_arrays
from curvebench.optimizers.rule import Rule
from curvebench.steps.derivatives import model_of
from curvebench.steps.layout import layout, roles_of
from tests.optimizers.loops import Hyper, Leaf
from tests.optimizers.oracles import Arrays, Oracle

Symmetry = Literal["orthogonal", "signed_permutation", "sides"]
OPS = numpy_ops("float64")
# This option of many rules has separate tests in float32.
HELD = "state_precision"


@dataclass(frozen=True)
class Entry:
    """Rule with options in the battery.

    Args:
        loop: the rule as a plain loop on one leaf. A rule with scope `model` gets all parameters as one
            vector. A rule with scope `named` has `loop(params, grads, hyper, **options)` with all parameters
            by name. A rule with needs gets `needs`, one per step.
        hyper: every hyperparameter, none at its default.
        symmetry: the changes of coordinates under which its path is equivariant: `orthogonal` for all
            parameters together, `signed_permutation` of them, or `sides`, orthogonal along each axis of a
            tensor; None for none of these.
        options: options that differ from the defaults.
        still: values at which a zero gradient moves nothing, including epsilon = 0.
        still_tolerance: how far rounding may move parameters at these values, relative and absolute.
        shapes, kinds: parameters of the model for which it is; None if it takes any.
        start: convert random numbers to a valid starting point, for example in a simplex.
        scale_free: values at which the scale of gradients does not matter; None if it always does.
        pytorch, optax: the same algorithm in another library; None if there is none.
        tolerance: maximum distance of paths in float64 from the loop, relative and absolute.
        tolerance_float32: maximum distance of paths in float32.
        reads_gradient: whether the rule reads the gradient, and not only the values of its needs.
        spreads_nan: whether a gradient that is NaN makes the parameters NaN.
        optimizer: name of the rule, with which its label in the table begins; the table fills it in.
    """

    loop: Callable[..., Iterator[Any]]
    hyper: Hyper
    symmetry: Symmetry | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    still: Hyper = field(default_factory=dict)
    still_tolerance: float = 0.0
    shapes: Mapping[str, tuple[int, ...]] | None = None
    kinds: Mapping[str, str] | None = None
    start: Callable[[np.ndarray], np.ndarray] = np.asarray
    scale_free: Hyper | None = None
    pytorch: Oracle | None = None
    optax: Oracle | None = None
    tolerance: float = 1e-13
    tolerance_float32: float = 1e-5
    reads_gradient: bool = True
    spreads_nan: bool = True
    optimizer: str = ""

    @property
    def rule(self) -> Rule:
        """The rule with its options."""
        return rules()[self.optimizer].choose(self.options)

    def shapes_or(self, shapes: Mapping[str, tuple[int, ...]]) -> Mapping[str, tuple[int, ...]]:
        """Return the shapes on which it is tested: its own, or the given ones if it takes any."""
        return shapes if self.shapes is None else self.shapes

    def begun(self, params: Arrays) -> Arrays:
        """Return parameters from which the rule can start."""
        return {name: self.start(value) for name, value in params.items()}

    def needs(self, params: Arrays, steps: int) -> list[dict[str, Any]] | None:
        """Return the rule's needs at each step; None if it needs only gradients.

        Square values are symmetric: Hessians have eigenvalues of both signs with magnitudes from 1 to 3,
        factors of layers have positive ones. Other values are normal. They depend only on the numbers of
        parameters and steps, so that rule and loop get the same.
        """
        if not self.rule.needs:
            return None
        shapes = {name: value.shape for name, value in params.items()}
        lay = layout(shapes, roles_of(shapes, self.kinds))
        rng = np.random.default_rng(lay.total)

        def drawn(example: np.ndarray, signed: bool) -> np.ndarray:
            if example.ndim != 2 or len(example) != len(example.T):
                return np.asarray(rng.standard_normal(example.shape))
            size = len(example)
            values = np.linspace(1, 3, size) * ((-1.0) ** np.arange(size) if signed else 1.0)
            basis = np.linalg.qr(rng.standard_normal((size, size)))[0]
            matrix: np.ndarray = (basis * values) @ basis.T
            return matrix

        return [
            {
                need.name: map_arrays(
                    partial(drawn, signed=need.name == "hessian"), need.example(model_of(lay))
                )
                for need in self.rule.needs
            }
            for _ in range(steps)
        ]

    def path(self, params: Arrays, grads: list[Arrays], hyper: Hyper) -> list[Arrays]:
        """Return the path of the plain loop on every parameter, in the form of `curvebench.replay`."""
        needs = self.needs(params, len(grads))
        options = {name: value for name, value in self.rule.chosen.items() if name != HELD}
        arguments = options if needs is None else {**options, "needs": needs}
        if self.rule.scope == "named":
            return list(self.loop(params, grads, hyper, **arguments))
        roles = roles_of({name: value.shape for name, value in params.items()}, self.kinds)
        if self.rule.scope == "model":
            lay = layout({name: value.shape for name, value in params.items()}, roles)
            whole = [lay.flatten(OPS, arrays, 0) for arrays in (params, *grads)]
            path = self.loop(Leaf("vector", whole[0], whole[1:]), hyper, **arguments)
            return [lay.unflatten(OPS, point) for point in path]
        paths = {
            name: list(self.loop(Leaf(roles[name].kind, value, [g[name] for g in grads]), hyper, **options))
            for name, value in params.items()
        }
        return [{name: path[step] for name, path in paths.items()} for step in range(len(grads))]
