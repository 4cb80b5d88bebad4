"""The overhead of a basis: every variant takes its step, products are counted, the command prints rows."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.kernels.basis_overhead import (
    bare_products,
    line,
    main,
    measure,
    orthonormal,
    step,
    variants,
)
from benchmarks.kernels.clock import one_thread

SMALL = variants(first=4, second=3, rank=5)  # 40 + 12 + 30 weights


def test_operations_are_those_of_the_products():
    found = {name: variant.flops((2, 8)) for name, variant in SMALL.items()}
    lanes = 2 * 8
    assert found["global"] == found["leading, completed"] == lanes * 4 * 82**2
    assert found["block"] == lanes * 4 * (40**2 + 12**2 + 30**2)
    assert found["first layer"] == lanes * 4 * 40**2
    assert found["shared filters"] == lanes * 4 * 32 * 400**2
    assert found["reduced"] == lanes * 4 * 82 * 5
    assert found["auxiliary"] == lanes * 8 * 82 * 5


@pytest.mark.parametrize("steps", [1, pytest.param(None, marks=pytest.mark.long)], ids=["eager", "compiled"])
@pytest.mark.parametrize("backend", ["jax", "torch"])
@pytest.mark.parametrize("name", SMALL)
def test_steps_move_and_products_are_products(name: str, backend: str, steps: int | None):
    variant, lanes = SMALL[name], (2, 3)
    matrices = [orthonormal(shape, 2) for _, shape in variant.blocks.values()]
    for held in (matrices, ()):
        prepared = step(backend, variant, lanes, held, steps)
        with prepared.context():
            before = prepared.result()
            prepared.run()
            assert np.abs(prepared.result() - before).max() > 1e-3
    bare = bare_products(backend, variant, lanes, matrices)
    with bare.context():
        bare.run()
        found = bare.result()
    rows = matrices[0].shape[1]
    assert found.shape == (2, 96 if name == "shared filters" else 3, rows)
    inside = np.einsum("sij,skj->ski", matrices[0] @ np.swapaxes(matrices[0], 1, 2), found)
    np.testing.assert_allclose(inside, found, atol=1e-4)  # in the span of V's columns


def test_a_variant_is_measured_and_told():
    with one_thread():
        (found,) = measure({"reduced": SMALL["reduced"]}, ("jax",), ((1, 1),), 1)
    assert found.gigaflops > 0
    assert line(found).startswith("reduced              jax    1 x 1")


def test_an_unknown_variant_is_an_error(capsys: pytest.CaptureFixture):
    assert main(["--case", "nothing"]) == 2
    assert "--case 'nothing'" in capsys.readouterr().err
