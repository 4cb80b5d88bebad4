"""Statistics of a network's layers: the Kronecker factors A and G of each layer's Fisher matrix.

A is the second moment of the layer's inputs a, and G the second moment of the gradients g with respect to the
layer's outputs. In shapes, N is the number of examples and C the number of outputs of the model (classes).
Images have C channels of H x W pixels. The inputs of a layer are (rows, n), with one row for each example and
position.
"""

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
    """Draw the random numbers from which targets of a model are sampled, in the shape of its outputs.

    For a categorical distribution the numbers are Gumbel noise: the index of the largest sum of logit and
    noise is a sample. For a Gaussian distribution the numbers are standard normal.
    """
    if likelihood.family == "categorical":
        return generator.gumbel(size=shape)
    return generator.standard_normal(shape)


def sampled_residuals(ops: Ops, likelihood: TargetLikelihood, outputs: Array, draws: Array) -> Array:
    """Return the gradients, with respect to the outputs, of the negative log-likelihood of sampled targets.

    Args:
        likelihood: distribution of the targets.
        outputs: outputs of the model, (..., C).
        draws: random numbers for the samples, as `draw_targets` returns them, (..., C).
    """
    if likelihood.family == "gaussian":
        return draws
    target = ops.argmax(outputs + draws, -1)
    is_target = target[..., None] == ops.arange(outputs.shape[-1])
    return ops.softmax(outputs, -1) - ops.astype_float(is_target)


def expected_residuals(ops: Ops, likelihood: TargetLikelihood, outputs: Array) -> list[Array]:
    """Return residuals whose outer products sum to the Fisher matrix of each example's outputs.

    There is one residual r_c, (..., C), for each of C outputs. For a categorical distribution with
    probabilities p, r_c = sqrt(p_c) (p - e_c), where e_c is a unit vector, and sum_c r_c r_c^T = diag(p) -
    p p^T. For a Gaussian distribution, r_c = e_c.
    """
    classes = outputs.shape[-1]
    units = ops.eye(classes)
    if likelihood.family == "gaussian":
        return [ops.zeros_like(outputs) + units[c] for c in range(classes)]
    shares = ops.softmax(outputs, -1)
    return [ops.sqrt(shares[..., c : c + 1]) * (shares - units[c]) for c in range(classes)]


def as_rows(ops: Ops, x: Array) -> Array:
    """Reshape the inputs or outputs of a layer (..., n) to rows (rows, n)."""
    return ops.reshape(x, (-1, x.shape[-1]))


def channels_last(ops: Ops, images: Array) -> Array:
    """Transpose images (N, C, H, W) to (N, H, W, C)."""
    return ops.swapaxes(ops.swapaxes(images, 1, 2), 2, 3)


def patches(ops: Ops, x: Array, shape: tuple[int, ...], stride: Any, padding: Any) -> Array:
    """Return the input patch of each output position of a convolution, (N, H', W', C h w).

    Args:
        x: images, (N, C, H, W).
        shape: shape of the weight, (outputs, C, h, w). The output images have H' x W' positions.
        stride, padding: arguments of `ops.conv2d`.
    """
    inputs = math.prod(shape[1:])
    unit = ops.reshape(ops.eye(inputs), (inputs, *shape[1:]))
    return channels_last(ops, ops.conv2d(x, unit, stride, padding))


def second_moment_of_rows(ops: Ops, rows: Array, with_one: bool = False) -> Array:
    """Return the sum of a a^T over the rows a of a matrix (N, n).

    With an appended 1, the result is put together from four blocks, because copying all rows to append the 1
    would take as long as the matrix product.

    Args:
        with_one: whether a 1 is appended to each row, for a bias.
    """
    squares = ops.matrix_transpose(rows) @ rows
    if not with_one:
        return squares
    sums = ops.sum(rows, axis=0, keepdims=True)
    last = ops.concatenate([sums, ops.full_like(sums[:, :1], rows.shape[0])], -1)
    return ops.concatenate([ops.concatenate([squares, sums], 0), ops.matrix_transpose(last)], -1)


def scale_of_mean_loss(fisher: str, examples: int) -> float:
    """Return the number c for which G is c times the sum of g g^T, for gradients g of the mean loss."""
    return 1 / examples if fisher == "empirical_of_mean" else examples


