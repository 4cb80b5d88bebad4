"""The flat buffer: round trips, blocks side by side, rotations by hand."""

from __future__ import annotations

import numpy as np
import pytest

from curvebench.arrays.numpy_ops import numpy_ops
from curvebench.steps.layout import layout, roles_of

SHAPES = {"a": (2, 3), "b": (4,), "c": (2, 2), "d": ()}
OPS = numpy_ops("float64")


def arrays(rng: np.random.Generator, lanes: tuple[int, ...]) -> dict[str, np.ndarray]:
    return {name: rng.normal(size=(*lanes, *shape)) for name, shape in SHAPES.items()}


@pytest.mark.parametrize("groups", [(), (("c",), ("a",)), (("b", "a"),), (("a", "b", "c", "d"),)])
def test_flatten_and_back(groups: tuple[tuple[str, ...], ...]) -> None:
    lay = layout(SHAPES, roles_of(SHAPES), groups)
    named = arrays(np.random.default_rng(0), (2, 3))
    flat = lay.flatten(OPS, named, 2)
    assert flat.shape == (2, 3, 15) == (2, 3, lay.total)
    back = lay.unflatten(OPS, flat)
    assert all(np.array_equal(back[name], named[name]) for name in SHAPES)


def test_rotation_by_hand() -> None:
    """theta~ = V^T theta on vec(c, a) and on b; d stays; V undoes it."""
    rng = np.random.default_rng(1)
    lay = layout(SHAPES, roles_of(SHAPES), (("c", "a"), ("b",)))
    named = arrays(rng, (1, 2))
    first = np.linalg.qr(rng.normal(size=(10, 10)))[0][None]
    second = np.linalg.qr(rng.normal(size=(4, 4)))[0][None]
    flat = lay.flatten(OPS, named, 2)
    rotated = lay.to_coordinates(OPS, (first, second), flat)
    for k in range(2):
        joint = np.concatenate([named["c"][0, k].ravel(), named["a"][0, k].ravel()])
        np.testing.assert_allclose(rotated[0, k, :10], first[0].T @ joint, atol=1e-14)
        np.testing.assert_allclose(rotated[0, k, 10:14], second[0].T @ named["b"][0, k], atol=1e-14)
        assert rotated[0, k, 14] == named["d"][0, k]
    back = lay.to_parameters(OPS, (first, second), rotated)
    np.testing.assert_allclose(back, flat, atol=1e-14)
