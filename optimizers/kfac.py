"""K-FAC: each layer's gradient between the inverses of the two Kronecker factors of its Fisher matrix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from curvebench.optimizers.layer_statistics import FISHERS, layers_need
from curvebench.optimizers.layers import Layer, layers_of, with_axes_of
from curvebench.optimizers.options import Option, OptionError, Options
from curvebench.optimizers.others import OTHERS, others_hyperparameters, others_option
from curvebench.optimizers.rule import (
    LEARNING_RATE,
    Array,
    Hyper,
    Hyperparameter,
    Ops,
    ParameterRole,
    Rule,
    State,
    configured,
    map_arrays,
    share,
)
from curvebench.spec.values import choice, whole


class LayerFactors(NamedTuple):
    inputs: Array  # A or its inverse, (..., n, n); n counts a bias
    gradients: Array  # G or its inverse, (..., m, m)


class KFACState(NamedTuple):
    factors: tuple[LayerFactors, ...]  # of each layer: running sums of A and G, start at 0
    share: Array  # of statistics in these sums, (..., 1), starts at 0: what the running means are divided by
    inverses: tuple[LayerFactors, ...]  # of each layer: damped inverses, start at 0
    velocities: tuple[Array, ...]  # of each layer (..., m, n), start at 0
    others: tuple[State, ...]  # of the parameters that belong to no layer


def damped_inverses(ops: Ops, factors: LayerFactors, damping: Array, balanced: bool) -> LayerFactors:
    """Return (A + a I)^-1 and (G + g I)^-1.

    Args:
        factors: A (..., n, n) and G (..., m, m).
        damping: lambda, (..., 1, 1).
        balanced: whether a = pi sqrt(lambda) and g = sqrt(lambda) / pi with pi^2 the mean eigenvalue of A
            over that of G (Martens and Grosse 2015, Sec. 6.3); otherwise a = g = lambda.
    """
    added = (damping, damping)
    if balanced:
        # An average of 0, as where no gradient has come through, gives pi = 1.
        means = [ops.mean(ops.diagonal(factor), axis=-1, keepdims=True)[..., None] for factor in factors]
        known = (means[0] > 0) & (means[1] > 0)
        pi = ops.sqrt(ops.where(known, means[0], 1.0) / ops.where(known, means[1], 1.0))
        added = (pi * ops.sqrt(damping), ops.sqrt(damping) / pi)
    damped = (
        factor + shift * ops.eye(factor.shape[-1]) for factor, shift in zip(factors, added, strict=True)
    )
    return LayerFactors(*(ops.cholesky_inverse(ops.cholesky(one)) for one in damped))


@dataclass(frozen=True)
class _KFAC:
    """The functions of the rule for one model.

    Args:
        layers: of the model.
        balanced: whether damping is split between the factors, as in `damped_inverses`.
        other: the rule of the parameters that belong to no layer.
    """

    layers: Sequence[Layer]
    balanced: bool
    other: Rule

    def rest(self, param: Mapping[str, Array]) -> list[str]:
        """The parameters that belong to no layer."""
        owned = {name for layer in self.layers for name in layer.parameters}
        return [name for name in param if name not in owned]

    def joined(self, ops: Ops, layer: Layer, arrays: Mapping[str, Array]) -> Array:
        """W as outputs x inputs with b as its last column, (..., m, n)."""
        weight = arrays[layer.weight]
        lanes = weight.shape[: weight.ndim - len(layer.shape)]
        matrix = ops.reshape(weight, (*lanes, layer.outputs, layer.inputs))
        return matrix if layer.bias is None else ops.concatenate([matrix, arrays[layer.bias][..., None]], -1)

    def parted(self, ops: Ops, layer: Layer, matrix: Array) -> dict[str, Array]:
        """The inverse of `joined`."""
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

        others = tuple(self.other.init(ops, param[name]) for name in self.rest(param))
        velocities = tuple(map(ops.zeros_like, joined))
        return KFACState(squares(), ops.zeros((*lanes, 1)), squares(), velocities, others)

    def observe(self, ops: Ops, grad: Any, state: KFACState, hyper: Hyper) -> KFACState:
        """Running sums of A and G, each decay times the old and 1 - decay times the new."""
        kept = hyper["factor_decay"]
        decay = kept[..., None]
        observed = tuple(LayerFactors(**hyper["layers"][layer.weight]) for layer in self.layers)
        factors = map_arrays(lambda old, new: decay * old + (1 - decay) * new, state.factors, observed)
        return state._replace(factors=factors, share=kept * state.share + (1 - kept))

    def refresh(self, ops: Ops, grad: Any, state: KFACState, hyper: Hyper) -> KFACState:
        """The damped inverses of the running means."""
        share, damping = state.share[..., None], hyper["damping"][..., None]
        means = map_arrays(lambda factor: factor / share, state.factors)
        inverses = tuple(damped_inverses(ops, mean, damping, self.balanced) for mean in means)
        return state._replace(inverses=inverses)

    def update(
        self, ops: Ops, grad: Mapping[str, Array], state: KFACState, param: Mapping[str, Array], hyper: Hyper
    ) -> tuple[dict[str, Array], KFACState]:
        """[W b] <- [W b] - eta v with v <- mu v + G^-1 [dW db] A^-1 (Martens and Grosse 2015, Sec. 6)."""
        rate = hyper["learning_rate"]
        gradients = [self.joined(ops, layer, grad) for layer in self.layers]
        velocities = tuple(
            hyper["momentum"][..., None] * velocity + inverse.gradients @ gradient @ inverse.inputs
            for velocity, inverse, gradient in zip(state.velocities, state.inverses, gradients, strict=True)
        )
        kept = 1 - rate * hyper["weight_decay"]
        new: dict[str, Array] = {}
        for layer, velocity in zip(self.layers, velocities, strict=True):
            for name, step in self.parted(ops, layer, rate[..., None] * velocity).items():
                new[name] = param[name] * with_axes_of(ops, kept, param[name]) - step
        others = []
        for name, held in zip(self.rest(param), state.others, strict=True):
            own = self._others_hyper(ops, hyper, param[name])
            new[name], after = self.other.update(ops, grad[name], held, param[name], own)
            others.append(after)
        state = state._replace(velocities=velocities, others=tuple(others))
        return {name: new[name] for name in param}, state

    def _others_hyper(self, ops: Ops, hyper: Hyper, param: Array) -> dict[str, Array]:
        """The other rule's hyperparameters, with as many axes as a parameter."""
        given = {name: hyper[f"others_{name}"] for name in self.other.hyperparameters}
        given["learning_rate"] = given["learning_rate"] * hyper["schedule"]
        given |= {"step": hyper["step"], "schedule": hyper["schedule"]}
        return {name: with_axes_of(ops, value, param) for name, value in given.items()}


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
    "factors_every": Option(1, "steps between two statistics of the layers", whole(1)),
    "inverses_every": Option(1, "steps between two computations of the inverses", whole(1)),
    "others": others_option("parameters that belong to no linear layer or convolution"),
}


