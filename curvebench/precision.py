"""Precision policies of runs, and the table of array functions that a model's loss is given under one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from curvebench.backends.ops import Array, Ops
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


def _wide(name: str) -> Callable[..., Any]:
    """A function computed in the table's precision, its result in that too."""

    def computed(self: HalfProducts, x: Array, *arguments: Any, **options: Any) -> Array:
        return getattr(self.ops, name)(self.ops.astype_float(x), *arguments, **options)

    return computed


def _computed_wide(name: str) -> Callable[..., Any]:
    """A function computed in the table's precision, its result in that of its first argument."""

    def computed(self: HalfProducts, x: Array, *arguments: Any) -> Array:
        return self.ops.cast_like(getattr(self.ops, name)(self.ops.astype_float(x), *arguments), x)

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

    softmax, log_softmax, logsumexp, log_sigmoid = map(
        _wide, ("softmax", "log_softmax", "logsumexp", "log_sigmoid")
    )
    gelu, silu, tanh, sigmoid = map(_computed_wide, ("gelu", "silu", "tanh", "sigmoid"))
    average_pool2d = _computed_wide("average_pool2d")  # XLA's own sum of half precision is in that

    def __getattr__(self, name: str) -> Any:
        return getattr(self.ops, name)

    def asarray(self, x: Any) -> Array:
        """As the backend's; reals in the precision of parameters."""
        return self.ops.cast(self.ops.asarray(x), self.policy.parameters)

    def _half(self, array: Array) -> Array:
        return self.ops.cast(array, HALF)

    def linear(self, x: Array, weight: Array, bias: Array | None = None) -> Array:
        """As the backend's, in half precision."""
        return self.ops.linear(self._half(x), self._half(weight), None if bias is None else self._half(bias))

    def linear_layers(self, x: Array, weights: Sequence[Array]) -> Array:
        """As the backend's, in half precision."""
        return self.ops.linear_layers(self._half(x), [self._half(weight) for weight in weights])

    def matmul(self, x: Array, y: Array) -> Array:
        """As the backend's, in half precision."""
        return self.ops.matmul(self._half(x), self._half(y))

    def conv2d(self, x: Array, weight: Array, stride: int = 1, padding: int = 0) -> Array:
        """As the backend's, in half precision."""
        return self.ops.conv2d(self._half(x), self._half(weight), stride, padding)

    def attention(self, query: Array, key: Array, value: Array, causal: bool = False) -> Array:
        """As the backend's, its products in half precision and its softmax wide."""
        return self.ops.attention(self._half(query), self._half(key), self._half(value), causal)

    def layer_norm(self, x: Array, scale: Array, shift: Array, epsilon: float) -> Array:
        """As the backend's, computed wide."""
        wide = self.ops.astype_float
        return self.ops.cast_like(self.ops.layer_norm(wide(x), wide(scale), wide(shift), epsilon), x)

    def batch_norm(
        self, x: Array, mean: Array, variance: Array, scale: Array, shift: Array, epsilon: float
    ) -> Array:
        """As the backend's, computed wide."""
        wide = self.ops.astype_float
        normalized = self.ops.batch_norm(wide(x), mean, variance, wide(scale), wide(shift), epsilon)
        return self.ops.cast_like(normalized, x)

    def batch_norm_in_training(
        self, x: Array, scale: Array, shift: Array, epsilon: float
    ) -> tuple[Array, Array, Array]:
        """As the backend's, computed wide; the statistics stay so."""
        wide = self.ops.astype_float
        normalized, mean, variance = self.ops.batch_norm_in_training(
            wide(x), wide(scale), wide(shift), epsilon
        )
        return self.ops.cast_like(normalized, x), mean, variance
