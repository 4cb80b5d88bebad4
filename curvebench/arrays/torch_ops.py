"""Array functions on PyTorch.

`TorchOps` is for functions that are mapped over several runs, `SingleRunOps` for functions of a single run.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from curvebench.arrays.common_names import COMMON, guarded, named, symmetric_part
from curvebench.arrays.ops import Array, Ops

# Further functions that PyTorch provides by the names that they have in `Ops`.
# Their argument `axis` must be passed by position, since PyTorch calls this argument `dim`.
BY_DIM = (
    *("abs", "relu", "sigmoid", "softmax", "log_softmax", "logsumexp"),
    *("cumsum", "argmax", "concatenate", "stack"),
)


class _Tap(torch.autograd.Function):  # type: ignore[misc]  # torch has no types here
    """Implementation of `Ops.tap`: a function that returns y and gives `slot` the gradient observe(g).

    Here g is the gradient of the loss with respect to y.
    """

    @staticmethod
    def vmap(info: Any, in_dims: Any, observe: Any, y: torch.Tensor, slot: torch.Tensor) -> Any:
        # A vmap rule that PyTorch generates would be wrong if y is not mapped.
        # Such a rule would call `observe` once, on the sum of the gradients of all mapped elements.
        first = [
            value.expand(info.batch_size, *value.shape) if dim is None else value.movedim(dim, 0)
            for value, dim in zip((y, slot), in_dims[1:], strict=True)
        ]
        return _Tap.apply(torch.func.vmap(observe), *first), 0

    @staticmethod
    def forward(observe: Any, y: torch.Tensor, slot: torch.Tensor) -> torch.Tensor:
        return y.view_as(y)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.observe = inputs[0]

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return None, gradient, ctx.observe(gradient)


class TorchOps(Ops):
    """Array functions on PyTorch.

    PyTorch's normalization layers replace the methods of `Ops`, because they are 3 to 4 times faster in eager
    mode.
    """

    def tap(self, observe: Callable[[Array], Array], y: Array, slot: Array) -> Array:
        return _Tap.apply(observe, y, slot)

    def layer_norm(self, x: Array, scale: Array, shift: Array, epsilon: float) -> Array:
        return functional.layer_norm(x, x.shape[-1:], scale, shift, epsilon)

    def batch_norm_in_training(
        self, x: Array, scale: Array, shift: Array, epsilon: float
    ) -> tuple[Array, Array, Array]:
        normalized, mean, inverse_deviation = torch.native_batch_norm(
            x, scale, shift, None, None, True, 0.0, epsilon
        )
        return normalized, mean, torch.clamp(inverse_deviation**-2 - epsilon, min=0.0)

    def from_basis(self, bases: Any, coordinates: Array) -> Array:
        # `einsum` would take up to 4 times as long as this product for small matrices.
        return coordinates @ bases.mT

    def to_basis(self, bases: Any, vectors: Array) -> Array:
        return vectors @ bases


class SingleRunOps(TorchOps):
    """Array functions with PyTorch's fused layers, for losses of a single run, which are not mapped.

    Attention does not store the matrix of scores if PyTorch has a kernel that avoids it.
    """

    def linear(self, x: Array, weight: Array, bias: Array | None = None) -> Array:
        return functional.linear(x, weight, bias)

    def attention(self, query: Array, key: Array, value: Array, causal: bool = False) -> Array:
        return functional.scaled_dot_product_attention(query, key, value, is_causal=causal)

    def batch_norm(
        self, x: Array, mean: Array, variance: Array, scale: Array, shift: Array, epsilon: float
    ) -> Array:
        # PyTorch's kernel cannot be differentiated with respect to a given mean and variance.
        if mean.requires_grad or variance.requires_grad:
            return super().batch_norm(x, mean, variance, scale, shift, epsilon)
        return functional.batch_norm(x, mean, variance, scale, shift, False, 0.0, epsilon)


def _solve(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    solution, failed = torch.linalg.solve_ex(a, b)
    return torch.where(failed[..., None, None] == 0, solution, math.nan)


def _cholesky(x: torch.Tensor) -> torch.Tensor:
    factor, failed = torch.linalg.cholesky_ex(symmetric_part(x))
    return torch.where(failed[..., None, None] == 0, factor, math.nan)


def _triangular_inverse(lower: torch.Tensor) -> torch.Tensor:
    identity = torch.eye(lower.shape[-1], dtype=lower.dtype, device=lower.device)
    return torch.linalg.solve_triangular(lower, identity.expand_as(lower), upper=False)


def _pad(x: torch.Tensor, widths: tuple[tuple[int, int], ...]) -> torch.Tensor:
    return functional.pad(x, [width for pair in reversed(widths) for width in pair])


def _take(x: torch.Tensor, indices: torch.Tensor, axis: int) -> torch.Tensor:
    axis %= x.ndim
    selected = torch.index_select(x, axis, indices.reshape(-1))
    return selected.reshape(x.shape[:axis] + indices.shape + x.shape[axis + 1 :])


def _to_numpy(x: torch.Tensor) -> np.ndarray:
    tensor = x.detach().cpu()
    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()


def torch_ops(device: str = "cpu", dtype: str = "float32", table: type[TorchOps] = TorchOps) -> Ops:
    """Return the array functions on PyTorch.

    Args:
        device: device of new arrays.
        dtype: precision of new arrays.
        table: class of the result: `TorchOps`, or `SingleRunOps` to use fused layers.
    """
    kind = getattr(torch, dtype)

    def asarray(x: Any) -> torch.Tensor:
        tensor = x if isinstance(x, torch.Tensor) else torch.from_numpy(np.array(x))
        return tensor.to(device) if not tensor.is_floating_point() else tensor.to(device, kind)

    def scalar_like(x: torch.Tensor, value: Any) -> torch.Tensor:
        return value if isinstance(value, torch.Tensor) else torch.full_like(x, value)

    def reduction(function: Any) -> Any:
        def reduce(x: torch.Tensor, axis: Any = None, keepdims: bool = False) -> torch.Tensor:
            if axis is None:
                axis = tuple(range(x.ndim))
            return function(x, dim=axis, keepdim=keepdims)

        return reduce

    return table(
        **named(torch, (*COMMON, *BY_DIM)),
        **named(torch.linalg, ("diagonal", "qr")),
        **named(functional, ("gelu", "silu", "max_pool2d")),
        backend="torch",
        dtype=dtype,
        asarray=asarray,
        to_numpy=_to_numpy,
        zeros=lambda shape: torch.zeros(shape, dtype=kind, device=device),
        eye=lambda n: torch.eye(n, dtype=kind, device=device),
        arange=lambda n: torch.arange(n, dtype=kind, device=device),
        astype_float=lambda x: x.to(kind),
        cast=lambda x, name: x.to(getattr(torch, name)) if x.is_floating_point() else x,
        cast_like=lambda x, other: x.to(other.dtype),
        stop_gradient=torch.Tensor.detach,
        power=torch.pow,
        maximum=lambda x, y: torch.maximum(x, scalar_like(x, y)),
        minimum=lambda x, y: torch.minimum(x, scalar_like(x, y)),
        clip=torch.clamp,
        sum=reduction(torch.sum),
        mean=reduction(torch.mean),
        max=reduction(torch.amax),
        argsort=lambda x, axis: torch.argsort(x, dim=axis, stable=True),
        flip=lambda x, axis: torch.flip(x, (axis,)),
        pad=_pad,
        unstack=torch.unbind,
        permute_dims=torch.permute,
        take=_take,
        take_along_axis=torch.take_along_dim,
        norm=lambda x: torch.sqrt(torch.sum(torch.square(x))),
        matrix_transpose=lambda x: x.mT,
        eigh=guarded(lambda x: torch.linalg.eigh(symmetric_part(x)), torch.isfinite, torch.where),
        svd=guarded(lambda x: torch.linalg.svd(x, full_matrices=False), torch.isfinite, torch.where),
        solve=_solve,
        cholesky=guarded(_cholesky, torch.isfinite, torch.where),
        triangular_inverse=_triangular_inverse,
        log_sigmoid=functional.logsigmoid,
        conv2d=lambda x, weight, stride=1, padding=0: functional.conv2d(
            x, weight, stride=stride, padding=padding
        ),
        average_pool2d=functional.avg_pool2d,
    )
