"""The search for the instance that comes nearest to breaking a bound."""

from __future__ import annotations

import numpy as np
import pytest

from curvebench.property_checks.checks import Measure, verdicts
from curvebench.property_checks.searching import Moved, nearest
from tests.curvebench.property_checks.claim_rows import claim_of, rows


def drawn(random: np.random.Generator) -> list[np.ndarray]:
    """Draw once from each kind of random numbers."""
    return [
        np.asarray(random.integers(10, size=3)),
        random.normal(2.0, [1.0, 3.0]),
        random.uniform(-1, [1.0, 2.0, 3.0]),
        np.asarray(random.random()),
        random.permutation(5),
        random.standard_normal((2, 2)),
        np.asarray(random.normal(size=4)),
    ]


def test_a_step_of_0_is_the_instance_itself_and_others_move_what_is_continuous():
    own, other = drawn(np.random.default_rng([3, 1])), np.random.default_rng(0)
    for mine, same in zip(own, drawn(Moved([3, 1], [], 0.0, other)), strict=True):
        np.testing.assert_allclose(same, mine, rtol=1e-12)
    moved = [
        np.array_equal(mine, new) for mine, new in zip(own, drawn(Moved([3, 1], [], 0.3, other)), strict=True)
    ]
    assert moved == [True, False, False, False, True, False, False]


def test_what_is_moved_keeps_its_distribution():
    random = Moved([1], [], 0.7, np.random.default_rng(2))
    uniform, normal = random.uniform(2, 4, 20_000), random.normal(1, 3, 20_000)
    assert (uniform.mean(), uniform.var()) == (pytest.approx(3, abs=0.02), pytest.approx(1 / 3, abs=0.01))
    assert (normal.mean(), normal.std()) == (pytest.approx(1, abs=0.1), pytest.approx(3, abs=0.1))


def cosine(random: np.random.Generator) -> float:
    one, other = random.standard_normal((2, 6))
    return float(one @ other / np.linalg.norm(one) / np.linalg.norm(other))


def test_a_bound_that_is_attained_where_no_draw_comes_is_nearly_reached():
    assert cosine(np.random.default_rng([0, 0])) < 0.7
    assert cosine(nearest(cosine, [0, 0], 300)) > 0.99
    assert cosine(nearest(lambda random: 2 * cosine(random), [0, 0], 300)) < 0.99, "it ends with a miss"


@pytest.mark.parametrize(
    ("limit", "verdict"), [(1.0, "reproduced"), (9.0, "partly reproduced"), (0.9, "not reproduced")]
)
def test_a_claim_knows_its_bounds_by_what_the_search_reached(limit, verdict):
    def measured(random: np.random.Generator) -> list[Measure]:
        return [Measure("cosine", cosine(random), "<=", limit), Measure("exact", 0.0, "==", 0.0)]

    claim = claim_of(measured, 5, bound=True)
    found = list(rows(claim, "paper"))
    assert {row.instance for row in found} == set(range(6))
    assert max(row.measure.value for row in found if row.instance < 5) < 0.9
    assert verdicts(claim, found) == {"": verdict}
    assert {row.instance for row in rows(claim, "quick")} == set(range(6)), "a search a bound, none else"
    loose = claim_of(measured, 5)
    assert verdicts(loose, list(rows(loose, "paper"))) == {"": "reproduced"}


@pytest.mark.parametrize(("limit", "verdict"), [(1.0, "reproduced"), (9.0, "partly reproduced")])
def test_each_bound_of_a_part_is_searched_and_none_hides_another(limit, verdict):
    def measured(random: np.random.Generator) -> list[Measure]:
        return [Measure("first", cosine(random), "<=", 1.0), Measure("second", cosine(random), "<=", limit)]

    claim = claim_of(measured, 4, bound=True)
    found = list(rows(claim, "paper"))
    assert {row.instance for row in found} == set(range(6)), "two searches"
    reached = {(row.measure.quantity, row.instance): row.measure.value for row in found}
    for quantity, instance in (("first", 4), ("second", 5)):
        drawn = max(reached[quantity, number] for number in range(4))
        assert drawn < 0.8 < reached[quantity, instance]
    assert verdicts(claim, found) == {"": verdict}
