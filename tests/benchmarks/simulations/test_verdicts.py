"""The simulated verdicts are those that the engine gives."""

from __future__ import annotations

import numpy as np

from benchmarks.simulations.verdicts import MARGIN, any_of, claims_of, of_claims
from reports.plan import ConditionPlan
from reports.statistics.decisions import Question
from reports.verdicts import Compared, combined, decided


def compared(gains: np.ndarray) -> Compared:
    condition = ConditionPlan(
        metric="train_loss",
        which="final",
        relation="better",
        methods=("adam",),
        than=("sgd",),
        pairs="matched",
        workload=None,
        smallest_effect=MARGIN,
        effect="difference",
        test="wilcoxon",
        family="family",
    )
    return Compared(
        "claim", "study", "jax", "digits", condition, "adam", "sgd", "difference", 1.0, gains, MARGIN
    )


def test_a_family_of_claims_gets_the_verdicts_of_the_engine():
    random = np.random.default_rng(0)
    studies = 0.1 * random.normal(size=(3, 3, 8)) + np.array([-0.2, 0.05, 0.3])[:, None]
    expected = [
        [combined([finding]) for finding in decided([compared(gains) for gains in study])["finding"]]
        for study in studies
    ]
    found = claims_of(Question("better", MARGIN), studies)
    assert found == expected
    assert {"reproduced", "not reproduced"} <= {verdict for study in found for verdict in study}
    assert any_of(found, "reproduced") == 1.0
    assert of_claims(found, "reproduced") >= 1 / 3
