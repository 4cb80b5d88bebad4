"""Random gradients, the path of one parameter under a rule, the arrays of a state, and assertions on
paths.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from curvebench import replay
from tests.optimizers.oracles import Arrays


def instance(
    shapes: Mapping[str, tuple[int, ...]], seed: int = 0, scale: float = 1.0, steps: int = 12
) -> tuple[Arrays, list[Arrays]]:
    """Draw parameters, and gradients of a number of steps."""
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
    """Return the parameter after each gradient; a number as `hyper` is the learning rate."""
    values = hyper if isinstance(hyper, Mapping) else {"learning_rate": hyper}
    gradients = [{"w": np.asarray(grad, float)} for grad in grads]
    params = {"w": np.asarray(start, float)}
    path = replay(optimizer, params, gradients, values, backend, dtype, options=options)
    return [arrays["w"] for arrays in path]


def leaves(state: Any) -> list[Any]:
    """Return the arrays of nested tuples."""
    return [leaf for child in state for leaf in leaves(child)] if isinstance(state, tuple) else [state]


def assert_paths_close(path: list[Arrays], expected: list[Arrays], tolerance: float) -> None:
    """Assert that paths have equal shapes, and entries within a tolerance that is both relative and
    absolute.
    """
    assert len(path) == len(expected)
    for step, (found, due) in enumerate(zip(path, expected, strict=True), start=1):
        assert set(found) == set(due)
        for name in due:
            assert found[name].shape == due[name].shape
            np.testing.assert_allclose(
                found[name], due[name], rtol=tolerance, atol=tolerance, err_msg=f"step {step}, {name}"
            )
