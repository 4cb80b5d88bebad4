"""The array functions on PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from harness.backends.ops import Ops


def torch_ops(device: str = "cpu", dtype: str = "float32") -> Ops:
    """The table for PyTorch on a device in the given precision."""
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

    return Ops(
        backend="torch",
        dtype=dtype,
        asarray=asarray,
        to_numpy=lambda x: x.detach().cpu().numpy(),
        zeros=lambda shape: torch.zeros(shape, dtype=kind, device=device),
        eye=lambda n: torch.eye(n, dtype=kind, device=device),
        zeros_like=torch.zeros_like,
        ones_like=torch.ones_like,
        full_like=torch.full_like,
        astype_float=lambda x: x.to(kind),
        sqrt=torch.sqrt,
        square=torch.square,
        abs=torch.abs,
        sign=torch.sign,
        exp=torch.exp,
        log=torch.log,
        isfinite=torch.isfinite,
        where=torch.where,
        maximum=lambda x, y: torch.maximum(x, scalar_like(x, y)),
        minimum=lambda x, y: torch.minimum(x, scalar_like(x, y)),
        clip=torch.clamp,
        sum=reduction(torch.sum),
        mean=reduction(torch.mean),
        max=reduction(torch.amax),
        argmax=lambda x, axis: torch.argmax(x, dim=axis),
        norm=lambda x: torch.sqrt(torch.sum(torch.square(x))),
        matmul=torch.matmul,
        einsum=torch.einsum,
        swapaxes=torch.swapaxes,
        reshape=torch.reshape,
        broadcast_to=torch.broadcast_to,
        concatenate=lambda tensors, axis: torch.cat(tensors, dim=axis),
        stack=lambda tensors, axis: torch.stack(tensors, dim=axis),
        take_along_axis=lambda x, indices, axis: torch.take_along_dim(x, indices, dim=axis),
        relu=torch.relu,
        tanh=torch.tanh,
        sigmoid=torch.sigmoid,
        log_sigmoid=torch.nn.functional.logsigmoid,
        softmax=lambda x, axis: torch.softmax(x, dim=axis),
        log_softmax=lambda x, axis: torch.log_softmax(x, dim=axis),
        logsumexp=lambda x, axis: torch.logsumexp(x, dim=axis),
    )
