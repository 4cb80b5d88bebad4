"""`as_torch`, and rules on statistics of layers, such as K-FAC, by hooks on the module of the user."""

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

NO_LAYER = -1  # the number of the layer of parameters that belong to none


@dataclass(frozen=True, eq=False)
class ObservedCall:
    """A call of the model whose gradients the next step may observe.

    Args:
        examples: that entered.
        layers: the numbers of the layers whose statistics the step takes up.
    """

    examples: int
    layers: frozenset[int]


class WeakHook:
    """A method as a hook that keeps nothing alive, and does nothing in a copy of its module."""

    def __init__(self, method: Any = None) -> None:
        self.method: Any = weakref.WeakMethod(method) if method else lambda: None

    # As torch.optim has it: a compiled hook of a gradient would be that of another layer.
    @torch._disable_dynamo  # type: ignore[untyped-decorator]
    def __call__(self, *given: Any) -> Any:
        method = self.method()
        return method(*given) if method else None

    def __reduce__(self) -> Any:
        return WeakHook, ()


class LayerRuleOptimizer(RuleOptimizer):
    """A rule on statistics of layers as an optimizer of PyTorch; `as_torch` makes it.

    Layers are the model's `Linear` and `Conv2d` modules whose weight it is given, with their bias where that
    is in the same group; other parameters go to the rule's `others`, and so does a layer whose weight gets
    another kind, such as `embedding`, by `kinds` or its group. Each group is a rule of its own and has at
    least one layer.

    Statistics are those of the backward passes since the last step through calls of the model itself, those
    of `torch.autograd.grad` among them, and are computed only where the next step observes (`factors_every`):
    what enters the layers, and the gradients of what leaves them. The loss is a mean over examples, which the
    first axis of the first tensor that enters the model counts; over several backward passes it is the sum of
    their losses. For `fisher: empirical` they are those of the gradients themselves, and go with them by
    `zero_grad`. For `sampled` they are of passes inside `observing`:

        outputs = model(inputs)
        if optimizer.observes:
            drawn = torch.distributions.Categorical(logits=outputs.detach()).sample()
            with optimizer.observing():
                cross_entropy(outputs, drawn).backward(retain_graph=True)
        cross_entropy(outputs, targets).backward()
        optimizer.step()

    Checkpoints hold none: they are made after a step.
    """

    def __init__(
        self,
        rule: Rule,
        params: Iterable[Any],
        kinds: Mapping[str, str],
        hyper: Mapping[str, float],
        model: Any,
    ) -> None:
        self._look_at(model)
        super().__init__(rule, params, kinds, hyper)
        self._hook()

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "model": self.model}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if "model" in state:  # torch calls this for checkpoints too
            self._look_at(state["model"])
            self._hook()

    @property
    def updated_by(self) -> dict[str, str]:
        """By the name in the model of each parameter that is not frozen, the rule that updates it.

        That is this one for the weights and biases of layers whose statistics it takes, else its `others`.
        """
        names = {param: name for name, param in self.model.named_parameters()}
        others = self.rule.chosen.get("others", self.rule.name)
        found = {}
        for group in self.param_groups:
            own = {str(number): one for number, one in enumerate(group["params"]) if one.requires_grad}
            shapes = {key: tuple(param.shape) for key, param in own.items()}
            roles = {key: self._kind(group, int(key), shape) for key, shape in shapes.items()}
            taken = {name for layer in layers_of(shapes, roles) for name in layer.parameters}
            for key, param in own.items():
                name = names.get(param) or self._name(group, int(key))
                found[name] = self.rule.name if key in taken else others
        return found

    @property
    def observes(self) -> bool:
        """Whether the next step takes up statistics."""
        return bool(self._due())

    @contextmanager
    def observing(self) -> Iterator[None]:
        """Inside, backward passes give statistics, and leave the parameters' gradients as they were.

        The loss is the mean negative log-likelihood of targets drawn from the model, once a step.

        Raises:
            InputError: for a Fisher matrix that is not of drawn targets.
        """
        if not self._samples:
            raise InputError(
                f"{self.rule.name}: fisher: {self._fisher} is observed in the ordinary backward pass; "
                "observing() is for fisher: sampled"
            )
        own = (param for group in self.param_groups for param in group["params"])
        before = {param: param.grad for param in (*self.model.parameters(), *own)}
        for param in before:
            param.grad = None
        self._is_observing = True
        try:
            yield
        finally:
            self._is_observing = False
            for param, grad in before.items():
                param.grad = grad

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget gradients and, where statistics are of the same passes, those too."""
        super().zero_grad(set_to_none)
        if not self._samples:
            self._forget()

    # --- which layers there are ----------------------------------------------------------------------

    def _look_at(self, model: Any) -> None:
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
        return Role(self._said(group, number) or role.kind, role.layer)

    def _check(self, group: Mapping[str, Any], number: int, param: torch.Tensor) -> None:
        super()._check(group, number, param)
        role = self._kind(group, number, tuple(param.shape))
        if not _is_weight(role, param.shape):
            return
        if role.layer == NO_LAYER:
            raise InputError(
                f"{self._name(group, number)} is a {role.kind} by its kind, and that of no Linear or Conv2d "
                f"of the model, whose statistics {self.rule.name} needs; leave its kind out"
            )
        layer = self._layers[role.layer]
        if layer.refused is not None:
            raise InputError(
                f"the layer {layer.name!r} {layer.refused}: {self.rule.name} has no statistics of it; "
                f"{_left_out(layer)}"
            )

    def _formed(self, kinds: tuple[Any, ...], shapes: tuple[tuple[int, ...], ...]) -> Form:
        if not any(_is_weight(role, shape) for role, shape in zip(kinds, shapes, strict=True)):
            raise InputError(
                f"{self.rule.name}: a group of parameters of the shapes {', '.join(map(str, shapes))} has no "
                "weight of a Linear or Conv2d of the model; give them an optimizer of their own"
            )
        return super()._formed(kinds, shapes)

    # --- what is observed ----------------------------------------------------------------------------

    @property
    def _fisher(self) -> str:
        fisher = fisher_of(self.rule.needs)
        assert fisher is not None, "as_torch makes this of such rules alone"
        return fisher

    @property
    def _samples(self) -> bool:
        return self._fisher == "sampled"

    def _forget(self) -> None:
        self._sums: dict[int, LayerSums] = {}
        self._calls: dict[int, set[ObservedCall]] = {}

    def _hook(self) -> None:
        for layer in self._layers:
            layer.module.register_forward_hook(WeakHook(self._left), with_kwargs=True)
        self.model.register_forward_pre_hook(WeakHook(self._entered), with_kwargs=True)
        self.model.register_forward_hook(WeakHook(self._returned), always_call=True)

    def _due(self) -> frozenset[int]:
        """The numbers of the layers whose statistics the next step takes up."""
        found = set()
        for group in self.param_groups:
            for number, param in enumerate(group["params"]):
                role = self._kind(group, number, tuple(param.shape))
                observes = param.requires_grad and self._steps(param) % self.rule.observe_every == 0
                if observes and _is_weight(role, param.shape):
                    found.add(role.layer)
        return frozenset(found)

    def _entered(self, module: Any, args: Any, kwargs: Any) -> None:
        due = self._due() if torch.is_grad_enabled() else frozenset()
        if not due:
            return
        first = first_tensor(args, kwargs)
        if first is None:
            raise InputError(f"no tensor enters the model, and {self.rule.name} counts its examples by one")
        self._call = ObservedCall(first.shape[0], due)

    def _left(self, module: Any, args: Any, kwargs: Any, output: torch.Tensor) -> None:
        call, number = self._call, self._numbers[module]
        x = first_tensor(args, kwargs)
        if call is not None and number in call.layers and output.requires_grad and x is not None:
            layer = self._layers[number]
            if x.ndim < (4 if layer.kind == "convolution" else 2):
                raise InputError(
                    f"what enters the layer {layer.name!r} has the shape {tuple(x.shape)} and no axis of "
                    f"examples, which {self.rule.name} counts; give the model a batch, or {_left_out(layer)}"
                )
            # Of the tensor and not of the module: what leaves may be changed in place afterwards.
            output.register_hook(partial(self._observe, call, number, x.detach()))

    def _returned(self, module: Any, args: Any, output: Any) -> None:
        self._call = None

    def _observe(self, call: ObservedCall, number: int, x: torch.Tensor, gradient: torch.Tensor) -> None:
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
        found = {}
        for layer in layers_of(lay.shapes, lay.roles):
            if layer.number not in self._sums:
                raise InputError(self._unobserved(self._layers[layer.number]))
            examples = sum(call.examples for call in self._calls[layer.number])
            found[layer.weight] = self._sums[layer.number].statistics(layer, self._fisher, examples)
        return {need.name: found}

    def _unobserved(self, layer: ModuleLayer) -> str:
        where = "inside `with optimizer.observing():`" if self._samples else "before the step"
        of = "targets that are drawn from the model" if self._samples else "the data"
        return (
            f"{self.rule.name}: this step observes, and the layer {layer.name!r} has no statistics: run the "
            f"backward pass of the loss on {of} {where}, through a call of the model as a whole; "
            f"if it is not called as a module, {_left_out(layer)}"
        )

    def _advance(self, batch: Batch) -> None:
        super()._advance(batch)
        self._forget()  # what all batches need was taken before any of them


def _is_weight(role: Role, shape: Sequence[int]) -> bool:
    return role.kind in LAYER_KINDS and len(shape) > 1


def _left_out(layer: ModuleLayer) -> str:
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

    A rule on statistics of layers, such as kfac, is a `LayerRuleOptimizer`, which takes the layers from the
    model and says how it is used.

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
