"""Test calls of every array function, with inputs that have no ties."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

RNG = np.random.default_rng(20)


@dataclass(frozen=True)
class Case:
    """Call `f(ops, *inputs)` that returns an array or a tuple of arrays.

    Args:
        call: the function; it normalizes whatever its result leaves undetermined, such as signs of vectors.
        inputs: arrays of float64, integers or booleans.
        smooth: whether the result is differentiable in the real inputs.
    """

    call: Callable[..., Any]
    inputs: tuple[np.ndarray, ...]
    smooth: bool = True


def _normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape)


def _definite(ops: Any, x: Any) -> Any:
    return ops.matmul(x, ops.matrix_transpose(x)) + ops.eye(x.shape[-1])


def _eigh(ops: Any, x: Any) -> Any:
    values, vectors = ops.eigh(x)
    return values, ops.matmul(vectors * ops.tanh(values)[..., None, :], ops.matrix_transpose(vectors))


def _qr(ops: Any, x: Any) -> Any:
    q, r = ops.qr(x)
    signs = ops.sign(ops.diagonal(r))
    return q * signs[..., None, :], r * signs[..., :, None]


def _svd(ops: Any, x: Any) -> Any:
    u, s, vh = ops.svd(x)
    return s, ops.matmul(u * ops.tanh(s)[..., None, :], vh)


def _unary(name: str, x: np.ndarray, smooth: bool = True) -> Case:
    return Case(lambda ops, x: getattr(ops, name)(x), (x,), smooth)


X, Y = _normal(3, 4), _normal(3, 4)
POSITIVE = np.abs(X) + 0.1
SQUARE = _normal(4, 4)
IMAGES, FILTERS = _normal(2, 3, 7, 6), _normal(4, 3, 3, 2)
CHANNELS = _normal(3), _normal(3)
LABELS = np.array([2, 0, 1])

# A key is the name of the function, followed by what is special about the call.
CASES: dict[str, Case] = {
    "asarray": _unary("asarray", X),
    "asarray of integers": _unary("asarray", LABELS, smooth=False),
    "zeros": Case(lambda ops, x: ops.zeros((2, 3)), (X,), smooth=False),
    "eye": Case(lambda ops, x: ops.eye(3), (X,), smooth=False),
    "arange": Case(lambda ops, x: ops.arange(5), (X,), smooth=False),
    "zeros_like": _unary("zeros_like", X),
    "ones_like": _unary("ones_like", X),
    "full_like": Case(lambda ops, x: ops.full_like(x, 0.3), (X,)),
    "astype_float": _unary("astype_float", X > 0, smooth=False),
    "cast": Case(lambda ops, x: ops.cast(ops.cast(x, "bfloat16"), ops.dtype), (X,), smooth=False),
    "cast_like": Case(lambda ops, x: ops.cast_like(ops.cast(x, "bfloat16"), x), (X,), smooth=False),
    "cast, of integers": Case(lambda ops, x: ops.cast(x, "bfloat16"), (np.arange(3),), smooth=False),
    "stop_gradient": Case(lambda ops, x: x * ops.stop_gradient(x), (X,)),
    "sqrt": _unary("sqrt", POSITIVE),
    "square": _unary("square", X),
    "power": Case(lambda ops, x, y: ops.power(x, y), (POSITIVE, Y)),
    "power by a number": Case(lambda ops, x: ops.power(x, -0.25), (POSITIVE,)),
    "abs": _unary("abs", X),
    "sign": _unary("sign", X),
    "exp": _unary("exp", X),
    "log": _unary("log", POSITIVE),
    "sin": _unary("sin", X),
    "cos": _unary("cos", X),
    "atan2": Case(lambda ops, x, y: ops.atan2(x, y), (X, Y)),
    "isfinite": _unary("isfinite", np.array([1.0, np.nan, np.inf, -np.inf]), smooth=False),
    "where": Case(lambda ops, c, x, y: ops.where(c, x, y), (X > Y, X, Y)),
    "where with a number": Case(lambda ops, x: ops.where(x > 0, x, 0.1), (X,)),
    "maximum": Case(lambda ops, x, y: ops.maximum(x, y), (X, Y)),
    "maximum with a number": Case(lambda ops, x: ops.maximum(x, 0.1), (X,)),
    "minimum": Case(lambda ops, x, y: ops.minimum(x, y), (X, Y)),
    "clip": Case(lambda ops, x: ops.clip(x, -0.5, 0.5), (X,)),
    **{name: _unary(name, X) for name in ("sum", "mean", "max")},
    "sum of an axis": Case(lambda ops, x: ops.sum(x, axis=0), (X,)),
    "mean of two axes": Case(lambda ops, x: ops.mean(x, axis=(1, 2), keepdims=True), (IMAGES,)),
    "max of an axis": Case(lambda ops, x: ops.max(x, axis=-1, keepdims=True), (X,)),
    "cumsum": Case(lambda ops, x: ops.cumsum(x, axis=-1), (X,)),
    "argmax": Case(lambda ops, x: ops.argmax(x, axis=-1), (X,), smooth=False),
    "argsort": Case(lambda ops, x: ops.argsort(x, axis=-1), (X,), smooth=False),
    "argsort of equal entries": Case(
        lambda ops, x: ops.argsort(x, axis=0), (np.tile([1.0, 0.0], 30),), smooth=False
    ),
    "swapaxes": Case(lambda ops, x: ops.swapaxes(x, 0, -1), (IMAGES,)),
    "flip": Case(lambda ops, x: ops.flip(x, 1), (IMAGES,)),
    "permute_dims": Case(lambda ops, x: ops.permute_dims(x, (2, 0, 3, 1)), (IMAGES,)),
    "reshape": Case(lambda ops, x: ops.reshape(x, (2, -1)), (X,)),
    "broadcast_to": Case(lambda ops, x: ops.broadcast_to(x, (2, 3, 4)), (X,)),
    "pad": Case(lambda ops, x: ops.pad(x, ((0, 0), (0, 1), (2, 0), (3, 4))), (IMAGES,)),
    "concatenate": Case(lambda ops, x, y: ops.concatenate([x, y], axis=-1), (X, Y)),
    "stack": Case(lambda ops, x, y: ops.stack([x, y], axis=1), (X, Y)),
    "unstack": Case(lambda ops, x: tuple(ops.unstack(x, 1)), (IMAGES,)),
    "take": Case(lambda ops, x, i: ops.take(x, i, axis=-1), (X, np.array([[3, 0, 0], [1, 2, 3]]))),
    "take_along_axis": Case(lambda ops, x, i: ops.take_along_axis(x, i[:, None], axis=-1), (X, LABELS)),
    "norm": _unary("norm", X),
    "matmul": Case(lambda ops, x, y: ops.matmul(x, y), (_normal(2, 3, 4), _normal(2, 4, 5))),
    "einsum": Case(lambda ops, x, y: ops.einsum("...ij,...kj->...ik", x, y), (X, Y)),
    "matrix_transpose": _unary("matrix_transpose", _normal(2, 3, 4)),
    "diagonal": _unary("diagonal", _normal(2, 3, 4)),
    "tril": _unary("tril", _normal(2, 3, 4)),
    "eigh": Case(_eigh, (_normal(2, 4, 4),)),
    "qr": Case(_qr, (_normal(2, 5, 3),)),
    "qr of a wide matrix": Case(_qr, (_normal(2, 3, 5),), smooth=False),
    "svd": Case(_svd, (_normal(2, 5, 3),)),
    "svd of a wide matrix": Case(_svd, (_normal(3, 5),)),
    "solve": Case(lambda ops, a, b: ops.solve(a, b), (_normal(2, 4, 4), _normal(2, 4, 3))),
    "cholesky": Case(lambda ops, x: ops.cholesky(_definite(ops, x)), (_normal(2, 4, 4),)),
    "linear_layers": Case(
        lambda ops, x, *weights: ops.linear_layers(x, weights),
        (_normal(5, 4), _normal(3, 4), _normal(6, 3), _normal(2, 6)),
    ),
    "triangular_inverse": Case(
        lambda ops, x: ops.triangular_inverse(ops.tril(_definite(ops, x))), (_normal(2, 4, 4),)
    ),
    "cholesky_inverse": Case(
        lambda ops, x: ops.cholesky_inverse(ops.tril(_definite(ops, x))), (_normal(2, 4, 4),)
    ),
    **{name: _unary(name, X) for name in ("relu", "gelu", "silu", "tanh", "sigmoid", "log_sigmoid")},
    **{
        name: Case(lambda ops, x, name=name: getattr(ops, name)(x, -1), (X,))
        for name in ("softmax", "log_softmax", "logsumexp")
    },
    "conv2d": Case(lambda ops, x, w: ops.conv2d(x, w), (IMAGES, FILTERS)),
    "conv2d with stride and padding": Case(
        lambda ops, x, w: ops.conv2d(x, w, stride=2, padding=1), (IMAGES, FILTERS)
    ),
    "max_pool2d": Case(lambda ops, x: ops.max_pool2d(x, 2, 2), (IMAGES,)),
    "max_pool2d with overlap": Case(lambda ops, x: ops.max_pool2d(x, 3, 2), (IMAGES,)),
    "average_pool2d": Case(lambda ops, x: ops.average_pool2d(x, 2, 2), (IMAGES,)),
    "average_pool2d with overlap": Case(lambda ops, x: ops.average_pool2d(x, 3, 2), (IMAGES,)),
    "attention": Case(
        lambda ops, *qkv: ops.attention(*qkv), (_normal(2, 3, 5), _normal(2, 4, 5), _normal(2, 4, 6))
    ),
    "attention, causal": Case(
        lambda ops, *qkv: ops.attention(*qkv, causal=True),
        (_normal(2, 3, 5), _normal(2, 3, 5), _normal(2, 3, 5)),
    ),
    "linear": Case(lambda ops, *x: ops.linear(*x), (X, _normal(3, 4), _normal(3))),
    "linear without bias": Case(lambda ops, *x: ops.linear(*x), (X, _normal(3, 4))),
    "tap": Case(lambda ops, y: ops.tap(lambda g: g, y, ops.zeros_like(y)), (X,)),
    "layer_norm": Case(lambda ops, *x: ops.layer_norm(*x, 1e-5), (X, _normal(4), _normal(4))),
    "batch_norm": Case(
        lambda ops, *x: ops.batch_norm(*x, 1e-5), (IMAGES, CHANNELS[0], np.exp(CHANNELS[1]), *CHANNELS)
    ),
    "batch_norm of rows": Case(
        lambda ops, *x: ops.batch_norm(*x, 1e-5), (_normal(5, 3), CHANNELS[0], np.exp(CHANNELS[1]), *CHANNELS)
    ),
    "batch_norm_in_training": Case(lambda ops, *x: ops.batch_norm_in_training(*x, 1e-5), (IMAGES, *CHANNELS)),
    "batch_norm_in_training of rows": Case(
        lambda ops, *x: ops.batch_norm_in_training(*x, 1e-5), (_normal(5, 3), *CHANNELS)
    ),
    "bases": Case(lambda ops, v: ops.bases(v), (_normal(2, 4, 3),)),
    "from_basis": Case(lambda ops, v, c: ops.from_basis(v, c), (_normal(2, 4, 3), _normal(2, 5, 3))),
    "to_basis": Case(lambda ops, v, x: ops.to_basis(v, x), (_normal(2, 4, 3), _normal(2, 5, 4))),
}
