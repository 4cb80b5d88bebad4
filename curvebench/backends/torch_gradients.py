"""Gradients of a single run by plain autograd, which nothing maps over lanes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.utils import _pytree as pytree

from curvebench.backends.torch_compiled import Compilable

UNUSED_ARE_ZERO = {"allow_unused": True, "materialize_grads": True}


class LossGradient(Compilable):
    """Value and gradient of a function that is not mapped, by plain autograd."""

    def __call__(self, params: Mapping[str, torch.Tensor], *given: Any) -> Any:
        leaves = {name: value.detach().requires_grad_() for name, value in params.items()}
        with torch.enable_grad():
            value, others = self.called(leaves, *given)
        grads = torch.autograd.grad(value, list(leaves.values()), **UNUSED_ARE_ZERO)
        others = {name: other.detach() for name, other in others.items()}
        return (value.detach(), others), dict(zip(leaves, grads, strict=True))


def vjp(function: Callable[..., Any], point: Any) -> tuple[Any, Callable[..., Any], Any]:
    """Plain autograd, for a function that is not mapped."""
    leaves, form = pytree.tree_flatten(point)
    leaves = [leaf.detach().requires_grad_() for leaf in leaves]
    with torch.enable_grad():
        value, others = function(pytree.tree_unflatten(leaves, form))

    def pullback(cotangent: torch.Tensor) -> Any:
        grads = torch.autograd.grad(value, leaves, cotangent, retain_graph=True, **UNUSED_ARE_ZERO)
        return pytree.tree_unflatten(grads, form)

    return value.detach(), pullback, pytree.tree_map(torch.Tensor.detach, others)
