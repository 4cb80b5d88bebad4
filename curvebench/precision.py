"""Precision policies of runs, and array functions that compute products in half precision.

Models and update rules call array functions such as `ops.matmul` of a table `ops` (`curvebench.arrays.ops`),
which each backend defines. For a policy with products in bfloat16, `HalfProducts` wraps this table.
"""

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
    """Number formats of a run. A study chooses a policy by its name in `POLICIES`.

    Args:
        computed: format in which update rules, norms, softmax, losses and batch statistics are computed, and
            format of hyperparameters.
        parameters: format in which parameters are stored between steps, and format of the gradients of
            parameters.
        products: format in which the model's linear layers, convolutions, attention and matrix products are
            computed. Statistics that an update rule needs in addition to the gradient always have the format
            `computed`.
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
    """Return the policy that has the name `word` in `POLICIES`.

    Raises:
        InputError: if the name is unknown.
    """
    if word not in POLICIES:
        raise InputError(unknown("curvebench", "precision", word, POLICIES))
    return POLICIES[word]


def table_of_model(ops: Ops, policy: Policy) -> Ops:
    """Return the array functions of a model's loss and metrics: `ops`, or `ops` with products in bfloat16."""
    return HalfProducts(ops, policy) if policy.products == HALF else ops  # type: ignore[return-value]


# Names of the array functions that take and return half precision (bfloat16).
PRODUCTS = ("linear", "linear_layers", "matmul", "conv2d", "attention")
# Names of the array functions that take and return the format `Policy.computed`.
WIDE = ("softmax", "log_softmax", "logsumexp", "log_sigmoid")
# Names of array functions that compute in the format `Policy.computed`.
# These functions convert the result to the format of the first argument.
# (XLA would sum half-precision numbers in half precision.)
# `batch_norm_in_training` also returns batch statistics, which are not converted.
NORMS = ("layer_norm", "batch_norm", "batch_norm_in_training")
NARROWED = ("gelu", "silu", "tanh", "sigmoid", "average_pool2d", *NORMS)


def _converting(name: str) -> Callable[..., Any]:
    """Return a method of `HalfProducts` for an array function.

    The method converts its arrays, calls the function `name` of the wrapped table, and converts the result.
    """

    def computed(self: HalfProducts, x: Array, *arguments: Any, **options: Any) -> Any:
        def cast(value: Any) -> Any:
            if isinstance(value, Sequence):
                return [cast(item) for item in value]
            if not hasattr(value, "dtype"):  # not an array, but an option such as an axis
                return value
            return self.ops.cast(value, HALF) if name in PRODUCTS else self.ops.astype_float(value)

        by_name = {option: cast(value) for option, value in options.items()}
        result = getattr(self.ops, name)(*map(cast, (x, *arguments)), **by_name)
        if name not in NARROWED:
            return result
        first, *more = result if isinstance(result, tuple) else (result,)
        narrow = self.ops.cast_like(first, x)
        return (narrow, *more) if more else narrow

    return computed


@dataclass(frozen=True)
class HalfProducts:
    """Array functions of a backend in which matrix products and convolutions take and return bfloat16.

    Norms and activations compute in the format `Policy.computed` and return the format of their first
    argument. Softmax, its logarithms, and losses take and return the format `Policy.computed`. A product
    written with Python's `@` has the format of its operands.

    Args:
        ops: array functions of the backend.
        policy: policy of the run.
    """

    ops: Ops
    policy: Policy

    def __getattr__(self, name: str) -> Any:
        return getattr(self.ops, name)

    def asarray(self, x: Any) -> Array:
        """Convert `x` to an array of the backend. Real numbers get the format of parameters."""
        return self.ops.cast(self.ops.asarray(x), self.policy.parameters)


for _name in (*PRODUCTS, *WIDE, *NARROWED):
    setattr(HalfProducts, _name, _converting(_name))
