"""Parameters of any order as matrices, and a rule for all orders out of one for matrices."""

from __future__ import annotations

import numpy as np
import pytest

from curvebench.arrays.numpy_ops import numpy_ops
from curvebench.optimizers.matricization import as_matrix

OPS = numpy_ops("float64")


@pytest.mark.parametrize(
    ("shape", "matrix"),
    [((), (1, 1)), ((4,), (1, 4)), ((3, 2), (3, 2)), ((2, 3, 5), (2, 15)), ((2, 3, 1, 2), (2, 6))],
)
@pytest.mark.parametrize("leading", [(), (2, 1, 3)])
def test_the_first_axis_counts_rows_and_entries_keep_their_order(
    shape: tuple[int, ...], matrix: tuple[int, ...], leading: tuple[int, ...]
):
    array = np.random.default_rng(0).standard_normal((*leading, *shape))
    found = as_matrix(OPS, array, len(shape))
    assert found.shape == (*leading, *matrix)
    np.testing.assert_array_equal(found.ravel(), array.ravel())
