"""Statistics of a network's layers: of what enters them, and of the gradients of what leaves them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import numpy as np

from curvebench.optimizers.layers import Layer, layers_of
from curvebench.optimizers.needs import GUIDE, Array, Arrays, LossAtPoint, Model, Need, Ops, TargetLikelihood
from curvebench.optimizers.options import OptionError

FISHERS = ("sampled", "expected", "empirical", "empirical_of_mean")


def draw_targets(
    likelihood: TargetLikelihood, generator: np.random.Generator, shape: tuple[int, ...]
) -> np.ndarray:
    """What targets of a model are made of, of the shape of its outputs.

    Of a categorical distribution Gumbel noise, beside which the greatest logit is a draw; else normal noise.
    """
    if likelihood.family == "categorical":
        return generator.gumbel(size=shape)
    return generator.standard_normal(shape)


def sampled_residuals(ops: Ops, likelihood: TargetLikelihood, outputs: Array, draws: Array) -> Array:
    """Gradients of the negative log-likelihood of drawn targets with respect to outputs (..., C)."""
    if likelihood.family == "gaussian":
        return draws
    target = ops.argmax(outputs + draws, -1)
    is_target = target[..., None] == ops.arange(outputs.shape[-1])
    return ops.softmax(outputs, -1) - ops.astype_float(is_target)


def expected_residuals(ops: Ops, likelihood: TargetLikelihood, outputs: Array) -> list[Array]:
    """Residuals r_c, each (..., C), whose sum of r_c r_c^T is the Fisher matrix of each example's outputs.

    Of a categorical distribution sqrt(p_c) (p - e_c), whose sum is diag(p) - p p^T; else e_c.
    """
    classes = outputs.shape[-1]
    units = ops.eye(classes)
    if likelihood.family == "gaussian":
        return [ops.zeros_like(outputs) + units[c] for c in range(classes)]
    shares = ops.softmax(outputs, -1)
    return [ops.sqrt(shares[..., c : c + 1]) * (shares - units[c]) for c in range(classes)]


def as_rows(ops: Ops, x: Array) -> Array:
    """What enters or leaves a layer (..., n) as rows (rows, n)."""
    return ops.reshape(x, (-1, x.shape[-1]))


def channels_last(ops: Ops, images: Array) -> Array:
    """Images (N, C, H, W) as (N, H, W, C)."""
    return ops.swapaxes(ops.swapaxes(images, 1, 2), 2, 3)


def patches(ops: Ops, x: Array, shape: tuple[int, ...], stride: Any, padding: Any) -> Array:
    """What each position of a convolution of images (N, C, H, W) sees, (N, H', W', C h w).

    Args:
        shape: of its weight, (outputs, C, h, w).
        stride, padding: as `ops.conv2d` takes them.
    """
    inputs = math.prod(shape[1:])
    unit = ops.reshape(ops.eye(inputs), (inputs, *shape[1:]))
    return channels_last(ops, ops.conv2d(x, unit, stride, padding))


def second_moment_of_rows(ops: Ops, rows: Array, with_one: bool = False) -> Array:
    """The sum of a a^T over rows a (N, n), each with a 1 at its end for a bias if so.

    Put together of its parts: a copy of all rows with the ones would take as long as the product.
    """
    squares = ops.matrix_transpose(rows) @ rows
    if not with_one:
        return squares
    sums = ops.sum(rows, axis=0, keepdims=True)
    last = ops.concatenate([sums, ops.full_like(sums[:, :1], rows.shape[0])], -1)
    return ops.concatenate([ops.concatenate([squares, sums], 0), ops.matrix_transpose(last)], -1)


def scale_of_mean_loss(fisher: str, examples: int) -> float:
    """What the sum of g g^T is multiplied with to give G, for gradients g of a mean over examples."""
    return 1 / examples if fisher == "empirical_of_mean" else examples


@dataclass
class TappedOps:
    """A table of array functions whose `linear`, `linear_layers` and `conv2d` observe the layers of one run.

    A weight is known by being the very array that `parameters` holds. What enters a layer is summed as it
    passes; the gradient of what leaves it comes with the gradient of its slot.

    Args:
        ops: the backend's table.
        parameters: by name.
        layers: that are observed.
        slots: zeros (outputs, outputs) by weight, whose gradients are the sums of g g^T over rows g.
        sums, rows: of a a^T over the rows a that have entered each layer, and their number.
    """

    ops: Ops
    parameters: Arrays
    layers: Sequence[Layer]
    slots: Arrays
    sums: dict[str, Array] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.ops, name)

    def linear(self, x: Array, weight: Array, bias: Array | None = None) -> Array:
        """As the backend's, observed."""
        y = self.ops.linear(x, weight, bias)
        layer = self._layer(weight, bias)
        return y if layer is None else self._observed(layer, x, y)

    def linear_layers(self, x: Array, weights: Sequence[Array]) -> Array:
        """As the backend's, one layer after the other, each observed."""
        for weight in weights:
            x = self.linear(x, weight)
        return x

    def conv2d(self, x: Array, weight: Array, stride: int = 1, padding: int = 0) -> Array:
        """As the backend's, observed; a row is what one position sees."""
        y = self.ops.conv2d(x, weight, stride, padding)
        layer = self._layer(weight, None)
        if layer is None:
            return y
        seen = patches(self.ops, self.ops.stop_gradient(x), layer.shape, stride, padding)
        observed = self._observed(layer, seen, channels_last(self.ops, y))
        return self.ops.swapaxes(self.ops.swapaxes(observed, 2, 3), 1, 2)

    def means(self) -> dict[str, Array]:
        """A of each weight, the mean of a a^T over what entered.

        Raises:
            OptionError: for a weight that entered no layer.
        """
        for layer in self.layers:
            if layer.weight not in self.sums:
                raise OptionError(
                    f"the weight {layer.weight!r} never enters ops.linear or ops.conv2d by itself, so that "
                    f"its layer cannot be observed; use them in the loss, or give it another role ({GUIDE})"
                )
        return {weight: total / self.rows[weight] for weight, total in self.sums.items()}

    def _name(self, array: Array | None) -> str | None:
        return next((name for name, value in self.parameters.items() if value is array), None)

    def _layer(self, weight: Array, bias: Array | None) -> Layer | None:
        name = self._name(weight)
        layer = next((layer for layer in self.layers if layer.weight == name), None)
        if layer is not None and self._name(bias) != layer.bias:
            found = "no bias" if bias is None else f"the bias {self._name(bias)!r}"
            wanted = "none" if layer.bias is None else repr(layer.bias)
            raise OptionError(
                f"the weight {name!r} enters its layer with {found}, and by the workload's roles its bias is "
                f"{wanted}; add it in ops.linear, or mend the roles ({GUIDE})"
            )
        return layer

    def _observed(self, layer: Layer, entering: Array, y: Array) -> Array:
        ops = self.ops
        rows = as_rows(ops, ops.stop_gradient(entering))
        second = second_moment_of_rows(ops, rows, layer.bias is not None)
        known = layer.weight in self.sums
        self.sums[layer.weight] = self.sums[layer.weight] + second if known else second
        self.rows[layer.weight] = self.rows.get(layer.weight, 0) + rows.shape[0]

        def observe(gradient: Array) -> Array:
            return second_moment_of_rows(ops, as_rows(ops, gradient))

        return ops.tap(observe, y, self.slots[layer.weight])


