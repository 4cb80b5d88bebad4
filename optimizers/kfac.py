"""K-FAC: each layer's gradient multiplied by the inverses of the Kronecker factors of its Fisher matrix.

For a layer of m outputs and n inputs (including a constant input 1 for a bias), W is the weight and b the
bias. A (n x n) is the second moment of the layer's inputs, and G (m x m) the second moment of the gradients
with respect to the layer's outputs. eta is the learning rate, mu the momentum, and lambda the damping.

In citations, 004 is Bernacchia (2025), "Global curvature for second-order optimization of neural networks"
(docs/sources.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from curvebench.optimizers.arrays import Array, Hyper, Ops, State, map_arrays
from curvebench.optimizers.layer_statistics import FISHERS, layers_need
from curvebench.optimizers.layers import Layer, layers_of, with_axes_of
from curvebench.optimizers.options import Option, OptionError, Options
from curvebench.optimizers.others import fallback, others_hyperparameters, others_option
from curvebench.optimizers.rule import (
    LEARNING_RATE,
    Hyperparameter,
    ParameterRole,
    Part,
    Rule,
    configured,
    share,
)
from curvebench.spec.values import choice, whole


class LayerFactors(NamedTuple):
    inputs: Array  # Second moment A of the layer's inputs, or the damped inverse of A, (..., n, n).
    # Second moment G of gradients with respect to the layer's outputs, or its damped inverse, (..., m, m).
    gradients: Array


class KFACState(NamedTuple):
    factors: tuple[LayerFactors, ...]  # Running sums of A and G for each layer; they start at 0.
    # Total weight of the values in the running sums, (..., 1), which starts at 0.
    # A running sum divided by the total weight is a mean.
    share: Array
    inverses: tuple[LayerFactors, ...]  # Damped inverses for each layer; they start at 0.
    velocities: tuple[Array, ...]  # Velocity of each layer, (..., m, n), which starts at 0.
    others: tuple[State, ...]  # States of the parameters that belong to no layer.


def damped_inverses(ops: Ops, factors: LayerFactors, damping: Array, balanced: bool) -> LayerFactors:
    """Return (A + a I)^-1 and (G + g I)^-1.

    Args:
        factors: A (..., n, n) and G (..., m, m).
        damping: lambda, (..., 1, 1).
        balanced: whether a = pi sqrt(lambda) and g = sqrt(lambda) / pi, where pi^2 is the mean eigenvalue of
            A divided by the mean eigenvalue of G (Martens and Grosse 2015, Sec. 6.3); otherwise a = g =
            lambda.
    """
    added = (damping, damping)
    if balanced:
        # A mean eigenvalue is 0 if no gradient has reached the layer. In this case, pi is 1.
        means = [ops.mean(ops.diagonal(factor), axis=-1, keepdims=True)[..., None] for factor in factors]
        both_positive = (means[0] > 0) & (means[1] > 0)
        pi = ops.sqrt(ops.where(both_positive, means[0], 1.0) / ops.where(both_positive, means[1], 1.0))
        added = (pi * ops.sqrt(damping), ops.sqrt(damping) / pi)
    damped = (
        factor + shift * ops.eye(factor.shape[-1]) for factor, shift in zip(factors, added, strict=True)
    )
    return LayerFactors(*(ops.cholesky_inverse(ops.cholesky(matrix)) for matrix in damped))


@dataclass(frozen=True)
class _KFAC:
    """Functions of the rule, bound to the layers of one model.

    Args:
        layers: layers of the model.
        balanced: whether damping is divided between A and G by the ratio of their mean eigenvalues.
        from_first: whether the first values of A and G enter the running sums with the weight 1; otherwise
            they have the weight 1 - decay, like all later values.
        other: the fallback rule, for the parameters that belong to no layer.
    """

    layers: Sequence[Layer]
    balanced: bool
    from_first: bool
    other: Part

    def rest(self, param: Mapping[str, Array]) -> list[str]:
        """Return the names of the parameters that belong to no layer."""
        owned = {name for layer in self.layers for name in layer.parameters}
        return [name for name in param if name not in owned]

    def joined(self, ops: Ops, layer: Layer, arrays: Mapping[str, Array]) -> Array:
        """Return W as matrices (..., outputs, inputs), with b as last column if the layer has a bias."""
        weight = arrays[layer.weight]
        lanes = weight.shape[: weight.ndim - len(layer.shape)]
        matrix = ops.reshape(weight, (*lanes, layer.outputs, layer.inputs))
        return matrix if layer.bias is None else ops.concatenate([matrix, arrays[layer.bias][..., None]], -1)

    def parted(self, ops: Ops, layer: Layer, matrix: Array) -> dict[str, Array]:
        """Return W and b by name from a matrix with b as its last column, the inverse of `joined`."""
        weight = ops.reshape(matrix[..., : layer.inputs], (*matrix.shape[:-2], *layer.shape))
        return {layer.weight: weight} | ({} if layer.bias is None else {layer.bias: matrix[..., -1]})

    def init(self, ops: Ops, param: Mapping[str, Array]) -> KFACState:
        joined = [self.joined(ops, layer, param) for layer in self.layers]
        lanes = joined[0].shape[:-2]

        def squares() -> tuple[LayerFactors, ...]:
            return tuple(
                LayerFactors(*(ops.zeros((*lanes, size, size)) for size in matrix.shape[:-3:-1]))
                for matrix in joined
            )

        other_states = tuple(self.other.rule.init(ops, param[name]) for name in self.rest(param))
        velocities = tuple(map(ops.zeros_like, joined))
        return KFACState(squares(), ops.zeros((*lanes, 1)), squares(), velocities, other_states)

    def observe(self, ops: Ops, grad: Any, state: KFACState, hyper: Hyper) -> KFACState:
        """Update the running sums of A and G as decay * old sum + (1 - decay) * new value.

        If `from_first` is set, the first sums are the first values of A and G, as if the decay were 0 at the
        first call. The total weight is then 1 after every call, so that sums are means.
        """
        decay_per_lane = hyper["factor_decay"]
        if self.from_first:
            decay_per_lane = ops.where(state.share > 0, decay_per_lane, 0.0)
        decay = decay_per_lane[..., None]
        observed = tuple(LayerFactors(**hyper["layers"][layer.weight]) for layer in self.layers)
        factors = map_arrays(lambda old, new: decay * old + (1 - decay) * new, state.factors, observed)
        return state._replace(factors=factors, share=decay_per_lane * state.share + (1 - decay_per_lane))

    def refresh(self, ops: Ops, grad: Any, state: KFACState, hyper: Hyper) -> KFACState:
        """Compute the damped inverses of the running means."""
        share, damping = state.share[..., None], hyper["damping"][..., None]
        means = map_arrays(lambda factor: factor / share, state.factors)
        inverses = tuple(damped_inverses(ops, mean, damping, self.balanced) for mean in means)
        return state._replace(inverses=inverses)

    def update(
        self, ops: Ops, grad: Mapping[str, Array], state: KFACState, param: Mapping[str, Array], hyper: Hyper
    ) -> tuple[dict[str, Array], KFACState]:
        """Do a step of K-FAC for each layer, and a step of the fallback rule for each other parameter.

        K-FAC: v <- mu v + G^-1 [dW db] A^-1, then [W b] <- [W b] - eta v, where dW and db are the gradients
        and the inverses are damped (Martens and Grosse 2015, Sec. 6). Weight decay shrinks [W b] first.
        """
        rate = hyper["learning_rate"]
        gradients = [self.joined(ops, layer, grad) for layer in self.layers]
        velocities = tuple(
            hyper["momentum"][..., None] * velocity + inverse.gradients @ gradient @ inverse.inputs
            for velocity, inverse, gradient in zip(state.velocities, state.inverses, gradients, strict=True)
        )
        shrinkage = 1 - rate * hyper["weight_decay"]
        new: dict[str, Array] = {}
        for layer, velocity in zip(self.layers, velocities, strict=True):
            for name, step in self.parted(ops, layer, rate[..., None] * velocity).items():
                new[name] = param[name] * with_axes_of(ops, shrinkage, param[name]) - step
        other, other_states = self.other.rule, []
        for name, other_state in zip(self.rest(param), state.others, strict=True):
            other_hyper = self._others_hyper(ops, hyper, param[name])
            new[name], new_state = other.update(ops, grad[name], other_state, param[name], other_hyper)
            other_states.append(new_state)
        state = state._replace(velocities=velocities, others=tuple(other_states))
        return {name: new[name] for name in param}, state

    def _others_hyper(self, ops: Ops, hyper: Hyper, param: Array) -> dict[str, Array]:
        """Return the hyperparameters of the fallback rule, reshaped to broadcast against `param`."""
        values = self.other.hyper(hyper) | {"step": hyper["step"], "schedule": hyper["schedule"]}
        return {name: with_axes_of(ops, value, param) for name, value in values.items()}


def _without_model(*arguments: Any) -> Any:
    raise OptionError("the rule is for the layers of a network: bind it by `for_model`")


OPTIONS = {
    "fisher": Option(
        "sampled",
        "whose gradients make G: sampled, of targets drawn from the model; expected, of all of them, by a "
        "backward pass for each output; empirical, of the data's targets; empirical_of_mean, the same for "
        "the mean loss, 1 / N^2 of it for N examples",
        choice(*FISHERS),
    ),
    "first_factors": Option(
        "corrected",
        "how the running means of A and G start: corrected, from 0 and divided by the weight of the values "
        "so far; kept, from the first A and G as they are, which keep a share of factor_decay a step",
        choice("corrected", "kept"),
    ),
    "factors_every": Option(1, "steps between two statistics of the layers", whole(1)),
    "inverses_every": Option(1, "steps between two computations of the inverses", whole(1)),
    "others": others_option("parameters that belong to no linear layer or convolution"),
}


def _rule(name: str, source: str, chosen: Options, *, balanced: bool, decay: float, momentum: float) -> Rule:
    """Return a variant of the K-FAC rule, whose `for_model` builds the rule for the layers of a model.

    Args:
        balanced: whether damping is divided between A and G by the ratio of their mean eigenvalues.
        decay, momentum: defaults of `factor_decay` and `momentum`.
    """
    other = fallback(chosen["others"])

    def for_model(shapes: Mapping[str, tuple[int, ...]], roles: Mapping[str, ParameterRole]) -> Rule:
        layers = layers_of(shapes, roles)
        if not layers:
            raise OptionError(
                f"{name}: the model has no weight matrix and no convolution ({', '.join(shapes)}); it is for "
                "networks whose parameters have the roles weight, bias and convolution"
            )
        functions = _KFAC(layers, balanced, chosen["first_factors"] == "kept", other)
        return replace(
            whole_rule,
            init=functions.init,
            update=functions.update,
            observe=functions.observe,
            refresh=functions.refresh,
        )

    whole_rule = Rule(
        name=name,
        source=source,
        hyperparameters={
            "learning_rate": LEARNING_RATE,
            "damping": Hyperparameter(
                "lambda; added to both factors: "
                + ("sqrt(lambda), balanced by their traces" if balanced else "lambda itself"),
                1e-3,
                0.0,
                low_open=True,
            ),
            "factor_decay": share("the share of the factors kept at a step that observes", decay),
            "momentum": share("mu, the share of the velocity kept", momentum),
            "weight_decay": Hyperparameter("multiplied by the learning rate", 0.0, 0.0),
            **others_hyperparameters(other),
        },
        init=_without_model,
        update=_without_model,
        observe=_without_model,
        refresh=_without_model,
        observe_every=chosen["factors_every"],
        refresh_every=chosen["inverses_every"],
        scope="named",
        needs=(layers_need(chosen["fisher"]),),
        for_model=for_model,
    )
    return whole_rule


@configured("kfac", OPTIONS)
def kfac(chosen: Options) -> Rule:
    """Return the update rule of K-FAC; options that are not given keep their defaults.

    The module `layer_statistics` defines A and G. By default, their running sums are divided by the total
    weight of the values in the sum, so that the first means are not biased towards 0. The state of a layer
    with m outputs and n inputs has 2 m^2 + 2 n^2 + m n numbers.
    """
    source = "004 Sec. 4, Table 2; Martens and Grosse 2015"
    return _rule("kfac", source, chosen, balanced=True, decay=0.95, momentum=0.9)


AS_004 = {
    **OPTIONS,
    "fisher": replace(OPTIONS["fisher"], default="empirical_of_mean"),
    "first_factors": replace(OPTIONS["first_factors"], default="kept"),
}


@configured("kfac_as_004", AS_004)
def kfac_as_004(chosen: Options) -> Rule:
    """Return K-FAC as in the figures of 004: empirical Fisher, with G from gradients of the mean loss.

    For N examples, this G is the usual G divided by N^2. Damping therefore dominates, because lambda itself
    is added to both A and G. The running means start with the A and G of the first step, and then are 0.9 of
    the old mean plus 0.1 of the new value. After ten further steps, the first value has a weight of 0.35.
    """
    source = "004 Figs. 5, 6, Table 2 (their public notebooks)"
    return _rule("kfac_as_004", source, chosen, balanced=False, decay=0.9, momentum=0.0)


RULES = (kfac({}), kfac_as_004({}))
