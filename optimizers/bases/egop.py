"""EGOP: the eigenbasis of the expected gradient outer product, of all parameters or block by block."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from optimizers.bases.basis import Basis, Groups, Sampling, Shapes
from optimizers.names import unknown
from optimizers.options import Option, OptionError, Options

MULTIPLE_OF_DIMENSION = re.compile(r"([0-9.]+(?:e[+-]?[0-9]+)?)\s*d")


def egop_matrix(gradients: np.ndarray) -> np.ndarray:
    """The empirical EGOP, (1/M) sum of g g^T (000 Alg. 2.1 line 3).

    Args:
        gradients: (M, d), one gradient a row.

    Returns:
        Shape (d, d), float64, symmetric to the last bit.
    """
    g = np.asarray(gradients, np.float64)
    return g.T @ g / len(g)


def _decompose(gradients: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """V and eigenvalues, leading first: from the matrix, or where it cannot have full rank from the SVD."""
    count, dimension = gradients.shape
    if count >= dimension:
        values, vectors = np.linalg.eigh(egop_matrix(gradients))
        return vectors[:, ::-1], np.maximum(values[::-1], 0.0)
    _, singular, rows = np.linalg.svd(gradients, full_matrices=True)
    return rows.T, np.concatenate([singular**2 / count, np.zeros(dimension - count)])


def eigenbasis(gradients: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The orthonormal eigenbasis of the empirical EGOP (000 Alg. 2.1 line 4; the SVD: 000 C.6).

    Eigenvectors are unique up to sign where eigenvalues differ. The gauge chosen here: the entry of
    largest magnitude, the first of equals, is positive; a coordinate in which every gradient is 0 keeps
    its unit vector, after all others. Inside an eigenspace of several dimensions, such as the null space
    where M < d, the basis is LAPACK's, and may differ between machines.

    Args:
        gradients: (M, d), one gradient a row.

    Returns:
        V of shape (d, d) with eigenvectors in columns, and the eigenvalues (d,), both float64, leading
        first.

    Raises:
        OptionError: when there is no gradient or one is not finite.
    """
    g = np.asarray(gradients, np.float64)
    if g.ndim != 2 or len(g) == 0:
        raise OptionError(f"egop: gradients have the shape {g.shape}; (samples, dimension) is needed")
    finite = np.isfinite(g).all(axis=1)
    if not finite.all():
        raise OptionError(
            f"egop: {np.sum(~finite)} of {len(g)} sampled gradients are not finite; "
            "set the option sampling to parameters nearer to 0, such as {normal: 0.1}"
        )
    dimension = g.shape[1]
    live = np.flatnonzero(np.any(g != 0, axis=0))
    dead = np.setdiff1d(np.arange(dimension), live)
    basis, eigenvalues = np.zeros((dimension, dimension)), np.zeros(dimension)
    if live.size:
        vectors, eigenvalues[: live.size] = _decompose(g[:, live])
        largest = vectors[np.argmax(np.abs(vectors), axis=0), np.arange(live.size)]
        basis[live, : live.size] = vectors * np.sign(largest)
    basis[dead, np.arange(live.size, dimension)] = 1.0
    return basis, eigenvalues


def _read_blocks(value: Any) -> Any:
    if value in ("all", "weights"):
        return str(value)
    if isinstance(value, (list, tuple)) and value and all(isinstance(name, str) for name in value):
        if len(set(value)) < len(value):
            raise OptionError("names a parameter twice; name each once")
        return [str(name) for name in value]
    raise OptionError("is not one of all, weights, or a list of parameter names")


def _multiple(text: str) -> float | None:
    """The factor in text such as `1.0 d`; None where it is not such a text."""
    match = MULTIPLE_OF_DIMENSION.fullmatch(text.strip())
    try:
        factor = float(match[1]) if match else math.nan
    except ValueError:
        return None
    return factor if 0 < factor < math.inf else None


def _read_samples(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return int(value)
    factor = _multiple(value) if isinstance(value, str) else None
    if factor is None:
        raise OptionError(
            "is neither a positive whole number nor a multiple of the dimension such as '1.0 d'"
        )
    return f"{factor!r} d"


def _read_sampling(value: Any) -> Any:
    if value == "initialization":
        return "initialization"
    if isinstance(value, Mapping) and list(value) == ["normal"]:
        scale = value["normal"]
        if isinstance(scale, (int, float)) and not isinstance(scale, bool) and 0 < scale < math.inf:
            return {"normal": float(scale)}
    raise OptionError("is neither initialization nor {normal: <standard deviation above 0>}")


def _groups(options: Options, shapes: Shapes, kinds: Mapping[str, str]) -> Groups:
    blocks = options["blocks"]
    if blocks == "all":
        return (tuple(shapes),)
    if blocks == "weights":
        blocks = [name for name in shapes if kinds[name] == "weight"]
        if not blocks:
            raise OptionError(
                "egop: blocks = 'weights', but no parameter of this workload is a weight matrix; "
                f"use blocks: all, or name some of {', '.join(shapes)}"
            )
    for name in blocks:
        if name not in shapes:
            raise OptionError(f"egop: blocks: {unknown('the workload', 'parameter', name, shapes)}")
    return tuple((name,) for name in blocks)


def _samples(options: Options, dimension: int) -> int:
    samples = options["samples"]
    if isinstance(samples, int):
        return samples
    factor = _multiple(samples)
    assert factor is not None, "options were completed"
    return max(1, round(factor * dimension))


def _sampling(options: Options) -> Sampling:
    sampling = options["sampling"]
    if sampling == "initialization":
        return Sampling("initialization")
    return Sampling("normal", sampling["normal"])


EGOP = Basis(
    name="egop",
    source="000 Alg. 2.1, Sec. 5, App. D",
    description="eigenbasis of the expected gradient outer product, global or block by block",
    options={
        "blocks": Option(
            "all",
            "what is rotated together: all (one block), weights (a block a weight matrix), or a list of "
            "parameter names (a block each)",
            _read_blocks,
        ),
        "samples": Option(
            "1.0 d",
            "the number of gradients M: whole, or a multiple of the number d of all parameters' entries",
            _read_samples,
        ),
        "sampling": Option(
            "initialization",
            "where gradients are taken: initialization, or {normal: standard deviation}",
            _read_sampling,
        ),
    },
    needs_gradients=True,
    groups=_groups,
    samples=_samples,
    sampling=_sampling,
    eigenbasis=eigenbasis,
)

BASES = (EGOP,)