def layer_statistics(at: LossAtPoint, fisher: str) -> dict[str, dict[str, Array]]:
    """The Kronecker factors of each layer's Fisher matrix, by weight.

    A, `inputs`, is the mean of a a^T over the rows that enter (examples, and positions in them), with a 1 at
    their end where there is a bias. G, `gradients`, is the mean over examples of the sum of g g^T over an
    example's rows, for the gradient g of its negative log-likelihood with respect to what leaves. Their
    Kronecker product is exact for a layer whose rows are independent of their gradients ("expand",
    Eschenhagen et al. 2023).

    Args:
        at: the loss of one run.
        fisher: the targets of the likelihood: `sampled` from the model, one a step; `expected` over it,
            exactly, for C backward passes; `empirical`, those of the data; or `empirical_of_mean`, with g
            that of the mean over examples, 1 / N^2 of it.

    Raises:
        OptionError: where the workload does not say the likelihood that is needed, or a weight enters no
            layer.
    """
    ops, layers = at.ops, layers_of(at.model.shapes, at.model.roles)
    likelihood = at.likelihood
    empirical = fisher.startswith("empirical")
    layers_need(fisher).check_likelihood("statistics of layers", likelihood)

    def passed(slots: Arrays) -> tuple[Array, dict[str, Array]]:
        table = TappedOps(ops, at.parameters, layers, slots)
        seen_by = at.loss_by if empirical else at.outputs
        assert seen_by is not None, "a workload with a likelihood has outputs"
        value = seen_by(table, at.parameters)
        return value, table.means()

    slots = {layer.weight: ops.zeros((layer.outputs, layer.outputs)) for layer in layers}
    value, pullback, inputs = at.derivatives.vjp(passed, slots, at.alone)
    if empirical or likelihood is None:
        scale = scale_of_mean_loss(fisher, at.examples)
        scale = scale / (1.0 if likelihood is None else likelihood.scale)
        residuals = [ops.ones_like(value)]
    else:
        scale = likelihood.scale / at.examples
        if fisher == "sampled":
            residuals = [sampled_residuals(ops, likelihood, value, at.draws)]
        else:
            residuals = expected_residuals(ops, likelihood, value)
    sums = [pullback(residual) for residual in residuals]
    return {
        weight: {"inputs": mean, "gradients": scale * sum(one[weight] for one in sums)}
        for weight, mean in inputs.items()
    }


def _size(layer: Layer) -> int:
    """The rows of a layer's A."""
    return layer.inputs + (layer.bias is not None)


def _example(model: Model) -> dict[str, dict[str, np.ndarray]]:
    return {
        layer.weight: {"inputs": np.eye(_size(layer)), "gradients": np.eye(layer.outputs)}
        for layer in layers_of(model.shapes, model.roles)
    }


def _entries(model: Model) -> int:
    return sum(_size(layer) ** 2 + layer.outputs**2 for layer in layers_of(model.shapes, model.roles))


def _passes(fisher: str, model: Model) -> int:
    """The backward passes of the statistics: of the exact expectation one an output."""
    return layers_of(model.shapes, model.roles)[-1].outputs if fisher == "expected" else 1


@cache
def layers_need(fisher: str) -> Need:
    """The need of the statistics of layers, which `hyper` holds as `layers` at the steps that observe."""
    return Need(
        name="layers",
        description="statistics of the layers",
        evaluate=partial(layer_statistics, fisher=fisher),
        gradient_evaluations=partial(_passes, fisher),
        entries=_entries,
        example=_example,
        amortized=True,
        draw=draw_targets if fisher == "sampled" else None,
        of_likelihood="" if fisher.startswith("empirical") else f"fisher: {fisher} (empirical does without)",
        is_mean=fisher != "empirical_of_mean",  # 1 / N^2 of a sum over N examples
    )


def fisher_of(needs: Sequence[Need]) -> str | None:
    """Whose gradients make G, where the statistics of layers are all that is needed; else None."""
    return next((fisher for fisher in FISHERS if tuple(needs) == (layers_need(fisher),)), None)
