"""Random gradients, the path of one parameter by a rule, the arrays of its state, and equal paths."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from curvebench import replay
from tests.optimizers.oracles import Arrays


def instance(
    shapes: Mapping[str, tuple[int, ...]], seed: int = 0, scale: float = 1.0, steps: int = 12
) -> tuple[Arrays, list[Arrays]]:
    """Random parameters and the gradients of some steps."""
    rng = np.random.default_rng(seed)
    params, *grads = (
        {name: np.asarray(factor * rng.standard_normal(shape)) for name, shape in shapes.items()}
        for factor in (1.0, *[scale] * steps)
    )
    return params, grads


def path_of_one(
    optimizer: str,
    start: Any,
    grads: Any,
    hyper: Mapping[str, float] | float = 0.5,
    options: Mapping[str, Any] | None = None,
    backend: str = "numpy",
    dtype: str = "float64",
) -> list[np.ndarray]:
    """Where each gradient brings a parameter; a number is the learning rate."""
    values = hyper if isinstance(hyper, Mapping) else {"learning_rate": hyper}
    given = [{"w": np.asarray(grad, float)} for grad in grads]
    params = {"w": np.asarray(start, float)}
    path = replay(optimizer, params, given, values, backend, dtype, options=options)
    return [arrays["w"] for arrays in path]


def leaves(state: Any) -> list[Any]:
    """The arrays of nested tuples."""
    return [leaf for child in state for leaf in leaves(child)] if isinstance(state, tuple) else [state]


def assert_paths_close(path: list[Arrays], expected: list[Arrays], tolerance: float) -> None:
    """Shape by shape, and entry by entry to a tolerance that is relative and absolute."""
    assert len(path) == len(expected)
    for step, (found, wanted) in enumerate(zip(path, expected, strict=True), start=1):
        assert set(found) == set(wanted)
        for name in wanted:
            assert found[name].shape == wanted[name].shape
            np.testing.assert_allclose(
                found[name], wanted[name], rtol=tolerance, atol=tolerance, err_msg=f"step {step}, {name}"
            )
