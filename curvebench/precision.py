"""Precision policies of runs, and the table of array functions that a model's loss is given under one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from curvebench.arrays.ops import Array, Ops
from curvebench.optimizers.state_precision import HALF
from curvebench.spec.errors import InputError, unknown
from curvebench.spec.values import Precision


@dataclass(frozen=True)
class Policy:
    """What a run computes in; a study names one by a word.

    Args:
        computed: of update rules, hyperparameters, norms, softmax, losses and batch statistics.
        parameters: what parameters are held in between steps, and what their gradients have.
        products: of the model's linear layers, convolutions, attention and matrix products; what a rule needs
            besides the gradient is always evaluated in `computed`.
    """

    computed: Precision
    parameters: str
    products: str


POLICIES = {
    "float64": Policy("float64", "float64", "float64"),
    "float32": Policy("float32", "float32", "float32"),
    "tf32": Policy("float32", "float32", "tf32"),
    "mixed": Policy("float32", "float32", HALF),
    "bfloat16": Policy("float32", HALF, HALF),
}


def policy_of(word: str) -> Policy:
    """The policy of a word that a study or a caller names.

    Raises:
        InputError: for an unknown one.
    """
    if word not in POLICIES:
        raise InputError(unknown("the harness", "precision", word, POLICIES))
    return POLICIES[word]


def table_of_model(ops: Ops, policy: Policy) -> Ops:
    """The table that a model's loss and metrics are given: the backend's, or one with products in half."""
    return HalfProducts(ops, policy) if policy.products == HALF else ops  # type: ignore[return-value]


# Functions of the table by the precision of what enters and of what they give.
PRODUCTS = ("linear", "linear_layers", "matmul", "conv2d", "attention")  # half precision, both
WIDE = ("softmax", "log_softmax", "logsumexp", "log_sigmoid")  # the table's, both
# Computed in the table's, and given in that of the first argument: XLA's own sums of half precision are in
# that. Statistics of a batch stay in the table's.
NORMS = ("layer_norm", "batch_norm", "batch_norm_in_training")
NARROWED = ("gelu", "silu", "tanh", "sigmoid", "average_pool2d", *NORMS)


def _converting(name: str) -> Callable[..., Any]:
    """The function of this name, its arrays cast as they enter, and its first result as it leaves."""

    def computed(self: HalfProducts, x: Array, *arguments: Any, **options: Any) -> Any:
        def cast(value: Any) -> Any:
            if isinstance(value, Sequence):
                return [cast(each) for each in value]
            if not hasattr(value, "dtype"):  # an option, or no array
                return value
            return self.ops.cast(value, HALF) if name in PRODUCTS else self.ops.astype_float(value)

        by_name = {option: cast(value) for option, value in options.items()}
        found = getattr(self.ops, name)(*map(cast, (x, *arguments)), **by_name)
        if name not in NARROWED:
            return found
        first, *others = found if isinstance(found, tuple) else (found,)
        narrow = self.ops.cast_like(first, x)
        return (narrow, *others) if others else narrow

    return computed


@dataclass(frozen=True)
class HalfProducts:
    """A table whose `linear`, `conv2d`, `attention` and `matmul` take and give bfloat16.

    Norms and activations are computed in the precision of the backend's table and give that of what enters;
    softmax and its logarithms stay wide, and losses with them. A product by Python's `@` is as its operands.

    Args:
        ops: the backend's table.
        policy: of the run.
    """

    ops: Ops
    policy: Policy

    def __getattr__(self, name: str) -> Any:
        return getattr(self.ops, name)

    def asarray(self, x: Any) -> Array:
        """As the backend's; reals in the precision of parameters."""
        return self.ops.cast(self.ops.asarray(x), self.policy.parameters)


for _name in (*PRODUCTS, *WIDE, *NARROWED):
    setattr(HalfProducts, _name, _converting(_name))
