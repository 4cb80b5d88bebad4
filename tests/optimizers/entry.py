"""An entry of the battery: a rule with hyperparameters, its plain loop, its oracles and its traits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import numpy as np

from curvebench.arrays.numpy_ops import numpy_ops
from curvebench.optimizers import rules
from curvebench.optimizers.rule import Rule, map_arrays
from curvebench.steps.derivatives import model_of
from curvebench.steps.layout import layout, roles_of
from tests.optimizers.loops import Hyper, Leaf
from tests.optimizers.oracles import Arrays, Oracle

Symmetry = Literal["orthogonal", "signed_permutation", "sides"]
OPS = numpy_ops("float64")
HELD = "state_precision"  # the option of many rules that has tests of its own, in float32


@dataclass(frozen=True)
class Entry:
    """A rule with options in the battery.

    Args:
        loop: the rule as a plain loop on one leaf; on all parameters as one vector where its scope is
            `model`; where it is `named`, `loop(params, grads, hyper, **options)` on all by name. With
            `needs`, one a step, where it needs some.
        hyper: every hyperparameter, none at its default.
        symmetry: the changes of coordinates that its path goes along with: `orthogonal` of all parameters
            together, `signed_permutation` of them, or `sides`, orthogonal along each axis of a tensor; None
            where it has none of these.
        options: what was chosen, where it differs from the defaults.
        still: the values at which a zero gradient moves nothing; epsilon is 0 among them.
        still_tolerance: how far rounding may move parameters then, relative and absolute.
        shapes, kinds: of the parameters of a model that it is for; None where it takes any.
        start: brings random numbers to where the rule can begin, such as a simplex.
        scale_free: the values at which the scale of gradients does not matter; None where it always does.
        pytorch, optax: the same algorithm elsewhere; None where there is none.
        tolerance: how near paths in float64 come to the loop, relative and absolute.
        tolerance_float32: the same in float32.
        optimizer: the rule's name, with which its label in the table begins; the table fills it in.
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
    optimizer: str = ""

    @property
    def rule(self) -> Rule:
        """The rule with the options."""
        return rules()[self.optimizer].choose(self.options)

    def shapes_or(self, shapes: Mapping[str, tuple[int, ...]]) -> Mapping[str, tuple[int, ...]]:
        """The parameters that it is tried on: these where it takes any."""
        return shapes if self.shapes is None else self.shapes

    def begun(self, params: Arrays) -> Arrays:
        """Parameters where the rule can begin."""
        return {name: self.start(value) for name, value in params.items()}

    def needs(self, params: Arrays, steps: int) -> list[dict[str, Any]] | None:
        """Of each step what the rule needs besides, symmetric matrices; None where that is nothing.

        Hessians have eigenvalues of both signs and sizes from 1 to 3, factors of layers positive ones. They
        follow from the number of parameters and steps alone: rule and loop are given the same.
        """
        if not self.rule.needs:
            return None
        shapes = {name: value.shape for name, value in params.items()}
        lay = layout(shapes, roles_of(shapes, self.kinds))
        rng = np.random.default_rng(lay.total)

        def drawn(example: np.ndarray, signed: bool) -> np.ndarray:
            size = len(example)
            values = np.linspace(1, 3, size) * ((-1.0) ** np.arange(size) if signed else 1.0)
            basis = np.linalg.qr(rng.standard_normal((size, size)))[0]
            found: np.ndarray = (basis * values) @ basis.T
            return found

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
        """The plain loop on every parameter, in the form of `curvebench.replay`."""
        needs = self.needs(params, len(grads))
        told = {name: value for name, value in self.rule.chosen.items() if name != HELD}
        given = told if needs is None else {**told, "needs": needs}
        if self.rule.scope == "named":
            return list(self.loop(params, grads, hyper, **given))
        roles = roles_of({name: value.shape for name, value in params.items()}, self.kinds)
        if self.rule.scope == "model":
            lay = layout({name: value.shape for name, value in params.items()}, roles)
            whole = [lay.flatten(OPS, one, 0) for one in (params, *grads)]
            path = self.loop(Leaf("vector", whole[0], whole[1:]), hyper, **given)
            return [lay.unflatten(OPS, point) for point in path]
        paths = {
            name: list(self.loop(Leaf(roles[name].kind, value, [g[name] for g in grads]), hyper, **told))
            for name, value in params.items()
        }
        return [{name: path[step] for name, path in paths.items()} for step in range(len(grads))]