@dataclass
class TappedOps:
    """Array functions that record, in `linear`, `linear_layers` and `conv2d`, the statistics of layers.

    A weight is recognized by identity: it must be the same array as in `parameters`. The sum of a a^T over a
    layer's inputs a is computed in the forward pass. The backward pass returns the sum of g g^T, over the
    gradients g with respect to the layer's outputs, as the gradient of an additional argument, the layer's
    slot.

    Args:
        ops: the array functions of the backend.
        parameters: parameters by name.
        layers: layers whose statistics are recorded.
        slots: zeros (outputs, outputs) by weight, whose gradients are the sums of g g^T over rows g.
        sums, rows: by weight, the sum of a a^T over the rows a that have entered the layer, and the number of
            these rows.
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
        """Apply a linear layer and record its statistics."""
        y = self.ops.linear(x, weight, bias)
        layer = self._layer(weight, bias)
        return y if layer is None else self._observed(layer, x, y)

    def linear_layers(self, x: Array, weights: Sequence[Array]) -> Array:
        """Apply linear layers one after the other and record the statistics of each."""
        for weight in weights:
            x = self.linear(x, weight)
        return x

    def conv2d(self, x: Array, weight: Array, stride: int = 1, padding: int = 0) -> Array:
        """Apply a convolution and record its statistics; a row is the input patch of one position."""
        y = self.ops.conv2d(x, weight, stride, padding)
        layer = self._layer(weight, None)
        if layer is None:
            return y
        inputs = patches(self.ops, self.ops.stop_gradient(x), layer.shape, stride, padding)
        observed = self._observed(layer, inputs, channels_last(self.ops, y))
        return self.ops.swapaxes(self.ops.swapaxes(observed, 2, 3), 1, 2)

    def means(self) -> dict[str, Array]:
        """Return A for each weight, the mean of a a^T over the rows that entered its layer.

        Raises:
            OptionError: for a weight that has not entered `linear` or `conv2d`.
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
            passed = "no bias" if bias is None else f"the bias {self._name(bias)!r}"
            usual = "none" if layer.bias is None else repr(layer.bias)
            raise OptionError(
                f"the weight {name!r} enters its layer with {passed}, and by the workload's roles its bias "
                f"is {usual}; add it in ops.linear, or mend the roles ({GUIDE})"
            )
        return layer

    def _observed(self, layer: Layer, entering: Array, y: Array) -> Array:
        ops = self.ops
        rows = as_rows(ops, ops.stop_gradient(entering))
        second = second_moment_of_rows(ops, rows, layer.bias is not None)
        is_known = layer.weight in self.sums
        self.sums[layer.weight] = self.sums[layer.weight] + second if is_known else second
        self.rows[layer.weight] = self.rows.get(layer.weight, 0) + rows.shape[0]

        def observe(gradient: Array) -> Array:
            return second_moment_of_rows(ops, as_rows(ops, gradient))

        return ops.tap(observe, y, self.slots[layer.weight])


def layer_statistics(at: LossAtPoint, fisher: str) -> dict[str, dict[str, Array]]:
    """Return the Kronecker factors of each layer's Fisher matrix, by the name of its weight.

    A, under the key `inputs`, is the mean of a a^T over the rows a that enter the layer, one for each example
    and position, with a 1 appended if the layer has a bias. G, under the key `gradients`, is the mean over
    examples of the sum of g g^T over the rows of an example. g is the gradient of the example's negative
    log-likelihood with respect to the layer's outputs. The Kronecker product of A and G is the exact Fisher
    matrix if the rows a are independent of the gradients g ("expand", Eschenhagen et al. 2023).

    Args:
        at: the loss of one run.
        fisher: the targets in the log-likelihood. `sampled`: one sample per step from the model's
            distribution of targets. `expected`: the exact expectation over this distribution, by C backward
            passes. `empirical`: the targets of the data. `empirical_of_mean`: the targets of the data, with g
            as the gradient of the mean over examples, which divides G by N^2.

    Raises:
        OptionError: if the likelihood is needed and the workload does not declare it, or if a weight enters
            no layer.
    """
    ops, layers = at.ops, layers_of(at.model.shapes, at.model.roles)
    likelihood = at.likelihood
    empirical = fisher.startswith("empirical")
    layers_need(fisher).check_likelihood("statistics of layers", likelihood)

    def passed(slots: Arrays) -> tuple[Array, dict[str, Array]]:
        table = TappedOps(ops, at.parameters, layers, slots)
        observed_function = at.loss_by if empirical else at.outputs
        assert observed_function is not None, "a workload with a likelihood has outputs"
        value = observed_function(table, at.parameters)
        return value, table.means()

    slots = {layer.weight: ops.zeros((layer.outputs, layer.outputs)) for layer in layers}
    value, pullback, inputs = at.derivatives.vjp(passed, slots, at.unbatched)
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
        weight: {"inputs": mean, "gradients": scale * sum(moment[weight] for moment in sums)}
        for weight, mean in inputs.items()
    }


def _size(layer: Layer) -> int:
    """Return the number of rows of a layer's A: one per input, and one for a bias."""
    return layer.inputs + (layer.bias is not None)


def _example(model: Model) -> dict[str, dict[str, np.ndarray]]:
    """Return an example of the statistics of all layers: identity matrices with the shapes of A and G."""
    return {
        layer.weight: {"inputs": np.eye(_size(layer)), "gradients": np.eye(layer.outputs)}
        for layer in layers_of(model.shapes, model.roles)
    }


def _entries(model: Model) -> int:
    """Return the number of floats in the statistics of all layers."""
    return sum(_size(layer) ** 2 + layer.outputs**2 for layer in layers_of(model.shapes, model.roles))


def _passes(fisher: str, model: Model) -> int:
    """Return the number of backward passes: one per output for `expected`, otherwise one."""
    return layers_of(model.shapes, model.roles)[-1].outputs if fisher == "expected" else 1


@cache
def layers_need(fisher: str) -> Need:
    """Return the need (a value that a rule uses besides the gradient) for the statistics of layers.

    The function `observe` of a rule reads the statistics as `hyper["layers"]`.
    """
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
        # With `empirical_of_mean`, G has a factor 1 / N^2 for N examples, and is not a mean over examples.
        is_mean=fisher != "empirical_of_mean",
    )


def fisher_of(needs: Sequence[Need]) -> str | None:
    """Return the kind of targets (an element of FISHERS) of a rule that needs only statistics of layers.

    The result is None if `needs` has no entry, or any other entry than the statistics of layers.
    """
    return next((fisher for fisher in FISHERS if tuple(needs) == (layers_need(fisher),)), None)
