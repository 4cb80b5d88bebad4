"""The entry to PyTorch: an update rule, by name, as an optimizer of its own library."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from curvebench.interop import chosen, refuse_needs
from curvebench.interop.torch_layer_optimizer import LayerRuleOptimizer
from curvebench.interop.torch_optimizer import RuleOptimizer
from curvebench.optimizers import Rule
from curvebench.optimizers.layer_statistics import fisher_of
from curvebench.optimizers.options import Options
from curvebench.spec.errors import InputError


def as_torch(
    rule: str | Rule,
    params: Iterable[Any],
    options: Options | None = None,
    kinds: Mapping[str, str] | None = None,
    model: Any = None,
    **hyper: float,
) -> RuleOptimizer:
    """An update rule as a `torch.optim.Optimizer`.

    A group's keys are `lr`, the learning rate, and the other hyperparameters by name; all may be changed
    between steps. A group given here may have its own, and a `kind` of its parameters. The ratio of `lr` to
    the learning rate that was given is the schedule, which multiplies every learning rate of the rule, such
    as muon's `others_learning_rate`.

    Each parameter has its own state and count of steps, and one without a gradient is passed over. A rule
    that sees the whole model sees the parameters of a group as one vector: those that have a gradient at the
    group's first step, and must then have one at every step. One that sees layers, such as symo, takes their
    order for that of the layers, and needs the kind of each bias, unless the names are a module's, such as
    `0.weight` and `0.bias`.

    A rule on statistics of layers, such as kfac, is a `LayerRuleOptimizer` (curvebench/interop/
    torch_layer_optimizer.py), which takes the layers from the model and says how it is used.

    Args:
        rule: a registered name, or a rule.
        params: tensors, (name, tensor) pairs, or groups (dicts) of either, in float32 or float64.
        options: the rule's options by name; what is left out has its default.
        kinds: by parameter name, what a parameter is inside the model: `weight`, `bias`, `convolution`,
            `norm`, `embedding`, `head` or `vector`. Of parameters left out, `NAME.bias` beside a
            `NAME.weight` is a bias, else the number of axes says it.
        model: the `torch.nn.Module` whose layers are observed, for rules on statistics of layers; others do
            not look at it.
        hyper: hyperparameters by full name; what has a default, or is in every group, may be left out.

    Returns:
        The optimizer. Where the rule takes its gradient elsewhere than at the parameters, `step` needs a
        closure.

    Raises:
        InputError: for a rule that needs the Hessian, or statistics that hooks cannot give, an unknown name,
            a wrong value, or a parameter that rules cannot update.
    """
    rule = chosen(rule, options)
    fisher = fisher_of(rule.needs)
    if fisher is None:
        refuse_needs(rule, "an optimizer of PyTorch")
        return RuleOptimizer(rule, params, kinds or {}, hyper)
    if model is None:
        raise InputError(
            f"{rule.name} needs statistics of the layers: give as_torch the module that has them, model=..."
        )
    if fisher == "expected":
        raise InputError(
            f"{rule.name}: fisher: expected needs a backward pass for each output of the model; run it in a "
            "study, or choose sampled, whose targets you draw, or empirical, which needs none"
        )
    return LayerRuleOptimizer(rule, params, kinds or {}, hyper, model)
