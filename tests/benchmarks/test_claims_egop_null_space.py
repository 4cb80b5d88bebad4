"""Verdicts that rest on the eigenbasis of an EGOP do not hang on which basis its null space has."""

import numpy as np
import pytest
from scipy.stats import ortho_group

from curvebench.benchmarks.claims._smooth_objectives import Ball
from curvebench.benchmarks.claims.egop_bounds import ADAGRAD_BOUND, SMOOTHNESS_BOUND
from curvebench.benchmarks.claims.egop_hessians import HESSIAN_SANDWICH
from tests.benchmarks.claim_mutations import few, verdicts_of

NULL = 1e-12  # of the greatest eigenvalue


@pytest.mark.parametrize(
    ("claim", "instances"), [(SMOOTHNESS_BOUND, 20), (ADAGRAD_BOUND, 8), (HESSIAN_SANDWICH, 8)]
)
def test_with_another_basis_of_the_null_space(claim, instances, monkeypatch):
    right, turned = vars(Ball)["spectrum"].func, []

    def another(ball):
        values, vectors = right(ball)
        null = int(np.sum(values <= NULL * values[0]))
        if null < 2:
            return values, vectors
        turned.append(null)
        rotation = ortho_group.rvs(null, random_state=len(turned))
        return values, np.concatenate([vectors[:, :-null], vectors[:, -null:] @ rotation], axis=1)

    before = verdicts_of(few(claim, instances))
    monkeypatch.setattr(Ball, "spectrum", property(another))
    assert verdicts_of(few(claim, instances)) == before
    assert len(turned) >= 5
