"""`as_torch`, and the optimizer for rules that need statistics of layers, such as K-FAC.

Such a rule needs, for each layer, second moments of the layer's inputs and of the gradients of its outputs.
Hooks on the user's module record inputs and gradients. A hook on the call of the model starts an
`ObservedCall`. A hook on the call of each layer stores the layer's inputs, and registers a hook on the output
tensor, which receives the gradient in the backward pass. The outer products of inputs and of gradients are
summed (`LayerSums`). At the next step, the rule gets statistics that are computed from these sums.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from curvebench.interop import chosen, refuse_needs
from curvebench.interop.torch_layers import LayerSums, ModuleLayer, first_tensor, layer_sums, module_layers
from curvebench.interop.torch_optimizer import Batch, Form, RuleOptimizer, in_full_precision, ops_of
from curvebench.optimizers import Rule
from curvebench.optimizers.layer_statistics import fisher_of
from curvebench.optimizers.layers import LAYER_KINDS, layers_of
from curvebench.optimizers.options import Options
from curvebench.spec.errors import InputError
from curvebench.steps.update import Work
from curvebench.workloads.workload import Role

NO_LAYER = -1  # value of `Role.layer` for a parameter that belongs to no layer


@dataclass(frozen=True, eq=False)
class ObservedCall:
    """A call of the model whose backward pass may provide statistics for the next step.

    Args:
        examples: number of examples in the inputs of the call.
        layers: numbers of the layers whose statistics the next step uses.
    """

    examples: int
    layers: frozenset[int]


class WeakHook:
    """A hook of a module that calls a method of an optimizer without keeping the optimizer in memory.

    In a copy of the module, or after the optimizer was deleted, the hook does nothing.

    Args:
        method: the bound method; None for a hook that does nothing.
    """

    def __init__(self, method: Any = None) -> None:
        self.method: Any = weakref.WeakMethod(method) if method else lambda: None

    # Exclude hooks from torch.compile, as PyTorch does for methods of torch.optim.
    # Compiled hooks of gradients were called for the wrong layer.
    @torch._disable_dynamo  # type: ignore[untyped-decorator]
    def __call__(self, *arguments: Any) -> Any:
        method = self.method()
        return method(*arguments) if method else None

    def __reduce__(self) -> Any:
        return WeakHook, ()


class LayerRuleOptimizer(RuleOptimizer):
    """A rule that needs statistics of layers as an optimizer of PyTorch; made by `as_torch`.

    **Layers** are the `Linear` and `Conv2d` modules of the model whose weight is among the parameters, with
    their bias if it is in the same group. The optimizer that the rule's option `others` names updates all
    other parameters. The same optimizer updates a layer whose weight gets another kind, such as `embedding`,
    by `kinds` or by the parameter group. Each parameter group must have at least one layer, because the rule
    is applied to each group separately.

    **Statistics** are computed from the inputs of the layers and the gradients of their outputs, in the
    backward passes since the last step. The passes must go through a call of the model as a whole; passes by
    `torch.autograd.grad` count as well. Only some steps use new statistics (option `factors_every`), and
    statistics are computed only before these steps. The loss must be a mean over examples. The number of
    examples is the length of the first axis of the first tensor that enters the model. With several backward
    passes before a step, the sum of their losses must be a mean over the examples of all passes.

    With `fisher: empirical`, the statistics come from the passes that compute the gradients, and `zero_grad`
    clears gradients and statistics. With `fisher: sampled`, the statistics come from passes in the context
    `observing`:

        outputs = model(inputs)
        if optimizer.observes:
            samples = torch.distributions.Categorical(logits=outputs.detach()).sample()
            with optimizer.observing():
                cross_entropy(outputs, samples).backward(retain_graph=True)
        cross_entropy(outputs, targets).backward()
        optimizer.step()

    Checkpoints contain no statistics, since they are written after a step.

    Args:
        rule: the rule.
        params: tensors, (name, tensor) pairs, or parameter groups.
        kinds: a mapping from names of parameters to kinds.
        hyper: hyperparameters by full name.
        model: the module whose layers provide the statistics.
    """

    def __init__(
        self,
        rule: Rule,
        params: Iterable[Any],
        kinds: Mapping[str, str],
        hyper: Mapping[str, float],
        model: Any,
    ) -> None:
        self._find_layers(model)
        super().__init__(rule, params, kinds, hyper)
        self._register_hooks()

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "model": self.model}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        # PyTorch also calls `__setstate__` to load a checkpoint. The state then contains no model.
        if "model" in state:
            self._find_layers(state["model"])
            self._register_hooks()

    @property
    def updated_by(self) -> dict[str, str]:
        """Mapping from the name of each parameter in the model to the name of the rule that updates it.

        The rule of this optimizer updates the weights and biases of layers. The rule that the option `others`
        names updates all other parameters. Frozen parameters are left out.
        """
        names = {param: name for name, param in self.model.named_parameters()}
        others = self.rule.chosen.get("others", self.rule.name)
        rules_by_name = {}
        for group in self.param_groups:
            trained = {
                str(number): param for number, param in enumerate(group["params"]) if param.requires_grad
            }
            shapes = {key: tuple(param.shape) for key, param in trained.items()}
            roles = {key: self._kind(group, int(key), shape) for key, shape in shapes.items()}
            in_layers = {name for layer in layers_of(shapes, roles) for name in layer.parameters}
            for key, param in trained.items():
                name = names.get(param) or self._name(group, int(key))
                rules_by_name[name] = self.rule.name if key in in_layers else others
        return rules_by_name

    @property
    def observes(self) -> bool:
        """Whether the next step uses new statistics, which backward passes before the step must provide."""
        return bool(self._layers_to_observe())

    @contextmanager
    def observing(self) -> Iterator[None]:
        """Return a context in which backward passes provide statistics, but do not change gradients.

        Use this context with `fisher: sampled`, once per step. The loss must be the mean over examples of the
        negative log-likelihood of targets that are sampled from the model.

        Raises:
            InputError: when the rule's option `fisher` is not `sampled`, so that ordinary backward passes
                provide statistics.
        """
        if not self._samples:
            raise InputError(
                f"{self.rule.name}: fisher: {self._fisher} is observed in the ordinary backward pass; "
                "observing() is for fisher: sampled"
            )
        params = (param for group in self.param_groups for param in group["params"])
        gradients = {param: param.grad for param in (*self.model.parameters(), *params)}
        for param in gradients:
            param.grad = None
        self._is_observing = True
        try:
            yield
        finally:
            self._is_observing = False
            for param, grad in gradients.items():
                param.grad = grad

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients. With `fisher: empirical`, also clear the statistics."""
        super().zero_grad(set_to_none)
        if not self._samples:
            self._forget()

    # --- which layers there are ----------------------------------------------------------------------

    def _find_layers(self, model: Any) -> None:
        """Find the layers of a model and the roles of their parameters.

        Raises:
            InputError: when `model` is not a module of PyTorch.
        """
        if not isinstance(model, torch.nn.Module):
            raise InputError(f"model is a torch.nn.Module, and not {type(model).__name__}")
        self.model, self._layers = model, module_layers(model)
        self._numbers = {layer.module: number for number, layer in enumerate(self._layers)}
        self._roles: dict[torch.Tensor, Role] = {}
        for number, layer in enumerate(self._layers):
            kinds: dict[str, Any] = {"weight": layer.kind, "bias": "bias"}
            params = dict(layer.module.named_parameters(recurse=False))
            self._roles |= {params[key]: Role(kind, number) for key, kind in kinds.items() if key in params}
        self._call: ObservedCall | None = None
        self._is_observing = False
        self._forget()

    def _kind(self, group: Mapping[str, Any], number: int, shape: tuple[int, ...]) -> Role:
        role = self._roles.get(group["params"][number], Role("vector", NO_LAYER))
        return Role(self._declared_kind(group, number) or role.kind, role.layer)

    def _check(self, group: Mapping[str, Any], number: int, param: torch.Tensor) -> None:
        super()._check(group, number, param)
        role = self._kind(group, number, tuple(param.shape))
        if not _is_weight(role, param.shape):
            return
        if role.layer == NO_LAYER:
            raise InputError(
                f"{self._name(group, number)} is a {role.kind} by its kind, and belongs to no Linear or "
                f"Conv2d of the model, whose statistics {self.rule.name} needs; leave its kind out"
            )
        layer = self._layers[role.layer]
        if layer.refused is not None:
            raise InputError(
                f"the layer {layer.name!r} {layer.refused}: {self.rule.name} has no statistics of it; "
                f"{_how_to_leave_out(layer)}"
            )

    def _form_of(self, kinds: tuple[Any, ...], shapes: tuple[tuple[int, ...], ...]) -> Form:
        if not any(_is_weight(role, shape) for role, shape in zip(kinds, shapes, strict=True)):
            raise InputError(
                f"{self.rule.name}: a group of parameters of the shapes {', '.join(map(str, shapes))} has no "
                "weight of a Linear or Conv2d of the model; give them an optimizer of their own"
            )
        return super()._form_of(kinds, shapes)

    # --- statistics ----------------------------------------------------------------------------------

    @property
    def _fisher(self) -> str:
        fisher = fisher_of(self.rule.needs)
        assert fisher is not None, "as_torch uses this class only for rules with a Fisher matrix"
        return fisher

    @property
    def _samples(self) -> bool:
        return self._fisher == "sampled"

    def _forget(self) -> None:
        """Clear the statistics: the sums of each layer, and the observed calls that contributed to them."""
        self._sums: dict[int, LayerSums] = {}
        self._calls: dict[int, set[ObservedCall]] = {}

    def _register_hooks(self) -> None:
        for layer in self._layers:
            layer.module.register_forward_hook(WeakHook(self._after_layer), with_kwargs=True)
        self.model.register_forward_pre_hook(WeakHook(self._before_model), with_kwargs=True)
        self.model.register_forward_hook(WeakHook(self._after_model), always_call=True)

    def _layers_to_observe(self) -> frozenset[int]:
        """Return the numbers of the layers whose statistics the next step uses."""
        layers = set()
        for group in self.param_groups:
            for number, param in enumerate(group["params"]):
                role = self._kind(group, number, tuple(param.shape))
                observes = param.requires_grad and self._steps(param) % self.rule.observe_every == 0
                if observes and _is_weight(role, param.shape):
                    layers.add(role.layer)
        return frozenset(layers)

    def _before_model(self, module: Any, args: Any, kwargs: Any) -> None:
        """Start an observed call if the next step uses new statistics, and gradients are recorded."""
        layers = self._layers_to_observe() if torch.is_grad_enabled() else frozenset()
        if not layers:
            return
        first = first_tensor(args, kwargs)
        if first is None:
            raise InputError(f"no tensor enters the model, and {self.rule.name} counts its examples by one")
        self._call = ObservedCall(first.shape[0], layers)

    def _after_layer(self, module: Any, args: Any, kwargs: Any, output: torch.Tensor) -> None:
        """Register a hook for the gradient of a layer's output in an observed call."""
        call, number = self._call, self._numbers[module]
        x = first_tensor(args, kwargs)
        if call is not None and number in call.layers and output.requires_grad and x is not None:
            layer = self._layers[number]
            if x.ndim < (4 if layer.kind == "convolution" else 2):
                raise InputError(
                    f"the input of the layer {layer.name!r} has the shape {tuple(x.shape)} and no axis of "
                    f"examples, which {self.rule.name} counts; give the model a batch, or "
                    f"{_how_to_leave_out(layer)}"
                )
            # Register the hook on the tensor and not on the module.
            # The reason is that the output may be changed in place later.
            output.register_hook(partial(self._observe, call, number, x.detach()))

    def _after_model(self, module: Any, args: Any, output: Any) -> None:
        self._call = None

    def _observe(self, call: ObservedCall, number: int, x: torch.Tensor, gradient: torch.Tensor) -> None:
        """Add the outer products of one layer in one backward pass to the sums of the layer.

        Args:
            call: the call of the model.
            number: number of the layer.
            x: inputs of the layer.
            gradient: gradient of the loss with respect to the layer's output.
        """
        if self._samples and not self._is_observing:
            return
        layer = self._layers[number]
        weight = layer.module.weight
        with in_full_precision([weight.device.type]):
            new = layer_sums(ops_of(str(weight.device), weight.dtype), layer, x, gradient)
        self._sums[number] = self._sums[number].added(new) if number in self._sums else new
        self._calls.setdefault(number, set()).add(call)

    def _needed(self, form: Form, step: int) -> dict[str, Any]:
        lay = form.update.layout
        if not form.update.work_of(step) & Work.OBSERVE:
            return {}
        (need,) = self.rule.needs
        statistics = {}
        for layer in layers_of(lay.shapes, lay.roles):
            if layer.number not in self._sums:
                raise InputError(self._unobserved(self._layers[layer.number]))
            examples = sum(call.examples for call in self._calls[layer.number])
            statistics[layer.weight] = self._sums[layer.number].statistics(layer, self._fisher, examples)
        return {need.name: statistics}

    def _unobserved(self, layer: ModuleLayer) -> str:
        """Return the message for a step that needs statistics of a layer for which none were computed."""
        where = "inside `with optimizer.observing():`" if self._samples else "before the step"
        of = "targets that are sampled from the model" if self._samples else "the data"
        return (
            f"{self.rule.name}: this step observes, and the layer {layer.name!r} has no statistics: run the "
            f"backward pass of the loss on {of} {where}, through a call of the model as a whole; "
            f"if it is not called as a module, {_how_to_leave_out(layer)}"
        )

    def _advance(self, batch: Batch) -> None:
        super()._advance(batch)
        self._forget()  # `step` has read the statistics of all batches before its first update