def _rule(name: str, source: str, chosen: Options, *, balanced: bool, decay: float, momentum: float) -> Rule:
    """Return the rule of a name: how it damps, and the defaults of `factor_decay` and `momentum`."""
    other = OTHERS[chosen["others"]]

    def for_model(shapes: Mapping[str, tuple[int, ...]], roles: Mapping[str, ParameterRole]) -> Rule:
        layers = layers_of(shapes, roles)
        if not layers:
            raise OptionError(
                f"{name}: the model has no weight matrix and no convolution ({', '.join(shapes)}); it is for "
                "networks whose parameters have the roles weight, bias and convolution"
            )
        functions = _KFAC(layers, balanced, other)
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
    """The rule for some choices of its options, by name; the others have their defaults.

    A and G are those of `layer_statistics`; running means are divided by the share of statistics in them, so
    that the first is whole. State: 2 m^2 + 2 n^2 + m n numbers for an m x n layer.
    """
    source = "004 Sec. 4, Table 2; Martens and Grosse 2015"
    return _rule("kfac", source, chosen, balanced=True, decay=0.95, momentum=0.9)


AS_004 = {**OPTIONS, "fisher": replace(OPTIONS["fisher"], default="empirical_of_mean")}


@configured("kfac_as_004", AS_004)
def kfac_as_004(chosen: Options) -> Rule:
    """K-FAC as the figures of 004 ran it: empirical, its G from gradients of the mean loss.

    That G is N^-2 of the usual one for N examples, so that the damping outweighs it: lambda is added to both
    factors as it is.
    """
    source = "004 Figs. 5, 6, Table 2 (their public notebooks)"
    return _rule("kfac_as_004", source, chosen, balanced=False, decay=0.9, momentum=0.0)


RULES = (kfac({}), kfac_as_004({}))
