"""SymO: gradients multiplied by the inverse root of their covariance, which a network's symmetries simplify.

g is the gradient of all parameters theta, Sigma its covariance, and alpha the learning rate. The module
`isotypic` defines the blocks into which the symmetries divide Sigma. In each block, Sigma is given by one
small matrix C, and the coordinates of g are a matrix M.

In citations, 004 is Bernacchia (2025), "Global curvature for second-order optimization of neural networks"
(docs/sources.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from curvebench.optimizers.arrays import Array, Hyper, Ops
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
from curvebench.optimizers.rule import LEARNING_RATE, Hyperparameter, ParameterRole, Rule, configured, share
from curvebench.spec.values import choice, flag

Arrays = Mapping[str, Array]


class BlockMoments(NamedTuple):
    # Running mean of C for each block, (..., copies, copies); it starts at 0.
    moments: tuple[Array, ...]


def preconditioned(
    ops: Ops,
    blocks: Sequence[IsotypicBlock],
    factors: Sequence[Array],
    matrices: Sequence[Array],
    cutoff: Any,
) -> tuple[Array, ...]:
    """Return C^(-1/2) M of each block, with the pseudo-inverse of a singular C, since 004 has no damping.

    Args:
        factors: C, (..., copies, copies).
        matrices: M, (..., copies, columns).
        cutoff: eigenvalues of C count as 0 up to this share of the largest eigenvalue of C, and at least up
            to the size of rounding errors. A number or (..., 1, 1).
    """
    products = []
    for block, factor, matrix in zip(blocks, factors, matrices, strict=True):
        relative_cutoff = ops.maximum(cutoff + ops.zeros((1, 1)), rank_cutoff(ops, block.copies))
        products.append(inverse_root_product(ops, factor, matrix, 0.5, relative_cutoff))
    return tuple(products)


@dataclass(frozen=True)
class _Network:
    """Functions of the rule for one network.

    Args:
        layers: layers from inputs to outputs.
        blocks: isotypic blocks of the parameters.
    """

    layers: tuple[Layer, ...]
    blocks: tuple[IsotypicBlock, ...]

    def init(self, ops: Ops, param: Arrays) -> BlockMoments:
        lanes = tuple(param[self.layers[0].weight].shape[:-2])
        return BlockMoments(tuple(ops.zeros((*lanes, block.copies, block.copies)) for block in self.blocks))

    def update(
        self, ops: Ops, grad: Arrays, state: BlockMoments, param: Arrays, hyper: Hyper
    ) -> tuple[dict[str, Array], BlockMoments]:
        """Do a step of SymO: theta <- theta - alpha Sigma^(-1/2) g (004 Alg. 1; eqs. 1, 4, 40-41 and 206).

        Each C is a running mean over the steps of M M^T / multiplicity, with the bias correction 1 -
        beta_h^t (004 eqs. 192-194, with the shapes of the index forms, eqs. 38 and 39). C is a second moment
        and not a covariance: the mean that 004 eq. 3 subtracts is a mean over models, and there is a single
        model.
        """
        matrices = [block.coordinates(ops, grad) for block in self.blocks]
        decay, step, cutoff = [
            with_axes_of(ops, hyper[name], matrices[0]) for name in ("factor_decay", "step", "cutoff")
        ]
        moments = [
            decay * moment + (1 - decay) * block.second_moment(ops, matrix)
            for block, moment, matrix in zip(self.blocks, state.moments, matrices, strict=True)
        ]
        # Bias correction divides C by a number c. Multiplying M by sqrt(c) is equivalent and cheaper.
        corrected = [matrix * ops.sqrt(1 - decay**step) for matrix in matrices]
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
    """Return the update rule of SymO; options that are not given keep their defaults.

    The learning rate decays as alpha_0 beta^t (004 eq. 53, Table 2) by the study's schedule.

    In float32, rounding errors of C are 1e-7 times the size of C times its largest eigenvalue. A step along
    an eigenvector whose eigenvalue is smaller than these errors is noise. For example, a linear network
    20-12-6 whose inputs have a covariance with eigenvalues from 1e-5 to 1 reaches a loss of 2e-5 in float32,
    and of 6e-18 in float64 (beta 0.97, 400 steps). With the cutoff of float32, float64 reaches 2e-5 too. If
    the eigenvalues are from 1e-2 to 1, or with tanh, both precisions reach the same loss.

    The state has a matrix (copies, copies) for each block. For two layers and `signed`, with d_0 inputs and
    d_2 outputs, it has (d_0 + 1 + d_2)^2 + d_2^2 numbers.

    Raises:
        OptionError: from `for_model`, if the model is not a multilayer network.
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
