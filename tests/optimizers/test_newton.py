"""Newton's method alone: singular Hessians, and needs that are missing."""

from __future__ import annotations

import numpy as np
import pytest

from curvebench import replay
from curvebench.spec.errors import InputError

BACKENDS = ["numpy", "jax", "torch"]
ONE = {"learning_rate": 1.0}


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_singular_hessian_gives_no_number_and_a_damped_one_does(backend: str) -> None:
    """Along its null space a damped step is the gradient over the damping."""
    start, grads, needs = (
        {"w": np.zeros(2)},
        [{"w": np.array([1.0, 2.0])}],
        [{"hessian": np.diag([1.0, 0.0])}],
    )
    (lost,) = replay("newton", start, grads, ONE, backend, needs=needs)
    assert not np.isfinite(lost["w"]).all()
    (found,) = replay("newton", start, grads, {**ONE, "damping": 1.0}, backend, needs=needs)
    np.testing.assert_array_equal(found["w"], [-0.5, -2.0])


def test_a_need_that_is_missing_or_of_another_rule_is_refused() -> None:
    start, grads = {"w": np.zeros(2)}, [{"w": np.ones(2)}]
    with pytest.raises(InputError, match=r"newton needs .* at every step, and got none"):
        replay("newton", start, grads, ONE, "numpy", needs=[None])
    with pytest.raises(InputError, match="newton has no need 'layers'"):
        replay("newton", start, grads, ONE, "numpy", needs=[{"hessian": np.eye(2), "layers": {}}])