def _is_weight(role: Role, shape: Sequence[int]) -> bool:
    """Return whether a parameter is the weight of a layer, by its kind and its number of axes."""
    return role.kind in LAYER_KINDS and len(shape) > 1


def _how_to_leave_out(layer: ModuleLayer) -> str:
    """Return the part of a message that says how to leave a layer without statistics to another rule."""
    return (
        f"leave it to the rule's others by another kind, such as kinds={{{layer.weight!r}: 'embedding'}}, "
        "or freeze it"
    )


def as_torch(
    rule: str | Rule,
    params: Iterable[Any],
    options: Options | None = None,
    kinds: Mapping[str, str] | None = None,
    model: Any = None,
    **hyper: float,
) -> RuleOptimizer:
    """Return an update rule as a `torch.optim.Optimizer`.

    A parameter group stores the learning rate as `lr` and the other hyperparameters by name. All values may
    be changed between steps, by a scheduler or by hand. A group in `params` may have its own hyperparameters,
    and a `kind` for its parameters. The current `lr` divided by the initial `lr` multiplies every learning
    rate of the rule, such as the rate of the fallback rule in Muon.

    Each parameter has its own state and its own number of steps. A parameter without a gradient is skipped.
    Rules that use the whole model, such as `adagrad_full`, update several parameters as one vector: all
    parameters of a group that have a gradient at the first step. The same parameters must have a gradient at
    every step. Rules that use layers, such as `symo`, assume that the parameters are in the order of the
    layers. These rules require the kind of each bias, unless the parameters have the names of a module, such
    as `0.weight` and `0.bias`.

    For rules that need statistics of layers, such as `kfac`, the result is a `LayerRuleOptimizer`, which
    finds the layers in `model`. The docstring of that class explains which calls are needed besides `step`.

    Args:
        rule: name of a registered rule, or a rule.
        params: tensors, (name, tensor) pairs, or parameter groups (dicts), in float32 or float64.
        options: a mapping from options of the rule to values. Omitted options have their defaults.
        kinds: a mapping from names of parameters to kinds in the model: `weight`, `bias`, `convolution`,
            `norm`, `embedding`, `head` or `vector`. An omitted parameter `NAME.bias` is a bias if there is a
            `NAME.weight`. For all other omitted parameters, the number of axes decides the kind.
        model: the `torch.nn.Module` whose layers provide statistics, for rules that need statistics of
            layers. Other rules ignore `model`.
        hyper: hyperparameters by full name. A hyperparameter may be omitted if it has a default, or a value
            in every group.

    Returns:
        The optimizer. The method `step` requires a closure if the rule takes the gradient at another point
        than the parameters.

    Raises:
        InputError: when the rule needs the Hessian, or statistics that hooks cannot give; when a name is
            unknown or a value wrong; or when the rule cannot update a parameter.

    Example:
        >>> import torch
        >>> from curvebench import as_torch
        >>> x = torch.tensor([1.0, 2.0], requires_grad=True)
        >>> optimizer = as_torch("momentum", [x], learning_rate=0.5)
        >>> (x**2).sum().backward()
        >>> optimizer.step()
        >>> x.tolist()
        [0.0, 0.0]
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
