"""The option `others`: a rule for matrices or vectors leaves the other parameters to another rule."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from curvebench import replay

HIDDEN = {("weight", (3, 2)), ("convolution", (3, 2, 1, 1))}
MATRICES = {("head", (3, 2)), *HIDDEN}
VECTORS = {("vector", (4,)), ("embedding", (3, 2)), *MATRICES}
LEAVES = [
    *sorted(VECTORS),
    *((kind, (3,)) for kind in ("weight", "bias", "norm", "head")),
    ("norm", (3, 2)),
    ("vector", ()),
]
OWN: dict[str, tuple[set[Any], dict[str, Any]]] = {
    "muon": (HIDDEN, {"orthogonalization": "svd"}),
    "muon of heads too": (MATRICES, {"orthogonalization": "svd", "heads": "muon"}),
    "manifold_muon": (MATRICES, {}),
    "pin_to_sphere": (VECTORS, {}),
    "weight_normalization": (VECTORS, {"scale": "frozen"}),
}


@pytest.mark.parametrize(("kind", "shape"), LEAVES, ids=str)
@pytest.mark.parametrize("optimizer", OWN)
def test_what_a_rule_leaves_to_another(optimizer: str, kind: str, shape: tuple[int, ...]) -> None:
    """Vectors are slices of the first axis, whose lengths stay; a matrix is outputs x the rest."""
    own, options = OWN[optimizer]
    w, g = np.random.default_rng(9).standard_normal((2, *shape))
    if optimizer == "manifold_muon" and (kind, shape) in own:
        w = np.linalg.qr(w.reshape(3, 2))[0].reshape(shape)
    hyper = {"learning_rate": 0.5, "others_ratio": 0.5}
    given = {**options, "others": "sgd"}
    (arrays,) = replay(
        optimizer.partition(" ")[0], {"w": w}, [{"w": g}], hyper, "numpy", options=given, kinds={"w": kind}
    )
    found = arrays["w"]
    assert ((kind, shape) in own) != np.allclose(found, w - 0.25 * g, rtol=1e-14, atol=0)
    if own is VECTORS and (kind, shape) in own:
        rows = shape[0] if len(shape) > 1 else 1
        before, after = (np.linalg.norm(array.reshape(rows, -1), axis=1) for array in (w, found))
        np.testing.assert_allclose(after, before, rtol=1e-14)
    elif (kind, shape) in own:
        moved = found if optimizer == "manifold_muon" else found - w
        values = np.linalg.svd(moved.reshape(3, 2), compute_uv=False)
        np.testing.assert_allclose(values / values[0], 1, rtol=1e-12)
