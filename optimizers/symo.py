"""SymO: the inverse root of the gradient's covariance, in the form that a network's symmetries give it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from curvebench.optimizers.isotypic import (
    GROUPS,
    IsotypicBlock,
    chain_of_layers,
    isotypic_blocks,
    parameters_of,
)
from curvebench.optimizers.layers import Layer, with_axes_of
from curvebench.optimizers.matrix_functions import inverse_root_product, rank_cutoff
from curvebench.optimizers.options import Option, OptionError, Options
from curvebench.optimizers.rule import (
    LEARNING_RATE,
    Array,
    Hyper,
    Hyperparameter,
    Ops,
    ParameterRole,
    Rule,
    configured,
    share,
)
from curvebench.spec.values import choice, flag

Arrays = Mapping[str, Array]


class BlockMoments(NamedTuple):
    moments: tuple[Array, ...]  # of each block (..., copies, copies), running mean of C, starts at 0


def preconditioned(
    ops: Ops,
    blocks: Sequence[IsotypicBlock],
    factors: Sequence[Array],
    matrices: Sequence[Array],
    cutoff: Any,
) -> tuple[Array, ...]:
    """C^(-1/2) M of each block, by the root of the pseudo-inverse (AMBIGUITIES 26).

    Args:
        factors: C, (..., copies, copies).
        matrices: M, (..., copies, columns).
        cutoff: eigenvalues of at most this share of their block's largest count as 0, a number or
            (..., 1, 1); where that is less, the size of rounding.
    """
    found = []
    for block, factor, matrix in zip(blocks, factors, matrices, strict=True):
        least = ops.maximum(cutoff + ops.zeros((1, 1)), rank_cutoff(ops, block.copies))
        found.append(inverse_root_product(ops, factor, matrix, 0.5, least))
    return tuple(found)


@dataclass(frozen=True)
class _Network:
    """The functions of the rule for one network.

    Args:
        layers: from inputs to outputs.
        blocks: of its parameters.
    """

    layers: tuple[Layer, ...]
    blocks: tuple[IsotypicBlock, ...]

    def init(self, ops: Ops, param: Arrays) -> BlockMoments:
        lanes = tuple(param[self.layers[0].weight].shape[:-2])
        return BlockMoments(tuple(ops.zeros((*lanes, block.copies, block.copies)) for block in self.blocks))

    def update(
        self, ops: Ops, grad: Arrays, state: BlockMoments, param: Arrays, hyper: Hyper
    ) -> tuple[dict[str, Array], BlockMoments]:
        """theta <- theta - alpha Sigma^(-1/2) g (004 Alg. 1; eqs. 1 and 4, 40-41 and 206).

        Each C is the running mean of the steps' with bias correction, 1 - beta_h^t (004 eqs. 192-194, of the
        shapes of AMBIGUITIES 23 and 50), of second moments: one model has no mean to subtract (AMBIGUITIES
        24).
        """
        matrices = [block.coordinates(ops, grad) for block in self.blocks]
        kept, step, cutoff = [
            with_axes_of(ops, hyper[name], matrices[0]) for name in ("factor_decay", "step", "cutoff")
        ]
        moments = [
            kept * before + (1 - kept) * block.second_moment(ops, matrix)
            for block, before, matrix in zip(self.blocks, state.moments, matrices, strict=True)
        ]
        # (C / c)^(-1/2) M is C^(-1/2) M sqrt(c), and M is smaller than C
        corrected = [matrix * ops.sqrt(1 - kept**step) for matrix in matrices]
        direction = parameters_of(
            ops, self.blocks, preconditioned(ops, self.blocks, moments, corrected, cutoff)
        )
        moved = {
            name: array - with_axes_of(ops, hyper["learning_rate"], array) * direction[name]
            for name, array in param.items()
        }
        return moved, BlockMoments(tuple(moments))


def _without_network(*_: Any) -> Any:
    raise OptionError("symo: sees the layers of a network, by for_model(shapes, roles)")


OPTIONS = {
    "group": Option(
        "signed",
        "the symmetries of the hidden units: signed (permutations with signs) where activations are odd or "
        "linear, such as tanh; permutations, all else, such as ReLU",
        choice(*GROUPS),
    ),
    "cross_layers": Option(
        True,
        "whether parameters of different layers, and weights and biases, are correlated; false: each "
        "parameter has factors of its own (Psi = 0)",
        flag,
    ),
    "precision": Option(
        "float64",
        "float64: float32 is refused, in which eigenvalues below 1e-5 of the largest are rounding and count "
        "as 0 whatever the cutoff, so that a network with inputs of very different sizes stops far from its "
        "minimum; any: float32 is accepted",
        choice("float64", "any"),
    ),
}


@configured("symo", OPTIONS)
def symo(chosen: Options) -> Rule:
    """The rule for some choices of its options, by name; the others have their defaults.

    The learning rate decays as alpha_0 beta^t (004 eq. 53, Table 2) by the study's schedule.

    In float32 rounding of C is 1e-7 of its largest eigenvalue times its size, and a step along a smaller one
    is noise. A linear network 20-12-6 whose inputs have a covariance with eigenvalues from 1e-5 to 1 comes
    to a loss of 2e-5 there, and in float64 to 6e-18 (beta 0.97, 400 steps; float64 with as large a cutoff:
    2e-5 too); with eigenvalues from 1e-2 on, or tanh, both come to the same.

    State: a matrix of copies x copies a block, for L = 2 and `signed` (d_0 + 1 + d_2)^2 + d_2^2 numbers.

    Raises:
        OptionError: from `for_model`, for anything but a multilayer network.
    """

    def for_model(shapes: Mapping[str, tuple[int, ...]], roles: Mapping[str, ParameterRole]) -> Rule:
        layers = chain_of_layers("symo", shapes, roles)
        functions = _Network(layers, isotypic_blocks(layers, chosen["group"], chosen["cross_layers"]))
        return replace(unbound, init=functions.init, update=functions.update, for_model=None)

    unbound = Rule(
        name="symo",
        source="004 Sec. 3.4, Alg. 1, eqs. 4, 37-41, 189-206; permutations: Theorem 3.2, Sec. J",
        hyperparameters={
            "learning_rate": LEARNING_RATE,
            "factor_decay": share("beta_h, the share of the factors kept", 0.95),
            "cutoff": Hyperparameter(
                "the share of its block's largest up to which an eigenvalue counts as 0; at least rounding",
                1e-10,
                0.0,
                1.0,
                high_open=True,
            ),
        },
        init=_without_network,
        update=_without_network,
        scope="named",
        for_model=for_model,
        dtypes=("float64", "float32") if chosen["precision"] == "any" else ("float64",),
    )
    return unbound


RULES = (symo({}),)
